"""Fresh air slot by slot against a plain re-telling, its promises, and its limits."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from folkman.radio import fresh, serial
from folkman.radio.loss import Lossy
from folkman.radio.network import RadioNetwork
from folkman.radio.shared import shared
from folkman.radio.trace import check_timeline, record_timeline
from reference import fresh as told

MESSAGES = fresh.MESSAGES
NODES, SLOTS = 4, 40
OTHERS = ~np.eye(NODES, dtype=bool)
WEIGHTS = (1.0, 0.5, 2.0, 0.5)


class Table:
    """A band whose costs are a table, (slot, rx, tx)."""

    control_bits = 0

    def __init__(self, costs, message, control="ideal", contention_slots=0.0, weights="alike"):
        self.costs, self.message, self.control = costs, message, control
        self.contention_slots, self.weights = contention_slots, weights

    def open_air(self, num_nodes, key):
        del num_nodes, key
        return jnp.zeros((), jnp.int32)

    def next_air(self, air, slot, key):
        del air, key
        return slot

    def cost_slots(self, air, bits, key):
        del bits, key
        return self.costs[air]


@partial(jax.jit, static_argnums=0, static_argnames=("control", "contention", "weights", "losing"))
def run(
    message, costs, offers, present, loss, *, control, contention=0.0, weights="alike", losing=False
):
    """Return the deliveries at the ends of slots 0, 1, ..., and the last state."""
    band: Any = Table(costs, message, control, contention, weights)
    peers = serial.SerialPeers(band)
    peers = peers.losing(loss) if losing else peers
    key = jax.random.key(3)

    def slot(state, t):
        state = peers.attend(state, present[t + 1])
        return peers.step(state, offers[t + 1], 0, jax.random.fold_in(key, t))

    nodes = costs.shape[1]
    return lax.scan(slot, peers.init(nodes, key), jnp.arange(len(costs) - 1))


def drawn(seed, nodes=NODES, slots=SLOTS):
    """Return costs, offers and presence of a run; transfers take a fifth of a slot to many."""
    rng = np.random.default_rng(seed)
    costs = rng.exponential(1.2, (slots, nodes, nodes)).astype(np.float32) ** 2 + 0.05
    offers = rng.random((slots, nodes)) < 0.8
    present = np.repeat(rng.random((-(-slots // 8), nodes)) < 0.85, 8, axis=0)[:slots]
    return costs, offers, present


def omega_of(weights):
    if weights == "alike":
        return np.ones((NODES, NODES))
    each = np.array(weights) / np.mean(weights)
    return each[:, None] * each[None]


@pytest.mark.parametrize("control", ["ideal", "heard"])
@pytest.mark.parametrize("message", MESSAGES)
def test_every_stamp_is_that_of_the_re_telling(message, control):
    contention, weights = (0.05, WEIGHTS) if control == "heard" else (0.0, "alike")
    ask = partial(run, message, control=control, contention=contention, weights=weights)
    for seed in range(3):
        costs, offers, present = drawn(seed)
        state, delivery = ask(costs, offers, present, 0.0)
        again = told.tell(
            np.asarray(costs, np.float64),
            message,
            offers,
            present,
            omega_of(weights),
            heard=control == "heard",
            contention=contention,
        )
        np.testing.assert_array_equal(
            np.asarray(delivery.held)[:, OTHERS], again.held[1:SLOTS][:, OTHERS]
        )
        np.testing.assert_array_equal(delivery.sends, again.sends[1:SLOTS])
        begun = np.zeros((2, SLOTS - 1, NODES), int)  # transfers, and their receivers
        for each in again.messages:
            begun[:, each.began - 1, each.sender] += [1, each.addressed]
        np.testing.assert_array_equal(delivery.transfers, begun[0])
        np.testing.assert_array_equal(delivery.copies, begun[1])
        assert int(state.sums.number) == len(again.messages) > 10
        air = sum(each.end - each.start for each in again.messages)
        assert float(state.sums.air_slots) == pytest.approx(air, rel=1e-3)


@pytest.mark.parametrize("message", MESSAGES)
def test_the_re_told_transfers_keep_the_rules_of_the_air(message):
    costs, offers, present = drawn(7)
    again = told.tell(np.asarray(costs, float), message, offers, present, omega_of("alike"))
    for one, after in zip(again.messages, again.messages[1:], strict=False):
        assert one.end <= after.start  # one at a time, hence nobody sends and receives at once
    for each in again.messages:
        assert each.sender not in each.receivers
        for origin, stamp in each.stamps.items():  # frozen when the sender starts, not later
            assert 0 <= stamp <= each.start
            assert stamp == 0 or again.sends[stamp, origin] or origin != each.sender
    starts = [int(each.start) for each in again.messages]
    assert len(set(starts)) < len(starts)  # several in one slot
    assert max(each.end - each.start for each in again.messages) > 1


@pytest.mark.parametrize("message", MESSAGES)
def test_what_is_brought_was_held_carried_or_just_frozen(message):
    for seed in range(2):
        costs, offers, present = drawn(seed + 10)
        _, found = run(message, costs, offers, present, 0.3, control="ideal", losing=True)
        held, sends = np.asarray(found.held), np.asarray(found.sends)
        assert (found.carried is None) == (message == "copy")
        own = [[0] for _ in range(NODES)]  # stamps frozen so far
        for t in range(SLOTS - 2):
            for origin in range(NODES):
                if sends[t, origin]:
                    own[origin].append(t + 1)
                brought = held[t + 1, OTHERS[:, origin], origin]
                kept = {*held[t, OTHERS[:, origin], origin].tolist()}
                if message == "copy":
                    kept |= {*own[origin][-2:]}  # its `recent` newest
                else:
                    kept |= {*np.asarray(found.carried)[t, :, origin].tolist()}
                    kept |= {t + 1} if sends[t, origin] else set()
                assert {*brought.tolist()} <= kept
                assert {*brought.tolist()} <= {*own[origin]}
        assert (held <= np.arange(1, SLOTS)[:, None, None]).all()
        assert (held >= 0).all()


def test_adopting_a_sum_lowers_the_weighted_sum_of_ages():
    costs, offers, present = drawn(4)
    _, found = run(
        "sum", costs, offers, present, 0.0, control="heard", contention=0.05, weights=WEIGHTS
    )
    held = np.where(OTHERS, np.asarray(found.held), 0)
    total = (omega_of(WEIGHTS)[None] * held).sum(axis=2)  # of stamps, without the own one
    changed = (held[1:] != held[:-1]).any(axis=2)
    assert changed.sum() > 20
    assert (np.diff(total, axis=0)[changed] > 0).all()


def test_copies_and_forwards_only_grow_younger():
    costs, offers, present = drawn(5)
    for message in ("copy", "forward"):
        _, found = run(message, costs, offers, present, 0.0, control="ideal")
        held = np.asarray(found.held)
        assert (held[1:] >= held[:-1]).all()


@pytest.mark.parametrize(("nodes", "slots"), [(2, 1), (2, 3), (3, 2)])
def test_on_a_shared_channel_copies_go_round(nodes, slots):
    # Each of n nodes starts every n c slots and is heard c slots later: ages c .. (n + 1) c - 1.
    timeline = record_timeline(shared(float(slots)), nodes, 20 * nodes * slots)
    late = slice(2 * nodes * slots, None)
    ages = np.arange(len(timeline.held))[:, None, None] - timeline.held
    ages = ages[late][:, ~np.eye(nodes, dtype=bool)]
    assert ages.min() == slots
    assert ages.max() == (nodes + 1) * slots - 1
    assert ages.mean() == pytest.approx(((nodes + 2) * slots - 1) / 2, abs=1e-9)


def test_ten_tenths_of_a_slot_are_a_slot():
    # Five nodes at a fifth of a slot all send within each slot, and all are heard in the next.
    held = record_timeline(shared(0.2), 5, 30).held
    others = ~np.eye(5, dtype=bool)
    assert (np.arange(2, 30)[:, None] - held[2:][:, others] == 1).all()


def test_between_two_nodes_all_messages_are_alike():
    timelines = [record_timeline(shared(1.7, message), 2, 60) for message in MESSAGES]
    for other in timelines[1:]:
        np.testing.assert_array_equal(timelines[0].held, other.held)


@pytest.mark.parametrize("message", MESSAGES)
def test_where_all_hear_all_it_is_enough_to_know_what_was_heard(message):
    ideal, heard = (
        record_timeline(shared(0.7, message, control), 4, 60) for control in serial.CONTROLS
    )
    np.testing.assert_array_equal(ideal.held, heard.held)
    dear = record_timeline(shared(0.7, message, "heard", contention_slots=0.3), 4, 60)
    age = np.arange(60)[:, None, None]
    assert (age - dear.held).mean() > (age - heard.held).mean()


def test_a_batch_of_runs_is_the_runs_one_by_one():
    tables = [drawn(seed) for seed in range(2)]
    batch = [np.stack(part) for part in zip(*tables, strict=True)]
    ask = partial(run, "sum", control="ideal")
    together = jax.vmap(lambda c, o, p: ask(c, o, p, 0.0)[1].held)(*batch)
    for number, table in enumerate(tables):
        np.testing.assert_array_equal(together[number], ask(*table, 0.0)[1].held)


@pytest.mark.parametrize("message", MESSAGES)
def test_a_radio_timeline_can_have_happened(message):
    network = RadioNetwork(schedule="index", message=message, slot_s=0.2)
    timeline = record_timeline(network, 5, 60, message_bits=16 * 430_698)
    check_timeline(timeline)
    lossy = record_timeline(Lossy(network, 0.4), 5, 60, message_bits=16 * 430_698)
    check_timeline(lossy)
    age = np.arange(60)[:, None, None]
    others = ~np.eye(5, dtype=bool)
    assert (age - lossy.held)[:, others].mean() > (age - timeline.held)[:, others].mean()


def test_a_loss_of_nothing_changes_nothing():
    costs, offers, present = drawn(6)
    plain, none = (
        run("sum", costs, offers, present, 0.0, control="ideal", losing=losing)[1]
        for losing in (False, True)
    )
    np.testing.assert_array_equal(plain.held, none.held)


def test_a_recorded_sum_may_come_out_of_order():
    network = RadioNetwork(schedule="index", message="sum", slot_s=0.2)
    held = record_timeline(network, 5, 120, message_bits=16 * 430_698).held
    assert (np.diff(held, axis=0) < 0).any()


def after_a_slot(network, nodes, bits, slots=1) -> Any:
    """Return the state of a network after its first slots."""
    peers: Any = network.peers()
    key = jax.random.key(8)
    state, step = peers.init(nodes, key), jax.jit(peers.step)
    for t in range(slots):
        state, _ = step(state, jnp.ones(nodes, bool), bits, jax.random.fold_in(key, t))
    return state


def test_the_fading_is_that_of_the_threshold_rule():
    bits = 16 * 430_698
    rates = after_a_slot(RadioNetwork(threshold_db=-np.inf), 2, bits).se_min
    index = RadioNetwork(schedule="index", control_bits=0, slot_s=1e-3)  # one transfer, long
    state = after_a_slot(index, 2, bits)
    rate = bits / (index.slot_s * index.bandwidth_hz * float(state.sums.air_slots))
    assert rate == pytest.approx(float(np.max(rates)), rel=1e-5)  # the better of two


def test_a_message_pays_for_its_control_traffic():
    def slots(control_bits):
        network = RadioNetwork(schedule="index", control_bits=control_bits, slot_s=1e-3)
        return float(after_a_slot(network, 2, 1_000_000).sums.air_slots)

    assert slots(1_000_000) == pytest.approx(2 * slots(0), rel=1e-5)
    assert slots(None) / slots(0) == pytest.approx(1 + 24 * 2**2 / 1e6, rel=1e-6)


def test_nodes_that_move_meet_other_rates():
    still, moving = (
        after_a_slot(RadioNetwork(schedule="index", speed_m_per_s=speed), 3, 1e5, slots=4).air
        for speed in (0.0, 20.0)
    )
    assert not np.array_equal(still.link, moving.link)
    moved_m = np.linalg.norm(still.nodes.positions_m - moving.nodes.positions_m, axis=1)
    assert ((moved_m > 0) & (moved_m <= 80 + 1e-3)).all()


def test_wrong_settings_are_refused_with_the_remedy():
    with pytest.raises(ValueError, match="needs schedule = 'index'"):
        RadioNetwork(message="sum")
    with pytest.raises(ValueError, match="'copy', 'forward', 'sum', got 'rumour'"):
        RadioNetwork(schedule="index", message="rumour")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'ideal' or 'heard', got 'seen'"):
        shared(control="seen")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="control_bits must not be negative"):
        RadioNetwork(schedule="index", control_bits=-1)
    with pytest.raises(ValueError, match="one number per node, got 2 for 3 nodes"):
        record_timeline(shared(weights=(1.0, 2.0)), 3, 5)
    with pytest.raises(ValueError, match="in Python give them"):
        record_timeline(shared(weights="shares"), 3, 5)
    with pytest.raises(ValueError, match="slots must be above 0"):
        shared(0.0)
    with pytest.raises(ValueError, match="'threshold' or 'index'"):
        RadioNetwork(schedule="whim")  # type: ignore[arg-type]
    with pytest.raises(
        ValueError, match="control_bits, weights and thrift are for schedule = 'index'"
    ):
        RadioNetwork(control_bits=100)


def test_waits_and_transfers_are_measured():
    network = shared(2.0)
    peers, key, offers = network.peers(), jax.random.key(0), jnp.ones(3, bool)
    state, step = peers.init(3, key), jax.jit(peers.step)
    for t in range(40):
        state, _ = step(state, offers, 1, jax.random.fold_in(key, t))
    found = {name: float(value) for name, value in peers.measures(state).items()}
    assert found["gamma_t"] == pytest.approx(2.0)
    # A pair's next transfer starts four slots after its last arrived; the first ones wait less.
    assert 3.0 < found["gamma_w"] <= 4.0
