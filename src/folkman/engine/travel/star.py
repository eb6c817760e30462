"""Around a server: uploads, the server's own step, answers."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from folkman.algorithm.base import Algorithm, Inbox, State
from folkman.algorithm.pieces.one_node import serve
from folkman.algorithm.travel import Server, Star
from folkman.engine.learner import FinalParameters, Learner, Sender, World, written_out
from folkman.engine.presence import Presence
from folkman.engine.travel.medium import (
    Axes,
    Events,
    Medium,
    OnAir,
    Traffic,
    View,
    count,
    form_of,
    in_bits,
    mean_model,
)
from folkman.engine.travel.sending import Links, Senders, distinct
from folkman.keys import Stream, make_key
from folkman.problem.learnable import Learnable
from folkman.radio.delivery import NetworkState, Transfer
from folkman.radio.trace import StarTimeline

__all__ = ["StarHeld", "StarMedium", "answers", "around", "behind_nodes", "by_hand", "carried"]
__all__ += ["uploads"]


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


class StarMedium(Medium):
    """Nodes around one server."""

    travel: Star
    has_server = True

    @property
    def server(self) -> Server:
        """Return the server's side of the method."""
        return self.travel.server

    def check(self, num_nodes: int, faults: Presence) -> None:
        """Refuse a network without a server."""
        self.check_memory(faults, all_hear=True)
        key = make_key(0, Stream.DELAY)
        star = self.network.star()
        jax.eval_shape(lambda: star.init(num_nodes, key))

    def open(self, problem: Learnable, states: State, key: Array) -> StarHeld:
        """Let everyone hold the server's first message."""
        nodes = problem.num_nodes
        up = jax.vmap(self.algorithm.message)(states)
        server = self.server.init(problem.initial, nodes)
        answer = self.server.message(server)
        no, zero = jnp.zeros(nodes, bool), jnp.zeros(nodes, jnp.int32)
        return StarHeld(
            network=self.network.star().init(nodes, key),
            server=server,
            up=jnp.zeros_like(up),
            up_finite=~no,
            down=jnp.broadcast_to(answer, (nodes, answer.shape[0])),
            got=jnp.broadcast_to(answer, (nodes, answer.shape[0])),
            heard=no,
            coming=no,
            owed=no,
            stamp=zero,
            held=zero,
            up_links=self.sending(problem).first(up),
            down_links=self.answering(problem, self.server, nodes).first(
                jnp.broadcast_to(answer, (nodes, answer.shape[0]))
            ),
            versions=Versions(zero, zero, zero),
            late=zero - 1,
        )

    def inboxes(self, held: StarHeld, problem: Learnable, slot: Array) -> tuple[Inbox, Axes]:
        """Return the server's message as everyone's only neighbour's."""
        del problem
        return answers(held.got, held.heard, slot - held.held), 0

    def exchange(
        self,
        held: StarHeld,
        problem: Learnable,
        faults: Presence,
        states: State,
        steps: Array,
        slot: Array,
        senders: Senders,
        key: Array,
    ) -> tuple[StarHeld, Traffic, Events]:
        """Upload, let the server act, answer: who is answered in slot t computes again in t+1."""
        del steps
        star, server = self.network.star(), self.server
        price, answer_price = self.prices(problem)
        messages, offers, form, bits, present = self.offered(problem, faults, states, slot, key)
        up_key, down_key = jax.random.split(key)
        way = self.sending(problem)
        messages, memory = way.send(
            held.up_links, messages, way.keys(senders, problem.node, senders.steps)
        )

        before = held.network
        if hasattr(star, "attend"):
            there = faults.receives(problem.num_nodes, slot + 1)
            before = star.attend(before, there)  # type: ignore[attr-defined]
        network, upload = star.uplink(before, offers, bits, up_key)
        whole = jnp.all(jnp.isfinite(messages), axis=1)
        finite = jnp.where(upload.started, whole, held.up_finite)
        clean = jnp.where((finite & upload.started)[:, None], messages, 0.0)
        up = jnp.where(upload.started[:, None], clean, held.up)
        coming = (held.coming | upload.started) & ~upload.arrived & ~upload.lost

        inbox = uploads(up, problem.share, upload.arrived, finite, coming)
        server_key = jax.random.fold_in(key, int(Stream.SERVER))
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
        stamp = jnp.where(download.started, slot + 1, held.stamp)
        sent = count(upload.started, form, len(price))
        each = jnp.sum(download.started, dtype=jnp.int32)[None]
        messages_down = distinct(held.down_links, download.started)[None]
        served = count(messages_down, answer_form[None], len(answer_price))
        copies = count(each, answer_form[None], len(answer_price))
        down = jnp.where(download.started[:, None], answer, held.down)
        new = StarHeld(
            network=network,
            server=state,
            up=up,
            up_finite=finite,
            down=down,
            got=jnp.where(download.arrived[:, None], down, held.got),
            heard=download.arrived | (held.heard & ~present),  # who is away hears it on its return
            coming=coming & ~download.started,
            owed=(owed & ~download.started) | download.lost,
            stamp=stamp,
            held=jnp.where(download.arrived, stamp, held.held),
            up_links=carried(held.up_links, upload, memory, slot),
            down_links=carried(held.down_links, download, told, slot),
            versions=held.versions.after(began, server.rounds(state), download),
            late=jnp.where(upload.arrived & finite, late, -1).astype(jnp.int32),
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

    def on_air(self, events: Events, present: Array) -> OnAir:
        """Return how long nodes and the server sent and listened."""
        upload, download = events
        if not self.told(upload.airtime) or not self.told(download.airtime):
            return OnAir.nothing(len(present))
        member = jnp.ones((1, len(present)), bool)
        return around(upload, download, present, member)

    def late(self, held: StarHeld) -> Array:
        """Return how many versions late the uploads of the last slot were."""
        return held.late

    def measures(self, held: StarHeld) -> dict[str, Array]:
        """Return what the network has measured so far."""
        return self.network.star().measures(held.network)

    def model(self, held: StarHeld, problem: Learnable, params: Array) -> Array:
        """Return the server's model."""
        del problem, params
        return self.server.params(held.server)

    def centre(self, w: Array, problem: Learnable, models: Array) -> Array:
        """Return the mean of what the nodes would deploy."""
        del w
        return mean_model(problem, models)

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

    def ages(self, held: StarHeld, slot: Array) -> Array:
        """Return the ages of the models in use, (node,)."""
        return slot - held.held

    def unheard(self, held: StarHeld) -> Array:
        """Return the nodes that have only the first model."""
        return jnp.sum(held.held == 0, dtype=jnp.int32)

    def paired(self, ages: NDArray) -> NDArray:
        """Return the ages of the server's model at the nodes; the server stands last."""
        return behind_nodes(ages)

    def view(self, held: StarHeld, slot: int) -> View:
        """Return the ages of the server's model at the nodes; the server stands last."""
        nodes = len(held.held)
        ages = behind_nodes(slot - np.asarray(held.held))
        stamps = np.full(nodes + 1, -1, np.int32)
        stamps[-1] = int(np.asarray(held.stamp).max(initial=-1))
        return View(ages, stamps, servers=1)


def carried(links: Links | None, transfer: Transfer, memory: Array, slot: Array) -> Links | None:
    """Return the memories of links after a slot's transfers."""
    if links is None:
        return None
    return links.started(transfer.started, memory, slot).arrived(transfer.arrived)


def around(upload: Transfer, download: Transfer, present: Array, member: Array) -> OnAir:
    """Return how long nodes and stations were on; `member` (station, node).

    A station listens while any of its nodes sends, and sends one message to all who listen. Where
    transfers follow each other within a slot the network says how long that was (`server`).
    """
    sent, heard = (jnp.asarray(each.airtime) for each in (upload, download))
    transmit, receive = (jnp.where(present, each, 0.0) for each in (sent, heard))

    def on(way: Transfer, slots: Array) -> Array:
        longest = jnp.sum(jnp.max(jnp.where(member, slots[None], 0.0), axis=1))
        return longest if way.server is None else way.server

    return OnAir(transmit, receive, on(download, heard), on(upload, transmit))


def behind_nodes(ages: NDArray) -> NDArray:
    """Return ages (node,) of the server's model as a table in which the server stands last."""
    nodes = len(ages)
    table = np.full((nodes + 1, nodes + 1), -1, ages.dtype)
    np.fill_diagonal(table, 0)
    table[:nodes, nodes] = ages
    return table


def answers(got: Array, heard: Array, age: Array) -> Inbox:
    """Return the inboxes of nodes that have a server for their only neighbour."""
    nodes = len(heard)
    return Inbox(
        store=got[:, None],
        row=jnp.zeros((nodes, 1), jnp.int32),
        weight=jnp.ones((nodes, 1), got.dtype),
        own_weight=jnp.zeros(nodes, got.dtype),
        heard=heard[:, None],
        age=age[:, None],
        finite=jnp.ones((nodes, 1), bool),
    )


def uploads(up: Array, share: Array, arrived: Array, finite: Array, coming: Array) -> Inbox:
    """Return a server's inbox."""
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


def by_hand(
    world: World, timeline: StarTimeline, algorithm: Algorithm, nodes: list[Learner]
) -> FinalParameters:
    """Follow a timeline around a server, one node at a time."""
    server: Server = algorithm.travel.server  # type: ignore[attr-defined] - the way has one
    share, number = world.shares(), len(nodes)
    state = server.init(world.problem.initial, number)
    up = [node.message() * 0.0 for node in nodes]
    down = [np.array(server.message(state))] * number  # what is carried
    got = list(down)  # what arrived last
    adds = algorithm.declares.differences
    senders = [Sender(world, node.message(), adds=adds) for node in nodes]
    answers_to = [Sender(world, np.array(first), adds=False, server=True) for first in down]
    no = np.zeros(number, bool)
    finite, heard, coming = ~no, no, no
    formed, held = np.zeros(number, int), np.zeros(number, int)
    for t in range(len(timeline.finished)):
        there = world.present(t)
        for i in np.flatnonzero(there):
            world.start_anew(nodes[i], t)
            answer = written_out(
                [got[i]],
                weight=np.ones(1),
                own_weight=0.0,
                heard=heard[i : i + 1],
                age=t - held[i : i + 1],
                finite=np.ones(1, bool),
            )
            nodes[i].slot(answer, finishes=bool(timeline.finished[t, i]))
        messages = world.sent(nodes, t) if timeline.up_started[t].any() else []
        for i in np.flatnonzero(timeline.up_started[t]):
            seen = senders[i].take(messages[i], i, nodes[i].steps)
            finite[i] = np.isfinite(seen).all()
            up[i] = seen if finite[i] else np.zeros_like(seen)
        for i in np.flatnonzero(timeline.up_arrived[t]):
            senders[i].arrived()
        coming = (coming | timeline.up_started[t]) & ~timeline.up_arrived[t]
        inbox = written_out(
            up,
            weight=share,
            own_weight=0.0,
            heard=timeline.up_arrived[t],
            age=np.zeros(number, int),
            finite=finite,
            coming=coming,
        )
        key = jax.random.fold_in(world.slot_key(t), int(Stream.SERVER))
        state = serve(state, server, inbox, key)
        for i in np.flatnonzero(timeline.down_started[t]):
            told = np.array(server.message(state), np.float64)
            down[i] = answers_to[i].take(told, number, int(server.rounds(state)))
            formed[i] = t + 1
        for i in np.flatnonzero(timeline.down_arrived[t]):
            answers_to[i].arrived()
            got[i] = down[i]
        coming = coming & ~timeline.down_started[t]
        heard = timeline.down_arrived[t] | (heard & ~there)
        held = np.where(timeline.down_arrived[t], formed, held)
    params = np.stack([node.params() for node in nodes])
    return FinalParameters(np.array(server.params(state), np.float64), params)
