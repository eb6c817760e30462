"""Every leaf test of the kept audits agrees with a script that imports nothing of folkman."""

import ast
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import recompute
from test_kept_runs import KEPT, ROOT, judged_by, kept

from folkman.papers.audit import family
from folkman.papers.evidence import corrected

PAPER = ROOT / "src/folkman/papers/xie2024"


@cache
def family_of(name):
    return family(kept(name))


def test_the_script_imports_nothing_of_folkman():
    tree = ast.parse((Path(__file__).parent / "recompute.py").read_text())
    names = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    known = {"json", "sys", "tomllib", "functools", "itertools", "math", "pathlib", "numpy"}
    assert names == known | {"pyarrow.parquet"}


@pytest.mark.parametrize("name", ["full", "laptop", "laptop-fresh"])
def test_every_leaf_test_agrees(name):
    """Draws, mean and p, by the median of the last quarter and by the last value."""
    ours = family_of(name)

    for part, kind in ((0.25, "spread"), (0.0, "last")):
        theirs = recompute.recompute(KEPT / name, PAPER, part)
        assert len(theirs) == len(ours) > 150
        for (claim, reading, leaf), (*place, level, numbers) in zip(ours, theirs, strict=True):
            assert (claim, reading, leaf.level) == (place[0], place[1], level)
            found = getattr(leaf, kind)
            known = (numbers["n"], numbers["mean"], numbers["p"])
            where = (*place, level, kind)
            assert (found.n, found.mean) == pytest.approx(known[:2], abs=1e-9, nan_ok=True), where
            if leaf.fixed is None and leaf.sign:
                assert found.p == pytest.approx(known[2], rel=1e-6, abs=1e-12, nan_ok=True), where


def test_the_correction_agrees():
    """The corrected p of the audit are those of the script's own family."""
    leaves = [leaf for _, _, leaf in family_of("full")]
    tests = {x.key: x.spread.p for x in leaves if x.sign and x.fixed is None and x.spread.p >= 0}
    again = recompute.corrected(np.array(list(tests.values())))

    assert list(corrected(tests).values()) == pytest.approx(list(again), rel=1e-9)
    claim = next(c for c in judged_by("full") if c.name == "7.3")
    assert min(abs(again - claim.readings[0]["corrected"])) < 1e-12
