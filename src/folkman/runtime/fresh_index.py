"""The index of fresh air as one node works it out alone, and how it contends for the band.

There is no coordinator. A node knows its own stamps, those of others as it last heard them (every
message carries its sender's), and the goodput of its own links. From these it finds its best
message, V_k = max_m sum of the first m receivers' gains / seconds of the m-th
(`folkman.radio.fresh`, told here for one sender), and contends:

    wait       V of the largest index waits shortest: WINDOW_S (1 - V / largest heard of late), and
               a little more for a larger number, so that equal indices do not meet
    claim      whoever's wait is over first says so, with the time that its message will take
    others     keep quiet for that time, or until the claimant says that it is done; never longer
               than the period's limit, so a node that falls silent holds nobody up

Claims are words, and nobody can check them. So each neighbour has a budget of time for which it can
keep others quiet: at most the period's limit at once, filled again by its fair share of the time,
1 / (I - 1) and at most one half. A claim beyond it is not heeded. What a claimant gives back by
saying that it is done, it has again.

Two claims may cross. Then both messages are delivered: the real network is several links, not one
band, and a receiver adopts one sum after the other. The index then only loses a little order.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Band", "Offer", "best_offer"]

WINDOW_S = 0.02
"""The longest wait of a node whose index is far below the largest."""
HALF_LIFE_S = 1.0
"""Of the memory of the largest index."""


class Offer(NamedTuple):
    """The best that a node could send now."""

    value: float  # V_k
    origin: int
    receivers: tuple[int, ...]
    seconds: float


def best_offer(
    me: int,
    ages: NDArray[np.int64],
    cost_s: NDArray[np.floating],
    omega: NDArray[np.floating],
    message: str,
    *,
    thrift: float = 1.0,
) -> Offer | None:
    """Return a node's best message; None if nobody would gain by one.

    `ages` (node, origin) are what all hold as the node believes, its own newest at `[me, me]`.
    `cost_s` (rx,) are the seconds of a message to each, infinite for who is not there.
    """
    nodes = len(ages)
    gain = _gains(me, ages.astype(np.float64), omega, message)  # (rx, origin)
    order = np.argsort(cost_s, kind="stable")
    order = order[np.isfinite(cost_s[order]) & (order != me)]
    if not len(order):
        return None
    value = np.cumsum(gain[order], axis=0) / cost_s[order][:, None] ** thrift
    last, origin = np.unravel_index(int(np.argmax(value)), value.shape)
    if not value[last, origin] > 0:
        return None
    receivers = tuple(sorted(order[: last + 1].tolist()))
    whose = int(origin) if gain.shape[1] == nodes else me
    return Offer(float(value[last, origin]), whose, receivers, float(cost_s[order[last]]))


def _gains(me: int, ages: NDArray, omega: NDArray, message: str) -> NDArray:
    """Return what each receiver gains, (rx, origin); of a sum (rx, 1)."""
    apart = np.where(np.eye(len(ages), dtype=bool), 0.0, omega)
    squares = apart * (ages**2 - ages[me] ** 2)
    if message == "forward":
        return np.maximum(squares, 0.0)
    adopts = (apart * (ages - ages[me])).sum(axis=1) > 0
    return np.where(adopts, np.maximum(squares.sum(axis=1), 0.0), 0.0)[:, None]


class Band:
    """Who has the band, as far as a node has heard. Times are given, not taken."""

    def __init__(self, me: int, num_nodes: int, longest_s: float) -> None:
        self._me, self._nodes, self._longest_s = me, num_nodes, longest_s
        self._claims: dict[int, float] = {}  # neighbour -> when its claim ends
        self._budget: dict[int, tuple[float, float]] = {}  # neighbour -> seconds left, as of when
        self._share = min(0.5, 1.0 / max(num_nodes - 1, 1))
        self._largest, self._noted_s = 0.0, 0.0

    def heard(self, peer: int, value: float, seconds: float, now_s: float) -> None:
        """Take notice of a claim, or of its end."""
        unused_s = max(self._claims.pop(peer, now_s) - now_s, 0.0)
        left_s, noted_s = self._budget.get(peer, (self._longest_s, now_s))
        left_s = min(left_s + unused_s + self._share * (now_s - noted_s), self._longest_s)
        heeded_s = min(seconds, left_s)
        self._budget[peer] = left_s - heeded_s, now_s
        if seconds > 0:
            self._claims[peer] = now_s + heeded_s
            self._note(value, now_s)

    def forget(self, peer: int) -> None:
        """Let go of the claim of one that is gone; what it has used up stays used."""
        self._claims.pop(peer, None)

    def busy_s(self, now_s: float) -> float:
        """Return how long the band is still taken."""
        return max([0.0, *(end_s - now_s for end_s in list(self._claims.values()))])

    def wait_s(self, value: float, now_s: float) -> float:
        """Return how long to wait for others with a larger index, before a claim."""
        largest = max(self._largest * 0.5 ** ((now_s - self._noted_s) / HALF_LIFE_S), value)
        tie = 0.1 * self._me / self._nodes
        return WINDOW_S * (1.0 - value / largest + tie) if largest > 0 else 0.0

    def claimed(self, value: float, now_s: float) -> None:
        """Note one's own claim."""
        self._note(value, now_s)

    def _note(self, value: float, now_s: float) -> None:
        faded = self._largest * 0.5 ** (max(now_s - self._noted_s, 0.0) / HALF_LIFE_S)
        self._largest, self._noted_s = max(faded, value), now_s
