"""The command line of the simulated world: `folkman simulate-node` and `folkman world`."""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from folkman.cli.common import FAILED, AsJson, print_json

if TYPE_CHECKING:
    from folkman.runtime.world.plan import Plan
    from folkman.runtime.world.world import Outcome

__all__ = ["simulate_node", "world"]

MOST_SHOWN = 5
"""Failures that are made small and shown; the others are named."""
LAST_LINES = 40
"""Lines of a trace before the one that broke."""

Method = Annotated[
    str | None,
    typer.Option(
        help="alone, emulated, rounds, server, sum, forward, feedback, band_sum or band_forward; "
        "default: as drawn."
    ),
]


def simulate_node(
    seeds: Annotated[int, typer.Option(min=1, help="How many schedules.")] = 1000,
    first: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    seed: Annotated[int | None, typer.Option(min=0, help="Run this schedule alone.")] = None,
    trace: Annotated[bool, typer.Option("--trace", help="Print all that happens.")] = False,
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    method: Method = None,
    as_json: AsJson = False,
) -> None:
    """Run device nodes in worlds of virtual time, network and disks, one for each seed.

    Each seed switches faults and liars on. All invariants are checked. A
    schedule that breaks one is made small and shown; the exit code is then 5.
    """
    _with_numpy()
    from folkman.runtime.world.swarm import Tally, run_seeds

    _check_method(method)
    if trace and seed is None:
        raise ValueError("--trace shows one schedule; name it with --seed")
    begun_s, tally = time.monotonic(), Tally()
    asked = range(first, first + seeds) if seed is None else [seed]
    for outcome in run_seeds(asked, method=method, workers=workers):
        tally.add(outcome)
        if outcome.broken and not as_json:
            print(_headline(outcome), flush=True)
    if trace and seed is not None:
        _print_trace(seed, method)
    found = tally.summary(time.monotonic() - begun_s)
    if as_json:
        print_json(found)
    else:
        for failure in tally.failures[:MOST_SHOWN]:
            _explain(failure)
        print(_sentence(found))
    if tally.failures:
        raise typer.Exit(FAILED)


def world(
    seed: Annotated[int, typer.Option(min=0, help="Which schedule.")],
    out: Annotated[Path | None, typer.Option(help="The page; default world-SEED.html.")] = None,
    method: Method = None,
) -> None:
    """Write a page that plays a schedule back: nodes, links, messages, crashes, disks, ages."""
    path = out or Path(f"world-{seed}.html")
    if path.is_dir():
        raise ValueError(f"{path} is a folder; name a file, such as {path / f'world-{seed}.html'}")
    if not path.parent.is_dir():
        raise ValueError(f"there is no folder {path.parent}; make it, or choose another place")
    _with_numpy()
    from folkman.runtime.world.page import page
    from folkman.runtime.world.plan import plan_of
    from folkman.runtime.world.swarm import watch

    _check_method(method)
    outcome, played = watch(plan_of(seed, method))
    path.write_text(page(outcome, played), encoding="utf-8")
    print(_headline(outcome) if outcome.broken else f"seed {seed}: all invariants hold")
    print(path)


def _check_method(method: str | None) -> None:
    """Refuse a way to share that no schedule has."""
    from folkman.runtime.world.plan import METHODS

    if method is not None and method not in METHODS:
        raise ValueError(f"method is one of {', '.join(METHODS)}, got '{method}'")


def _with_numpy() -> None:
    """Compute with NumPy: the world's models are small, and its processes many."""
    from folkman.arithmetic import choose

    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    choose("numpy")


def _headline(outcome: "Outcome") -> str:
    plan = outcome.plan
    return f"seed {plan.seed} ({plan.method}): {outcome.text}"


def _explain(outcome: "Outcome") -> None:
    """Print the smallest schedule that breaks the same invariant, and how it got there."""
    from folkman.runtime.world.shrink import shrink
    from folkman.runtime.world.swarm import run_plan, watch

    def breaks(plan: "Plan") -> bool:
        return run_plan(plan).broken == outcome.broken

    small = shrink(outcome.plan, breaks)
    again, played = watch(small)
    print(f"\nseed {small.seed}, made small: {small.nodes} nodes, {small.slots} slots")
    for member, lie in small.liars:
        print(f"  node {member} lies: {lie}")
    for fault in small.faults:
        print(f"  {fault.said()}")
    for line in played.trace.lines[-LAST_LINES:]:
        print(line.said())
    print(f"{again.text}\ntrace {again.digest}")


def _print_trace(seed: int, method: str | None) -> None:
    from folkman.runtime.world.plan import plan_of
    from folkman.runtime.world.swarm import watch

    outcome, played = watch(plan_of(seed, method))
    for line in played.trace.lines:
        print(line.said())
    print(f"trace {outcome.digest}")


def _sentence(found: dict[str, object]) -> str:
    failures = found["failures"]
    assert isinstance(failures, list)  # noqa: S101 - built above
    ends = f"{len(failures)} broke an invariant" if failures else "all invariants held"
    return (
        f"{found['schedules']} schedules, {found['node_hours']:.2f} node-hours, {ends}; "
        f"{found['schedules_per_s']:.1f} schedules/s, {found['node_slots_per_s']:.0f} node-slots/s"
    )
