"""The own part of Algorithm 1's aggregate, set back by the node's mean pace.

    v_i = sum_{j != i} alpha_j w_j(tau_ij) + alpha_i ( w_i(t) - abar_i m_i )
    m_i(t+1) = m_i(t) + k ( w_i(t+1) - w_i(t) - m_i(t) ),      k = 1 / (1 + LONG abar_i)

abar_i is the mean age of the copies, m_i a running mean of the own movement in a slot. Equation (9)
of [1] is this with m_i = 0. In other words: to a coherent aggregate, all parts of which are abar_i
slots old, comes the share alpha_i of what the node has done since beyond its mean pace:

    v_i = [ sum_{j != i} alpha_j w_j(tau_ij) + alpha_i w_i(t - abar_i) ]
          + alpha_i ( w_i(t) - w_i(t - abar_i) - abar_i m_i )

At rest every node moves evenly, by - eta c_i grad F_i, also where data differ and grad F_i is not
0. The last bracket is then 0, and with it the bias that equation (9) has on uneven data. A swing of
the network is no even movement. The node's own share of it, which is alpha_i, enters at once and
not abar_i slots late: this damps it, as it does in equation (9). So the rule has no bias, as
`aligned` has none, and bears longer steps than that one.

One vector m_i and the parameters of the slot before are kept: no past, and no bit more on the air.
A node that was away takes what it has done since for the movement of one slot.

[1] Xie et al. Decentralized Federated Learning with Asynchronous Parameter Sharing for Large-scale
    IoT Networks. IEEE IoT Journal, 2024.
"""

from typing import NamedTuple

from folkman.arrays import Array, Float, Int, jnp

__all__ = ["Pace", "even_progress", "first_pace", "set_back", "with_slot"]

LONG = 4.0
"""How many mean ages of the copies the mean pace looks back."""


class Pace(NamedTuple):
    """How a node moves in the mean."""

    before: Float[Array, " d"]  # its parameters in the slot before
    pace: Float[Array, " d"]  # m_i, for a slot


def first_pace(params: Float[Array, " d"]) -> Pace:
    """Return the pace before the first slot: none."""
    return Pace(params, jnp.zeros_like(params))


def with_slot(memory: Pace, params: Float[Array, " d"], age: Int[Array, ""]) -> Pace:
    """Return the pace in the coming slot, in which the copies have the mean age `age`."""
    part = 1.0 / (1.0 + LONG * age.astype(params.dtype))
    return Pace(params, memory.pace + part * (params - memory.before - memory.pace))


def even_progress(memory: Pace, age: Int[Array, ""]) -> Float[Array, " d"]:
    """Return abar_i m_i, what the node makes in so many slots in the mean."""
    return age.astype(memory.pace.dtype) * memory.pace


def set_back(memory: Pace, params: Float[Array, " d"], age: Int[Array, ""]) -> Float[Array, " d"]:
    """Return w_i(t) - abar_i m_i."""
    return params - even_progress(memory, age)
