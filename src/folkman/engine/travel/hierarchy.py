"""In cells: nodes around stations, stations around a root."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from folkman.algorithm.base import Algorithm, State
from folkman.algorithm.pieces.hierarchy import Hierarchy
from folkman.algorithm.pieces.one_node import serve
from folkman.engine.learner import FinalParameters, Learner, Sender, Vector, World, written_out
from folkman.engine.travel.medium import (
    Ending,
    Events,
    Traffic,
    View,
    in_bits,
)
from folkman.engine.travel.sending import Links, Senders, Sending, distinct
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


class HierarchyMedium(ServedMedium):
    """Nodes in cells."""

    travel: Hierarchy
    forms_on_air = slice(0, 1)  # those of stations to nodes; stations and the root have a wire

    def _backhaul(self) -> StarNetwork:
        """Return the links between stations and the root."""
        network = below(self.network)
        if isinstance(network, HierarchyReplay):
            return network.backhaul()
        return constant(self.travel.backhaul_slots).star()

    def members(self, num_nodes: int) -> Array:
        """Return whose station is whose, (cell, node) bool."""
        return (
            jnp.arange(num_nodes)[None] % self.travel.cells
            == jnp.arange(self.travel.cells)[:, None]
        )

    def open(self, problem: Learnable, states: State, key: Array) -> HierarchyHeld:
        """Let everyone hold the first model."""
        way, nodes, cells = self.travel, problem.num_nodes, self.travel.cells
        up = jax.vmap(self.algorithm.message)(states)
        one = way.station.init(problem.initial, nodes)
        stations = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (cells, *leaf.shape)), one)
        root = way.root.init(problem.initial, cells)
        answer, asked, told = way.station.message(one), way.asked(one), way.root.message(root)
        return HierarchyHeld(
            **first_fields(up, answer),
            network=self.network.star().init(nodes, key),
            backhaul=self._backhaul().init(cells, key),
            stations=stations,
            root=root,
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

    def exchange(
        self, held: HierarchyHeld, ending: Ending
    ) -> tuple[HierarchyHeld, Traffic, Events]:
        """Upload, let the stations act, let the root act, answer."""
        star, nodes = self.network.star(), ending.nodes
        problem, slot, senders, key = ending.problem, ending.slot, ending.senders, ending.key
        messages, offers, _, bits, present = self.offered(ending)
        up_key, down_key = jax.random.split(key)
        links = held.links or NO_LINKS
        sending = self.sending(problem)
        messages, memory = sending.send(
            links.up, messages, sending.keys(senders, problem.node, senders.steps)
        )
        before = self.attended(star, held.network, ending)
        network, upload = star.uplink(before, offers, bits, up_key)
        held = held._replace(**with_uploads(held, messages, upload), network=network)
        held = self._let_stations_act(held, problem, upload.arrived, key)
        held, asked, told = self._let_root_act(held, problem, slot, senders, key)

        way, member = self.travel, self.members(nodes)
        cell = jnp.arange(nodes) % way.cells
        offered = jax.vmap(way.station.offers)(held.stations)  # (cell, node)
        owed = held.owed | jnp.any(offered & member, axis=0)
        answer, answered = self._answers(held, problem, senders, cell)
        price = in_bits(self.prices(problem)[1])[0]
        network, download = star.downlink(held.network, owed & present, price, down_key)
        served = jax.vmap(lambda own: distinct(links.down, own & download.started))(member)
        moved = held._replace(
            **with_answers(held, answer, download, owed, present, slot), network=network
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

        stations = jax.vmap(act)(held.stations, self.members(problem.num_nodes), keys)
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
        share = jnp.dot(self.members(problem.num_nodes), problem.share, precision="highest")
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

    def model(self, held: HierarchyHeld, problem: Learnable, params: Array) -> Array:
        """Return the mean of the stations' models by their cells' shares."""
        del params
        share = jnp.dot(self.members(problem.num_nodes), problem.share, precision="highest")
        models = jax.vmap(self.travel.station.params)(held.stations)
        return jnp.dot(share, models, precision="highest")

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
    first = [np.array(way.station.message(stations[c])) for c in cell_of]
    served = ServedByHand(world, timeline, algorithm, nodes, first)
    wires = _WiresByHand(world, timeline, way, stations, number)

    def told(node: int) -> tuple[Vector, int, int]:
        station = stations[cell_of[node]]
        answer = np.array(way.station.message(station), np.float64)
        return answer, number + 1 + int(cell_of[node]), int(way.station.rounds(station))

    for t in range(len(timeline.finished)):
        served.learn(t)
        served.upload(t)
        *station_keys, root_key = _server_keys(world.slot_key(t), way.cells)
        for c, station_key in enumerate(station_keys):
            own = cell_of == c
            inbox = served.inbox(t, share * own, own)
            stations[c] = serve(stations[c], way.station, inbox, station_key)
            wires.ask(t, c, stations[c])
        wires.let_root_act(t, cell_share, root_key, stations)
        served.answer(t, told)
    models = np.stack([np.array(way.station.params(station)) for station in stations])
    params = np.stack([node.params() for node in nodes])
    return FinalParameters(cell_share @ models, params)


class _WiresByHand:
    """The root, and what is on the wires between it and the stations."""

    def __init__(
        self,
        world: World,
        timeline: HierarchyTimeline,
        way: Hierarchy,
        stations: list[State],
        num_nodes: int,
    ) -> None:
        self._timeline, self._way, self._num_nodes = timeline, way, num_nodes
        self._root = way.root.init(world.problem.initial, way.cells)
        questions = [np.array(way.asked(station)) for station in stations]
        self._asked = [question * 0.0 for question in questions]
        self._told = [np.array(way.root.message(self._root))] * way.cells
        self._to_root = [Sender(world, each, adds=False, server=True) for each in questions]
        self._to_stations = [Sender(world, each, adds=False, server=True) for each in self._told]
        self._coming = np.zeros(way.cells, bool)

    def ask(self, t: int, cell: int, station: State) -> None:
        """Carry what a station asks."""
        way = self._way
        if self._timeline.root_up_started[t, cell]:
            question = np.array(way.asked(station), np.float64)
            number = self._num_nodes + 1 + way.cells + cell
            step = int(way.station.rounds(station))
            self._asked[cell] = self._to_root[cell].take(question, number, step)
        if self._timeline.root_up_arrived[t, cell]:
            self._to_root[cell].arrived()

    def let_root_act(self, t: int, cell_share: NDArray, key: Array, stations: list[State]) -> None:
        """Give the root what has arrived, carry its answers, and let stations hear them."""
        way, table = self._way, self._timeline
        self._coming = (self._coming | table.root_up_started[t]) & ~table.root_up_arrived[t]
        whole = np.array([bool(np.isfinite(model).all()) for model in self._asked])
        inbox = written_out(
            [
                model if good else np.zeros_like(model)
                for model, good in zip(self._asked, whole, strict=True)
            ],
            weight=cell_share,
            own_weight=0.0,
            heard=table.root_up_arrived[t],
            age=np.zeros(way.cells, int),
            finite=whole,
            coming=self._coming,
        )
        self._root = serve(self._root, way.root, inbox, key)
        for c in range(way.cells):
            if table.root_down_started[t, c]:
                answer = np.array(way.root.message(self._root), np.float64)
                step = int(way.root.rounds(self._root))
                self._told[c] = self._to_stations[c].take(answer, self._num_nodes, step)
            if table.root_down_arrived[t, c]:
                self._to_stations[c].arrived()
                stations[c] = way.hears(stations[c], jnp.asarray(self._told[c]))
        self._coming = self._coming & ~table.root_down_started[t]
