"""What delay does, against closed forms: stability limits, and the bias on unequal data."""

import numpy as np
import pytest
from scipy.optimize import brentq

from folkman import async_sharing, constant, make_problem, simulate, snapshot
from folkman.problem.data import DataSet, quadratic

# identical quadratics, w(t+1) = w(t) - e [ w(t)/I + (1 - 1/I) w(t-D) ]: largest stable e
PUBLISHED = {
    (5, 4): 0.492,
    (5, 9): 0.241,
    (5, 14): 0.160,
    (15, 4): 0.385,
    (15, 9): 0.184,
    (15, 14): 0.121,
}


def spectral_radius(e, nodes, delay):
    """Return the largest |z| with z^{D+1} = z^D (1 - e/I) - e (1 - 1/I)."""
    coefficients = np.zeros(delay + 2)
    coefficients[0], coefficients[1] = 1.0, -(1.0 - e / nodes)
    coefficients[-1] += e * (1.0 - 1.0 / nodes)
    return np.abs(np.roots(coefficients)).max()


def identical(nodes):
    """Return `nodes` copies of 0.5 w^2 - w: curvature 1, centre 1, start 0."""
    ones = np.ones((nodes, 1), np.float32)
    samples = DataSet("identical", ones, ones, ones[:1], ones[:1], 0, np.arange(nodes), np.ones(1))
    return make_problem(
        samples, "quadratic", [np.array([i]) for i in range(nodes)], dtype="float64"
    )


def grows(problem, delay, e):
    """Tell whether the distance from the optimum is larger late than early."""
    run = simulate(problem, constant(delay), async_sharing(e), slots=3000)
    distance = np.array(run.column("optimum_distance"))
    return distance[-50:].max() > distance[50:100].max()


@pytest.mark.parametrize(("nodes", "delay"), PUBLISHED)
def test_the_stability_limit_is_met_within_two_percent(x64, nodes, delay):
    problem, limit = identical(nodes), PUBLISHED[nodes, delay]
    exact = brentq(lambda e: spectral_radius(e, nodes, delay) - 1.0, 0.01, 2.5)

    assert exact == pytest.approx(limit, abs=6e-4)  # the published figures have three digits
    assert not grows(problem, delay, 0.98 * limit)
    assert grows(problem, delay, 1.02 * limit)


def test_delay_biases_unequal_nodes_and_lets_their_models_drift(x64):
    samples = quadratic(nodes=5, dim=10, heterogeneity=2.0, condition=10.0, seed=1)
    assert samples.group is not None
    assert samples.optimum is not None
    problem = make_problem(
        samples,
        "quadratic",
        [np.flatnonzero(samples.group == i) for i in range(5)],
        dtype="float64",
    )

    ends = [
        simulate(problem, snapshot(gamma), async_sharing(0.1), slots=3000) for gamma in (1, 5, 15)
    ]

    bias = [run.last("optimum_distance") for run in ends]
    apart = [run.last("consensus") for run in ends]
    assert bias[0] < 1e-12
    assert apart[0] < 1e-12
    assert 1e-3 < bias[1] < bias[2]
    assert 1e-3 < apart[1] < apart[2]
    for run in ends:  # w_i drifts by the node's own gradient at the common point, slot after slot
        norms = np.array(run.column("node_norm"))
        assert norms[-1] > 50 * np.linalg.norm(samples.optimum)
        late = np.diff(norms[-100:])
        assert late.std() < 0.05 * late.mean()  # a straight line
