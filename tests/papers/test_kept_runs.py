"""The runs kept under docs/ say what the documents say of them."""

import json
import re
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from folkman.cli import app
from folkman.papers.audit import judge, reconsider
from folkman.papers.card import Audited, card_of
from folkman.papers.evidence import thrown_back
from folkman.papers.results import read_reproduction, select, trailing
from folkman.papers.verdicts import weakest
from folkman.report.card import card_figure, card_html
from folkman.report.paper import changes_markdown, claims_markdown, score, score_of_changes

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "docs" / "data" / "reproduction"
DOCS = KEPT.parents[1]


FRESH = ["5.1", "5.2", "5.3", "5.4", "5.5", "5.6", "5.7", "5.9", "5.11", "5.12", "5.13", "6.1"]
FRESH += ["6.2", "6.3", "6.5", "6.6", "6.7", "6.8", "6.10", "K.1"]
"""Claims of the full size whose middle readings have draws from 3000 on."""


@cache
def kept(name):
    return read_reproduction(KEPT / name)


@cache
def judged_by(name):
    return judge(kept(name))


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
    judged = judged_by(name)

    title = f"docs/data/reproduction/{name}"
    assert (KEPT / name / "claims.md").read_text() == claims_markdown(judged, title)
    told = _unwrapped((DOCS / "reproduction.md").read_text())
    assert score(judged) in told
    fresh = [claim.name for claim in judged if claim.confirmatory]
    everything = [claim.name for claim in judged]
    assert fresh == {"full": FRESH, "laptop": [], "laptop-fresh": everything}[name]


def changed_by(kinds, before):
    """Return the claims whose kind is another one, with both."""
    return {name: (before[name], kind) for name, kind in kinds.items() if before[name] != kind}


def test_fresh_draws_at_full_size_changed_these_verdicts():
    """What the runs of each plan did, and nothing else: the same folder without the later ones."""
    whole = kept("full")
    earlier = [found for found in whole.runs if "legends" not in found.figures]
    parts = [[found for found in earlier if found.seed < plan] for plan in (3000, 4000)]
    parts.append([found for found in whole.runs if found.seed < 5000])
    judged = [*(judge(whole._replace(runs=part)) for part in parts), judged_by("full")]
    kinds = [{claim.name: claim.kind for claim in each} for each in judged]

    assert changed_by(kinds[1], kinds[0]) == {
        "5.2": ("open", "contradicted"),
        "5.7": ("open", "contradicted"),
        "6.10": ("holds under", "open"),
        "K.1": ("open", "contradicted"),
    }
    assert changed_by(kinds[2], kinds[1]) == {
        **dict.fromkeys(("5.3", "5.9", "5.11"), ("open", "contradicted")),
        **dict.fromkeys(("5.12", "5.13", "6.7", "6.8"), ("not run", "holds under")),
        "6.10": ("open", "holds under"),
    }
    assert changed_by(kinds[3], kinds[2]) == {
        "5.5": ("open", "contradicted"),
        "6.5": ("open", "holds under"),
        "6.10": ("holds under", "open"),
    }
    plan = (ROOT / "src/folkman/papers/xie2024/plan.md").read_text()
    assert "**Closed**: 5.2 and K.1, contradicted; 5.7" in plan
    assert "**Opened again**: 6.10" in plan
    assert "**Closed**: 5.3 (contradicted under eta/I, equal at eta), 5.9 and 5.11" in plan
    assert "**Closed**: 5.5 (contradicted under eta" in plan


def test_float32_and_bfloat16_agree_where_no_run_is_thrown_back():
    """The counts and the 0.2 % that the plan tells."""
    facts = {"method": "async_sharing", "scaling": "theorem", "nodes": 5, "gamma": 15}
    losses = []
    for variant in ("mnist_float32", "mnist"):
        runs = [f for f in select(kept("full").runs, variant, **facts) if 3000 <= f.seed < 3005]
        assert len(runs) == 5
        assert not any(thrown_back(f.run.column("train_loss")) for f in runs)
        losses.append([f.run.last("train_loss") for f in sorted(runs, key=lambda f: f.seed)])
    apart = max(abs(one / two - 1) for one, two in zip(*losses, strict=True))
    assert 0.001 < apart < 0.002


def test_the_kept_card_is_of_these_runs_and_fits_its_page():
    audits = [
        Audited(KEPT / name, kept(name).paper, judged_by(name)) for name in ("full", "laptop-fresh")
    ]
    card = card_of(audits)

    assert card.scores[0][0] == "full (old draws, and fresh ones)"
    page = (DOCS / "figures/reproduction/card.html").read_text()
    assert page.partition("<svg")[0] == card_html(card).partition("<svg")[0]
    figure = card_figure(card)
    figure.draw_without_rendering()
    for text in figure.texts:
        box = text.get_window_extent()
        assert box.y0 > 0, text.get_text()
        assert box.x1 <= figure.bbox.x1, text.get_text()


def test_what_lies_beyond_the_paper_is_told():
    text = (KEPT / "laptop" / "beyond.md").read_text()

    judged = judge(kept("laptop"), beyond=True)

    assert text == claims_markdown(judged, "docs/data/reproduction/laptop")
    assert score(judged) in _unwrapped((DOCS / "reproduction.md").read_text())


def test_the_first_page_tells_the_score_of_the_full_size():
    first_page = _unwrapped((DOCS.parent / "README.md").read_text())

    assert score(judged_by("full")) in first_page
    assert score(judged_by("laptop-fresh")) in first_page


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
