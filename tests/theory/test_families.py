"""The losses of the duality gap, told again from their definitions, and the bounds that certify a search of them."""

import jax.numpy as jnp
import numpy as np
import pytest

from folkman.theory.duality import survey
from folkman.theory.families import FALL, FAMILIES, Family
from folkman.theory.value import value_function


class Noted(np.random.Generator):
    """A generator that keeps what it gave, in order: the data that a loss was built from."""

    def __init__(self, seed):
        super().__init__(np.random.PCG64(seed))
        self.given = []

    def keep(self, drawn):
        self.given.append(drawn)
        return drawn

    def uniform(self, *arguments, **named):
        return self.keep(super().uniform(*arguments, **named))

    def standard_normal(self, *arguments, **named):
        return self.keep(super().standard_normal(*arguments, **named))

    def choice(self, *arguments, **named):
        return self.keep(super().choice(*arguments, **named))


def drawn(model, seed):
    """Return a loss of a family and the numbers that it was drawn with."""
    rng = Noted(seed)
    return FAMILIES[model].draw(rng), rng.given


def along(loss, points):
    """Return the loss at points of a line."""
    return loss.value(np.asarray(points, float)[:, None])


def largest_second_derivative(f, low, high, count=4001):
    """Return max f'' on an interval, by central differences."""
    x, h = np.linspace(low, high, count), 1e-4
    return np.max((f(x + h) - 2 * f(x) + f(x - h)) / h**2)


def top_bends(f, points, h=1e-3):
    """Return the largest eigenvalue of the Hessian of f at points (n, 2), by central differences."""
    e = h * np.eye(2)
    hessian = np.empty((len(points), 2, 2))
    for i, j in np.ndindex(2, 2):
        corners = [f(points + p * e[i] + q * e[j]) * p * q for p in (-1, 1) for q in (-1, 1)]
        hessian[:, i, j] = np.sum(corners, axis=0) / (4 * h**2)
    return np.linalg.eigvalsh(hessian)[:, -1]


def test_quadratics_are_parabolas_whose_minimum_lies_well_inside_their_region():
    bends, centres = [], []
    for seed in range(200):
        loss, given = drawn("quadratic", seed)
        left, middle, right = along(loss, [-1.0, 0.0, 1.0])
        a = left - 2 * middle + right
        c = (left - right) / 2 / a
        points = np.linspace(-2, 2, 9)
        np.testing.assert_allclose(along(loss, points), 0.5 * a * (points - c) ** 2, atol=1e-12)
        assert (loss.name, loss.dim, loss.radius) == ("quadratic", 1, 2.0)
        np.testing.assert_allclose([a, c], given)
        assert loss.curvature == pytest.approx(a)
        bends.append(a)
        centres.append(c)

    assert 0.5 <= min(bends) < 0.6
    assert 1.9 < max(bends) <= 2.0
    assert -1.5 <= min(centres) < -1.4
    assert 1.4 < max(centres) <= 1.5


def test_double_wells_are_polynomials_of_two_wells_that_are_tilted_either_way():
    widths, tilts = [], []
    for seed in range(100):
        loss, given = drawn("double_well", seed)
        points = np.linspace(-1.6, 1.6, 9)
        constant, tilt, square, cubic, fourth = np.polynomial.polynomial.polyfit(
            points, along(loss, points), 4
        )
        b = fourth**-0.25
        np.testing.assert_allclose([constant, square, cubic], [1, -2 / b**2, 0], atol=1e-9)
        bend = np.polynomial.Polynomial([constant, tilt, square, cubic, fourth]).deriv(2)
        assert loss.curvature == pytest.approx(np.max(bend(np.linspace(-1.6, 1.6, 101))))
        assert (loss.name, loss.dim, loss.radius) == ("double_well", 1, 1.6)
        np.testing.assert_allclose([b, tilt], given)
        widths.append(b)
        tilts.append(tilt)

    assert 0.8 <= min(widths) < 0.82
    assert 1.18 < max(widths) <= 1.2
    assert -0.1 <= min(tilts) < -0.09
    assert 0.09 < max(tilts) <= 0.1


def test_robust_regression_is_the_mean_of_its_samples_with_a_third_on_another_line():
    loss, (size, sign, noise) = drawn("robust", 3)
    total = np.zeros(7)
    points = np.linspace(-2, 2, 7)
    for n in range(12):
        x = size[n] * sign[n]
        y = (-0.6 if n in (0, 3, 6, 9) else 1.2) * x + 0.05 * noise[n]
        e = points * x - y
        total += e**2 / (0.09 + e**2) / 12

    np.testing.assert_allclose(along(loss, points), total, rtol=1e-12)
    assert (loss.name, loss.dim, loss.radius) == ("robust", 1, 2.0)
    assert set(sign) == {-1.0, 1.0}
    assert np.all((size >= 0.5) & (size <= 1.5))
    fine = np.linspace(-2, 2, 801)
    assert fine[np.argmin(along(loss, fine))] == pytest.approx(1.2, abs=0.1)  # not the outliers'


def test_the_curvature_of_robust_regression_is_that_of_all_samples_at_their_steepest():
    loss, (size, _, _) = drawn("robust", 4)
    bend = largest_second_derivative(lambda e: e**2 / (0.09 + e**2), -1, 1)

    assert loss.curvature == pytest.approx(np.mean(size**2) * bend, rel=1e-4)
    assert largest_second_derivative(lambda w: along(loss, w), -2, 2) <= loss.curvature


def test_the_one_unit_network_is_half_the_mean_square_of_what_it_misses():
    loss, (x, noise) = drawn("network", 5)
    y = 1.1 * np.tanh(1.2 * x) + 0.1 * noise
    points = np.random.default_rng(0).uniform(-2.5, 2.5, (3, 4, 2))
    exact = np.zeros((3, 4))
    for at in np.ndindex(3, 4):
        a, b = points[at]
        exact[at] = np.mean(
            [0.5 * (a * np.tanh(b * p) - q) ** 2 for p, q in zip(x, y, strict=True)]
        )

    np.testing.assert_allclose(loss.value(points), exact, rtol=1e-12)
    assert (loss.name, loss.dim, loss.radius, len(x)) == ("network", 2, 2.5, 8)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_curvature_of_the_network_is_the_row_sum_of_what_its_entries_can_be(seed):
    """Each factor of each entry of a sample's Hessian is taken at its largest, as found on a fine grid."""
    loss, (x, noise) = drawn("network", seed)
    y, reach = 1.1 * np.tanh(1.2 * x) + 0.1 * noise, 2.5
    at = np.linspace(-5, 5, 20_001)
    bend = np.abs(-2 * np.tanh(at) * (1 - np.tanh(at) ** 2)).max()
    aa = ab = bb = 0.0
    for p, q in zip(x, y, strict=True):
        miss = reach + abs(q)
        aa += np.tanh(reach * p) ** 2 / 8
        ab += abs(p) * (reach + miss) / 8
        bb += (reach**2 * p**2 + miss * reach * p**2 * bend) / 8

    assert loss.curvature == pytest.approx(max(aa + ab, ab + bb), rel=1e-6)

    grid = np.linspace(-reach, reach, 41)
    inside = np.array([(a, b) for a in grid for b in grid if abs(a) + abs(b) <= reach])
    assert top_bends(loss.value, inside).max() <= loss.curvature


def test_the_wide_network_has_three_units_and_learns_a_sine(x64):
    loss, (x, noise) = drawn("wide_network", 6)
    y = np.sin(2 * x) + 0.1 * noise
    w = np.random.default_rng(0).normal(size=6)
    says = [sum(w[k] * np.tanh(w[3 + k] * p) for k in range(3)) for p in x]

    assert float(loss.value(jnp.asarray(w))) == pytest.approx(0.5 * np.mean((says - y) ** 2))
    assert (loss.name, loss.dim, loss.radius, len(x)) == ("wide_network", 6, 6.0, 12)
    assert not value_function(loss, 2, starts=2).certified


@pytest.mark.parametrize("model", ["network", "wide_network"])
def test_networks_learn_from_inputs_on_both_sides_of_zero_where_tanh_bends_and_no_further(model):
    x = np.concatenate([drawn(model, seed)[1][0] for seed in range(40)])

    assert -2.0 <= x.min() < -1.9
    assert 1.9 < x.max() <= 2.0


def test_the_worst_case_gains_nothing_before_the_fall_and_everything_after():
    loss, given = drawn("worst", 0)
    edge = 1 - FALL

    points = [0.0, edge - 1e-9, 1 - FALL / 2, 1.0, 1.25, -edge, -1 + FALL / 4, -1.0]
    expected = [1.0, 1.0, 0.5, 0.0, 0.0, 1.0, 0.25, 0.0]
    np.testing.assert_allclose(along(loss, points), expected, atol=1e-12)
    assert given == []
    steepest = np.max(np.abs(np.diff(along(loss, np.linspace(0.9, 1.0, 101)))) / 1e-3)
    assert loss.slope == pytest.approx(steepest)


def test_the_worst_case_is_out_of_reach_for_two_nodes_whose_regions_shrink():
    """A node alone reaches past the fall; half of its region ends before."""
    alone, two = survey("worst", [1, 2], reach="shrinking")

    assert alone.gap == pytest.approx(1 - FALL)
    assert alone.primal[-1] == 0
    np.testing.assert_array_equal(two.primal, 1.0)
    assert two.gap == 0


@pytest.mark.parametrize(
    ("model", "error"),
    {"double_well": 5e-7, "robust": 4e-7, "network": 8e-5, "worst": 4e-4}.items(),
)
def test_the_search_of_each_family_is_as_exact_as_the_document_says(model, error):
    family = FAMILIES[model]
    coarser = 10 if model == "network" else 1  # its grid is large; the error goes with the square
    losses = [family.draw(np.random.default_rng([0, kind])) for kind in range(family.kinds)]

    found = [value_function(loss, family.budgets // coarser, family.refine) for loss in losses]

    largest = max(value.error for value in found) / coarser**2
    assert 0.8 * error < largest <= error
    assert all(len(value.high) == family.budgets // coarser + 1 for value in found)


def test_nodes_beyond_the_eighth_take_the_losses_in_turn(monkeypatch):
    monkeypatch.setitem(FAMILIES, "coarse", Family(FAMILIES["double_well"].draw, 40, 4))

    delta = survey("coarse", [18])[0].divergence

    assert len(set(delta[:8])) == 8
    np.testing.assert_array_equal(delta[8:16], delta[:8])
    np.testing.assert_array_equal(delta[16:], delta[:2])
