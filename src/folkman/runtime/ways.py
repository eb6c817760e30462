"""A device's half of each way to travel: whom a node hears, its pace, and what can be replayed.

A new way is one file and one line here.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from folkman.algorithm.base import Algorithm, State
from folkman.algorithm.travel import Broadcast, Mixing, Rounds, Star
from folkman.arrays import Array, jnp
from folkman.checks import require
from folkman.packing.packing import Packing
from folkman.radio.delivery import Network
from folkman.runtime.codec import SERVER

if TYPE_CHECKING:
    from folkman.runtime.causal import CausalTimeline
    from folkman.runtime.core.pace import Pace
    from folkman.runtime.emulation import Emulation, Trips
    from folkman.runtime.journal import Log

__all__ = ["PeerWay", "RoundWay", "StarWay", "Way", "way_of"]


class Way(ABC):
    """What devices do for one way to travel, with one algorithm."""

    waits: ClassVar[bool] = False
    """Does a node hear all its neighbours at once, or nothing?"""
    loses_nothing: ClassVar[bool] = False
    """Must every message arrive, as someone waits for it?"""
    remembers: ClassVar[bool] = True
    """Can senders have a memory of error feedback?"""

    def __init__(self, algorithm: Algorithm) -> None:
        self.algorithm = algorithm
        self.travel: Any = algorithm.travel

    @abstractmethod
    def senders(self, num_nodes: int) -> int:
        """Return how many a node can hear, numbered from `first_sender`."""

    def first_sender(self, index: int) -> int:
        """Return the number of the first that a node can hear."""
        del index
        return 0

    @abstractmethod
    def weights(self, index: int, shares: NDArray) -> tuple[NDArray, float]:
        """Return the weights of those senders, and the node's own."""

    @abstractmethod
    def first_message(self, state: State, initial: Array, num_nodes: int) -> Array:
        """Return what a node holds of a sender before it hears any."""

    @abstractmethod
    def pace(self, emulation: "Emulation | None" = None, trips: "Trips | None" = None) -> "Pace":
        """Return when a node learns and sends; on an emulated air, by that."""

    @abstractmethod
    def air(
        self, network: Network, num_nodes: int, me: int, *, seed: int, message_bits: int
    ) -> "tuple[Emulation | None, Trips | None]":
        """Return the emulated air: which copies may be used when, or how long messages take."""

    @abstractmethod
    def causal(self, logs: "Mapping[int, Log]", num_nodes: int, *, paced: bool) -> "CausalTimeline":
        """Join the journals of all nodes."""

    @abstractmethod
    def replayed(self, timeline: Any) -> Network:
        """Return the network that repeats a timeline."""

    def check(self, label: str) -> None:
        """Refuse what devices cannot run."""
        del label

    def check_memory(self, packing: Packing, *, emulated: bool = False) -> None:
        """Refuse a packing with error feedback where not everyone hears every message."""
        del emulated
        require(
            not packing.remembers or (self.remembers and not self.varies),
            "error feedback builds each message on the one before, which every receiver must have "
            "heard; in cells and on a graph that changes with the round they have not: leave "
            "feedback out, or choose another topology",
        )

    def offers(self, state: State, *, learnt: bool) -> bool:
        """Tell whether a node has something to send.

        `learnt`: has it taken a gradient since its last message?
        """
        del learnt
        return bool(self.travel.offers(state))

    def servers(self) -> list[int]:
        """Return the numbers of the nodes that hold no data."""
        return []

    def own(self, index: int) -> int | None:
        """Return a node's number among its senders, None if it is not one of them."""
        return index

    @property
    def varies(self) -> bool:
        """Tell whether each round has its own edges."""
        return False

    def weights_in(self, index: int, shares: NDArray, number: int) -> tuple[NDArray, float]:
        """Return the weights of a round, counted from 0, and the node's own."""
        del number
        return self.weights(index, shares)

    def neighbours(self, index: int, weight: NDArray) -> list[int]:
        """Return the numbers of those that a node hears or sends to."""
        return [self.first_sender(index) + int(row) for row in np.flatnonzero(weight)]

    def receivers(self, index: int, weight: NDArray, number: int) -> list[int]:
        """Return the numbers of those that are to hear a node in a round, counted from 0."""
        del number
        return self.neighbours(index, weight)

    def holds_back(self, num_nodes: int) -> bool:
        """Tell whether a sender waits until its receivers have begun a round.

        Where someone hears a node without being heard by it, nothing else keeps the node from
        running ahead.
        """
        del num_nodes
        return False


class PeerWay(Way):
    """Peers on their own beat."""

    travel: Broadcast

    def senders(self, num_nodes: int) -> int:
        """Return all nodes."""
        return num_nodes

    def weights(self, index: int, shares: NDArray) -> tuple[NDArray, float]:
        """Return the data shares, or the mixing weights."""
        row = np.asarray(shares)
        mixing: Mixing | None = self.travel.mixing
        if mixing is not None:
            row = _matrix(mixing, len(shares))[index]
        return _apart(row, index)

    def neighbours(self, index: int, weight: NDArray) -> list[int]:
        """Return the numbers of those that a node hears or sends to."""
        beside = self._beside(len(weight))
        return [int(row) for row in np.flatnonzero(beside[index] | beside[:, index])]

    def receivers(self, index: int, weight: NDArray, number: int) -> list[int]:
        """Return the numbers of those that are to hear a node."""
        del number
        return [int(row) for row in np.flatnonzero(self._beside(len(weight))[:, index])]

    def first_message(self, state: State, initial: Array, num_nodes: int) -> Array:
        """Return the first message of a peer, which is like one's own."""
        del initial, num_nodes
        return self.algorithm.message(state)

    def offers(self, state: State, *, learnt: bool) -> bool:
        """Tell whether the message is new: the method says so, or a gradient has changed it."""
        return learnt if self.travel.has_news is None else super().offers(state, learnt=learnt)

    def check_memory(self, packing: Packing, *, emulated: bool = False) -> None:
        """Refuse error feedback on an emulated channel, too."""
        super().check_memory(packing, emulated=emulated)
        require(
            not (emulated and packing.remembers and not self.waits),
            "error feedback builds each message on the one before, and on the emulated air a node "
            "uses the newest that is due and leaves others out; use radio = 'measured', or leave "
            "feedback out",
        )

    def pace(self, emulation: "Emulation | None" = None, trips: "Trips | None" = None) -> "Pace":
        """Return the pace on measured links, or the one on an emulated channel."""
        del trips
        if emulation is None:
            from folkman.runtime.core.own_beat import OwnBeat  # here: a node has one pace

            return OwnBeat()
        from folkman.runtime.core.slots import EmulatedSlots  # here: few nodes emulate

        return EmulatedSlots(emulation)

    def air(
        self, network: Network, num_nodes: int, me: int, *, seed: int, message_bits: int
    ) -> "tuple[Emulation | None, Trips | None]":
        """Return the node's view of the simulated channel."""
        from folkman.runtime.emulation import Emulation  # here: few nodes emulate

        self.check_memory(network.packing, emulated=True)
        peers = network.peers()
        return Emulation(peers, num_nodes, me, seed=seed, message_bits=message_bits), None

    def causal(self, logs: "Mapping[int, Log]", num_nodes: int, *, paced: bool) -> "CausalTimeline":
        """Join the journals of peers."""
        from folkman.runtime.causal import between_peers  # here: a node replays nothing

        return between_peers(logs, self._beside(num_nodes), paced=paced, rounds=False)

    def replayed(self, timeline: Any) -> Network:
        """Return the network that repeats who held what."""
        from folkman.radio.replay import replay  # here: a node replays nothing

        return replay(timeline)

    def _beside(self, num_nodes: int) -> NDArray[np.bool_]:
        others = ~np.eye(num_nodes, dtype=bool)
        mixing = self.travel.mixing
        return others if mixing is None else (_matrix(mixing, num_nodes) > 0) & others


def _matrix(mixing: Mixing, num_nodes: int) -> NDArray:
    """Return the weights (rx, tx) where everyone hears everyone, or of all rounds together."""
    return np.asarray(mixing.weights(jnp.ones((num_nodes, num_nodes), bool)))


def _apart(row: NDArray, index: int) -> tuple[NDArray, float]:
    """Return a row of weights without the node's own, and that."""
    return np.where(np.arange(len(row)) != index, row, 0.0), float(row[index])


class RoundWay(PeerWay):
    """Peers in lock-step."""

    travel: Rounds  # type: ignore[assignment] - it mixes as peers do
    waits = True
    loses_nothing = True

    def check(self, label: str) -> None:
        """Refuse rounds along the radio's schedule."""
        mixing = self.travel.mixing
        require(
            mixing is None or mixing.waits,
            f"'{label}' mixes along the radio's schedule, which devices do not share; "
            "use another topology",
        )

    def offers(self, state: State, *, learnt: bool) -> bool:
        """Tell whether the node's part of the round is done."""
        return Way.offers(self, state, learnt=learnt)

    @property
    def varies(self) -> bool:
        """Tell whether each round has its own edges."""
        mixing = self.travel.mixing
        return mixing is not None and mixing.in_round is not None

    def weights_in(self, index: int, shares: NDArray, number: int) -> tuple[NDArray, float]:
        """Return the weights of a round, counted from 0, and the node's own."""
        if not self.varies:
            return self.weights(index, shares)
        return _apart(self._of_round(len(shares), number)[index], index)

    def receivers(self, index: int, weight: NDArray, number: int) -> list[int]:
        """Return the numbers of those that are to hear a node in a round, counted from 0."""
        if not self.varies:
            return super().receivers(index, weight, number)
        column = self._of_round(len(weight), number)[:, index]
        return [int(row) for row in np.flatnonzero(column) if row != index]

    def holds_back(self, num_nodes: int) -> bool:
        """Tell whether a sender waits until its receivers have begun a round."""
        beside = self._beside(num_nodes)
        return self.varies or bool((beside != beside.T).any())

    def _of_round(self, num_nodes: int, number: int) -> NDArray:
        mixing = self.travel.mixing
        assert mixing is not None and mixing.in_round is not None  # noqa: S101, PT018 - it varies
        return np.asarray(mixing.in_round(num_nodes, jnp.asarray(number)))

    def pace(self, emulation: "Emulation | None" = None, trips: "Trips | None" = None) -> "Pace":
        """Return the pace of those who wait."""
        from folkman.runtime.core.rounds import InRounds  # here: a node has one pace

        del emulation
        return InRounds(trips)

    def air(
        self, network: Network, num_nodes: int, me: int, *, seed: int, message_bits: int
    ) -> "tuple[Emulation | None, Trips | None]":
        """Return how long a round takes."""
        from folkman.runtime.emulation import RoundTrips  # here: few nodes emulate

        del me
        rounds = network.rounds()
        beside = self._beside(num_nodes)  # as the simulator serves them: edges, and no other pairs
        return None, RoundTrips(rounds, beside, seed=seed, message_bits=message_bits)

    def causal(self, logs: "Mapping[int, Log]", num_nodes: int, *, paced: bool) -> "CausalTimeline":
        """Join the journals of peers in lock-step, whose slots have no common clock."""
        from folkman.runtime.causal import between_peers  # here: a node replays nothing

        del paced
        return between_peers(logs, self._beside(num_nodes), paced=False, rounds=True)

    def replayed(self, timeline: Any) -> Network:
        """Return the network that repeats rounds."""
        from folkman.radio.replay import replay_rounds  # here: a node replays nothing

        return replay_rounds(timeline)


class StarWay(Way):
    """Around a server."""

    travel: Star
    loses_nothing = True

    def first_sender(self, index: int) -> int:
        """Return the server."""
        del index
        return SERVER

    def senders(self, num_nodes: int) -> int:
        """Return the server alone."""
        del num_nodes
        return 1

    def weights(self, index: int, shares: NDArray) -> tuple[NDArray, float]:
        """Return all weight for the server."""
        del index, shares
        return np.ones(1), 0.0

    def first_message(self, state: State, initial: Array, num_nodes: int) -> Array:
        """Return the server's first message."""
        del state
        server = self.travel.server
        return server.message(server.init(initial, num_nodes))

    def pace(self, emulation: "Emulation | None" = None, trips: "Trips | None" = None) -> "Pace":
        """Return the pace of those who wait."""
        from folkman.runtime.core.rounds import InRounds  # here: a node has one pace

        del emulation
        return InRounds(trips)

    def air(
        self, network: Network, num_nodes: int, me: int, *, seed: int, message_bits: int
    ) -> "tuple[Emulation | None, Trips | None]":
        """Return how long uploads and answers take."""
        from folkman.runtime.emulation import StarTrips  # here: few nodes emulate

        del me
        star = network.star()
        return None, StarTrips(star, num_nodes, seed=seed, message_bits=message_bits)

    def causal(self, logs: "Mapping[int, Log]", num_nodes: int, *, paced: bool) -> "CausalTimeline":
        """Join the journals of the nodes and the server."""
        from folkman.runtime.causal import around_server  # here: a node replays nothing

        del num_nodes, paced
        return around_server(logs)

    def replayed(self, timeline: Any) -> Network:
        """Return the network that repeats transfers."""
        from folkman.radio.replay import replay_star  # here: a node replays nothing

        return replay_star(timeline)

    def servers(self) -> list[int]:
        """Return the server."""
        return [SERVER]

    def own(self, index: int) -> int | None:
        """Return nothing: a node hears the server alone."""
        del index
        return None


WAYS = {
    "Broadcast": "folkman.runtime.ways:PeerWay",
    "Rounds": "folkman.runtime.ways:RoundWay",
    "OnAir": "folkman.runtime.ways:RoundWay",
    "Star": "folkman.runtime.ways:StarWay",
    "Hierarchy": "folkman.runtime.hierarchy:HierarchyWay",
}
"""Where each way is, by the name of its type: a node imports its own alone."""


def way_of(algorithm: Algorithm) -> Way:
    """Return what devices do for an algorithm's way to travel."""
    kind = type(algorithm.travel).__name__
    if kind not in WAYS:
        raise ValueError(
            f"{algorithm.name} travels by {kind}, which devices do not carry; "
            f"known: {', '.join(WAYS)}"
        )
    module, name = WAYS[kind].split(":")
    return getattr(import_module(module), name)(algorithm)
