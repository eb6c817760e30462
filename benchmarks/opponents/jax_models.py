"""The models in plain JAX, over folkman's flat vector cut into tensors, plain and hand-tuned.

Dense kernels of softmax and mlp are (inputs, outputs) here, as one writes them, and (outputs,
inputs) in the flat vector.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

BAND = np.asarray(abs(np.arange(32)[:, None] - np.arange(32)) <= 4, np.float32)
SCALE = 0.001 / 9


def shapes(form):
    """Return the names and shapes of the tensors, in the order of the flat vector."""
    if form.model != "cnn":
        found = []
        for layer, (fan_in, fan_out) in enumerate(zip(form.widths, form.widths[1:])):
            found += [(f"w{layer}", (fan_in, fan_out)), (f"b{layer}", (fan_out,))]
        return found
    height, width, channels = form.sample
    return [
        ("c0", (5, 5, channels, 32)),
        ("a0", (32,)),
        ("c1", (5, 5, 32, 32)),
        ("a1", (32,)),
        ("d0", ((height // 4) * (width // 4) * 32, 256)),
        ("b0", (256,)),
        ("d1", (256, form.classes)),
        ("b1", (form.classes,)),
    ]


def from_flat(form, flat):
    """Cut the flat vector into named tensors."""
    tensors, start = {}, 0
    for key, shape in shapes(form):
        size = int(np.prod(shape))
        part, start = flat[start : start + size], start + size
        turned = key.startswith("w")
        tensors[key] = jnp.asarray(part.reshape(shape[::-1]).T if turned else part.reshape(shape))
    return tensors


def to_flat(form, tensors):
    """Join the named tensors into the flat vector."""
    arrays = {key: np.asarray(tensor) for key, tensor in tensors.items()}
    return np.concatenate(
        [(arrays[key].T if key.startswith("w") else arrays[key]).ravel() for key, _ in shapes(form)]
    )


def loss(form, tuned, p, x, y):
    """Return the mean cross-entropy of flattened samples."""
    scores = _cnn(form, tuned, p, x) if form.model == "cnn" else _dense(form, p, x)
    return -jnp.take_along_axis(jax.nn.log_softmax(scores), y[:, None], 1).mean()


def _dense(form, p, h):
    for layer in range(len(form.widths) - 1):
        h = (jax.nn.relu(h) if layer else h) @ p[f"w{layer}"] + p[f"b{layer}"]
    return h


def _cnn(form, tuned, p, x):
    pool, norm = (_pool_by_reshape, _norm_by_band) if tuned else (_pool, _norm)
    h = norm(pool(jax.nn.relu(_convolve(x.reshape(-1, *form.sample), p["c0"]) + p["a0"])))
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
