"""Tables that choose a builder: `name` picks it, the other keys are its options.

The options of a table are read off the builder's signature, so that a new data set, model, delay
law or algorithm is configurable without a line here; an unknown key is refused with the nearest
known one. A name that is not built in is looked up outside the package (`folkman.config.plugins`).
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeAlias, get_args, get_type_hints

import numpy as np
from pydantic import BaseModel, ConfigDict, PydanticUserError, ValidationError, create_model

from folkman.algorithm.base import Algorithm
from folkman.checks import nearest
from folkman.config import plugins
from folkman.packing.packing import Packing
from folkman.problem.data import DataSet
from folkman.problem.models import Model
from folkman.radio.delivery import Network
from folkman.record.json_file import Json, Table

__all__ = ["CHECKS", "Choice", "ConfigError", "describe"]

ANY_NUMBER = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

KNOWN_OPTIONS: dict[tuple[str, object], dict[str, tuple[object, object]]] = {}
"""(table, built-in builder) -> what `Choice.options` read off its signature."""
KNOWN_FORMS: dict[tuple[str, object], type[BaseModel]] = {}
"""(table, built-in builder) -> the model that checks its options; to make one takes milliseconds.
Builders of one's own are read anew each time, since their file may change."""


class ConfigError(ValueError):
    """A configuration that cannot be run: says what was expected, what came, what to do."""


class Choice(NamedTuple):
    """One kind of table: its builders, what the experiment gives them, and the keys of all."""

    table: str
    builders: Mapping[str, plugins.Builder]
    given: frozenset[str]  # parameters that come from elsewhere, never from the table
    common: Mapping[str, tuple[object, object]] = {}  # key -> (type, default)

    def resolve(self, raw: object, where: str | None = None) -> Json:
        """Return the table with every default filled in, or raise `ConfigError`."""
        where = where or self.table
        if not isinstance(raw, dict) or "name" not in raw:
            write = f'write {where}.name = "{raw}"; ' if isinstance(raw, str) else ""
            write = "add the name; " if isinstance(raw, dict) else write
            raise ConfigError(
                f"[{where}] must be a table with a name, got {raw!r}; {write}"
                f"{nearest('', self.builders)}"
            )
        name = raw["name"]
        try:
            if not isinstance(name, str) or name not in self.builders:
                plugins.looked_up(str(name), self.table, self.builders)
            fields = self.options(name)
            rest = {key: value for key, value in raw.items() if key != "name"}
            for key in rest:
                if key not in fields:
                    hint = nearest(key, ["name", *fields]) if fields else "it has no options"
                    raise ConfigError(f"unknown key '{where}.{key}' for '{name}'; {hint}")
                _refuse_functions(f"{where}.{key}", fields[key][0], rest[key], name)
            return {"name": name, **self.form(name, fields)(**rest).model_dump()}
        except ValidationError as error:
            raise ConfigError(describe(error, where)) from None
        except PydanticUserError as error:
            said = str(error).partition("\n")[0]
            lost = f"[{where}] '{name}' has an option that no configuration can hold"
            raise ConfigError(f"{lost}: {said}") from None
        except ConfigError:
            raise
        except ValueError as error:
            raise ConfigError(f"[{where}] {error}") from None

    def options(self, name: str) -> dict[str, tuple[object, object]]:
        """Return the options of a builder: key -> (type, default); any type if it names none."""
        known = KNOWN_OPTIONS.get((self.table, self.builders.get(name)))
        if known is not None:
            return {**known}
        try:
            hints = get_type_hints(self._builder(name))
        except NameError as error:
            text = f"names '{name}', whose types cannot be read: {error}; import them"
            raise ValueError(text) from None
        own = {}
        for key, each in self._parameters(name).items():
            if key not in self.given:
                own[key] = (
                    hints.get(key, Any),
                    ... if each.default is each.empty else each.default,
                )
        if name in self.builders:
            KNOWN_OPTIONS[self.table, self.builders[name]] = {**own, **self.common}
        return {**own, **self.common}

    def form(self, name: str, fields: Mapping[str, tuple[object, object]]) -> type[BaseModel]:
        """Return the model that checks the options of a builder."""
        known = KNOWN_FORMS.get((self.table, self.builders.get(name)))
        if known is not None:
            return known
        kind, config = f"{self.table}_{plugins.title(name)}", ConfigDict(extra="forbid")
        form = create_model(kind, __config__=config, **fields)  # type: ignore[call-overload]
        if name in self.builders:
            KNOWN_FORMS[self.table, self.builders[name]] = form
        return form

    def takes(self, name: str) -> frozenset[str]:
        """Return the names of all that a builder takes, given ones too."""
        return frozenset(self._parameters(name))

    def needs(self, name: str) -> frozenset[str]:
        """Return what a builder must be given: parameters without a default, no options."""
        found = self._parameters(name).items()
        return frozenset(
            key for key, each in found if key in self.given and each.default is each.empty
        )

    def build(self, table: Table, **given: object) -> Any:
        """Call the builder with the table's options and those of `given` that it takes."""
        name, takes = table["name"], self.takes(table["name"])
        apart = ("name", *self.common)
        options = {key: value for key, value in table.items() if key not in apart}
        options |= {key: value for key, value in given.items() if key in takes}
        if name in self.builders:
            return self.builders[name](**options)
        try:
            built = self._builder(name)(**options)
        except (Exception, SystemExit) as error:  # the configuration that names it is wrong
            place = name.rpartition(":")[0]
            raise ConfigError(f"'{name}' {plugins.raised(error, place)}") from None
        if wrong := CHECKS[self.table](built, given):
            raise ConfigError(f"'{name}': {wrong}; correct what it returns")
        return built

    def own(self, name: str) -> plugins.Plugin | None:
        """Return what a name outside the package stands for; nothing for a built-in one."""
        return None if name in self.builders else plugins.load(name, self.table)

    def _builder(self, name: str) -> plugins.Builder:
        own = self.own(name)
        return self.builders[name] if own is None else own.builder

    def _parameters(self, name: str) -> dict[str, inspect.Parameter]:
        if name in self.builders:
            return _of_built_in(self.builders[name])
        return _named_parameters(self._builder(name))


@cache
def _of_built_in(builder: plugins.Builder) -> dict[str, inspect.Parameter]:
    """Read the parameters of a builder that stays as long as the process, once."""
    return _named_parameters(builder)


def _named_parameters(builder: plugins.Builder) -> dict[str, inspect.Parameter]:
    found = inspect.signature(builder).parameters
    return {key: each for key, each in found.items() if each.kind not in ANY_NUMBER}


EXPECTED = {
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_parsing": "a number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "string_type": "text",
    "string_too_long": "at most {max_length} letters",
    "string_pattern_mismatch": "letters, digits, spaces and the signs . + - _",
    "tuple_type": "a list, as [0, 1, 2]",
    "list_type": "a list, as [0, 1, 2]",
    "dict_type": "a table",
    "dataclass_type": "a table",
    "model_type": "a table",
    "too_short": "at least {min_length} entries",
    "greater_than": "more than {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "less_than": "less than {lt:g}",
    "less_than_equal": "at most {le:g}",
    "literal_error": "{expected}",
}
"""Kind of complaint of pydantic -> what was expected, in plain words."""
BRANCH = re.compile(
    r"(constrained-|literal\[|tuple\[|list\[|dict\[)|(int|float|str|bool|[A-Z]\w+)$"
)
"""How pydantic names the branch of a union that it tried."""


def describe(error: ValidationError, where: str) -> str:
    """Return a complaint of pydantic in our words: of the first key, the one that says most."""
    every = error.errors()
    first = every[0]
    if first["loc"]:  # of a union, the branch that went deepest is the one that was meant
        alike = (each for each in every if each["loc"][:1] == first["loc"][:1])
        first = max(alike, key=lambda each: len(each["loc"]))
    path = ".".join(
        str(part) for part in (where, *first["loc"]) if part != "" and not BRANCH.match(str(part))
    )
    if first["type"] == "missing":
        return f"'{path}' is needed and was not given; add it"
    plain = EXPECTED.get(first["type"])
    told = first["msg"].removeprefix("Value error, ")
    told = told[:1].lower() + told[1:]
    if plain is not None:
        told = f"expected {plain.format(**first.get('ctx', {}))}"
    return f"'{path}' is not right: {told}; got {first['input']!r}"


Check: TypeAlias = Callable[[object, Table], str]
"""(what a builder returned, what it was given) -> expected and found; nothing if all is well."""


def _of_type(kind: type, name: str) -> Check:
    return lambda value, _: "" if isinstance(value, kind) else _expected(name, value)


def _check_model(value: object, given: Table) -> str:
    return _of_type(Model, "an fm.Model")(value, given) or _hashable(value)


def _check_data(value: object, _: Table) -> str:
    """Check that a data set was built: NumPy arrays, as many targets as samples."""
    if not isinstance(value, DataSet):
        return _expected("an fm.DataSet", value)
    for x, y in (("x_train", "y_train"), ("x_test", "y_test")):
        for name in (x, y):
            if not isinstance(getattr(value, name), np.ndarray):
                return _expected(f"{name} to be a NumPy array", getattr(value, name))
        samples, targets = len(getattr(value, x)), len(getattr(value, y))
        if samples != targets:
            return f"expected as many {y} as {x}, got {targets} and {samples}"
    return ""


def _check_partition(value: object, given: Table) -> str:
    """Check that every node has an array of sample numbers."""
    nodes, samples = given["nodes"], len(given["labels"])
    wanted = f"a list of {nodes} arrays of sample numbers, one per node"
    if not isinstance(value, Sequence):
        return _expected(wanted, value)
    if len(value) != nodes:
        return f"expected {wanted}, got a {type(value).__name__} of {len(value)}"
    for node, part in enumerate(value):
        row = isinstance(part, np.ndarray) and part.ndim == 1
        if not row or not np.issubdtype(part.dtype, np.integer):
            own = f"{wanted}; of node {node} a one-dimensional array of whole numbers"
            return _expected(own, part)
        if len(part) == 0:
            return f"expected samples on every node, got none on node {node}"
        low, high = int(part.min()), int(part.max())
        if low < 0 or high >= samples:
            return f"expected sample numbers in 0..{samples - 1}, got {low}..{high} on node {node}"
    return ""


def _check_network(value: object, _: Table) -> str:
    """Check that a network was built, and can be hashed."""
    if not isinstance(value, Network):
        return _expected("an fm.Network", value)
    return _hashable(value)


def _check_projection(value: object, _: Table) -> str:
    return "" if callable(value) else _expected("a function (w, step) -> w", value)


def _hashable(value: object) -> str:
    try:
        hash(value)
    except TypeError:
        remedy = "make it a frozen dataclass"
        return f"expected a value that can be hashed, got {type(value).__name__}; {remedy}"
    return ""


def _expected(what: str, value: object) -> str:
    shape = f" of {value.dtype} with shape {value.shape}" if isinstance(value, np.ndarray) else ""
    kind = "nothing" if value is None else type(value).__name__
    return f"expected {what}, got {kind}{shape}"


CHECKS: dict[str, Check] = {
    "algorithm": _of_type(Algorithm, "an fm.Algorithm"),
    "data": _check_data,
    "model": _check_model,
    "compression": _of_type(Packing, "an fm.Packing"),
    "network": _check_network,
    "partition": _check_partition,
    "projection": _check_projection,
}
"""What a builder from outside the package must return, by its table; built-in ones do."""


def _refuse_functions(key: str, kind: object, value: object, name: str) -> None:
    """Raise `ConfigError` for a function, or the name of one, where an option is a number."""
    named = isinstance(value, str) and ":" in value and float in (kind, *get_args(kind))
    if callable(value) or named:
        raise ConfigError(
            f"{key} is a function ({value if named else 'in Python'}), and a configuration holds "
            f"numbers; write a method of your own that builds {name} with it, for example "
            f"`def mine(): return {name}(step=...)`, and name it as 'mine.py:mine'"
        )
