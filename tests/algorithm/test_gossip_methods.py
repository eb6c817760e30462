"""Gossip between peers: D-PSGD, AD-PSGD, SGP, SWIFT, DFedAvgM by their equations, invariants and reductions."""

from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folkman import (
    Clock,
    Recording,
    async_sharing,
    constant,
    fedavg,
    ideal,
    iid,
    load,
    make_problem,
    pipelined,
    reference,
    simulate,
    snapshot,
    split,
)
from folkman.algorithm.adpsgd import adpsgd
from folkman.algorithm.base import Inbox, Place
from folkman.algorithm.dfedavgm import dfedavgm, round_at_random
from folkman.algorithm.dpsgd import dpsgd
from folkman.algorithm.pieces.topology import Graph, metropolis
from folkman.algorithm.sgp import push_weights, sgp
from folkman.algorithm.swift import offered_weights, swift
from folkman.algorithm.travel import Mixing
from folkman.engine.slot import begin, finish, first
from folkman.faults import NO_FAULTS, Faults
from folkman.radio.delivery import as_value
from folkman.radio.loss import Lossy, LossyPeers
from reference import plain

STEP, NODES = 0.1, 6
SPREAD = {
    "decay": "cosine",
    "decay_steps": 4,
}  # four steps that set the nodes apart, then a step of 0
DIRECTED = np.array(
    [[0, 1, 0, 0, 1, 0], [1, 0, 1, 0, 0, 0], [0, 1, 0, 0, 0, 1], [1, 0, 1, 0, 0, 0]]
).astype(bool)
DIRECTED = np.concatenate(
    [DIRECTED, np.eye(6, k=-1, dtype=bool)[4:]]
)  # (rx, tx); strongly connected, irregular


class RoomyPeers(LossyPeers):
    """With room for a copy of each receiver besides the newest ones."""

    def versions(self, num_nodes):
        return self.beneath.versions(num_nodes) + num_nodes


@as_value("network", "loss")
@dataclass(frozen=True)
class Roomy(Lossy):
    """Losses over copies that come out of order."""

    def peers(self):
        return RoomyPeers(self.network.peers(), self.loss)


LOSSY = Roomy(iid(4), 0.3)
close = partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-12)


def with_weights(algorithm, weights):
    """Return the algorithm on a graph of our own."""
    travel = replace(algorithm.travel, mixing=Mixing(lambda _: jnp.asarray(weights)))
    return replace(algorithm, travel=travel)


def ring():
    return np.asarray(metropolis(jnp.asarray(Graph("ring").adjacency(NODES))))


def gradients_of(problem):
    parts = zip(np.asarray(problem.x), np.asarray(problem.y), strict=True)
    each = [partial(plain.quadratic_gradient, x=x, y=y) for x, y in parts]
    return lambda models: np.stack(
        [gradient(w)[1] for gradient, w in zip(each, models, strict=True)]
    )


def told_of(problem, network, algorithm, slots, change=lambda carry: carry):
    """Return the states (slot + 1, node, ...), the stamps held (slot, rx, tx), who sends (slot, node)."""
    compute = (1,) * problem.num_nodes

    def slot(carry, _):
        held = carry.medium.snapshots.held
        carry, point, keys = begin(problem, network, algorithm, compute, NO_FAULTS, carry)
        carry, (_, events) = finish(
            problem, network, algorithm, NO_FAULTS, carry, problem.gradients(point, keys)
        )
        return carry, (carry.states, held, events.sends)

    @jax.jit
    def run():
        carry = change(first(problem, network, algorithm, compute, 0))
        last, (states, *air) = jax.lax.scan(slot, carry, None, slots)
        stacked = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), carry.states, states)
        return (stacked, *air), last.medium.snapshots.missing

    told, missing = run()
    assert not missing
    return jax.tree.map(np.asarray, told)


def steps_of(problem, network, algorithm, slots, change=lambda carry: carry):
    """Return the states before slot 0, as `change` makes them, and after every slot: (slot + 1, node, ...) each."""
    return told_of(problem, network, algorithm, slots, change)[0]


def spread_of(models):
    """Return the distance of the nodes' models from their mean."""
    return np.linalg.norm(np.asarray(models) - np.mean(models, axis=0))


# --- one law for all ---


PARITY = {
    "dpsgd": (dpsgd, constant(2)),
    "dfedavgm": (partial(dfedavgm, local_steps=2), ideal()),
    "dfedavgm, rounded": (
        partial(dfedavgm, local_steps=2, exchange="differences", bits=4),
        Lossy(iid(2), 0.3),
    ),
    "sgp": (partial(sgp, topology="star"), constant(1)),
    "sgp, schedule": (partial(sgp, topology="schedule"), Lossy(ideal(), 0.3)),
    "sgp, asynchronous": (partial(sgp, mode="asynchronous"), LOSSY),
    "adpsgd": (adpsgd, LOSSY),
    "swift": (partial(swift, every=2, missing="scale", topology="complete"), snapshot(3)),
}


@pytest.fixture(params=PARITY, scope="module")
def parity(request):
    """One method after the other: the tests of each share a compiled program."""
    return PARITY[request.param]


def run_on_uneven_digits(algorithm, network):
    samples = load("digits", train_size=120)
    parts = split("dirichlet", samples.y_train, 4, concentration=1.0, seed=3)
    problem = make_problem(samples, "softmax", parts, dtype="float64")
    recording = Recording(9, timeline=True)
    return problem, simulate(problem, network, algorithm, slots=9, seed=5, recording=recording)


def test_simulator_and_reference_agree(x64, parity):
    build, network = parity
    algorithm = build(step=0.3)
    problem, run = run_on_uneven_digits(algorithm, network)
    slow = reference(problem, run.timeline, algorithm, seed=5)

    assert spread_of(run.nodes) > 1e-3
    np.testing.assert_allclose(run.nodes, slow.nodes, rtol=1e-9, atol=1e-12)


FEDAVG, ATC = (
    fedavg(STEP),
    dpsgd(STEP, "adapt_first"),
)  # built once: what is compiled for them is used again
FEDAV = {
    "D-PSGD, adapt first": dpsgd(STEP, "adapt_first", "complete"),
    "SGP": sgp(STEP, topology="complete"),
    "SGP, asynchronous": sgp(STEP, "asynchronous", topology="complete", pushes="whole"),
    "DFedAvgM, K 1, theta 0": dfedavgm(STEP, local_steps=1, momentum=0.0, topology="complete"),
    "DFedAvgM, differences": dfedavgm(
        STEP, local_steps=1, momentum=0.0, exchange="differences", topology="complete"
    ),
}


@pytest.mark.parametrize("name", FEDAV)
def test_on_the_complete_graph_it_is_fedavg(quadratics, name):
    problem = quadratics(nodes=NODES)

    run = simulate(problem, ideal(), FEDAV[name], slots=40, recording=Recording(40))

    close(run.model, simulate(problem, ideal(), FEDAVG, slots=40, recording=Recording(40)).model)


def test_a_step_of_zero_changes_nothing(x64, parity):
    build, network = parity

    problem, run = run_on_uneven_digits(build(step=0.0), network)

    close(run.nodes, np.tile(problem.initial, (4, 1)))


# --- D-PSGD ---


@pytest.mark.parametrize("order", ["combine_first", "adapt_first"])
def test_dpsgd_is_its_matrix_form_and_its_mean_obeys_the_mean_gradient(quadratics, order):
    problem = quadratics(nodes=NODES)
    W, gradients = (
        np.asarray(metropolis(jnp.asarray(Graph("star").adjacency(NODES)))),
        gradients_of(problem),
    )
    models = unmixed = np.tile(problem.initial, (NODES, 1))
    for _ in range(20):
        moved = -STEP * gradients(models)
        unmixed = (
            models + moved
        )  # what a node has when a slot ends: it is mixed when the next one begins
        models = W @ models + moved if order == "combine_first" else W @ unmixed
        close(models.mean(axis=0), unmixed.mean(axis=0))

    run = simulate(problem, ideal(), dpsgd(STEP, order, "star"), slots=20, recording=Recording(20))

    close(run.nodes, unmixed)
    close(run.model, models.mean(axis=0))


def test_momentum_of_the_gossip_methods_is_told_in_numpy(quadratics):
    problem, beta = quadratics(nodes=NODES), 0.8
    W, gradients = ring(), gradients_of(problem)
    combined = np.tile(problem.initial, (NODES, 1))
    adapted, u, v = combined, np.zeros_like(combined), np.zeros_like(combined)
    unmixed = adapted
    for _ in range(15):
        u = beta * u + gradients(combined)
        combined = W @ combined - STEP * u
        v = beta * v + gradients(adapted)
        unmixed = adapted - STEP * v
        adapted = W @ unmixed

    found = {
        algorithm.name: simulate(problem, ideal(), algorithm, slots=15, recording=Recording(15))
        for algorithm in (swift(STEP, momentum=beta), sgp(STEP, momentum=beta))
    }
    late = simulate(
        problem,
        ideal(),
        sgp(STEP, "asynchronous", momentum=beta, pushes="whole"),
        slots=15,
        recording=Recording(15),
    )
    first_order = dpsgd(STEP, "adapt_first", momentum=beta)
    run = simulate(problem, ideal(), first_order, slots=15, recording=Recording(15))

    close(found["swift"].nodes, combined)
    for each in (found["sgp"], late, run):
        close(each.nodes, unmixed)


def test_momentum_of_algorithm_1_without_delay_is_heavy_ball_on_all_data(quadratics):
    problem, beta = quadratics(nodes=NODES), 0.8
    share, gradients = np.asarray(problem.share), gradients_of(problem)
    w = np.asarray(problem.initial)
    u = np.zeros_like(w)
    for _ in range(20):
        u = beta * u + share @ gradients(np.tile(w, (NODES, 1)))
        w = w - STEP * u

    algorithm = async_sharing(STEP, momentum=beta)
    run = simulate(problem, ideal(), algorithm, slots=20, recording=Recording(20))

    close(run.model, w)


def test_dpsgd_with_identity_weights_is_isolated_descent(quadratics):
    problem = quadratics(nodes=NODES)
    models, gradients = np.tile(problem.initial, (NODES, 1)), gradients_of(problem)
    for _ in range(20):
        models = models - STEP * gradients(models)

    run = simulate(
        problem,
        ideal(),
        with_weights(dpsgd(STEP), np.eye(NODES)),
        slots=20,
        recording=Recording(20),
    )

    close(run.nodes, models)


@pytest.mark.parametrize(
    ("algorithm", "part"),
    [(dpsgd, lambda memory: memory.params), (sgp, lambda mass: mass)],
    ids=["dpsgd", "sgp"],
)
def test_without_gradients_nodes_agree_at_the_second_eigenvalue(quadratics, algorithm, part):
    rate = np.sort(np.abs(np.linalg.eigvalsh(ring())))[-2]

    states = steps_of(quadratics(nodes=NODES), ideal(), algorithm(1.0, **SPREAD), 30)

    errors = np.array([spread_of(models) for models in part(states.memory)[5:]])
    assert errors[0] > 0.1
    assert (errors[1:] <= rate * errors[:-1] * (1 + 1e-9) + 1e-14).all()
    np.testing.assert_allclose(errors[-1] / errors[-2], rate, rtol=1e-3)  # and no faster in the end


# --- DFedAvgM ---


def test_dfedavgm_is_its_equations(quadratics):
    problem, W = quadratics(nodes=NODES), ring()
    gradients = gradients_of(problem)
    x = np.tile(problem.initial, (NODES, 1))
    for _ in range(4):
        y = before = x
        for _ in range(3):
            y, before = y - STEP * gradients(y) + 0.5 * (y - before), y
        x = W @ y

    run = simulate(
        problem,
        ideal(),
        dfedavgm(STEP, local_steps=3, momentum=0.5),
        slots=12,
        recording=Recording(12),
    )

    close(W @ run.nodes, x)


def test_dfedavgm_with_one_plain_step_is_dpsgd_adapt_first(quadratics):
    problem = quadratics(nodes=NODES)

    left = simulate(
        problem,
        ideal(),
        dfedavgm(STEP, local_steps=1, momentum=0.0),
        slots=20,
        recording=Recording(20),
    )
    right = simulate(problem, ideal(), ATC, slots=20, recording=Recording(20))

    close(left.nodes, right.nodes)


def test_dfedavgm_without_momentum_on_the_complete_graph_is_fedavg_with_local_steps(quadratics):
    problem = quadratics(nodes=NODES)
    algorithm = dfedavgm(STEP, local_steps=4, momentum=0.0, topology="complete")

    run = simulate(problem, ideal(), algorithm, slots=20, recording=Recording(20))

    close(
        run.model,
        simulate(problem, ideal(), fedavg(STEP, 4), slots=20, recording=Recording(20)).model,
    )


def test_lossless_differences_have_the_mean_of_models_but_not_the_nodes(quadratics):
    """The gradients' mean must not depend on the nodes' differences: equal curvature, unequal centres."""
    problem = quadratics(nodes=NODES, condition=1.0)
    options = {"local_steps": 2, "momentum": 0.5}

    models = simulate(problem, ideal(), dfedavgm(STEP, **options), slots=8, recording=Recording(2))
    differences = simulate(
        problem, ideal(), dfedavgm(STEP, exchange="differences", **options), slots=8
    )

    close(models.model, differences.model)
    assert np.abs(models.nodes - differences.nodes).max() > 1e-2


def test_lossless_differences_are_the_models_while_all_start_equal(quadratics):
    problem = quadratics(nodes=NODES)
    options = {"local_steps": 2, "momentum": 0.5}

    models = simulate(problem, ideal(), dfedavgm(STEP, **options), slots=3, recording=Recording(3))
    differences = simulate(
        problem, ideal(), dfedavgm(STEP, exchange="differences", **options), slots=3
    )

    close(models.nodes, differences.nodes)


def test_rounding_is_unbiased_within_a_spacing_and_on_few_levels(x64):
    vector = np.array([0.0, 1.0, -0.3, 0.77, -0.951, 1e-4])
    keys = jax.random.split(jax.random.key(0), 20_000)

    found = np.asarray(jax.vmap(lambda key: round_at_random(jnp.asarray(vector), 3, key))(keys))

    np.testing.assert_allclose(
        found * 3, np.round(found * 3), atol=1e-12
    )  # 2^(3-1) - 1 = 3 levels a side
    assert np.abs(found - vector).max() < 1 / 3
    assert np.abs(found).max() <= 1.0
    np.testing.assert_allclose(found.mean(axis=0), vector, atol=5 * (1 / 6) / np.sqrt(len(keys)))
    np.testing.assert_array_equal(round_at_random(jnp.zeros(3), 8, keys[0]), np.zeros(3))


def test_rounded_differences_cost_b_bits_an_entry_and_still_learn(quadratics):
    problem = quadratics(nodes=4, heterogeneity=0.0, condition=4.0)
    options = {"local_steps": 2, "momentum": 0.5, "topology": "complete"}
    algorithm = dfedavgm(STEP, exchange="differences", bits=8, **options)

    run = simulate(problem, ideal(), algorithm, slots=600, recording=Recording(600))

    assert run.last("bits") == 300 * 4 * (8 * 10 + 32)
    assert run.last("optimum_distance") < 1e-6
    close(
        run.nodes, np.tile(run.model, (4, 1)), atol=1e-9
    )  # on the complete graph rounding sets no node apart


def test_what_is_sent_is_the_rounded_change_of_the_round_and_the_node_takes_it_too(x64):
    """On b bits there are 2^(b-1) - 1 levels a side: every entry is a whole number of spacings."""
    bits, start, key = 3, np.array([5.0, -1.0, 2.0, 0.5]), jax.random.key(3)
    grad = np.array([1.0, 0.31, -0.77, 0.05])
    plain_one, rounded = (
        dfedavgm(STEP, local_steps=2, momentum=0.0, exchange="differences", bits=b)
        for b in (0, bits)
    )
    place = Place(jnp.asarray(0), 2, key)
    found = []
    for algorithm in (plain_one, rounded):
        state = algorithm.init(jnp.asarray(start), place)
        none = Inbox(
            jnp.zeros((2, 4)), jnp.arange(2), *(jnp.zeros(2), jnp.ones(())),
            jnp.zeros(2, bool), jnp.zeros(2, jnp.int32), jnp.ones(2, bool),
        )  # fmt: skip
        for _ in range(2):
            state = algorithm.update(state, none, jnp.zeros(()), jnp.asarray(grad), key)
        found.append((np.asarray(algorithm.message(state)), np.asarray(algorithm.params(state))))

    (change, model), (sent, taken) = found
    close(change, -2 * STEP * grad)
    close(model, start + change)
    spacing = np.abs(change).max() / (2 ** (bits - 1) - 1)
    close(sent / spacing, np.round(sent / spacing), atol=1e-9)
    assert (np.abs(sent - change) < spacing).all()
    assert not np.allclose(sent, change)
    close(taken, start + sent)


# --- SGP ---


def test_sgp_on_a_regular_graph_is_dpsgd_adapt_first_with_weight_one(quadratics):
    problem = quadratics(nodes=NODES)

    states = steps_of(problem, ideal(), sgp(STEP), 20)
    asynchronous = sgp(STEP, "asynchronous", pushes="whole")
    waits = simulate(problem, ideal(), asynchronous, slots=20, recording=Recording(20))
    right = simulate(problem, ideal(), ATC, slots=20, recording=Recording(20))

    close(states.memory[..., -1], 1.0)
    close(states.memory[-1, :, :-1], right.nodes)
    close(waits.nodes, right.nodes)  # asynchronous, but nothing is late


def test_a_liar_does_to_sgp_in_lock_step_what_it_does_to_dpsgd(quadratics):
    """From a first model that is not 0: there an update reversed is not a model reversed."""
    liars = Faults(liars=0.2, attack="sign_flip", scale=2.0)
    problem = quadratics(nodes=NODES)
    problem = replace(problem, initial=jnp.full_like(problem.initial, 3.0))

    left, right = (
        simulate(problem, ideal(), each, slots=20, recording=Recording(20), faults=liars)
        for each in (sgp(STEP), ATC)
    )

    close(left.nodes, right.nodes)
    honest = simulate(problem, ideal(), ATC, slots=20, recording=Recording(20))
    assert np.abs(left.nodes - honest.nodes).max() > 0.1


def test_sgp_in_lock_step_agrees_on_the_mean_of_a_directed_irregular_graph(quadratics):
    P = np.asarray(push_weights(jnp.asarray(DIRECTED)))
    assert np.abs(P.sum(axis=1) - 1).max() > 0.1

    states = steps_of(quadratics(nodes=NODES), ideal(), with_weights(sgp(1.0, **SPREAD), P), 150)

    total, last = states.memory.sum(axis=1), states.memory[-1]
    close(total[4:], np.tile(total[4], (len(total) - 4, 1)))
    close(total[:, -1], NODES)
    assert np.abs(last[:, -1] - 1).max() > 0.1
    close(last[:, :-1] / last[:, -1:], np.tile(total[4, :-1] / NODES, (NODES, 1)))
    close(P.sum(axis=0), 1.0)


def mass_of(states, adjacency):
    """Return what all hold and what is in flight, (slot + 1, d + 1): pushed to each hearer, and not yet taken."""
    hearers = adjacency.sum(axis=0)[:, None]
    apart = states.taken.ndim > states.mass.ndim  # what was taken of each neighbour
    taken = states.taken.sum(axis=2) if apart else states.taken
    return np.sum(states.mass + hearers * states.pushed - taken, axis=1)


@pytest.mark.parametrize(
    ("network", "sums"),
    [(LOSSY, "total"), (LOSSY, "neighbour"), (constant(7), "total")],
    ids=["losses, reordered", "sums of each", "late"],
)
def test_asynchronous_sgp_keeps_all_mass_and_agrees_on_the_mean(quadratics, network, sums):
    algorithm = with_weights(
        sgp(1.0, "asynchronous", sums=sums, **SPREAD), push_weights(jnp.asarray(DIRECTED))
    )

    states = steps_of(quadratics(nodes=NODES), network, algorithm, 600)

    mass, weight = mass_of(states, DIRECTED), states.mass[..., -1]
    models = states.mass[..., :-1] / weight[..., None]
    close(mass[:, -1], NODES)
    close(mass[4:], np.tile(mass[4], (len(mass) - 4, 1)))
    assert weight.sum(axis=1).min() < NODES - 1  # some was in flight
    assert weight.min() >= 0.1 - 1e-12
    assert spread_of(models[5]) > 0.1
    np.testing.assert_allclose(models[-1], np.tile(mass[4, :-1] / NODES, (NODES, 1)), atol=1e-6)


@pytest.mark.parametrize(
    ("network", "options"),
    [
        (constant(0), {}),
        (constant(7), {}),
        (LOSSY, {}),
        (LOSSY, {"sums": "neighbour"}),
        (LOSSY, {"pushes": "whole"}),
    ],
    ids=["at once", "late", "losses, reordered", "sums of each", "whole"],
)
def test_asynchronous_sgp_is_its_story_told_push_by_push(quadratics, network, options):
    """By its defaults and by others, on a directed graph with unequal numbers of hearers."""
    problem = quadratics(nodes=NODES)
    parts = zip(np.asarray(problem.x), np.asarray(problem.y), strict=True)
    gradients = [partial(plain.quadratic_gradient, x=x, y=y) for x, y in parts]
    algorithm = with_weights(
        sgp(STEP, "asynchronous", **options), push_weights(jnp.asarray(DIRECTED))
    )

    states, held, _ = told_of(problem, network, algorithm, 40)

    apart, by_age = options.get("sums") == "neighbour", options.get("pushes") != "whole"
    w0 = np.asarray(problem.initial)
    x, y = plain.push(gradients, w0, DIRECTED, held, STEP, least=0.1, apart=apart, by_age=by_age)
    close(states.mass[..., -1], y)
    close(states.mass[..., :-1] + y[..., None] * w0, x)
    assert np.ptp(y[-1]) > 0.05  # hearers and delays are unequal


def test_sums_of_each_neighbour_bring_more_where_copies_are_overtaken(quadratics):
    """On a dense graph some copy is older than the one before in almost every slot."""
    problem = quadratics(nodes=NODES)
    options = {"topology": "complete", "pushes": "whole"}
    total, each = (
        steps_of(problem, iid(4), sgp(STEP, "asynchronous", sums=sums, **options), 100)
        for sums in ("total", "neighbour")
    )

    adjacency = Graph("complete").adjacency(NODES)
    close(mass_of(each, adjacency)[:, -1], NODES)
    least = [states.divisor[20:].min(axis=1).mean() for states in (total, each)]
    assert least[1] > 1.5 * least[0]


def test_a_run_of_sgp_tells_the_least_weight_and_warns_of_a_small_one(quadratics):
    """All push at once and wait for five slots, with the least weight that they may keep."""
    problem, nominal = quadratics(nodes=NODES), []
    for least in (0.1, 0.5):
        algorithm = sgp(STEP, "asynchronous", least, topology="complete", pushes="whole")
        run = simulate(problem, constant(5), algorithm, slots=40, recording=Recording(4))
        nominal.append(min(run.column("push_weight")))
        assert ("divided its gradient by a weight of" in run.message) == (least == 0.1)
    close(nominal, [0.1, 0.5])
    assert "push_weight" not in simulate(problem, ideal(), sgp(STEP), slots=2).rows[0]


@pytest.mark.parametrize("network", [constant(4), pipelined(5), iid(4)], ids=lambda n: n.name)
def test_by_age_half_of_the_mass_stays_on_a_dense_graph(quadratics, network):
    """No gradient is divided by less than a third, from the first slot on, on 20 nodes."""
    problem = quadratics(nodes=20, dim=2)
    algorithm = sgp(STEP, "asynchronous", topology="complete", sums="neighbour")

    states = steps_of(problem, network, algorithm, 80)

    assert states.divisor.min() > 1 / 3
    late = states.divisor[40:]
    assert 0.4 < late.min() <= late.mean() < 0.8  # and much is on its way
    close(mass_of(states, Graph("complete").adjacency(20))[:, -1], 20)


def test_mass_that_is_dropped_is_noticed(quadratics):
    def drop(carry):  # as if something had come to node 2, and was not added
        return carry._replace(
            states=carry.states._replace(taken=carry.states.taken.at[2].add(0.01))
        )

    states = steps_of(quadratics(nodes=NODES), LOSSY, sgp(STEP, "asynchronous"), 12, drop)

    assert (np.abs(mass_of(states, Graph("ring").adjacency(NODES))[:, -1] - NODES) > 0.009).all()


def test_asynchronous_sgp_learns_though_many_pushes_go_before_the_first_arrives(quadratics):
    problem = quadratics(nodes=NODES, heterogeneity=0.0, condition=4.0)

    run = simulate(
        problem, constant(10), sgp(STEP, "asynchronous"), slots=1200, recording=Recording(1200)
    )

    assert run.last("optimum_distance") < 1e-6


# --- AD-PSGD ---


def pending_of(states):
    """Return the active halves of meetings whose passive half is done, summed: (slot + 1, d)."""
    kept = states.kept
    total = np.zeros(states.params[:, 0].shape)
    for slot, j, place in np.argwhere(kept.partner >= 0):
        i, number = kept.partner[slot, j, place], kept.number[slot, j, place]
        if states.waiting[slot, i] and (states.partner[slot, i], states.number[slot, i]) == (
            j,
            number,
        ):
            total[slot] += (kept.model[slot, j, place] - states.frozen[slot, i]) / 2
    return total


@pytest.mark.parametrize(
    ("network", "topology"), [(LOSSY, "bipartite"), (constant(3), "ring")], ids=["lossy", "late"]
)
def test_adpsgd_keeps_the_sum_agrees_and_never_locks(quadratics, network, topology):
    states = steps_of(quadratics(nodes=NODES), network, adpsgd(1.0, topology, **SPREAD), 1500)

    total = states.params.sum(axis=1) + pending_of(states)
    close(total[4:], np.tile(total[4], (len(total) - 4, 1)))
    assert np.abs(pending_of(states)).max() > 0.1
    proposals = states.number[:, ::2]
    assert (
        proposals[200:] - proposals[:-200] >= 3
    ).all()  # every active node goes on meeting, at any time
    assert (states.served[-1, 1::2, ::2].max(axis=1) > 20).all()  # and every passive one is met
    assert spread_of(states.params[5]) > 0.1
    np.testing.assert_allclose(states.params[-1], np.tile(total[4] / NODES, (NODES, 1)), atol=1e-6)


@pytest.mark.parametrize(
    ("network", "slots"),
    [(constant(0), 60), (constant(12), 60), (LOSSY, 200), (Roomy(pipelined(3), 0.5), 300)],
    ids=["at once", "late", "lossy, out of order", "half of all lost"],
)
def test_adpsgd_is_its_story_told_message_by_message(quadratics, network, slots):
    problem = quadratics(nodes=NODES)
    parts = zip(np.asarray(problem.x), np.asarray(problem.y), strict=True)
    gradients = [partial(plain.quadratic_gradient, x=x, y=y) for x, y in parts]

    states, held, sends = told_of(problem, network, adpsgd(STEP), slots)

    partners = [
        states.partner[1:, i][np.diff(states.number[:, i]) > 0].tolist() for i in range(NODES)
    ]
    told = plain.meet(gradients, np.asarray(problem.initial), partners, held, sends, STEP)
    assert min(map(len, partners[::2])) > 1
    if not network.reliable:
        assert states.sendings.min() < -2  # somebody pleads, and
        assert states.spell.max() >= 4  # that does not come of one bad meeting
    close(states.params, told)


def test_with_wait_an_active_node_of_adpsgd_averages_once_for_each_gradient(quadratics):
    """x_i = (f_i + f_j) / 2 - eta grad F_i(f_i), and the gradient does not count before."""
    problem = quadratics(nodes=2)
    centre, curvature = np.asarray(problem.x)[:, 0], np.asarray(problem.y)[:, 0]

    states = steps_of(problem, constant(1), adpsgd(STEP, wait=True), 40)

    x, y = states.params[:, 0], states.frozen[:, 1]
    assert (states.number[:, 0] == states.updates[:, 0]).all()
    assert states.updates[-1, 0] == 10  # a meeting takes four slots, the gradient in the last
    for slot in np.flatnonzero(np.diff(states.number[:, 0]) > 0)[1:]:
        before = x[slot]
        mean = (before + y[slot + 1]) / 2
        close(x[slot + 1], mean - STEP * curvature[0] * (before - centre[0]))


@pytest.mark.parametrize(
    ("network", "slots"), [(constant(3), 60), (LOSSY, 200)], ids=["late", "lossy, out of order"]
)
def test_with_wait_a_run_of_adpsgd_is_a_sequence_of_atomic_averages(quadratics, network, slots):
    """Nothing happens to an active node between its proposal and the answer, however late."""
    problem = quadratics(nodes=NODES)
    parts = zip(np.asarray(problem.x), np.asarray(problem.y), strict=True)
    gradients = [partial(plain.quadratic_gradient, x=x, y=y) for x, y in parts]

    states = steps_of(problem, network, adpsgd(STEP, wait=True), slots)

    asks, answers = np.diff(states.number, axis=0) > 0, np.diff(states.served, axis=0) > 0
    told = plain.meet_at_once(gradients, np.asarray(problem.initial), asks, answers, STEP)
    close(states.params[:, 1::2], told[:, 1::2])
    free = np.argwhere(asks[:, ::2]) * [1, 2] + [1, 0]  # where an active node has just asked again
    close(states.params[tuple(free.T)], told[tuple(free.T)])
    assert len(free) > 20
    assert answers.sum() > 20


def test_an_answer_that_was_lost_and_is_kept_no_more_ends_the_meeting(x64):
    """Nodes 0 and 2 ask node 1, which keeps one answer; both repeat themselves."""
    algorithm = adpsgd(0.0, kept_answers=1)
    model = {0: 4.0, 1: 0.0, 2: 8.0}

    def born(node):
        return algorithm.init(
            jnp.full(1, model[node]), Place(jnp.asarray(node), 3, jax.random.key(node))
        )

    def box(*messages):
        weight = jnp.asarray([0.5, 0.0, 0.5]) if len(messages) == 3 else jnp.ones(1)
        return Inbox(
            jnp.asarray(messages), jnp.arange(3), weight, jnp.zeros(()), jnp.ones(3, bool),
            jnp.zeros(3, jnp.int32), jnp.ones(3, bool),
        )  # fmt: skip

    def told(state):
        state = algorithm.travel.after_sending(state)
        return state, algorithm.message(state)

    silent = jnp.asarray([0.0, -1, 0, 0])
    state, answer = told(algorithm.receive(born(1), box([4.0, 1, 1, 1], silent, [8.0, 1, 1, 1])))
    assert (state.params.item(), *answer.tolist()) == (2.0, 0.0, 0, 1, 1)
    state, answer = told(algorithm.receive(state, box([4.0, 1, 1, 1], silent, [8.0, 1, 1, 1])))
    assert (state.params.item(), *answer.tolist()) == (5.0, 2.0, 2, 1, 1)
    again, answer = told(algorithm.receive(state, box([4.0, 1, 1, 1], silent, [8.0, 1, 1, 2])))
    assert (again.params.item(), *answer.tolist()) == (5.0, 2.0, 2, 1, 2)  # the same, and no mean
    lost, answer = told(algorithm.receive(state, box([4.0, 1, 1, 2], silent, [8.0, 1, 1, 1])))
    assert (lost.params.item(), *answer[1:].tolist()) == (5.0, 0, -1, 1)

    asks = born(0)._replace(
        partner=jnp.asarray(1), number=jnp.asarray(1), waiting=jnp.asarray(True)
    )
    over = algorithm.receive(asks, box(silent, answer, silent))
    assert (over.params.item(), bool(over.waiting)) == (4.0, False)


def test_adpsgd_sends_a_model_and_three_numbers_of_32_bits():
    priced = adpsgd(STEP).declares.price

    assert priced is not None
    assert priced.bits(1000, 16) == (1000 * 16 + 3 * 32,)


def test_two_nodes_of_adpsgd_are_equal_after_one_meeting(quadratics):
    """With a step of zero; node 0 proposes in slot 0, node 1 answers in slot 1, node 0 hears it in slot 2."""
    apart = np.stack([np.arange(10.0), -3 * np.ones(10)])

    def set_apart(carry):
        return carry._replace(states=carry.states._replace(params=jnp.asarray(apart)))

    states = steps_of(quadratics(nodes=2), ideal(), adpsgd(0.0), 3, set_apart)

    close(states.params[1], apart)
    close(states.params[3], np.tile(apart.mean(axis=0), (2, 1)))


def test_the_mean_of_adpsgd_moves_by_the_mean_gradient(quadratics):
    problem = quadratics(nodes=NODES)
    centre, curvature = np.asarray(problem.x)[None, :, 0], np.asarray(problem.y)[None, :, 0]

    states = steps_of(problem, snapshot(3), adpsgd(STEP), 25)

    averaged = (states.params[1:] - STEP * curvature * centre) / (
        1 - STEP * curvature
    )  # the step undone
    gradient = curvature * (averaged - centre)
    total = states.params.sum(axis=1) + pending_of(states)
    assert (states.number[-1, ::2] > 2).all()
    close(np.diff(total, axis=0), -STEP * gradient.sum(axis=1))


def test_fast_nodes_pull_adpsgd_to_the_optimum_weighted_by_their_gradients(quadratics):
    problem = quadratics(nodes=2, condition=4.0)
    centre, curvature = np.asarray(problem.x)[:, 0], np.asarray(problem.y)[:, 0]
    rate = np.array([[3.0], [1.0]])  # gradients in three slots
    weighted = (rate * curvature * centre).sum(axis=0) / (rate * curvature).sum(axis=0)
    plain_optimum = (curvature * centre).sum(axis=0) / curvature.sum(axis=0)

    run = simulate(
        problem,
        ideal(),
        adpsgd(0.005),
        slots=6000,
        clock=Clock(compute_slots=(1, 3)),
        recording=Recording(6000),
    )

    assert np.linalg.norm(run.model - weighted) < 0.05 * np.linalg.norm(run.model - plain_optimum)


# --- SWIFT ---


def test_swift_with_fresh_models_is_dpsgd_combine_first(quadratics):
    problem = quadratics(nodes=NODES)

    left = simulate(problem, ideal(), swift(STEP), slots=20, recording=Recording(20))
    right = simulate(problem, ideal(), dpsgd(STEP), slots=21, recording=Recording(21))

    # SWIFT has combined when a slot ends; D-PSGD does so when the next begins, and steps: its 21st step is taken off
    gradients = gradients_of(problem)
    close(right.nodes, left.nodes - STEP * gradients(left.nodes))


@pytest.mark.parametrize(
    "options", [{}, {"every": 3}, {"missing": "self"}, {"missing": "scale", "weights": "released"}]
)
def test_swift_without_gradients_stays_in_the_hull_and_agrees(quadratics, options):
    states = steps_of(quadratics(nodes=NODES), LOSSY, swift(1.0, **options, **SPREAD), 150)

    ever, after = (
        states.params[:5],
        states.params[5:],
    )  # all that anyone may hold when the last step is done
    assert (after >= ever.min(axis=(0, 1)) - 1e-12).all()
    assert (after <= ever.max(axis=(0, 1)) + 1e-12).all()
    assert spread_of(after[-1]) < 1e-3 * spread_of(ever[-1])


@pytest.mark.parametrize("topology", ["ring", "complete", "star", "irregular", "overfull"])
def test_swifts_offered_weights_are_symmetric_doubly_stochastic_and_equal_on_regular_graphs(
    x64, topology
):
    if topology == "irregular":
        adjacency = np.triu(np.random.default_rng(1).random((9, 9)) < 0.5, 1)
        adjacency = adjacency | adjacency.T
    elif (
        topology == "overfull"
    ):  # a node of degree 3 that three of degree 4 would each give almost a half
        adjacency = np.zeros((13, 13), bool)
        adjacency[0, 1:4] = True
        adjacency[1:4, 4:] = np.repeat(np.eye(3, dtype=bool), 3, axis=1)
        adjacency[4:, 4:] = True
        adjacency = (adjacency | adjacency.T) & ~np.eye(13, dtype=bool)
    else:
        adjacency = Graph(topology).adjacency(NODES)

    W = np.asarray(offered_weights(adjacency))

    np.testing.assert_array_equal(W, W.T)
    close(W.sum(axis=1), 1.0)
    assert (W >= 0).all()
    assert ((W > 0) == (adjacency | np.eye(len(W), dtype=bool))).all()
    if topology in ("ring", "complete"):
        close(W, np.where(W > 0, 1 / (adjacency.sum(axis=1)[0] + 1), 0.0))
    if topology == "overfull":
        close(W, metropolis(jnp.asarray(adjacency)))


def test_models_not_heard_anew_leave_their_weight_to_the_node_or_to_the_others(x64):
    others = jnp.asarray([[0.0], [8.0], [2.0], [5.0]])
    box = Inbox(
        others,
        jnp.arange(4),
        jnp.asarray([0.0, 0.25, 0.25, 0.25]),
        jnp.asarray(0.25),
        jnp.asarray([False, True, False, False]),
        jnp.zeros(4, jnp.int32),
        jnp.ones(4, bool),
    )

    found = {}
    for missing in ("stored", "self", "scale"):
        method = swift(0.0, missing=missing)
        state = method.receive(
            method.init(jnp.ones(1), Place(jnp.asarray(0), 4, jax.random.key(0))), box
        )
        found[missing] = method.update(
            state, box, jnp.zeros(()), jnp.zeros(1), jax.random.key(0)
        ).params.item()

    assert found == {"stored": 4.0, "self": 2.75, "scale": 4.5}  # (1+8+2+5)/4, (3*1+8)/4, (1+8)/2


def swift_box(heard, models=(0.0, 8.0, 2.0, 5.0)):
    """Four nodes of weight 1/4 each; the first is the node itself."""
    return Inbox(
        jnp.asarray(models)[:, None],
        jnp.arange(4),
        jnp.asarray([0.0, 0.25, 0.25, 0.25]),
        jnp.asarray(0.25),
        jnp.asarray(heard, bool),
        jnp.zeros(4, jnp.int32),
        jnp.ones(4, bool),
    )


def swift_path(method, boxes, start=1.0):
    """Return the model after each slot, without gradients."""
    state = method.init(jnp.full(1, start), Place(jnp.asarray(0), 4, jax.random.key(0)))
    path = []
    for box in boxes:
        state = method.update(
            method.receive(state, box), box, jnp.zeros(()), jnp.zeros(1), jax.random.key(0)
        )
        path.append(state.params.item())
    return path


def test_swift_averages_in_every_s_th_step_of_its_own(x64):
    box = swift_box([False] * 4)

    averaged = [1.0]
    for _ in range(3):
        averaged.append((averaged[-1] + 8 + 2 + 5) / 4)

    assert swift_path(swift(0.0, every=1), [box] * 3) == averaged[1:]
    assert swift_path(swift(0.0, every=2), [box] * 6) == [
        *(averaged[0], averaged[1], averaged[1], averaged[2], averaged[2], averaged[3])
    ]
    assert swift_path(swift(0.0, every=3), [box] * 4) == [
        *(averaged[0], averaged[0], averaged[1], averaged[1])
    ]


def test_what_swift_heard_counts_once_and_until_it_averages(x64):
    """With s = 2: heard in slots 0 and 1, averaged in slot 1; heard no more, so kept in slot 3."""
    boxes = [
        swift_box(heard)
        for heard in ([0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1])
    ]
    boxes.append(swift_box([0, 0, 0, 0]))

    for missing, kept in (("self", (2 * 1.0 + 8 + 2) / 4), ("scale", (1.0 + 8 + 2) / 3)):
        last = (3 * kept + 5) / 4 if missing == "self" else (kept + 5) / 2
        path = swift_path(swift(0.0, every=2, missing=missing), boxes)
        close(path, [1.0, kept, kept, kept, kept, last])


# --- what is refused ---


@pytest.mark.parametrize(
    ("build", "options", "complaint"),
    [
        (dfedavgm, {"local_steps": 0}, "local_steps >= 1"),
        (dfedavgm, {"momentum": 1.0}, "momentum in"),
        (dfedavgm, {"exchange": "bytes"}, "exchange must be"),
        (dfedavgm, {"bits": 8}, "bits must be 0"),
        (dfedavgm, {"exchange": "differences", "bits": 1}, "bits must be 0"),
        (dfedavgm, {"rule": "mode"}, "rule must be"),
        (sgp, {"mode": "fast"}, "mode must be"),
        (sgp, {"mode": "asynchronous", "topology": "schedule"}, "on a fixed graph"),
        (sgp, {"least_weight": 0.0}, "least_weight must be"),
        (sgp, {"sums": "each"}, "sums must be"),
        (sgp, {"pushes": "half"}, "pushes must be"),
        (sgp, {"topology": "tree"}, "topology must be"),
        (adpsgd, {"topology": "complete"}, "topology must be"),
        (adpsgd, {"kept_answers": 0}, "kept_answers must be"),
        (adpsgd, {"patience": -1}, "patience counts"),
        (swift, {"every": 0}, "every >= 1"),
        (swift, {"rule": "mode"}, "rule must be"),
        (swift, {"missing": "drop"}, "missing 'stored'"),
        (swift, {"weights": "equal"}, "weights must be"),
        (swift, {"weights": "released", "topology": "schedule"}, "on a fixed graph"),
        (swift, {"step": -1.0}, "step must be"),
    ],
)
def test_wrong_options_are_refused(build, options, complaint):
    with pytest.raises(ValueError, match=complaint):
        build(**options)


def test_adpsgd_refuses_a_ring_with_an_odd_number_of_nodes(quadratics):
    with pytest.raises(ValueError, match="a ring of 5 nodes is not bipartite"):
        simulate(quadratics(nodes=5), ideal(), adpsgd(topology="ring"), slots=1)
