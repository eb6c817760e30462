"""Exact reductions: settings in which two methods are one. float64, to 1e-10 relative."""

from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest

from folkman import (
    async_sharing,
    constant,
    dpsgd,
    fedavg,
    ideal,
    iid,
    pipelined,
    simulate,
    snapshot,
)
from folkman.algorithm.adafl import adafl
from folkman.algorithm.cga import cga
from folkman.algorithm.dfedavgm import dfedavgm
from folkman.algorithm.dispfl import dispfl
from folkman.algorithm.fedap import fedap
from folkman.algorithm.fedasync import fedasync
from folkman.algorithm.fedbuff import fedbuff
from folkman.algorithm.fedsa import fedsa
from folkman.algorithm.sgp import sgp
from folkman.algorithm.swift import swift
from folkman.algorithm.twafl import twafl
from folkman.problem.data import quadratic
from folkman.radio import bandwidth, schedule
from reference import plain

STEPS, STEP, NODES = 40, 0.05, 5
EVERY_LAW = [ideal(), snapshot(1), snapshot(5), iid(5), pipelined(5), constant(4)]


def close(a, b):
    return np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-13)


def descent(problem, step, steps):
    """Return plain NumPy gradient descent on the pooled quadratics."""
    x, y = (np.asarray(a).reshape(-1, problem.dim) for a in (problem.x, problem.y))
    return plain.descend(
        partial(plain.quadratic_gradient, x=x, y=y), np.asarray(problem.initial), step, steps
    )[-1]


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


# left, right: the same network model after 40 slots without delay, equal shares, a common start
MATRIX = {
    "Algorithm 1, theorem = FedAvg": (async_sharing(STEP), fedavg(STEP)),
    "Algorithm 1, local = FedAvg, eta/I": (async_sharing(STEP, "local"), fedavg(STEP / NODES)),
    "Algorithm 1, figure = FedAvg, eta I": (async_sharing(STEP, "figure"), fedavg(STEP * NODES)),
    "AdaFL, tau = 1 = FedAvg": (adafl(STEP, tau=1), fedavg(STEP)),
    "FedAP, m = I = FedAvg": (fedap(STEP, m=NODES), fedavg(STEP)),
    "FedSA, M = I = FedAvg": (fedsa(STEP, M=NODES, adaptive=False), fedavg(STEP)),
    "FedSA, M = I, mean = FedAvg": (
        fedsa(STEP, M=NODES, adaptive=False, aggregation="mean"),
        fedavg(STEP),
    ),
    "FedBuff, K = I = FedAvg": (fedbuff(STEP, buffer_size=NODES, exponent=0.0), fedavg(STEP)),
    "TWAFL, all layers and nodes, base 1 = FedAvg": (
        twafl(STEP, m=NODES, deep_rounds=15, base=1.0),
        fedavg(STEP),
    ),
    "DisPFL, dense and full = FedAvg": (dispfl(STEP, density=1.0, topology="full"), fedavg(STEP)),
    "D-PSGD, adapt first, complete = FedAvg": (
        dpsgd(STEP, "adapt_first", topology="complete"),
        fedavg(STEP),
    ),
    "SGP, complete = FedAvg": (sgp(STEP, topology="complete"), fedavg(STEP)),
    "DFedAvgM, K = 1, complete = FedAvg": (
        dfedavgm(STEP, local_steps=1, momentum=0.0, topology="complete"),
        fedavg(STEP),
    ),
    "DFedAvgM, K = 4, complete = FedAvg, E = 4": (
        dfedavgm(STEP, local_steps=4, momentum=0.0, topology="complete"),
        fedavg(STEP, local_steps=4),
    ),
    "SWIFT, s = 1, fresh = D-PSGD": (swift(STEP, every=1), dpsgd(STEP)),
}


@pytest.mark.parametrize("row", MATRIX)
def test_the_equivalence_matrix(quadratics, row):
    problem = quadratics(nodes=NODES, heterogeneity=1.0)
    left, right = (simulate(problem, ideal(), algorithm, slots=STEPS) for algorithm in MATRIX[row])

    assert left.last("gradients") == right.last("gradients") == STEPS
    close(left.model, right.model)
    assert np.linalg.norm(left.model) > 0.1  # it has moved


def test_fedsa_with_one_arrival_is_fedasync_with_the_share_as_its_mixing(quadratics):
    problem = quadratics(nodes=NODES, heterogeneity=1.0)
    semi = fedsa(STEP, M=1, adaptive=False)
    fully = fedasync(STEP, mixing=1 / NODES, staleness="constant", rho=0.0, max_staleness=1000)

    left, right = (simulate(problem, iid(4), algorithm, slots=80) for algorithm in (semi, fully))

    close(left.model, right.model)
    assert left.last("rounds") == right.last("rounds") > 40


def test_cga_on_equal_nodes_is_gossip(quadratics):
    """Gradients that agree need no projection: each of its iterations is one of D-PSGD."""
    problem = quadratics(nodes=NODES, heterogeneity=0.0)
    crossing = cga(STEP, momentum=0.0, topology="complete")

    left = simulate(
        problem, ideal(), crossing, slots=NODES * 20 + 1
    )  # I gradients an iteration, heard a slot later
    right = simulate(problem, ideal(), dpsgd(STEP, topology="complete"), slots=20)

    np.testing.assert_allclose(left.model, right.model, rtol=1e-8, atol=1e-10)


def test_uniform_shares_are_optimal_where_all_rates_are_equal():
    sinr = jnp.full((3, 3), 3.0)
    linked = schedule.links(sinr, 1.0)
    rate, sending = schedule.se_min(sinr, linked), schedule.scheduled(linked)

    np.testing.assert_allclose(
        bandwidth.optimal(rate, sending, 1e7), bandwidth.uniform(rate, sending, 1e7), rtol=1e-6
    )


@pytest.mark.parametrize(
    ("network", "algorithm"),
    [
        *((law, async_sharing(0.0)) for law in EVERY_LAW),
        (snapshot(5), fedavg(0.0)),
        (iid(5), fedavg(0.0, 3)),
    ],
    ids=lambda value: value.name,
)
def test_a_step_of_zero_changes_nothing(digits, network, algorithm):
    run = simulate(digits, network, algorithm, slots=17)

    np.testing.assert_array_equal(run.model, digits.initial)
    np.testing.assert_array_equal(run.nodes, np.tile(digits.initial, (5, 1)))


@pytest.mark.parametrize("method", [fedavg, async_sharing])
@pytest.mark.parametrize("nodes", [1, 2, 7])
def test_without_delay_a_step_is_descent_on_the_union_for_unequal_shares(quadratics, nodes, method):
    """Whoever holds which samples: it is why free links end alike for every partition."""
    samples = quadratic(nodes=nodes, samples_per_node=4, noise=1.0)
    sizes = np.arange(1, nodes + 1)  # node i keeps i + 1 samples of its own
    assert samples.group is not None
    parts = [np.flatnonzero(samples.group == i)[: min(sizes[i], 4)] for i in range(nodes)]
    from folkman import make_problem

    problem = make_problem(samples, "quadratic", parts, dtype="float64")
    kept = np.concatenate(parts)
    pooled = partial(
        plain.quadratic_gradient,
        x=samples.x_train[kept].astype(float),
        y=samples.y_train[kept].astype(float),
    )

    run = simulate(problem, ideal(), method(STEP), slots=STEPS)

    close(run.model, plain.descend(pooled, np.zeros(problem.dim), STEP, STEPS)[-1])


def test_fedavg_alone_with_e_local_steps_is_e_steps_of_descent(quadratics):
    problem = quadratics(nodes=1)

    run = simulate(problem, snapshot(3), fedavg(STEP, local_steps=4), slots=(4 + 3) * 5)

    assert run.last("rounds") == 5
    close(run.model, descent(problem, STEP, 20))


def test_fedavg_with_local_steps_is_its_numpy_retelling(digits):
    gradients = [
        partial(
            plain.softmax_gradient, x=np.asarray(digits.x[i, :n]), y=np.asarray(digits.y[i, :n])
        )
        for i, n in enumerate(np.asarray(digits.count))
    ]

    run = simulate(digits, ideal(), fedavg(0.3, local_steps=3), slots=30)

    path = plain.average(
        gradients, np.asarray(digits.initial), np.asarray(digits.share), 0.3, 3, 10
    )
    close(run.model, path[-1])


@pytest.mark.parametrize(
    "algorithm", [async_sharing(STEP), fedavg(STEP, local_steps=2)], ids=lambda a: a.name
)
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
