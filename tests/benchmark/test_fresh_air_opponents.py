"""How the comparison of fresh air with its opponents counts."""

import math

import pytest

from benchmarks.crew import lines_of
from benchmarks.fresh_air_opponents import CELLS, FORM, FULL, counts, jobs
from benchmarks.fresh_air_verdict import losses, ratio


def line(values, side="fresh", **more):
    runs = {
        str(3000 + i): {"status": "finished" if v else "diverged", "train_loss": v}
        for i, v in enumerate(values)
    }
    return {"cell": CELLS[0].name, "side": side, "judged": runs, **more}


def test_a_run_that_diverges_counts_with_the_loss_of_the_first_model():
    assert losses(line([0.5, None])) == [0.5, math.log(10)]


def test_a_ratio_is_the_geometric_mean_over_drops_with_students_interval():
    mean, low, high = ratio(line([0.2, 0.4, 0.8]), line([0.1, 0.1, 0.1]))
    assert mean == pytest.approx(4.0)
    half = 4.303 * math.log(2) / math.sqrt(3)  # logarithms log 2 apart: their deviation is log 2
    assert (low, high) == pytest.approx((4 * math.exp(-half), 4 * math.exp(half)))


def test_what_is_there_is_not_made_again_and_a_wrong_average_is(tmp_path):
    import json

    file = tmp_path / "lines.jsonl"
    kept = [line([1.0]), line([1.0], "devices"), {"cut off": True}]
    file.write_text("\n".join(map(json.dumps, kept[:2])) + '\n{"cell": ')
    assert [each["side"] for each in lines_of([file], counts)] == ["fresh"]
    file.write_text(json.dumps(line([1.0], "devices", form=FORM)))
    known = {(each["cell"], each["side"]) for each in lines_of([file], counts)}
    left = list(jobs(FULL, known))
    assert sum(len(cells) for _, cells in left) == len(FULL.sides) * 16 - 1
    assert left[0] == ("devices", CELLS[1:2])
