r"""Fresh air beside its opponents, over the same air, at equal time, every side tuned.

    python benchmarks/fresh_air_opponents.py --write-data digits.npz      where scikit-learn is
    python benchmarks/fresh_air_opponents.py --data digits.npz --out runs/opponents.jsonl \
        --workers 16 --budget-s 540            all cells, some 4,500 seconds of a core; the same
                                               command goes on where it stopped
    python benchmarks/fresh_air_opponents.py --quick --out runs/quick.jsonl      minutes
    python benchmarks/fresh_air_opponents.py --table runs/opponents.jsonl        what came out

The plan, written before any of its runs
----------------------------------------

What had been seen: the seconds of a round of all-reduce, station and copies on drops 0 to 19
(benchmarks/fresh_air_rounds.py, to choose between forms of them), the published tables of
docs/fresh-air.md and docs/own-part.md, and `--quick`: two cells, 60 slots, seeds 900 to 902.
Nothing of the drops that are tuned and judged on, and no loss of any side on the index schedule at
this horizon.

Cells: the digits, an MLP of 4,810 parameters; I = 5 and 15 nodes; full batches and mini-batches of
32; compute times equal (one slot) and unequal (1, 1, 2, 3, 5 slots in turn); data even, and sorted
by label. 300 slots. A slot lasts 0.0112 s, so that a transfer takes the part of it that a transfer
of the paper's CNN takes of 1 s (the plan had half of both numbers, by mistake; the code had not).
Control bits are scaled alike. A message is priced at 16 bits a
parameter, a sum at 16 + ceil(log2 I); values are not rounded.

Sides:

    paper       Algorithm 1 under Proposition 1, at the threshold of seven with the least mean age
                on each drop: chosen on the judged drop itself, in its favour
    uniform     the same with equal shares of the bandwidth, at its best of seven
    fresh       index schedule, sums, own part aligned
    measured    the same with own = "measured"
    centred     the same with own = "centred"; added before any judged run. Its two constants had
                been chosen on this MLP with full batches, on timelines of the drops 100 to 117
    adaptive    the same with own = "adaptive"; added when twelve cells had been judged without it.
                It has no constant that was chosen here
    station     FedAvg through the station; uploads one after the other, each in a good slot
    devices     FedAvg between the devices: an all-reduce of partial sums over the same band
    dpsgd       D-PSGD with local steps (DFedAvgM without momentum): each node broadcasts once a
                round, by index; nodes weigh whom they heard (topology 'schedule')
    sgp         asynchronous SGP on a complete graph, copies by index
    free        FedAvg with free links: a reference, not a side

Sides with momentum, added when all others had been judged. What had been seen of them: the loss of
`moving` on this MLP with full batches on timelines of the drops 100 to 117, where its two constants
(theta = 1/2, beta = 7/8) were chosen; nothing on the drops of this plan. They are compared among
themselves first, since momentum helps nearly everyone, and then with the sides without. The cells
are run in the order of the plan as far as time allows. The expectation: `moving` is ahead of
`adaptive` wherever batches are full, and ahead of both FedAvgs with momentum by label.

    moving      `adaptive` with network_momentum = 7/8
    station_m   `station` with momentum 0.9 at the server
    devices_m   `devices` with momentum 0.9 in the local steps: there is no server to keep one

Tuning: by successive halving (`experiment.halving`) with the same budget of 28 runs for every side,
on the drops 2000 to 2002. Steps 0.1 to 3.16 by half-decades, extended at an edge and refined;
local steps 1, 4, 16 of the sides that have them, extended upwards. The score is the training loss
of the network's model at the end; a run that diverges has none.

Judgement: the drops 3000 to 3009, one first model and one stream of mini-batches each, the same for
all sides. Measured is the training loss of the network's model after 300 slots, and beside it the
mean loss of the models that the nodes would deploy. A run that diverges counts with the loss of the
first model. Two sides are compared by the ratio of their losses on each drop: geometric mean, with
a 95 % interval by Student's t of its logarithms. A side is ahead where the interval lies on one
side of 1. The question is, for each cell: is the better of `fresh` and `centred` ahead of the
better of `station` and `devices`, and is each of the four ahead of `paper`?

The expectation: with full batches and even data FedAvg between the devices, with local steps, is
hard to beat; data by label and unequal compute times favour fresh air.

What was seen of judged drops before the end: a first run had twelve of the sixteen cells, in which
the average of `devices` was wrong by a fault in the code. After it was mended the lines of
`devices` were made again by this plan; no other side and nothing in the plan was changed.

Lines that are in --out are not made again. Cells come in order of importance.
"""

import argparse
import math
import multiprocessing as mp
import os
import queue
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from benchmarks.crew import gather, lines_of  # noqa: E402 - needs the path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ.setdefault("XLA_FLAGS", ONE_THREAD)

SIDES = (
    "devices",
    "fresh",
    "centred",
    "station",
    "measured",
    "paper",
    "dpsgd",
    "sgp",
    "uniform",
    "free",
    "adaptive",
    "moving",
    "devices_m",
    "station_m",
)
OWN = {
    "fresh": "aligned",
    "measured": "measured",
    "centred": "centred",
    "adaptive": "adaptive",
    "moving": "adaptive",
}
"""Sides that send sums to peers, and their own parts."""
NETWORK_MOMENTUM = 0.875
LOCAL = ("station", "devices", "dpsgd", "free", "devices_m", "station_m")
"""Sides that have local steps."""
THRESHOLDS_DB = (-15.0, -10.0, -5.0, 0.0, 5.0, 10.0, 15.0)
PAPER_CNN = 430_698
TUNING, JUDGED = (2000, 2001, 2002), tuple(range(3000, 3010))
STEPS, LOCAL_STEPS = (0.1, 0.316, 1.0, 3.16), (1, 4, 16)
BUDGET, SLOTS, EVERY = 28, 300, 50
COMPUTE = (1, 1, 2, 3, 5)
FORM = 2
"""Lines of `devices` of form 1 had a wrong average and are made again; no other side changed."""

Json = dict[str, Any]


class Cell(NamedTuple):
    """One setting that all sides meet."""

    nodes: int
    batch: int | None
    equal: bool  # compute times
    split: str

    @property
    def name(self) -> str:
        """Return what a line is found by."""
        batch, times = self.batch or "full", "equal" if self.equal else "unequal"
        return f"{self.nodes},{batch},{times},{self.split}"


class Size(NamedTuple):
    """How much is run."""

    cells: tuple[Cell, ...]
    sides: tuple[str, ...]
    tuning: tuple[int, ...]
    judged: tuple[int, ...]
    steps: tuple[float, ...]
    local_steps: tuple[int, ...]
    budget: int
    slots: int


CELLS = tuple(
    Cell(nodes, batch, equal, split)
    for equal, nodes, batch in (
        (True, 5, None),
        (True, 5, 32),
        (True, 15, None),
        (True, 15, 32),
        (False, 5, None),
        (False, 5, 32),
        (False, 15, None),
        (False, 15, 32),
    )
    for split in ("even", "label")
)
FULL = Size(CELLS, SIDES, TUNING, JUDGED, STEPS, LOCAL_STEPS, BUDGET, SLOTS)
QUICK = Size(CELLS[:2], SIDES, (900, 901), (900, 901, 902), (0.316, 1.0), (1, 4), 9, 60)


def without_optax() -> None:
    """Let FedAvg be built where optax is not installed: plain steps need nothing of it."""
    try:
        import optax  # noqa: F401
    except ImportError:
        from types import SimpleNamespace

        plain = SimpleNamespace(init=lambda _: (), update=lambda grad, *_: (grad, ()))
        sys.modules["optax"] = SimpleNamespace(  # type: ignore[assignment]
            identity=lambda: plain, trace=lambda _: plain, scale_by_adam=lambda: plain
        )


def samples(file: Path | None) -> Any:
    """Return the digits, from a file or from scikit-learn."""
    from folkman.problem.data import digits, npz

    return digits() if file is None else npz(file)


def write_data(file: Path) -> None:
    """Write the digits as a small file."""
    import numpy as np

    data = samples(None)
    names = ("x_train", "y_train", "x_test", "y_test")
    np.savez_compressed(file, **{name: getattr(data, name) for name in names})


class Bench:
    """The runs of one side in the two splits of a setting, which share their programs."""

    def __init__(self, side: str, size: Size, data: Any) -> None:
        self._side, self._size, self._data = side, size, data
        self._problems: dict[Cell, Any] = {}
        self._thresholds: dict[tuple[int, int], float] = {}

    def run(self, cell: Cell, step: float, local_steps: int, drop: int, *, nodes: bool) -> Any:
        """Make one run."""
        from dataclasses import replace

        from folkman.engine.simulate import Clock, Recording, simulate

        problem = self._problem(cell)
        problem = replace(problem, initial=self._first_model(cell, drop))
        network = self._network(cell.nodes, drop, problem.dim)
        slot_s = getattr(network, "slot_s", 1.0)
        times = 1 if cell.equal else tuple(COMPUTE[i % 5] for i in range(cell.nodes))
        return simulate(
            problem,
            network,
            self._method(step, local_steps),
            slots=self._size.slots,
            seed=drop,
            clock=Clock(slot_s, times),
            recording=Recording(every=min(EVERY, self._size.slots), nodes=nodes),
        )

    def threshold_db(self, nodes: int, drop: int) -> float | None:
        """Return the threshold that was taken on a drop."""
        return self._thresholds.get((nodes, drop))

    def _problem(self, cell: Cell) -> Any:
        if cell not in self._problems:
            from dataclasses import replace

            import jax.numpy as jnp

            from folkman.problem.partition import iid, sorted_labels
            from folkman.problem.problem import make_problem

            split = iid if cell.split == "even" else sorted_labels
            parts = split(self._data.y_train, cell.nodes)
            problem = make_problem(self._data, "mlp", parts, batch=cell.batch, seed=0)
            longest = math.ceil(len(self._data.y_train) / cell.nodes) + 8  # both splits fit
            room = longest - problem.x.shape[1]

            def wide(values: Any) -> Any:
                return jnp.pad(values, [(0, 0), (0, room)] + [(0, 0)] * (values.ndim - 2))

            if room > 0:
                problem = replace(problem, x=wide(problem.x), y=wide(problem.y))
            self._problems[cell] = problem
        return self._problems[cell]

    def _first_model(self, cell: Cell, drop: int) -> Any:
        from folkman.problem.problem import make_problem

        return make_problem(self._data, "mlp", cell.nodes, batch=cell.batch, seed=drop).initial

    def _method(self, step: float, local_steps: int) -> Any:
        from folkman.algorithm.async_sharing import async_sharing
        from folkman.algorithm.dfedavgm import dfedavgm
        from folkman.algorithm.fedavg import fedavg
        from folkman.algorithm.sgp import sgp

        side = self._side
        if side in ("paper", "uniform"):
            return async_sharing(step)
        if side in OWN:
            beta = NETWORK_MOMENTUM if side == "moving" else 0.0
            return async_sharing(step, own=OWN[side], memory=32, network_momentum=beta)
        if side == "dpsgd":
            return dfedavgm(step, local_steps, momentum=0.0, topology="schedule")
        if side == "sgp":
            return sgp(step, mode="asynchronous", topology="complete")
        through = "devices" if side.startswith("devices") else "station"
        if side == "devices_m":
            return fedavg(step, local_steps, optimizer="momentum", through=through)
        server = "momentum" if side == "station_m" else "sgd"
        return fedavg(step, local_steps, through=through, server=server)

    def _network(self, nodes: int, drop: int, dim: int) -> Any:
        from folkman.packing.packing import none
        from folkman.radio.compressed import Compressed
        from folkman.radio.delay import ideal

        if self._side == "free":
            return ideal()
        if self._side in ("paper", "uniform"):
            allocation = "optimal" if self._side == "paper" else "uniform"
            found = self._thresholds.get((nodes, drop))
            if found is None:
                found = best_threshold_db(allocation, nodes, drop, dim, self._size.slots)
                self._thresholds[nodes, drop] = found
            radio = radio_of(nodes, dim, threshold_db=found, allocation=allocation)
        else:
            sums = self._side in OWN or self._side.startswith("devices")
            message = "sum" if self._side in OWN else "copy"
            radio = radio_of(nodes, dim, sums=sums, schedule="index", message=message)
        return Compressed(radio, none())


def slot_s_of(dim: int) -> float:
    """Return the slot in which a message takes the part that the paper's CNN takes of 1 s."""
    return dim / PAPER_CNN


def radio_of(nodes: int, dim: int, *, sums: bool = False, **options: Any) -> Any:
    """Return the paper's cell for a model of `dim` parameters; sums have the bits they need."""
    from folkman.packing.packing import place_bits
    from folkman.radio.network import RadioNetwork

    if options.get("schedule") == "index":
        options["control_bits"] = round(24 * nodes**2 * dim / PAPER_CNN)
    bits = 16 + (place_bits(nodes) if sums else 0)
    return RadioNetwork(slot_s=slot_s_of(dim), bits_per_parameter=bits, **options)


AGES: dict[Any, Any] = {}


def best_threshold_db(allocation: str, nodes: int, drop: int, dim: int, slots: int) -> float:
    """Return the threshold of seven with the least mean age on a drop."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    from folkman.keys import Stream, make_key

    apart, offers = ~jnp.eye(nodes, dtype=bool), jnp.ones(nodes, bool)

    def age(threshold_db: Any, key: Any) -> Any:
        peers = radio_of(nodes, dim, threshold_db=threshold_db, allocation=allocation).peers()

        def slot(state: Any, t: Any) -> Any:
            state, delivery = peers.step(state, offers, 16.0 * dim, jax.random.fold_in(key, t))
            return state, jnp.mean(t + 1 - delivery.held, where=apart)

        _, ages = lax.scan(slot, peers.init(nodes, key), jnp.arange(slots))
        return jnp.mean(ages[slots // 4 :])

    place = (allocation, nodes, dim, slots)
    program = AGES.setdefault(place, jax.jit(age))
    key = make_key(drop, Stream.DELAY)
    return min(THRESHOLDS_DB, key=lambda each: float(program(jnp.float32(each), key)))


def unit(bench: Bench, side: str, cell: Cell, size: Size) -> Json:
    """Tune one side in one cell, judge it, and return its line."""
    from folkman.experiment.halving import Axis, halving, solved

    begun_s = time.time()
    axes = [Axis("step", size.steps, below=True, above=True, finer=True)]
    start: tuple[float, ...] = (size.steps[len(size.steps) // 2],)
    if side in LOCAL:
        axes.append(Axis("local_steps", size.local_steps, above=True))
        start = (*start, size.local_steps[0])

    def score(point: tuple[float, ...], number: int) -> float:
        run = bench.run(cell, point[0], int((*point, 1)[1]), size.tuning[number], nodes=False)
        return run.last("train_loss") if run.status == "finished" else math.inf

    seeds = 1 if side == "free" and cell.batch is None else len(size.tuning)
    found = solved(halving(tuple(axes), start, seeds, size.budget), score)
    judged = {}
    for drop in size.judged:
        run = bench.run(cell, found.best[0], int((*found.best, 1)[1]), drop, nodes=True)
        judged[str(drop)] = kept(run, bench.threshold_db(cell.nodes, drop))
    return {
        "cell": cell.name,
        "side": side,
        "form": FORM,
        "best": list(found.best),
        "score": short(found.score),
        "runs": len(found.scores),
        "at_edge": list(found.at_edge),
        "trials": [[*point, seed, short(value)] for (point, seed), value in found.scores.items()],
        "judged": judged,
        "seconds": round(time.time() - begun_s, 1),
    }


COLUMNS = ("train_loss", "node_train_loss", "test_accuracy", "gradients", "mean_age", "bits")


def kept(run: Any, threshold_db: float | None) -> Json:
    """Return how a run ended, and its loss on the way."""
    last = {name: short(run.rows[-1].get(name, math.nan)) for name in COLUMNS}
    way = [[row["slots"], short(row["train_loss"])] for row in run.rows]
    chosen = {} if threshold_db is None else {"threshold_db": threshold_db}
    return {"status": run.status, **last, **chosen, "way": way}


def short(value: float) -> float | None:
    """Return five digits, as JSON has them; None for what is not finite."""
    return float(f"{value:.5g}") if math.isfinite(value) else None


def jobs(size: Size, known: set[tuple[str, str]]) -> Iterator[tuple[str, tuple[Cell, ...]]]:
    """Yield a side with the two splits of a setting, the most important first."""
    for place in dict.fromkeys(cell[:3] for cell in size.cells):
        cells = [cell for cell in size.cells if cell[:3] == place]
        for side in size.sides:
            mine = tuple(cell for cell in cells if (cell.name, side) not in known)
            if mine:
                yield side, mine


def work(orders: Any, told: Any, size: Size, data: Path | None, core: int | None) -> None:
    """Do jobs until there are none: a worker process."""
    if core is not None:
        os.sched_setaffinity(0, {core})
    without_optax()
    found = samples(data)
    while True:
        try:
            side, cells = orders.get(timeout=2.0)
        except queue.Empty:
            return
        bench = Bench(side, size, found)
        for cell in cells:
            try:
                told.put(unit(bench, side, cell, size))
            except Exception:  # one line, and the others go on
                error = traceback.format_exc(limit=4)
                told.put({"cell": cell.name, "side": side, "error": error})


def run_all(size: Size, asked: argparse.Namespace) -> None:
    """Hand out the jobs to processes and write each line as it comes."""
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    known = {(line["cell"], line["side"]) for line in lines_of([asked.out], counts)}
    context = mp.get_context("spawn")
    orders, told = context.Queue(), context.Queue()
    mine = list(jobs(size, known))
    for job in mine:
        orders.put(job)
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [None]
    workers = [
        context.Process(
            target=work, args=(orders, told, size, asked.data, cores[i % len(cores)]), daemon=True
        )
        for i in range(min(asked.workers, len(mine)))
    ]
    for worker in workers:
        worker.start()
    gather(
        told,
        workers,
        asked.out,
        in_all=sum(len(cells) for _, cells in mine),
        budget_s=asked.budget_s,
        brief=lambda line: f"{line['score']} {line['best']} {line['seconds']} s",
    )
    for worker in workers:
        worker.terminate()
    orders.cancel_join_thread()


def counts(line: Json) -> bool:
    """Tell whether a line is of the present form."""
    return line["side"] != "devices" or line.get("form", 1) == FORM


def main() -> None:
    """Run what is not there yet, or print what is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/opponents.jsonl"))
    parser.add_argument("--data", type=Path, help="a file that --write-data wrote")
    parser.add_argument("--write-data", type=Path)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--budget-s", type=float, default=math.inf)
    parser.add_argument("--quick", action="store_true", help="two cells, few steps, 60 slots")
    parser.add_argument("--sides", nargs="*", choices=SIDES, help="these alone")
    parser.add_argument("--table", type=Path, nargs="+")
    asked = parser.parse_args()
    if asked.table:
        from benchmarks.fresh_air_verdict import table

        table([cell.name for cell in CELLS], lines_of(asked.table, counts))
    elif asked.write_data:
        write_data(asked.write_data)
    else:
        size = QUICK if asked.quick else FULL
        if asked.sides:
            size = size._replace(sides=tuple(asked.sides))
        run_all(size, asked)


if __name__ == "__main__":
    main()
