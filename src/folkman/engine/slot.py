"""One slot of all nodes: begin, take the gradients, finish.

`begin` and `finish` are pure and compile; the gradients between them may run inside the same
program or, for a model that is faster so, from Python. A node with compute time c begins a gradient
at the point it sees in its first slot and applies it at the end of its c-th; meanwhile it hears,
and sends only what it has not sent yet.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int

from folkman.algorithm.base import Algorithm, Inbox, State
from folkman.engine.compute_times import Compute, slots_of_gradients, takes_longer
from folkman.engine.presence import Presence
from folkman.engine.programs import compiled
from folkman.engine.travel import medium_of
from folkman.engine.travel.medium import Ending, Events, Held, OnAir, Traffic, first_states
from folkman.engine.travel.sending import Senders
from folkman.keys import Stream, make_key, make_keys, node_keys
from folkman.problem.learnable import Learnable
from folkman.problem.objective import emphasis_of, emphasised
from folkman.problem.sampling import Turns, batch_keys
from folkman.radio.delivery import Network

__all__ = [
    "Carry",
    "Late",
    "Tally",
    "begin",
    "clear",
    "finish",
    "finishes",
    "first",
    "seldom_learns",
    "take_gradients",
]


class Late(NamedTuple):
    """How many versions of the server's model behind uploads were when they arrived."""

    uploads: Int[Array, ""]
    versions: Float[Array, ""]  # summed over the uploads
    most: Int[Array, ""]  # of one upload


class Tally(NamedTuple):
    """Counts since the last clearing, in int32; the host adds them up before they can wrap."""

    gradients: Int[Array, " node"]  # gradients finished
    busy: Int[Array, " node"]  # slots spent computing
    traffic: Traffic
    # of the mean age of the copies a node holds, over the gradients finished
    age_sum: Float[Array, ""]
    age_max: Int[Array, ""]
    # ages of the copies held, summed over all slots: (rx, tx), or (node,) around a server
    held_ages: Int[Array, "..."]
    late: Late
    on_air: OnAir


class Carry(NamedTuple):
    """All that a run is, between two slots. Resuming from a saved carry gives the same bits."""

    seed: Array  # ()
    slot: Int[Array, ""]  # slots done
    states: State  # (node, ...) each
    medium: Held
    steps: Int[Array, " node"]  # gradients finished since the start: they key a node's draws
    left: Int[Array, " node"]  # slots until the gradient in work is finished, 0 for none
    # where that gradient is taken; d is 0 if all compute times are 1
    point: Float[Array, "node d"]
    age_mean: Float[Array, " node"]  # mean age of the copies in that point, when it was taken
    age_max: Int[Array, " node"]
    tally: Tally


def first(
    problem: Learnable,
    network: Network,
    algorithm: Algorithm,
    compute: Compute,
    seed: ArrayLike,
) -> Carry:
    """Return the carry before slot 0: every node at the common first model."""
    nodes = problem.num_nodes
    states = first_states(problem, algorithm, seed)
    medium = medium_of(algorithm, network)
    up, down = medium.prices(problem)
    zero = jnp.zeros(nodes, jnp.int32)
    held = medium.open(problem, states, make_key(seed, Stream.DELAY))
    kept = problem.dim if takes_longer(compute) else 0
    return Carry(
        seed=jnp.asarray(seed, jnp.uint32),
        slot=jnp.zeros((), jnp.int32),
        states=states,
        medium=held,
        steps=zero,
        left=zero,
        point=jnp.zeros((nodes, kept), problem.initial.dtype),
        age_mean=jnp.zeros(nodes, jnp.float32),
        age_max=zero,
        tally=_empty_tally(zero, (len(up), len(down)), medium.ages(held, zero[0])),
    )


def _empty_tally(zero: Array, forms: tuple[int, int], ages: Array) -> Tally:
    none = jnp.zeros((), jnp.int32)
    sent, served = jnp.zeros(forms[0], jnp.int32), jnp.zeros(forms[1], jnp.int32)
    return Tally(
        gradients=zero,
        busy=zero,
        traffic=Traffic(sent, sent, served, served),
        age_sum=jnp.zeros((), jnp.float32),
        age_max=none,
        held_ages=jnp.zeros_like(ages),
        late=Late(none, jnp.zeros((), jnp.float32), none),
        on_air=OnAir.nothing(len(zero)),
    )


def clear(carry: Carry) -> Carry:
    """Return the carry with its counts at zero."""
    return carry._replace(tally=_zeros(carry.tally))


@compiled()
def _zeros(tally: Tally) -> Tally:
    """Return a tally like this one before anything was counted: one program for all methods."""
    return jax.tree.map(jnp.zeros_like, tally)


def begin(
    problem: Learnable,
    network: Network,
    algorithm: Algorithm,
    compute: Compute,
    faults: Presence,
    carry: Carry,
) -> tuple[Carry, Array, Array | Turns]:
    """Let nodes hear.

    Return where each wants its gradient (node, d), and the mini-batches' keys.
    """
    travel = algorithm.travel
    carry = _with_new_starts(problem, algorithm, faults, carry)
    present = faults.present(problem.num_nodes, carry.slot)
    medium = medium_of(algorithm, network)
    inbox, axes = medium.inboxes(carry.medium, problem, carry.slot)
    received = jax.vmap(algorithm.receive, (0, axes))(carry.states, inbox)
    states = _where(present, received, carry.states)
    restarts = jax.vmap(travel.restarts, (0, axes))(states, inbox)
    left = jnp.where(restarts & present, 0, carry.left)
    starts = jax.vmap(travel.computes)(states) & (left == 0) & present
    slots = slots_of_gradients(compute, carry.seed, problem.node, carry.steps)
    left = jnp.where(starts, slots, left)
    point = jax.vmap(algorithm.point, (0, axes))(states, inbox)
    mean, oldest = _ages(inbox)
    carry = carry._replace(
        age_mean=jnp.where(starts, mean, carry.age_mean),
        age_max=jnp.where(starts, oldest, carry.age_max),
    )
    if takes_longer(compute):
        point = jnp.where(starts[:, None], point, carry.point)
        carry = carry._replace(point=point)
    keys = batch_keys(problem, make_key(carry.seed, Stream.BATCH), problem.node, carry.steps)
    return carry._replace(states=states, left=left), point, keys


def seldom_learns(algorithm: Algorithm, compute: Compute) -> bool:
    """Tell whether a run may have slots in which no node finishes a gradient."""
    return algorithm.travel.may_wait or takes_longer(compute)


def finishes(problem: Learnable, faults: Presence, carry: Carry) -> Bool[Array, " node"]:
    """Tell, after `begin`, which nodes finish a gradient in this slot."""
    return (carry.left == 1) & faults.present(problem.num_nodes, carry.slot)


def take_gradients(
    problem: Learnable,
    algorithm: Algorithm,
    compute: Compute,
    faults: Presence,
    carry: Carry,
    point: Array,
    keys: Array | Turns,
) -> tuple[Array, Array]:
    """Return each node's loss (node,) and gradient (node, d); zeros in a slot that uses none."""
    if not seldom_learns(algorithm, compute):
        return problem.gradients(point, keys)

    def nothing(point: Array, keys: Array | Turns) -> tuple[Array, Array]:
        like = jax.eval_shape(problem.gradients, point, keys)
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like)

    used = jnp.any(finishes(problem, faults, carry))
    return lax.cond(used, problem.gradients, nothing, point, keys)


def finish(
    problem: Learnable,
    network: Network,
    algorithm: Algorithm,
    faults: Presence,
    carry: Carry,
    gradients: tuple[Array, Array],
) -> tuple[Carry, tuple[Array, Events]]:
    """Apply the finished gradients, then exchange messages; also return the timeline's row."""
    medium = medium_of(algorithm, network)
    inbox, axes = medium.inboxes(carry.medium, problem, carry.slot)
    busy = (carry.left > 0) & faults.present(problem.num_nodes, carry.slot)
    left = jnp.where(busy, carry.left - 1, carry.left)
    finished = finishes(problem, faults, carry)
    emphasis = emphasis_of(problem) if algorithm.declares.evenly else None
    losses, grads = emphasised(gradients, emphasis)
    own_key, delay_key, packing_key = make_keys(
        carry.seed, Stream.ALGORITHM, Stream.DELAY, Stream.PACKING
    )
    keys = node_keys(own_key, problem.node, carry.steps)
    updated = jax.vmap(algorithm.update, (0, axes, 0, 0, 0))(
        carry.states, inbox, losses, grads, keys
    )
    # a state may hold much, such as a node's past: to choose between two costs a pass over it
    everyone = faults.all_there and _all_learn(algorithm, carry)
    states = updated if everyone else _where(finished, updated, carry.states)
    key = jax.random.fold_in(delay_key, carry.slot)
    steps = carry.steps + finished
    senders = Senders(packing_key, steps)
    ending = Ending(problem, faults, states, steps, carry.slot, senders, key)
    moved, traffic, events = medium.exchange(carry.medium, ending)
    states = medium.noted(states, events)
    tally = _count(carry, busy, finished, traffic)._replace(
        held_ages=carry.tally.held_ages + medium.ages(carry.medium, carry.slot),
        late=_count_late(carry.tally.late, medium.late(moved)),
        on_air=jax.tree.map(
            jnp.add,
            carry.tally.on_air,
            medium.on_air(events, faults.present(problem.num_nodes, carry.slot)),
        ),
    )
    carry = carry._replace(
        slot=carry.slot + 1,
        states=states,
        medium=moved,
        steps=steps,
        left=left,
        tally=tally,
    )
    return carry, (finished, events)


def _all_learn(algorithm: Algorithm, carry: Carry) -> bool:
    """Tell whether every node that is there finishes a gradient in every slot."""
    return not algorithm.travel.may_wait and carry.point.shape[1] == 0


def _where(mask: Array, new: State, old: State) -> State:
    """Return the new state of the nodes in the mask, the old one of the others."""
    return jax.tree.map(
        lambda a, b: jnp.where(mask.reshape(mask.shape + (1,) * (a.ndim - 1)), a, b), new, old
    )


def _with_new_starts(
    problem: Learnable, algorithm: Algorithm, faults: Presence, carry: Carry
) -> Carry:
    """Let nodes that come back from a crash in this slot begin anew."""
    if not faults.crash:
        return carry
    anew = faults.begins_anew(problem.num_nodes, carry.slot)
    states = _where(anew, first_states(problem, algorithm, carry.seed), carry.states)
    return carry._replace(states=states, left=jnp.where(anew, 0, carry.left))


def _ages(inbox: Inbox) -> tuple[Array, Array]:
    """Return the mean and the largest age of the copies that each node holds, (node,) each."""
    used = inbox.weight > 0
    ages = jnp.where(used, inbox.age, 0)
    mean = jnp.sum(ages, axis=1) / jnp.maximum(jnp.sum(used, axis=1), 1)
    return mean.astype(jnp.float32), jnp.max(ages, axis=1, initial=0).astype(jnp.int32)


def _count(carry: Carry, busy: Array, finished: Array, traffic: Traffic) -> Tally:
    """Add a slot. Ages are those of the copies that entered a finished gradient, when it began."""
    tally = carry.tally
    return tally._replace(
        gradients=tally.gradients + finished,
        busy=tally.busy + busy,
        traffic=Traffic(*(old + new for old, new in zip(tally.traffic, traffic, strict=True))),
        age_sum=tally.age_sum + jnp.sum(jnp.where(finished, carry.age_mean, 0.0)),
        age_max=jnp.maximum(
            tally.age_max, jnp.max(jnp.where(finished, carry.age_max, 0), initial=0)
        ),
    )


def _count_late(late: Late, versions: Array) -> Late:
    """Add the uploads of a slot; -1 for a node of which none arrived."""
    arrived = versions >= 0
    return Late(
        uploads=late.uploads + jnp.sum(arrived, dtype=jnp.int32),
        versions=late.versions + jnp.sum(jnp.where(arrived, versions, 0), dtype=jnp.float32),
        most=jnp.maximum(late.most, jnp.max(versions, initial=0)),
    )
