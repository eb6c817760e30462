"""Grids of `folkman compare --pivot ROW,COL`: each cell is its arm, marks are sure, terminals of 80
columns lose nothing, and the LaTeX is what a journal's class compiles."""

import csv
import io
import re
import shutil
import subprocess

import numpy as np
import pytest

from folkman.report.latex import escaped, latex_table
from folkman.report.sheet import Number, Sheet
from tests.made_sweep import make_sweep
from tests.shell import folkman

NOISE = np.array([0.0, 0.01, -0.01])


def loss(label, given, seed):
    """Return a loss of which B is surely better at gamma 2, and at 10 nobody knows."""
    if not given:
        return 0.01
    gap = {2: 0.1, 5: -0.05, 10: 0.001}[given["network.gamma"]]
    own = NOISE[seed] if label == "A" else -NOISE[seed]
    return 0.3 + (gap if label == "A" else 0.0) + own + 0.01 * given["nodes"]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    arms = [
        (label, {"network.gamma": gamma, "nodes": nodes})
        for label in "AB"
        for gamma in (2, 5, 10)
        for nodes in (4, 8)
    ]
    return make_sweep(tmp_path_factory.mktemp("grid") / "sweep", [*arms, ("Free_1", {})], loss)


def compared(sweep, *words):
    done = folkman(
        "compare", sweep, "--pivot", "algorithm,gamma", "--where", "nodes=4", "--metric", "loss",
        *words, cwd=sweep.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_cell_is_the_mean_of_its_arm_and_the_best_is_marked_where_it_is_sure(sweep):
    lines = [line.split() for line in compared(sweep).splitlines()]

    assert lines[0] == ["algorithm", "gamma=2", "gamma=5", "gamma=10", "without", "it"]
    half = 4.302652729749462 * NOISE.std(ddof=1) / np.sqrt(3)  # Student's, 2 degrees of freedom
    shown = f"± {half:.3f}".split()
    a, b = ["0.440", *shown], ["0.340", *shown, "*"]
    assert lines[2] == ["A", *a, "0.290", *shown, "*", "0.341", *shown, "~"]
    assert lines[3] == ["B", *b, "0.340", *shown, "0.340", *shown, "~"]
    assert lines[4] == ["Free_1", "0.01"]  # no axis, and not ranked


def test_where_one_side_is_no_method_nobody_is_marked(sweep):
    done = folkman("compare", sweep, "--pivot", "nodes,gamma", "--where", "algorithm=B",
                   "--metric", "loss", cwd=sweep.parent)  # fmt: skip

    assert done.returncode == 0
    assert "no arm is marked as best" in done.stdout
    assert not set("*~") & set(done.stdout)


def test_methods_across_are_ranked_in_rows(sweep):
    done = folkman("compare", sweep, "--pivot", "gamma,algorithm", "--where", "nodes=4",
                   "--metric", "loss", cwd=sweep.parent)  # fmt: skip
    rows = [line.split() for line in done.stdout.splitlines()[2:5]]

    assert [row[0] for row in rows] == ["2", "5", "10"]
    assert [row.count("*") for row in rows] == [1, 1, 0]
    assert rows[0][-1] == "*"  # B
    assert rows[1][4] == "*"  # A
    assert "of each row" in done.stdout


@pytest.mark.parametrize("width", [40, 80])
def test_a_grid_keeps_to_the_terminal_and_loses_nothing(sweep, monkeypatch, width):
    from folkman.cli import common

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    whole = compared(sweep)
    monkeypatch.setattr(common, "columns", lambda **_: width)
    out = Terminal()
    done = folkman("compare", sweep, "--pivot", "algorithm,gamma", "--where", "nodes=4",
                   "--metric", "loss", cwd=sweep.parent, stdout=out)  # fmt: skip

    assert done.returncode == 0
    assert max(map(len, out.getvalue().splitlines())) <= width
    for cell in re.findall(r"0\.\d+ ± 0\.\d+(?: [*~])?", whole):
        assert cell in out.getvalue()


def test_csv_has_full_numbers_and_marks_apart(sweep):
    rows = list(csv.DictReader(io.StringIO(compared(sweep, "--format", "csv"))))

    assert [row["algorithm"] for row in rows] == ["A", "B", "Free_1"]
    assert float(rows[1]["gamma=2"]) == pytest.approx(0.34, abs=1e-12)
    assert rows[1]["gamma=2 mark"] == "best"
    assert rows[0]["gamma=10 mark"] == "near"
    assert rows[2]["gamma=2"] == ""


def test_one_seed_marks_nothing_and_says_so(tmp_path):
    root = make_sweep(
        tmp_path / "one", [(label, {"nodes": n}) for label in "AB" for n in (2, 4)],
        lambda label, *_: 0.35 if label == "A" else 0.82, seeds=[3],
    )  # fmt: skip
    for words in (["--pivot", "algorithm,nodes"], []):
        done = folkman("compare", root, *words, cwd=tmp_path)
        assert "one seed: no interval" in done.stdout
        assert not set("*~±") & set(done.stdout)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--pivot", "algorithm,gama"], "did you mean network.gamma?"),
        (["--pivot", "algorithm,gamma"], "a cell would mix arms that differ in nodes (4, 8)"),
        (["--pivot", "algorithm,gamma"], "keep one value with --where nodes=4"),
        (["--pivot", "gamma,gamma"], "got 'network.gamma' twice"),
        (["--pivot", "a,b,c"], "--pivot looks like algorithm,network.gamma"),
        (["--pivot", "algorithm,gamma", "--where", "nodes=9"], "no arm has nodes = 9"),
        (["--where", "nodes=4"], "--where belongs to a grid of two settings"),
        (["--latex", "--format", "csv"], "name two formats"),
        (["--format", "html"], "there is no format 'html'"),
    ],
)
def test_a_grid_that_cannot_be_is_refused_with_one_that_can(sweep, words, complaint):
    done = folkman("compare", sweep, *words, cwd=sweep.parent)

    assert done.returncode == 2
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr


def test_latex_columns_hold_their_numbers(sweep):
    text = compared(sweep, "--latex")
    spec = re.search(r"\\begin\{tabular\}\{l(.*)\}$", text, re.M)
    rows = re.findall(r"^(?:A|B|Free\S*) & (.*) \\\\$", text, re.M)

    assert spec is not None
    formats = re.findall(r"S\[table-format=(\d)\.(\d)(?:\((\d)\))?\]", spec[1])
    assert len(formats) == 4
    for row in rows:
        for cell, (whole, parts, _) in zip(row.split(" & "), formats, strict=True):
            for number in re.findall(r"(\d+)\.(\d+)", cell):
                assert len(number[0]) <= int(whole)
                assert len(number[1]) <= int(parts)
    assert r"\caption{Train loss. Bold: surely best" in text
    assert r"\label{tab:train-loss}" in text
    assert r"{$^{\dagger}$}" in text
    assert r"Free\_1" in text
    assert text.count(r"\bfseries") == 2


def test_large_numbers_are_in_units_of_a_power_of_ten():
    sheet = Sheet(["arm", "bits"], [["a", Number(2.4e8, 1.3e6)], ["b", Number(1.9e7, 2e5)]], 1)
    text = latex_table(sheet, "note", "bits on air")

    assert r"arm & {bits ($10^{6}$)} \\" in text
    assert r"a & 240.0 +- 1.3 \\" in text
    assert r"b & 19.00 +- 0.20 \\" in text


def test_signs_that_latex_takes_as_commands_are_written_out():
    assert escaped("a_1 & 50 % --over {x}^2~\\") == (
        r"a\_1 \& 50 \% -{}-over \{x\}\textasciicircum{}2\textasciitilde{}\textbackslash{}"
    )


@pytest.mark.process
@pytest.mark.skipif(
    shutil.which("pdflatex") is None,
    reason="no LaTeX here: apt-get install texlive-latex-base texlive-science compiles the tables",
)
def test_a_journals_class_compiles_the_tables(sweep, tmp_path):
    """All kinds of cells: marked, signed, missing, diverged, negative settings, odd signs."""
    odd = Sheet(
        ["setting", "x_1", "difference"],
        [["-5", Number(float("nan"), float("nan")), Number(-0.5, 0.02, "", signed=True)],
         ["50 % & more", Number(1.25e7, 3.1e4, "best"), ""],
         ["c", Number(1.2e7, float("nan"), "near"), Number(0.123456, 0.0, "", signed=True)]],
        1,
    )  # fmt: skip
    done = folkman("compare", sweep, "--latex", cwd=tmp_path)
    bodies = [
        compared(sweep, "--latex"),
        done.stdout,
        latex_table(odd, "odd -- signs ± 5 %", "a b"),
    ]
    assert shutil.which("kpsewhich")
    packages = ("booktabs.sty", "siunitx.sty")
    known = subprocess.run(["kpsewhich", *packages], capture_output=True, text=True, check=False)
    if known.stdout.count("\n") < len(packages):
        pytest.skip("LaTeX has no booktabs and siunitx: apt-get install texlive-science")
    text = "\n".join([r"\documentclass{article}", r"\usepackage{booktabs, siunitx}",
                      r"\begin{document}", *bodies, r"\end{document}"])  # fmt: skip
    (tmp_path / "paper.tex").write_text(text)

    ended = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip

    assert ended.returncode == 0, ended.stdout[-2000:]
    assert (tmp_path / "paper.pdf").stat().st_size > 5000
    assert not re.search(r"^(!|Package siunitx (Error|Warning))", ended.stdout, re.M)
