"""Nodes on their own beat whose messages come in any order: late, repeated, overtaken or never.

A property of a method under loss and delay is then a property of arrays that Hypothesis draws.
"""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np

from folkman.algorithm.base import Inbox, Place
from folkman.packing.packing import pack_message

NODES, DIM, SLOTS = 5, 4, 40
MODELS = np.random.default_rng(0).normal(size=(NODES, DIM))
GRADIENTS = np.random.default_rng(1).normal(size=(SLOTS, NODES, DIM))


def slot_of(algorithm, packing, carry, now):
    """Let every node hear, some finish a gradient, and some send; every message is kept."""
    states, sent, latest = carry
    slot, lag, finishes, sends, grads = now
    held = jnp.maximum(latest[None] - lag, 0)  # (rx, tx): which of a sender's messages is held
    weights = algorithm.travel.mixing.weights(jnp.ones((NODES, NODES), bool))

    def hear(state, row, weight, own, age):
        store = sent[row, jnp.arange(NODES)]
        anyone = jnp.ones(NODES, bool)
        box = Inbox(store, jnp.arange(NODES), weight, own, anyone, age, anyone)
        return algorithm.receive(state, box), box

    off = jnp.where(jnp.eye(NODES, dtype=bool), 0.0, weights)
    states, boxes = jax.vmap(hear)(states, held, off, jnp.diagonal(weights), lag)
    keys = jax.random.split(jax.random.fold_in(jax.random.key(7), slot), NODES)
    updated = jax.vmap(algorithm.update)(states, boxes, jnp.zeros(NODES), grads, keys)

    def of(mask, new, old):
        return jax.tree.map(
            lambda a, b: jnp.where(mask.reshape((-1,) + (1,) * (a.ndim - 1)), a, b), new, old
        )

    states = of(finishes, updated, states)
    goes = sends & jax.vmap(algorithm.travel.offers)(states)
    seen = jax.vmap(lambda m: pack_message(packing, m, DIM, keys[0]))(
        jax.vmap(algorithm.message)(states)
    )
    latest = jnp.where(goes, latest + 1, latest)
    row = jnp.where(goes, latest, len(sent))
    sent = sent.at[row, jnp.arange(NODES)].set(seen, mode="drop")
    states = of(goes, jax.vmap(algorithm.travel.after_sending)(states), states)
    return (states, sent, latest), states


@cache
def program(algorithm, packing):
    """Return the states before and after every slot, as lags, gradients and sendings are given."""

    def run(lags, finishes, sends):
        place = Place(jnp.arange(NODES, dtype=jnp.int32), NODES, jax.random.key(0))
        states = jax.vmap(
            lambda model, node: algorithm.init(model, place._replace(node=node)),
        )(jnp.asarray(MODELS), place.node)
        first = jax.vmap(algorithm.message)(states)
        sent = jnp.zeros((SLOTS + 1, *first.shape)).at[0].set(first)
        now = (jnp.arange(SLOTS), lags, finishes, sends, jnp.asarray(GRADIENTS))
        carry = (states, sent, jnp.zeros(NODES, jnp.int32))
        _, after = jax.lax.scan(partial(slot_of, algorithm, packing), carry, now)
        return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), states, after)

    return jax.jit(run)


def drawn(seed, computing, sending, late):
    """Return lags (slot, rx, tx), who finishes a gradient and who sends (slot, node)."""
    draw = np.random.default_rng(seed)
    lags = draw.integers(0, late + 1, (SLOTS, NODES, NODES), np.int32)
    finishes = draw.random((SLOTS, NODES)) < computing
    sends = draw.random((SLOTS, NODES)) < sending
    return lags, finishes, sends
