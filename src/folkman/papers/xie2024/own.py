"""What is this paper's own: some facts of its runs, FedAvg's curves with waiting, Table I.

FedAvg on a network that takes time is not run: with full gradients its k-th model is that of the
free run, only its rounds end later. `derive` adds those curves.
"""

from collections.abc import Sequence

from folkman.config.comparison import Comparison
from folkman.papers.paper import Formula, Found
from folkman.papers.results import at, select
from folkman.papers.xie2024.measure import measure
from folkman.record.json_file import Json, Table
from folkman.record.run import Run
from folkman.record.table import KEPT

__all__ = ["FACTS", "FORMULAS", "derive", "facts", "measure"]

FACTS = ("links", "effective", "interference", "l2")

AROUND_SERVER = ("fedavg", "adafl", "fedap", "fedsa", "centralised")


def facts(known: Table, comparison: Comparison) -> Json:
    """Return `effective`, what a server's links are like, and what a run has that is not usual.

    `effective` is the step of the network's model in units of eta. `interference` is the density of
    interferers over that of the figures, `l2` the weight decay.
    """
    stretch = {"local": 1 / comparison.nodes, "figure": comparison.nodes}.get(
        known.get("scaling", ""), 1.0
    )
    found: Json = {"effective": round(known["factor"] * stretch, 9)}  # for equal shares
    if known["method"] in AROUND_SERVER:
        found["links"] = {"ideal": "free", "radio": "radio"}.get(known["network"], "timed")
    density = comparison.network.get("interferers_per_cell", 1.0)
    found |= {"interference": density} if density != 1.0 else {}
    return found | ({"l2": comparison.l2} if comparison.l2 else {})


def derive(runs: Sequence[Found]) -> list[Found]:
    """Add FedAvg under every Gamma and on every drop of the radio that other runs used."""
    added = []
    free = select(runs, method="fedavg", links="free")
    for found in free:
        seen = {f.facts["gamma"] for f in runs if f.variant == found.variant and "gamma" in f.facts}
        added += [_under_gamma(found, gamma) for gamma in sorted(seen)]
        for clock in runs:
            same = (clock.variant, clock.seed) == (found.variant, found.seed)
            if same and clock.facts.get("kind") == "clock":
                added.append(_on_radio(found, clock))
    return [*runs, *added]


def _under_gamma(found: Found, gamma: int) -> Found:
    """Return a free run with rounds of 1 + Gamma slots."""
    last = found.run.rows[-1]
    slot_s = last["seconds"] / last["slots"]
    rows = []
    for row in found.run.rows:
        slots = row["gradients"] * (1 + gamma)
        rows.append({**row, "slots": slots, "seconds": slots * slot_s, "kappa": 1 / (1 + gamma)})
    facts = {**found.facts, "links": "timed", "network": "snapshot", "gamma": gamma}
    run = Run("fedavg", f"{found.run.label}, Gamma {gamma}", found.seed, rows, found.run.status)
    return Found(found.variant, facts, found.seed, run, found.figures)


def _on_radio(found: Found, clock: Found) -> Found:
    """Return the learning of a free run at the times of a clock, a run on the same radio."""
    rows = []
    for tick in clock.run.rows:
        # of a free run, one aggregation each
        done = min(tick["rounds"], found.run.last("gradients"))
        learnt = {
            name: at(found.run, "gradients", done, name)
            for name in ("train_loss", "test_loss", "test_accuracy")
        }
        rows.append({**{name: float("nan") for name in KEPT}, **tick, **learnt, "consensus": 0.0})
    facts = {**found.facts, "links": "radio", "network": "radio"}
    run = Run("fedavg", found.run.label, found.seed, rows, found.run.status)
    return Found(found.variant, facts, found.seed, run, found.figures)


FORMULAS = {
    "kappa_fedavg": Formula(
        "1/(Gamma+1)", lambda run, facts: (run.last("kappa"), 1 / (facts["gamma"] + 1))
    ),
    "kappa_half": Formula("1/2", lambda run, _: (run.last("kappa"), 0.5)),
    "kappa_sharing": Formula(
        "Gamma/(Gamma+1)",
        lambda run, facts: (run.last("kappa"), facts["gamma"] / (facts["gamma"] + 1)),
    ),
    "rounds_each": Formula(
        "J",
        lambda run, _: (run.last("rounds"), run.last("gradients")),
        counted=True,
        bound=True,
    ),
    "rounds_per_gamma": Formula(
        "J/Gamma",
        lambda run, facts: (run.last("rounds"), run.last("gradients") / facts["gamma"]),
        counted=True,
        bound=True,
    ),
    "waits": Formula(
        "kappa below 1", lambda run, _: (float(run.last("kappa") < 0.98), 1.0), truth=True
    ),
    "never_waits": Formula(
        "kappa of 1", lambda run, _: (float(run.last("kappa") >= 0.98), 1.0), truth=True
    ),
    "cross_gradients": Formula(
        "above 1",
        lambda run, _: (float(run.last("gradients") / run.last("slots") > 1.02), 1.0),
        truth=True,
    ),
}
"""Table I."""
