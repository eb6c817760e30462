"""Byte-level nodes of fresh air driven along the events of a band, as a daemon would drive them."""

import numpy as np

from folkman.keys import Stream, make_key
from folkman.packing.packing import NONE
from folkman.radio.unrolled import Unrolled
from folkman.runtime.fresh_node import ForwardNode, SumNode
from folkman.runtime.node import Wire
from folkman.runtime.sum_box import SumRules

KINDS = {"sum": SumNode, "forward": ForwardNode}


def make_nodes(problem, algorithm, message, seed=0, packing=NONE, **rules):
    shares = np.asarray(problem.share)
    nodes = len(shares)
    asked = SumRules(**{"trusted": frozenset(range(nodes)), "paced": True, **rules})
    return [
        KINDS[message](
            i,
            problem.of_node(i),
            algorithm,
            shares,
            wire=Wire(7, packing=packing),
            seed=seed,
            rules=asked,
        )
        for i in range(nodes)
    ]


def play_fresh(problem, network, algorithm, slots, seed=0, on_slot=None, **rules):
    """Return the nodes after some slots, and the stamps that each held in each, (slot, rx, origin).

    `on_slot(slot, nodes)` may do something to them before a slot.
    """
    nodes = make_nodes(problem, algorithm, network.message, seed, network.packing, **rules)
    key = make_key(seed, Stream.DELAY)
    told, wire = Unrolled(network.peers(), len(nodes), nodes[0].bits(), key), {}
    held = []
    for slot in range(slots):
        if on_slot is not None:
            on_slot(slot, nodes)
        held.append([node.stamps() for node in nodes])
        for node in nodes:
            node.freeze()
        frozen = [node.stamps() for node in nodes]
        for node in nodes:
            assert node.wake()
        for event in told.next_slot() if slot else []:
            sender = nodes[event.sender]
            if not event.ends:
                wire[event.number] = sender.carry(event.number, event.origin)[0]
                assert (event.stamps[event.sender] in (-1, frozen[event.sender][event.sender])) or (
                    network.message == "forward"
                )
                continue
            for rx in event.receivers:
                nodes[rx].take(wire[event.number])
    return nodes, np.array(held)
