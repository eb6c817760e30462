"""The work W4: gradients on a GPU, alone and within a slot of Algorithm 1, all asked in turn."""

import importlib.util
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.environments import SCRIPTS, OpponentAbsentError, ensure
from benchmarks.measure import absent, floors
from benchmarks.pipe import Side, SideFailedError
from benchmarks.runs import Rows, Settings, failed, open_task, own_module
from benchmarks.tasks import Task, Work, flops_per_node_step

__all__ = ["gradient"]

TIMES = 3
"""Gradients in an answer, of which it tells the median."""

SAME_GRADIENT = 0.05
"""Distance of two gradients of the same work, as a part of their size: 16-bit products leave 1 % or
so."""

WAYS = ("eager", "compiled", "tuned, eager", "tuned, compiled")
"""How PyTorch computes: its own layers or a hand-tuned form of them, as they come or through
`torch.compile`."""


class Entrant(NamedTuple):
    """What is timed, the side that is asked for it, and the answers; the rows it belongs to."""

    rows: Rows
    name: str
    side: Side
    task: Task
    order: dict[str, Any]
    answers: list[dict[str, Any]]
    shown: list[NDArray[np.float32]]  # the gradient itself, where it is compared


def gradient(
    work: Work,
    opponents: list[str],
    settings: Settings,
    backend: str = "gpu",
    peak_size: int = 8192,
) -> list[dict[str, Any]]:
    """Time gradients in every precision, and slots of Algorithm 1, in turn.

    Without a GPU say so and go on.
    """
    alone, whole = work.tasks
    of_alone, of_whole = Rows(), Rows()
    with ExitStack() as stack:
        folder = stack.enter_context(open_task(alone))
        ours = _started(stack, "folkman", own_module("own_side", folder), settings)
        found = ours.ask("backend")
        if found["backend"] != backend:
            reason = f"JAX computes on '{found['device']}' and sees no GPU"
            return [{"task": alone._asdict(), "rows": [absent("folkman", "skipped", reason)]}]
        tasks = [alone._replace(precision=each) for each in work.precisions]
        entrants = [_gradients(of_alone, "folkman", ours, each) for each in tasks]
        if "torch" in opponents:
            entrants += _torch(stack, of_alone, tasks, folder, settings)
        for precision in work.precisions:
            entrants += _slots(stack, of_whole, whole._replace(precision=precision), settings)
        _ask_in_turn(entrants, settings)
        peaks = [ours.ask("peak", size=peak_size) for _ in range(2)]
    peak = {
        key: max(each[key] for each in peaks)
        for key in ("float32_gflops", "bfloat16_gflops", "copy_gb_per_s")
    }
    peak["gemm_gflops"] = peak["bfloat16_gflops"]
    entered = [each for each in entrants if each.answers]
    told = {id(each): _row(each, peak) for each in entered}
    for each in entered:
        row, own = told[id(each)], next((own for own in entered if _beside(own, each)), None)
        each.rows.append(row | (_compared(each, row, own, told[id(own)]) if own else {}))
    for listed in (of_alone, of_whole):
        listed.sort(key=lambda row: row["status"] != "measured")
    facts = {"device": found["device"], "peak": peak}
    return [
        {"task": task._asdict(), **facts, "floors": _floors(task, peak), "rows": rows}
        for task, rows in ((alone, of_alone), (whole, of_whole))
    ]


def _started(stack: ExitStack, name: str, command: list[str], settings: Settings) -> Side:
    settings.say(f"  starting {name}")
    side = Side(name, command, settings.limit_s)
    stack.callback(side.end)
    return side


def _gradients(rows: Rows, name: str, side: Side, task: Task, **more: Any) -> Entrant:
    order = {"do": "gradients", "precision": task.precision, "times": TIMES, **more}
    return Entrant(rows, name, side, task, order, [], [])


def _torch(
    stack: ExitStack, rows: Rows, tasks: list[Task], folder: Path, settings: Settings
) -> list[Entrant]:
    """Enter PyTorch in all its ways.

    Of this interpreter where it has it, else of an environment of its own.
    """
    try:
        here = importlib.util.find_spec("torch") is not None
        python = (
            sys.executable
            if here
            else ensure("torch", SCRIPTS / "torch.txt", settings.environments)
        )
        command = [str(python), str(SCRIPTS / "against_torch_gpu.py"), str(folder)]
        side = _started(stack, "torch", command, settings)
    except (OpponentAbsentError, SideFailedError) as error:
        rows.append(absent("torch", "absent", str(error)))
        return []
    return [
        _gradients(rows, f"torch, {way}", side, task, way=way) for task in tasks for way in WAYS
    ]


def _slots(stack: ExitStack, rows: Rows, task: Task, settings: Settings) -> list[Entrant]:
    """Enter slots of Algorithm 1 in one precision.

    Also a loop of as many gradients of the same nodes alone.
    """
    folder = stack.enter_context(open_task(task))
    try:
        name = f"folkman, {task.nodes} nodes, {task.precision}"
        side = _started(stack, name, own_module("own_side", folder), settings)
    except SideFailedError as error:
        rows.append(failed(f"slot, {task.precision}", error))
        return []
    slots = Entrant(rows, "slot", side, task, {"do": "repeat", "rounds": task.rounds}, [], [])
    return [_gradients(rows, "gradient", side, task, loop=task.rounds), slots]


def _ask_in_turn(entrants: list[Entrant], settings: Settings) -> None:
    """Warm up, folkman's sides one after another and PyTorch beside them.

    Then ask each once in every round.
    """
    settings.say("  warming up")
    ours = [each for each in entrants if each.side.name != "torch"]
    theirs = [each for each in entrants if each.side.name == "torch"]
    with ThreadPoolExecutor() as pool:  # both compile for a minute, on processors
        list(pool.map(_ask_each, (ours, theirs)))
    for k in range(settings.rounds):
        settings.say(f"  round {k + 1} of {settings.rounds}")
        _ask_each([each for each in entrants if each.answers])


def _ask_each(entrants: list[Entrant]) -> None:
    """Ask one after another, the first time also for the gradient itself.

    One that fails is not asked again.
    """
    for each in entrants:
        try:
            if not each.answers and each.order["do"] == "gradients" and "loop" not in each.order:
                first = each.side.ask(
                    **each.order, show=True
                )  # compiles, where the gradient is called alone
                each.shown.append(np.load(first["gradient"]))
                each.answers.append(
                    first | {"wall_s": first["wall_s"] + each.side.ask(**each.order)["wall_s"]}
                )
            else:
                each.answers.append(each.side.ask(**each.order))
        except SideFailedError as error:
            each.rows.append(failed(f"{each.name}, {each.task.precision}", error))
            each.answers.clear()


def _row(entrant: Entrant, peak: dict[str, float]) -> dict[str, Any]:
    """Return the row of an entrant: its warm-up left out, and one of many slots."""
    task, (warm_up, *repeated) = entrant.task, entrant.answers
    parts = entrant.order.get("rounds", 1)
    seconds = [(answer["seconds"] - answer.get("aside_s", 0.0)) / parts for answer in repeated]
    gflops = task.nodes * (flops_per_node_step(task) or 0.0) / median(seconds) / 1e9
    return {
        "side": f"{entrant.name}, {task.precision}",
        "status": "measured",
        "version": entrant.side.version,
        "precision": task.precision,
        "seconds": median(seconds),
        "seconds_each": seconds,
        "gflops": gflops,
        "of_peak": gflops / peak[f"{task.precision}_gflops"],
        "memory_mb": entrant.side.memory_mb,
        "startup_s": entrant.side.startup_s,
        "warm_up_s": warm_up["wall_s"],
        **{key: repeated[-1][key] for key in ("device_memory_mb",) if key in repeated[-1]},
    }


def _beside(own: Entrant, other: Entrant) -> bool:
    """Return whether `own` is what `other` is held against.

    That is folkman's gradient of the same nodes and precision.
    """
    return own.task == other.task and own.rows is other.rows and own.name in ("folkman", "gradient")


def _compared(
    entrant: Entrant, row: dict[str, Any], own: Entrant, ours: dict[str, Any]
) -> dict[str, Any]:
    """Return how many times folkman's seconds a row has, if it is the same gradient.

    Of a slot, what it costs more.
    """
    ratio = row["seconds"] / ours["seconds"]
    if entrant.order["do"] == "repeat":
        part = ratio - 1
        words = f"{abs(100 * part):.1f} % {'more' if part > 0 else 'less'} than its gradients"
        return {"ratio": ratio, "overhead": part, "remark": words}
    if not entrant.shown:
        return {"ratio": ratio}
    apart = float(np.linalg.norm(entrant.shown[0] - own.shown[0]) / np.linalg.norm(own.shown[0]))
    if not apart <= SAME_GRADIENT:  # nor if it is not a number
        return {"work": "different work", "apart": apart}
    return {"ratio": ratio, "work": "same work", "apart": apart}


def _floors(task: Task, peak: dict[str, float]) -> dict[str, float]:
    """Return the least seconds of all nodes' gradients once."""
    return floors(task._replace(rounds=1), peak["gemm_gflops"], peak["copy_gb_per_s"])
