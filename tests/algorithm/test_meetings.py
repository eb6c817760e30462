"""Mass is kept however messages travel, by AD-PSGD and SGP; and AD-PSGD meets on lossy links."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkman import Clock, Compressed, Recording, constant, ideal, pipelined
from folkman.algorithm.adpsgd import adpsgd
from folkman.algorithm.sgp import sgp
from folkman.engine.simulate import Simulation, march, start
from folkman.packing import bfloat16, float16, int8, none, top_k
from folkman.packing.packing import pack_message
from folkman.radio.loss import Lossy
from folkman.radio.network import RadioNetwork
from reference.any_order import DIM, GRADIENTS, MODELS, NODES, drawn, program

STEP = 0.1
MEETINGS = adpsgd(STEP)


@cache
def packer(packing):
    """Return what a packing leaves of models, (..., d)."""
    one = partial(pack_message, packing, dim=DIM, key=jax.random.key(0))
    every = jax.jit(jax.vmap(lambda model: one(message=model)))
    return lambda models: np.asarray(every(models.reshape(-1, DIM))).reshape(models.shape)


def mass_of(states, packing):
    """Return sum_i x_i, what meetings still owe, and what packings left out: (slot + 1, d) each."""
    owed, left_out = (np.zeros(states.params[:, 0].shape) for _ in range(2))
    answers = packer(packing)(states.kept.model)
    lost = (packer(packing)(states.frozen) - states.frozen) / 2
    for slot, j, place in np.argwhere(states.kept.partner >= 0):
        i, number = states.kept.partner[slot, j, place], states.kept.number[slot, j, place]
        if states.waiting[slot, i] and states.number[slot, i] == number:
            assert states.partner[slot, i] == j
            owed[slot] += (answers[slot, j, place] - states.frozen[slot, i]) / 2
    for slot, j, i in np.argwhere(np.diff(states.served, axis=0) > 0):
        # the proposal, which waits for its answer, and the answer, formed in this slot
        left_out[slot + 1 :] += lost[slot, i] + lost[slot + 1, j]
    return states.params.sum(axis=1), owed, left_out


@pytest.mark.parametrize("packing", [none(), float16(), bfloat16(), int8(), top_k(0.5)])
def test_lost_late_repeated_and_overtaken_messages_lose_no_mass(x64, packing):
    """Every node may hold any message ever sent, older ones after newer ones too.

    What packings leave out of a meeting counts once, however often its messages were sent.
    """
    met = []

    @settings(max_examples=25, deadline=None, derandomize=True)
    @given(st.integers(0, 2**31), *[st.sampled_from([0.1, 0.5, 0.9])] * 2, st.integers(0, 12))
    def check(seed, computing, sending, late):
        lags, finishes, sends = drawn(seed, computing, sending, late)
        with jax.enable_x64(True):
            states = jax.tree.map(np.asarray, program(MEETINGS, packing)(lags, finishes, sends))
            total, owed, left_out = mass_of(states, packing)
        moved = -STEP * np.cumsum((GRADIENTS * finishes[:, :, None]).sum(axis=1), axis=0)
        expected = MODELS.sum(axis=0) + np.concatenate([np.zeros((1, DIM)), moved])
        np.testing.assert_allclose(total + owed - left_out, expected, rtol=1e-9, atol=1e-9)
        met.append((states.number - states.waiting)[-1, ::2].sum())

    check()
    assert max(met) > 5  # somebody met in the runs that were tried


@pytest.mark.parametrize("sums", ["total", "neighbour"])
def test_running_sums_lose_no_mass_whatever_is_held(x64, sums):
    """Every node may hold any sum ever sent, older ones after newer ones too."""
    algorithm = sgp(STEP, "asynchronous", topology="directed_ring", sums=sums)
    mixing = algorithm.travel.mixing  # type: ignore[attr-defined] - peers have one
    hears = np.asarray(mixing.weights(jnp.ones((NODES, NODES), bool))) > 0
    hears &= ~np.eye(NODES, dtype=bool)
    least = []

    @settings(max_examples=25, deadline=None, derandomize=True)
    @given(st.integers(0, 2**31), *[st.sampled_from([0.1, 0.5, 0.9])] * 2, st.integers(0, 12))
    def check(seed, computing, sending, late):
        lags, finishes, sends = drawn(seed, computing, sending, late)
        with jax.enable_x64(True):
            told = program(algorithm, none())(lags, finishes, sends)
        states = jax.tree.map(np.asarray, told)
        taken = states.taken if sums == "total" else states.taken.sum(axis=2)
        total = np.sum(states.mass + hears.sum(axis=0)[:, None] * states.pushed - taken, axis=1)
        moved = -STEP * np.cumsum((GRADIENTS * finishes[:, :, None]).sum(axis=1), axis=0)
        np.testing.assert_allclose(total[1:, :-1], moved, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(total[:, -1], NODES, rtol=1e-12)
        assert states.mass[..., -1].min() >= 0.1 - 1e-12
        least.append(states.mass[..., -1].sum(axis=1).min())

    check()
    assert min(least) < NODES - 1  # some was on its way in the runs that were tried


def radio(threshold_db):
    return Compressed(RadioNetwork(threshold_db=threshold_db), none())


REPEATED = {
    "lossy": (Lossy(pipelined(5), 0.3), 53, 11.1),
    "half lost": (Lossy(constant(4), 0.5), 102, 29.5),
    "radio": (radio(-15.0), 234, 12.6),
    "radio, few hear": (radio(0.0), 45, 54.3),
}
"""What the handshake that repeats all messages on every beat does, whose passive nodes block:
meetings in 600 slots, a mean over seeds 0 to 2, and messages a meeting."""


def meetings_of(problem, network, seed, slow=1):
    clock = Clock(compute_slots=(slow, *(1,) * (problem.num_nodes - 1)))
    simulation = Simulation(problem, network, adpsgd(0.01), clock, Recording(600))
    *_, (mark, _) = march(simulation, start(simulation, seed), 600)
    states, sent = mark.carry.states, sum(mark.totals.traffic.sent)
    return np.asarray(states.number - states.waiting)[::2], sent


@pytest.mark.parametrize("name", REPEATED)
def test_where_messages_are_lost_nodes_meet_as_often_as_by_repeating_all(quadratics, name):
    network, meetings, messages = REPEATED[name]
    problem = quadratics(nodes=6)

    found = [meetings_of(problem, network, seed) for seed in range(3)]

    total = sum(met.sum() for met, _ in found)
    assert total >= 3 * meetings
    assert sum(sent for _, sent in found) <= messages * total


@pytest.mark.parametrize("network", [ideal(), constant(4), pipelined(5)], ids=lambda n: n.name)
def test_a_slow_node_slows_nobody_and_a_meeting_is_two_messages(quadratics, network):
    problem = quadratics(nodes=6)

    equal, sent = meetings_of(problem, network, 0)
    unequal, sent_too = meetings_of(problem, network, 0, slow=20)

    assert (unequal[1:] > 0.9 * equal[1:]).all()
    assert unequal[0] >= 0.8 * 600 / 20  # a proposal may wait for a message of its partner
    for meetings, messages in ((equal, sent), (unequal, sent_too)):
        # those that are not over have at most two messages on the air
        assert 2 * meetings.sum() <= messages <= 2 * (meetings.sum() + 3)
