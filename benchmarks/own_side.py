"""Folkman's own side: `python -m benchmarks.own_side FOLDER`; see `opponents/protocol.py`.

With a free network the mathematics is FedAvg with one local step and equal shares, on links that
take no time: every node takes one gradient step from the common model, then all models are
averaged. That is what the opponents do.

The engine evaluates the model at the first and the last slot. The first evaluation is over when a
repetition begins, and what it took is told as `aside_s`: the last one, within the repetition, takes
the same.
"""

import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import folkman
from benchmarks.opponents import protocol
from benchmarks.peak import on_device
from benchmarks.tasks import CLASSES, IMAGE, Task

__all__ = ["NotAvailableError", "build", "problem_of", "simulation_of"]

MOST_SAMPLE_BYTES = 8 * 2**30
"""Samples of all nodes, as the engine holds them, beyond which a task is not tried."""


NEARLY_NOTHING = 1e-9
"""Step of a loop of gradients, so that none is computed beforehand and all are at the first model,
nearly."""


class NotAvailableError(RuntimeError):
    """The engine cannot do this task, and why."""


class State(NamedTuple):
    """A repetition under way."""

    mark: Any
    evaluation_s: float
    path: Iterator[tuple[Any, dict[str, float]]]


def problem_of(task: Task, arrays: protocol.Arrays) -> Any:
    """Put the samples of the task on its nodes."""
    from folkman.problem.models import MODELS
    from folkman.problem.problem import make_problem

    size = 4 * arrays.parts.size * arrays.pool_x.shape[1]
    if size > MOST_SAMPLE_BYTES:
        raise NotAvailableError(
            f"{task.nodes} nodes hold {size / 2**30:.0f} GiB of samples, each its own copy"
        )
    model = MODELS[task.model](
        tuple(task.sample), task.classes, **({"hidden": tuple(task.hidden)} if task.hidden else {})
    )
    return precise(
        make_problem(_data(arrays), model, list(arrays.parts), batch=task.batch), task.precision
    )


def _data(arrays: protocol.Arrays) -> Any:
    from folkman.problem.data import DataSet

    x = arrays.pool_x.reshape(-1, *IMAGE)
    return DataSet("bench", x, arrays.pool_y, x[:0], arrays.pool_y[:0], CLASSES)


def simulation_of(task: Task, problem: Any) -> Any:
    """Return what `march` takes.

    The one place that knows how the engine is asked for a network of the benchmark.
    """
    from folkman.algorithm.async_sharing import async_sharing
    from folkman.algorithm.fedavg import fedavg
    from folkman.engine.simulate import Clock, Recording, Simulation
    from folkman.radio.delay import ideal, snapshot
    from folkman.radio.network import RadioNetwork

    recording = Recording(every=2**30)  # at the first and the last slot only
    if task.network == "radio":
        network = RadioNetwork(
            threshold_db=-15.0
        )  # of the paper's three, the one at which most links are up
        return Simulation(
            problem, network, async_sharing(step=task.step), Clock(network.slot_s), recording
        )
    if task.network == "snapshot":
        return Simulation(
            problem, snapshot(gamma=5), async_sharing(step=task.step), Clock(), recording
        )
    return Simulation(problem, ideal(), fedavg(step=task.step), Clock(), recording)


def precise(problem: Any, precision: str) -> Any:
    """Return the problem computing in another precision.

    The one place that knows how the engine is asked for it.
    """
    from dataclasses import replace

    from folkman.problem.models import MODELS

    if not problem.model.convolutional and precision != "float32":
        raise NotAvailableError(f"only the CNN computes in {precision}")
    if precision == "float32":
        return problem
    model = MODELS["cnn"](IMAGE, CLASSES, precision=precision)
    return replace(
        problem, model=model, x=problem.x.astype(precision), x_test=problem.x_test.astype(precision)
    )


def gradient_timer(problem: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return the answer to the order `gradients`.

    Seconds of all nodes' gradients from the first model on.

    `loop` of them in one compiled loop, each at the model that the one before moved by nearly
    nothing; the median of `times`. What a precision needs is made and compiled when it is asked for
    first, and kept.
    """
    import jax
    import jax.numpy as jnp

    from folkman.keys import Stream, make_key

    keys = jnp.broadcast_to(make_key(0, Stream.BATCH), (problem.num_nodes,))
    points = jnp.broadcast_to(problem.initial, (problem.num_nodes, problem.dim))
    prepared = cache(partial(precise, problem))

    def move(held: Any, v: Any) -> tuple[Any, Any]:
        _, grads = held.gradients(v, keys)
        return v - NEARLY_NOTHING * grads, grads

    @partial(jax.jit, static_argnums=2)
    def compiled(held: Any, v: Any, loop: int) -> Any:
        if loop == 1:
            return move(held, v)[1]
        return jax.lax.scan(lambda at, _: (move(held, at)[0], None), v, length=loop)[0]

    def timed(order: dict[str, Any]) -> dict[str, Any]:
        held, loop, took = prepared(order["precision"]), order.get("loop", 1), []
        for _ in range(order["times"]):
            begun = time.perf_counter()
            if held.called_from_python:  # a kernel outside JAX
                jax.block_until_ready([held.gradients(points, keys) for _ in range(loop)])
            else:
                jax.block_until_ready(compiled(held, points, loop))
            took.append((time.perf_counter() - begun) / loop)
        used = jax.devices()[0].memory_stats() or {}  # none on a CPU
        device = (
            {"device_memory_mb": used["peak_bytes_in_use"] / 1e6}
            if "peak_bytes_in_use" in used
            else {}
        )
        return {"seconds": float(np.median(took)), **device}

    def shown(order: dict[str, Any]) -> dict[str, Any]:
        grads = np.asarray(
            prepared(order["precision"]).gradients(points, keys)[1], np.float32
        ).mean(axis=0)
        return {"gradient": protocol.keep("gradient", grads)}

    return lambda order: shown(order) if order.get("show") else timed(order)


def backend(order: dict[str, Any]) -> dict[str, Any]:
    """Tell what JAX computes on."""
    import jax

    del order
    return {"backend": jax.default_backend(), "device": jax.devices()[0].device_kind}


def build() -> protocol.Learner:
    """Build folkman's side from the folder of a task."""
    task = Task(**protocol.task())
    if task.config:
        from benchmarks.configured import simulation_of as configured

        return _connected(configured(task), task.seed)  # as `folkman run` does it
    if task.model == "softmax" and task.network != "radio":
        folkman.use_cores()  # as a user would; the CNN's kernels take all cores by themselves
    if task.cell is not None:
        return _cellular(task)
    return _connected(simulation_of(task, problem_of(task, protocol.load_arrays())))


def _connected(simulation: Any, seed: int = 0) -> protocol.Learner:
    """All nodes average with all, or hear each other over one network."""
    import jax

    from folkman.engine.simulate import march, outcome, start

    problem = simulation.problem

    def begin(rounds: int) -> State:
        path = march(simulation, jax.block_until_ready(start(simulation, seed=seed)), rounds)
        begun = time.perf_counter()
        mark, _ = next(path)
        return State(mark, time.perf_counter() - begun, path)

    def learn(state: State, rounds: int) -> State:
        del rounds
        *_, (mark, _) = state.path
        return state._replace(mark=mark)

    def model(state: State) -> NDArray[np.float32]:
        return outcome(simulation, state.mark)[0]

    orders = {"judge": partial(judge, problem), "backend": backend, "peak": on_device}
    orders["gradients"] = gradient_timer(problem)
    return protocol.Learner(
        folkman.__version__, begin, learn, model, lambda state: state.evaluation_s, orders
    )


def judge(problem: Any, order: dict[str, Any]) -> dict[str, Any]:
    """Evaluate a model of any side on the training data."""
    import jax.numpy as jnp

    return {"loss": float(problem.evaluate(jnp.asarray(np.load(order["model"]))).train_loss)}


def _cellular(task: Task) -> protocol.Learner:
    """Nodes average within their cells.

    The one place that knows how the engine is asked for many cells.

    Nodes draw their own samples from the pool, and both evaluations are within the time.
    """
    from folkman.algorithm.fedavg import fedavg
    from folkman.engine.simulate import Recording
    from folkman.experiment.cells import simulate_cells
    from folkman.problem.field import make_field
    from folkman.radio.delay import ideal

    arrays, cell = protocol.load_arrays(), task.cell or task.nodes
    field = make_field(
        _data(arrays),
        task.model,
        cells=task.nodes // cell,
        nodes=cell,
        samples=task.samples,
        batch=task.batch,
    )

    network, algorithm, recording = (
        ideal(),
        fedavg(step=task.step),
        Recording(every=2**30),
    )  # once: they key programs

    def learn(state: None, rounds: int) -> Any:
        del state
        return simulate_cells(field, network, algorithm, slots=rounds, recording=recording)

    pooled = problem_of(
        task._replace(nodes=1), arrays._replace(parts=np.arange(len(arrays.pool_x))[None])
    )
    return protocol.Learner(
        folkman.__version__,
        lambda rounds: None,  # noqa: ARG005 - nothing to prepare
        learn,
        lambda run: run.model.mean(axis=0),
        orders={"judge": partial(judge, pooled), "backend": backend},
        notes={"batches": "own"},
    )


if __name__ == "__main__":
    protocol.serve(build)
