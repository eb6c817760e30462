"""What was fetched from the boards of a fleet into a cluster's folder: `collected.json`.

A file that is noted here, and is still what it was, may be replaced by a newer one. Whatever else
is in the folder is somebody's, and is left alone.
"""

import hashlib
from pathlib import Path
from typing import NamedTuple

from folkman.record.cluster import ClusterFolder
from folkman.record.json_file import FORMAT, Json, now, read_json, write_json

__all__ = ["Collected", "sha256_of"]


class Collected:
    """The notes of one folder, written again whenever a file is whole."""

    def __init__(self, root: Path, content: Json) -> None:
        self.root, self._content = root, content

    @classmethod
    def begin(cls, root: Path, run: str) -> "Collected":
        """Note which run a new folder is of."""
        made = cls(root, {"format": FORMAT, "run": run, "nodes": {}})
        made._write()
        return made

    @classmethod
    def open(cls, root: Path) -> "Collected | None":
        """Return the notes of a folder; None if it is new or empty; refuse one of somebody else."""
        if not root.exists() or (root.is_dir() and not any(root.iterdir())):
            return None
        content = read_json(ClusterFolder(root).collected)
        if content is None or not isinstance(content.get("nodes"), dict) or "run" not in content:
            raise FileExistsError(
                f"expected a new folder, or one that folkman fleet collect made, {root} has other "
                "content; choose another --out"
            )
        return cls(root, content)

    @property
    def run(self) -> str:
        """Return the fingerprint of the run."""
        return str(self._content["run"])

    def digest(self, node: str, name: str) -> str | None:
        """Return the digest of a file when it was collected."""
        entry = self._content["nodes"].get(node, {}).get("files", {}).get(name)
        return None if entry is None else str(entry["sha256"])

    def note(self, node: str, address: str, name: str, found: "Noted") -> None:
        """Note a file that is whole now."""
        entry = self._content["nodes"].setdefault(node, {"files": {}})
        entry |= {"address": address, "time": now()}
        entry["files"][name] = found._asdict()
        self._write()

    def _write(self) -> None:
        write_json(ClusterFolder(self.root).collected, self._content)


class Noted(NamedTuple):
    """A file of a board."""

    size: int
    sha256: str


def sha256_of(path: Path) -> str:
    """Return the digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
