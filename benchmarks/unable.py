"""What an opponent cannot do of a task, and why: its row says so, and nothing stands in for it."""

from benchmarks.tasks import Task

__all__ = ["unable"]

IN_PAIRS = "gossipy"
ALL_ALIKE = ("pfl", IN_PAIRS)
"""They are handed mini-batches or deal the samples themselves, and weigh every node alike."""


def unable(task: Task, opponent: str) -> str | None:
    """Return why an opponent cannot do a task; None where it can."""
    if task.beyond:
        return task.beyond
    if task.uneven and opponent in ALL_ALIKE:
        return "it weighs every node alike, and these hold unequal numbers of samples"
    if task.uneven and task.batch is None and opponent == "fedjax":
        return "its batches are of one size, and these are all samples of unequal nodes"
    return None
