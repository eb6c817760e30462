"""How messages move within a slot: between peers on their own beat or in lock-step, or around a server.

A medium is three functions over a pytree state. `open` begins; `inboxes` is what each node holds when a slot
begins; `exchange` runs at the end of a slot, after the updates, and lets the network carry messages.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from folkman.algorithm.base import Algorithm, Assumption, Inbox, State
from folkman.engine import snapshots
from folkman.engine.presence import Presence
from folkman.keys import Stream
from folkman.problem.learnable import Learnable
from folkman.radio.delivery import Network, NetworkState

__all__ = ["Medium", "PeerMedium", "StarMedium", "Traffic", "in_lockstep", "medium_of", "prices"]


class Traffic(NamedTuple):
    """What was put on the air in one slot, counted in messages of each form."""

    sent: Array  # (form,) by nodes
    sent_copies: Array  # (form,) the same, each receiver counted
    served: Array  # (form,) by the server
    served_copies: Array  # (form,)


class PeerMedium(NamedTuple):
    """Between peers: the network's state and the payloads in use."""

    network: NetworkState
    snapshots: snapshots.Snapshots
    brought: (
        Array  # (rx, tx) stamp that the network brought last; held unless the receiver was away
    )
    mixed: Array | None  # (rx, message) sums of the copies by share, if those are the weights


class StarMedium(NamedTuple):
    """Around a server: one frozen payload a link and direction."""

    network: NetworkState
    server: State
    up: Array  # (node, message)
    up_finite: Array  # (node,) bool
    down: Array  # (node, message)
    heard: Array  # (node,) bool: did the server's message just arrive?
    coming: Array  # (node,) bool: is an upload on its way?
    owed: Array  # (node,) bool: the server has offered an answer that has not started yet
    stamp: Array  # (node,) when the message being carried down was formed
    held: Array  # (node,) when the server model in use was formed


class Medium(NamedTuple):
    """The three functions; `events` of `exchange` is the slot's row of the timeline."""

    open: Callable[..., Any]
    inboxes: Callable[..., tuple[Inbox, Any]]
    exchange: Callable[..., tuple[Any, Traffic, Any]]


def medium_of(algorithm: Algorithm) -> Medium:
    """Return the medium that an algorithm's messages need."""
    if algorithm.server is None:
        return Medium(_open_peers, partial(_peer_inboxes, algorithm), _exchange_peers)
    return Medium(_open_star, _star_inboxes, _exchange_star)


def in_lockstep(algorithm: Algorithm) -> bool:
    """Tell whether an algorithm's messages travel in rounds."""
    return Assumption.LOCKSTEP in algorithm.assumes


def prices(
    problem: Learnable, network: Network, algorithm: Algorithm
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the bits of each form of a node's and of the server's messages, before the network adds its own."""
    bits, dim = network.bits_per_parameter, problem.dim
    up = algorithm.prices(dim, bits) if algorithm.prices else (_entries(algorithm, problem) * bits,)
    if (server := algorithm.server) is None:
        return up, (0,)
    kept = jax.eval_shape(lambda w: server.init(w, problem.num_nodes), problem.initial)
    size = jax.eval_shape(server.message, kept).size
    return up, server.prices(dim, bits) if server.prices else (size * bits,)


def _entries(algorithm: Algorithm, problem: Learnable) -> int:
    from folkman.engine.slot import first_states  # here: a slot is made of a medium

    states = jax.eval_shape(lambda: first_states(problem, algorithm, 0))
    return jax.eval_shape(jax.vmap(algorithm.message), states).shape[1]


def _bits(price: tuple[int, ...]) -> Array:
    """Return prices as an array; NumPy first, since they may exceed an int32."""
    return jnp.asarray(np.asarray(price, np.float32))


def _count(mask: Array, form: Array, forms: int) -> Array:
    """Count the messages of each form among those of the mask, (form,)."""
    return jnp.zeros(forms, jnp.int32).at[form].add(mask.astype(jnp.int32))


def _open_peers(
    problem: Learnable, network: Network, algorithm: Algorithm, states: State, key: Array
) -> PeerMedium:
    messages = jax.vmap(algorithm.message)(states)
    nodes = problem.num_nodes
    none = jnp.zeros((nodes, nodes), jnp.int32)
    if in_lockstep(algorithm):
        store = snapshots.start(
            messages, 2, recent=2
        )  # in a recording a sender may be a round ahead
        return PeerMedium(network.lockstep_init(nodes, key), store, none, None)
    store = snapshots.start(messages, network.versions(nodes), network.recent)
    mixed = (
        snapshots.mixture(store, _by_share(problem))
        if algorithm.sums and algorithm.mixing is None
        else None
    )
    return PeerMedium(network.init(nodes, key), store, none, mixed)


def _by_share(problem: Learnable) -> Array:
    nodes = problem.num_nodes
    return jnp.broadcast_to(problem.share[None], (nodes, nodes))


def _peer_inboxes(
    algorithm: Algorithm, medium: PeerMedium, problem: Learnable, slot: Array
) -> tuple[Inbox, Any]:
    store = medium.snapshots
    if algorithm.mixing is None:
        mixing = _by_share(problem)
    else:
        mixing = algorithm.mixing.weights(store.heard).astype(problem.share.dtype)
    inbox, axes = snapshots.inboxes(store, mixing, slot, medium.mixed)
    return inbox._replace(heard=store.heard) if in_lockstep(algorithm) else inbox, axes


def _exchange_peers(
    medium: PeerMedium,
    problem: Learnable,
    network: Network,
    algorithm: Algorithm,
    faults: Presence,
    states: State,
    slot: Array,
    key: Array,
) -> tuple[PeerMedium, Traffic, Any]:
    price, _ = prices(problem, network, algorithm)
    messages = faults.corrupt(
        jax.vmap(algorithm.message)(states), problem.initial, key, about_zero=algorithm.differences
    )
    present = faults.present(problem.num_nodes, slot)
    offers = jax.vmap(algorithm.offers)(states) & present
    form = jax.vmap(algorithm.form)(states)
    bits = _bits(price)[form]
    edges = _edges(algorithm, problem)
    if in_lockstep(algorithm):
        waits = algorithm.mixing is None or algorithm.mixing.waits
        net, delivery = network.exchange(
            medium.network, offers, edges if waits else None, bits, key
        )
        held = delivery.held
    else:
        net, delivery = network.step(medium.network, offers, bits, key)
        receives = faults.receives(problem.num_nodes, slot)
        new = receives[:, None] & (delivery.held != medium.brought)  # who is away hears nothing
        held = jnp.where(new, delivery.held, medium.snapshots.held)
    store = snapshots.put(medium.snapshots, messages, slot + 1, delivery.sends, held, present)
    sent = _count(jnp.any(delivery.linked, axis=0), form, len(price))
    copies = _count(jnp.sum(delivery.linked & edges, axis=0, dtype=jnp.int32), form, len(price))
    none = jnp.zeros(1, jnp.int32)
    event = delivery._replace(held=held)
    mixed = medium.mixed
    if mixed is not None:
        arrived = jnp.any(held != medium.snapshots.held)
        mixed = lax.cond(
            arrived, lambda: snapshots.mixture(store, _by_share(problem)), lambda: mixed
        )
    return PeerMedium(net, store, delivery.held, mixed), Traffic(sent, copies, none, none), event


def _edges(algorithm: Algorithm, problem: Learnable) -> Array:
    """Return who is to hear whom, (rx, tx)."""
    nodes = problem.num_nodes
    others = ~jnp.eye(nodes, dtype=bool)
    if algorithm.mixing is None or not algorithm.mixing.waits:
        return others
    return (algorithm.mixing.weights(others) > 0) & others


def _open_star(
    problem: Learnable, network: Network, algorithm: Algorithm, states: State, key: Array
) -> StarMedium:
    assert algorithm.server is not None  # noqa: S101 - medium_of chose the star for its server
    nodes = problem.num_nodes
    up = jax.vmap(algorithm.message)(states)
    server = algorithm.server.init(problem.initial, nodes)
    answer = algorithm.server.message(server)
    down = jnp.broadcast_to(answer, (nodes, answer.shape[0]))
    no, zero = jnp.zeros(nodes, bool), jnp.zeros(nodes, jnp.int32)
    return StarMedium(
        network.star_init(nodes, key), server, jnp.zeros_like(up), ~no, down, no, no, no, zero, zero
    )


def _star_inboxes(medium: StarMedium, problem: Learnable, slot: Array) -> tuple[Inbox, Any]:
    nodes = problem.num_nodes
    one = jnp.ones((nodes, 1), medium.down.dtype)
    inbox = Inbox(
        store=medium.down[:, None],
        row=jnp.zeros((nodes, 1), jnp.int32),
        weight=one,
        own_weight=jnp.zeros(nodes, medium.down.dtype),
        heard=medium.heard[:, None],
        age=(slot - medium.held)[:, None],
        finite=jnp.ones((nodes, 1), bool),
    )
    return inbox, 0


def _exchange_star(
    medium: StarMedium,
    problem: Learnable,
    network: Network,
    algorithm: Algorithm,
    faults: Presence,
    states: State,
    slot: Array,
    key: Array,
) -> tuple[StarMedium, Traffic, Any]:
    """Upload, let the server act, answer: a node that is answered in slot t computes again in slot t+1."""
    assert algorithm.server is not None  # noqa: S101 - medium_of chose the star for its server
    server = algorithm.server
    price, answer_price = prices(problem, network, algorithm)
    present = faults.present(problem.num_nodes, slot)
    messages = faults.corrupt(
        jax.vmap(algorithm.message)(states), problem.initial, key, about_zero=algorithm.differences
    )
    offers = jax.vmap(algorithm.offers)(states) & present
    form = jax.vmap(algorithm.form)(states)
    up_key, down_key = jax.random.split(key)
    net, upload = network.uplink(medium.network, offers, _bits(price)[form], up_key)
    finite = jnp.where(upload.started, jnp.all(jnp.isfinite(messages), axis=1), medium.up_finite)
    clean = jnp.where((finite & upload.started)[:, None], messages, 0.0)
    up = jnp.where(upload.started[:, None], clean, medium.up)
    coming = (medium.coming | upload.started) & ~upload.arrived & ~upload.lost

    uploads = _uploads(up, problem.share, upload.arrived, finite, coming)
    server_state = server.receive(
        medium.server, uploads, jax.random.fold_in(key, int(Stream.SERVER))
    )

    answer = server.message(server_state)
    answer_form = server.form(server_state)
    owed = medium.owed | server.offers(server_state)
    bits = _bits(answer_price)[answer_form]
    net, download = network.downlink(net, owed & present, bits, down_key)
    down = jnp.where(download.started[:, None], answer[None], medium.down)
    stamp = jnp.where(download.started, slot + 1, medium.stamp)
    held = jnp.where(download.arrived, stamp, medium.held)
    sent = _count(upload.started, form, len(price))
    served = _count(jnp.any(download.started)[None], answer_form[None], len(answer_price))
    copies = _count(
        jnp.sum(download.started, dtype=jnp.int32)[None], answer_form[None], len(answer_price)
    )
    owed = (owed & ~download.started) | download.lost
    heard = download.arrived | (medium.heard & ~present)  # who is away hears it on its return
    new = StarMedium(
        net, server_state, up, finite, down, heard, coming & ~download.started, owed, stamp, held
    )
    return new, Traffic(sent, sent, served, copies), (upload, download)


def _uploads(up: Array, share: Array, arrived: Array, finite: Array, coming: Array) -> Inbox:
    nodes = len(share)
    return Inbox(
        store=up,
        row=jnp.arange(nodes),
        weight=share,
        own_weight=jnp.zeros((), up.dtype),
        heard=arrived,
        age=jnp.zeros(nodes, jnp.int32),
        finite=finite,
        coming=coming,
    )
