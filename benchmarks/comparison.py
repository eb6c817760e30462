"""Every method at its own best options in every cell of benchmarks/comparison.toml.

    python -m benchmarks.comparison --out runs/comparison                  all cells, all cores
    python -m benchmarks.comparison --out runs/quick --quick               a small one, minutes
    python -m benchmarks.comparison --out runs/comparison --draw docs      tables, figures, pages

Each method is tuned in each cell by the search of `folkman tune` (`experiment.halving`, the same
budget for all) on the seeds 1000 and 1001, and then judged on others. All runs are those of
`folkman run`: `experiment.parts`, `engine.simulate.march`. A cell of a method is one line of
`results.jsonl`, written when it ends. Lines that are there, in --out or in --done, are not made
again, so that the same command goes on after --budget-s or Ctrl-C. MNIST is needed: `folkman data
fetch mnist`. `--prepare DIR` writes the data of all cells as small files, and `--data DIR` reads
them: faster, and without scikit-learn.
"""

import argparse
import json
import lzma
import math
import multiprocessing as mp
import os
import queue
import sys
import time
import tomllib
import traceback
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["COLUMNS", "Cell", "Plan", "lines_of", "packed", "read_plan", "settled", "unit"]

PLAN = Path(__file__).with_suffix(".toml")
RESULTS = "results.jsonl"
COLUMNS = ("slots", "gradients", "bits", "train_loss", "test_accuracy")
"""What is kept of every record of a judged run."""
OF_THE_PLAN = ("tune", "reference", "added", "part")
"""What a side's table has for the plan alone, not for the method."""
RECORDS = 4
"""Records of a run of the search, as in `folkman tune`: one that diverges ends at the next."""

Json = dict[str, Any]


class Cell(NamedTuple):
    """One setting that all methods meet."""

    name: str
    group: str
    title: str  # of its group
    config: Json  # as `folkman run` takes it, without algorithms
    over: Json
    judge_seeds: tuple[int, ...]
    gpu: bool
    part: int = 1  # of its group: runs are made part by part
    added: bool = False  # after the first results were known


class Plan(NamedTuple):
    """All that is run, in order of importance."""

    cells: tuple[Cell, ...]
    methods: tuple[Json, ...]
    tune_seeds: tuple[int, ...]
    bits_in_messages: int
    gradients: int

    def jobs(self) -> Iterator[tuple[tuple[Cell, ...], Json]]:
        """Yield the cells of a group, which share programs, with each method; parts in order."""
        groups = dict.fromkeys(cell.group for cell in self.cells)
        by_group = [tuple(cell for cell in self.cells if cell.group == group) for group in groups]
        pairs = product(by_group, self.methods)
        yield from sorted(pairs, key=part_of)

    def ranked(self) -> set[str]:
        """Return the labels of the eighteen."""
        return {method["label"] for method in self.methods} - self.unranked()

    def unranked(self) -> set[str]:
        """Return the labels that have no rank among the eighteen."""
        return {
            method["label"]
            for method in self.methods
            if method.get("reference") or method.get("added")
        }


def part_of(job: tuple[tuple[Cell, ...], Json]) -> int:
    """Return the part of a job: the later one of its group and its side."""
    cells, method = job
    return max(cells[0].part, method.get("part", 1))


def in_parts(plan: Plan, parts: list[int] | None) -> list[tuple[tuple[Cell, ...], Json]]:
    """Return the jobs of some parts of the plan, in the order in which the parts are given."""
    if not parts:
        return list(plan.jobs())
    asked = [job for job in plan.jobs() if part_of(job) in parts]
    return sorted(asked, key=lambda job: parts.index(part_of(job)))


def read_plan(path: Path = PLAN, *, quick: bool = False) -> Plan:
    """Read the plan; a quick one has two cells, six methods and short runs."""
    raw = tomllib.loads(path.read_text(encoding="utf-8"))
    cells = []
    for group in raw["group"]:
        base = {**raw["base"], **group.get("base", {})}
        over = {**raw["over"], **group.get("over", {})}
        seeds = tuple(group.get("judge_seeds", raw["judge_seeds"]))
        about = (group["name"], group["title"])
        for cell in group["cell"]:
            own = {key: value for key, value in cell.items() if key not in ("name", "added")}
            how = (group.get("gpu", False), group.get("part", 1), cell.get("added", False))
            cells.append(Cell(cell["name"], *about, {**base, **own}, over, seeds, *how))
    methods = tuple(raw["method"])
    if quick:
        small = {"slots": 60, "model": {"name": "softmax"}}
        over = {"step": [0.1, 1.0, 10.0], "local_steps": [1, 5]}
        cells = [
            cell._replace(config={**cell.config, **small}, over=over, judge_seeds=(0, 1, 2))
            for cell in cells[:2]
        ]
        methods = methods[:6]
    fixed = (tuple(raw["tune_seeds"]), raw["bits_in_messages"], raw["gradients"])
    return Plan(tuple(cells), methods, *fixed)


def settled(cell: Cell, method: Json, data: Path | None) -> Json:
    """Return the configuration of one method in one cell."""
    config = json.loads(json.dumps(cell.config))  # a copy: tables are changed below
    table = {key: value for key, value in method.items() if key not in OF_THE_PLAN}
    own = table.get("network", {})
    if own.get("name") == config["network"]["name"]:
        table["network"] = {**config["network"], **own}
    if data is not None:
        config["data"] = {"name": "npz", "path": str(data / _file_of(config["data"]))}
    return {**config, "name": "cell", "seeds": list(cell.judge_seeds), "algorithm": [table]}


def _file_of(table: Json) -> str:
    return "-".join(str(value) for value in table.values()) + ".npz"


def prepare(plan: Plan, folder: Path) -> None:
    """Write the data of all cells as small files, for --data: nothing else is then needed."""
    import numpy as np

    from folkman.problem.data import load, shorten

    folder.mkdir(parents=True, exist_ok=True)
    for table in {
        _file_of(cell.config["data"]): cell.config["data"] for cell in plan.cells
    }.values():
        found = shorten(load(table["name"]), table.get("train_size"), table.get("test_size"))
        arrays = {name: getattr(found, name) for name in ("x_train", "y_train", "x_test", "y_test")}
        np.savez_compressed(folder / _file_of(table), **arrays)


def concerned(cell: Cell, method: Json) -> bool:
    """Tell whether a method is run in a cell: a bound of a law of delay has no place elsewhere."""
    law = method.get("network", {}).get("name")
    if law != "pipelined":
        return True
    return cell.config["network"]["name"] == "pipelined" and "batch" not in cell.config


class OutOfTime(Exception):  # noqa: N818 - the budget of time is spent
    """Stop here; what is not written is made next time."""


class Bench:
    """Runs of one group of cells: its problems are built once, and padded to one length."""

    def __init__(
        self, cells: tuple[Cell, ...], plan: Plan, data: Path | None, until: float
    ) -> None:
        self._cells, self._plan, self._data, self._until = cells, plan, data, until
        self._problems: dict[tuple[str, int], Any] = {}

    def problem(self, cell: Cell, seed: int) -> Any:
        """Return the data of a cell under a seed; all of a group have one shape."""
        if not self._problems:
            from folkman.config.build import build_problem
            from folkman.config.comparison import resolve

            for each in self._cells:
                config = resolve(settled(each, {"name": "fedavg"}, self._data))
                for own in (*self._plan.tune_seeds, *each.judge_seeds):
                    self._problems[each.name, own] = build_problem(config, own)
            longest = max(problem.x.shape[1] for problem in self._problems.values())
            for key, problem in self._problems.items():
                self._problems[key] = padded(problem, longest)
        return self._problems[cell.name, seed]

    def run(self, cell: Cell, comparison: Any, seed: int, every: int) -> Any:
        """Make one run, as `folkman run` does."""
        from folkman.engine.simulate import march, note, start
        from folkman.experiment.parts import parts

        if time.time() > self._until:
            raise OutOfTime
        given = {"seeds": (seed,), "record_every": every}
        problems = {seed: self.problem(cell, seed)}
        (part,) = parts(comparison.model_copy(update=given), problems)
        for _, row in march(part.simulation, start(part.simulation, seed), part.slots):
            note(part.run, row)
        return part.run


def padded(problem: Any, length: int) -> Any:
    """Return a problem with room for `length` samples per node; padding enters no sum."""
    from dataclasses import replace

    import jax.numpy as jnp

    def wide(samples: Any) -> Any:
        room = [(0, 0), (0, length - samples.shape[1])] + [(0, 0)] * (samples.ndim - 2)
        return jnp.pad(samples, room)

    return replace(problem, x=wide(problem.x), y=wide(problem.y))


def unit(bench: Bench, cell: Cell, method: Json, plan: Plan, data: Path | None) -> Json:
    """Tune one method in one cell, judge it, and return its line."""
    from folkman.config.comparison import resolve
    from folkman.experiment.halving import halving, solved, usual_budget
    from folkman.experiment.tunable import axes_asked, methods_of, table_at

    begun_s = time.time()
    comparison = resolve(settled(cell, method, data))
    grids = axes_asked({name: values or None for name, values in cell.over.items()})
    budget = usual_budget(tuple(grids.values()), len(plan.tune_seeds))
    wanted = method.get("tune", list(grids))
    has = [name for name in wanted if comparison.algorithm[0].get(name) is not None]
    ((searched,), _) = methods_of(comparison, {name: grids[name] for name in has})

    def at(point: tuple[float, ...]) -> Any:
        table = table_at(comparison, searched, point)
        return comparison.model_copy(update={"algorithm": (table,)})

    every = max(comparison.record_every, math.ceil(comparison.slots / RECORDS))

    def score(point: tuple[float, ...], seed: int) -> float:
        run = bench.run(cell, at(point), plan.tune_seeds[seed], every)
        last = run.last("train_loss")
        return last if run.status == "finished" and math.isfinite(last) else math.inf

    seeds = len(plan.tune_seeds)
    found = solved(halving(searched.axes, searched.start, seeds, budget), score)
    best = at(found.best)
    runs = {seed: bench.run(cell, best, seed, comparison.record_every) for seed in cell.judge_seeds}
    names = [axis.name for axis in searched.axes]
    return {
        "cell": cell.name,
        "label": method["label"],
        "name": method["name"],
        "options": dict(zip(names, found.best, strict=True)),
        "score": found.score,
        "budget": budget,
        "runs": len(found.scores),
        "at_edge": list(found.at_edge),
        "trials": [[*point, seed, _short(value)] for (point, seed), value in found.scores.items()],
        "judged": {str(seed): _kept(run) for seed, run in runs.items()},
        "message_bits": 32 * bench.problem(cell, cell.judge_seeds[0]).dim,
        "seconds": round(time.time() - begun_s, 1),
    }


def _kept(run: Any) -> Json:
    """Return the columns of a run, and how it ended."""
    columns = {name: [_short(row[name]) for row in run.rows] for name in COLUMNS}
    last = run.rows[-1]
    ends = {name: _short(last[name]) for name in ("kappa", "mean_age", "rounds")}
    return {"status": run.status, **columns, **ends}


def _short(value: float) -> float | None:
    """Return six digits, as JSON has them; None for what is not finite."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


def lines_of(*places: Path) -> list[Json]:
    """Return the results in files or folders, the first of each cell and method."""
    found: dict[tuple[str, str], Json] = {}
    for place in places:
        files = sorted((*place.glob("*.jsonl"), *place.glob("*.jsonl.xz")))
        for file in files if place.is_dir() else [place]:
            for text in _text(file).splitlines():
                try:
                    line = json.loads(text)
                except json.JSONDecodeError:  # cut off when the program was killed
                    continue
                if "error" not in line or "refused" in line:
                    found.setdefault((line["cell"], line["label"]), line)
    return list(found.values())


def _text(file: Path) -> str:
    """Return the text of a file, which is packed if its name ends in .xz."""
    raw = file.read_bytes()
    return (lzma.decompress(raw) if file.suffix == ".xz" else raw).decode("utf-8")


def packed(lines: list[Json], plan: Plan, file: Path) -> None:
    """Write results in the order of the plan: docs/data/comparison."""
    order = {
        (cell.name, method["label"]): place
        for place, (cell, method) in enumerate(product(plan.cells, plan.methods))
    }
    ordered = sorted(lines, key=lambda line: order[line["cell"], line["label"]])
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in ordered)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(lzma.compress(text.encode("utf-8"), preset=9))


def work(orders: Any, told: Any, settings: Json) -> None:
    """Do jobs until there are none: a worker process."""
    os.environ.update(settings["environment"])
    if settings["core"] is not None:  # one core each: JAX then starts no more threads than that
        os.sched_setaffinity(0, {settings["core"]})
    from folkman.experiment.jobs import set_up_worker

    set_up_worker()
    plan: Plan = settings["plan"]
    while True:
        try:
            cells, method = orders.get(timeout=1.0)
        except queue.Empty:
            return
        bench = Bench(cells, plan, settings["data"], settings["until"])
        for cell in cells:
            line: Json = {"cell": cell.name, "label": method["label"]}
            if (cell.name, method["label"]) in settings["known"] or not concerned(cell, method):
                continue
            try:
                told.put(unit(bench, cell, method, plan, settings["data"]))
            except OutOfTime:
                return
            except ValueError as error:  # a method that does not fit, in its own words
                told.put({**line, "error": str(error), "refused": True})
            except Exception:  # one line, and the others go on
                told.put({**line, "error": traceback.format_exc(limit=4)})


def run_all(plan: Plan, asked: argparse.Namespace) -> None:
    """Hand out the jobs to processes and write each line as it comes."""
    asked.out.mkdir(parents=True, exist_ok=True)
    target = asked.out / RESULTS
    places = [place for place in (target, *asked.done) if place.exists()]
    known = {(line["cell"], line["label"]) for line in lines_of(*places)}
    context, until = mp.get_context("spawn"), time.time() + asked.budget_s
    told = context.Queue()
    crews = {"cpu": asked.workers, "cuda": asked.gpu_workers}
    workers, kept, in_all = [], [], 0
    for platform, number in crews.items():
        if not number:
            continue
        orders = context.Queue()
        kept.append(orders)  # a queue that nobody holds is gone before the workers open it
        for cells, method in in_parts(plan, asked.parts):
            if (cells[0].gpu and not asked.cnn_on_cores) == (platform == "cuda"):
                orders.put((cells, method))
                in_all += sum(
                    concerned(cell, method) and (cell.name, method["label"]) not in known
                    for cell in cells
                )
        own = {"JAX_PLATFORMS": platform, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        settings = {
            "environment": own,
            "plan": plan,
            "data": asked.data,
            "until": until,
            "known": known,
        }
        for each in range(number):
            core = _core(each) if platform == "cpu" else None
            given = (orders, told, {**settings, "core": core})
            workers.append(context.Process(target=work, args=given, daemon=True))
    for worker in workers:
        worker.start()
    _gather(told, workers, target, until, in_all)
    for orders in kept:
        orders.cancel_join_thread()


def _core(number: int) -> int | None:
    """Return the core of a worker; None where a process cannot be bound to one."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    cores = sorted(os.sched_getaffinity(0))
    return cores[number % len(cores)]


def _gather(told: Any, workers: list[Any], target: Path, until: float, in_all: int) -> None:
    """Write lines until no worker is left, or the budget is spent."""
    made, begun_s = 0, time.time()
    with target.open("a", encoding="utf-8") as file:
        while True:
            try:
                line = told.get(timeout=1.0)
            except queue.Empty:
                if not any(worker.is_alive() for worker in workers) or time.time() > until + 20:
                    break
                continue
            file.write(json.dumps(line, separators=(",", ":")) + "\n")
            file.flush()
            made += 1
            how = line.get("error", f"{line.get('score', math.nan):.4g} {line.get('options')}")
            head = f"{time.time() - begun_s:5.0f} s  {made}/{in_all}"
            print(f"{head}  {line['cell']}  {line['label']}: {how[-300:]}", flush=True)
    died = [worker.exitcode for worker in workers if worker.exitcode not in (0, None)]
    print(f"{made} of {in_all} lines; workers that died: {died or 'none'}", flush=True)
    for worker in workers:
        worker.terminate()


def main() -> None:
    """Run, or draw what was run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--out", type=Path, default=Path("runs/comparison"), help="folder of results.jsonl"
    )
    parser.add_argument("--done", type=Path, nargs="*", default=[], help="more results to skip")
    parser.add_argument("--prepare", type=Path, help="write the data of all cells and stop")
    parser.add_argument("--data", type=Path, help="folder that --prepare wrote")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes on cores")
    parser.add_argument("--gpu-workers", type=int, default=0, help="processes on the GPU (the CNN)")
    parser.add_argument("--budget-s", type=float, default=math.inf, help="seconds, then stop")
    parser.add_argument("--quick", action="store_true", help="two small cells, six methods")
    parser.add_argument("--only", nargs="*", help="cells, or groups of cells, by name")
    parser.add_argument("--cnn-on-cores", action="store_true", help="no GPU: the CNN on cores too")
    parser.add_argument(
        "--parts", type=int, nargs="*", help="parts of the plan by number, in order"
    )
    parser.add_argument("--pack", type=Path, help="write all results as one .jsonl.xz")
    parser.add_argument("--draw", type=Path, help="write tables and figures under this folder")
    asked = parser.parse_args()
    plan = read_plan(quick=asked.quick)
    if asked.only:
        own = [cell for cell in plan.cells if {cell.group, cell.name} & set(asked.only)]
        plan = plan._replace(cells=tuple(own))
    if asked.prepare:
        prepare(plan, asked.prepare)
    elif asked.pack:
        packed(lines_of(asked.out, *asked.done), plan, asked.pack)
    elif asked.draw:
        from benchmarks.comparison_page import draw

        draw(plan, lines_of(asked.out, *asked.done), asked.draw)
    else:
        run_all(plan, asked)


if __name__ == "__main__":
    sys.exit(main())
