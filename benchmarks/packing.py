"""What fewer bits cost: loss and bits on the air of three methods under eight packings.

    python benchmarks/packing.py --slots 300

The digits over five nodes, softmax regression, one seed, transfers of five slots under the law
`pipelined`; each method at one step for all packings. Prints a table in Markdown.

    python benchmarks/packing.py --rounding --slots 6000

How near three methods come to the optimum of four equal quadratics on the radio with 16 bits an
entry: rounded to the nearest number, at random, and as differences with error feedback.
"""

import argparse

import jax
import numpy as np

import folkman as fm
from folkman.packing import bfloat16, float16, int8, none, qsgd, sign, top_k
from folkman.packing.packing import message_bits

PACKINGS = {
    "none (32 bits)": none(),
    "float16": float16(),
    "bfloat16": bfloat16(),
    "int8": int8(),
    "qsgd, 4 bits": qsgd(4),
    "sign": sign(),
    "sign, feedback": sign(feedback=True),
    "top 1 %": top_k(0.01),
    "top 1 %, feedback": top_k(0.01, feedback=True),
}

ROUNDINGS = {
    "none, 16 bits as a price": none(),
    "float16, nearest": float16(),
    "float16, at random": float16(rounding="stochastic"),
    "bfloat16, nearest": bfloat16(),
    "bfloat16, at random": bfloat16(rounding="stochastic"),
    "float16, differences": float16(feedback=True),
}


def rounding(slots: int, nodes: int = 4) -> None:
    """Print the distance to the optimum and the bits, by rounding."""
    samples = fm.load("quadratic", nodes=nodes, heterogeneity=0.0, condition=4.0)
    parts = [np.array([node]) for node in range(nodes)]
    problem = fm.make_problem(samples, "quadratic", parts, dtype="float64")
    methods = [fm.async_sharing(0.05), fm.fedavg(0.05), fm.dpsgd(0.05)]
    print("| 16 bits | Algorithm 1 | FedAvg | D-PSGD | Mbit on the air |\n|---|---|---|---|---|")
    for name, packing in ROUNDINGS.items():
        network = fm.Compressed(fm.RadioNetwork(), packing)
        far, megabits = [], []
        for method in methods:
            try:
                run = fm.simulate(problem, network, method, slots=slots, seed=1)
            except ValueError:  # error feedback between peers on the radio
                far, megabits = [*far, "refused"], [*megabits, "-"]
                continue
            far.append(f"{run.last('optimum_distance'):.1e}")
            megabits.append(f"{run.last('bits') / 1e6:.2f}")
        print(f"| {name} | {' | '.join(far)} | {', '.join(megabits)} |", flush=True)


def main() -> None:
    """Run every method under every packing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--slots", type=int, default=300)
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument("--rounding", action="store_true")
    asked = parser.parse_args()
    if asked.rounding:
        with jax.enable_x64(True):
            rounding(asked.slots)
        return
    problem = fm.make_problem(fm.load("digits", train_size=600), "softmax", asked.nodes)
    methods = {
        "Algorithm 1": fm.async_sharing(0.5),
        "FedAvg": fm.fedavg(0.5, local_steps=5),
        "D-PSGD": fm.dpsgd(0.5, topology="complete"),
    }
    print("| packing | bits a message | " + " | ".join(methods) + " | Mbit on the air |")
    print("|---|---|" + "---|" * (len(methods) + 1))
    for name, packing in PACKINGS.items():
        network = fm.Compressed(fm.pipelined(5), packing)
        runs = [
            fm.simulate(problem, network, method, slots=asked.slots, seed=0)
            for method in methods.values()
        ]
        losses = " | ".join(f"{run.last('train_loss'):.3f}" for run in runs)
        megabits = ", ".join(f"{run.last('bits') / 1e6:.2f}" for run in runs)
        bits = message_bits(packing, problem.dim, problem.dim)
        print(f"| {name} | {bits} | {losses} | {megabits} |", flush=True)


if __name__ == "__main__":
    main()
