"""The card of a paper's audit, put together: what its folder says in words, what its runs decide.

`card.toml` of a paper has `title`, `lead` (the answer in a sentence or two), `reading` (what a
stranger must know to read the rest) and

    [[column]]   key, group, name      a column of the matrix: the second word of a reading's `tile`
    [[row]]      claim, tile, label    a row: the readings of a claim with this first word
    [[words]]    heading, and sentences: `says`, and of each the `claims` that it rests on

Behind every sentence stand the verdicts on its claims as these runs have them, so that no sentence
outlives its numbers unseen. What the first runs lack is shown as the next runs have it, outlined.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from folkman.checks import require
from folkman.papers.forest import forests_of, losses_of
from folkman.papers.paper import Paper
from folkman.record.json_file import Json, Table
from folkman.report.card import Card, Row
from folkman.report.paper import Judged, score

__all__ = ["Audited", "card_of"]

NOT_RUN = "not run"
UNDECIDED = ("open", NOT_RUN)


class Audited(NamedTuple):
    """A folder of runs and the verdicts by them."""

    root: Path
    paper: Paper
    judged: Sequence[Judged]

    @property
    def name(self) -> str:
        """Return what the runs are, in a word or two."""
        fresh = {claim.confirmatory for claim in self.judged if claim.readings}
        one = "draws that nobody had seen" if True in fresh else "exploratory"
        return f"{self.root.name} ({one if len(fresh) < 2 else 'old draws, and fresh ones'})"


def card_of(audits: Sequence[Audited]) -> Card:
    """Return the card of one paper's audits; the first decides, others are told beside it."""
    paper, judged = audits[0].paper, {claim.name: claim for claim in audits[0].judged}
    table = paper.card()
    claims = paper.claims()
    declared = {claim["name"]: _listed(claims, claim) for claim in claims["claim"]}
    columns = [(each["group"], each["name"]) for each in table.get("column", [])]
    keys = [each["key"] for each in table.get("column", [])]
    rows = []
    for each in table.get("row", []):
        name, tile = each["claim"], each["tile"]
        require(name in judged, f"card.toml: there is no claim '{name}'")
        found = [
            _cells(claim, declared[name], tile, keys)
            for audit in audits
            for claim in audit.judged
            if claim.name == name
        ]
        rows.append(_row(each["label"], found))
    scores = [(audit.name, score(audit.judged)) for audit in audits]
    words = [(w["heading"], _sentences(w, judged)) for w in table.get("words", [])]
    if len(audits) > 1:
        words.insert(2, ("What other runs say of these", _beside(audits)))
    effects, forests = losses_of(judged, declared), forests_of(paper, judged, declared)
    beside = ", ".join(audit.name for audit in audits[1:])
    outlined = any(any(row.outlined) for row in rows)
    key = [*table.get("reading", []), *([f"Outlined tiles: {beside}."] if outlined else [])]
    head = (table["title"], table.get("lead", ""))
    return Card(*head, key, scores, words, columns, rows, effects, forests)


def _row(label: str, found: Sequence[Sequence[Sequence[str]]]) -> Row:
    """Return a row of the first runs; where those have nothing, of the next that have something."""
    first, others = found[0], found[1:]
    shown, outlined = [list(cell) for cell in first], [False] * len(first)
    for place, cell in enumerate(first):
        if cell and set(cell) == {NOT_RUN}:
            more = [other[place] for other in others if set(other[place]) - {NOT_RUN}]
            if more:
                shown[place], outlined[place] = list(more[0]), True
    return Row(label, shown, outlined)


def _listed(claims: Table, claim: Table) -> list[Json]:
    shared = claims.get("readings", {}).get(claim.get("readings", ""), {"list": []})
    metric = {"metric": claim.get("metric", "train_loss"), "test": claim["test"]}
    return [{**metric, **each} for each in [*shared["list"], *claim.get("reading", [])]]


def _cells(
    claim: Judged, declared: Sequence[Table], row: str, keys: Sequence[str]
) -> list[list[str]]:
    """Return the verdicts on the levels of a claim's readings, column by column."""
    found: dict[str, list[str]] = {key: [] for key in keys}
    for reading, table in zip(claim.readings, declared, strict=False):
        tile = table.get("tile", ("", ""))
        if tile[0] == row and tile[1] in found:
            levels = reading["levels"] or [reading]
            found[tile[1]] += [level["verdict"] for level in levels]
    return list(found.values())


def _sentences(words: Table, judged: dict[str, Judged]) -> list[str]:
    """Return sentences, each with the verdicts that it rests on."""
    found = []
    for each in words["sentences"]:
        rests = [f"{name} {judged[name].kind}" for name in each.get("claims", [])]
        found.append(f"{each['says']} [{', '.join(rests)}]" if rests else each["says"])
    return found


def _beside(audits: Sequence[Audited]) -> list[str]:
    """Tell what other runs decide that the first leave undecided, and where they disagree."""
    first = {claim.name: claim.kind for claim in audits[0].judged}
    told = []
    for audit in audits[1:]:
        kinds = {claim.name: claim.kind for claim in audit.judged}
        more = [
            f"{name} {kind}"
            for name, kind in kinds.items()
            if first[name] in UNDECIDED and kind not in UNDECIDED
        ]
        less = [
            f"{name} {first[name]}, there {kind}"
            for name, kind in kinds.items()
            if first[name] not in UNDECIDED and kind not in (*UNDECIDED, first[name])
        ]
        told.append(f"{audit.name} decides: {', '.join(more) or 'nothing more'}.")
        told.append(f"{audit.name} has another word for: {', '.join(less) or 'nothing'}.")
    return told
