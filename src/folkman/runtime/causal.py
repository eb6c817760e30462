"""The journals of real nodes in causal order: a timeline that a simulator can repeat.

Nodes have no common slots, so each slot that a node lived gets a number of its own here, as small
as possible with

    after the slot before it, and not before the number it had itself under an emulated channel;
    after the slots that formed the messages it saw.

For a method whose messages do not carry time such a timeline loses nothing: who saw what of whom is
all there is.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkman.radio.trace import PeerTimeline, StarTimeline
from folkman.runtime.codec import SERVER
from folkman.runtime.journal import ANSWER, SEND, START, WAKE, Log

__all__ = ["CausalTimeline", "around_server", "between_peers"]


class CausalTimeline(NamedTuple):
    """Journals in causal order: a timeline, and who was awake when, (slot, node) bool."""

    timeline: PeerTimeline | StarTimeline
    awake: NDArray[np.bool_]


class _Life(NamedTuple):
    """What one node did."""

    slots: NDArray  # (wake,) as the node counted
    used: NDArray  # (wake, sender) sequence numbers
    computed: NDArray  # (wake,) bool
    formed: dict[int, int]  # sequence -> wakes before it was formed


def _life(node: int, log: Log) -> _Life:
    """Read a journal; refuse one that a crash has torn, or that has a gap."""
    records = log.records
    if log.gaps:
        gap = log.gaps[0]
        before = records["slot"][: gap.at]
        raise ValueError(
            f"the journal of node {node} lacks {gap.lost} records after slot "
            f"{before[-1] if len(before) else 0}: its disk was full or lost power, and what it saw "
            "then is unknown; replay a run in which every disk had room"
        )
    wakes = records[records["kind"] == WAKE]
    last = 0
    for record in records:
        if record["kind"] == START and record["slot"] < last:
            raise ValueError(
                f"node {node} began again in slot {record['slot']} after it had lived {last}: "
                "what it lost was heard "
                "by others, and no single timeline tells that; "
                "replay a run in which no node was killed"
            )
        last = max(last, int(record["slot"]) + 1) if record["kind"] == WAKE else last
    sends = records[records["kind"] == SEND]
    before = np.searchsorted(
        wakes["slot"], sends["slot"], side="left"
    )  # formed after the slots below its number
    formed = dict(zip(sends["sequence"][:, 0].tolist(), before.tolist(), strict=True))
    return _Life(
        wakes["slot"].copy(), wakes["sequence"].copy(), wakes["computed"].astype(bool), formed
    )


def _formed(lives: Mapping[int, _Life], sender: int, sequence: int) -> int:
    """Return after how many wakes a message was formed; 0 is the first message, known to all."""
    if sequence == 0:
        return 0
    found = lives[sender].formed.get(sequence)
    if found is None:
        raise ValueError(
            f"a message {sequence} of node {sender} was heard that its journal lacks; "
            "it was cut short"
        )
    return found


def between_peers(
    logs: Mapping[int, Log], neighbours: NDArray[np.bool_], *, paced: bool, rounds: bool
) -> CausalTimeline:
    """Build the timeline of peers; `paced`: slots keep the numbers that nodes gave them.

    `rounds`: in lock-step.
    """
    lives = {node: _life(node, log) for node, log in logs.items()}
    count = len(lives)
    times: dict[int, list[int]] = {node: [] for node in lives}

    def ready(node: int) -> int | None:
        """Return the earliest slot of a node's next wake.

        None if it saw what is not placed yet.
        """
        life, own = lives[node], times[node]
        at = len(own)
        earliest = max(own[-1] + 1 if own else 0, int(life.slots[at]) if paced else 0)
        for sender in range(count):
            if sender == node:
                continue
            wakes = _formed(lives, sender, int(life.used[at, sender]))
            if wakes > len(times[sender]):
                return None
            earliest = max(earliest, times[sender][wakes - 1] + 1 if wakes else 0)
        return earliest

    _place(lives, times, ready)
    slots = 1 + max((own[-1] for own in times.values() if own), default=0)
    held = np.zeros((slots, count, count), np.int32)
    sends, awake, finished = (np.zeros((slots, count), bool) for _ in range(3))
    for node, life in lives.items():
        for at, t in enumerate(times[node]):
            awake[t, node], finished[t, node] = True, life.computed[at]
            for sender in np.flatnonzero(neighbours[node]):
                wakes = _formed(lives, int(sender), int(life.used[at, sender]))
                held[t:, node, sender] = times[int(sender)][wakes - 1] + 1 if wakes else 0
            if rounds and at and (life.used[at] != life.used[at - 1]).any():
                held[t:, node, node] = t
        for wakes in life.formed.values():
            if wakes:
                sends[times[node][wakes - 1], node] = True
    return CausalTimeline(PeerTimeline(held, sends, finished), awake)


def around_server(logs: Mapping[int, Log]) -> CausalTimeline:
    """Build the timeline around a server."""
    lives = {node: _life(node, log) for node, log in logs.items()}
    nodes = [node for node in lives if node != SERVER]
    times: dict[int, list[int]] = {node: [] for node in lives}

    def ready(node: int) -> int | None:
        life, own = lives[node], times[node]
        at = len(own)
        earliest = own[-1] + 1 if own else 0
        senders = nodes if node == SERVER else [SERVER]
        later = (
            0 if node == SERVER else 1
        )  # an upload may be used in the slot that formed it, an answer after it
        for row, sender in enumerate(senders):
            wakes = _formed(lives, sender, int(life.used[at, row]))
            if wakes > len(times[sender]):
                return None
            earliest = max(earliest, times[sender][wakes - 1] + later if wakes else 0)
        return earliest

    _place(lives, times, ready)
    slots = 1 + max(own[-1] for own in times.values() if own)
    tables = {
        name: np.zeros((slots, len(nodes)), bool) for name in (*StarTimeline._fields, "awake")
    }
    for node in nodes:
        life = lives[node]
        for at, t in enumerate(times[node]):
            tables["awake"][t, node], tables["finished"][t, node] = True, life.computed[at]
            if life.used[at, 0] != (life.used[at - 1, 0] if at else 0):
                tables["down_arrived"][t - 1, node] = True
        for wakes in life.formed.values():
            tables["up_started"][times[node][wakes - 1], node] = True
    server = lives[SERVER]
    for at, t in enumerate(times[SERVER]):
        before = server.used[at - 1] if at else np.zeros_like(server.used[at])
        tables["up_arrived"][t, server.used[at] != before] = True
    answers = logs[SERVER].records[logs[SERVER].records["kind"] == ANSWER]
    for record in answers:
        wakes = int(np.searchsorted(server.slots, record["slot"], side="left"))
        tables["down_started"][times[SERVER][wakes - 1], record["sequence"] > 0] = True
    awake = tables.pop("awake")
    return CausalTimeline(StarTimeline(**tables), awake)


def _place(
    lives: Mapping[int, _Life], times: dict[int, list[int]], ready: Callable[[int], int | None]
) -> None:
    """Give every wake its slot, each when all that it saw has one."""
    moved = True
    while moved:
        moved = False
        for node, life in lives.items():
            while len(times[node]) < len(life.slots) and (slot := ready(node)) is not None:
                times[node].append(slot)
                moved = True
    stuck = [node for node, life in lives.items() if len(times[node]) < len(life.slots)]
    if stuck:
        raise ValueError(
            f"the journals of nodes {stuck} and their neighbours contradict each other; "
            "one is damaged"
        )
