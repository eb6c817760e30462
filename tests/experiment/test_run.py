"""The doors for Python: `folkman.run` and `folkman.compare` make what the command makes."""

import json
import sys
from functools import wraps

import jax
import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import folkman as fm
from folkman.algorithm import ALGORITHMS
from folkman.cli import app, main
from folkman.config.build import build_problem, pairs
from folkman.config.comparison import CHOICES, resolve
from folkman.config.text import dump, gather
from folkman.experiment import run as module
from folkman.experiment.fingerprint import fingerprint
from folkman.experiment.theory import examine
from folkman.report import kept
from shell import folkman
from shell import undrawn as empty_figures

CONFIG = {
    "nodes": 3,
    "slots": 12,
    "record_every": 4,
    "seeds": [0, 1],
    "data": {"name": "digits", "train_size": 60},
    "model": {"name": "softmax"},
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the results of an uninterrupted run; its figures are there and empty."""
    with empty_figures():
        return fm.run(CONFIG, out=tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture
def unpainted():
    """Leave figures empty where a test looks for their names alone."""
    with empty_figures():
        yield


@pytest.fixture
def undrawn(monkeypatch):
    """Leave out figures and report, most of the time of a short run, where a test is not about
    them."""
    monkeypatch.setattr(module, "write_run_report", lambda *_, **__: None)
    monkeypatch.setattr(module, "_draw_labels", lambda *_: None)


def rows(folder):
    return str(pq.read_table(folder / "metrics.parquet").to_pylist())  # as text: NaN != NaN


def stop_after(calls):
    """Return a watcher that interrupts."""
    seen = []

    def watch(*told):
        seen.append(told)
        if len(seen) == calls:
            raise KeyboardInterrupt

    return watch


def test_a_file_a_dictionary_and_the_command_give_the_same_folder(
    unpainted, whole, tmp_path, monkeypatch, capsys
):
    file = tmp_path / "mine.toml"
    file.write_text(dump({**CONFIG, "slots": 99}))
    assert gather(file, ["slots=12"]) == gather(str(file), {"slots": 12}) == CONFIG
    fm.run(file, settings=["slots=12"], out=tmp_path / "file")
    monkeypatch.setattr(
        sys, "argv", ["folkman", "run", str(file), "--set", "slots=12", "--out", "c", "--json"]
    )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main()

    assert not ended.value.code
    answer = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert answer["runs"] == [run.summary() for run in whole]
    for folder in (tmp_path / "file", tmp_path / "c"):
        assert rows(folder) == rows(whole.folder)
        assert (folder / "config.toml").read_text() == (whole.folder / "config.toml").read_text()
        names = {str(path.relative_to(folder)) for path in folder.rglob("*")}
        assert names == {str(path.relative_to(whole.folder)) for path in whole.folder.rglob("*")}


def test_nothing_is_the_demo_in_a_folder_named_by_the_time(undrawn, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = {"slots": 4, "seeds": [0], "data.train_size": 60, "model.name": "softmax"}

    results = fm.run(settings=small)

    assert [run.label for run in results] == ["Algorithm 1", "FedAvg", "FedAvg, free links"]
    assert results.folder is not None
    assert results.folder.parts[0] == "runs"
    assert (results.folder / "metrics.parquet").is_file()


def test_an_interrupted_run_goes_on_to_the_same_bits(undrawn, whole, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        fm.run(CONFIG, out=tmp_path / "run", watch=stop_after(6))

    resumed = fm.run(resume=tmp_path / "run")

    assert rows(tmp_path / "run") == rows(whole.folder)
    assert [run.summary() for run in resumed] == [run.summary() for run in whole]
    with pytest.raises(ValueError, match="resume takes everything from the folder"):
        fm.run(CONFIG, resume=tmp_path / "run")


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"algorithm.0.step": -1.0}, "step must be a finite number"),
        ({"network.gama": 3}, "did you mean 'gamma'"),
        ({"faults.crash": [[0, 2]]}, "which a node that crashes for good breaks"),
        ({"nodes": 100}, "none at node|has none"),
        ("slots=3", "a list of texts or a dictionary"),
    ],
)
def test_wrong_input_leaves_nothing_behind(tmp_path, settings, complaint):
    with pytest.raises(ValueError, match=complaint):
        fm.run(CONFIG, settings=settings, out=tmp_path / "run")

    assert not list(tmp_path.iterdir())


def test_an_unstable_step_is_a_warning(undrawn, tmp_path):
    with pytest.warns(UserWarning, match="'Algorithm 1': .*step"):
        fm.run(
            CONFIG,
            settings={"algorithm.0.step": 50.0, "seeds": [0], "slots": 4},
            out=tmp_path / "run",
        )


def test_every_algorithm_is_built_once_and_every_curve_drawn_once(tmp_path, monkeypatch):
    built, drawn = [], []
    table = dict(ALGORITHMS)
    for name in ("async_sharing", "fedavg"):

        def counting(*args, build=ALGORITHMS[name], **options):
            built.append(build.__name__)
            return build(*args, **options)

        table[name] = wraps(ALGORITHMS[name])(counting)
    monkeypatch.setitem(CHOICES, "algorithm", CHOICES["algorithm"]._replace(builders=table))
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # a run is without it
    draw = kept.save_drawing
    monkeypatch.setattr(
        kept, "save_drawing", lambda svg, path: drawn.append(path.name) or draw(svg, path)
    )

    fm.run(CONFIG, out=tmp_path / "run")

    assert sorted(built) == ["async_sharing", "fedavg", "fedavg"]  # two seeds share them
    assert drawn == ["labels", "train_loss-seconds", "test_accuracy-seconds"]
    for name in drawn:
        file = tmp_path / "run" / "figures" / name
        assert file.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
        svg = file.with_suffix(".svg").read_text()
        assert svg.startswith("<?xml")
        assert 'fill="#ffffff"' in svg  # on white, whatever is behind it


def test_a_run_in_float64_gives_the_precision_back(undrawn, tmp_path):
    before = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]

    small = {
        "precision": "float64",
        "seeds": [0],
        "slots": 4,
        "algorithm": [{"name": "async_sharing", "step": 0.2}],
    }
    (run,) = fm.run(CONFIG, settings=small, out=tmp_path / "run")

    assert run.model.dtype == np.float64
    assert jax.config.jax_enable_x64 == before  # pyright: ignore[reportAttributeAccessIssue]


@pytest.fixture(scope="module")
def objects():
    """Return a function from changes of the configuration to what `compare` takes, built in
    Python."""

    def build(**changes):
        comparison = resolve(gather(CONFIG, changes))
        built = pairs(comparison, build_problem(comparison, 0))
        labels = [table["label"] for table in comparison.algorithm]
        algorithms = {label: pair[0] for label, pair in zip(labels, built, strict=True)}
        networks = {label: pair[1] for label, pair in zip(labels, built, strict=True)}
        return lambda seed: build_problem(comparison, seed), networks, algorithms

    return build


HOW = {"slots": 12, "seeds": (0, 1), "recording": fm.Recording(4)}


def test_objects_give_the_numbers_and_the_folder_of_the_configuration(
    unpainted, whole, objects, tmp_path
):
    results = fm.compare(*objects(), **HOW, out=tmp_path / "run", name="by hand")

    assert rows(tmp_path / "run") == rows(whole.folder)
    assert [run.summary() for run in results] == [run.summary() for run in whole]
    names = {str(path.relative_to(tmp_path / "run")) for path in (tmp_path / "run").rglob("*")}
    assert names == {str(path.relative_to(whole.folder)) for path in whole.folder.rglob("*")}
    page = (tmp_path / "run" / "report.html").read_text()
    assert "by hand" in page
    assert "±" in page  # 95 % intervals over the seeds
    assert "folkman run" not in page  # no command makes these objects
    assert [run.summary() for run in fm.read_results(tmp_path / "run")] == [
        run.summary() for run in whole
    ]


def test_calling_again_goes_on_and_then_reads(undrawn, whole, objects, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        fm.compare(*objects(), **HOW, out=tmp_path / "run", watch=stop_after(6))

    fm.compare(
        *objects(), **HOW, out=tmp_path / "run"
    )  # other objects that are alike: another process
    told = []
    again = fm.compare(*objects(), **HOW, out=tmp_path / "run", watch=lambda *_: told.append(1))

    assert rows(tmp_path / "run") == rows(whole.folder)
    assert [run.summary() for run in again] == [run.summary() for run in whole]
    assert not told


@pytest.mark.parametrize("command", ["compare", "plot"])
def test_of_an_interrupted_run_what_has_ended_is_shown(undrawn, tmp_path, command):
    """Three records a run: the first run has ended when the sixth record comes."""
    with pytest.raises(KeyboardInterrupt):
        fm.run(CONFIG, out=tmp_path / "run", watch=stop_after(6))

    done = folkman(command, "run", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert "warning: run is not finished: 1 of 6 runs have ended and are shown" in done.stderr
    assert "folkman run --resume run" in done.stderr


def test_a_folder_of_something_else_is_refused(undrawn, whole, objects, tmp_path):
    fm.compare(*objects(), **HOW, out=tmp_path / "run")

    for changes in ({"algorithm.0.step": 0.3}, {"network.gamma": 3}, {"data.train_size": 61}):
        with pytest.raises(FileExistsError, match="was made from something else"):
            fm.compare(*objects(**changes), **HOW, out=tmp_path / "run")
    with pytest.raises(FileExistsError, match="was made from something else"):
        fm.compare(*objects(), **{**HOW, "slots": 16}, out=tmp_path / "run")
    with pytest.raises(FileExistsError, match="was made from something else"):
        fm.compare(*objects(), **HOW, out=whole.folder)
    for use in (lambda: fm.run(resume=tmp_path / "run"), lambda: examine(tmp_path / "run")):
        with pytest.raises(
            ValueError, match=r"made from Python objects and has none; run the script again"
        ):
            use()


def test_a_list_is_labelled_by_name_and_one_problem_serves_all_seeds(undrawn, tmp_path):
    problem = fm.make_problem(fm.load("digits", train_size=60), "softmax", 3)

    methods = [fm.async_sharing(0.2), fm.fedavg(0.2)]
    results = fm.compare(
        problem, fm.snapshot(3), methods, slots=8, seeds=(0, 1), out=tmp_path / "run"
    )

    assert [(run.label, run.seed) for run in results] == [
        ("async_sharing", 0), ("fedavg", 0), ("async_sharing", 1), ("fedavg", 1)
    ]  # fmt: skip
    alone = fm.simulate(problem, fm.snapshot(3), fm.async_sharing(0.2), slots=8, seed=1)
    assert results[2].last("train_loss") == alone.last("train_loss")


def test_the_radio_brings_its_own_clock(undrawn, tmp_path):
    problem = fm.make_problem(fm.load("digits", train_size=60), "softmax", 3)

    radio = fm.RadioNetwork(slot_s=0.01)
    (run,) = fm.compare(
        problem, radio, [fm.async_sharing(0.2)], slots=5, seeds=(0,), out=tmp_path / "run"
    )

    assert run.last("seconds") == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"slots": 0}, "must be at least 1"),
        ({"seeds": (0, 0)}, "seeds must differ"),
        ({"seeds": ()}, "at least one seed"),
        ({"seeds": (-1,)}, "must be a whole number in 0"),
        ({"algorithms": []}, "at least one algorithm"),
        ({"algorithms": [fm.fedavg(0.1), fm.fedavg(0.2)]}, "give a dictionary of labels"),
        ({"network": {"other": fm.ideal()}}, "a network for each of"),
        ({"faults": fm.Faults(crash=((0, 2, None),))}, "'fedavg': fedavg assumes"),
        ({"clock": fm.Clock(compute_slots=(1, 2))}, "one for each of the 3 nodes"),
        ({"name": "a/b"}, "has no slashes"),
        ({"track": ["tensorbord"]}, "did you mean 'tensorboard'"),
    ],
)
def test_objects_that_do_not_fit_leave_nothing_behind(tmp_path, changes, complaint):
    problem = fm.make_problem(fm.load("digits", train_size=60), "softmax", 3)
    given = {"network": fm.ideal(), "algorithms": [fm.fedavg(0.2)], "slots": 4, **changes}

    with pytest.raises(ValueError, match=complaint):
        fm.compare(
            problem, given.pop("network"), given.pop("algorithms"), **given, out=tmp_path / "run"
        )

    assert not list(tmp_path.iterdir())


def test_a_fingerprint_sees_values_code_and_closures_and_not_identity():
    def make(step, power=2):
        def update(w):
            return w - step * w**power

        return update

    assert fingerprint(make(0.1)) == fingerprint(make(0.1))
    assert fingerprint(make(0.1)) != fingerprint(make(0.2))
    assert fingerprint(make(0.1)) != fingerprint(make(0.1, 3))
    assert fingerprint(lambda w: w + 1) != fingerprint(lambda w: w - 1)
    assert fingerprint(np.zeros(3)) != fingerprint(np.zeros(4))
    assert fingerprint({"a": 1}) != fingerprint({"a": 1.0})
    assert fingerprint(jax.random.key(0)) != fingerprint(jax.random.key(1))
    assert fingerprint(fm.dpsgd(0.1)) != fingerprint(fm.dpsgd(0.2))
    assert all(fingerprint(build()) == fingerprint(build()) for build in ALGORITHMS.values())


def test_a_sweep_from_python_is_the_sweep_of_the_command(unpainted, tmp_path, monkeypatch):
    """The same arms, rows and folder, from a dictionary and a mapping of axes; what is finished is
    not run again."""
    raw = {
        "slots": 4,
        "record_every": 2,
        "seeds": [0],
        "data": {"name": "digits", "train_size": 60},
    }
    raw |= {"model": {"name": "softmax"}, "algorithm": [{"name": "async_sharing", "step": 0.1}]}
    monkeypatch.chdir(tmp_path)

    found = fm.sweep(raw, grid={"network.gamma": [2, 3]}, out="python", engine="here")
    again = fm.sweep(resume="python", engine="here")
    options = ["--grid", "network.gamma=2,3", "--out", "command", "--engine", "here", "--json"]
    (tmp_path / "sweep.toml").write_text(dump(raw))
    told = CliRunner().invoke(app, ["sweep", "sweep.toml", *options])

    assert told.exit_code == 0, told.output
    assert [run.label for run in found] == ["async_sharing, gamma=2", "async_sharing, gamma=3"]
    rows_told = [
        str([run.rows for run in runs]) for runs in (found, again, fm.read_results("command"))
    ]
    assert len(set(rows_told)) == 1
    assert {path.name for path in (tmp_path / "python").iterdir()} >= {
        "index.json",
        "results.parquet",
        "report.html",
    }
    jobs = {path.name for path in (tmp_path / "python" / "jobs").iterdir() if path.is_dir()}
    assert jobs == {
        path.name for path in (tmp_path / "command" / "jobs").iterdir() if path.is_dir()
    }


def test_a_plan_in_levels_and_arms_is_the_plan_in_a_grid(unpainted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    base = {
        "slots": 4,
        "record_every": 4,
        "seeds": [0],
        "data": {"name": "digits", "train_size": 60},
    }
    base |= {"model": {"name": "softmax"}}
    algorithm = {"name": "async_sharing", "step": 0.1}
    arm = {
        "each": {"gamma": "@gammas"},
        "network": {"name": "pipelined", "gamma": "@gamma"},
        "algorithm": algorithm,
    }

    grid = fm.sweep(
        {**base, "algorithm": [algorithm]}, grid={"network.gamma": [2, 3]}, out="a", engine="here"
    )
    arms = fm.sweep(
        {**base, "levels": {"gammas": [2, 3]}, "arm": [arm]}, out="b", store="a/jobs", engine="here"
    )

    assert [run.label for run in arms] == [run.label for run in grid]
    assert str([run.rows for run in arms]) == str(
        [run.rows for run in grid]
    )  # NaN is equal to itself here
    assert (
        len([path for path in (tmp_path / "a" / "jobs").iterdir() if path.is_dir()]) == 2
    )  # the same two jobs


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "a sweep needs something to vary"),
        ({"grid": {"network.gamma": []}}, "'network.gamma' has no values"),
        ({"grid": {"network.gama": [1]}}, "unknown key 'network.gama'"),
        (
            {"grid": {"network.gamma": [2]}, "engine": "cloud"},
            "expected 'here', 'processes', 'dask', or an address",
        ),
        ({"resume": "nowhere"}, "expected a sweep folder"),
        ({"resume": "nowhere", "grid": {"nodes": [2]}}, "resume takes everything from the folder"),
    ],
)
def test_a_sweep_that_cannot_be_leaves_nothing_behind(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        fm.sweep(**{"engine": "here", **arguments})

    assert not list(tmp_path.iterdir())


def test_a_data_file_that_changed_is_read_again_in_the_same_process(
    unpainted, tmp_path, monkeypatch
):
    """Two sweeps in this process name one path; between them its content changes, and so must the
    losses."""
    monkeypatch.chdir(tmp_path)
    raw = {
        "slots": 2,
        "record_every": 2,
        "seeds": [0],
        "nodes": 2,
        "data": {"name": "npz", "path": "mine.npz"},
    }
    raw |= {"model": {"name": "softmax"}, "algorithm": [{"name": "async_sharing", "step": 0.1}]}
    losses = []
    for seed in (0, 1):
        rng = np.random.default_rng(seed)
        x, y = rng.normal(size=(40, 4)).astype(np.float32), rng.integers(0, 3, 40)
        np.savez(tmp_path / "mine.npz", x_train=x, y_train=y)
        found = fm.sweep(raw, grid={"network.gamma": [2]}, out=f"sweep-{seed}", engine="here")
        losses.append(found[0].last("train_loss"))

    assert losses[0] != losses[1]


def test_a_target_of_the_configuration_ends_its_runs(unpainted, tmp_path):
    settings = {
        "data": {"name": "quadratic"},
        "nodes": 5,
        "slots": 60,
        "seeds": [0],
        "record_every": 5,
        "network": {"name": "ideal"},
        "algorithm": [{"name": "fedavg", "step": 0.1}],
        "stop_at": {"optimum_distance": 1.0},
    }
    results = fm.run(settings, out=tmp_path / "met")
    (found,) = results
    assert found.target_slot == found.last("slots") < 60
    assert found.last("optimum_distance") <= 1.0 < found.rows[-2]["optimum_distance"]
    told = json.loads((tmp_path / "met" / "summary.json").read_text())["runs"][0]
    assert (told["status"], told["target_slot"]) == ("finished", found.target_slot)
    with pytest.raises(ValueError, match="stop_at has no metric 'test_acuracy'"):
        fm.run(settings | {"stop_at": {"test_acuracy": 0.9}}, out=tmp_path / "wrong")
    with pytest.raises(ValueError, match="evaluate_nodes"):
        fm.run(settings | {"stop_at": {"node_test_accuracy": 0.9}}, out=tmp_path / "wrong")
