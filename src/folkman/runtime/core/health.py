"""How a node stands: what its health file says, and whether that is well."""

import math
from typing import TYPE_CHECKING

from folkman.record.cluster import DONE, LEARNING
from folkman.record.json_file import Json
from folkman.runtime.core.settings import Settings
from folkman.runtime.identity import name_of
from folkman.runtime.node import Node

if TYPE_CHECKING:
    from folkman.runtime.core.core import Core

__all__ = ["Watch", "facts"]

SLOTS_MISSED = 20
"""Slots without one being lived after which a node is no longer well."""


class Watch:
    """Notices that nothing happens any more. Times are given."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lived_s = self._linked_s = 0.0
        self._refusal = ""
        self.said = ""  # the last of what is wrong that was logged

    def begin(self, now_s: float) -> None:
        """Count from now on, as learning begins."""
        self._lived_s = self._linked_s = now_s

    def slot_ended(self, now_s: float) -> None:
        """Note that a slot was lived."""
        self._lived_s = now_s

    def refused(self, reason: str, text: str) -> None:
        """Note that somebody was not let in, or did not let us in."""
        self._refusal = f"; the last one refused: {reason}: {text}"

    def wrong(self, core: "Core", now_s: float) -> str:
        """Return what is wrong with a node that learns; empty: nothing."""
        settings = self._settings
        if core.there() or not core.node.neighbours:
            self._linked_s = now_s
        alone_s, still_s = now_s - self._linked_s, now_s - self._lived_s
        if alone_s > settings.alone_s:
            return (
                f"no neighbour is linked for {alone_s:.0f} s; check their addresses, the "
                f"certificates, and the clock of this machine{self._refusal}"
            )
        if isinstance(core.node, Node) and still_s > max(
            settings.alone_s, SLOTS_MISSED * settings.slot_s
        ):
            return f"no slot was lived for {still_s:.0f} s"
        return ""


def facts(core: "Core", now_s: float) -> tuple[Json, bool]:
    """Return what a health file says of the node itself, and whether the node is well.

    Every key is stable.
    """
    node, links = core.node, core.sending.links
    loss = getattr(node, "loss", math.nan)
    wrong = core.watch.wrong(core, now_s) if core.state == LEARNING else ""
    if wrong and not core.watch.said:
        core.hands.log("not well", level="warning", text=wrong)
    core.watch.said = wrong
    reach = getattr(node, "reach", None)
    there = [name_of(j) for j in core.there()]
    found = {
        "node": name_of(node.index),
        "state": core.state,
        "ok": core.state in (LEARNING, DONE) and not wrong,
        "wrong": wrong,
        "steps": node.steps,
        "slot": node.slot,
        "round": node.mailbox.round,
        "loss": loss if math.isfinite(loss) else None,
        "saved_steps": core.saving.steps,
        "incarnation": core.life.number,
        "uptime_s": round(now_s - core.began_s, 3),
        "linked": sorted(there),
        "num_linked": len(there),
        "num_neighbours": len(node.neighbours),
        "unheard": [name_of(j) for j in core.sending.owed.unheard()],
        "refused_by": {name_of(j): why for j, why in core.hearing.refusals.items()},
        "refused": dict(node.mailbox.refused),
        "excluded": sorted(name_of(j) for j in node.excluded),
        "counts": core.hands.counts | getattr(node.mailbox, "counts", {}),
        "reach_share": round(reach.share, 4) if reach is not None else None,
        "goodput_bit_s": {name_of(j): round(v) for j, v in links.goodput_bit_s.items()},
        "latency_s": {name_of(j): round(v, 6) for j, v in links.latency_s.items()},
        "loss_share": {name_of(j): round(v, 4) for j, v in links.loss.items()},
        "goodput_here_bit_s": {
            name_of(j): round(rate) for j, (rate, _) in core.hearing.qualities.items()
        },
        "taken_age_s": {
            name_of(j): round(now_s - at_s, 3) for j, at_s in core.hearing.taken_s.items()
        },
        "insecure": core.verify is None,
    }
    return found, bool(found["ok"])
