"""The configuration of a comparison: one TOML file, overrides, defaults, all checked before anything runs.

    slots = 300
    seeds = [0, 1, 2]

    [network]
    name = "snapshot"
    gamma = 5

    [[algorithm]]
    name = "async_sharing"
    step = 0.2

Every algorithm meets every seed, on the same data, first model and delays. `resolve` fills in all defaults; what it
returns is what a run folder keeps as `config.toml`, and resolving that again changes nothing.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from folkman.algorithm import ALGORITHMS
from folkman.checks import nearest
from folkman.engine.faults import Faults
from folkman.engine.simulate import check_horizon
from folkman.experiment.choices import Choice, ConfigError, describe
from folkman.problem.data import BUILDERS
from folkman.problem.models import MODELS
from folkman.problem.partition import PARTITIONS
from folkman.problem.projection import PROJECTIONS
from folkman.radio import NETWORKS
from folkman.record import slug

__all__ = ["CHOICES", "DEFAULT", "Comparison", "dump", "override", "parse_value", "put", "read", "resolve", "to_toml"]

_SIZE = (int | None, Field(default=None, ge=1))
CHOICES: dict[str, Choice] = {
    "data": Choice("data", BUILDERS, frozenset({"nodes", "seed"}), {"train_size": _SIZE, "test_size": _SIZE}),
    "partition": Choice(
        "partition", PARTITIONS, frozenset({"labels", "nodes", "seed", "group"}), {"total": _SIZE, "per_node": _SIZE}
    ),
    "model": Choice("model", MODELS, frozenset({"sample", "classes"})),
    "projection": Choice("projection", PROJECTIONS),
    "network": Choice("network", NETWORKS, frozenset({"slot_s"})),
    "algorithm": Choice(
        "algorithm",
        ALGORITHMS,
        frozenset({"projection", "shapes", "horizon"}),
        {"label": (str | None, None), "network": (dict[str, Any] | None, None)},
    ),
}
"""The tables that choose a builder."""

LONGEST_LABEL = 80

DEFAULT: dict[str, Any] = {
    "data": {"name": "digits"},
    "partition": {"name": "iid"},
    "model": {"name": "mlp"},
    "projection": {"name": "none"},
    "network": {"name": "snapshot"},
    "algorithm": [
        {"name": "async_sharing", "label": "Algorithm 1", "step": 0.2},
        {"name": "fedavg", "label": "FedAvg", "step": 0.2},
        {"name": "fedavg", "label": "FedAvg, free links", "step": 0.2, "network": {"name": "ideal"}},
    ],
}
"""What `folkman run` does when told nothing: Algorithm 1 against FedAvg on the embedded digits."""


class Latency(BaseModel):
    """The seconds of a slot by the training-latency law: T(D) = base_s + per_sample_s max(D - threshold, 0)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    base_s: float = Field(1.0, gt=0, allow_inf_nan=False)
    threshold: int = Field(128, ge=0)
    per_sample_s: float = Field(1e-3, ge=0, allow_inf_nan=False)


class FaultTable(BaseModel):
    """What goes wrong; see `folkman.engine.faults` and `folkman.radio.loss`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    loss: Annotated[float, Field(ge=0, lt=1)] = 0.0
    away: tuple[tuple[int, int, int], ...] = ()
    crash: tuple[tuple[int, int] | tuple[int, int, int], ...] = ()
    liars: Annotated[float, Field(ge=0, lt=1)] = 0.0
    attack: Literal["noise", "sign_flip"] = "sign_flip"
    scale: Annotated[float, Field(allow_inf_nan=False)] = 1.0

    def faults(self) -> Faults:
        """Return the faults of the nodes; losses are the network's."""
        crash = tuple((each[0], each[1], each[2] if len(each) == 3 else None) for each in self.crash)
        return Faults(self.away, crash, self.liars, self.attack, self.scale)


class Comparison(BaseModel):
    """A resolved comparison. The fields are the top-level keys of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field("comparison", pattern=r"^[\w][\w .+-]*$")
    nodes: int = Field(5, ge=1, strict=True)
    slots: int = Field(300, ge=1, strict=True)
    seeds: tuple[int, ...] = Field((0, 1, 2, 3, 4), min_length=1)
    slot_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | Latency = 1.0
    compute_slots: int | tuple[int, ...] = 1
    record_every: int = Field(10, ge=1)
    evaluate_nodes: bool = False
    keep_timelines: bool = False
    precision: Literal["float32", "float64"] = "float32"
    l2: float = Field(0.0, ge=0, allow_inf_nan=False)
    batch: int | None = Field(None, ge=1)
    data: dict[str, Any]
    partition: dict[str, Any]
    model: dict[str, Any]
    projection: dict[str, Any]
    network: dict[str, Any]
    faults: FaultTable = FaultTable()
    algorithm: tuple[dict[str, Any], ...] = Field(min_length=1)


def read(path: str | Path) -> dict[str, Any]:
    """Read a TOML file, or say where it is wrong."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"expected a configuration file, there is no {path}; check the path") from None
    except IsADirectoryError:
        raise ConfigError(f"expected a configuration file, {path} is a folder; name the .toml in it") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"expected TOML in {path}: {error}") from None


def override(raw: Mapping[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """Apply settings `a.b=value` in order. A new `X.name` starts table X afresh; `algorithm.0.step` counts from 0."""
    tables: dict[str, Any] = {key: _copy(value) for key, value in raw.items()}
    for setting in settings:
        path, found, text = setting.partition("=")
        keys = path.strip().split(".")
        if not found or not all(keys):
            raise ConfigError(f"a setting looks like network.gamma=10, got '{setting}'")
        _put(tables, keys, parse_value(text.strip()), setting)
    return tables


def put(raw: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Apply values by dotted key, as `override` does with settings; names first, as they start a table afresh."""
    tables: dict[str, Any] = {key: _copy(value) for key, value in raw.items()}
    for path in sorted(values, key=lambda path: not path.endswith(".name")):
        _put(tables, path.split("."), _copy(values[path]), path)
    return tables


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def parse_value(text: str) -> Any:
    """Read a value as TOML does; bare words are strings."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _put(tables: dict[str, Any], keys: list[str], value: Any, setting: str) -> None:
    if keys[0] in DEFAULT and keys[0] not in tables:
        tables[keys[0]] = _copy(DEFAULT[keys[0]])
    place: Any = tables
    for depth, key in enumerate(keys[:-1]):
        if isinstance(place, list):
            if not key.isdigit() or int(key) >= len(place):
                entries = f"{'.'.join(keys[:depth])} has {len(place)} entries"
                raise ConfigError(f"'{setting}': {entries}; write a number from 0, as in algorithm.0.step")
            place = place[int(key)]
        else:
            place = place.setdefault(key, {})
        if not isinstance(place, (dict, list)):
            raise ConfigError(f"'{setting}': {'.'.join(keys[: depth + 1])} is not a table")
    if isinstance(place, list):
        raise ConfigError(f"'{setting}': {'.'.join(keys[:-1])} is a list of tables; write algorithm.0.{keys[-1]}")
    if keys[-1] == "name" and len(keys) > 1 and place.get("name") != value:
        place.clear()  # another builder: the options of the old one mean nothing to it
    place[keys[-1]] = value


def resolve(raw: Mapping[str, Any]) -> Comparison:
    """Check a configuration and fill in every default, or raise `ConfigError`."""
    for key in raw:
        if key not in Comparison.model_fields and key != "radio":
            raise ConfigError(f"unknown key '{key}'; {nearest(key, Comparison.model_fields)}")
    raw = _with_radio(raw)
    tables = {**DEFAULT, **_fitting(raw), **raw}
    resolved = {name: CHOICES[name].resolve(tables[name]) for name in CHOICES if name != "algorithm"}
    algorithms = tables["algorithm"]
    if not isinstance(algorithms, (list, tuple)) or not algorithms:
        raise ConfigError(f"[[algorithm]] must be one table or more, got {algorithms!r}")
    try:
        comparison = Comparison(**{**raw, **resolved, "algorithm": _algorithms(algorithms, resolved["network"])})
    except ValidationError as error:
        raise ConfigError(describe(error, "")) from None
    _check(comparison)
    return comparison


def _fitting(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the partition and model that a synthetic data set is made for, as its defaults."""
    table = raw.get("data")
    name = table.get("name") if isinstance(table, dict) else None
    if name == "quadratic":
        return {"partition": {"name": "given"}, "model": {"name": "quadratic"}}
    return {"model": {"name": "linear"}} if name == "gaussian" else {}


def _with_radio(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Read a table [radio] as the network of that name."""
    if "radio" not in raw:
        return raw
    if "network" in raw or not isinstance(raw["radio"], dict):
        raise ConfigError("[radio] is a table, and short for [network] with name = 'radio'; give one of the two")
    rest = {key: value for key, value in raw.items() if key != "radio"}
    return {**rest, "network": {"name": "radio", **raw["radio"]}}


def _algorithms(tables: Sequence[Any], base: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Resolve each algorithm and give each its own label; its own network, if of the same name, starts from `base`."""
    found = [CHOICES["algorithm"].resolve(table, f"algorithm.{i}") for i, table in enumerate(tables)]
    for i, table in enumerate(found):
        own = table["network"]
        if own is not None:
            own = {**base, **own} if own.get("name", base["name"]) == base["name"] else own
            table["network"] = CHOICES["network"].resolve(own, f"algorithm.{i}.network")
        if table["label"] is None:
            alike = [other for other in found if other["name"] == table["name"]]
            apart = [key for key in table if key != "label" and any(other[key] != table[key] for other in alike)]
            table["label"] = " ".join([table["name"], *(f"{key}={_short(table[key])}" for key in apart)])
    _check_labels([table["label"] for table in found])
    return found


def _check_labels(labels: Sequence[str]) -> None:
    """Refuse labels that cannot be told apart, on paper or as file names, or cannot be shown."""
    names: dict[str, str] = {}
    for label in labels:
        if not label.isprintable() or not any(map(str.isalnum, label)) or len(label) > LONGEST_LABEL:
            allowed = f"a letter or digit, no control characters and at most {LONGEST_LABEL} characters"
            raise ConfigError(f"a label needs {allowed}; got {label!r}")
        other = names.setdefault(slug(label, 0), label)
        if labels.count(label) > 1 or other != label:
            raise ConfigError(
                f"two algorithms are labelled '{other}' and '{label}', too alike; give each its own label"
            )


def _short(value: Any) -> str:
    return str(value["name"]) if isinstance(value, dict) else str(value)


def _check(comparison: Comparison) -> None:
    """Refuse what no single table can know is wrong."""
    if len(set(comparison.seeds)) != len(comparison.seeds):
        raise ConfigError(f"seeds must differ, got {list(comparison.seeds)}")
    if any(not 0 <= seed < 2**32 for seed in comparison.seeds):
        raise ConfigError(f"a seed must lie in 0 .. 2^32 - 1, got {list(comparison.seeds)}")
    times = comparison.compute_slots
    if isinstance(times, tuple) and len(times) != comparison.nodes:
        raise ConfigError(f"compute_slots must be one number or {comparison.nodes}, one a node; got {len(times)}")
    if min(times if isinstance(times, tuple) else (times,), default=0) < 1:
        raise ConfigError(f"compute_slots must be at least 1, got {times}")
    try:
        comparison.faults.faults().check(comparison.nodes)
    except ValueError as error:
        raise ConfigError(f"[faults]: {error}") from None
    for i, table in enumerate(comparison.algorithm):
        try:  # builders check their own ranges: a negative step is found here and not in the middle of a run
            CHOICES["algorithm"].build(table)
            network = CHOICES["network"].build(table["network"] or comparison.network, slot_s=1.0)
            check_horizon(network, comparison.slots)
            CHOICES["projection"].build(comparison.projection)
        except ValueError as error:
            raise ConfigError(f"algorithm.{i} ({table['label']}): {error}") from None


def to_toml(comparison: Comparison) -> str:
    """Write a resolved comparison as TOML; a key whose value is None is left out."""
    return dump(comparison.model_dump())


def dump(fields: Mapping[str, Any]) -> str:
    """Write a configuration, resolved or not, as TOML."""
    plain = {key: value for key, value in fields.items() if not _is_table(value)}
    lines = [f"{key} = {_literal(value)}" for key, value in plain.items() if value is not None]
    for key, value in fields.items():
        if isinstance(value, dict):
            lines += ["", f"[{key}]", *_table(key, value)]
        elif _is_table(value):
            for item in value:
                lines += ["", f"[[{key}]]", *_table(key, item)]
    return "\n".join(lines) + "\n"


def _is_table(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, (tuple, list)) and bool(value) and isinstance(value[0], dict))


def _table(name: str, table: Mapping[str, Any]) -> list[str]:
    lines = [
        f"{_key(key)} = {_literal(value)}"
        for key, value in table.items()
        if value is not None and not isinstance(value, dict)
    ]
    for key, value in table.items():
        if isinstance(value, dict):
            lines += ["", f"[{name}.{_key(key)}]", *_table(f"{name}.{_key(key)}", value)]
    return lines


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _literal(key)


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_literal(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(key)} = {_literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (int, float)):
        return repr(value)
    text = str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{text}"'
