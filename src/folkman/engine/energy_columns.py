"""The columns of energy: from what radios and processors did to joules.

Seconds on the air are those that the network tells (`Network.times_air`). Where it tells none, a
message takes its bits at the nominal rate of `Energy`: the sender once, every receiver once.
"""

from collections.abc import Sequence
from math import nan
from typing import TYPE_CHECKING

from folkman.energy import Spent, joules
from folkman.radio.delivery import below
from folkman.record.run import ENERGY_COLUMNS

if TYPE_CHECKING:
    from folkman.engine.metrics import Totals
    from folkman.engine.simulate import Simulation

__all__ = ["energy_columns"]

Prices = Sequence[Sequence[float]]


def energy_columns(
    simulation: "Simulation",
    totals: "Totals",
    prices: Prices,
    operations: Sequence[float],
    slots: int,
    accuracy: float,
) -> dict[str, float]:
    """Return the columns of a row; NaN if an earlier version did not note the time on the air.

    `prices` are the bits of each form of a node's message, of a copy of it, and of a server's
    message; `operations` those of one gradient of each node.
    """
    if not totals.on_air.transmit:
        return dict.fromkeys(ENERGY_COLUMNS, nan)
    times = _told_s(simulation, totals)
    if not simulation.network.times_air:
        times = _nominal_s(simulation, totals, prices)
    seconds, nodes = slots * simulation.clock.slot_s, len(totals.gradients)
    spent = Spent(seconds, nodes, *times, totals.gradients, operations)
    found = joules(simulation.energy, spent, below(simulation.network).power_w)
    return {
        "energy_j": found.nodes,
        "transmit_j": found.transmit,
        "receive_j": found.receive,
        "compute_j": found.compute,
        "station_j": found.station,
        "transmit_s": spent.transmit_s,
        "receive_s": spent.receive_s,
        "joules_per_percent": found.nodes / (100 * accuracy) if accuracy > 0 else nan,
    }


def _told_s(simulation: "Simulation", totals: "Totals") -> tuple[float, float, float, float]:
    """Return the seconds that the network told: nodes sending, listening; stations the same."""
    slot_s, at = simulation.clock.slot_s, totals.on_air
    slots = (sum(at.transmit), sum(at.receive), at.station_transmit, at.station_receive)
    transmit, receive, station_transmit, station_receive = (each * slot_s for each in slots)
    return transmit, receive, station_transmit, station_receive


def _nominal_s(
    simulation: "Simulation", totals: "Totals", prices: Prices
) -> tuple[float, float, float, float]:
    """Return the seconds that the messages take at the nominal rate.

    Around a server a node's message has one receiver, the server; between peers its copies are
    received by nodes. What goes by wire costs nothing.
    """
    own, copies, served = prices
    radio, traffic = simulation.medium.forms_on_air, totals.traffic
    rate = simulation.energy.link_bits_per_s

    def in_s(counts: Sequence[int], each: Sequence[float]) -> float:
        return sum(count * bits for count, bits in zip(counts, each, strict=True)) / rate

    sent_s, copies_s = in_s(traffic.sent, own), in_s(traffic.sent_copies, copies)
    served_s = in_s(traffic.served[radio], served[radio])
    served_copies_s = in_s(traffic.served_copies[radio], served[radio])
    if simulation.medium.has_server:
        return sent_s, served_copies_s, served_s, copies_s
    return sent_s, copies_s, 0.0, 0.0
