r"""Own parts of Algorithm 1 beside FedAvg, judged on seeds that chose nothing.

    python -m benchmarks.comparison --prepare data/comparison      where scikit-learn and MNIST are
    python benchmarks/own_part_judged.py --data data/comparison --out runs/own-part.jsonl \
        --workers 14 --gpu-workers 3 --budget-s 550       the same command goes on where it stopped
    python benchmarks/own_part_judged.py --table runs/own-part.jsonl          what came out

The plan, written before any of its runs
----------------------------------------

Cells: the MLP on the digits, the MLP on MNIST (6,000 images) and softmax on the digits; five nodes;
`pipelined` with Gamma 5 and 15; data even and sorted by label; full batches and mini-batches of 32;
300 slots. In all 24.

Sides: Algorithm 1 (`newest`), the shares 0, 0.5 and 1, `predicted`, `measured`, `centred`,
`adaptive`, and FedAvg with 1, 5 and 20 local steps.

Tuning: the search of `own_part.py` on five seeds, 100 to 104: powers of two, extended while the
best is at an end, then half powers around the best; the score is the mean training loss of the
network's model at the end. Five and not three, since three chose steps at the edge that failed on
single judged seeds.

Judgement: the seeds 200 to 209, which no run has seen. The ends of `measured` were settled on the
seeds 0 to 4 of four of these cells; `centred` and `adaptive` on timelines of a radio. Two sides are
compared by the ratio of their losses on each seed: geometric mean, with a 95 % interval by
Student's t of its logarithms. A run that diverges counts with the loss of the first model, ln 10,
and so does one that ends above it.

Asked for each cell: is `measured`, is `adaptive` within 1.10 of the best of the fixed shares
(`newest`, 0, 0.5, 1), and ahead of the best FedAvg? Best is who is best on the judged seeds, in the
opponents' favour.

Lines that are in --out are not made again. MNIST is for the GPU if there are workers for it.
"""

import argparse
import math
import multiprocessing as mp
import os
import queue
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from benchmarks.crew import gather, lines_of  # noqa: E402 - needs the path
from benchmarks.own_part import KNOB, Cell, losses_of, tuned  # noqa: E402 - needs the path

ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
TUNING, JUDGED = (100, 101, 102, 103, 104), tuple(range(200, 210))
TOGETHER = 10
"""Runs side by side in one program: two steps under five seeds."""
FIXED = ("newest", *KNOB)
AVERAGES = ("fedavg 1", "fedavg 5", "fedavg 20")
ASKED = ("measured", "adaptive", "centred")
SIDES = (*FIXED, "predicted", *ASKED, *AVERAGES)
TOGETHER_MADE = (("measured",), ("adaptive",), tuple(KNOB), ("centred",), ("newest",))
PROGRAMS = (*TOGETHER_MADE, *((side,) for side in AVERAGES), ("predicted",))
"""Sides by program, the most important first."""
FILES = {"mlp": "digits.npz", "softmax": "digits.npz", "mnist": "mnist-6000-1000.npz"}
CELLS = tuple(
    Cell(model, split, batch, gamma)
    for model in ("mlp", "mnist", "softmax")
    for batch in (None, 32)
    for gamma in (5, 15)
    for split in ("even", "label")
)
T_95 = {9: 2.262}
"""Student's t for 95 %, by degrees of freedom."""
WORST = math.log(10)

Json = dict[str, Any]
Job = tuple[tuple[Cell, ...], tuple[str, ...]]


def jobs(cells: Sequence[Cell], known: set[tuple[str, str]]) -> Iterator[Job]:
    """Yield the two splits of a setting with the sides of one program, without what is there."""
    for place in dict.fromkeys((cell.model, cell.batch, cell.gamma) for cell in cells):
        mine = tuple(cell for cell in cells if (cell.model, cell.batch, cell.gamma) == place)
        for sides in PROGRAMS:
            if any((str(cell), side) not in known for cell in mine for side in sides):
                yield mine, sides


def unit(cell: Cell, side: str, file: str, programs: Json) -> Json:
    """Tune one side in one cell, judge it, and return its line."""
    began = time.time()
    run = losses_of(cell, file, (*TUNING, *JUDGED), TOGETHER, programs)(side)
    step, inside = tuned(run, cell.model, TUNING)
    losses = [round(loss, 6) if math.isfinite(loss) else None for loss in run([step], JUDGED)[0]]
    found: Json = {"cell": str(cell), "side": side, "step": step, "inside": inside}
    return found | {"losses": losses, "seconds": round(time.time() - began, 1)}


def work(orders: Any, told: Any, settings: Json) -> None:
    """Do jobs until there are none: a worker process."""
    os.environ.update(settings["environment"])
    if settings["core"] is not None:
        os.sched_setaffinity(0, {settings["core"]})
    from benchmarks.fresh_air_opponents import without_optax

    without_optax()
    while True:
        try:
            cells, sides = orders.get(timeout=2.0)
        except queue.Empty:
            return
        programs: Json = {}
        for cell in cells:
            for side in sides:
                if (str(cell), side) in settings["known"]:
                    continue
                try:
                    file = str(settings["data"] / FILES[cell.model])
                    told.put(unit(cell, side, file, programs))
                except Exception:  # one line, and the others go on
                    error = traceback.format_exc(limit=4)
                    told.put({"cell": str(cell), "side": side, "error": error})


def crews(asked: argparse.Namespace, known: set[tuple[str, str]]) -> Iterator[tuple[int, Any, Any]]:
    """Yield the number of workers, their jobs and their environment: for cores, then the GPU."""
    cells = [Cell.read(text) for text in asked.cells] if asked.cells else list(CELLS)
    on_gpu = [cell for cell in cells if cell.model == "mnist" and asked.gpu_workers]
    on_cores = [cell for cell in cells if cell not in on_gpu]
    cores = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": ONE_THREAD}
    # as exact as on a core
    gpu = {"JAX_PLATFORMS": "cuda", "JAX_DEFAULT_MATMUL_PRECISION": "highest"}
    gpu |= {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XLA_FLAGS": ""}
    yield asked.workers, list(jobs(on_cores, known)), cores
    yield asked.gpu_workers, list(jobs(on_gpu, known)), gpu


def run_all(asked: argparse.Namespace) -> None:
    """Hand out the jobs to processes and write each line as it comes."""
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    known = {(line["cell"], line["side"]) for line in lines_of([asked.out, *asked.done])}
    context = mp.get_context("spawn")
    told, workers, kept, in_all = context.Queue(), [], [], 0
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [None]
    for number, mine, environment in crews(asked, known):
        orders = context.Queue()
        kept.append(orders)  # a queue that nobody holds is gone before the workers open it
        for job in mine:
            orders.put(job)
            in_all += sum((str(cell), side) not in known for cell in job[0] for side in job[1])
        for each in range(min(number, len(mine))):
            core = cores[each % len(cores)] if environment["JAX_PLATFORMS"] == "cpu" else None
            settings = {"environment": environment, "core": core, "known": known}
            given = (orders, told, settings | {"data": asked.data})
            workers.append(context.Process(target=work, args=given, daemon=True))
    for worker in workers:
        worker.start()
    gather(
        told,
        workers,
        asked.out,
        in_all=in_all,
        budget_s=asked.budget_s,
        brief=lambda line: f"step {line['step']:.4g}, {line['seconds']} s",
    )
    for worker in workers:
        worker.terminate()
    for orders in kept:
        orders.cancel_join_thread()


def counted(line: Json) -> list[float]:
    """Return the losses of the judged seeds; none is worse than the first model."""
    return [WORST if loss is None else min(loss, WORST) for loss in line["losses"]]


def ratio(one: Json, other: Json) -> tuple[float, float, float]:
    """Return the geometric mean of the ratios seed by seed, and its interval."""
    logs = [math.log(a / b) for a, b in zip(counted(one), counted(other), strict=True)]
    mean = sum(logs) / len(logs)
    spread = math.sqrt(sum((each - mean) ** 2 for each in logs) / (len(logs) - 1))
    half = T_95[len(logs) - 1] * spread / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def _mean(line: Json) -> float:
    return sum(counted(line)) / len(line["losses"])


def _told(line: Json, *, best: bool) -> str:
    """Return the mean of the judged losses with its interval, bold where it is the best."""
    losses, mean = counted(line), _mean(line)
    spread = math.sqrt(sum((each - mean) ** 2 for each in losses) / (len(losses) - 1))
    half = T_95[len(losses) - 1] * spread / math.sqrt(len(losses))
    edge = "" if line["inside"] else " (step at the end of the grid)"
    text = f"{mean:.3f} ± {half:.3f}{edge}"
    return f"**{text}**" if best else text


def _named(cell: Cell) -> str:
    """Return a cell for a reader."""
    what = {"mlp": "digits MLP", "mnist": "MNIST MLP", "softmax": "digits softmax"}[cell.model]
    split = {"even": "even", "label": "by label"}[cell.split]
    return f"{what}, {split}, {cell.batch or 'full'}, {cell.gamma}"


def table(lines: list[Json]) -> str:
    """Return the losses of all cells, and how the sides that are asked about stand."""
    by_place = {(line["cell"], line["side"]): line for line in lines}
    names = {side: f"rho = {side}" if side in KNOB else f"`{side}`" for side in SIDES}
    names |= {side: side.replace("fedavg", "FedAvg") for side in AVERAGES}
    head = ["model, data, batch, Gamma", *(names[side] for side in SIDES)]
    losses = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    stands = [f"`{side}` / {what}" for side in ASKED for what in ("best fixed", "best FedAvg")]
    ratios = ["| " + " | ".join([head[0], *stands]) + " |", "|---" * (1 + len(stands)) + "|"]
    for cell in CELLS:
        mine = {s: by_place[str(cell), s] for s in SIDES if (str(cell), s) in by_place}
        if not mine:
            continue
        best = min(mine, key=lambda side: _mean(mine[side]))
        row = [_told(mine[s], best=s == best) if s in mine else "-" for s in SIDES]
        losses.append("| " + " | ".join([_named(cell), *row]) + " |")
        row = [_stand(mine, side, others) for side in ASKED for others in (FIXED, AVERAGES)]
        ratios.append("| " + " | ".join([_named(cell), *row]) + " |")
    return "\n".join([*losses, "", *ratios])


def _stand(mine: dict[str, Json], side: str, others: Sequence[str]) -> str:
    """Return a side's ratio to the best of others, in their favour, with its interval."""
    if not {side, *others} <= set(mine):
        return "-"
    best = min(others, key=lambda other: _mean(mine[other]))
    mean, low, high = ratio(mine[side], mine[best])
    return f"{mean:.2f} [{low:.2f}, {high:.2f}]"


def main() -> None:
    """Run what is not there yet, or print what is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/own-part.jsonl"))
    parser.add_argument("--done", type=Path, nargs="*", default=[], help="lines not made again")
    parser.add_argument("--data", type=Path, default=Path("data/comparison"))
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--gpu-workers", type=int, default=0, help="for MNIST; else on cores")
    parser.add_argument("--budget-s", type=float, default=math.inf)
    parser.add_argument("--cells", nargs="*", help="such as mlp,label,32,15 softmax,even,full,5")
    parser.add_argument("--table", type=Path, nargs="+")
    asked = parser.parse_args()
    if asked.table:
        print(table(lines_of(asked.table)))
    else:
        run_all(asked)


if __name__ == "__main__":
    main()
