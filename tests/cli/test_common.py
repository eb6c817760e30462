"""What the commands share: one progress bar for slots, runs and jobs."""

import io
import sys

import pytest

from folkman.cli import common
from folkman.cli.common import progress, time_left


class Terminal(io.StringIO):
    """A standard error that is a terminal."""

    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """Return a clock that the test moves."""
    now = [100.0]
    monkeypatch.setattr(common.time, "monotonic", lambda: now[0])
    return now


def test_without_a_terminal_lines_are_printed_with_the_time_left(clock, capsys):
    with progress(10, "runs", done=2) as show:
        clock[0] += 8
        show(4, "a", "a is done")  # 8 s for 2 runs, 6 to go
        show(4.5, "b")  # nothing to say
        clock[0] += 16
        show(10, "b", "b is done")

    assert capsys.readouterr().err == "a is done; 24 s left\nb is done\n"


def test_a_caller_that_knows_the_time_left_is_believed(clock, capsys):
    with progress(10, "jobs") as show:
        show(1, "a", "a is done", left_s=7300.0)

    assert capsys.readouterr().err == "a is done; 2.0 h left\n"


def test_on_a_terminal_there_is_a_bar_and_only_urgent_lines(clock, monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    with progress(4, "jobs") as show:
        clock[0] += 10
        show(1, "first", "not shown")
        show(2, "second", "it failed", urgent=True)

    text = screen.getvalue()
    assert "it failed" in text
    assert "not shown" not in text
    assert "of 4 jobs" in text


def test_a_duration_is_told_in_the_unit_that_fits():
    assert [time_left(seconds) for seconds in (None, 3.4, 119.0, 600.0, 9000.0)] == [
        "", "3 s left", "119 s left", "10 min left", "2.5 h left"
    ]  # fmt: skip
