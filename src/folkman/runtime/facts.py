"""How a node stands, as flat facts: what the health file holds and what the metrics count."""

import math
import os
import resource
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from folkman.runtime.identity import name_of

if TYPE_CHECKING:
    from folkman.runtime.daemon import Daemon

__all__ = ["facts_of"]


def facts_of(daemon: "Daemon") -> dict[str, Any]:
    """Return what a health file says; every key is stable."""
    node, links, transport = daemon.node, daemon.links, daemon.transport
    loss = getattr(node, "loss", math.nan)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "node": name_of(node.index),
        "state": daemon.state,
        "pid": os.getpid(),
        "steps": node.steps,
        "slot": node.slot,
        "round": node.mailbox.round,
        "loss": loss if math.isfinite(loss) else None,
        "saved_steps": daemon.saver.steps,
        "incarnation": daemon.incarnation,
        "uptime_s": round(time.monotonic() - daemon.began_s, 3),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 3),
        "memory_bytes": _memory_bytes(),
        "memory_peak_bytes": usage.ru_maxrss * 1024,
        "linked": sorted(name_of(j) for j in transport.links()),
        "num_linked": len(transport.links()),
        "refused": dict(node.mailbox.refused),
        "counts": daemon.counts | daemon.saver.counts,
        "transport": dict(transport.counts),
        "goodput_bit_s": {name_of(j): round(v) for j, v in list(links.goodput_bit_s.items())},
        "latency_s": {name_of(j): round(v, 6) for j, v in list(links.latency_s.items())},
        "loss_share": {name_of(j): round(v, 4) for j, v in list(links.loss.items())},
        "goodput_here_bit_s": {name_of(j): round(rate) for j, (rate, _) in list(daemon.qualities.items())},
        "timeline": daemon.journal.ended or "recorded",
        "insecure": daemon.members is None,
    }


def _memory_bytes() -> int:
    """Return the resident set, where the system tells."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
