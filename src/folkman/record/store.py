"""Where jobs live: a store that many workers and sweeps may share, and the folder of one sweep.

A job's folder is named by its key, so two sweeps that ask for the same thing meet at the same
place. Whoever runs a job holds an operating-system lock on it, which ends with the process however
that ends; a job that ended is told by its `job.json`, which is written last and by rename.
`docs/sweeps.md` lists the files.
"""

import errno
import fcntl
import json
import os
import socket
import time
import tomllib
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from folkman.record.folder import JobFolder
from folkman.record.json_file import (
    FORMAT,
    Json,
    Table,
    now,
    read_json,
    read_text,
    write_json,
    write_text,
)
from folkman.record.provenance import gathered
from folkman.record.run import ENDED, WAITING

__all__ = ["BUSY", "DISK", "DISK_ERRORS", "Store", "SweepFolder", "claim", "ended", "store_id"]

BUSY, DISK = "busy", "disk"
"""What a worker answers of a job that it did not end: another runs it; the disk refused."""

DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What a full disk, a used-up quota and a limit on the size of files answer."""


@contextmanager
def claim(lock: Path, patience_s: float = 0.0, *, shared: bool = False) -> Iterator[bool]:
    """Try to hold a lock file; yield whether it is ours.

    It is let go on the way out, and when the process ends.

    A `shared` claim suffers others of its kind.

    Lock files are never deleted: one that is deleted while another waits for it would be held
    twice.
    """
    handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
            mine = _locked(handle, time.monotonic() + patience_s, how)
        except OSError as error:
            text = f"{error.strerror}; a store needs a file system with flock (NFSv4 has it)"
            raise OSError(error.errno, text, str(lock)) from None
        if mine:
            holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": now()}
            os.ftruncate(handle, 0)
            os.write(handle, json.dumps(holder).encode())
        yield mine
    finally:
        os.close(handle)


def _locked(handle: int, until_s: float, how: int) -> bool:
    while True:
        try:
            fcntl.flock(handle, how | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= until_s:
                return False
            time.sleep(0.02)


def ended(folder: Path) -> Json | None:
    """Return the `job.json` of a job that need not run again."""
    job = JobFolder(folder)
    found = read_json(job.job)
    whole = found is not None and found.get("state") in ENDED and job.metrics.is_file()
    return found if whole else None


MARK = "store.json"
"""The file that names a store."""


def store_id(root: Path) -> str | None:
    """Return the name of the store in a folder; None if there is none."""
    return (read_json(root / MARK) or {}).get("id")


OLD_RESULTS = "arms.json"
"""The file by which the packed results of folkman 0.1 are known."""


def refuse_old(root: Path) -> None:
    """Refuse a folder with the packed results of folkman 0.1, and say how to convert it."""
    if (root / OLD_RESULTS).is_file():
        raise ValueError(
            f"{root} was made by an earlier folkman; convert it: python -m folkman.record.convert "
            f"{root}"
        )


class Store:
    """A folder of jobs, by key."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.root.mkdir(parents=True, exist_ok=True)
        while (known := store_id(self.root)) is None:  # two must not name it
            with claim(self.root / "store.lock") as mine:
                if mine and store_id(self.root) is None:
                    write_json(self.root / MARK, {"format": FORMAT, "id": uuid.uuid4().hex})
            time.sleep(0 if mine else 0.05)
        self.id: str = known

    def job(self, key: str) -> Path:
        """Return the folder of a job."""
        return self.root / key


class SweepFolder:
    """The files of one sweep."""

    def __init__(self, root: Path, store: Path | None = None) -> None:
        self.root = root
        self.definition = root / "sweep.toml"
        self.index = root / "index.json"
        self.results = root / "results.parquet"
        self.report = root / "report.html"
        self.lock = root / "sweep.lock"
        self.figures = root / "figures"
        self.ends = self.figures / "ends.md"
        self.measured, self.verified = root / "measured.json", root / "verified.json"
        self.ranking, self.tuned = root / "ranking.json", root / "tuned.toml"
        self.provenance = root / "provenance.json"
        self.store_root = store or root / "jobs"

    @classmethod
    def create(cls, root: Path, definition: str, store: Path | None = None) -> "SweepFolder":
        """Make the folder of a sweep, or take up that of the same definition and no other."""
        folder = cls(root, store)
        if root.exists() and not root.is_dir():
            raise FileExistsError(f"expected a folder, {root} is a file; choose another --out")
        if store is not None and store.exists() and not store.is_dir():
            raise FileExistsError(f"expected a folder, {store} is a file; choose another --store")
        if folder.definition.is_file():
            if read_text(folder.definition) != definition:
                share = f", and add --store {folder.store_root}"
                share += " so that what is finished there is not run again"
                share = "" if "paper" in folder.asked() else share
                raise FileExistsError(f"{root} holds another sweep; choose another --out{share}")
            return folder
        refuse_old(root)
        there = {path.name for path in root.iterdir()} if root.exists() else set()
        if there - {"jobs", folder.lock.name, folder.index.name}:
            wanted = f"expected a new or empty folder, {root} has content"
            raise FileExistsError(f"{wanted}; choose another --out")
        root.mkdir(parents=True, exist_ok=True)
        # known from the start: a sweep that dies before its first job still finds it again
        if store is not None:
            empty: Json = {"axes": [], "metrics": [], "state": WAITING, "workers": []}
            folder.write_index({"name": root.name, **empty}, [])
        write_text(folder.definition, definition)
        return folder

    @classmethod
    def open(cls, root: Path) -> "SweepFolder":
        """Open a folder that `create` made; its store is where its index says."""
        if not (root / "sweep.toml").is_file():
            raise FileNotFoundError(
                f"expected a sweep folder with a sweep.toml, {root} is none; check the path"
            )
        known = read_json(root / "index.json") or {}
        return cls(root, Path(known["store"]) if known.get("store") else None)

    @contextmanager
    def held(self, *, shared: bool = False) -> Iterator[None]:
        """Let one process alone work in this folder, or several that all say they share it."""
        patience_s = 0.5  # a page that looks holds it for a moment
        with claim(self.lock, patience_s, shared=shared) as mine:
            if not mine:
                holder = read_json(self.lock) or {}
                store = f"--out ANOTHER --store {self.store_root}"
                how = "--share K/N" if "paper" in self.asked() else store
                who = f"process {holder.get('pid')} on {holder.get('host')}"
                text = f"{self.root} is in use by {who}; wait for it, or share its jobs: {how}"
                raise RuntimeError(text)
            yield

    @property
    def shared_store(self) -> Path | None:
        """Return the store where it is not the folder's own."""
        return None if self.store_root == self.root / "jobs" else self.store_root

    def place(self, key: str) -> str:
        """Return the folder of a job as the index names it."""
        own = self.shared_store is None
        return f"jobs/{key}" if own else str(self.store_root.resolve() / key)

    def own_code(self) -> dict[str, str]:
        """Return the digests of own code that the sweep was begun with."""
        return (read_json(self.index) or {}).get("own_code", {})

    def read_index(self) -> Json:
        """Read the index, or say that there is none."""
        found = read_json(self.index)
        if found is None:
            raise FileNotFoundError(
                f"expected an index.json in {self.root}, there is none or it is damaged; make it: "
                f"{self.again()}"
            )
        return found

    def write_index(self, facts: Table, jobs: Sequence[Table]) -> None:
        """Write how the sweep stands."""
        store = {} if self.shared_store is None else {"store": str(self.store_root.resolve())}
        whole = {"format": FORMAT, **facts, **store, "updated": now(), "jobs": list(jobs)}
        write_json(self.index, whole)

    def asked(self) -> Json:
        """Return what was asked for: the content of the definition; nothing if there is none."""
        if not self.definition.is_file():
            return {}
        try:
            return tomllib.loads(read_text(self.definition))
        except tomllib.TOMLDecodeError as error:
            raise ValueError(
                f"expected TOML in {self.definition}: {error}; restore the file"
            ) from None

    def objectives(self, jobs: Sequence[Table]) -> list[str]:
        """Return what the jobs minimise, each of `samples` and `nodes` once."""
        usual = self.asked().get("objective", "samples")
        return list(dict.fromkeys(job["settings"].get("objective", usual) for job in jobs))

    def again(self) -> str:
        """Return the command that goes on with this folder."""
        asked = self.asked()
        if "tune" in asked:
            return f"folkman tune --resume {self.root}"
        if "rank" in asked:
            return f"folkman rank --resume {self.root}"
        if "paper" not in asked:
            return f"folkman sweep --resume {self.root}"
        more = f" --iterations {asked['iterations']}" if "iterations" in asked else ""
        what = f"--paper {asked['paper']} --size {asked['size']}{more}"
        return f"folkman reproduce all {what} --out {self.root}"

    def read_measured(self) -> list[Json]:
        """Read what a paper's own code measured; nothing if it has not."""
        return (read_json(self.measured) or {"rows": []})["rows"]

    def note_provenance(self) -> None:
        """Write with what each run was made; what is known of runs whose folders are gone stays."""
        jobs = [job for job in self.read_index()["jobs"] if job["state"] in ENDED]
        found = gathered({job["key"]: self.root / job["folder"] for job in jobs})
        before = read_json(self.provenance) or {}
        for key, (number, started) in before.get("runs", {}).items():
            if key not in found["runs"]:
                facts = before["made"][number]
                found["made"] += [] if facts in found["made"] else [facts]
                found["runs"][key] = [found["made"].index(facts), started]
        write_json(self.provenance, found, indent=1)

    def devices(self) -> set[str]:
        """Return the devices that runs of this folder were made on, as far as it is known."""
        known = read_json(self.provenance) or {}
        made = [known, *known.get("resumed", []), *known.get("made", [])]
        return {device for each in made for device in each.get("devices", [])}

    def write_measured(self, rows: Sequence[Table]) -> None:
        """Write what a paper's own code measured."""
        write_json(self.measured, {"rows": list(rows)})

    def read_ranking(self) -> Json | None:
        """Read how methods rank; None where the folder is of no ranking, or it has not ended."""
        return read_json(self.ranking)

    def write_ranking(self, answer: Table) -> None:
        """Write how methods rank."""
        write_json(self.ranking, answer)

    def note_verified(self, key: str, worst: float) -> None:
        """Note that a job was made a second time, and how much it differs.

        That is the largest relative difference of any of its numbers.
        """
        write_json(self.verified, (read_json(self.verified) or {}) | {key: worst})
