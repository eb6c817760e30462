"""The two models in plain JAX, over folkman's flat vector cut into tensors, plain and hand-tuned.

The softmax kernel is (inputs, outputs) here, as one writes it, and (outputs, inputs) in the flat
vector.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

SHAPES = {
    "softmax": (("w", (784, 10)), ("b", (10,))),
    "cnn": (
        ("c0", (5, 5, 1, 32)),
        ("a0", (32,)),
        ("c1", (5, 5, 32, 32)),
        ("a1", (32,)),
        ("d0", (1568, 256)),
        ("b0", (256,)),
        ("d1", (256, 10)),
        ("b1", (10,)),
    ),
}
BAND = np.asarray(abs(np.arange(32)[:, None] - np.arange(32)) <= 4, np.float32)
SCALE = 0.001 / 9


def from_flat(name, flat):
    """Cut the flat vector into named tensors."""
    tensors, start = {}, 0
    for key, shape in SHAPES[name]:
        size = int(np.prod(shape))
        part, start = flat[start : start + size], start + size
        tensors[key] = jnp.asarray(
            part.reshape(shape[::-1]).T if key == "w" else part.reshape(shape)
        )
    return tensors


def to_flat(name, tensors):
    """Join the named tensors into the flat vector."""
    arrays = {key: np.asarray(tensor) for key, tensor in tensors.items()}
    return np.concatenate(
        [(arrays[key].T if key == "w" else arrays[key]).ravel() for key, _ in SHAPES[name]]
    )


def loss(name, tuned, p, x, y):
    """Return the mean cross-entropy of flattened images."""
    scores = x @ p["w"] + p["b"] if name == "softmax" else _cnn(tuned, p, x)
    return -jnp.take_along_axis(jax.nn.log_softmax(scores), y[:, None], 1).mean()


def _cnn(tuned, p, x):
    pool, norm = (_pool_by_reshape, _norm_by_band) if tuned else (_pool, _norm)
    h = norm(pool(jax.nn.relu(_convolve(x.reshape(-1, 28, 28, 1), p["c0"]) + p["a0"])))
    h = pool(norm(jax.nn.relu(_convolve(h, p["c1"]) + p["a1"])))
    return jax.nn.relu(h.reshape(len(h), -1) @ p["d0"] + p["b0"]) @ p["d1"] + p["b1"]


def _convolve(h, kernel):
    return lax.conv_general_dilated(
        h, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _pool(h):
    return lax.reduce_window(h, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def _pool_by_reshape(h):
    n, height, width, channels = h.shape
    return h.reshape(n, height // 2, 2, width // 2, 2, channels).max((2, 4))


def _norm(h):
    window = ((0, 0), (0, 0), (0, 0), (4, 4))
    total = lax.reduce_window(h * h, 0.0, lax.add, (1, 1, 1, 9), (1, 1, 1, 1), window)
    return h * (1.0 + SCALE * total) ** -0.75


def _norm_by_band(h):
    root = lax.rsqrt(1.0 + SCALE * ((h * h) @ BAND))
    return h * (root * jnp.sqrt(root))
