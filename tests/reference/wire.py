"""Byte-level nodes driven along a recorded timeline, as sockets would drive them."""

import numpy as np

from folkman import Node, ServerNode
from folkman.engine.travel.hierarchy import HierarchyTimeline
from folkman.packing.packing import NONE
from folkman.radio.trace import PeerTimeline
from folkman.runtime.hierarchy import RootNode, StationNode
from folkman.runtime.node import Wire

RUN = 7


def make_nodes(problem, algorithm, seed, wire):
    shares = np.asarray(problem.share)
    return [
        Node(i, problem.of_node(i), algorithm, shares, wire=wire, seed=seed)
        for i in range(problem.num_nodes)
    ]


def play(problem, timeline, algorithm, seed=0, packing=NONE):
    """Return the nodes' parameters and the server's model (None between peers) at the end of the
    timeline."""
    wire = Wire(RUN, packing=packing)
    nodes = make_nodes(problem, algorithm, seed, wire)
    if isinstance(timeline, PeerTimeline):
        _play_peers(nodes, timeline)
        model = None
    elif isinstance(timeline, HierarchyTimeline):
        model = _play_cells(nodes, problem, algorithm, seed, timeline, wire)
    else:
        model = _play_star(
            nodes,
            ServerNode(problem.initial, algorithm, np.asarray(problem.share), wire=wire, seed=seed),
            timeline,
        )
    assert not any(node.mailbox.refused for node in nodes)
    return np.stack([node.params() for node in nodes]), model


def _play_peers(nodes, timeline):
    held, wire = timeline.held, {}  # (sender, stamp) -> bytes
    for t in range(len(held)):
        for rx, tx in np.argwhere(held[t] != held[max(t - 1, 0)]):
            if rx != tx:
                assert nodes[rx].receive(wire[tx, held[t, rx, tx]])
        for i, node in enumerate(nodes):
            assert node.wake() == timeline.finished[t, i]
        for tx in np.flatnonzero(timeline.sends[t]):
            wire[tx, t + 1] = nodes[tx].send()


def _play_star(nodes, server, timeline):
    uploads, answers = {}, {}
    for t in range(len(timeline.finished)):
        for i, node in enumerate(nodes):
            assert node.wake() == timeline.finished[t, i]
            if timeline.up_started[t, i]:
                assert node.offers()
                uploads[i] = node.send()
        for i in np.flatnonzero(timeline.up_arrived[t]):
            assert server.receive(uploads[i])
        server.wake()
        if timeline.down_started[t].any():
            answers |= server.answers(np.flatnonzero(timeline.down_started[t]).tolist())[0]
        for i in np.flatnonzero(timeline.down_arrived[t]):
            assert nodes[i].receive(answers[i])
    return np.asarray(server.server.params(server.state))


def _play_cells(nodes, problem, algorithm, seed, timeline, wire):
    shares, cells = np.asarray(problem.share), algorithm.travel.cells
    options = {"wire": wire, "seed": seed}
    stations = [
        StationNode(cell, problem.initial, algorithm, shares, **options) for cell in range(cells)
    ]
    root = RootNode(problem.initial, algorithm, shares, **options)
    uploads, answers, asked, told = {}, {}, {}, {}
    for t in range(len(timeline.finished)):
        for i, node in enumerate(nodes):
            assert node.wake() == timeline.finished[t, i]
            if timeline.up_started[t, i]:
                assert node.offers()
                uploads[i] = node.send()
        for i in np.flatnonzero(timeline.up_arrived[t]):
            assert stations[i % cells].receive(uploads[i])
        for c, station in enumerate(stations):
            station.wake()
            if timeline.root_up_started[t, c]:
                assert station.asks()
                asked[c] = station.ask()
        for c in np.flatnonzero(timeline.root_up_arrived[t]):
            assert root.receive(asked[c])
        root.wake()
        if timeline.root_down_started[t].any():
            data = root.send()
            told |= dict.fromkeys(np.flatnonzero(timeline.root_down_started[t]), data)
        for c in np.flatnonzero(timeline.root_down_arrived[t]):
            assert stations[c].hear(told[c])
        for c in range(cells):
            mine = [i for i in np.flatnonzero(timeline.down_started[t]) if i % cells == c]
            if mine:
                assert stations[c].offers()[mine].all() or not stations[c].offers().any()
                answers |= dict.fromkeys(mine, stations[c].send())
        for i in np.flatnonzero(timeline.down_arrived[t]):
            assert nodes[i].receive(answers[i])
    assert not any(box.mailbox.refused for box in (*stations, root))
    share = [shares[np.arange(len(nodes)) % cells == c].sum() for c in range(cells)]
    return np.asarray(share) @ np.stack([station.params() for station in stations])
