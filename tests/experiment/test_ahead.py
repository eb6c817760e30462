"""Programs compiled ahead: the run finds them, and its numbers do not change."""

from threading import get_ident

import jax
import pytest

from folkman.config.comparison import resolve
from folkman.engine import simulate
from folkman.experiment import ahead
from folkman.experiment.parts import parts
from folkman.record.folder import RunFolder

SMALL = {
    "name": "small",
    "nodes": 2,
    "slots": 3,
    "seeds": [0],
    "record_every": 3,
    "data": {"name": "quadratic", "dim": 3},
    "network": {"name": "ideal"},
    "algorithm": [
        {"name": "async_sharing", "step": 0.1},
        {"name": "dpsgd", "step": 0.1},
    ],
}


@pytest.fixture
def two(tmp_path, monkeypatch):
    monkeypatch.setattr(ahead, "_cores", lambda: 2)
    return list(parts(resolve(SMALL))), RunFolder(tmp_path)


@pytest.fixture
def started(monkeypatch):
    """Note which method was started by which thread."""
    seen, start = [], simulate.start

    def noted(simulation, seed):
        seen.append((simulation.algorithm.name, get_ident()))
        return start(simulation, seed)

    monkeypatch.setattr(simulate, "start", noted)
    return seen


def test_later_methods_are_compiled_by_another_thread(two, started):
    first, folder = two

    with ahead.compiling_ahead(first, folder):
        pass

    assert [name for name, _ in started] == ["dpsgd"]
    assert get_ident() not in {thread for _, thread in started}


def test_the_run_finds_the_programs(two):
    first, folder = two
    later = first[1]
    with jax.enable_x64(False):  # as a run does
        with ahead.compiling_ahead(first, folder):
            pass
        before = list(simulate._loop._kept.values())[-1]
        mark = simulate.start(later.simulation, 0)
        rows = [row for _, row in simulate.march(later.simulation, mark, later.slots)]

    assert rows[-1]["slots"] == later.slots
    assert list(simulate._loop._kept.values())[-1] is before
    assert before._cache_size() == 1  # type: ignore[attr-defined] - compiled once


@pytest.mark.parametrize("reason", ["one core", "begun before", "a timeline", "much data"])
def test_nothing_is_compiled_ahead_without_need(two, started, monkeypatch, reason):
    first, folder = two
    if reason == "one core":
        monkeypatch.setattr(ahead, "_cores", lambda: 1)
    elif reason == "begun before":
        folder.part(first[1].run).parent.mkdir()
        folder.part(first[1].run).touch()
    elif reason == "a timeline":
        recording = first[1].simulation.recording._replace(timeline=True)
        first[1] = first[1]._replace(simulation=first[1].simulation._replace(recording=recording))
    else:
        monkeypatch.setattr(ahead, "MOST_NUMBERS", 5)

    with ahead.compiling_ahead(first, folder):
        pass

    assert started == []


def test_an_error_ahead_is_left_to_the_run(two, monkeypatch):
    first, folder = two
    asked = []

    def refused(simulation, seed):
        asked.append(simulation.algorithm.name)
        raise ValueError("no such thing")

    monkeypatch.setattr(simulate, "start", refused)

    with ahead.compiling_ahead(first, folder):
        pass

    assert asked == ["dpsgd"]


def test_an_error_of_the_run_comes_through(two):
    first, folder = two

    with pytest.raises(OSError, match="full"), ahead.compiling_ahead(first, folder):
        raise OSError("the disk is full")
