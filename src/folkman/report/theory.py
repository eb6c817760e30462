"""Figures and tables of the theory: gaps over the number of nodes, bounds over a measured curve."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from folkman.record.json_file import Json
from folkman.report.figures import COLOURS, STYLES, finish, new_figure
from folkman.report.tables import ScreenTable, screen_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["bound_table", "draw_bounds", "draw_gaps", "efficiency_table", "gap_table", "number"]
__all__ += ["own_table"]

MEANING = {
    "simple": "simple: largest age and gradient",
    "ages": "ages: each copy's own age",
    "spread": "spread: no gradient bound",
    "afterwards": "afterwards: gradients as met",
}
"""Bound -> its line in a legend."""


VACUOUS = "; vacuous here because 2 L (F(w(0)) - F*), known without running, is not above it"
"""Said of a bound that holds and tells nothing."""


def number(value: float | None) -> str:
    """Return a number for a table; a dash where there is none."""
    return "-" if value is None or not np.isfinite(value) else f"{value:.4g}"


def draw_gaps(rows: Sequence[Json], model: str) -> "Figure":
    """Draw the normalised gap, its bounds and the printed form's gap over the number of nodes."""
    figure, axes = new_figure(4.8, 3.4)
    nodes = np.array([row["nodes"] for row in rows])
    own = rows[0]["printed_breaks_bound"] is None
    lines = {
        "bound": ("Theorem 1: $2\\alpha_{max}$", COLOURS[6], "--", ""),
        "sharp_bound": ("sharp: $\\alpha_{max}$", COLOURS[2], "-", ""),
        "normalised": ("measured, one constraint", COLOURS[0], "-", "o"),
        "printed_normalised": (
            "measured, as printed: $I$ constraints" + (" (our $\\Delta$)" if own else ""),
            COLOURS[1],
            ":",
            "s",
        ),
    }
    for name, (label, colour, style, marker) in lines.items():
        values = np.array([row[name] for row in rows], float)
        if (values > 0).any():
            shown = np.where(values > 0, values, np.nan)
            back = name == "sharp_bound"  # the measured gap may lie on it
            looks: Json = {"linewidth": 5.0 if back else 1.5, "alpha": 0.4 if back else 1.0}
            looks |= {"color": colour, "linestyle": style, "marker": marker, "markersize": 4}
            axes.plot(nodes, shown, label=label, **looks)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(nodes, [str(count) for count in nodes])
    axes.minorticks_off()
    _below(axes, "nodes $I$", "duality gap / $\\Delta_{worst}$", f"losses: {model}")
    return figure


def draw_bounds(measured: NDArray, bounds: Mapping[str, NDArray], title: str) -> "Figure":
    """Draw the mean squared gradient over the first J slots and the bounds on it.

    Bounds that do not apply are left out.
    """
    figure, axes = new_figure(4.8, 3.4)
    slots = np.arange(1, len(measured) + 1)
    axes.plot(slots, measured, color=COLOURS[6], linewidth=2.0, label="measured")
    for index, (name, curve) in enumerate(bounds.items()):
        if np.isfinite(curve).any():
            kind, _, remark = name.partition(" ")
            label = f"{MEANING.get(kind, kind)} {remark}".strip()
            look: Json = {
                "color": COLOURS[index],
                "linestyle": STYLES[1 + index % 4],
                "linewidth": 1.4,
            }
            axes.plot(slots, curve, label=label, **look)
    axes.set_xscale("log")
    axes.set_yscale("log")
    _below(axes, "slots $J$", "mean of $\\|\\nabla F(w)\\|^2$ over $J$ slots", title)
    return figure


def _below(axes: "Axes", x: str, y: str, title: str) -> None:
    """Label axes; the names are below them, as curves may be anywhere."""
    finish(axes, x, y, title)
    place: Json = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.2), "ncols": 2}
    axes.legend(fontsize="x-small", frameon=False, **place)


def gap_table(rows: Sequence[Json], model: str) -> ScreenTable:
    """Return the gaps, one line per number of nodes."""
    # without printed constants 'as printed' is over our Delta
    own = rows[0]["printed_breaks_bound"] is None
    names = {
        "nodes": "nodes",
        "gap": "gap",
        "delta_worst": "Delta",
        "normalised": "gap/Delta",
        "sharp_bound": "sharp bound",
        "bound": "2 alpha_max",
        "printed_normalised": "as printed / our Delta" if own else "as printed",
        "error": "+-",
    }
    lines = [[number(row[name]) for name in names] for row in rows]
    for line, row in zip(lines, rows, strict=True):
        line[6] += " breaks it" if row["printed_breaks_bound"] else ""
    title = f"{model}: {rows[0]['how']}"
    return screen_table("r" * len(names), list(names.values()), lines, title)


def bound_table(found: Json) -> ScreenTable:
    """Return all that is known of one run: constants, bounds, printed theorem, assumptions."""
    rows = [("measured", number(found["measured"]), "")]
    for kind, bounds in found["bounds"].items():
        for bound in bounds or []:
            holds = "holds" if bound["holds"] else "BROKEN"
            verdict = bound["reason"] or holds + (VACUOUS if bound["vacuous"] else "")
            rows.append((f"bound '{bound['name']}', L {kind}", number(bound["value"]), verdict))
    printed = found["theorem_2"]
    rows.append(("Theorem 2, u(eta)", number(printed["u"]), printed["verdict"]))
    weighted = found["theorem_h"]
    rows.append(("Theorem H, u_H(eta)", number(weighted["u"]), weighted["verdict"]))
    rows.append(("Corollary 2", "", found["corollary_2"]["verdict"]))
    for check in found["checks"]:
        verdict = {True: "holds", False: "fails", None: "open"}[check["holds"]]
        rows.append((check["name"], verdict, check["text"]))
    run = f"{found['label']}, seed {found['seed']}"
    title = f"{run}: mean ||grad F||^2 over {found['slots']} slots"
    return screen_table("lrp", ("statement", "value", ""), rows, title)


def efficiency_table(rows: Sequence[Json]) -> ScreenTable:
    """Return Table I's quantities: measured, printed, corrected."""
    names, numbers = ("label", "quantity"), ("measured", "printed", "corrected")
    lines = [
        [*(row[name] for name in names), *(number(row[name]) for name in numbers)] for row in rows
    ]
    return screen_table("llrrr", names + numbers, lines, "Table I: efficiency, rounds and bits")


def own_table(rows: Sequence[Json]) -> ScreenTable:
    """Return own parts of Algorithm 1: the stable step, and how far from the optimum they end."""
    names = ("stable_below", "margin", "slope", "moving", "rest_bound")
    headings = ["own part", "stable below", "over the step", "|grad F(w)|", "moving", "at rest <="]
    exact = any(row["bias"] is not None for row in rows)
    if exact:
        names += ("away", "bias", "bias_bound")
        headings += ["|w - w*|", "theory", "bound"]
    lines = [[row["own"], *(number(row[name]) for name in names)] for row in rows]
    age, step = rows[0]["mean_age"], rows[0]["step"]
    title = f"Own parts at the step {step:g}, copies {age:.1f} slots old in the mean"
    return screen_table("l" + "r" * len(names), headings, lines, title)
