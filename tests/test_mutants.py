"""The tool that breaks the source on purpose: what it breaks, and that it tells who noticed."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.choose import Case, plan
from tests.mutants.graph import Imports
from tests.mutants.sites import draw, sites_in, splice

ROOT = Path(__file__).parent.parent

SOURCE = '''"""A docstring with 1 + 1."""
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    LIMIT = 3
__all__ = ["f"]
def f(x: "1 + 1", n: int | None = 0):  # a default, but no annotation
    """Another < docstring."""
    name = "größer"; y = x @ x if not n else x ** 2
    if (n < 3 and
            ~x):
        raise ValueError(f"{n + 1} is too large, give {2 - 1}")
    y += where(n, "größer", -x) + any(x)  # plus - minus
    return x._replace(a=True, b=(2.5))
'''
EXPECTED = {
    ("constant", "0", "1"),
    ("operator", "@", "*"),
    ("not dropped", "not", ""),
    ("operator", "**", "*"),
    ("constant", "2", "3"),
    ("negated", "n < 3 and\n            ~x", "not (n < 3 and\n            ~x)"),
    ("comparison", "<", "<="),
    ("constant", "3", "4"),
    ("boolean", "and", "or"),
    ("~ dropped", "~", ""),
    (
        "statement dropped",
        'y += where(n, "größer", -x) + any(x)',
        "pass",
    ),
    ("operator", "+=", "-="),
    ("choices swapped", '"größer", -x', '-x, "größer"'),
    ("sign dropped", "-", ""),
    ("operator", "+", "-"),
    ("function", "any", "all"),
    ("keyword dropped", "a=True,", ""),
    ("keyword dropped", "b=(2.5)", ""),
    ("constant", "True", "False"),
    ("constant", "2.5", "5.0"),
}


def test_the_sites_of_a_source_are_those_that_can_matter():
    sites = sites_in(SOURCE.encode(), "a.py")
    assert {(site.kind, site.before, site.after) for site in sites} == EXPECTED
    assert len(sites) == len(EXPECTED)


def test_a_mutant_differs_in_its_one_spot_and_is_python():
    text = SOURCE.encode()
    for site in sites_in(text, "a.py"):
        mutant = splice(text, site)
        assert mutant == text[: site.start] + site.after.encode() + text[site.end :]
        assert ast.dump(ast.parse(mutant)) != ast.dump(ast.parse(text)), site.name
        line = text.splitlines()[site.line - 1]
        assert line[site.col :].startswith(site.before.splitlines()[0].encode())
    with pytest.raises(ValueError, match="expected"):
        splice(b"#" + text, sites_in(text, "a.py")[0])


def test_the_same_seed_draws_the_same_mutants():
    sites = sites_in(SOURCE.encode(), "a.py")
    drawn = draw(sites, 3, 1)
    assert drawn == draw(list(sites), 3, 1)
    assert [sites.index(site) for site in drawn] == [4, 18, 2]  # on every machine
    assert sorted(draw(sites, 1000, 2)) == sites


def test_tests_that_run_the_line_come_first_then_their_neighbours():
    site = next(site for site in sites_in(SOURCE.encode(), "a.py") if site.before == "@")
    runs = {"a.py": frozenset({site.line})}
    tests = [
        Case("tests/test_a.py::dear", 9.0, runs),
        Case("tests/test_b.py::cheap_but_elsewhere", 0.1),
        Case("tests/test_a.py::shares_a_fixture", 0.1),
        Case("tests/test_a.py::cheap", 0.2, runs),
        Case("tests/test_a.py::too_dear", 99.0, runs),
    ]
    chosen = plan(site, tests, {"tests/test_a.py": 0, "tests/test_b.py": 1}, 60)
    assert [test.node.split("::")[1] for test in chosen.tests] == [
        "cheap",
        "dear",
        "shares_a_fixture",
    ]
    assert (chosen.touching, chosen.left_out) == (3, 1)
    without = plan(site, tests[1:2], {"tests/test_b.py": 1}, 60)
    assert [test.node for test in without.tests] == ["tests/test_b.py::cheap_but_elsewhere"]


@pytest.fixture
def toy(tmp_path):
    """Make a repository of one package, of which one half is tested."""
    files = {
        "src/toy/__init__.py": "",
        "src/toy/part/__init__.py": "",
        "src/toy/part/sums.py": (
            "def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    return a - b\n"
        ),
        "src/toy/user.py": "from toy.part import sums\n",
        "tests/test_sums.py": "from toy.part.sums import add, sub\n\n\n"
        "def test_add():\n    assert add(2, 3) == 5\n\n\n"
        "def test_sub():\n    assert sub(2, 0) == 2\n\n\ndef test_broken():\n    assert False\n",
        "tests/test_user.py": "import toy.user\n\n\ndef test_user():\n    assert toy.user.sums\n",
        "tests/test_lost.py": "import no_such_package\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_distances_count_imports(toy):
    found = Imports(toy).distances("src/toy/part/sums.py")
    assert found == {"tests/test_sums.py": 0, "tests/test_user.py": 2}


def test_a_tested_mutant_is_killed_and_an_untested_one_survives(toy):
    out = toy / "out.jsonl"
    command = [
        *(sys.executable, "-m", "tests.mutants", "--root", str(toy), "--warm", "pytest"),
        *("--source", "src/toy/**/*.py", "--sample", "0", "--json", str(out)),
    ]
    ran = subprocess.run(
        command,
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": ""},
    )
    results = {each["site"]["line"]: each for each in map(json.loads, out.read_text().splitlines())}
    assert {line: each["status"] for line, each in results.items()} == {2: "killed", 6: "survived"}
    assert results[2]["by"] == "tests/test_sums.py::test_add"
    assert "src/toy/part/sums.py:6:13 operator: - -> +\n    return a - b\n" in ran.stdout
    assert "left out: tests/test_lost.py" in ran.stdout
    assert "left out: tests/test_sums.py::test_broken: assert False" in ran.stdout
    assert (toy / "src/toy/part/sums.py").read_text().count("+") == 1

    again = subprocess.run(
        [*command, "--list", "--only", str(out)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    assert again.stdout == "src/toy/part/sums.py:6:13 operator: - -> +\n"
