"""Stations and a root, bytes in and bytes out."""

import jax.numpy as jnp
import numpy as np
import pytest

from folkman import Node, fedavg, load, make_problem
from folkman.algorithm.hierfavg import hierfavg
from folkman.radio.delay import ideal
from folkman.runtime.codec import SERVER, Message, decode, encode
from folkman.runtime.hierarchy import HierarchyWay, RootNode, StationNode, station_number
from folkman.runtime.ways import way_of

NODES, CELLS, RUN = 5, 2, 7
SHARES = np.array([0.1, 0.15, 0.2, 0.25, 0.3])
FIRST = jnp.asarray([1.0, -2.0])


def stations(algorithm=None):
    built = algorithm or hierfavg(cells=CELLS, global_every=2)
    return [StationNode(cell, FIRST, built, SHARES, run=RUN) for cell in range(CELLS)]


def root_of(algorithm=None):
    return RootNode(FIRST, algorithm or hierfavg(cells=CELLS, global_every=2), SHARES, run=RUN)


def upload(node, values, sequence=1):
    return encode(Message(RUN, node, sequence, 0, np.asarray(values, np.float32)))


def fill(station, values=(3.0, 5.0), sequence=1):
    """Let all nodes of a cell upload the same."""
    for node in station.neighbours:
        assert station.receive(upload(node, values, sequence))


def test_numbers_on_the_wire_are_apart_from_each_other_and_from_nodes():
    numbers = [station_number(cell, 3) for cell in range(3)]

    assert numbers == [SERVER - 3, SERVER - 2, SERVER - 1]
    assert [station.index for station in stations()] == [SERVER - 2, SERVER - 1]
    assert root_of().index == SERVER
    assert root_of().neighbours == [SERVER - 2, SERVER - 1]


def test_a_station_has_the_nodes_of_its_cell_alone():
    zero, one = stations()

    assert (zero.neighbours, one.neighbours) == ([0, 2, 4], [1, 3])
    fill(zero)
    assert zero.wake()
    assert zero.offers().tolist() == [True, False, True, False, True]
    assert not one.wake()


def test_two_rounds_of_two_cells_by_hand():
    """The first round stays in the cells; the second goes to the root and back."""
    cells, root = stations(), root_of()
    first = [np.array([3.0, 5.0]), np.array([-1.0, 2.0])]
    for station, values in zip(cells, first, strict=True):
        fill(station, values)
        assert station.wake()
        assert not station.asks()
        np.testing.assert_allclose(station.params(), values, rtol=1e-6)
        answer = decode(station.send(), RUN, 2)
        assert (answer.node, answer.run) == (station.index, RUN)
        np.testing.assert_allclose(answer.params, values, rtol=1e-6)

    second = [np.array([10.0, 0.0]), np.array([0.0, 20.0])]
    for station, values in zip(cells, second, strict=True):
        fill(station, values, sequence=2)
        assert not station.wake()
        assert station.asks()
        asked = station.ask()
        assert decode(asked, RUN, 2).sequence == 2  # after its answer
        assert root.receive(asked)
        assert not root.receive(asked)  # a replay
    assert root.wake()
    model = 0.6 * second[0] + 0.4 * second[1]
    np.testing.assert_allclose(root.params(), model, rtol=1e-6)
    told = root.send()
    for station in cells:
        assert station.hear(told)
        assert not station.hear(told)
        assert not station.asks()
        assert station.offers().sum() == len(station.neighbours)
        np.testing.assert_allclose(station.params(), model, rtol=1e-6)
    assert root.steps == 1
    assert [station.steps for station in cells] == [2, 2]


def test_a_station_hears_the_root_alone_and_of_its_own_run():
    station, _ = stations()
    model = np.zeros(2, np.float32)

    assert not station.hear(encode(Message(RUN, SERVER - 1, 1, 0, model)))
    assert not station.hear(encode(Message(RUN + 1, SERVER, 1, 0, model)))
    assert not station.hear(encode(Message(RUN, SERVER, 1, 0, np.zeros(3, np.float32))))
    assert not station.hear(b"nonsense")
    np.testing.assert_array_equal(station.params(), FIRST)
    assert station.hear(encode(Message(RUN, SERVER, 1, 0, model)))
    np.testing.assert_array_equal(station.params(), model)


def test_draws_of_stations_and_root_are_apart_and_anew_in_every_slot():
    sides = [*stations(), root_of()]
    keys = []
    for _ in range(2):
        keys += [tuple(np.asarray(side._draws()._base_array).tolist()) for side in sides]
        for side in sides:
            side.wake()

    assert len(set(keys)) == 2 * len(sides)


def test_a_node_hears_its_station_alone():
    problem = make_problem(load("digits", train_size=40), "softmax", NODES)
    algorithm = hierfavg(cells=CELLS)
    node = Node(3, problem.of_node(3), algorithm, np.asarray(problem.share), run=RUN)
    model = np.ones(problem.dim, np.float32)

    for sender in (SERVER, station_number(0, CELLS), 1):
        assert not node.receive(encode(Message(RUN, sender, 1, 0, model)))
    assert node.receive(encode(Message(RUN, station_number(1, CELLS), 1, 0, model)))
    assert node.way.weights(3, SHARES) == (np.ones(1), 0.0)


def test_devices_refuse_this_way():
    algorithm = hierfavg(cells=CELLS)
    way = way_of(algorithm)
    assert isinstance(way, HierarchyWay)
    assert way.own(0) is None
    assert way.loses_nothing
    assert way.senders(100) == 1

    refusals = (
        lambda: way.check("hierfavg"),
        lambda: way.pace(),
        lambda: way.air(ideal(), NODES, 0, seed=0, message_bits=16),
        lambda: way.causal({}, NODES, paced=False),
        lambda: way.replayed(None),
    )
    for refuse in refusals:
        with pytest.raises(ValueError, match="'hierfavg' travels in cells around stations"):
            refuse()


def test_a_method_without_cells_has_neither_station_nor_root():
    with pytest.raises(ValueError, match="fedavg has no cells"):
        StationNode(0, FIRST, fedavg(), SHARES)
    with pytest.raises(ValueError, match="fedavg has no cells"):
        root_of(fedavg())
