"""The page of kept results: `python -m benchmarks --page` writes it anew from their files.

A result is kept by `python -m benchmarks ... --out docs/data/benchmarks/NAME.json`.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.tables import COLUMNS, cell, remark, title
from folkman.files import write_whole

__all__ = ["KEPT", "PAGE", "page", "write_page"]

ROOT = Path(__file__).resolve().parents[1]
KEPT, PAGE = ROOT / "docs" / "data" / "benchmarks", ROOT / "docs" / "benchmarks-results.md"

HEAD = """# Benchmark results

`python -m benchmarks --page` writes this page from the files in `docs/data/benchmarks`. Each
section is one run of the benchmark, in which all sides took turns. [How fast](performance.md) says
what the works are and what is timed. Ratios within one table mean something; seconds of two tables
do not compare. A number above 1 in the column *x folkman* means that folkman is faster. The remark
*others took* means that other programs used the cores meanwhile: repeat such a run before you trust
it.
"""

NONE = """No run is kept yet. A run belongs here when the machine was quiet meanwhile.
"""


def write_page(kept: Path, target: Path) -> None:
    """Write the page of all results in a folder."""
    text = page(sorted(kept.glob("*.json")))
    write_whole(target, lambda part: part.write_text(text, encoding="utf-8"))


def page(files: Iterable[Path]) -> str:
    """Return the page of some files of results."""
    sections = [_section(file.stem, _read(file)) for file in files]
    return "\n".join([HEAD, *(sections or [NONE])])


def _read(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text(encoding="utf-8"))


def _section(name: str, results: dict[str, Any]) -> str:
    versions = ", ".join(f"{package} {number}" for package, number in results["versions"].items())
    machine = f"{results['processor']}, {results['cores']} cores"
    lines = [
        f"## {name}",
        "",
        f"* {machine}, load {results['load']:.1f} at the start",
        f"* Python {results['python']}, {versions}",
        f"* {results['made'][:10]}, medians of {results['rounds']} repetitions",
        "",
        "```sh",
        " ".join(results["command"]),
        "```",
        "",
    ]
    for work in results["works"]:
        lines += [f"### {work['name']}: {work['title']}", ""]
        for found in work["runs"]:
            lines += _table(found)
    return "\n".join(lines)


def _table(found: dict[str, Any]) -> list[str]:
    """Return the table of one run, as on the screen."""
    rows = found["rows"]
    keys = [key for key in COLUMNS if any(row.get(key) is not None for row in rows)]
    heads = ["side", *(COLUMNS[key] for key in keys), "remark"]
    body = [
        [_side(row), *(cell(key, row.get(key)) for key in keys), remark(row).replace("|", "/")]
        for row in rows
    ]
    lines = [heads, ["---"] * len(heads), *body]
    words = title(found)
    return [*([f"#### {words}", ""] if words else []), *map(_line, lines), ""]


def _side(row: dict[str, Any]) -> str:
    version = row.get("version")
    return f"{row['side']} {version}" if version and row["side"] != "folkman" else row["side"]


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
