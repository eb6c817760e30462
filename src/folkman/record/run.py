"""What a run leaves: one row of metrics at each recorded slot, on several axes.

The names below are the columns of `metrics.parquet` and are stable.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite, nan
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from folkman.deploy.predict import Predictions
    from folkman.record.json_file import Json, Table
    from folkman.record.scene import Scene
    from folkman.report.notebook import Animation, Drawing

__all__ = ["AXES", "COLUMNS", "DIVERGED", "ENDED", "FAILED", "FINISHED", "METRICS", "RUNNING"]
__all__ += ["ENERGY_COLUMNS", "HIGHER_IS_BETTER", "STOPPED", "WAITING", "Run", "json_row"]
__all__ += ["jsonable", "known", "read_table", "rows_of", "runs_of", "slug"]

WAITING = "waiting"
"""The status of a run, a job or a sweep that has not begun."""
RUNNING = "running"
SPENT = ("bits", "energy_j")
"""The axes of what methods spend: one may spend a hundred times what another does."""
STOPPED = "stopped"
"""It was interrupted, or its process is gone; it can go on."""
FINISHED = "finished"
DIVERGED = "diverged"
FAILED = "failed"
"""Of a job or a sweep: an error ended it."""

ENDED = (FINISHED, DIVERGED)
"""How a run ends that is not run again."""

AXES: dict[str, str] = {
    "seconds": "simulated time (s)",
    "slots": "slots of T seconds",
    "gradients": "gradients per node",
    "bits": "bits on air",
    "rounds": "rounds",
    "energy_j": "energy of all nodes (J)",
}
"""What a curve can be drawn against. `gradients` is the paper's "number of iterations"."""

METRICS: dict[str, str] = {
    "train_loss": "training loss F(w)",
    "test_loss": "test loss",
    "test_accuracy": "test accuracy",
    "optimum_distance": "distance from the optimum ||w - w*||",
    "consensus": "mean disagreement ||v_i - w||",
    "consensus_max": "largest disagreement ||v_i - w||",
    "node_norm": "largest node parameter norm ||w_i||",
    "mean_age": "mean age of the copies in gradients (slots)",
    "max_age": "largest age of a copy in a gradient (slots)",
    "staleness": "mean staleness of uploads (versions of the server's model)",
    "staleness_max": "largest staleness of an upload (versions of the server's model)",
    "pairs_unheard": "pairs that never had a fresh copy",
    "gamma_t": "mean transmission duration Gamma_T (slots)",
    "gamma_w": "mean waiting duration Gamma_W (slots)",
    "kappa": "learning efficiency: share of slots spent computing",
    "gradients_max": "gradients of the fastest node",
    "bits_unicast": "bits, each receiver counted",
    "transmit_j": "energy of all nodes for sending (J)",
    "receive_j": "energy of all nodes for listening (J)",
    "compute_j": "energy of all nodes for gradients (J)",
    "station_j": "energy of servers and stations for sending and listening (J)",
    "transmit_s": "time on the air, all nodes together (s)",
    "receive_s": "time listening, all nodes together (s)",
    "joules_per_percent": "energy of all nodes per percent of test accuracy (J)",
    "push_weight": "least weight y_i that a gradient was divided by (asynchronous SGP)",
    "node_train_loss": "mean over nodes of F(v_i)",
    "node_train_loss_worst": "largest F(v_i) of a node",
    "node_train_loss_spread": "standard deviation over nodes of F(v_i)",
    "node_test_accuracy": "mean over nodes of the test accuracy of v_i",
    "node_test_accuracy_worst": "lowest test accuracy of a v_i",
    "node_test_accuracy_spread": "standard deviation over nodes of the test accuracy of v_i",
    "node_local_accuracy": "mean over nodes of the accuracy of v_i on the node's own labels",
    "node_local_accuracy_worst": "lowest accuracy of a v_i on its node's own labels",
    "node_local_accuracy_spread": "standard deviation over nodes of the accuracy on own labels",
}
"""What a curve can show. `w` is the network's model: sum_i alpha_i w_i, or the server's."""

HIGHER_IS_BETTER = frozenset({"test_accuracy", "kappa"}) | {
    f"node_{which}_accuracy{end}" for which in ("test", "local") for end in ("", "_worst")
}
"""Metrics of which more is better, all of them shares; of all others less is better."""

ENERGY_COLUMNS = ("energy_j", "transmit_j", "receive_j", "compute_j", "station_j")
ENERGY_COLUMNS += ("transmit_s", "receive_s", "joules_per_percent")
"""The columns of energy (`folkman.energy`); rows of earlier versions have none."""

COLUMNS = (*AXES, *METRICS)
"""The columns of a run's rows."""

SHOWN = ("slots", "train_loss", "test_accuracy")
"""The last values that a run is shown by, in a line."""


@dataclass(repr=False)
class Run:
    """One algorithm under one seed: its rows, how it ended, and its last model."""

    algorithm: str  # name of the method
    label: str  # name in tables and figures
    seed: int
    # a dictionary for each recorded slot
    rows: list[dict[str, float]] = field(default_factory=list)
    status: str = RUNNING  # running, stopped, finished, diverged or failed
    message: str = ""  # what went wrong; empty if nothing
    verdict: str = ""  # how a run that has ended went: finished, diverged or not learning
    reason: str = ""  # why the verdict is not finished, and what to try
    remark: str = ""  # what was seen of a run that finished, and what to try; empty if nothing
    target_slot: int | None = None  # slot in which it met its targets and ended; None: it did not
    model: Any = None  # (d,) the network's last model
    nodes: Any = None  # (node, d) the nodes' last parameters
    timeline: Any = None  # who held what when, where it was kept
    scene: "Scene | None" = None  # where nodes were and what was on the air, frame by frame
    fitted: Any = None  # what computes with its model; `folkman.problem.models.Fitted`
    folder: Path | None = None  # folder that it was written to or read from; None: in memory alone

    @property
    def head(self) -> "Json":
        """Return what it is: method, label and seed."""
        return {"algorithm": self.algorithm, "label": self.label, "seed": self.seed}

    def column(self, name: str) -> list[float]:
        """Return one axis or metric over the recorded slots."""
        if self.rows and name not in self.rows[0]:
            raise ValueError(
                f"these runs have no column '{name}'; they have {', '.join(self.rows[0])}"
            )
        return [row[name] for row in self.rows]

    def last(self, name: str) -> float:
        """Return the last value of one axis or metric."""
        if self.rows and name in ENERGY_COLUMNS:
            return self.rows[-1].get(name, nan)
        return self.column(name)[-1] if self.rows else nan

    def summary(self) -> "Json":
        """Return the run's line of `summary.json`; what is not finite is None there."""
        names = ("slots", "seconds", "gradients", "rounds", "bits", "train_loss", "test_accuracy")
        names += ("mean_age", "max_age", "kappa", "energy_j", "joules_per_percent")
        ends: Json = {"status": self.status, "verdict": self.verdict, "reason": self.reason}
        ends |= {"remark": self.remark, "target_slot": self.target_slot}
        return self.head | {name: jsonable(self.last(name)) for name in names} | ends

    def plot(
        self,
        x: str = "seconds",  # a cost, for the horizontal axis
        y: str = "train_loss",  # a metric, for the vertical axis
        style: str = "screen",
    ) -> "Drawing":
        """Draw one metric against one axis; a notebook shows it, `.save("loss.pdf")` writes it."""
        from folkman.report import notebook

        return notebook.plot([self], x, y, style)

    def to_pandas(self) -> "pd.DataFrame":
        """Return one row a recorded slot as a pandas data frame."""
        from folkman.report import notebook

        return notebook.to_pandas([self])

    def predict(
        self,
        x: Any,
        # number of the node whose model is asked; None: the network's model
        node: int | None = None,
    ) -> "Predictions":
        """Return what the last model says of samples x (n, ...): classes, or numbers.

        `node` asks the model of one node, where the run folder kept it (`keep_nodes`).
        """
        from folkman.deploy.predict import predict
        from folkman.deploy.trained import trained_of_run

        return predict(trained_of_run(self, node), x)

    def animate(
        self,
        paint: str | None = None,  # what colours the nodes; None: as the run has it
        frames: int = 30,  # pictures at most
    ) -> "Animation":
        """Return the map of the network over time; `.save("map.gif")` writes it."""
        from folkman.report import notebook

        return notebook.animate(self, paint, frames)

    def _repr_html_(self) -> str:
        from folkman.report import notebook

        return notebook.show([self])

    def save(self, folder: str | Path) -> Path:
        """Write this run as a run folder, for `read_results` and `folkman report`; return where."""
        from folkman.record.folder import save_runs

        return save_runs(Path(folder), [self])

    def __str__(self) -> str:
        """Return a line for people."""
        values: Mapping[str, float] = self.rows[-1] if self.rows else {}
        shown = ", ".join(f"{name} {values[name]:.4g}" for name in SHOWN if name in values)
        return f"{self.label} (seed {self.seed}): {self.status}" + (f" at {shown}" if shown else "")

    def __repr__(self) -> str:
        """Return two lines; rows and arrays are told by their sizes."""
        arrays = {name: getattr(self, name) for name in ("model", "nodes")}
        told = [f"{len(self.rows)} rows"]
        told += [f"{name} {array.shape}" for name, array in arrays.items() if array is not None]
        told += [name for name in ("timeline", "scene") if getattr(self, name) is not None]
        return f"<Run of {self.algorithm}: {self}\n {', '.join(told)}>"


def slug(label: str, seed: int) -> str:
    """Return a file name for a run: its label in letters and digits, and its seed."""
    plain = re.sub(r"[^\w.=-]+", "-", label).strip("-").lower()
    return f"{plain}-seed{seed}"


def jsonable(value: float) -> float | int | None:
    """Return a number that JSON can hold: whole as an integer, None if it is not finite."""
    if not isfinite(value):
        return None
    return int(value) if float(value).is_integer() else float(value)


def json_row(values: "Table") -> "Json":
    """Return values with every number as JSON can hold it; whatever is no number stays."""
    numbers = {k: v for k, v in values.items() if isinstance(v, Real) and not isinstance(v, bool)}
    return {**values, **{key: jsonable(float(value)) for key, value in numbers.items()}}


def known(row: "Table") -> dict[str, float]:
    """Return the columns that this version knows; a value that is not there is not a number."""
    return {name: nan if row[name] is None else row[name] for name in COLUMNS if name in row}


def read_table(path: Path, remedy: str) -> "pa.Table":
    """Read a Parquet file of rows, or say that it is damaged and what to do."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:  # pq.read_table would import pandas if it is there
            return file.read()
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(f"expected a Parquet file, {path} is damaged: {error}; {remedy}") from None


def rows_of(runs: Iterable[Run]) -> "list[Json]":
    """Return the rows of runs as `metrics.parquet` holds them."""
    return [run.head | row for run in runs for row in run.rows]


def runs_of(rows: "Iterable[Json]") -> list[Run]:
    """Return finished runs of the rows of `metrics.parquet`, by their first appearance."""
    runs: dict[tuple[str, int], Run] = {}
    for row in rows:
        name, label, seed = (row.pop(key) for key in ("algorithm", "label", "seed"))
        runs.setdefault((label, seed), Run(name, label, seed, status="finished")).rows.append(row)
    return list(runs.values())
