"""The tables of the benchmark."""

from typing import TYPE_CHECKING, Any

from benchmarks.tasks import Work

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["COLUMNS", "cell", "remark", "table", "title"]

COLUMNS = {
    "seconds": "seconds",
    "ratio": "x folkman",
    "node_steps_per_s": "node-steps/s",
    "gflops": "GFLOP/s",
    "of_peak": "of peak",
    "memory_mb": "MB",
    "device_memory_mb": "GPU MB",
    "startup_s": "start-up s",
    "warm_up_s": "warm-up s",
    "loss": "loss",
}
"""Key of a row -> heading."""

QUIET_CORES = 0.25
"""Cores that others may take while a side works, beyond which its row says so."""


def table(work: Work, found: dict[str, Any]) -> "Table":
    """Return the table of one run of a work; a column that no row has is left out."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    rows = found["rows"]
    columns = [key for key in COLUMNS if any(row.get(key) is not None for row in rows)]
    made = Table(
        title=escape(f"{work.name}: {work.title}; {title(found)}"),
        box=box.SIMPLE_HEAD,
        title_justify="left",
    )
    made.add_column("side", no_wrap=True)
    for key in columns:
        made.add_column(COLUMNS[key], justify="right", no_wrap=True)
    made.add_column("remark")
    for row in rows:
        made.add_row(
            escape(row["side"]), *(cell(key, row.get(key)) for key in columns), escape(remark(row))
        )
    return made


def cell(key: str, value: float | None) -> str:
    """Return a number in the form of its column; a dash for none."""
    if value is None:
        return "-"
    if key == "of_peak":
        return f"{100 * value:.1f} %"
    if key == "ratio":
        return f"{value:.2f}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def title(found: dict[str, Any]) -> str:
    """Return what one run was of, and what the machine can do at most."""
    task, parts = found.get("task"), []
    if task:
        parts += [task["label"]] if task.get("label") else []
        cells = f" in cells of {task['cell']}" if task["cell"] else ""
        parts.append(f"{task['nodes']:,} nodes{cells}, {task['rounds']} rounds")
    if "peak" in found:
        peak, floors = found["peak"], found["floors"]
        parts.append(f"peak {peak['gemm_gflops']:.0f} GFLOP/s, {peak['copy_gb_per_s']:.0f} GB/s")
        parts += [
            f"floors {floors['arithmetic_s']:.3g} s (arithmetic), {floors['bytes_s']:.3g} s (bytes)"
        ] * bool(floors)
    return "; ".join(parts)


def remark(row: dict[str, Any]) -> str:
    """Return why a row has no numbers, or what sets it apart."""
    if row["status"] != "measured":
        return f"{row['status']}: {row['reason']}"
    notes = [row["work"]] if row.get("work") == "different work" else []
    notes += [f"{row['batches']} batches"] if "batches" in row else []
    notes += [f"mixes {row['mixing']}"] if "mixing" in row else []
    notes += [row[key] for key in ("way", "remark") if key in row]
    foreign = row.get("foreign_cores") or 0.0
    notes += [f"others took {foreign:.1f} cores" if foreign > QUIET_CORES else ""]
    return ", ".join(filter(None, notes))
