"""Verdicts on a paper's claims: claims.toml says what is claimed and how it is read, runs decide.

    judged = judge(read_reproduction(Path("runs/paper-full")))

First every reading of every claim is measured (`folkman.papers.deciders`). All tests of a
difference are one family, whose p are corrected for their number. Then each reading is decided,
and of its readings each claim (`folkman.papers.verdicts`).

Draws from `confirmatory` of claims.toml on were seen by nobody who wrote the claims' readings; what
they decide is confirmatory, and they are never pooled with earlier ones. Draws from `ranks` on
belong to later plans: where a test has enough draws of one it has no others.

What more iterations change is told by `reconsider`, reading by reading, from the draws that both
sets of runs have.
"""

import json
from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from folkman.checks import pick, require
from folkman.experiment.plan import settle
from folkman.papers import deciders, measures
from folkman.papers.deciders import Leaf
from folkman.papers.paper import Found, Paper, later_plans
from folkman.papers.results import QUARTER, Reproduction, at, select
from folkman.papers.verdicts import (
    NOT_RUN,
    VACUOUS,
    Reading,
    decided_by_ranks,
    draws_of_claim,
    kind_of,
    verdict_of_claim,
)
from folkman.record.json_file import Json, Table
from folkman.record.run import json_row
from folkman.report.paper import Change, Judged
from folkman.report.statistics import FEWEST_FOR_AN_INTERVAL

__all__ = ["Judged", "family", "judge", "reconsider"]


class Asked(NamedTuple):
    """One reading on one variant, measured and not yet decided."""

    declared: Table
    variant: str
    leaves: list[Leaf]
    decided: Reading | None = None  # where no test of a family is needed

    @property
    def name(self) -> str:
        """Return what the reading is called."""
        return self.declared["name"]


def judge(results: Reproduction, *, beyond: bool = False) -> list[Judged]:
    """Judge every claim of a paper by the runs of one size; or what is asked `beyond` it."""
    paper, table = results.paper, results.paper.claims(beyond=beyond)
    results, new = _chosen(results, table, beyond=beyond)
    asked = [_asked(results, table, claim) for claim in table["claim"]]
    correction = deciders.correct([leaf for each in asked for a in each for leaf in a.leaves])
    judged = []
    for claim, each in zip(table["claim"], asked, strict=True):
        readings = [a.decided or deciders.decide(a.name, a.leaves, correction) for a in each]
        variants = _variants(paper, claim, results.size)
        own = [i for i, a in enumerate(each) if a.variant == variants[0]]
        mine, declared = [readings[i] for i in own], [each[i].declared for i in own]
        verdict, reason = verdict_of_claim(mine, declared)
        if claim["test"] == "undefined":
            verdict, reason = VACUOUS, claim["reason"]
        others = [
            r._replace(name=f"{r.name} [{a.variant}]")
            for i, (r, a) in enumerate(zip(readings, each, strict=True))
            if i not in own and r.n
        ]
        head = (claim["name"], claim["where"], claim["text"], _test(paper, claim))
        shown = [_plain(reading) for reading in mine + others]
        figure = _figure(paper, claim, variants[0])
        fresh = new or decided_by_ranks(mine, declared)
        more = (kind_of(verdict), draws_of_claim(mine, declared), fresh, claim.get("topic", ""))
        judged.append(Judged(*head, verdict, reason, figure, shown, *more))
    return judged


def family(results: Reproduction) -> list[tuple[str, str, Leaf]]:
    """Return every test of a difference that the claims ask for: claim, reading, what was found."""
    table = results.paper.claims()
    results, _ = _chosen(results, table, beyond=False)
    return [
        (claim["name"], asked.name, leaf)
        for claim in table["claim"]
        for asked in _asked(results, table, claim)
        for leaf in asked.leaves
        if leaf.spread.n
    ]


def _chosen(results: Reproduction, table: Table, *, beyond: bool) -> tuple[Reproduction, bool]:
    """Return the runs that decide, and whether they are confirmatory."""
    figures = set(results.paper.beyond if beyond else results.paper.figures)
    first = table.get("first_draw", {}).get(results.size, 0)
    runs = [f for f in results.runs if set(f.figures) & figures and f.seed >= first]
    since, ranks = table.get("confirmatory", inf), min(later_plans(table), default=inf)
    fresh = [f for f in runs if since <= f.seed < ranks]
    old = [f for f in runs if f.seed < min(since, ranks)]
    newest = [f for f in runs if f.seed >= ranks]
    return results._replace(runs=[*(fresh or old), *newest]), bool(fresh)


def _asked(results: Reproduction, table: Table, claim: Table) -> list[Asked]:
    """Measure all readings of a claim: on the data that decide it, then on others."""
    paper, levels = results.paper, results.paper.sizes[results.size]
    listed = claim.get("reading", [])
    if "readings" in claim:
        listed = [*table["readings"][claim["readings"]]["list"], *listed]
    target = table.get("targets", {}).get(claim.get("metric"))
    ask = {**claim, "target": target, "part": 0.0 if results.smoothed else QUARTER}
    ask["ranks"] = later_plans(table)
    return [
        _measure(results, ask, settle(reading, levels), variant)
        for variant in _variants(paper, claim, results.size)
        for reading in listed
    ]


def reconsider(results: Reproduction, before: Reproduction) -> list[Change]:
    """Decide every reading by the draws that both have: as `before`, and as in `results`.

    Readings for which neither has draws enough for an interval are left out, and so is what needs
    no runs.
    """
    sizes = f"expected runs of one size, got {results.size} and {before.size}"
    require(results.size == before.size, f"{sizes}; reproduce both at one size")
    shared = set(map(_identity, results.runs)) & set(map(_identity, before.runs))
    was, now = (
        judge(each._replace(runs=[f for f in each.runs if _identity(f) in shared], measured=[]))
        for each in (before, results)
    )
    lacking = {"verdict": NOT_RUN, "says": "no such runs", "n": 0}
    found = []
    for old, new in zip(was, now, strict=True):
        then, later = ({r["name"]: r for r in each.readings} for each in (old, new))
        for name in dict.fromkeys([*then, *later]):
            first, last = then.get(name, lacking), later.get(name, lacking)
            if max(first["n"], last["n"]) >= FEWEST_FOR_AN_INTERVAL:
                verdicts = (first["verdict"], last["verdict"])
                found.append(Change(old.name, name, *verdicts, first["says"], last["says"]))
    if not found:
        where = f"{results.origin or 'these runs'} and {before.origin or 'those before'}"
        raise ValueError(
            f"expected {FEWEST_FOR_AN_INTERVAL} draws or more that both have, {where} have fewer "
            "of every claim; reproduce the same figures and seeds"
        )
    return found


def _identity(found: Found) -> tuple[str, int, str]:
    """Return what a run is, however long it is."""
    return found.variant, found.seed, json.dumps(found.facts, sort_keys=True)


def _variants(paper: Paper, claim: Table, size: str) -> list[str]:
    """Return the data and model a claim is decided on, then others whose readings are shown too."""
    if "variant" in claim:
        return [claim["variant"]]
    if claim.get("figure", "") not in (*paper.figures, *paper.beyond):
        return [""]
    aside = paper.head.get("aside", ())
    return [name for name in paper.figure(claim["figure"])["variants"][size] if name not in aside]


def _test(paper: Paper, claim: Table) -> str:
    """Describe the test of a claim in a line."""
    metric, axis = claim.get("metric", "train_loss"), claim.get("axis", "gradients")
    paired = f"{metric} at equal {axis}, paired over draws, 95 % interval"
    if "formula" in claim:
        return f"measured against {paper.own.FORMULAS[claim['formula']].printed}"
    return {
        "explained": "share of the gain shown by a control without the cause",
        "measured": "folkman theory, measured",
        "undefined": "none",
    }.get(claim["test"], f"{claim['test']}: {paired}")


def _figure(paper: Paper, claim: Table, variant: str) -> str:
    """Return where to look: the drawing of the claim's figure, or its name if nothing is drawn."""
    name = claim.get("figure", "")
    if name not in (*paper.figures, *paper.beyond) or not paper.figure(name).get("panel"):
        return name
    return f"figures/{name}-{variant}-{paper.figure(name).get('axis', 'gradients')}.png"


def _plain(reading: Reading) -> Json:
    """Return a reading that JSON can hold."""
    return json_row(reading._asdict()) | {"levels": [_plain(level) for level in reading.levels]}


def _measure(results: Reproduction, claim: Table, reading: Table, variant: str) -> Asked:
    """Measure one reading of a claim on one variant."""
    test, name, levels = claim["test"], reading["name"], results.paper.sizes[results.size]
    asked = Asked(reading, variant, [])
    if test == "measured":
        rows = [row for row in results.measured if row["measure"] == reading["measure"]]
        return asked._replace(decided=measures.measured(name, rows, reading.get("missed")))
    if "lacks" in reading:
        return asked._replace(decided=Reading(name, NOT_RUN, reading["lacks"]))
    runs = _seen(results, reading, reading.get("variant", variant))
    if test == "formula":
        formula = pick(results.paper.own.FORMULAS, claim["formula"])
        ours = select(runs, **reading["ours"])
        found = measures.formula(name, formula, ours, claim.get("favours"))
        return asked._replace(decided=found)
    known = ("metric", "axis", "margin", "part", "test", "ranks")
    ask = {k: claim[k] for k in known if k in claim}
    ask |= {k: reading[k] for k in ("metric", "axis") if k in reading}
    targets = _targets(runs, claim["target"])
    if test == "ordered":
        along = _levels(claim["levels"], levels).items()
        groups = {level: select(runs, **reading["ours"], **fact) for level, fact in along}
        return asked._replace(leaves=deciders.ordered(groups, ask, targets))
    if reading.get("best"):
        sides = {"": _best(runs, reading, ask)}
        return asked._replace(leaves=deciders.leaves_of(sides, ask, targets))
    pairs = _pairs(runs, claim, reading, levels)
    if test == "explained":
        more = (claim["part"], claim["ranks"])
        leaves = [deciders.explained(pair, at, *more) for at, pair in pairs.items()]
    elif test == "oftener":
        ranks = claim["ranks"]
        leaves = [deciders.oftener(at, p["ours"], p["other"], ranks) for at, p in pairs.items()]
    else:
        sides = {level: (pair["ours"], pair["other"]) for level, pair in pairs.items()}
        leaves = deciders.leaves_of(sides, ask, targets)
    return asked._replace(leaves=leaves)


def _seen(results: Reproduction, reading: Table, variant: str) -> list[Found]:
    """Return the runs that a reading sees: of figures kept apart only those that it names."""
    paper = results.paper
    apart = {name for name in paper.figures if paper.figure(name).get("apart")}
    hidden = apart - {reading.get("figure")}
    return [f for f in results.runs if f.variant == variant and not set(f.figures) <= hidden]


def _pairs(
    runs: Sequence[Found], claim: Table, reading: Table, levels: Table
) -> dict[str, dict[str, list[Found]]]:
    """Return the runs of every side at every level that the claim must hold across."""
    fixed = settle(dict(claim.get("fix", {})), levels)
    across = reading.get("across", claim.get("across", {}))
    ours = select(runs, **{**fixed, **reading["ours"]})
    pairs = {}
    for level, facts in _levels(across, levels).items():
        left = select(ours, **facts)
        others = [key for key in ("other", "control", "control_other") if key in reading]
        pairs[level] = {key: _partners(runs, reading[key], left) for key in others} | {"ours": left}
    return pairs


def _targets(runs: Sequence[Found], target: Table | None) -> dict[int, float] | None:
    """Return, for each draw, how low a loss has to be reached.

    It must be so near to the last loss of the run that is named.
    """
    if target is None:
        return None
    return {
        found.seed: target["near"] * found.run.last("train_loss")
        for found in select(runs, **target["of"])
    }


def _levels(across: Table, levels: Table) -> dict[str, Json]:
    """Return the levels along some facts by name, with the fact of each; one without, if none."""
    found = {}
    for key, values in settle(dict(across), levels).items():
        for value in values if isinstance(values, list) else [values]:
            shown = f"{value:g}" if isinstance(value, int | float) else value
            found[f"{key} {shown}"] = {key: value}
    return found or {"": {}}


def _partners(runs: Sequence[Found], wanted: Table, left: Sequence[Found]) -> list[Found]:
    """Return the runs on the other side; "=name" is the fact of the runs on this side."""
    if not left:
        return []
    facts = left[0].facts
    said = {
        k: facts.get(v[1:]) if isinstance(v, str) and v.startswith("=") else v
        for k, v in wanted.items()
    }
    return select(runs, **said)


def _best(runs: Sequence[Found], reading: Table, ask: Table) -> tuple[list[Found], list[Found]]:
    """Return each side at its best step of the grid.

    The best has the lowest mean loss over the draws that all steps have.

    The grid is the fact of a side that has a list of values. Nothing where a step of the grid was
    not run.
    """
    sides = []
    for key in ("ours", "other"):
        grid = next((fact for fact, value in reading[key].items() if isinstance(value, list)), "")
        require(
            bool(grid),
            f"'{reading['name']}' asks for the best of a grid, {key} has no list of values",
        )
        steps: dict[float, list[Found]] = {}
        for found in select(runs, **reading[key]):
            steps.setdefault(found.facts[grid], []).append(found)
        if len(steps) < len(reading[key][grid]):
            return [], []
        sides.append(steps)
    groups = [group for steps in sides for group in steps.values()]
    shared = set.intersection(*({f.seed for f in group} for group in groups))
    axis = ask.get("axis", "gradients")
    where = deciders.reach([f for group in groups for f in group if f.seed in shared], axis)

    def worth(group: list[Found]) -> float:
        kept = [f for f in group if f.seed in shared]
        return sum(at(f.run, axis, where, "train_loss") for f in kept) / max(len(kept), 1)

    ours, other = (min(steps.values(), key=worth) for steps in sides)
    return [f for f in ours if f.seed in shared], [f for f in other if f.seed in shared]
