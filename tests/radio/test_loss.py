"""Lost messages: with the probability given, for each receiver on its own, and repeated where someone waits."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import binomtest

from folkman import dpsgd, fedavg, ideal, load, make_problem, simulate, snapshot
from folkman.radio.loss import Lossy
from folkman.radio.network import RadioNetwork

BITS = 650 * 16
NODES = 5
OTHERS = ~np.eye(NODES, dtype=bool)
RADIO = RadioNetwork(bandwidth_hz=15e3, threshold_db=-5.0, least_sinr_db=-10.0)


def peers(network, slots, seed=0, nodes=NODES):
    """Run a network alone; return held (slot, rx, tx) and sends, linked."""
    key = jax.random.key(seed)
    step = jax.jit(
        lambda s, t: network.peers().step(
            s, jnp.ones(nodes, bool), BITS, jax.random.fold_in(key, t)
        )
    )
    return run(step, network.peers().init(nodes, key), slots)


def rounds(network, slots, wanted, seed=0, nodes=NODES):
    """Run rounds alone, everyone offering always."""
    key = jax.random.key(seed)
    step = jax.jit(
        lambda s, t: network.rounds().step(
            s, jnp.ones(nodes, bool), wanted, BITS, jax.random.fold_in(key, t)
        )
    )
    return run(step, network.rounds().init(nodes, key), slots)


def star(network, slots, seed=0, nodes=NODES):
    """Run a star whose server answers every upload; return the six events (slot, event, node)."""
    key = jax.random.key(seed)

    def step(carry, t):
        state, owed = carry
        up_key, down_key = jax.random.split(jax.random.fold_in(key, t))
        state, up = network.star().uplink(state, jnp.ones(nodes, bool), BITS, up_key)
        owed = owed | up.arrived
        state, down = network.star().downlink(state, owed, BITS, down_key)
        return (state, (owed & ~down.started) | down.lost), jnp.stack([*up[:3], *down[:3]])

    return run(jax.jit(step), (network.star().init(nodes, key), jnp.zeros(nodes, bool)), slots)


def run(step, state, slots):
    """Return what a step tells, stacked over slots."""
    rows = []
    for t in range(slots):
        state, told = step(state, t)
        rows.append(jax.tree.map(np.asarray, told))
    return jax.tree.map(lambda *parts: np.array(parts), *rows)


def assert_share(hits, trials, probability):
    """Fail if a share is not what independent trials of this probability give, at one in a million."""
    assert trials > 400
    assert binomtest(int(hits), int(trials), probability).pvalue > 1e-6, (
        hits / trials,
        probability,
    )


@pytest.mark.parametrize(
    ("network", "nodes", "slots"),
    [(ideal(), 20, 20), (snapshot(2), 20, 40), (RADIO, 5, 250)],
    ids=["ideal", "snapshot", "radio"],
)
def test_between_peers_each_copy_is_lost_with_the_probability_and_the_old_one_kept(
    network, nodes, slots
):
    below, above = (
        peers(network, slots, nodes=nodes),
        peers(Lossy(network, 0.3), slots, nodes=nodes),
    )

    others = ~np.eye(nodes, dtype=bool)
    first = np.zeros((1, nodes, nodes), int)
    new = np.concatenate([first, below.held])[1:] != np.concatenate([first, below.held])[:-1]
    before = np.concatenate([first, above.held])[:-1]
    kept = new & (above.held == below.held)
    np.testing.assert_array_equal(
        above.held, np.where(kept, below.held, before)
    )  # the copy that came, or the old one
    assert_share((kept & others).sum(), (new & others).sum(), 0.7)
    heard = (kept & others).sum(axis=1)[
        (new & others).sum(axis=1) == nodes - 1
    ]  # one sender, all its receivers
    if heard.size:
        assert (heard < nodes - 1).any()
        assert (heard > 0).any()  # each receiver on its own
    np.testing.assert_array_equal(above.sends, below.sends)
    np.testing.assert_array_equal(above.linked, below.linked)  # what is lost was on the air


def test_without_loss_it_is_the_network_below():
    network, free = RADIO, Lossy(RADIO, 0.0)
    ring = np.isin(np.subtract.outer(np.arange(NODES), np.arange(NODES)) % NODES, (1, NODES - 1))

    for drive in (peers, star, *(lambda n, s, w=w: rounds(n, s, w) for w in (ring, None))):
        for a, b in zip(
            jax.tree.leaves(drive(free, 60)), jax.tree.leaves(drive(network, 60)), strict=True
        ):
            np.testing.assert_array_equal(a, b)


def test_a_round_is_repeated_until_each_wanted_pair_has_heard_once():
    """One pair: repetitions are geometric, 1 / (1 - p) on average. Ten nodes: the slowest of 90 pairs."""
    wanted = np.zeros((NODES, NODES), bool)
    wanted[2, 1] = True

    told = rounds(Lossy(ideal(), 0.3), 2000, wanted)

    assert told.sends.all()  # on the air in every slot
    stamps = told.held[:, 0, 0]
    assert (told.held == stamps[:, None, None]).all()  # all at once, whatever else was lost
    ended = np.diff(np.concatenate([[0], stamps])) != 0
    np.testing.assert_array_equal(
        stamps[ended], np.flatnonzero(ended) + 1
    )  # the last repetition's payload
    assert_share(ended.sum(), 2000, 0.7)


def test_a_round_of_everyone_waits_for_the_unluckiest_pair():
    told = rounds(Lossy(ideal(), 0.3), 1500, OTHERS)

    times = np.diff(np.flatnonzero(np.diff(told.held[:, 0, 0])))
    # P(N <= n) = (1 - p^n)^20, so that E N = sum_n 1 - (1 - p^n)^20
    expected = sum(1 - (1 - 0.3**n) ** 20 for n in range(60))
    assert len(times) > 300
    assert abs(times.mean() - expected) < 4 * times.std() / np.sqrt(len(times))


def test_one_epoch_in_lockstep_loses_for_good():
    below, above = (rounds(network, 200, None) for network in (RADIO, Lossy(RADIO, 0.4)))

    own = np.eye(NODES, dtype=bool)
    before = np.concatenate([np.zeros((1, NODES, NODES), int), below.held])[:-1]
    new = below.held != before
    kept = new & (above.held == below.held)
    assert kept[new & own[None]].all()  # one's own message is not lost
    assert_share(kept[:, OTHERS].sum(), new[:, OTHERS].sum(), 0.6)


@pytest.mark.parametrize("network", [ideal(), RADIO], ids=["ideal", "radio"])
def test_around_a_server_lost_uploads_and_answers_are_sent_again(network):
    slots = 400
    told, without = star(Lossy(network, 0.3), slots), star(network, slots)

    up_started, up_arrived, up_lost, down_started, down_arrived, down_lost = (
        told[:, e] for e in range(6)
    )
    assert not (up_arrived & up_lost).any()
    if network is not RADIO:
        assert_share(up_arrived.sum(), (up_arrived | up_lost).sum(), 0.7)
        assert_share(down_arrived.sum(), (down_arrived | down_lost).sum(), 0.7)
    else:
        assert (
            binomtest(int(up_arrived.sum()), int((up_arrived | up_lost).sum()), 0.7).pvalue > 1e-6
        )
    for node in range(NODES):  # an upload that arrived is answered before the next one starts
        order = "".join(
            letter
            for t in range(slots)
            for letter, event in (("u", up_arrived), ("d", down_arrived))
            if event[t, node]
        )
        assert order == ("ud" * slots)[: len(order)]
    assert up_started.sum() >= up_arrived.sum() + up_lost.sum()
    assert up_lost.sum() > 10
    assert down_lost.sum() > 10
    assert down_arrived.sum() < without[:, 4].sum()  # it costs time
    per_answer = (up_started.sum() + down_started.sum()) / down_arrived.sum()
    assert (
        per_answer > 1.2 * (without[:, 0].sum() + without[:, 3].sum()) / without[:, 4].sum()
    )  # and bits


@pytest.mark.parametrize(
    "algorithm", [dpsgd(0.2, topology="complete"), fedavg(0.2)], ids=lambda a: a.name
)
def test_methods_that_wait_take_longer_and_send_more_for_the_same_iterates(x64, algorithm):
    problem = make_problem(load("digits", train_size=100), "softmax", NODES, dtype="float64")
    lossy: Any = Lossy(ideal(), 0.3)  # the network below answers for the rest

    run = simulate(problem, lossy, algorithm, slots=60, seed=1)
    done = int(run.last("gradients"))
    same = simulate(problem, ideal(), algorithm, slots=done)

    assert 5 < done < 40
    assert run.last("bits") > 1.2 * same.last("bits")
    if algorithm.name == "dpsgd":
        np.testing.assert_allclose(run.nodes, same.nodes, rtol=1e-9, atol=1e-12)
    else:
        rounds_done = int(run.last("rounds"))
        same = simulate(problem, ideal(), algorithm, slots=rounds_done)
        np.testing.assert_allclose(run.model, same.model, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("loss", [-0.1, 1.0, 2.0, float("nan")])
def test_a_loss_that_is_no_probability_is_refused(loss):
    with pytest.raises(ValueError, match=r"loss is a probability in \[0, 1\)"):
        Lossy(ideal(), loss)
