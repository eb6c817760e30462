"""The methods as a list: who wrote them, what they need, what a message costs."""

import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

__all__ = ["bibtex", "describe_price", "print_methods"]


def bibtex() -> dict[str, str]:
    """Return the BibTeX entries of `papers.bib` by key; the key is the method's name."""
    text = resources.files("folkman.algorithm").joinpath("papers.bib").read_text(encoding="utf-8")
    entries = re.findall(r"@\w+\{[^@]*?\n\}", text)
    return {re.match(r"@\w+\{\s*([^,\s]+)", entry).group(1): entry for entry in entries}  # type: ignore[union-attr]


def _field(entry: str, name: str) -> str:
    found = re.search(rf"\b{name}\s*=\s*\{{(.*?)\}},?\n", entry, re.DOTALL)
    return re.sub(r"[{}\s]+", " ", found.group(1)).strip() if found else ""


def _authors(entry: str) -> str:
    names = [name.split(",")[0].strip() for name in _field(entry, "author").split(" and ")]
    people = names[0] if len(names) == 1 else f"{names[0]} and {names[1]}" if len(names) == 2 else f"{names[0]} et al."
    return f"{people} {_field(entry, 'year')}"


def describe_price(small: int, large: int, dims: tuple[int, int], bits: int) -> str:
    """Return a price as a formula in S = bits d, from its values at two sizes d.

    >>> describe_price(16 * 101, 16 * 201, (100, 200), 16)
    'S + 16'
    """
    slope = (large - small) / (dims[1] - dims[0])
    rest = round(small - slope * dims[0])
    factor = slope / bits
    times = "S" if abs(factor - 1) < 1e-9 else f"{factor:.3g} S"
    return times if rest == 0 else f"{times} {'+' if rest > 0 else '-'} {abs(rest)}"


def print_methods(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print a line a method."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    known = bibtex()
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("name", "paper", "role", "a node sends", "the server sends", "assumes that"):
        table.add_column(name, overflow="fold")
    for row in rows:
        paper = _authors(known[row["name"]]) if row["name"] in known else ""
        table.add_row(row["name"], paper, row["role"], row["node_bits"], row["server_bits"], row["assumes"])
    console = Console(width=None if Console().is_terminal else 150)
    console.print(table)
    console.print("S: the bits of a model, price of a parameter times d. BibTeX: folkman cite NAME", highlight=False)
