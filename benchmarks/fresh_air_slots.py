"""What a whole simulated slot costs with fresh air: gradients, mixing, radio and all.

    python benchmarks/fresh_air_slots.py

`python benchmarks/fresh_air.py cost` times the radio alone. Here whole runs are timed, twice as
long and once, and the difference is divided by the slots between them: neither placing nodes nor
evaluating is in it. CPU seconds, so that another program on the machine matters less. Each pass
takes all rules in turn; ratios are of one pass, and their median is told.
"""

import argparse
import time
from collections.abc import Callable, Iterator

import numpy as np

import folkman as fm
from folkman.radio import fresh

WORKS = {
    "digits, softmax": ("digits", "softmax", None),
    "MNIST, softmax, batch 32": ("mnist", "softmax", 32),
    "MNIST, MLP 784-64-10, batch 32": ("mnist", "mlp", 32),
    "MNIST, MLP 784-64-10, all 60,000": ("mnist", "mlp", None),
}
"""Data, model and mini-batch."""


def timed(problem: fm.Problem, network: fm.Network, slots: int) -> Callable[[], float]:
    """Return a function that tells the CPU seconds of a slot."""
    own = "aligned" if getattr(network, "message", "copy") == "sum" else "newest"
    method = fm.async_sharing(0.01, own=own)

    def seconds(length: int) -> float:
        record = fm.Recording(every=length)
        begun = time.process_time()
        fm.simulate(problem, network, method, slots=length, recording=record)
        return time.process_time() - begun

    def run() -> float:
        return (seconds(2 * slots) - seconds(slots)) / slots

    run()  # compile
    return run


def rows(asked: argparse.Namespace) -> Iterator[str]:
    """Yield a row of the table for each work and number of nodes."""
    for name in asked.works:
        data, model, batch = WORKS[name]
        loaded = fm.load(data)
        for nodes in asked.nodes:
            problem = fm.make_problem(loaded, model, nodes, batch=batch)
            networks = [fm.RadioNetwork(slot_s=1.0)] + [
                fm.RadioNetwork(schedule="index", message=message, slot_s=1.0)
                for message in fresh.MESSAGES
                if message != "forward" or nodes < asked.least_without_forward
            ]
            slots = max(10, asked.slots * 15 // nodes)
            runs = [timed(problem, network, slots) for network in networks]
            passes = np.array([[run() for run in runs] for _ in range(asked.passes)])
            ratios = np.median(passes[:, 1:] / passes[:, :1], axis=0)
            paper_ms = 1e3 * np.median(passes[:, 0])
            cells = " | ".join(f"{ratio:.2f}" for ratio in ratios)
            yield f"| {name} | {nodes} | {paper_ms:.3g} | {cells} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--works", nargs="+", choices=WORKS, default=list(WORKS))
    parser.add_argument("--nodes", type=int, nargs="+", default=[15, 50, 200])
    parser.add_argument("--slots", type=int, default=200, help="with 15 nodes")
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--least-without-forward", type=int, default=100)
    print("| work | nodes | paper's rule, ms | " + " | ".join(fresh.MESSAGES) + " |")
    print("|---|---|---|" + "---|" * len(fresh.MESSAGES))
    for row in rows(parser.parse_args()):
        print(row, flush=True)


if __name__ == "__main__":
    main()
