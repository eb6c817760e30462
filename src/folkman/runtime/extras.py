"""Packages that only devices need, imported where they are used."""

from functools import cache
from importlib import import_module
from typing import Any

__all__ = ["need"]


@cache
def need(module: str) -> Any:
    """Return an optional module, or say what to install."""
    try:
        return import_module(module)
    except ImportError:
        raise RuntimeError(
            f"this needs the package '{module.split('.')[0]}', which is not installed; pip install 'folkman[devices]'"
        ) from None
