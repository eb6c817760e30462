"""A node that carries sums or passes copies on, built from its file; and whom it trusts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from folkman.algorithm.base import Algorithm
from folkman.checks import require
from folkman.problem.learnable import Learnable
from folkman.problem.objective import shares
from folkman.radio.delivery import Network, below
from folkman.radio.serial import pair_weights
from folkman.runtime.core.fresh_beat import FreshBeat
from folkman.runtime.core.fresh_slots import FreshSlots
from folkman.runtime.core.pace import Pace
from folkman.runtime.fresh_air import FreshAir, checked_band
from folkman.runtime.fresh_node import ForwardNode, FreshNode, SumNode, check_method
from folkman.runtime.identity import name_of, number_of
from folkman.runtime.node import Wire
from folkman.runtime.sum_box import SumRules

if TYPE_CHECKING:
    from folkman.runtime.assembly import NodeConfig, Task

__all__ = ["check_fresh", "fresh_node", "fresh_pace", "trusted_with_sums"]


def check_fresh(algorithm: Algorithm, network: Network, *, emulated: bool) -> None:
    """Refuse what devices cannot carry."""
    check_method(algorithm, network.message)
    if emulated:
        checked_band(network.peers())


def trusted_with_sums(message: str, given: str | Sequence[str], num_nodes: int) -> frozenset[int]:
    """Return whose sums a node takes; refuse one that is to hear sums and trusts nobody."""
    require(
        message != "sum" or bool(given),
        "message = 'sum' lets every neighbour speak for all nodes, which no signature can check; "
        "say who is trusted with sums, for instance [trust] sums = 'members' in the node's file "
        "(folkman up: --node-set trust.sums=members), or use message = 'forward'",
    )
    if given == "members":
        return frozenset(range(num_nodes))
    found = frozenset(number_of(name) for name in given)
    strange = sorted(name_of(number) for number in found if number >= num_nodes)
    require(
        not strange,
        f"[trust] sums names {', '.join(strange)}, expected nodes below {num_nodes}; "
        "leave them out",
    )
    return found


def fresh_node(
    config: "NodeConfig",
    task: "Task",
    problem: Learnable,
    built: tuple[Algorithm, Network],
    wire: Wire,
) -> FreshNode:
    """Build the node."""
    algorithm, network = built
    alpha = shares(config.samples, task.comparison.objective)
    weights = getattr(below(network), "weights", "alike")
    rules = SumRules(
        trusted=trusted_with_sums(network.message, config.trust.sums, len(alpha)),
        omega=np.asarray(pair_weights(weights, len(alpha))),
        room=config.past,
        paced=config.radio == "emulated",
        thrift=getattr(below(network), "thrift", 1.0),
    )
    kind = {"sum": SumNode, "forward": ForwardNode}[network.message]
    return kind(config.number, problem, algorithm, alpha, seed=task.seed, wire=wire, rules=rules)


def fresh_pace(config: "NodeConfig", task: "Task", network: Network, node: FreshNode) -> Pace:
    """Build when it learns and sends, with its view of an emulated band."""
    if config.radio != "emulated":
        return FreshBeat(node, config.period_timeout_s)
    nodes, bits = len(config.samples), node.bits()
    air = FreshAir(network.peers(), nodes, node.index, seed=task.seed, message_bits=bits)
    return FreshSlots(air)
