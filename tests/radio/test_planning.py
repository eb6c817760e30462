"""Planning: the published Monte-Carlo table through the command's own path, and its figures."""

import json
import subprocess
import sys

import numpy as np
import pytest

from folkman.experiment.planning import survey
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
    return survey(5, [-15.0, 0.0, 15.0], ["optimal", "uniform"], "epoch", 600, 0)


@pytest.mark.slow
def test_the_published_table_is_met_within_sampling_error(found):
    for row, half in zip(found.rows, found.half_widths, strict=True):
        p_link, p_node, gamma_t = TABLE[row["threshold_db"], row["allocation"]]
        # both sides are estimates: four standard errors of ours, and half a unit of the last printed digit
        assert row["p_link"] == pytest.approx(p_link, abs=2 * half["p_link"] + 0.005)
        assert row["p_node"] == pytest.approx(p_node, abs=2 * half["p_node"] + 0.005)
        assert row["gamma_t"]["mean"] == pytest.approx(gamma_t, abs=2 * half["gamma_t"] + 0.005 * gamma_t)
    sinr = found.rows[0]["sinr_db"]
    assert (sinr["p5"], sinr["p50"], sinr["p95"]) == pytest.approx((-20.0, 0.2, 25.0), abs=1.0)


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
def test_wrong_input_is_answered_in_one_sentence(tmp_path, arguments, complaint):
    command = [sys.executable, "-m", "folkman", "radio", *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)

    assert done.returncode == 2, done.stderr
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr


def test_one_node_has_nobody_to_hear(tmp_path):
    found = survey(1, [0.0], ["optimal"], "epoch", 5, 0)

    assert found.best_threshold_db is None
    assert found.rows[0]["p_link"] == 0.0
    assert found.rows[0]["gamma_t"]["mean"] is None
    draw_map(found.picture)
    draw_ages(found.picture)
