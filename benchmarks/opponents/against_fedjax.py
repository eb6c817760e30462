"""FedJAX: federated averaging, all clients in every round, one local step.

It draws its mini-batches itself.
"""

from importlib.metadata import version

import jax
import jax_models
import numpy as np
import protocol

if not hasattr(jax, "tree_map"):
    jax.tree_map = jax.tree.map  # FedJAX 0.0.17 still calls what JAX 0.4.26 removed

import fedjax
from fedjax.algorithms import fed_avg


def build():
    """Build the algorithm and its clients."""
    task, arrays = protocol.task(), protocol.load_arrays()
    x, y = arrays.samples()
    form, counts = protocol.form(task), arrays.counts
    own = [slice(None) if counts is None else slice(int(counts[i])) for i in range(task["nodes"])]
    held = {i: {"x": x[i, rows], "y": y[i, rows]} for i, rows in enumerate(own)}
    clients = list(fedjax.InMemoryFederatedData(held).clients())

    def loss(params, batch, key):
        return jax_models.loss(form, False, params, batch["x"], batch["y"])

    drawing = fedjax.ShuffleRepeatBatchHParams(
        batch_size=task["batch"] or task["samples"], num_epochs=None, num_steps=1, seed=0
    )
    algorithm = fed_avg.federated_averaging(
        jax.grad(loss), fedjax.optimizers.sgd(task["step"]), fedjax.optimizers.sgd(1.0), drawing
    )
    initial = jax_models.from_flat(form, arrays.initial)
    key = jax.random.PRNGKey(0)

    def learn(state, rounds):
        for k in range(rounds):
            keys = jax.random.split(jax.random.fold_in(key, k), task["nodes"])
            state, _ = algorithm.apply(
                state, [(*client, own) for client, own in zip(clients, keys)]
            )
            jax.block_until_ready(state.params)
        return state

    return protocol.Learner(
        f"{version('fedjax')}, jax {jax.__version__}",
        lambda rounds: algorithm.init(initial),
        learn,
        lambda state: np.asarray(jax_models.to_flat(form, state.params)),
        notes={"batches": "own"} if task["batch"] else {},
    )


if __name__ == "__main__":
    protocol.serve(build)
