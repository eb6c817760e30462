"""For the site: what every parameter and field means, and examples in docstrings as code.

A docstring says what a function does; what its parameters mean stands beside them in the source
(`folkman.config.meanings`). The page gets a table of it. Lines of a docstring that begin with `>>>`
become a block of code, and so do lines that are set in columns.
"""

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import griffe

from folkman import _HOMES
from folkman.config.meanings import meanings

COLUMNS = re.compile(r"\S {2,}\S")


class Described(griffe.Extension):
    """Adds a table of parameters to every public function and class."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Describe what the modules hold whose names are public, once all is loaded."""
        for name in sorted({*_HOMES, *_modules(pkg)}):
            module = import_module(name)
            where = pkg if name == pkg.path else pkg[name.removeprefix(f"{pkg.path}.")]
            for member in where.members.values():
                if not member.is_alias and hasattr(module, member.name):
                    _describe(member, inspect.getattr_static(module, member.name))


def _modules(pkg: griffe.Module) -> Iterator[str]:
    """Yield the modules that the reference documents as a whole."""
    for folder in ("algorithm", "radio", "theory"):
        for name, member in pkg[folder].members.items():
            if member.is_module and not member.is_alias:
                yield f"{pkg.path}.{folder}.{name}"
    for name, member in pkg["algorithm.pieces"].members.items():
        if member.is_module and not member.is_alias:
            yield f"{pkg.path}.algorithm.pieces.{name}"


def _describe(found: Any, thing: Any) -> None:
    if found.docstring is None or not (found.is_function or found.is_class):
        return
    real = getattr(thing, "__func__", thing)
    if not (inspect.isclass(real) or inspect.isroutine(real)):
        return
    found.docstring.value = as_code(found.docstring.value)
    table = [
        griffe.DocstringParameter(
            name, description=each.meaning, annotation=each.kind, value=each.default
        )
        for name, each in meanings(real).items()
    ]
    if table:
        kind = griffe.DocstringSectionParameters
        found.docstring.parsed.append(kind(table, title="Fields" if found.is_class else None))
    if found.is_class:
        for name, member in found.members.items():
            if name in vars(real) and not name.startswith("_"):
                _describe(member, vars(real)[name])


def as_code(text: str) -> str:
    """Return a docstring with its examples, and its paragraphs in columns, as blocks of code."""
    paragraphs = text.split("\n\n")
    return "\n\n".join(_block(each) for each in paragraphs)


def _block(paragraph: str) -> str:
    lines = paragraph.split("\n")
    if lines[0].startswith(">>>"):
        return "\n".join(["```pycon", *lines, "```"])
    if len(lines) > 1 and all(COLUMNS.search(line) for line in lines):
        return "\n".join(["```text", *lines, "```"])
    return paragraph
