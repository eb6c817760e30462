"""Which of a node's samples a gradient is taken over, if not over all.

    replacement   `batch` samples, drawn with replacement, anew for every gradient (default)
    epochs        in every epoch a fresh permutation of the node's n samples, dealt over the
                  m = ceil(n / batch) gradients of the epoch: gradient r of an epoch takes the
                  samples at the places r, r + m, r + 2 m, ...

In epochs every sample is used once per epoch, without replacement. Where `batch` does not divide n
there is no small last batch: the batches of an epoch differ by one sample at most, and none has
more than `batch`. Each sample weighs m / n in its gradient, so that the mean of an epoch's
gradients is exactly the gradient over all samples. Where `batch` divides n, m / n is 1 / `batch`. A
node with n <= `batch` samples takes all of them every time.

Both are functions of the seed, the node and the number of its gradient alone: simulator, reference
and device draw the same.
"""

from typing import Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

from folkman.arrays import Array, Float, Int, jax, jnp
from folkman.keys import node_keys, tickets
from folkman.problem.learnable import Learnable

__all__ = [
    "SAMPLINGS",
    "Batch",
    "InEpochs",
    "Sampling",
    "Turns",
    "batch_keys",
    "draw",
    "next_gradient",
    "per_epoch",
]

Sampling: TypeAlias = Literal["replacement", "epochs"]
SAMPLINGS: tuple[Sampling, ...] = ("replacement", "epochs")


class Turns(NamedTuple):
    """The keys of epochs, and how far each node is in its own."""

    key: Array  # (node,)
    turn: Int[Array, " node"]  # gradients of the epoch before this one


class Batch(NamedTuple):
    """The samples of one gradient."""

    rows: Int[Array, " batch"]
    weight: Float[Array, " batch"]  # 0 for a place that is empty


@runtime_checkable
class InEpochs(Protocol):
    """A problem that says how it draws mini-batches; others draw from a key per gradient."""

    @property
    def sampling(self) -> Sampling:
        """Return how mini-batches are drawn."""
        ...


def per_epoch(batch: int, count: Array) -> Array:
    """Return m, the gradients of an epoch, for each number of samples."""
    return -(-count // batch)


def batch_keys(problem: Learnable, stream_key: Array, nodes: Array, steps: Array) -> Array | Turns:
    """Return what `problem.gradients` draws the mini-batches from.

    `nodes` (node,) are the identities of the nodes, `steps` (node,) the gradients that each has
    taken before. A problem that samples in epochs is given `Turns`, every other one keys (node,).
    """
    if problem.batch is None:  # never looked at by full-batch gradients
        return jnp.broadcast_to(stream_key, steps.shape)
    if not (isinstance(problem, InEpochs) and problem.sampling == "epochs"):
        return node_keys(stream_key, nodes, steps)
    gradients = per_epoch(problem.batch, problem.count)
    return Turns(node_keys(stream_key, nodes, steps // gradients), steps % gradients)


def next_gradient(
    problem: Learnable, point: Array, stream_key: Array, node: Array, steps: Array
) -> tuple[Array, Array]:
    """Return F_i and its gradient at a point (d,), over the next mini-batch of one node.

    `problem` is the node's own part. `node` (1,) is its identity, `steps` (1,) the gradients that
    it has taken before.
    """
    take = _next_gradient if problem.called_from_python else _traced
    return take(problem, point, stream_key, node, steps)


def _next_gradient(
    problem: Learnable, point: Array, stream_key: Array, node: Array, steps: Array
) -> tuple[Array, Array]:
    losses, grads = problem.gradients(point[None], batch_keys(problem, stream_key, node, steps))
    return losses[0], grads[0]


_traced = jax.jit(_next_gradient)


def draw(batch: int, key: Array | Turns, count: Array, most: int, dtype: jnp.dtype) -> Batch:
    """Return the mini-batch of one node that has `count` samples, `most` with padding."""
    if not isinstance(key, Turns):  # unbiased whatever the node's sample count
        rows = jax.random.randint(key, (batch,), 0, count, jnp.int32)
        return Batch(rows, jnp.full(batch, 1.0 / batch, dtype))
    number = jnp.arange(most, dtype=jnp.int32)
    # a ticket depends on the sample alone, not on how many there are
    last = jnp.asarray(2**32 - 1, jnp.uint32)
    order = jnp.argsort(jnp.where(number < count, tickets(key.key, number), last), stable=True)
    gradients = per_epoch(batch, count)
    place = key.turn + gradients * jnp.arange(batch, dtype=jnp.int32)
    real = place < count
    rows = order.astype(jnp.int32).at[jnp.where(real, place, 0)].get(mode="promise_in_bounds")
    return Batch(rows, jnp.where(real, gradients.astype(dtype) / count.astype(dtype), 0.0))
