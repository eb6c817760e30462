"""Exact reductions: settings in which two methods are one. float64, to 1e-10 relative."""

from functools import partial

import numpy as np
import pytest

from folkman import async_sharing, constant, fedavg, ideal, iid, pipelined, simulate, snapshot
from folkman.problem.data import quadratic
from reference import plain

STEPS, STEP, NODES = 40, 0.05, 5
EVERY_LAW = [ideal(), snapshot(1), snapshot(5), iid(5), pipelined(5), constant(4)]


def close(a, b):
    return np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-13)


def descent(problem, step, steps):
    """Return plain NumPy gradient descent on the pooled quadratics."""
    x, y = (np.asarray(a).reshape(-1, problem.dim) for a in (problem.x, problem.y))
    return plain.descend(partial(plain.quadratic_gradient, x=x, y=y), np.asarray(problem.initial), step, steps)[-1]


ROWS = {  # left-hand method, its step; the right-hand side is FedAvg, or GD, with the step given
    "theorem scaling, Gamma 1 = FedAvg": ("theorem", STEP),
    "local scaling, Gamma 1 = FedAvg with eta/I": ("local", STEP / NODES),
    "figure scaling, Gamma 1 = FedAvg with eta*I": ("figure", STEP * NODES),
}


@pytest.mark.parametrize(
    ("network", "scaling", "step"),
    [
        *((snapshot(1), *row) for row in ROWS.values()),
        *((law, "theorem", STEP) for law in (iid(1), ideal(), constant(0))),
    ],
    ids=[*ROWS, "iid, Gamma 1", "ideal", "constant, D 0"],
)
def test_without_delay_algorithm_1_is_fedavg(quadratics, network, scaling, step):
    problem = quadratics(nodes=NODES, heterogeneity=1.0)

    left = simulate(problem, network, async_sharing(STEP, scaling), slots=STEPS)
    right = simulate(problem, ideal(), fedavg(step), slots=STEPS)

    close(left.model, right.model)
    close(right.model, descent(problem, step, STEPS))


@pytest.mark.parametrize(
    ("network", "scaling"),
    [*((law, "theorem") for law in EVERY_LAW), (snapshot(5), "local"), (snapshot(5), "figure")],
    ids=lambda value: getattr(value, "name", value),
)
def test_one_node_is_gradient_descent_whatever_the_delay(quadratics, network, scaling):
    problem = quadratics(nodes=1)

    run = simulate(problem, network, async_sharing(STEP, scaling), slots=STEPS)

    close(run.model, descent(problem, STEP, STEPS))


@pytest.mark.parametrize(
    ("network", "algorithm"),
    [*((law, async_sharing(0.0)) for law in EVERY_LAW), (snapshot(5), fedavg(0.0)), (iid(5), fedavg(0.0, 3))],
    ids=lambda value: value.name,
)
def test_a_step_of_zero_changes_nothing(digits, network, algorithm):
    run = simulate(digits, network, algorithm, slots=17)

    np.testing.assert_array_equal(run.model, digits.initial)
    np.testing.assert_array_equal(run.nodes, np.tile(digits.initial, (5, 1)))


@pytest.mark.parametrize("nodes", [1, 2, 7])
def test_fedavg_with_one_local_step_is_descent_on_the_union_for_unequal_shares(quadratics, nodes):
    samples = quadratic(nodes=nodes, samples_per_node=4, noise=1.0)
    sizes = np.arange(1, nodes + 1)  # node i keeps i + 1 samples of its own
    assert samples.group is not None
    parts = [np.flatnonzero(samples.group == i)[: min(sizes[i], 4)] for i in range(nodes)]
    from folkman import make_problem

    problem = make_problem(samples, "quadratic", parts, dtype="float64")
    kept = np.concatenate(parts)
    pooled = partial(
        plain.quadratic_gradient, x=samples.x_train[kept].astype(float), y=samples.y_train[kept].astype(float)
    )

    run = simulate(problem, ideal(), fedavg(STEP), slots=STEPS)

    close(run.model, plain.descend(pooled, np.zeros(problem.dim), STEP, STEPS)[-1])


def test_fedavg_alone_with_e_local_steps_is_e_steps_of_descent(quadratics):
    problem = quadratics(nodes=1)

    run = simulate(problem, snapshot(3), fedavg(STEP, local_steps=4), slots=(4 + 3) * 5)

    assert run.last("rounds") == 5
    close(run.model, descent(problem, STEP, 20))


def test_fedavg_with_local_steps_is_its_numpy_retelling(digits):
    gradients = [
        partial(plain.softmax_gradient, x=np.asarray(digits.x[i, :n]), y=np.asarray(digits.y[i, :n]))
        for i, n in enumerate(np.asarray(digits.count))
    ]

    run = simulate(digits, ideal(), fedavg(0.3, local_steps=3), slots=30)

    path = plain.average(gradients, np.asarray(digits.initial), np.asarray(digits.share), 0.3, 3, 10)
    close(run.model, path[-1])


@pytest.mark.parametrize("algorithm", [async_sharing(STEP), fedavg(STEP, local_steps=2)], ids=lambda a: a.name)
def test_the_order_of_nodes_does_not_matter(digits, algorithm):
    from folkman import load, make_problem
    from folkman.problem.partition import iid as split_evenly

    samples = load("digits", train_size=300)
    parts = split_evenly(samples.y_train, 5)
    forward = make_problem(samples, "softmax", parts, dtype="float64")
    backward = make_problem(samples, "softmax", parts[::-1], dtype="float64")

    left, right = (simulate(p, constant(3), algorithm, slots=20) for p in (forward, backward))

    close(left.model, right.model)
    close(left.nodes, right.nodes[::-1])
