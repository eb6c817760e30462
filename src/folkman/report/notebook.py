"""Results in a notebook: shown as a table and a figure, as pandas, and as a map that moves.

    runs = read_results("runs/first")     # or what `simulate` returns
    runs                                  # a table and a figure
    runs.plot("bits", "test_accuracy")
    runs.to_pandas()
    runs[0].animate()

`Run` has the same three methods; they live here, so that what a run leaves knows nothing of
drawing.
"""

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from folkman.checks import require
from folkman.files import write_whole
from folkman.record.folder import RunFolder
from folkman.record.run import Run, rows_of
from folkman.record.scene import Scene, scene_of
from folkman.record.settings import Settings, settings_of_folders
from folkman.record.sweep import is_sweep, read_sweep
from folkman.record.table import arms_of
from folkman.report.chosen import Asked
from folkman.report.figures import check_target, new_figure, save
from folkman.report.html import drawing, table
from folkman.report.plot import draw_plot
from folkman.report.scenes import best_paint, paint_scene
from folkman.report.tables import final_rows

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from PIL.Image import Image

__all__ = ["Animation", "Drawing", "Results", "animate", "plot", "read_results", "show"]
__all__ += ["to_pandas"]

MOVING = (".png", ".gif", ".webp")
FRAME_MS = 200
MOST_SHOWN = 6
"""Runs that a line is printed of."""


class Drawing:
    """A figure that a notebook shows as vectors."""

    def __init__(self, figure: "Figure", caption: str) -> None:
        self.figure, self.caption = figure, caption

    def save(self, path: str | Path) -> list[Path]:
        """Write it as the kind that the name ends in: .png, .svg or .pdf; or as PNG and SVG."""
        if Path(path).suffix:
            check_target(Path(path))
        return save(self.figure, Path(path))

    def _repr_html_(self) -> str:
        drawn = drawing(f"f{id(self):x}", self.figure, self.caption)
        return f'<div style="max-width: 36em">{drawn}</div>'


class Animation:
    """A map over time, as pictures of one size."""

    def __init__(self, pictures: "Sequence[Image]") -> None:
        self.pictures = pictures

    def __len__(self) -> int:
        return len(self.pictures)

    def save(self, path: str | Path) -> Path:
        """Write it as .gif, .webp, or .png that moves."""
        target = Path(path)
        if target.suffix not in MOVING:
            raise ValueError(
                f"expected a file that ends in one of {', '.join(MOVING)}, got {target}"
            )
        write_whole(target, lambda part: self._write(part, target.suffix[1:]))
        return target

    def _write(self, target: Path | io.BytesIO, kind: str) -> None:
        first, *rest = self.pictures
        first.save(
            target, format=kind, save_all=True, append_images=rest, duration=FRAME_MS, loop=0
        )

    def _repr_html_(self) -> str:
        data = io.BytesIO()
        self._write(data, "png")
        text = base64.b64encode(data.getvalue()).decode()
        return f'<img alt="The map of the network over time" src="data:image/png;base64,{text}">'


class Results(list[Run]):
    """The runs of a folder, and where it is."""

    def __init__(self, runs: Iterable[Run] = (), folder: Path | None = None) -> None:
        super().__init__(runs)
        self.folder = folder

    def plot(
        self,
        x: str = "seconds",  # a cost or a setting, for the horizontal axis
        y: str = "train_loss",  # a metric, for the vertical axis
        style: str = "screen",
        *,
        hue: str | Sequence[str] | None = None,
        facet: str | None = None,
        log: str | None = None,
        where: Mapping[str, object] | None = None,
    ) -> Drawing:
        """Draw a metric against a cost or a setting; see `plot`."""
        return plot(self, x, y, style, hue=hue, facet=facet, log=log, where=where)

    def to_pandas(self) -> "pd.DataFrame":
        """Return one row a recorded slot of each run."""
        return to_pandas(self)

    def __repr__(self) -> str:
        """Return a line a run, of the first few."""
        rest = [f"... and {len(self) - MOST_SHOWN} more"] if len(self) > MOST_SHOWN else []
        return "\n".join([f"Results of {len(self)} runs", *map(str, self[:MOST_SHOWN]), *rest])

    def _repr_html_(self) -> str:
        return show(self)


def read_results(
    root: str | Path,  # folder of a run or of a sweep
) -> Results:
    """Read the runs of a run or sweep folder, finished or not."""
    folder = Path(root)
    runs = read_sweep(folder).runs if is_sweep(folder) else RunFolder.open(folder).read().runs
    return Results((run for run in runs if run.rows), folder)


def plot(
    # runs, or run and sweep folders
    source: str | Path | Run | Sequence[str | Path] | Sequence[Run],
    x: str = "seconds",  # a cost or a setting, for the horizontal axis
    y: str = "train_loss",  # a metric, for the vertical axis
    style: str = "screen",
    *,
    hue: str | Sequence[str] | None = None,
    facet: str | None = None,
    log: str | None = None,
    where: Mapping[str, object] | None = None,
) -> Drawing:
    """Draw runs, or run and sweep folders, as `folkman plot` does.

    `x`: a cost (seconds, bits, gradients, joules, slots, rounds), for curves; or a setting
    (`network.gamma`), for what runs ended at. `hue`: settings with a colour per value; `facet`: one
    with a panel per value; `where`: values to keep, `{"nodes": [5, 10]}`; `log`: x, y, xy or none.
    Means over seeds have their 95 % interval. Arms are never averaged.
    """
    asked = Asked(x, y, hue, facet, log, where or {})
    arms, facts = _arms_and_settings(source)
    return Drawing(draw_plot(arms, facts, asked, style), f"{y} against {x}")


def _arms_and_settings(
    source: str | Path | Run | Sequence[str | Path] | Sequence[Run],
) -> tuple[dict[str, dict[int, Run]], dict[str, Settings]]:
    """Return arm -> seed -> run, and the settings of each arm as far as its folder tells them."""
    if isinstance(source, str | Path):
        return _arms_and_settings([source])
    given = [source] if isinstance(source, Run) else list(source)
    roots = [Path(each) for each in given if isinstance(each, str | Path)]
    if roots:
        require(len(roots) == len(given), "expected folders or runs, got both; give one kind")
        return arms_of(roots), settings_of_folders(roots)
    arms: dict[str, dict[int, Run]] = {}
    for run in given:
        if isinstance(run, Run) and run.rows:
            arms.setdefault(run.label, {})[run.seed] = run
    require(bool(arms), "expected runs with rows to draw, got none; run something first")
    folder = source.folder if isinstance(source, Results) else None
    return arms, settings_of_folders([folder]) if folder is not None else {}


def to_pandas(runs: Sequence[Run]) -> "pd.DataFrame":
    """Return one row a recorded slot of each run."""
    try:
        import pandas as pd
    except ImportError:
        raise RuntimeError(
            "expected pandas, it is not installed; pip install 'folkman[notebook]'"
        ) from None
    return pd.DataFrame(rows_of(runs))


def show(runs: Sequence[Run]) -> str:
    """Return runs as HTML: a table of their last values and the loss over time."""
    begun = [run for run in runs if run.rows]
    if not begun:
        return "<p>no run has begun</p>"
    return table(*final_rows(begun)) + plot(begun)._repr_html_()


def animate(run: Run, paint: str | None = None, frames: int = 30) -> Animation:
    """Return the map of a run over time, coloured by `sinr`, `age` or `disagreement`."""
    scene = scene_of(run)
    if scene is None:
        raise ValueError(
            f"'{run.label}' has kept nothing of its network; read it from a run folder, or "
            "between peers simulate with recording=Recording(timeline=True)"
        )
    colour = paint or best_paint(scene)
    chosen = np.unique(np.linspace(0, len(scene.slot) - 1, max(frames, 1)).astype(int))
    return Animation([_picture(scene, int(frame), colour) for frame in chosen])


def _picture(scene: Scene, frame: int, paint: str) -> "Image":
    from PIL.Image import open as read_image

    figure, axes = new_figure(5.2, 4.2)
    paint_scene(figure, axes, scene, frame, paint)
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=100)
    return read_image(data).convert("RGB")
