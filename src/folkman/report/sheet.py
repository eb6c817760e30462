"""A table of words and numbers before it is written in any format."""

from typing import NamedTuple

from folkman.report.tables import spread

__all__ = ["NEAR", "SURE", "Number", "Sheet"]

SURE, NEAR = "best", "near"
"""Marks: surely the best; not told apart from the best."""


class Number(NamedTuple):
    """A mean with half of its interval (NaN where there is none), and its mark."""

    mean: float
    half: float
    mark: str = ""
    signed: bool = False  # a difference: a plus sign is written

    def __str__(self) -> str:
        """Return it with as many digits as its interval allows: 0.426 ± 0.025."""
        text = spread(self.mean, self.half)
        return f"+{text}" if self.signed and text[0] not in "-" else text


class Sheet(NamedTuple):
    """Headings and lines: first columns of words, then numbers."""

    head: list[str]
    lines: list[list[str | Number]]
    words: int
    title: str = ""
