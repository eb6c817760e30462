"""The command line of papers: `folkman reproduce`, `folkman audit`, `folkman papers`."""

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from folkman.cli import common, sweep
from folkman.cli.common import AsJson, print_json, say
from folkman.record.json_file import Json

if TYPE_CHECKING:
    from folkman.experiment.plan import Job
    from folkman.papers.paper import Paper
    from folkman.papers.reproduce import Made
    from folkman.papers.results import Reproduction

__all__ = ["audit", "papers", "reproduce"]

QUICK_COMPILE = "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1"
"""For sizes whose time is compilation."""

Names = Annotated[
    list[str], typer.Argument(help="Figures of the paper, or all; `folkman papers` lists them.")
]
PaperName = Annotated[
    str | None,
    typer.Option(
        "--paper", help="A paper by name, or a folder with a paper.toml; default xie2024."
    ),
]
Size = Annotated[
    str | None,
    typer.Option(
        help="Size of the runs; default the smallest. xie2024: smoke, laptop, full (a GPU)."
    ),
]
Device = Annotated[str | None, typer.Option(help="cpu or gpu; by default what JAX finds.")]
Seeds = Annotated[
    int | None, typer.Option(min=1, help="Number of draws per figure; default that of the size.")
]
FirstDraw = Annotated[
    int,
    typer.Option(min=0, help="Number of the first draw: draws that no earlier runs have seen."),
]
Slots = Annotated[
    int | None,
    typer.Option("--iterations", min=1, help="Slots of every run; default those of the size."),
]
Budget = Annotated[
    float | None, typer.Option(min=0, help="Stop after so many seconds; call again to continue.")
]
Out = Annotated[
    Path | None,
    typer.Option(help="Folder of the runs; default runs/paper-SIZE. Goes on if it is there."),
]
Share = Annotated[
    str | None,
    typer.Option(help="K/N: the K-th of N processes that share the work and the folder."),
]
Redraw = Annotated[Path | None, typer.Option(help="Draw from this folder's runs; run nothing.")]


def reproduce(  # noqa: PLR0913, PLR0917 - the options, one by one
    names: Names,
    size: Size = None,
    device: Device = None,
    seeds: Seeds = None,
    slots: Slots = None,
    first_draw: FirstDraw = 0,
    budget_s: Budget = None,
    out: Out = None,
    share: Share = None,
    redraw: Redraw = None,
    paper: PaperName = None,
    engine: sweep.Engine = "here",
    workers: sweep.Workers = None,
    memory: sweep.Memory = None,
    tls_ca: sweep.TlsCa = None,
    tls_cert: sweep.TlsCert = None,
    tls_key: sweep.TlsKey = None,
    show_plan: Annotated[
        bool, typer.Option("--plan", help="List what would be run, and run nothing.")
    ] = False,
    verify: Annotated[
        bool, typer.Option(help="Make the first finished run again and compare the numbers.")
    ] = False,
    check: Annotated[
        Path | None,
        typer.Option(help="Make a sample of the runs of this folder again and compare them."),
    ] = None,
    sample: Annotated[int, typer.Option(min=1, help="Runs that --check makes again.")] = 3,
    report: Annotated[
        bool, typer.Option("--report", help="At the end, also report.html of all runs.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a paper's experiments at a chosen size, most important first, and draw its figures.

    Resumes by itself.
    """
    from folkman.papers.paper import find

    known = find(paper)
    chosen_size = size or next(iter(known.sizes))
    if redraw is None:
        _prepare(device, known, chosen_size)
    if check is not None:
        _check(check, sample, known if paper else None, as_json=as_json)
        return
    from folkman.papers import reproduce as module

    module.chosen(known, names)
    if redraw is not None:
        drawn = module.draw(redraw, names, out or redraw, known if paper else None)
        common.print_paths(drawn, quiet=as_json)
        return
    amount = module.Amount(chosen_size, seeds, slots, share, budget_s, first_draw)
    root = out or module.default_folder(known, chosen_size)
    whole, mine = module.planned(known, names, amount)
    if show_plan:
        _show_plan(mine, root)
        return
    if verify:
        _verify(mine, root)
        return
    crew = sweep.crew_of(engine, workers, memory, tls_ca, tls_cert, tls_key)
    advice = f"go on with the same command (--out {root})"
    progress = sweep.job_progress(len(whole.jobs))
    with common.stoppable(advice), sweep.ending_on_term(), progress as watch:
        made = module.reproduce(known, names, amount, root, crew, watch, say)
    _finish(made, chosen_size, report=report, as_json=as_json)


def _prepare(device: str | None, paper: "Paper", size: str) -> None:
    """Choose the device and how programs are compiled, before JAX looks for either."""
    from folkman.checks import require

    paper.check_size(size)
    require(device in (None, "cpu", "gpu"), f"a device is cpu or gpu, got '{device}'")
    if paper.sizes[size].get("quick_compile"):
        os.environ.setdefault("XLA_FLAGS", QUICK_COMPILE)
    import jax

    if device is not None:
        jax.config.update("jax_platforms", {"cpu": "cpu", "gpu": "cuda"}[device])
        try:
            jax.devices()
        except RuntimeError as error:
            raise ValueError(
                f"there is no {device} that JAX can use: {error}; leave out --device"
            ) from None


def _finish(made: "Made", size: str, *, report: bool, as_json: bool) -> None:
    """Tell what was drawn, what is missing, and how it ended."""
    common.print_paths(made.drawn, quiet=as_json)
    for line in _missing(made):
        say(line)
    sweep.tell_failed(made.batch, made.folder, "the same command")
    if report:
        sweep.write_pages(made.folder, 0, common.stream(quiet=as_json))
    else:
        say(f"all runs on one page: folkman report {made.folder.root}")
    if as_json:
        counts = {"made": len(made.batch.made), "missing": len(made.missing)}
        head = {"folder": str(made.folder.root), "size": size}
        print_json(head | counts | {"stopped": made.batch.stopped})
    code = sweep.exit_code(made.batch)
    if code in (common.DISK, common.FAILED):
        sys.exit(code)


def _missing(made: "Made") -> Iterator[str]:
    """Say what was not run, and how to go on."""
    if not made.missing:
        return
    counts: dict[str, int] = {}
    for job in made.missing:
        where = f"{', '.join(job['figures'])} ({job['variant']})"
        counts[where] = counts.get(where, 0) + 1
    why = made.batch.stopped or made.batch.disk or "jobs failed"
    missing = f"{len(made.missing)} runs are missing"
    yield f"stopped: {why}; {missing}, the same command goes on with them:"
    yield from (f"  {where}: {count}" for where, count in counts.items())


def _show_plan(jobs: "Sequence[Job]", root: Path) -> None:
    """Print how many runs each rank has, how many are there, and their gradients."""
    from folkman.record.store import Store, SweepFolder, ended

    folder = SweepFolder(root)
    store = Store(folder.store_root) if folder.index.is_file() else None
    rows: dict[tuple[int, str, str], list[int]] = {}
    for job in jobs:
        row = rows.setdefault((job.rank, job.notes["figures"][0], job.notes["variant"]), [0, 0, 0])
        row[0] += 1
        row[1] += bool(store and ended(store.job(job.key)))
        row[2] += 0 if job.notes.get("clock") else job.config.slots
    print("rank  figure  variant   runs  there  slots with gradients")
    for (rank, name, variant), (count, there, slots) in sorted(rows.items()):
        print(f"{rank:>4}  {name:<6}  {variant:<8}  {count:>4}  {there:>5}  {slots}")
    print(f"      {len(jobs)} runs, shared ones counted once")


def _verify(jobs: "Sequence[Job]", root: Path) -> None:
    from folkman.papers.reproduce import verify

    done, worst = verify(jobs, root)
    apart = f"numbers that differ by {worst:.2g} of their size at most"
    same = "the same numbers to the bit" if worst == 0 else apart
    print(f"run {done.key} ({done.arm}, seed {done.seed}): a second run gave {same}")


def _check(root: Path, sample: int, paper: "Paper | None", *, as_json: bool) -> None:
    """Make kept runs again, tell how far they lie apart, and fail if one lies too far."""
    from folkman.papers.again import check

    found = []
    for each in check(root, sample, paper):
        found.append(each)
        word = "agrees" if each.agrees else "DIFFERS"
        apart = f"loss {each.median:.2g} apart in the median of the curve, {each.largest:.2g} most"
        say(f"{word}: {each.arm}, seed {each.seed}: {apart}; limit {each.limit:g} ({each.why})")
    if as_json:
        rows = [{**each._asdict(), "agrees": each.agrees} for each in found]
        print_json({"folder": str(root), "runs": rows})
    if not all(each.agrees for each in found):
        sys.exit(common.FAILED)


def audit(
    runs: Annotated[
        list[Path], typer.Argument(help="Folders that `folkman reproduce` made, or docs/data/...")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Write the table as Markdown here (.md).")
    ] = None,
    beyond: Annotated[
        bool, typer.Option("--beyond", help="What lies beyond the paper, from `reproduce beyond`.")
    ] = False,
    against: Annotated[
        Path | None,
        typer.Option(
            help="Other, say shorter, runs: what becomes of every reading, by the draws of both."
        ),
    ] = None,
    window: Annotated[
        float | None,
        typer.Option(
            help="Judge by means over this last part of the gradients, say 0.25, not the end."
        ),
    ] = None,
    paper: Annotated[
        str | None,
        typer.Option(
            "--paper", help="Judge by the claims of this paper; default the folder's own."
        ),
    ] = None,
    card: Annotated[
        Path | None,
        typer.Option(
            help="Write the audit on one page, CARD.html and CARD.pdf, and CARD-FIGURE.svg."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Judge every claim of a paper by these runs: test, verdict, effect and its interval."""
    from folkman.papers.audit import judge, reconsider
    from folkman.record.json_file import write_text
    from folkman.report import paper as page

    if beyond and against is not None:
        raise ValueError("--against tells of the paper's claims; leave out --beyond")
    if card is not None:
        if beyond or against is not None:
            raise ValueError("--card tells of the paper's claims; leave out --beyond and --against")
        _write_card(card, [_results(root, window, paper) for root in runs], quiet=as_json)
        return
    console = common.console(quiet=as_json, width=140)
    means = "" if window is None else f", means over the last {100 * window:g} % of the gradients"
    for root in runs:
        results, title = _results(root, window, paper), f"{root}{means}"
        if against is None:
            judged = judge(results, beyond=beyond)
            found: Json = {"claims": [each._asdict() for each in judged]}
            table, count = page.claims_table(judged, title), page.score(judged)
            text = page.claims_markdown(judged, title)
        else:
            changes = reconsider(results, _results(against, window, paper))
            title = f"{root}, before: {against}{means}"
            readings = [{**change._asdict(), "change": change.kind} for change in changes]
            found = {"against": str(against), "readings": readings}
            table, count = page.changes_table(changes, title), page.score_of_changes(changes)
            text = page.changes_markdown(changes, title)
        console.print(table)
        console.print(count, highlight=False)
        if out is not None:
            target = out if len(runs) == 1 else out.with_name(f"{out.stem}-{root.name}{out.suffix}")
            write_text(target, text)
        if as_json:
            print_json({"folder": str(root), "window": window, **found})


def _write_card(path: Path, results: "Sequence[Reproduction]", *, quiet: bool) -> None:
    """Write the card of one paper's audits."""
    from folkman.checks import require
    from folkman.papers.audit import judge
    from folkman.papers.card import Audited, card_of
    from folkman.record.json_file import write_text
    from folkman.report.card import card_figure, card_html
    from folkman.report.figures import save
    from folkman.report.forest import forest_figure

    audits = [Audited(Path(each.origin), each.paper, judge(each)) for each in results]
    names = {audit.paper.name for audit in audits}
    require(len(names) == 1, f"a card is of one paper, these runs are of {', '.join(names)}")
    page = card_of(audits)
    targets = [path.with_suffix(".html"), path.with_suffix(".pdf")]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(targets[0], card_html(page))
    card_figure(page).savefig(targets[1], metadata={"CreationDate": None})
    for forest in page.forests:
        place = path.with_name(f"{path.stem}-{forest.name}.svg")
        targets += save(forest_figure(forest), place)
    common.print_paths(targets, quiet=quiet)


def _results(root: Path, window: float | None, paper: str | None) -> "Reproduction":
    from folkman.papers.paper import find
    from folkman.papers.results import read_reproduction, trailing

    results = read_reproduction(root, None if paper is None else find(paper))
    return results if window is None else trailing(results, window)


def papers(as_json: AsJson = False) -> None:
    """List the papers that can be reproduced and audited: their figures, sizes and claims."""
    from folkman.papers.paper import find, known_papers

    found = []
    for name in known_papers():
        paper = find(name)
        figures = [*paper.figures, *paper.measured, *paper.beyond]
        claims = len(paper.claims()["claim"])
        head = {"name": name, "title": paper.title, "reference": paper.head.get("reference", "")}
        found.append(head | {"figures": figures, "sizes": list(paper.sizes), "claims": claims})
    if as_json:
        print_json({"papers": found})
        return
    for each in found:
        print(f"{each['name']}  {each['title']}\n  {each['reference']}")
        print(f"  figures: {', '.join(each['figures'])}\n  sizes: {', '.join(each['sizes'])}")
        print(
            f"  {each['claims']} claims; folkman reproduce all --paper {each['name']}, then "
            "folkman audit"
        )
