"""Which library computes in this process: JAX, or NumPy on a board that has no room for JAX.

    jax      compiles programs; the simulator needs it, and it is taken wherever it is installed
    numpy    the same methods and draws on NumPy alone (`folkman.light`)

The choice is made once, before `folkman.arrays` is first imported, and holds for the process.
"""

import os
from importlib.util import find_spec
from typing import Literal, NamedTuple, TypeAlias

from folkman.checks import require

__all__ = ["VARIABLE", "Arithmetic", "Chosen", "choose", "chosen"]

Arithmetic: TypeAlias = Literal["auto", "jax", "numpy"]
VARIABLE = "FOLKMAN_ARITHMETIC"
"""Environment variable that chooses where nobody else does."""


class Chosen(NamedTuple):
    """A library, and why it is this one."""

    name: str
    why: str


_made: list[Chosen] = []


def choose(asked: Arithmetic = "auto") -> Chosen:
    """Choose for this process, and return what holds; a second choice must be the same."""
    found = _find(asked)
    if not _made:
        _made.append(found)
    require(
        asked == "auto" or _made[0].name == found.name,
        f"arithmetic = '{asked}' was asked for, and this process computes with {_made[0].name} "
        "already; start another process",
    )
    return _made[0]


def chosen() -> Chosen:
    """Return what this process computes with."""
    return _made[0] if _made else choose("auto")


def _find(asked: Arithmetic) -> Chosen:
    require(
        asked in ("auto", "jax", "numpy"),
        f"arithmetic must be 'auto', 'jax' or 'numpy', got {asked!r}",
    )
    by = "asked for"
    if asked == "auto" and os.environ.get(VARIABLE):
        asked, by = os.environ[VARIABLE], f"asked for by {VARIABLE}"  # type: ignore[assignment]
        require(asked in ("jax", "numpy"), f"{VARIABLE} must be 'jax' or 'numpy', got {asked!r}")
    if asked == "numpy":
        return Chosen("numpy", by)
    installed = _installed()
    require(
        installed or asked == "auto",
        "arithmetic = 'jax' was asked for, and JAX is not installed; pip install jax, "
        "or leave the key out for NumPy",
    )
    if installed:
        return Chosen("jax", by if asked == "jax" else "JAX is installed")
    return Chosen("numpy", "JAX is not installed")


def _installed() -> bool:
    try:
        return find_spec("jax") is not None
    except ImportError:
        return False
