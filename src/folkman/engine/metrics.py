"""The row of metrics at a recorded slot, from the carry and the host's totals."""

from collections.abc import Hashable
from math import nan
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from folkman.algorithm.base import Algorithm
from folkman.engine.energy_columns import energy_columns
from folkman.engine.node_measures import evaluate, node_columns
from folkman.engine.programs import compiled
from folkman.engine.slot import Carry, Tally
from folkman.engine.travel import medium_of
from folkman.engine.travel.medium import OnAir, Traffic
from folkman.packing.price import forms_of
from folkman.problem.learnable import Learnable
from folkman.problem.operations import gradient_operations
from folkman.radio.delivery import Network

if TYPE_CHECKING:
    from folkman.engine.simulate import Mark, Simulation

__all__ = [
    "Counts",
    "Totals",
    "Uses",
    "cell_measures",
    "network_model",
    "node_models",
    "row_of",
    "spent_columns",
    "traffic_bits",
]


MOST_KNOWN = 16
_KNOWN_PRICES: dict[Hashable, list[list[float]]] = {}
"""Prices of the last few simulations: every row asks for them, and tracing a message takes time."""


class Counts(NamedTuple):
    """`Traffic`, added up on the host in integers of any size."""

    sent: tuple[int, ...]
    sent_copies: tuple[int, ...]
    served: tuple[int, ...]
    served_copies: tuple[int, ...]


class Uses(NamedTuple):
    """`OnAir`, added up on the host in double precision; empty where it is not known."""

    transmit: tuple[float, ...] = ()
    receive: tuple[float, ...] = ()
    station_transmit: float = 0.0
    station_receive: float = 0.0

    @classmethod
    def nothing(cls, nodes: int) -> "Uses":
        """Return that no radio was in use."""
        return cls((0.0,) * nodes, (0.0,) * nodes)

    def plus(self, more: OnAir) -> "Uses":
        """Return the times with those of a tally added; not known stays so."""
        if not self.transmit:
            return self
        return Uses(
            _added(self.transmit, more.transmit),
            _added(self.receive, more.receive),
            self.station_transmit + float(more.station_transmit),
            self.station_receive + float(more.station_receive),
        )


_NO_AGES = np.zeros(0, np.int64)


class Totals(NamedTuple):
    """What the host has added up since slot 0; plain numbers, saved with the carry."""

    gradients: tuple[int, ...]
    busy: tuple[int, ...]
    traffic: Counts
    age_sum: float = 0.0
    age_max: int = 0
    held_ages: NDArray[np.int64] = _NO_AGES  # as those of a tally; empty: not known
    uploads: int = 0
    late_sum: float = 0.0  # versions behind, over the uploads
    late_max: int = 0
    on_air: Uses = Uses()  # in slots

    @classmethod
    def nothing(cls, tally: Tally) -> "Totals":
        """Return the totals before slot 0, in the shape of a tally."""
        none = [(0,) * len(part) for part in tally.traffic]
        ages = np.zeros(tally.held_ages.shape, np.int64)
        counts = (0,) * len(tally.gradients)
        uses = Uses.nothing(len(counts))
        return cls(counts, (0,) * len(tally.busy), Counts(*none), held_ages=ages, on_air=uses)

    def plus(self, tally: Tally) -> "Totals":
        """Return the totals with a tally added."""
        counts: Traffic = tally.traffic
        return Totals(
            _sum(self.gradients, tally.gradients),
            _sum(self.busy, tally.busy),
            Counts(*(_sum(old, new) for old, new in zip(self.traffic, counts, strict=True))),
            self.age_sum + float(tally.age_sum),
            max(self.age_max, int(tally.age_max)),
            self.held_ages + np.asarray(tally.held_ages, np.int64)
            if self.held_ages.size
            else _NO_AGES,
            self.uploads + int(tally.late.uploads),
            self.late_sum + float(tally.late.versions),
            max(self.late_max, int(tally.late.most)),
            self.on_air.plus(tally.on_air),
        )

    def staleness(self) -> dict[str, float]:
        """Return the versions that uploads were behind, mean and largest; NaN without uploads."""
        if not self.uploads:
            return {"staleness": nan, "staleness_max": nan}
        return {"staleness": self.late_sum / self.uploads, "staleness_max": float(self.late_max)}


def _added(totals: tuple[float, ...], more: Array) -> tuple[float, ...]:
    return tuple((np.asarray(totals, np.float64) + np.asarray(more, np.float64)).tolist())


def _sum(totals: tuple[int, ...], counts: Array) -> tuple[int, ...]:
    return tuple((np.asarray(totals, np.int64) + np.asarray(counts, np.int64)).tolist())


def network_model(
    problem: Learnable, network: Network, algorithm: Algorithm, carry: Carry
) -> Array:
    """Return the model of the whole network: the server's, or w = sum_i alpha_i w_i."""
    params = jax.vmap(algorithm.params)(carry.states)
    return medium_of(algorithm, network).model(carry.medium, problem, params)


def cell_measures(
    problem: Learnable, network: Network, algorithm: Algorithm, carry: Carry
) -> tuple[Array, dict[str, Array]]:
    """Return the network's model (d,) and all that is measured on it."""
    w, _, spread = _spread(problem, network, algorithm, carry)
    return w, problem.evaluate(w)._asdict() | spread


def _spread(
    problem: Learnable, network: Network, algorithm: Algorithm, carry: Carry
) -> tuple[Array, Array, dict[str, Array]]:
    """Return the network's model (d,), each node's own (node, d), and how far apart they are."""
    params = jax.vmap(algorithm.params)(carry.states)
    models = params
    medium = medium_of(algorithm, network)
    if algorithm.model is not None:
        inbox, axes = medium.inboxes(carry.medium, problem, carry.slot)
        models = jax.vmap(algorithm.model, (0, axes))(carry.states, inbox)
    w = network_model(problem, network, algorithm, carry)
    apart = jnp.linalg.norm(models - medium.centre(w, problem, models)[None], axis=1)
    norm = jnp.max(jnp.linalg.norm(params, axis=1))
    spread = {
        "consensus": jnp.mean(apart),
        "consensus_max": jnp.max(apart),
        "node_norm": norm,
    }
    return w, models, spread


@compiled()
def _looked_at(
    problem: Learnable, network: Network, algorithm: Algorithm, carry: Carry
) -> tuple[Array, Array, dict[str, Array], Array]:
    """Return what `_spread` does, and how many links have never brought anything."""
    unheard = medium_of(algorithm, network).unheard(carry.medium)
    return *_spread(problem, network, algorithm, carry), unheard


def row_of(simulation: "Simulation", mark: "Mark") -> dict[str, float]:
    """Return the metrics at a mark."""
    problem, network, algorithm, clock, recording, *_ = simulation
    carry, totals = mark
    w, models, spread, unheard = _looked_at(problem, network, algorithm, carry)
    slots, finished = int(carry.slot), sum(totals.gradients)
    bits, bits_unicast = traffic_bits(simulation, totals)
    measured = {name: float(value) for name, value in evaluate(problem, w)._asdict().items()}
    row = {
        "slots": slots,
        "seconds": slots * clock.slot_s,
        "gradients": finished / problem.num_nodes,
        "rounds": _rounds(simulation, mark),
        "bits": bits,
        **measured,
        **{name: float(value) for name, value in spread.items()},
        "mean_age": totals.age_sum / finished if finished else 0.0,
        "max_age": totals.age_max,
        **totals.staleness(),
        "pairs_unheard": float(unheard),
        "kappa": sum(totals.busy) / (slots * problem.num_nodes) if slots else 0.0,
        "gradients_max": max(totals.gradients),
        "bits_unicast": bits_unicast,
        "gamma_t": nan,
        "gamma_w": nan,
        **{
            name: float(value)
            for name, value in medium_of(algorithm, network).measures(carry.medium).items()
        },
        **spent_columns(simulation, totals, problem, slots, measured["test_accuracy"]),
    }
    if algorithm.declares.measures is not None:
        own = algorithm.declares.measures(carry.states)
        row |= {name: float(value) for name, value in own.items()}
    if recording.nodes:
        row |= node_columns(problem, models)
    return row


def _rounds(simulation: "Simulation", mark: "Mark") -> float:
    """Return the server's aggregations, or the broadcasts of a node on average."""
    rounds = simulation.medium.rounds(mark.carry.medium)
    if rounds is not None:
        return float(rounds)
    return sum(mark.totals.traffic.sent) / simulation.problem.num_nodes


def traffic_bits(simulation: "Simulation", totals: Totals) -> tuple[int, int]:
    """Return the bits on air with a broadcast counted once, and with each receiver counted."""
    up, copies, down = _on_air(simulation)
    sent, sent_copies, served, served_copies = totals.traffic
    once = _priced(sent, up) + _priced(served, down)
    return once, _priced(sent_copies, copies) + _priced(served_copies, down)


def spent_columns(
    simulation: "Simulation", totals: Totals, problem: Learnable, slots: int, accuracy: float
) -> dict[str, float]:
    """Return the columns of energy; `problem` may be that of many cells."""
    operations = gradient_operations(problem).reshape(-1).tolist()
    prices = _on_air(simulation)
    return energy_columns(simulation, totals, prices, operations, slots, accuracy)


def _on_air(simulation: "Simulation") -> list[list[float]]:
    """Return what each form of a node's message, a copy of it and a server's message costs."""
    problem, network, algorithm = simulation.problem, simulation.network, simulation.algorithm
    alike = (algorithm, network, problem.dim, problem.num_nodes, problem.initial.dtype)
    try:
        known = _KNOWN_PRICES.get(alike)
    except TypeError:  # a network with arrays of its own has no hash
        alike, known = None, None
    if known is not None:
        return known
    medium = medium_of(algorithm, network)
    up, down = medium.prices(problem)
    price, copies = algorithm.declares.price, up
    if price is not None and price.copy_bits is not None:
        entries, packing = medium.entries(problem), medium.sending(problem).packing
        dtype = problem.initial.dtype
        copies = forms_of(packing, price.copy_bits, entries, problem.dim, dtype)
    found = [
        [float(np.asarray(network.payload_bits(bits))) for bits in side]
        for side in (up, copies, down)
    ]
    if alike is not None:
        while len(_KNOWN_PRICES) >= MOST_KNOWN:
            _KNOWN_PRICES.pop(list(_KNOWN_PRICES)[0], None)  # noqa: RUF015 - safe between threads
        _KNOWN_PRICES[alike] = found
    return found


def _priced(counts: tuple[int, ...], each: list[float]) -> int:
    return round(sum(count * price for count, price in zip(counts, each, strict=True)))


def node_models(simulation: "Simulation", mark: "Mark") -> tuple[Array, Array]:
    """Return what each node would deploy (node, d), and before it what these are compared with."""
    problem, network, algorithm, *_ = simulation
    w, models, *_ = _looked_at(problem, network, algorithm, mark.carry)
    return simulation.medium.centre(w, problem, models), models
