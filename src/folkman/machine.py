"""What this process may use of the machine: cores and memory."""

import os
from pathlib import Path

__all__ = ["usable_bytes", "usable_cores"]


def usable_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def usable_bytes() -> float | None:
    """Return the machine's memory, or what a batch system or container grants of it; None where nothing says so."""
    try:
        whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None
    try:
        return min(whole, float(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):  # "max", or no such file
        return whole
