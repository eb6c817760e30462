"""How the documents are written: no sentence over 40 words, no line over 100 characters."""

import re

import pytest

import prose
from prose import ROOT, long_lines, long_sentences, pages, wrapped
from terms import OTHERWISE, PAGES, unexplained, uses


def told(page):
    return pytest.param(page, id=str(page.relative_to(ROOT)))


@pytest.mark.parametrize("page", [told(page) for page in pages()])
def test_a_page_has_no_long_sentence_and_no_long_line(page):
    text = page.read_text(encoding="utf-8")
    assert not long_sentences(text)
    assert not long_lines(text)


def test_what_is_counted():
    words = " ".join(["word"] * 30)
    assert len(long_sentences(f"A {words}. {words}.")) == 1  # what begins small goes on
    assert len(long_sentences(f"A {words}, {words}.")) == 1
    assert not long_sentences(f"A {words}. A {words}.")
    assert not long_sentences(f"A {words}. `code` {words}.")
    assert len(long_sentences(f"* A {words}\n  {words}.\n* B.")) == 1
    for apart in (f"| {words} {words} |", f"```text\n{words} {words}\n```", f"# {words} {words}"):
        assert not long_sentences(apart)
        assert not long_lines(apart)
    assert not long_sentences("A [" + "x " * 30 + "](y). B `" + "z " * 30 + "`.")
    assert len(long_lines(f"A {words}")) == 1
    assert not long_lines("https://" + "x" * 200)


def test_wrapping_changes_no_word_and_begins_no_list():
    text = (
        "A sentence of Corollary\n1. And " + "word " * 30 + "2 - 3 = x - y " * 10 + "\n\n    f(x)\n"
    )
    new = wrapped("Intro " + "word " * 14 + "of Corollary 1. And " + "a - b " * 30 + "end.")
    assert not long_lines(new)
    assert not any(re.match(r"\s*(\d+[.)]|[-*+])\s", line) for line in new.split("\n"))
    assert wrapped(text).split() == text.split()
    assert prose.wrapped("```\n" + "x " * 80 + "\n```") == "```\n" + "x " * 80 + "\n```"


def test_every_word_of_the_glossary_is_explained_once():
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", (ROOT / "docs/glossary.md").read_text(), re.M)
    words = [word for word, _ in rows if word not in ("word", "---")]
    assert len(words) > 50
    assert len(words) == len(set(words))
    assert {"slot", "age", "copy", "kappa", "drop", "round", "SINR", "arm, side"} <= set(words)


@pytest.mark.parametrize("page", PAGES)
def test_a_term_is_explained_or_linked_where_a_page_uses_it_first(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert set(unexplained(text)) == OTHERWISE.get(page, set())


def test_the_pages_use_terms_at_all():
    texts = [(ROOT / page).read_text(encoding="utf-8") for page in PAGES]
    assert sum(len(list(uses(text))) for text in texts) > 100


def test_a_term_counts_where_it_is_used_and_not_in_code():
    assert unexplained("Copies have an age.\n\n*age* is old, a *copy* too.") == ["copy", "age"]
    assert not unexplained("*Copies* have an [age](glossary.md). The age of copies is high.")
    assert not unexplained("`kappa` is code.")
