"""One slot of all nodes: begin, take the gradients, finish.

`begin` and `finish` are pure and compile; the gradients between them may run inside the same program or, for a
model that is faster so, from Python. A node with compute time c begins a gradient at the point it sees in its first
slot and applies it at the end of its c-th; meanwhile it goes on sending what it has.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from folkman.algorithm.base import Algorithm, Inbox, State
from folkman.engine.medium import Traffic, medium_of
from folkman.keys import Stream, make_key, node_keys
from folkman.problem.problem import Problem
from folkman.radio.delivery import Network

__all__ = ["Carry", "Tally", "begin", "clear", "finish", "first"]


class Tally(NamedTuple):
    """Counts since the last clearing, in int32; the host adds them up before they can wrap."""

    gradients: Array  # (node,) gradients finished
    busy: Array  # (node,) slots spent computing
    traffic: Traffic
    age_sum: Array  # () of the mean age of the copies a node holds, over the gradients finished
    age_max: Array  # ()


class Carry(NamedTuple):
    """All that a run is, between two slots. Resuming from a saved carry gives the same bits."""

    seed: Array  # ()
    slot: Array  # () slots done
    states: State  # (node, ...) each
    medium: Any
    steps: Array  # (node,) gradients finished since the start: they key a node's draws
    left: Array  # (node,) slots until the gradient in work is finished, 0 for none
    point: Array  # (node, d) where that gradient is taken; (node, 0) if all compute times are 1
    age_mean: Array  # (node,) mean age of the copies in that point, when it was taken
    age_max: Array  # (node,)
    tally: Tally


def first(
    problem: Problem, network: Network, algorithm: Algorithm, compute_slots: tuple[int, ...], seed: ArrayLike
) -> Carry:
    """Return the carry before slot 0: every node at the common first model."""
    nodes = problem.num_nodes
    state = algorithm.init(problem.initial, nodes)
    states = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (nodes, *jnp.shape(leaf))).copy(), state)
    medium = medium_of(algorithm).open(problem, network, algorithm, states, make_key(seed, Stream.DELAY))
    zero = jnp.zeros(nodes, jnp.int32)
    kept = problem.dim if max(compute_slots) > 1 else 0
    return Carry(
        seed=jnp.asarray(seed, jnp.uint32),
        slot=jnp.zeros((), jnp.int32),
        states=states,
        medium=medium,
        steps=zero,
        left=zero,
        point=jnp.zeros((nodes, kept), problem.initial.dtype),
        age_mean=jnp.zeros(nodes, jnp.float32),
        age_max=zero,
        tally=_empty_tally(nodes),
    )


def _empty_tally(nodes: int) -> Tally:
    zero, none = jnp.zeros(nodes, jnp.int32), jnp.zeros((), jnp.int32)
    return Tally(zero, zero, Traffic(none, none, none, none), jnp.zeros((), jnp.float32), none)


def clear(carry: Carry) -> Carry:
    """Return the carry with its counts at zero."""
    return carry._replace(tally=jax.tree.map(jnp.zeros_like, carry.tally))


def begin(
    problem: Problem, algorithm: Algorithm, compute_slots: tuple[int, ...], carry: Carry
) -> tuple[Carry, Array, Array]:
    """Let nodes hear, and return where each wants its gradient (node, d) and the keys of the mini-batches."""
    inbox, axes = medium_of(algorithm).inboxes(carry.medium, problem, carry.slot)
    states = jax.vmap(algorithm.receive, (0, axes))(carry.states, inbox)
    starts = jax.vmap(algorithm.computes)(states) & (carry.left == 0)
    left = jnp.where(starts, jnp.asarray(compute_slots, jnp.int32), carry.left)
    point = jax.vmap(algorithm.point, (0, axes))(states, inbox)
    mean, oldest = _ages(inbox)
    carry = carry._replace(
        age_mean=jnp.where(starts, mean, carry.age_mean), age_max=jnp.where(starts, oldest, carry.age_max)
    )
    if max(compute_slots) > 1:
        point = jnp.where(starts[:, None], point, carry.point)
        carry = carry._replace(point=point)
    batch_key = make_key(carry.seed, Stream.BATCH)
    keys = jnp.broadcast_to(batch_key, starts.shape)  # never looked at by full-batch gradients
    if problem.batch is not None:
        keys = node_keys(batch_key, problem.node, carry.steps)
    return carry._replace(states=states, left=left), point, keys


def finish(
    problem: Problem, network: Network, algorithm: Algorithm, carry: Carry, gradients: tuple[Array, Array]
) -> tuple[Carry, Any]:
    """Apply the finished gradients, then exchange messages; also return the slot's row of the timeline."""
    medium = medium_of(algorithm)
    inbox, axes = medium.inboxes(carry.medium, problem, carry.slot)
    busy = carry.left > 0
    left = jnp.maximum(carry.left - 1, 0)
    finished = busy & (left == 0)
    losses, grads = gradients
    keys = node_keys(make_key(carry.seed, Stream.ALGORITHM), problem.node, carry.steps)
    updated = jax.vmap(algorithm.update, (0, axes, 0, 0, 0))(carry.states, inbox, losses, grads, keys)
    states = jax.tree.map(lambda new, old: jnp.where(_rowwise(finished, new), new, old), updated, carry.states)
    key = jax.random.fold_in(make_key(carry.seed, Stream.DELAY), carry.slot)
    moved, traffic, events = medium.exchange(carry.medium, problem, network, algorithm, states, carry.slot, key)
    carry = carry._replace(
        slot=carry.slot + 1,
        states=states,
        medium=moved,
        steps=carry.steps + finished,
        left=left,
        tally=_count(carry, busy, finished, traffic),
    )
    return carry, (finished, events)


def _rowwise(mask: Array, like: Array) -> Array:
    return mask.reshape(mask.shape + (1,) * (like.ndim - 1))


def _ages(inbox: Inbox) -> tuple[Array, Array]:
    """Return the mean and the largest age of the copies that each node holds, (node,) each."""
    used = inbox.weight > 0
    ages = jnp.where(used, inbox.age, 0)
    mean = jnp.sum(ages, axis=1) / jnp.maximum(jnp.sum(used, axis=1), 1)
    return mean.astype(jnp.float32), jnp.max(ages, axis=1, initial=0).astype(jnp.int32)


def _count(carry: Carry, busy: Array, finished: Array, traffic: Traffic) -> Tally:
    """Add a slot. Ages are those of the copies that entered a finished gradient, when it began."""
    tally = carry.tally
    return Tally(
        gradients=tally.gradients + finished,
        busy=tally.busy + busy,
        traffic=Traffic(*(old + new for old, new in zip(tally.traffic, traffic, strict=True))),
        age_sum=tally.age_sum + jnp.sum(jnp.where(finished, carry.age_mean, 0.0)),
        age_max=jnp.maximum(tally.age_max, jnp.max(jnp.where(finished, carry.age_max, 0), initial=0)),
    )
