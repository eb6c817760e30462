"""Tables that choose a builder: `name` picks it, the other keys are its options.

The options of a table are read off the builder's signature, so that a new data set, model, delay law or algorithm is
configurable without a line here; an unknown key is refused with the nearest known one.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, get_type_hints

from pydantic import ConfigDict, ValidationError, create_model

from folkman.checks import nearest

__all__ = ["Choice", "ConfigError", "describe"]


class ConfigError(ValueError):
    """A configuration that cannot be run: says what was expected, what came, what to do."""


class Choice(NamedTuple):
    """One kind of table: its builders, what the experiment hands them, and keys that all of them take."""

    table: str
    builders: Mapping[str, Callable[..., Any]]
    given: frozenset[str] = frozenset()  # parameters that come from elsewhere, never from the table
    common: Mapping[str, tuple[Any, Any]] = {}  # key -> (type, default)

    def resolve(self, raw: Any, where: str | None = None) -> dict[str, Any]:
        """Return the table with every default filled in, or raise `ConfigError`."""
        where = where or self.table
        if not isinstance(raw, dict) or "name" not in raw:
            raise ConfigError(f"[{where}] must be a table with a name, got {raw!r}; {nearest('', self.builders)}")
        name = raw["name"]
        if name not in self.builders:
            raise ConfigError(f"[{where}] has no '{name}'; {nearest(str(name), self.builders)}")
        fields = self.options(name)
        rest = {key: value for key, value in raw.items() if key != "name"}
        for key in rest:
            if key not in fields:
                hint = nearest(key, fields) if fields else "it has no options"
                raise ConfigError(f"unknown key '{where}.{key}' for '{name}'; {hint}")
        schema = create_model(f"{self.table}_{name}", __config__=ConfigDict(extra="forbid"), **fields)  # type: ignore[call-overload]
        try:
            return {"name": name, **schema(**rest).model_dump()}
        except ValidationError as error:
            raise ConfigError(describe(error, where)) from None

    def options(self, name: str) -> dict[str, tuple[Any, Any]]:
        """Return the options of a builder: key -> (type, default)."""
        builder = self.builders[name]
        hints = get_type_hints(builder)
        own = {
            key: (hints[key], ... if parameter.default is parameter.empty else parameter.default)
            for key, parameter in inspect.signature(builder).parameters.items()
            if key not in self.given
        }
        return {**own, **self.common}

    def takes(self, name: str) -> frozenset[str]:
        """Return the names of all that a builder takes, given ones too."""
        return frozenset(inspect.signature(self.builders[name]).parameters)

    def build(self, table: Mapping[str, Any], **given: Any) -> Any:
        """Call the builder with the table's options and those of `given` that it takes."""
        builder, takes = self.builders[table["name"]], self.takes(table["name"])
        options = {key: value for key, value in table.items() if key != "name" and key not in self.common}
        return builder(**options, **{key: value for key, value in given.items() if key in takes})


def describe(error: ValidationError, where: str) -> str:
    """Return the first complaint of pydantic in our words."""
    first = error.errors()[0]
    branches = ("constrained-float", "Latency")  # pydantic names the branch of a union that it tried
    path = ".".join(str(part) for part in (where, *first["loc"]) if part != "" and part not in branches)
    if first["type"] == "missing":
        return f"'{path}' is needed and was not given; add it"
    return f"'{path}' is not right: {first['msg'][:1].lower()}{first['msg'][1:]}; got {first['input']!r}"
