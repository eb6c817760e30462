"""The nine-layer CNN of the paper: from a flat vector and images to scores.

Imported by those who train it alone.

[1] Wang et al. Adaptive Federated Learning in Resource Constrained Edge Computing Systems.
    IEEE JSAC 37(6), 2019, and its released code.
[2] Xie et al. Decentralized Federated Learning with Asynchronous Parameter Sharing for Large-scale
    IoT Networks. IEEE IoT Journal, 2024. Section VI-A.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array, lax

from folkman.problem.blocks import block_scores, windows
from folkman.problem.layers import (
    Affine,
    Convolve,
    Flatten,
    Layer,
    MaxPool,
    Relu,
    ResponseNorm,
)
from folkman.problem.models import Layout, Precision
from folkman.problem.normalisation import RADIUS, SCALE, local_response_norm

__all__ = ["CNN"]


@dataclass(frozen=True)
class CNN:
    """The nine-layer network of [1] that [2] trains: d = 430,698 on 28x28x1, 555,178 on 32x32x3.

    conv 5x5x32, ReLU, max-pool, LRN, conv 5x5x32, ReLU, LRN, max-pool, dense 256, ReLU, dense.

    Differs from [2]: it prints neither ReLU, padding, LRN constants nor initialisation; all are
    those of the released code of [1] (kernels normal with sigma 0.1, redrawn beyond two sigma;
    biases 0.1).
    """

    image: tuple[int, int, int]  # height, width, channels
    classes: int
    precision: Precision = (
        "float32"  # of products and what is between; parameters and sums stay float32
    )

    def __post_init__(self) -> None:
        if self.image[0] % 4 or self.image[1] % 4:
            raise ValueError(
                f"the CNN pools twice, so height and width must be multiples of 4; got images of "
                f"{self.image[0]}x{self.image[1]}; pad or crop them"
            )

    @property
    def layout(self) -> Layout:
        """Return the eight tensors of the four weighted layers."""
        height, width, channels = self.image
        flat = (height // 4) * (width // 4) * 32
        return Layout(
            (
                ("conv0/kernel", (5, 5, channels, 32)),
                ("conv0/bias", (32,)),
                ("conv1/kernel", (5, 5, 32, 32)),
                ("conv1/bias", (32,)),
                ("dense0/kernel", (flat, 256)),
                ("dense0/bias", (256,)),
                ("dense1/kernel", (256, self.classes)),
                ("dense1/bias", (self.classes,)),
            )
        )

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Return the layers of `scores`, in order."""
        norm = ResponseNorm(RADIUS, SCALE)
        return (
            *(Convolve("conv0/kernel", "conv0/bias"), Relu(), MaxPool(2), norm),
            *(Convolve("conv1/kernel", "conv1/bias"), Relu(), norm, MaxPool(2)),
            *(Flatten(), Affine("dense0/kernel", "dense0/bias"), Relu()),
            Affine("dense1/kernel", "dense1/bias"),
        )

    def init(self, key: Array) -> Array:
        """Return truncated-normal kernels and biases of 0.1."""
        keys = jax.random.split(key, len(self.layout.shapes))
        tensors = {}
        for (name, shape), tensor_key in zip(self.layout.shapes, keys, strict=True):
            if name.endswith("kernel"):
                tensors[name] = 0.1 * jax.random.truncated_normal(
                    tensor_key, -2.0, 2.0, shape, jnp.float32
                )
            else:
                tensors[name] = jnp.full(shape, 0.1, jnp.float32)
        return self.layout.flatten(tensors)

    @property
    def in_blocks(self) -> bool:
        """Tell whether `folkman.problem.blocks` computes the scores: on a GPU, and in bfloat16."""
        return self.precision == "bfloat16" or jax.default_backend() == "gpu"

    def prepare(self, x: Array) -> Array:
        """Return images in the form that `scores` is fastest at.

        Worth keeping where the images stay.
        """
        return self._typed(windows(x)) if self.in_blocks else x

    def _typed(self, x: Array) -> Array:
        return x.astype("bfloat16") if self.precision == "bfloat16" else x

    def scores(self, w: Array, x: Array) -> Array:
        """Return the class scores of images (n, height, width, channels), prepared or not."""
        t = self.layout.unflatten(w)
        if self.in_blocks:
            return block_scores(t, self._typed(x) if x.ndim == 5 else self.prepare(x))
        h = jax.nn.relu(_convolve(x, t["conv0/kernel"], t["conv0/bias"]))
        h = local_response_norm(_max_pool(h))
        h = jax.nn.relu(_convolve(h, t["conv1/kernel"], t["conv1/bias"]))
        h = _max_pool(local_response_norm(h))  # LRN before the pool here, after it above
        h = h.reshape(h.shape[0], -1)
        h = jax.nn.relu(h @ t["dense0/kernel"] + t["dense0/bias"][None])
        return h @ t["dense1/kernel"] + t["dense1/bias"][None]


def _max_pool(x: Array) -> Array:
    """Return the 2x2, stride 2 maximum of (n, h, w, c), by reshape: faster in XLA than a window."""
    n, height, width, channels = x.shape
    return x.reshape(n, height // 2, 2, width // 2, 2, channels).max(axis=(2, 4))


def _convolve(x: Array, kernel: Array, bias: Array) -> Array:
    """Return the SAME convolution of (n, h, w, c) with (5, 5, c, o), plus bias."""
    out = lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return out + bias[None, None, None]
