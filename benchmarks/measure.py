"""From the answers of the sides to a report: medians, ratios, rates, and if the work was alike."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from benchmarks.tasks import Task, bytes_per_node_step, flops_per_node_step

__all__ = ["absent", "floors", "measured", "verdict", "with_ratios"]

SAME_STEPS = 0.02
"""Difference of the final training losses, as a part of what training gained, from the same
batches in the same order: float32 rounding, which the CNN amplifies (the models 0.5 % apart after
4 rounds; softmax 0.001 % after 200)."""

OTHER_BATCHES = 0.10
"""The same where a side draws its own mini-batches (0.1 % seen for softmax)."""


def measured(
    task: Task, name: str, version: str, answers: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Return the row of a side from its repetitions; seconds aside are not the work's."""
    seconds = [answer["seconds"] - answer.get("aside_s", 0.0) for answer in answers]
    middle = median(seconds)
    rate, flops = task.node_steps / middle, flops_per_node_step(task)
    return {
        "side": name,
        "status": "measured",
        "version": version,
        "seconds": middle,
        "seconds_each": seconds,
        "seconds_whole": median(answer["seconds"] for answer in answers),
        "node_steps_per_s": rate,
        "gflops": None if flops is None else rate * flops / 1e9,
        **{key: answers[-1][key] for key in ("way", "batches", "mixing") if key in answers[-1]},
    }


def absent(name: str, status: str, reason: str) -> dict[str, Any]:
    """Return the row of a side that was not measured: absent, failed or not available."""
    return {"side": name, "status": status, "reason": reason}


def with_ratios(
    rows: Sequence[dict[str, Any]], peak_gflops: float, own: str = "folkman"
) -> list[dict[str, Any]]:
    """Add to every measured row its time over folkman's, and its share of the machine's peak."""
    ours = next(
        (row["seconds"] for row in rows if row["side"] == own and row["status"] == "measured"), None
    )
    found = []
    for row in rows:
        more = {}
        if row["status"] == "measured":
            more = {
                "ratio": row["seconds"] / ours if ours else None,
                "of_peak": None if row["gflops"] is None else row["gflops"] / peak_gflops,
            }
        found.append({**row, **more})
    return found


def verdict(row: dict[str, Any], loss: float, ours: float, first: float) -> str:
    """Say whether a side did folkman's work.

    Its final training loss, as a part of the gain, is near enough.
    """
    apart = abs(loss - ours) / max(abs(first - ours), 1e-12)
    allowed = OTHER_BATCHES if row.get("batches") == "own" else SAME_STEPS
    return "same work" if apart <= allowed else "different work"


def floors(task: Task, peak_gflops: float, copy_gb_per_s: float) -> dict[str, float]:
    """Return the least seconds of a task on this machine: by its arithmetic, and by its bytes.

    Nothing, for a model whose arithmetic is not known.
    """
    flops, moved = flops_per_node_step(task), bytes_per_node_step(task)
    if flops is None or moved is None:
        return {}
    return {
        "arithmetic_s": task.node_steps * flops / (peak_gflops * 1e9),
        "bytes_s": task.node_steps * moved / (copy_gb_per_s * 1e9),
    }
