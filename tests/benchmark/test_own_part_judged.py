"""How the judgement of own parts counts, and what it makes again."""

import json
import math

import pytest

from benchmarks.crew import lines_of
from benchmarks.own_part_judged import CELLS, KNOB, PROGRAMS, SIDES, counted, jobs, ratio


def line(losses, side="measured"):
    return {"cell": str(CELLS[0]), "side": side, "step": 1.0, "inside": True, "losses": losses}


def test_no_run_counts_as_worse_than_the_first_model():
    assert counted(line([0.5, None, 7.0])) == [0.5, math.log(10), math.log(10)]


def test_a_ratio_is_paired_by_seed():
    twice, plain = [0.2 * 2**k for k in range(3)], [0.1 * 2**k for k in range(3)]
    one, other = line(twice + twice * 2 + [0.2]), line(plain + plain * 2 + [0.1])
    assert ratio(one, other) == pytest.approx((2.0, 2.0, 2.0))  # the seeds differ, not the ratio


def test_every_side_has_a_program_and_what_is_there_is_left_out(tmp_path):
    assert sorted(side for sides in PROGRAMS for side in sides) == sorted(SIDES)
    file = tmp_path / "lines.jsonl"
    file.write_text(json.dumps(line([1.0])) + "\n" + '{"cell": ')  # the last one is cut off
    known = {(each["cell"], each["side"]) for each in lines_of([file])}
    assert known == {(str(CELLS[0]), "measured")}
    assert len(list(jobs(CELLS, known))) == 12 * len(PROGRAMS)  # the other split is still to do
    known |= {(str(CELLS[1]), "measured")}
    left = list(jobs(CELLS, known))
    assert len(left) == 12 * len(PROGRAMS) - 1
    assert left[1] == (CELLS[:2], tuple(KNOB))
