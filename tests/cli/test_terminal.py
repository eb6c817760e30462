"""What a person sees in a real terminal: tables that fit, a first sign of life, a waiting page."""

import fcntl
import io
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from dataclasses import replace
from math import nan

import pytest
from rich.console import Console

from folkman.config.comparison import resolve, to_toml
from folkman.record.run import Run
from folkman.record.terms import COLUMNS
from folkman.report.screen import air_line, explained, result_lines
from folkman.report.tables import screen_table

FAST = ["--set", "slots=40", "--set", "data.train_size=100", "--set", "model.name=softmax"]
FAST += ["--set", "seeds=[0,1]"]


class Terminal:
    """A process in a pseudo-terminal of some width."""

    def __init__(self, width, arguments, cwd):
        self.began_s = time.monotonic()
        self.pid, self.screen = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            os.environ.pop("COLUMNS", None)
            os.execv(sys.executable, [sys.executable, "-m", "folkman", *arguments])  # noqa: S606
        fcntl.ioctl(self.screen, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
        self.text = ""

    def read_until(self, words, within_s=120.0):
        """Read until the words appear, which they must; without words, until the process ends."""
        end_s = self.began_s + within_s
        while words is None or words not in self.text:
            assert time.monotonic() < end_s, self.text
            if select.select([self.screen], [], [], 0.5)[0]:
                try:
                    found = os.read(self.screen, 65536)
                except OSError:  # the process is gone
                    break
                if not found:
                    break
                plain = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", found)
                self.text += plain.decode(errors="replace").replace("\r\n", "\n")
        assert words is None or words in self.text, self.text

    def end(self):
        """Wait for the process and return its exit code."""
        self.read_until(None)
        os.close(self.screen)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def table_of(text):
    """Return the lines of the result table: from its heading to the empty line."""
    lines = text.split("\n")
    start = next(i for i, line in enumerate(lines) if line.startswith("algorithm "))
    return lines[start : lines.index("", start)]


@pytest.mark.process
@pytest.mark.slow
def test_the_table_of_a_run_fits_terminals_of_80_and_100_columns(tmp_path):
    first = Terminal(80, ["run", *FAST, "--out", "r"], tmp_path)
    first.read_until("preparing")
    assert "slots" not in first.text  # it is said before anything is computed
    assert first.end() == 0, first.text
    again = Terminal(100, ["run", "--resume", "r"], tmp_path)
    assert again.end() == 0, again.text

    for terminal, width in ((first, 80), (again, 100)):
        table = table_of(terminal.text)
        assert max(map(len, terminal.text.split("comparison: ")[1].split("\n"))) <= width
        assert not any("…" in line for line in table)
        assert [line.split("  ")[0] for line in table[2:5]] == [
            "Algorithm 1",
            "FedAvg",
            "FedAvg, free links",
        ]
        assert {"train loss", "accuracy", "bits", "age", "kappa"} <= set(
            re.split(r"\s{2,}", table[0])
        )
        words = " ".join(terminal.text.split())
        assert "kappa: share of slots that a node spent computing" in words


@pytest.mark.process
@pytest.mark.slow
def test_the_live_page_waits_for_a_folder_that_is_not_there_yet(tmp_path):
    page = Terminal(80, ["dash", "later", "--port", "0"], tmp_path)
    try:
        page.read_until("waiting for later")
        assert "folkman run --out later" in " ".join(page.text.split())
        (tmp_path / "later").mkdir()
        (tmp_path / "later" / "config.toml").write_text(to_toml(resolve({"seeds": [0]})))
        page.read_until("open      http://127.0.0.1:")
    finally:
        os.kill(page.pid, signal.SIGINT)
    assert page.end() in (0, 130), page.text


def some_runs(label, *, loss=0.5, seeds=(0, 1, 2)):
    values = {
        "slots": 10,
        "optimum_distance": float("nan"),
        "bits": 1.234e9,
        "mean_age": 12.345,
        "kappa": 0.667,
        "energy_j": 123.4,
        "gradients": 200,
        "rounds": 35.5,
        "test_accuracy": 0.9,
    }
    return [
        Run("x", label, seed, [values | {"train_loss": loss + 0.01 * seed}], "finished")
        for seed in seeds
    ]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
@pytest.mark.parametrize("label", ["a", "FedAvg, free links", "one label of many words " * 3])
def test_no_width_cuts_a_number(width, label):
    runs = some_runs(label.strip()) + some_runs("other", loss=123456.0)
    lines = result_lines(runs, width)

    assert max(map(len, lines)) <= width
    whole = "\n".join(lines)
    for shown in ("0.510 ± 0.025", "123456.010 ± 0.025", "1.2e9", "12.35", "123.4", "0.667"):
        assert shown.replace("123456.010 ± 0.025", "1.23456010e+05 ± 2.5e-02") in whole, shown
    assert max(map(len, explained(runs, width))) <= width


TUNED = [
    ["Paper's rule", "0.0316", "", "0.7772", "step 0.134", "2.669", "22"],
    ["Fresh air", "2.37", "16", "0.01331", "step 2.37, local_steps 16", "0.01331", "57"],
]
HEADS = ["algorithm", "step", "local_steps", "train loss", "configured", "train loss there", "runs"]


@pytest.mark.parametrize("width", [50, 60, 80, 100, 140])
@pytest.mark.parametrize("kinds", ["lrrrrrr", "rprrrrr"])
def test_no_width_cuts_a_cell_of_other_tables(width, kinds):
    """Tables of tune, rank, radio and theory: what does not fit beside the others comes below."""
    paper = io.StringIO()
    Console(file=paper, width=width).print(screen_table(kinds, HEADS, TUNED, "a title"))

    lines = paper.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    cells = [part for line in lines for part in re.split(r"\s{2,}", line.strip())]
    assert {cell for row in [HEADS, *TUNED] for cell in row} <= {*cells, ""}
    assert (cells.count("algorithm") > 1) == (width < 140)
    assert cells.count("a title") == 1


def test_columns_that_one_can_do_without_are_shown_where_they_fit():
    runs = some_runs("a")
    assert "rounds" not in result_lines(runs, 70)[0]
    assert "rounds" in result_lines(runs, 100)[0]
    assert len(result_lines(runs, 40)) > len(result_lines(runs, 100))  # two blocks


def test_what_a_message_takes_is_told_where_a_network_measured_it():
    def ended(label, seed, slots):
        return Run(label, label, seed, [{"slots": 0.0, "gamma_t": nan}, {"gamma_t": slots}])

    measured = [ended("Slow", 0, 30.0), ended("Slow", 1, 34.0), ended("Quick", 0, 0.824)]
    unmeasured = [ended("Free", 0, nan), Run("Begun", "Begun", 0)]

    assert air_line([*measured, *unmeasured]) == [
        "a message takes about 32 slots on the air (Slow), 0.82 (Quick)"
    ]
    assert air_line(unmeasured) == []


def test_every_column_is_explained():
    told = " ".join(explained(some_runs("a"), 100))
    shown = [name for name in COLUMNS if name != "optimum_distance"]
    assert all(f"{COLUMNS[name].heading}: {COLUMNS[name].brief}" in told for name in shown)
    assert "mean of 3 seeds ± half of the 95 % interval (no ±: all seeds ended alike)." in told
    runs = [replace(each, rows=[{**each.rows[0], "test_accuracy": n}]) for n, each in enumerate(
        some_runs("a"))]  # fmt: skip
    assert "alike" not in " ".join(explained(runs, 100))
    assert "rounds" not in " ".join(explained(some_runs("a"), 70))  # nor is it shown there
    assert "one seed" in " ".join(explained(some_runs("a", seeds=(0,)), 80))


@pytest.mark.process
def test_an_interrupt_that_a_callback_of_the_collector_drops_still_ends_the_command(tmp_path):
    code = """
import gc, time
from folkman.cli import common

def interrupted(phase, _):
    gc.callbacks.remove(interrupted)
    raise KeyboardInterrupt

with common.stoppable("go on with: this"):
    gc.callbacks.append(interrupted)
    gc.collect()
    time.sleep(20)
    raise SystemExit("it slept to the end")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 130, done.stderr
    assert "interrupted; go on with: this" in done.stderr
