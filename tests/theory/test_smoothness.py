"""L_1 against exact eigenvalues."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folkman import load, make_problem
from folkman.problem.data import DataSet, gaussian
from folkman.problem.models import SQUARE, Dense, Head, Model, Offset
from folkman.problem.problem import Problem
from folkman.theory.smoothness import ceiling, curvatures, whole_curvature


def hessians(problem, w):
    """Return the exact Hessian of every F_i at w, by forward over reverse differentiation."""

    def loss(v, node):
        return problem.of_node(node).evaluate(v).train_loss / problem.of_node(node).share[0]

    return [np.asarray(jax.hessian(loss)(w, node)) for node in range(problem.num_nodes)]


def top(hessian):
    return np.abs(np.linalg.eigvalsh(hessian)).max()


@pytest.fixture
def logistic(x64):
    return make_problem(load("digits", train_size=120), "logistic", 3, dtype="float64", l2=0.01)


def test_the_top_eigenvalue_of_quadratics_is_found_within_five_percent(quadratics):
    for condition in (1.0, 10.0, 1000.0):
        problem = quadratics(nodes=4, dim=20, condition=condition, heterogeneity=1.0)
        exact = np.asarray(problem.y[:, 0]).max(axis=1)  # a diagonal Hessian

        np.testing.assert_allclose(curvatures(problem, problem.initial), exact, rtol=0.05)
        np.testing.assert_allclose(ceiling(problem), exact, rtol=1e-12)
        assert whole_curvature(problem, problem.initial) == pytest.approx(
            np.max(np.asarray(problem.share) @ np.asarray(problem.y[:, 0])), rel=0.05
        )


def test_the_top_eigenvalue_of_logistic_regression_is_found_within_five_percent(logistic):
    rng = np.random.default_rng(0)
    for w in (logistic.initial, jax.numpy.asarray(0.3 * rng.normal(size=logistic.dim))):
        exact = [top(h) for h in hessians(logistic, w)]
        whole = top(
            np.einsum("i,ijk->jk", np.asarray(logistic.share), np.stack(hessians(logistic, w)))
        )

        found = curvatures(logistic, w)

        np.testing.assert_allclose(found, exact, rtol=0.05)
        assert np.all(found <= np.array(exact) * (1 + 1e-9))  # from below
        assert whole_curvature(logistic, w) == pytest.approx(whole, rel=0.05)
        assert np.all(found <= ceiling(logistic))


def test_the_ceiling_of_least_squares_is_its_curvature(x64):
    problem = make_problem(gaussian(samples=60, dim=5), "linear", 3, dtype="float64")

    np.testing.assert_allclose(
        ceiling(problem), [top(h) for h in hessians(problem, problem.initial)], rtol=1e-9
    )


def test_the_ceiling_of_softmax_is_above_curvatures_anywhere(digits):
    rng = np.random.default_rng(1)
    for scale in (0.0, 0.1, 1.0):
        assert np.all(
            curvatures(digits, scale * rng.normal(size=digits.dim), rounds=20) <= ceiling(digits)
        )


def test_a_network_has_no_ceiling(x64):
    assert np.isinf(
        ceiling(make_problem(load("digits", train_size=60), "mlp", 3, dtype="float64"))
    ).all()


def labelled(samples=12, dim=3):
    """Return points with labels of two classes."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(samples, dim)).astype(np.float32)
    y = rng.integers(0, 2, samples)
    return DataSet("two classes", x, y, x, y, num_classes=2)


PARTS = [np.arange(2), np.arange(2, 12)]  # of unequal length: one is padded


@pytest.mark.parametrize("model", ["logistic", "svm", "softmax"])
def test_the_ceiling_is_met_at_the_origin_where_every_sample_bends_most(model, x64):
    """There a logistic loss bends by 1/4, every hinge is active, and two classes are equally likely."""
    problem = make_problem(labelled(), model, PARTS, dtype="float64")

    found = curvatures(problem, np.zeros(problem.dim), rounds=400)

    np.testing.assert_allclose(ceiling(problem), found, rtol=1e-4)


@pytest.mark.parametrize("model", ["logistic", "svm", "softmax"])
def test_a_penalty_raises_the_ceiling_by_its_weight(model, x64):
    plain, penalised = (
        make_problem(labelled(), model, PARTS, l2=l2, dtype="float64") for l2 in (0.0, 0.3)
    )

    np.testing.assert_allclose(ceiling(penalised), ceiling(plain) + 0.3)


def test_the_ceiling_of_quadratics_is_the_largest_mean_curvature_of_a_nodes_own_samples(x64):
    bends = np.array([[1.0, 4.0], [3.0, 0.5], [9.0, 1.0]], np.float32)
    data = DataSet("bowls", bends, bends, bends, bends, num_classes=0)
    problem = make_problem(
        data, "quadratic", [np.array([0, 1]), np.array([2])], l2=0.25, dtype="float64"
    )

    np.testing.assert_allclose(ceiling(problem), [2.25 + 0.25, 9.25])


def test_models_with_another_head_or_another_network_have_no_ceiling(x64):
    cubed = Head(lambda scores, _: jnp.abs(scores[:, 0]) ** 3, None, "numbers")
    numbers = gaussian(samples=6, dim=3)

    for model in (Model(Dense((3, 1)), cubed), Model(Offset(3), SQUARE)):
        problem = make_problem(numbers, model, 2, dtype="float64")
        np.testing.assert_array_equal(ceiling(problem), [np.inf, np.inf])


def test_a_problem_of_someone_elses_has_no_ceiling():
    guest: Any = SimpleNamespace(count=np.array([3, 4, 5]))

    np.testing.assert_array_equal(ceiling(guest), np.full(3, np.inf))


def test_the_top_eigenvalue_is_that_of_largest_size_whatever_its_sign(x64):
    """-2 a^2 + b^2 / 2 bends by -4 and by 1."""
    saddle = Head(lambda s, _: -2.0 * s[:, 0] ** 2 + 0.5 * s[:, 1] ** 2, None, "numbers")
    zeros = np.zeros((2, 2), np.float32)
    data = DataSet("saddle", zeros, zeros[:, 0], zeros, zeros[:, 0], num_classes=0)
    problem = make_problem(data, Model(Offset(2), saddle), 2, dtype="float64")

    np.testing.assert_allclose(curvatures(problem, np.ones(2)), 4.0, rtol=1e-9)
    assert whole_curvature(problem, np.ones(2)) == pytest.approx(4.0)


def test_products_taken_one_by_one_from_python_are_those_of_one_program(quadratics, monkeypatch):
    """As convolutions are on a CPU."""
    problem = quadratics(nodes=3, dim=4)
    point, rounds = problem.initial, 7
    compiled = curvatures(problem, point, rounds), whole_curvature(problem, point, rounds)
    monkeypatch.setattr(Problem, "called_from_python", True)

    np.testing.assert_allclose(curvatures(problem, point, rounds), compiled[0], rtol=1e-9)
    assert whole_curvature(problem, point, rounds) == pytest.approx(compiled[1])


def test_a_flat_loss_has_no_curvature(x64):
    straight = Head(lambda s, _: s[:, 0] + s[:, 1], None, "numbers")
    zeros = np.zeros((2, 2), np.float32)
    data = DataSet("straight", zeros, zeros[:, 0], zeros, zeros[:, 0], num_classes=0)
    problem = make_problem(data, Model(Offset(2), straight), 2, dtype="float64")

    np.testing.assert_array_equal(curvatures(problem, np.ones(2)), 0)
    assert whole_curvature(problem, np.ones(2)) == 0
