"""The experiments of the paper as data: `paper/*.toml` -> the list of runs to be made, most important first.

A figure's file names groups of runs (`[[arm]]`); a group crosses the lists under `each`. A value that starts with @ is
one of those being crossed, or of the size (`paper/sizes.toml`), and "1/@nodes" is its reciprocal. What comes out is an
`Arm`: one algorithm, one network, one seed, a `Comparison` as `folkman run` takes it, under a key that is the SHA-256
of that configuration. Two figures that need the same run therefore share it.
"""

import hashlib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from itertools import product
from typing import Any, NamedTuple

from folkman.checks import pick, require
from folkman.config.build import seedless
from folkman.config.comparison import Comparison, resolve, to_toml
from folkman.config.own_code import by_content

__all__ = ["BEYOND", "FIGURES", "SIZES", "Arm", "Figure", "figure", "plan", "read_table", "settle", "share"]

FIGURES = ("fig5", "fig6", "fig7", "fig8", "table1")
"""What `folkman reproduce all` makes."""
BEYOND = "beyond"
SIZES = ("smoke", "laptop", "full")

CLOCK_PARAMETERS = 2
"""Parameters of the quadratic that stands in for a model where only the timing of messages is asked for."""


class Arm(NamedTuple):
    """One run of an experiment."""

    key: str  # of its configuration
    figure: str
    variant: str  # data and model
    rank: int  # the lower, the earlier
    facts: dict[str, Any]  # what it is: method, nodes, gamma, scaling, factor, ...
    seed: int
    comparison: Comparison
    kind: str  # run, clock (timing only), descent (plain gradient descent on one machine)


class Figure(NamedTuple):
    """A figure's file under one size."""

    name: str
    title: str
    variants: tuple[str, ...]
    panels: tuple[dict[str, Any], ...]  # "@" looked up
    arms: tuple[Arm, ...]


def figure(name: str, size: str, seeds: int | None = None, slots: int | None = None) -> Figure:
    """Read a figure's file under a size; `seeds` and `slots` replace those of the size."""
    table = read_table(name)
    levels = dict(pick(read_table("sizes"), size))
    known = levels.pop("variant") | table.get("variant", {})
    variants = tuple(table["variants"][size])
    arms = []
    for variant in variants:
        own = known[variant] | ({"slots": slots} if slots else {})
        draws = seeds or own.get("seeds", levels[table["draws"]])
        for group in table["arm"]:
            if variant in group.get("variants", variants):
                arms += _group(table, variant, own, levels, group, min(draws, group.get("seeds", draws)))
    panels = tuple(_panel(panel, levels) for panel in table.get("panel", ()))
    return Figure(name, table["title"], variants, panels, tuple(arms))


def plan(names: Sequence[str], size: str, seeds: int | None = None, slots: int | None = None) -> list[Arm]:
    """Return the runs of some figures, those that matter most first; a run of two figures is there twice."""
    arms = [arm for name in names for arm in figure(name, size, seeds, slots).arms]
    return sorted(arms, key=lambda arm: (arm.rank, arm.seed, arm.comparison.nodes))  # by nodes: they share data


def share(arms: Sequence[Arm], text: str) -> list[Arm]:
    """Return the runs of one of several processes: "2/4" is the second of four. Seeds of a program stay together."""
    part, _, parts = text.partition("/")
    number = int(part) if part.isdecimal() else 0
    of = int(parts) if parts.isdecimal() else 0
    require(1 <= number <= of, f"a share is written K/N with 1 <= K <= N, got '{text}'; 2/4 is the second of four")
    turn: dict[str, int] = {}
    for arm in arms:
        turn.setdefault(_program(arm), len(turn) % of)
    return [arm for arm in arms if turn[_program(arm)] == number - 1]


def _program(arm: Arm) -> str:
    """Return what a run has compiled: its configuration, whatever the seed."""
    return arm.kind + to_toml(seedless(arm.comparison))


def settle(value: Any, known: Mapping[str, Any]) -> Any:
    """Return a value with every "@name" and "1/@name" in it looked up."""
    if isinstance(value, dict):
        return {key: settle(item, known) for key, item in value.items()}
    if isinstance(value, list):
        return [settle(item, known) for item in value]
    if not isinstance(value, str) or "@" not in value:
        return value
    over, _, name = value.partition("@")
    require(over in ("", "1/"), f"expected '@name' or '1/@name', got {value!r}")
    found = pick(known, name)
    if not over:
        return found
    return [1 / each for each in found] if isinstance(found, list) else 1 / found


def read_table(name: str) -> dict[str, Any]:
    """Read one of the files under `paper/`."""
    text = resources.files("folkman.papers.xie2024").joinpath(f"{name}.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def _panel(panel: Mapping[str, Any], levels: Mapping[str, Any]) -> dict[str, Any]:
    """Look up the values of a panel; labels are filled in later, from the facts of a run."""
    curves = [{**settle({k: v for k, v in c.items() if k != "label"}, levels), "label": c["label"]}
              for c in panel["curves"]]  # fmt: skip
    return {"title": panel["title"], "curves": curves}


def _group(
    table: Mapping[str, Any],
    variant: str,
    own: Mapping[str, Any],
    levels: Mapping[str, Any],
    group: Mapping[str, Any],
    draws: int,
) -> Iterator[Arm]:
    """Yield the runs of one group: every combination of `each`, every seed."""
    crossed = {key: _as_list(settle(values, levels)) for key, values in group.get("each", {}).items()}
    for values in product(*crossed.values()):
        chosen = dict(zip(crossed, values, strict=True))
        comparison = _comparison(variant, own, settle(dict(group), {**levels, **chosen}) | chosen)
        kind = "descent" if group.get("descent") else "clock" if group.get("clock") else "run"
        facts = _facts(comparison, own["step"], kind)
        for seed in range(draws):
            early = seed < group.get("early", levels["early"])
            rank = group["rank"] if early else group.get("late", group["rank"])
            rank += table.get("later", {}).get(variant, 0)
            one = comparison.model_copy(update={"seeds": (seed,)})
            key = hashlib.sha256(f"{kind}\n{to_toml(by_content(one))}".encode()).hexdigest()[:16]
            yield Arm(key, table["figure"], variant, rank, facts, seed, one, kind)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _comparison(variant: str, own: Mapping[str, Any], group: Mapping[str, Any]) -> Comparison:
    """Resolve the configuration of a group with one choice of its values, under seed 0."""
    factor = group.get("factor", 1)
    raw: dict[str, Any] = {
        "name": "arm",
        "nodes": group["nodes"],
        "slots": group.get("slots", own["slots"]),
        "record_every": group.get("record_every", own["record_every"]),
        "slot_s": float(own.get("slot_s", 1.0)),
        "seeds": [0],
        "data": own["data"],
        "model": own["model"],
        "partition": group.get("partition", own.get("partition", {"name": "iid"})),
        "network": group["network"],
        "algorithm": [{**group["algorithm"], "label": "arm", "step": own["step"] * factor}],
    }
    raw |= {"compute_slots": group["compute_slots"]} if "compute_slots" in group else {}
    if group.get("clock"):
        require("parameters" in own, f"variant '{variant}' needs `parameters` for its clocks; add it to sizes.toml")
        bits = own["parameters"] * 16 // CLOCK_PARAMETERS
        stand_in = {"name": "quadratic", "dim": CLOCK_PARAMETERS}
        raw |= {"data": stand_in, "model": {"name": "quadratic"}, "partition": {"name": "given"}}
        raw["network"] = {**group["network"], "bits_per_parameter": bits}
        raw["algorithm"][0]["step"] = 0.01
        raw["record_every"] = 5
    return resolve(raw)


def _facts(comparison: Comparison, step: float, kind: str) -> dict[str, Any]:
    """Return what a claim or a panel may ask of a run, read off its configuration."""
    table, network = comparison.algorithm[0], comparison.network
    method = "centralised" if kind == "descent" else table["name"]
    facts = {
        "method": method,
        "nodes": comparison.nodes,
        "factor": 1.0 if kind == "clock" else round(table["step"] / step, 9),
        "network": network["name"],
        "partition": comparison.partition["name"],
        "compute": "equal" if isinstance(comparison.compute_slots, int) else "unequal",
    }
    facts |= {key: table[key] for key in ("scaling", "tau", "max_age") if table.get(key) is not None}
    facts |= {key: network[key] for key in ("gamma", "threshold_db", "allocation", "period") if key in network}
    stretch = {"local": 1 / comparison.nodes, "figure": comparison.nodes}.get(facts.get("scaling", ""), 1.0)
    facts["effective"] = round(facts["factor"] * stretch, 9)  # of the network's model, for equal shares
    around_server = method in ("fedavg", "adafl", "fedap", "fedsa", "centralised")
    if around_server:
        facts["links"] = {"ideal": "free", "radio": "radio"}.get(network["name"], "timed")
    return facts
