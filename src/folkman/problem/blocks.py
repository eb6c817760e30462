"""The CNN in blocks of 2x2 outputs: the same function, in the shapes of a GPU's matrix units.

A 2x2 max-pool takes one number of four neighbouring outputs, so both convolutions are computed four
outputs at a time:

    conv0   a window of 6x6 inputs times a (36 c, 4 x 32) matrix, the 5x5 kernel in four places and
            zeros elsewhere. The windows of a fixed input are laid out once, with a 1 for the bias;
            pooling is a maximum of four columns.
    conv1   the 4 x 32 channels of a block are one position of a grid half as fine, on which 5x5 is
            3x3: 128 channels in, 128 out, instead of 32 and 32.

That is 1.44 times the arithmetic, in products several times as fast (`docs/performance.md`). In
bfloat16 on a GPU everything between the products runs fused (`folkman.problem.fused`).
"""

import jax
import jax.numpy as jnp
from jax import Array, lax

from folkman.problem import fused
from folkman.problem.normalisation import local_response_norm

__all__ = ["block_scores", "windows"]

CHANNELS = 32  # of both convolutions
QUARTERS = ((0, 0), (0, 1), (1, 0), (1, 1))  # (row, column) of the four outputs of a block


def windows(images: Array) -> Array:
    """Return the 6x6 inputs of each pooled position, and a 1.

    (n, h, w, c) -> (n, h/4, w/4, 4, width).

    Positions are grouped as the blocks of conv1. The width is the next power of two above 36 c,
    padded with zeros.
    """
    n, height, width, channels = images.shape
    padded = jnp.pad(images, ((0, 0), (2, 2), (2, 2), (0, 0)))
    taps = [
        padded[:, a : a + height - 1 : 2, b : b + width - 1 : 2] for a in range(6) for b in range(6)
    ]
    taps.append(jnp.ones((n, height // 2, width // 2, 1), images.dtype))
    size = 36 * channels + 1
    room = 1 << (size - 1).bit_length()
    rows = jnp.pad(jnp.concatenate(taps, axis=-1), ((0, 0),) * 3 + ((0, room - size),))
    grid = rows.reshape(n, height // 4, 2, width // 4, 2, room)
    return grid.transpose(0, 1, 3, 2, 4, 5).reshape(n, height // 4, width // 4, 4, room)


def block_scores(tensors: dict[str, Array], x: Array) -> Array:
    """Return the class scores (n, classes) of samples as `windows` lays them out.

    Computes in the type of `x`.
    """
    t = {name: tensor.astype(x.dtype) for name, tensor in tensors.items()}
    n, height, width = x.shape[:3]
    stages = fused if fused.fits(x) else _Plain
    h = stages.first(
        x.reshape(-1, x.shape[-1]), _first_kernel(t["conv0/kernel"], t["conv0/bias"], x.shape[-1])
    )
    h = h.reshape(n, height, width, 4 * CHANNELS)
    h = lax.conv_general_dilated(
        h,
        _second_kernel(t["conv1/kernel"]),
        (1, 1),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    h = stages.second(h.reshape(-1, 4 * CHANNELS), t["conv1/bias"]).reshape(n, -1)
    h = jax.nn.relu(h @ t["dense0/kernel"] + t["dense0/bias"][None])
    return (h @ t["dense1/kernel"] + t["dense1/bias"][None]).astype(tensors["dense1/bias"].dtype)


def _first_kernel(kernel: Array, bias: Array, room: int) -> Array:
    """Return the matrices from a window to the four outputs of a block, (4, width, 32).

    The bias stands in row 36 c.
    """
    placed = [
        jnp.pad(kernel, ((a, 1 - a), (b, 1 - b), (0, 0), (0, 0))).reshape(-1, CHANNELS)
        for a, b in QUARTERS
    ]
    with_bias = [jnp.concatenate([matrix, bias[None]]) for matrix in placed]
    return jnp.stack([jnp.pad(matrix, ((0, room - len(matrix)), (0, 0))) for matrix in with_bias])


def _second_kernel(kernel: Array) -> Array:
    """Return the 5x5x32x32 kernel as 3x3x128x128 on blocks."""
    places = []
    for a, b in QUARTERS:
        taps = jnp.pad(
            kernel, ((a, 1 - a), (b, 1 - b), (0, 0), (0, 0))
        )  # offsets -2 .. 3: three blocks of two
        blocks = taps.reshape(3, 2, 3, 2, CHANNELS, CHANNELS).transpose(0, 2, 1, 3, 4, 5)
        places.append(blocks.reshape(3, 3, 4 * CHANNELS, CHANNELS))
    return jnp.concatenate(places, axis=-1)


class _Plain:
    """The two stages around conv1 as XLA compiles them, any type, any device.

    At least float32 after the products.
    """

    @staticmethod
    def first(rows: Array, kernel: Array) -> Array:
        """Return conv0, bias, ReLU, max-pool and LRN, (row, 32).

        Of (row, width) and (4, width, 32).
        """
        matrix = kernel.transpose(1, 0, 2).reshape(rows.shape[1], -1)
        outputs = jnp.dot(rows, matrix, preferred_element_type=_wide(rows))
        return local_response_norm(jax.nn.relu(_largest(outputs))).astype(rows.dtype)

    @staticmethod
    def second(rows: Array, bias: Array) -> Array:
        """Return bias, ReLU, LRN and max-pool: (row, 4 x 32) -> (row, 32)."""
        outputs = (
            rows.reshape(-1, 4, CHANNELS).astype(_wide(rows)) + bias.astype(_wide(rows))[None, None]
        )
        normal = local_response_norm(jax.nn.relu(outputs))
        return _largest(normal.reshape(-1, 4 * CHANNELS)).astype(rows.dtype)


def _wide(rows: Array) -> jnp.dtype:
    return jnp.promote_types(rows.dtype, jnp.float32)


def _largest(rows: Array) -> Array:
    """Return the maximum of the four outputs of each block: (row, 4 x 32) -> (row, 32)."""
    four = [rows[:, q * CHANNELS : (q + 1) * CHANNELS] for q in range(4)]
    return jnp.maximum(jnp.maximum(four[0], four[1]), jnp.maximum(four[2], four[3]))
