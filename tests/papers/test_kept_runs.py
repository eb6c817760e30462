"""The runs kept under docs/ say what the documents say of them."""

import json
import re
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from folkman.cli import app
from folkman.papers.audit import judge, reconsider
from folkman.papers.results import read_reproduction, trailing
from folkman.papers.verdicts import weakest
from folkman.report.paper import changes_markdown, claims_markdown, score, score_of_changes

KEPT = Path(__file__).parents[2] / "docs" / "data" / "reproduction"
DOCS = KEPT.parents[1]


@cache
def kept(name):
    return read_reproduction(KEPT / name)


@pytest.mark.parametrize(("longer", "before"), [("long", "full"), ("laptop-long", "laptop")])
def test_the_pages_tell_what_more_iterations_change(longer, before):
    place = "docs/data/reproduction"
    title = f"{place}/{longer}, before: {place}/{before}"

    changes = reconsider(kept(longer), kept(before))

    assert (KEPT / longer / "changes.md").read_text() == changes_markdown(changes, title)
    assert score_of_changes(changes) in _unwrapped((DOCS / "reproduction.md").read_text())


@pytest.mark.parametrize("name", ["full", "laptop", "laptop-fresh"])
def test_the_pages_tell_every_verdict(name):
    """Each page is what `folkman audit FOLDER --out FOLDER/claims.md` writes now."""
    judged = judge(kept(name))

    title = f"docs/data/reproduction/{name}"
    assert (KEPT / name / "claims.md").read_text() == claims_markdown(judged, title)
    told = _unwrapped((DOCS / "reproduction.md").read_text())
    assert score(judged) in told
    assert {claim.confirmatory for claim in judged} == {name == "laptop-fresh"}


def test_what_lies_beyond_the_paper_is_told():
    text = (KEPT / "laptop" / "beyond.md").read_text()

    judged = judge(kept("laptop"), beyond=True)

    assert text == claims_markdown(judged, "docs/data/reproduction/laptop")
    assert score(judged) in _unwrapped((DOCS / "reproduction.md").read_text())


def test_the_first_page_tells_the_score_of_the_full_size():
    first_page = _unwrapped((DOCS.parent / "README.md").read_text())

    assert score(judge(kept("full"))) in first_page
    assert score(judge(kept("laptop-fresh"))) in first_page


def test_the_command_line_tells_what_more_iterations_change(tmp_path):
    command = [
        "audit",
        str(KEPT / "long"),
        "--against",
        str(KEPT / "full"),
        "--out",
        str(tmp_path / "x.md"),
        "--json",
    ]
    told = CliRunner().invoke(app, [*command, "--window", "0.5"])

    found = json.loads(told.stdout.splitlines()[-1])
    assert (found["folder"], found["against"], found["window"]) == (
        str(KEPT / "long"),
        str(KEPT / "full"),
        0.5,
    )
    halves = reconsider(*(trailing(kept(name), 0.5) for name in ("long", "full")))
    assert [each["now_says"] for each in found["readings"]] == [each.now_says for each in halves]
    assert (tmp_path / "x.md").read_text().startswith(score_of_changes(halves))
    told_of = " ".join((tmp_path / "x.md").read_text().split())
    assert "means over the last 50 % of the gradients" in told_of
    assert {"claim", "reading", "was", "now", "change", "was_says", "now_says"} == set(
        found["readings"][0]
    )


def test_the_command_line_tells_every_level_and_a_reading_is_the_least_favourable():
    told = CliRunner().invoke(app, ["audit", str(KEPT / "full"), "--json"])

    found = {
        claim["name"]: claim["readings"]
        for claim in json.loads(told.stdout.splitlines()[-1])["claims"]
    }
    levels = {
        each["name"]: [level["name"] for level in each["levels"]]
        for each in found["5.1"] + found["5.3"]
    }
    assert levels["step eta, FedAvg eta, per gradient"] == ["nodes 5", "nodes 10", "nodes 15"]
    assert levels["step eta"] == [
        "nodes 10 against nodes 5",
        "nodes 15 against nodes 10",
    ]
    for reading in (each for readings in found.values() for each in readings if each["levels"]):
        shown = [
            {**each, "says": f"{each['says']} ({each['name']})", "name": ""}
            for each in reading["levels"]
        ]
        assert {**reading, "name": "", "levels": []} in shown
        assert reading["verdict"] == weakest([each["verdict"] for each in reading["levels"]])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("arms.json", "{}", "earlier folkman; convert it: python -m folkman.record.convert"),
        ("index.json", "{", "there is none or it is damaged"),
        ("index.json", '{"jobs": []}', "it is a sweep"),
        ("index.json", '{"jobs": [], "paper": "xie2024", "size": "huge"}', "expected a size of"),
        (
            "index.json",
            '{"jobs": [], "paper": "nobody2030", "size": "full"}',
            "there is no paper 'nobody2030'",
        ),
    ],
    ids=["old", "damaged", "sweep", "size", "paper"],
)
def test_a_folder_that_cannot_be_judged_is_told_why(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)

    with pytest.raises((ValueError, FileNotFoundError), match=message):
        read_reproduction(tmp_path)


def _unwrapped(text):
    """Return a page with a line for each paragraph."""
    return "\n\n".join(" ".join(part.split()) for part in re.split(r"\n\s*\n", text))
