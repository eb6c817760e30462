"""Projections against their definition: the nearest point of the set, checked by an independent
solver."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize

from folkman.problem.projection import PROJECTIONS, decay, l1_ball, l2_ball, none, soft_threshold

# few sizes, since each is compiled anew
VECTORS = arrays(
    np.float32,
    st.sampled_from([1, 2, 3, 12]),
    elements=st.floats(-8, 8, width=32, allow_subnormal=False),
)
STEP = jnp.float32(0.1)


@settings(max_examples=60, deadline=None)
@given(VECTORS, st.sampled_from([0.5, 2.0, 30.0]))
@pytest.mark.parametrize(("ball", "order"), [(l1_ball, 1), (l2_ball, 2)])
def test_a_projection_lands_inside_once_and_for_all(ball, order, w, radius):
    project = ball(radius)

    y = np.asarray(project(jnp.asarray(w), STEP), np.float64)

    rounding = 4e-7 * np.linalg.norm(w.astype(float), order)  # of float32, where w cancels
    assert np.linalg.norm(y, order) <= radius * (1 + 1e-5) + rounding
    np.testing.assert_allclose(project(jnp.asarray(y, jnp.float32), STEP), y, rtol=1e-4, atol=1e-5)
    if np.linalg.norm(w.astype(float), order) <= radius * (1 - 1e-6):
        np.testing.assert_array_equal(y, w)
    # nearest point of a convex set: the step back makes an obtuse angle with every way into the set
    else:
        inside = np.eye(len(w)) * radius
        for vertex in [*inside, *-inside]:
            assert (w - y) @ (vertex - y) <= 1e-3 * radius * max(1.0, np.abs(w).max())


def test_the_l1_projection_is_what_a_solver_finds():
    rng = np.random.default_rng(0)
    radius = 1.5
    for _ in range(20):
        w = rng.normal(size=6) * 2
        split = minimize(  # y = p - n with p, n >= 0
            lambda z, w=w: np.sum((z[:6] - z[6:] - w) ** 2),
            np.full(12, 0.1),
            bounds=[(0, None)] * 12,
            constraints={"type": "ineq", "fun": lambda z: radius - z.sum()},
            method="SLSQP",
            options={"maxiter": 500, "ftol": 1e-12},
        )
        y = l1_ball(radius)(jnp.asarray(w, jnp.float32), STEP)
        np.testing.assert_allclose(y, split.x[:6] - split.x[6:], atol=2e-4)


def test_soft_threshold_and_decay_scale_with_the_step():
    w = jnp.asarray([-3.0, -0.05, 0.0, 0.2, 5.0])

    np.testing.assert_allclose(soft_threshold(1.0)(w, STEP), [-2.9, 0.0, 0.0, 0.1, 4.9], rtol=1e-6)
    np.testing.assert_allclose(decay(2.0)(w, STEP), np.asarray(w) * 0.8, rtol=1e-6)
    np.testing.assert_array_equal(none()(w, STEP), w)


@pytest.mark.parametrize("name", [name for name in PROJECTIONS if name != "none"])
def test_a_radius_or_rate_that_is_not_positive_is_refused(name):
    with pytest.raises(ValueError, match="must be positive, got 0"):
        PROJECTIONS[name](0.0)
