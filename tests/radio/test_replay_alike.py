"""Timelines of one size that are replayed by one program."""

import numpy as np
import pytest

from folkman import Recording, async_sharing, constant, iid, replay, simulate
from folkman.radio.trace import PeerTimeline


def test_they_end_with_the_same_parameters_and_share_a_program(quadratics):
    recording, algorithm, problem = Recording(40, timeline=True), async_sharing(0.1), quadratics()
    timelines = [
        simulate(problem, network, algorithm, slots=40, recording=recording).timeline
        for network in (constant(3), iid(6))
    ]
    alike = [replay(timeline, alike=True) for timeline in timelines]
    for timeline, network in zip(timelines, alike, strict=True):
        plain, shared = (
            simulate(problem, each, algorithm, slots=40, recording=Recording(40)).nodes
            for each in (replay(timeline), network)
        )
        np.testing.assert_allclose(plain, shared, rtol=1e-5, atol=1e-6)
    first, second = alike
    assert (first.recent, first.at_once) == (second.recent, second.at_once)
    assert first.waiting is not None
    assert second.waiting is not None
    assert first.waiting.shape == second.waiting.shape
    assert replay(timelines[0]).recent != replay(timelines[1]).recent  # otherwise they are not


def test_more_on_the_way_than_there_are_nodes_is_refused():
    slots, nodes = 12, 2
    held = np.zeros((slots, nodes, nodes), np.int32)
    held[:, 0, 0] = held[:, 1, 1] = np.arange(slots)
    held[6:, 0, 1] = np.arange(1, 7)  # each of six payloads waits for five slots
    every = np.ones((slots, nodes), bool)
    with pytest.raises(ValueError, match="leave `alike` out"):
        replay(PeerTimeline(held, every, every), alike=True)
