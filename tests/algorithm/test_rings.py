"""Ringmaster and Ringleader ASGD: against re-tellings, asynchronous SGD, and unlike speeds."""

from functools import partial

import numpy as np
import pytest

from folkman import Clock, Recording, ideal, iid, simulate
from folkman.algorithm.fedbuff import fedbuff
from folkman.algorithm.ringleader import ringleader
from folkman.algorithm.ringmaster import ringmaster
from reference import plain, servers

NODES, STEP, SLOTS = 4, 0.05, 60
SPEEDS = (1, 2, 3, 7)
CLOCK = Clock(compute_slots=SPEEDS)


@pytest.fixture
def problem(quadratics):
    return quadratics(nodes=NODES, heterogeneity=1.0, condition=4.0)


def gradients(problem):
    return [
        partial(plain.quadratic_gradient, x=np.asarray(x), y=np.asarray(y))
        for x, y in zip(problem.x, problem.y, strict=True)
    ]


def run(problem, algorithm, network=None, slots=SLOTS, clock=CLOCK):
    recording = Recording(slots)
    network = ideal() if network is None else network
    return simulate(problem, network, algorithm, slots=slots, clock=clock, recording=recording)


@pytest.mark.parametrize("stops", [False, True], ids=["drops", "stops"])
@pytest.mark.parametrize("max_delay", [3, 6])
def test_ringmaster_follows_the_authors_code(problem, max_delay, stops):
    found = run(problem, ringmaster(STEP, max_delay, stops))

    start = np.asarray(problem.initial)
    x, k = servers.ringmaster(
        gradients(problem), start, STEP, SPEEDS, SLOTS, max_delay=max_delay, stops=stops
    )
    assert found.last("rounds") == k
    np.testing.assert_allclose(found.model, x, rtol=1e-10)


def test_ringleader_follows_the_authors_code(problem):
    found = run(problem, ringleader(STEP))

    start = np.asarray(problem.initial)
    x, moves = servers.ringleader(gradients(problem), start, STEP, SPEEDS, SLOTS)
    assert found.last("rounds") == moves > 2 * NODES
    np.testing.assert_allclose(found.model, x, rtol=1e-10)


def test_ringmaster_without_a_bound_is_asynchronous_descent(problem):
    """Any delay is below 10^6; on a network with delays too."""
    left, right = (
        run(problem, algorithm, iid(3))
        for algorithm in (ringmaster(STEP, 10**6), fedbuff(STEP, buffer_size=1, exponent=0.0))
    )

    assert left.last("rounds") == right.last("rounds") > 30
    np.testing.assert_allclose(left.model, right.model, rtol=1e-10)


def test_a_bound_of_one_takes_a_single_gradient_of_each_version(problem):
    """Of those that arrive together the first alone: node 0, the fastest, which is then alone."""
    found = run(problem, ringmaster(STEP, 1), slots=1500)

    least = np.asarray(problem.x)[0, 0]
    assert found.last("rounds") == 1500
    np.testing.assert_allclose(found.model, least, rtol=1e-6)


def test_with_unlike_speeds_ringleader_is_exact_and_ringmaster_is_not(problem):
    """On data that differ, messages late by chance."""
    far = [
        run(problem, algorithm, iid(3), slots=4000).last("optimum_distance")
        for algorithm in (ringleader(STEP), ringmaster(STEP, 10**6))
    ]

    assert far[0] < 1e-8
    assert far[1] > 0.1


def test_bounds_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="max_delay counts versions"):
        ringmaster(max_delay=0)
    with pytest.raises(ValueError, match="leave out stops"):
        ringmaster(stops=True, participation=0.5)
