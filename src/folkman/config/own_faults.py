"""What goes wrong in own code after it was built: an error becomes a sentence that names its line.

A method, a model or a network of one's own runs inside compiled programs, where a mistake ends in
a hundred lines of traceback. The innermost call that lies in an own file is the one to correct.
"""

import traceback
from itertools import takewhile
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from folkman.config import plugins

__all__ = ["VARIABLE", "told"]

VARIABLE = "FOLKMAN_TRACEBACK"
"""Variable of the environment: set to 1, commands print the whole traceback, too."""

PACKAGE = Path(__file__).parents[1]
CALLERS = ("engine", "problem")
"""Folders whose functions call own code."""

OF_ARRAYS = (TypeError, ValueError, AttributeError, LookupError)
"""What a wrong shape or type raises in the function that meets it."""

DECIDES = (
    "a Number is an argument of a compiled program and cannot decide a branch: give it the type "
    "float, or use jnp.where"
)
MEASURES = (
    "a value of a compiled program cannot be a shape, a range or an index of Python: give the "
    "option the type int"
)
REMEDIES = {
    "TracerBoolConversionError": DECIDES,
    "TracerIntegerConversionError": MEASURES,
    "ConcretizationTypeError": MEASURES,
    "NonConcreteBooleanIndexError": "a compiled program has fixed shapes: use jnp.where",
    "TracerArrayConversionError": "NumPy cannot take values of a compiled program: use jnp of "
    "folkman.arrays",
    "UnexpectedTracerError": "a value of a compiled program was kept outside of it: return it in "
    "the state",
}
"""Error of JAX -> what to do."""


class _Call(NamedTuple):
    """A call on the way to an error."""

    file: str
    line: int
    function: str  # with the functions that it is written in


def told(error: BaseException) -> str | None:
    """Return a sentence on an error that own code made; None if it is none of own code's.

    An error that folkman raises on purpose, outside of own code, has its own sentence.
    """
    texts = plugins.own_texts()
    calls = _calls(error.__traceback__)
    if not texts or not calls:
        return None
    own = [call for call in calls if call.file in texts]
    if own:
        return _at(own[-1], texts[own[-1].file], error)
    return _beside(calls, list(texts), error) if _is_of_arrays(calls, error) else None


def _at(call: _Call, text: str, error: BaseException) -> str:
    """Return which function of an own file made an error, where, and what to do."""
    builder = "".join(takewhile(lambda sign: sign not in ".<", call.function))
    name = f"{Path(call.file).name}:{builder}" if builder else Path(call.file).name
    written = text.splitlines()[call.line - 1 : call.line]
    shown = f", `{written[0].strip()}`" if written else ""
    where = f"{_near(call.file)}, line {call.line}{shown}"
    return f"'{name}' raised {type(error).__name__} at {where}: {_said(error)}; {_remedy(error)}"


def _beside(calls: list[_Call], files: list[str], error: BaseException) -> str:
    """Return what folkman met with what own code returned; no line of own code is to blame."""
    at = next((call for call in reversed(calls) if PACKAGE in Path(call.file).parents), calls[-1])
    return (
        f"folkman could not go on with what own code returned ({', '.join(map(_near, files))}): "
        f"{type(error).__name__} in {at.function} of {Path(at.file).name}: {_said(error)}; its "
        f"functions must return the shapes and types that they are given; {VARIABLE}=1 shows all "
        "calls"
    )


def _calls(trace: TracebackType | None) -> list[_Call]:
    """Return the calls that led to an error, outermost first."""
    walked = traceback.walk_tb(trace)
    return [_Call(at.f_code.co_filename, line, at.f_code.co_qualname) for at, line in walked]


def _is_of_arrays(calls: list[_Call], error: BaseException) -> bool:
    """Tell whether arithmetic of folkman failed that calls own code, and not by `raise`."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    if PACKAGE in Path(last.filename).parents and (last.line or "").startswith("raise "):
        return False
    called = any(PACKAGE / room in Path(call.file).parents for call in calls for room in CALLERS)
    return called and isinstance(error, OF_ARRAYS)


def _near(file: str) -> str:
    """Return a path from the working directory where it lies below it."""
    path = Path(file)
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _said(error: BaseException) -> str:
    """Return the first line of what an error says, without its full stop."""
    lines = str(error).strip().splitlines() or ["it says no more"]
    return lines[0].strip().rstrip(".:")


def _remedy(error: BaseException) -> str:
    kinds = [kind.__name__ for kind in type(error).__mro__]
    known = [REMEDIES[kind] for kind in kinds if kind in REMEDIES]
    return known[0] if known else f"correct it; {VARIABLE}=1 shows all calls"
