"""The report of a sweep folder: its state, the arms side by side, its axes, what failed."""

import json
import shlex
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from folkman.record.json_file import Json, read_json
from folkman.record.run import DIVERGED, FAILED, HIGHER_IS_BETTER, METRICS, Run
from folkman.record.sweep import Sweep, job_folder
from folkman.report import html
from folkman.report.curves_page import best_first, curves_section, multiples_section
from folkman.report.figures import COLOURS, STYLES, finish, name_curves, name_ends, new_figure
from folkman.report.network_page import MOST_SCENES, network_sections
from folkman.report.palette import MOST_CURVES
from folkman.report.run_page import costs_table, headline, provenance_section, results_table
from folkman.report.statistics import FEWEST_FOR_AN_INTERVAL, half_width
from folkman.report.tables import objective_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_response", "sweep_page"]

LOG_LINES = 15


def sweep_page(sweep: Sweep) -> str:
    """Return the page of a sweep folder as it stands."""
    jobs, folder = sweep.jobs, sweep.folder
    states = Counter(job.get("state") for job in jobs)
    arms = _in_order(jobs, "arm")
    subtitle = (
        f"{len(arms)} arms, {len(_in_order(jobs, 'seed'))} seeds, {len(jobs)} jobs: "
        + ", ".join(f"{count} {state}" for state, count in states.items())
        + f"; {objective_text(folder.objectives(jobs))}"
    )
    sections = [
        html.Section("results", "Results", _results(sweep.runs)),
        html.Section("axes", "Along the axes", _responses(sweep)),
        *_curves(sweep.runs),
        *network_sections(_with_scenes(sweep)),
        html.Section("failures", "Failures", _failures(sweep)),
        html.Section("jobs", "Jobs", _jobs(sweep)),
        html.Section("configuration", "Configuration", _definition(sweep)),
        provenance_section(_provenance(sweep)),
        html.Section("repeat", "To repeat it", _commands(sweep)),
    ]
    lead = (
        headline(sweep.runs, {})
        if sweep.runs
        else html.facts([("Jobs", str(len(jobs)), "none has ended")])
    )
    return html.page(str(sweep.facts.get("name", folder.root.name)), subtitle, lead, sections)


def _definition(sweep: Sweep) -> str:
    return (
        html.details(sweep.folder.definition.name, html.preformatted(sweep.text))
        if sweep.text
        else ""
    )


def _in_order(jobs: Sequence[Json], key: str) -> list[object]:
    return list(dict.fromkeys(job.get(key) for job in jobs))


def _results(runs: Sequence[Run]) -> str:
    if not runs:
        return ""
    return results_table(runs, "arm") + costs_table(runs, {})


def _responses(sweep: Sweep) -> str:
    blocks = []
    for number, axis in enumerate(sweep.facts.get("axes", [])):
        for metric in sweep.facts.get("metrics", ["train_loss", "test_accuracy"]):
            figure = draw_response(sweep, axis, metric) if metric in METRICS else None
            if figure is not None:
                blocks.append(
                    html.figure_block(
                        f"axis-{number}-{metric}", figure, _caption(sweep, axis, metric)
                    )
                )
    return html.grid(blocks)


def _caption(sweep: Sweep, axis: str, metric: str) -> str:
    """Return what a figure along an axis shows: where the metric is best."""
    last = {(run.label, run.seed): run.last(metric) for run in sweep.runs}
    ends: dict[tuple[str, str], list[float]] = {}
    for job in sweep.jobs:
        value = last.get((job["arm"], job["seed"]), float("nan"))
        if axis in job.get("settings", {}) and np.isfinite(value):
            ends.setdefault((job["arm"], str(job["settings"][axis])), []).append(value)
    sign = -1.0 if metric in HIGHER_IS_BETTER else 1.0
    (arm, setting), values = min(ends.items(), key=lambda end: sign * float(np.mean(end[1])))
    name = METRICS[metric]
    return (
        f"{name[0].upper()}{name[1:]} against {axis}. It is best at {setting}: "
        f"{np.mean(values):.3g} ({arm})."
    )


def draw_response(sweep: Sweep, axis: str, metric: str) -> "Figure | None":
    """Draw the last value of a metric against one axis: one curve per setting of everything else.

    None where fewer than two settings of the axis have ended.
    """
    groups: dict[str, dict[Any, list[float]]] = {}
    last = {(run.label, run.seed): run.last(metric) for run in sweep.runs}
    for job in sweep.jobs:
        value = last.get((job["arm"], job["seed"]), float("nan"))
        settings = job.get("settings", {})
        if axis in settings and np.isfinite(value):
            rest = ", ".join(
                f"{key.split('.')[-1]}={item}" for key, item in settings.items() if key != axis
            )
            name = f"{job['label']}, {rest}" if rest else str(job["label"])
            x = settings[axis]
            x = x if isinstance(x, int | float | str) else json.dumps(x)
            groups.setdefault(name, {}).setdefault(x, []).append(value)
    points = sorted(
        {x for group in groups.values() for x in group}, key=lambda x: (isinstance(x, str), x)
    )
    if len(points) < 2:
        return None
    numeric = all(isinstance(x, int | float) and not isinstance(x, bool) for x in points)
    place = {x: float(x) if numeric else index for index, x in enumerate(points)}
    figure, axes = new_figure(4.6, 3.2)
    for index, (name, group) in enumerate(groups.items()):
        xs = [x for x in points if x in group]
        mean = [float(np.mean(group[x])) for x in xs]
        half = [_half(group[x]) for x in xs]
        look: Json = {"color": COLOURS[index % len(COLOURS)]}
        style = STYLES[index % len(STYLES)]
        at = [place[x] for x in xs]
        axes.plot(at, mean, linestyle=style, marker="o", markersize=3.5, linewidth=1.4, label=name,
                  **look)  # fmt: skip
        axes.errorbar(at, mean, yerr=half, fmt="none", capsize=2.5, **look)
    axes.set_xticks([place[x] for x in points], [str(x) for x in points])
    if numeric and min(points) > 0 and max(points) / min(points) > 30:
        axes.set_xscale("log")
        axes.set_xticks([float(x) for x in points], [f"{x:g}" for x in points])
    finish(axes, axis, METRICS[metric])
    if len(groups) <= MOST_CURVES:
        name_ends(axes)
    else:
        name_curves(figure, axes, len(groups))
    return figure


def _half(values: Sequence[float]) -> float:
    """Return half of the interval of the mean; 0, and so no bar, for too few values."""
    return float(half_width(values)) if len(values) >= FEWEST_FOR_AN_INTERVAL else 0.0


def _curves(runs: Sequence[Run]) -> list[html.Section]:
    """Return the curves of all arms; of many arms also a small figure of each."""
    if not runs:
        return []
    many = len(best_first(runs)) > MOST_CURVES
    return [curves_section(runs), *([multiples_section(runs)] if many else [])]


def _with_scenes(sweep: Sweep) -> list[Run]:
    """Return the runs of the best few arms, each arm's first with what its network did."""
    chosen = best_first(sweep.runs)[:MOST_SCENES]
    runs = [run for run in sweep.runs if run.label in chosen]
    folders = {(job.get("arm"), job.get("seed")): job for job in sweep.jobs}
    for arm in chosen:
        first = next(run for run in runs if run.label == arm)
        job = folders.get((arm, first.seed))
        if job is not None:
            kept = Run(first.algorithm, str(job.get("label")), first.seed)
            first.scene = job_folder(sweep.folder, job).load_scene(kept)
    return runs


def _failures(sweep: Sweep) -> str:
    parts = []
    for job in sweep.jobs:
        if job.get("state") in (FAILED, DIVERGED) or job.get("message"):
            log = job_folder(sweep.folder, job).log
            text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
            title = (
                f"{job.get('arm')}, seed {job.get('seed')}: "
                f"{job.get('message') or job.get('state')}"
            )
            parts.append(
                html.details(
                    title, html.preformatted("\n".join(text.splitlines()[-LOG_LINES:]) or "no log")
                )
            )
    return "".join(parts)


def _jobs(sweep: Sweep) -> str:
    rows = []
    for job in sweep.jobs:
        report = job_folder(sweep.folder, job).report
        place, name = f"{job.get('folder')}/{report.name}", html.escape(str(job.get("key"))[:12])
        link = (
            f'<a href="{html.escape(place, quote=True)}">{name}</a>' if report.is_file() else name
        )
        cells = [str(job.get("arm")), str(job.get("seed")), str(job.get("state"))]
        costs = [_number(job.get("seconds"), "s"), _number(job.get("rss_mb"), "MB")]
        rows.append([html.Markup(link), *cells, *costs, str(job.get("worker") or "-")])
    shown = html.table(["job", "arm", "seed", "state", "time", "memory", "worker"], rows)
    return html.details(f"{len(rows)} jobs", shown, opened=len(rows) <= 20) if rows else ""


def _number(value: object, unit: str) -> str:
    return f"{value:.3g} {unit}" if isinstance(value, int | float) else "-"


def _provenance(sweep: Sweep) -> Json:
    """Return where the first job was made: the others share its versions."""
    for job in sweep.jobs:
        found = read_json(job_folder(sweep.folder, job).provenance)
        if found:
            return {k: v for k, v in found.items() if k not in ("started", "finished")}
    return {}


def _commands(sweep: Sweep) -> str:
    place = shlex.quote(str(sweep.folder.root))
    again = f"folkman sweep {shlex.quote(str(sweep.folder.definition))} --out again\n"
    tuning = "tune" in sweep.folder.asked()
    command = "tune" if tuning else "sweep"
    return html.commands(
        {
            "Finish what is not finished": f"folkman {command} --resume {place}\n",
            **({} if tuning else {"The same sweep again": again}),
            "The table, for a paper": f"folkman compare {place} --format latex\n",
            "A page like this of every job, linked from the table above": (
                f"folkman report {place} --jobs\n"
            ),
            "This sweep, to look around in": f"folkman dash {place}\n",
        }
    )
