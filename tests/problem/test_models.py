"""Networks and heads against direct re-tellings, and gradients against finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folkman.problem.cnn import CNN
from folkman.problem.models import MODELS, cnn
from folkman.problem.normalisation import local_response_norm
from reference import plain

SHAPE, CLASSES = (4, 4, 1), 3


def samples(name, n=7, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, *SHAPE))
    if name == "quadratic":
        return jnp.asarray(x.reshape(n, -1)), jnp.asarray(rng.uniform(0.5, 2.0, (n, 16)))
    if name == "linear":
        return jnp.asarray(x), jnp.asarray(rng.normal(size=n))
    return jnp.asarray(x), jnp.asarray(rng.integers(0, CLASSES, n))


@pytest.mark.parametrize("name", MODELS)
def test_the_gradient_of_every_model_is_the_slope_of_its_loss(x64, name):
    shape = {"quadratic": (16,), "conv1d": (4, 4), "gru": (4, 4)}.get(name, SHAPE)
    model = MODELS[name](shape, CLASSES)
    x, y = samples(name)
    rng = np.random.default_rng(1)
    w = jnp.asarray(0.2 * rng.normal(size=model.layout.size))
    direction = jnp.asarray(rng.normal(size=model.layout.size))
    direction = direction / jnp.linalg.norm(direction)

    @jax.jit
    @jax.value_and_grad
    def taken(v):
        return model.losses(v, x, y).mean()

    (above, _), (below, _), (_, grad) = (taken(w + h * direction) for h in (1e-6, -1e-6, 0.0))
    slope = (above - below) / 2e-6
    assert float(grad @ direction) == pytest.approx(float(slope), rel=1e-5, abs=1e-8)


def test_softmax_is_its_numpy_retelling(x64):
    model = MODELS["softmax"](SHAPE, CLASSES)
    x, y = samples("softmax")
    w = jnp.asarray(np.random.default_rng(2).normal(size=model.layout.size))

    loss, grad = jax.value_and_grad(lambda v: model.losses(v, x, y).mean())(w)

    expected = plain.softmax_gradient(np.asarray(w), np.asarray(x), np.asarray(y), CLASSES)
    assert float(loss) == pytest.approx(expected[0], rel=1e-12)
    np.testing.assert_allclose(grad, expected[1], rtol=1e-10)


@pytest.mark.parametrize(
    ("name", "loss"),
    [
        ("logistic", lambda m: np.log1p(np.exp(-m))),
        ("svm", lambda m: 0.5 * np.maximum(0, 1 - m) ** 2),
    ],
)
def test_binary_models_judge_by_margin_and_take_labels_by_parity(x64, name, loss):
    model = MODELS[name](SHAPE, CLASSES)
    x, y = samples(name)
    w = np.random.default_rng(3).normal(size=model.layout.size)

    score = np.asarray(x).reshape(len(x), -1) @ w[:-1] + w[-1]
    margin = np.where(np.asarray(y) % 2 == 1, 1, -1) * score

    np.testing.assert_allclose(model.losses(jnp.asarray(w), x, y), loss(margin), rtol=1e-10)
    np.testing.assert_array_equal(model.hits(jnp.asarray(w), x, y), margin > 0)


def test_a_large_score_does_not_overflow():
    model = MODELS["softmax"]((1,), 2)

    losses = model.losses(jnp.asarray([1e4, -1e4, 0.0, 0.0]), jnp.ones((1, 1)), jnp.asarray([1]))

    assert float(losses[0]) == pytest.approx(2e4)


def test_local_response_norm_is_the_direct_loop():
    x = np.random.default_rng(4).normal(size=(2, 3, 3, 32)).astype(np.float32) * 20
    expected = np.empty_like(x)
    for c in range(32):
        window = x[..., max(0, c - 4) : c + 5].astype(np.float64)
        expected[..., c] = x[..., c] / (1 + 0.001 / 9 * (window**2).sum(axis=-1)) ** 0.75

    np.testing.assert_allclose(local_response_norm(jnp.asarray(x)), expected, rtol=2e-6)


@pytest.mark.parametrize(("image", "size"), [((28, 28, 1), 430_698), ((32, 32, 3), 555_178)])
def test_the_cnn_has_the_papers_number_of_parameters(image, size):
    assert cnn(image, 10).layout.size == size


def test_the_cnn_is_a_direct_loop():
    """One 8x8 image through convolutions, pools and normalisations written out as loops,
    float64."""
    network = CNN((8, 8, 1), 10)
    w = network.init(jax.random.key(0))
    x = np.random.default_rng(5).normal(size=(1, 8, 8, 1)).astype(np.float32)
    t = {
        name: np.asarray(tensor, np.float64) for name, tensor in network.layout.unflatten(w).items()
    }

    def convolve(image, kernel, bias):
        height, width, _ = image.shape
        padded = np.pad(image, ((2, 2), (2, 2), (0, 0)))
        out = np.empty((height, width, kernel.shape[-1]))
        for r in range(height):
            for c in range(width):
                out[r, c] = np.tensordot(padded[r : r + 5, c : c + 5], kernel, 3) + bias
        return np.maximum(out, 0)

    def pool(image):
        rows, columns = range(0, image.shape[0], 2), range(0, image.shape[1], 2)
        return np.array(
            [[image[r : r + 2, c : c + 2].max(axis=(0, 1)) for c in columns] for r in rows]
        )

    def normalise(image):
        squares = [
            (image[..., max(0, c - 4) : c + 5] ** 2).sum(axis=-1) for c in range(image.shape[-1])
        ]
        return image / (1 + 0.001 / 9 * np.stack(squares, axis=-1)) ** 0.75

    h = normalise(pool(convolve(x[0].astype(np.float64), t["conv0/kernel"], t["conv0/bias"])))
    h = pool(normalise(convolve(h, t["conv1/kernel"], t["conv1/bias"])))
    h = np.maximum(h.ravel() @ t["dense0/kernel"] + t["dense0/bias"], 0)

    np.testing.assert_allclose(
        network.scores(w, jnp.asarray(x))[0], h @ t["dense1/kernel"] + t["dense1/bias"], rtol=2e-4
    )


def test_the_cnn_starts_as_the_released_code_does():
    network = CNN((28, 28, 1), 10)
    tensors = network.layout.unflatten(network.init(jax.random.key(0)))

    for name, tensor in tensors.items():
        if name.endswith("bias"):
            np.testing.assert_array_equal(tensor, np.float32(0.1))
        else:
            assert np.abs(tensor).max() <= 0.2
    assert float(tensors["dense0/kernel"].std()) == pytest.approx(0.08796, rel=0.01)


def test_the_cnn_refuses_images_it_cannot_pool():
    for height, width in ((30, 30), (28, 30), (30, 28)):
        with pytest.raises(ValueError, match=f"multiples of 4; got images of {height}x{width}"):
            cnn((height, width, 1), 10)
    with pytest.raises(ValueError, match=r"\(height, width, channels\), got \(64,\)"):
        cnn((64,), 10)


def test_a_layout_cuts_and_joins():
    layout = MODELS["mlp"](SHAPE, CLASSES, hidden=(5, 4)).layout
    w = jnp.arange(layout.size, dtype=jnp.float32)

    np.testing.assert_array_equal(layout.flatten(layout.unflatten(w)), w)
    assert layout.size == 16 * 5 + 5 + 5 * 4 + 4 + 4 * 3 + 3


def test_equal_models_are_one_compiled_program():
    assert MODELS["mlp"](SHAPE, CLASSES) == MODELS["mlp"](SHAPE, CLASSES)
    assert hash(cnn((8, 8, 1), 10)) == hash(cnn((8, 8, 1), 10))
