"""From a checked comparison to what it is made of: the problem of a seed, the networks, the algorithms.

Builders take what they ask for by name: a data set or a partition with a parameter `seed` gets the seed of the run, one
with `nodes` the number of nodes. Simulations and device nodes are built by the same functions.
"""

from folkman.algorithm.base import Algorithm
from folkman.checks import require
from folkman.config.choices import ConfigError
from folkman.config.comparison import CHOICES, Comparison
from folkman.problem.data import DataSet, shorten
from folkman.problem.partition import Parts, take
from folkman.problem.problem import Problem, make_problem
from folkman.radio.delivery import Network, check_horizon

__all__ = ["build_problem", "model_problem", "pair", "pairs", "slot_seconds"]


def build_problem(comparison: Comparison, seed: int, *, prepare: bool = True) -> Problem:
    """Load, split and model the data of a comparison under one seed; `prepare` as in `make_problem`."""
    tables = comparison
    full = CHOICES["data"].build(tables.data, seed=seed, nodes=tables.nodes)
    samples = shorten(full, tables.data["train_size"], tables.data["test_size"])
    dealt = _deal(tables, samples, seed)
    parts = take(dealt, total=tables.partition["total"], per_node=tables.partition["per_node"])
    return model_problem(tables, samples, parts, seed, prepare=prepare)


def _deal(tables: Comparison, samples: DataSet, seed: int) -> Parts:
    """Return which samples each node holds, before they are thinned."""
    choice, nothing = CHOICES["partition"], samples.group is None
    require(
        not (nothing and "group" in choice.takes(tables.partition["name"])),
        "given: expected data that names its nodes, got no group; use another partition",
    )
    given = {"labels": samples.y_train, "group": samples.group, "nodes": tables.nodes, "seed": seed}
    return choice.build(tables.partition, **given)


def model_problem(
    comparison: Comparison, samples: DataSet, parts: Parts, seed: int, *, prepare: bool = True
) -> Problem:
    """Build the problem of a comparison's model on given samples, `parts[i]` of them on node i."""
    tables = comparison
    model = CHOICES["model"].build(tables.model, sample=samples.x_train.shape[1:], classes=samples.num_classes)
    options = {"l2": tables.l2, "batch": tables.batch, "seed": seed, "dtype": tables.precision}
    return make_problem(samples, model, parts, prepare=prepare, **options)


def slot_seconds(comparison: Comparison, problem: Problem) -> float:
    """Return T: as given, or by the latency law for the node with the most samples in a gradient."""
    law = comparison.slot_s
    if isinstance(law, float | int):
        return float(law)
    from folkman.radio.latency import training_latency_s  # here and not above: only the law needs it

    samples = min(max(problem.count), problem.batch or max(problem.count))
    return float(training_latency_s(samples, law.base_s, law.threshold, law.per_sample_s))


def pairs(comparison: Comparison, problem: Problem) -> list[tuple[Algorithm, Network]]:
    """Build every algorithm of a comparison with its network."""
    return [pair(comparison, problem, number) for number in range(len(comparison.algorithm))]


def pair(comparison: Comparison, problem: Problem, number: int) -> tuple[Algorithm, Network]:
    """Build one algorithm of a comparison, counted from 0, with its network."""
    table = comparison.algorithm[number]
    shapes = tuple(shape for _, shape in problem.model.layout.shapes)
    try:
        projection = CHOICES["projection"].build(comparison.projection)
        slot_s = slot_seconds(comparison, problem)
        network = CHOICES["network"].build(table["network"] or comparison.network, slot_s=slot_s)
        check_horizon(network, comparison.slots)
        given = {"projection": projection, "shapes": shapes, "horizon": comparison.slots}
        algorithm = CHOICES["algorithm"].build(table, **given)
    except ValueError as error:
        raise ConfigError(f"algorithm.{number} ({table['label']}): {error}") from None
    return algorithm, _with_losses(network, comparison.faults.loss)


def _with_losses(network: Network, loss: float) -> Network:
    """Return the network, with a share `loss` of its messages lost."""
    if not loss:
        return network
    from folkman.radio.loss import Lossy  # here and not above: a node on a network without losses does not need it

    return Lossy(network, loss)
