"""A configuration of a user's own as a work: its model, data, nodes, batch and network.

Each method of it is a task. folkman does the task as `folkman run` does it, under the first seed.
The opponents average the models of all nodes after one step each, over links that take no time. So
they take part where the method is FedAvg with one local step and the network `ideal`; of all else
their rows say why they cannot (`unable.py`).
"""

import tomllib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.runs import OPPONENTS
from benchmarks.tasks import Task, Work
from folkman.config.build import build_problem
from folkman.config.comparison import CHOICES, Comparison, FaultTable, resolve, to_toml
from folkman.config.plugins import title
from folkman.config.text import gather

if TYPE_CHECKING:
    from folkman.problem.problem import Problem

__all__ = ["beyond", "problem_of", "simulation_of", "work_of"]

COMMON = ("softmax", "mlp", "cnn")
"""The models that the opponents' scripts have."""

OF_NO_CONSEQUENCE = {"algorithm": ("step", "label", "network", "compression")}
OF_NO_CONSEQUENCE |= {"network": (), "model": ("hidden",)}
"""Keys of a table that an opponent can follow, or that change none of its numbers."""

PLAIN = {"l2": 0.0, "sampling": "replacement", "precision": "float32", "compute_slots": 1}
PLAIN |= {"faults": FaultTable()}
"""What a configuration must say elsewhere for an opponent to take part."""


WHOLE = ("none", "by_bits")
"""Packings that send whole models, where the network says nothing of bits."""


def work_of(config: str, settings: Sequence[str] = ()) -> Work:
    """Return the work of a configuration, or raise `ConfigError`."""
    comparison = resolve(gather(config, settings), try_builders=False)
    problem = build_problem(comparison, comparison.seeds[0], prepare=False)
    tasks = tuple(_task(comparison, problem, number) for number in range(len(comparison.algorithm)))
    model, data = title(comparison.model["name"]), title(comparison.data["name"])
    batch = "full batches" if comparison.batch is None else f"batches of {comparison.batch}"
    words = f"{model} on {data}, {batch}"
    return Work(comparison.name, words, "learning", OPPONENTS, tasks, None, None, ("float32",))


def _task(comparison: Comparison, problem: "Problem", number: int) -> Task:
    method, seed = comparison.algorithm[number], comparison.seeds[0]
    own = {"algorithm": (method,), "seeds": (seed,), "tuned": None, "stop_at": None}
    alone, counts = comparison.model_copy(update=own), np.asarray(problem.count)
    name, uneven = comparison.model["name"], bool(np.ptp(counts))
    return Task(
        work=comparison.name,
        model=name,
        nodes=comparison.nodes,
        samples=round(float(counts.mean())),
        batch=comparison.batch,
        rounds=comparison.slots,
        step=method.get("step", 0.0),
        network=(method["network"] or comparison.network)["name"],
        cell=None,
        hidden=tuple(comparison.model["hidden"]) if name == "mlp" else (),
        sample=problem.sample,
        classes=problem.classes,
        seed=seed,
        label=method["label"],
        config=to_toml(alone),
        uneven=uneven,
        beyond=beyond(alone, uneven=uneven) or "",
    )


def beyond(alone: Comparison, *, uneven: bool) -> str | None:
    """Return why no opponent can do a configuration of one method; None where they can."""
    return next(_reasons(alone, uneven=uneven), None)


def _reasons(alone: Comparison, *, uneven: bool) -> Iterator[str]:
    (method,), model = alone.algorithm, alone.model
    network = method["network"] or alone.network
    compression = method["compression"] or alone.compression
    if model["name"] not in COMMON:
        yield f"the model is {title(model['name'])}; its script has {', '.join(COMMON)}"
    if method["name"] != "fedavg":
        yield f"the method is {title(method['name'])}; it does FedAvg with one local step"
    if network["name"] != "ideal":
        yield f"it has no network {title(network['name'])}; its links take no time (ideal)"
    for kind, table in (("algorithm", method), ("network", network), ("model", model)):
        plain = CHOICES[kind].resolve({"name": table["name"]}, kind)
        for key, value in table.items():
            usual = plain.get(key)
            if key not in OF_NO_CONSEQUENCE[kind] and value != usual:
                yield f"its script has no option {kind}.{key} = {value!r}; it does {usual!r}"
    for key, value in PLAIN.items():
        if getattr(alone, key) != value:
            yield f"its script has no option {key}, which is set"
    if compression["name"] not in WHOLE or alone.projection["name"] != "none":
        yield "it neither packs models nor projects them"
    if uneven and alone.objective == "nodes":
        yield "it weighs nodes by their samples, and these count alike (objective)"


def _comparison(task: Task) -> Comparison:
    return resolve(tomllib.loads(task.config), try_builders=False)


def problem_of(task: Task) -> "Problem":
    """Return the samples on nodes, the model and its first parameters."""
    return build_problem(_comparison(task), task.seed, prepare=False)


def simulation_of(task: Task) -> Any:
    """Return what `march` takes: the run of the configuration, evaluated at its ends alone."""
    import jax

    from folkman.engine.simulate import Recording
    from folkman.experiment.parts import parts

    comparison = _comparison(task)
    jax.config.update("jax_enable_x64", comparison.precision == "float64")
    return next(parts(comparison)).simulation._replace(recording=Recording(every=2**30))
