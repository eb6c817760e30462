"""The demo: its configuration is tuned, can be written to change it, and its words fit."""

from functools import partial

import pytest

import shell
from folkman.cli.demo import CONFIG, FEDAVG, FREE, FRESH, PAPER, story
from folkman.config.comparison import resolve, told
from folkman.config.text import read
from folkman.record.run import Run
from folkman.record.tuned import TUNED, sides_of, standings


def test_every_side_of_the_demo_was_tuned_for_what_it_meets():
    """A digest of the setting is kept with the search: a changed option or network shows."""
    comparison = resolve(read(CONFIG))
    found = standings(sides_of(told(comparison)))
    assert found == dict.fromkeys((PAPER, FEDAVG, FRESH, FREE), TUNED)
    changed = comparison.model_copy(update={"nodes": 6})
    assert TUNED not in standings(sides_of(told(changed))).values()
    assert comparison.tuned is not None
    assert not set(comparison.seeds) & set(comparison.tuned["seeds"])


def test_the_configuration_can_be_written_and_is_never_overwritten(tmp_path):
    folkman = partial(shell.folkman, cwd=tmp_path)
    done = folkman("demo", "--write", "mine.toml")
    assert done.stdout.strip() == "mine.toml"
    written = resolve(read(tmp_path / "mine.toml"))
    assert written == resolve(read(CONFIG)).model_copy(update={"name": "mine"})
    assert set(standings(sides_of(told(written))).values()) == {TUNED}
    again = folkman("demo", "--write", "mine.toml")
    assert again.returncode == 2
    assert "mine.toml is there; choose another name" in again.stderr


def test_steps_that_were_tuned_elsewhere_are_told_before_the_run(tmp_path):
    """The limit at the first model would name two methods that learn, and not two that fail."""
    folkman = partial(shell.folkman, cwd=tmp_path)
    folkman("demo", "--write", "mine.toml")
    fast = ["--set", "slots=2", "--set", "seeds=[0]", "--set", "partition.name=by_label"]
    with shell.undrawn():
        done = folkman("run", "mine.toml", *fast, "--out", "r")

    warned = [line for line in done.stderr.splitlines() if line.startswith("warning")]
    rules, *warned = warned
    assert "schedule 'threshold': Paper's rule; schedule 'index': FedAvg, Fresh air" in rules
    assert len(warned) == 1, warned
    assert all(label in warned[0] for label in (PAPER, FEDAVG, FRESH, FREE))
    asked = "--set slots=2 --set 'seeds=[0]' --set partition.name=by_label"
    assert f"folkman tune mine.toml {asked} --over step" in warned[0]
    assert done.stdout.startswith("mine: ")
    report = (tmp_path / "r" / "report.html").read_text()
    assert '<p class="verdict">At steps that were tuned for another setting: ' in report
    assert report.index("What to know first") < report.index('class="verdict"')


def test_the_story_tells_the_medians_of_the_runs_in_eighty_columns(tmp_path):
    losses = {PAPER: (0.3, 0.4, 9.0), FEDAVG: (0.04, 0.05, 0.06), FRESH: (0.01, 0.02, 0.03)}
    runs = [
        Run("x", label, seed, [{"slots": 1.0, "train_loss": loss, "mean_age": 10.0 * loss}])
        for label, own in (losses | {FREE: (0.1, 0.2, 0.3)}).items()
        for seed, loss in enumerate(own)
    ]

    lines = story(runs, tmp_path)

    whole = "\n".join(lines)
    assert "Paper's rule 0.4, FedAvg 0.05, Fresh air 0.02, Free links 0.2" in whole
    assert "0.2 slots old; the paper's rule 4." in whole
    assert max(len(line.replace(str(tmp_path), "runs/demo")) for line in lines) <= 80


@pytest.mark.parametrize("command", ["folkman dash", "folkman demo --write", "folkman tune"])
def test_the_story_says_what_to_do_next(command, tmp_path):
    row = [{"slots": 1.0, "train_loss": 1.0, "mean_age": 1.0}]
    lines = story([Run("x", each, 0, row) for each in (PAPER, FEDAVG, FRESH, FREE)], tmp_path)
    assert any(command in line for line in lines[lines.index("What to try next") :])
