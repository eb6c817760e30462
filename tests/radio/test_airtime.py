"""How long radios are in use: against re-tellings, closed forms, and what cannot be otherwise."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_serial import NODES, SLOTS, drawn, omega_of, run

from folkman.keys import Stream, make_key
from folkman.radio import serial_star
from folkman.radio.air import place
from folkman.radio.loss import Lossy
from folkman.radio.network import RadioNetwork
from folkman.radio.planning import Drops, forecast
from reference import energy, fresh

BITS = 650 * 16
NARROW = RadioNetwork(bandwidth_hz=15e3)  # a message takes some slots


def rolled(network, nodes=NODES, slots=SLOTS, seed=0, bits=BITS, lossy=0.0):
    """Run peers alone; return the deliveries, stacked, the last state, and every slot's SINR."""
    key, offers = jax.random.key(seed), jnp.ones(nodes, bool)
    peers: Any = (Lossy(network, lossy) if lossy else network).peers()
    air = place(network, nodes, key)

    def slot(state, t):
        now = jax.random.fold_in(key, t)
        sinr = network.sinr(air, jax.random.fold_in(now, int(Stream.FADING)))
        state, delivery = peers.step(state, offers, bits, now)
        return state, (delivery, sinr)

    roll = jax.jit(lambda: jax.lax.scan(slot, peers.init(nodes, key), jnp.arange(slots)))
    state, (deliveries, sinr) = jax.tree.map(np.asarray, roll())
    return state, deliveries, sinr.astype(np.float64)


@pytest.mark.parametrize("message", ["copy", "sum"])
def test_messages_one_after_the_other_are_on_the_air_as_the_re_telling_says(message):
    for seed in range(3):
        costs, offers, present = drawn(seed)
        _, delivery = run(message, costs, offers, present, 0.0, control="ideal")
        told = fresh.tell(
            np.asarray(costs, np.float64), message, offers, present, omega_of("alike")
        )
        transmit, receive = energy.of_messages(told.messages, present, SLOTS)
        assert transmit.sum() > 10
        np.testing.assert_allclose(delivery.airtime.transmit, transmit[:-1], atol=2e-4)
        np.testing.assert_allclose(delivery.airtime.receive, receive[:-1], atol=2e-4)


@pytest.mark.parametrize(("control", "contention"), [("ideal", 0.0), ("heard", 0.05)])
def test_the_time_that_all_nodes_send_is_the_time_that_the_band_is_in_use(control, contention):
    costs, offers, present = drawn(7)
    state, delivery = run(
        "sum", costs, offers, present | True, 0.0, control=control, contention=contention
    )
    sent = np.asarray(delivery.airtime.transmit, np.float64)
    assert sent.sum(axis=1).max() <= 1 + 1e-5
    assert ((sent > 0) & (np.asarray(delivery.airtime.receive) > 0)).any()  # one after the other
    if control == "ideal":  # what has begun has been sent, but for what is still on the air
        coming = float(jnp.sum(state.airtime.transmit))
        left = float(jnp.where(state.flight.sender >= 0, state.busy, 0.0))
        whole = sent.sum() + coming + left
        assert whole == pytest.approx(float(state.sums.air_slots), rel=1e-5)
    else:  # contentions are signals: they are on the air too
        assert sent.sum() > float(state.sums.air_slots) - float(state.busy) - 1


@pytest.mark.parametrize("threshold_db", [0.0, 12.0])
def test_epochs_are_on_the_air_as_the_re_telling_says(threshold_db):
    network = RadioNetwork(threshold_db, bandwidth_hz=15e3)
    _, delivery, sinr = rolled(network)
    linked = (sinr > 10 ** (threshold_db / 10)) & ~np.eye(NODES, dtype=bool)
    transmit, receive = energy.of_epochs(sinr, linked, BITS, 15e3, 1.0)
    assert transmit.sum() > 10
    np.testing.assert_allclose(delivery.airtime.transmit, transmit, atol=1e-4)
    np.testing.assert_allclose(delivery.airtime.receive, receive, atol=1e-4)


def test_an_epoch_sends_as_many_times_longer_as_there_are_senders():
    """Its broadcasts one after the other on the whole band take S / (T B R_i) each.

    Proposition 1 lets all of them last as long as these together: sum_i S / (T B R_i).
    """
    network = RadioNetwork(-30.0, bandwidth_hz=2e6)  # within a slot, and everyone is heard
    _, delivery, sinr = rolled(network, slots=2)
    heard = np.where(np.eye(NODES, dtype=bool), np.inf, sinr[0])
    alone = BITS / (2e6 * np.log2(1 + heard.min(axis=0)))
    assert alone.sum() < 1
    np.testing.assert_allclose(delivery.airtime.transmit[1], alone.sum(), rtol=1e-5)
    np.testing.assert_allclose(delivery.airtime.receive[1], alone.sum(), rtol=1e-5)
    assert delivery.airtime.transmit[1].sum() == pytest.approx(NODES * alone.sum(), rel=1e-5)


def test_periods_of_their_own_never_use_more_than_the_slot_and_the_band():
    network = RadioNetwork(-5.0, period="node", bandwidth_hz=15e3)
    _, delivery, _ = rolled(network)
    sent, heard = delivery.airtime
    assert 0 < sent.max() <= 1
    assert (heard <= sent.max(axis=1, keepdims=True)).all()


def test_the_station_listens_while_anyone_sends_and_is_heard_at_the_worst_rate():
    """All uploads end together, after sum_i S / (T B R_i); then one answer takes S / (T B R_min)."""
    network = RadioNetwork(bandwidth_hz=20e6, least_sinr_db=-60.0)
    star: Any = network.star()
    key = jax.random.key(1)
    state, offers, none = star.init(NODES, key), jnp.ones(NODES, bool), jnp.zeros(NODES, bool)
    state, started = star.uplink(state, offers, BITS, key)
    left = np.asarray(state.up_air)
    assert started.started.all()
    assert (left < 1).all()
    np.testing.assert_allclose(left, left[0], rtol=1e-5)
    rates = BITS / (np.asarray(state.in_use_hz, np.float64) * left)
    np.testing.assert_allclose(left, (BITS / (20e6 * rates)).sum(), rtol=1e-5)
    assert not started.airtime.any()  # it goes on the air with the next slot
    state, upload = star.uplink(state, none, BITS, key)
    np.testing.assert_array_equal(upload.airtime, left)
    state, _ = star.downlink(state, offers, BITS, key)
    answer = np.asarray(state.down_air)
    assert (answer == answer[0]).all()
    state, download = star.downlink(state, none, BITS, key)
    np.testing.assert_array_equal(download.airtime, answer)
    _, silent = star.downlink(state, none, BITS, key)
    assert not silent.airtime.any()


def test_an_upload_that_is_answered_before_its_end_is_on_the_air_no_longer():
    star: Any = NARROW.star()
    key = jax.random.key(2)
    state, offers = star.init(NODES, key), jnp.ones(NODES, bool)
    state, _ = star.uplink(state, offers, BITS, key)
    assert (state.up_air > 1).all()
    state, _ = star.downlink(state, offers, BITS, key)
    assert not state.up_air.any()


def test_losses_do_not_shorten_what_is_sent():
    sure, lossy = rolled(NARROW, slots=8), rolled(NARROW, slots=8, lossy=0.5)
    assert sure[1].airtime.transmit.any()
    assert (sure[1].held != lossy[1].held).any()
    np.testing.assert_array_equal(sure[1].airtime.transmit, lossy[1].airtime.transmit)
    np.testing.assert_array_equal(sure[1].airtime.receive, lossy[1].airtime.receive)


def test_a_planner_tells_the_shares_of_time_that_a_run_has():
    found = forecast(NARROW, NODES, BITS, Drops(2, SLOTS, 0))

    key = jax.random.fold_in(make_key(0, Stream.DELAY), 1)
    peers, offers = NARROW.peers(), jnp.ones(NODES, bool)

    def slot(state, t):
        state, delivery = peers.step(state, offers, BITS, jax.random.fold_in(key, t))
        return state, delivery.airtime

    _, told = jax.jit(lambda: jax.lax.scan(slot, peers.init(NODES, key), jnp.arange(SLOTS)))()
    assert found.transmit[1] == pytest.approx(float(told.transmit.mean()), rel=1e-5)
    assert found.receive[1] == pytest.approx(float(told.receive.mean()), rel=1e-5)


@pytest.mark.parametrize("way", ["rounds", "all_reduce"])
def test_rounds_one_after_the_other_are_on_the_air_as_long_as_the_band_is_in_use(way):
    network = RadioNetwork(schedule="index", bandwidth_hz=60e3)
    rounds: Any = getattr(network, way)()
    key, everyone = jax.random.key(2), jnp.ones(NODES, bool)
    wanted = ~jnp.eye(NODES, dtype=bool)

    def slot(state, t):
        return rounds.step(state, everyone, wanted, BITS, jax.random.fold_in(key, t))

    roll = jax.jit(lambda: jax.lax.scan(slot, rounds.init(NODES, key), jnp.arange(60)))
    state, delivery = jax.tree.map(np.asarray, roll())
    sent = delivery.airtime.transmit.astype(np.float64)
    left = state.busy if state.sender >= 0 else 0.0
    whole = sent.sum() + state.airtime.transmit.sum() + left
    assert state.sums.number > 10
    assert whole == pytest.approx(float(state.sums.air_slots), rel=1e-4)
    assert sent.sum(axis=1).max() <= 1 + 1e-5
    assert (delivery.airtime.receive.sum(axis=1) >= sent.sum(axis=1) - 1e-5).all()


def test_the_station_is_on_as_long_as_uploads_that_follow_each_other():
    """One upload at a time: the station listens for the sum of what its nodes send."""
    network = RadioNetwork(schedule="index", bandwidth_hz=60e3)
    star: Any = network.star()
    key, everyone = jax.random.key(4), jnp.ones(NODES, bool)

    def slot(state, t):
        now = jax.random.fold_in(key, t)
        state, upload = star.uplink(state, everyone, BITS, now)
        state, answer = star.downlink(state, upload.arrived, BITS, now)
        return state, (upload, answer)

    roll = jax.jit(lambda: jax.lax.scan(slot, star.init(NODES, key), jnp.arange(60)))
    _, (upload, answer) = jax.tree.map(np.asarray, roll())
    sent = upload.airtime.sum(axis=1)
    assert upload.arrived.sum() > 10
    np.testing.assert_allclose(upload.server, sent, atol=1e-5)
    assert (upload.airtime.max(axis=1) < sent - 0.05).any()  # several in a slot: no maximum
    assert sent.max() <= 1 + 1e-5
    # an answer is one message to all who hear it
    assert (answer.server <= answer.airtime.sum(axis=1) + 1e-5).all()
    assert (answer.server >= answer.airtime.max(axis=1) - 1e-5).all()


def test_an_upload_is_on_the_air_for_the_time_of_its_link():
    """One node that is heard alike in all slots: each upload takes the same part of a slot."""
    star: Any = RadioNetwork(schedule="index", answers="free").star()
    way = star.init(1, jax.random.key(0)).up._replace(wants=jnp.ones(1, bool))
    used = []
    for _ in range(3):
        way, _ = serial_star._fill(way, jnp.full(1, 1.3, jnp.float32), serial_star.one_at_a_time)
        used.append(float(way.used[0]))
        way = way._replace(wants=way.wants | way.done)
    np.testing.assert_allclose(used, [1.0, 0.3, 1.0], atol=1e-6)
