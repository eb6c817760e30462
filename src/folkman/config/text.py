"""Configurations as text: TOML read, overridden by dotted keys, and written again."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from folkman.checks import notice, require
from folkman.config.choices import ConfigError
from folkman.config.plugins import anchored
from folkman.record.json_file import Json, Table, quoted

__all__ = ["DEFAULT", "TUNED", "dump", "gather", "literal", "override", "parse_value", "put"]
__all__ += ["read", "refuse_beside_resume", "with_data_files"]

DEFAULT: Json = tomllib.loads(Path(__file__).with_name("default.toml").read_text(encoding="utf-8"))
"""What `folkman run` does when told nothing."""
TUNED: Json = DEFAULT.pop("tuned")
"""The table [tuned] that a search wrote for the algorithms of DEFAULT."""

DATA_FILES = ("path", "folder")
"""Keys of [data] that name a file or a folder of the user's own."""


def read(path: str | Path, *, warn: bool = True) -> Json:
    """Read a TOML file, or say where it is wrong; own code and data are looked up beside it.

    With `warn`, code from outside the file's folder is named on standard error.
    """
    try:
        # some editors begin a file with a mark of UTF-8, which nobody sees
        raw = tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
        here = Path(path).resolve().parent
        return with_data_files(anchored(raw, here, warn=warn), here, warn=warn)
    except FileNotFoundError:
        raise ConfigError(
            f"expected a configuration file, there is no {path}; check the path"
        ) from None
    except IsADirectoryError:
        raise ConfigError(
            f"expected a configuration file, {path} is a folder; name the .toml in it"
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"expected TOML in {path}, it is not text in UTF-8 (byte {error.start}); save it so"
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"expected TOML in {path}: {error}; correct that line") from None
    except RecursionError:
        raise ConfigError(
            f"expected TOML in {path}, its brackets are nested too deep to be read; remove some"
        ) from None
    except ValueError as error:  # of Python's limit on the digits of a number
        if "digits" not in str(error):
            raise
        raise ConfigError(
            f"expected TOML in {path}, one of its numbers has thousands of digits; shorten it"
        ) from None


def gather(
    config: str | Path | Table | None = None, settings: Sequence[str] | Table | None = None
) -> Json:
    """Return the tables of a file, of a dictionary, or none (the default), with settings applied.

    Settings are `a.b=value`, one string each, or a dictionary of values by dotted key.
    """
    if isinstance(settings, str):
        raise ConfigError(
            f"settings are a list of texts or a dictionary, got the text '{settings}'; write "
            f"['{settings}']"
        )
    if not isinstance(config, str | Path | Mapping | None):
        raise ConfigError(
            "a configuration is a path, a dictionary, or nothing for the default comparison; got "
            f"{config!r}"
        )
    raw = {} if config is None else config if isinstance(config, Mapping) else read(config)
    if isinstance(settings, Mapping):
        return with_data_files(anchored(put(raw, settings), Path.cwd()), Path.cwd())
    return override(raw, settings or ())


def with_data_files(value: Any, here: Path, key: str = "", *, warn: bool = True) -> Any:
    """Return tables with the files of their [data] by absolute paths, looked up from `here`.

    Earlier versions looked from the working directory alone. What is there and not here stays as it
    is written; with `warn` a notice says so.
    """
    if isinstance(value, Mapping):
        within = f"{key}." if key == "data" else ""
        return {
            name: with_data_files(item, here, f"{within}{name}", warn=warn)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [with_data_files(item, here, key, warn=warn) for item in value]
    named = key in {f"data.{each}" for each in DATA_FILES} and isinstance(value, str) and value
    return _data_file(value, here, warn=warn) if named else value


def _data_file(value: str, here: Path, *, warn: bool) -> str:
    """Return one file by its absolute path, or as it is written where only that one is there."""
    path = Path(value).expanduser()
    beside = (here / path).resolve()
    if beside.exists() or not path.exists():
        return str(beside)
    if warn:
        notice(
            f"there is no {beside}, so {path.resolve()} is read; a path in a configuration is "
            "looked up beside its file: correct it there, or give it as --set data.path=..."
        )
    return value


def refuse_beside_resume(*given: object) -> None:
    """Refuse whatever says what to run where a folder is resumed, which says it."""
    text = "--resume takes everything from the folder; leave out the configuration, --set and --out"
    require(not any(given), f"{text}, and all else that says what to run")


def override(raw: Table, settings: Sequence[str]) -> Json:
    """Apply settings `a.b=value` in order. A new `X.name` starts table X afresh.

    `algorithm.0.step` counts from 0.

    A file of own code or data in a setting is looked up in the working directory.
    """
    tables: Json = deepcopy(dict(raw))
    for setting in settings:
        path, found, text = setting.partition("=")
        keys = path.strip().split(".")
        if not found or not all(keys):
            raise ConfigError(f"a setting looks like network.gamma=10, got '{setting}'")
        _put(tables, keys, parse_value(text.strip()), setting)
    return with_data_files(anchored(tables, Path.cwd()), Path.cwd())


def put(raw: Table, values: Table) -> Json:
    """Apply values by dotted key, as `override` does; names first, as they start tables."""
    tables: Json = deepcopy(dict(raw))
    for path in sorted(values, key=lambda path: not path.endswith(".name")):
        _put(tables, path.split("."), deepcopy(values[path]), path)
    return tables


def parse_value(text: str) -> object:
    """Read a value as TOML does; bare words are strings."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _put(tables: Json, keys: list[str], value: object, setting: str) -> None:
    if keys[0] == "tuned":
        raise ConfigError(
            f"'{setting}': [tuned] notes what a search found and sets nothing; set the option of "
            "the algorithm, as in algorithm.0.step=0.1, or search again with folkman tune"
        )
    if keys[0] in DEFAULT and keys[0] not in tables:
        tables[keys[0]] = deepcopy(DEFAULT[keys[0]])
    place: Any = tables
    for depth, key in enumerate(keys[:-1]):
        if isinstance(place, list):
            if not key.isdigit() or int(key) >= len(place):
                entries = f"{'.'.join(keys[:depth])} has {len(place)} entries"
                raise ConfigError(
                    f"'{setting}': {entries}; write a number from 0, as in algorithm.0.step"
                )
            place = place[int(key)]
        else:
            place = place.setdefault(key, {})
        if not isinstance(place, (dict, list)):
            raise ConfigError(f"'{setting}': {'.'.join(keys[: depth + 1])} is not a table")
    if isinstance(place, list):
        option = "name" if keys[-1].isdigit() else keys[-1]
        raise ConfigError(
            f"'{setting}': {'.'.join(keys[:-1])} is a list of tables; write algorithm.0.{option}"
        )
    if keys[-1] == "name" and len(keys) > 1 and place.get("name") != value:
        place.clear()  # another builder: the options of the old one mean nothing to it
    place[keys[-1]] = value


def dump(fields: Table) -> str:
    """Write a configuration, resolved or not, as TOML."""
    plain = {key: value for key, value in fields.items() if not _is_table(value)}
    lines = [f"{key} = {literal(value)}" for key, value in plain.items() if value is not None]
    for key, value in fields.items():
        if isinstance(value, dict):
            lines += ["", f"[{key}]", *_table(key, value)]
        elif _is_table(value):
            for item in value:
                lines += ["", f"[[{key}]]", *_table(key, item)]
    return "\n".join(lines) + "\n"


def _is_table(value: object) -> bool:
    return isinstance(value, dict) or (
        isinstance(value, (tuple, list)) and bool(value) and isinstance(value[0], dict)
    )


def _table(name: str, table: Table) -> list[str]:
    lines = [
        f"{_key(key)} = {literal(value)}"
        for key, value in table.items()
        if value is not None and not isinstance(value, dict)
    ]
    for key, value in table.items():
        if isinstance(value, dict):
            lines += ["", f"[{name}.{_key(key)}]", *_table(f"{name}.{_key(key)}", value)]
    return lines


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else literal(key)


def literal(value: object) -> str:
    """Return a value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(literal(item) for item in value) + "]"
    if isinstance(value, dict):
        return (
            "{" + ", ".join(f"{_key(key)} = {literal(item)}" for key, item in value.items()) + "}"
        )
    if isinstance(value, (int, float)):
        return repr(value)
    return quoted(str(value))
