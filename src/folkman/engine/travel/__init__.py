"""The simulator's half of each way to travel. A new way is one file and one line here."""

from collections.abc import Callable
from typing import NamedTuple

from folkman.algorithm.base import Algorithm
from folkman.algorithm.pieces.hierarchy import Hierarchy
from folkman.algorithm.travel import AllReduce, Broadcast, OnAir, Rounds, Star, Travel
from folkman.engine.learner import FinalParameters
from folkman.engine.travel import all_reduce, hierarchy, on_air, peers, rounds, star
from folkman.engine.travel.medium import Medium
from folkman.radio.delivery import Network
from folkman.radio.trace import PeerTimeline, StarTimeline, Timeline

__all__ = ["WAYS", "Way", "medium_of", "way_of"]


class Way(NamedTuple):
    """How the engine carries a way: all nodes at once, and by hand, one node at a time."""

    medium: type[Medium]
    by_hand: Callable[..., FinalParameters]
    timeline: type[Timeline]


WAYS: dict[type[Travel], Way] = {
    Broadcast: Way(peers.PeerMedium, peers.by_hand, PeerTimeline),
    Rounds: Way(rounds.RoundMedium, rounds.by_hand, PeerTimeline),
    AllReduce: Way(all_reduce.AllReduceMedium, all_reduce.by_hand, PeerTimeline),
    OnAir: Way(on_air.OnAirMedium, rounds.by_hand, PeerTimeline),
    Star: Way(star.StarMedium, star.by_hand, StarTimeline),
    Hierarchy: Way(hierarchy.HierarchyMedium, hierarchy.by_hand, hierarchy.HierarchyTimeline),
}


def way_of(algorithm: Algorithm) -> Way:
    """Return how the engine carries an algorithm's messages."""
    way = WAYS.get(type(algorithm.travel))
    if way is None:
        known = ", ".join(kind.__name__ for kind in WAYS)
        raise ValueError(
            f"{algorithm.name} travels by {type(algorithm.travel).__name__}, which the simulator "
            f"does not carry; known: {known}"
        )
    return way


def medium_of(algorithm: Algorithm, network: Network) -> Medium:
    """Return the medium of an algorithm's messages on a network."""
    return way_of(algorithm).medium(algorithm, network)
