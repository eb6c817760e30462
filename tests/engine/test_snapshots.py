"""The store of payloads against a dictionary of every copy, on random timelines."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkman.engine import snapshots
from folkman.radio.replay import replay
from folkman.radio.trace import PeerTimeline


def random_timeline(rng, nodes, slots, send_probability):
    """Return a timeline in which any sent copy may be held at any later time, in any order."""
    sends = rng.random((slots, nodes)) < send_probability
    held = np.zeros((slots, nodes, nodes), np.int32)
    for t in range(1, slots):
        for tx in range(nodes):
            sent = np.concatenate([[0], np.flatnonzero(sends[:t, tx]) + 1])
            held[t, :, tx] = rng.choice(sent[-3:], nodes)  # of the last three sent, in any order
    return PeerTimeline(held, sends, np.ones((slots, nodes), bool))


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 5), st.sampled_from([0.1, 0.5, 1.0]))
def test_every_inbox_holds_the_copies_that_the_timeline_says(seed, nodes, send_probability):
    rng = np.random.default_rng(seed)
    slots = 12
    timeline = random_timeline(rng, nodes, slots, send_probability)
    messages = rng.normal(size=(slots + 1, nodes, 3)).astype(
        np.float32
    )  # messages[s]: formed before slot s
    share = jnp.asarray(np.full(nodes, 1 / nodes, np.float32))
    versions = replay(timeline).peers().versions(nodes)
    store = snapshots.start(jnp.asarray(messages[0]), versions, replay(timeline).recent)

    for t in range(slots):
        inbox, _ = snapshots.inboxes(store, jnp.tile(share, (len(share), 1)), jnp.asarray(t))
        for rx in range(nodes):
            for tx in range(nodes):
                if rx != tx:
                    found = inbox.store[inbox.row[rx, tx]]
                    np.testing.assert_array_equal(found, messages[timeline.held[t, rx, tx], tx])
                    assert inbox.age[rx, tx] == t - timeline.held[t, rx, tx]
        if t + 1 < slots:
            sends, held = jnp.asarray(timeline.sends[t]), jnp.asarray(timeline.held[t + 1])
            store = snapshots.put(
                store, jnp.asarray(messages[t + 1]), jnp.asarray(t + 1), sends, held
            )

    assert not store.missing
    assert versions <= 3 + 1  # the last three, and one being written


@pytest.mark.parametrize("versions", [4, 40], ids=["at once", "in blocks"])
def test_a_mixture_is_the_weighted_sum_of_the_copies_held(versions):
    nodes, slots = 20, 10
    rng = np.random.default_rng(5)
    timeline = random_timeline(rng, nodes, slots, 0.7)
    messages = rng.normal(size=(slots + 1, nodes, 3)).astype(np.float32)
    mixing = rng.random((nodes, nodes)).astype(np.float32)
    store = snapshots.start(jnp.asarray(messages[0]), versions, 4)
    assert (len(store.payload) >= 2 * snapshots.BLOCK) == (versions == 40)

    for t in range(slots - 1):
        sends, held = jnp.asarray(timeline.sends[t]), jnp.asarray(timeline.held[t + 1])
        store = snapshots.put(store, jnp.asarray(messages[t + 1]), jnp.asarray(t + 1), sends, held)
        copies = messages[timeline.held[t + 1], np.arange(nodes)[None]]  # (rx, tx, message)
        weight = np.where(np.eye(nodes, dtype=bool), 0.0, mixing)
        expected = np.einsum("ij,ijk->ik", weight, copies)
        np.testing.assert_allclose(
            snapshots.mixture(store, jnp.asarray(mixing)), expected, rtol=1e-5, atol=1e-5
        )

    assert not store.missing


def test_a_mixture_counts_every_block_once_up_to_the_last():
    nodes, dim = 16, 3
    store = snapshots.start(jnp.zeros((nodes, dim)), 3 * snapshots.BLOCK // nodes)
    rows = len(store.payload)
    assert rows == 3 * snapshots.BLOCK
    rng = np.random.default_rng(2)
    payload = rng.normal(size=(rows, dim)).astype(np.float32)
    mixing = rng.random((nodes, nodes)).astype(np.float32)

    for highest in (1, snapshots.BLOCK - 1, snapshots.BLOCK, 2 * snapshots.BLOCK, rows - 1):
        row = rng.integers(0, highest + 1, (nodes, nodes)).astype(np.int32)
        row[0, 1] = highest
        placed = store._replace(payload=jnp.asarray(payload), row=jnp.asarray(row))
        weight = np.where(np.eye(nodes, dtype=bool), 0.0, mixing)
        np.testing.assert_allclose(
            snapshots.mixture(placed, jnp.asarray(mixing)),
            np.einsum("ij,ijk->ik", weight, payload[row]),
            rtol=1e-5,
            atol=1e-5,
        )


@pytest.mark.parametrize("sends", [[False] * 4, [False, True, False, True]], ids=["none", "two"])
def test_who_does_not_send_changes_no_payload(sends):
    """Messages are shorter than the store, and those of silent nodes go nowhere."""
    nodes, dim, sends = 4, 2, np.asarray(sends)
    first = np.arange(8.0, dtype=np.float32).reshape(nodes, dim) + 1
    store = snapshots.start(jnp.asarray(first), 3)
    held = jnp.zeros((nodes, nodes), jnp.int32)

    after = snapshots.put(
        store, jnp.full((nodes, dim), 99.0), jnp.asarray(1), jnp.asarray(sends), held
    )

    np.testing.assert_array_equal(after.payload[:nodes], first)
    assert int((np.asarray(after.payload) == 99.0).all(axis=1).sum()) == sends.sum()
    np.testing.assert_array_equal(after.newest_stamp[:, 0], np.where(sends, 1, 0))
    assert not after.missing


def test_rows_that_nobody_holds_are_taken_again():
    nodes, slots = 6, 50
    store = snapshots.start(jnp.zeros((nodes, 2)), 2)
    for t in range(
        slots
    ):  # everyone holds what was sent a slot ago: two versions of each at a time
        held = jnp.full((nodes, nodes), t, jnp.int32)
        store = snapshots.put(
            store, jnp.full((nodes, 2), t + 1.0), jnp.asarray(t + 1), jnp.ones(nodes, bool), held
        )

    assert not store.missing
    assert set(np.asarray(store.payload).ravel()) == {slots - 1.0, float(slots)}


def test_the_store_says_when_a_network_understates_its_versions():
    timeline = random_timeline(np.random.default_rng(0), 3, 12, 1.0)
    messages = jnp.zeros((3, 2))
    store = snapshots.start(messages, 1)

    for t in range(11):
        held = jnp.asarray(timeline.held[t + 1])
        store = snapshots.put(
            store, messages, jnp.asarray(t + 1), jnp.asarray(timeline.sends[t]), held
        )

    assert store.missing


def test_the_engine_refuses_to_go_on_with_a_missing_copy(digits):
    from dataclasses import replace

    from folkman import async_sharing, constant, simulate

    lying = replace(
        constant(15), alive=2
    )  # needs 16, and no network can need more than one a node and one
    with pytest.raises(RuntimeError, match="`recent` is too small"):
        simulate(digits, lying, async_sharing(0.1), slots=30)


def test_a_replay_does_not_keep_all_that_was_sent_for_a_pair_that_never_hears(digits):
    from folkman import async_sharing, simulate

    slots, nodes = 100, digits.num_nodes
    held = np.tile(np.arange(slots, dtype=np.int32)[:, None, None], (1, nodes, nodes))
    held[:, 0, 1] = 0  # node 0 never hears node 1
    timeline = PeerTimeline(held, np.ones((slots, nodes), bool), np.ones((slots, nodes), bool))

    network = replay(timeline)
    run = simulate(digits, network, async_sharing(0.1), slots=slots)

    assert network.recent == 1
    assert network.peers().versions(nodes) <= 4
    assert np.isfinite(run.last("train_loss"))
