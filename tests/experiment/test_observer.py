"""What a run tells of its network: true to the timeline, the schedule and the metrics, and never
too much."""

import json

import numpy as np
import pytest

from folkman.config.comparison import resolve, to_toml
from folkman.config.text import override
from folkman.experiment.parts import make_all, parts
from folkman.radio.trace import PeerTimeline
from folkman.radio.trace import load as load_timeline
from folkman.record import live as module
from folkman.record.folder import RunFolder
from folkman.record.scene import MOST_FRAMES, load_scene

PEERS, STAR = "algorithm-1-seed0", "fedavg-seed0"


def scene_of(root, name):
    found = load_scene(root / "network" / f"{name}.npz")
    assert found is not None
    return found


def test_ages_are_those_of_the_timeline(radio_folder):
    scene, timeline = (
        scene_of(radio_folder, PEERS),
        load_timeline(radio_folder / "timelines" / f"{PEERS}.npz"),
    )

    assert isinstance(timeline, PeerTimeline)
    assert len(scene.slot) == 11
    for frame, slot in enumerate(scene.slot[:-1]):
        np.testing.assert_array_equal(scene.age_slots[frame], slot - timeline.held[slot])


def test_the_sinr_drawn_again_explains_the_schedule(radio_folder):
    """Same key, same fading: every link on the air is above the threshold, and is one that was
    scheduled."""
    scene = scene_of(radio_folder, PEERS)

    assert scene.on_air.any()
    assert (np.isfinite(scene.sinr_db) == scene.on_air).all()
    assert (scene.sinr_db[scene.on_air] > scene.threshold_db).all()


def test_what_is_on_the_air_shares_the_whole_band(radio_folder):
    for name in (PEERS, STAR):
        scene = scene_of(radio_folder, name)
        people = scene.size - scene.server
        used, sending = (
            scene.share[:, :people].sum(axis=1),
            (scene.left_slots[:, :people] > 0).any(axis=1),
        )

        assert sending.any()
        np.testing.assert_allclose(used[sending], 1.0, rtol=1e-4)
        np.testing.assert_allclose(used[~sending], 0.0)


def test_disagreement_and_gradients_are_the_metrics_of_the_same_slot(radio_folder):
    run = next(
        run
        for run in RunFolder(radio_folder).read().runs
        if run.label == "Algorithm <1>" and run.seed == 0
    )
    scene = scene_of(radio_folder, PEERS)
    rows = {row["slots"]: row for row in run.rows}

    for frame, slot in enumerate(scene.slot):
        row = rows[slot]
        assert scene.disagreement[frame].mean() == pytest.approx(
            row["consensus"], rel=1e-4, abs=1e-6
        )
        assert scene.gradients[frame].mean() == pytest.approx(row["gradients"])


def test_around_a_server_the_last_one_is_the_server(radio_folder):
    scene = scene_of(radio_folder, STAR)

    assert scene.server
    assert scene.size == 6
    assert not scene.positions_m[:, -1].any()
    assert not scene.on_air[:, :5, :5].any()  # nodes speak to the server alone
    assert (scene.age_slots[-1, :5, 5] >= 0).all()


def test_nothing_live_is_left_of_a_run_that_has_ended(radio_folder):
    assert not (radio_folder / "live").exists()


@pytest.fixture(scope="module")
def long():
    tables = {
        "data": {"name": "quadratic", "dim": 3},
        "algorithm": [{"name": "async_sharing", "step": 0.01}],
    }
    return resolve(
        override(tables, ["slots=150", "record_every=1", "seeds=[0]", "nodes=3", "network.gamma=3"])
    )


def test_an_interrupted_run_keeps_the_same_frames_as_a_whole_one(long, tmp_path):
    whole = RunFolder.create(tmp_path / "whole", to_toml(long))
    make_all(parts(long), whole)
    cut = RunFolder.create(tmp_path / "cut", to_toml(long))

    def interrupt(run, done, slots):
        if done == 77:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_all(parts(long), cut, interrupt)
    told = (cut.root / "live" / "async_sharing-seed0.jsonl").read_text().splitlines()
    assert json.loads(told[0])["slots"] == 150
    make_all(parts(long), cut)

    for left, right in zip(
        *(scene_of(f.root, "async_sharing-seed0") for f in (whole, cut)), strict=True
    ):
        np.testing.assert_array_equal(left, right)
    assert len(scene_of(whole.root, "async_sharing-seed0").slot) <= MOST_FRAMES


def test_lines_are_bounded_and_the_last_is_always_told(long, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LEAST_GAP_S", 0.0)
    monkeypatch.setattr(module, "MOST_LINES", 20)
    folder, most = RunFolder.create(tmp_path / "r", to_toml(long)), []
    path = folder.root / "live" / "async_sharing-seed0.jsonl"

    def count(run, done, slots):
        lines = path.read_text().splitlines()
        most.append(len(lines))
        assert json.loads(lines[-1])["row"]["slots"] > done - 16

    make_all(parts(long), folder, count)

    assert 15 < max(most) <= 22
