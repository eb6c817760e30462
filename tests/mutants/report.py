"""What became of the mutants: one line of JSON each, and a table."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.mutants.bench import Outcome
from tests.mutants.choose import Plan
from tests.mutants.sites import Site


def verdict(site: Site, chosen: Plan, outcome: Outcome) -> dict[str, Any]:
    """Say what became of a mutant."""
    failed = [
        entry
        for entry in outcome.entries
        if entry["event"] == "broken" or entry.get("outcome") == "failed"
    ]
    started = [entry["node"] for entry in outcome.entries if entry["event"] == "start"]
    by, why = (failed[0]["node"], failed[0]["why"]) if failed else ("", "")
    if outcome.timed_out:
        status, by = "timeout", started[-1] if started else "before any test"
    elif outcome.code == 0:
        status = "survived"
    elif failed or outcome.code < 0 or started:
        status = "killed"
        why = why or f"pytest ended with {outcome.code}"
    else:
        status, why = "unable", outcome.tail[-300:]
    return {
        "mutant": site.name,
        "status": status,
        "by": by,
        "why": why,
        "tests": len(chosen.tests),
        "ran": len(started),
        "touching": chosen.touching,
        "left_out": chosen.left_out,
        "seconds": round(outcome.wall_s, 2),
        "site": asdict(site),
    }


def read(path: Path) -> list[dict[str, Any]]:
    """Read the lines of an earlier report; a line cut short is left out."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found


def report(results: Sequence[Mapping[str, Any]], root: Path) -> str:
    """Return the table by folder, and the survivors."""
    counts: dict[str, Counter[str]] = {}
    for result in results:
        folder = Path(result["site"]["path"]).parts[2]
        for name in (folder, "all"):
            counts.setdefault(name, Counter())[result["status"]] += 1
    rows = [
        f"{'folder':<12}{'killed':>8}{'timeout':>9}{'survived':>10}{'unable':>8}{'killed %':>10}"
    ]
    for folder in sorted(counts, key=lambda name: (name == "all", name)):
        count = counts[folder]
        caught, able = count["killed"] + count["timeout"], count.total() - count["unable"]
        rows.append(
            f"{folder:<12}{count['killed']:>8}{count['timeout']:>9}{count['survived']:>10}"
            f"{count['unable']:>8}{100 * caught / max(able, 1):>10.1f}"
        )
    for status in ("timeout", "unable", "survived"):
        chosen = [result for result in results if result["status"] == status]
        rows += ["", f"{status}: {len(chosen)}"] if chosen else []
        for result in sorted(chosen, key=lambda result: _place(result["site"])):
            rows.append(shown(result["site"]))
            lines = (root / result["site"]["path"]).read_text().splitlines()
            rows.append(f"    {lines[result['site']['line'] - 1].strip()}")
            how = f"{result['touching']} tests run it"
            if result["left_out"]:
                how += f", {result['left_out']} of them left out for want of time"
            rows.append(f"    {how}; {result['ran']} of {result['tests']} chosen tests ran")
    return "\n".join(rows)


def _place(site: Mapping[str, Any]) -> tuple[Any, ...]:
    return (site["path"], site["line"], site["col"], site["kind"])


def shown(site: Mapping[str, Any]) -> str:
    """Return a mutant in one line."""
    before, after = (" ".join(site[name].split())[:100] for name in ("before", "after"))
    return (
        f"{site['path']}:{site['line']}:{site['col']} {site['kind']}: "
        f"{before} -> {after or 'nothing'}"
    )
