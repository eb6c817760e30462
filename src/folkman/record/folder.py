"""The run folder: what is written, where, and never half; and how a folder stands, finished or not.

    config.toml          the resolved configuration
    provenance.json      versions, machine, commit, command, times
    metrics.parquet      one row a recorded slot: algorithm, label, seed, then the columns of
                         `record`
    summary.json         the last row of each run and whether its algorithm is tuned, as
                         `folkman run --json` prints it
    figures/             PNG and SVG
    models/              the last model of each run, named tensors, safetensors; with `keep_nodes`
                         also those of its nodes, with the node as the first axis
    timelines/           who held what when, if asked for
    parts/               the rows of each run, and the checkpoint of one that is not finished
    network/             where nodes were, how old copies, who was on the air: at most sixty frames
                         of each run
    live/                what a run writes while it goes on (`folkman.record.live`)
    report.html          all of it on one page

Files appear by rename. A run that ended is never run again; one that was interrupted goes on from
its checkpoint. A reader takes a run from its part, which says how it ended; from its live files, if
those are further; or, where the parts are gone, from `metrics.parquet`. NumPy and pyarrow are
imported inside functions: a worker sets up its threads before the first, a device node does not
need the second.
"""

import json
import tomllib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from folkman.checks import require
from folkman.files import save_tensors, write_whole
from folkman.record.cluster import ClusterFolder, refuse_cluster
from folkman.record.json_file import Json, quoted, read_json, read_text, write_json, write_text
from folkman.record.provenance import note_start
from folkman.record.run import (
    DIVERGED,
    FINISHED,
    RUNNING,
    WAITING,
    Run,
    known,
    read_table,
    rows_of,
    runs_of,
    slug,
)
from folkman.record.tuned import sides_of, standings

if TYPE_CHECKING:
    import pyarrow as pa

    from folkman.record.live import LiveFiles
    from folkman.record.scene import Scene

__all__ = ["MADE_IN_PYTHON", "Contents", "JobFolder", "RunFolder", "list_runs", "objective_in"]
__all__ += ["save_runs"]

UNFINISHED, DAMAGED, CLUSTER = "unfinished", "damaged", "cluster"
"""How a run folder stands in a listing, besides finished and diverged."""

MADE_IN_PYTHON = "made_in_python"
"""The key of `config.toml` in a folder that was saved from Python, without a configuration."""


class Contents(NamedTuple):
    """A run folder as it stands: what was asked for, with what, and what came of it."""

    folder: "RunFolder"
    config: Json
    config_text: str
    provenance: Json
    runs: list[Run]  # in the order of the configuration; status "waiting" for one not begun

    @property
    def made_in_python(self) -> bool:
        """Tell whether there is no configuration that could be run again."""
        return bool(self.config.get(MADE_IN_PYTHON))


class RunFolder:
    """The files of one comparison."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config = root / "config.toml"
        self.provenance = root / "provenance.json"
        self.metrics = root / "metrics.parquet"
        self.summary = root / "summary.json"
        self.figures = root / "figures"
        self.report = root / "report.html"

    @classmethod
    def create(cls, root: Path, config: str, *, in_python: bool = False) -> "RunFolder":
        """Make a new folder with its configuration; refuse one that is there and not empty.

        `in_python`: the caller is a program, whom no option of the command line helps.
        """
        other = "choose another folder" if in_python else "choose another --out"
        if root.exists() and not root.is_dir():
            raise FileExistsError(f"expected a folder, {root} is a file; {other}")
        if root.exists() and any(root.iterdir()):
            begun = not in_python and (root / "config.toml").is_file()
            begun = begun and not ClusterFolder(root).is_there()
            more = f", or go on with: folkman run --resume {root}" if begun else ""
            raise FileExistsError(
                f"expected a new or empty folder, {root} has content; {other}{more}"
            )
        folder = cls(root)
        folder.make_folders()
        write_text(folder.config, config)
        return folder

    @classmethod
    def open(cls, root: Path) -> "RunFolder":
        """Open a folder that `create` made; refuse one that a later folkman wrote."""
        refuse_cluster(root)
        folder = cls(root)
        if not folder.config.is_file():
            raise FileNotFoundError(
                f"expected a run folder with a config.toml, {root} is none; check the path"
            )
        read_json(folder.provenance)
        return folder

    def make_folders(self) -> None:
        """Make the folders that runs are written into."""
        for name in ("parts", "figures", "models"):
            (self.root / name).mkdir(parents=True, exist_ok=True)

    def objectives(self) -> list[str]:
        """Return what the runs minimise: `samples`, `nodes`, or nothing that is known."""
        found = objective_in(_read_toml(self.config)[1])
        return [] if found is None else [found]

    def configuration(self) -> Path:
        """Return the file to make the runs from again; refuse a folder saved from Python."""
        require(
            not _read_toml(self.config)[1].get(MADE_IN_PYTHON),
            f"expected a configuration, {self.root} was made from Python objects and has none; "
            "run the script again",
        )
        self.read_config()  # a file of nothing would be the default comparison
        return self.config

    def command(self) -> list[str] | None:
        """Return the arguments of the command that made it; None if no command did."""
        return (read_json(self.provenance) or {}).get("command")

    def read_config(self) -> Json:
        """Read the configuration, with the tables of its algorithms."""
        config = _read_toml(self.config)[1]
        whole = isinstance(config.get("algorithm"), list)
        require(whole, f"expected [[algorithm]] in {self.config}; is it of a later one?")
        return config

    def own_code(self) -> dict[str, str]:
        """Return the digests of own code that the runs here were begun with."""
        return (read_json(self.provenance) or {}).get("own_code", {})

    def networks(self) -> list[str]:
        """Return the networks of its runs in words, as far as they were noted."""
        return (read_json(self.provenance) or {}).get("networks", [])

    def renew(self, config: str) -> None:
        """Write the configuration of a folder, new or not; drop parts of another configuration."""
        if self.config.is_file() and self.config.read_text(encoding="utf-8") != config:
            for part in (self.root / "parts").glob("*"):
                part.unlink()
        write_text(self.config, config)

    def part(self, run: Run) -> Path:
        """Return where the rows of a run stand."""
        return self.root / "parts" / f"{slug(run.label, run.seed)}.parquet"

    def checkpoint(self, run: Run) -> Path:
        """Return where the checkpoint of a run stands."""
        return self.root / "parts" / f"{slug(run.label, run.seed)}.safetensors"

    def model(self, run: Run) -> Path:
        """Return where the last model of a run stands."""
        return self.root / "models" / f"{slug(run.label, run.seed)}.safetensors"

    def node_models(self, run: Run) -> Path:
        """Return where the last models of the nodes of a run stand, if they are kept."""
        return self.root / "models" / f"{slug(run.label, run.seed)}-nodes.safetensors"

    def timeline(self, run: Run) -> Path:
        """Return where the timeline of a run stands."""
        return self.root / "timelines" / f"{slug(run.label, run.seed)}.npz"

    def scene(self, run: Run) -> Path:
        """Return where the scene of a run stands."""
        return self.root / "network" / f"{slug(run.label, run.seed)}.npz"

    def live(self, run: Run) -> "LiveFiles":
        """Return where a run writes while it goes on."""
        from folkman.record.live import LiveFiles

        name = slug(run.label, run.seed)
        return LiveFiles(self.root / "live" / f"{name}.jsonl", self.root / "live" / f"{name}.json")

    def save_part(self, run: Run, fingerprint: str) -> None:
        """Write the rows of one run and its status, under the fingerprint of its configuration."""
        notes = {"status": run.status, "message": run.message, "fingerprint": fingerprint}
        notes |= {"verdict": run.verdict, "reason": run.reason, "target_slot": run.target_slot}
        notes |= {"remark": run.remark}
        _write_table(self.part(run), run.rows, **notes)

    def load_part(self, run: Run, fingerprint: str) -> None:
        """Fill a run with the rows written so far; refuse those of another configuration."""
        found = self._read_part(run)
        if found is None:
            return
        rows, notes = found
        if notes.get("fingerprint") != fingerprint:
            raise ValueError(
                f"{self.part(run)} was made under another configuration than {self.config}, or by "
                "an earlier version that read it otherwise; restore that file, or run this one "
                "into a new folder"
            )
        run.rows, run.status, run.message = rows, notes["status"], notes["message"]
        _note_end(run, notes)

    def _read_part(self, run: Run) -> tuple[list[Json], dict[str, str]] | None:
        """Return the rows and notes of a part, if there is one."""
        path = self.part(run)
        if not path.is_file():
            return None
        table = read_table(path, "delete it to run this part again")
        return table.to_pylist(), json.loads((table.schema.metadata or {}).get(b"folkman", b"{}"))

    def save_results(self, runs: Iterable[Run]) -> None:
        """Write `metrics.parquet` and `summary.json`."""
        runs = list(runs)
        _write_table(self.metrics, rows_of(runs))
        write_json(self.summary, self.summarised(runs), indent=2)

    def summarised(self, runs: Iterable[Run]) -> Json:
        """Return `summary.json`: the end of each run, and whether its algorithm is tuned."""
        sides = standings(sides_of(self.read_config())) if self.config.is_file() else {}
        lines = [run.summary() for run in runs]
        return {"folder": str(self.root), "runs": lines, "tuned": sides}

    def load_results(self) -> list[Run]:
        """Read the runs of a finished folder."""
        if not self.metrics.is_file():
            raise FileNotFoundError(
                f"expected metrics.parquet in {self.root}, there is none yet; "
                f"finish it: folkman run --resume {self.root}"
            )
        runs = runs_of(read_table(self.metrics, "run its configuration again").to_pylist())
        summary = read_json(self.summary)
        require(
            summary is not None or not self.summary.is_file(),
            f"expected how the runs ended in {self.summary}, it is damaged; write it again: "
            f"folkman run --resume {self.root}",
        )
        told = (summary or {}).get("runs", [])
        known_by = {(each.get("label"), each.get("seed")): each for each in told}
        for run in runs:
            run.folder = self.root
            _note_end(run, known_by.get((run.label, run.seed), {}))
        return runs

    def read(self) -> Contents:
        """Read the folder as it stands now, without columns that this version does not know."""
        text, config = _read_toml(self.config)
        whole = all(isinstance(config.get(key), list) for key in ("algorithm", "seeds"))
        require(whole, f"expected [[algorithm]] and seeds in {self.config}; is it of a later one?")
        runs = [
            self.read_run(str(table.get("name")), str(table.get("label")), int(seed))
            for seed in config["seeds"]
            for table in config["algorithm"]
        ]
        if all(run.status == WAITING for run in runs) and self.metrics.is_file():
            runs = self.load_results()
            for run in runs:
                run.scene = self.load_scene(run)
        contents = Contents(self, config, text, read_json(self.provenance) or {}, runs)
        if contents.made_in_python:  # a saved run need not have been made under every seed
            return contents._replace(runs=[run for run in runs if run.status != WAITING])
        return contents

    def read_run(self, algorithm: str, label: str, seed: int) -> Run:
        """Read one run as it stands now."""
        from folkman.record.live import read_live

        run = Run(algorithm, label, seed, status=WAITING, folder=self.root)
        found = self._read_part(run)
        if found is not None:
            rows, notes = found
            run.rows = [known(row) for row in rows]
            run.status, run.message = notes.get("status", FINISHED), notes.get("message", "")
            _note_end(run, notes)
        if run.status in (WAITING, RUNNING):
            read_live(self.live(run), run)
        run.scene = self.load_scene(run)
        return run

    def load_scene(self, run: Run) -> "Scene | None":
        """Read what a run has kept of its network; None where it kept nothing."""
        from folkman.record.scene import load_scene

        return load_scene(self.scene(run))


def _note_end(run: Run, told: Json) -> None:
    """Fill in how a run ended; an earlier version wrote less."""
    run.verdict, run.reason = told.get("verdict", ""), told.get("reason", "")
    run.target_slot, run.remark = told.get("target_slot"), told.get("remark", "")


class JobFolder(RunFolder):
    """The folder of one job of a store: a run folder of one run, and how the job ended."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.job = root / "job.json"
        self.log = root / "job.log"
        self.lock = root / "job.lock"


def objective_in(config: Json) -> str | None:
    """Return which objective a configuration says, `samples` or `nodes`.

    A file of before there was a choice is of `samples`. None: made in Python from a problem that
    does not tell.
    """
    return config.get("objective", None if config.get(MADE_IN_PYTHON) else "samples")


def _read_toml(path: Path) -> tuple[str, Json]:
    """Return the text of a configuration and what it says."""
    text = read_text(path)
    try:
        return text, tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"expected TOML in {path}: {error}; restore the file") from None


def _write_table(path: Path, rows: list[Json], **notes: str | int | None) -> None:
    """Write rows and notes as Parquet, whole or not at all."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = list(rows[0]) if rows else []
    table = pa.table({name: _column([row.get(name) for row in rows]) for name in names})
    if notes:
        table = table.replace_schema_metadata({"folkman": json.dumps(notes)})
    write_whole(path, lambda part: pq.write_table(table, part))


def _column(values: Sequence[Any]) -> "pa.Array":
    """Return values as `pa.array` does, which would import pandas where it is installed.

    Numbers and texts are handed over as they lie in memory.
    """
    import numpy as np
    import pyarrow as pa

    kinds = {type(value) for value in values}
    if kinds == {str}:
        data = [value.encode() for value in values]
        ends = np.cumsum([0, *map(len, data)], dtype=np.int32)
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(data))]
        return pa.Array.from_buffers(pa.string(), len(values), buffers)
    if kinds and kinds <= {int, float}:
        kind, dtype = (pa.int64(), np.int64) if kinds == {int} else (pa.float64(), np.float64)
        numbers = np.asarray(values, dtype)
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(numbers)])
    return pa.array(values)


def save_runs(root: Path, runs: Sequence[Run]) -> Path:
    """Write runs that were made in Python as a new run folder; return where.

    `config.toml` says that there is no configuration, and what is known of the runs. A timeline is
    kept as its scene.
    """
    import numpy as np

    from folkman.record.scene import MOST_NODES, save_scene, scene_of

    named = {slug(run.label, run.seed) for run in runs}
    apart = len(named) == len(runs) > 0
    require(apart, "expected runs, each with a label and seed of its own; rename them")
    require(all(run.rows for run in runs), "expected runs with rows, one has none; simulate it")
    folder = RunFolder.create(root, _described(root.name, runs), in_python=True)
    note_start(folder.provenance, None)
    for run in runs:
        folder.save_part(run, MADE_IN_PYTHON)
        if run.model is not None:
            save_tensors(folder.model(run), {"model": np.asarray(run.model)})
        if (scene := scene_of(run)) is not None and scene.age_slots.shape[1] <= MOST_NODES:
            save_scene(scene, folder.scene(run))
    folder.save_results(runs)
    return root


def _described(name: str, runs: Sequence[Run]) -> str:
    """Return what is known of runs without a configuration, as TOML."""
    nodes = {len(run.nodes) for run in runs if run.nodes is not None}
    lines = [
        "# Saved from Python: there is no configuration here that could be run again.",
        f"{MADE_IN_PYTHON} = true",
        f"name = {quoted(name)}",
        *(f"nodes = {count}" for count in nodes if len(nodes) == 1),
        f"slots = {max(int(run.last('slots')) for run in runs)}",
        f"seeds = {list(dict.fromkeys(run.seed for run in runs))}",
    ]
    for label, algorithm in {run.label: run.algorithm for run in runs}.items():
        lines += ["", "[[algorithm]]", f"name = {quoted(algorithm)}", f"label = {quoted(label)}"]
    return "\n".join(lines) + "\n"


def list_runs(root: Path) -> list[Json]:
    """Return a line for each run folder under `root`, newest first."""
    folders = [folder for folder in map(RunFolder, root.iterdir()) if folder.config.is_file()]
    found = []
    for folder in sorted(folders, key=lambda each: each.config.stat().st_mtime, reverse=True):
        state, runs = _state(folder)
        changed = datetime.fromtimestamp(folder.config.stat().st_mtime, UTC)
        made = f"{changed:%Y-%m-%d %H:%M}"
        found.append({"folder": str(folder.root), "state": state, "made": made, "runs": runs})
    return found


def _state(folder: RunFolder) -> tuple[str, list[Json]]:
    """Tell how a folder stands by its summary; one damaged file does not spoil the listing."""
    if ClusterFolder(folder.root).is_there():
        return CLUSTER, []
    if not folder.summary.is_file():
        return UNFINISHED, []
    try:
        runs = (read_json(folder.summary) or {})["runs"]
        diverged = any(run["status"] == DIVERGED for run in runs)
    except (ValueError, KeyError, TypeError):
        return DAMAGED, []
    return DIVERGED if diverged else FINISHED, runs
