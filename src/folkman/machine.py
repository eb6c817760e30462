"""What this process may use of the machine: cores and memory."""

import os
from pathlib import Path

__all__ = ["granted_bytes", "usable_bytes", "usable_cores"]

CGROUPS = Path("/sys/fs/cgroup")


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
        own = Path("/proc/self/cgroup").read_text(encoding="utf-8")
    except OSError:
        return whole
    return min(whole, granted_bytes(own, CGROUPS))


def granted_bytes(own: str, root: Path) -> float:
    """Return the least limit of the control groups that a process is in, and of those around them.

    `own` is its /proc/self/cgroup, lines "0::/path" (version 2) or "4:memory:/path" (version 1); infinite without one.
    """
    least = float("inf")
    for line in own.splitlines():
        _, kinds, path = line.split(":", 2)
        if kinds not in ("", "memory"):
            continue
        top, name = (root / "memory", "memory.limit_in_bytes") if kinds else (root, "memory.max")
        group = top / path.strip("/")
        for folder in (group, *group.parents):
            least = min(least, _number(folder / name))
            if folder == top:
                break
    return least


def _number(file: Path) -> float:
    try:
        return float(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # no such file, or "max"
        return float("inf")
