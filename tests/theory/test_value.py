"""Value functions against closed forms, and their certificates where they are met with equality."""

import jax.numpy as jnp
import numpy as np
import pytest

from folkman.theory.value import Loss, Value, envelope, frozen, hull, value_function


def nearest_in_l1(c, k):
    """Return the point of ||w||_1 <= k nearest to c: soft thresholds, the right one found by bisection."""
    low, high = 0.0, np.abs(c).max()
    if np.abs(c).sum() <= k:
        return c
    for _ in range(80):
        middle = (low + high) / 2
        inside = np.maximum(np.abs(c) - middle, 0).sum() <= k
        low, high = (low, middle) if inside else (middle, high)
    return np.sign(c) * np.maximum(np.abs(c) - high, 0)


def bowl(dim, radius, c, bend=1.0):
    """Return bend/2 ||w - c||^2."""
    return Loss("bowl", dim, radius, lambda w: 0.5 * bend * ((w - c) ** 2).sum(-1), curvature=bend)


def by_chords(values):
    """Return the convex envelope of samples: the lowest chord over each, whichever two it joins."""
    n = len(values)
    low = values.copy()
    for a in range(n):
        for b in range(a + 1, n):
            at = np.arange(a, b + 1)
            chord = values[a] + (values[b] - values[a]) * (at - a) / (b - a)
            low[a : b + 1] = np.minimum(low[a : b + 1], chord)
    return low


def test_a_search_tries_every_budget_from_zero_to_the_radius():
    """|w - 1| with its minimum on the grid: p(k) = max(1 - k, 0) exactly."""
    loss = Loss("kink", 1, 2.0, lambda w: np.abs(w[..., 0] - 1.0), slope=1.0)

    found = value_function(loss, 8, refine=2)

    np.testing.assert_allclose(found.high, np.maximum(1 - 0.25 * np.arange(9), 0), atol=1e-15)
    assert found.step == 0.25
    assert "exhaustive, 33 points" in found.how


@pytest.mark.parametrize("dim", [1, 2])
def test_the_certified_error_is_attained_in_the_middle_of_a_cell(dim):
    """A bowl and a cone whose centre is as far from all corners as can be: no smaller error would be true."""
    cells, radius = 12, 3.0
    h = radius / cells
    middle = (
        np.array([2.5 * h]) if dim == 1 else np.array([2.5 * h + 0.5 * h, 2.5 * h - 0.5 * h]) / 2
    )
    round_one = bowl(dim, radius, middle, bend=7.0)
    cone = Loss(
        "cone", dim, radius, lambda w: 7.0 * np.sqrt(((w - middle) ** 2).sum(-1)), slope=7.0
    )

    for loss, error in ((round_one, 7.0 * h**2 / 8), (cone, 7.0 * h / 2)):
        found = value_function(loss, 4, refine=3)
        assert found.error == pytest.approx(error, rel=1e-12)
        assert found.high[-1] == pytest.approx(error, rel=1e-12)  # where the true least is 0
        assert found.certified
        assert f"exhaustive, {(2 * cells + 1) ** dim} points" in found.how


def test_the_smaller_of_two_known_errors_is_certified():
    plain = Loss("line", 1, 1.0, lambda w: w[..., 0])

    assert value_function(plain._replace(curvature=8.0, slope=1.0), 10, 1).error < 0.011
    assert value_function(plain._replace(curvature=8.0, slope=0.1), 10, 1).error < 0.0051
    assert not value_function(plain, 10, 1).certified


def test_the_printed_divergence_is_the_largest_fall_from_the_value_to_the_envelope_in_w():
    rng = np.random.default_rng(0)
    for _ in range(20):
        heights = rng.uniform(size=21)
        loss = Loss(
            "drawn", 1, 1.0, lambda w, h=heights: h[np.rint(10 * w[..., 0] + 10).astype(int)]
        )

        found = value_function(loss, 5, refine=2)

        value = np.array([heights[10 - abs(m) : 11 + abs(m)].min() for m in range(-10, 11)])
        exact = np.max(value - by_chords(heights))
        assert found.divergence_printed == pytest.approx(exact, abs=1e-12)
        np.testing.assert_allclose(found.high, value[10::2])
    assert np.isnan(value_function(bowl(2, 1.0, np.zeros(2)), 2, 1).divergence_printed)


def test_the_envelope_is_the_lowest_chord_and_its_corners_are_convex():
    rng = np.random.default_rng(1)
    for count in (1, 2, 3, 5, 12, 25):
        values = rng.normal(size=count)

        corners = hull(values)

        np.testing.assert_allclose(envelope(values), by_chords(values), atol=1e-12)
        assert (corners[0], corners[-1]) == (0, count - 1)
        assert np.all(np.diff(np.diff(values[corners]) / np.diff(corners)) > 0)


def test_points_on_a_line_are_no_corners():
    np.testing.assert_array_equal(hull(np.array([3.0, 2.0, 1.0, 0.0, 0.0, 0.0])), [0, 3, 5])


@pytest.mark.parametrize("bend", [100.0, 1.0, 1e-3])
def test_descents_find_the_projection_onto_the_budget_whatever_the_curvature(bend, x64):
    """The least of bend/2 ||w - c||^2 over ||w||_1 <= k is met where c is projected."""
    c = np.array([1.0, -2.0, 0.3, 0.0])
    exact = [0.5 * bend * np.sum((nearest_in_l1(c, k) - c) ** 2) for k in np.arange(9) / 2]

    found = value_function(bowl(4, 4.0, c, bend), 8, starts=3)

    np.testing.assert_allclose(found.high, exact, atol=1e-6 * bend)
    assert found.step == 0.5
    assert not found.certified
    assert "3 starts" in found.how


def test_no_descent_begins_or_ends_outside_of_its_budget(x64):
    """-||w||_1 falls without end: the least within a budget is minus the budget."""
    slope = Loss("slope", 3, 2.0, lambda w: -abs(w).sum())

    found = value_function(slope, 8, starts=6)

    np.testing.assert_allclose(found.high, -found.step * np.arange(9), atol=1e-12)


def test_descents_keep_what_smaller_budgets_found(x64):
    """From one start in a landscape with many valleys more budget may end worse; p never rises."""

    def ripples(w):
        return (w**2).sum() - jnp.cos(9 * w).sum()

    found = value_function(Loss("ripples", 3, 3.0, ripples), 30, starts=1, seed=4)

    assert np.all(np.diff(found.high) <= 0)


def test_frozen_sharing_looks_at_the_loss_between_what_is_shared_and_what_is_own():
    loss = Loss("own", 1, 2.0, lambda w: np.exp(w[..., 0]), curvature=6.0, slope=5.0)
    w = np.linspace(-2, 2, 5)[:, None]

    seen = frozen(loss, 0.25, shared=2.0)

    np.testing.assert_allclose(seen.value(w), np.exp(0.75 * 2.0 + 0.25 * w[:, 0]))
    assert (seen.curvature, seen.slope) == (6.0 / 16, 5.0 / 4)  # of the chain rule
    assert (seen.name, seen.dim, seen.radius) == ("own", 1, 2.0)
    np.testing.assert_array_equal(frozen(loss, 1.0, shared=9.0).value(w), loss.value(w))
    np.testing.assert_allclose(frozen(loss, 0.5).value(w), np.exp(0.5 * w[:, 0]))


@pytest.mark.parametrize("share", [0.0, -0.5, 1.5])
def test_a_share_outside_of_zero_to_one_is_refused(share):
    with pytest.raises(ValueError, match="a share lies in"):
        frozen(bowl(1, 1.0, 0.0), share)


def test_a_search_without_budgets_or_cells_is_refused():
    for budgets, refine in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match="must be at least 1"):
            value_function(bowl(1, 1.0, 0.0), budgets, refine)
    assert len(value_function(bowl(1, 1.0, 0.0), 1, 1).high) == 2


def test_a_value_is_certified_where_its_error_is_a_number():
    assert Value(1.0, np.zeros(2), 0.0, "").certified
    assert not Value(1.0, np.zeros(2), float("nan"), "").certified
    assert not Value(1.0, np.zeros(2), float("inf"), "").certified
