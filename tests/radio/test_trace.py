"""A timeline written down: round trip, and damage refused."""

import numpy as np
import pytest

from folkman import (
    Recording,
    async_sharing,
    fedavg,
    iid,
    record_timeline,
    replay,
    simulate,
    snapshot,
)
from folkman.radio import trace


@pytest.mark.parametrize("algorithm", [async_sharing(0.1), fedavg(0.1)], ids=lambda a: a.name)
def test_a_timeline_survives_the_disk(digits, algorithm, tmp_path):
    run = simulate(digits, iid(3), algorithm, slots=9, recording=Recording(timeline=True))

    trace.save(run.timeline, tmp_path / "t.npz")
    found = trace.load(tmp_path / "t.npz")

    assert type(found) is type(run.timeline)
    for a, b in zip(found, run.timeline, strict=True):
        np.testing.assert_array_equal(a, b)
    assert [path.name for path in tmp_path.iterdir()] == ["t.npz"]


def test_a_file_that_is_no_timeline_is_refused(tmp_path):
    path = tmp_path / "t.npz"
    with pytest.raises(ValueError, match=r"there is no .*t\.npz"):
        trace.load(path)
    path.write_bytes(b"PK\x03\x04 not really")
    with pytest.raises(ValueError, match="not readable"):
        trace.load(path)
    np.savez(path, something=np.zeros(3))
    with pytest.raises(ValueError, match="holds something"):
        trace.load(path)
    np.savez(path, held=np.array([object()], dtype=object), sends=np.zeros(1), finished=np.zeros(1))
    with pytest.raises(ValueError, match="not readable"):  # a pickle inside: never opened
        trace.load(path)


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda t: t.held.__setitem__((3, 0, 1), 9), "stamped 9, expected 0 .. 3"),
        (lambda t: t.held.__setitem__((3, 0, 1), -1), "stamped -1"),
        (lambda t: t.sends.__setitem__((slice(None), 1), False), "never sent"),
    ],
)
def test_a_timeline_that_cannot_have_happened_is_refused(damage, complaint):
    held, sends, finished = record_timeline(snapshot(2), 3, 8)
    timeline = trace.PeerTimeline(held.copy(), sends.copy(), finished)
    damage(timeline)

    with pytest.raises(ValueError, match=complaint):
        replay(timeline)


def test_a_timeline_of_another_size_is_refused(digits):
    with pytest.raises(ValueError, match="recorded between 3 nodes, the problem has 5"):
        simulate(digits, replay(record_timeline(snapshot(2), 3, 8)), async_sharing(), slots=8)


def test_a_timeline_between_peers_has_no_server(digits):
    with pytest.raises(ValueError, match="does not carry uploads to a server"):
        simulate(digits, replay(record_timeline(snapshot(2), 5, 8)), fedavg(), slots=8)


def test_a_recording_is_refused_for_a_longer_run(digits):
    with pytest.raises(ValueError, match="recorded for 8 slots, the run asks for 20"):
        simulate(digits, replay(record_timeline(snapshot(2), 5, 8)), async_sharing(0.1), slots=20)


@pytest.mark.parametrize("network", [snapshot(3), iid(3)], ids=lambda n: n.name)
def test_a_replay_counts_the_same_traffic(digits, network):
    first = simulate(digits, network, async_sharing(0.1), slots=20)
    again = simulate(digits, replay(record_timeline(network, 5, 20)), async_sharing(0.1), slots=20)

    for name in ("bits", "bits_unicast", "rounds", "mean_age", "max_age", "train_loss", "kappa"):
        assert again.column(name) == first.column(name), name


@pytest.mark.parametrize("network", [snapshot(3), iid(3)], ids=lambda n: n.name)
def test_a_network_rolled_out_alone_is_that_of_a_run_in_which_everyone_computes(digits, network):
    recording = Recording(9, timeline=True)
    run = simulate(digits, network, async_sharing(0.1), slots=9, seed=2, recording=recording)

    alone = record_timeline(network, 5, 9, seed=2)

    for a, b in zip(alone, run.timeline, strict=True):
        np.testing.assert_array_equal(a, b)
