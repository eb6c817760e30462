"""From a paper's files to jobs: every figure's runs under a size, most important first, each once.

A figure's file names groups of runs (`[[arm]]`) in the plan language (`folkman.experiment.plan`); a
value that starts with @ is one of those being crossed, or of the size (`sizes.toml`). What comes
out are jobs as a sweep has them, each with the facts by which claims and panels choose it. Two
figures that need the same run share it.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from folkman.checks import pick, require
from folkman.config.build import seedless
from folkman.config.comparison import Comparison, resolve, to_toml
from folkman.config.plugins import anchored, title
from folkman.config.text import DEFAULT
from folkman.experiment.descent import METHOD
from folkman.experiment.plan import Job, Plan, expand, job_key, settle
from folkman.papers.paper import Paper
from folkman.record.json_file import Json, Table

__all__ = ["Drawn", "drawn_figure", "plan", "program_of", "share_of"]

CLOCK = "clock"
"""The kind of a run that keeps time and learns nothing: a stand-in of few parameters in messages of
the same size."""


class Drawn(NamedTuple):
    """What is drawn of a figure under one size."""

    title: str
    variants: tuple[str, ...]
    panels: tuple[Json, ...]  # "@" looked up


def drawn_figure(paper: Paper, name: str, size: str) -> Drawn:
    """Return the panels of a figure; labels are filled in later, from the facts of a run."""
    table, levels = paper.figure(name), paper.sizes[size]
    panels = []
    for panel in table.get("panel", ()):
        curves = [
            settle({**c, "label": ""}, levels) | {"label": c["label"]} for c in panel["curves"]
        ]
        panels.append({"title": panel["title"], "curves": curves})
    return Drawn(table["title"], tuple(table["variants"][size]), tuple(panels))


def plan(
    paper: Paper,
    names: Sequence[str],
    size: str,
    seeds: int | None = None,
    slots: int | None = None,
    first: int = 0,
) -> Plan:
    """Return the jobs of some figures, those that matter most first.

    `seeds` and `slots` replace the size's, `first` is the number of the first draw. Each job's
    notes say which figures of the paper need it, also those that were not asked for.
    """
    paper.check_size(size)
    found: dict[str, Job] = {}
    for name in (*paper.figures, *paper.beyond):
        for job in _figure_jobs(paper, name, size, Draws(seeds, first), slots):
            known = found.setdefault(job.key, job)
            if known is not job:
                figures = list(dict.fromkeys([*known.notes["figures"], name]))
                rank = min(known.rank, job.rank) if name in names else known.rank
                notes = {**known.notes, "figures": figures}
                found[job.key] = known._replace(rank=rank, notes=notes)
    wanted = [job for job in found.values() if set(job.notes["figures"]) & set(names)]
    # by nodes: they share data
    ordered = sorted(wanted, key=lambda job: (job.rank, job.seed, job.config.nodes))
    return Plan(paper.name, [], _named(ordered))


def _named(jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs with names that tell arms apart, by a key where facts do not."""
    programs: dict[str, dict[str, str]] = {}
    for job in jobs:
        programs.setdefault(job.arm, {}).setdefault(program_of(job), job.key[:6])
    named = []
    for job in jobs:
        known = programs[job.arm]
        tag = f" ({known[program_of(job)]})" if len(known) > 1 else ""
        named.append(job._replace(arm=job.arm + tag))
    return named


def share_of(jobs: Sequence[Job], text: str) -> list[Job]:
    """Return the jobs of one of several processes, programs whole: "2/4" is second of four."""
    part, _, parts = text.partition("/")
    number = int(part) if part.isdecimal() else 0
    of = int(parts) if parts.isdecimal() else 0
    require(
        1 <= number <= of,
        f"a share is written K/N with 1 <= K <= N, got '{text}'; 2/4 is the second of four",
    )
    turn: dict[str, int] = {}
    for job in jobs:
        turn.setdefault(program_of(job), len(turn) % of)
    return [job for job in jobs if turn[program_of(job)] == number - 1]


def program_of(job: Job) -> str:
    """Return what a job has compiled: its configuration, whatever the seed."""
    return job.kind + to_toml(seedless(job.config))


class Draws(NamedTuple):
    """Which draws are made: how many, if not the size's, and the number of the first."""

    number: int | None = None
    first: int = 0


def _figure_jobs(
    paper: Paper, name: str, size: str, asked: Draws, slots: int | None
) -> Iterator[Job]:
    """Yield the jobs of a figure: every variant, every combination of every group, every draw."""
    table, levels = paper.figure(name), dict(paper.sizes[size])
    known = {**levels.pop("variant", {}), **table.get("variant", {})}
    variants = pick(table["variants"], size)
    for variant in variants:
        own = pick(known, variant) | ({"slots": slots} if slots else {})
        draws = asked.number or own.get("seeds", pick(levels, table["draws"]))
        groups = [group for group in table["arm"] if variant in group.get("variants", variants)]
        for group, chosen, tables in expand(groups, levels):
            comparison = _comparison(paper, variant, own, {**tables, **chosen}, levels)
            kind = "descent" if group.get("descent") else CLOCK if group.get("clock") else "run"
            facts = _facts(paper, comparison, own["step"], kind)
            late = group.get("late", group["rank"])
            for draw in range(min(draws, group.get("seeds", draws))):
                rank = group["rank"] if draw < group.get("early", levels["early"]) else late
                rank += table.get("later", {}).get(variant, 0)
                one = comparison.model_copy(update={"seeds": (asked.first + draw,)})
                notes = {"figures": [name], "variant": variant}
                how = "descent" if kind == "descent" else "run"
                notes |= {"clock": True} if kind == CLOCK else {}
                arm = _arm(paper, variant, facts, kind)
                yield Job(job_key(one, how), arm, facts, one, how, rank, notes)


def _arm(paper: Paper, variant: str, facts: Table, kind: str) -> str:
    """Return a name for people: what the run is."""
    head = f"{variant} {facts['method']}, {facts['nodes']} nodes, {facts['factor']:.3g} eta"
    usual = {"partition": DEFAULT["partition"]["name"], "compute": "equal"}
    said = ("method", "nodes", "factor", "network", *paper.own.FACTS)
    rest = [(key, value) for key, value in facts.items() if key not in said]
    more = [f"{key} {value}" for key, value in rest if usual.get(key) != value]
    return ", ".join([head, *more, *([kind] if kind == CLOCK else [])])


def _comparison(paper: Paper, variant: str, own: Table, group: Table, levels: Table) -> Comparison:
    """Resolve the configuration of a group with one choice of its values, under seed 0."""
    table = {**group["algorithm"], "label": title(group["algorithm"]["name"])}
    raw: Json = {
        "name": "job",
        "nodes": group["nodes"],
        "slots": group.get("slots", own["slots"]),
        "record_every": group.get("record_every", own["record_every"]),
        "slot_s": float(own.get("slot_s", 1.0)),
        "seeds": [0],
        "data": own["data"],
        "model": own["model"],
        "partition": group.get("partition", own.get("partition", DEFAULT["partition"])),
        "network": group["network"],
        "algorithm": [{**table, "step": own["step"] * group.get("factor", 1)}],
    }
    raw |= {key: paper.head[key] for key in ("compression",) if key in paper.head}
    raw |= {key: group[key] for key in ("compute_slots", "l2") if key in group}
    if group.get("clock"):
        raw |= _clock(variant, own, raw, levels)
    return resolve(anchored(raw, paper.folder, warn=True))


def _clock(variant: str, own: Table, raw: Table, levels: Table) -> Json:
    """Return the tables of a run that keeps time only, its messages as long as the variant's."""
    require(
        "parameters" in own,
        f"variant '{variant}' needs `parameters` for its clocks; add it to sizes.toml",
    )
    clock = pick(levels, "clock")
    bits = own["parameters"] * clock["bits_per_parameter"] // clock["parameters"]
    tables = {key: clock[key] for key in ("data", "model", "partition", "record_every")}
    tables["network"] = {**raw["network"], "bits_per_parameter": bits}
    tables["compression"] = {"name": "none"}  # the bits are a price only
    return tables | {"algorithm": [{**raw["algorithm"][0], "step": clock["step"]}]}


def _facts(paper: Paper, comparison: Comparison, step: float, kind: str) -> Json:
    """Return what a claim or a panel may ask of a run, read off its configuration."""
    table, network = comparison.algorithm[0], comparison.network
    facts = {
        "method": METHOD if kind == "descent" else title(table["name"]),
        "nodes": comparison.nodes,
        "factor": 1.0 if kind == CLOCK else round(table["step"] / step, 9),
        "network": title(network["name"]),
        "partition": title(comparison.partition["name"]),
        "compute": "equal" if isinstance(comparison.compute_slots, int) else "unequal",
    }
    asked = paper.head.get("facts", {})
    facts |= {key: table[key] for key in asked.get("algorithm", ()) if table.get(key) is not None}
    facts |= {key: network[key] for key in asked.get("network", ()) if key in network}
    return facts | dict(paper.own.facts(facts, comparison))
