"""folkman's own claims, judged as a paper's: folders of the kept lines, and pages of both."""

import json
from pathlib import Path
from statistics import mean, median

import pyarrow.parquet as pq
import pytest

from benchmarks import fresh_air_claims
from folkman.papers.audit import judge
from folkman.papers.paper import find
from folkman.papers.results import read_reproduction
from folkman.report.paper import claims_markdown, score

ROOT = Path(__file__).parents[2]
DATA, PAPER = ROOT / "docs/data/fresh-air", ROOT / "examples/papers/fresh-air"


def judged(name):
    return judge(read_reproduction(DATA / name, find(str(PAPER))))


@pytest.mark.parametrize("name", ["claims", "kept", "tuned"])
def test_the_pages_are_what_the_audit_says_now(name):
    claims = judged(name)

    kept = (DATA / name / "claims.md").read_text()
    assert kept == claims_markdown(claims, f"docs/data/fresh-air/{name}")
    told = " ".join((ROOT / "docs/reproduction.md").read_text().split())
    assert score(claims) in told
    assert {claim.confirmatory for claim in claims} == {name != "kept"}


def test_the_folders_are_made_of_the_kept_lines(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["x", "--data", str(DATA), "--out", str(tmp_path)])

    fresh_air_claims.main()

    for name in ("kept", "tuned"):
        for file in ("index.json", "sweep.toml"):
            assert (tmp_path / name / file).read_text() == (DATA / name / file).read_text()
        made, kept = (pq.read_table(root / name / "results.parquet") for root in (tmp_path, DATA))
        assert made.equals(kept)


def test_losses_with_sorted_labels_are_those_of_the_lines():
    """By hand: medians of the last quarter, over that of free links; 15 nodes, 20 drops."""
    lines = list(map(json.loads, (DATA / "learning.jsonl").read_text().splitlines()))

    def late(line):
        return median(row["train_loss"] for row in line["rows"] if row["slots"] >= 375)

    def of(arm, nodes):
        asked = {"data": "mnist", "split": "label", "nodes": nodes, "arm": arm}
        return [late(line) for line in lines if asked.items() <= line.items()]

    free = of("free", 5)[0]
    ratios = [loss / free for loss in of("fresh", 15)]
    claim = next(claim for claim in judged("kept") if claim.name == "F.3")
    found = {reading["name"]: reading for reading in claim.readings}
    ours = found["full size, MNIST, fifteen nodes"]

    assert (ours["n"], ours["verdict"]) == (len(ratios), "open") == (20, "open")
    assert 1 + ours["mean"] == pytest.approx(mean(ratios), abs=0.01)
    assert found["full size, CIFAR-10"]["verdict"] == "contradicted"


def test_ahead_of_fedavg_in_as_many_cells_as_the_document_says():
    claim = next(claim for claim in judged("tuned") if claim.name == "F.5")
    cells = {}
    for reading in claim.readings:
        place, _, cell = reading["name"].partition(", ")
        cells.setdefault(cell, {})[place] = reading["verdict"]

    both = [cell for cell, verdicts in cells.items() if set(verdicts.values()) == {"holds"}]
    assert (len(both), len(cells)) == (14, 16)
    text = (ROOT / "docs/fresh-air.md").read_text()
    assert "ahead of both forms of FedAvg in 14 of 16 cells" in text
