"""Whether the sides of a comparison are tuned, as its configuration says.

`folkman tune` writes a table [tuned] into the configuration that it makes: by which search each
method's options were found, and on which setting. A **setting** is all that a method meets, without
the options that were tuned: data, model, network, number of nodes, slots, faults, and the method's
other options. It is told by a digest, so that a configuration that was changed since is noticed.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from folkman.record.json_file import Json, Table

__all__ = ["APART", "CHANGED", "ELSEWHERE", "SAME_SEEDS", "TUNED", "UNTUNED", "Side"]
__all__ += ["setting", "sides_of", "standings", "told"]

TUNED = "tuned"
UNTUNED = "not tuned"
ELSEWHERE = "tuned on another setting"
CHANGED = "changed since it was tuned"
SAME_SEEDS = "tuned on seeds that it is judged on"
APART = "tuned, by different searches"
"""How a side stands."""

BESIDE = ("name", "seeds", "record_every", "evaluate_nodes", "keep_timelines", "stop_at")
"""The keys of a configuration that change nothing of what a method meets."""


def setting(config: Table, side: Table, over: Collection[str]) -> str:
    """Return the digest of what one algorithm meets, without the options `over`.

    `config` is a resolved configuration as `config.toml` holds it, and `side` a table of its
    algorithms. Files, data or own code, count by their names without folders.
    """
    rest = {
        key: value
        for key, value in config.items()
        if key not in (*BESIDE, "network", "algorithm", "tuned")
    }
    method = {key: value for key, value in side.items() if key not in ("label", "network", *over)}
    whole = {**rest, "network": side.get("network") or config.get("network"), "algorithm": method}
    text = json.dumps(_plain(whole), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _plain(value: Any, key: str = "") -> Any:
    """Return a value as it is in a file and in memory: no empty keys, no tuples, no folders."""
    if isinstance(value, Mapping):
        held = {name: _plain(item, name) for name, item in value.items() if name != "folder"}
        return {name: item for name, item in held.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, str) and (key == "path" or (key == "name" and ":" in value)):
        return Path(value).name
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


class Side(NamedTuple):
    """One side of a comparison, by the name it has there."""

    name: str
    config: Table  # the resolved configuration it was run from
    table: Table  # its own table of that


def sides_of(config: Table) -> list[Side]:
    """Return the sides of a resolved configuration."""
    return [Side(str(table.get("label")), config, table) for table in config["algorithm"]]


def standings(sides: Iterable[Side]) -> dict[str, str]:
    """Return how each side stands, by its name."""
    known = list(sides)
    found = {side.name: _standing(side.config, side.table) for side in known}
    searches = {json.dumps(_search_of(side.config)) for side in known if found[side.name] == TUNED}
    if len(searches) > 1:
        return {name: APART if state == TUNED else state for name, state in found.items()}
    return found


def _standing(config: Table, side: Table) -> str:
    tuned = _table(config, "tuned")
    known = _table(_table(tuned, "algorithm"), str(side.get("label")))
    options = _table(known, "options")
    if not options:
        return UNTUNED
    if any(side.get(name) != value for name, value in options.items()):
        return CHANGED
    if known.get("setting") != setting(config, side, options):
        return ELSEWHERE
    seeds = tuned.get("seeds")
    tuned_on = seeds if isinstance(seeds, list) else []
    return SAME_SEEDS if any(seed in tuned_on for seed in config.get("seeds", ())) else TUNED


def _table(table: Table, key: str) -> Table:
    """Return a table within a table; an empty one if it is not there, or no table."""
    found = table.get(key)
    return found if isinstance(found, Mapping) else {}


REMEDY = "folkman tune {} finds each method's step by one search"


def told(sides: Mapping[str, str], config: str = "CONFIG") -> str:
    """Return a line on how the sides of a comparison stand; nothing where there is one side.

    `config` is the file to tune.
    """
    remedy = REMEDY.format(config)
    if len(sides) < 2:
        return ""
    if all(each == TUNED for each in sides.values()):
        return "every side is tuned for this setting, by one search on other seeds"
    if all(each == UNTUNED for each in sides.values()):
        return f"steps are not tuned: {remedy}"
    alike = "" if len(set(sides.values())) == 1 else " alike"
    return (
        f"conclude nothing yet, sides are not tuned{alike} for this setting: "
        f"{'; '.join(_grouped(sides))}; {remedy}"
    )


def _grouped(sides: Mapping[str, str]) -> Iterator[str]:
    for state in dict.fromkeys(sides.values()):
        labels = [label for label, each in sides.items() if each == state]
        yield f"{state}: {', '.join(labels)}"


def _search_of(config: Table) -> Json:
    """Return by which search the sides were tuned."""
    tuned = _table(config, "tuned")
    return {key: tuned.get(key) for key in ("score", "seeds", "budget", "over", "grid")}
