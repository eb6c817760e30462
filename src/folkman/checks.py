"""Errors are part of the interface: each says what was expected, what came, what to do."""

import difflib
import warnings
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

__all__ = [
    "Notice",
    "nearest",
    "need",
    "notice",
    "one_of",
    "pick",
    "require",
    "require_positive",
    "within",
]

Entry = TypeVar("Entry")


class Notice(UserWarning):
    """What a user should know of what was given; commands print it in a line of its own."""


def notice(text: str) -> None:
    """Warn of something in what was given that may not be what was meant."""
    warnings.warn(text, Notice, stacklevel=3)


def require(holds: bool, message: str) -> None:
    """Raise ValueError unless `holds`; a message says what was expected, what came, what to do."""
    if not holds:
        raise ValueError(message)


def within(
    value: Any,
    least: float = float("-inf"),
    most: float = float("inf"),
    *,
    above: float | None = None,
    below: float | None = None,
) -> bool:
    """Tell whether least <= value <= most, and above < value < below where they are given.

    A traced value is let through: there is no number to look at yet.
    """
    from folkman.arrays import Tracer

    if isinstance(value, Tracer):
        return True
    inside = bool(least <= value <= most)
    return inside and (above is None or value > above) and (below is None or value < below)


@cache
def need(module: str, install: str = "folkman[devices]") -> Any:
    """Return an optional module, or say what to install."""
    try:
        return import_module(module)
    except ImportError:
        package = module.split(".")[0]
        raise RuntimeError(
            f"this needs the package '{package}', which is not installed; pip install '{install}'"
        ) from None


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a hint: the nearest known name if one is near, and all of them."""
    names = list(known)
    if not names:
        return "none is known"
    close = difflib.get_close_matches(word, names, n=1)
    return (f"did you mean {close[0]!r}? " if close else "") + f"known: {', '.join(names)}"


def one_of(what: str, name: str | None, known: Iterable[str], where: str = "") -> None:
    """Refuse a name that is not known, with the nearest one that is; None names nothing.

    >>> one_of("fruit", "aple", ["apple"])
    Traceback (most recent call last):
    ValueError: there is no fruit 'aple'; did you mean 'apple'? known: apple
    """
    names = list(known)
    if name is not None and name not in names:
        raise ValueError(f"{where}there is no {what} '{name}'; {nearest(name, names)}")


def pick(known: Mapping[str, Entry], kind: str) -> Entry:
    """Return the entry called `kind`; an unknown name is refused with the nearest known one."""
    if kind not in known:
        raise ValueError(f"there is no {kind!r}; {nearest(kind, known)}")
    return known[kind]


def require_positive(name: str, value: object, remedy: str) -> None:
    """Raise ValueError unless `value` is positive and finite; a traced value is let through.

    The numeric core checks here, where values enter: under `jit` there is no number to look at.
    """
    import numpy as np

    from folkman.arrays import Tracer

    if isinstance(value, Tracer):
        return
    concrete = np.asarray(value)
    if not np.all((concrete > 0) & np.isfinite(concrete)):
        raise ValueError(f"expected {name} positive and finite, got {name} = {value}; {remedy}")
