"""What a run costs in joules: time on the air, time listening, and gradients.

    E = P_tx t_tx + P_rx t_rx + sum_i g_i O_i e + P_idle t I
    P_tx = P / efficiency + P_circuit

with t_tx and t_rx the seconds that all nodes together send and listen, P the radiated power, g_i
the gradients of node i, O_i the floating-point operations of one of them, e the joules of an
operation, t the time and I the number of nodes. What a station spends is counted apart: it has
mains, the nodes have batteries.

The radio and a shared channel know how long they are in use. The other delay laws say how old
copies are and not how long anyone sends: there a message takes its bits / `link_bits_per_s`.

The defaults, with their sources:

    radiated_w               that of the network: 30 dBm = 1 W in the paper's Table III
    amplifier_efficiency     0.35, class A/AB [1]
    transmit_circuit_w       83 mW: mixer 30.3, filter 2.5, synthesizer 50 [1]
    receive_w                106 mW: amplifiers 20 and 3, mixer 30.3, filter 2.5, synthesizer 50 [1]
    joules_per_operation     kappa f^2 of one cycle with kappa = 1e-28 [2] at 1 GHz, one operation
                             per cycle: 0.1 nJ. An instruction takes about 70 pJ in 45 nm [3]
    link_bits_per_s          10 MHz at 1 bit/s/Hz, the rate at the paper's threshold of 0 dB

[1] Cui, Goldsmith, Bahai. Energy-constrained modulation optimization. IEEE TWC 4(5), 2005. The
    numbers are as recalled and were not verified.
[2] Yang, Chen, Saad, Hong, Shikh-Bahaei. Energy efficient federated learning over wireless
    communication networks. IEEE TWC 20(3), 2021, arXiv:1911.02417. Its model is kappa C D f^2; the
    value of kappa is that of most papers on edge computing, its own was not verified.
[3] Horowitz. Computing's energy problem. ISSCC 2014. As recalled, not verified.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import inf
from typing import NamedTuple

from folkman.checks import require

__all__ = ["PAPER_POWER_W", "Energy", "Joules", "Spent", "joules"]

PAPER_POWER_W = 1.0
"""Radiated where neither the table nor the network says a power: the paper's 30 dBm."""


@dataclass(frozen=True)
class Energy:
    """The powers of a node's radio, and what its arithmetic costs."""

    # power that a sender radiates; None: the network's own, or 1 W where it has none
    radiated_w: float | None = None
    amplifier_efficiency: float = 0.35  # share of the amplifier's power that is radiated
    transmit_circuit_w: float = 0.0828  # power of the circuits while sending, besides the amplifier
    receive_w: float = 0.1058  # power drawn while receiving
    idle_w: float = 0.0  # power drawn all the time; what is above comes on top
    joules_per_operation: float = 1e-10  # energy of one arithmetic operation of a gradient
    # energy of a gradient; None: by the operations of the model
    joules_per_gradient: float | None = None
    link_bits_per_s: float = 10e6  # rate of a link, where the network has none of its own

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None or field.name in ("amplifier_efficiency", "link_bits_per_s"):
                continue
            require(
                0 <= value < inf,
                f"{field.name} must be finite and not negative, got {value}; 0 costs nothing",
            )
        require(
            0 < self.amplifier_efficiency <= 1,
            "amplifier_efficiency is the share of the amplifier's power that is radiated, above 0 "
            f"and at most 1, got {self.amplifier_efficiency}; 0.35 is usual",
        )
        require(
            0 < self.link_bits_per_s < inf,
            f"link_bits_per_s must be positive and finite, got {self.link_bits_per_s}; "
            "10e6 is the paper's band at 1 bit/s/Hz",
        )

    def transmit_w(
        self,
        # what the network says that a node radiates; None: nothing
        network_power_w: float | None = None,
    ) -> float:
        """Return what a radio draws while it sends, P / efficiency + P_circuit."""
        radiated_w = self.radiated_w
        if radiated_w is None:
            radiated_w = PAPER_POWER_W if network_power_w is None else network_power_w
        return radiated_w / self.amplifier_efficiency + self.transmit_circuit_w


class Spent(NamedTuple):
    """What all nodes together have done, and the stations."""

    seconds: float  # since slot 0
    num_nodes: int
    transmit_s: float
    receive_s: float
    station_transmit_s: float
    station_receive_s: float
    gradients: Sequence[int]  # of each node
    operations: Sequence[float]  # of one gradient of each node


class Joules(NamedTuple):
    """What the nodes have spent, and the stations."""

    transmit: float
    receive: float
    compute: float
    idle: float
    station: float  # for sending and listening; not in `nodes`

    @property
    def nodes(self) -> float:
        """Return what all nodes together have spent."""
        return self.transmit + self.receive + self.compute + self.idle


def joules(energy: Energy, spent: Spent, network_power_w: float | None = None) -> Joules:
    """Return what has been spent in joules; a station's radio draws what a node's does."""
    transmit_w, receive_w = energy.transmit_w(network_power_w), energy.receive_w
    if energy.joules_per_gradient is not None:
        compute = energy.joules_per_gradient * sum(spent.gradients)
    else:
        pairs = zip(spent.gradients, spent.operations, strict=True)
        compute = energy.joules_per_operation * sum(number * each for number, each in pairs)
    return Joules(
        transmit=transmit_w * spent.transmit_s,
        receive=receive_w * spent.receive_s,
        compute=float(compute),
        idle=energy.idle_w * spent.seconds * spent.num_nodes,
        station=transmit_w * spent.station_transmit_s + receive_w * spent.station_receive_s,
    )
