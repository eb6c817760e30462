"""What a result is called: the words, and the rule that makes one verdict of many readings.

The words are the same for both directions. A reading is one way to take a claim.

    holds                   every reading that was run holds
    holds under (readings)  some hold: they are named, and the others are counted by their words;
                            "one cause of several" if a control has part of a claimed cause's effect
    contradicted            none holds, and the opposite is shown
    equal                   none holds or is contradicted, and both sides are shown equal
    better than claimed     the value is beyond the printed one, on the side that favours the paper
    vacuous here            a hypothesis is not met in the runs, or the statement allows everything
    true by construction    every reading that was run holds, by the definition of the clock
    open                    none of these: more draws may decide
    not run                 no reading was run

Readings that are part contradicted and part open leave the claim open if an open one is a middle
reading (`middle = true`, else the first), and are "contradicted under" their names if not.
"""

from collections.abc import Sequence
from math import nan
from typing import NamedTuple

from folkman.record.json_file import Table

__all__ = ["BETTER", "CONSTRUCTION", "CONTRADICTED", "EQUAL", "HOLDS", "KINDS", "NOT_RUN", "OPEN"]
__all__ += [
    "PARTLY",
    "UNDER",
    "VACUOUS",
    "Reading",
    "decided_by_ranks",
    "draws_of_claim",
    "kind_of",
    "verdict_of_claim",
    "weakest",
]

HOLDS, CONTRADICTED, EQUAL, OPEN = "holds", "contradicted", "equal", "open"
NOT_RUN, VACUOUS, BETTER = "not run", "vacuous here", "better than claimed"
CONSTRUCTION, UNDER = "true by construction", "holds under"
PARTLY = "one cause of several"

KINDS = (HOLDS, UNDER, BETTER, CONSTRUCTION, EQUAL, CONTRADICTED, VACUOUS, OPEN, NOT_RUN)
"""In the order of a score."""

PARTS = (CONTRADICTED, VACUOUS, NOT_RUN, EQUAL, OPEN, PARTLY, BETTER, HOLDS)
"""Which of the verdicts on its parts is that of the whole: the first that there is."""


class Reading(NamedTuple):
    """One way to take a claim, decided."""

    name: str
    verdict: str
    says: str
    n: int = 0  # draws
    mean: float = nan  # difference: relative, or of accuracies
    low: float = nan
    high: float = nan
    effect: float = nan  # mean over standard deviation of the paired differences
    # of several levels each; the reading is the least favourable of them
    levels: "tuple[Reading, ...]" = ()
    p: float = nan  # that there is no difference
    corrected: float = nan  # for the number of tests
    by_last: str = ""  # the verdict by the last value alone
    margin: float = nan  # what counts as equal
    draws: int | None = None  # that would decide what is open
    ranked: bool = False  # by new draws, which ranks decide


class Group(NamedTuple):
    """Readings that are parts of one."""

    name: str
    verdict: str
    middle: bool
    construction: bool
    draws: int | None


def weakest(verdicts: Sequence[str]) -> str:
    """Return the verdict on a whole of which these are the parts."""
    return next((each for each in PARTS if each in verdicts), NOT_RUN)


def kind_of(verdict: str) -> str:
    """Return the kind of a claim's verdict, without the readings that it names."""
    return max((kind for kind in KINDS if verdict.startswith(kind)), key=len, default=OPEN)


def verdict_of_claim(readings: Sequence[Reading], declared: Sequence[Table]) -> tuple[str, str]:
    """Return a claim's verdict and the numbers behind it."""
    groups = _groups(readings, declared)
    names = {kind: [g.name for g in groups if g.verdict == kind] for kind in PARTS}
    run = [group for group in groups if group.verdict != NOT_RUN]
    head = _head(run, names)
    kind = kind_of(head)
    shown = (HOLDS, BETTER, PARTLY) if kind in (UNDER, CONSTRUCTION) else (kind,)
    rest = [f"{len(names[k])} {k}" for k in PARTS if names[k] and k not in shown]
    lone = len(groups) == 1 or head in (OPEN, NOT_RUN)
    verdict = head if lone or not rest else f"{head}; others: {', '.join(rest)}"
    decided = [f"{r.name}: {r.says}" for r in readings if r.verdict not in (OPEN, NOT_RUN)]
    opened = [f"{r.name}: {r.says}" for r in readings if r.verdict == OPEN]
    told = opened + decided if head == OPEN else decided
    return verdict, "; ".join(told) or "no such runs"


def _head(run: Sequence[Group], names: dict[str, list[str]]) -> str:
    """Return the verdict without the count of the others."""
    kinds = {group.verdict for group in run}
    if kinds and kinds <= {HOLDS, BETTER}:
        plain = HOLDS if HOLDS in kinds else BETTER
        return CONSTRUCTION if all(group.construction for group in run) else plain
    if kinds & {HOLDS, BETTER}:
        return f"{UNDER} ({'; '.join(names[HOLDS] + names[BETTER])})"
    if PARTLY in kinds:
        return f"{UNDER} ({PARTLY})"
    if {CONTRADICTED, OPEN} <= kinds:
        open_middle = any(group.verdict == OPEN and group.middle for group in run)
        return OPEN if open_middle else f"{CONTRADICTED} under ({'; '.join(names[CONTRADICTED])})"
    order = (CONTRADICTED, EQUAL, OPEN, VACUOUS)
    return next((kind for kind in order if kind in kinds), NOT_RUN)


def _groups(readings: Sequence[Reading], declared: Sequence[Table]) -> list[Group]:
    """Return the readings, those of one `group` as one; without any mark the first is middle."""
    marked = any(table.get("middle") for table in declared)
    found: dict[str, list[tuple[Reading, Table]]] = {}
    for reading, table in zip(readings, declared, strict=True):
        for name in table.get("group", [reading.name]):
            found.setdefault(name, []).append((reading, table))
    groups = []
    for name, parts in found.items():
        verdict = weakest([reading.verdict for reading, _ in parts])
        middle = any(table.get("middle") for _, table in parts) if marked else not groups
        construction = all(table.get("construction") for _, table in parts)
        needed = [r.draws for r, _ in parts if r.verdict == OPEN and r.draws is not None]
        groups.append(Group(name, verdict, middle, construction, max(needed, default=None)))
    return groups


def draws_of_claim(readings: Sequence[Reading], declared: Sequence[Table]) -> int | None:
    """Return the draws that would decide a middle reading that is open; None if none can."""
    needed = [g.draws for g in _groups(readings, declared) if g.middle and g.verdict == OPEN]
    known = [each for each in needed if each is not None]
    return min(known) if known and len(known) == len(needed) else None


def decided_by_ranks(readings: Sequence[Reading], declared: Sequence[Table]) -> bool:
    """Return whether new draws decide all middle readings that were run."""
    marked = any(table.get("middle") for table in declared)
    middle = [
        reading
        for number, (reading, table) in enumerate(zip(readings, declared, strict=True))
        if (table.get("middle") if marked else number == 0) and reading.verdict != NOT_RUN
    ]
    return bool(middle) and all(reading.ranked for reading in middle)
