"""Running a task: every side started once and warmed up, then asked in turn, round after round."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from math import isfinite
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.environments import SCRIPTS, OpponentAbsentError, ensure
from benchmarks.measure import absent, floors, measured, verdict, with_ratios
from benchmarks.pipe import Side, SideFailedError
from benchmarks.tasks import Task
from benchmarks.unable import unable

__all__ = ["OPPONENTS", "Rows", "Settings", "failed", "learning", "open_task", "own_module"]

OPPONENTS = ("torch", "jax", "flower", "fedjax", "pfl", "gossipy")
WARM_UP_ROUNDS = 2
NOT_AVAILABLE = "NotAvailableError: "
BESIDE = "folkman, "
"""How a side is named that is folkman at another work."""


class Settings(NamedTuple):
    """How the benchmark is run."""

    rounds: int  # repetitions of each side
    environments: Path
    limit_s: float  # of one answer
    say: Callable[[str], None]


Sides = dict[str, Side]
Rows = list[dict[str, Any]]


@contextmanager
def open_task(task: Task) -> Iterator[Path]:
    """Yield a folder with the task and its arrays, for as long as it is worked at."""
    with tempfile.TemporaryDirectory(prefix="folkman-bench-") as name:
        folder = Path(name)
        (folder / "task.json").write_text(json.dumps(task._asdict()), encoding="utf-8")
        done = subprocess.run(
            own_module("arrays", folder), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SideFailedError(
                f"the arrays of {task.work} could not be drawn: {done.stderr.strip()[-300:]}"
            )
        yield folder


def own_module(name: str, folder: Path) -> list[str]:
    """Return the command that runs a module of this package on the folder of a task."""
    return [sys.executable, "-m", f"benchmarks.{name}", str(folder)]


def learning(
    task: Task, opponents: list[str], settings: Settings, beside: Task | None = None
) -> dict[str, Any]:
    """Let folkman and the opponents learn in turn, and return the rows.

    `beside` is another task of folkman's own.
    """
    rows: Rows = []
    with ExitStack() as stack:
        sides: Sides = {}
        folder = stack.enter_context(open_task(task))
        stack.callback(lambda: [side.end() for side in sides.values()])
        _start(sides, rows, "folkman", own_module("own_side", folder), settings)
        _start(sides, rows, "peak", own_module("peak", folder), settings)
        if beside is not None:
            other = stack.enter_context(open_task(beside))
            _start(sides, rows, BESIDE + beside.work, own_module("own_side", other), settings)
        for name in opponents:
            if reason := unable(task, name):
                rows.append(absent(name, "not available", reason))
            else:
                _start_opponent(sides, rows, name, folder, settings)
        answers = _in_turn(sides, rows, task, settings)
        peaks = answers.pop("peak", None)
        if not peaks:
            raise SideFailedError(
                f"the machine's peak could not be measured: {rows[-1].get('reason', '')}"
            )
        rows += [_row(task, sides[name], given) for name, given in answers.items() if given]
        _judge(sides, rows, answers, folder)
    peak = {key: max(answer[key] for answer in peaks) for key in ("gemm_gflops", "copy_gb_per_s")}
    return {
        "task": task._asdict(),
        "peak": peak,
        "floors": floors(task, peak["gemm_gflops"], peak["copy_gb_per_s"]),
        "rows": with_ratios(rows, peak["gemm_gflops"]),
    }


def _row(task: Task, side: Side, answers: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the row of a side: the first answer was the warm-up."""
    warm_up, *repeated = answers
    foreign = [each["foreign_cores"] for each in repeated if each["foreign_cores"] is not None]
    return measured(task, side.name, side.version, repeated) | {
        "memory_mb": side.memory_mb,
        "startup_s": side.startup_s,
        "warm_up_s": warm_up["wall_s"],
        "foreign_cores": median(foreign) if foreign else None,
    }


def _start(sides: Sides, rows: Rows, name: str, command: list[str], settings: Settings) -> None:
    """Start a side, or note why it is not there."""
    settings.say(f"  starting {name}")
    try:
        sides[name] = Side(name, command, settings.limit_s)
    except SideFailedError as error:
        rows.append(failed(name, error))


def failed(name: str, error: SideFailedError) -> dict[str, Any]:
    """Return the row of a side that failed, or that says that the engine cannot do the work."""
    status = "not available" if str(error).startswith(NOT_AVAILABLE) else "failed"
    return absent(name, status, str(error).removeprefix(NOT_AVAILABLE))


def opponent_command(name: str, settings: Settings) -> list[str]:
    """Return the command of an opponent's script in its own environment, made if missing."""
    python = ensure(name, SCRIPTS / f"{name}.txt", settings.environments)
    return [str(python), str(SCRIPTS / f"against_{name}.py")]


def _start_opponent(sides: Sides, rows: Rows, name: str, folder: Path, settings: Settings) -> None:
    try:
        command = opponent_command(name, settings)
    except OpponentAbsentError as error:
        rows.append(absent(name, "absent", str(error)))
        return
    _start(sides, rows, name, [*command, str(folder)], settings)


def _in_turn(
    sides: Sides, rows: Rows, task: Task, settings: Settings
) -> dict[str, list[dict[str, Any]]]:
    """Warm every side up, then ask each for one repetition in every round.

    A side that fails is left out.
    """
    answers: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
    for k in range(settings.rounds + 1):
        settings.say(f"  round {k} of {settings.rounds}" if k else "  warming up")
        short = (
            min(WARM_UP_ROUNDS, task.rounds) if task.network != "radio" else task.rounds
        )  # its store grows at first
        length = task.rounds if k else short
        for name in list(answers):
            do = "peak" if name == "peak" else "repeat"
            try:
                answers[name].append(sides[name].ask(do, rounds=length))
            except SideFailedError as error:
                rows.append(absent(name, "failed", str(error)))
                del answers[name]
                sides.pop(name).end()  # it may be computing still, beside the others
    return answers


def _judge(
    sides: Sides, rows: Rows, answers: dict[str, list[dict[str, Any]]], folder: Path
) -> None:
    """Let folkman evaluate every final model, and say of each row whether it was the same work."""
    if "folkman" not in answers:
        return
    judge = sides["folkman"]
    first = judge.ask("judge", model=str(folder / "initial.npy"))["loss"]
    losses = {
        name: judge.ask("judge", model=given[-1]["model"])["loss"]
        for name, given in answers.items()
    }
    for row in rows:
        if row["side"] in losses:
            loss = losses[row["side"]]
            row["loss"] = loss if isfinite(loss) else None
            if not row["side"].startswith(BESIDE):
                row["work"] = verdict(row, loss, losses["folkman"], first)
