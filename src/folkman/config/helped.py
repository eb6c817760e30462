"""What `help` shows of public functions and classes: their text, then what each parameter means.

    slot_s: float = 1.0
      T, seconds a slot

The meanings stand beside the names in the source (`folkman.config.meanings`). They are read when
somebody looks at the text, so that importing and using folkman costs nothing more.
"""

import inspect
from collections.abc import Callable
from functools import cached_property
from textwrap import fill
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from folkman.config.meanings import Meant

__all__ = ["helped"]

WIDTH = 78
"""Columns of a text of help, which `help` indents by four or so."""

READ = ["__add__", "__contains__", "__eq__", "__format__", "__getitem__", "__hash__", "__iter__"]
READ += ["__len__", "__ne__", "__repr__", "__str__"]
READ += [name for name in dir(str) if not name.startswith("_")]
"""How a text is read."""


class Helped(str):
    """A docstring that says what the parameters mean, once it is read.

    It is the plain docstring where the source cannot be read.
    """

    _plain: str
    _thing: Any  # the function or class that it belongs to

    @cached_property
    def whole(self) -> str:
        """The docstring with the meanings below it."""
        below = _parameters(self._thing)
        return f"{inspect.cleandoc(self._plain)}\n\n{below}" if below else self._plain


def _reading(name: str) -> Callable[..., Any]:
    def read(text: Helped, *given: Any, **named: Any) -> Any:
        plain = [each.whole if isinstance(each, Helped) else each for each in given]
        return getattr(text.whole, name)(*plain, **named)

    read.__name__ = name
    return read


for _name in READ:
    setattr(Helped, _name, _reading(_name))


def helped(thing: Any) -> Any:
    """Return a public thing; a function or class of folkman says what its parameters mean."""
    for each in (thing, *_methods(thing)):
        if _is_described(each):
            text = Helped(each.__doc__)
            text._plain, text._thing = each.__doc__, each
            each.__doc__ = text
    return thing


def _methods(thing: Any) -> list[Any]:
    """Return the public methods that a class defines, the first time that it is asked for."""
    if not (inspect.isclass(thing) and _is_described(thing)):
        return []
    found = {
        name: getattr(member, "__func__", member)
        for name, member in vars(thing).items()
        if not name.startswith("_")
    }
    return [
        each
        for name, each in found.items()
        if getattr(each, "__qualname__", None) == f"{thing.__qualname__}.{name}"
    ]


def _is_described(thing: Any) -> bool:
    """Tell whether this is a function or class with a plain docstring."""
    known = inspect.isclass(thing) or inspect.isfunction(thing)
    return known and type(thing.__doc__) is str


def _parameters(thing: Any) -> str:
    """Return a paragraph for each parameter or field, or nothing where there is no source."""
    from folkman.config.meanings import meanings

    try:
        found = meanings(thing)
    except (OSError, SyntaxError, TypeError, ValueError):
        return ""
    title = "Fields:" if inspect.isclass(thing) else "Parameters:"
    told = [_paragraph(name, each) for name, each in found.items()]
    return "\n".join([title, *told]) if told else ""


def _paragraph(name: str, each: "Meant") -> str:
    """Return a parameter as it is written, and what it means below."""
    kind = f": {each.kind}" if each.kind else ""
    default = "" if each.default is None else f" = {each.default}"
    inset = " " * 4
    meaning = fill(each.meaning, WIDTH, initial_indent=inset, subsequent_indent=inset)
    return f"  {name}{kind}{default}\n{meaning}".rstrip()
