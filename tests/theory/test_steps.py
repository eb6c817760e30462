"""Stable steps: the limit against roots, the advice against runs."""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

from folkman import async_sharing, constant, make_problem, pipelined, simulate, snapshot
from folkman.problem import data
from folkman.problem.data import DataSet
from folkman.radio.trace import record_timeline
from folkman.theory.convergence import effective_age
from folkman.theory.stability import advise, constant_stamps, limit, stability_warning
from folkman.theory.trajectory import ages_of

SHARES = np.array([0.2, 0.3, 0.5])
SCALES = {"local": SHARES, "theorem": np.ones(3), "figure": np.full(3, 3.0)}


def exact_limit(nodes, delay):
    """Return the largest stable e of w(t+1) = w(t) - e [w(t)/I + (1 - 1/I) w(t-D)]."""

    def radius(e):
        coefficients = np.zeros(delay + 2)
        coefficients[0], coefficients[1] = 1.0, -(1.0 - e / nodes)
        coefficients[-1] += e * (1.0 - 1.0 / nodes)
        return np.abs(np.roots(coefficients)).max()

    return brentq(lambda e: radius(e) - 1.0, 0.01, 2.5)


@pytest.mark.parametrize(("nodes", "delay"), [(5, 0), (5, 4), (5, 14), (15, 4), (15, 9), (2, 1)])
def test_the_limit_of_a_constant_age_is_the_root(nodes, delay):
    found = limit(constant_stamps(nodes, delay, 60), np.full(nodes, 1 / nodes))

    assert found == pytest.approx(exact_limit(nodes, delay), abs=1e-3)


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize(("nodes", "delay"), [(5, 0), (5, 4), (5, 14), (2, 1)])
def test_the_limit_is_found_to_four_digits_by_nodes_and_by_their_mean(
    nodes, delay, many, monkeypatch
):
    """For a constant age and equal shares the mean of all nodes is exact."""
    monkeypatch.setattr("folkman.theory.stability.MANY", 1 if many else 24)

    found = limit(constant_stamps(nodes, delay, 60), np.full(nodes, 1 / nodes))

    assert found == pytest.approx(exact_limit(nodes, delay), abs=1e-4)


def multiplier(steps):
    """Return the largest |eigenvalue| of a period of a linear recursion, given its matrices."""
    whole = np.eye(len(steps[0]))
    for step in steps:
        whole = step @ whole
    return np.abs(np.linalg.eigvals(whole)).max()


def first_growth(radius):
    """Return where a multiplier first leaves the unit circle, by steps and then by halving."""
    tried = np.arange(0.05, 2.5, 0.05)
    high = next(e for e in tried if radius(e) > 1 + 1e-5)
    low = high - 0.05
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (low, middle) if radius(middle) > 1 + 1e-5 else (middle, high)
    return high


def periodic(seed, least=1, period=6):
    """Return ages (slot, rx, tx) of one period, and stamps of nine."""
    ages = np.random.default_rng(seed).integers(least, 6, (period, 3, 3))
    ages[:, np.arange(3), np.arange(3)] = 0
    return ages, np.arange(9 * period)[:, None, None] - np.tile(ages, (9, 1, 1))


@pytest.mark.parametrize("seed", [0, 2])
@pytest.mark.parametrize("scaling", list(SCALES))
def test_the_limit_of_ages_that_repeat_is_where_a_period_begins_to_grow(scaling, seed):
    """The state holds all nodes' last six models; a period multiplies it by a matrix (Floquet)."""
    ages, held = periodic(seed)
    c = SCALES[scaling]

    def radius(e):
        steps = []
        for age in ages:
            step = np.eye(18, k=-3)
            step[:3, :3] = np.eye(3)
            for i, j in np.ndindex(3, 3):
                step[i, 3 * age[i, j] + j] -= e * c[i] * SHARES[j] / (SHARES @ c)
            steps.append(step)
        return multiplier(steps)

    assert limit(held, SHARES, scaling) == pytest.approx(first_growth(radius), rel=1e-3)


@pytest.mark.parametrize("scaling", list(SCALES))
def test_the_limit_of_many_nodes_is_where_a_period_of_their_mean_begins_to_grow(
    scaling, monkeypatch
):
    monkeypatch.setattr("folkman.theory.stability.MANY", 1)
    ages, held = periodic(0, least=4)
    beta = SHARES * SCALES[scaling] / (SHARES @ SCALES[scaling])

    def radius(e):
        steps = []
        for age in ages:
            step = np.eye(6, k=-1)
            step[0, 0] = 1.0
            for i, j in np.ndindex(3, 3):
                step[0, age[i, j]] -= e * beta[i] * SHARES[j]
            steps.append(step)
        return multiplier(steps)

    assert limit(held, SHARES, scaling) == pytest.approx(first_growth(radius), rel=0.01)


def test_a_limit_beyond_the_steps_that_are_tried_is_the_largest_of_them(monkeypatch):
    """With a = 5/8 and b = 3/8, w(t+1) = w(t) - e [a w(t) + b w(t-1)] dies out up to e = 1/b."""
    monkeypatch.setattr("folkman.theory.stability.MANY", 1)

    assert limit(constant_stamps(2, 1, 60), [0.75, 0.25]) == pytest.approx(2.5, abs=1e-3)


def test_stamps_of_a_constant_age_begin_at_zero():
    held = constant_stamps(2, 3, 6)

    assert held.shape == (6, 2, 2)
    np.testing.assert_array_equal(held[:, 0, 1], [0, 0, 0, 0, 1, 2])
    np.testing.assert_array_equal(constant_stamps(1, 0, 3)[:, 0, 0], [0, 1, 2])
    with pytest.raises(ValueError, match="at least 0"):
        constant_stamps(2, -1, 6)


@pytest.mark.parametrize(
    "network", [snapshot(6), pipelined(3), constant(4)], ids=["snapshot", "pipelined", "constant"]
)
def test_the_limit_of_many_nodes_is_near_that_of_each_on_its_own(network, monkeypatch):
    held, shares = record_timeline(network, 12, 120).held, np.full(12, 1 / 12)

    each = limit(held, shares)
    monkeypatch.setattr("folkman.theory.stability.MANY", 1)

    assert limit(held, shares) == pytest.approx(each, rel=0.1)


@pytest.mark.parametrize("network", [snapshot(6), pipelined(3)], ids=["snapshot", "pipelined"])
def test_the_advised_step_converges_and_one_beyond_the_limit_does_not(quadratics, network):
    problem = quadratics(nodes=4, dim=6, heterogeneity=0.0, condition=5.0)
    held = record_timeline(network, 4, 200).held

    advice = advise(problem, held)

    assert advice.proved is not None  # a quadratic's L is known
    ends = [
        simulate(problem, network, async_sharing(step), slots=600).last("optimum_distance")
        for step in (advice.proved, advice.advised, 1.1 * advice.stable_below)
    ]
    start = simulate(problem, network, async_sharing(0.0), slots=1).last("optimum_distance")
    assert ends[0] < 0.2 * start
    assert ends[1] < 1e-3 * start
    assert not ends[2] < 10 * start
    assert advice.proved < advice.advised < advice.stable_below
    assert advice.effective_age <= advice.max_age


def test_a_warning_is_given_beyond_the_limit_only(quadratics):
    problem = quadratics(nodes=4, dim=6, heterogeneity=0.0, condition=5.0)
    held = record_timeline(snapshot(6), 4, 200).held
    stable = advise(problem, held).stable_below

    assert stability_warning(problem, held, 0.9 * stable) is None
    warning = stability_warning(problem, held, 1.1 * stable)
    assert warning is not None
    assert "is beyond the stability limit" in warning
    assert stability_warning(problem, 5, 2 * stable) is not None  # an age assumed of all copies
    assert stability_warning(problem, held, 1.1 * stable, "local") is None  # a quarter of the step
    assert stability_warning(problem, held, 0.3 * stable, "figure") is not None


def test_what_takes_long_to_measure_is_not_judged(quadratics, monkeypatch):
    problem = quadratics(nodes=3, dim=2)
    monkeypatch.setattr("folkman.theory.stability.MOST_WORK", 1.0)

    assert stability_warning(problem, 3, 1e6) is None


@pytest.fixture
def uneven(x64):
    """Quadratics on three nodes with two, three and five samples: shares that differ."""
    samples = data.quadratic(nodes=3, dim=4, samples_per_node=5, condition=4.0, seed=1)
    parts = [np.arange(2), np.arange(5, 8), np.arange(10, 15)]
    return make_problem(samples, "quadratic", parts, dtype="float64")


def bends(problem):
    """Return the largest curvature of F and of the single F_i, of quadratics alike within a node."""
    y = np.asarray(problem.y[:, 0])
    return np.max(SHARES @ y), np.max(y)


@pytest.mark.parametrize("scaling", list(SCALES))
def test_advice_is_the_limit_over_the_curvature_and_the_proof_a_quarter(uneven, scaling):
    """3 (eta L A_2)^2 <= 1/4 with L the largest curvature of a node, and steps before scaling."""
    _, held = periodic(0)
    whole, each = bends(uneven)
    scale = SHARES @ SCALES[scaling]
    late = effective_age(ages_of(held), SHARES * SCALES[scaling] / scale)

    advice = advise(uneven, held, scaling)

    assert advice.limit == limit(held, SHARES, scaling)
    assert advice.curvature == pytest.approx(whole, rel=0.01)
    assert advice.curvature_nodes == pytest.approx(each, rel=0.01)
    assert advice.stable_below == pytest.approx(advice.limit / (whole * scale), rel=0.01)
    assert advice.advised == advice.stable_below / 2
    assert advice.max_age == 5
    assert advice.effective_age == pytest.approx(late)
    assert advice.proved is not None
    assert 3 * (advice.proved * scale * each * late) ** 2 == pytest.approx(1 / 4)
    assert advice.proved * scale * each < 1


def test_without_ages_the_proof_goes_to_a_step_of_one_over_the_curvature(uneven):
    advice = advise(uneven, constant_stamps(3, 0, 60))

    assert advice.effective_age == advice.max_age == 0
    assert advice.proved == pytest.approx(1 / bends(uneven)[1])


@pytest.fixture
def curved(x64):
    """Logistic regression on three nodes: flat far out, steepest at the origin."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 3)).astype(np.float32)
    y = (x @ np.array([1.0, -1.0, 0.5]) + rng.normal(size=30) > 0).astype(int)
    return make_problem(
        DataSet("sides", x, y, x, y, num_classes=2), "logistic", 3, l2=0.01, dtype="float64"
    )


def test_advice_is_by_the_steepest_point_of_a_short_run_wherever_that_is(curved):
    held = constant_stamps(3, 2, 60)
    origin = replace(curved, initial=jnp.zeros(curved.dim))
    far = replace(curved, initial=jnp.full(curved.dim, 6.0))

    for problem, grows in ((origin, False), (far, True)):
        start, probed = advise(problem, held, probe=0), advise(problem, held)
        for name in ("curvature", "curvature_nodes"):
            before, after = getattr(start, name), getattr(probed, name)
            assert after > 1.2 * before if grows else after == before
        assert probed.stable_below == pytest.approx(probed.limit / probed.curvature)


@pytest.mark.parametrize("scaling", list(SCALES))
def test_a_warning_names_the_product_its_limit_and_the_step_to_stay_below(uneven, scaling):
    _, held = periodic(0)
    whole, _ = bends(uneven)
    scale, edge = SHARES @ SCALES[scaling], limit(held, SHARES, scaling)
    step = 3 * edge / (whole * scale)

    warning = stability_warning(uneven, held, step, scaling, rounds=60)

    assert warning is not None
    product = float(warning.split("eta L = ")[1].split()[0])
    allowed = float(warning.split("allow ")[1].split(";")[0])
    below = float(warning.split("a step below ")[1].split()[0])
    assert product == pytest.approx(3 * edge, rel=0.01)
    assert allowed == pytest.approx(edge, rel=0.01)
    assert below == pytest.approx(step / 3, rel=0.06)  # two digits
    assert "copies up to 5 slots old" in warning
    for part in (0.3, 0.99):
        assert stability_warning(uneven, held, part * step / 3, scaling, rounds=60) is None
    assert stability_warning(uneven, held, 1.02 * step / 3, scaling, rounds=60) is not None


def test_what_has_no_step_no_curvature_or_only_batches_is_not_judged(uneven):
    opaque: Any = object()

    assert stability_warning(opaque, 3, 1e6) is None
    assert stability_warning(replace(uneven, batch=1), 3, 1e6) is None
    assert stability_warning(replace(uneven, y=0 * uneven.y), 3, 1e6) is None
    assert stability_warning(uneven, 3, 0.0) is None
    assert stability_warning(uneven, 3, float("nan")) is None
    assert stability_warning(uneven, 3, 1e6) is not None
