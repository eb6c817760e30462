"""The documentation as a site: whole, legible light and dark, usable by keyboard, offline."""

import fcntl
import os
import re
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest

from conftest import CONTRASTS
from test_docs import formulas

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build the site once, whoever asks first.

    Strict: a link, an anchor or a name that is not found is an error; --quiet would silence them
    uncounted.
    """
    pytest.importorskip("mkdocstrings", reason="pip install 'folkman[docs]'")
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
    folder = shared / "site"
    with (shared / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "index.html").exists():
            command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
            done = subprocess.run(
                [*command, "--site-dir", str(folder)],
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=600,
                check=False,
            )
            assert done.returncode == 0, done.stderr[-3000:]
    return folder


def pages(site):
    """Return the pages that are written by hand, with the text of each."""
    found = sorted(site.rglob("*.html"))
    own = [page for page in found if source_of(page, site).exists()]
    return {page: page.read_text() for page in own if "data" not in page.relative_to(site).parts}


def source_of(page, site):
    return (DOCS / page.relative_to(site)).with_suffix(".md")


def test_nothing_is_fetched_from_elsewhere_and_the_search_works_from_disk(site):
    for name in ("index.html", "gallery/delay.html", "theory-proofs.html"):
        text = (site / name).read_text()
        fetched = re.findall(r'<(?:script|link)[^>]+(?:src|href)="?https?://[^">]+', text)
        assert [tag for tag in fetched if "canonical" not in tag] == []
        worker = re.search(r'src="?([^">]*iframe-worker.js)', text)  # searches a site on disk
        assert worker is not None
        assert ((site / name).parent / worker[1]).exists()
    assert "fresh air" in (site / "search" / "search_index.js").read_text().lower()
    assert "url(http" not in (site / "assets" / "formulas.css").read_text()


def test_every_formula_is_mathml_and_nothing_of_latex_is_left(site):
    drawn = 0
    for page, whole in pages(site).items():
        text = re.sub(r"<(pre|code|script|style)\b.*?</\1>", "", whole, flags=re.DOTALL)
        assert not re.search(r"\$|\\[a-z]{2,}|arithmatex", re.sub(r"<[^>]+>", "", text)), page
        assert text.count("<math") == len(formulas(source_of(page, site))), page
        drawn += text.count("<math")
    assert drawn > 1300


WITH_FORMULAS = {"guide": 50, "design": 15, "protocol": 80, "devices": 4, "fresh-air": 50}
WITH_FORMULAS |= {"energy": 5, "compression": 30, "reproduction": 15}


@pytest.mark.parametrize("name", WITH_FORMULAS)
def test_the_formulas_within_sentences_are_drawn_too(site, name):
    text = (site / f"{name}.html").read_text()
    assert (
        text.count('<math xmlns="http://www.w3.org/1998/Math/MathML" display="inline">')
        >= (WITH_FORMULAS[name])
    )


def test_the_reference_describes_parameters_and_shows_examples_as_code(site):
    page = (site / "reference" / "algorithms.html").read_text()
    assert "async_sharing" in page
    row = page[page.index('id="folkman.algorithm.fedasync.fedasync"') :]
    row = row[row.index("<code>max_staleness</code>") :]
    assert "versions behind which an upload is dropped" in row[: row.index("</tr>")]
    assert '<span class="gp">&gt;&gt;&gt; </span>' in page
    assert "<blockquote>\n<blockquote>" not in page


class Seen(HTMLParser):
    """What a reader who does not see a page is told of it."""

    def __init__(self, text):
        super().__init__()
        self.levels, self.unnamed, self.ids, self.language = [], [], Counter(), None
        self.inside: list = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.language = given.get("lang") if tag == "html" else self.language
        self.ids.update([given["id"]] if "id" in given else [])
        if re.fullmatch("h[1-6]", tag):
            self.levels.append(int(tag[1]))
        named = given.get("aria-label") or given.get("title")
        if tag == "img" and "alt" not in given:
            self.unnamed.append(given)
        if tag in ("a", "button") and ("href" in given or tag == "button"):
            self.inside = [given, bool(named)]
        if tag == "input" and not named and "md-toggle" not in (given.get("class") or ""):
            self.unnamed += [] if given.get("data-md-color-scheme") else [given]

    def handle_data(self, data):
        if self.inside and data.strip():
            self.inside[1] = True

    def handle_endtag(self, tag):
        if tag in ("a", "button") and self.inside:
            self.unnamed += [] if self.inside[1] else [self.inside[0]]
            self.inside = []


def test_pages_are_told_to_who_does_not_see_them(site):
    """A language, one title, headings in order, and a name for each picture, link and control."""
    found = pages(site)
    assert len(found) > 50
    for page, text in found.items():
        seen = Seen(text)
        assert seen.language == "en", page
        assert seen.levels.count(1) == 1, page
        below = zip(seen.levels, seen.levels[1:], strict=False)
        assert all(later <= level + 1 for level, later in below), (page, seen.levels)
        assert seen.unnamed == [], page
        assert [each for each, times in seen.ids.items() if times > 1] == [], page


SHOWN = ["index", "theory-proofs", "reference/theory", "gallery/delay"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_are_legible(visit, site, scheme):
    """WCAG AA: 4.5 for text; nothing is wider than the page, on a phone as well."""
    page = visit((site / "index.html").as_uri(), color_scheme=scheme)
    for name in SHOWN:
        page.set_viewport_size({"width": 1280, "height": 900})
        page.goto((site / f"{name}.html").as_uri())
        ratio, *where = page.evaluate(CONTRASTS)[0]
        assert ratio >= 4.5, (name, where)
        page.set_viewport_size({"width": 390, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, name


def test_a_formula_is_drawn_by_the_browser_in_the_font_of_the_site(visit, site):
    page = visit((site / "theory-proofs.html").as_uri())
    page.evaluate("document.fonts.ready.then(() => true)")
    assert page.evaluate("[...document.fonts].map((each) => each.family + each.status)") == [
        "STIX Two Mathloaded"
    ]
    base, raised = page.evaluate(
        "[...document.querySelector('math msup').children].map("
        "(each) => [each.getBoundingClientRect().height, each.getBoundingClientRect().top])"
    )
    assert raised[0] < 0.8 * base[0]  # smaller, and above
    assert raised[1] < base[1]
    page.locator(".formula").first.focus()  # a wide one is scrolled by keyboard
    assert page.evaluate("document.activeElement.classList.contains('formula')")


def test_the_site_is_used_by_keyboard_alone(visit, site):
    page = visit((site / "index.html").as_uri())
    page.keyboard.press("Tab")
    assert "Skip to content" in page.evaluate("document.activeElement.textContent")
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") != ""
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Search"
    page.keyboard.type("fresh air")
    page.locator(".md-search-result__link").first.wait_for(state="attached")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("fresh"))
