"""Ages of held copies, added up over every slot; staleness of uploads; pairs that never met."""

import numpy as np
import pytest
from safetensors import safe_open

from folkman.algorithm.async_sharing import async_sharing
from folkman.algorithm.dpsgd import dpsgd
from folkman.algorithm.fedasync import fedasync
from folkman.algorithm.fedavg import fedavg
from folkman.algorithm.fedbuff import fedbuff
from folkman.engine import checkpoint
from folkman.engine.simulate import Clock, Recording, Simulation, march, simulate, start
from folkman.experiment.frames import frame_of
from folkman.files import save_tensors
from folkman.keys import Stream, make_key
from folkman.problem.data import quadratic
from folkman.problem.problem import make_problem
from folkman.radio.delay import constant, pipelined, snapshot
from folkman.radio.network import RadioNetwork
from folkman.radio.shared import shared
from folkman.record.scene import from_timeline, join, load_scene, save_scene
from folkman.report.network_page import node_rows
from folkman.report.scenes import draw_age_table

NODES, GAMMA, SLOTS = 4, 5, 100


@pytest.fixture(scope="module")
def bowls():
    data = quadratic(nodes=NODES, dim=3, seed=1)
    return make_problem(data, "quadratic", [np.array([i]) for i in range(NODES)])


def scene_at_end(simulation, slots):
    """Return the scene of a run as an observer keeps it."""
    marks = march(simulation, start(simulation, 0), slots)
    return join([frame_of(simulation, mark) for mark, _ in marks])


@pytest.mark.parametrize(("law", "trip"), [(snapshot, 0), (pipelined, GAMMA)])
def test_mean_ages_are_those_of_all_slots_however_a_run_is_recorded(bowls, law, trip):
    """Recorded every 10 slots of a network of period 5, every pair has its closed form.

    Of a sender with phase p the ages are 0, 1, ... until its first copy is there, and then
    trip + (t - p) mod 5.
    """
    slot = np.arange(SLOTS)
    closed = [
        np.where(slot < phase + trip, slot, trip + (slot - phase) % GAMMA).mean()
        for phase in range(GAMMA)
    ]
    simulation = Simulation(bowls, law(GAMMA), async_sharing(0.01), recording=Recording(every=10))
    scene = scene_at_end(simulation, SLOTS)
    phase = np.asarray(simulation.network.peers().init(NODES, start_key()).phase)
    for rx, tx in np.argwhere(~np.eye(NODES, dtype=bool)):
        assert scene.mean_ages[rx, tx] == closed[phase[tx]]
    frames = scene.age_slots.mean(axis=0)  # what the averages of frames would say
    assert np.abs(frames - scene.mean_ages)[~np.eye(NODES, dtype=bool)].max() > 0.5
    headings, rows = node_rows(scene)
    shown = [row[headings.index("age of its copies")] for row in rows]
    assert shown == [f"{closed[p]:.3g}" for p in phase]
    drawn = {text.get_position(): text.get_text() for text in draw_age_table(scene).axes[0].texts}
    assert drawn == {
        (tx, rx): f"{closed[phase[tx]]:.3g}"
        for rx, tx in np.argwhere(~np.eye(NODES, dtype=bool)).tolist()
    }


def start_key():
    """Return the key of the network's first draws under seed 0."""
    return make_key(0, Stream.DELAY)


def test_sums_of_ages_agree_with_the_timeline_and_with_its_scene(bowls, tmp_path):
    recording = Recording(every=7, timeline=True)
    run = simulate(bowls, pipelined(3), dpsgd(0.01), slots=49, recording=recording)
    simulation = Simulation(bowls, pipelined(3), dpsgd(0.01), recording=Recording(every=7))
    scene = scene_at_end(simulation, 49)
    off = ~np.eye(NODES, dtype=bool)
    by_hand = np.mean([slot - held for slot, held in enumerate(run.timeline.held)], axis=0)
    np.testing.assert_allclose(scene.mean_ages[off], by_hand[off], rtol=1e-12)
    told = from_timeline(run.timeline.held, run.timeline.finished)
    before = np.mean([slot - held for slot, held in enumerate(run.timeline.held[:-1])], axis=0)
    np.testing.assert_allclose(told.mean_ages[off], before[off], rtol=1e-12)
    save_scene(scene, tmp_path / "scene.npz")
    again = load_scene(tmp_path / "scene.npz")
    assert again is not None
    np.testing.assert_array_equal(again.mean_ages, scene.mean_ages)


def test_a_scene_of_an_earlier_version_shows_the_mean_of_its_frames(bowls, tmp_path):
    simulation = Simulation(bowls, snapshot(3), async_sharing(0.01), recording=Recording(every=2))
    scene = scene_at_end(simulation, 6)
    arrays = {name: np.asarray(value) for name, value in scene._asdict().items()}
    del arrays["age_sums"]
    np.savez(tmp_path / "scene.npz", allow_pickle=False, **arrays)
    found = load_scene(tmp_path / "scene.npz")
    assert found is not None
    off = ~np.eye(NODES, dtype=bool)
    np.testing.assert_array_equal(found.mean_ages[off], scene.age_slots.mean(axis=0)[off])


def test_ages_of_pairs_survive_a_checkpoint(bowls, tmp_path):
    simulation = Simulation(bowls, snapshot(3), async_sharing(0.01), recording=Recording(every=10))
    marks = [mark for mark, _ in march(simulation, start(simulation, 0), 20)]
    place = tmp_path / "mark.safetensors"
    checkpoint.save(marks[1], place)
    found = checkpoint.load(place, start(simulation, 0))
    assert found.totals._replace(held_ages=0) == marks[1].totals._replace(held_ages=0)
    *_, (end, _) = march(simulation, found, 20)
    np.testing.assert_array_equal(end.totals.held_ages, marks[2].totals.held_ages)


def without(place, names):
    """Take entries out of a checkpoint, as an earlier version would have saved it."""
    with safe_open(place, framework="numpy") as file:
        notes = file.metadata()
        kept = {name: file.get_tensor(name) for name in file.keys() if name not in names}  # noqa: SIM118
    save_tensors(place, kept, notes)


def test_a_run_of_an_earlier_version_goes_on_without_ages_of_pairs_or_is_refused(bowls, tmp_path):
    place, recording = tmp_path / "mark.safetensors", Recording(every=10)
    simulation = Simulation(bowls, snapshot(3), async_sharing(0.01), recording=recording)
    marks = [mark for mark, _ in march(simulation, start(simulation, 0), 20)]
    checkpoint.save(marks[1], place)
    without(place, {"totals.held_ages", ".tally.held_ages", ".tally.late.most"})
    *_, (end, _) = march(simulation, checkpoint.load(place, start(simulation, 0)), 20)
    np.testing.assert_array_equal(end.carry.states.params, marks[2].carry.states.params)
    scene = join([frame_of(simulation, end)])
    off = ~np.eye(NODES, dtype=bool)
    np.testing.assert_array_equal(scene.mean_ages[off], scene.age_slots[0][off])

    simulation = Simulation(bowls, snapshot(3), fedavg(0.01), recording=recording)
    *_, (mark, _) = march(simulation, start(simulation, 0), 10)
    checkpoint.save(mark, place)
    without(place, {".medium.got"})
    with pytest.raises(ValueError, match="delete it to start this run again"):
        checkpoint.load(place, start(simulation, 0))


def staleness_by_hand(times, slots, versions_of):
    """Return the staleness of every upload of an asynchronous server, told again in Python.

    Node i computes one gradient of one slot, its upload takes times[i] slots, the answer none.
    `versions_of(arrivals)` is the version of the server's model after so many uploads.
    """
    began, arrivals, found = [0] * len(times), 0, []
    for slot in range(slots):
        came = [i for i, time in enumerate(times) if slot % (time + 1) == time]
        for i in came:
            found.append(versions_of(arrivals) - began[i])
            arrivals += 1
        for i in came:
            began[i] = versions_of(arrivals)
    return found


@pytest.mark.parametrize(
    ("method", "versions_of"),
    [
        (fedasync(0.01, max_staleness=99), lambda arrivals: arrivals),
        (fedbuff(0.01, buffer_size=3), lambda arrivals: arrivals // 3),
    ],
)
def test_staleness_counts_the_versions_between_start_and_arrival(bowls, method, versions_of):
    """As FedAsync's t - tau and FedBuff's tau_i; slow nodes come back late."""
    times = (1, 1, 2, 4)  # slots of a gradient: the answer comes at the end of the last one
    clock = Clock(compute_slots=times)
    run = simulate(bowls, constant(0), method, slots=30, clock=clock)
    expected = staleness_by_hand([time - 1 for time in times], 30, versions_of)
    assert run.last("staleness") == pytest.approx(np.mean(expected))
    assert run.last("staleness_max") == max(expected) > 2
    assert np.isnan(run.rows[0]["staleness"])


def test_a_server_that_waits_for_all_has_no_staleness_and_peers_have_none_to_tell(bowls):
    waits = simulate(bowls, constant(3), fedavg(0.01), slots=12)
    assert (waits.last("staleness"), waits.last("staleness_max")) == (0, 0)
    assert np.isnan(simulate(bowls, constant(3), dpsgd(0.01), slots=12).last("staleness"))


def test_pairs_that_never_met_are_counted(bowls):
    """On a ring of four each node hears two others; under a delay of 9 nobody is heard by slot 8."""
    run = simulate(bowls, constant(9), dpsgd(0.01), slots=20, recording=Recording(every=5))
    assert run.column("pairs_unheard") == [8, 8, 0, 0, 0]
    run = simulate(bowls, constant(9), async_sharing(0.01), slots=20, recording=Recording(every=5))
    assert run.column("pairs_unheard") == [12, 12, 0, 0, 0]
    # around a server there and back
    run = simulate(bowls, constant(4), fedavg(0.01), slots=20, recording=Recording(every=5))
    assert run.column("pairs_unheard") == [4, 4, 0, 0, 0]


@pytest.mark.parametrize(
    "network", [RadioNetwork(schedule="index", bandwidth_hz=200.0, message="sum"), shared(2.5)]
)
def test_a_scene_shows_the_one_message_on_the_air(bowls, network):
    simulation = Simulation(bowls, network, async_sharing(0.01), recording=Recording(every=1))
    scene = scene_at_end(simulation, 12)

    senders = scene.on_air.any(axis=1)  # (frame, tx)
    assert (senders.sum(axis=1) <= 1).all()
    assert senders.any()
    np.testing.assert_array_equal(scene.left_slots > 0, senders)
    np.testing.assert_array_equal(scene.stamp >= 0, senders)
    np.testing.assert_array_equal(scene.share > 0, senders)
    on_radio = isinstance(network, RadioNetwork)
    assert np.isfinite(scene.positions_m).all() == on_radio
    assert np.isfinite(scene.sinr_db[scene.on_air]).all() == on_radio


def test_every_transfer_of_a_slot_is_counted(bowls):
    # Copies of four nodes, a quarter of a slot each: all four send in every slot but the first.
    run = simulate(bowls, shared(0.25), async_sharing(0.01), slots=11)
    one = run.last("bits") / (11 * NODES)
    assert run.last("bits_unicast") == run.last("bits") * (NODES - 1)
    fewer = simulate(bowls, shared(0.5), async_sharing(0.01), slots=11)
    assert fewer.last("bits") == 11 * 2 * one


def test_time_on_the_air_is_that_of_all_slots_however_a_run_is_recorded(bowls):
    """Four nodes send a quarter of every slot each, but for the first, in which they compute."""
    simulation = Simulation(bowls, shared(0.25), async_sharing(0.01), recording=Recording(every=10))

    scene = scene_at_end(simulation, 40)

    np.testing.assert_allclose(scene.airtimes, 39 / 40 / NODES)
    untold = Simulation(bowls, snapshot(3), async_sharing(0.01), recording=Recording(every=10))
    assert np.isnan(scene_at_end(untold, 10).airtimes).all()
