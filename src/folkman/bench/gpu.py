"""The work W4: gradients on a GPU, alone and within an iteration of Algorithm 1."""

import importlib.util
import sys
from contextlib import ExitStack
from importlib.resources import files
from pathlib import Path
from typing import Any

from folkman.bench.environments import OpponentAbsentError, ensure
from folkman.bench.measure import absent
from folkman.bench.runs import NOT_AVAILABLE, Settings, module, open_task
from folkman.bench.talk import Side, SideFailedError
from folkman.bench.works import Task, Work, flops_per_node_step

__all__ = ["gradient"]


def gradient(work: Work, opponents: list[str], settings: Settings, backend: str = "gpu") -> list[dict[str, Any]]:
    """Time the gradients in every precision, and iterations of Algorithm 1; without a GPU say so and go on."""
    alone, whole = work.tasks
    with ExitStack() as stack:
        folder = stack.enter_context(open_task(alone))
        ours = Side("folkman", module("side", str(folder)), settings.limit_s)
        stack.callback(ours.end)
        found = ours.ask("backend")
        if found["backend"] != backend:
            reason = f"JAX computes on '{found['device']}' and sees no GPU"
            return [{"task": alone._asdict(), "rows": [absent("folkman", "skipped", reason)]}]
        rows = [_gradients(ours, alone, precision, settings) for precision in work.precisions]
        if "torch" in opponents:
            rows += _against_torch(work, alone, folder, settings)
    first = next((row["seconds"] for row in rows if row["status"] == "measured"), None)
    for row in rows:
        row["ratio"] = row["seconds"] / first if first and row["status"] == "measured" else None
    return [{"task": alone._asdict(), "device": found["device"], "rows": rows}, _iteration(whole, settings)]


def _gradients(side: Side, task: Task, precision: str, settings: Settings) -> dict[str, Any]:
    name = f"{side.name}, gradient, {precision}"
    try:
        answer = side.ask("gradients", precision=precision, times=settings.rounds)
    except SideFailedError as error:
        status = "not available" if str(error).startswith(NOT_AVAILABLE) else "failed"
        return absent(name, status, str(error).removeprefix(NOT_AVAILABLE))
    return {
        "side": name,
        "status": "measured",
        "version": side.version,
        "seconds": answer["seconds"],
        "gflops": task.nodes * flops_per_node_step(task) / answer["seconds"] / 1e9,
        "memory_mb": side.memory_mb,
        "startup_s": side.startup_s,
        "warm_up_s": answer["compile_s"],
        **{key: answer[key] for key in ("device_memory_mb", "way") if key in answer},
    }


def _against_torch(work: Work, task: Task, folder: Path, settings: Settings) -> list[dict[str, Any]]:
    """Ask PyTorch, of this interpreter where it has it, else of an environment of its own."""
    home = Path(str(files("folkman.bench") / "opponents"))
    try:
        here = importlib.util.find_spec("torch") is not None
        python = sys.executable if here else ensure("torch", home / "torch.txt", settings.environments)
        side = Side("torch", [str(python), str(home / "against_torch_gpu.py"), str(folder)], settings.limit_s)
    except (OpponentAbsentError, SideFailedError) as error:
        return [absent("torch", "absent", str(error))]
    try:
        return [_gradients(side, task, precision, settings) for precision in work.precisions]
    finally:
        side.end()


def _iteration(task: Task, settings: Settings) -> dict[str, Any]:
    """Time slots of Algorithm 1 beside the gradients of the same nodes alone."""
    with open_task(task) as folder:
        side = Side("folkman", module("side", str(folder)), settings.limit_s)
        try:
            alone = _gradients(side, task, "float32", settings)
            side.ask("repeat", rounds=1)
            answer = side.ask("repeat", rounds=task.rounds)
        finally:
            side.end()
    slot_s = (answer["seconds"] - answer["aside_s"]) / task.rounds
    overhead = slot_s / alone["seconds"] - 1
    row = {**alone, "side": f"folkman, slot of Algorithm 1, {task.nodes} nodes", "seconds": slot_s}
    row["gflops"] = alone["gflops"] * alone["seconds"] / slot_s
    row["overhead"] = overhead
    row["remark"] = f"{100 * overhead:.1f} % more than its gradients"
    return {"task": task._asdict(), "rows": [alone, row]}
