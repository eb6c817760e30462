"""Planning: the published Monte-Carlo table through the command's own path, and its figures."""

import json
import subprocess
import sys

import numpy as np
import pytest

from folkman.cli import main
from folkman.experiment.planning import survey
from folkman.radio.network import RadioNetwork
from folkman.radio.planning import Drops, plan
from folkman.report.cells import draw_ages, draw_map

# I = 5, one interferer a cell and band, T = 1 s, the paper's CNN: an independent program's figures
TABLE = {
    (-15.0, "optimal"): (0.90, 1.00, 20.1),
    (0.0, "optimal"): (0.51, 0.92, 1.69),
    (15.0, "optimal"): (0.14, 0.42, 0.24),
    (-15.0, "uniform"): (0.90, 1.00, 44.2),
    (0.0, "uniform"): (0.51, 0.92, 2.59),
    (15.0, "uniform"): (0.14, 0.42, 0.28),
}


@pytest.fixture(scope="module")
def found():
    return survey(5, [-15.0, 0.0, 15.0], ["optimal", "uniform"], "epoch", 60, 0)


@pytest.mark.slow
@pytest.mark.parametrize(("threshold_db", "allocation"), TABLE)
def test_the_published_table_is_met_within_sampling_error(threshold_db, allocation):
    """600 drops; all of the table is in their first blocks, so the network need not run on."""
    network = RadioNetwork(threshold_db=threshold_db, allocation=allocation)

    drawn = plan(network, 5, 430_698 * 16, Drops(600, slots=4))

    for values, published in zip(
        (drawn.linked, drawn.scheduled, drawn.gamma_t), TABLE[threshold_db, allocation], strict=True
    ):
        known = values[np.isfinite(values)]
        error = known.std(ddof=1) / np.sqrt(len(known))
        # both sides are estimates: four standard errors of ours, and half a unit of the last printed digit
        assert known.mean() == pytest.approx(published, abs=4 * error + 0.005 * max(published, 1.0))
    sinr_db = 10 * np.log10(drawn.sinr[:, ~np.eye(5, dtype=bool)])
    np.testing.assert_allclose(np.percentile(sinr_db, [5, 50, 95]), [-20.0, 0.2, 25.0], atol=1.0)


@pytest.mark.slow
def test_the_rows_tell_the_papers_story(found):
    by = {(row["threshold_db"], row["allocation"]): row for row in found.rows}

    for threshold_db in (-15.0, 0.0, 15.0):
        best, even = by[threshold_db, "optimal"], by[threshold_db, "uniform"]
        assert best["gamma_t"]["mean"] <= even["gamma_t"]["mean"]
        assert best["p_link"] == even["p_link"]  # the same draws
    assert by[0.0, "optimal"]["age"]["mean"] < min(
        by[-15.0, "optimal"]["age"]["mean"], by[15.0, "optimal"]["age"]["mean"]
    )
    assert 0.0 < found.best_threshold_db < 12.0


@pytest.mark.slow
def test_the_figures_show_the_links_and_the_ages(found):
    picture = found.picture
    drawn = draw_map(picture)
    arrows = [text for text in drawn.axes[0].texts if text.arrow_patch is not None]  # pyright: ignore[reportAttributeAccessIssue]
    assert len(arrows) == picture.linked.sum()
    lines = draw_ages(picture).axes[0].lines
    assert len(lines) == 3
    for line in lines:
        steps = np.diff(np.asarray(line.get_ydata()))
        assert set(steps[steps > 0]) <= {1}  # an age grows by one a slot, or falls


def test_the_command_prints_the_promised_object(tmp_path):
    command = [sys.executable, "-m", "folkman", "radio", "--nodes", "3", "--threshold-db", "0", "--drops", "20"]
    command += ["--period", "node", "--allocation", "random", "--set", "bandwidth_hz=1e6", "--json", "--plot", "m.png"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)

    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    (row,) = answer["rows"]
    assert {
        "nodes",
        "threshold_db",
        "allocation",
        "period",
        "sinr_db",
        "p_link",
        "p_node",
        "gamma_t",
        "gamma_w",
        "age",
    } <= set(row)
    assert set(row["sinr_db"]) == {"p5", "p50", "p95"}
    assert {"mean", "p95"} <= set(row["gamma_t"])
    assert set(row["age"]) == {"mean", "p95"}
    assert "best_threshold_db" in answer
    assert (tmp_path / "m.png").is_file()
    assert (tmp_path / "m-ages.png").is_file()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--allocation", "greedy"], "allocation"),
        (["--set", "bandwidth_hz=0"], "bandwidth_hz must be positive"),
        (["--set", "bandwith_hz=1"], "did you mean 'bandwidth_hz'?"),
        (["--period", "week"], "period"),
        (["--nodes", "0"], "nodes must be at least 1"),
        (["--drops", "1"], "drops must be at least 2"),
    ],
)
def test_wrong_input_is_answered_in_one_sentence(monkeypatch, capsys, arguments, complaint):
    monkeypatch.setattr(sys, "argv", ["folkman", "radio", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


def test_one_node_has_nobody_to_hear(tmp_path):
    found = survey(1, [0.0], ["optimal"], "epoch", 5, 0)

    assert found.best_threshold_db is None
    assert found.rows[0]["p_link"] == 0.0
    assert found.rows[0]["gamma_t"]["mean"] is None
    draw_map(found.picture)
    draw_ages(found.picture)
