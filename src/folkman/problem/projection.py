"""The mapping [.]+ of the update: what keeps each node's parameters in its constraint set.

    [w]+ = argmin_y ||y - w||_2  subject to  r(y) <= K                                 [1, eq. (11)]

A projection is a pure function (w, step) -> w of one flat vector; `step` matters only to the two
regularised forms, which are proximal steps and not projections.

[1] Xie et al. Decentralized Federated Learning with Asynchronous Parameter Sharing for Large-scale
    IoT Networks. IEEE IoT Journal, 2024.
[2] Duchi et al. Efficient Projections onto the l1-Ball for Learning in High Dimensions. ICML 2008.
[3] Beck, Teboulle. A Fast Iterative Shrinkage-Thresholding Algorithm. SIAM J. Imaging Sci.
    2(1), 2009.
[4] Loshchilov, Hutter. Decoupled Weight Decay Regularization. ICLR 2019.
"""

from collections.abc import Callable
from typing import TypeAlias

from folkman.arrays import Array, Float, jnp

__all__ = ["PROJECTIONS", "Projection", "decay", "l1_ball", "l2_ball", "none", "soft_threshold"]

Projection: TypeAlias = Callable[[Float[Array, " d"], Float[Array, ""]], Float[Array, " d"]]


def _positive(name: str, value: float) -> float:
    if not value > 0:
        raise ValueError(
            f"{name} must be positive, got {value}; use the projection 'none' to switch it off"
        )
    return float(value)


def none() -> Projection:
    """Build the identity: no constraint (the default, as the paper leaves K_i open)."""
    return _identity


def _identity(w: Float[Array, " d"], step: Float[Array, ""]) -> Float[Array, " d"]:
    del step
    return w


def l2_ball(
    radius: float,  # largest ||w||_2
) -> Projection:
    """Build the projection on ||w||_2 <= radius; r(w) = ||w||^2/2 <= K is radius = sqrt(2K)."""
    radius = _positive("radius", radius)

    def project(w: Float[Array, " d"], step: Float[Array, ""]) -> Float[Array, " d"]:
        del step
        norm = jnp.linalg.norm(w)
        return w * jnp.where(norm > radius, radius / jnp.maximum(norm, radius), 1.0)

    return project


def l1_ball(
    radius: float,  # largest ||w||_1
) -> Projection:
    """Build the exact projection on ||w||_1 <= radius, by sorting [2, Fig. 1]."""
    radius = _positive("radius", radius)

    def project(w: Float[Array, " d"], step: Float[Array, ""]) -> Float[Array, " d"]:
        del step
        magnitude = jnp.abs(w)
        descending = jnp.sort(magnitude)[::-1]
        excess = jnp.cumsum(descending) - radius
        count = jnp.arange(1, w.shape[0] + 1)
        # rho: the largest count with a positive remainder; theta: the shift that reaches the sphere
        rho = jnp.max(jnp.where(descending * count > excess, count, 1))
        theta = excess[rho - 1] / rho
        shrunk = jnp.sign(w) * jnp.maximum(magnitude - theta, 0.0)
        return jnp.where(jnp.sum(magnitude) > radius, shrunk, w)

    return project


def soft_threshold(
    penalty: float,  # weight of ||w||_1
) -> Projection:
    """Build the proximal step of penalty * ||w||_1.

    It shrinks every entry by step * penalty [3, eq. (1.5)].
    """
    penalty = _positive("penalty", penalty)

    def project(w: Float[Array, " d"], step: Float[Array, ""]) -> Float[Array, " d"]:
        return jnp.sign(w) * jnp.maximum(jnp.abs(w) - step * penalty, 0.0)

    return project


def decay(
    rate: float,  # of the decay, times the step in each update
) -> Projection:
    """Build decoupled weight decay, w <- (1 - step * rate) w [4].

    On w_i, which is not decay on v_i.
    """
    rate = _positive("rate", rate)

    def project(w: Float[Array, " d"], step: Float[Array, ""]) -> Float[Array, " d"]:
        return (1.0 - step * rate) * w

    return project


PROJECTIONS: dict[str, Callable[..., Projection]] = {
    "none": none,
    "l2_ball": l2_ball,
    "l1_ball": l1_ball,
    "soft_threshold": soft_threshold,
    "decay": decay,
}
"""Builders by name."""
