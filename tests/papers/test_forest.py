"""Forest plots: of every figure all claims, of each what decides it, and nothing out of sight."""

from pathlib import Path

import numpy as np
import pytest
from test_audit import AS_MEASURED, XIE, story

from folkman.papers.audit import judge
from folkman.papers.card import Audited, card_of
from folkman.papers.verdicts import PARTS
from folkman.report.forest import (
    LOOKS,
    POINTS,
    RATIO,
    Effect,
    Forest,
    forest_figure,
    forest_svg,
)


@pytest.fixture(scope="module")
def forests():
    audited = Audited(Path("runs/made-up"), XIE, judge(story(**AS_MEASURED)))
    return {forest.name: forest for forest in card_of([audited]).forests}


def test_every_figure_has_its_claims_word_for_word(forests):
    table = {claim["name"]: claim for claim in XIE.claims()["claim"]}

    assert list(forests) == ["fig5", "fig6", "fig7", "fig8"]
    for name, forest in forests.items():
        claims = [claim for claim in table.values() if claim.get("figure") == name]
        assert [each[0] for each in forest.claims] == [claim["name"] for claim in claims]
        for (_, words, _), claim in zip(forest.claims, claims, strict=True):
            assert words == f"{claim['text']} ({claim['where']})"


def test_a_row_is_the_least_favourable_level_of_a_middle_reading(forests):
    rows = {effect.label: effect for effect in forests["fig5"].effects}

    alike = rows["5.1  step eta, FedAvg eta, per gradient (nodes 2)"]
    assert (alike.unit, alike.verdict, alike.n) == (RATIO, "equal", 4)
    assert alike.low <= alike.mean <= alike.high
    assert alike.margin == 0.02
    cause = next(effect for label, effect in rows.items() if label.startswith("5.2"))
    assert (cause.unit, cause.verdict) == ("", "contradicted")
    assert "the control has" in cause.says
    assert rows["5.6  step eta, FedAvg eta, per gradient (nodes 2)"].unit == POINTS


def test_what_nobody_ran_is_named_once_and_takes_no_row(forests):
    lacking = "step eta, FedAP eta, per gradient (5.12, 5.13)"

    assert lacking in forests["fig5"].lacking
    assert not any(effect.label.startswith("5.12") for effect in forests["fig5"].effects)
    assert not forests["fig7"].effects
    assert forests["fig7"].lacking


def test_all_that_is_written_is_on_the_page(forests):
    figure = forest_figure(forests["fig5"])
    figure.draw_without_rendering()
    inside = figure.bbox.padded(2)

    texts = [text for axes in figure.axes for text in (*axes.texts, *axes.get_yticklabels())]
    assert len(texts) > 10
    for text in (*texts, *figure.texts):
        box = text.get_window_extent()
        assert inside.contains(box.x0, box.y0), text.get_text()
        assert inside.contains(box.x1, box.y1), text.get_text()


def test_an_effect_beyond_the_axis_goes_on():
    """An arrow at the edge, where the interval leaves it, and none where it does not."""
    far = Effect("a", np.log(9), np.log(3), np.log(20), 0.02, 9, "holds", says=", fresh")
    near = Effect("b", 0.01, -0.1, 0.1, 0.02, 9, "open")

    axes = forest_figure(Forest("f", "t", [], [far, near])).axes[0]

    marks = [line.get_marker() for line in axes.lines if line.get_marker() in ("<", ">")]
    assert marks == [">"]
    assert [text.get_text() for text in axes.texts] == ["n = 9, fresh", "n = 9"]
    assert forest_svg(Forest("f", "t", [], [near])).startswith("<svg")


def test_every_verdict_of_a_reading_has_a_look():
    """One that lacks it would be drawn as open."""
    assert set(PARTS) <= set(LOOKS)
    assert len({letter for letter, *_ in LOOKS.values()}) == len(LOOKS)
