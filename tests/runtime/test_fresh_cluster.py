"""Processes that carry sums on an emulated radio: the simulator's stamps, ages and parameters."""

import json

import pytest

from shell import folkman

CONFIG = """
nodes = 3
slots = 20
slot_s = 0.5
seeds = [0]
record_every = 20

[data]
name = "digits"
train_size = 300

[model]
name = "softmax"

[network]
name = "radio"
schedule = "index"
message = "sum"
control_bits = 2000000

[[algorithm]]
name = "async_sharing"
step = 0.5
own = "aligned"
"""


@pytest.mark.process
@pytest.mark.slow
def test_processes_on_the_emulated_radio_have_the_simulators_ages_and_parameters(tmp_path):
    """Secured, 16-bit sums on the grid, the own part by ages: each enters the parameters."""
    (tmp_path / "config.toml").write_text(CONFIG)
    options = ["--transport", "tcp", "--node-set", "trust.sums=members", "--wait", "--json"]

    done = folkman("up", "config.toml", "--out", "cluster", *options, cwd=tmp_path)
    again = folkman("replay", "cluster", "--json", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert "taken of node-1, node-2, on trust" in done.stderr
    assert again.returncode == 0, again.stderr
    found = json.loads(again.stdout)
    assert max(found["difference"].values()) < 1e-5
    ages = found["mean_age"]
    assert ages["as_planned"] > 0.3  # on a busy machine slots are missed; what was done is exact
    if ages["as_planned"] > 0.95:
        assert ages["devices"] == pytest.approx(ages["simulator"], rel=0.1)
    assert ages["simulator"] > 1.5  # transfers take their time


def test_sums_without_a_word_on_trust_do_not_start(tmp_path):
    (tmp_path / "config.toml").write_text(CONFIG)

    done = folkman("up", "config.toml", "--out", "cluster", cwd=tmp_path)

    assert done.stderr.startswith("preparing the nodes")  # before anything that takes time
    assert done.returncode == 2
    assert "trust.sums=members" in done.stderr
    assert not (tmp_path / "cluster").exists()
