"""Momentum of the network: a NumPy re-telling, no bias, its gain, and half the drift."""

import numpy as np
import pytest

from folkman import Clock, Recording, async_sharing, constant, iid, make_problem, simulate
from folkman.algorithm.pieces import network_momentum, own_part
from folkman.problem.data import quadratic
from folkman.theory import own_limits
from folkman.theory.network_limits import limit_alike
from reference import plain
from reference.own_part import share_with_own_part

COUNTS = (1, 2, 3)
SHARES = np.divide(COUNTS, sum(COUNTS))
CONSTANTS = {
    "long": own_part.LONG,
    "look_back": network_momentum.LOOK_BACK,
    "start": own_part.START,
    "window": own_part.WINDOW,
    "kept": own_part.KEPT,
    "gain": own_part.GAIN,
}


@pytest.fixture
def unequal(x64):
    """Three nodes of unlike data and unlike numbers of samples."""
    samples = quadratic(nodes=3, dim=4, heterogeneity=1.0, condition=4.0, seed=2)
    parts = [np.full(count, node) for node, count in enumerate(COUNTS)]
    return make_problem(samples, "quadratic", parts, dtype="float64")


def run_of(problem, network, step, slots, beta, own="newest", **more):
    recording = Recording(slots, timeline=True)
    algorithm = async_sharing(step, own=own, network_momentum=beta)
    return simulate(problem, network, algorithm, slots=slots, recording=recording, **more)


def optimum_of(problem):
    centres, curvatures = np.asarray(problem.x[:, 0]), np.asarray(problem.y[:, 0])
    weights = np.array(COUNTS)[:, None] * curvatures
    return (weights * centres).sum(axis=0) / weights.sum(axis=0)


@pytest.mark.parametrize("own", [0.5, "centred", "adaptive"])
@pytest.mark.parametrize(
    ("network", "clock"), [(iid(5), Clock()), (iid(4), Clock(compute_slots=(1, 2, 3)))]
)
def test_it_is_what_the_equations_say(unequal, network, clock, own):
    slots = 80  # more than the ages are looked back
    run = run_of(unequal, network, 0.1, slots, 0.75, own, clock=clock)
    parts = [
        (np.asarray(unequal.x[i, :n]), np.asarray(unequal.y[i, :n])) for i, n in enumerate(COUNTS)
    ]
    told = share_with_own_part(
        [lambda w, x=x, y=y: plain.quadratic_gradient(w, x, y) for x, y in parts],
        np.asarray(unequal.initial),
        SHARES,
        run.timeline.held,
        0.1,
        own,
        finished=run.timeline.finished,
        constants=CONSTANTS,
        memory=64,
        beta=0.75,
    )
    np.testing.assert_allclose(run.nodes, told[-1], rtol=0, atol=1e-11)


def test_without_delay_it_is_heavy_ball_at_half_the_step(unequal):
    """Where nothing is old the two means are the newest values: M = v(t) - v(t-1), gbar = g."""
    step, beta, slots = 0.3, 0.6, 25
    run = run_of(unequal, constant(0), step, slots, beta)
    centres, curvatures = np.asarray(unequal.x[:, 0]), np.asarray(unequal.y[:, 0])
    now = before = np.asarray(unequal.initial)
    for _ in range(slots):
        slope = SHARES @ (curvatures * (now - centres))
        now, before = now - step / 2 * slope + beta * (now - before), now
    np.testing.assert_allclose(SHARES @ np.asarray(run.nodes), now, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("own", "rests"), [("centred", True), ("newest", False)])
def test_unlike_data_leave_no_bias_that_was_not_there(unequal, own, rests):
    run = run_of(unequal, constant(5), 0.02, 4000, 0.75, own)
    away = np.linalg.norm(SHARES @ np.asarray(run.nodes) - optimum_of(unequal))
    assert (away < 1e-10) == rests  # equation (9) has its own bias: the test can tell


def test_at_rest_nodes_drift_by_half_of_their_gradients(unequal):
    step, slots = 0.02, 4000
    ends = [run_of(unequal, constant(5), step, at, 0.75, "centred").nodes for at in (slots, 4001)]
    centres, curvatures = np.asarray(unequal.x[:, 0]), np.asarray(unequal.y[:, 0])
    slopes = curvatures * (optimum_of(unequal) - centres)
    moved = np.subtract(*map(np.asarray, reversed(ends)))
    np.testing.assert_allclose(moved, -step / 2 * slopes, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("beta", "gain"), [(0.5, 1.0), (0.75, 2.0), (0.875, 4.0)])
def test_where_all_moves_slowly_the_step_is_as_long_as_promised(x64, beta, gain):
    """On quadratics alike, far from the optimum, the network's pace is that of a longer step."""
    samples = quadratic(nodes=3, dim=2, heterogeneity=0.0, condition=1.0, seed=1)
    problem = make_problem(samples, "quadratic", [np.array([i]) for i in range(3)], dtype="float64")
    step, slots = (
        1e-6,
        1500,
    )  # so short that the network hardly slows down while the means look back
    first, last = (
        np.asarray(run_of(problem, constant(4), step, at, beta).nodes).mean(axis=0)
        for at in (slots - 1, slots)
    )
    centre, curvature = np.asarray(problem.x[0, 0]), np.asarray(problem.y[0, 0])
    expected = -gain * step * curvature * (last - centre)
    np.testing.assert_allclose(last - first, expected, rtol=2e-3)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"network_momentum": 1.0}, "network_momentum must be"),
        ({"network_momentum": -0.1}, "network_momentum must be"),
        ({"network_momentum": 0.5, "momentum": 0.5}, "goes without momentum"),
        ({"network_momentum": 0.5, "delay_policy": "stable"}, "without a delay_policy"),
        ({"network_momentum": 0.5, "own": "predicted"}, "'predicted'"),
    ],
)
def test_what_does_not_go_together_is_refused(options, said):
    with pytest.raises(ValueError, match=said):
        async_sharing(0.1, **options)


@pytest.mark.parametrize("share", [1 / 15, 1 / 5])
@pytest.mark.parametrize("delay", [1, 5, 20])
def test_the_longest_step_is_longer_than_without(delay, share):
    """Slow movements are four times as long, and swings that old copies make are damped more."""
    limits = [limit_alike(delay, share, beta) for beta in (None, 0.5, 0.875)]
    assert limits == sorted(limits)
    assert limits[0] == pytest.approx(own_limits.limit_alike(delay, share, share), abs=0.004)


@pytest.mark.parametrize("beyond", [0.96, 1.04])
def test_runs_grow_just_beyond_the_limit_of_the_roots(x64, beyond):
    nodes, delay, beta = 4, 5, 0.875
    samples = quadratic(nodes=1, dim=1, heterogeneity=0.0, condition=1.0, seed=1)
    problem = make_problem(samples, "quadratic", [np.zeros(1, int)] * nodes, dtype="float64")
    step = beyond * limit_alike(delay, 1 / nodes, beta)
    run = run_of(problem, constant(delay), float(step), 1500, beta, "centred")
    away = float(np.abs(np.mean(run.nodes, axis=0) - problem.optimum).max())
    first = float(np.abs(np.asarray(problem.initial) - problem.optimum).max())
    assert (away > 10 * first) if beyond > 1 else (away < first / 10)
