"""From a checked comparison to its parts: the problem of a seed, the networks, the algorithms.

Simulations and device nodes are built by the same functions. A builder, built in or one's own,
takes what it asks for by the name of a parameter. Such a parameter is never an option of its table:

    seed, nodes, horizon    every builder         seed of the run, number of nodes, number of slots
    sample, classes         partition, model      shape of a sample, number of classes (0: numbers)
    labels, group           partition             targets, node each sample was made for or None
    slot_s, shapes          projection, network,  seconds of a slot, shapes of the model's tensors
                            algorithm
    projection              algorithm             what the table [projection] builds
"""

from typing import TYPE_CHECKING

from folkman.algorithm import ALGORITHMS
from folkman.algorithm.base import Algorithm
from folkman.algorithm.method import numbers_of
from folkman.arithmetic import chosen
from folkman.config.choices import ConfigError
from folkman.config.comparison import CHOICES, OWN, Comparison
from folkman.config.plugins import title
from folkman.problem.data import DataSet, shorten
from folkman.problem.learnable import Learnable
from folkman.problem.partition import Parts, check_group, take
from folkman.radio.delivery import Network, check_horizon
from folkman.record.json_file import Json

if TYPE_CHECKING:
    from folkman.problem.problem import Problem

__all__ = ["build_problem", "model_problem", "numberless", "pair", "pairs", "seedless"]
__all__ += ["slot_seconds", "takes_seed"]


def build_problem(comparison: Comparison, seed: int, *, prepare: bool = True) -> "Problem":
    """Load, split and model the data of a comparison; `prepare` as in `make_problem`."""
    tables = comparison
    full = CHOICES["data"].build(tables.data, **_always(tables, seed))
    samples = shorten(full, tables.data["train_size"], tables.data["test_size"])
    dealt = _deal(tables, samples, seed)
    parts = take(dealt, total=tables.partition["total"], per_node=tables.partition["per_node"])
    return model_problem(tables, samples, parts, seed, prepare=prepare)


def _always(tables: Comparison, seed: int) -> Json:
    return {"seed": seed, "nodes": tables.nodes, "horizon": tables.slots}


def _of_samples(samples: DataSet) -> Json:
    return {"sample": samples.x_train.shape[1:], "classes": samples.num_classes}


def _deal(tables: Comparison, samples: DataSet, seed: int) -> Parts:
    """Return which samples each node holds, before they are thinned."""
    choice, name = CHOICES["partition"], tables.partition["name"]
    if "group" in choice.needs(name):
        check_group(title(name), samples.group)
    given = {"labels": samples.y_train, "group": samples.group, **_of_samples(samples)}
    return choice.build(tables.partition, **given, **_always(tables, seed))


def model_problem(
    comparison: Comparison, samples: DataSet, parts: Parts, seed: int, *, prepare: bool = True
) -> "Problem":
    """Build the problem of a comparison's model on given samples, `parts[i]` of them on node i.

    Without JAX gradients are NumPy's, written by hand, for the one node of a board.
    """
    tables = comparison
    model = CHOICES["model"].build(tables.model, **_of_samples(samples), **_always(tables, seed))
    named = ("l2", "batch", "objective", "sampling")
    options = {name: getattr(tables, name) for name in named}
    options |= {"seed": seed, "dtype": tables.precision}
    if chosen().name == "numpy":
        from folkman.problem.by_hand import make_hand_problem

        return make_hand_problem(samples, model, parts, **options)  # type: ignore[return-value]
    from folkman.problem.problem import make_problem

    tests = tables.local_tests
    return make_problem(samples, model, parts, prepare=prepare, local_tests=tests, **options)


def slot_seconds(comparison: Comparison, problem: Learnable) -> float:
    """Return T: as given, or by the latency law for the node with the largest gradient batch."""
    law = comparison.slot_s
    if isinstance(law, float | int):
        return float(law)
    from folkman.radio.latency import training_latency_s  # here: only the law needs it

    samples = min(max(problem.count), problem.batch or max(problem.count))
    return float(training_latency_s(samples, law.base_s, law.threshold, law.per_sample_s))


def pairs(
    comparison: Comparison, problem: Learnable, seed: int | None = None
) -> list[tuple[Algorithm, Network]]:
    """Build every algorithm of a comparison with its network, under a seed; default the first."""
    return [pair(comparison, problem, number, seed) for number in range(len(comparison.algorithm))]


def pair(
    comparison: Comparison, problem: Learnable, number: int, seed: int | None = None
) -> tuple[Algorithm, Network]:
    """Build one algorithm, counted from 0, with its network, under a seed; default the first."""
    table = comparison.algorithm[number]
    given = _always(comparison, comparison.seeds[0] if seed is None else seed)
    given["slot_s"] = slot_seconds(comparison, problem)
    given["shapes"] = tuple(shape for _, shape in problem.layout.shapes)
    try:
        projection = CHOICES["projection"].build(comparison.projection, **given)
        network = _network(table["network"] or comparison.network, problem, given)
        check_horizon(network, comparison.slots)
        compression = table["compression"] or comparison.compression
        packing = CHOICES["compression"].build(compression, **given)
        if packing is not None:
            from folkman.radio.compressed import Compressed

            network = Compressed(network, packing)
        algorithm = CHOICES["algorithm"].build(table, projection=projection, **given)
    except ValueError as error:
        raise ConfigError(f"algorithm.{number} ({table['label']}): {error}") from None
    if not comparison.faults.loss:
        return algorithm, network
    from folkman.radio.loss import Lossy

    return algorithm, Lossy(network, comparison.faults.loss)


def _network(table: Json, problem: Learnable, given: Json) -> Network:
    """Build a network; `weights = "shares"` are the nodes' shares of the data."""
    if table.get("weights") == "shares":
        table = {**table, "weights": tuple(map(float, problem.share))}
    return CHOICES["network"].build(table, **given)


def takes_seed(comparison: Comparison) -> bool:
    """Tell whether `pairs` builds something else for every seed."""
    tables = [("projection", comparison.projection)]
    for table in comparison.algorithm:
        own = [(kind, table[kind] or getattr(comparison, kind)) for kind in OWN]
        tables += [("algorithm", table), *own]
    return any("seed" in CHOICES[kind].takes(table["name"]) for kind, table in tables)


def seedless(comparison: Comparison) -> Comparison:
    """Return a comparison without its seeds, if all seeds share what `pairs` builds."""
    return comparison if takes_seed(comparison) else comparison.model_copy(update={"seeds": (0,)})


def numberless(comparison: Comparison) -> Comparison:
    """Return a comparison without the numbers that are arguments of a method's program.

    Comparisons that are alike without them share compiled programs.
    """
    tables = []
    for table in comparison.algorithm:
        name = table["name"]
        numbers = numbers_of(ALGORITHMS[name]) if name in ALGORITHMS else ()
        dropped = [key for key in numbers if not isinstance(table.get(key), str)]
        tables.append({key: value for key, value in table.items() if key not in dropped})
    return comparison.model_copy(update={"algorithm": tuple(tables)})
