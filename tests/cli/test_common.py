"""What the commands share: one progress bar for slots, runs and jobs."""

import io
import sys
import time

import pytest

import shell
from folkman.cli import common
from folkman.cli.common import progress, say, time_left
from folkman.cli.run import Pace
from folkman.record.run import Run


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


def test_a_caller_that_does_not_know_yet_may_say_nothing(clock, capsys):
    with progress(10, "slots", guess=False) as show:
        clock[0] += 60
        show(1, "a", "a is done")

    assert capsys.readouterr().err == "a is done\n"


def test_the_pace_of_a_run_leaves_out_what_compiles():
    pace, first, second = Pace(), Run("x", "a", 0), Run("x", "a", 1)
    assert pace.left_s(300) is None

    pace.note(first, 0, now_s=10.0)
    pace.note(first, 20, now_s=25.0)  # 15 s, of compiling
    assert pace.left_s(280) is None
    pace.note(first, 40, now_s=27.0)
    assert pace.left_s(260) == pytest.approx(26.0)
    pace.note(second, 0, now_s=60.0)
    pace.note(second, 20, now_s=70.0)
    assert pace.left_s(260) == pytest.approx(26.0)
    pace.note(second, 40, now_s=71.0)
    assert pace.left_s(260) == pytest.approx(260 * 3.0 / 40)
    assert pace.left_s(0) is None


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


def test_on_a_terminal_what_is_said_is_folded_and_paths_stay_whole(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    path = "runs/" + "x" * 90
    say("warning: " + "word " * 40 + "\n  a detail " + "word " * 20 + path)

    lines = screen.getvalue().split("\n")
    assert path in "".join(line.strip() for line in lines if "xxx" in line)
    assert all(len(line) <= 80 for line in lines if path not in line)
    assert lines[1].startswith("  word")
    assert any(line.startswith("    word") for line in lines)  # what is set in stays set in


def test_outside_a_terminal_a_line_stays_a_line(capsys):
    say("word " * 60)

    assert capsys.readouterr().err == "word " * 60 + "\n"


@pytest.mark.parametrize("guard", [common.stoppable, common.ending_at_once])
def test_an_interrupt_that_an_error_covers_is_an_interrupt(guard, monkeypatch):
    """Closing half an archive fails in words of its own."""

    def leave(text):
        raise SystemExit(text)

    monkeypatch.setattr(common, "leave", leave)

    def write_half():
        try:
            raise KeyboardInterrupt
        finally:
            raise ValueError("Can't close the ZIP file")

    with pytest.raises(SystemExit, match="interrupted; go on"), guard("go on"):
        write_half()
    with pytest.raises(ValueError, match="of its own"), guard("go on"):
        raise ValueError("of its own")


def test_a_pipe_hears_where_the_work_is_while_nothing_ends(monkeypatch, capsys):
    """Programs compile, and runs go on, for longer than anybody waits without a word."""
    monkeypatch.setattr(common, "BEAT_S", 0.05)
    with progress(300, "slots", guess=False, beats=True) as show:
        time.sleep(0.12)
        show(120, "a, seed 0", left_s=7.0)
        time.sleep(0.12)
    lines = capsys.readouterr().err.splitlines()
    time.sleep(0.12)
    assert lines[0] == "starting: the first time, programs are compiled"
    assert lines[-1] == "a, seed 0: 120 of 300 slots; 7 s left"
    assert not capsys.readouterr().err  # nothing once it has ended


def test_a_pipe_that_hears_lines_hears_no_more(monkeypatch, capsys):
    monkeypatch.setattr(common, "BEAT_S", 0.2)
    with progress(300, "slots", guess=False, beats=True) as show:
        for done in (100, 200, 300):
            time.sleep(0.1)
            show(done, "a", f"line {done}")
    assert capsys.readouterr().err == "line 100\nline 200\nline 300\n"


def test_a_terminal_has_a_bar_and_no_beats(monkeypatch):
    monkeypatch.setattr(common, "BEAT_S", 0.02)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress(300, "slots", guess=False, beats=True) as show:
        show(100, "a")
        time.sleep(0.06)
    assert "starting: the first time" not in sys.stderr.getvalue()  # type: ignore[attr-defined]


def test_a_piped_run_says_first_what_is_about_to_run(tmp_path):
    words = ["seeds=[0,1]", "slots=2", "model.name=softmax", "data.train_size=40"]
    with shell.undrawn():
        done = shell.folkman(
            "run", *(part for each in words for part in ("--set", each)), "--out", "r", cwd=tmp_path
        )
    told = [line for line in done.stderr.splitlines() if not line.startswith("warning")]
    said = "3 methods (Algorithm 1; FedAvg; FedAvg, free links) with 2 seeds, 2 slots each, into r"
    assert told[0] == said
