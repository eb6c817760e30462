"""JAX by hand: vmap over nodes for softmax.

A jitted, tuned step in a Python loop over nodes for the CNN.

Convolutions under vmap and inside compiled loops miss XLA's threaded kernels on the CPU, hence the
two ways.
"""

from functools import partial

import jax
import jax.numpy as jnp
import jax_models
import protocol


def build():
    """Choose the way by model."""
    task, arrays = protocol.task(), protocol.load_arrays()
    x, y = (jnp.asarray(part) for part in arrays.samples())
    draws = None if arrays.draws is None else jnp.asarray(arrays.draws)
    way = _looped if task["model"] == "cnn" else _vmapped
    return way(task, jax_models.from_flat(task["model"], arrays.initial), x, y, draws)


def _step(task, params, x, y, rows):
    if rows is not None:
        x, y = x[rows], y[rows]
    found = jax.grad(partial(jax_models.loss, task["model"], True))(params, x, y)
    return jax.tree.map(lambda p, g: p - task["step"] * g, params, found)


def _mean_of_cells(cell, stacked):
    def of_leaf(value):
        cells = value.reshape(-1, cell, *value.shape[1:])
        return jnp.broadcast_to(cells.mean(1, keepdims=True), cells.shape).reshape(value.shape)

    return jax.tree.map(of_leaf, stacked)


def _vmapped(task, initial, x, y, draws):
    nodes, cell = task["nodes"], task["cell"] or task["nodes"]

    @jax.jit
    def one_round(params, x, y, rows):
        params = jax.vmap(partial(_step, task))(params, x, y, rows)
        return _mean_of_cells(cell, params)

    def begin(rounds):
        return jax.tree.map(lambda p: jnp.broadcast_to(p, (nodes, *p.shape)), initial)

    def learn(params, rounds):
        for k in range(rounds):
            params = one_round(params, x, y, None if draws is None else draws[k])
        return jax.block_until_ready(params)

    def model(params):
        return jax_models.to_flat(task["model"], jax.tree.map(lambda p: p.mean(0), params))

    return protocol.Learner(jax.__version__, begin, learn, model, notes={"way": "vmap"})


def _looped(task, initial, x, y, draws):
    nodes = task["nodes"]
    step = jax.jit(partial(_step, task))
    average = jax.jit(lambda copies: jax.tree.map(lambda *p: sum(p) / nodes, *copies))
    xs, ys = list(x), list(y)

    def learn(params, rounds):
        for k in range(rounds):
            rows = [None] * nodes if draws is None else list(draws[k])
            params = average([step(params, xs[i], ys[i], rows[i]) for i in range(nodes)])
        return jax.block_until_ready(params)

    def model(params):
        return jax_models.to_flat(task["model"], params)

    return protocol.Learner(
        jax.__version__, lambda rounds: initial, learn, model, notes={"way": "loop"}
    )


if __name__ == "__main__":
    protocol.serve(build)
