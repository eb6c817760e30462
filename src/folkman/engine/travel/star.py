"""Around a server: uploads, the server's own step, answers."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from folkman.algorithm.base import Algorithm, State
from folkman.algorithm.pieces.one_node import serve
from folkman.algorithm.travel import Server, Star
from folkman.engine.learner import FinalParameters, Learner, Vector, World
from folkman.engine.travel.medium import (
    Ending,
    Events,
    Traffic,
    View,
    count,
    form_of,
    in_bits,
)
from folkman.engine.travel.sending import Links, Senders, distinct
from folkman.engine.travel.served import (
    ServedByHand,
    ServedMedium,
    behind_nodes,
    carried,
    first_fields,
    uploads,
    with_answers,
    with_uploads,
)
from folkman.keys import Stream
from folkman.problem.learnable import Learnable
from folkman.radio.delivery import NetworkState, Transfer
from folkman.radio.trace import StarTimeline

__all__ = ["StarHeld", "StarMedium", "by_hand"]


class StarHeld(NamedTuple):
    """One frozen payload for each link and direction."""

    network: NetworkState
    server: State
    up: Array  # (node, message)
    up_finite: Array  # (node,) bool
    down: Array  # (node, message) what is being carried down, or was last
    got: Array  # (node, message) what arrived last: the inbox
    heard: Array  # (node,) bool: did the server's message just arrive?
    coming: Array  # (node,) bool: is an upload on its way?
    owed: Array  # (node,) bool: the server has offered an answer that has not started yet
    stamp: Array  # (node,) when the message being carried down was formed
    held: Array  # (node,) when the server model in use was formed
    versions: "Versions"
    late: Array  # (node,) versions behind of the uploads that just arrived, -1 for none
    up_links: Links | None = None  # what nodes remember, with error feedback
    down_links: Links | None = None  # what the server remembers of each node


class Versions(NamedTuple):
    """The version of the server's model, (node,) each, as its aggregations count them."""

    carried: Array  # that is being carried down
    held: Array  # that the node has
    uploaded: Array  # that its upload began from

    def after(self, uploaded: Array, newest: Array, download: Transfer) -> "Versions":
        """Return the versions after a slot in which these downloads started and arrived."""
        carried = jnp.where(download.started, newest, self.carried)
        return Versions(carried, jnp.where(download.arrived, carried, self.held), uploaded)


class StarMedium(ServedMedium):
    """Nodes around one server."""

    travel: Star

    @property
    def server(self) -> Server:
        """Return the server's side of the method."""
        return self.travel.server

    def open(self, problem: Learnable, states: State, key: Array) -> StarHeld:
        """Let everyone hold the server's first message."""
        nodes = problem.num_nodes
        up = jax.vmap(self.algorithm.message)(states)
        server = self.server.init(problem.initial, nodes)
        answer = self.server.message(server)
        zero = jnp.zeros(nodes, jnp.int32)
        return StarHeld(
            **first_fields(up, answer),
            network=self.network.star().init(nodes, key),
            server=server,
            up_links=self.sending(problem).first(up),
            down_links=self.answering(problem, self.server, nodes).first(
                jnp.broadcast_to(answer, (nodes, answer.shape[0]))
            ),
            versions=Versions(zero, zero, zero),
            late=zero - 1,
        )

    def exchange(self, held: StarHeld, ending: Ending) -> tuple[StarHeld, Traffic, Events]:
        """Upload, let the server act, answer: who is answered in slot t computes again in t+1."""
        star, server = self.network.star(), self.server
        problem, slot, senders = ending.problem, ending.slot, ending.senders
        price, answer_price = self.prices(problem)
        messages, offers, form, bits, present = self.offered(ending)
        up_key, down_key = jax.random.split(ending.key)
        way = self.sending(problem)
        messages, memory = way.send(
            held.up_links, messages, way.keys(senders, problem.node, senders.steps)
        )

        before = self.attended(star, held.network, ending)
        network, upload = star.uplink(before, offers, bits, up_key)
        held = held._replace(**with_uploads(held, messages, upload))

        inbox = uploads(held.up, problem.share, upload.arrived, held.up_finite, held.coming)
        server_key = jax.random.fold_in(ending.key, int(Stream.SERVER))
        state = server.receive(held.server, inbox, server_key)
        began = jnp.where(upload.started, held.versions.held, held.versions.uploaded)
        late = (
            server.rounds(held.server) - began
            if server.late is None
            else server.late(held.server, inbox)
        )

        answer, told = self._answers(held, problem, state, senders)
        answer_form = form_of(server.price, state)
        owed = held.owed | server.offers(state)
        answer_bits = in_bits(answer_price)[answer_form]
        network, download = star.downlink(network, owed & present, answer_bits, down_key)
        sent = count(upload.started, form, len(price))
        each = jnp.sum(download.started, dtype=jnp.int32)[None]
        messages_down = distinct(held.down_links, download.started)[None]
        served = count(messages_down, answer_form[None], len(answer_price))
        copies = count(each, answer_form[None], len(answer_price))
        new = held._replace(
            **with_answers(held, answer, download, owed, present, slot),
            network=network,
            server=state,
            up_links=carried(held.up_links, upload, memory, slot),
            down_links=carried(held.down_links, download, told, slot),
            versions=held.versions.after(began, server.rounds(state), download),
            late=jnp.where(upload.arrived & held.up_finite, late, -1).astype(jnp.int32),
        )
        return new, Traffic(sent, sent, served, copies), (upload, download)

    def _answers(
        self, held: StarHeld, problem: Learnable, state: State, senders: Senders
    ) -> tuple[Array, Array]:
        """Return the server's message as each node would hold it, and its memories after it."""
        server, nodes = self.server, problem.num_nodes
        way = self.answering(problem, server, nodes)
        links, message = held.down_links, server.message(state)[None]
        keys = way.keys(senders, jnp.full(1, nodes), server.rounds(state)[None])
        if links is not None:
            message = jnp.broadcast_to(message, (nodes, message.shape[1]))
            keys = jnp.broadcast_to(keys, (nodes,))
        return way.send(links, message, keys)

    def prices(self, problem: Learnable) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the bits of each form of an upload and of an answer."""
        up, _ = super().prices(problem)
        return up, self.server_prices(problem, self.server, problem.num_nodes)

    def members(self, num_nodes: int) -> Array:
        """Return all nodes as those of one server, (1, node)."""
        return jnp.ones((1, num_nodes), bool)

    def late(self, held: StarHeld) -> Array:
        """Return how many versions late the uploads of the last slot were."""
        return held.late

    def model(self, held: StarHeld, problem: Learnable, params: Array) -> Array:
        """Return the server's model."""
        del problem, params
        return self.server.params(held.server)

    def rounds(self, held: StarHeld) -> Array:
        """Return the server's aggregations."""
        return self.server.rounds(held.server)

    def timeline(
        self, stamps: NDArray[np.int32], finished: NDArray[np.bool_], events: Events
    ) -> StarTimeline:
        """Return the transfers."""
        del stamps
        upload, download = events
        return StarTimeline(
            upload.started, upload.arrived, download.started, download.arrived, finished
        )

    def view(self, held: StarHeld, slot: int) -> View:
        """Return the ages of the server's model at the nodes; the server stands last."""
        nodes = len(held.held)
        ages = behind_nodes(slot - np.asarray(held.held))
        stamps = np.full(nodes + 1, -1, np.int32)
        stamps[-1] = int(np.asarray(held.stamp).max(initial=-1))
        return View(ages, stamps, servers=1)


def by_hand(
    world: World, timeline: StarTimeline, algorithm: Algorithm, nodes: list[Learner]
) -> FinalParameters:
    """Follow a timeline around a server, one node at a time."""
    server: Server = algorithm.travel.server  # type: ignore[attr-defined] - the way has one
    share, number = world.shares(), len(nodes)
    state = server.init(world.problem.initial, number)
    first = [np.array(server.message(state))] * number
    served = ServedByHand(world, timeline, algorithm, nodes, first)

    def told(_: int) -> tuple[Vector, int, int]:
        return np.array(server.message(state), np.float64), number, int(server.rounds(state))

    for t in range(len(timeline.finished)):
        served.learn(t)
        served.upload(t)
        key = jax.random.fold_in(world.slot_key(t), int(Stream.SERVER))
        state = serve(state, server, served.inbox(t, share), key)
        served.answer(t, told)
    params = np.stack([node.params() for node in nodes])
    return FinalParameters(np.array(server.params(state), np.float64), params)
