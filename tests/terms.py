"""Terms of the glossary, and where a page uses one first without saying what it means.

    python tests/terms.py            the terms that each page uses first without an explanation
    python tests/terms.py --all      every term, with the paragraph of its first use

A term is explained where it first appears if that paragraph sets it in italics or bold, as a
definition does, or links it; if a table of that page has it in its first column; or if an earlier
paragraph has explained it. The report and the live page explain terms by `record.terms`.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from prose import CODE, LINK, ROOT, blocks

__all__ = ["OTHERWISE", "PAGES", "glossary", "named", "unexplained", "uses"]

TUTORIALS = tuple(
    f"docs/tutorials/own-{each}.md"
    for each in ("algorithm", "data", "devices", "paper", "problem", "radio")
)
PAGES = ("README.md", "docs/index.md", "docs/guide.md", "docs/looking.md", "docs/sweeps.md")
PAGES += ("docs/devices.md", "docs/theory.md", "docs/comparison.md", "docs/which-method.md")
PAGES += ("docs/tuning.md", "docs/own-code.md", *TUTORIALS)
OTHERWISE = {
    "docs/looking.md": {"verdict"},
    "docs/sweeps.md": {"stale", "cluster"},  # locks that no process holds; dask's
    "docs/devices.md": {"sum"},
    "docs/comparison.md": {"cell", "band", "sum", "verdict"},  # *cell* is defined there
    "docs/which-method.md": {"cell", "drop"},
    "docs/own-code.md": {"copy"},
    "docs/tutorials/own-algorithm.md": {"round", "sum"},
    "docs/tutorials/own-data.md": {"index"},
    "docs/tutorials/own-paper.md": {"verdict"},
    "docs/tutorials/own-radio.md": {"index"},
}
"""Words that a page uses first in another sense than the glossary's: as verbs, of other things."""
ROW = re.compile(r"^\| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
EVERYDAY = {"node", "problem", "loss", "gradient", "step", "seed", "even"}
"""Words whose usual meaning is the right one, or near enough to read on."""


def glossary() -> dict[str, str]:
    """Return each term of the glossary with its meaning; of several names the first."""
    text = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    rows = ((word.split(",")[0].strip(), told.strip()) for word, told in ROW.findall(text))
    return {word: told for word, told in rows if word not in ("word", "---")}


def uses(text: str) -> Iterator[tuple[str, str]]:
    """Yield each term with the paragraph of its first use in prose, in the order of the page."""
    paragraphs = [" ".join(lines) for kind, lines in blocks(text) if kind == "prose"]
    for term in glossary():
        if term in EVERYDAY:
            continue
        word = re.compile(rf"(?<!of Things )\b{named(term)}\b")
        for paragraph in paragraphs:
            if word.search(CODE.sub("", LINK.sub(r"\1", paragraph))):
                yield term, paragraph
                break


def named(term: str) -> str:
    """Return a pattern of a term: one or many, small or at the start of a sentence."""
    first = f"[{term[0]}{term[0].upper()}]"
    rest = re.escape(term[1:])
    return f"{first}(?:{rest[:-1]}ies|{rest})" if term.endswith("y") else f"{first}{rest}s?"


def is_explained(term: str, paragraph: str) -> bool:
    """Tell whether a paragraph defines or links a term."""
    name = named(term)
    marked = rf"\*[^*]*\b{name}\b[^*]*\*|\[[^\]]*\b{name}\b[^\]]*\][(\[]"
    return re.search(marked, paragraph, re.IGNORECASE) is not None


def unexplained(text: str) -> list[str]:
    """Return the terms that a page uses first without saying what they mean."""
    tabled = {row[0].strip("*` ").lower() for row in ROW.findall(text)}
    return [
        term
        for term, paragraph in uses(text)
        if term.lower() not in tabled and not is_explained(term, paragraph)
    ]


def main() -> None:
    """Print what is not explained, or every first use."""
    for page in PAGES:
        text = (ROOT / Path(page)).read_text(encoding="utf-8")
        if "--all" in sys.argv:
            for term, paragraph in uses(text):
                print(f"{page}: {term}: {is_explained(term, paragraph)}: {paragraph[:160]}")
        found = [term for term in unexplained(text) if term not in OTHERWISE.get(page, ())]
        print(f"{page}: {len(found)} of {len(list(uses(text)))} terms: {', '.join(found)}")


if __name__ == "__main__":
    main()
