"""From a builder's options to an algorithm that is a value.

    @method
    def fedavg(step: Number = 0.1, local_steps: int = 1, decay: Decay = Decay()) -> Algorithm: ...

A `method` remembers how its algorithm was built. Options annotated `Number` only enter arithmetic:
they are arguments of a compiled program, so that a loop over steps compiles once. All other options
are fixed in it. So is a text in the place of a number, the name of a policy, and a step that is a
function: two methods with the same function are equal. Inside a program the builder runs again,
with traced numbers, so a builder checks numbers with functions that let a traced one through
(`folkman.checks`).

An option whose type is a NamedTuple of options (`Decay`, `Graph`, `Rule`) appears in the signature
as its fields: `fedavg(decay="cosine", decay_steps=100)`. A group with a function `settled` may
turn what it is given into values that can be compared, as `Graph` does with a matrix.
"""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, NamedTuple, ParamSpec, TypeAlias, get_args, get_type_hints

import numpy as np

from folkman.algorithm.base import Algorithm

__all__ = ["Number", "Recipe", "method", "numbers_of"]

TRACED = "an argument of the compiled program"
Number: TypeAlias = Annotated[float, TRACED]
"""A number that only enters arithmetic."""

Options = ParamSpec("Options")


class Recipe(NamedTuple):
    """How an algorithm was built: equal recipes make equal algorithms."""

    builder: Callable[..., Algorithm]
    fixed: tuple[tuple[str, object], ...]  # options by name
    named: tuple[str, ...]  # the options that are numbers
    numbers: tuple[object, ...]

    def without_numbers(self) -> "Recipe":
        """Return what programs have in common that differ in numbers alone."""
        return self._replace(numbers=())

    def build(self, numbers: tuple[object, ...]) -> Algorithm:
        """Build the algorithm anew with other numbers, traced ones too."""
        options = dict(self.fixed) | dict(zip(self.named, numbers, strict=True))
        return _remembered(self.builder(**options), self._replace(numbers=tuple(numbers)))


def method(
    builder: Callable[..., Algorithm],  # function from options to an algorithm
) -> Callable[..., Algorithm]:
    """Let a builder's algorithms be values, and its groups of options be single options."""
    hints = get_type_hints(builder, include_extras=True)
    parameters, groups = _flat(inspect.signature(builder), hints)
    signature = inspect.Signature(parameters, return_annotation=Algorithm)
    named = tuple(each.name for each in parameters if TRACED in _extras(each.annotation))

    def grouped(**given: object) -> Algorithm:
        options = dict(given)
        for name, kind in groups.items():
            options[name] = kind(**{field: options.pop(field) for field in kind._fields})
        return builder(**options)

    @wraps(builder)
    def build(*args: object, **kwargs: object) -> Algorithm:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        options = dict(bound.arguments)
        for kind in groups.values():
            if hasattr(kind, "settled"):
                options |= kind.settled({field: options[field] for field in kind._fields})
        built = grouped(**options)
        numbers = {name: _number(options[name]) for name in named if _is_number(options[name])}
        fixed = tuple((name, value) for name, value in options.items() if name not in numbers)
        return _remembered(built, Recipe(grouped, fixed, tuple(numbers), tuple(numbers.values())))

    build.__signature__ = signature  # type: ignore[attr-defined]
    build.__annotations__ = {each.name: each.annotation for each in parameters}
    build.__annotations__["return"] = Algorithm
    return build


def numbers_of(builder: Callable[..., Algorithm]) -> frozenset[str]:
    """Return the options of a method that are arguments of its compiled program."""
    hints = getattr(builder, "__annotations__", {})
    return frozenset(name for name, kind in hints.items() if TRACED in _extras(kind))


def _flat(
    signature: inspect.Signature, hints: dict[str, Any]
) -> tuple[list[inspect.Parameter], dict[str, Any]]:
    """Return the parameters with the fields of groups in their places, and the groups by name."""
    found: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    for each in signature.parameters.values():
        kind = hints.get(each.name, Any)
        if not (isinstance(kind, type) and hasattr(kind, "_fields")):
            found.append(each.replace(annotation=kind))
            continue
        groups[each.name] = kind
        types = get_type_hints(kind, include_extras=True)
        found += [
            each.replace(name=name, annotation=types[name], default=_default(each, kind, name))
            for name in kind._fields
        ]
    return found, groups


def _default(parameter: inspect.Parameter, kind: Any, field: str) -> object:
    """Return the default of a group's field: the builder's own, or the group's."""
    if parameter.default is parameter.empty:
        return kind._field_defaults.get(field, parameter.empty)
    return getattr(parameter.default, field)


def _extras(annotation: object) -> tuple[object, ...]:
    """Return what is annotated to a type, or to one of the types of a union."""
    own = getattr(annotation, "__metadata__", ())
    return own + tuple(extra for part in get_args(annotation) for extra in _extras(part))


def _is_number(value: object) -> bool:
    """Tell whether an option has a number to trace: it may be left out, a text or a function."""
    return not isinstance(value, str | None) and not callable(value)


def _number(value: object) -> object:
    """Return a whole number, or one of NumPy's, as a float: all are then one program."""
    return float(value) if isinstance(value, int | float | np.number) else value


def _remembered(algorithm: Algorithm, recipe: Recipe) -> Algorithm:
    """Note how an algorithm was built, as far as its options can be compared by value."""
    for name, noted in (("kind", recipe.without_numbers()), ("recipe", recipe)):
        try:
            hash(noted)
        except TypeError:
            break
        object.__setattr__(algorithm, name, noted)
    return algorithm
