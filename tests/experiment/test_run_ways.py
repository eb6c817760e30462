"""A run folder keeps the ways of its gradients: noted once, and held to when it is resumed."""

import json

import pytest

from folkman import Clock, Recording, fedavg, ideal, load
from folkman.engine.simulate import Simulation
from folkman.experiment import ways
from folkman.experiment.parts import Part
from folkman.experiment.ways import Ways
from folkman.problem import speed
from folkman.problem.problem import Problem, make_problem
from folkman.problem.speed import Choice
from folkman.record.run import Run


@pytest.fixture(scope="module")
def part():
    problem = make_problem(load("digits", train_size=60), "softmax", 3)
    simulation = Simulation(problem, ideal(), fedavg(0.1), Clock(), Recording())
    return Part(Run("fedavg", "fedavg", 0), simulation, 2, "")


@pytest.fixture
def place(tmp_path):
    file = tmp_path / "provenance.json"
    file.write_text("{}")
    return file


def way_of(part: Part) -> str | None:
    problem = part.simulation.problem
    assert isinstance(problem, Problem)
    return problem.way


def choosing(monkeypatch, way):
    """Let the machine choose a way from now on; return how often it is asked."""
    monkeypatch.setenv(ways.SWITCH, "1")
    asked = []

    def choice_for(problem):
        asked.append(problem)
        ms = {"together": 2.0, way: 1.0}
        return Choice(speed.work_of(problem), way, ms, "because")

    monkeypatch.setattr(ways, "choice_for", choice_for)
    return asked


def test_a_new_folder_notes_the_way_and_why(part, tmp_path, monkeypatch):
    asked = choosing(monkeypatch, "apart")
    file = tmp_path / "provenance.json"
    folder = Ways(file)  # before anything is noted
    file.write_text('{"command": null}')
    sent = [folder.sent(part) for _ in range(2)]

    assert [way_of(each) for each in sent] == ["apart", "apart"]
    assert len(asked) == 1
    known = json.loads(file.read_text())
    assert known["command"] is None
    (noted,) = known["ways"].values()
    assert noted == {"way": "apart", "ms": {"together": 2.0, "apart": 1.0}, "why": "because"}


def test_a_resumed_folder_keeps_its_way_whatever_is_chosen_now(part, place, monkeypatch):
    place.unlink()
    choosing(monkeypatch, "apart")
    folder = Ways(place)
    place.write_text("{}")
    folder.sent(part)
    asked = choosing(monkeypatch, "joined")

    assert way_of(Ways(place).sent(part)) == "apart"
    assert not asked


def test_a_resumed_folder_keeps_its_way_though_nobody_asks_any_more(part, place, monkeypatch):
    place.unlink()
    choosing(monkeypatch, "apart")
    Ways(place).sent(part)
    monkeypatch.delenv(ways.SWITCH)

    assert way_of(Ways(place).sent(part)) == "apart"


def test_without_being_asked_a_folder_keeps_the_default(part, place, monkeypatch):
    place.unlink()
    asked = choosing(monkeypatch, "apart")
    monkeypatch.delenv(ways.SWITCH)

    assert Ways(place).sent(part) is part
    assert not asked
    assert not place.exists()


def test_a_folder_of_before_keeps_the_default(part, place, monkeypatch):
    asked = choosing(monkeypatch, "apart")

    assert Ways(place).sent(part) is part
    assert not asked


def test_the_default_is_noted_as_no_way(part, place, monkeypatch):
    choosing(monkeypatch, "together")
    place.unlink()
    folder = Ways(place)
    place.write_text("{}")

    assert way_of(folder.sent(part)) is None
    (noted,) = json.loads(place.read_text())["ways"].values()
    assert noted["way"] is None
