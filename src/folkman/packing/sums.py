"""Sums on the air: how contributions are rounded so that sums stay exact, and what sums cost.

A node that sends its aggregate sends a sum of contributions, one of each node, of which most came
from others. Rounding the *sum* at every hop would add up without end. So a contribution is rounded
once, at its origin, onto a grid that all nodes share, and sums of whole numbers are exact however
often they are sent. With b bits, the step c = L / 2^(b-1) of `fixed`, I nodes, shares alpha_j that
sum to 1 and w(0), the first model, which all nodes know,

    q_j = round( I alpha_j (w_j - w(0)) / c )
    sum_j alpha_j w_j  =  w(0) + (c / I) sum_j q_j   up to c / 2, at most

Numbers are kept modulo 2^B, B = b + ceil(log2 I), and read as signed ones. So a single q_j may be
as large as it likes, which it does where data differ: each w_j then drifts without end, and only
their sum stays. The sum is right while |sum_j alpha_j w_j - w(0)| < L in every entry; what exceeds
L comes out on the other side of the range, here as on the air (`wrapped`). B bits an entry are the
price. With equal shares q_j is the copy of b bits that node j would send. The stamps cost 32 bits
each.

The packings float16 and bfloat16 of a network stand for `fixed` of 16 bits here: their steps depend
on the number, and sums of such numbers are on no grid. Sums in 32 bits (`float32`) or as computed
(`none`) round at every hop, some 1e-7 each (benchmarks/fresh_air_drift.py). The other packings
scale each message by itself and are refused.
"""

import numpy as np
from numpy.typing import NDArray

from folkman.arrays import Array, Float, jnp
from folkman.checks import require
from folkman.packing.packing import CASTS, Packing, fixed, place_bits, step_of

__all__ = [
    "STAMP_BITS",
    "contributions",
    "forward_bits",
    "grid_numbers",
    "on_grid",
    "partial_sum_bits",
    "range_of",
    "settled_sums",
    "signed",
    "sum_bits",
    "wrapped",
]

STAMP_BITS = 32
"""Of the stamp of one contribution: the number of the slot, as the wire has it."""


def settled_sums(
    packing: Packing, name: str, instead: str = "message = 'forward' or 'copy'"
) -> Packing:
    """Return the packing of sums on a network with this packing, or refuse it."""
    if packing.name in ("float16", "bfloat16"):
        return fixed(16)._replace(feedback=packing.feedback)
    require(
        packing.exact or packing.name in ("float32", "fixed"),
        f"a sum of {name} needs numbers on one grid, and '{packing.name}' scales each message by "
        f"itself; use the compression 'fixed', 'float32' or 'none', or {instead}",
    )
    return packing


def contributions(
    packing: Packing,
    messages: Float[Array, "node d"],
    initial: Float[Array, " d"],
    share: Float[Array, " node"],
) -> Float[Array, "node d"]:
    """Return w_j as it stands in every sum that holds it: rounded at its origin."""
    if packing.name in CASTS:
        most = CASTS[packing.name][1]
        return jnp.clip(messages, -most, most).astype(packing.name).astype(messages.dtype)
    if packing.exact:
        return messages
    factor = (share * len(share) / step_of(packing))[:, None]  # I alpha_j / c
    return initial[None] + jnp.round((messages - initial[None]) * factor) / factor


def wrapped(
    packing: Packing,
    mixed: Float[Array, "node d"],
    own: Float[Array, "node d"],
    initial: Float[Array, " d"],
    num_nodes: int,
) -> Float[Array, "node d"]:
    """Return the sums of the others' contributions as nodes read them off sums of B bits.

    `own` are the nodes' own parts, alpha_i w_i. Sums within the range come back as they are.
    """
    if not on_grid(packing):
        return mixed
    whole = range_of(packing, num_nodes)
    return mixed - whole * jnp.round((mixed + own - initial[None]) / whole)


def range_of(packing: Packing, num_nodes: int) -> float:
    """Return 2^B steps of c / I: from the least to the largest number that a sum can be."""
    return 2.0 ** (place_bits(num_nodes) + (packing.bits or 0)) * step_of(packing) / num_nodes


def on_grid(packing: Packing) -> bool:
    """Tell whether contributions are whole numbers of steps."""
    return packing.name == "fixed"


def grid_numbers(
    packing: Packing, message: NDArray, initial: NDArray, factor: float
) -> NDArray[np.int64]:
    """Return q_j, the contribution of one node; `factor` is I alpha_j."""
    return np.round((message - initial) * (factor / step_of(packing))).astype(np.int64)


def signed(numbers: NDArray[np.int64], bits: int) -> NDArray[np.int64]:
    """Return numbers as they are read from their lowest bits."""
    half = 1 << (bits - 1)
    return ((numbers + half) & ((1 << bits) - 1)) - half


def sum_bits(packing: Packing, dim: int, num_nodes: int, width: int = 32) -> int:
    """Return the bits of a sum of `num_nodes` contributions of d entries, stamps included."""
    if packing.exact:
        entry = packing.bits or width
    elif packing.name in CASTS:
        entry = CASTS[packing.name][0]
    else:
        entry = (packing.bits or 0) + place_bits(num_nodes)
    return dim * entry + STAMP_BITS * num_nodes


def partial_sum_bits(packing: Packing, dim: int, num_nodes: int, width: int = 32) -> int:
    """Return the bits of a sum of some contributions, with one bit a node for whose they are."""
    return sum_bits(packing, dim, num_nodes, width) - (STAMP_BITS - 1) * num_nodes


def forward_bits(message_bits: int, num_nodes: int) -> int:
    """Return the bits of a copy that is passed on: with its stamp, and whose it is."""
    return message_bits + STAMP_BITS + place_bits(num_nodes)
