"""Mistakes in own code that show only once it runs: a sentence names the line, no traceback."""

import json
import re

import jax
import pytest

import folkman as fm
import shell
from folkman.config import own_faults
from folkman.config.comparison import resolve

MINE = """
from typing import NamedTuple

import numpy as np

import folkman as fm
from beside import shorter
from folkman.arrays import Array, jnp


class State(NamedTuple):
    params: Array


def method(update):
    return fm.Algorithm(
        name="mine",
        init=lambda params, place: State(params),
        point=lambda state, inbox: state.params,
        update=update,
        message=lambda state: state.params,
        params=lambda state: state.params,
    )


@fm.method
def branching(step: fm.Number = 0.5, trust: fm.Number = 0.6):
    def update(state, inbox, loss, grad, key):
        if trust > 0.5:  # branches
            return State(state.params - step * grad)
        return state

    return method(update)


def misshapen():
    return method(lambda state, inbox, loss, grad, key: State(state.params - grad[1:]))  # misshapen


def counting():
    def update(state, inbox, loss, grad, key):
        return State(state.params + sum(range(inbox.age[0])))  # counts

    return method(update)


def outside():
    def update(state, inbox, loss, grad, key):
        return State(state.params + np.sum(np.asarray(grad)))  # to NumPy

    return method(update)


def returning():
    return method(lambda state, inbox, loss, grad, key: State(state.params[1:]))


def helped():
    return method(lambda state, inbox, loss, grad, key: State(shorter(state.params) + grad))


def misspelt():
    return method(lambda state, inbox, loss, grad, key: State(state.parms))  # misspelt


class Narrow(fm.Model):
    def losses(self, w, x, y):
        return super().losses(w, x, y) @ jnp.ones(3)  # narrow


def narrow(sample, classes):
    made = fm.MODELS["softmax"](sample, classes)
    return Narrow(made.network, made.head)


def clipped():
    def project(w, step):
        return w if step > 0 else w[1:]  # clips

    return project
"""
BESIDE = "def shorter(w):\n    return w[:-1].reshape(w.shape)  # beside\n"
SMALL = """
nodes = 3
slots = 4
seeds = [0]
[data]
name = "digits"
train_size = 30
test_size = 10
[model]
name = "softmax"
[[algorithm]]
name = "mine.py:branching"
"""
DECIDES = "cannot decide a branch: give it the type float, or use jnp.where"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "beside.py").write_text(BESIDE)
    (tmp_path / "c.toml").write_text(SMALL)
    return tmp_path


def line_of(mark, text=MINE):
    """Return the number and the text of the line that ends with a comment."""
    return next(
        (number, line.strip())
        for number, line in enumerate(text.splitlines(), 1)
        if line.endswith(f"# {mark}")
    )


WRONG = {
    "branching": ("algorithm.0.name", "TracerBoolConversionError", "branches", DECIDES),
    "misshapen": ("algorithm.0.name", "TypeError", "misshapen", "incompatible shapes"),
    "counting": ("algorithm.0.name", "TracerIntegerConversionError", "counts", "the type int"),
    "outside": ("algorithm.0.name", "TracerArrayConversionError", "to NumPy", "folkman.arrays"),
    "misspelt": ("algorithm.0.name", "AttributeError", "misspelt", "no attribute 'parms'"),
    "Narrow": ("model.name", "TypeError", "narrow", "contracting dim"),
    "clipped": ("projection.name", "TracerBoolConversionError", "clips", DECIDES),
}


@pytest.mark.parametrize(("function", "wrong"), WRONG.items(), ids=WRONG)
def test_a_mistake_that_shows_in_a_run_is_told_with_its_line(folder, function, wrong):
    key, kind, mark, remedy = wrong
    method = [] if key.startswith("algorithm") else ["--set", "algorithm.0.name=async_sharing"]

    done = shell.folkman(
        "run",
        "c.toml",
        "--out",
        "r",
        *method,
        "--set",
        f"{key}=mine.py:{function.lower()}",
        cwd=folder,
    )

    number, text = line_of(mark)
    where = f"'mine.py:{function}' raised {kind} at mine.py, line {number}, `{text}`: "
    assert done.returncode == 2
    assert where in done.stderr
    assert remedy in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 3  # of which one may say that the run begins


def test_a_mistake_in_a_module_beside_the_file_is_told_with_the_line_of_that_module(folder):
    done = shell.folkman(
        "run", "c.toml", "--out", "r", "--set", "algorithm.0.name=mine.py:helped", cwd=folder
    )

    assert done.returncode == 2
    assert "'beside.py:shorter' raised TypeError at beside.py, line 2" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_wrong_shape_that_is_returned_is_told_with_the_file(folder):
    done = shell.folkman(
        "run", "c.toml", "--out", "r", "--set", "algorithm.0.name=mine.py:returning", cwd=folder
    )

    assert done.returncode == 2
    assert "could not go on with what own code returned (" in done.stderr
    assert "mine.py" in done.stderr
    assert "must return the shapes and types that they are given" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_whole_traceback_is_shown_to_those_who_ask_with_the_same_exit_code(folder, monkeypatch):
    monkeypatch.setenv(own_faults.VARIABLE, "1")

    done = shell.folkman("run", "c.toml", "--out", "r", cwd=folder)

    assert done.returncode == 2
    assert "Traceback (most recent call last)" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: 'mine.py:branching' raised")


def test_a_job_of_a_sweep_that_fails_says_the_line(folder):
    done = shell.folkman(
        *("sweep", "c.toml", "--grid", "algorithm.0.step=0.1", "--out", "s", "--engine", "here"),
        cwd=folder,
    )

    number, text = line_of("branches")
    assert done.returncode == 5
    assert f"'mine.py:branching' raised TracerBoolConversionError at mine.py, line {number}" in (
        done.stderr
    )
    assert "Traceback" not in done.stderr
    (state,) = (folder / "s" / "jobs").glob("*/job.json")
    assert f"`{text}`" in json.loads(state.read_text())["message"]


def test_python_keeps_the_exception_with_its_traceback(folder, monkeypatch):
    monkeypatch.chdir(folder)
    with pytest.raises(jax.errors.TracerBoolConversionError) as caught:
        fm.run("c.toml", out="r")

    assert re.search(r"mine\.py", str(caught.traceback[-1].path))


def test_what_folkman_refuses_itself_keeps_its_own_sentence(folder):
    """Own code was imported, and is not to blame."""
    resolve({"algorithm": [{"name": f"{folder}/mine.py:misspelt"}]})
    with pytest.raises(ValueError, match="there is no 'csvv'") as caught:
        fm.load("csvv")
    with pytest.raises(OSError, match="No such file") as lost:
        (folder / "none").read_text()

    assert own_faults.told(caught.value) is None
    assert own_faults.told(lost.value) is None
