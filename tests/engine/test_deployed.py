"""What each node would deploy, against plain NumPy; and what is measured on these models."""

import jax.numpy as jnp
import numpy as np
import pytest

from folkman.algorithm.async_sharing import async_sharing
from folkman.algorithm.dispfl import dispfl
from folkman.algorithm.dpsgd import dpsgd
from folkman.algorithm.fedavg import fedavg
from folkman.algorithm.fedbuff import fedbuff
from folkman.algorithm.hierfavg import hierfavg
from folkman.algorithm.sgp import sgp
from folkman.engine.metrics import node_models
from folkman.engine.simulate import Recording, Simulation, march, simulate, start
from folkman.problem.data import digits, quadratic
from folkman.problem.partition import sorted_labels
from folkman.problem.problem import make_problem
from folkman.radio.delay import constant, ideal, snapshot

NODES, STEP, LATE = 4, 0.2, 2


@pytest.fixture(scope="module")
def bowls():
    """Four quadratics F_i(w) = 1/2 ||w - c_i||^2 with minima of their own."""
    data = quadratic(nodes=NODES, dim=3, seed=1)
    return make_problem(data, "quadratic", [np.array([i]) for i in range(NODES)])


def slopes(problem, points):
    """Return grad F_i at each node's point, in float64."""
    centre, curvature = (np.asarray(a[:, 0], np.float64) for a in (problem.x, problem.y))
    return curvature * (points - centre)


def deployed(problem, network, algorithm, slots):
    """Return each node's model before every slot, (slot, node, d)."""
    simulation = Simulation(problem, network, algorithm, recording=Recording(every=1))
    marks = march(simulation, start(simulation, 0), slots)
    return np.stack([np.asarray(node_models(simulation, mark)[1]) for mark, _ in marks])


def test_a_node_of_fedavg_deploys_the_model_it_received_last(bowls):
    """Not its half-updated one, and not the one on its way.

    A round is one gradient; the upload takes two slots and the answer two.
    """
    found = deployed(bowls, constant(LATE), fedavg(STEP), 12)
    server = np.asarray(bowls.initial, np.float64)
    expected = []
    for slot in range(13):
        expected.append(np.tile(server, (NODES, 1)))
        if slot % (2 * LATE + 1) == 2 * LATE:
            server = np.mean(expected[-1] - STEP * slopes(bowls, expected[-1]), axis=0)
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("order", ["combine_first", "adapt_first"])
def test_a_node_of_dpsgd_deploys_what_it_has_mixed(bowls, order):
    found = deployed(bowls, constant(LATE), dpsgd(STEP, order=order, topology="ring"), 9)
    ring = (np.eye(NODES) + np.roll(np.eye(NODES), 1, 0) + np.roll(np.eye(NODES), -1, 0)) / 3
    x = np.tile(np.asarray(bowls.initial, np.float64), (NODES, 1))
    expected, mixed = [], x
    for slot in range(10):
        expected.append(mixed)
        if slot % (LATE + 1) == LATE:
            moved = -STEP * slopes(bowls, x)
            mixed = ring @ x if order == "combine_first" else ring @ (x + moved)
            x = mixed + moved if order == "combine_first" else mixed
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-6)


def test_a_node_of_algorithm_1_deploys_v(bowls):
    """v_i = alpha_i w_i(t) + sum_j alpha_j w_j(max(t - D, 0)), eq. (9)."""
    found = deployed(bowls, constant(LATE), async_sharing(STEP), 8)
    w = [np.tile(np.asarray(bowls.initial, np.float64), (NODES, 1))]
    expected = []
    for slot in range(9):
        old = w[max(slot - LATE, 0)]
        expected.append(np.mean(old, axis=0) + (w[slot] - old) / NODES)
        w.append(w[slot] - STEP * slopes(bowls, expected[-1]))
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-6)


def test_all_nodes_of_a_server_deploy_one_model_at_once(bowls):
    """All answers come in one slot: nodes never disagree, whenever a row is taken."""
    for method in (fedavg(STEP, local_steps=2), fedbuff(STEP, buffer_size=NODES)):
        run = simulate(bowls, constant(3), method, slots=20, recording=Recording(every=1))
        assert max(run.column("consensus")) == 0, method.name
        assert run.last("rounds") > 1


def test_disagreement_in_rounds_is_that_of_the_mixed_models_throughout_a_round(bowls):
    """||x_i - x_mean|| by hand; it changes only when a round ends, whenever a row is taken."""
    algorithm = dpsgd(STEP, topology="ring")
    run = simulate(bowls, constant(LATE), algorithm, slots=9, recording=Recording(every=1))
    x = deployed(bowls, constant(LATE), algorithm, 9).astype(np.float64)
    apart = np.linalg.norm(x - x.mean(axis=1, keepdims=True), axis=2).mean(axis=1)
    np.testing.assert_allclose(run.column("consensus"), apart, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(apart[6:9], apart[6], rtol=1e-12)
    assert apart[6] > 0.01


def test_a_node_in_a_cell_deploys_its_stations_model(bowls):
    found = deployed(bowls, ideal(), hierfavg(STEP, cells=2, global_every=100), 3)
    np.testing.assert_array_equal(found[:, 0], found[:, 2])
    np.testing.assert_array_equal(found[:, 1], found[:, 3])
    assert np.abs(found[-1, 0] - found[-1, 1]).max() > 0.1


def test_push_sum_deploys_the_ratio_after_mixing(bowls):
    """On a complete graph one round mixes everything: all nodes deploy the mean."""
    found = deployed(bowls, ideal(), sgp(STEP, topology="complete"), 3)
    np.testing.assert_allclose(found[1:], found[1:, :1].repeat(NODES, 1), rtol=1e-5, atol=1e-6)


def test_a_personal_method_deploys_its_own_masked_parameters(bowls):
    algorithm = dispfl(STEP, density=0.5)
    simulation = Simulation(bowls, ideal(), algorithm, recording=Recording(every=5))
    *_, (mark, _) = march(simulation, start(simulation, 0), 5)
    models = np.asarray(node_models(simulation, mark)[1])
    memory = mark.carry.states.memory
    np.testing.assert_array_equal(models, np.asarray(memory.params))
    assert (models[~np.asarray(memory.shared)] == 0).all()


def plain_accuracies(problem, models):
    """Return test and local accuracies of softmax models by counting, (node,) each."""
    x, y = np.asarray(problem.x_test, np.float64), np.asarray(problem.y_test)
    overall, local = [], []
    for node, model in enumerate(models):
        named = problem.layout.unflatten(model)
        kernel = next(np.asarray(value, np.float64) for value in named.values() if value.ndim == 2)
        bias = next(np.asarray(value, np.float64) for value in named.values() if value.ndim == 1)
        right = np.argmax(x.reshape(len(x), -1) @ kernel.T + bias, axis=1) == y
        mine = np.asarray(problem.y[node, : int(problem.count[node])])
        overall.append(right.mean())
        local.append(sum(np.mean(mine == c) * right[y == c].mean() for c in np.unique(mine)))
    return np.array(overall), np.array(local)


def test_the_columns_of_nodes_are_mean_worst_and_spread_of_their_models():
    data = digits()
    problem = make_problem(data, "softmax", sorted_labels(data.y_train, 3))
    recording = Recording(every=6, nodes=True)
    simulation = Simulation(problem, snapshot(2), async_sharing(0.5), recording=recording)
    *_, (mark, row) = march(simulation, start(simulation, 0), 6)
    models = node_models(simulation, mark)[1]
    overall, local = plain_accuracies(problem, models)
    losses = np.array([float(problem.evaluate(model).train_loss) for model in models])
    expected = {
        "node_test_accuracy": (overall.mean(), overall.min(), overall.std()),
        "node_local_accuracy": (local.mean(), local.min(), local.std()),
        "node_train_loss": (losses.mean(), losses.max(), losses.std()),
    }
    for name, values in expected.items():
        found = [row[name], row[f"{name}_worst"], row[f"{name}_spread"]]
        np.testing.assert_allclose(found, values, rtol=1e-4, atol=1e-6, err_msg=name)
    assert local.mean() > overall.mean() + 0.01  # nodes hold other labels each


def test_without_labels_there_is_no_local_accuracy(bowls):
    assert jnp.isnan(bowls.local_accuracies(jnp.zeros((NODES, 3)))).all()
