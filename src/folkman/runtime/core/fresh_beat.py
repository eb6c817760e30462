"""Fresh air on measured links: learn on one's own beat, and contend for the band by the index."""

import math
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from folkman.runtime import control
from folkman.runtime.core.fresh import FreshPace, freeze, fresh_node
from folkman.runtime.core.own_beat import Beat
from folkman.runtime.fresh_codec import stamps_in
from folkman.runtime.fresh_index import Band, Offer, best_offer
from folkman.runtime.fresh_node import ForwardNode, FreshNode

if TYPE_CHECKING:
    from folkman.runtime.core.core import Core

__all__ = ["Beliefs", "FreshBeat"]

UNMEASURED_S = 1e-3
"""Of a message while no link has been measured."""
THINK_EVERY_S = 0.02
"""Between two looks for the best message, if nothing has changed."""
MOST_REST_S = 0.32
"""The same where look after look found nothing: each time it is twice as long, up to this."""


class FreshBeat(FreshPace):
    """Send whenever the band is free, nobody's index is larger, and somebody gains by it."""

    def __init__(self, node: FreshNode, longest_s: float) -> None:
        super().__init__()
        self.band = Band(node.index, len(node.mailbox.sequence), longest_s)
        self._beat = Beat()
        self._beliefs = Beliefs(node)
        self._claimed = False  # have we said that the band is ours?
        self._offer: Offer | None = None  # for which a claim is due
        self._think_s = -math.inf  # of the next look; with an offer, when its wait is over
        self._seen: tuple[int, int] | None = None
        self._rest_s = THINK_EVERY_S

    def act(self, core: "Core", now_s: float) -> None:
        """Send if it is time, then begin a slot."""
        core.sending.give_up(now_s)
        if not core.sending.owed.waiting(core.there()):
            self._contend(core, now_s)
        if core.goes_on():
            self._beat.act(core, now_s)
        elif not core.is_in_slot:  # whoever goes on has the last of it
            freeze(core)
            data, sequence = fresh_node(core).carry()
            core.sending.publish(data, sequence, sorted(core.there()), now_s)
            core.finish()

    def next_s(self, core: "Core", now_s: float) -> float:
        """Return when a slot, a look around or the end of somebody's time is due."""
        sends_s = core.sending.owed.next_s()
        if not core.sending.owed.waiting(core.there()):
            sends_s = min(sends_s, max(self._think_s, now_s))
        return min(self._beat.next_s(core), sends_s)

    def heed(self, core: "Core", peer: int, body: control.Body, now_s: float) -> None:
        """Act on what a neighbour says."""
        super().heed(core, peer, body, now_s)
        if isinstance(body, control.Claim):
            self.band.heard(peer, body.value, body.seconds, now_s)
            if self._offer is None:  # the band may be free: look at once
                self._think_s = now_s

    def unlinked(self, peer: int) -> None:
        """Let go of the claim of one that is gone, and of an offer that was for it too."""
        self.band.forget(peer)
        if self._offer is not None and peer in self._offer.receivers:
            self._offer, self._think_s = None, -math.inf  # think again: it may cost less now

    def _contend(self, core: "Core", now_s: float) -> None:
        self._beliefs.learn_from_acknowledgements(core)
        if self._claimed:
            core.hands.tell_all(core.node.neighbours, control.Claim(0.0, 0.0))
            self._claimed = False
        seen = core.node.slot, core.hands.counts["taken"]
        if now_s < self._think_s and (self._offer is not None or seen == self._seen):
            return
        offer, self._offer = self._offer, None
        if offer is not None or seen != self._seen:
            self._rest_s = THINK_EVERY_S
        self._seen, self._think_s = seen, now_s + self._rest_s
        busy_s = self.band.busy_s(now_s) if core.settings.shared_medium else 0.0
        if offer is not None and busy_s > 0:  # somebody was faster: think again
            core.hands.counts["gave_way"] += 1
        if busy_s > 0:
            self._think_s = now_s + min(busy_s, THINK_EVERY_S)
        elif offer is not None and self._is_held(core, offer):
            self._claim(core, offer, now_s)
        elif (found := self._beliefs.best_offer(core, self.progress)) is not None:
            self._consider(core, found, now_s)
        else:
            self._rest_s = min(2 * self._rest_s, MOST_REST_S)

    @staticmethod
    def _is_held(core: "Core", offer: Offer) -> bool:
        """Tell whether what is offered is still here: its origin may have been forgotten since."""
        node = fresh_node(core)
        return not isinstance(node, ForwardNode) or offer.origin in (node.index, *node.letters)

    def _consider(self, core: "Core", offer: Offer, now_s: float) -> None:
        """Wait for others with a larger index, or send at once where nobody else is disturbed."""
        wait_s = self.band.wait_s(offer.value, now_s) if core.settings.shared_medium else 0.0
        if wait_s > 0:
            self._offer, self._think_s = offer, now_s + wait_s
        else:
            self._claim(core, offer, now_s)

    def _claim(self, core: "Core", offer: Offer, now_s: float) -> None:
        node = fresh_node(core)
        if not node.holds(offer.origin):  # it was forgotten while the offer waited
            return
        if core.settings.shared_medium:
            self.band.claimed(offer.value, now_s)
            seconds = self._beliefs.seconds(core, offer)
            claim = control.Claim(min(offer.value, 1e15), min(seconds, 1e15))
            core.hands.tell_all(node.neighbours, claim)
            self._claimed = True
        freeze(core)
        data, sequence = node.carry(origin=offer.origin)
        self._beliefs.sent(sequence, offer, stamps_in(data, len(node.mailbox.sequence)))
        there = core.there()
        core.sending.publish(data, sequence, [j for j in offer.receivers if j in there], now_s)


class Beliefs:
    """What a node knows of the others' stamps, and of its links."""

    def __init__(self, node: FreshNode) -> None:
        self._node = node
        nodes, omega = len(node.mailbox.sequence), node.rules.omega
        self._omega = np.ones((nodes, nodes)) if omega is None else np.asarray(omega, np.float64)
        self._last: tuple[int, Offer, NDArray[np.int64]] | None = None

    def sent(self, sequence: int, offer: Offer, stamps: NDArray[np.int64]) -> None:
        """Note what is on its way."""
        self._last = (sequence, offer, stamps)

    def learn_from_acknowledgements(self, core: "Core") -> None:
        """Believe that those who have acknowledged the last message took it."""
        if self._last is None:
            return
        (sequence, offer, stamps), self._last = self._last, None
        for peer in offer.receivers:
            if core.sending.holds(peer) >= sequence:
                self._node.believe(peer, stamps, offer.origin)

    def best_offer(self, core: "Core", progress: dict[int, int]) -> Offer | None:
        """Return the node's best message now; `progress` is what neighbours say of theirs."""
        node, me = self._node, self._node.index
        rows = node.slots_known()
        rows[me, me] = node.slot
        newest = np.maximum(rows.max(axis=0), 0)
        for peer, steps in progress.items():
            newest[peer] = max(newest[peer], steps)
        ages = newest[None] - rows
        return best_offer(
            me, ages, self._costs_s(core), self._omega, node.message, thrift=node.rules.thrift
        )

    def seconds(self, core: "Core", offer: Offer) -> float:
        """Return how long an offer takes by now: links were measured while it waited."""
        costs_s = self._costs_s(core)
        return float(max(costs_s[peer] for peer in offer.receivers))

    def _costs_s(self, core: "Core") -> NDArray[np.floating]:
        """Return the seconds of a message to each; of a link not measured yet, as of the others."""
        node, sending = self._node, core.sending
        rates = sending.links.qualities()
        bits = 8.0 * (sending.last_bytes or node.mailbox.payload[0].nbytes)
        usual = median(rates.values()) if rates else bits / UNMEASURED_S
        found = np.full(len(node.mailbox.sequence), np.inf)
        for peer in core.there():
            found[peer] = bits / max(rates.get(peer, usual), 1e-3)
        return found
