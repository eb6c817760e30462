"""The command line of the paper's experiments: `folkman reproduce` and `folkman audit`.

Heavy packages are imported inside the commands, so that `folkman --help` answers at once.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from folkman.record import run as record

if TYPE_CHECKING:
    from folkman.papers.arms import Arm
    from folkman.papers.reproduce import Left, Store
    from folkman.papers.results import Results

__all__ = ["audit", "reproduce"]

THRIFTY = "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1"
"""For the smoke size, whose time is compilation."""

Names = Annotated[list[str], typer.Argument(help="fig5, fig6, fig7, fig8, table1, theory, all, or beyond.")]
Size = Annotated[str, typer.Option(help="smoke (a minute), laptop (half an hour), full (the paper's; a GPU).")]
Device = Annotated[str | None, typer.Option(help="cpu or gpu; by default what JAX finds.")]
Seeds = Annotated[int | None, typer.Option(min=1, help="Draws of every figure, instead of the size's.")]
Slots = Annotated[int | None, typer.Option("--iterations", min=1, help="Slots of every run, instead of the size's.")]
Budget = Annotated[float | None, typer.Option(min=0, help="Seconds after which to stop; call again to go on.")]
Out = Annotated[Path | None, typer.Option(help="Folder of the runs; default runs/paper-SIZE. Goes on if it is there.")]
Share = Annotated[str | None, typer.Option(help="K/N: the K-th of N processes that share the work and the folder.")]
Redraw = Annotated[Path | None, typer.Option(help="Draw from this folder's metrics; run nothing.")]


def reproduce(  # noqa: PLR0913, PLR0917 - the options, one by one
    names: Names,
    size: Size = "smoke",
    device: Device = None,
    seeds: Seeds = None,
    slots: Slots = None,
    budget_s: Budget = None,
    out: Out = None,
    share: Share = None,
    redraw: Redraw = None,
    show_plan: Annotated[bool, typer.Option("--plan", help="List what would be run, and run nothing.")] = False,
    verify: Annotated[bool, typer.Option(help="Make the first finished run again and compare the numbers.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False,
) -> None:
    """Run the paper's experiments at a chosen size, most important first, and draw its figures; resumes by itself."""
    chosen = _chosen(names)
    if redraw is not None:
        _draw(redraw, chosen, out or redraw, quiet=as_json)
        return
    _prepare(device, size)
    from folkman.papers.arms import plan
    from folkman.papers.arms import share as share_of
    from folkman.papers.reproduce import Store
    from folkman.papers.reproduce import reproduce as make_all

    arms = plan([name for name in chosen if name != "theory"], size, seeds, slots)
    arms = arms if share is None else share_of(arms, share)
    root = out or Path("runs") / f"paper-{size}"
    if show_plan:
        _show_plan(arms, root)
        return
    store = Store(root)
    if verify:
        _verify(arms, store)
        return
    _note_provenance(store)
    try:
        with _progress(arms, store) as tell:
            left = make_all(arms, store, tell, budget_s)
    except KeyboardInterrupt:
        _say(f"interrupted; go on with the same command (--out {root})")
        sys.stdout.flush()
        os._exit(130)  # a compiled program may still be running in threads of its own
    _finish(chosen, size, store, (seeds, slots), left, as_json=as_json)


def _chosen(names: Sequence[str]) -> list[str]:
    """Return the figures that were asked for, "all" spelt out."""
    from folkman.checks import nearest, require

    every = ["fig5", "fig6", "fig7", "fig8", "table1", "theory"]
    for name in names:
        known = [*every, "all", "beyond"]
        require(name in known, f"there is no experiment '{name}'; {nearest(name, known)}")
    found = [each for name in names for each in (every if name == "all" else [name])]
    return list(dict.fromkeys(found))


def _prepare(device: str | None, size: str) -> None:
    """Choose the device and how programs are compiled, before JAX looks for either."""
    from folkman.checks import require

    require(size in ("smoke", "laptop", "full"), f"a size is smoke, laptop or full, got '{size}'")
    require(device in (None, "cpu", "gpu"), f"a device is cpu or gpu, got '{device}'")
    if size == "smoke":
        os.environ.setdefault("XLA_FLAGS", THRIFTY)
    import jax

    if device is not None:
        jax.config.update("jax_platforms", {"cpu": "cpu", "gpu": "cuda"}[device])
        try:
            jax.devices()
        except RuntimeError as error:
            raise ValueError(f"there is no {device} that JAX can use: {error}; leave out --device") from None


def _note_provenance(store: "Store") -> None:
    from folkman.record.provenance import note_start

    note_start(store.folder.provenance, sys.argv[1:])


def _finish(
    chosen: list[str], size: str, store: "Store", changed: tuple[int | None, int | None], left: "Left", *, as_json: bool
) -> None:
    """Measure what the theory asks for, pack all that is there, draw, and say what is missing."""
    from folkman.papers.arms import BEYOND, FIGURES, plan
    from folkman.papers.results import pack

    figures = [name for name in chosen if name != "theory"]
    known = [*plan([*FIGURES, BEYOND], size), *plan(figures, size, *changed)]  # what other calls made stays in the pack
    theory = _theory(size, store) if "theory" in chosen and not left.stopped else []
    pack(known, store, size, theory)
    _draw(store.root, chosen, store.root, quiet=as_json)
    for line in _missing(left):
        _say(line)
    if as_json:
        answer = {"folder": str(store.root), "size": size, "made": len(left.made), "missing": len(left.missing)}
        print(json.dumps(answer | {"stopped": left.stopped}))


def _theory(size: str, store: "Store") -> list[dict[str, Any]]:
    from folkman.papers.xie2024.measure import measure

    if (store.root / "theory.json").is_file():
        return []
    return measure(size, _say)


def _missing(left: "Left") -> Iterator[str]:
    """Say what was not run, and how to go on."""
    if not left.missing:
        return
    counts: dict[str, int] = {}
    for arm in left.missing:
        where = f"{arm.figure} ({arm.variant}), rank {arm.rank}"
        counts[where] = counts.get(where, 0) + 1
    yield f"stopped: {left.stopped}; {len(left.missing)} runs are missing, the same command goes on with them:"
    yield from (f"  {where}: {count}" for where, count in counts.items())


def _show_plan(arms: "Sequence[Arm]", root: Path) -> None:
    """Print how many runs each rank has, how many are there, and their gradients."""
    from folkman.papers.reproduce import Store

    store = Store(root) if root.is_dir() else None
    rows: dict[tuple[Any, ...], list[int]] = {}
    seen: set[str] = set()
    for arm in arms:
        row = rows.setdefault((arm.rank, arm.figure, arm.variant), [0, 0, 0])
        if arm.key not in seen:
            seen.add(arm.key)
            row[0] += 1
            row[1] += bool(store and store.has(arm))
            row[2] += arm.comparison.slots if arm.kind != "clock" else 0
    print("rank  figure  variant   runs  there  slots with gradients")
    for (rank, name, variant), (count, there, slots) in sorted(rows.items()):
        print(f"{rank:>4}  {name:<6}  {variant:<8}  {count:>4}  {there:>5}  {slots}")
    print(f"      {len(seen)} runs, shared ones counted once")


def _verify(arms: "Sequence[Arm]", store: "Store") -> None:
    from folkman.papers.reproduce import verify

    done = next((arm for arm in arms if store.has(arm) and arm.kind == "run"), None)
    if done is None:
        raise ValueError(f"no run of these has ended in {store.root}; make one first, without --verify")
    with TemporaryDirectory() as scratch:
        worst = verify(done, store, Path(scratch))
    store.verified(done.key, worst)
    what = f"run {done.key} ({done.facts['method']}, {done.facts['nodes']} nodes, seed {done.seed})"
    same = "the same numbers to the bit" if worst == 0 else f"numbers that differ by {worst:.2g} of their size at most"
    print(f"{what}: a second run gave {same}")


def _draw(source: Path, chosen: Sequence[str], out: Path, *, quiet: bool) -> None:
    """Draw the figures of a folder's metrics."""
    from folkman.files import write_whole
    from folkman.papers.figures import draw_all, final_values
    from folkman.record.folder import RunFolder

    names, figures = [name for name in chosen if name != "theory"], RunFolder(out).figures
    written = draw_all(source, names, figures)
    if written:
        table = figures / "ends.md"
        write_whole(table, lambda part: part.write_text(final_values(source, names), encoding="utf-8"))
        written.append(table)
    for path in written:
        print(path, file=sys.stderr if quiet else sys.stdout)


@contextmanager
def _progress(arms: "Sequence[Arm]", store: "Store") -> "Iterator[Callable[..., None]]":
    """Yield a watcher: a bar with the time left on a terminal, a plain line a run elsewhere."""
    from folkman.papers.reproduce import once

    wanted = once(arms)
    total, done = len(wanted), sum(store.has(arm) for arm in wanted)
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:.1f} of {task.total}"))
        with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("", total=total - done)
            whole = [0]

            def show(arm: "Arm", run: Any, slot: int, slots: int) -> None:
                ended = slot == slots or run.status == record.DIVERGED
                bar.update(task, completed=whole[0] + slot / slots, description=_describe(arm))
                whole[0] += ended

            yield show
        return
    began, count = time.monotonic(), [0]

    def tell(arm: "Arm", run: Any, slot: int, slots: int) -> None:
        if slot == slots or run.status == record.DIVERGED:
            count[0] += 1
            each = (time.monotonic() - began) / count[0]
            left = f"{each * (total - done - count[0]):.0f} s left"
            loss = run.last("train_loss")
            _say(f"{done + count[0]}/{total} {_describe(arm)}: training loss {loss:.4g} ({each:.1f} s a run, {left})")

    yield tell


def _describe(arm: "Arm") -> str:
    named = ("scaling", "gamma", "threshold_db", "allocation")
    facts = ", ".join(f"{name} {arm.facts[name]}" for name in named if name in arm.facts)
    head = f"{arm.variant} {arm.facts['method']}, {arm.facts['nodes']} nodes, {arm.facts['factor']:.3g} eta"
    return f"{head}{', ' + facts if facts else ''}, seed {arm.seed}"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def audit(
    runs: Annotated[list[Path], typer.Argument(help="Folders that `folkman reproduce` made, or docs/data/...")],
    out: Annotated[Path | None, typer.Option(help="Write the table as Markdown here (.md).")] = None,
    beyond: Annotated[
        bool, typer.Option("--beyond", help="What lies beyond the paper, from `reproduce beyond`.")
    ] = False,
    against: Annotated[
        Path | None,
        typer.Option(help="Other, say shorter, runs: tell what becomes of every reading, by the draws that both have."),
    ] = None,
    window: Annotated[
        float | None,
        typer.Option(help="Judge by means over this last part of the gradients, 0.25 say, not by the last value."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False,
) -> None:
    """Judge every claim of the paper by these runs: the test, the verdict, the effect and its interval."""
    from folkman.files import write_whole
    from folkman.papers.audit import judge, reconsider
    from folkman.report import paper

    if beyond and against is not None:
        raise ValueError("--against tells of the paper's claims; leave out --beyond")
    console = _console(quiet=as_json)
    means = "" if window is None else f", means over the last {100 * window:g} % of the gradients"
    for root in runs:
        results, title = _results(root, window), f"{root}{means}"
        if against is None:
            judged = judge(results, beyond=beyond)
            found: dict[str, Any] = {"claims": [each._asdict() for each in judged]}
            table, count = paper.claims_table(judged, title), paper.score(judged)
            text = paper.claims_markdown(judged, title)
        else:
            changes = reconsider(results, _results(against, window))
            title = f"{root}, before: {against}{means}"
            found = {"against": str(against), "readings": [{**c._asdict(), "change": c.kind} for c in changes]}
            table, count = paper.changes_table(changes, title), paper.score_of_changes(changes)
            text = paper.changes_markdown(changes, title)
        console.print(table)
        console.print(count, highlight=False)
        if out is not None:
            target = out if len(runs) == 1 else out.with_name(f"{out.stem}-{root.name}{out.suffix}")
            write_whole(target, lambda part, text=text: part.write_text(text, encoding="utf-8"))
        if as_json:
            print(json.dumps({"folder": str(root), "window": window, **found}, allow_nan=False))


def _results(root: Path, window: float | None) -> "Results":
    from folkman.papers.results import read_results, trailing

    return read_results(root) if window is None else trailing(read_results(root), window)


def _console(*, quiet: bool) -> Any:
    from rich.console import Console

    return Console(stderr=quiet, width=None if sys.stdout.isatty() else 140)
