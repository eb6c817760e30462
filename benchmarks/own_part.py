"""One knob for the own part of Algorithm 1, beside FedAvg, every side at its own best step.

    python benchmarks/own_part.py --quick                 four small cells, a few minutes
    python benchmarks/own_part.py --jobs 16               all sixteen, as in docs/own-part.md
    python benchmarks/own_part.py --write-data digits.npz  the digits, for a machine without
                                                           scikit-learn: then --data digits.npz

A cell is a model, a split of the digits over five nodes, a mini-batch and a Gamma of `pipelined`.
Every side's step is tuned on seeds 100 to 102: powers of two, extended while the best is at an end,
then by half powers around the best. It is judged on seeds 0 to 4 by the training loss of the
network's model after 300 slots. Intervals are of 95 %, by Student's t over the seeds. The tuning
takes a process a cell. A seed changes the first model, the mini-batches and the phases of the
network; the split of the data stays.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "src"))
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    one = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    os.environ.setdefault("XLA_FLAGS", one)


NODES, SLOTS = 5, 300
TUNING, JUDGED = (100, 101, 102), (0, 1, 2, 3, 4)
TOGETHER = 6
"""Runs side by side in one program: two steps under three seeds."""
FIRST = {"softmax": (-1, 4), "mlp": (-3, 1), "mnist": (-3, 1)}
"""The powers of two that are tried first."""
MODEL = {"softmax": "softmax", "mlp": "mlp", "mnist": "mlp"}
"""What is learned in a cell: `mnist` is the MLP on MNIST, the others are on the digits."""
ENDS = (-12, 10)
T_95 = {4: 2.776}
"""Student's t for 95 %, by degrees of freedom."""
KNOB = {"0": 0.0, "0.5": 0.5, "1": 1.0}
SIDES = ("newest", *KNOB, "predicted", "measured", "fedavg 1", "fedavg 5", "fedavg 20")


class Cell(NamedTuple):
    """One setting."""

    model: str
    split: str
    batch: int | None
    gamma: int

    @classmethod
    def read(cls, text: str) -> "Cell":
        """Return the cell of a text such as mlp,label,32,15."""
        model, split, batch, gamma = text.split(",")
        return cls(model, split, None if batch == "full" else int(batch), int(gamma))

    def __str__(self) -> str:
        return f"{self.model},{self.split},{self.batch or 'full'},{self.gamma}"


ALL = [
    Cell(model, split, batch, gamma)
    for model in ("mlp", "softmax")
    for batch in (None, 32)
    for split in ("even", "label")
    for gamma in (5, 15)
]
QUICK = [Cell("softmax", split, 32, gamma) for split in ("even", "label") for gamma in (5, 15)]

Losses = Callable[[Sequence[float], Sequence[int]], list[list[float]]]
"""(steps, seeds) -> the loss of each, by step and seed."""


def losses_of(
    cell: Cell,
    data: str | None,
    seeds: Sequence[int] = (*TUNING, *JUDGED),
    together: int = TOGETHER,
    programs: dict[str, Any] | None = None,
) -> Callable[[str], Losses]:
    """Return for the name of a side the function that runs it in a cell.

    Cells that differ in their split alone can share their `programs`.
    """
    from dataclasses import replace

    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax import Array, lax

    from folkman.algorithm.async_sharing import async_sharing
    from folkman.algorithm.base import Algorithm
    from folkman.algorithm.fedavg import fedavg
    from folkman.engine.simulate import one_slot
    from folkman.engine.slot import Carry, first
    from folkman.engine.travel import medium_of
    from folkman.faults import NO_FAULTS
    from folkman.problem.data import load, npz
    from folkman.problem.partition import iid, sorted_labels
    from folkman.problem.problem import Problem, make_problem
    from folkman.radio.delay import pipelined

    samples = load("digits") if data is None else npz(data)
    parts = NODES if cell.split == "even" else sorted_labels(samples.y_train, NODES)
    network, compute = pipelined(cell.gamma), (1,) * NODES
    memory = 2 * cell.gamma + 1

    def problem_of(seed: int) -> Problem:
        return make_problem(samples, MODEL[cell.model], parts, batch=cell.batch, seed=seed)

    common = problem_of(0)
    if programs is not None:  # one shape and one form for both splits
        both = (iid(samples.y_train, NODES), sorted_labels(samples.y_train, NODES))
        common = of_one_form(common, max(len(part) for split in both for part in split))

    def build(side: str, step: Array, rho: Array) -> Algorithm:
        if side.startswith("fedavg"):
            return fedavg(step, int(side.split()[1]))
        own = rho if side == "knob" else side
        return async_sharing(step, own=own, memory=memory)

    def runner(side: str) -> Callable[..., Array]:
        def one(problem: Problem, initial: Array, step: Array, rho: Array, seed: Array) -> Array:
            problem = replace(problem, initial=initial)
            algorithm = build(side, step, rho)

            def slot(_: int, carry: Carry) -> Carry:
                return one_slot(problem, network, algorithm, compute, NO_FAULTS, carry)[0]

            last = lax.fori_loop(0, SLOTS, slot, first(problem, network, algorithm, compute, seed))
            params = jax.vmap(algorithm.params)(last.states)
            model = medium_of(algorithm, network).model(last.medium, problem, params)
            models = jnp.broadcast_to(model[None], params.shape)
            keys = jnp.broadcast_to(jax.random.key(0), NODES)
            found, _ = replace(problem, batch=None).gradients(models, keys)
            return jnp.dot(problem.share, found)

        return jax.jit(jax.vmap(one, (None, 0, 0, None, 0)))

    made: dict[str, Callable[..., Array]] = {} if programs is None else programs
    initial = {seed: np.asarray(problem_of(seed).initial) for seed in seeds}

    def side_of(name: str) -> Losses:
        side = "knob" if name in KNOB else name
        program = made.setdefault(side, runner(side))

        def run(steps: Sequence[float], seeds: Sequence[int]) -> list[list[float]]:
            asked = [(step, seed) for step in steps for seed in seeds]
            found: list[float] = []
            for begin in range(0, len(asked), together):
                some = asked[begin : begin + together]
                full = some + some[:1] * (together - len(some))
                step, seed = (np.array(each) for each in zip(*full, strict=True))
                start = np.stack([initial[each] for each in seed])
                rho = np.float32(KNOB.get(name, 0.0))
                told = program(common, start, step.astype(np.float32), rho, seed.astype(np.uint32))
                found += np.asarray(told, float)[: len(some)].tolist()
            return np.reshape(found, (len(steps), len(seeds))).tolist()

        return run

    return side_of


def of_one_form(problem: Any, length: int) -> Any:
    """Return a problem with room for so many samples a node; neither this nor a factor 1 counts."""
    from dataclasses import replace

    import jax.numpy as jnp

    def wide(some: Any) -> Any:
        room = [(0, 0), (0, length - some.shape[1])] + [(0, 0)] * (some.ndim - 2)
        return jnp.pad(some, room)

    emphasis = jnp.ones(NODES) if problem.emphasis is None else problem.emphasis
    return replace(problem, x=wide(problem.x), y=wide(problem.y), emphasis=emphasis)


def tuned(run: Losses, model: str, seeds: Sequence[int] = TUNING) -> tuple[float, bool]:
    """Return the best step on the seeds for tuning, and whether it is off the ends of the grid."""
    seen: dict[float, float] = {}

    def look(powers: Sequence[float]) -> None:
        new = [power for power in powers if power not in seen]
        rows = run([2.0**power for power in new], seeds) if new else []
        for power, row in zip(new, rows, strict=True):
            mean = sum(row) / len(row)
            seen[power] = mean if math.isfinite(mean) else math.inf

    low, high = FIRST[model]
    look([float(power) for power in range(low, high + 1)])
    while True:
        best = min(seen, key=lambda power: (seen[power], power))
        if best <= low and low > ENDS[0]:
            low -= 2
            look([low, low + 1])
        elif best >= high and high < ENDS[1]:
            high += 2
            look([high - 1, high])
        else:
            break
    look([best - 0.5, best + 0.5])
    best = min(seen, key=lambda power: (seen[power], power))
    return 2.0**best, low < best < high


def measure(cell: Cell, data: str | None, sides: Sequence[str]) -> dict[str, Any]:
    """Tune and judge sides in one cell."""
    side_of = losses_of(cell, data)
    found: dict[str, Any] = {}
    for name in sides:
        began = time.perf_counter()
        run = side_of(name)
        step, inside = tuned(run, cell.model)
        losses = run([step], JUDGED)[0]
        spent = time.perf_counter() - began
        found[name] = {"step": step, "inside": inside, "losses": losses, "seconds": spent}
        print(f"{cell}: {name} step {step:.4g} {_interval(losses)} ({spent:.0f} s)", flush=True)
    return found


def _interval(values: Sequence[float]) -> str:
    """Return the mean and its half interval."""
    mean = sum(values) / len(values)
    if not math.isfinite(mean):
        return "diverged"
    spread = math.sqrt(sum((each - mean) ** 2 for each in values) / (len(values) - 1))
    return f"{mean:.3f} ± {T_95[len(values) - 1] * spread / math.sqrt(len(values)):.3f}"


def _mean(found: dict[str, Any], name: str) -> float:
    mean = sum(found[name]["losses"]) / len(found[name]["losses"])
    return mean if math.isfinite(mean) else math.inf


def table(results: dict[str, dict[str, Any]]) -> str:
    """Return the table of all cells, and how `measured` stands."""
    head = ["cell", *("rho = " + side if side in KNOB else side for side in SIDES)]
    head += ["measured / best fixed", "measured / best FedAvg"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    fixed, averages = ("newest", *KNOB), [side for side in SIDES if side.startswith("fedavg")]
    for cell, found in results.items():
        row = [
            f"{_interval(found[side]['losses'])} ({found[side]['step']:.3g}"
            f"{'' if found[side]['inside'] else ', end of the grid'})"
            for side in SIDES
        ]
        for others in (fixed, averages):
            best = min(_mean(found, side) for side in others)
            row.append(f"{_mean(found, 'measured') / best:.2f}")
        lines.append("| " + " | ".join([cell, *row]) + " |")
    return "\n".join(lines)


def _in_a_process(cell: Cell, data: str | None, out: Path) -> None:
    """Measure a cell in a process of its own."""
    command = [sys.executable, __file__, "--cell", str(cell), "--out", str(out)]
    subprocess.run(command + (["--data", data] if data else []), check=True)


def main() -> None:
    """Measure what is asked for and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="softmax on mini-batches alone")
    parser.add_argument("--cells", nargs="*", help="such as mlp,label,32,15 softmax,even,full,5")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--data", help="an .npz file of the digits; scikit-learn's by default")
    parser.add_argument("--out", type=Path, default=Path("own_part"), help="folder of the numbers")
    parser.add_argument("--cell", help="one cell in this process, without a table")
    parser.add_argument("--sides", nargs="*", choices=SIDES, help="of --cell: all by default")
    parser.add_argument("--write-data", type=Path, help="write the digits to this .npz and end")
    asked = parser.parse_args()
    if asked.write_data:
        import numpy as np

        from folkman.problem.data import load

        arrays = load("digits")._asdict()
        kept = ("x_train", "y_train", "x_test", "y_test")
        np.savez_compressed(asked.write_data, **{key: arrays[key] for key in kept})
        return
    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.cell:
        found = measure(Cell.read(asked.cell), asked.data, asked.sides or SIDES)
        (asked.out / f"{asked.cell}.json").write_text(json.dumps(found, indent=1) + "\n")
        return
    cells = [Cell.read(text) for text in asked.cells] if asked.cells else ALL
    cells = QUICK if asked.quick and not asked.cells else cells
    with ThreadPoolExecutor(asked.jobs) as pool:
        list(pool.map(lambda cell: _in_a_process(cell, asked.data, asked.out), cells))
    texts = {str(cell): (asked.out / f"{cell}.json").read_text() for cell in cells}
    print(table({cell: json.loads(text) for cell, text in texts.items()}))


if __name__ == "__main__":
    main()
