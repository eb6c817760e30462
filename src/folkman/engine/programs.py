"""Compiled programs, shared by all runs that are alike, and given back when they are many.

`jax.jit` keeps what it has compiled for as long as the function lives, and what it was compiled for
with it. A loop over thousands of hand-made algorithms would then fill the process with programs
that are never used again: each takes megabytes and hundreds of the kernel's memory maps, of which a
process has 65,530. Here only the programs that were used last are kept.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import wraps
from threading import Lock
from typing import Generic, ParamSpec, TypeVar

import jax
import numpy as np

from folkman.machine import compiled_in_haste

__all__ = ["Programs", "compiled"]

Given = ParamSpec("Given")
Result = TypeVar("Result")

MOST_KEPT = 48
"""Programs of one function: enough for the methods of a comparison that take turns."""


class Programs(Generic[Given, Result]):
    """A function that is compiled once for all arguments of one structure and shape.

    Several threads may call it; JAX itself compiles what two of them call at a time once.
    """

    def __init__(
        self,
        function: Callable[Given, Result],
        fixed: tuple[int, ...] = (),
        donated: int | None = None,
        *,
        once: bool = False,
    ) -> None:
        self._function = function
        self._once = once
        self._fixed = fixed
        self._donated = donated
        self._kept: OrderedDict[Hashable, Callable[Given, Result]] = OrderedDict()
        self._choosing = Lock()
        wraps(function)(self)

    def __call__(self, *args: Given.args, **kwargs: Given.kwargs) -> Result:
        """Run the program of these arguments; compile it if it is not kept."""
        fixed = tuple(args[place] for place in self._fixed)
        traced = [arg for place, arg in enumerate(args) if place not in self._fixed]
        precise = jax.config.jax_enable_x64  # type: ignore[attr-defined]
        leaves, structure = jax.tree.flatten((traced, kwargs))
        shapes = tuple(np.shape(leaf) for leaf in leaves)
        alike = (structure, shapes, fixed, precise)
        with self._choosing:
            program = self._kept.pop(alike, None) or self._program()
            self._kept[alike] = program
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return program(*args, **kwargs)

    def _program(self) -> Callable[Given, Result]:
        """Return a program that is compiled when it is called."""
        options = compiled_in_haste(jax.default_backend()) if self._once else {}
        return jax.jit(
            self._copy(),
            static_argnums=self._fixed,
            donate_argnums=self._donated,
            compiler_options=options or None,
        )

    def _copy(self) -> Callable[Given, Result]:
        """Return the function as one of its own: what was compiled for it goes with it."""

        @wraps(self._function)
        def copy(*args: Given.args, **kwargs: Given.kwargs) -> Result:
            return self._function(*args, **kwargs)

        return copy

    def __len__(self) -> int:
        return len(self._kept)


def compiled(
    fixed: tuple[int, ...] = (), donated: int | None = None, *, once: bool = False
) -> Callable[[Callable[Given, Result]], Programs[Given, Result]]:
    """Decorate a function: `fixed` are the places of arguments that a program is made for.

    `donated` is the place of one that is written over. A function that is called `once` in a run is
    compiled in haste.
    """
    return lambda function: Programs(function, fixed, donated, once=once)
