"""Write the kept runs of fresh air as folders that `folkman audit` judges.

    python benchmarks/fresh_air_claims.py --data docs/data/fresh-air --out runs

    kept    learning.jsonl (the CNN on MNIST and CIFAR-10, 20 drops) and trouble-learning.jsonl
            (digits, ten drops): drops 0 to 19, seen before the claims were written
    tuned   opponents.jsonl (digits, every side at its own best step): drops 3000 to 3009, on which
            nothing was tuned

The claims are those of examples/papers/fresh-air. Free links do not depend on the drop: their one
run stands beside every drop. A node computes in every slot, so that gradients are slots, except
with FedAvg, whose number of gradients is known at the end and shared out evenly.
"""

import argparse
import hashlib
import json
from collections.abc import Iterator, Sequence
from math import nan
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from folkman.checks import require

PAPER = "examples/papers/fresh-air"
PARTITIONS = {"even": "iid", "label": "case2"}
TROUBLES = {
    "none": "digits",
    "stale control": "stale",
    "stale, 20 % lost": "stale_lost",
    "stale, 10 m/s": "stale_moving",
    "stale, one away": "stale_away",
    "all of these": "all_troubles",
}
"""Trouble of a line -> variant of a reading."""

TROUBLE_EVERY = 25
SIDES = {"adaptive": "fresh", "free": "free", "paper": "paper"}
"""Sides of opponents.jsonl that are arms of the other files, too."""

COLUMNS = ("slots", "seconds", "gradients", "train_loss", "test_accuracy", "mean_age")


class Kept(NamedTuple):
    """One run: what it is, and its way."""

    variant: str
    drop: int
    facts: dict[str, Any]
    rows: list[dict[str, float]]


def facts_of(arm: str, nodes: int, partition: str) -> dict[str, Any] | None:
    """Return the facts by which claims choose; None for arms that no claim asks for."""
    known = {
        "fresh": {"network": "radio", "schedule": "index", "message": "sum"},
        "paper": {
            "network": "radio",
            "schedule": "threshold",
            "message": "copy",
            "threshold_db": "best",
        },
        "free": {"network": "ideal"},
    }.get(arm)
    if known is None:
        return None
    head = {"method": "async_sharing", "nodes": nodes, "factor": 1.0, "compute": "equal"}
    return {**head, "partition": partition, **known}


def way(
    points: Sequence[tuple[float, float]], gradients: float, last: dict[str, float]
) -> list[dict[str, float]]:
    """Return rows of a way; accuracy and age are known at its end, and stand in every row."""
    end = points[-1][0]
    ends = {"test_accuracy": last["test_accuracy"], "mean_age": last["mean_age"]}
    return [
        {"slots": s, "seconds": s, "gradients": gradients * s / end, "train_loss": loss, **ends}
        for s, loss in points
    ]


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a file."""
    with path.open(encoding="utf-8") as source:
        yield from map(json.loads, source)


def learning(path: Path) -> Iterator[Kept]:
    """Yield the runs of the full size; free links beside every drop, split and number of nodes."""
    found = list(lines(path))
    for line in found:
        partition = PARTITIONS[line["split"]]
        facts = facts_of(line["arm"], line["nodes"], partition)
        if facts is None or line["arm"] == "free":
            continue
        yield Kept(line["data"], line["drop"], facts, _rows(line["rows"]))
        if line["arm"] == "fresh":
            free = next(f for f in found if f["arm"] == "free" and f["data"] == line["data"])
            alike = facts_of("free", line["nodes"], partition)
            yield Kept(line["data"], line["drop"], alike or {}, _rows(free["rows"]))


def _rows(rows: list[dict[str, float]]) -> list[dict[str, float]]:
    moved = [{**row, "seconds": row["slots"], "gradients": row["slots"]} for row in rows]
    return [{name: row[name] for name in COLUMNS} for row in moved]


def trouble(path: Path) -> Iterator[Kept]:
    """Yield the runs in trouble, and beside each fresh one free links, which have none."""
    found = list(lines(path))
    for line in found:
        partition, variant = PARTITIONS[line["split"]], TROUBLES[line["trouble"]]
        if line["arm"] != "free":
            facts = facts_of(line["arm"], line["nodes"], partition)
            yield Kept(variant, line["drop"], facts or {}, _in_slots(line))
        if line["arm"] == "fresh":
            free = next(f for f in found if f["arm"] == "free" and f["split"] == line["split"])
            facts = facts_of("free", line["nodes"], partition)
            yield Kept(variant, line["drop"], facts or {}, _in_slots(free))


def _in_slots(line: dict[str, Any]) -> list[dict[str, float]]:
    points = [(TROUBLE_EVERY * place, loss) for place, loss in enumerate(line["way"])]
    return way(points, points[-1][0], line)


def opponents(path: Path) -> Iterator[Kept]:
    """Yield the judged runs of every cell: fresh air, the paper's rule, free links, two FedAvg."""
    newest = {(line["cell"], line["side"]): line for line in lines(path)}  # some were made again
    for line in newest.values():
        nodes, _, _, split = line["cell"].split(",")
        arm = SIDES.get(line["side"], "")
        facts = facts_of(arm, int(nodes), PARTITIONS[split])
        if line["side"] in ("station", "devices"):
            facts = {"method": line["side"], "nodes": int(nodes), "partition": PARTITIONS[split]}
        if facts is None:
            continue
        for drop, run in line["judged"].items():
            points = [(float(slot), loss) for slot, loss in run["way"]]
            rows = way(points, run["gradients"], run)
            yield Kept(line["cell"].replace(",", ", "), int(drop), facts, rows)


def write(root: Path, runs: list[Kept]) -> None:
    """Write a folder as `folkman reproduce` leaves it."""
    root.mkdir(parents=True, exist_ok=True)
    jobs, rows = [], []
    for run in runs:
        told = json.dumps([run.variant, run.drop, run.facts], sort_keys=True)
        key = hashlib.sha256(told.encode()).hexdigest()[:20]
        head = {"key": key, "folder": f"jobs/{key}", "arm": f"{run.variant} {run.facts}"}
        head |= {"algorithm": run.facts["method"], "label": run.facts["method"], "seed": run.drop}
        head |= {"settings": run.facts, "kind": "run", "figures": ["drops"], "seconds": 0.0}
        jobs.append(head | {"variant": run.variant, "state": "finished", "message": ""})
        names = {name: head[name] for name in ("arm", "algorithm", "label", "seed")}
        rows += [{**names, "job": key, **row} for row in run.rows]
    require(
        len({job["key"] for job in jobs}) == len(jobs), "two lines are one run; name them apart"
    )
    index = {"format": 1, "name": "fresh-air", "axes": [], "metrics": [], "state": "finished"}
    index |= {"workers": [], "paper": PAPER, "size": "full", "jobs": jobs}
    (root / "index.json").write_text(json.dumps(index, separators=(",", ":")), encoding="utf-8")
    (root / "sweep.toml").write_text(f'paper = "{PAPER}"\nsize = "full"\n', encoding="utf-8")
    empty = dict.fromkeys(COLUMNS, nan)
    table = pa.Table.from_pylist([empty | row for row in rows])
    pq.write_table(table, root / "results.parquet", compression="zstd")


def main() -> None:
    """Write both folders."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("docs/data/fresh-air"))
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    seen = [*learning(args.data / "learning.jsonl"), *trouble(args.data / "trouble-learning.jsonl")]
    write(args.out / "kept", seen)
    write(args.out / "tuned", list(opponents(args.data / "opponents.jsonl")))


if __name__ == "__main__":
    main()
