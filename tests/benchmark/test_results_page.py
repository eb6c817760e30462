"""The page of kept results: every number and reason of the files, and the page that is kept."""

import json

from benchmarks.results_page import KEPT, PAGE, page, write_page

ROW = {"side": "folkman", "status": "measured", "version": "0.2", "seconds": 1.25, "ratio": 1.0}
RESULTS = {
    "made": "2026-01-02T03:04:05+00:00",
    "command": ["python", "-m", "benchmarks", "--config", "mine.toml"],
    "versions": {"folkman": "0.2", "jax": None},
    "python": "3.11.0",
    "processor": "Some processor",
    "cores": 2,
    "load": 0.25,
    "rounds": 3,
    "works": [
        {
            "name": "mine",
            "title": "mlp on digits",
            "runs": [
                {
                    "task": {"label": "FedAvg", "nodes": 2000, "cell": None, "rounds": 40},
                    "rows": [
                        ROW,
                        {**ROW, "side": "jax", "version": "0.10", "seconds": 2.5, "ratio": 2.0}
                        | {"work": "different work"},
                        {"side": "pfl", "status": "not available", "reason": "it has no radio"},
                    ],
                }
            ],
        }
    ],
}


def test_a_section_has_machine_versions_command_and_every_row(tmp_path):
    (tmp_path / "one.json").write_text(json.dumps(RESULTS))

    write_page(tmp_path, tmp_path / "page.md")

    lines = (tmp_path / "page.md").read_text().splitlines()
    assert "## one" in lines
    assert "* Some processor, 2 cores, load 0.2 at the start" in lines
    assert "* Python 3.11.0, folkman 0.2, jax None" in lines
    assert "* 2026-01-02, medians of 3 repetitions" in lines
    assert "python -m benchmarks --config mine.toml" in lines
    assert "### mine: mlp on digits" in lines
    assert "#### FedAvg; 2,000 nodes, 40 rounds" in lines
    assert "| side | seconds | x folkman | remark |" in lines
    assert "| folkman | 1.25 | 1.00 |  |" in lines
    assert "| jax 0.10 | 2.5 | 2.00 | different work |" in lines
    assert "| pfl | - | - | not available: it has no radio |" in lines


def test_the_page_that_is_kept_is_that_of_the_kept_files():
    assert page(sorted(KEPT.glob("*.json"))) == PAGE.read_text(encoding="utf-8")
    assert "No run is kept yet" in page([])
