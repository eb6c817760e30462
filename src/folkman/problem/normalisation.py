"""Local response normalisation over channels, with the gradient written out.

    y_c = x_c / u_c^(3/4),   u_c = 1 + s sum_{|c' - c| <= 4} x_c'^2,   s = 0.001 / 9             [1]

`s` is not divided by the window (TensorFlow's convention; PyTorch's alpha is 9 times it). The
window sum is a product with a band matrix: one small GEMM instead of nine shifted adds; the power
is two square roots.

[1] Wang et al. Adaptive Federated Learning in Resource Constrained Edge Computing Systems. IEEE
    JSAC 37(6), 2019, and its released code.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

__all__ = ["RADIUS", "SCALE", "band", "local_response_norm", "power"]

RADIUS = 4
SCALE = 0.001 / 9


def band(channels: int, dtype: jnp.dtype | type) -> Array:
    """Return the (channels, channels) matrix whose product sums the window of each channel."""
    places = np.arange(channels)
    return jnp.asarray(np.abs(places[:, None] - places[None]) <= RADIUS, dtype)


def power(u: Array) -> Array:
    """Return u^(-3/4)."""
    root = lax.rsqrt(u)
    return root * jnp.sqrt(root)


def _window_sum(x: Array) -> Array:
    wide = jnp.promote_types(x.dtype, jnp.float32)
    return jnp.dot(x, band(x.shape[-1], x.dtype), preferred_element_type=wide)


@jax.custom_vjp
def local_response_norm(x: Array) -> Array:
    """Return y over the last axis."""
    return (x * power(1.0 + SCALE * _window_sum(x * x))).astype(x.dtype)


def _forward(x: Array) -> tuple[Array, Array]:
    return local_response_norm(x), x


def _backward(x: Array, dy: Array) -> tuple[Array]:
    """Return the gradient of the loss with respect to the input.

    dL/dx_c = dy_c p_c - (3/2) s x_c sum_{|c' - c| <= 4} dy_c' x_c' p_c' / u_c', with p = u^(-3/4).
    """
    u = 1.0 + SCALE * _window_sum(x * x)
    p = power(u)
    across = _window_sum((dy * x * p / u).astype(x.dtype))
    return ((dy * p - 1.5 * SCALE * x * across).astype(x.dtype),)


local_response_norm.defvjp(_forward, _backward)
