"""Real data, known answers: plain descent on MNIST, and scikit-learn's optimum on the digits."""

from functools import partial

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from folkman import Recording, async_sharing, fedavg, ideal, load, make_problem, simulate
from folkman.problem.data import shorten
from reference import plain


@pytest.fixture(scope="module")
def mnist(mnist_cache):
    return load("mnist", folder=mnist_cache / "folkman" / "data")


@pytest.mark.slow
def test_on_mnist_algorithm_1_without_delay_is_plain_descent_on_the_pooled_data(mnist):
    """Softmax regression, 6,000 images over 5 nodes, 100 gradients, float32: the NumPy trajectory
    to 1e-4."""
    step, every, last = 0.1, 20, 100
    mnist = shorten(mnist, 6_000, 2_000)
    problem = make_problem(mnist, "softmax", 5)
    gradient = partial(plain.softmax_gradient, x=mnist.x_train.astype(np.float64), y=mnist.y_train)
    w, losses = np.zeros(problem.dim), []
    for t in range(last + 1):
        loss, slope = gradient(w)
        if t % every == 0:
            losses.append(loss)
        w = w - step * slope if t < last else w

    run = simulate(problem, ideal(), async_sharing(step), slots=last, recording=Recording(every))

    np.testing.assert_allclose(run.column("train_loss"), losses, rtol=1e-4)
    np.testing.assert_allclose(run.model, w, rtol=1e-4, atol=1e-4 * np.abs(w).max())
    assert run.last("test_accuracy") > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [async_sharing(0.5), fedavg(0.5)], ids=lambda a: a.name)
def test_on_the_digits_learning_ends_at_scikit_learns_optimum(algorithm):
    """Same loss and penalty: mean cross-entropy + l2/2 ||kernel||^2 is LogisticRegression with
    C = 1/(l2 n)."""
    samples, l2 = load("digits"), 0.01
    x = samples.x_train.reshape(len(samples.x_train), -1).astype(np.float64)
    fitted = LogisticRegression(C=1 / (l2 * len(x)), tol=1e-10, max_iter=10_000).fit(
        x, samples.y_train
    )
    optimum = np.concatenate([fitted.coef_.ravel(), fitted.intercept_])
    best, slope = plain.softmax_gradient(optimum, samples.x_train, samples.y_train, l2=l2)
    assert np.abs(slope).max() < 1e-5  # it is an optimum of this very function

    problem = make_problem(samples, "softmax", 5, l2=l2)
    run = simulate(problem, ideal(), algorithm, slots=3000, recording=Recording(3000))

    assert run.last("train_loss") == pytest.approx(best, abs=1e-3)
    assert run.last("train_loss") > best - 1e-5
