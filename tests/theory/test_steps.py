"""Stable steps: the limit against roots, the advice against runs."""

import numpy as np
import pytest
from scipy.optimize import brentq

from folkman import async_sharing, constant, pipelined, simulate, snapshot
from folkman.radio.trace import record_timeline
from folkman.theory.stability import advise, constant_stamps, limit, stability_warning


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

    assert found == pytest.approx(exact_limit(nodes, delay), rel=0.02)


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
