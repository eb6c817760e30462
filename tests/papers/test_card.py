"""The card: tiles, effects and sentences follow from the verdicts, and nothing is out of sight."""

import re
from pathlib import Path

import pytest
from test_audit import AS_MEASURED, XIE, story

from folkman.papers.audit import judge
from folkman.papers.card import Audited, card_of
from folkman.report.card import card_figure, card_html
from folkman.report.paper import score


@pytest.fixture(scope="module")
def audited():
    return Audited(Path("runs/made-up"), XIE, judge(story(**AS_MEASURED)))


def test_tiles_are_the_verdicts_on_levels(audited):
    """Two levels of nodes: equal at the same step, ahead where only ours is long."""
    card = card_of([audited])
    row = next(row for row in card.rows if row.label.startswith("5.1  MNIST"))
    cells = dict(zip([(group, name) for group, name in card.columns], row.cells, strict=True))

    assert cells["per gradient", "eta I\nv eta"] == ["holds", "holds"]
    assert cells["per gradient", "eta I\nv eta I"] == ["equal", "equal"]
    assert cells["per gradient", "eta/I\nv eta"] == ["not run"]
    other = next(row for row in card.rows if "FedSA" in row.label)
    assert {verdict for cell in other.cells for verdict in cell} == {"not run"}


def test_behind_a_sentence_stand_the_verdicts_that_it_rests_on(audited):
    card = card_of([audited])
    kinds = {claim.name: claim.kind for claim in audited.judged}

    told = [sentence for _, sentences in card.paragraphs for sentence in sentences]
    rests = [each for sentence in told for each in re.findall(r"\[(.+)\]$", sentence)]
    assert len(rests) == 6
    for each in ", ".join(rests).split(", "):
        name, _, kind = each.partition(" ")
        assert kinds[name] == kind
    assert card.scores == [("made-up (exploratory)", score(audited.judged))]


def test_other_runs_are_told_beside_the_first(audited):
    none = audited._replace(judged=judge(story(**AS_MEASURED)._replace(runs=[])))

    told = dict(card_of([none, audited]).paragraphs)["What other runs say of these"]

    assert "5.1 holds under" in told[0]
    assert "5.2 contradicted" in told[0]


def test_what_the_first_runs_lack_is_shown_outlined_as_others_have_it(audited):
    """Nothing of the first runs is replaced; what neither has stays without a tile of others."""
    none = audited._replace(judged=judge(story(**AS_MEASURED)._replace(runs=[])))
    whole, first = card_of([none, audited]), card_of([audited, none])

    assert first.rows == card_of([audited]).rows
    assert not any(any(row.outlined) for row in first.rows)
    rows = [row for row in whole.rows if row.label.startswith("5.1  MNIST")]
    alone = [row for row in first.rows if row.label.startswith("5.1  MNIST")]
    for cell, of_others, outlined in zip(
        rows[0].cells, alone[0].cells, rows[0].outlined, strict=True
    ):
        assert cell == of_others
        assert outlined == bool(set(cell) - {"not run"})
    assert "outline:1px solid" in card_html(whole)
    assert "outline:1px solid" not in card_html(first)


def test_the_page_stands_alone_and_fits(audited):
    card = card_of([audited])

    page, figure = card_html(card), card_figure(card)

    assert (
        "http"
        not in re.sub(r'xmlns(:\w+)?="[^"]*"|"http://www.w3.org[^"]*"', "", page)
        .replace("http-equiv", "")
        .partition("<svg")[0]
    )
    assert "<script" not in page
    assert page.count("<tr>") == 2 + len(card.rows) + sum(len(f.claims) for f in card.forests)
    figure.canvas.draw()
    edges = [text.get_window_extent() for text in figure.texts]
    assert min(edge.y0 for edge in edges) > 0
    assert max(edge.x1 for edge in edges) <= figure.bbox.x1
