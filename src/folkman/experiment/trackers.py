"""Runs shown elsewhere as they grow: TensorBoard, MLflow, Weights & Biases.

None is needed, any may be asked for.

    folkman run --track tensorboard --track mlflow

A tracker watches and never steers: what goes wrong in one is said once, and the run goes on without
it. A resumed run is told again from its first row, so no tracker has gaps; repeated rows are
dropped or replace the earlier ones. Nothing leaves the machine unless its owner says so: MLflow
writes `mlflow.db` in the folder unless MLFLOW_TRACKING_URI is set, and Weights & Biases works
offline unless WANDB_MODE says otherwise.
"""

import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

from folkman.checks import one_of, require
from folkman.record.json_file import Table
from folkman.record.run import DIVERGED, FINISHED, RUNNING, Run, slug

__all__ = ["TRACKERS", "check_packages", "ignore", "make_shared", "tracking"]


Watch: TypeAlias = Callable[[Run, int, int], None]
"""Called at every recorded slot: (run, slots done, slots in all). May raise to stop the run."""


def ignore(run: Run, done: int, slots: int) -> None:
    """Watch nothing."""


class Tracked(NamedTuple):
    """Where a run is tracked, and what is said of it."""

    root: Path
    project: str
    name: str
    config: Table


class Sink(Protocol):
    """One run in one tracker."""

    def row(self, slot: int, values: Mapping[str, float]) -> None:
        """Take the metrics of a recorded slot."""
        ...

    def close(self, status: str) -> None:
        """End the run: finished, diverged, or running if it was interrupted."""
        ...


class TensorBoard:
    """Scalars in `tensorboard/NAME/`; a run that is reported again purges its earlier ones."""

    def __init__(self, scene: Tracked) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        messages: Any = event_pb2  # generated code, which type checkers cannot see into
        summaries: Any = summary_pb2
        self._event, self._summary = messages.Event, summaries.Summary
        self._writer = EventFileWriter(str(scene.root / "tensorboard" / scene.name))
        start = messages.SessionLog(status=messages.SessionLog.START)
        self._writer.add_event(self._event(wall_time=time.time(), step=0, session_log=start))

    def row(self, slot: int, values: Mapping[str, float]) -> None:
        """Write one event with all values."""
        value = self._summary.Value
        scalars = [value(tag=name, simple_value=number) for name, number in values.items()]
        told = {"step": slot, "summary": self._summary(value=scalars)}
        self._writer.add_event(self._event(wall_time=time.time(), **told))

    def close(self, status: str) -> None:
        """Flush and close the file."""
        del status
        self._writer.close()


class MLflow:
    """A run of the experiment PROJECT; one that is reported again goes on where it stood."""

    def __init__(self, scene: Tracked) -> None:
        from mlflow.tracking import MlflowClient

        self._client = MlflowClient(mlflow_address(scene.root))
        experiment = _experiment(self._client, scene.project)
        mine = f"tags.folkman = '{_identity(scene)}'"
        known = self._client.search_runs([experiment], mine, max_results=1)
        if known:
            self._run_id = known[0].info.run_id
            told = self._client.get_metric_history(self._run_id, "slots")
            self._last = max((metric.step for metric in told), default=-1)
            return
        head = {"tags": {"folkman": _identity(scene)}, "run_name": scene.name}
        self._run_id = self._client.create_run(experiment, **head).info.run_id
        self._last = -1
        for key, value in _flat(scene.config):
            self._client.log_param(self._run_id, key, str(value)[:500])

    def row(self, slot: int, values: Mapping[str, float]) -> None:
        """Log the values of a slot that was not logged before."""
        from mlflow.entities import Metric

        if slot <= self._last:
            return
        now_ms = int(time.time() * 1000)
        metrics = [Metric(name, value, now_ms, slot) for name, value in values.items()]
        self._client.log_batch(self._run_id, metrics)
        self._last = slot

    def close(self, status: str) -> None:
        """Mark the run as it ended."""
        ends = {FINISHED: "FINISHED", DIVERGED: "FAILED"}
        self._client.set_terminated(self._run_id, ends.get(status, "KILLED"))


class WeightsAndBiases:
    """A run of PROJECT under `wandb/`; reported again it has its id, and `wandb sync` joins."""

    def __init__(self, scene: Tracked) -> None:
        import wandb

        scene.root.mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(
            project="folkman",
            group=scene.project,
            name=scene.name,
            id=_identity(scene),
            dir=str(scene.root),
            config=dict(_flat(scene.config)),
            mode=os.environ.get("WANDB_MODE", "offline"),  # type: ignore[arg-type]
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(silent=True, console="off"),
        )
        self._run.define_metric("*", step_metric="slots")

    def row(self, slot: int, values: Mapping[str, float]) -> None:
        """Log the values of a slot."""
        self._run.log(dict(values), step=slot)

    def close(self, status: str) -> None:
        """Finish the run; one that was interrupted counts as failed."""
        self._run.finish(exit_code=0 if status == FINISHED else 1)


TRACKERS: dict[str, tuple[Callable[[Tracked], Sink], tuple[str, ...]]] = {
    "tensorboard": (TensorBoard, ("tensorboard",)),
    "mlflow": (MLflow, ("mlflow", "sqlalchemy", "alembic")),
    "wandb": (WeightsAndBiases, ("wandb",)),
}
"""Name -> (its sink, the packages it needs). The name is also that of the extra which brings
them."""


def check_packages(names: Sequence[str]) -> None:
    """Refuse an unknown tracker, or one that is not installed."""
    for name in names:
        one_of("tracker", name, TRACKERS)
        missing = [package for package in TRACKERS[name][1] if find_spec(package) is None]
        require(
            not missing,
            f"--track {name} needs {', '.join(missing)}, which is not installed; pip install "
            f"'folkman[{name}]'",
        )


def make_shared(names: Sequence[str], root: Path, project: str) -> None:
    """Make MLflow's database and experiment, which workers could only make in turn."""
    if "mlflow" in names:
        from mlflow.tracking import MlflowClient

        root.mkdir(parents=True, exist_ok=True)
        _experiment(MlflowClient(mlflow_address(root)), project)


@contextmanager
def tracking(
    names: Sequence[str],
    root: Path,
    project: str,
    config: Table,
    arm: str | None = None,
    then: Watch = ignore,
) -> Iterator[Watch]:
    """Yield a watcher that tells trackers of every slot, then `then`; `arm` names a run."""
    if not names:
        yield then
        return
    open_sinks: dict[tuple[str, str], Sink] = {}
    given_up: set[str] = set()
    ends: dict[str, str] = {}

    def watch(run: Run, done: int, slots: int) -> None:
        scene = Tracked(root, project, slug(arm or run.label, run.seed), config)
        over = done >= slots or run.status == DIVERGED
        ends[scene.name] = run.status if over else RUNNING
        for name in (name for name in names if name not in given_up):
            with _at_a_distance(name, given_up):
                place = (name, scene.name)
                rows = run.rows[-1:] if place in open_sinks else run.rows
                if place not in open_sinks:
                    open_sinks[place] = TRACKERS[name][0](scene)
                for row in rows:
                    values = {key: value for key, value in row.items() if isfinite(value)}
                    open_sinks[place].row(int(row["slots"]), values)
                if over:
                    open_sinks.pop(place).close(run.status)
        then(run, done, slots)

    try:
        yield watch
    finally:
        for (name, run_name), sink in open_sinks.items():
            with _at_a_distance(name, given_up):
                sink.close(ends[run_name])


@contextmanager
def _at_a_distance(name: str, given_up: set[str]) -> Iterator[None]:
    """Keep the errors of a tracker away from the run: say it once, then ask it no more."""
    try:
        yield
    except Exception as error:
        given_up.add(name)
        text = f"warning: {name} is no longer told of this run: {error}"
        print(text, file=sys.stderr, flush=True)


def mlflow_address(root: Path) -> str:
    """Return where MLflow keeps its runs: as the environment says, else in the folder."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{(root / 'mlflow.db').resolve()}"


def _experiment(client: Any, name: str) -> str:
    """Return the experiment of that name; make it if neither we nor another has."""
    from mlflow.exceptions import MlflowException

    known = client.get_experiment_by_name(name)
    if known is None:
        try:
            return client.create_experiment(name)
        except MlflowException:
            known = client.get_experiment_by_name(name)
    return known.experiment_id


def _identity(scene: Tracked) -> str:
    """Return an id that a resumed run finds again: of its folder and name."""
    return hashlib.sha256(f"{scene.root.resolve()} {scene.name}".encode()).hexdigest()[:16]


def _flat(table: Table, prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif isinstance(value, (list, tuple)) and value and isinstance(value[0], Mapping):
            for index, item in enumerate(value):
                yield from _flat(item, f"{prefix}{key}.{index}.")
        else:
            yield f"{prefix}{key}", value
