"""The machine: cores and memory that this process may use and holds, and its own addresses."""

import contextlib
import ctypes
import ipaddress
import os
import re
from pathlib import Path
from typing import Any

__all__ = [
    "compiled_in_haste",
    "granted_bytes",
    "hold_little",
    "is_loopback",
    "resident_bytes",
    "trim",
]
__all__ += ["usable_bytes", "usable_cores"]

CGROUPS = Path("/sys/fs/cgroup")


def usable_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def usable_bytes() -> float | None:
    """Return the machine's memory, or what a batch system or container grants of it.

    None where nothing says so.
    """
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

    `own` is its /proc/self/cgroup, lines "0::/path" (version 2) or "4:memory:/path" (version 1);
    infinite without one.
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


def resident_bytes() -> tuple[int, int]:
    """Return the resident set of this process, and its peak; 0 where the system does not tell.

    `getrusage` would count the process that started this one too, if that was larger.
    """
    try:
        text = Path("/proc/self/status").read_text()
    except OSError:
        return 0, 0
    now, peak = (re.search(rf"^{name}:\s+(\d+) kB", text, re.M) for name in ("VmRSS", "VmHWM"))
    return (int(now[1]) * 1024 if now else 0), (int(peak[1]) * 1024 if peak else 0)


def hold_little() -> None:
    """Let glibc return freed megabytes to the system at once.

    By default it raises its own limit with every large block that is freed, and a hundred threads
    each keep a heap: sixteen nodes of the paper's CNN then hold twice what they use.
    """
    mmap_threshold, arena_max = -3, -8  # M_MMAP_THRESHOLD and M_ARENA_MAX of malloc.h
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(mmap_threshold, 1 << 20)
        library.mallopt(arena_max, 2)


def trim() -> None:
    """Return what is freed in glibc's heaps: compiling leaves some 20 MB behind."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def compiled_in_haste(backend: str) -> dict[str, Any]:
    """Return compiler options for a program that runs once in a run, as `jax.jit` takes them.

    On a CPU LLVM spends most of its time on unrolling the loops of random draws, which here run
    once. Without it the draws are the same to the bit. What XLA_FLAGS say of it holds.
    """
    said = "xla_backend_optimization_level" in os.environ.get("XLA_FLAGS", "")
    return {} if said or backend != "cpu" else {"xla_backend_optimization_level": 1}


def is_loopback(host: str) -> bool:
    """Tell whether an address is of this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
