"""The radio around a server, slot by slot against a plain re-telling from positions and fading draws."""

import itertools
from dataclasses import replace

import jax
import numpy as np
import pytest

from folkman.keys import Stream
from folkman.radio.air import NUM_FADING
from folkman.radio.network import RadioNetwork

BITS = 2500 * 16
NARROW = RadioNetwork(
    bandwidth_hz=15e3, least_sinr_db=6.0
)  # some slots a message, and blocks that are too bad
NODES, SLOTS = 4, 150


class Waits:
    """A server that answers all when all have uploaded, or each node (`each`) when it has."""

    def __init__(self, each):
        self.each, self.got, self.owed = each, np.zeros(NODES, bool), np.zeros(NODES, bool)

    def hears(self, arrived):
        """Note uploads, and return whom it owes an answer."""
        self.got |= arrived
        ready = self.got if self.each else self.got & self.got.all()
        self.owed, self.got = self.owed | ready, self.got & ~ready
        return self.owed

    def starts(self, started):
        """Note the answers on their way."""
        self.owed = self.owed & ~started


def keys_of(seed, t):
    """Return the keys of the uploads and of the answers of a slot."""
    return jax.random.split(jax.random.fold_in(jax.random.key(seed), t))


def drive(network, each=False, seed=0):
    """Run the star alone; return the four events (slot, event, node), and the states after every slot."""
    up = jax.jit(lambda state, offers, key: network.star().uplink(state, offers, BITS, key))
    down = jax.jit(lambda state, offers, key: network.star().downlink(state, offers, BITS, key))
    state, server = network.star().init(NODES, jax.random.key(seed)), Waits(each)
    events, states = [], []
    for t in range(SLOTS):
        up_key, down_key = keys_of(seed, t)
        state, upload = up(state, np.ones(NODES, bool), up_key)
        state, answer = down(state, server.hears(np.asarray(upload.arrived)), down_key)
        server.starts(np.asarray(answer.started))
        assert not np.asarray(upload.lost | answer.lost).any()  # an outage delays
        events.append([upload.started, upload.arrived, answer.started, answer.arrived])
        states.append(jax.tree.map(np.asarray, state))
    return np.array(events), states


def sinr_of(network, gain, interferers, background, key):
    """Draw a block by eq. (24) in NumPy: (node,) gains, (node, point) of what fades, (node,) of what does not."""
    link_key, other_key = jax.random.split(jax.random.fold_in(key, int(Stream.FADING)))
    fading = np.asarray(jax.random.exponential(link_key, (1, NODES)), np.float64)[0]
    others = np.asarray(jax.random.exponential(other_key, (1, *interferers.shape)), np.float64)[0]
    power_w = 10 ** ((network.power_dbm - 30) / 10)
    noise_w = 10 ** ((network.noise_dbm_per_hz - 30) / 10) * network.bandwidth_hz
    return (
        power_w
        * fading
        * gain
        / (power_w * ((others * interferers).sum(axis=1) + background) + noise_w)
    )


def path_gain(a_m, b_m):
    """Return d^-4, distances of at least a metre."""
    return np.maximum(np.linalg.norm(a_m - b_m, axis=-1), 1.0) ** -4.0


def blocks(network, air, key_up, key_down):
    """Return the SINR of the uploads and of the answers of a slot, from positions."""
    nodes_m = np.asarray(air.nodes.positions_m, np.float64)
    points_m, present = (
        np.asarray(air.interferers.positions_m, np.float64),
        np.asarray(air.interferers.present),
    )
    station = path_gain(nodes_m, 0.0)
    at_station = np.where(
        present, path_gain(points_m, 0.0), 0.0
    )  # band i: the interferers of node i
    at_nodes = np.where(
        present[0], path_gain(nodes_m[:, None], points_m[0][None]), 0.0
    )  # the answer's is band 0
    return (
        sinr_of(network, station, at_station, 0.0, key_up),
        sinr_of(
            network,
            station,
            at_nodes[:, :NUM_FADING],
            at_nodes[:, NUM_FADING:].sum(axis=1),
            key_down,
        ),
    )


def whole(duration):
    """Return max(1, ceil(.)), with some room for float32."""
    return max(1, int(np.ceil(duration - 1e-4)))


def retell(network, airs, each=False, seed=0):
    """Tell the star again in plain NumPy; `airs` say where everything is in each slot."""
    least, band_hz = 10 ** (network.least_sinr_db / 10), network.bandwidth_hz
    server, waiting = Waits(each), np.zeros(NODES, bool)
    up, down = {}, {}  # node -> (slot of arrival, hertz), slot of arrival
    events, refused = [], 0
    for t, air in enumerate(airs):
        sinr_up, sinr_down = blocks(network, air, *keys_of(seed, t))
        arrived = [i for i in up if up[i][0] == t]
        for i in arrived:
            del up[i]
        free_hz = band_hz - sum(hz for _, hz in up.values())
        wants = [i for i in range(NODES) if not waiting[i] and sinr_up[i] >= least]
        refused += sum(not waiting[i] and sinr_up[i] < least for i in range(NODES))
        starts = wants if free_hz > 1e-3 * band_hz else []
        rate = np.log2(1 + sinr_up)
        for i in starts:  # Proposition 1 over what is free
            hz = free_hz * (1 / rate[i]) / sum(1 / rate[k] for k in starts)
            up[i] = (t + whole(BITS / (network.slot_s * hz * rate[i])), hz)
            waiting[i] = True
        owed = server.hears(mask(arrived))
        answered = [i for i in down if down[i] == t]
        for i in answered:
            del down[i]
            waiting[i] = False
        told = [] if down else [i for i in range(NODES) if owed[i] and sinr_down[i] >= least]
        if told:  # one broadcast over B at the worst rate
            length = whole(
                BITS / (network.slot_s * band_hz * min(np.log2(1 + sinr_down[i]) for i in told))
            )
            down |= dict.fromkeys(told, t + length)
            waiting[told] = True
        for i in told:
            up.pop(i, None)
        server.starts(mask(told))
        events.append([mask(starts), mask(arrived), mask(told), mask(answered)])
    return np.array(events), refused


def mask(nodes):
    """Return nodes as bool."""
    return np.isin(np.arange(NODES), nodes)


@pytest.mark.parametrize("each", [False, True], ids=["all", "each"])
@pytest.mark.parametrize("speed", [0.0, 30.0])
def test_the_star_is_its_plain_retelling(each, speed):
    network = replace(NARROW, speed_m_per_s=speed)

    events, states = drive(network, each)

    told, refused = retell(network, [state.air for state in states], each)
    np.testing.assert_array_equal(events, told)
    assert refused > 10  # blocks below least_sinr_db, which nobody may use
    assert told.sum(axis=0).min() > 3  # every event of every node, several times
    assert max(state.up_left.max() for state in states) > 2
    assert max(state.down_left.max() for state in states) > 1
    answers = events[:, 2].sum(axis=1)
    assert (answers > 1).any()  # a broadcast to several, at the rate of the worst
    if each:
        lone = (events[:, 0].any(axis=1)) & np.array([(s.up_left > 0).sum() > 1 for s in states])
        assert lone.sum() > 3  # uploads that start beside others


def test_what_peers_do_with_the_band_does_not_change_the_star():
    (plain, _), (other, _) = (
        drive(replace(NARROW, allocation=a, period=p, threshold_db=t), each=True)
        for a, p, t in (("optimal", "epoch", 0.0), ("random", "node", 9.0))
    )

    np.testing.assert_array_equal(plain, other)


def test_answers_go_out_one_broadcast_at_a_time_and_uploads_fit_the_band():
    events, states = drive(NARROW, each=True, seed=3)

    lengths = []
    for before, after, event in zip(states, states[1:], events[1:], strict=False):
        started = event[2]
        if (before.down_left > 1).any():
            assert not started.any()
        if started.any():
            lengths += [len(set(after.down_left[started]))]
            assert (after.down_left[~started] == 0).all()
    assert len(lengths) > 5
    assert set(lengths) == {1}
    assert max(state.in_use_hz.sum() for state in states) <= 15e3 * (1 + 1e-5)


def test_nodes_around_a_server_move_in_every_slot_by_no_more_than_their_speed():
    _, states = drive(replace(NARROW, speed_m_per_s=30.0), seed=1)

    steps = np.array(
        [
            np.linalg.norm(b.air.nodes.positions_m - a.air.nodes.positions_m, axis=1)
            for a, b in itertools.pairwise(states)
        ]
    )
    assert [int(state.slot) for state in states] == list(range(1, SLOTS + 1))
    assert steps.max() <= 30.0 + 1e-2
    assert (steps.max(axis=1) > 1.0).all()


def test_an_answer_ends_the_upload_and_frees_its_band():
    network = replace(NARROW, least_sinr_db=-300.0)
    uplink, downlink = jax.jit(network.star().uplink), jax.jit(network.star().downlink)
    nobody, first = mask([]), mask([0])
    state = network.star().init(NODES, jax.random.key(0))
    state, upload = uplink(state, first, 20 * BITS, jax.random.key(1))
    assert upload.started.tolist() == first.tolist()
    assert float(state.in_use_hz[0]) == pytest.approx(15e3)
    assert int(state.up_left[0]) > 2

    state, answer = downlink(state, first, 100 * BITS, jax.random.key(2))

    assert answer.started.tolist() == first.tolist()
    assert int(state.up_left[0]) == 0
    assert float(state.in_use_hz.sum()) == 0.0
    length = int(state.down_left[0])
    assert length > 3
    state, second = uplink(state, mask([0, 1]), BITS, jax.random.key(3))
    assert (
        second.started.tolist() == mask([1]).tolist()
    )  # 0 is being answered; 1 finds the band free
    assert float(state.in_use_hz[1]) == pytest.approx(15e3)
    arrivals = []
    for t in range(length):
        state, upload = uplink(state, nobody, BITS, jax.random.key(10 + t))
        state, answer = downlink(state, nobody, BITS, jax.random.key(50 + t))
        assert not upload.arrived[0]  # what was ended never arrives
        arrivals.append(bool(answer.arrived[0]))
    assert arrivals == [False] * (length - 1) + [True]
    assert not state.waiting[0]


def test_a_node_answered_again_at_once_does_not_upload_meanwhile():
    network = replace(NARROW, least_sinr_db=-300.0)
    downlink = jax.jit(network.star().downlink)
    first, state = mask([0]), network.star().init(NODES, jax.random.key(0))
    state, _ = downlink(state, first, BITS, jax.random.key(0))
    rows = []
    for t in range(int(state.down_left[0])):
        state, answer = downlink(state, first, BITS, jax.random.key(1 + t))
        rows.append((bool(answer.arrived[0]), bool(answer.started[0]), bool(state.waiting[0])))

    assert rows == [(False, False, True)] * (len(rows) - 1) + [
        (True, True, True)
    ]  # the next begins as one ends


def test_free_answers_arrive_when_they_start():
    events, _ = drive(replace(NARROW, answers="free"), each=True)

    np.testing.assert_array_equal(events[:, 2], events[:, 1])
    np.testing.assert_array_equal(events[:, 3], events[:, 1])
    assert events[:, 3].sum() > 20


def test_a_base_station_that_hears_nobody_starts_nothing():
    events, states = drive(replace(NARROW, least_sinr_db=200.0))

    assert not events.any()
    assert not states[-1].waiting.any()
