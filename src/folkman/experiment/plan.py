"""The plan language: which runs to make. Sweeps and the figures of papers are both written in it.

A plan is a configuration as `folkman run` takes it, with more tables:

    [levels]                        # values by name: "@gammas" stands for them, "1/@gammas" for
                                    # their reciprocals
    gammas = [5, 10, 15]

    [grid]                          # every combination
    network.gamma = "@gammas"
    nodes = [5, 10]

    [list]                          # lists of one length, which advance together
    model.name = ["softmax", "mlp"]
    algorithm.0.step = [0.5, 0.2]

    [[arm]]                         # tables that replace those of the configuration, once for each
                                    # value of `each`
    each = { gamma = "@gammas" }
    network = { name = "pipelined", gamma = "@gamma" }

An **arm** is one algorithm at one setting; every arm meets the same seeds, so that differences can
be taken seed by seed. A **job** is one arm under one seed. Its key is a hash of all that decides
its result: the resolved configuration, the content of the data files it names, and the format of
what it writes.
"""

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from folkman.checks import pick, require
from folkman.config.choices import ConfigError
from folkman.config.comparison import Comparison, by_content, resolve, told
from folkman.config.plugins import anchored, title
from folkman.config.text import parse_value, put
from folkman.record.json_file import Json, Table

__all__ = ["JOB_FORMAT", "LANGUAGE", "Axes", "Job", "Plan", "alone", "axes_of", "contents"]
__all__ += ["expand", "job_key", "option_values", "plan", "settle"]

JOB_FORMAT = 1
"""Raised when the same configuration would give other results; finished jobs of another format are
run again."""


class Axes(NamedTuple):
    """What is varied: key -> values."""

    grid: Mapping[str, Sequence[object]]
    together: Mapping[str, Sequence[object]]

    @property
    def keys(self) -> list[str]:
        """Return the keys, those that advance together last."""
        return [*self.grid, *self.together]

    def points(self) -> Iterator[Json]:
        """Yield every setting: key -> value."""
        rows = list(zip(*self.together.values(), strict=True)) if self.together else [()]
        for own in itertools.product(*self.grid.values()):
            for row in rows:
                yield dict(zip(self.keys, (*own, *row), strict=True))


LANGUAGE = ("levels", "grid", "list", "arm")
"""The tables of a plan that are not of its configuration."""


class Job(NamedTuple):
    """One algorithm at one setting under one seed."""

    key: str
    arm: str
    settings: Table  # what tells this arm from others
    config: Comparison
    kind: str = "run"  # or "descent": plain gradient descent (`folkman.experiment.descent`)
    rank: int = 0  # jobs of a lower rank are run first
    notes: Mapping[str, Any] = {}  # more that the index keeps of it

    @property
    def label(self) -> str:
        """Return the label of its algorithm."""
        return self.config.algorithm[0]["label"]

    @property
    def seed(self) -> int:
        """Return its only seed."""
        return self.config.seeds[0]


class Plan(NamedTuple):
    """All jobs to be made, arm by arm."""

    name: str
    keys: Sequence[str]  # what is varied
    jobs: Sequence[Job]


def settle(value: Any, known: Table) -> Any:
    """Return a value with every "@name" and "1/@name" in it looked up."""
    if isinstance(value, dict):
        return {key: settle(item, known) for key, item in value.items()}
    if isinstance(value, list):
        return [settle(item, known) for item in value]
    if not isinstance(value, str) or "@" not in value:
        return value
    over, _, name = value.partition("@")
    require(over in ("", "1/"), f"expected '@name' or '1/@name', got {value!r}")
    found = pick(known, name)
    if not over:
        return found
    numbers = found if isinstance(found, list) else [found]
    sound = all(isinstance(each, int | float) and each for each in numbers)
    require(sound, f"{value!r} needs numbers other than 0, '{name}' is {found!r}")
    return [1 / each for each in numbers] if isinstance(found, list) else 1 / found


def expand(groups: Sequence[Table], levels: Table) -> Iterator[tuple[Table, Json, Json]]:
    """Yield (group, chosen values, tables) for every combination of `each` of every [[arm]]."""
    require(
        bool(groups) and isinstance(groups, list),
        f"expected [[arm]] tables, got {groups!r}; leave it out if there is none",
    )
    for group in groups:
        require(isinstance(group, dict), f"expected an [[arm]] table, got {group!r}")
        given = group.get("each", {})
        wrong = f"`each` of an [[arm]] must be a table of lists, got {given!r}"
        require(isinstance(given, dict), wrong)
        each = settle(dict(given), levels).items()
        crossed = {key: values if isinstance(values, list) else [values] for key, values in each}
        rest = {key: value for key, value in group.items() if key != "each"}
        for values in itertools.product(*crossed.values()):
            chosen = dict(zip(crossed, values, strict=True))
            yield group, chosen, settle(rest, {**levels, **chosen})


def axes_of(raw: Table, grid: Sequence[str] = (), together: Sequence[str] = ()) -> Axes:
    """Read the axes of a sweep file and of the command line: `a.b=1,2,3`, `--grid` or `--list`."""
    levels = raw.get("levels", {})
    require(isinstance(levels, dict), f"[levels] must be a table of values, got {levels!r}")
    found = {}
    for name, texts in (("grid", grid), ("list", together)):
        found[name] = _flat(settle(raw.get(name, {}), levels), name)
        found[name] += [option_values(text, name) for text in texts]
        empty = name in raw and not found[name]
        require(not empty, f"[{name}] is empty; give it a key, as network.gamma = [5, 10]")
    seen: set[str] = set()
    for key, values in (axis for axes in found.values() for axis in axes):
        _check_axis(key, values, seen)
    axes = Axes(dict(found["grid"]), dict(found["list"]))
    lengths = {key: len(values) for key, values in axes.together.items()}
    wrong = f"lists advance together and must be of one length, got {lengths}"
    require(len(set(lengths.values())) <= 1, wrong)
    return axes


def _check_axis(key: str, values: Sequence[object], seen: set[str]) -> None:
    """Refuse an axis that is empty, given twice, or would break the pairing of seeds."""
    require(key not in seen, f"'{key}' is varied twice; give each key once, in [grid] or in [list]")
    require(bool(values), f"'{key}' has no values; give some, as {key}=1,2,3")
    require(
        key != "seeds",
        "seeds are not an axis, every arm meets the same ones: write seeds = [0, 1, 2] beside it",
    )
    texts = [json.dumps(value, sort_keys=True, default=str) for value in values]
    again = next((text for text in texts if texts.count(text) > 1), None)
    require(again is None, f"'{key}' has the value {again} twice; give each value once")
    seen.add(key)


def _flat(table: Json, name: str, prefix: str = "") -> list[tuple[str, list[object]]]:
    """Return the lists of a table by their dotted keys."""
    require(isinstance(table, dict), f"[{name}] must be a table of lists, got {table!r}")
    found = []
    for key, value in table.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict):
            found += _flat(value, name, f"{path}.")
        else:
            wrong = f"'{path}' in [{name}] must be a list of values, got {value!r}"
            require(isinstance(value, list), wrong)
            found.append((path, value))
    return found


def option_values(text: str, name: str) -> tuple[str, list[object]]:
    """Read `a.b=1,2,3`; a comma inside brackets, braces or quotes does not part two values."""
    key, found, values = text.partition("=")
    if not found or not all(part.strip() for part in key.split(".")):
        raise ConfigError(f"--{name} looks like network.gamma=5,10,15; got '{text}'")
    found_values = [parse_value(part) for part in _parted(values) if part]
    return key.strip(), anchored(found_values, Path.cwd(), key.strip().rpartition(".")[2])


def _parted(text: str) -> list[str]:
    """Split at the commas that are outside brackets, braces and quotes."""
    parts, depth, quote = [""], 0, ""
    for sign in text:
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "\"'":
            quote = sign
        depth += (sign in "[{") - (sign in "]}") if not quote else 0
        if sign == "," and depth == 0 and not quote:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip() for part in parts]


def plan(raw: Table, axes: Axes) -> Plan:
    """Resolve every arm under every seed.

    Whatever is wrong with any of them is said before anything runs.

    Settings that come to the same configuration are one arm, named by what they agree in: an axis
    `algorithm.0.step` does not multiply the second algorithm, nor `network.gamma` one that has a
    network of its own.
    """
    base = {key: value for key, value in raw.items() if key not in LANGUAGE}
    name, points_of, config_of, keys = "", {}, {}, list(axes.keys)
    for _, chosen, tables in expand(raw.get("arm", [{}]), raw.get("levels", {})):
        keys += [key for key in chosen if key not in keys]
        if isinstance(tables.get("algorithm"), dict):
            tables["algorithm"] = [tables["algorithm"]]
        for axis_point in axes.points():
            point = {**axis_point, **chosen}
            whole = _resolved({**base, **tables}, axis_point, point)
            name = name or whole.name
            for table in whole.algorithm:
                config = alone(whole, table)
                arm = job_key(config)
                points_of.setdefault(arm, []).append(point)
                config_of.setdefault(arm, config)
    labels = {arm: config.algorithm[0]["label"] for arm, config in config_of.items()}
    settings_of = _settings(points_of, labels)
    for key in axes.keys:
        concerned = any(key in settings for settings in settings_of.values())
        require(
            concerned or len(axes.grid.get(key) or axes.together[key]) == 1,
            f"'{key}' changes no arm: another key decides what it sets, or nothing uses it; leave "
            "it out",
        )
    jobs: list[Job] = []
    for arm, config in config_of.items():
        jobs += _jobs(settings_of[arm], config, keys)
    (arm, _), most = Counter((job.arm, job.seed) for job in jobs).most_common(1)[0]
    alike = f"two arms would both be called '{arm}'"
    require(most == 1, f"{alike}; give the algorithms labels that tell them apart")
    return Plan(name, keys, jobs)


def _resolved(base: Table, values: Table, point: Table) -> Comparison:
    """Resolve one setting; `point` is named where it does not fit."""
    try:
        return resolve(put(base, values))
    except ValueError as error:
        where = ", ".join(f"{key}={_show(value)}" for key, value in point.items())
        raise ConfigError(f"{error} (at {where})" if where else str(error)) from None


def alone(whole: Comparison, table: Table) -> Comparison:
    """Return the comparison of one algorithm, with the network it meets."""
    network = _fixed(table["network"] or whole.network)
    tables = {
        "data": _fixed(whole.data),
        "network": network,
        "compression": table["compression"] or whole.compression,
        "algorithm": ({**table, "network": None, "compression": None},),
    }
    return whole.model_copy(update={"name": "job", **tables})


def _fixed(table: Table) -> Json:
    """Return a table with the files it names by absolute path: a worker may stand elsewhere."""
    named = [key for key in ("path", "folder") if table.get(key) is not None]
    return {**table, **{key: str(Path(table[key]).resolve()) for key in named}}


def _settings(
    points_of: Mapping[str, Sequence[Table]], label_of: Mapping[str, str]
) -> dict[str, Json]:
    """Return what the points of each arm agree in; all of it where two would be alike."""
    agreed = {}
    for arm, (first, *others) in points_of.items():
        common = set(first).intersection(*others)
        kept = [key for key in first if key in common and all(p[key] == first[key] for p in others)]
        agreed[arm] = {key: first[key] for key in kept}
    names = [(label_of[arm], settings) for arm, settings in agreed.items()]
    return {
        arm: settings if names.count((label_of[arm], settings)) == 1 else dict(points_of[arm][0])
        for arm, settings in agreed.items()
    }


def _jobs(settings: Json, config: Comparison, keys: Sequence[str]) -> Iterator[Job]:
    label = config.algorithm[0]["label"]
    shown = [
        f"{_short(key, keys)}={_show(value)}"
        for key, value in settings.items()
        if not (key.startswith("algorithm.") and title(value) == label)
    ]
    for seed in config.seeds:
        alone = config.model_copy(update={"seeds": (seed,)})
        yield Job(job_key(alone), ", ".join([label, *shown]), settings, alone)


def _short(key: str, keys: Sequence[str]) -> str:
    """Return the shortest ending of a key that no other axis has."""
    parts = key.split(".")
    for length in range(1, len(parts)):
        ending = ".".join(parts[-length:])
        alike = sum(f".{other}".endswith(f".{ending}") for other in keys)
        if parts[-length] != "name" and alike == 1:
            return ending
    return key


def _show(value: object) -> str:
    if isinstance(value, float):
        # two steps never get one name
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return title(value) if isinstance(value, str) else json.dumps(value)


def job_key(config: Comparison, kind: str = "run") -> str:
    """Return the name of a job in a store: a hash of its configuration, files by content."""
    identity = {"format": JOB_FORMAT, "config": contents(config)}
    identity |= {} if kind == "run" else {"kind": kind}
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def contents(config: Comparison) -> Json:
    """Return the fields of a configuration, files and own code by content and not by path.

    The folder of a fetched data set is left out: its arrays are checked by SHA-256 whenever they
    are read.
    """

    def content(value: Any) -> Any:
        if isinstance(value, dict):
            held = {key: content(item) for key, item in value.items() if key != "folder"}
            path = value.get("path")
            return held if path is None else held | {"path": _file_hash(path)}
        return [content(item) for item in value] if isinstance(value, (list, tuple)) else value

    return content(told(by_content(config)))


def _file_hash(path: str) -> str:
    try:
        facts = Path(path).stat()
    except OSError as error:
        raise ConfigError(
            f"expected a file, {path} cannot be read: {error.strerror}; check the path"
        ) from None
    return _hash_of(path, facts.st_mtime_ns, facts.st_size)


@lru_cache(maxsize=64)
def _hash_of(path: str, changed_ns: int, size: int) -> str:
    """Hash a file; read again only if it was changed since."""
    del changed_ns, size
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
