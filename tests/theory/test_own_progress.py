"""Bias and stability with a share of the own progress, against runs and closed forms."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from folkman.algorithm.pieces.stable_steps import stable_limit
from folkman.theory import own_part as op


def losses(seed, nodes=3, d=2, even=False):
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.standard_normal((nodes, d, d)))[0]
    curvature = np.einsum("iab,ib,icb->iac", turn, rng.uniform(0.2, 1.0, (nodes, d)), turn)
    shares = rng.uniform(0.5, 1.5, nodes)
    shares = np.full(nodes, 1 / nodes) if even else shares / shares.sum()
    return op.Quadratics(curvature, rng.standard_normal((nodes, d)), shares)


def story(q, s, step, slots, start):
    """Return all w_i(t) (slot, node, d) by equation (1) as it is written."""
    nodes = len(q.shares)
    path = [np.tile(start, (nodes, 1))]

    def past(j, t):
        return path[max(t, 0)][j]

    for t in range(slots):
        new = []
        for i in range(nodes):
            v = sum(q.shares[j] * past(j, t - s.ages[i, j]) for j in range(nodes) if j != i)
            v = v + (q.shares[i] - s.rho[i]) * past(i, t - s.own_age[i]) + s.rho[i] * past(i, t)
            new.append(path[t][i] - step * q.curvature[i] @ (v - q.centre[i]))
        path.append(np.array(new))
    return np.array(path)


@given(st.integers(0, 10**6), st.floats(0, 1))
@settings(max_examples=15, deadline=None)
def test_the_linear_map_is_the_algorithm(seed, rho):
    q = losses(seed)
    s = op.setting(np.random.default_rng(seed).integers(0, 4, (3, 3)), rho, q.shares)
    matrix, offset = op.transition(q, s, 0.3)

    path = story(q, s, 0.3, 12, np.ones(2))
    state = np.concatenate([[1.0, 1.0], np.zeros(len(offset) - 2)])
    for t in range(12):
        np.testing.assert_allclose(state[:2], q.shares @ path[t], atol=1e-12)
        state = matrix @ state + offset


@given(st.integers(0, 10**6), st.floats(0, 1))
@settings(max_examples=10, deadline=None)
def test_a_stable_run_ends_in_the_fixed_point(seed, rho):
    q = losses(seed)
    s = op.setting(np.random.default_rng(seed + 1).integers(1, 4, (3, 3)), rho, q.shares)
    step = 0.5 * op.sufficient_step(s, q.shares)
    radius = op.spectral_radius(q, s, step)

    path = story(q, s, step, 600, np.zeros(2))
    found = op.fixed_point(q, s, step)

    assert radius < 1
    left = np.linalg.norm(q.shares @ path[-1] - found.mean)
    assert left <= 30 * radius**600 + 1e-9
    np.testing.assert_allclose(q.shares @ found.slopes, 0, atol=1e-12)
    drift = path[-1] - path[-2]  # the nodes drift on, by their own gradients
    np.testing.assert_allclose(drift, -step * found.slopes, atol=30 * radius**600 + 1e-9)


def test_the_spectral_radius_is_the_decay_that_is_seen():
    q = losses(4)
    s = op.setting(np.full((3, 3), 3), 0.2, q.shares)
    step = 0.05  # its slowest root is real: no swinging hides the decay

    gap = q.shares @ story(q, s, step, 300, np.ones(2)) - op.fixed_point(q, s, step).mean
    seen = np.linalg.norm(gap[250:300], axis=1)

    assert (seen[-1] / seen[0]) ** (1 / 49) == pytest.approx(
        op.spectral_radius(q, s, step), rel=2e-3
    )


@given(st.integers(0, 10**6), st.integers(1, 6), st.floats(0, 1), st.floats(0.01, 0.3))
@settings(max_examples=30, deadline=None)
def test_equal_ages_end_in_the_minimum_of_the_moreau_envelopes(seed, age, rho, step):
    q = losses(seed, nodes=4)
    s = op.setting(np.full((4, 4), age), rho, q.shares)
    prox = step * age * rho

    found = op.fixed_point(q, s, step)

    inner = np.linalg.inv(np.eye(2) + prox * q.curvature) @ q.curvature  # of the envelopes
    enveloped = q._replace(curvature=inner)
    np.testing.assert_allclose(found.mean, op.optimum(enveloped), atol=1e-9)
    np.testing.assert_allclose(found.used, found.mean - prox * found.slopes, atol=1e-9)
    far = np.linalg.norm(found.mean - op.optimum(q))
    assert far <= op.bias_bound(q, age, rho, step) + 1e-12


def test_the_bound_on_the_bias_is_within_a_factor_of_four():
    curved = np.array([3.0, 1.0]).reshape(2, 1, 1)
    q = op.Quadratics(curved, np.array([[1.0], [-3.0]]), np.full(2, 0.5))

    found = op.fixed_point(q, op.setting(np.full((2, 2), 2), 0.1, q.shares), 1e-3)
    far, bound = np.abs(found.mean - op.optimum(q))[0], op.bias_bound(q, 2, 0.1, 1e-3)

    assert 0.249 * bound < far <= bound


def test_the_envelopes_hold_beyond_quadratics():
    rng = np.random.default_rng(5)
    rows, labels = rng.standard_normal((3, 8, 2)), rng.choice([-1.0, 1.0], (3, 8))
    age, rho, step, ridge = 3, 0.4, 0.1, 0.1

    def slope(i, w):  # logistic losses with a ridge
        pull = labels[i] / (1 + np.exp(labels[i] * (rows[i] @ w)))
        return -(pull @ rows[i]) / 8 + ridge * w

    def loss(i, w):
        return np.logaddexp(0, -labels[i] * (rows[i] @ w)).mean() + ridge * w @ w / 2

    path = [np.zeros((3, 2))]
    for t in range(3000):
        now, old = path[t], path[max(t - age, 0)]
        v = [old.mean(0) + rho * (now[i] - old[i]) for i in range(3)]
        path.append(now - step * np.array([slope(i, v[i]) for i in range(3)]))
    prox = step * age * rho

    def envelopes(w):
        inner = [
            minimize(lambda x, i=i: loss(i, x) + (x - w) @ (x - w) / (2 * prox), w, tol=1e-12).fun
            for i in range(3)
        ]
        return sum(inner) / 3

    best = minimize(envelopes, np.zeros(2), tol=1e-12).x
    np.testing.assert_allclose(path[-1].mean(0), best, atol=2e-5)


@pytest.mark.parametrize("age", [1, 3, 6])
@pytest.mark.parametrize("rho", [0.0, 0.2, 0.35, 0.5, 0.8, 1.0])
def test_nodes_alike_have_the_step_of_the_closed_form(age, rho):
    q = op.Quadratics(np.ones((4, 1, 1)), np.zeros((4, 1)), np.full(4, 0.25))
    s = op.setting(np.full((4, 4), age), rho, q.shares)

    closed = op.stable_step_alike(age, rho)

    assert op.stable_step(q, s) == pytest.approx(closed, rel=1e-5)
    if rho == 0:
        assert closed == pytest.approx(2 * np.sin(np.pi / (2 * (2 * age + 1))), rel=1e-6)
    assert op.sufficient_step(s, q.shares) <= closed
    angle = stable_limit(jnp.float32(rho), jnp.float32(age))  # what nodes compute, by the angle
    assert closed == pytest.approx(float(angle), rel=1e-4)


@given(st.integers(0, 10**6), st.floats(0, 1))
@settings(max_examples=10, deadline=None)
def test_changing_ages_die_out_below_the_sufficient_step(seed, rho):
    rng = np.random.default_rng(seed)
    nodes, slots = 3, 1500
    shares = rng.dirichlet(np.ones(nodes))
    ages, own = rng.integers(0, 6, (slots, nodes, nodes)), rng.integers(0, 6, (slots, nodes))
    # the largest weighted age of any slot
    limit = min(
        op.sufficient_step(op.setting(a, rho, shares, b), shares)
        for a, b in zip(ages, own, strict=True)
    )
    e = 0.98 * min(limit, 1.0)

    path = np.zeros((slots + 1, nodes))
    path[0] = rng.standard_normal(nodes)
    each = np.arange(nodes)
    for t in range(slots):
        held = path[np.maximum(t - ages[t], 0), each[None]]
        held[each, each] = 0
        before = path[np.maximum(t - own[t], 0), each]
        v = held @ shares + (shares - rho) * before + rho * path[t]
        path[t + 1] = path[t] - e * v

    mean = np.abs(path @ shares)
    assert mean[-100:].max() < 0.05 * max(mean[0], np.abs(path[0]).max() * 0.05)


def test_the_first_step_beyond_the_limit_grows_and_one_below_does_not():
    q = losses(9)
    s = op.setting(np.array([[0, 3, 1], [2, 0, 4], [1, 5, 0]]), 0.1, q.shares)

    limit = op.stable_step(q, s)

    assert op.spectral_radius(q, s, 0.99 * limit) < 1 < op.spectral_radius(q, s, 1.01 * limit)


def test_the_best_rho_is_high_for_nodes_alike_and_low_where_data_differ():
    start, ages = np.array([5.0, 5.0]), np.full((4, 4), 4)
    unlike = losses(1, nodes=4, even=True)
    alike = op.Quadratics(
        np.repeat(unlike.curvature[:1], 4, 0), np.repeat(unlike.centre[:1], 4, 0), unlike.shares
    )

    same = op.best_rho(alike, ages, 0.35, 60, start)
    differ = op.best_rho(unlike, ages, 0.1, 2000, start)
    plain = op.setting(ages, 0.25, unlike.shares)

    assert same.rho >= 0.25
    assert same.bias < 1e-20
    assert differ.rho < 0.1
    assert differ.bias < 1e-4
    gap = op.fixed_point(unlike, plain, 0.1).mean - op.optimum(unlike)
    assert np.linalg.norm(gap) > 1e-3  # what Algorithm 1 itself keeps
    assert op.fixed_point(unlike, plain, 0.1).mean == pytest.approx(
        (unlike.shares @ story(unlike, plain, 0.1, 3000, start)[-1]), abs=1e-6
    )


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="expected ages"):
        op.setting(np.ones((2, 3)), 0.1, np.array([0.5, 0.5]))
    with pytest.raises(ValueError, match=r"rho in \[0, 1\]"):
        op.stable_step_alike(3, 1.5)
    flat = op.Quadratics(np.zeros((2, 1, 1)), np.zeros((2, 1)), np.array([0.5, 0.5]))
    with pytest.raises((ValueError, np.linalg.LinAlgError)):
        op.bias_bound(flat, 3, 0.5, 0.1)
