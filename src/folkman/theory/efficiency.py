"""Learning efficiency, rounds and bits: Table I's formulas against what runs measured.

                    kappa,            kappa,            rounds over N slots,   bits,
    method          printed           corrected         corrected              corrected
    fedavg          1/(Gamma+1)       E/(E+Gamma)       N/(E+Gamma)            rounds (I+1) S
    adafl           1/2               tau/(tau+Gamma)   N/(tau+Gamma)          not predicted
    async_sharing   Gamma/(Gamma+1)   1                 N/Gamma                rounds I S

kappa is the share of slots spent computing. Table I counts rounds over J iterations: O(J),
O(J/Gamma), O(J/Gamma). Algorithm 1 computes while it transmits, so that kappa is 1 and not
Gamma/(Gamma+1), unless aggregation itself takes a slot in every Gamma+1. S = b d bits is a message;
AdaFL also uploads a gradient and its tau adapts.

[1] Xie et al. Decentralized Federated Learning with Asynchronous Parameter Sharing for Large-scale
    IoT Networks. IEEE IoT Journal, 2024. Table I.
"""

from math import nan
from typing import NamedTuple

from folkman.checks import require
from folkman.record.run import Run

__all__ = ["Efficiency", "Setting", "compare_efficiency"]


class Setting(NamedTuple):
    """What the formulas need to know of a run."""

    nodes: int
    gamma: int  # slots a sharing round, or up and down of a server's round, takes
    message_bits: int  # bits of a message, S
    local_steps: int = 1  # E, or AdaFL's tau where it is fixed


class Efficiency(NamedTuple):
    """One quantity of one run: measured, as Table I prints it, and corrected."""

    label: str
    quantity: str  # what is compared: kappa, rounds or bits
    measured: float  # value in the run
    printed: float  # value by Table I
    corrected: float  # value by the corrected formula


def compare_efficiency(
    run: Run,  # run to look at
    setting: Setting,  # what the formulas need
) -> list[Efficiency]:
    """Return kappa, rounds and bits of a run beside the formulas.

    Methods that Table I does not list give nothing.
    """
    require(setting.gamma >= 1, f"the formulas need Gamma of at least 1, got {setting.gamma}")
    if run.algorithm not in ("fedavg", "adafl", "async_sharing"):
        return []
    i, gamma, size, steps = setting
    slots, gradients = run.last("slots"), run.last("gradients")
    if run.algorithm == "async_sharing":
        kappa, printed_kappa = 1.0, gamma / (gamma + 1)
        rounds, printed_rounds = slots / gamma, gradients / gamma
        bits = rounds * i * size
    else:
        kappa, printed_kappa = (
            steps / (steps + gamma),
            1 / (gamma + 1) if run.algorithm == "fedavg" else 0.5,
        )
        rounds = slots / (steps + gamma)
        printed_rounds = gradients if run.algorithm == "fedavg" else gradients / gamma
        bits = rounds * (i + 1) * size if run.algorithm == "fedavg" else nan
    rows = [
        ("kappa", printed_kappa, kappa),
        ("rounds", printed_rounds, rounds),
        ("bits", nan, bits),
    ]
    return [
        Efficiency(run.label, name, run.last(name), printed, right) for name, printed, right in rows
    ]
