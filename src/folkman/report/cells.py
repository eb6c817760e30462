"""What a survey of a cell looks like: the table, the map and the sawtooth of ages."""

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from folkman.report.figures import COLOURS, STYLES, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_ages", "draw_map", "print_survey"]

MAP_RADIUS = 2.0
"""How far beyond the outermost node the map reaches, in units of that node's distance."""


class Picture(Protocol):
    """One drop: positions, one block's SINR and links, and the ages slot by slot."""

    @property
    def ages(self) -> NDArray[np.int32]: ...
    @property
    def nodes_m(self) -> NDArray[np.float32]: ...
    @property
    def interferers_m(self) -> NDArray[np.float32]: ...
    @property
    def sinr_db(self) -> NDArray[np.float32]: ...
    @property
    def linked(self) -> NDArray[np.bool_]: ...


def print_survey(survey: Any, *, quiet: bool) -> None:
    """Print a line a threshold and allocation: mean and 95 % half-width; on the error stream if `quiet`."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for name in ("threshold", "allocation", "P(link)", "P(node)", "Gamma_T", "median", "p95", "Gamma_W", "age", "p95"):
        table.add_column(name, justify="left" if name == "allocation" else "right", no_wrap=True)
    for row, half in zip(survey.rows, survey.half_widths, strict=True):
        table.add_row(
            f"{row['threshold_db']:g} dB",
            row["allocation"],
            _cell(row["p_link"], half["p_link"]),
            _cell(row["p_node"], half["p_node"]),
            _cell(row["gamma_t"]["mean"], half["gamma_t"]),
            _cell(row["gamma_t"]["median"], None),
            _cell(row["gamma_t"]["p95"], None),
            _cell(row["gamma_w"]["mean"], half["gamma_w"]),
            _cell(row["age"]["mean"], half["age"]),
            _cell(row["age"]["p95"], None),
        )
    console = Console(stderr=quiet, width=None if Console().is_terminal else 130)
    first = survey.rows[0]
    quantiles = "/".join(_cell(first["sinr_db"][q], None) for q in ("p5", "p50", "p95"))
    heading = f"{first['nodes']} nodes, period by {first['period']}; SINR 5/50/95 %: {quantiles} dB"
    console.print(f"{heading}; durations and ages in slots")
    console.print(table)
    if survey.best_threshold_db is not None:
        console.print(f"least expected Gamma_W + Gamma_T near {survey.best_threshold_db:.1f} dB", highlight=False)


def _cell(value: float | None, half: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3g} ± {half:.1g}" if half else f"{value:.3g}"


def draw_map(picture: Picture) -> "Figure":
    """Draw nodes, the links scheduled in one block coloured by SINR, and the interferers around."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.patches import Circle

    figure, axes = new_figure(4.6, 3.8)
    nodes, linked = picture.nodes_m, picture.linked
    reach = MAP_RADIUS * float(np.linalg.norm(nodes, axis=1).max(initial=1.0))
    cell = Circle((0, 0), 500.0, fill=False, edgecolor="0.6", linewidth=0.8, linestyle=":")
    axes.add_patch(cell)
    near = np.abs(picture.interferers_m).max(axis=1, initial=0.0) < reach
    outside = picture.interferers_m[near]
    axes.scatter(outside[:, 0], outside[:, 1], marker="x", s=14, color="0.55", linewidth=0.8, label="interferers")
    shades = ScalarMappable(Normalize(*_span(picture.sinr_db[linked])), "viridis")
    for rx, tx in np.argwhere(linked):
        arrow = {"arrowstyle": "-|>", "color": shades.to_rgba(picture.sinr_db[rx, tx]), "linewidth": 1.4}
        arrow |= {"connectionstyle": "arc3,rad=0.15", "shrinkA": 4, "shrinkB": 4}  # bent: both ways can be seen
        axes.annotate("", nodes[rx], nodes[tx], arrowprops=arrow)
    if linked.any():
        figure.colorbar(shades, ax=axes, label="SINR of scheduled links (dB)", shrink=0.85)
    axes.scatter(nodes[:, 0], nodes[:, 1], s=36, color=COLOURS[1], zorder=3, label="nodes", edgecolor="white")
    for index, (x, y) in enumerate(nodes):
        axes.annotate(str(index), (x, y), textcoords="offset points", xytext=(5, 4), fontsize="small")
    axes.set_xlim(-reach, reach)
    axes.set_ylim(-reach, reach)
    axes.set_aspect("equal")
    axes.set_xlabel("x (m)")
    axes.set_ylabel("y (m)")
    axes.legend(frameon=False, fontsize="x-small", loc="upper right")
    return figure


def _span(values: NDArray[np.float32]) -> tuple[float, float]:
    return (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)


def draw_ages(picture: Picture) -> "Figure":
    """Draw the age of a few held copies over time: it grows by one a slot, and falls when a copy arrives."""
    figure, axes = new_figure(4.6, 2.8)
    count = picture.ages.shape[1]
    others = [(rx, tx) for rx in range(count) for tx in range(count) if rx != tx]
    order = sorted(others, key=lambda pair: float(picture.ages[:, pair[0], pair[1]].mean()))
    chosen = [order[i] for i in sorted({0, len(order) // 2, int(0.8 * len(order))})] if order else []
    for index, (rx, tx) in enumerate(chosen):
        line = picture.ages[:, rx, tx]
        axes.plot(
            line, color=COLOURS[index], linestyle=STYLES[index], linewidth=1.2, label=f"node {rx}'s copy of node {tx}"
        )
    axes.set_xlabel("slot")
    axes.set_ylabel("age (slots)")
    axes.grid(visible=True, alpha=0.3, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    if chosen:
        axes.legend(frameon=False, fontsize="x-small", loc="upper left")
    return figure
