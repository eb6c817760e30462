"""The report of a sweep folder: its state, the arms side by side, its axes, what failed."""

import json
import shlex
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from math import nan
from typing import TYPE_CHECKING

import numpy as np

from folkman.record.json_file import Json, read_json
from folkman.record.run import DIVERGED, FAILED, HIGHER_IS_BETTER, METRICS, Run
from folkman.record.sweep import Sweep, job_folder
from folkman.record.table import sides_of_jobs
from folkman.record.tuned import Side
from folkman.report import html
from folkman.report.answer import answer
from folkman.report.curves_page import best_first, curves_section, multiples_section
from folkman.report.figures import finish, name_ends, new_figure
from folkman.report.network_page import MOST_SCENES, network_sections
from folkman.report.networks import CHOSEN, bounds, network_names
from folkman.report.palette import MOST_CURVES
from folkman.report.points import Value, best_groups, paint_points, places_of
from folkman.report.ranking import ranking_section
from folkman.report.run_page import costs_table, headline, provenance_section, results_table
from folkman.report.tables import objective_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_response", "settings_of", "sweep_page"]

LOG_LINES = 15
MOST_SETTINGS = 6
"""Settings whose ranking is told at the top."""


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
    settings = settings_of(sweep)
    sides = list(sides_of_jobs(folder, jobs))
    networks = _networks(arms, sides) if len(set(settings.values())) < 2 else None
    sections = [
        *_ranking(sweep),
        html.Section("results", "Results", _results(sweep.runs, networks)),
        html.Section("axes", "Along the axes", _responses(sweep)),
        *_curves(sweep.runs, networks),
        *network_sections(_with_scenes(sweep)),
        html.Section("failures", "Failures", _failures(sweep)),
        html.Section("jobs", "Jobs", _jobs(sweep)),
        html.Section("configuration", "Configuration", _definition(sweep)),
        provenance_section(_provenance(sweep)),
        html.Section("repeat", "To repeat it", _commands(sweep)),
    ]
    lead = (
        headline(sweep.runs, networks, _by_setting(sweep.runs, settings, sides))
        if sweep.runs
        else html.facts([("Jobs", str(len(jobs)), "none has ended")])
    )
    return html.page(str(sweep.facts.get("name", folder.root.name)), subtitle, lead, sections)


def _ranking(sweep: Sweep) -> list[html.Section]:
    """Return how methods rank, where the folder is that of a ranking."""
    found = sweep.folder.read_ranking()
    return [] if found is None else [ranking_section(found)]


def _networks(arms: Sequence[object], sides: Sequence[Side]) -> dict[str, str]:
    """Return the network of each arm; where that of one is not known, all count as on one."""
    known = network_names(sides)
    return known if all(arm in known for arm in arms) else {}


def _definition(sweep: Sweep) -> str:
    return (
        html.details(sweep.folder.definition.name, html.preformatted(sweep.text))
        if sweep.text
        else ""
    )


def _in_order(jobs: Sequence[Json], key: str) -> list[object]:
    return list(dict.fromkeys(job.get(key) for job in jobs))


def settings_of(sweep: Sweep) -> dict[str, str]:
    """Return what each arm meets, as far as axes say: those that are no options of a method.

    Arms are ranked among those that meet the same. Options are `algorithm.0.step`, what a search
    tunes, and what a method may choose on a network.
    """
    tuning = "tune" in sweep.folder.asked()
    chosen = tuple(f"network.{key}" for key in CHOSEN)
    return {
        job["arm"]: ", ".join(
            f"{key}={value}"
            for key, value in job.get("settings", {}).items()
            if not (tuning or key.startswith("algorithm.") or key in chosen)
        )
        for job in sweep.jobs
    }


def _by_setting(
    runs: Sequence[Run], settings: Mapping[str, str], sides: Sequence[Side]
) -> list[str]:
    """Return that arms met unlike settings, and who is ahead at each where several met it."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(settings.get(run.label, ""), []).append(run)
    several = {at: own for at, own in groups.items() if len({run.label for run in own}) > 1}
    if not several:
        return ["Each arm met a setting of its own, and so none is ranked."]
    lines = ["Arms met unlike settings, and are ranked only among those that met the same."]
    for setting, own in list(several.items())[:MOST_SETTINGS]:
        where = f"At {setting}" if setting else "Apart from the axes"
        met = [side for side in sides if settings.get(side.name, "") == setting]
        networks = _networks([run.label for run in own], met)
        lines.append(f"{where}: {' '.join(answer(own, networks)[:2])}")
    rest = len(several) - MOST_SETTINGS
    return lines + ([f"{rest} more settings are in the table of results."] if rest > 0 else [])


def _results(runs: Sequence[Run], networks: Mapping[str, str] | None) -> str:
    if not runs:
        return ""
    apart = bounds(networks or {})
    table = results_table(runs, "arm", ranked=networks is not None, apart=apart)
    return table + costs_table(runs, networks)


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


def _last(sweep: Sweep, metric: str) -> dict[tuple[str, int], float]:
    """Return the last values by arm and seed; NaN for runs that failed or diverged.

    Nothing where a problem does not define the metric.
    """
    found = {(run.label, run.seed): run.last(metric) for run in sweep.runs}
    if not any(np.isfinite(value) for value in found.values()):
        return {}
    bad = {(j["arm"], j["seed"]): nan for j in sweep.jobs if j.get("state") in (FAILED, DIVERGED)}
    return found | bad


def _caption(sweep: Sweep, axis: str, metric: str) -> str:
    """Return what a figure along an axis shows: where the metric is best, and where runs failed.

    A setting of which a run failed or diverged is not the best: the others are its lucky ones.
    """
    last, ends = _last(sweep, metric), defaultdict[tuple[str, str], list[float]](list)
    for job in sweep.jobs:
        if axis in job.get("settings", {}) and (job["arm"], job["seed"]) in last:
            setting = (job["arm"], str(job["settings"][axis]))
            ends[setting].append(last[job["arm"], job["seed"]])
    sign = -1.0 if metric in HIGHER_IS_BETTER else 1.0
    name = METRICS[metric]
    parts = [f"{name[0].upper()}{name[1:]} against {axis}."]
    whole = {key: values for key, values in ends.items() if np.isfinite(values).all()}
    if whole:
        (arm, setting), values = min(whole.items(), key=lambda end: sign * float(np.mean(end[1])))
        parts.append(f"It is best at {setting}: {np.mean(values):.3g} ({arm}).")
    broken = [
        f"{arm} ({np.count_nonzero(~np.isfinite(values))} of {len(values)} runs)"
        for (arm, _), values in ends.items()
        if not np.isfinite(values).all()
    ]
    if broken:
        told = "; ".join(broken[:4]) + ("; ..." if len(broken) > 4 else "")
        parts.append(f"Failed or diverged, a cross at the mean of the rest: {told}.")
    return " ".join(parts)


def draw_response(sweep: Sweep, axis: str, metric: str) -> "Figure | None":
    """Draw the last value of a metric against one axis: one curve per setting of everything else.

    None where fewer than two settings of the axis have ended.
    """
    groups = _groups(sweep, axis, metric)
    places = places_of(groups)
    if len(places.at) < 2:
        return None
    figure, axes = new_figure(4.6, 3.2)
    named = best_groups(groups, metric)
    paint_points(axes, groups, {name: index for index, name in enumerate(named)}, places)
    rest = len(groups) - len(named)
    told = f"named: the best {len(named)} of {len(groups)}, grey: the others" if rest else ""
    finish(axes, axis, METRICS[metric], told)
    name_ends(axes)
    return figure


def _groups(sweep: Sweep, axis: str, metric: str) -> dict[str, dict[Value, list[float]]]:
    """Return the last values of a metric by curve and by place on the axis."""
    groups: dict[str, dict[Value, list[float]]] = {}
    last = _last(sweep, metric)
    for job in sweep.jobs:
        settings, which = job.get("settings", {}), (job["arm"], job["seed"])
        if axis in settings and which in last:
            rest = ", ".join(
                f"{key.split('.')[-1]}={item}" for key, item in settings.items() if key != axis
            )
            name = f"{job['label']}, {rest}" if rest else str(job["label"])
            x = settings[axis]
            x = x if isinstance(x, int | float | str) else json.dumps(x)
            groups.setdefault(name, {}).setdefault(x, []).append(last[which])
    return groups


def _curves(runs: Sequence[Run], networks: Mapping[str, str] | None) -> list[html.Section]:
    """Return the curves of all arms; of many arms also a small figure of each."""
    if not runs:
        return []
    many = len(best_first(runs)) > MOST_CURVES
    return [curves_section(runs, networks), *([multiples_section(runs)] if many else [])]


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
