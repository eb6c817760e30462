"""What the long benchmarks are going to run, and in which order."""

import json

import pytest

from benchmarks import floors_small
from benchmarks.comparison import in_parts, part_of, read_plan
from benchmarks.fresh_air_learn import THRIFT, Job, draw, jobs, radios_of


def test_parts_are_run_in_the_order_in_which_they_are_asked_for():
    plan = read_plan()

    asked = [part_of(job) for job in in_parts(plan, [3, 1])]

    assert asked == [3] * asked.count(3) + [1] * asked.count(1)
    assert len(set(asked)) == 2
    assert [part_of(job) for job in in_parts(plan, None)] == sorted(map(part_of, plan.jobs()))


def test_no_run_of_fresh_air_is_planned_twice_and_the_paper_meets_drops_of_fresh_air():
    names = [job.name for job in jobs(20)]

    assert len(set(names)) == len(names)
    for split in ("label", "even"):
        met = {arm: sum(name.startswith(f"cifar10-{split}-5-{arm}-") for name in names)
               for arm in ("fresh", "paper")}  # fmt: skip
        assert met == {"fresh": 20, "paper": 10}
    first = [name for name in names if name.startswith("cifar10-")][:21]
    assert sum("-paper-" in name for name in first) == 10  # short of time, five drops are whole


def test_each_arm_meets_the_timeline_of_its_rule():
    def radio(arm):
        (found,) = radios_of(Job("mnist", "label", 5, arm, 0).rule, 1.0)
        return found.schedule, found.message, found.thrift

    assert radio("fresh") == radio("newest") == ("index", "sum", 1.0)
    assert radio("thrifty") == ("index", "sum", THRIFT)
    assert radio("copies") == ("index", "copy", 1.0)
    for arm in ("paper", "epochs"):
        tried = radios_of(Job("mnist", "label", 5, arm, 0).rule, 1.0)
        assert [each.schedule for each in tried] == ["threshold"] * 7


def test_the_figure_keeps_data_sets_apart(tmp_path):
    def line(data, arm, loss):
        rows = [{"slots": 0, "train_loss": 4.0}, {"slots": 25, "train_loss": loss}]
        return {"data": data, "split": "label", "nodes": 5, "arm": arm, "rows": rows}

    kept = tmp_path / "runs.jsonl"
    lines = [
        line(data, arm, loss)
        for data in ("mnist", "cifar10")
        for arm, loss in (("free", 0.2), ("fresh", 0.3), ("paper", 2.0))
    ]
    kept.write_text("".join(json.dumps(each) + "\n" for each in lines))

    draw([kept], tmp_path / "two.png")
    two = (tmp_path / "two.png").read_bytes()
    kept.write_text("".join(json.dumps(each) + "\n" for each in lines[:3]))
    draw([kept], tmp_path / "one.png")

    width = [int.from_bytes(png[16:20]) for png in (two, (tmp_path / "one.png").read_bytes())]
    assert width[0] > 1.5 * width[1]


@pytest.mark.parametrize("seed", [1, 6, 8, 9, 12])
def test_no_schedule_of_a_small_drop_is_below_its_floor(seed):
    found = list(floors_small.ratios(seed))

    assert len(found) == 10
    assert min(ratio for _, ratio in found) >= 1
