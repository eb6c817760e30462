"""The examples and the README run as printed and print what they show."""

import ast
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from shell import folkman, python

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def code_lines(path):
    """Return the lines of a file that are code: no docstrings, comments or blanks."""
    tree = ast.parse(path.read_text())
    docs: set[int] = set()
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            docs |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = path.read_text().splitlines()
    return [
        line
        for n, line in enumerate(lines, 1)
        if n not in docs and line.strip() and not line.lstrip().startswith("#")
    ]


def test_the_quickstart_is_the_readmes_and_short():
    shown = blocks("python")[0]

    assert shown.strip() in (ROOT / "examples" / "quickstart.py").read_text()
    assert len(shown.strip().splitlines()) <= 20


def test_the_quickstart_prints_what_the_readme_shows(tmp_path):
    done = python("-c", blocks("python")[0], cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == blocks("text")[1].strip()
    assert (tmp_path / "quickstart.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_demo_prints_the_table_that_the_readme_shows(tmp_path):
    """The first command of the README; machines differ in the last bits, so to a few percent."""
    shown = [re.split(r"\s{2,}", row.strip()) for row in blocks("text")[0].splitlines()]
    line = next(line for line in blocks("sh")[0].splitlines() if line.startswith("folkman"))

    done = folkman(*shlex.split(line, comments=True)[1:], cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    found = [re.split(r"\s{2,}", row.strip()) for row in done.stdout.splitlines()]
    heading = next(row for row in found if row[0] == "algorithm")
    assert heading[: len(shown[0])] == shown[0]
    losses = {}
    for row in shown[2:]:
        match = next(other for other in found if other[0] == row[0])
        numbers = [[float(cell.split()[0]) for cell in each[1 : len(row)]] for each in (row, match)]
        assert numbers[0] == pytest.approx(numbers[1], rel=0.05), row
        losses[row[0]] = numbers[1][0]
    assert losses["Fresh air"] < losses["FedAvg"] < losses["Paper's rule"]
    assert "every side is tuned for this setting" in done.stdout
    assert "What to try next" in done.stdout
    assert (tmp_path / "runs" / "demo" / "report.html").is_file()


def test_the_readme_is_short():
    lines = README.splitlines()
    assert len(lines) <= 150
    assert max(map(len, lines)) <= 100


def test_ones_own_algorithm_is_at_most_thirty_lines_and_learns(tmp_path):
    path = ROOT / "examples" / "own_algorithm.py"
    own = code_lines(path)
    builder = own[: own.index('if __name__ == "__main__":')]

    done = python(path, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert len(builder) <= 30
    losses = re.findall(r"loss ([\d.]+)", done.stdout)
    assert losses
    assert all(float(x) < 0.75 for x in losses)


def test_gradient_tracking_is_exact_where_d_psgd_is_not(tmp_path):
    path = ROOT / "examples" / "gradient_tracking.py"
    own = code_lines(path)

    done = python(path, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    printed = done.stdout

    tracking, gossip = (float(x) for x in re.findall(r"optimum (\S+)", printed))
    assert tracking < 1e-4
    assert gossip > 1e-2
    assert len(own[: own.index('if __name__ == "__main__":')]) <= 40


def test_ones_own_algorithm_is_d_psgd(x64, tmp_path):
    """Complete graph with uniform weights and no delay: its equation, x_i <- mean_j x_j - eta grad
    F_i(x_i)."""
    import importlib.util

    from folkman import ideal, load, make_problem, simulate
    from reference import plain

    spec = importlib.util.spec_from_file_location("own", ROOT / "examples" / "own_algorithm.py")
    assert spec is not None
    assert spec.loader is not None
    own = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(own)
    samples = load("digits", train_size=100)
    problem = make_problem(samples, "softmax", 4, dtype="float64")
    x = np.zeros((4, problem.dim))
    for _ in range(12):
        grads = [
            plain.softmax_gradient(
                x[i], np.asarray(problem.x[i, :n]), np.asarray(problem.y[i, :n])
            )[1]
            for i, n in enumerate(np.asarray(problem.count))
        ]
        x = x.mean(axis=0) - 0.3 * np.array(grads)

    run = simulate(problem, ideal(), own.gossip(0.3), slots=12)

    np.testing.assert_allclose(run.nodes, x, rtol=1e-9, atol=1e-12)


def test_the_example_of_a_delay_law_is_the_default_comparison():
    from folkman.config.comparison import resolve
    from folkman.config.text import read

    shown = resolve(read(ROOT / "examples" / "delay-law.toml"))
    assert shown == resolve({}).model_copy(update={"tuned": None})
