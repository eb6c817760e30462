"""`folkman init`: every project is written whole, never over another, and its commands run."""

import json
import re
import shlex
import tomllib
from itertools import combinations

import pytest
from jsonschema import Draft202012Validator

from folkman.cli.init import KINDS, SCHEMA_FILE, TEMPLATES
from folkman.cli.joined import OWN_TABLES
from shell import folkman, python, undrawn

ALL = ("plain", *KINDS)
PAIRS = [" ".join(pair) for pair in combinations(OWN_TABLES, 2)]
"""Kinds that go together, two by two."""


def option(kind):
    return [] if kind == "plain" else [f"--{each.replace('_', '-')}" for each in kind.split()]


def commands(folder):
    """Return the commands of a project's README."""
    block = re.search(r"```sh\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    assert block is not None
    return [shlex.split(line, comments=True) for line in block[1].splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[pytest.mark.process] * (kind == "devices"))
        for kind in (*ALL, "own_algorithm own_data")
    ],
)
def test_the_commands_of_a_project_run_to_their_end(kind, tmp_path):
    begun = folkman("init", *option(kind), "project", cwd=tmp_path)
    assert begun.returncode == 0, begun.stderr
    home = tmp_path / "project"
    found = commands(home)

    with undrawn():
        for name, *words in found:
            if words[0] == "sweep":
                words += ["--engine", "here"]
            done = {"folkman": folkman, "python": python}[name](*words, cwd=home)
            assert done.returncode == 0, (words, done.stdout, done.stderr)

    assert begun.stdout.splitlines()[-1] == f"next: cd project; {shlex.join(found[0])}"
    for words in found:
        for flag in ("--out",):
            if flag in words:
                assert (home / words[words.index(flag) + 1]).exists(), words


@pytest.mark.slow
def test_what_the_paper_says_is_what_its_audit_finds(tmp_path):
    folkman("init", "--paper", cwd=tmp_path)
    with undrawn():
        folkman("reproduce", "all", "--paper", ".", "--out", "runs/paper", cwd=tmp_path)
        folkman("audit", "runs/paper", "--out", "audit.md", cwd=tmp_path)

    assert (
        "The first claim holds, the second is contradicted." in (tmp_path / "README.md").read_text()
    )
    table = (tmp_path / "audit.md").read_text().splitlines()
    rows = {name: [line for line in table if f"| {name} |" in line] for name in ("D.1", "D.2")}
    assert "holds" in rows["D.1"][0], table
    assert "contradicted" in rows["D.2"][0], table


@pytest.mark.parametrize("kind", [*ALL, *PAIRS])
def test_a_configuration_names_a_schema_that_is_there_and_that_it_fits(kind, tmp_path):
    folkman("init", *option(kind), cwd=tmp_path)
    config = tmp_path / "experiment.toml"
    if kind == "paper":  # its files are in another language
        assert not config.exists()
        assert not (tmp_path / SCHEMA_FILE).exists()
        return

    first = config.read_text().splitlines()[0]
    schema = json.loads((tmp_path / first.removeprefix("#:schema ")).read_text())
    tables = tomllib.loads(config.read_text())

    assert [error.message for error in Draft202012Validator(schema).iter_errors(tables)] == []


def test_nothing_is_written_over(tmp_path):
    (tmp_path / "README.md").write_text("mine")
    (tmp_path / "file").write_text("mine")
    before = {path.name for path in tmp_path.iterdir()}

    refused = folkman("init", cwd=tmp_path)
    a_file = folkman("init", "file", cwd=tmp_path)

    assert (refused.returncode, a_file.returncode) == (2, 2)
    assert "there are README.md; choose another DIR: folkman init DIR" in refused.stderr
    assert "file is a file" in a_file.stderr
    assert {path.name for path in tmp_path.iterdir()} == before
    assert (tmp_path / "README.md").read_text() == "mine"


def test_an_empty_name_is_no_folder(tmp_path):
    """As of an unset variable: `folkman init "$PROJECT"`."""
    refused = folkman("init", "", cwd=tmp_path)

    assert refused.returncode == 2
    assert "expected a folder, got an empty name; leave it out to write here" in refused.stderr
    assert list(tmp_path.iterdir()) == []


def test_other_files_of_a_folder_do_not_matter(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")

    done = folkman("init", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert {"notes.txt", "experiment.toml", ".gitignore"} <= {p.name for p in tmp_path.iterdir()}
    assert "runs/" in (tmp_path / ".gitignore").read_text().splitlines()


def test_a_paper_goes_with_nothing_else(tmp_path):
    done = folkman("init", "--own-data", "--paper", cwd=tmp_path)

    assert done.returncode == 2
    assert "got --own-data and --paper" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("pair", PAIRS)
def test_two_kinds_in_one_have_the_tables_of_both(pair, tmp_path):
    folkman("init", *option(pair), "both", cwd=tmp_path)
    both = tomllib.loads((tmp_path / "both" / "experiment.toml").read_text())
    alone = {}

    for kind in pair.split():
        folkman("init", *option(kind), kind, cwd=tmp_path)
        alone = tomllib.loads((tmp_path / kind / "experiment.toml").read_text())
        assert {name: both[name] for name in OWN_TABLES[kind]} == {
            name: alone[name] for name in OWN_TABLES[kind]
        }
        assert {path.name for path in (tmp_path / kind).glob("*.py")} <= {
            path.name for path in (tmp_path / "both").iterdir()
        }
        wanted = commands(tmp_path / kind)
        assert all(words in commands(tmp_path / "both") for words in wanted)
    own_keys = {key for key, value in alone.items() if not isinstance(value, dict | list)}
    assert own_keys <= both.keys()
    found = [shlex.join(words) for words in commands(tmp_path / "both")]
    assert len(found) == len(set(found))


def test_every_kind_has_its_templates():
    assert {path.name for path in TEMPLATES.iterdir() if path.is_dir()} == {*ALL, "common"}


def with_table(text):
    """Return the configuration of `--own-data` with the lines for a table, as its comment says."""
    begun, _, rest = text.partition('name = "sensors.py:sensors"')
    comment, _, rest = rest.partition("[partition]")
    lines = [line[2:] for line in comment.splitlines() if line.startswith("# ") and "=" in line]
    assert [line.split()[0] for line in lines] == [
        *("name", "path", "label", "group", "drop", "scale", "window")
    ]
    return f"{begun}{chr(10).join(lines)}\n\n[partition]{rest}"


def test_a_project_of_own_data_takes_a_table_by_the_lines_that_stand_there(tmp_path):
    """A recording of three machines: the run says how many nodes there are to be."""
    folkman("init", "--own-data", cwd=tmp_path)
    config = tmp_path / "experiment.toml"
    config.write_text(with_table(config.read_text()))
    rows = [
        f"{at},{at % 7},{at * at % 11},{machine},{at // 50 % 2}"
        for machine in ("lathe", "mill", "saw")
        for at in range(800)
    ]
    (tmp_path / "mine.csv").write_text("\n".join(["time,a,b,machine,state", *rows]))
    few = ["--set", "slots=4", "--set", "seeds=[0]"]

    with undrawn():
        six = folkman("run", config, *few, "--out", "six", cwd=tmp_path)
        done = folkman("run", config, *few, "--set", "nodes=3", "--out", "r", cwd=tmp_path)

    assert six.returncode == 2
    assert (
        "one node for each of the 3 devices in the data, got 6 nodes; set nodes = 3" in six.stderr
    )
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr


def test_a_first_run_of_own_data_has_nothing_to_warn_of(tmp_path):
    folkman("init", "--own-data", cwd=tmp_path)
    with undrawn():
        done = folkman("run", "experiment.toml", "--out", "r", cwd=tmp_path)
    assert done.returncode == 0
    assert "warning" not in done.stderr
    assert "not learning" not in done.stdout
