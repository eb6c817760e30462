"""What an operator asks of all nodes: how they stand, what they log, and to stop."""

import asyncio
import math
import time
from collections.abc import AsyncIterator
from typing import Any

from folkman.record.cluster import STARTING
from folkman.record.json_file import Json, Table, parsed
from folkman.runtime.entrance import Address
from folkman.runtime.fleet import words
from folkman.runtime.fleet.calls import Called, CallError, Line, ask_each, dialled
from folkman.runtime.fleet.kept_lines import in_order, seconds_of
from folkman.runtime.operators import OperatorFiles
from folkman.runtime.telemetry import is_well

__all__ = ["cells", "followed", "logs", "standings", "stop"]

ENDED_S = 30.0
"""How long a node that was asked to stop may take to save and end."""
FOLLOW_S = 1.0
TICK_S = 0.0005
"""Half of the step of times in a log."""
MOST_TOLD = 64 * words.MOST_LINES
"""Lines of one node at a time; a node that tells more is not believed."""
COLUMNS = ("node", "state", "slot", "steps", "loss", "links", "oldest", "version", "up", "wrong")


def standings(nodes: dict[str, Address], operator: OperatorFiles, patience_s: float) -> list[Json]:
    """Return how every node stands; one that does not answer has `why`."""

    async def ask(_: str, line: Line) -> Json:
        found = await line.ask(words.Status())
        return found.facts if isinstance(found, words.Standing) else {}

    rows = []
    for each in asyncio.run(ask_each(nodes, operator, patience_s, ask)):
        facts = each.found if each.found is not None else {"why": each.why}
        seen = {"node": each.node, "address": each.address, "answered": each.found is not None}
        rows.append({**facts, **seen, "well": each.found is not None and is_well(facts)})
    return rows


def cells(row: Table) -> dict[str, str]:
    """Return one row of the table; what a node says is bounded, and obeyed by no terminal."""
    if not row["answered"]:
        return {"node": row["node"], "state": "no answer", "wrong": str(row["why"])}
    ages = [age for age in _table(row.get("taken_age_s")).values() if _is_number(age)]
    linked, near = _number(row.get("num_linked"), "d"), _number(row.get("num_neighbours"), "d")
    found = {
        "node": row["node"],
        "state": _word(row.get("state")),
        "slot": _number(row.get("slot"), "d"),
        "steps": _number(row.get("steps"), "d"),
        "loss": _number(row.get("loss"), ".4f"),
        "links": f"{linked}/{near}" if linked else "",
        "oldest": f"{max(ages):.1f} s" if ages else "",
        "version": _word(row.get("version")),
        "up": _duration(row.get("uptime_s")),
        "wrong": _word(row.get("wrong"), 400),
    }
    if not row["well"] and not found["wrong"] and found["state"] != STARTING:
        found["wrong"] = "it says that it is not well"
    return found


def stop(nodes: dict[str, Address], operator: OperatorFiles, patience_s: float) -> "list[Called]":
    """Ask nodes to save and end; return once their doors are closed, or say which still run."""

    async def ask(_: str, line: Line) -> bool:
        return isinstance(await line.ask(words.Stop()), words.Stopping)

    async def both() -> "list[Called]":
        found = await ask_each(nodes, operator, patience_s, ask)
        waits = [_ended(each, nodes[each.node], operator, patience_s) for each in found]
        return await asyncio.gather(*waits)

    return asyncio.run(both())


async def _ended(
    called: "Called[bool]", place: Address, operator: OperatorFiles, patience_s: float
) -> "Called[bool]":
    """Wait until a node that was asked to stop has closed its door."""
    end_s = time.monotonic() + ENDED_S
    while called.found:
        try:
            async with dialled(called.node, place, operator, patience_s):
                pass
        except CallError:
            return called
        if time.monotonic() > end_s:
            why = f"it was asked to stop, and still answers after {ENDED_S:.0f} s"
            return called._replace(found=None, why=why)
        await asyncio.sleep(0.3)
    return called


async def logs(
    nodes: dict[str, Address],
    operator: OperatorFiles,
    patience_s: float,
    since_s: float = 0.0,
    level: words.Level = "debug",
) -> tuple[list[str], "list[Called[int]]"]:
    """Return the lines of all nodes by their times, and for each how many it keeps no longer."""
    told: list[tuple[str, str]] = []

    async def ask(name: str, line: Line) -> int:
        lines, left_out = await _lines(line, words.Logs(0, since_s, level))
        told.extend((name, each) for each in lines.lines)
        return left_out

    found = await ask_each(nodes, operator, patience_s, ask)
    return in_order(told), found


async def _lines(line: Line, question: words.Logs) -> tuple[words.Lines, int]:
    """Return all lines from a number on, over as many answers as it takes."""
    told: list[str] = []
    left_out, after = 0, question.after
    while True:
        found = await line.ask(words.Logs(after, question.since_s, question.level))
        if not isinstance(found, words.Lines):
            raise CallError("expected lines, the node answers otherwise")
        left_out = left_out or found.left_out
        told += found.lines
        if not found.lines or found.next <= after or len(told) > MOST_TOLD:
            return words.Lines(found.life, told, max(after, found.next), left_out), left_out
        after = found.next


async def followed(
    nodes: dict[str, Address],
    operator: OperatorFiles,
    patience_s: float,
    since_s: float = 0.0,
    level: words.Level = "debug",
) -> AsyncIterator[list[str]]:
    """Yield lines as they come, for ever, merged by time; a node that is gone is dialled again."""
    queue: asyncio.Queue[tuple[str, str]] = asyncio.Queue(10_000)
    tasks = [
        asyncio.create_task(_follow(name, place, operator, patience_s, since_s, level, queue))
        for name, place in nodes.items()
    ]
    try:
        while True:
            batch = [await queue.get()]
            await asyncio.sleep(FOLLOW_S / 4)  # for those of the others of this time
            while not queue.empty():
                batch.append(queue.get_nowait())
            yield in_order(batch)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _follow(
    name: str,
    place: Address,
    operator: OperatorFiles,
    patience_s: float,
    since_s: float,
    level: words.Level,
    queue: "asyncio.Queue[tuple[str, str]]",
) -> None:
    """Put a node's new lines into a queue.

    After a break it goes on by the numbers of lines; if the node began again meanwhile, by their
    times, which are the board's own.
    """
    life, after, newest_s = "", 0, since_s
    while True:
        try:
            async with dialled(name, place, operator, patience_s) as line:
                while True:
                    found, _ = await _lines(line, words.Logs(after, since_s, level))
                    if life and found.life != life:
                        found, _ = await _lines(line, words.Logs(0, newest_s, level))
                    life, after = found.life, found.next
                    for each in found.lines:
                        await queue.put((name, each))
                    if found.lines:
                        last_s = seconds_of((parsed(found.lines[-1]) or {}).get("time"))
                        newest_s = max(newest_s, last_s + TICK_S)
                    await asyncio.sleep(FOLLOW_S)
        except CallError:
            await asyncio.sleep(FOLLOW_S)


def _word(value: Any, most: int = 24) -> str:
    """Return a word of a node as it may be printed."""
    text = "" if value is None else str(value)[:most]
    return "".join(sign if sign.isprintable() else "?" for sign in text)


def _table(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _number(value: Any, form: str) -> str:
    if not _is_number(value):
        return ""
    return format(int(value) if form == "d" else value, form)[:16]


def _duration(value: Any) -> str:
    """Return seconds in words."""
    if not _is_number(value):
        return ""
    if value < 120:
        return f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.1f} h"
