"""Verdicts on a paper's claims: claims.toml says what is claimed and how it is read, runs decide.

    judged = judge(read_reproduction(Path("runs/paper-full")))

Every reading of a claim is decided by itself (`folkman.papers.deciders`). Readings of one `group`
are parts of one reading: it holds if all of them do, and fails if one does. The claim

    holds                 if all its readings hold
    holds only if ...     if some do: they are named, and how many fail and are open is said
    does not hold         if some fail and none holds
    cannot be decided     if none holds or fails: too few draws, or no such runs

What more iterations change is told by `reconsider`, reading by reading, from the draws that both
sets of runs have.
"""

import json
from collections.abc import Sequence

from folkman.checks import pick, require
from folkman.experiment.plan import settle
from folkman.papers import deciders
from folkman.papers.deciders import FAILS, HOLDS, OPEN, Reading
from folkman.papers.paper import Found, Paper
from folkman.papers.results import Reproduction, at, select
from folkman.record.json_file import Json, Table
from folkman.record.run import jsonable
from folkman.report.paper import Change, Judged
from folkman.report.statistics import FEWEST_FOR_AN_INTERVAL

__all__ = ["Judged", "judge", "reconsider"]


def judge(results: Reproduction, *, beyond: bool = False) -> list[Judged]:
    """Judge every claim of a paper by the runs of one size; or what is asked `beyond` it."""
    paper, size = results.paper, results.size
    table = paper.claims(beyond=beyond)
    figures = set(paper.beyond if beyond else paper.figures)
    first = table.get("first_draw", {}).get(size, 0)
    results = results._replace(
        runs=[f for f in results.runs if set(f.figures) & figures and f.seed >= first]
    )
    levels, judged = paper.sizes[size], []
    for claim in table["claim"]:
        listed = claim.get("reading", [])
        if "readings" in claim:
            listed = table["readings"][claim["readings"]]["list"]
        asked = {**claim, "target": table.get("targets", {}).get(claim.get("metric"))}
        variants = _variants(paper, claim, size)
        decided = {
            variant: [
                _decide(results, asked, settle(each, levels), levels, variant) for each in listed
            ]
            for variant in variants
        }
        readings, *_ = decided.values()
        others = [
            each._replace(name=f"{each.name} [{variant}]")
            for variant in variants[1:]
            for each in decided[variant]
        ]
        verdict, reason = _verdict(claim, readings, listed)
        shown = [_plain(reading) for reading in readings + [each for each in others if each.n]]
        head = (claim["name"], claim["where"], claim["text"], _test(paper, claim))
        judged.append(Judged(*head, verdict, reason, _figure(paper, claim, variants[0]), shown))
    return judged


def reconsider(results: Reproduction, before: Reproduction) -> list[Change]:
    """Decide every reading by the draws that both have: as `before`, and as in `results`.

    Readings for which neither has draws enough for an interval are left out, and so is what needs
    no runs.
    """
    if results.size != before.size:
        raise ValueError(
            f"expected runs of one size, got {results.size} and {before.size}; reproduce both at "
            "one size"
        )
    shared = set(map(_identity, results.runs)) & set(map(_identity, before.runs))
    was, now = (
        judge(each._replace(runs=[f for f in each.runs if _identity(f) in shared], measured=[]))
        for each in (before, results)
    )
    lacking = {"verdict": OPEN, "says": "there are no such runs", "n": 0}
    found = []
    for old, new in zip(was, now, strict=True):
        then, later = (
            {reading["name"]: reading for reading in each.readings} for each in (old, new)
        )
        for name in dict.fromkeys([*then, *later]):
            first, last = then.get(name, lacking), later.get(name, lacking)
            if max(first["n"], last["n"]) >= FEWEST_FOR_AN_INTERVAL:
                verdicts, says = (
                    [side[key] for side in (first, last)] for key in ("verdict", "says")
                )
                found.append(Change(old.name, name, *verdicts, *says))
    if not found:
        where = f"{results.origin or 'these runs'} and {before.origin or 'those before'}"
        raise ValueError(
            f"expected {FEWEST_FOR_AN_INTERVAL} draws or more that both have, {where} have fewer "
            "of every claim; "
            "reproduce the same figures and seeds"
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


def _verdict(claim: Table, readings: Sequence[Reading], listed: Sequence[Table]) -> tuple[str, str]:
    """Return a claim's verdict and the readings behind it."""
    if claim["test"] == "undefined":
        return "cannot be decided", claim["reason"]
    kinds = {
        name: _together([r.verdict for r in parts])
        for name, parts in _grouped(readings, listed).items()
    }
    having = {
        kind: [name for name, verdict in kinds.items() if verdict == kind]
        for kind in (HOLDS, FAILS, OPEN)
    }
    told = "; ".join(
        f"{r.name}: {r.says}" for kind in (HOLDS, FAILS) for r in readings if r.verdict == kind
    )
    if having[HOLDS] and len(having[HOLDS]) == len(kinds):
        return "holds", told
    if having[HOLDS]:
        rest = " and ".join(f"{len(having[k])} {k}" for k in (FAILS, OPEN) if having[k])
        return f"holds only if {', or '.join(having[HOLDS])} (others: {rest})", told
    if having[FAILS]:
        return "does not hold" + (
            f" (others: {len(having[OPEN])} open)" if having[OPEN] else ""
        ), told
    why = [f"{r.name}: {r.says}" for r in readings if r.verdict == OPEN]
    return "cannot be decided", "; ".join(
        dict.fromkeys([*filter(None, [told]), *why])
    ) or "there are no readings"


def _grouped(readings: Sequence[Reading], listed: Sequence[Table]) -> dict[str, list[Reading]]:
    """Return the readings by group, in order; one without is a group of its own."""
    found: dict[str, list[Reading]] = {}
    for reading, declared in zip(readings, listed, strict=True):
        for group in declared.get("group", [reading.name]):
            found.setdefault(group, []).append(reading)
    return found


def _together(verdicts: Sequence[str]) -> str:
    return FAILS if FAILS in verdicts else OPEN if OPEN in verdicts else HOLDS


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
    plain = {
        key: jsonable(value) if isinstance(value, float) else value
        for key, value in reading._asdict().items()
    }
    return plain | {"levels": [_plain(level) for level in reading.levels]}


def _decide(
    results: Reproduction, claim: Table, reading: Table, levels: Table, variant: str
) -> Reading:
    """Decide one reading of a claim on one variant."""
    test, name = claim["test"], reading["name"]
    if test == "measured":
        return _measured(name, claim["figure"], reading["measure"], results.measured)
    fixed = settle(dict(claim.get("fix", {})), levels)
    ask = {**{k: claim[k] for k in ("metric", "axis", "margin") if k in claim}, "test": test}
    ask |= {k: reading[k] for k in ("metric", "axis") if k in reading}
    runs = [found for found in results.runs if found.variant == variant]
    targets = _targets(runs, claim["target"])
    if test == "formula":
        return deciders.formula(
            name,
            pick(results.paper.own.FORMULAS, claim["formula"]),
            select(runs, **reading["ours"]),
        )
    if test == "ordered":
        key, values = next(iter(settle(dict(claim["levels"]), levels).items()))
        groups = {
            _named(key, value): select(runs, **reading["ours"], **{key: value})
            for value in (values if isinstance(values, list) else [values])
        }
        return deciders.ordered(name, groups, ask, targets)
    if reading.get("best"):
        return deciders.compare_pairs(name, {"": _best(runs, reading, ask)}, ask, targets)
    ours = select(runs, **{**reading["ours"], **fixed})
    pairs = {}
    for level, facts in _levels(claim, levels).items():
        left = select(ours, **facts)
        others = [key for key in ("other", "control", "control_other") if key in reading]
        pairs[level] = {key: _partners(runs, reading[key], left) for key in others} | {"ours": left}
    if test == "explained":
        return deciders.least_favourable(
            name, [deciders.explained(pair, level) for level, pair in pairs.items()]
        )
    sides = {level: (pair["ours"], pair["other"]) for level, pair in pairs.items()}
    return deciders.compare_pairs(name, sides, ask, targets)


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


def _levels(claim: Table, levels: Table) -> dict[str, Json]:
    """Return the levels that a claim must hold at, by name, and the fact that each is.

    A single level without facts if there are none.
    """
    across = settle(dict(claim.get("across", {})), levels)
    if not across:
        return {"": {}}
    return {
        _named(key, value): {key: value}
        for key, values in across.items()
        for value in (values if isinstance(values, list) else [values])
    }


def _named(key: str, value: object) -> str:
    return f"{key} {value:g}" if isinstance(value, int | float) else f"{key} {value}"


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
    shared = set.intersection(
        *({f.seed for f in group} for steps in sides for group in steps.values())
    )
    axis = ask.get("axis", "gradients")
    where = deciders.reach(
        [f for steps in sides for g in steps.values() for f in g if f.seed in shared], axis
    )

    def worth(group: list[Found]) -> float:
        kept = [f for f in group if f.seed in shared]
        return sum(at(f.run, axis, where, "train_loss") for f in kept) / max(len(kept), 1)

    best = [min(steps.values(), key=worth) for steps in sides]
    return tuple(  # type: ignore[return-value]
        [f for f in group if f.seed in shared] for group in best
    )


def _measured(name: str, figure: str, measure: str, rows: Sequence[Table]) -> Reading:
    """Decide by the measurements of one kind: none may have a value beyond its limit."""
    cases = [row for row in rows if row["measure"] == measure]
    if not cases:
        return Reading(name, OPEN, f"not measured; run: folkman reproduce {figure}")
    known = [row for row in cases if row["value"] is not None]
    if not known:
        return Reading(name, OPEN, cases[0]["says"])
    worst = max(known, key=lambda row: row["value"] - row["limit"])
    verdict = HOLDS if worst["value"] <= worst["limit"] else FAILS
    return Reading(name, verdict, f"{worst['case']}: {worst['says']}", len(known))
