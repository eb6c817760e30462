"""Links as they are measured, instead of the channel.

Goodput and loss decide schedule and bandwidth.

    R_ji        goodput from i to j, bit/s: message bits over the time to its acknowledgement,
                averaged
    Y_i         receivers with R_ji above a threshold [1, eq. (25a)]; the others are tried again now
                and then
    R_i         the worst of them [1, Algorithm 1, line 13]
    B_i / B     Proposition 1 over the R that neighbours report [1, eq. (29)]: the sender paces
                itself to this share

[1] Xie, Xia, Wu, Wang, Huang. Decentralized Federated Learning with Asynchronous Parameter Sharing
    for Large-scale IoT Networks. IEEE IoT Journal 2024. arXiv:2401.07122
"""

from collections.abc import Iterable

import numpy as np

__all__ = ["Links"]

MEMORY = 0.8
"""Weight of the past in the averages of goodput and loss."""
PROBE_EVERY = 10
"""Periods after which a receiver below the threshold is tried again."""


class Links:
    """What a sender knows of its links and of its neighbours' rates."""

    def __init__(self, neighbours: Iterable[int], threshold_bit_s: float = 0.0) -> None:
        self.goodput_bit_s: dict[int, float] = {}
        self.loss = dict.fromkeys(neighbours, 0.0)
        self.latency_s: dict[int, float] = {}
        self.usual_latency_s: float | None = None  # their median, of two the shorter
        self._rates: dict[int, float] = {}  # R_j as neighbours report it
        self._threshold_bit_s = threshold_bit_s
        self._periods = 0

    def note_arrival(self, peer: int, bits: int, after_s: float) -> None:
        """Count a message that was acknowledged `after_s` seconds after it was handed over."""
        found = bits / max(after_s, 1e-6)
        self.goodput_bit_s[peer] = _averaged(self.goodput_bit_s.get(peer), found)
        self.latency_s[peer] = _averaged(self.latency_s.get(peer), after_s)
        known = sorted(self.latency_s.values())
        self.usual_latency_s = known[(len(known) - 1) // 2]
        self.loss[peer] = _averaged(self.loss[peer], 0.0)

    def note_loss(self, peer: int) -> None:
        """Count a message that was not acknowledged in time."""
        self.loss[peer] = _averaged(self.loss[peer], 1.0)

    def qualities(self) -> dict[int, float]:
        """Return goodput in bit/s, less what is lost, of the links measured so far."""
        return {j: rate * (1.0 - self.loss[j]) for j, rate in self.goodput_bit_s.items()}

    def table(self) -> dict[int, tuple[float, float]]:
        """Return goodput in bit/s and share lost of the links measured so far."""
        return {j: (min(rate, 1e15), self.loss[j]) for j, rate in self.goodput_bit_s.items()}

    def note_rate(self, peer: int, rate_bit_s: float) -> None:
        """Take notice of a neighbour's R_j, as it says."""
        self._rates[peer] = rate_bit_s

    def forget(self, peer: int) -> None:
        """Leave a neighbour that is gone out of the shares."""
        self._rates.pop(peer, None)

    def receivers(self, there: Iterable[int]) -> list[int]:
        """Return Y_i for the next period.

        Those who are there and have been good enough, are unknown, or are due for a trial.
        """
        self._periods += 1
        trial = self._periods % PROBE_EVERY == 0
        return [j for j in there if trial or self._quality(j) > self._threshold_bit_s]

    def _quality(self, peer: int) -> float:
        known = self.goodput_bit_s.get(peer)
        return np.inf if known is None else known * (1.0 - self.loss[peer])

    def rate_bit_s(self, receivers: Iterable[int]) -> float:
        """Return R_i: the worst of the receivers that have been measured; infinite if none has."""
        return min(
            (self.goodput_bit_s[j] for j in receivers if j in self.goodput_bit_s),
            default=np.inf,
        )

    def period_s(self, receivers: Iterable[int], bits: int) -> float:
        """Return how long a broadcast may take on this node's share: bits / (B_i/B R_i)."""
        own = self.rate_bit_s(receivers)
        if not np.isfinite(own):
            return 0.0
        low, high = min(self.goodput_bit_s.values()), max(self.goodput_bit_s.values())
        said = [r for r in self._rates.values() if 0 < r < np.inf]
        known = [own, *(min(max(r, low), high) for r in said)]  # no claim is beyond all we measured
        share = (1.0 / own) / sum(1.0 / rate for rate in known)  # [1, eq. (29)]
        return bits / (share * own)


def _averaged(old: float | None, new: float) -> float:
    return new if old is None else MEMORY * old + (1.0 - MEMORY) * new
