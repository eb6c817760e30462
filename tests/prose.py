"""How the documents are written, counted: sentences that are too long, lines that are too long.

    python tests/prose.py                      counts of every page, and in all
    python tests/prose.py --show docs/guide.md     what is counted there
    python tests/prose.py --wrap docs/guide.md     wrap its paragraphs and lists anew

Code, tables, headings, quoted theorems, and formulas that are set in are not prose. Within a
sentence a link is as many words as its text shows, and a piece of code or a formula is one.
"""

import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

__all__ = ["MOST_CHARACTERS", "MOST_WORDS", "long_lines", "long_sentences", "wrapped"]

ROOT = Path(__file__).parent.parent
MOST_WORDS, MOST_CHARACTERS = 40, 100
FENCE, TABLE, HEADING = re.compile(r"^\s*(```|~~~|\$\$$)"), re.compile(r"^\s*\|"), re.compile(r"^#")
ITEM = re.compile(r"^(\s*)([*+-]|\d+\.)\s+")
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
CODE = re.compile(r"`+[^`]*`+|\$[^$\s](?:[^$]*[^$\s])?\$")  # and formulas: $a + b$
END = re.compile(r"(?<=[.!?])[*_)\"']*\s+(?=[*_(\"'`]*[A-Z0-9`]|\*\w)")
NO_END = re.compile(r"\b(?:e\.g|i\.e|cf|vs|eq|Eq|Fig|al|et al|No|approx|i\.i\.d)\.$")


def pages() -> list[Path]:
    """Return all Markdown of the repository."""
    found = [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "packaging").rglob("*.md"),
    ]
    return sorted(found)


def blocks(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the pieces of a page: ("prose", lines) for a paragraph or an item, ("", lines) else."""
    kind, piece, fenced = "", [], False
    for line in text.split("\n"):
        if FENCE.match(line):
            if not fenced:
                yield kind, piece
                kind, piece = "", []
            fenced = not fenced
            piece.append(line)
            if not fenced:
                yield kind, piece
                kind, piece = "", []
            continue
        if fenced:
            piece.append(line)
            continue
        plain = TABLE.match(line) or HEADING.match(line) or not line.strip() or line[:1] in "<>"
        inset = line.startswith("    ") and not ITEM.match(line) and (kind == "" or not piece)
        own = "" if plain or inset else "prose"
        if own != kind or ITEM.match(line):
            yield kind, piece
            kind, piece = own, []
        piece.append(line)
    yield kind, piece


def long_sentences(text: str) -> list[str]:
    """Return the sentences of a page with more than `MOST_WORDS` words."""
    found = []
    for kind, lines in blocks(text):
        if kind != "prose":
            continue
        joined = ITEM.sub("", " ".join(line.strip() for line in lines))
        plain = CODE.sub("Code", LINK.sub(_shown, joined))
        whole = ""
        for part in END.split(plain):
            whole = f"{whole} {part}".strip()
            if NO_END.search(whole):
                continue
            if len([word for word in whole.split() if re.search(r"\w", word)]) > MOST_WORDS:
                found.append(whole)
            whole = ""
    return found


def _shown(link: re.Match[str]) -> str:
    """Return what a link shows; of a picture nothing, as its text is a caption."""
    return "" if link[0].startswith("!") else link[1]


def long_lines(text: str) -> list[str]:
    """Return the lines of prose that are longer than `MOST_CHARACTERS` and could be broken."""
    found = []
    for kind, lines in blocks(text):
        if kind == "prose":
            found += [line for line in lines if len(line) > MOST_CHARACTERS and _breakable(line)]
    return found


def _breakable(line: str) -> bool:
    """Tell whether a line has a space before its limit that is not its indent, nor in a link."""
    indent = ITEM.match(line)
    start = indent.end() if indent else len(line) - len(line.lstrip())
    return " " in _glued(line)[start:MOST_CHARACTERS]


def _glued(text: str) -> str:
    """Return a text with its spaces made unbreakable in links, in code and before list marks."""
    glue = lambda found: found[0].replace(" ", "\x00")  # noqa: E731 - used twice below
    whole = CODE.sub(glue, re.sub(r"!?\[[^\]]*\]\([^)]*\)", glue, text))
    return re.sub(r" (?=(?:\d+[.)]|[-*+#>|]+)(?: |$))", "\x00", whole)  # or a line begins a list


def wrapped(text: str) -> str:
    """Return a page with its paragraphs and items wrapped to `MOST_CHARACTERS`."""
    lines: list[str] = []
    for kind, piece in blocks(text):
        if kind != "prose" or all(len(line) <= MOST_CHARACTERS for line in piece):
            lines += piece
            continue
        item = ITEM.match(piece[0])
        lead = item[0] if item else piece[0][: len(piece[0]) - len(piece[0].lstrip())]
        body = " ".join(line.strip() for line in [piece[0][len(lead) :], *piece[1:]])
        filled = textwrap.wrap(
            _glued(body),
            MOST_CHARACTERS - len(lead),
            break_long_words=False,
            break_on_hyphens=False,
        )
        lines += [
            (lead if i == 0 else " " * len(lead)) + line.replace("\x00", " ")
            for i, line in enumerate(filled)
        ]
    return "\n".join(lines)


def main() -> None:
    """Print counts, or what is counted, or wrap pages."""
    words = sys.argv[1:]
    if words[:1] == ["--wrap"]:
        for name in words[1:]:
            path = Path(name)
            path.write_text(wrapped(path.read_text(encoding="utf-8")), encoding="utf-8")
        return
    if words[:1] == ["--show"]:
        for name in words[1:]:
            text = Path(name).read_text(encoding="utf-8")
            print("\n\n".join([*long_sentences(text), *long_lines(text)]))
        return
    totals = [0, 0]
    for page in pages():
        text = page.read_text(encoding="utf-8")
        counts = (len(long_sentences(text)), len(long_lines(text)))
        totals = [a + b for a, b in zip(totals, counts, strict=True)]
        if any(counts):
            print(f"{page.relative_to(ROOT)}: {counts[0]} sentences, {counts[1]} lines")
    print(
        f"in all: {totals[0]} sentences over {MOST_WORDS} words, {totals[1]} lines over "
        f"{MOST_CHARACTERS} characters"
    )


if __name__ == "__main__":
    main()
