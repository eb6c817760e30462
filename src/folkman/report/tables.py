"""The table at the end of a comparison: one line a label, mean and 95 % interval over its seeds."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from folkman.record.run import DIVERGED, Run
from folkman.report.statistics import half_width

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["final_rows", "final_table"]

COLUMNS = {
    "gradients": "gradients",
    "rounds": "rounds",
    "bits": "bits",
    "train_loss": "train loss",
    "test_accuracy": "accuracy",
    "optimum_distance": "from optimum",
    "mean_age": "age",
    "kappa": "kappa",
}
"""Metric -> heading."""


def final_table(runs: Sequence[Run], title: str = "") -> "Table":
    """Return the last values of each label's runs; a column that no run defines is left out."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    headings, rows = final_rows(runs)
    table = Table(title=escape(title) or None, box=box.SIMPLE_HEAD, title_justify="left")
    for index, heading in enumerate(headings):
        table.add_column(heading, justify="right" if index else "left", no_wrap=True)
    for row in rows:
        table.add_row(escape(row[0]), *row[1:])
    return table


def final_rows(runs: Sequence[Run]) -> tuple[list[str], list[list[str]]]:
    """Return headings and a row of text a label."""
    labels = list(dict.fromkeys(run.label for run in runs))
    columns = [
        name for name in COLUMNS if any(np.isfinite(run.last(name)) for run in runs if run.rows)
    ]
    rows = []
    for label in labels:
        group = [run for run in runs if run.label == label]
        ended = sum(run.status == DIVERGED for run in group)
        cells = [
            _cell(np.array([run.last(name) for run in group if run.rows], float))
            for name in columns
        ]
        rows.append([label + (f" ({ended} diverged)" if ended else ""), *cells])
    return ["algorithm", *(COLUMNS[name] for name in columns)], rows


def _cell(values: np.ndarray) -> str:
    """Return mean and half-width; no half-width where all seeds agree or there is one."""
    if not len(values):
        return "-"
    mean, half = float(np.mean(values)), float(half_width(values[:, None])[0])
    if not np.isfinite(mean):
        return "-"
    text = f"{mean:.4g}" if abs(mean) < 1e5 else f"{mean:.3g}"
    return f"{text} ± {half:.2g}" if np.isfinite(half) and half > 0 else text
