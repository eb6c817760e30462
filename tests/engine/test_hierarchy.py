"""A fourth way to travel: nodes in cells around stations, stations around a root."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folkman import (
    Recording,
    constant,
    fedavg,
    ideal,
    iid,
    load,
    make_problem,
    pipelined,
    reference,
    simulate,
    snapshot,
)
from folkman.algorithm.hierfavg import hierfavg
from folkman.engine.travel.hierarchy import HierarchyReplay, HierarchyTimeline
from folkman.radio import trace
from folkman.radio.loss import Lossy
from folkman.radio.network import RadioNetwork
from folkman.radio.replay import replay
from folkman.radio.trace import record_timeline
from reference import wire

NODES = 5


@pytest.fixture
def problem(x64):
    return make_problem(load("digits", train_size=100), "softmax", NODES, dtype="float64")


def test_with_a_global_round_every_time_it_is_fedavg(problem):
    flat = simulate(problem, constant(3), fedavg(0.2, local_steps=2), slots=40)
    cells = simulate(
        problem, constant(3), hierfavg(0.2, cells=2, global_every=1, local_steps=2), slots=40
    )

    np.testing.assert_allclose(cells.nodes, flat.nodes, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(cells.model, flat.model, rtol=1e-10, atol=1e-13)
    assert cells.last("rounds") == flat.last("rounds")


def test_between_global_rounds_each_cell_is_a_fedavg_of_its_own(problem):
    """Until the first global round cell 0 sees nothing of cell 1."""
    run = simulate(problem, ideal(), hierfavg(0.2, cells=2, global_every=100), slots=10)

    for cell in range(2):
        members = [i for i in range(NODES) if i % 2 == cell]
        w = np.asarray(problem.initial)
        share = np.asarray(problem.share)[members]
        share = share / share.sum()
        for _ in range(10):
            point = jnp.broadcast_to(jnp.asarray(w), (NODES, len(w)))
            _, grads = problem.gradients(point, jax.random.split(jax.random.key(0), NODES))
            w = w - 0.2 * share @ np.asarray(grads)[members]
        last = run.nodes[members]
        after = last[0] if np.allclose(last[0], last[-1]) else share @ last
        np.testing.assert_allclose(after, w, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("network", [constant(2), iid(3)], ids=["constant", "varied"])
@pytest.mark.parametrize("backhaul_slots", [0, 4])
def test_simulator_reference_replay_and_byte_level_nodes_agree(problem, network, backhaul_slots):
    algorithm = hierfavg(0.2, cells=2, global_every=2, local_steps=2, backhaul_slots=backhaul_slots)

    run = simulate(problem, network, algorithm, slots=40, recording=Recording(40, timeline=True))

    assert run.last("rounds") > 0
    assert isinstance(run.timeline, HierarchyTimeline)
    slow = reference(problem, run.timeline, algorithm)
    np.testing.assert_allclose(run.nodes, slow.nodes, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(run.model, slow.model, rtol=1e-9, atol=1e-12)
    again = simulate(problem, HierarchyReplay(run.timeline), algorithm, slots=40)
    np.testing.assert_allclose(run.nodes, again.nodes, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(run.nodes, wire.play(problem, run.timeline, algorithm)[0], rtol=1e-6)


def test_a_slow_backhaul_delays_the_global_rounds_alone(problem):
    near, far = (
        simulate(problem, ideal(), hierfavg(0.2, global_every=3, backhaul_slots=slots), slots=60)
        for slots in (0, 10)
    )

    assert near.last("rounds") == 20
    assert far.last("rounds") == 60 // 13  # three rounds of a slot, then ten slots of the link


def test_bits_are_those_of_both_levels(problem):
    run = simulate(
        problem,
        ideal(),
        hierfavg(0.2, cells=2, global_every=2),
        slots=8,
        recording=Recording(8, timeline=True),
    )
    size = 16 * problem.dim
    up, cells = NODES * 8, 2 * 8  # every node uploads, every station answers, in every slot
    root = 4 * (2 + 1)  # every second slot two stations ask, and the root broadcasts

    assert run.last("bits") == size * (up + cells + root)
    assert run.last("bits_unicast") == size * (up + up + 4 * (2 + 2))


@pytest.mark.parametrize(
    "network", [Lossy(snapshot(3), 0.3), RadioNetwork()], ids=["loss", "radio"]
)
def test_it_learns_through_loss_and_on_the_radio(quadratics, network):
    equal = quadratics(nodes=4, heterogeneity=0.0, condition=4.0)

    run = simulate(equal, network, hierfavg(0.05), slots=3000, seed=1, recording=Recording(3000))

    start = float(jnp.linalg.norm(equal.initial - equal.optimum))
    assert run.last("optimum_distance") < 1e-2 * start


def test_a_timeline_is_saved_and_loaded(problem, tmp_path):
    run = simulate(
        problem, pipelined(2), hierfavg(), slots=6, recording=Recording(6, timeline=True)
    )

    trace.save(run.timeline, tmp_path / "cells.npz")

    for ours, theirs in zip(run.timeline, trace.load(tmp_path / "cells.npz"), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_what_cannot_be_is_refused(problem):
    with pytest.raises(ValueError, match="cells must be at least 1"):
        hierfavg(cells=0)
    with pytest.raises(ValueError, match="at most the number of nodes, 5"):
        simulate(problem, ideal(), hierfavg(cells=6), slots=2)
    with pytest.raises(ValueError, match="does not carry uploads to a server"):
        simulate(problem, replay(record_timeline(snapshot(2), NODES, 4)), hierfavg(), slots=2)
    run = simulate(problem, ideal(), fedavg(), slots=2, recording=Recording(2, timeline=True))
    with pytest.raises(ValueError, match="travels along a HierarchyTimeline"):
        reference(problem, run.timeline, hierfavg())
