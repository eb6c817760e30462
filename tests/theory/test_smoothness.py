"""L_1 against exact eigenvalues."""

import jax
import numpy as np
import pytest

from folkman import load, make_problem
from folkman.problem.data import gaussian
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
