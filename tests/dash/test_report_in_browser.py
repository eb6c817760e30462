"""The report in a real browser: light and dark, on a desk and on a phone, by keyboard, on paper."""

import pytest

from conftest import CONTRASTS
from folkman.report.write import write_report

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def address(radio_folder, tmp_path_factory):
    return write_report(
        radio_folder, tmp_path_factory.mktemp("page") / "report.html"
    ).as_uri()  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_is_legible_and_fits(visit, address, scheme, width):
    """WCAG AA: 4.5 for text; nothing is wider than the page, folded parts as well."""
    page = visit(address, color_scheme=scheme, viewport={"width": width, "height": 844})
    page.evaluate("document.querySelectorAll('details').forEach((each) => (each.open = true))")

    assert page.evaluate("document.documentElement.scrollWidth") <= width
    ratio, *where = page.evaluate(CONTRASTS)[0]
    assert ratio >= 4.5, where
    fonts = page.evaluate(
        "[...document.querySelectorAll('svg.panel text')].map((t) => parseFloat("
        "getComputedStyle(t).fontSize) * Math.hypot(t.getCTM().a, t.getCTM().b))"
    )
    assert min(fonts) >= 8  # CSS pixels, as drawn


def test_it_begins_with_what_went_wrong_and_the_answer(visit, address):
    page = visit(address)

    top = page.locator(".answer").bounding_box()
    assert top is not None
    assert top["y"] + top["height"] < 900  # seen without scrolling
    assert "FedAvg" in page.locator(".wrong").inner_text()
    assert page.locator("figure:visible").count() <= 9  # the rest is folded
    assert page.locator("#ages details").get_attribute("open") is None


def test_words_are_explained_and_reached_by_keyboard(visit, address):
    page = visit(address)
    link = page.locator("th a.term", has_text="kappa").first

    assert "share of slots" in (link.get_attribute("title") or "")
    link.focus()
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#word-kappa"
    summary = page.locator("#ages summary")
    summary.focus()
    page.keyboard.press("Enter")
    assert page.locator("#ages details").get_attribute("open") is not None


def test_every_figure_has_a_label_and_a_caption(visit, address):
    page = visit(address)

    for figure in page.locator("figure").all():
        assert figure.locator("svg").first.get_attribute("aria-label")
        assert len(figure.locator("figcaption").text_content() or "") > 10


def test_it_is_printed_dark_on_white(visit, address):
    page = visit(address, color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")

    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == (
        "rgb(255, 255, 255)"
    )
    assert page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--c1')") == (
        "#be0501"
    )
