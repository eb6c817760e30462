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
from folkman.record.run import Run
from folkman.report.paper import changes_markdown, score, score_of_changes

KEPT = Path(__file__).parents[2] / "docs" / "data" / "reproduction"
WINDOW = 0.25


@cache
def kept(name):
    return read_reproduction(KEPT / name)


@pytest.mark.parametrize(("longer", "before"), [("long", "full"), ("laptop-long", "laptop")])
def test_the_documents_tell_what_more_iterations_change(longer, before):
    text = (KEPT.parents[1] / "reproduction.md").read_text()
    changes = reconsider(kept(longer), kept(before))

    assert score_of_changes(changes) in text
    if longer == "long":
        assert changes_markdown(changes, "").partition("\n\n")[2] in text
        cut = [f._replace(run=_cut(f.run, 500)) for f in kept(longer).runs]
        again = reconsider(kept(longer)._replace(runs=cut), kept(before))
        words = " ".join(text.split())  # sentences are wrapped
        assert f"the first 500 iterations of the long ones, {score_of_changes(again)}" in words
        runs = kept(longer)._replace(runs=cut)
        again = reconsider(trailing(runs, WINDOW), trailing(kept(before), WINDOW))
        told = f"the first 500 iterations of the long ones by means, {score_of_changes(again)}"
        assert told in words
        smooth = reconsider(trailing(kept(longer), WINDOW), trailing(kept(before), WINDOW))
        assert f"means over the last quarter, {score_of_changes(smooth)}" in words


@pytest.mark.parametrize(("part", "name"), [(0.1, "tenth"), (0.25, "quarter"), (0.5, "half")])
def test_the_documents_tell_what_a_window_changes(part, name):
    text = (KEPT.parents[1] / "reproduction.md").read_text()
    results = trailing(kept("full"), part)

    counts = ", ".join(re.findall(r"[0-9]+", score(judge(results)).partition(":")[2]))
    changes = score_of_changes(reconsider(results, kept("full")))

    assert f"| the last {name} | {counts} | {changes} |" in text


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
    assert "means over the last 50 % of the gradients" in (tmp_path / "x.md").read_text()
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
    assert levels["step eta for both"] == ["nodes 5", "nodes 10", "nodes 15"]
    assert levels["scaling theorem (step eta)"] == [
        "nodes 10 against nodes 5",
        "nodes 15 against nodes 10",
    ]
    order = ("fails", "open", "holds")
    for reading in (each for readings in found.values() for each in readings if each["levels"]):
        shown = [
            {**each, "says": f"{each['says']} ({each['name']})", "name": ""}
            for each in reading["levels"]
        ]
        assert {**reading, "name": "", "levels": []} in shown
        assert reading["verdict"] == min(
            (each["verdict"] for each in reading["levels"]), key=order.index
        )


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


@pytest.mark.parametrize("name", ["full", "laptop", "long", "laptop-long"])
def test_the_verdicts_are_those_of_the_first_audit(name):
    """Every verdict, reading and number on the kept runs is what it was when the runs were first
    judged."""
    known = json.loads((Path(__file__).parents[1] / "data" / "verdicts.json").read_text())[name]
    found = {
        claim.name: [claim.verdict, [_numbers(each) for each in claim.readings]]
        for claim in judge(kept(name))
    }

    assert found.keys() == known.keys()
    for claim, (verdict, readings) in known.items():
        assert found[claim][0] == verdict, claim
        for (reading, what, n, *numbers), now in zip(readings, found[claim][1], strict=True):
            assert now[:3] == [reading, what, n], claim
            assert now[3:] == pytest.approx(numbers, rel=1e-9, nan_ok=True), (claim, reading)


def _numbers(reading):
    """Return a reading's name, verdict, draws, mean and interval."""
    values = [reading[key] for key in ("mean", "low", "high", "effect")]
    return [
        reading["name"],
        reading["verdict"],
        reading["n"],
        *(float("nan") if v is None else v for v in values),
    ]


def test_the_documents_tell_what_the_kept_runs_say():
    """docs/reproduction.md has the verdicts of the metrics that are kept beside it, and README.md
    their score."""
    docs = Path(__file__).parents[2] / "docs"
    text = (docs / "reproduction.md").read_text()
    rows = [line.replace("\\|", "/").strip("| ").split(" | ") for line in text.splitlines()]
    told = {row[0]: row for row in rows if len(row) > 3}
    full, laptop = kept("full"), kept("laptop")

    judged, smaller = judge(full), {claim.name: claim for claim in judge(laptop)}
    for claim in judged:
        _, _, said, reason, last = told[claim.name]
        assert said == claim.verdict.replace("|", "/")
        assert reason.partition(" ([figure]")[0] == claim.reason.replace("|", "/")
        assert last == smaller[claim.name].verdict
    for claim in judge(laptop, beyond=True):
        assert told[claim.name][2:] == [claim.verdict, claim.reason]
    sets = (judged, list(smaller.values()), judge(trailing(full, WINDOW)))
    counts = [re.findall(r"[0-9]+", score(each).partition(":")[2]) for each in sets]
    asked = r"([0-9]+) hold, ([0-9]+) hold only in some.*?, ([0-9]+) do not.*?([0-9]+)"
    first_page = (docs.parent / "README.md").read_text()
    assert [list(found) for found in re.findall(asked, _unwrapped(text))] == counts
    assert [list(found) for found in re.findall(asked, _unwrapped(first_page))] == counts[:1]


def _unwrapped(text):
    """Return a page with a line for each paragraph."""
    return "\n\n".join(" ".join(part.split()) for part in re.split(r"\n\s*\n", text))


def _cut(run, gradients):
    """Return a run as it was at this many gradients."""
    return Run(
        run.algorithm,
        run.label,
        run.seed,
        [r for r in run.rows if r["gradients"] <= gradients],
        run.status,
    )
