"""What is this paper's own: some facts of its runs, curves with waiting, Table I.

FedAvg on a network that takes time is not run: with full gradients its k-th model is that of the
free run, only its rounds end later. `derive` adds those curves.

Nor is Algorithm 1 whose nodes all wait for all parameters ("after receiving all parameters",
Section IV-A). No copy is then old, so that every v_i is the same v, and v moves by the sum of all
weighted gradients at v: gradient descent with the effective step of the scaling, in rounds of
1 + Gamma slots. `derive` adds it as the method `async_sharing_waiting`, from FedAvg at that step.
"""

from collections.abc import Sequence
from itertools import product

from folkman.config.comparison import Comparison
from folkman.papers.paper import Formula, Found
from folkman.papers.results import at, select
from folkman.papers.xie2024.measure import measure
from folkman.record.json_file import Json, Table
from folkman.record.run import Run
from folkman.record.table import KEPT

__all__ = ["FACTS", "FORMULAS", "derive", "facts", "measure"]

FACTS = ("links", "effective", "interference", "l2")

WAITING = "async_sharing_waiting"
"""Algorithm 1 whose nodes wait for all parameters of a round."""

TINY = 1e-6
"""Effective steps that differ by less are one."""

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
        alike = [f.facts for f in runs if f.variant == found.variant and "gamma" in f.facts]
        seen = {facts["gamma"] for facts in alike}
        timed = [_under_gamma(found, gamma) for gamma in sorted(seen)]
        added += timed
        shared = {facts["nodes"] for facts in alike if facts["method"] == "async_sharing"}
        plain = "l2" not in found.facts and found.facts["partition"] == "iid"
        for nodes, run in product(sorted(shared) if plain else (), timed):
            added += _waiting_for_all(run, nodes)
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


def _waiting_for_all(timed: Found, nodes: int) -> list[Found]:
    """Return Algorithm 1 that waits for all, in each scaling that has this effective step."""
    stretches = {"theorem": 1.0, "figure": float(nodes), "local": 1 / nodes}
    facts = {name: timed.facts[name] for name in ("gamma", "network", "partition", "compute")}
    facts |= {"method": WAITING, "nodes": nodes, "factor": 1.0}
    facts["effective"] = timed.facts["effective"]
    called = timed.run.label.replace("FedAvg", "Algorithm 1, all wait for all")
    run = Run(WAITING, f"{called}, {nodes} nodes", timed.seed, timed.run.rows, timed.run.status)
    return [
        Found(timed.variant, facts | {"scaling": scaling}, timed.seed, run, timed.figures)
        for scaling, stretch in stretches.items()
        if abs(stretch - facts["effective"]) < TINY
    ]


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
