"""Do all methods still compute the same bits? A hash for every method on every network.

    python benchmarks/bits.py before.json              write the hashes
    python benchmarks/bits.py after.json --against before.json

A hash is over the network's model, all nodes' parameters and the rows of metrics of a short run.
Compare two versions of folkman on one machine: another processor may round another way.
"""

import argparse
import hashlib
import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from folkman.algorithm import ALGORITHMS
from folkman.engine.simulate import Clock, Recording, simulate
from folkman.faults import NO_FAULTS, Faults
from folkman.problem.data import load
from folkman.problem.problem import make_problem
from folkman.radio.delay import constant, ideal, iid, pipelined, snapshot
from folkman.radio.loss import Lossy
from folkman.radio.network import RadioNetwork

NODES, SLOTS = 6, 24

NETWORKS = {
    "ideal": ideal(),
    "constant": constant(3),
    "snapshot": snapshot(4),
    "iid": iid(4),
    "pipelined": pipelined(3),
    "radio": RadioNetwork(slot_s=0.001),
    "radio, each its period": RadioNetwork(slot_s=0.001, period="node", threshold_db=3.0),
    "lossy": Lossy(pipelined(3), 0.2),
}

OPTIONS: dict[str, list[dict[str, Any]]] = {
    "async_sharing": [
        {},
        {"scaling": "local"},
        {"scaling": "figure", "step": 0.02},
        {"decay": "cosine", "decay_steps": 20},
        {"decay": "inverse_sqrt", "decay_steps": 7},
        {"rule": "median"},
        {"max_age": 2},
        {"delay_policy": "wu_1"},
        {"delay_policy": "mishchenko"},
    ],
    "fedavg": [{}, {"local_steps": 3, "optimizer": "momentum"}, {"decay": "exponential"}],
    "dpsgd": [{}, {"order": "adapt_first", "topology": "complete"}, {"topology": "schedule"}],
    "dfedavgm": [{}, {"exchange": "differences", "bits": 8, "topology": "complete"}],
    "sgp": [{}, {"mode": "asynchronous"}, {"topology": "schedule"}],
    "fedap": [{}, {"selection": "random"}, {"selection": "sinr"}],
    "fedasync": [{}, {"staleness": "hinge"}, {"weighted": True, "local_steps": 2}],
    "cga": [{}, {"form": "released"}],
    "compcga": [{}, {"compress": "own"}],
    "dispfl": [{}, {"regrowth": "gradient", "topology": "random"}],
}


def cases() -> Iterator[tuple[str, str, dict[str, Any], str]]:
    """Yield a title, method, options and network for each run."""
    for method in ALGORITHMS:
        for options in OPTIONS.get(method, [{}]):
            for network in NETWORKS:
                yield f"{method} {options} on {network}", method, options, network


def hashes(methods: Collection[str]) -> dict[str, str]:
    """Return the hash of each run of some methods, or why it was refused."""
    problem = make_problem(load("digits", train_size=120), "softmax", NODES, batch=8)
    clock = Clock(0.001, (1, 1, 2, 1, 1, 1))
    faults = Faults(away=((1, 5, 9),))
    found = {}
    for title, method, options, network in cases():
        if method not in methods:
            continue
        jax.clear_caches()  # a process can hold some 200 programs, and each run makes its own
        plain = network not in ("pipelined", "iid")
        try:
            run = simulate(
                problem,
                NETWORKS[network],
                ALGORITHMS[method](**options),
                slots=SLOTS,
                seed=3,
                clock=Clock(0.001) if plain else clock,
                recording=Recording(8, nodes=True),
                faults=faults if network == "iid" else NO_FAULTS,
            )
        except ValueError as error:
            found[title] = f"refused: {error}"
            continue
        digest = hashlib.sha256()
        for part in (run.model, run.nodes):
            digest.update(np.ascontiguousarray(part).tobytes())
        digest.update(json.dumps(run.rows, sort_keys=True).encode())
        found[title] = digest.hexdigest()[:16]
    return found


def main() -> None:
    """Write the hashes; with `--against` say what differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--methods", nargs="+", default=list(ALGORITHMS), metavar="NAME")
    asked = parser.parse_args()
    found = hashes(asked.methods)
    asked.out.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{len(found)} runs")
    if asked.against is not None:
        before = json.loads(asked.against.read_text())
        common = before.keys() & found.keys()
        unlike = sorted(title for title in common if before[title] != found[title])
        print(f"{len(common) - len(unlike)} of {len(common)} runs in both are the same")
        for title in unlike:
            print(f"  {title}: {before[title]} -> {found[title]}")


if __name__ == "__main__":
    main()
