"""`folkman doctor --speed`: what was timed, what was chosen, and why."""

import json

import pytest

from folkman import make_problem
from folkman.problem import speed
from folkman.problem.data import load
from folkman.problem.speed import choice_for
from shell import folkman


@pytest.fixture
def kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(speed, "WORTH_TIMING", 0)
    problem = make_problem(load("digits", train_size=60), "softmax", 3)
    ms = {"together": 2.5, "joined": 3.0, "apart": 0.5}
    return choice_for(problem, lambda _, ways: {way: ms[way] for way in ways})


def test_the_table_names_every_way_its_time_and_the_choice(kept, tmp_path):
    done = folkman("doctor", "--speed", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["apart", "0.500", "ms", "chosen"] in lines
    assert ["together", "2.500", "ms"] in lines
    assert "d = 650, 3 nodes, all samples" in done.stdout
    assert kept.why in done.stdout


def test_json_has_the_same(kept, tmp_path):
    done = folkman("doctor", "--speed", "--json", cwd=tmp_path)
    (work,) = json.loads(done.stdout)["works"]

    assert (work["way"], work["why"], work["ms"]) == (kept.way, kept.why, dict(kept.ms))


def test_a_configuration_goes_with_speed_alone(tmp_path):
    done = folkman("doctor", "some.toml", cwd=tmp_path)

    assert done.returncode != 0
    assert "goes with --speed" in " ".join(done.stderr.split())


def test_a_configuration_of_little_work_says_that_it_is_not_timed(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "mine.toml").write_text('nodes = 2\n[data]\nname = "digits"\ntrain_size = 40\n')
    done = folkman("doctor", "--speed", "mine.toml", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert "too few to time" in " ".join(done.stdout.split())
