"""The rows of forest plots, from the verdicts: of every claim its middle readings.

A claim's middle readings are those that claims.toml marks, or its first. Of a reading with several
levels the row is the least favourable one, as its verdict is.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite, nan
from textwrap import fill

from folkman.papers.deciders import MARGIN
from folkman.papers.paper import Paper
from folkman.papers.verdicts import NOT_RUN
from folkman.record.json_file import Json, Table
from folkman.report.forest import POINTS, RATIO, Effect, Forest
from folkman.report.paper import Judged, score

__all__ = ["forests_of", "losses_of"]

PAIRED = ("lower", "higher", "ordered", "similar")
"""Tests whose numbers are a difference with an interval."""

LETTERS, LETTERS_OF_WORDS = 56, 88
"""Of a line of a label beside a plot, and of words in the place of one."""


def losses_of(
    judged: Mapping[str, Judged], declared: Mapping[str, Sequence[Table]]
) -> list[Effect]:
    """Return the effects on losses, each once: those of a card."""
    found = [
        _effect(name, reading, table)
        for name, claim in judged.items()
        for reading, table in _middle(claim, declared[name])
        if table["test"] in PAIRED and table["metric"] == "train_loss" and _known(reading)
    ]
    return list({(each.mean, each.n, each.margin): each for each in reversed(found)}.values())[::-1]


def forests_of(
    paper: Paper, judged: Mapping[str, Judged], declared: Mapping[str, Sequence[Table]]
) -> list[Forest]:
    """Return the claims and effects of every figure that has panels."""
    found = []
    drawn = [name for name in paper.figures if paper.figure(name).get("panel")]
    figures = {claim["name"]: claim.get("figure") for claim in paper.claims()["claim"]}
    for name in drawn:
        claims = [claim for claim in judged.values() if figures[claim.name] == name]
        rows = [
            (claim.name, reading, table)
            for claim in claims
            for reading, table in _middle(claim, declared[claim.name])
        ]
        run = [row for row in rows if row[1]["verdict"] != NOT_RUN]
        lacking: dict[str, list[str]] = {}
        for number, reading, _ in rows:
            if reading["verdict"] == NOT_RUN:
                lacking.setdefault(reading["name"], []).append(number)
        missing = [f"{said} ({', '.join(numbers)})" for said, numbers in lacking.items()]
        effects = [_told(*row) for row in run]
        words = [(claim.name, f"{claim.text} ({claim.where})", claim.kind) for claim in claims]
        if words:
            title = f"{paper.figure(name)['title']}. {score(claims)}"
            found.append(Forest(name, title, words, effects, missing))
    return found


def _middle(claim: Judged, declared: Sequence[Table]) -> Iterator[tuple[Json, Table]]:
    """Yield the middle readings of a claim, or the first where none is marked."""
    marked = any(table.get("middle") for table in declared)
    for number, (reading, table) in enumerate(zip(claim.readings, declared, strict=False)):
        if table.get("middle") if marked else number == 0:
            yield reading, table


def _known(reading: Table) -> bool:
    """Tell whether a reading has an interval."""
    numbers = [reading.get(key) for key in ("mean", "low", "high")]
    return all(value is not None and isfinite(value) for value in numbers)


def _effect(name: str, reading: Table, table: Table) -> Effect:
    """Return the row of a difference, and whether new draws have it."""
    numbers = (reading["mean"], reading["low"], reading["high"], reading["margin"] or MARGIN)
    unit = POINTS if table["metric"] == "test_accuracy" else RATIO
    label = f"{name}  {reading['name']}"
    return Effect(label, *numbers, reading["n"], reading["verdict"], unit)


def _told(name: str, reading: Table, table: Table) -> Effect:
    """Return the row of any reading: where it has no interval, with its words in that place."""
    at = f" ({_level(reading)})" if reading["levels"] else ""
    label = fill(f"{name}  {reading['name']}{at}", LETTERS)
    if table["test"] in PAIRED and _known(reading):
        row = _effect(name, reading, table)
        return row._replace(label=label, says=", fresh" if reading["ranked"] else "")
    label, says = f"{name}  {reading['name']}", fill(reading["says"], LETTERS_OF_WORDS)
    return Effect(
        fill(label, LETTERS), nan, nan, nan, nan, reading["n"], reading["verdict"], "", says
    )


def _level(reading: Table) -> str:
    """Return the level that a reading is told by."""
    says = reading["says"]
    return next((v["name"] for v in reading["levels"] if says.endswith(f"({v['name']})")), "")
