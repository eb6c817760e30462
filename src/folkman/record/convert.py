"""Convert the packed results of folkman 0.1 to a reproduction's folder.

They are arms.json, metrics.parquet and theory.json.

    python -m folkman.record.convert FOLDER

Writes sweep.toml, index.json, results.parquet and measured.json, and takes the old files away. Runs
that had not ended are not converted: reproduce them again.
"""

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from folkman.files import write_whole
from folkman.record.run import FINISHED, read_table
from folkman.record.store import OLD_RESULTS, SweepFolder

__all__ = ["convert", "main"]

PAPER = "xie2024"
"""The only paper that folkman 0.1 knew."""

OLD = (OLD_RESULTS, "metrics.parquet", "theory.json")


def convert(root: Path) -> int:
    """Convert a folder; return how many runs it has."""
    content = json.loads((root / OLD[0]).read_text(encoding="utf-8"))
    folder, jobs = SweepFolder(root), []
    met: Counter[tuple[str, int]] = Counter()
    for key, arm in content["arms"].items():
        facts, kind = arm["facts"], arm["kind"]
        job = {"key": key, "folder": folder.place(key), "arm": _name(arm["variant"], facts, kind)}
        method, state = facts["method"], arm["status"]
        job |= {"algorithm": method, "label": method, "seed": arm["seed"], "settings": facts}
        job |= {"kind": "descent" if kind == "descent" else "run", "figures": arm["figures"]}
        job |= {"variant": arm["variant"], "state": state, "message": "", "seconds": arm["wall_s"]}
        met[job["arm"], job["seed"]] += 1
        number = met[job["arm"], job["seed"]]
        job["arm"] += f" ({number})" if number > 1 else ""  # runs that no fact tells apart
        jobs.append(job | ({"clock": True} if kind == "clock" else {}))
    head = {"name": PAPER, "axes": [], "metrics": ["train_loss", "test_accuracy"]}
    head |= {"state": FINISHED, "workers": [], "paper": PAPER, "size": content["size"]}
    old = read_table(root / "metrics.parquet", "restore it")
    table = _tidy(old, {job["key"]: job for job in jobs})
    write_whole(folder.results, lambda part: pq.write_table(table, part, compression="zstd"))
    if (root / "theory.json").is_file():
        measured = json.loads((root / "theory.json").read_text(encoding="utf-8"))
        folder.write_measured(measured["rows"])
    folder.write_index(head, jobs)
    definition = f'paper = "{PAPER}"\nsize = "{content["size"]}"\n'
    write_whole(folder.definition, lambda part: part.write_text(definition, encoding="utf-8"))
    for name in OLD:
        (root / name).unlink(missing_ok=True)
    return len(jobs)


def _tidy(rows: pa.Table, jobs: Mapping[str, Mapping[str, object]]) -> pa.Table:
    """Return the old table as that of a sweep: arm, algorithm, label, seed, job, metrics."""
    keys = rows["key"].to_pylist()
    named = ("arm", "algorithm", "label", "seed")
    heads = {name: [jobs[key][name] for key in keys] for name in named}
    columns = {name: pa.array(values) for name, values in heads.items()} | {"job": rows["key"]}
    return pa.table(columns | {name: rows[name] for name in rows.column_names if name != "key"})


def _name(variant: str, facts: dict[str, object], kind: str) -> str:
    """Return a name for people: what tells the run from others."""
    usual = {"factor": 1.0, "partition": "iid", "compute": "equal"}
    left_out = ("method", "nodes", "network", "effective", "links")
    said = [
        f"{name} {value}"
        for name, value in facts.items()
        if name not in left_out and usual.get(name) != value
    ]
    said += [kind] if kind == "clock" else []
    return ", ".join([f"{variant} {facts['method']}", f"{facts['nodes']} nodes", *said])


def main(arguments: Sequence[str]) -> int:
    """Convert the folders that are named; return the exit code."""
    if not arguments:
        print("usage: python -m folkman.record.convert FOLDER ...", file=sys.stderr)
        return 2
    for root in map(Path, arguments):
        if not (root / OLD[0]).is_file():
            lacks = f"error: expected {OLD[0]} in {root}, there is none; nothing to convert"
            print(lacks, file=sys.stderr)
            return 2
        print(f"{root}: {convert(root)} runs converted")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
