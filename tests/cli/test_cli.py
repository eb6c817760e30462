"""The command line as a person meets it: answers, wrong input, and in real processes signals and a
full disk."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import shell
from folkman.cli import COMMANDS, SECTIONS, app

FAST = [
    "--set",
    "slots=20",
    "--set",
    "seeds=[0]",
    "--set",
    "data.train_size=100",
    "--set",
    "model.name=softmax",
]


@pytest.fixture
def folkman(tmp_path):
    """Return a caller of the command line in the folder of a test."""
    return partial(shell.folkman, cwd=tmp_path)


def test_json_is_the_last_line_with_the_promised_keys(folkman, tmp_path):
    done = folkman("run", *FAST, "--out", "r", "--json")

    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["folder"] == "r"
    assert len(answer["runs"]) == 3
    promised = {
        "algorithm",
        "label",
        "seed",
        "slots",
        "seconds",
        "gradients",
        "rounds",
        "bits",
        "train_loss",
    }
    promised |= {"test_accuracy", "mean_age", "max_age", "kappa"}
    for run in answer["runs"]:
        assert promised <= set(run)
    made = {path.name for path in (tmp_path / "r").iterdir()}
    assert {"config.toml", "metrics.parquet", "summary.json", "figures", "provenance.json"} <= made
    assert (
        (tmp_path / "r" / "figures" / "train_loss-seconds.png").read_bytes().startswith(b"\x89PNG")
    )
    assert "FedAvg, seed 0: 20 slots, training loss " in done.stderr
    assert json.loads((tmp_path / "r" / "provenance.json").read_text())["command"] == [
        "run", *FAST, "--out", "r", "--json"
    ]  # fmt: skip

    listed = folkman("ls", ".")
    assert "finished" in listed.stdout
    assert "Algorithm 1" in listed.stdout
    drawn = folkman("plot", "r", "--x", "bits", "--y", "consensus", "--out", "c.svg")
    assert drawn.stdout.strip() == "c.svg"
    assert (tmp_path / "c.svg").read_text().startswith("<?xml")


@pytest.mark.process
@pytest.mark.slow
def test_ctrl_c_leaves_a_folder_that_resumes_to_the_same_bits(folkman, tmp_path):
    arguments = [*FAST, "--set", "slots=4000", "--set", "record_every=200"]
    command = [sys.executable, "-m", "folkman", "run", *arguments, "--out", "stopped"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    parts = tmp_path / "stopped" / "parts"
    deadline = time.monotonic() + 120
    while not (parts.is_dir() and any(parts.glob("*.parquet"))) and time.monotonic() < deadline:
        time.sleep(0.05)  # until the first of the three runs is done
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)

    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert "go on with: folkman run --resume stopped" in errors
    with shell.undrawn():
        resumed = folkman("run", "--resume", "stopped")
        whole = folkman("run", *arguments, "--out", "whole")
    assert resumed.returncode == 0, resumed.stderr
    assert whole.returncode == 0, whole.stderr
    one, two = ((tmp_path / name / "metrics.parquet").read_bytes() for name in ("stopped", "whole"))
    assert one == two


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["run", "nowhere.toml"], "there is no nowhere.toml"),
        (["run", "--set", "network.gama=3"], "did you mean 'gamma'?"),
        (["run", "--set", "algorithm.0.name=fedavgg"], "did you mean 'fedavg'?"),
        (
            ["run", "--set", "algorithm.0.step=-1"],
            "step must be a finite number of at least 0, got -1",
        ),
        (["run", "--set", "data.name=npz", "--set", "data.path=none.npz"], "none.npz"),
        (["run", "--set", "data.name=npz", "--set", "data.path=nan.npz"], "expected finite"),
        (["run", "--set", "data.name=npz", "--set", "data.path=cut.npz"], "cut.npz"),
        (["run", "--set", "nodes=2000"], "none at node"),
        (["run", "--set", "nodes=1000000000"], "nodes must be at most"),
        (["run", "--set", "nodes=1000000"], "none at node 1437"),
        (["run", "--set", "nodes=1000000", "--set", "partition.name=case3"], "fewer nodes"),
        (["run", "--set", "nodes=1000000", "--set", "partition.name=dirichlet"], "fewer nodes"),
        (["run", "--set", "slots=1000000000000"], "slots must be at most"),
        (["run", "--set", "slots=1000000000"], "set record_every = 500 or more"),
        (
            ["run", "--set", "data.name=mnist", "--set", "data.folder=empty"],
            "folkman data fetch mnist",
        ),
        (
            ["run", "--set", "model.name=cnn", "--set", "data.name=gaussian"],
            "height, width, channels",
        ),
        (["run", "--resume", "empty"], "expected a run folder"),
        (
            ["run", "--resume", "empty", "--set", "slots=3"],
            "--resume takes everything from the folder",
        ),
        (["run", "--out", "full"], "has content"),
        (["run", "--out", "nan.npz"], "is a file"),
        (
            ["run", "--set", "data.name=gaussian", "--set", "model.name=softmax"],
            "expects labels as targets",
        ),
        (["run", "--set", "model.name=quadratic"], "expects curvatures as targets"),
        (["run", "--set", "model.hidden=[0]"], "hidden widths must be at least 1"),
        (["run", "--nonsense"], "No such option"),
        (["ls", "nowhere"], "there is no nowhere"),
        (["plot", "empty"], "expected a run or a sweep folder"),
        (["data", "fetch", "mnst"], "did you mean 'mnist'?"),
        (["data", "fetch", "mnist", "--source", "ftp", "--folder", "empty"], "there is no 'ftp'"),
    ],
)
def test_wrong_input_is_answered_in_one_sentence(folkman, tmp_path, arguments, complaint):
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    x, y = np.ones((20, 4)), np.arange(20) % 2
    x[3, 2] = np.nan
    np.savez(tmp_path / "nan.npz", x_train=x, y_train=y)
    whole = (tmp_path / "nan.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    before = {path for path in tmp_path.rglob("*") if path.is_file()}

    done = folkman(*arguments)

    assert done.returncode == 2
    assert complaint in done.stderr
    assert before <= {path for path in tmp_path.rglob("*") if path.is_file()}


def test_one_node_alone_is_a_run_like_any_other(folkman, tmp_path):
    """It has no neighbour, so Algorithm 1 is gradient descent: its free links change nothing."""
    only = ["--set", "nodes=1", "--set", "algorithm.0.step=0.5"]
    free = ["--set", "algorithm.2.name=async_sharing", "--set", "algorithm.2.step=0.5"]
    free += ["--set", "algorithm.2.label=free", "--set", "algorithm.2.network.name=ideal"]

    done = folkman("run", *FAST, *only, *free, "--out", "r", "--json")

    assert done.returncode == 0, done.stderr
    first, _, last = json.loads(done.stdout.splitlines()[-1])["runs"]
    assert first["train_loss"] == pytest.approx(last["train_loss"], rel=1e-6)
    assert (tmp_path / "r" / "report.html").is_file()


def test_a_run_that_goes_nowhere_ends_with_the_reason_and_what_to_try(folkman):
    """No link reaches a threshold of 1000 dB, so that nothing is ever sent."""
    radio = ["--set", "network.name=radio", "--set", "network.threshold_db=1000"]
    with shell.undrawn():
        done = folkman("run", *FAST, *radio, "--out", "r")

    assert done.returncode == 0, done.stderr
    told = " ".join(done.stdout.split())
    assert "Algorithm 1 (1 not learning)" in told
    assert "nothing was sent in 20 slots" in told
    assert "lower the threshold of the radio" in told


def test_pairs_that_never_heard_each_other_are_told_below_the_table(folkman):
    """At 5 dB some links of this cell are never used, and the loss falls all the same."""
    radio = ["--set", "network.name=radio", "--set", "network.threshold_db=5", "--set", "nodes=5"]
    with shell.undrawn():
        done = folkman("run", *FAST, *radio, "--out", "r")

    assert done.returncode == 0, done.stderr
    told = " ".join(done.stdout.split())
    assert "'Algorithm 1' has unheard pairs (1 of 1 seeds): with seed 0 the nodes of " in told
    assert " of 20 pairs never heard each other; run longer, or on a radio raise power_dbm" in told


def test_a_divergent_run_is_told_and_kept(folkman, tmp_path):
    settings = ["--set", "algorithm.0.step=1e30", "--set", "model.name=mlp"]

    with shell.undrawn():
        done = folkman("run", *FAST, *settings, "--out", "r", "--json")

    assert done.returncode == 3, done.stderr
    assert "no longer finite" in done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    assert [run["status"] for run in answer["runs"]] == ["diverged", "finished", "finished"]
    assert answer["runs"][0]["train_loss"] is None
    assert (tmp_path / "r" / "metrics.parquet").is_file()


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("limit", [2000, 3000])
def test_a_full_disk_is_told_and_can_be_resumed(folkman, tmp_path, limit):
    """A limit on the size of a written file stands in for the disk: below a model's, then below a
    table's."""
    code = (
        f"import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}));"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "sys.argv = ['folkman', *sys.argv[1:]]; from folkman.cli import main; main()"
    )
    command = [sys.executable, "-c", code, "run", *FAST, "--out", "r"]
    own = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "programs")
    }  # the limit would cut what others read
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False, env=own
    )

    assert done.returncode == 4, done.stderr
    assert "Traceback" not in done.stderr
    assert "folkman run --resume r" in done.stderr
    assert not list((tmp_path / "r").rglob("*.part*"))
    with shell.undrawn():
        resumed = folkman("run", "--resume", "r")
    assert resumed.returncode == 0, resumed.stderr


def test_the_version_is_told(folkman):
    import folkman as fm

    assert folkman("--version") == (0, f"folkman {fm.__version__}\n", "")


def test_the_help_has_every_command_once_under_what_it_is_for(tmp_path, monkeypatch):
    listed = [name for names in SECTIONS.values() for name in names]
    assert sorted(listed) == sorted(COMMANDS)

    monkeypatch.setenv("COLUMNS", "80")
    told = shell.folkman("--help", cwd=tmp_path).stdout

    for title, names in SECTIONS.items():
        own = told.partition(f"\n{title}:\n")[2].partition("\n\n")[0]
        assert re.findall(r"^  ([a-z-]+) ", own, re.MULTILINE) == list(names)
    assert max(map(len, told.splitlines())) <= 80
    assert "..." not in told.replace("COMMAND [ARGS]...", "")


@pytest.mark.parametrize("group", [(), ("certs",), ("data",), ("fleet",), ("theory",)])
def test_no_summary_of_a_command_is_cut_on_a_narrow_terminal(group, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")

    told = CliRunner().invoke(app, [*group, "--help"]).stdout

    assert "Commands" in told or "commands" in told or not group
    assert not [line for line in told.splitlines()[1:] if line.rstrip().endswith(("...", "…"))]


@pytest.mark.process
def test_help_answers_without_the_heavy_packages():
    code = (
        "import sys\nfrom folkman.cli import app\nimport typer.testing\n"
        "done = typer.testing.CliRunner().invoke(app, ['--help'])\nassert done.exit_code == 0\n"
        "heavy = {'jax', 'numpy', 'matplotlib', 'pyarrow', 'rich', 'scipy', 'sklearn', "
        "'pydantic'}\nassert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 0, done.stderr


def test_the_data_listing_says_what_is_missing(folkman, tmp_path):
    done = folkman("data", "ls", "--folder", tmp_path)

    assert done.returncode == 0
    assert "digits" in done.stdout
    assert "folkman data fetch mnist" in done.stdout


@pytest.mark.process
def test_the_installed_command_is_the_module():
    script = Path(sys.executable).with_name("folkman")
    done = subprocess.run(
        [script, "--help"], capture_output=True, text=True, timeout=60, check=False, env=os.environ
    )

    assert done.returncode == 0
    for name in ("run", "ls", "plot", "data"):
        assert name in done.stdout
