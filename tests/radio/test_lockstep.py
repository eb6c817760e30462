"""Rounds in lock-step: on the radio against a plain re-telling, and under delay laws."""

import itertools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folkman import constant, dpsgd, ideal, iid, load, make_problem, pipelined, simulate, snapshot
from folkman.keys import Stream
from folkman.radio.air import place
from folkman.radio.network import RadioNetwork

BITS = 650 * 16
NODES, SLOTS = 5, 200
NARROW = RadioNetwork(bandwidth_hz=15e3, threshold_db=3.0, least_sinr_db=-6.0)
RING = np.isin(np.subtract.outer(np.arange(NODES), np.arange(NODES)) % NODES, (1, NODES - 1))
EVERYONE = ~np.eye(NODES, dtype=bool)


def drive(network, wanted, offers=None, seed=0, slots=SLOTS):
    """Run rounds alone; return held (slot, rx, tx), sends (slot, tx), linked (slot, rx, tx), and the last state."""
    key = jax.random.key(seed)
    step = jax.jit(
        lambda s, o, t: network.rounds().step(s, o, wanted, BITS, jax.random.fold_in(key, t))
    )
    state, rows = network.rounds().init(NODES, key), []
    for t in range(slots):
        state, delivery = step(state, np.ones(NODES, bool) if offers is None else offers[t], t)
        rows.append((delivery.held, delivery.sends, delivery.linked))
    held, sends, linked = (np.array(column) for column in zip(*rows, strict=True))
    return held, sends, linked, state


def retell(network, wanted, seed=0, slots=SLOTS):
    """Tell the rounds again in plain NumPy, everyone offering always; also who had to repeat, (slot, tx)."""
    key = jax.random.key(seed)
    air = place(network, NODES, key)

    def draw(t):
        return network.sinr(air, jax.random.fold_in(jax.random.fold_in(key, t), int(Stream.FADING)))

    sinrs = np.asarray(jax.jit(jax.vmap(draw))(jnp.arange(slots)), np.float64)
    threshold = 10 ** ((network.threshold_db if wanted is None else network.least_sinr_db) / 10)
    held, got, running, since = (
        np.zeros((NODES, NODES), int),
        np.zeros((NODES, NODES), bool),
        False,
        0,
    )
    on_air, first, rows = {}, True, []  # tx -> (slot of arrival, receivers)
    for n in range(1, slots + 1):  # n: the coming slot
        for i in [i for i, (end, _) in on_air.items() if end == n]:
            got[on_air.pop(i)[1], i] = True
        if running and (not on_air if wanted is None else got[wanted].all()):
            running = False
            heard = got | np.eye(NODES, dtype=bool) if wanted is None else np.ones_like(got)
            held[heard] = since
            begins = False
        else:
            begins = not running
        if begins:
            running, since, first = True, n, True
            got[:] = False
        linked = np.zeros((NODES, NODES), bool)
        if running and not on_air:
            missing = (
                EVERYONE if wanted is None else wanted & ~got
            )  # the rate is that of the worst of these
            ok = (sinrs[n - 1] > threshold) & EVERYONE & missing
            rates = {
                i: np.log2(1 + sinrs[n - 1][ok[:, i], i].min())
                for i in range(NODES)
                if ok[:, i].any()
            }
            total = sum(1 / rate for rate in rates.values())
            for i, rate in rates.items():
                share = (1 / rate) / total if network.allocation == "optimal" else 1 / len(rates)
                duration = BITS / (network.slot_s * network.bandwidth_hz * share * rate)
                on_air[i] = (n + max(1, int(np.ceil(duration - 1e-4))), ok[:, i])
                linked[:, i] = ok[:, i]
        repeats = linked.any(axis=0) & (not first)
        first = first and not linked.any()
        rows.append((held.copy(), np.full(NODES, begins), linked, repeats))
    return tuple(np.array(column) for column in zip(*rows, strict=True))


@pytest.mark.parametrize(
    ("wanted", "allocation"),
    [
        (RING, "optimal"),
        (RING, "uniform"),
        (EVERYONE, "optimal"),
        (None, "uniform"),
        (None, "optimal"),
    ],
    ids=["ring", "ring-uniform", "everyone", "schedule-uniform", "schedule"],
)
def test_rounds_on_the_radio_are_their_plain_retelling(wanted, allocation):
    network = replace(NARROW, allocation=allocation)

    held, sends, linked, _ = drive(network, wanted)

    told_held, told_sends, told_linked, repeats = retell(network, wanted)
    np.testing.assert_array_equal(held, told_held)
    np.testing.assert_array_equal(sends, told_sends)
    np.testing.assert_array_equal(linked, told_linked)
    assert 2 < told_sends[:, 0].sum() < SLOTS / 2
    if wanted is None:
        assert not repeats.any()  # one epoch
    else:
        assert repeats.any()


@pytest.mark.parametrize("wanted", [RING, EVERYONE], ids=["ring", "everyone"])
def test_a_round_serves_every_wanted_pair_and_repeats_for_nobody_else(wanted):
    held, sends, linked, _ = drive(NARROW, wanted, seed=1)

    unserved, before, ends = wanted.copy(), np.zeros((NODES, NODES), int), 0
    for t in range(SLOTS):
        if (held[t] != before).any():
            ends += 1
            assert (held[t] != before).all()  # all at once, on the diagonal too
            assert len(set(held[t].flat)) == 1
            assert not unserved.any()
        if sends[t].any():
            unserved = wanted.copy()
        assert (
            unserved[:, linked[t].any(axis=0)].any(axis=0).all()
        )  # who is on the air is still needed
        unserved &= ~linked[t]
        before = held[t]
    assert ends > 3


@pytest.mark.parametrize(
    "network",
    [NARROW, replace(NARROW, period="node", allocation="uniform"), snapshot(3), iid(3), ideal()],
    ids=["epoch", "node", "snapshot", "iid", "ideal"],
)
def test_a_round_begins_only_when_all_offer(network):
    offers = np.ones((30, NODES), bool)
    offers[:20] = np.random.default_rng(0).random((20, NODES)) < 0.8
    offers[:20][offers[:20].all(axis=1), 2] = False

    held, sends, linked, _ = drive(network, RING, offers, slots=30)

    assert not sends[:20].any()
    assert not linked[:20].any()
    assert not held[:20].any()
    assert sends[20].all()


def test_following_the_schedule_serves_whom_the_epoch_serves():
    held, _, linked, _ = drive(NARROW, None, seed=2)

    heard, before = np.zeros((NODES, NODES), bool), np.zeros((NODES, NODES), int)
    ends = 0
    for t in range(SLOTS):
        if (changed := held[t] != before).any():
            ends += 1
            np.testing.assert_array_equal(changed, heard | np.eye(NODES, dtype=bool))
            heard = np.zeros_like(heard)
        heard |= linked[t]
        before = held[t]
    assert ends > 5


def test_following_the_schedule_is_an_epoch_under_either_rule():
    epoch, node = (
        drive(replace(NARROW, period=p, allocation="uniform"), None) for p in ("epoch", "node")
    )

    for a, b in zip(epoch[:3], node[:3], strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("period", ["epoch", "node"])
def test_rounds_end_under_either_rule(period):
    network = replace(NARROW, period=period, allocation="uniform", least_sinr_db=-10.0)

    held, sends, _, _ = drive(network, EVERYONE)

    begun = np.flatnonzero(sends[:, 0])
    assert len(begun) > 3
    for start in begun[:-1]:
        assert (held[start:] == start + 1).all(axis=(1, 2)).any()


@pytest.mark.parametrize(
    ("network", "gamma"),
    [(ideal(), 0), (constant(2), 2), (snapshot(3), 3), (pipelined(4), 4)],
    ids=lambda x: getattr(x, "name", x),
)
def test_a_round_under_a_delay_law_takes_one_slot_and_gamma(network, gamma):
    held, sends, linked, _ = drive(network, RING, slots=40)

    begun = np.flatnonzero(sends.all(axis=1))
    np.testing.assert_array_equal(begun, np.arange(0, 40, gamma + 1))
    np.testing.assert_array_equal(linked, sends[:, None] & EVERYONE[None])
    for t in range(
        40
    ):  # begun at the end of slot s with stamp s + 1, held from the end of slot s + gamma on
        stamps = [s + 1 for s in begun if s + gamma <= t]
        assert (held[t] == (stamps[-1] if stamps else 0)).all()


def test_a_round_under_the_random_law_waits_for_the_slowest():
    held, sends, _, _ = drive(iid(4), RING, slots=600)

    key = jax.random.key(0)
    begun = np.flatnonzero(sends[:, 0])
    for start, following in itertools.pairwise(begun):
        trips = np.asarray(
            jax.random.randint(jax.random.fold_in(key, int(start)), (NODES,), 1, 5, jnp.int32)
        )
        assert following - start == trips.max() + 1
        assert (held[start + trips.max()] == start + 1).all()
        assert (held[start + trips.max() - 1] != start + 1).all()


def test_gossip_on_the_radio_is_gossip_without_delay_later(x64):
    problem = make_problem(load("digits", train_size=100), "softmax", NODES, dtype="float64")

    run = simulate(problem, replace(NARROW, least_sinr_db=-15.0), dpsgd(0.2), slots=60, seed=1)
    gradients = int(run.last("gradients"))
    free = ideal(NARROW.bits_per_parameter)
    same = simulate(problem, free, dpsgd(0.2), slots=gradients, seed=1)

    assert 3 < gradients < 40
    np.testing.assert_allclose(
        run.nodes, same.nodes, rtol=1e-9, atol=1e-12
    )  # later, but the same iterates
