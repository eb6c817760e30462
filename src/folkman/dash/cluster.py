"""What the live page knows of a real cluster: the nodes' health files and the errors in their logs.

Nodes are watched by their files alone (`folkman.record.cluster`).
"""

import time
from collections import deque
from pathlib import Path

from folkman.record.cluster import WELL, ClusterFolder, NodeFolder
from folkman.record.json_file import Json
from folkman.record.live import Tail

__all__ = ["ClusterSource"]

CHECK_S = 0.5
MOST_FAULTS = 200
COLUMNS = (
    "node",
    "state",
    "steps",
    "slot",
    "loss",
    "linked",
    "refused",
    "goodput (kbit/s)",
    "latency (ms)",
)
COLUMNS += ("memory (MB)", "up (s)", "heard (s ago)")


class ClusterSource:
    """The source of a cluster's folder."""

    def __init__(self, root: Path) -> None:
        self.folder = ClusterFolder(root)
        self.folder.nodes()  # or there is nothing to watch
        self.logs: dict[Path, Tail] = {}
        self.faults: deque[dict[str, str]] = deque(maxlen=MOST_FAULTS)
        self._next_check_s = 0.0
        self._told: Json = {}

    def _look(self) -> Json:
        """Read everything that is small, and what is new of the logs."""
        homes = self.folder.nodes()
        for home in homes:
            tail = self.logs.setdefault(home.root, Tail(home.log))
            if news := tail.look():
                for line in news.lines:
                    if line.get("level") in ("warning", "error"):
                        self.faults.appendleft(_fault(home, line))
        return {"nodes": [_row(home) for home in homes], "faults": list(self.faults)}

    def state(self) -> Json:
        """Return everything."""
        self._told = self._look()
        name = self.folder.root.name
        head = {"kind": "cluster", "name": name, "folder": name, "columns": COLUMNS}
        return head | self._told

    def poll(self) -> Json | None:
        """Return everything again, if it changed, twice a second."""
        if time.monotonic() < self._next_check_s:
            return None
        self._next_check_s = time.monotonic() + CHECK_S
        found = self._look()
        if found == self._told:
            return None
        self._told = found
        return found


def _row(home: NodeFolder) -> Json:
    """Return how a node stands as a row; what an entry lacks is left out."""
    health = home.standing()
    linked, refused = health.get("linked"), health.get("refused")
    goodput, latency = _values(health.get("goodput_bit_s")), _values(health.get("latency_s"))
    memory = health.get("memory_bytes")
    cells = (
        health["node"],
        health["state"],
        health.get("steps"),
        health.get("slot"),
        health.get("loss"),
        len(linked) if isinstance(linked, list) else None,
        sum(_values(refused)),
        sum(goodput) / 1e3 if goodput else None,
        1e3 * sum(latency) / len(latency) if latency else None,
        memory / 1e6 if isinstance(memory, int | float) else None,
        health.get("uptime_s"),
        round(health["health_age_s"]) if home.health.is_file() else None,
    )
    return dict(zip(COLUMNS, cells, strict=True)) | {"bad": health["state"] not in WELL}


def _values(table: object) -> list[float]:
    values = table.values() if isinstance(table, dict) else ()
    return [value for value in values if isinstance(value, int | float)]


def _fault(home: NodeFolder, line: Json) -> dict[str, str]:
    parts = [str(line[key]) for key in ("event", "reason", "peer", "text") if line.get(key)]
    text = ": ".join(parts)
    when, node = str(line.get("time", ""))[:19], str(line.get("node", home.root.name))
    return {"when": when, "node": node, "what": text[-300:]}
