"""Files of the user's own data are looked up beside the configuration that names them."""

import shutil
import tomllib
import warnings

import numpy as np
import pytest

import folkman as fm
from folkman import cli
from folkman.checks import Notice, notice
from folkman.config.text import gather, read, with_data_files
from folkman.record.run import FINISHED
from shell import folkman, undrawn

CONFIG = """
name = "mine"
nodes = 2
slots = 4
seeds = [0]

[data]
name = "csv"
path = "samples/mine.csv"
test_share = 0.25

[model]
name = "softmax"

[network]
name = "ideal"

[[algorithm]]
name = "async_sharing"
step = 0.5
"""


@pytest.fixture
def project(tmp_path):
    """Return a folder with a configuration and its data, and go elsewhere."""
    root = tmp_path / "project"
    (root / "samples").mkdir(parents=True)
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.normal(size=(40, 2)), np.arange(40) % 2])
    np.savetxt(root / "samples/mine.csv", rows, "%.4f", ",", header="a,b,y", comments="")
    (root / "mine.toml").write_text(CONFIG)
    return root


def test_data_are_found_beside_the_configuration_from_any_folder(project, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    with undrawn():
        done = folkman("run", "../project/mine.toml", "--out", "r", cwd=tmp_path / "elsewhere")

    assert (done.returncode, "warning" in done.stderr) == (0, False), done.stderr
    kept = tomllib.loads((tmp_path / "elsewhere/r/config.toml").read_text())
    assert kept["data"]["path"] == str(project / "samples/mine.csv")
    (run,) = fm.run(kept, out=tmp_path / "again")
    assert run.status == FINISHED


def test_what_is_only_in_the_working_directory_is_read_with_a_notice(project, tmp_path):
    other = tmp_path / "configurations"
    other.mkdir()
    shutil.move(project / "mine.toml", other)
    with undrawn():
        done = folkman("run", other / "mine.toml", "--out", "r", cwd=project)
    assert done.returncode == 0, done.stderr
    assert f"warning: there is no {other}/samples/mine.csv, so {project}/samples" in done.stderr
    assert "looked up beside its file: correct it there" in done.stderr
    assert "data_files.py" not in done.stderr  # no place in the source


def test_beside_the_configuration_comes_first(project, tmp_path, monkeypatch):
    (tmp_path / "samples").mkdir()
    shutil.copy(project / "samples/mine.csv", tmp_path / "samples")
    monkeypatch.chdir(tmp_path)
    assert read("project/mine.toml")["data"]["path"] == str(project / "samples/mine.csv")
    told = gather("project/mine.toml", ["data.path=samples/mine.csv"])
    assert told["data"]["path"] == str(tmp_path / "samples/mine.csv")  # a setting: from here


def test_a_run_of_an_earlier_version_goes_on_with_its_path(project, monkeypatch):
    """Its configuration is in its folder, the data were found from where it began."""
    monkeypatch.chdir(project)
    (project / "runs/r").mkdir(parents=True)
    shutil.copy(project / "mine.toml", project / "runs/r/config.toml")
    assert read("runs/r/config.toml", warn=False)["data"]["path"] == "samples/mine.csv"
    with pytest.warns(Notice, match="so .*/samples/mine.csv is read"):
        read("runs/r/config.toml")


def test_a_file_that_is_nowhere_is_missed_where_it_should_be(project, tmp_path):
    shutil.rmtree(project / "samples")
    done = folkman("run", "project/mine.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert f"found none at {project}/samples/mine.csv; correct the path" in done.stderr


def test_axes_and_other_tables_are_told_apart(project):
    tables = {
        "data": {"path": "samples/mine.csv", "name": "csv", "train_size": 3},
        "grid": {"data": {"path": ["samples/mine.csv"]}, "data.path": ["samples/mine.csv"]},
        "network": {"path": "samples/mine.csv"},
    }
    found = with_data_files(tables, project)
    whole = str(project / "samples/mine.csv")
    assert found["data"] == {"path": whole, "name": "csv", "train_size": 3}
    assert found["grid"] == {"data": {"path": [whole]}, "data.path": [whole]}
    assert found["network"] == {"path": "samples/mine.csv"}


def test_a_command_says_in_a_line_what_may_be_no_feature(project):
    rows = np.column_stack(
        [np.arange(40), np.loadtxt(project / "samples/mine.csv", skiprows=1, delimiter=",")]
    )
    np.savetxt(project / "samples/mine.csv", rows, "%.4f", ",", header="t,a,b,y", comments="")
    with undrawn():
        twice = ["--set", "seeds=[0,1]", "--set", "data.scale=standard"]
        done = folkman("run", "mine.toml", "--out", "r", *twice, cwd=project)
        left = folkman("run", "mine.toml", "--out", "s", "--set", 'data.drop=["t"]', cwd=project)
    (line,) = [each for each in done.stderr.splitlines() if each.startswith("warning")]
    assert line.endswith(
        'it is learned as a feature. If it is none, leave it out with drop = ["t"] in [data]'
    )
    assert "warning" not in left.stderr
    assert (done.returncode, left.returncode) == (0, 0)


def test_a_notice_is_said_once_however_often_data_are_read(capsys):
    """Whoever changes filters of warnings makes Python forget which it has shown."""
    with warnings.catch_warnings():
        cli._tell_warnings()
        warnings.simplefilter("always", Notice)
        for text in ("one", "two", "one"):
            notice(text)
    assert capsys.readouterr().err == "warning: one\nwarning: two\n"
