"""The report of a run folder.

Headline, results, curves on five axes, the cell, ages, shares, nodes, how to repeat.
"""

import shlex
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from html import escape
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from folkman.record.folder import Contents, objective_in
from folkman.record.json_file import Json
from folkman.record.run import AXES, METRICS, Run
from folkman.record.scene import Scene
from folkman.record.tuned import sides_of, standings, told
from folkman.report import html
from folkman.report.figures import draw_curves
from folkman.report.scenes import draw_age_table, draw_disagreement, draw_scene, draw_shares
from folkman.report.tables import final_rows

__all__ = [
    "MOST_SCENES",
    "curves_section",
    "headline",
    "network_sections",
    "provenance_section",
    "run_page",
]

FIVE_AXES = ("seconds", "gradients", "bits", "rounds", "energy_j")
GOALS = ("train_loss", "test_accuracy", "optimum_distance")
MOST_SCENES = 3
"""Algorithms whose cell is drawn; the tables have all."""


def run_page(contents: Contents, keep: html.Keep | None = None) -> str:
    """Return the page of a run folder as it stands.

    `keep` is given every curve that is drawn for it.
    """
    begun = [run for run in contents.runs if run.rows]
    title = str(contents.config.get("name", contents.folder.root.name))
    name = contents.folder.config.name
    sections = [
        html.Section(
            "results", "Results", _results(begun, contents.provenance) + _tuning(contents)
        ),
        curves_section(begun, keep),
        *network_sections(begun),
        html.Section(
            "configuration",
            "Configuration",
            html.details(name, html.preformatted(contents.config_text)),
        ),
        provenance_section(contents.provenance),
        html.Section("repeat", "To repeat it", _commands(contents)),
    ]
    return html.page(title, _subtitle(contents.config), headline(contents.runs), sections)


def _tuning(contents: Contents) -> str:
    """Return a line on whether the sides are tuned for this setting."""
    note = told(standings(sides_of(contents.config)))
    return f"<p>{html.escape(note)}</p>" if note else ""


def network_sections(runs: Sequence[Run]) -> list[html.Section]:
    """Return what the network did: the cell, ages, bandwidth, consensus and a table of nodes.

    Of each label the first seed is shown that has kept its network, and figures of the first few
    labels.
    """
    scenes: dict[str, Scene] = {}
    for run in runs:
        if run.scene is not None:
            scenes.setdefault(run.label, run.scene)
    maps, ages, shares, apart = [], [], [], []
    if any(run.last("mean_age") > 0 for run in runs):
        figure = draw_curves(runs, "seconds", "mean_age")
        ages.append(html.figure_block("age", figure, "Mean age of the copies in use"))
    if any(isfinite(run.last("consensus")) for run in runs):
        figure = draw_curves(runs, "seconds", "consensus")
        caption = "Mean distance of the nodes' models from the network's"
        apart.append(html.figure_block("consensus", figure, caption))
    for index, (label, scene) in enumerate(list(scenes.items())[:MOST_SCENES]):
        what = "links on the air" if scene.on_air.any() else "who holds whose copy"
        how = "" if scene.placed else "; the network has no positions, nodes stand on a circle"
        caption = f"{label}: nodes and {what}{how}"
        maps.append(html.figure_block(f"map-{index}", draw_scene(scene), caption))
        if scene.paired and not scene.server and _ages_differ(scene):
            caption = f"{label}: mean age of what each node held of each other"
            ages.append(html.figure_block(f"ages-{index}", draw_age_table(scene), caption))
        if np.isfinite(scene.share).any():
            caption = f"{label}: who had which share of {scene.bandwidth_hz / 1e6:g} MHz"
            shares.append(html.figure_block(f"shares-{index}", draw_shares(scene), caption))
        if index == 0 and np.isfinite(scene.disagreement).any():
            figure = draw_disagreement(scene)
            apart.append(html.figure_block("apart-0", figure, f"{label}: node by node"))
    nodes = [
        html.details(f"{label} (first seed)", html.table(*node_rows(scene)), opened=index == 0)
        for index, (label, scene) in enumerate(scenes.items())
    ]
    return [
        html.Section("cell", "The cell", html.grid(maps)),
        html.Section("ages", "Ages", html.grid(ages)),
        html.Section("bandwidth", "Bandwidth", html.grid(shares)),
        html.Section("consensus", "Consensus", html.grid(apart)),
        html.Section("nodes", "Nodes", "".join(nodes)),
    ]


def _ages_differ(scene: Scene) -> bool:
    """Tell whether some pairs of nodes held older copies than others."""
    others = ~np.eye(scene.size, dtype=bool)
    return bool(others.any()) and bool(np.ptp(scene.mean_ages[others]))


def _subtitle(config: Json) -> str:
    """Return what was run, as far as the configuration says."""
    counts = [f"{config[key]} {key}" for key in ("nodes", "slots") if key in config]
    tables = {key: config.get(key) for key in ("data", "model", "network")}
    names = [
        f"{key} {table.get('name')}" for key, table in tables.items() if isinstance(table, dict)
    ]
    objective = objective_in(config)
    what = [] if objective is None else [f"objective {objective}"]
    return ", ".join([*counts, f"{len(config['seeds'])} seeds", *names, *what])


def headline(runs: Sequence[Run]) -> str:
    """Return the numbers that a reader looks for first, and what went wrong."""
    begun = [run for run in runs if run.rows]
    pairs = []
    for name, what, best in (
        ("train_loss", "Lowest training loss", min),
        ("test_accuracy", "Highest accuracy", max),
    ):
        means = {
            label: value for label, value in _last_means(begun, name).items() if isfinite(value)
        }
        if means:
            label = best(means, key=lambda key: means[key])
            pairs.append((what, f"{means[label]:.4g}", label))
    if begun:
        longest = max(begun, key=lambda run: run.last("seconds"))
        pairs.append(
            ("Simulated", f"{longest.last('seconds'):g} s", f"{longest.last('slots'):g} slots")
        )
        most = max(begun, key=lambda run: run.last("bits"))
        pairs.append(("Most on the air", _bits(most.last("bits")), most.label))
        means = _last_means(begun, "energy_j")
        known = {label: value for label, value in means.items() if isfinite(value)}
        if known:
            label = min(known, key=lambda key: known[key])
            pairs.append(("Least energy", f"{known[label]:.4g} J", label))
    states = Counter(run.verdict or run.status for run in runs)
    told = ", ".join(f"{count} {state}" for state, count in states.items())
    pairs.append(("Runs", str(len(runs)), told))
    wrong = "".join(f'<p class="bad">{html.escape(run.message)}</p>' for run in runs if run.message)
    return html.facts(pairs) + wrong


def _bits(bits: float) -> str:
    unit, size = next(
        ((u, s) for u, s in (("Tbit", 1e12), ("Gbit", 1e9), ("Mbit", 1e6)) if bits >= s),
        ("kbit", 1e3),
    )
    return f"{bits / size:.3g} {unit}"


def _last_means(runs: Sequence[Run], name: str) -> dict[str, float]:
    labels = dict.fromkeys(run.label for run in runs)
    return {
        label: float(np.mean([run.last(name) for run in runs if run.label == label]))
        for label in labels
    }


def _results(runs: Sequence[Run], provenance: Json) -> str:
    if not runs:
        return "<p>No run has begun.</p>"
    headings, rows = final_rows(runs)
    means = list(_last_means(runs, "train_loss").values())
    best = int(np.nanargmin(means)) if np.isfinite(means).any() else None
    note = (
        "<p class='sub'>Last values: mean over seeds and 95 % interval. The row with the lowest "
        "loss is marked.</p>"
    )
    networks = "".join(
        f"<p class='sub'>{escape(line)}</p>" for line in provenance.get("networks") or []
    )
    return html.table(headings, rows, best) + note + networks


def curves_section(runs: Sequence[Run], keep: html.Keep | None = None) -> html.Section:
    """Return every goal that the problem defines against five axes, or those that runs have."""
    blocks = []
    priced = all(isfinite(run.last("energy_j")) for run in runs)  # not by earlier versions
    axes = FIVE_AXES if priced else FIVE_AXES[:-1]
    for y in GOALS:
        if any(isfinite(value) for run in runs for value in run.column(y)):
            for x in axes:
                caption = f"{METRICS[y]} against {AXES[x]}"
                caption = caption[0].upper() + caption[1:]
                blocks.append(html.figure_block(f"{y}-{x}", draw_curves(runs, x, y), caption, keep))
    return html.Section("curves", "Curves", html.grid(blocks))


def node_rows(scene: Scene) -> tuple[list[str], list[list[str]]]:
    """Return headings and a row a node: what it had, did, held and sent."""
    people = scene.size - scene.server
    ages = scene.mean_ages if scene.paired else np.full((people, people), np.nan)
    columns: dict[str, list[str]] = {
        "node": [str(i) for i in range(people)],
        "samples": [str(value) for value in scene.samples[:people]],
        "gradients": [str(value) for value in scene.gradients[-1, :people]],
        "age of what it holds": _means(ages[:people], 1, people, scene.paired),
        "age of its copies": _means(ages[:, :people], 0, people, scene.paired and not scene.server),
        "time on the air": _share_of(
            (scene.left_slots > 0).mean(axis=0), people, bool((scene.left_slots >= 0).any())
        ),
        "bandwidth": _share_of(
            scene.share.mean(axis=0), people, bool(np.isfinite(scene.share).any())
        ),
        "disagreement": [f"{value:.3g}" for value in scene.disagreement[-1, :people]],
    }
    kept = {name: cells for name, cells in columns.items() if any(cell != "-" for cell in cells)}
    return list(kept), [list(row) for row in zip(*kept.values(), strict=True)]


def _means(values: NDArray, axis: int, count: int, known: bool) -> list[str]:
    if not known:
        return ["-"] * count
    total, number = np.nansum(values, axis=axis), np.isfinite(values).sum(axis=axis)
    return [
        f"{t / n:.3g}" if n else "-" for t, n in zip(total[:count], number[:count], strict=True)
    ]


def _share_of(values: NDArray, count: int, known: bool) -> list[str]:
    return [
        f"{100 * value:.3g} %" if known and isfinite(value) else "-" for value in values[:count]
    ]


def provenance_section(facts_known: Json) -> html.Section:
    """Return where and with what a run was made."""
    apart = ("versions", "resumed", "command", "networks")
    rows = [[key, _words(value)] for key, value in facts_known.items() if key not in apart]
    versions = facts_known.get("versions") or {}
    rows += [[f"version of {key}", str(value)] for key, value in versions.items() if value]
    rows += [["resumed", _when(each.get("started"))] for each in facts_known.get("resumed") or []]
    shown = html.table(["what", "value"], rows, words=True) if rows else ""
    return html.Section("provenance", "Provenance", shown)


def _words(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else _when(value) if value else "-"


def _when(value: object) -> str:
    try:
        return f"{datetime.fromisoformat(str(value)):%Y-%m-%d %H:%M:%S %Z}".strip()
    except ValueError:
        return str(value)


def _commands(contents: Contents) -> str:
    command, folder = contents.provenance.get("command"), contents.folder
    made = f"folkman {shlex.join(map(str, command))}\n" if isinstance(command, list) else ""
    place = shlex.quote(str(folder.root))
    same = f"folkman run {shlex.quote(str(folder.config))} --out again\n"
    again = "" if contents.made_in_python else same
    return html.commands(
        {
            "The command that made it": made,
            "The same bits again, from the resolved configuration": again,
            "Figures for a paper": (
                f"folkman plot {place} --x bits --y test_accuracy --style ieee\n"
            ),
            "This run, to look around in": f"folkman dash {place}\n",
        }
    )
