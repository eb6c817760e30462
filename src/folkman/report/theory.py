"""Figures and tables of the theory: gaps against the number of nodes, bounds over the measured curve."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from folkman.report.figures import COLOURS, STYLES, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

__all__ = ["bound_table", "draw_bounds", "draw_gaps", "efficiency_table", "gap_table", "number"]

MEANING = {
    "simple": "simple: largest age and gradient",
    "ages": "ages: each copy's own age",
    "spread": "spread: no gradient bound",
    "afterwards": "afterwards: gradients as met",
}
"""Bound -> its line in a legend."""


def number(value: float | None) -> str:
    """Return a number for a table; a dash where there is none."""
    return "-" if value is None or not np.isfinite(value) else f"{value:.4g}"


def draw_gaps(rows: Sequence[Mapping[str, Any]], model: str) -> "Figure":
    """Draw the normalised gap, its bounds and the printed form's gap against the number of nodes."""
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
            looks = {
                "linewidth": 5.0 if back else 1.5,
                "alpha": 0.4 if back else 1.0,
                "markersize": 4,
            }
            axes.plot(
                nodes, shown, color=colour, linestyle=style, marker=marker, label=label, **looks
            )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(nodes, [str(count) for count in nodes])
    axes.minorticks_off()
    _finish(axes, "nodes $I$", "duality gap / $\\Delta_{worst}$", f"losses: {model}")
    return figure


def draw_bounds(measured: NDArray, bounds: Mapping[str, NDArray], title: str) -> "Figure":
    """Draw the mean squared gradient over the first J slots and the bounds on it, without those that do not apply."""
    figure, axes = new_figure(4.8, 3.4)
    slots = np.arange(1, len(measured) + 1)
    axes.plot(slots, measured, color=COLOURS[6], linewidth=2.0, label="measured")
    for index, (name, curve) in enumerate(bounds.items()):
        if np.isfinite(curve).any():
            kind, _, remark = name.partition(" ")
            label = f"{MEANING.get(kind, kind)} {remark}".strip()
            axes.plot(
                slots,
                curve,
                color=COLOURS[index],
                linestyle=STYLES[1 + index % 4],
                linewidth=1.4,
                label=label,
            )
    axes.set_xscale("log")
    axes.set_yscale("log")
    _finish(axes, "slots $J$", "mean of $\\|\\nabla F(w)\\|^2$ over $J$ slots", title)
    return figure


def _finish(axes: Any, x: str, y: str, title: str) -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_title(title, fontsize="small", color="0.35")
    axes.grid(visible=True, alpha=0.3, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(
        fontsize="x-small", frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2
    )  # below: curves may be anywhere


def gap_table(rows: Sequence[Mapping[str, Any]], model: str) -> "Table":
    """Return the gaps, one line a number of nodes."""
    own = (
        rows[0]["printed_breaks_bound"] is None
    )  # then 'as printed' is over our Delta, not the printed one
    table = _table(f"{model}: {rows[0]['how']}")
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
    for heading in names.values():
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        cells = [number(row[name]) for name in names]
        cells[6] += " breaks it" if row["printed_breaks_bound"] else ""
        table.add_row(*cells)
    return table


def bound_table(found: Mapping[str, Any]) -> "Table":
    """Return everything known of one run: constants, bounds, the printed theorem, the assumptions."""
    table = _table(
        f"{found['label']}, seed {found['seed']}: mean ||grad F||^2 over {found['slots']} slots"
    )
    table.add_column("statement", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    table.add_row("measured", number(found["measured"]), "")
    for kind, bounds in found["bounds"].items():
        for bound in bounds or []:
            empty = (
                "; vacuous here because 2 L (F(w(0)) - F*), known without running, is not above it"
                if bound["vacuous"]
                else ""
            )
            verdict = bound["reason"] or ("holds" if bound["holds"] else "BROKEN") + empty
            table.add_row(f"bound '{bound['name']}', L {kind}", number(bound["value"]), verdict)
    table.add_row(
        "Theorem 2, u(eta)", number(found["theorem_2"]["u"]), found["theorem_2"]["verdict"]
    )
    table.add_row("Corollary 2", "", found["corollary_2"]["verdict"])
    for check in found["checks"]:
        verdict = {True: "holds", False: "fails", None: "open"}[check["holds"]]
        table.add_row(check["name"], verdict, check["text"])
    return table


def efficiency_table(rows: Sequence[Mapping[str, Any]]) -> "Table":
    """Return Table I's quantities: measured, printed, corrected."""
    table = _table("Table I: efficiency, rounds and bits")
    for name in ("label", "quantity", "measured", "printed", "corrected"):
        table.add_column(
            name, justify="left" if name in ("label", "quantity") else "right", no_wrap=True
        )
    for row in rows:
        table.add_row(
            row["label"],
            row["quantity"],
            *(number(row[n]) for n in ("measured", "printed", "corrected")),
        )
    return table


def _table(title: str) -> "Table":
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    return Table(title=escape(title), box=box.SIMPLE_HEAD, title_justify="left")
