"""What a survey of a cell looks like: the table, the map and the sawtooth of ages."""

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from folkman.record.json_file import Json
from folkman.report.figures import COLOURS, STYLES, finish, name_ends, new_figure
from folkman.report.palette import ramp
from folkman.report.scenes import NODE_SIZE, draw_link, draw_surroundings, frame_map, number_nodes
from folkman.report.tables import screen_table, spread

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_ages", "draw_map", "print_survey"]

MAP_RADIUS = 1.6
"""How far the map reaches, in cell radii."""


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
    @property
    def cell_radius_m(self) -> float: ...


LEGEND = (
    "P(link), P(node): shares of the pairs, and of the nodes, that are scheduled; Gamma_T: slots "
    "of a transmission; Gamma_W: slots until a pair is scheduled again; age: slots since the "
    "copies in use were formed; unheard: pairs that never met, so that waits and ages are longer "
    "(≥)."
)
"""What the columns are, below the table."""

PLANNERS = {
    "epochs": "the least wait and transmission by a formula",
    "simulation": "the least mean age of these drops",
}
"""How a best threshold was found -> what is printed."""


def print_survey(survey: Any, *, quiet: bool) -> None:
    """Print a line per threshold and allocation: mean and 95 % half-width.

    On the error stream if `quiet`.
    """
    from rich.console import Console

    headings = ("threshold", "allocation", "P(link)", "P(node)", "Gamma_T", "median", "p95")
    shown = [*survey.rows, *(row for row in survey.best_rows.values() if row not in survey.rows)]
    more = ("Gamma_W", "age", "p95", "unheard", "W")
    table = screen_table("rlrrrrrrrrrr", (*headings, *more), map(_cells, shown))
    console = Console(stderr=quiet, width=None if Console().is_terminal else 150)
    first = survey.rows[0]
    quantiles = "/".join(_cell(first["sinr_db"][q], None) for q in ("p5", "p50", "p95"))
    period = f", period by {first['period']}" if first["period"] else ""
    heading = f"{first['nodes']} nodes{period}; SINR 5/50/95 %: {quantiles} dB"
    console.print(
        f"{heading}; durations and ages in slots, over {first['slots']} slots of each drop; "
        "W: power of a node's radio, in the mean"
    )
    console.print(table)
    console.print(LEGEND, highlight=False)
    if len(shown) > 1:
        console.print(_youngest(shown), highlight=False)
    how = PLANNERS[survey.planner]
    for allocation, threshold_db in survey.best_thresholds_db.items():
        found = f"best threshold for {allocation} shares, {how}: {threshold_db:.1f} dB"
        console.print(found, highlight=False)
    for row in (row for row in survey.rows if row["floor"] is not None):
        at = "index" if row["threshold_db"] is None else f"{row['threshold_db']} dB"
        floor = f"no schedule of such messages has a mean age below {row['floor']:.3g}"
        console.print(f"{at}, {row['allocation'] or row['message']}: {floor}", highlight=False)
    for note in survey.notes:
        console.print(f"note: {note}", highlight=False)


def _youngest(rows: list[Json]) -> str:
    """Return which row has the youngest copies, as a sentence."""
    best = min(rows, key=lambda row: row["age"]["mean"])
    at, name, *_ = _cells(best)
    return f"youngest copies: {at}, {name}: {best['age']['mean']:.3g} slots old in the mean"


def _cells(row: Json) -> list[str]:
    """Return a line of the survey.

    Where some pairs have not met, waiting and ages are at least so long.
    """
    half, threshold = row["ci95"], row["threshold_db"]
    at = threshold if isinstance(threshold, str) else f"{threshold or 0.0:.4g}"
    bound = "≥ " if row["unheard"] and row["unheard"] > 0.01 else ""
    return [
        "index" if threshold is None else f"{at} dB",
        row["allocation"] or row["message"],
        _cell(row["p_link"], half["p_link"]),
        _cell(row["p_node"], half["p_node"]),
        _cell(row["gamma_t"]["mean"], half["gamma_t"]["mean"]),
        _cell(row["gamma_t"]["median"], None),
        _cell(row["gamma_t"]["p95"], None),
        bound + _cell(row["gamma_w"]["mean"], half["gamma_w"]["mean"]),
        bound + _cell(row["age"]["mean"], half["age"]["mean"]),
        bound + _cell(row["age"]["p95"], None),
        f"{row['unheard']:.0%}",
        _cell(row["energy"]["node_w"], None),
    ]


def _cell(value: float | None, half: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if half is None else spread(value, half)


def draw_map(picture: Picture) -> "Figure":
    """Draw nodes, the links scheduled in one block coloured by SINR, and the interferers around."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    figure, axes = new_figure(4.6, 3.8)
    nodes, linked = picture.nodes_m, picture.linked
    reach_m = MAP_RADIUS * picture.cell_radius_m
    axes.scatter([0], [0], marker="^", s=30, color="0.35", label="base station")
    near = np.abs(picture.interferers_m).max(axis=1, initial=0.0) < reach_m
    draw_surroundings(axes, picture.cell_radius_m, picture.interferers_m[near])
    shades = ScalarMappable(Normalize(*_span(picture.sinr_db[linked])), ramp())
    for rx, tx in np.argwhere(linked):
        draw_link(axes, nodes, rx, tx, shades.to_rgba(picture.sinr_db[rx, tx]))
    if linked.any():
        figure.colorbar(shades, ax=axes, label="SINR of scheduled links (dB)", shrink=0.85)
    axes.scatter(*nodes.T, s=NODE_SIZE, color=COLOURS[1], zorder=3, label="node", edgecolor="white")
    number_nodes(axes, nodes)
    frame_map(axes, reach_m, placed=True)
    return figure


def _span(values: NDArray[np.float32]) -> tuple[float, float]:
    return (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)


def draw_ages(picture: Picture) -> "Figure":
    """Draw the age of a few held copies over time.

    It grows by one per slot, and falls when a copy arrives.
    """
    figure, axes = new_figure(4.6, 2.8)
    count = picture.ages.shape[1]
    others = [(rx, tx) for rx in range(count) for tx in range(count) if rx != tx]
    order = sorted(others, key=lambda pair: float(picture.ages[:, pair[0], pair[1]].mean()))
    shown = sorted({0, len(order) // 2, int(0.8 * len(order))}) if order else []
    for index, (rx, tx) in enumerate(order[i] for i in shown):
        look: Json = {"color": COLOURS[index], "linestyle": STYLES[index], "linewidth": 1.2}
        axes.plot(picture.ages[:, rx, tx], label=f"node {rx}'s copy of node {tx}", **look)
    finish(axes, "slot", "age (slots)")
    name_ends(axes)
    return figure
