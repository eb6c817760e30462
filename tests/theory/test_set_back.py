"""Own parts that are set back by the mean pace: rest, bias and stable steps, against runs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkman.algorithm.pieces.own_part import LONG
from folkman.algorithm.pieces.stable_steps import set_back_limit
from folkman.theory import own_limits as limits
from folkman.theory import own_part as op

RULES = ("newest", "aligned", "centred", "adaptive", 0.5)


def losses(seed, nodes=3, d=2):
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.standard_normal((nodes, d, d)))[0]
    curvature = np.einsum("iab,ib,icb->iac", turn, rng.uniform(0.2, 1.0, (nodes, d)), turn)
    shares = rng.uniform(0.5, 1.5, nodes)
    return op.Quadratics(curvature, rng.standard_normal((nodes, d)), shares / shares.sum())


def story(q, s, step, slots, start):
    """Return all w_i(t) (slot, node, d) by the equations as they are written."""
    nodes = len(q.shares)
    path, pace = [np.tile(start, (nodes, 1))], np.zeros((nodes, len(start)))
    back = np.zeros(nodes) if s.set_back is None else s.set_back
    for t in range(slots):
        if t:
            k = 1 / (1 + LONG * s.own_age[:, None])
            pace = pace + k * (path[t] - path[t - 1] - pace)
        new = []
        for i in range(nodes):
            v = sum(q.shares[j] * path[max(t - s.ages[i, j], 0)][j] for j in range(nodes) if j != i)
            then = path[max(t - s.own_age[i], 0)][i]
            v = v + q.shares[i] * then + s.rho[i] * (path[t][i] - then)
            v = v - back[i] * s.own_age[i] * pace[i]
            new.append(path[t][i] - step * q.curvature[i] @ (v - q.centre[i]))
        path.append(np.array(new))
    return np.array(path)


@given(st.integers(0, 10**6), st.sampled_from(RULES), st.floats(0, 1))
@settings(max_examples=20, deadline=None)
def test_the_linear_map_is_the_algorithm(seed, own, alike):
    q = losses(seed)
    s = op.named(own, np.random.default_rng(seed).integers(0, 4, (3, 3)), q.shares, alike)
    matrix, offset = op.transition(q, s, 0.3)

    path = story(q, s, 0.3, 12, np.ones(2))
    state = np.concatenate([[1.0, 1.0], np.zeros(len(offset) - 2)])
    for t in range(12):
        np.testing.assert_allclose(state[:2], q.shares @ path[t], atol=1e-11)
        state = matrix @ state + offset


@given(st.integers(0, 10**6), st.sampled_from(RULES), st.floats(0, 1))
@settings(max_examples=15, deadline=None)
def test_a_stable_run_ends_in_the_fixed_point_and_within_the_bounds(seed, own, alike):
    q = losses(seed)
    s = op.named(own, np.random.default_rng(seed + 1).integers(1, 5, (3, 3)), q.shares, alike)
    step = 0.4 * op.sufficient_step(s, q.shares)
    radius = op.spectral_radius(q, s, step)
    assert radius < 1

    path = story(q, s, step, 500, np.zeros(2))
    found = op.fixed_point(q, s, step)

    left = 100 * radius**500 + 1e-9
    assert np.linalg.norm(q.shares @ path[-1] - found.mean) <= left
    shown = limits.rest_displacement(s, q.shares) @ found.slopes
    np.testing.assert_allclose(found.used - found.mean, step * shown, atol=1e-10)
    best = op.optimum(q)
    whole = np.einsum("i,iab->ab", q.shares, q.curvature)
    slope = np.linalg.norm(whole @ (found.mean - best))
    smooth = np.linalg.eigvalsh(q.curvature).max(axis=1)
    assert slope <= limits.slope_bound(s, q.shares, smooth, step, found.slopes) + 1e-12
    far = np.linalg.norm(found.mean - best)
    assert far <= limits.bias_bound_any_ages(q, s, step) + 1e-12


@given(st.integers(0, 10**6), st.integers(1, 6), st.floats(0, 1), st.floats(0.01, 0.2))
@settings(max_examples=20, deadline=None)
def test_at_rest_only_the_share_that_is_not_set_back_counts(seed, age, alike, step):
    """Centred ends in the optimum; adaptive where the share h_i a_i would end."""
    q = losses(seed, nodes=4)
    ages = np.full((4, 4), age)
    centred = op.named("centred", ages, q.shares)
    adaptive = op.named("adaptive", ages, q.shares, alike)
    plain = op.setting(ages, np.maximum(0.5, q.shares) * alike, q.shares)

    np.testing.assert_allclose(op.fixed_point(q, centred, step).mean, op.optimum(q), atol=1e-9)
    mine, other = (op.fixed_point(q, s, step).mean for s in (adaptive, plain))
    np.testing.assert_allclose(mine, other, atol=1e-9)
    assert limits.bias_bound_any_ages(q, centred, step) == 0.0


def test_unlike_ages_leave_a_bias_and_the_bound_says_how_much():
    q = losses(3)
    s = op.named("centred", np.array([[0, 1, 5], [4, 0, 2], [1, 6, 0]]), q.shares)
    far = np.linalg.norm(op.fixed_point(q, s, 0.005).mean - op.optimum(q))
    assert 0 < far <= limits.bias_bound_any_ages(q, s, 0.005) < 20 * far
    even = op.named("newest", np.full((3, 3), 3), q.shares)
    assert limits.bias_bound_any_ages(q, even, 10.0) == np.inf  # nothing is said of long steps


@pytest.mark.parametrize("age", [1, 2, 5, 9])
@pytest.mark.parametrize(
    ("nodes", "own", "alike"),
    [(2, "centred", 0), (5, "centred", 0), (4, "adaptive", 0.4), (3, "adaptive", 1), (3, 0.2, 0)],
)
def test_the_closed_limit_is_that_of_the_eigenvalues(age, nodes, own, alike):
    q = op.Quadratics(np.ones((nodes, 1, 1)), np.zeros((nodes, 1)), np.full(nodes, 1 / nodes))
    s = op.named(own, np.full((nodes, nodes), age), q.shares, alike)
    back = 0.0 if s.set_back is None else s.set_back[0]

    closed = limits.limit_alike(age, s.rho[0], back)

    assert op.spectral_radius(q, s, 0.999 * closed) < 1 < op.spectral_radius(q, s, 1.001 * closed)
    assert op.stable_step(q, s) == pytest.approx(closed, rel=1e-5)  # no earlier one, by a search
    assert op.sufficient_step(s, q.shares) <= closed


@pytest.mark.parametrize("age", [1, 3, 8, 30])
def test_nodes_compute_the_same_limit(age):
    compute = jax.jit(set_back_limit)  # by hand it would be compiled at every call
    for share in (1 / 30, 1 / 5, 1 / 3, 1 / 2):
        for alike in (0.0, 0.3, 0.8):  # centred, and adaptive on the way to 1/2
            rho, back = share + (0.5 - share) * alike, (1 - alike) * share
            found = compute(*map(jnp.float32, (rho, back, age)))
            assert float(found) == pytest.approx(limits.limit_alike(age, rho, back), rel=2e-4)
    for rho in (0.6, 0.75, 0.9, 1.0):  # on the safe side
        for back in (0.1, 0.3, rho):
            found = compute(*map(jnp.float32, (rho, back, age)))
            assert float(found) <= limits.limit_alike(age, rho, back) * (1 + 1e-5)
    assert float(compute(*map(jnp.float32, (0.2, 0.2, 0)))) == 2.0


@pytest.mark.parametrize("rho", [0.0, 0.1, 0.3, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("age", [1, 4, 12])
def test_without_pace_it_is_the_limit_of_theorem_f(age, rho):
    assert limits.limit_alike(age, rho) == pytest.approx(op.stable_step_alike(age, rho), rel=1e-5)


def test_old_copies_and_many_nodes_have_a_limit_by_hand():
    """D eta L tends to (pi / 2) (1 + 1.443 alpha) centred, (pi / 2) (1 + 1.637 alpha) newest."""
    age, share = 2000, 1e-3
    aligned = limits.limit_alike(age, 0.0)
    gains = [limits.limit_alike(age, share, back) / aligned - 1 for back in (share, 0.0)]
    turned = np.pi / 2
    by_hand = [
        2 / np.pi * (1 - 4 * turned**2 / (1 + 16 * turned**2)) + 1 - turned / (1 + 16 * turned**2),
        2 / np.pi + 1,
    ]
    np.testing.assert_allclose(np.divide(gains, share), by_hand, rtol=0.01)
    assert by_hand == pytest.approx([1.443, 1.637], abs=1e-3)


@given(st.integers(0, 10**6))
@settings(max_examples=8, deadline=None)
def test_changing_ages_die_out_below_the_sufficient_step(seed):
    rng = np.random.default_rng(seed)
    nodes, slots = 3, 1500
    shares = rng.dirichlet(np.ones(nodes))
    ages = rng.integers(0, 6, (slots, nodes, nodes))
    each = [op.named("centred", age, shares) for age in ages]
    e = 0.98 * min(1.0, *(op.sufficient_step(s, shares) for s in each))

    path, pace = np.zeros((slots + 1, nodes)), np.zeros(nodes)
    path[0] = rng.standard_normal(nodes)
    own = np.arange(nodes)
    for t, s in enumerate(each):
        held = path[np.maximum(t - s.ages, 0), own[None]]
        held[own, own] = path[t] - s.own_age * pace
        path[t + 1] = path[t] - e * held @ shares
        pace = pace + (path[t + 1] - path[t] - pace) / (1 + LONG * s.own_age)

    mean = np.abs(path @ shares)
    assert mean[-100:].max() < 0.05 * max(mean[0], np.abs(path[0]).max() * 0.05)


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="whose shares are constant"):
        op.named("measured", np.ones((2, 2)), np.array([0.5, 0.5]))
    with pytest.raises(ValueError, match="set_back <= rho"):
        limits.limit_alike(3, 0.1, 0.2)
