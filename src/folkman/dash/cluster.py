"""What the live page knows of a real cluster: the nodes' health files and the errors in their logs.

Nodes are watched by their files alone (`folkman.record.cluster`). A health file tells of this
moment; the curves of a node begin when somebody begins to watch it.
"""

import time
from collections import deque
from datetime import UTC, datetime
from pathlib import Path

from folkman.record.cluster import GONE, SILENT, WELL, ClusterFolder, NodeFolder
from folkman.record.json_file import Json
from folkman.record.live import Tail
from folkman.record.terms import TERM_OF, TERMS

__all__ = ["ClusterSource"]

CHECK_S = 0.5
MOST_FAULTS = 200
COLUMNS = ("node", "state", "steps", "slot", "loss", "linked", "refused", "goodput (kbit/s)")
COLUMNS += ("latency (ms)", "memory (MB)", "up (s)", "heard (s ago)")
LINK_COLUMNS = ("from", "to", "goodput (kbit/s)", "latency (ms)", "lost (%)")
METRICS = {"loss": "loss of the node's own model", "steps": "gradients of the node"}
AXES = {"slots": "slot of the node", "seconds": "time watched (s)"}
MOST_POINTS = 600
"""Points of a node's curve that are kept; of more, every second is let go."""


class ClusterSource:
    """The source of a cluster's folder."""

    def __init__(self, root: Path) -> None:
        self.folder = ClusterFolder(root)
        self.folder.nodes()  # or there is nothing to watch
        self.logs: dict[Path, Tail] = {}
        self.faults: deque[dict[str, str]] = deque(maxlen=MOST_FAULTS)
        self.states: dict[str, str] = {}  # node -> its state at the last look
        self.curves: dict[str, list[Json]] = {}
        self._began_s = time.monotonic()
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
        standing = [(home, home.standing()) for home in homes]
        for home, health in standing:
            self._note(home, health)
        return {
            "nodes": [_row(home, health) for home, health in standing],
            "links": [link for _, health in standing for link in _links(health)],
            "faults": list(self.faults),
            "seconds": round(time.monotonic() - self._began_s, 1),
        }

    def _note(self, home: NodeFolder, health: Json) -> None:
        """Note a point of the node's curve, and that it is down if it was not before."""
        name, state = str(health["node"]), str(health["state"])
        if state not in WELL and state != self.states.get(name):
            self.faults.appendleft(_down(home, health))
        self.states[name] = state
        points = self.curves.setdefault(name, [])
        if not points or points[-1]["slots"] != health.get("slot"):
            seconds = round(time.monotonic() - self._began_s, 1)
            kept = {name: health.get(name) for name in METRICS}
            points.append({"slots": health.get("slot"), "seconds": seconds, **kept})
            if len(points) > MOST_POINTS:
                del points[1::2]

    def state(self) -> Json:
        """Return everything."""
        self._told = self._look()
        name = self.folder.root.name
        head = {"kind": "cluster", "name": name, "folder": name, "columns": COLUMNS}
        head |= {"link_columns": LINK_COLUMNS, "metrics": METRICS, "axes": AXES}
        curves = {
            node: {key: [point[key] for point in points] for key in (*AXES, *METRICS)}
            for node, points in self.curves.items()
        }
        return head | self._told | {"curves": curves, "terms": TERMS, "term_of": TERM_OF}

    def poll(self) -> Json | None:
        """Return everything again, if it changed, twice a second."""
        if time.monotonic() < self._next_check_s:
            return None
        self._next_check_s = time.monotonic() + CHECK_S
        found = self._look()
        if found == self._told | {"seconds": found["seconds"]}:  # time alone is no news
            return None
        self._told = found
        return found


def _links(health: Json) -> list[Json]:
    """Return a row for each neighbour that a node sends to."""
    goodput, latency, lost = (
        table if isinstance(table := health.get(key), dict) else {}
        for key in ("goodput_bit_s", "latency_s", "loss_share")
    )
    linked = health.get("linked")
    names = dict.fromkeys([*(linked if isinstance(linked, list) else ()), *goodput, *latency])
    return [
        {
            "from": health["node"],
            "to": name,
            "goodput (kbit/s)": _scaled(goodput.get(name), 1e-3),
            "latency (ms)": _scaled(latency.get(name), 1e3),
            "lost (%)": _scaled(lost.get(name), 100.0),
            "up": health["state"] in WELL and isinstance(linked, list) and name in linked,
        }
        for name in names
    ]


def _scaled(value: object, by: float) -> float | None:
    return value * by if isinstance(value, int | float) else None


def _down(home: NodeFolder, health: Json) -> dict[str, str]:
    """Return a fault that no log tells: a node that is gone, silent or in another bad state."""
    told = {
        GONE: "gone: its process has ended without a word, killed or crashed",
        SILENT: f"silent: its health file is {health['health_age_s']:.0f} s old",
    }
    state = str(health["state"])
    what = f"{told.get(state, state)}; look at {home.root.name}/{home.log.name}, and start it again"
    when = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return {"when": when, "node": str(health["node"]), "what": what}


def _row(home: NodeFolder, health: Json) -> Json:
    """Return how a node stands as a row; what an entry lacks is left out."""
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
