"""`folkman doctor`: a verdict and a remedy for each thing; broken surroundings are found."""

import json
import os
import re
import socket
import sys
import tomllib
from pathlib import Path

import pytest

from folkman.cli import checkup
from folkman.cli.checkup import ABSENT, OK, WARNING, WRONG, Finding, findings
from folkman.cli.doctor import _lines
from shell import folkman

ROOT = Path(__file__).parents[2]


def by_name(found=None):
    return {each.name: each for each in (findings() if found is None else found)}


def test_every_line_has_a_verdict_and_whatever_is_not_right_a_remedy(tmp_path):
    done = folkman("doctor", "--json", cwd=tmp_path)
    answer = json.loads(done.stdout)

    assert {each["verdict"] for each in answer["findings"]} <= {OK, ABSENT, WARNING, WRONG}
    for each in answer["findings"]:
        assert each["found"], each
        assert bool(each["remedy"]) == (each["verdict"] != OK), each
    assert sum(answer["counts"].values()) == len(answer["findings"])
    assert done.returncode == (1 if answer["counts"][WRONG] else 0)


def test_the_table_names_everything(tmp_path):
    done = folkman("doctor", cwd=tmp_path)

    for name in ("python", "packages", "arithmetic", "cores", "memory", "open files", "cache"):
        assert re.search(rf"^{name}\s+\w+\s+\S", done.stdout, re.MULTILINE), name
    extras = [f"extra {name}" for name in EXTRAS]
    for name in ("data mnist", "terminal", "port of nodes", "clock", *extras):
        assert re.search(rf"^{name}\s+\w+\s+\S", done.stdout, re.MULTILINE), name


EXTRAS = checkup.EXTRAS


def test_the_extras_are_those_of_the_package():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert set(EXTRAS) == set(listed["optional-dependencies"]) - {"dev", "docs"}


def test_a_package_that_is_missing_is_found_with_its_command(monkeypatch):
    asked = ["jax>=0.8", "nothing-like-it>=1", 'torch>=99; extra == "torch"']
    asked += ['also-not; extra == "dash"', 'numpy>=1; extra == "dask"']
    monkeypatch.setattr(checkup, "requires", lambda _: asked)
    found = by_name(checkup._packages())

    assert found["packages"].verdict == WRONG
    assert found["packages"].remedy == "pip install 'nothing-like-it>=1'"
    assert found["extra torch"].remedy == "pip install 'folkman[torch]'"  # too old
    assert (found["extra dash"].verdict, found["extra dask"].verdict) == (ABSENT, OK)
    assert found["extra wandb"].verdict == ABSENT  # not in these metadata at all


def test_a_copy_that_is_not_installed_says_so(monkeypatch):
    def absent(_):
        raise checkup.PackageNotFoundError

    monkeypatch.setattr(checkup, "requires", absent)
    (found,) = checkup._packages()

    assert (found.verdict, "not installed" in found.found) == (WARNING, True)


def test_an_old_python_is_wrong(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 9, 1))

    assert next(iter(checkup._python())).verdict == WRONG


def test_a_port_that_is_taken_is_a_warning():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        found = checkup._port("port", port, "take another")

    assert (found.verdict, found.remedy) == (WARNING, "take another")
    assert checkup._port("port", port, "take another").verdict == OK


def test_a_folder_that_cannot_be_written_is_wrong(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    in_the_way = checkup._writable("cache", tmp_path / "file" / "below", "choose")
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    refused = checkup._writable("cache", tmp_path / "new", "choose")

    assert (in_the_way.verdict, refused.verdict) == (WRONG, WRONG)


def test_the_size_of_the_cache_is_told(tmp_path):
    (tmp_path / "programs").write_bytes(b"0" * 3_000_000)

    assert "holds 3 MB" in checkup._writable("cache", tmp_path, "").found


def test_a_full_disk_is_a_warning(tmp_path, monkeypatch):
    monkeypatch.setattr(checkup, "LEAST_FREE_BYTES", 1e18)

    assert checkup._writable("cache", tmp_path, "").verdict == WARNING


@pytest.mark.parametrize(
    ("limit", "name"), [("LEAST_FILES", "open files"), ("LEAST_MAPS", "memory maps")]
)
def test_low_limits_are_warnings(limit, name, monkeypatch):
    if name not in by_name(checkup._limits()):
        pytest.skip("this system has no such limit")
    monkeypatch.setattr(checkup, limit, 2**40)

    assert by_name(checkup._limits())[name].verdict == WARNING


def test_a_clock_that_is_not_set_is_wrong(monkeypatch):
    monkeypatch.setattr(checkup.time, "time", lambda: 1000.0)

    assert by_name(checkup._surroundings())["clock"].verdict == WRONG


def test_damaged_data_are_wrong(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    place = tmp_path / "folkman" / "data"
    place.mkdir(parents=True)
    (place / "mnist.npz").write_bytes(b"no archive")

    found = by_name(checkup._data())
    assert (found["data mnist"].verdict, found["data cifar10"].verdict) == (WRONG, ABSENT)


def test_a_check_that_fails_is_a_finding_and_the_exit_code_says_so(monkeypatch, tmp_path):
    def broken():
        raise OSError("no such thing")
        yield

    monkeypatch.setattr(checkup, "SECTIONS", {"folders": broken})
    done = folkman("doctor", cwd=tmp_path)

    assert done.returncode == 1
    assert "could not be looked at: OSError: no such thing" in done.stdout
    assert "Traceback" not in done.stderr


def test_without_jax_the_arithmetic_says_what_to_do(monkeypatch):
    from folkman import arithmetic

    class Picked:
        name, why = "numpy", "JAX is not installed"

    monkeypatch.setattr(arithmetic, "chosen", Picked)
    (found,) = checkup._arithmetic()

    assert (found.verdict, "pip install folkman" in found.remedy) == (WARNING, True)


def test_lines_fold_to_the_terminal():
    finding = Finding("cache", WARNING, "word " * 40, "do " * 40)

    for width in (60, 80, 120):
        lines = _lines(finding, width)
        assert max(map(len, lines)) <= width
        assert lines[0].startswith("cache")
        assert any("-> do" in line for line in lines)
