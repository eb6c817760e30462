"""The list of methods: every one has a paper, its formulas are its prices, its citation can be
parsed."""

import json
import re
import sys

import pytest

from folkman import ALGORITHMS
from folkman.algorithm.base import RECALLED
from folkman.algorithm.pieces.topology import GRAPHS
from folkman.cli import main
from folkman.experiment.methods import methods
from folkman.report.methods import bibtex, describe_price


def command(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["folkman", *arguments])
    code = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code
    return code, capsys.readouterr()


def test_every_method_has_a_paper_with_a_way_to_find_it():
    entries = bibtex()

    assert set(ALGORITHMS) == set(entries)
    for entry in entries.values():
        assert entry.count("{") == entry.count("}")
        assert re.search(r"(eprint|doi) = ", entry)
        for field in ("author", "title", "year"):
            assert f"{field} = " in entry


def test_prices_are_told_as_formulas_from_their_values():
    assert describe_price(lambda d, b: d * b) == "S"
    assert describe_price(lambda d, b: 2 * d * b + 96) == "2 S + 96"
    assert describe_price(lambda d, b: (d + 5) * b) == "S + 5 b"
    assert describe_price(lambda d, _: d + 32) == "d + 32"
    assert describe_price(lambda d, _: 11 * d - 512) == "11 d - 512"
    assert describe_price(lambda d, b: d * b - d) == "S - d"
    assert describe_price(lambda d, _: 32 - 2 * d) == "-2 d + 32"
    assert describe_price(lambda *_: 0) == "0"


def test_the_list_tells_what_a_round_costs():
    found = {row["name"]: row for row in methods()}

    assert set(found) == set(ALGORITHMS)
    assert found["adafl"]["round_bits"] == "I (2 S + 128) + S + 32"  # two vectors up
    assert found["dispfl"]["round_bits"] == "I (0.5 S + d)"
    assert found["async_sharing"]["round_bits"] == "a broadcast: S"
    assert found["dpsgd"]["role"] == "peers, in lock-step"
    assert "no node starts anew" in found["cga"]["assumes"]


def test_the_list_says_whose_recursion_was_not_verified(monkeypatch, capsys):
    recalled = {row["name"] for row in methods() if row["verified"] == RECALLED}

    assert {"edm", "dfedavgm", "cga", "dsgt", "rfast"} <= recalled
    assert not recalled & {"exact_diffusion", "dpsgd"}
    for name in recalled:
        module = sys.modules[ALGORITHMS[name].__module__]
        assert re.search(r"not\s+verified", module.__doc__ or ""), name
    _, shown = command(monkeypatch, capsys, "algorithms")
    assert "as recalled" in " ".join(shown.out.split())


def test_the_commands_answer(monkeypatch, capsys):
    code, shown = command(monkeypatch, capsys, "algorithms", "--json")
    assert code == 0
    assert len(json.loads(shown.out.splitlines()[-1])["algorithms"]) == len(ALGORITHMS)

    code, shown = command(monkeypatch, capsys, "graphs", "--json")
    assert code == 0
    listed = json.loads(shown.out.splitlines()[-1])["graphs"]
    assert [graph["name"] for graph in listed] == list(GRAPHS)

    code, shown = command(monkeypatch, capsys, "graphs")
    assert code == 0
    assert all(name in shown.out for name in GRAPHS)

    code, shown = command(monkeypatch, capsys, "cite", "fedbuff", "sgp")
    assert code == 0
    assert shown.out.count("@") == 2

    code, shown = command(monkeypatch, capsys, "cite", "fedbuf")
    assert code == 2
    assert "did you mean 'fedbuff'?" in shown.err


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ('algorithm=[{name="fedsa", M=9}]', "M must be at most the number of nodes, 5, got 9"),
        ('algorithm=[{name="adpsgd", topology="ring"}]', "ring"),
        ('algorithm=[{name="dpsgd", topology="torus"}]', "topology"),
        ('algorithm=[{name="dpsgd", topology="directed_ring"}]', "or the method sgp"),
        ('algorithm=[{name="sgp", topology="nowhere.csv"}]', "nowhere.csv cannot be read"),
        ('algorithm=[{name="sgp", topology="edges: 0-1 1-2"}]', "has 3 nodes, the run has 5"),
        ('algorithm=[{name="fedavg", rule="mode"}]', "rule"),
        ("faults.crash=[[0, 5]]", "every node answers in the end"),
        ("faults.away=[[9, 1, 2]]", "node 9"),
        ("faults.losses=0.1", "losses"),
    ],
)
def test_what_does_not_fit_is_refused_before_a_folder_is_made(
    monkeypatch, capsys, tmp_path, setting, complaint
):
    monkeypatch.chdir(tmp_path)

    code, shown = command(monkeypatch, capsys, "run", "--set", setting, "--out", "r")

    assert code == 2
    assert complaint in shown.err
    assert not (tmp_path / "r").exists()


def test_no_price_has_two_signs_in_a_row():
    """As `11 d + -512` had."""
    for row in methods():
        for key in ("node_bits", "server_bits", "round_bits"):
            assert not re.search(r"[+-] *[+-]", row[key]), (row["name"], row[key])
