"""Rankings as a person runs them: the order that mathematics says, wrong input, going on."""

import json
import signal
import subprocess
import sys
from copy import deepcopy

import pytest

import folkman as fm
from folkman.config.text import dump
from folkman.experiment import rank as ranking
from folkman.experiment import tune as tuning
from folkman.experiment.rank import carry_out_ranking, prepare_ranking
from folkman.experiment.sweep import crew_for, prepare_sweep
from folkman.record.store import SweepFolder
from shell import folkman

SMALL = {
    "name": "small",
    "nodes": 4,
    "slots": 60,
    "data": {"name": "quadratic", "dim": 2, "condition": 4.0, "heterogeneity": 3.0},
    "network": {"name": "ideal"},
    "algorithm": [
        {"name": "fedavg", "label": "drifts", "step": 0.1, "local_steps": 10},
        {"name": "scaffold", "label": "corrects", "step": 0.1, "local_steps": 10},
    ],
}
ASKED = {"methods": ["configured"], "over": {"step": [0.1, 0.3]}, "seeds": [1000]}
PLACED = {**ASKED, "judged": [1, 2, 3], "score": "optimum_distance"}


@pytest.fixture(scope="module")
def ranked(tmp_path_factory):
    place = tmp_path_factory.mktemp("ranks")
    return fm.rank(SMALL, **PLACED, out=place / "small", engine="here")


def test_local_steps_that_are_corrected_are_ahead_of_those_that_drift(ranked):
    """Ten local steps to unlike optima: FedAvg stops beside the optimum, SCAFFOLD does not."""
    first = ranked.rankings[0]

    assert first.labels == ("corrects", "drifts")
    assert first.rank == (1.0, 2.0)
    assert first.sign(0, 1) == "+"
    assert [each.axis for each in ranked.rankings] == ["seconds", "bits", "gradients", "energy_j"]
    assert {each.label for each in ranked.tuned.methods} == {"drifts", "corrects"}


def test_on_quadratics_the_floor_is_before_the_best_method(ranked):
    assert ranked.floor is not None
    assert 1 <= ranked.floor.slots <= ranked.floor.best_slots <= SMALL["slots"]
    assert ranked.answer()["floor"]["slots"] == ranked.floor.slots


def test_its_folder_has_the_answer_the_tuned_file_and_the_report(ranked):
    folder = SweepFolder(ranked.folder)

    told = folder.read_ranking()
    assert told is not None
    assert told["rankings"][0]["methods"][0]["label"] == "corrects"
    assert json.dumps(told)  # no NaN: JSON has none
    assert folder.tuned.is_file()
    page = folder.report.read_text(encoding="utf-8")
    assert "Ranking" in page
    assert "surely ahead of" in page
    assert {job["seed"] for job in folder.read_index()["jobs"]} == {1, 2, 3}


def test_going_on_with_a_finished_ranking_runs_nothing_and_says_the_same(ranked):
    again = fm.rank(resume=ranked.folder, engine="here")

    assert again.rankings == ranked.rankings


def test_a_ranking_is_gone_on_with_as_a_ranking_alone(ranked):
    with pytest.raises(ValueError, match="is a ranking; go on with: folkman rank --resume"):
        prepare_sweep(resume=ranked.folder)
    with pytest.raises(ValueError, match="is no ranking; go on with: folkman tune"):
        prepare_ranking(resume=ranked.folder / "tuned")


def test_a_method_that_cannot_run_here_is_left_out_and_said(tmp_path):
    config = deepcopy(SMALL)
    config["nodes"] = 2
    config["algorithm"] += [{"name": "fedap", "label": "waits", "m": 3}]

    prepared = prepare_ranking(config, **PLACED, out=tmp_path / "r")

    assert [each.label for each in prepared.tuning.methods] == ["drifts", "corrects"]
    assert "at most the number of nodes" in prepared.left_out["waits"]


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ({"methods": ["fedavgg"]}, "there is no method 'fedavgg'; did you mean 'fedavg'"),
        ({"methods": ["drifts"]}, "needs two methods at least, 1 fit"),
        ({"judged": [1]}, "two different seeds to judge on"),
        ({"judged": [1, 1000]}, "judged on the seeds .1000. too"),
        ({"budget": 1}, "--budget 1 is too small"),
    ],
)
def test_what_does_not_fit_is_refused_and_leaves_nothing(tmp_path, asked, complaint):
    with pytest.raises(ValueError, match=complaint):
        prepare_ranking(SMALL, **{**PLACED, **asked}, out=tmp_path / "r")

    assert not (tmp_path / "r").exists()


def test_a_refused_ranking_removes_the_folders_it_made_and_nobody_elses(tmp_path, monkeypatch):
    """Another ranking may have begun beneath the same new folder meanwhile."""
    others = tmp_path / "ranks" / "other"

    def refuse(*_, **__):
        others.mkdir()
        raise ValueError("refused")

    monkeypatch.setattr(ranking, "prepare_tuning", refuse)
    with pytest.raises(ValueError, match="refused"):
        prepare_ranking(SMALL, **PLACED, out=tmp_path / "ranks" / "mine")

    assert [each.name for each in (tmp_path / "ranks").iterdir()] == ["other"]
    others.rmdir()
    (tmp_path / "ranks").rmdir()
    monkeypatch.undo()
    with pytest.raises(ValueError, match="too small"):
        prepare_ranking(SMALL, **{**PLACED, "budget": 1}, out=tmp_path / "ranks" / "mine")
    assert not (tmp_path / "ranks").exists()


def test_all_methods_are_those_that_are_registered_with_the_files_own_options(tmp_path):
    prepared = prepare_ranking(SMALL, **{**PLACED, "methods": ["all"]}, out=tmp_path / "r")

    labels = {each.label for each in prepared.tuning.methods} | set(prepared.left_out)
    assert {"drifts", "corrects", "dpsgd", "ringleader"} <= labels
    assert not {"fedavg", "scaffold"} & labels
    assert len(labels) == len(list(fm.ALGORITHMS))


def test_the_command_prints_a_table_of_eighty_columns(ranked, tmp_path):
    done = folkman("rank", "--resume", ranked.folder, "--engine", "here", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    shown = done.stdout.splitlines()
    assert any("corrects" in line and "1.0±0.0" in line for line in shown)
    assert max(len(line) for line in shown if "folder" not in line and "next" not in line) <= 82


def test_search_and_judgement_are_counted_apart(ranked, tmp_path):
    """Each part counts from 1 to its own number; together they never exceed the whole."""
    told = []
    prepared = prepare_ranking(SMALL, **PLACED, out=tmp_path / "r")
    carry_out_ranking(prepared, crew_for("here"), told.append)

    judged = [(each.done, each.in_all) for each in told if each.phase == "judging"]
    assert judged == [(done, 6) for done in range(1, 7)]  # two methods, three seeds
    search = [each for each in told if each.phase == "search"]
    assert {each.in_all for each in search} == {prepared.tuning.runs}
    assert len(search) + len(judged) == len(told)
    counts = [each.before + each.done for each in told]
    assert counts == sorted(counts)
    assert counts[-1] == prepared.runs


@pytest.mark.parametrize("where", ["search", "judgement"])
def test_a_ranking_goes_on_where_it_was_interrupted(ranked, tmp_path, monkeypatch, where):
    """Ctrl-C in the second batch of the search, or in the middle of the judged runs."""
    module = tuning if where == "search" else ranking
    whole, crew, kept = module.run_whole, crew_for("here"), []

    def interrupted(planned, *rest):
        if kept:
            raise KeyboardInterrupt
        some = planned if where == "search" else planned._replace(jobs=planned.jobs[:2])
        batch = whole(some, *rest)
        kept.extend(batch.made)
        if where == "judgement":
            raise KeyboardInterrupt
        return batch

    monkeypatch.setattr(module, "run_whole", interrupted)
    with pytest.raises(KeyboardInterrupt):
        carry_out_ranking(prepare_ranking(SMALL, **PLACED, out=tmp_path / "r"), crew)
    assert SweepFolder(tmp_path / "r").read_ranking() is None
    made = []

    def counted(*given):
        batch = whole(*given)
        made.extend(batch.made)
        return batch

    monkeypatch.setattr(module, "run_whole", counted)
    again = carry_out_ranking(prepare_ranking(resume=tmp_path / "r"), crew)

    assert again.rankings == ranked.rankings
    assert made
    assert not set(kept) & set(made)  # what was there is not run again


@pytest.mark.process
def test_ctrl_c_while_methods_are_judged_ends_with_how_to_go_on(ranked, tmp_path):
    (tmp_path / "small.toml").write_text(dump(SMALL))
    asked = ["--method", "configured", "--over", "step=0.1,0.3", "--seeds", "1000"]
    asked += ["--judged", "1,2,3", "--score", "optimum_distance", "--out", "r", "--engine", "here"]
    command = [sys.executable, "-m", "folkman", "rank", "small.toml", *asked]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=tmp_path, **pipes) as process:
        assert process.stderr is not None
        next(line for line in process.stderr if "seed 1:" in line)
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()

    assert process.returncode == 130, said
    assert "go on with: folkman rank --resume r" in said
    assert list((tmp_path / "r" / "jobs").glob("*/job.json"))
    done = folkman("rank", "--resume", "r", "--engine", "here", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rankings"] == json.loads(
        json.dumps(ranked.answer()["rankings"])
    )


@pytest.mark.process
@pytest.mark.slow
def test_a_ranking_on_dask_says_the_same(ranked, tmp_path):
    pytest.importorskip("distributed")

    on_dask = fm.rank(SMALL, **PLACED, out=tmp_path / "r", engine="dask", workers=1)

    assert on_dask.rankings == ranked.rankings
