"""Draw a comparison of many methods on one page, and print its table as Markdown.

folkman run examples/comparison/digits-iid.toml --out runs/digits-iid
python examples/comparison/draw.py runs/digits-iid digits-iid.png
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from folkman.record.folder import RunFolder
from folkman.record.run import AXES, METRICS, Run
from folkman.report.figures import COLOURS, STYLES
from folkman.report.statistics import curves, half_width

PANELS = [
    ("seconds", "train_loss"),
    ("bits", "train_loss"),
    ("seconds", "test_accuracy"),
    ("bits", "test_accuracy"),
]


def draw(runs: list[Run]) -> Figure:
    """Return loss and accuracy against seconds and bits, in four panels with one legend."""
    figure = Figure(figsize=(7.2, 5.4), layout="constrained")
    grid = figure.subplots(2, 2)
    for axes, (x, y) in zip(grid.flat, PANELS, strict=True):
        for index, curve in enumerate(curves(runs, x, y)):
            style = STYLES[(index + index // len(COLOURS)) % len(STYLES)]
            axes.plot(curve.x, curve.mean, color=COLOURS[index % len(COLOURS)], linestyle=style,
                      linewidth=1.2, label=curve.label)  # fmt: skip
        if y == "train_loss":  # one that grows without bound must not hide the others
            axes.set_ylim(0.0, min(axes.get_ylim()[1], 2 * max(run.rows[0][y] for run in runs)))
        axes.set_xlabel((AXES | METRICS)[x])
        axes.set_ylabel((AXES | METRICS)[y])
        axes.grid(visible=True, alpha=0.3, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=6, fontsize="x-small", frameon=False
    )
    return figure


def table(runs: list[Run]) -> str:
    """Return mean and 95 % half-width over seeds of the last row of each method."""
    columns = {
        "gradients": "gradients",
        "rounds": "rounds",
        "bits": "Mbit",
        "train_loss": "training loss",
    }
    columns |= {"test_accuracy": "accuracy", "kappa": "kappa"}
    lines = [f"| method | {' | '.join(columns.values())} |", "|---" * (len(columns) + 1) + "|"]
    for label in dict.fromkeys(run.label for run in runs):
        ends = [run for run in runs if run.label == label]
        cells = []
        for name in columns:
            values = np.array([run.last(name) for run in ends]) * (1e-6 if name == "bits" else 1.0)
            half = float(half_width(values[:, None])[0])
            cells.append(
                f"{values.mean():.4g}"
                + (f" ± {half:.1g}" if np.isfinite(half) and half > 0 else "")
            )
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    folder, target = Path(sys.argv[1]), Path(sys.argv[2])
    found = RunFolder.open(folder).load_results()
    draw(found).savefig(target, dpi=160)
    print(table(found))
