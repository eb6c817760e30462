"""The report of a run folder: the answer, results, small multiples; then details, folded."""

import shlex
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from html import escape
from math import isfinite

import numpy as np

from folkman.record.folder import Contents, objective_in
from folkman.record.json_file import Json
from folkman.record.run import Run
from folkman.record.tuned import (
    ELSEWHERE,
    searched,
    sides_of,
    source_of_run,
    standings,
    told,
    tune_command,
)
from folkman.record.verdict import guesses, swings, unheard
from folkman.report import html
from folkman.report.answer import (
    CURRENCIES,
    NOUNS,
    Cost,
    Costs,
    answer,
    costs_to,
    quantity,
)
from folkman.report.comparison import compare_arms, complaints
from folkman.report.curves_page import best_first, curves_section, multiples_section
from folkman.report.network_page import network_sections
from folkman.report.networks import bounds, network_names
from folkman.report.palette import MOST_CURVES
from folkman.report.statistics import half_width
from folkman.report.tables import final_rows

__all__ = ["costs_table", "headline", "provenance_section", "results_table", "run_page"]


FOREIGN = "At steps that were tuned for another setting: "
"""What stands before an answer that a search may turn round."""


def run_page(contents: Contents) -> str:
    """Return the page of a run folder as it stands."""
    begun = [run for run in contents.runs if run.rows]
    title = str(contents.config.get("name", contents.folder.root.name))
    name = contents.folder.config.name
    sides = sides_of(contents.config)
    networks, states = network_names(sides), standings(sides)
    made_by = source_of_run(contents.provenance.get("command"), str(contents.folder.config))
    note = escape(told(states, tune_command(sides, made_by), searched(sides)))
    misleads = ELSEWHERE in states.values()  # to be said before the answer
    results = _results(begun, contents.provenance, networks)
    results += f"<p>{note}</p>" if note and not misleads else ""
    sections = [
        html.Section("results", "Results", results),
        *([curves_section(begun, networks)] if begun else []),
        *([multiples_section(begun)] if len({run.label for run in begun}) > MOST_CURVES else []),
        *network_sections(begun),
        html.Section(
            "configuration",
            "Configuration",
            html.details(name, html.preformatted(contents.config_text)),
        ),
        provenance_section(contents.provenance),
        html.Section("repeat", "To repeat it", _commands(contents)),
    ]
    lead = headline(contents.runs, networks, doubt=FOREIGN if misleads else "")
    if misleads:
        lead = f'<ul class="wrong" aria-label="What to know first"><li>{note}</li></ul>{lead}'
    return html.page(title, _subtitle(contents.config), lead, sections)


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


def headline(
    runs: Sequence[Run],
    networks: Mapping[str, str] | None,
    lines: Sequence[str] = (),
    doubt: str = "",
) -> str:
    """Return the answer: what went wrong, who won and how sure that is, and what it cost.

    Without networks (None) runs met unlike settings: `lines` are the answer, and costs are left
    out. A `doubt` stands before the first sentence.
    """
    begun = [run for run in runs if run.rows]
    said = lines if networks is None else answer(begun, networks)
    first, *rest = said or ["No run has begun."]
    said = f'<p class="verdict">{escape(doubt + first)}</p>'
    said += "".join(f"<p>{escape(text)}</p>" for text in rest)
    pairs, free = [], bounds(networks or {})
    for axis, (_, what) in CURRENCIES.items():
        found = costs_to(begun, "train_loss", axis, networks)
        if found is not None and found.paid[0].label not in free:  # a reference wins nothing
            least = found.paid[0]
            most = "Fewest" if axis in ("gradients", "bits") else "Least"
            title = (
                f"{most} {what} to training loss {found.target:.3g}, which every run reaches "
                f"({found.set_by} sets it)"
            )
            pairs.append((title, quantity(axis, least.mean), found.cheapest()))
    states = Counter(run.verdict or run.status for run in runs)
    counted = ", ".join(f"{count} {state}" for state, count in states.items())
    pairs.append(("Runs", str(len(runs)), counted))
    return f'<div class="answer">{_wrong(runs)}{said}</div>{html.facts(pairs)}'


def _wrong(runs: Sequence[Run]) -> str:
    """Return the runs that went nowhere, with the reason and what to try."""
    told_of = {run.label for run in runs if run.reason}
    lines = complaints(_by_seed(runs))
    lines += [run.message for run in runs if run.message and run.label not in told_of]
    lines += guesses(runs)
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<ul class="wrong" aria-label="What went wrong">{items}</ul>' if lines else ""


def _noted(runs: Sequence[Run]) -> str:
    """Return what else was seen of runs that finished: no reason to distrust what stands above."""
    items = "".join(f"<li>{escape(line)}</li>" for line in [*swings(runs), *unheard(runs)])
    return f'<ul class="noted" aria-label="Also seen">{items}</ul>' if items else ""


def _by_seed(runs: Sequence[Run]) -> dict[str, dict[int, Run]]:
    arms: dict[str, dict[int, Run]] = {}
    for run in runs:
        arms.setdefault(run.label, {})[run.seed] = run
    return arms


def _results(runs: Sequence[Run], provenance: Json, networks: Mapping[str, str]) -> str:
    if not runs:
        return "<p>No run has begun.</p>"
    note = (
        "<p class='sub'>Last values: mean over seeds and 95 % interval. The row with the lowest "
        "loss is bold, unless another cannot be told from it; links that take no time are a "
        "reference and not ranked.</p>"
    )
    said = "".join(
        f"<p class='sub'>{escape(line)}</p>" for line in provenance.get("networks") or []
    )
    table = results_table(runs, "algorithm", apart=bounds(networks))
    return table + note + said + costs_table(runs, networks)


def results_table(
    runs: Sequence[Run], first: str, *, ranked: bool = True, apart: Collection[str] = ()
) -> str:
    """Return the last values of each label: results, what they cost, what else was seen.

    The row with the lowest loss is bold where runs are `ranked` and none is tied with it; those
    `apart` never are.
    """
    headings, rows = final_rows(runs)
    amounts = {"bits": "bits", "joules": "energy_j"}
    labels = list(dict.fromkeys(run.label for run in runs))
    for heading, axis in amounts.items():
        if heading in headings:
            column = headings.index(heading)
            for label, row in zip(labels, rows, strict=True):
                spent = np.array([run.last(axis) for run in runs if run.label == label])
                row[column] = _amount(axis, float(spent.mean()), float(half_width(spent)))
    best = _ahead(runs, apart) if ranked else None
    shown = html.table([first, *headings[1:]], rows, best, explained=True)
    return shown + _unlike_seeds(runs) + _noted(runs)


def _ahead(runs: Sequence[Run], apart: Collection[str]) -> int | None:
    """Return the row with the lowest mean loss; none where a rival is not told apart from it."""
    found = compare_arms(_by_seed(runs), ["train_loss"], bounds=apart)
    best = found.references["train_loss"]
    alone = best not in apart and np.isfinite(found.cells[best, "train_loss"].mean)
    return found.arms.index(best) if alone and not found.tied("train_loss") else None


def _unlike_seeds(runs: Sequence[Run]) -> str:
    """Return that rows are means over unlike seeds, where they are; the best is not."""
    counts = {run.label: sum(each.label == run.label for each in runs) for run in runs}
    if len(set(counts.values())) < 2:
        return ""
    told = ", ".join(f"{escape(label)}: {count}" for label, count in counts.items())
    return (
        f"<p class='sub'>Each row is over its own seeds ({told}); who is ahead was found over the "
        "seeds that all have.</p>"
    )


def costs_table(runs: Sequence[Run], networks: Mapping[str, str] | None) -> str:
    """Return what each method paid for the lowest training loss that all of them reach.

    And below it, what the best two paid for the lowest that both reach.
    """
    every = _costs(runs, networks)
    if not every or len(every[0].paid) + len(every[0].apart) < 2:
        return ""
    left = "Methods that do not learn, or have too few seeds, are left out."
    table = _costs_to_one(runs, every, f"the lowest that every run reaches. {left}")
    rivals = [cost.label for cost in every[0].paid]
    best = [label for label in best_first(runs) if label in rivals][:2]
    fewer = _costs([run for run in runs if run.label in best], networks)
    if len(rivals) > 2 and fewer and fewer[0].target < every[0].target:
        table += _costs_to_one(runs, fewer, f"the lowest that {' and '.join(best)} both reach.")
    return f"<h3>Cost of the same result</h3>{table}"


def _costs(runs: Sequence[Run], networks: Mapping[str, str] | None) -> list[Costs]:
    """Return what methods paid for the training loss that all of them reach, axis by axis."""
    every = [costs_to(runs, "train_loss", axis, networks) for axis in CURRENCIES]
    return [costs for costs in every if costs is not None]


def _costs_to_one(runs: Sequence[Run], found: Sequence[Costs], which: str) -> str:
    """Return a table of what each method paid for one training loss, and above it for which."""
    paid = [{cost.label: cost for cost in (*costs.paid, *costs.apart)} for costs in found]
    labels = [label for label in dict.fromkeys(run.label for run in runs) if label in paid[0]]
    rows = []
    for label in labels:
        cells = [_paid(costs, own[label]) for costs, own in zip(found, paid, strict=True)]
        rows.append([label, *cells])
    names = ["algorithm", *("joules" if c.axis == "energy_j" else c.axis for c in found)]
    goal = f"{NOUNS['train_loss']} {found[0].target:.3g}"
    apart = ", ".join(cost.label for cost in found[0].apart)
    beside = f" On another network, and so not ranked: {apart}." if apart else ""
    words = f"{which} {found[0].set_by} sets it.{beside}"
    note = (
        f"<p class='sub'>To {goal}, {escape(words)} Mean over seeds and 95 % interval; what is "
        "surely the least of a column is bold.</p>"
    )
    return note + html.table(names, rows, explained=True)


def _paid(costs: Costs, cost: Cost) -> str:
    """Return an amount with its interval; what is surely the least is bold."""
    text = escape(_amount(costs.axis, cost.mean, cost.half))
    return html.Markup(f"<strong>{text}</strong>" if costs.sure and cost == costs.paid[0] else text)


def _amount(axis: str, mean: float, half: float) -> str:
    """Return an amount with its unit, and its interval as a share of it."""
    if not (isfinite(half) and half > 1e-6 * abs(mean)):
        return quantity(axis, mean)
    percent = 100 * half / abs(mean)
    return f"{quantity(axis, mean)} ± {percent:.{0 if percent >= 10 else 1}f} %"


def provenance_section(facts_known: Json) -> html.Section:
    """Return where and with what a run was made."""
    apart = ("versions", "resumed", "command", "networks")
    rows = [[key, _words(value)] for key, value in facts_known.items() if key not in apart]
    versions = facts_known.get("versions") or {}
    rows += [[f"version of {key}", str(value)] for key, value in versions.items() if value]
    rows += [["resumed", _when(each.get("started"))] for each in facts_known.get("resumed") or []]
    shown = html.table(["what", "value"], rows, words=True) if rows else ""
    return html.Section("provenance", "Provenance", shown, folded=True)


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
