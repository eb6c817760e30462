"""In cells: nodes around stations, stations around a root."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from folkman.algorithm.base import Algorithm, Inbox, State
from folkman.algorithm.pieces.hierarchy import Hierarchy
from folkman.algorithm.pieces.one_node import serve
from folkman.engine.learner import FinalParameters, Learner, Sender, World, written_out
from folkman.engine.presence import Presence
from folkman.engine.travel.medium import (
    Axes,
    Events,
    Medium,
    OnAir,
    Traffic,
    View,
    in_bits,
    mean_model,
)
from folkman.engine.travel.sending import Links, Senders, Sending, distinct
from folkman.engine.travel.star import answers, around, behind_nodes, carried, uploads
from folkman.keys import Stream, make_key
from folkman.packing.price import forms_of
from folkman.problem.learnable import Learnable
from folkman.radio.delay import constant
from folkman.radio.delivery import Network, NetworkState, StarNetwork, Transfer, as_value, below
from folkman.radio.replay import StarReplay
from folkman.radio.trace import KINDS, StarTimeline

__all__ = ["HierarchyMedium", "HierarchyReplay", "HierarchyTimeline", "by_hand"]


class HierarchyTimeline(NamedTuple):
    """A timeline in cells: transfers between nodes and stations, stations and the root."""

    up_started: NDArray[np.bool_]  # (slot, node)
    up_arrived: NDArray[np.bool_]
    down_started: NDArray[np.bool_]
    down_arrived: NDArray[np.bool_]
    root_up_started: NDArray[np.bool_]  # (slot, cell)
    root_up_arrived: NDArray[np.bool_]
    root_down_started: NDArray[np.bool_]
    root_down_arrived: NDArray[np.bool_]
    finished: NDArray[np.bool_]  # (slot, node)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape that each table should have."""
        slots, nodes = self.finished.shape
        cells = self.root_up_started.shape[1]
        return {name: (slots, cells if name.startswith("root") else nodes) for name in self._fields}


KINDS.append(HierarchyTimeline)


@as_value("timeline")
@dataclass(frozen=True, eq=False)
class HierarchyReplay(Network):
    """A network that repeats the transfers of a hierarchy."""

    timeline: HierarchyTimeline
    bits_per_parameter: int | None = None
    name = "recorded cells"

    @property
    def horizon(self) -> int:
        """Return the length of the recording."""
        return len(self.timeline.finished)

    def star(self) -> StarNetwork:
        """Return the transfers between nodes and stations."""
        at = self.timeline
        tables = (at.up_started, at.up_arrived, at.down_started, at.down_arrived)
        return StarReplay(StarTimeline(*tables, at.finished)).star()

    def backhaul(self) -> StarNetwork:
        """Return the transfers between stations and the root."""
        at = self.timeline
        tables = (at.root_up_started, at.root_up_arrived, at.root_down_started)
        return StarReplay(StarTimeline(*tables, at.root_down_arrived, at.finished)).star()


class HierarchyHeld(NamedTuple):
    """One frozen payload for each link and direction, on both levels."""

    network: NetworkState
    backhaul: NetworkState
    stations: State  # (cell, ...)
    root: State
    up: Array  # (node, message)
    up_finite: Array  # (node,) bool
    down: Array  # (node, message) what is being carried down, or was last
    got: Array  # (node, message) what arrived last: the inbox
    heard: Array  # (node,) bool
    coming: Array  # (node,) bool
    owed: Array  # (node,) bool
    stamp: Array  # (node,)
    held: Array  # (node,)
    root_up: Array  # (cell, message)
    root_down: Array  # (cell, message)
    root_owed: Array  # (cell,) bool
    root_coming: Array  # (cell,) bool: is what a station asks on its way?
    links: "CellLinks | None" = None


class CellLinks(NamedTuple):
    """What senders remember, with error feedback; None for those that pack nothing."""

    up: Links | None  # nodes
    down: Links | None  # stations, of each node
    asked: Links | None  # stations, of what they told the root
    told: Links | None  # the root, of each station


NO_LINKS = CellLinks(None, None, None, None)


class HierarchyMedium(Medium):
    """Nodes in cells."""

    travel: Hierarchy

    has_server = True
    forms_on_air = slice(0, 1)  # those of stations to nodes; stations and the root have a wire

    def check(self, num_nodes: int, faults: Presence) -> None:
        """Refuse a network without servers."""
        self.check_memory(faults, all_hear=True)
        key = make_key(0, Stream.DELAY)
        star = self.network.star()
        jax.eval_shape(lambda: star.init(num_nodes, key))

    def _backhaul(self) -> StarNetwork:
        """Return the links between stations and the root."""
        network = below(self.network)
        if isinstance(network, HierarchyReplay):
            return network.backhaul()
        return constant(self.travel.backhaul_slots).star()

    def _member(self, nodes: int) -> Array:
        """Return whose station is whose, (cell, node) bool."""
        return jnp.arange(nodes)[None] % self.travel.cells == jnp.arange(self.travel.cells)[:, None]

    def open(self, problem: Learnable, states: State, key: Array) -> HierarchyHeld:
        """Let everyone hold the first model."""
        way, nodes, cells = self.travel, problem.num_nodes, self.travel.cells
        up = jax.vmap(self.algorithm.message)(states)
        one = way.station.init(problem.initial, nodes)
        stations = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (cells, *leaf.shape)), one)
        root = way.root.init(problem.initial, cells)
        answer, asked, told = way.station.message(one), way.asked(one), way.root.message(root)
        no, zero = jnp.zeros(nodes, bool), jnp.zeros(nodes, jnp.int32)
        return HierarchyHeld(
            network=self.network.star().init(nodes, key),
            backhaul=self._backhaul().init(cells, key),
            stations=stations,
            root=root,
            up=jnp.zeros_like(up),
            up_finite=~no,
            down=jnp.broadcast_to(answer, (nodes, answer.shape[0])),
            got=jnp.broadcast_to(answer, (nodes, answer.shape[0])),
            heard=no,
            coming=no,
            owed=no,
            stamp=zero,
            held=zero,
            root_up=jnp.zeros((cells, asked.shape[0]), asked.dtype),
            root_down=jnp.broadcast_to(told, (cells, told.shape[0])),
            root_owed=jnp.zeros(cells, bool),
            root_coming=jnp.zeros(cells, bool),
            links=self._first_links(problem, up, answer, asked, told),
        )

    def _first_links(
        self, problem: Learnable, up: Array, answer: Array, asked: Array, told: Array
    ) -> CellLinks | None:
        """Return the first memories; all messages are those that everyone knows."""
        if not self.network.packing.remembers:
            return None
        nodes, cells = problem.num_nodes, self.travel.cells
        station, root = self._packers(problem)

        def each(message: Array, number: int) -> Array:
            return jnp.broadcast_to(message, (number, message.shape[0]))

        return CellLinks(
            self.sending(problem).first(up),
            station.first(each(answer, nodes)),
            station.first(each(asked, cells)),
            root.first(each(told, cells)),
        )

    def _packers(self, problem: Learnable) -> tuple[Sending, Sending]:
        """Return how stations and the root pack."""
        way = self.travel
        station = self.answering(problem, way.station, problem.num_nodes)
        return station, self.answering(problem, way.root, way.cells)

    def inboxes(self, held: HierarchyHeld, problem: Learnable, slot: Array) -> tuple[Inbox, Axes]:
        """Return the station's message as everyone's only neighbour's."""
        del problem
        return answers(held.got, held.heard, slot - held.held), 0

    def exchange(
        self,
        held: HierarchyHeld,
        problem: Learnable,
        faults: Presence,
        states: State,
        steps: Array,
        slot: Array,
        senders: Senders,
        key: Array,
    ) -> tuple[HierarchyHeld, Traffic, Events]:
        """Upload, let the stations act, let the root act, answer."""
        del steps
        star, nodes = self.network.star(), problem.num_nodes
        messages, offers, _, bits, present = self.offered(problem, faults, states, slot, key)
        up_key, down_key = jax.random.split(key)
        links = held.links or NO_LINKS
        sending = self.sending(problem)
        messages, memory = sending.send(
            links.up, messages, sending.keys(senders, problem.node, senders.steps)
        )
        network, upload = star.uplink(held.network, offers, bits, up_key)
        whole = jnp.all(jnp.isfinite(messages), axis=1)
        finite = jnp.where(upload.started, whole, held.up_finite)
        clean = jnp.where((finite & upload.started)[:, None], messages, 0.0)
        held = held._replace(
            network=network,
            up=jnp.where(upload.started[:, None], clean, held.up),
            up_finite=finite,
            coming=(held.coming | upload.started) & ~upload.arrived & ~upload.lost,
        )
        held = self._let_stations_act(held, problem, upload.arrived, key)
        held, asked, told = self._let_root_act(held, problem, slot, senders, key)

        way, member = self.travel, self._member(nodes)
        cell = jnp.arange(nodes) % way.cells
        offered = jax.vmap(way.station.offers)(held.stations)  # (cell, node)
        owed = held.owed | jnp.any(offered & member, axis=0)
        answer, answered = self._answers(held, problem, senders, cell)
        price = in_bits(self.prices(problem)[1])[0]
        network, download = star.downlink(held.network, owed & present, price, down_key)
        stamp = jnp.where(download.started, slot + 1, held.stamp)
        served = jax.vmap(lambda own: distinct(links.down, own & download.started))(member)
        down = jnp.where(download.started[:, None], answer, held.down)
        moved = held._replace(
            network=network,
            down=down,
            got=jnp.where(download.arrived[:, None], down, held.got),
            heard=download.arrived | (held.heard & ~present),
            coming=held.coming & ~download.started,
            owed=(owed & ~download.started) | download.lost,
            stamp=stamp,
            held=jnp.where(download.arrived, stamp, held.held),
        )
        if held.links is not None:
            up_links = carried(links.up, upload, memory, slot)
            down_links = carried(links.down, download, answered, slot)
            moved = moved._replace(links=held.links._replace(up=up_links, down=down_links))
        sent = jnp.sum(upload.started, dtype=jnp.int32)[None]
        once = [served, asked.started, jnp.any(told.started)]
        each = [download.started, asked.started, told.started]
        traffic = Traffic(sent, sent, _numbers(once), _numbers(each))
        return moved, traffic, (upload, download, asked, told)

    def _let_stations_act(
        self, held: HierarchyHeld, problem: Learnable, arrived: Array, key: Array
    ) -> HierarchyHeld:
        """Give every station what its nodes have uploaded."""
        keys = _server_keys(key, self.travel.cells)[:-1]

        def act(station: State, member: Array, key: Array) -> State:
            share = problem.share * member
            inbox = uploads(held.up, share, arrived & member, held.up_finite, held.coming & member)
            return self.travel.station.receive(station, inbox, key)

        stations = jax.vmap(act)(held.stations, self._member(problem.num_nodes), keys)
        return held._replace(stations=stations)

    def _let_root_act(
        self, held: HierarchyHeld, problem: Learnable, slot: Array, senders: Senders, key: Array
    ) -> tuple[HierarchyHeld, Transfer, Transfer]:
        """Carry what stations ask to the root, let it act, and carry its answers back."""
        way, backhaul = self.travel, self._backhaul()
        _, asked_bits, told_bits = in_bits(self.prices(problem)[1])
        asks = jax.vmap(way.asks)(held.stations)
        links, asked = backhaul.uplink(held.backhaul, asks, asked_bits, key)
        memories = held.links or NO_LINKS
        sent, asked_memory = self._questions(held, problem, senders)
        up = jnp.where(asked.started[:, None], sent, held.root_up)
        share = jnp.dot(self._member(problem.num_nodes), problem.share, precision="highest")
        finite = jnp.all(jnp.isfinite(up), axis=1)
        clean = jnp.where(finite[:, None], up, 0.0)
        coming = (held.root_coming | asked.started) & ~asked.arrived & ~asked.lost
        inbox = uploads(clean, share, asked.arrived, finite, coming)
        root = way.root.receive(held.root, inbox, _server_keys(key, way.cells)[-1])
        owed = held.root_owed | way.root.offers(root)
        links, told = backhaul.downlink(links, owed, told_bits, key)
        answer, told_memory = self._root_answers(memories.told, problem, root, senders)
        down = jnp.where(told.started[:, None], answer, held.root_down)
        heard = jax.vmap(way.hears)(held.stations, down)

        def chosen(new: Array, old: Array) -> Array:
            return jnp.where(told.arrived.reshape((-1,) + (1,) * (new.ndim - 1)), new, old)

        moved = held._replace(
            backhaul=links,
            stations=jax.tree.map(chosen, heard, held.stations),
            root=root,
            root_up=up,
            root_down=down,
            root_owed=owed & ~told.started,
            root_coming=coming & ~told.started,
        )
        if held.links is not None:
            asked_links = carried(memories.asked, asked, asked_memory, slot)
            told_links = carried(memories.told, told, told_memory, slot)
            moved = moved._replace(links=held.links._replace(asked=asked_links, told=told_links))
        return moved, asked, told

    def _answers(
        self, held: HierarchyHeld, problem: Learnable, senders: Senders, cell: Array
    ) -> tuple[Array, Array]:
        """Return the stations' messages as each node would hold them, and the memories after."""
        way, nodes = self.travel.station, problem.num_nodes
        packer, _ = self._packers(problem)
        steps = jax.vmap(way.rounds)(held.stations)
        keys = packer.keys(senders, nodes + 1 + jnp.arange(self.travel.cells), steps)
        messages = jax.vmap(way.message)(held.stations)
        return packer.send((held.links or NO_LINKS).down, messages[cell], keys[cell])

    def _questions(
        self, held: HierarchyHeld, problem: Learnable, senders: Senders
    ) -> tuple[Array, Array]:
        """Return what the stations ask the root as it would hold it, and the memories after."""
        way, nodes = self.travel, problem.num_nodes
        packer, _ = self._packers(problem)
        numbers = nodes + 1 + way.cells + jnp.arange(way.cells)
        keys = packer.keys(senders, numbers, jax.vmap(way.station.rounds)(held.stations))
        questions = jax.vmap(way.asked)(held.stations)
        return packer.send((held.links or NO_LINKS).asked, questions, keys)

    def _root_answers(
        self, links: Links | None, problem: Learnable, root: State, senders: Senders
    ) -> tuple[Array, Array]:
        """Return the root's message as each station would hold it, and the memories after."""
        way, cells = self.travel.root, self.travel.cells
        _, packer = self._packers(problem)
        message = jnp.broadcast_to(way.message(root), (cells, *way.message(root).shape))
        number, step = (
            jnp.full(cells, problem.num_nodes),
            jnp.broadcast_to(way.rounds(root), (cells,)),
        )
        return packer.send(links, message, packer.keys(senders, number, step))

    def prices(self, problem: Learnable) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the bits of an upload, of a station's question and answer, and of the root's."""
        way = self.travel
        up, _ = super().prices(problem)
        station = self.server_prices(problem, way.station, problem.num_nodes)[0]
        root = self.server_prices(problem, way.root, way.cells)[0]
        first = jax.eval_shape(
            lambda w: way.asked(way.station.init(w, problem.num_nodes)), problem.initial
        )
        packing = self._packers(problem)[0].packing
        (asked,) = forms_of(packing, None, first.size, problem.dim, problem.initial.dtype)
        return up, (station, asked, root)

    def on_air(self, events: Events, present: Array) -> OnAir:
        """Return how long nodes and stations sent and listened."""
        upload, download, *_ = events
        if not self.told(upload.airtime) or not self.told(download.airtime):
            return OnAir.nothing(len(present))
        member = self._member(len(present))
        return around(upload, download, present, member)

    def measures(self, held: HierarchyHeld) -> dict[str, Array]:
        """Return what the network has measured so far."""
        return self.network.star().measures(held.network)

    def model(self, held: HierarchyHeld, problem: Learnable, params: Array) -> Array:
        """Return the mean of the stations' models by their cells' shares."""
        del params
        share = jnp.dot(self._member(problem.num_nodes), problem.share, precision="highest")
        models = jax.vmap(self.travel.station.params)(held.stations)
        return jnp.dot(share, models, precision="highest")

    def centre(self, w: Array, problem: Learnable, models: Array) -> Array:
        """Return the mean of what the nodes would deploy."""
        del w
        return mean_model(problem, models)

    def rounds(self, held: HierarchyHeld) -> Array:
        """Return the root's aggregations."""
        return self.travel.root.rounds(held.root)

    def timeline(
        self, stamps: NDArray[np.int32], finished: NDArray[np.bool_], events: Events
    ) -> HierarchyTimeline:
        """Return the transfers of both levels."""
        del stamps
        upload, download, asked, told = events
        return HierarchyTimeline(
            up_started=upload.started,
            up_arrived=upload.arrived,
            down_started=download.started,
            down_arrived=download.arrived,
            root_up_started=asked.started,
            root_up_arrived=asked.arrived,
            root_down_started=told.started,
            root_down_arrived=told.arrived,
            finished=finished,
        )

    def ages(self, held: HierarchyHeld, slot: Array) -> Array:
        """Return the ages of the models in use, (node,)."""
        return slot - held.held

    def unheard(self, held: HierarchyHeld) -> Array:
        """Return the nodes that have only the first model."""
        return jnp.sum(held.held == 0, dtype=jnp.int32)

    def paired(self, ages: NDArray) -> NDArray:
        """Return the ages of the server's model at the nodes; the server stands last."""
        return behind_nodes(ages)

    def view(self, held: HierarchyHeld, slot: int) -> View:
        """Return the ages of the stations' models at the nodes; the stations are drawn as one."""
        nodes = len(held.held)
        ages = behind_nodes(slot - np.asarray(held.held))
        return View(ages, np.full(nodes + 1, -1, np.int32), servers=1)


def _server_keys(key: Array, cells: int) -> Array:
    """Return the keys of the stations and, last, of the root."""
    return jax.random.split(jax.random.fold_in(key, int(Stream.SERVER)), cells + 1)


def _numbers(masks: list[Array]) -> Array:
    return jnp.stack([jnp.sum(mask, dtype=jnp.int32) for mask in masks])


def by_hand(
    world: World, timeline: HierarchyTimeline, algorithm: Algorithm, nodes: list[Learner]
) -> FinalParameters:
    """Follow a timeline in cells, one node and one station at a time."""
    way: Hierarchy = algorithm.travel  # type: ignore[assignment] - the way has this type
    share, number = world.shares(), len(nodes)
    cell_of = np.arange(number) % way.cells
    cell_share = np.array([share[cell_of == c].sum() for c in range(way.cells)])
    stations = [way.station.init(world.problem.initial, number) for _ in range(way.cells)]
    root = way.root.init(world.problem.initial, way.cells)
    up = [node.message() * 0.0 for node in nodes]
    finite, heard = np.ones(number, bool), np.zeros(number, bool)
    coming, root_coming = np.zeros(number, bool), np.zeros(way.cells, bool)
    down = [np.array(way.station.message(stations[c])) for c in cell_of]  # what is carried
    got = list(down)  # what arrived last
    asked = [np.array(way.asked(station)) * 0.0 for station in stations]
    told = [np.array(way.root.message(root))] * way.cells
    senders = [Sender(world, node.message(), adds=False) for node in nodes]
    to_nodes = [Sender(world, first, adds=False, server=True) for first in down]
    to_root = [
        Sender(world, np.array(way.asked(station)), adds=False, server=True) for station in stations
    ]
    to_stations = [Sender(world, first, adds=False, server=True) for first in told]
    formed, held = np.zeros(number, int), np.zeros(number, int)
    for t in range(len(timeline.finished)):
        there = world.present(t)
        for i in np.flatnonzero(there):
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
        *station_keys, root_key = _server_keys(world.slot_key(t), way.cells)
        for c, station_key in enumerate(station_keys):
            own = cell_of == c
            inbox = written_out(
                up,
                weight=share * own,
                own_weight=0.0,
                heard=timeline.up_arrived[t] & own,
                age=np.zeros(number, int),
                finite=finite,
                coming=coming & own,
            )
            stations[c] = serve(stations[c], way.station, inbox, station_key)
            if timeline.root_up_started[t, c]:
                step = int(way.station.rounds(stations[c]))
                question = np.array(way.asked(stations[c]), np.float64)
                asked[c] = to_root[c].take(question, number + 1 + way.cells + c, step)
            if timeline.root_up_arrived[t, c]:
                to_root[c].arrived()
        root_coming = (root_coming | timeline.root_up_started[t]) & ~timeline.root_up_arrived[t]
        whole = np.array([bool(np.isfinite(model).all()) for model in asked])
        inbox = written_out(
            [
                model if good else np.zeros_like(model)
                for model, good in zip(asked, whole, strict=True)
            ],
            weight=cell_share,
            own_weight=0.0,
            heard=timeline.root_up_arrived[t],
            age=np.zeros(way.cells, int),
            finite=whole,
            coming=root_coming,
        )
        root = serve(root, way.root, inbox, root_key)
        for c in range(way.cells):
            if timeline.root_down_started[t, c]:
                answer = np.array(way.root.message(root), np.float64)
                told[c] = to_stations[c].take(answer, number, int(way.root.rounds(root)))
            if timeline.root_down_arrived[t, c]:
                to_stations[c].arrived()
                stations[c] = way.hears(stations[c], jnp.asarray(told[c]))
        coming = coming & ~timeline.down_started[t]
        root_coming = root_coming & ~timeline.root_down_started[t]
        for i in np.flatnonzero(timeline.down_started[t]):
            c = int(cell_of[i])
            answer = np.array(way.station.message(stations[c]), np.float64)
            step = int(way.station.rounds(stations[c]))
            down[i], formed[i] = to_nodes[i].take(answer, number + 1 + c, step), t + 1
        for i in np.flatnonzero(timeline.down_arrived[t]):
            to_nodes[i].arrived()
            got[i] = down[i]
        heard = timeline.down_arrived[t] | (heard & ~there)
        held = np.where(timeline.down_arrived[t], formed, held)
    models = np.stack([np.array(way.station.params(station)) for station in stations])
    params = np.stack([node.params() for node in nodes])
    return FinalParameters(cell_share @ models, params)
