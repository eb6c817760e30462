"""The expectations E7 to E15 of docs/comparison-plan.md, each judged by its own rule."""

import math
from collections.abc import Iterator, Mapping, Sequence

from benchmarks.comparison import Cell
from benchmarks.comparison_expected import verdict_of
from benchmarks.comparison_judge import (
    MARGIN,
    NEVER_WAITS,
    YARDSTICK,
    Compared,
    Side,
    compared,
    mean_ranks,
)
from benchmarks.comparison_momentum import (
    MEASURED,
    PAIRS,
    found_in,
    geometric_mean,
    ratios,
    verdicts,
)

__all__ = ["expected_of_added", "of_fresh_seeds", "on_fresh_seeds"]

Cells = Mapping[str, list[Side]]
Found = tuple[str, str]
UNEVEN = {"mnist-softmax": "dirichlet", "mnist-mlp": "dirichlet", "cnn": "label"}
FRESH = tuple(str(seed) for seed in range(5, 10))
"""Seeds of digits on which nobody had looked at the measured own part."""


def expected_of_added(plan: Sequence[Cell], cells: Cells, unranked: set[str]) -> str:
    """Return the table of expectations of the added cells and sides, with verdicts."""
    lines = ["| # | found | verdict |", "|---|---|---|"]
    for number, (found, verdict) in enumerate(_all(plan, cells, unranked), start=7):
        lines.append(f"| E{number} | {found or 'nothing yet'} | {verdict} |")
    return "\n".join(lines)


def _all(plan: Sequence[Cell], cells: Cells, unranked: set[str]) -> Iterator[Found]:
    yield _somebody_ahead(cells)
    yield _further_apart(cells)
    yield _above_on_the_radio(cells)
    yield _first_again(plan, cells, unranked)
    yield _part_of_the_lead(cells)
    yield _rest_of_the_lead(cells)
    yield _no_help_over_long_transfers(plan, cells)
    yield from _measured(plan, cells)


def _verdict(*, refuted: bool, missing: int, settled: bool) -> str:
    """Return the verdict; settled: it would not be refuted whatever the missing cells showed."""
    if missing and settled and not refuted:
        return "not refuted, whatever the missing cells show"
    return verdict_of(refuted, not missing)


def _more_ahead_than_behind(found: Mapping[str, Compared], number: int) -> tuple[bool, bool]:
    """Tell whether that is refuted of `number` cells, and whether no missing one can refute it."""
    ahead, _, behind = verdicts(found)
    missing = number - len(found)
    return ahead + missing <= behind, ahead > behind + missing


def _somebody_ahead(cells: Cells) -> Found:
    """E7: MNIST, even data, Gamma 5 and 15."""
    told, nobody, unknown, missing = [], 0, 0, 0
    for cell in (f"{model}-{gamma}-even" for model in UNEVEN for gamma in (5, 15)):
        own = {cell: cells.get(cell, [])}
        by_label = {label: ratios(own, label, YARDSTICK) for label in NEVER_WAITS}
        ahead = [label for label, found in by_label.items() if verdicts(found)[0]]
        whole = all(by_label.values())
        missing += not whole
        nobody += whole and not ahead
        unknown += not whole and not ahead
        if not any(by_label.values()):
            continue
        told.append(f"`{cell}`: {', '.join(ahead) or 'nobody'}{'' if whole else ' so far'}")
    settled = nobody + unknown <= 1
    return "; ".join(told), _verdict(refuted=nobody > 1, missing=missing, settled=settled)


def _settings() -> list[tuple[str, str]]:
    """Return the models of MNIST with even and with uneven data."""
    return [(model, data) for model, uneven in UNEVEN.items() for data in ("even", uneven)]


def _further_apart(cells: Cells) -> Found:
    """E8: Algorithm 1 over FedAvg from Gamma 5 to 15."""
    found = ratios(cells, "Algorithm 1", YARDSTICK)
    told, falls = [], 0
    for model, data in _settings():
        before, after = (found.get(f"{model}-{gamma}-{data}") for gamma in (5, 15))
        if before is not None and after is not None:
            falls += math.log(after.ratio / before.ratio) < -MARGIN
            told.append(f"{model}, {data}: {before.ratio:.2f} to {after.ratio:.2f}")
    return "; ".join(told), verdict_of(falls > 1, len(told) == 2 * len(UNEVEN))


def _above_on_the_radio(cells: Cells) -> Found:
    """E9: Algorithm 1 over FedAvg on the radio."""
    found = ratios(cells, "Algorithm 1", YARDSTICK)
    names = [f"{model}-radio-{data}" for model, data in _settings()]
    known = {name: found[name].ratio for name in names if name in found}
    told = "; ".join(f"`{name}`: {ratio:.2f}" for name, ratio in known.items())
    below = any(ratio < 1 for ratio in known.values())
    return told, verdict_of(below, len(known) == len(names))


def _first_again(plan: Sequence[Cell], cells: Cells, unranked: set[str]) -> Found:
    """E10: mean ranks of the eighteen over the added cells."""
    added = [cell.name for cell in plan if cell.added]
    everybody = {side.label for sides in cells.values() for side in sides} - unranked
    own = [[side for side in cells.get(name, []) if side.label not in unranked] for name in added]
    whole = [sides for sides in own if sides and {side.label for side in sides} == everybody]
    if not whole:
        return "", verdict_of(refuted=False, complete=False)
    found = mean_ranks(whole, "time")
    best = sorted(found, key=lambda label: found[label])[:3]
    told = ", ".join(f"{label} {found[label][0]:.1f}" for label in best)
    complete = len(whole) == len(added)
    refuted = complete and best[0] != "DFedAvgM"
    return f"{told} over {len(whole)} cells", verdict_of(refuted, complete)


def _part_of_the_lead(cells: Cells) -> Found:
    """E11: DFedAvgM over FedAvg, with its momentum and without."""
    none, heavy = (ratios(cells, label, YARDSTICK) for label in PAIRS["DFedAvgM"])
    both = [name for name in none if name in heavy]
    if not both:
        return "", verdict_of(refuted=False, complete=False)
    means = [geometric_mean({name: found[name] for name in both}) for found in (heavy, none)]
    told = f"with 0.9 {means[0]:.2f}, with none {means[1]:.2f}, over {len(both)} cells"
    complete = len(both) == len(cells)
    return told, verdict_of(complete and math.log(means[1] / means[0]) < MARGIN, complete)


def _rest_of_the_lead(cells: Cells) -> Found:
    """E12: DFedAvgM against FedAvg at equal momentum."""
    told, missing, refuted, settled = [], 0, False, True
    for which, name in enumerate(("none", "0.9")):
        found = ratios(cells, PAIRS["DFedAvgM"][which], PAIRS["FedAvg"][which])
        missing = max(missing, len(cells) - len(found))
        against, certain = _more_ahead_than_behind(found, len(cells))
        refuted, settled = refuted or against, settled and certain
        if found:
            ahead, level, behind = verdicts(found)
            told.append(f"{name}: ahead in {ahead}, level in {level}, behind in {behind}")
    return "; ".join(told), _verdict(refuted=refuted, missing=missing, settled=settled)


def _no_help_over_long_transfers(plan: Sequence[Cell], cells: Cells) -> Found:
    """E13: Algorithm 1 with momentum against itself without, Gamma 15."""
    names = [cell.name for cell in plan if cell.config["network"].get("gamma") == 15]
    none, heavy = PAIRS["Algorithm 1"]
    found = ratios({name: cells.get(name, []) for name in names}, heavy, none)
    ahead, level, behind = verdicts(found)
    told = f"ahead in {ahead}, level in {level}, behind in {behind}" if found else ""
    missing = len(names) - len(found)
    settled = 3 * (ahead + missing) <= len(names)
    return told, _verdict(refuted=3 * ahead > len(names), missing=missing, settled=settled)


def _measured(plan: Sequence[Cell], cells: Cells) -> Iterator[Found]:
    """E14 and E15: the measured own part, on seeds at which nobody had looked."""
    wired = [cell for cell in plan if cell.config["network"]["name"] == "pipelined"]
    even = [c for c in wired if "-even" in c.name and "compute_slots" not in c.config]
    found = on_fresh_seeds(even, cells, "Algorithm 1")
    ahead, level, behind = verdicts(found)
    told = f"ahead in {ahead}, level in {level}, behind in {behind} of {len(even)}"
    missing, others = len(even) - len(found), level + behind
    settled = others + missing <= 2
    verdict = _verdict(refuted=others > 2, missing=missing, settled=settled)
    yield told if found else "", verdict
    found = on_fresh_seeds(wired, cells, YARDSTICK)
    ahead, level, behind = verdicts(found)
    told = f"ahead in {ahead}, level in {level}, behind in {behind} of {len(wired)}"
    refuted, settled = _more_ahead_than_behind(found, len(wired))
    missing = len(wired) - len(found)
    verdict = _verdict(refuted=refuted, missing=missing, settled=settled)
    yield told if found else "", verdict


def on_fresh_seeds(plan: Sequence[Cell], cells: Cells, other: str) -> dict[str, Compared]:
    """Return how the measured own part compares with another side, on seeds nobody had seen."""
    found = {}
    for cell in plan:
        sides = cells.get(cell.name, [])
        one, two = found_in(sides, MEASURED), found_in(sides, other)
        if one is not None and two is not None:
            found[cell.name] = compared(of_fresh_seeds(one, cell), of_fresh_seeds(two, cell))
    return found


def of_fresh_seeds(side: Side, cell: Cell) -> Side:
    """Return a side on the seeds at which nobody had looked: all but for digits."""
    seeds = FRESH if cell.config["data"]["name"] == "digits" else side.seeds
    places = [side.seeds.index(seed) for seed in seeds]
    measure = {axis: values[places] for axis, values in side.measure.items()}
    return side._replace(seeds=seeds, measure=measure, accuracy=side.accuracy[places])
