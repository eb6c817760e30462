"""Join packed draws of a paper into a kept folder: rows, index and provenance.

    python benchmarks/audit_keep.py docs/data/reproduction/full runs/third runs/legends0

The draws come from `benchmarks/audit_draws.py --pack`. A run that is there is refused, so that no
draw is kept twice. Of a job's entry in the index only what an audit reads is kept: neither its
memory nor its worker.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from folkman.record.store import SweepFolder

NOT_KEPT = ("rss_mb", "peak_mb", "worker", "compute_s", "verdict")


def joined_index(kept: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return the index of both; every job of the new folder has ended and is not there yet."""
    keys = {job["key"] for job in kept["jobs"]}
    jobs = [job for job in new["jobs"] if job["state"] == "finished"]
    if again := [job["arm"] for job in jobs if job["key"] in keys]:
        raise SystemExit(f"expected new runs, {len(again)} are kept already: {again[0]}, ...")
    entries = [{k: v for k, v in job.items() if k not in NOT_KEPT} for job in jobs]
    return {**kept, "updated": new["updated"], "jobs": [*kept["jobs"], *entries]}


def joined_provenance(kept: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return with what every run of both was made."""
    made, runs = list(kept["made"]), dict(kept["runs"])
    for key, (place, started) in new["runs"].items():
        facts = {**new["made"][place], "platform": "Linux x86_64"}
        if facts not in made:
            made.append(facts)
        runs[key] = [made.index(facts), started]
    return {**kept, "made": made, "runs": runs}


def joined_rows(kept: pa.Table, new: pa.Table) -> pa.Table:
    """Return the rows of both, in the columns that are kept."""
    return pa.concat_tables([kept, new.select(kept.column_names).cast(kept.schema)])


def main() -> None:
    """Join the folders that are named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("kept", type=Path)
    parser.add_argument("new", type=Path, nargs="+")
    asked = parser.parse_args()
    place = SweepFolder(asked.kept)
    for root in asked.new:
        folder = SweepFolder(root)
        index = joined_index(place.read_index(), folder.read_index())
        provenance = [json.loads((f / "provenance.json").read_text()) for f in (asked.kept, root)]
        rows = joined_rows(*(pq.read_table(f / "results.parquet") for f in (asked.kept, root)))
        pq.write_table(rows, asked.kept / "results.parquet", compression="zstd")
        whole = json.dumps(joined_provenance(*provenance), indent=1)
        (asked.kept / "provenance.json").write_text(whole + "\n")
        (asked.kept / "index.json").write_text(json.dumps(index, indent=1) + "\n")
        print(f"{root}: {len(index['jobs'])} runs in all, {rows.num_rows} rows")


if __name__ == "__main__":
    main()
