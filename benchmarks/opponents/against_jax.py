"""JAX by hand: vmap over nodes for dense models.

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
    """Choose the way by model, and by whether all batches are of one size."""
    task, arrays = protocol.task(), protocol.load_arrays()
    loops = task["model"] == "cnn" or (arrays.draws is None and arrays.counts is not None)
    initial = jax_models.from_flat(protocol.form(task), arrays.initial)
    return (_looped if loops else _vmapped)(task, initial, arrays)


def _step(task, params, x, y, rows):
    if rows is not None:
        x, y = x[rows], y[rows]
    found = jax.grad(partial(jax_models.loss, protocol.form(task), True))(params, x, y)
    return jax.tree.map(lambda p, g: p - task["step"] * g, params, found)


def _mean_of_cells(cell, shares, stacked):
    def of_leaf(value):
        if shares is not None:
            return jnp.broadcast_to(jnp.tensordot(shares, value, 1), value.shape)
        cells = value.reshape(-1, cell, *value.shape[1:])
        return jnp.broadcast_to(cells.mean(1, keepdims=True), cells.shape).reshape(value.shape)

    return jax.tree.map(of_leaf, stacked)


def _vmapped(task, initial, arrays):
    nodes, cell = task["nodes"], task["cell"] or task["nodes"]
    x, y = (jnp.asarray(part) for part in arrays.samples())
    draws, shares = (
        None if part is None else jnp.asarray(part) for part in (arrays.draws, arrays.shares)
    )

    @jax.jit
    def one_round(params, x, y, rows):
        params = jax.vmap(partial(_step, task))(params, x, y, rows)
        return _mean_of_cells(cell, shares, params)

    def begin(rounds):
        return jax.tree.map(lambda p: jnp.broadcast_to(p, (nodes, *p.shape)), initial)

    def learn(params, rounds):
        for k in range(rounds):
            params = one_round(params, x, y, None if draws is None else draws[k])
        return jax.block_until_ready(params)

    def model(params):
        return jax_models.to_flat(protocol.form(task), jax.tree.map(lambda p: p.mean(0), params))

    return protocol.Learner(jax.__version__, begin, learn, model, notes={"way": "vmap"})


def _looped(task, initial, arrays):
    nodes = task["nodes"]
    step = jax.jit(partial(_step, task))

    def of_all(*copies):
        if arrays.shares is None:
            return sum(copies) / nodes
        return sum(share * copy for share, copy in zip(arrays.shares.tolist(), copies))

    average = jax.jit(lambda copies: jax.tree.map(of_all, *copies))
    # without mini-batches a node's own samples alone
    held = [slice(None) if arrays.draws is not None else arrays.rows(0, i) for i in range(nodes)]
    xs, ys = (
        [jnp.asarray(part[i, rows]) for i, rows in enumerate(held)] for part in arrays.samples()
    )
    draws = None if arrays.draws is None else jnp.asarray(arrays.draws)

    def learn(params, rounds):
        for k in range(rounds):
            rows = [None] * nodes if draws is None else list(draws[k])
            params = average([step(params, xs[i], ys[i], rows[i]) for i in range(nodes)])
        return jax.block_until_ready(params)

    def model(params):
        return jax_models.to_flat(protocol.form(task), params)

    return protocol.Learner(
        jax.__version__, lambda rounds: initial, learn, model, notes={"way": "loop"}
    )


if __name__ == "__main__":
    protocol.serve(build)
