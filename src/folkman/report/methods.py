"""The methods as a list: who wrote them, what they need, what a message costs."""

import ast
import re
from collections.abc import Callable, Sequence
from importlib import resources

from folkman.builders import find_methods
from folkman.record.json_file import Json

__all__ = ["bibtex", "describe_price", "print_graphs", "print_methods"]


def bibtex() -> dict[str, str]:
    """Return the BibTeX entry of each method: the `BIBTEX` of its module, which is not imported."""
    folder = resources.files("folkman") / "algorithm"
    texts = {name: (folder / f"{name}.py").read_text(encoding="utf-8") for name in find_methods()}
    found = {name: _constant(text, "BIBTEX") for name, text in texts.items()}
    return {name: entry for name, entry in found.items() if entry is not None}


def _constant(text: str, name: str) -> str | None:
    """Return a string that a module assigns to a name at its top."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return ast.literal_eval(node.value)
    return None


def _field(entry: str, name: str) -> str:
    found = re.search(rf"\b{name}\s*=\s*\{{(.*?)\}},?\n", entry, re.DOTALL)
    return re.sub(r"[{}\s]+", " ", found.group(1)).strip() if found else ""


def _authors(entry: str) -> str:
    names = [name.split(",")[0].strip() for name in _field(entry, "author").split(" and ")]
    most = " and ".join(names) if len(names) <= 2 else f"{names[0]} et al."
    return f"{most} {_field(entry, 'year')}"


def describe_price(price: Callable[[int, int], int]) -> str:
    """Return a price (d, bits per parameter) -> bits as a formula, from four of its values.

    The formula is in S = bits d, d and bits b.

    >>> describe_price(lambda d, b: d * b // 2 + d + 32)
    '0.5 S + d + 32'
    >>> describe_price(lambda d, b: 11 * d - 512)
    '11 d - 512'
    """
    (low, high), (few, many) = (1024, 2048), (16, 32)
    corner = price(low, few)
    by_dim, by_bits = price(high, few) - corner, price(low, many) - corner
    both = price(high, many) - corner - by_dim - by_bits
    models = both / ((high - low) * (many - few))  # coefficients of d b, d, b and 1
    entries = by_dim / (high - low) - models * few
    extra = by_bits / (many - few) - models * low
    rest = corner - models * low * few - entries * low - extra * few
    parts = [(models, "S"), (entries, "d"), (extra, "b")]
    shown = [
        (count < 0, unit if abs(abs(count) - 1) < 1e-3 else f"{abs(count):.3g} {unit}")
        for count, unit in parts
        if abs(count) > 5e-3
    ]
    shown += [(rest < 0, f"{abs(rest):.0f}")] if abs(rest) > 0.5 else []
    text = "".join(f"{' - ' if below else ' + '}{term}" for below, term in shown)
    if text.startswith(" - "):
        return f"-{text[3:]}"
    return text.removeprefix(" + ") or "0"


def print_methods(rows: Sequence[Json]) -> None:
    """Print a line a method."""
    from rich.console import Console

    from folkman.report.tables import screen_table

    known = bibtex()
    headings = ("name", "paper", "role", "bits of a message", "of an answer", "bits of a round")
    keys = ("role", "node_bits", "server_bits", "round_bits", "assumes", "verified")
    lines = [
        [row["name"], _authors(known[row["name"]]) if row["name"] in known else ""]
        + [row[key] for key in keys]
        for row in rows
    ]
    table = screen_table("pppppppp", (*headings, "assumes that", "checked against"), lines)
    console = Console(width=None if Console().is_terminal else 150)
    console.print(table)
    console.print(
        "d parameters of b bits: S = d b, a model. Broadcasts are counted once. Where nothing says "
        "what a method was checked against, its file does. BibTeX: folkman cite NAME",
        highlight=False,
    )


def print_graphs(rows: Sequence[Json]) -> None:
    """Print a line per graph."""
    from rich.console import Console

    from folkman.report.tables import screen_table

    lines = []
    for row in rows:
        edges = "directed" if row["directed"] else ""
        new = "in each round" if row["varies"] else ""
        lines.append([row["name"], edges, new, row["text"]])
    console = Console(width=None if Console().is_terminal else 150)
    console.print(screen_table("pppp", ("topology", "edges", "new edges", "is"), lines))
    console.print(
        "Or a graph of your own: a file of lines from,to[,weight] (.csv, .txt), a matrix (.npy, "
        ".npz), or 'edges: 0-1 1>2'. Directed graphs are for sgp, dsgt and rfast.",
        highlight=False,
    )
