"""Tuning as a person runs it: the best step in closed form, wrong input, what comparisons say."""

import html
import json
import re
import signal
import subprocess
import sys
import tomllib
from copy import deepcopy

import numpy as np
import pytest

import folkman as fm
from folkman.config.build import build_problem
from folkman.config.comparison import resolve, to_toml
from folkman.config.text import dump, read
from folkman.experiment import tune as tuning
from folkman.experiment.jobs import order_for
from folkman.experiment.plan import axes_of, job_key, plan
from folkman.experiment.sweep import crew_for
from folkman.experiment.tune import carry_out_tuning, prepare_tuning
from folkman.record.store import Store, SweepFolder
from folkman.record.table import sides_of_arms
from folkman.record.tuned import (
    APART,
    AT_EDGE,
    CHANGED,
    ELSEWHERE,
    SAME_SEEDS,
    TUNED,
    UNTUNED,
    Side,
    searched,
    sides_of,
    source,
    source_of_run,
    standings,
    told,
    tune_command,
)
from folkman.report.write import write_report
from shell import folkman, undrawn

SMALL = {
    "name": "small",
    "nodes": 2,
    "slots": 12,
    "seeds": [0],
    "record_every": 12,
    "data": {"name": "digits", "train_size": 40, "test_size": 20},
    "model": {"name": "softmax"},
    "network": {"name": "pipelined", "gamma": 2},
    "algorithm": [
        {"name": "async_sharing", "label": "Algorithm 1", "step": 0.2},
        {"name": "fedavg", "label": "FedAvg", "step": 0.2},
    ],
}
OVER = {"step": [0.1, 1.0], "local_steps": [1, 2]}


def changed(**changes):
    return {**deepcopy(SMALL), **changes}


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A tuning of two options of two methods."""
    place = tmp_path_factory.mktemp("tuned")
    return fm.tune(SMALL, over=OVER, out=place / "small-tuned.toml", engine="here")


def test_the_best_step_of_gradient_descent_is_the_one_of_the_closed_form(tmp_path):
    # FedAvg on free links is gradient descent; with curvatures in {mu, L} the best step is
    # 2 / (mu + L), at which both directions shrink alike
    curvature = np.array([1.0, 1 / 9])
    slots = 40
    config = {
        "nodes": 2,
        "slots": slots,
        "seeds": [0],
        "data": {"name": "quadratic", "dim": 2, "condition": 9.0, "heterogeneity": 0.0},
        "network": {"name": "ideal"},
        "algorithm": [{"name": "fedavg", "step": 0.05}],
    }

    found = fm.tune(config, score="optimum_distance", out=tmp_path / "t.toml", engine="here")

    method = found.methods[0]
    assert method.options["step"] == pytest.approx(2 / curvature.sum(), rel=0.02)
    problem = [build_problem(resolve(config), seed) for seed in found.seeds]
    ends = [
        (1 - method.options["step"] * curvature) ** slots
        * (np.asarray(each.initial) - np.asarray(each.optimum))
        for each in problem
    ]
    assert method.score == pytest.approx(np.mean([np.linalg.norm(end) for end in ends]), rel=1e-3)


def test_local_steps_are_among_what_is_tuned(tmp_path):
    # identical nodes: local steps are steps of gradient descent that no transfer interrupts, so
    # that FedAvg with one of them is not at its best
    config = {
        "nodes": 2,
        "slots": 36,
        "seeds": [0],
        "data": {"name": "quadratic", "dim": 2, "condition": 9.0, "heterogeneity": 0.0},
        "network": {"name": "constant", "delay": 6},
        "algorithm": [{"name": "fedavg", "step": 0.05}],
    }
    over = {"step": [0.316, 1.0, 1.78], "local_steps": [1, 10]}

    one, both = (
        fm.tune(config, over=each, out=tmp_path / f"{name}.toml", engine="here").methods[0]
        for name, each in (("one", {"step": over["step"]}), ("both", over))
    )

    assert both.options["local_steps"] >= 10
    assert both.score < 0.2 * one.score


def test_the_file_is_the_configuration_with_what_was_found(tuned):
    config = read(tuned.file)
    table = {each["label"]: each for each in config["algorithm"]}
    found = {each.label: each for each in tuned.methods}

    assert table["Algorithm 1"]["step"] == found["Algorithm 1"].options["step"]
    assert table["FedAvg"]["local_steps"] == found["FedAvg"].options["local_steps"]
    assert "local_steps" not in table["Algorithm 1"]
    assert config["tuned"]["skipped"] == {"local_steps": ["Algorithm 1"]}
    assert config["tuned"]["algorithm"]["FedAvg"]["score"] == found["FedAvg"].score
    assert {key: config[key] for key in ("slots", "seeds", "data", "network")} == {
        key: SMALL[key] for key in ("slots", "seeds", "data", "network")
    }
    resolved = resolve(config)
    assert resolve(tomllib.loads(to_toml(resolved))) == resolved
    assert tuned.file.read_text().startswith("# Written by `folkman tune`")
    assert config == tuned.config


def test_every_method_has_the_same_budget_and_seeds_that_nobody_is_judged_on(tuned):
    jobs = SweepFolder.open(tuned.folder).read_index()["jobs"]
    spent = [sum(job["label"] == each.label for job in jobs) for each in tuned.methods]

    assert spent == [each.runs for each in tuned.methods]
    assert max(spent) <= tuned.budget
    assert {job["seed"] for job in jobs} == set(tuned.seeds) == {1000, 1001, 1002, 1003}
    for each in tuned.methods:
        assert each.score <= each.score_before  # the configured options took part


def test_a_score_is_the_mean_of_runs_that_anyone_can_repeat(tuned):
    best = tuned.methods[1]
    table = {**SMALL["algorithm"][1], **best.options}
    config = resolve(changed(algorithm=[table]))
    losses = []
    for seed in tuned.seeds:
        problem = build_problem(config, seed)
        algorithm = fm.fedavg(**best.options)
        run = fm.simulate(problem, fm.pipelined(2), algorithm, slots=12, seed=seed)
        losses.append(run.last("train_loss"))

    assert best.score == pytest.approx(np.mean(losses), rel=1e-6)


def test_every_run_of_a_tuning_goes_to_its_end(tuned, tmp_path):
    (tmp_path / "small.toml").write_text(dump({**SMALL, "stop_at": {"train_loss": 100.0}}))
    store = ["--store", tuned.folder / "jobs", "--engine", "here"]
    over = ["--over", "step=0.1,1.0", "--over", "local_steps=1,2"]

    done = folkman("tune", "small.toml", *over, *store, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert re.search(r"^at most \d+ runs; a line for each as it ends$", done.stderr, re.M)
    methods = read(tmp_path / "small-tuned.toml")["tuned"]["algorithm"]
    assert [each["score"] for each in methods.values()] == [each.score for each in tuned.methods]


def test_larger_accuracies_are_better(tmp_path):
    out = tmp_path / "t.toml"
    config = changed(algorithm=SMALL["algorithm"][1:], slots=24)
    found = fm.tune(config, over=["step=1e-4,0.3"], score="test_accuracy", out=out, engine="here")

    assert found.methods[0].options["step"] > 0.1
    before = found.methods[0].score_before
    assert before is not None
    assert before <= found.methods[0].score <= 1
    assert found.methods[0].score > 0.3


def test_what_the_tuning_notes_decides_about_no_result(tuned):
    with_note = resolve(read(tuned.file))
    without = resolve({key: value for key, value in read(tuned.file).items() if key != "tuned"})

    assert with_note.tuned is not None
    assert job_key(with_note) == job_key(without)


def state_of(found, /, **changes):
    config = tomllib.loads(to_toml(resolve({**read(found.file), **changes})))
    return set(standings(sides_of(config)).values())


def test_a_changed_setting_is_noticed(tuned):
    config = read(tuned.file)

    assert state_of(tuned) == {TUNED}
    assert state_of(tuned, record_every=3, name="other", seeds=[5, 6]) == {TUNED}
    assert state_of(tuned, stop_at={"train_loss": 0.1}) == {TUNED}
    assert state_of(tuned, network={"name": "pipelined", "gamma": 3}) == {ELSEWHERE}
    assert state_of(tuned, slots=13) == {ELSEWHERE}
    assert state_of(tuned, l2=0.1) == {ELSEWHERE}
    assert state_of(tuned, objective="nodes") == {ELSEWHERE}
    assert state_of(tuned, data={**SMALL["data"], "train_size": 41}) == {ELSEWHERE}
    assert state_of(tuned, seeds=[0, 1001]) == {SAME_SEEDS}
    other = [{**config["algorithm"][0], "step": 0.7}, config["algorithm"][1]]
    assert state_of(tuned, algorithm=other) == {CHANGED, TUNED}
    more = [*config["algorithm"], {"name": "dpsgd", "topology": "complete"}]
    assert state_of(tuned, algorithm=more) == {TUNED, UNTUNED}
    policy = [{**config["algorithm"][0], "scaling": "local"}, config["algorithm"][1]]
    assert state_of(tuned, algorithm=policy) == {ELSEWHERE, TUNED}
    alone = [config["algorithm"][0], {**config["algorithm"][1], "network": {"name": "ideal"}}]
    assert state_of(tuned, algorithm=alone) == {TUNED, ELSEWHERE}


@pytest.mark.parametrize(
    "damage", [{}, {"algorithm": [1]}, {"algorithm": {"FedAvg": 3}}, {"algorithm": {"FedAvg": {}}}]
)
def test_a_note_that_somebody_damaged_is_no_tuning(tuned, damage):
    assert state_of(tuned, tuned=damage) == {UNTUNED}


def test_the_report_of_a_tuning_says_how_to_go_on(tuned):
    with undrawn():
        page = fm.read_results(tuned.folder)
        report = write_report(tuned.folder).read_text()

    assert len(page) == sum(each.runs for each in tuned.methods)
    assert f"folkman tune --resume {tuned.folder}" in report
    assert "folkman sweep" not in report


def test_sides_of_different_searches_are_told_apart(tuned):
    config = tomllib.loads(to_toml(resolve(read(tuned.file))))
    later = deepcopy(config)
    later["tuned"]["budget"] += 1
    first, second = sides_of(config)[0], sides_of(later)[1]

    assert standings([first, second]) == {"Algorithm 1": APART, "FedAvg": APART}


def test_a_side_whose_search_ended_at_an_edge_is_told_of(tuned):
    config = tomllib.loads(to_toml(resolve(read(tuned.file))))
    assert standings(sides_of(config))["FedAvg"] == TUNED
    config["tuned"]["algorithm"]["FedAvg"]["at_edge"] = ["step"]

    assert standings(sides_of(config)) == {"Algorithm 1": TUNED, "FedAvg": AT_EDGE}


def test_the_command_that_tunes_names_the_options_that_a_side_has():
    def command(*tables):
        return tune_command([Side("a", {}, table) for table in tables], "mine.toml")

    assert command({"step": 1}) == "folkman tune mine.toml --over step"
    both = "folkman tune mine.toml --over step --over local_steps"
    assert command({"step": 1}, {"step": 1, "local_steps": 2}) == both
    assert told({"a": UNTUNED, "b": UNTUNED}, both).count(both) == 1


def test_a_line_says_how_the_sides_stand():
    assert told({"a": TUNED}) == told({}) == ""
    assert "every side is tuned" in told({"a": TUNED, "b": TUNED})
    assert told({"a": UNTUNED, "b": UNTUNED}).startswith("steps are not tuned")
    edged = told({"a": TUNED, "b": AT_EDGE})
    assert "every side is tuned" in edged
    assert edged.endswith("the best of b is the last value that was tried: raise --budget")
    mixed = told({"a": TUNED, "b": UNTUNED, "c": ELSEWHERE})
    assert "tuned: a; not tuned: b; tuned on another setting: c" in mixed


def test_the_command_names_the_configuration_as_the_run_was_asked_for_it():
    """What a shell would take apart is quoted; without a file of the user's the folder's is it."""
    assert source("mine.toml") == "mine.toml"
    assert source("my file.toml", ["seeds=[0, 1]"]) == "'my file.toml' --set 'seeds=[0, 1]'"
    words = ["run", "--set", "slots=9", "mine.toml", "--out=r", "--set=nodes=3", "--json"]
    assert source_of_run(words, "r/config.toml") == "mine.toml --set slots=9 --set nodes=3"
    for made in (None, ["demo"], ["run"], ["run", "--resume", "r"], ["run", "--set", "slots=9"]):
        assert source_of_run(made, "r/config.toml") == "r/config.toml"


def test_the_output_says_on_how_many_placements_a_score_rests(tuned):
    assert tuned.notes()[-1].startswith("the best of a search on 4 placements: expect less on")
    assert "# the best of a search on 4 placements" in tuned.file.read_text()


def test_the_line_names_the_options_that_were_tuned_and_no_others():
    """A search over steps says nothing of a threshold that was chosen for another setting."""
    names = {"a": ["step"], "b": ["step", "local_steps"]}
    tables = [{"label": name, "threshold_db": -5.0, **dict.fromkeys(own, 1)}
              for name, own in names.items()]  # fmt: skip
    found = {name: {"options": dict.fromkeys(own, 1)} for name, own in names.items()}
    config = {"algorithm": tables, "tuned": {"algorithm": found}}

    assert searched(sides_of(config)) == "step (b: local_steps, too)"
    assert searched(sides_of(config | {"algorithm": tables[1:]})) == "step and local_steps"
    assert searched(sides_of({"algorithm": tables})) == ""
    line = told({"a": TUNED, "b": TUNED}, options="step and local_steps")
    assert line.startswith("every side is tuned for this setting in step and local_steps, by one")
    assert line.endswith("other options are as the file has them")


def test_run_report_and_compare_say_whether_the_sides_are_tuned(tuned, tmp_path):
    with undrawn():
        ran = folkman("run", tuned.file, "--out", "good", "--json", cwd=tmp_path)
        slots = ["--set", "slots=11"]
        other = folkman("run", tuned.file, *slots, "--out", "bad", cwd=tmp_path)

    assert ran.returncode == other.returncode == 0, ran.stderr + other.stderr
    assert "every side is tuned for this setting in step" in ran.stderr
    answer = json.loads(ran.stdout.splitlines()[-1])
    assert answer["tuned"] == {"Algorithm 1": TUNED, "FedAvg": TUNED}
    summary = json.loads((tmp_path / "good" / "summary.json").read_text())
    assert summary == {key: answer[key] for key in summary}
    assert "tuned on another setting: Algorithm 1, FedAvg" in other.stdout
    again = f"folkman tune {tuned.file} --set slots=11 --over step"
    assert again in other.stdout  # one command before, after and in the report, settings and all
    assert again in other.stderr
    assert again in html.unescape((tmp_path / "bad" / "report.html").read_text())
    page = (tmp_path / "bad" / "report.html").read_text()
    warned = page.index("tuned on another setting: Algorithm 1, FedAvg")
    assert warned < page.index('class="verdict"')  # before the answer
    good = (tmp_path / "good" / "report.html").read_text()
    assert good.index("every side is tuned") > good.index('class="verdict"')
    compared = folkman("compare", "good", "bad", "--json", cwd=tmp_path)
    assert json.loads(compared.stdout.splitlines()[-1])["tuned"] == {
        "Algorithm 1 (good)": TUNED,
        "FedAvg (good)": TUNED,
        "Algorithm 1 (bad)": ELSEWHERE,
        "FedAvg (bad)": ELSEWHERE,
    }
    assert "this setting in step" in folkman("compare", "good", cwd=tmp_path).stdout
    latex = folkman("compare", "bad", "--format", "latex", cwd=tmp_path).stdout
    notes = [line for line in latex.splitlines() if line.startswith("% ")]
    assert any("tuned on another setting" in line for line in notes)
    caption = next(line for line in latex.splitlines() if line.startswith(r"\caption"))
    assert caption.startswith(r"\caption{Train loss and accuracy (digits, 2 nodes). ")
    assert "steps not tuned for this setting" in caption
    assert "not tuned" not in folkman("compare", "good", "--latex", cwd=tmp_path).stdout


def test_the_arms_of_a_sweep_stand_each_for_itself(tuned, tmp_path):
    grid = {"network.gamma": [2, 3]}
    with undrawn():
        fm.sweep(tuned.config, grid=grid, out=tmp_path / "s", engine="here")

    assert standings(sides_of_arms([tmp_path / "s"])) == {
        "Algorithm 1, gamma=2": TUNED,
        "Algorithm 1, gamma=3": ELSEWHERE,
        "FedAvg, gamma=2": TUNED,
        "FedAvg, gamma=3": ELSEWHERE,
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--over", "stepp"], "no algorithm here has a number 'stepp'; did you mean 'step'?"),
        (["--over", "mixing"], "no algorithm here has a number 'mixing'"),
        (["--over", "scaling"], "no algorithm here has a number 'scaling'"),
        (["--over", "decay_steps"], "'decay_steps' has no usual values; write them"),
        (["--over", "step", "--over", "step=1,2"], "'step' is given twice"),
        (["--over", "step=a,b"], "expected different numbers for 'step'"),
        (["--over", "step=-1,1"], "--over step, at -1"),
        (["--over", "local_steps=1.5,2"], "expected whole numbers for 'local_steps'"),
        (["--budget", "15"], "--budget 15 is too small: the grid of 'Algorithm 1' needs 23 runs"),
        (["--seeds", "0,1"], r"judged on the seeds \[0\] too; tune on others"),
        (["--seeds", "x"], "--seeds looks like 1000,1001, got 'x'"),
        (["--seeds", "7,7"], "expected different whole numbers"),
        (["--score", "loss"], "there is no score 'loss'"),
        (["--out", "none/t.toml"], "there is no folder none to write t.toml into"),
        (["--out", "t"], r"--out names the configuration to write, NAME.toml"),
        (["--out", "small.toml"], "small.toml is the configuration itself"),
        (["--out", "mine.toml"], "mine.toml is there and was not written by a tuning"),
        (["--set", "algorithm=[]"], r"\[\[algorithm\]\] must be one table or more"),
        (["--set", "grid.slots=[1,2]"], r"a tuning is for one setting; leave out \[grid\]"),
        (["--resume", "nowhere"], "--resume takes everything from the folder"),
        (["--engine", "cloud"], "expected 'here', 'processes', 'dask'"),
    ],
)
def test_wrong_input_is_a_sentence_and_leaves_nothing(tmp_path, arguments, message):
    (tmp_path / "small.toml").write_text(dump(SMALL))
    (tmp_path / "mine.toml").write_text("slots = 3\n")
    before = sorted(tmp_path.iterdir())

    done = folkman("tune", "small.toml", *arguments, cwd=tmp_path)

    assert done.returncode == 2
    assert re.search(message, done.stderr), done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(tmp_path.iterdir()) == before


def test_a_folder_that_cannot_be_written_is_told_before_anything_runs(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied", "t")

    monkeypatch.setattr(SweepFolder, "create", refuse)
    (tmp_path / "small.toml").write_text(dump(SMALL))

    done = folkman("tune", "small.toml", "--out", "t.toml", cwd=tmp_path)

    assert done.returncode == 2
    assert "Permission denied: t" in done.stderr


def test_a_method_whose_runs_all_diverge_is_an_error_that_says_what_to_try(tmp_path):
    config = changed(
        data={"name": "quadratic", "dim": 2},
        partition={"name": "given"},
        model={"name": "quadratic"},
        slots=60,
        algorithm=[{"name": "fedavg", "step": 1e9}],
    )
    over = ["step=1e8,1e9"]
    with pytest.raises(ValueError, match=r"every run of 'fedavg' diverged.*try smaller values"):
        fm.tune(config, over=over, out=tmp_path / "t.toml", budget=10, engine="here")
    assert not (tmp_path / "t.toml").exists()


def test_a_score_that_the_problem_does_not_have_is_refused(tmp_path):
    config = changed(algorithm=SMALL["algorithm"][:1], slots=4)
    options = {"over": ["step=0.1,1"], "out": tmp_path / "t.toml", "engine": "here"}
    with pytest.raises(ValueError, match="no optimum distance; tune for another --score"):
        fm.tune(config, score="optimum_distance", **options)


def test_a_tuning_goes_on_where_it_was_interrupted(tuned, tmp_path, monkeypatch):
    out = tmp_path / "small-tuned.toml"
    crew, whole = crew_for("here"), tuning.run_batch
    asked = []

    def interrupted(plan, *rest):
        asked.append(len(plan.jobs))
        if len(asked) == 2:
            raise KeyboardInterrupt
        return whole(plan, *rest)

    monkeypatch.setattr(tuning, "run_batch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        carry_out_tuning(prepare_tuning(SMALL, over=OVER, out=out), crew)
    assert not out.exists()
    made = []

    def counted(*given):
        batch = whole(*given)
        made.extend(batch.made)
        return batch

    monkeypatch.setattr(tuning, "run_batch", counted)
    again = carry_out_tuning(prepare_tuning(resume=tmp_path / "small-tuned"), crew)

    assert len(made) == sum(each.runs for each in again.methods) - asked[0]
    assert again.methods == tuned.methods
    assert read(out)["tuned"]["algorithm"] == read(tuned.file)["tuned"]["algorithm"]


@pytest.mark.process
def test_ctrl_c_ends_with_how_to_go_on(tuned, tmp_path):
    (tmp_path / "small.toml").write_text(dump(SMALL))
    over = ["--over", "step=0.1,1.0", "--over", "local_steps=1,2"]
    command = [sys.executable, "-m", "folkman", "tune", "small.toml", *over, "--workers", "1"]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=tmp_path, **pipes) as process:
        assert process.stderr is not None
        next(line for line in process.stderr if line.startswith("[1/"))
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()

    assert process.returncode == 130, said
    assert "go on with: folkman tune --resume small-tuned" in said
    made = len(list((tmp_path / "small-tuned" / "jobs").glob("*/job.json")))
    assert 1 <= made < sum(each.runs for each in tuned.methods)
    done = folkman("tune", "--resume", "small-tuned", "--engine", "here", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = read(tmp_path / "small-tuned.toml")["tuned"]["algorithm"]
    assert {label: each["options"] for label, each in found.items()} == {
        each.label: each.options for each in tuned.methods
    }


def test_a_failing_run_is_listed_with_its_log(tmp_path):
    """Of 40 samples, 500 nodes have none: found when the data are split."""
    (tmp_path / "small.toml").write_text(dump({**SMALL, "nodes": 500}))

    done = folkman("tune", "small.toml", "--over", "step=0.1,1", "--engine", "here", cwd=tmp_path)

    assert done.returncode == 5, done.stderr
    assert "jobs failed; run them again: folkman tune --resume small-tuned" in done.stderr
    assert re.search(r"^\s+\S+job\.log$", done.stderr, re.MULTILINE)
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "small-tuned.toml").exists()


def test_a_tuning_is_no_sweep_and_other_options_are_another_tuning(tuned, tmp_path):
    with pytest.raises(ValueError, match=f"go on with: folkman tune --resume {tuned.folder}"):
        fm.sweep(resume=tuned.folder)
    with pytest.raises(FileExistsError, match="holds another sweep; choose another --out"):
        fm.tune(SMALL, over=["step"], out=tuned.file, engine="here")
    SweepFolder.create(tmp_path / "s", dump(SMALL))
    with pytest.raises(ValueError, match="is no tuning; go on with: folkman sweep --resume"):
        fm.tune(resume=tmp_path / "s")
    with pytest.raises(ValueError, match="resume takes everything from the folder"):
        fm.tune(SMALL, resume=tuned.folder)


def test_the_command_prints_a_table_and_one_object(tuned, tmp_path):
    (tmp_path / "small.toml").write_text(dump(SMALL))
    over = ["--over", "step=0.1,1.0", "--over", "local_steps=1,2"]
    # the runs are in the store already
    options = [*over, "--store", tuned.folder / "jobs", "--engine", "here", "--json"]

    done = folkman("tune", "small.toml", *options, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["file"] == "small-tuned.toml"
    assert answer["skipped"] == {"local_steps": ["Algorithm 1"]}
    assert answer["budget"] == tuned.budget
    assert [each["options"] for each in answer["methods"]] == [
        each.options for each in tuned.methods
    ]
    assert "no option 'local_steps', not tuned: Algorithm 1" in done.stderr
    assert "next: folkman run small-tuned.toml" in done.stderr
    assert read(tmp_path / "small-tuned.toml")["algorithm"] == read(tuned.file)["algorithm"]


def test_arms_that_differ_in_numbers_alone_share_programs(tmp_path):
    grid = {"algorithm.1.step": [0.1, 0.2], "algorithm.1.local_steps": [1, 2]}
    raw = {**SMALL, "grid": grid}
    folder = SweepFolder.create(tmp_path / "s", "x = 1\n")
    store = Store(folder.store_root)
    jobs = [job for job in plan(raw, axes_of(raw)).jobs if job.label == "FedAvg"]
    orders = {
        (job.config.algorithm[0]["step"], job.config.algorithm[0]["local_steps"]): order_for(
            job, folder, store, "x"
        )
        for job in jobs
    }

    assert orders[0.1, 1]["group"] == orders[0.2, 1]["group"] != orders[0.1, 2]["group"]
    assert len({order["built"] for order in orders.values()}) == 4
