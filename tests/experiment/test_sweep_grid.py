"""What a sweep runs: points, arms, keys; and what it refuses before anything runs."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkman.config.comparison import resolve, to_toml
from folkman.config.text import dump, override, read
from folkman.experiment.plan import axes_of, job_key, plan

SMALL = {
    "slots": 20,
    "seeds": [0, 1],
    "data": {"name": "digits", "train_size": 100},
    "model": {"name": "softmax"},
    "algorithm": [{"name": "async_sharing", "label": "Algorithm 1", "step": 0.2}],
}
TWO = [
    {"name": "async_sharing", "label": "A", "step": 0.2},
    {"name": "fedavg", "label": "B", "step": 0.2},
]
VALUES = st.lists(st.integers(1, 99), min_size=1, max_size=4, unique=True)


@given(a=VALUES, b=VALUES, together=st.integers(1, 3))
def test_a_grid_is_every_combination_and_lists_advance_together(a, b, together):
    rows = {"c": list(range(together)), "d": [str(i) for i in range(together)]}

    points = list(axes_of({"grid": {"x": {"a": a}, "b": b}, "list": rows}).points())

    assert len(points) == len(a) * len(b) * together
    assert len({json.dumps(point) for point in points}) == len(points)
    assert all(point["d"] == str(point["c"]) for point in points)
    assert {point["x.a"] for point in points} == set(a)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("k=1,2.5,true", [1, 2.5, True]),
        ("k=iid,case2", ["iid", "case2"]),
        ("k=[64],[32, 32]", [[64], [32, 32]]),
        (
            'k={name = "ideal"},{name = "snapshot", gamma = 3}',
            [{"name": "ideal"}, {"name": "snapshot", "gamma": 3}],
        ),
        ('k="a,b",c', ["a,b", "c"]),
    ],
)
def test_values_are_parted_at_commas_outside_brackets_and_quotes(text, values):
    assert axes_of({}, [text]).grid == {"k": values}


@pytest.mark.parametrize(
    ("raw", "options", "complaint"),
    [
        ({"grid": {}}, [], r"\[grid\] is empty"),
        ({"grid": {"nodes": []}}, [], "'nodes' has no values"),
        ({}, ["nodes="], "'nodes' has no values"),
        ({}, ["nodes"], "looks like network.gamma=5,10,15"),
        ({}, [".nodes=3"], "looks like network.gamma=5,10,15"),
        ({"grid": {"nodes": [3]}}, ["nodes=4"], "'nodes' is varied twice"),
        ({"grid": {"nodes": [3]}, "list": {"nodes": [4]}}, [], "'nodes' is varied twice"),
        ({}, ["nodes=3,4,3"], "the value 3 twice"),
        ({}, ["seeds=1,2"], "seeds are not an axis"),
        ({"grid": {"nodes": 5}}, [], "must be a list of values, got 5"),
        ({"grid": [1]}, [], "must be a table of lists"),
        ({"list": {"nodes": [3, 4], "slots": [1]}}, [], "must be of one length"),
    ],
)
def test_axes_that_make_no_sweep_are_refused(raw, options, complaint):
    with pytest.raises(ValueError, match=complaint):
        axes_of(raw, options)


@pytest.mark.parametrize(
    ("option", "complaint"),
    [
        ("network.gama=3,4", r"did you mean 'gamma'\?.*at network.gama=3"),
        ("algorithm.0.step=0.1,-1", r"got -1.*at algorithm.0.step=-1"),
        ("name=a,b", "'name' changes no arm"),
    ],
)
def test_every_arm_is_checked_before_anything_runs(option, complaint):
    with pytest.raises(ValueError, match=complaint):
        plan(SMALL, axes_of({}, [option]))


def test_seeds_are_paired_across_arms():
    jobs = plan(SMALL, axes_of({}, ["network.gamma=3,5", "nodes=2,4"])).jobs

    assert len(jobs) == 2 * 2 * 2
    assert len({job.key for job in jobs}) == len(jobs)
    for arm in {job.arm for job in jobs}:
        assert [job.seed for job in jobs if job.arm == arm] == [0, 1]
    assert jobs[0].arm == "Algorithm 1, gamma=3, nodes=2"
    assert all(len(job.config.algorithm) == len(job.config.seeds) == 1 for job in jobs)


def test_settings_that_come_to_the_same_are_one_arm():
    """A step of one algorithm does not multiply the other, nor the network's delay one with links
    of its own."""
    free = {"name": "fedavg", "label": "free", "step": 0.2, "network": {"name": "ideal"}}
    raw = {**SMALL, "algorithm": [*TWO, free]}

    jobs = plan(raw, axes_of({}, ["network.gamma=3,5", "algorithm.0.step=0.1,0.2"])).jobs

    found = {job.arm: dict(job.settings) for job in jobs}
    assert found == {
        "A, gamma=3, step=0.1": {"network.gamma": 3, "algorithm.0.step": 0.1},
        "A, gamma=3, step=0.2": {"network.gamma": 3, "algorithm.0.step": 0.2},
        "A, gamma=5, step=0.1": {"network.gamma": 5, "algorithm.0.step": 0.1},
        "A, gamma=5, step=0.2": {"network.gamma": 5, "algorithm.0.step": 0.2},
        "B, gamma=3": {"network.gamma": 3},
        "B, gamma=5": {"network.gamma": 5},
        "free": {},
    }
    assert len(jobs) == 7 * 2


def test_a_key_is_of_what_decides_the_result_and_nothing_else(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("a.npz", "b.npz"):
        np.savez(tmp_path / name, x_train=rng.normal(size=(20, 3)), y_train=np.arange(20) % 2)
    (tmp_path / "copy.npz").write_bytes((tmp_path / "a.npz").read_bytes())

    def key(*settings):
        return job_key(resolve(override(SMALL, settings)))

    def of_file(name):
        return (
            plan(SMALL, axes_of({}, [f"data={{name = 'npz', path = '{tmp_path / name}'}}"]))
            .jobs[0]
            .key
        )

    assert key() == key("network.name=pipelined") == key("l2=0.0", "nodes=5")
    assert (
        len({key(), key("slots=21"), key("seeds=[0]"), key("l2=0.1"), key("algorithm.0.step=0.3")})
        == 5
    )
    assert of_file("a.npz") == of_file("copy.npz") != of_file("b.npz")
    before = of_file("b.npz")
    np.savez(tmp_path / "b.npz", x_train=np.ones((20, 3)), y_train=np.arange(20) % 2)
    assert of_file("b.npz") != before
    with pytest.raises(ValueError, match=r"none\.npz cannot be read"):
        of_file("none.npz")


def test_the_name_of_a_comparison_is_not_part_of_a_job():
    axes = axes_of({}, ["nodes=2,4"])

    one, two = plan({**SMALL, "name": "one"}, axes), plan({**SMALL, "name": "two"}, axes)

    assert [job.key for job in one.jobs] == [job.key for job in two.jobs]
    assert (one.name, two.name) == ("one", "two")


def test_a_definition_is_read_back_as_it_was_written(tmp_path):
    raw = {
        **SMALL,
        "grid": {"network.gamma": [3, 5], "model.hidden": [[4], [5, 5]]},
        "list": {"x": [{"name": "q"}]},
    }
    (tmp_path / "sweep.toml").write_text(dump(raw))

    again = read(tmp_path / "sweep.toml")

    assert axes_of(again) == axes_of(raw)
    assert {key: again[key] for key in SMALL} == SMALL


def test_the_configuration_of_a_job_is_a_configuration(tmp_path):
    for job in plan({**SMALL, "algorithm": TWO}, axes_of({}, ["network.gamma=3,5"])).jobs:
        (tmp_path / "job.toml").write_text(to_toml(job.config))
        assert job_key(resolve(read(tmp_path / "job.toml"))) == job.key


def test_steps_that_differ_late_have_names_that_differ():
    raw = {"algorithm": [{"name": "async_sharing", "label": "A"}], "slots": 5}
    planned = plan(raw, axes_of(raw, ["algorithm.0.step=0.1234567,0.1234568,0.5"]))

    arms = list(dict.fromkeys(job.arm for job in planned.jobs))
    assert arms == ["A, step=0.1234567", "A, step=0.1234568", "A, step=0.5"]
