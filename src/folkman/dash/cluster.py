"""What the live page knows of a real cluster: the nodes' health files, and what their logs say went wrong.

A cluster's folder has a folder a node under `nodes/`, with `health.json` (renewed while the node lives) and `node.log`
(JSON lines with `time`, `level`, `event`). Nodes are watched by these files alone.
"""

import time
from collections import deque
from pathlib import Path
from typing import Any

from folkman.record.live import Tail, read_json

__all__ = ["ClusterSource"]

CHECK_S = 0.5
SILENT_S = 10.0
"""A node whose health file is older than this has gone silent."""
ENDED = ("done", "stopped")
WELL = ("starting", "learning", *ENDED)
MOST_FAULTS = 200
COLUMNS = ("node", "state", "steps", "slot", "loss", "linked", "refused", "goodput (kbit/s)", "latency (ms)")
COLUMNS += ("memory (MB)", "up (s)", "heard (s ago)")


class ClusterSource:
    """The source of a cluster's folder."""

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise FileNotFoundError(f"expected the folder of a cluster, there is no {root}; make one with: folkman up")
        self.root = root
        self.logs: dict[Path, Tail] = {}
        self.faults: deque[dict[str, str]] = deque(maxlen=MOST_FAULTS)
        self._next_check_s = 0.0
        self._told: dict[str, Any] = {}
        if not self._homes():
            raise FileNotFoundError(f"expected a cluster that `folkman up` made, {root} has no nodes; check the path")

    def _homes(self) -> list[Path]:
        names = ("health.json", "node.log", "node.toml")
        found = {
            path.parent for name in names for place in ("nodes/*", "*") for path in self.root.glob(f"{place}/{name}")
        }
        return sorted(found)

    def _look(self) -> dict[str, Any]:
        """Read everything that is small, and what is new of the logs."""
        for home in self._homes():
            tail = self.logs.setdefault(home, Tail(home / "node.log"))
            if news := tail.look():
                for line in news.lines:
                    if line.get("level") in ("warning", "error"):
                        self.faults.appendleft(_fault(home, line))
        nodes = [_row(home) for home in self._homes()]
        return {"nodes": nodes, "faults": list(self.faults)}

    def state(self) -> dict[str, Any]:
        """Return everything."""
        self._told = self._look()
        head = {"kind": "cluster", "name": self.root.name, "folder": self.root.name, "columns": COLUMNS}
        return head | self._told

    def poll(self) -> dict[str, Any] | None:
        """Return everything again, if it changed, twice a second."""
        if time.monotonic() < self._next_check_s:
            return None
        self._next_check_s = time.monotonic() + CHECK_S
        found = self._look()
        if found == self._told:
            return None
        self._told = found
        return found


def _row(home: Path) -> dict[str, Any]:
    """Return a node's health as a row; what an entry lacks is left out."""
    path = home / "health.json"
    health = read_json(path)
    heard_s = time.time() - path.stat().st_mtime if path.is_file() else None
    state = str(health.get("state", "no health yet"))
    silent = heard_s is not None and heard_s > SILENT_S and state not in ENDED
    linked, refused = health.get("linked"), health.get("refused")
    goodput, latency = _values(health.get("goodput_bit_s")), _values(health.get("latency_s"))
    memory = health.get("memory_bytes")
    cells = (
        health.get("node", home.name),
        "silent" if silent else state,
        health.get("steps"),
        health.get("slot"),
        health.get("loss"),
        len(linked) if isinstance(linked, list) else None,
        sum(_values(refused)),
        sum(goodput) / 1e3 if goodput else None,
        1e3 * sum(latency) / len(latency) if latency else None,
        memory / 1e6 if isinstance(memory, int | float) else None,
        health.get("uptime_s"),
        round(heard_s) if heard_s is not None else None,
    )
    return dict(zip(COLUMNS, cells, strict=True)) | {"bad": silent or state not in WELL}


def _values(table: Any) -> list[float]:
    values = table.values() if isinstance(table, dict) else ()
    return [value for value in values if isinstance(value, int | float)]


def _fault(home: Path, line: dict[str, Any]) -> dict[str, str]:
    parts = [str(line[key]) for key in ("event", "reason", "peer", "text") if line.get(key)]
    text = ": ".join(parts)
    return {"when": str(line.get("time", ""))[:19], "node": str(line.get("node", home.name)), "what": text[-300:]}
