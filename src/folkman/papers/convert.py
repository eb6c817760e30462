"""Convert the packed results of folkman 0.1 (arms.json, metrics.parquet, theory.json) to a reproduction's folder.

    python -m folkman.papers.convert FOLDER

Writes sweep.toml, index.json, results.parquet and measured.json, and takes the old files away. Runs that had not ended
are not converted: reproduce them again.
"""

import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from folkman.config.text import dump
from folkman.files import write_whole
from folkman.papers.paper import DEFAULT
from folkman.record.store import SweepFolder

__all__ = ["convert"]

OLD = ("arms.json", "metrics.parquet", "theory.json")


def convert(root: Path) -> int:
    """Convert a folder; return how many runs it has."""
    content = json.loads((root / "arms.json").read_text(encoding="utf-8"))
    folder, jobs = SweepFolder(root), []
    for key, arm in content["arms"].items():
        facts, kind = arm["facts"], arm["kind"]
        job = {"key": key, "folder": folder.place(key), "arm": _name(arm["variant"], facts, key)}
        job |= {"algorithm": facts["method"], "label": facts["method"], "seed": arm["seed"], "settings": facts}
        job |= {"kind": "descent" if kind == "descent" else "run", "figures": arm["figures"]}
        job |= {"variant": arm["variant"], "state": arm["status"], "message": "", "seconds": arm["wall_s"]}
        jobs.append(job | ({"clock": True} if kind == "clock" else {}))
    head = {"name": DEFAULT, "axes": [], "metrics": ["train_loss", "test_accuracy"], "state": "stopped"}
    head |= {"workers": [], "paper": DEFAULT, "size": content["size"]}
    try:
        rows = pq.read_table(root / "metrics.parquet")
    except pa.ArrowInvalid as error:
        raise ValueError(f"expected Parquet in {root / 'metrics.parquet'}: {error}") from None
    write_whole(folder.results, lambda part: pq.write_table(rows, part, compression="zstd"))
    if (root / "theory.json").is_file():
        measured = json.loads((root / "theory.json").read_text(encoding="utf-8"))
        folder.write_measured(measured["rows"])
    folder.write_index(head, jobs)
    definition = dump({"paper": DEFAULT, "size": content["size"]})
    write_whole(folder.definition, lambda part: part.write_text(definition, encoding="utf-8"))
    for name in OLD:
        (root / name).unlink(missing_ok=True)
    return len(jobs)


def _name(variant: str, facts: dict[str, object], key: str) -> str:
    said = [f"{name} {value}" for name, value in facts.items() if name not in ("method", "nodes")]
    return f"{variant} {facts['method']}, {facts['nodes']} nodes, {', '.join(said)} ({key[:6]})"


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(f"{argument}: {convert(Path(argument))} runs converted")
