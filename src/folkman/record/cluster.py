"""The folder of a cluster of real nodes, and how each of them stands.

    config.toml  certs/           what is learnt; the authority and the nodes' certificates
    timeline.npz                  what the nodes did, as `folkman replay` joined it
    nodes/NAME/node.toml          the node's own file
    nodes/NAME/shard.npz          its samples
    nodes/NAME/health.json        how it stands, renewed while it runs
    nodes/NAME/node.log  pid      JSON lines with time, level, event; the number of its process
    nodes/NAME/timeline.bin       which messages each slot saw
    nodes/NAME/state.safetensors  where it goes on; `incarnation`: how often it has begun
    nodes/NAME/final.safetensors  its last parameters

Nodes write these files; whoever looks at a cluster reads them here.
"""

import time
from pathlib import Path

from folkman.record.json_file import Json, read_json
from folkman.record.run import STOPPED

__all__ = ["DONE", "GONE", "LEARNING", "SILENT", "STARTING", "WELL"]
__all__ += ["ClusterFolder", "NodeFolder", "is_alive", "refuse_cluster"]

STARTING, LEARNING, DONE = "starting", "learning", "done"
"""The states of a node that is well."""
SILENT, GONE = "silent", "gone"
"""States that others give to a node: its health file is old; its process is no more."""

GOING = (STARTING, LEARNING)
WELL = (*GOING, DONE, STOPPED)
"""The states that need no attention."""

FRESH_S = 10.0
"""A health file older than this is of a node that hangs or is gone."""


class NodeFolder:
    """The files of one node."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config = root / "node.toml"
        self.shard = root / "shard.npz"
        self.health = root / "health.json"
        self.log = root / "node.log"
        self.pid = root / "pid"
        self.journal = root / "timeline.bin"
        self.state = root / "state.safetensors"
        self.incarnation = root / "incarnation"
        self.final = root / "final.safetensors"

    def is_there(self) -> bool:
        """Tell whether this is the folder of a node."""
        return any(path.is_file() for path in (self.config, self.health, self.log))

    def standing(self) -> Json:
        """Return how the node stands: its health file, with its state as it is seen from outside.

        A node of this machine has a `pid` file, which says whether it is there. Of another
        machine's, a health file that is not renewed says that it is not.
        """
        found = {"node": self.root.name, "state": STARTING, **(read_json(self.health) or {})}
        age_s = time.time() - self.health.stat().st_mtime if self.health.is_file() else 0.0
        state = found["state"]
        pid = int(self.pid.read_text()) if self.pid.is_file() else None
        alive = pid is not None and is_alive(pid)
        if pid is not None and not alive and state in GOING:
            state = GONE
        elif age_s > FRESH_S and (alive or (pid is None and state in GOING)):
            state = SILENT
        seen = {"state": state, "alive": alive, "pid": pid, "health_age_s": round(age_s, 1)}
        return found | seen


class ClusterFolder:
    """The files of a cluster."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.certs = root / "certs"
        self.timeline = root / "timeline.npz"

    def is_there(self) -> bool:
        """Tell whether `folkman up` made this folder."""
        return any(NodeFolder(home).is_there() for home in self.root.glob("nodes/*"))

    def node(self, name: str) -> NodeFolder:
        """Return the folder of a node."""
        return NodeFolder(self.root / "nodes" / name)

    def nodes(self) -> list[NodeFolder]:
        """Return the folders of all nodes, by name; refuse a folder that has none."""
        places = [*sorted(self.root.glob("nodes/*")), *sorted(self.root.glob("*"))]
        found = [home for home in map(NodeFolder, places) if home.is_there()]
        if not found:
            what = f"{self.root} has no nodes" if self.root.is_dir() else f"there is no {self.root}"
            raise FileNotFoundError(
                f"expected a cluster that `folkman up` made, {what}; check the path"
            )
        return found

    def standing(self) -> list[Json]:
        """Return how each node stands."""
        return [node.standing() for node in self.nodes()]


def refuse_cluster(root: Path) -> None:
    """Refuse a cluster's folder where a run or a sweep is wanted, and name the right commands."""
    if ClusterFolder(root).is_there():
        raise ValueError(
            f"expected a run or a sweep folder, {root} is a cluster that `folkman up` made; "
            f"see how it stands: folkman status {root}, or folkman dash --cluster {root}"
        )


def is_alive(pid: int) -> bool:
    """Tell whether a process is a running node; a number may have been given to another since."""
    try:
        status_text = Path(f"/proc/{pid}/stat").read_text()
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    names = {word.rpartition(b"/")[2] for word in command.split(b"\0")}  # not a folder's name
    return status_text.rpartition(")")[2].split()[0] != "Z" and b"folkman" in names
