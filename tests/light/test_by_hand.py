"""Gradients by hand are JAX's own: all models of dense layers, all losses, both precisions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkman.problem import by_hand, models
from folkman.problem.data import DataSet
from folkman.problem.learnable import Learnable
from folkman.problem.problem import _loss_and_grad, make_problem
from folkman.problem.sampling import next_gradient
from folkman.problem.sequences import conv1d, gru

SAMPLE, CLASSES, COUNT = (3, 2), 4, 12
MODELS = {
    "softmax": models.softmax(SAMPLE, CLASSES),
    "mlp": models.mlp(SAMPLE, CLASSES, hidden=(5,)),
    "deep": models.mlp(SAMPLE, CLASSES, hidden=(5, 4, 3)),
    "logistic": models.logistic(SAMPLE, CLASSES),
    "svm": models.svm(SAMPLE, CLASSES),
    "linear": models.linear(SAMPLE, 0),
    "intercept": models.linear(SAMPLE, 0, intercept=True),
    "quadratic": models.quadratic(SAMPLE, 0),
    "conv1d": conv1d(SAMPLE, CLASSES, channels=(5, 3), width=3, pool=1),
    "pooled": conv1d(SAMPLE, CLASSES, channels=(4,), width=2, pool=2),
    "gru": gru(SAMPLE, CLASSES, hidden=4),
    "characters": gru((3,), CLASSES, hidden=4, embedding=2, vocabulary=5),
}


def samples(name, rng, dtype):
    x = rng.normal(size=(COUNT, *SAMPLE)).astype(dtype)
    if name == "quadratic":
        return x.reshape(COUNT, -1), rng.uniform(0.5, 2, (COUNT, 6)).astype(dtype)
    if name in ("linear", "intercept"):
        return x, rng.normal(size=COUNT).astype(dtype)
    if name == "characters":
        x = rng.integers(0, 5, (COUNT, 3)).astype(np.int32)
    return x, rng.integers(0, CLASSES, COUNT).astype(np.int32)


def far(found, wanted):
    """Return the distance relative to the size of what is wanted."""
    found, wanted = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    return np.linalg.norm(found - wanted) / max(np.linalg.norm(wanted), 1e-3)


def shaken(model, w, x, y, weight, exact):
    """Return how far loss and gradient move, in float64, where each input is rounded anew to 32
    bits, ten times over: what an arithmetic of 32 bits cannot tell apart."""
    rng = np.random.default_rng(0)

    def rounded(values):
        values = np.asarray(values)
        if values.dtype.kind != "f":
            return values
        return values * (1 + 2.0**-23 * rng.uniform(-1, 1, values.shape))

    moved = [by_hand.loss_and_gradient(model, rounded(w), rounded(x), y, weight) for _ in range(4)]
    return tuple(10 * max(far(each[k], exact[k]) for each in moved) for k in (0, 1))


def _wide(x):
    return x.astype(float) if x.dtype.kind == "f" else x


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**16), scale=st.sampled_from([0.1, 1.0, 30.0]))
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("float64", 1e-12)])
def test_the_gradient_is_that_of_jax(name, dtype, tolerance, seed, scale):
    if dtype == "float32":
        scale = min(scale, 3.0)  # beyond, gates are shut, and 32 bits of 1 - h tell nothing
    model, rng = MODELS[name], np.random.default_rng(seed)
    x, y = samples(name, rng, dtype)
    w = (scale * rng.normal(size=model.layout.size)).astype(dtype)
    weight = rng.uniform(0, 1, COUNT).astype(dtype)
    weight[2] = 0

    with jax.enable_x64(dtype == "float64"):
        loss, grad = _loss_and_grad(model, *(jnp.asarray(each) for each in (w, x, y, weight)))
    own_loss, own_grad = by_hand.loss_and_gradient(model, w, x, y, weight)

    assert own_grad.dtype == own_loss.dtype == np.dtype(dtype)
    if dtype == "float64":
        assert far(own_loss, loss) < tolerance
        assert far(own_grad, grad) < tolerance
        return
    # both round, and numbers of 32 bits may nearly cancel
    exact = by_hand.loss_and_gradient(model, w.astype(float), _wide(x), y, weight)
    moved = shaken(model, w, x, y, weight, exact)
    for k, (own, theirs) in enumerate(((own_loss, loss), (own_grad, grad))):
        assert far(own, theirs) < tolerance + moved[k] + 2 * far(theirs, exact[k])


def test_steps_of_time_that_are_equally_large_share_a_pool():
    """A sensor at rest gives the same number again and again."""
    model, rng = conv1d((6, 2), CLASSES, channels=(3, 3), width=1, pool=2), np.random.default_rng(4)
    x = np.broadcast_to(rng.normal(size=(COUNT, 1, 2)), (COUNT, 6, 2))
    y, w = rng.integers(0, CLASSES, COUNT), rng.normal(size=model.layout.size)
    weight = np.full(COUNT, 1 / COUNT)

    with jax.enable_x64(True):
        _, grad = _loss_and_grad(model, *(jnp.asarray(each) for each in (w, x, y, weight)))
    _, own = by_hand.loss_and_gradient(model, w, x, y, weight)

    assert far(own, grad) < 1e-12


@pytest.mark.parametrize("name", MODELS)
def test_a_sample_that_does_not_count_is_silent_even_if_its_loss_is_not_finite(name):
    model, rng = MODELS[name], np.random.default_rng(3)
    x, y = samples(name, rng, "float64")
    w, weight = rng.normal(size=model.layout.size), np.full(COUNT, 1 / COUNT)
    weight[-1] = 0
    loss, grad = by_hand.loss_and_gradient(model, w, x[:-1], y[:-1], weight[:-1])
    x[-1] = 0 if name == "characters" else 1e300

    own = by_hand.loss_and_gradient(model, w, x, y, weight)

    np.testing.assert_allclose(own[0], loss, rtol=1e-12)
    np.testing.assert_allclose(own[1], grad, rtol=1e-12)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    x, y = samples("mlp", rng, "float32")
    return DataSet("own", x, y, x[:0], y[:0], CLASSES)


@pytest.mark.parametrize("sampling", ["replacement", "epochs"])
@pytest.mark.parametrize("batch", [None, 5])
@pytest.mark.parametrize("name", ["softmax", "mlp", "conv1d", "gru"])
def test_a_node_by_hand_is_the_problem_it_stands_for(data, name, batch, sampling):
    options = {"l2": 0.01, "batch": batch, "seed": 7, "sampling": sampling}
    theirs = make_problem(data, MODELS[name], [np.arange(COUNT)], **options)
    ours = by_hand.make_hand_problem(data, MODELS[name], [np.arange(COUNT)], **options)
    key, node = jax.random.key(2), jnp.zeros(1, jnp.int32)

    assert isinstance(ours, Learnable)
    np.testing.assert_array_equal(ours.initial, theirs.initial)
    point = ours.initial
    for step in range(4):
        point = ours.initial + 0.1 * step
        given_ = (point, key, node, jnp.full(1, step, jnp.int32))
        wanted, found = next_gradient(theirs, *given_), next_gradient(ours, *given_)
        assert far(found[0], wanted[0]) < 1e-6
        assert far(found[1], wanted[1]) < 1e-6
    assert far(ours.evaluate(point).train_loss, theirs.evaluate(point).train_loss) < 1e-6


def test_a_model_without_a_gradient_by_hand_is_refused_with_a_remedy():
    with pytest.raises(ValueError, match=r"trains softmax.*got CNN; for others install JAX"):
        by_hand.check_model(models.cnn((8, 8, 1), 10))
