"""The figures of the paper's experiments, and the table of its claims."""

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from folkman.record.json_file import Json
from folkman.record.run import AXES, METRICS, Run
from folkman.report.figures import COLOURS, STYLES
from folkman.report.palette import MOST_CURVES
from folkman.report.statistics import FEWEST_FOR_AN_INTERVAL, RATIO_FOR_LOG, curves
from folkman.report.tables import ScreenTable, markdown_table, screen_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Change", "Judged", "Panel", "changes_markdown", "changes_table", "claims_markdown"]
__all__ += ["LETTERS_A_COLUMN", "Lines", "bound", "claims_table", "draw_one", "draw_panels"]
__all__ += ["ends_markdown", "line_of", "new_grid", "score", "score_of_changes"]

SCORED = ("holds", "holds under", "better than claimed", "true by construction", "equal")
SCORED += ("contradicted", "vacuous here", "open", "not run")
"""The kinds of verdict, in the order of a score."""


class Panel(NamedTuple):
    """One column of a figure: a title, and the runs of each curve.

    The label of a run is its curve's name.
    """

    title: str
    runs: Sequence[Run]


class Judged(NamedTuple):
    """A claim and its verdict."""

    name: str
    where: str  # the paper says it
    text: str
    test: str  # what decides it
    verdict: str
    reason: str  # the numbers behind it
    figure: str  # where to look
    readings: list[Json]  # every way to take it, decided
    kind: str = "open"  # the verdict without the readings that it names
    draws: int | None = None  # that would decide a claim that is open
    confirmatory: bool = False  # by draws that nobody had seen
    topic: str = ""  # what it is about: learning, radio, theory, ...


class Change(NamedTuple):
    """One reading of a claim, decided by the same draws of two sets of runs."""

    claim: str
    reading: str
    was: str  # holds, contradicted, equal, open
    now: str
    was_says: str
    now_says: str

    @property
    def kind(self) -> str:
        """Return what became of it."""
        undecided = ("open", "not run")
        if self.was == self.now:
            return "alike"
        if self.now in undecided:
            return "reopened"
        return "decided" if self.was in undecided else "overturned"


CHANGES = ("alike", "decided", "reopened", "overturned")
"""What can become of a reading."""

ENDS = (("train_loss", np.log), ("test_accuracy", np.asarray))
"""What is told of a curve's end, and on which scale it is averaged."""

PAGE_LETTERS = 100
"""Letters of a line of a page."""

LETTERS_A_COLUMN = 44
"""Letters of the title that fit above one column."""

PLAIN = "#000000"
"""The colour of a method that has one curve."""

LEGEND: Json = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.18), "ncols": 2}
LEGEND |= {"handlelength": 3.5, "columnspacing": 1}
"""Where the names of a panel's curves are: below it, with lines long enough to tell."""

MOST_SHARED = 9
"""Names that one legend has for all panels."""

LETTERS_OF_LEGEND = 57
"""Letters of two names side by side that fit below a panel in the larger size."""

MOST_LOSS = 100.0
"""Times the median loss that is still shown: beyond it a run has diverged."""


Lines: TypeAlias = Mapping[str, str | Sequence[float]]
"""The line of each method, by how its curves' names begin: a style, or lengths of dashes and
gaps."""


def draw_panels(panels: Sequence[Panel], x: str, title: str, own: str, lines: Lines) -> "Figure":
    """Draw training loss and test accuracy against one axis, one column per panel.

    Mean over draws, 95 % interval.

    Losses are averaged as the audit compares them, by their logarithms. A curve looks the same in
    every panel, and is drawn as far as those of the method `own` reach. Where a panel has more than
    six curves, each case has a row of its own, if all panels have the same few cases.
    """
    if max(len({run.label for run in panel.runs}) for panel in panels) > MOST_CURVES:
        from folkman.report.paper_cases import draw_cases, have_rows

        if have_rows(panels, own, lines):
            return draw_cases(panels, x, title, own, lines)
    shared: Json = {"sharey": "row", "sharex": "col" if x != "gradients" else True}
    figure, grid = new_grid((4.3 * len(panels), 6.4), (2, len(panels)), **shared)
    looks = _looks(panels, lines)
    for row, metric in enumerate(("train_loss", "test_accuracy")):
        for column, panel in enumerate(panels):
            draw_one(grid[row, column], panel, x, metric, looks)
            grid[row, column].set_title(panel.title if row == 0 else "", fontsize="small")
        grid[row, 0].set_ylabel(METRICS[metric])
        if metric == "train_loss":
            bound(grid[row])
    for axes, panel in zip(grid[1], panels, strict=True):
        axes.set_ylim(0.0, 1.0)
        reached = max(run.rows[-1][x] for run in panel.runs if run.algorithm == own)
        axes.set_xlim(-0.03 * reached, 1.03 * reached)
        axes.set_xlabel(AXES[x])
    if len(panels) > 1 and len(looks) <= MOST_SHARED:
        title = f"{title}; {_draws(panels, x)}"
        _one_legend(figure, looks, len(panels))
    else:
        size = _legend_size(grid[1])
        for axes in grid[1]:
            axes.legend(fontsize=size, frameon=False, **LEGEND)
    figure.suptitle(fill(title, LETTERS_A_COLUMN * len(panels)), fontsize="medium")
    return figure


def _one_legend(figure: "Figure", looks: Mapping[str, Json], columns: int) -> None:
    """Name the curves of all panels once, below them; curves of two panels may share a look."""
    from matplotlib.lines import Line2D

    named: dict[str, tuple[str, Json]] = {}
    for label, look in looks.items():
        known = named.get(str(look))
        name = label if known is None else f"{known[0]} | {label.partition(', ')[2] or label}"
        named[str(look)] = (name, look)
    samples = [Line2D([], [], linewidth=1.4, **look) for _, look in named.values()]
    names = [name for name, _ in named.values()]
    style: Json = {"frameon": False, "fontsize": "x-small", "handlelength": 3.5}
    across = min(len(names), max(columns, 3))
    figure.legend(samples, names, loc="outside lower center", ncols=across, **style)


def _draws(panels: Sequence[Panel], x: str) -> str:
    """Say of how many draws the curves are means."""
    counts = sorted({c.num_seeds for p in panels for c in curves(p.runs, x, "train_loss")})
    draws = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    interval = ", 95 % interval" if counts[-1] >= FEWEST_FOR_AN_INTERVAL else ""
    return f"mean of {draws} draws{interval}"


def new_grid(
    size_in: tuple[float, float], shape: tuple[int, int], **shared: Any
) -> "tuple[Figure, NDArray[Any]]":
    """Return a figure that belongs to no window, and its axes (row, column)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size_in, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(*shape, squeeze=False, **shared)


def line_of(style: str | Sequence[Any]) -> str | tuple[Any, ...]:
    """Return a line as matplotlib takes it: a style, or dashes and gaps from the first on."""
    return style if isinstance(style, str | tuple) else (0, tuple(style))


def _legend_size(row: "Sequence[Axes]") -> str:
    """Return the larger of two sizes that is wide enough for the names of every panel.

    The names stand in two columns.
    """
    widths = []
    for axes in row:
        letters = [len(str(line.get_label())) for line in axes.lines]
        half = -(-len(letters) // 2)
        widths.append(max(letters[:half], default=0) + max(letters[half:], default=0))
    return "x-small" if max(widths) <= LETTERS_OF_LEGEND else "xx-small"


def _looks(panels: Sequence[Panel], lines: Lines) -> dict[str, Json]:
    """Return colour and line of every label, "method, case".

    A method has its line, and its cases have colours.

    The cases of a method are numbered where they first appear, so that those of two methods that
    belong together (ten nodes, ten times the step) have one colour. A method without cases is
    black.
    """
    looks: dict[str, Json] = {}
    for panel in panels:
        cases: dict[str, list[str]] = {}  # of each method, in order
        for label, method in {run.label: run.algorithm for run in panel.runs}.items():
            family, _, case = label.partition(", ")
            family, case = (family, case) if family in lines else (method, label)
            known = cases.setdefault(family, [])
            known += [label] if case else []
            colour = COLOURS[(len(known) - 1) % len(COLOURS)] if case else PLAIN
            line = lines.get(family, STYLES[(len(known) - 1) // len(COLOURS) % len(STYLES)])
            looks.setdefault(label, {"color": colour, "linestyle": line_of(line)})
    return looks


def draw_one(axes: "Axes", panel: Panel, x: str, metric: str, looks: Mapping[str, Json]) -> None:
    """Draw the curves of a panel: mean and interval, losses by their logarithms."""
    scale, back = (np.log, np.exp) if metric == "train_loss" else (np.asarray, np.asarray)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # a run that diverged
        for curve in curves(panel.runs, x, metric, scale):
            look = looks[curve.label]
            label = f"{curve.label} ({curve.num_seeds})"
            axes.plot(curve.x, back(curve.mean), linewidth=1.4, label=label, **look)
            if curve.num_seeds >= FEWEST_FOR_AN_INTERVAL:
                low, high = back(curve.mean - curve.half), back(curve.mean + curve.half)
                axes.fill_between(curve.x, low, high, color=look["color"], alpha=0.15, linewidth=0)
    axes.grid(visible=True, alpha=0.3, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def bound(row: "Sequence[Axes]") -> None:
    """Show all means, on a logarithmic axis where they span much.

    An interval may be wider than there is to see.
    """
    from matplotlib.ticker import LogLocator, NullFormatter

    lines = [np.asarray(line.get_ydata(), float) for axes in row for line in axes.lines]
    values = np.concatenate(
        [line[np.isfinite(line) & (line > 0)] for line in lines] or [np.ones(1)]
    )
    if len(values) and values.max() / values.min() > RATIO_FOR_LOG / 6:
        row[0].set_yscale("log")  # the axis is shared
        row[0].yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        row[0].yaxis.set_major_formatter("{x:g}")
        row[0].yaxis.set_minor_formatter(NullFormatter())
        row[0].set_ylim(values.min() / 1.5, min(values.max(), MOST_LOSS * np.median(values)) * 1.5)


def ends_markdown(title: str, panels: Sequence[Panel]) -> str:
    """Return a table of where each curve ends.

    Mean and half of the 95 % interval, losses by their logarithms.
    """
    rows = []
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # a run that diverged
        for panel in panels:
            losses, hits = (
                curves(panel.runs, "gradients", metric, scale) for metric, scale in ENDS
            )
            for loss, hit in zip(losses, hits, strict=True):
                middle, half = float(np.exp(loss.mean[-1])), float(np.exp(loss.half[-1]))
                spread = f" (x or / {half:.2f})" if np.isfinite(half) else ""
                around = f" +- {hit.half[-1]:.3f}" if np.isfinite(hit.half[-1]) else ""
                shown = (panel.title, loss.label, str(loss.num_seeds), f"{loss.x[-1]:.0f}")
                rows.append((*shown, f"{middle:.3g}{spread}", f"{hit.mean[-1]:.3f}{around}"))
    headings = ("panel", "curve", "draws", "gradients", "training loss", "test accuracy")
    return f"### {title}\n\n{markdown_table(headings, rows)}\n"


def claims_table(claims: Sequence[Judged], title: str) -> ScreenTable:
    """Return the verdicts, one line per claim."""
    rows = [(claim.name, claim.where, claim.verdict, claim.reason) for claim in claims]
    return screen_table("lppp", ("claim", "where", "verdict", "because"), rows, title)


def score(claims: Sequence[Judged]) -> str:
    """Return how many claims came out how; kinds that no claim has are left out."""
    kinds = [claim.kind for claim in claims]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in SCORED if kind in kinds)
    return f"{len(claims)} claims: {counts}"


def changes_table(changes: Sequence[Change], title: str) -> ScreenTable:
    """Return what became of every reading, one line each."""
    rows = []
    for each in changes:
        sides = (f"{each.was}: {each.was_says}", f"{each.now}: {each.now_says}")
        rows.append((each.claim, each.reading, *sides, each.kind))
    return screen_table("lpppl", ("claim", "reading", "before", "now", ""), rows, title)


def score_of_changes(changes: Sequence[Change]) -> str:
    """Return how many readings came out how."""
    kinds = [each.kind for each in changes]
    return f"{len(kinds)} readings: " + ", ".join(f"{kinds.count(kind)} {kind}" for kind in CHANGES)


def changes_markdown(changes: Sequence[Change], title: str) -> str:
    """Return what became of every reading as a table; one that changed is in bold."""
    rows = []
    for each in changes:
        now = each.now if each.kind == "alike" else f"**{each.now}**"
        before = f"{each.was}: {each.was_says}"
        rows.append((each.claim, each.reading, before, f"{now}: {each.now_says}"))
    table = markdown_table(("claim", "reading", "before", "now"), rows)
    head = fill(f"{score_of_changes(changes)}, from {title}.", PAGE_LETTERS, break_on_hyphens=False)
    return f"{head}\n\n{table}\n"


def claims_markdown(claims: Sequence[Judged], title: str) -> str:
    """Return the table of claims, and under it every reading with its numbers."""
    rows = []
    for claim in claims:
        figure = claim.figure
        # a name, not a link: the page may be kept without the drawings
        link = f"`{figure}`" if figure.endswith(".png") else figure
        needs = f" ({claim.draws} draws would decide)" if claim.draws else ""
        verdict = f"**{claim.verdict}**{needs if claim.kind == 'open' else ''}"
        said = (f"{claim.text} ({claim.where})", verdict, claim.reason)
        rows.append((claim.name, *said, claim.test, link))
    verdicts = markdown_table(("", "claim", "verdict", "because", "test", "figure"), rows)
    headings = ("claim", "reading", "verdict", "n", "difference", "95 % interval", "effect d")
    headings += ("p", "corrected p", "says")
    readings = [_reading_row(claim.name, each) for claim in claims for each in claim.readings]
    below = f"Every reading, from `{title}`:\n\n{markdown_table(headings, readings)}"
    return f"{fill(score(claims) + '.', PAGE_LETTERS)}\n\n{verdicts}\n\n{below}\n"


def _reading_row(claim: str, reading: Json) -> tuple[str, ...]:
    names = ("mean", "low", "high", "effect", "p", "corrected")
    mean, low, high, effect, p, corrected = (_show(reading.get(key)) for key in names)
    span = f"{low} to {high}" if reading.get("n") and low else ""
    head = (claim, reading["name"], reading["verdict"], str(reading.get("n", "")))
    return (*head, mean, span, effect, p, corrected, reading["says"])


def _show(value: float | None) -> str:
    return "" if value is None or not np.isfinite(value) else f"{value:.3g}"
