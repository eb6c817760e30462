"""How messages move within a slot: between peers, or around a server.

A medium is three functions over a pytree state. `open` begins; `inboxes` is what each node holds when a slot
begins; `exchange` runs at the end of a slot, after the updates, and lets the network carry messages.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from folkman.algorithm.base import Algorithm, Inbox, State
from folkman.engine import snapshots
from folkman.problem.problem import Problem
from folkman.radio.delivery import Network, NetworkState

__all__ = ["Medium", "PeerMedium", "StarMedium", "Traffic", "medium_of"]


class Traffic(NamedTuple):
    """What was put on the air in one slot, counted in messages."""

    sent: Array  # () by nodes
    sent_copies: Array  # () the same, each receiver counted
    served: Array  # () by the server
    served_copies: Array  # ()


class PeerMedium(NamedTuple):
    """Between peers: the network's state and the payloads in use."""

    network: NetworkState
    snapshots: snapshots.Snapshots


class StarMedium(NamedTuple):
    """Around a server: one frozen payload a link and direction."""

    network: NetworkState
    server: State
    up: Array  # (node, message)
    up_finite: Array  # (node,) bool
    down: Array  # (node, message)
    heard: Array  # (node,) bool: did the server's message just arrive?
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
        return Medium(_open_peers, _peer_inboxes, _exchange_peers)
    return Medium(_open_star, _star_inboxes, _exchange_star)


def _count(mask: Array) -> Array:
    return jnp.sum(mask, dtype=jnp.int32)


def _message_bits(network: Network, messages: Array) -> int:
    return messages.shape[-1] * network.bits_per_parameter


def _open_peers(problem: Problem, network: Network, algorithm: Algorithm, states: State, key: Array) -> PeerMedium:
    messages = jax.vmap(algorithm.message)(states)
    store = snapshots.start(messages, network.versions(problem.num_nodes))
    return PeerMedium(network.init(problem.num_nodes, key), store)


def _peer_inboxes(medium: PeerMedium, problem: Problem, slot: Array) -> tuple[Inbox, Any]:
    return snapshots.inboxes(medium.snapshots, problem.share, slot)


def _exchange_peers(
    medium: PeerMedium,
    problem: Problem,
    network: Network,
    algorithm: Algorithm,
    states: State,
    slot: Array,
    key: Array,
) -> tuple[PeerMedium, Traffic, Any]:
    del problem
    messages = jax.vmap(algorithm.message)(states)
    offers = jax.vmap(algorithm.offers)(states)
    state, delivery = network.step(medium.network, offers, _message_bits(network, messages), key)
    store = snapshots.put(medium.snapshots, messages, slot + 1, delivery.sends, delivery.held)
    sent = _count(delivery.sends)
    none = jnp.zeros_like(sent)
    traffic = Traffic(sent, sent * (len(delivery.sends) - 1), none, none)
    return PeerMedium(state, store), traffic, delivery


def _open_star(problem: Problem, network: Network, algorithm: Algorithm, states: State, key: Array) -> StarMedium:
    assert algorithm.server is not None  # noqa: S101 - medium_of chose the star for its server
    nodes = problem.num_nodes
    up = jax.vmap(algorithm.message)(states)
    server = algorithm.server.init(problem.initial, nodes)
    down = jnp.broadcast_to(algorithm.server.message(server), (nodes, algorithm.server.message(server).shape[0]))
    no, zero = jnp.zeros(nodes, bool), jnp.zeros(nodes, jnp.int32)
    return StarMedium(network.star_init(nodes, key), server, jnp.zeros_like(up), ~no, down, no, no, zero, zero)


def _star_inboxes(medium: StarMedium, problem: Problem, slot: Array) -> tuple[Inbox, Any]:
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
    problem: Problem,
    network: Network,
    algorithm: Algorithm,
    states: State,
    slot: Array,
    key: Array,
) -> tuple[StarMedium, Traffic, Any]:
    """Upload, let the server act, answer: a node that is answered in slot t computes again in slot t+1."""
    assert algorithm.server is not None  # noqa: S101 - medium_of chose the star for its server
    server = algorithm.server
    messages = jax.vmap(algorithm.message)(states)
    offers = jax.vmap(algorithm.offers)(states)
    up_key, down_key = jax.random.split(key)
    net, upload = network.uplink(medium.network, offers, _message_bits(network, messages), up_key)
    finite = jnp.where(upload.started, jnp.all(jnp.isfinite(messages), axis=1), medium.up_finite)
    clean = jnp.where((finite & upload.started)[:, None], messages, 0.0)
    up = jnp.where(upload.started[:, None], clean, medium.up)

    nodes = len(offers)
    inbox = Inbox(
        store=up,
        row=jnp.arange(nodes),
        weight=problem.share,
        own_weight=jnp.zeros((), up.dtype),
        heard=upload.arrived,
        age=jnp.zeros(nodes, jnp.int32),
        finite=finite,
    )
    server_state = server.receive(medium.server, inbox)

    answer = server.message(server_state)
    owed = medium.owed | server.offers(server_state)
    net, download = network.downlink(net, owed, answer.shape[0] * network.bits_per_parameter, down_key)
    down = jnp.where(download.started[:, None], answer[None], medium.down)
    stamp = jnp.where(download.started, slot + 1, medium.stamp)
    held = jnp.where(download.arrived, stamp, medium.held)
    sent = _count(upload.started)
    traffic = Traffic(sent, sent, _count(jnp.any(download.started)), _count(download.started))
    owed = owed & ~download.started
    new = StarMedium(net, server_state, up, finite, down, download.arrived, owed, stamp, held)
    return new, traffic, (upload, download)
