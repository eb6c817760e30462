"""Momentum of the network, which a node reads off its own aggregate: no bit more on the air.

    M_i      <- M_i + k ( v_i(t) - v_i(t-1) - M_i )      the network's pace, as the node sees it
    gbar_i   <- gbar_i + k ( g_i - gbar_i )              the node's own mean gradient
    w_i(t+1) =  w_i(t) - eta c_i ( g_i - theta gbar_i ) + beta M_i

with g_i = grad F_i(v_i(t)), theta = 1/2, k = 1 / (1 + LONG abar_i), and abar_i the mean age of the
copies, itself a running mean. beta is the option `network_momentum`; 0 is Algorithm 1 as it is.

Momentum at each node by itself (`momentum`) adds up the node's own gradients, also those that
others cancel: where data differ it drives the nodes apart. v_i holds the gradients of all. Its
movement is the direction in which the network goes, and what cancels is not in it.

    rest     At rest M_i = 0 and gbar_i = g_i. The network's model rests where sum_i alpha_i g_i is
             0, as without: there is no more bias. Each w_i then drifts by -(1 - theta) eta c_i g_i
             in a slot. So copies of unlike ages displace v_i half as far as without.
    slow     Where all moves slowly, M = -eta (1 - theta) g + beta M for the mean gradient g: the
             network steps as if the step were (1 - theta) / (1 - beta) times as long. beta = 1/2
             leaves the step as it is, 7/8 makes it four times as long.
    fast     A swing that is faster than 1/k slots is in neither mean. It meets the step eta itself,
             which is what old copies limit.

abar_i is a running mean since k must not go with what arrives: where a message that moves v_i far
also made k larger, M_i would be too large.

Near to it: [1] lets clients step along (1 - beta) g_i + beta Delta, where the server sends the last
global movement Delta. Here nobody sends it, and a node's fast movements are not damped.

[1] J. Xu, S. Wang, L. Wang, A. C.-C. Yao. FedCM: Federated Learning with Client-level Momentum.
    2021. arXiv:2106.10874
"""

from typing import NamedTuple

from folkman.algorithm.pieces.own_part import LONG
from folkman.arrays import Array, Float, Int, jnp
from folkman.checks import require

__all__ = ["NetworkPace", "check_network_momentum", "first_network_pace", "seen", "stepped"]

THETA = 0.5
"""How much of its own mean gradient a node leaves to the network's pace."""

LOOK_BACK = 64
"""Updates over which the mean age of the copies is taken."""


class NetworkPace(NamedTuple):
    """What a node knows of where the network goes."""

    point: Float[Array, " d"]  # v_i of the update before
    pace: Float[Array, " d"]  # M_i, for an update
    slope: Float[Array, " d"]  # gbar_i
    age: Float[Array, ""]  # the mean age of the copies


def check_network_momentum(beta: float) -> None:
    """Refuse a momentum that there is not."""
    require(
        0 <= beta < 1,
        f"network_momentum must be at least 0 and below 1, got {beta}; 0.875 is a good first "
        "choice, 0 is none",
    )


def first_network_pace(params: Float[Array, " d"]) -> NetworkPace:
    """Return what is known before the first update: nothing moves."""
    none = jnp.zeros_like(params)
    return NetworkPace(params, none, none, jnp.zeros((), params.dtype))


def seen(
    memory: NetworkPace,
    point: Float[Array, " d"],
    grad: Float[Array, " d"],
    age: Int[Array, ""],
    updates: Int[Array, ""],
) -> NetworkPace:
    """Return what is known after a gradient at `point`; `updates` were before it."""
    look_back = jnp.minimum(updates + 1, LOOK_BACK).astype(grad.dtype)
    mean_age = memory.age + (age.astype(grad.dtype) - memory.age) / look_back
    part = 1.0 / (1.0 + LONG * mean_age)
    moved = jnp.where(updates > 0, point - memory.point, 0.0)
    return NetworkPace(
        point,
        memory.pace + part * (moved - memory.pace),
        memory.slope + part * (grad - memory.slope),
        mean_age,
    )


def stepped(
    params: Float[Array, " d"],
    step: Array,
    grad: Float[Array, " d"],
    network: NetworkPace | None,
    beta: float,
) -> Float[Array, " d"]:
    """Return w_i(t+1), the step being eta c_i; without a pace by the gradient alone."""
    if network is None:
        return params - step * grad
    return params - step * (grad - THETA * network.slope) + beta * network.pace
