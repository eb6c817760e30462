"""Own parts beside each other on fresh air: the digits, on timelines of the paper's radio.

    python benchmarks/own_part_fresh.py

An MLP on the digits, full batches, 500 slots. Who holds what when is that of the paper's CNN with
sums and slots of 1 s (`fresh_air_learn.py`), on drops that no other comparison is judged on. The
training loss at the end is printed for three steps, one drop after the other. The rules `centred`
and `adaptive` were chosen on these drops: this is how they were found, not a judgement.
"""

from folkman.algorithm.async_sharing import async_sharing
from folkman.engine.simulate import Recording, simulate
from folkman.problem.data import digits
from folkman.radio.replay import replay

try:
    from benchmarks.fresh_air_learn import SIZES, problem_of, timeline_of
except ImportError:  # run as a file
    from fresh_air_learn import SIZES, problem_of, timeline_of

DROPS = {5: (101, 111, 117), 15: (100, 101)}
STEPS = (0.2, 0.5, 1.0)
RULES = ("newest", "aligned", "measured", "centred", "adaptive")
SLOTS = 500


def main() -> None:
    """Print the table, a row for each rule."""
    print("| data, nodes | own | " + " | ".join(f"step {step:g}" for step in STEPS) + " |")
    print("|---" * (2 + len(STEPS)) + "|")
    recording = Recording(every=SLOTS)
    for nodes, drops in DROPS.items():
        networks = [
            replay(timeline_of(SIZES["mnist"], "sum", nodes, drop)[0], None, "sum", alike=True)
            for drop in drops
        ]
        for split in ("label", "even"):
            problem = problem_of(digits(), split, nodes)
            for own in RULES:
                cells = []
                for step in STEPS:
                    method = async_sharing(step, own=own)
                    losses = [
                        simulate(problem, network, method, slots=SLOTS, recording=recording)
                        for network in networks
                    ]
                    ends = (run.rows[-1]["train_loss"] for run in losses)
                    cells.append(", ".join(f"{loss:.3f}" for loss in ends))
                print(f"| {split}, {nodes} | `{own}` | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
