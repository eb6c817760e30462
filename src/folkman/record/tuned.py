"""Whether the sides of a comparison are tuned, as its configuration says.

`folkman tune` writes a table [tuned] into the configuration that it makes: by which search each
method's options were found, and on which setting. A **setting** is all that a method meets, without
the options that were tuned: data, model, network, number of nodes, slots, faults, and the method's
other options. It is told by a digest, so that a configuration that was changed since is noticed.
"""

import hashlib
import json
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from folkman.record.json_file import Json, Table

__all__ = ["APART", "AT_EDGE", "CHANGED", "ELSEWHERE", "FOUND", "SAME_SEEDS", "TUNED", "UNTUNED"]
__all__ += [
    "Side",
    "searched",
    "setting",
    "shared_setting",
    "sides_of",
    "source",
    "source_of_run",
    "standings",
    "told",
    "tune_command",
]
__all__ += ["untuned"]

TUNED = "tuned"
AT_EDGE = "tuned, at the last value that was tried"
UNTUNED = "not tuned"
ELSEWHERE = "tuned on another setting"
CHANGED = "changed since it was tuned"
SAME_SEEDS = "tuned on seeds that it is judged on"
APART = "tuned, by different searches"
"""How a side stands."""

FOUND = (TUNED, AT_EDGE)
"""Tuned for this setting on other seeds; the second by a search that ended at an end of its grid,
since its budget or the option allowed no more."""

BESIDE = ("name", "seeds", "record_every", "evaluate_nodes", "keep_timelines", "stop_at")
BESIDE += ("keep_nodes",)
"""The keys of a configuration that change nothing of what a method meets."""

LATER = {"network_momentum": 0.0, "weight_decay": 0.0, "clip_norm": 0.0}
"""Options that methods got later, as they are where they do nothing: what was tuned before them
still is."""


def setting(config: Table, side: Table, over: Collection[str]) -> str:
    """Return the digest of what one algorithm meets, without the options `over`.

    `config` is a resolved configuration as `config.toml` holds it, and `side` a table of its
    algorithms. Files, data or own code, count by their names without folders.
    """
    apart = (*BESIDE, "network", "algorithm", "tuned")
    rest = {key: value for key, value in config.items() if key not in apart}
    method = {
        key: value
        for key, value in side.items()
        if key not in ("label", "network", *over) and LATER.get(key) != value
    }
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
    searches = {json.dumps(_search_of(side.config)) for side in known if found[side.name] in FOUND}
    if len(searches) > 1:
        return {name: APART if state in FOUND else state for name, state in found.items()}
    return found


def _standing(config: Table, side: Table) -> str:
    tuned, known = _table(config, "tuned"), _known(Side("", config, side))
    options = _table(known, "options")
    if not options:
        return UNTUNED
    if any(side.get(name) != value for name, value in options.items()):
        return CHANGED
    if known.get("setting") != setting(config, side, options):
        return ELSEWHERE
    seeds = tuned.get("seeds")
    tuned_on = seeds if isinstance(seeds, list) else []
    if any(seed in tuned_on for seed in config.get("seeds", ())):
        return SAME_SEEDS
    return AT_EDGE if known.get("at_edge") else TUNED


def _known(side: Side) -> Table:
    """Return what a search found for a side; an empty table where none was made."""
    return _table(_table(_table(side.config, "tuned"), "algorithm"), str(side.table.get("label")))


def _table(table: Table, key: str) -> Table:
    """Return a table within a table; an empty one if it is not there, or no table."""
    found = table.get(key)
    return found if isinstance(found, Mapping) else {}


VALUED = ("--set", "--out", "--resume", "--track")
"""Options of `folkman run` that take a value."""

USUAL_OPTIONS = ("step", "local_steps")
"""What is worth a search in most comparisons; `folkman tune` refuses an option that no side has."""


def tune_command(sides: Iterable[Side] = (), config: str = "CONFIG") -> str:
    """Return the command that tunes these sides; `config` is what they were configured by."""
    held = {name for side in sides for name in side.table}
    over = [name for name in USUAL_OPTIONS if name in held] or ["step"]
    return " ".join(["folkman tune", config, *(f"--over {name}" for name in over)])


def source(config: str, settings: Iterable[str] = ()) -> str:
    """Return what a command names a configuration by, for a shell: the file and its `--set`s."""
    return " ".join([shlex.quote(config), *(f"--set {shlex.quote(each)}" for each in settings)])


def source_of_run(command: Sequence[str] | None, kept: str) -> str:
    """Return the same of a folder that `command` made: as the user wrote it, else the kept file."""
    words = list(command or ())
    if words[:1] != ["run"]:
        return source(kept)
    files, settings, rest = [], [], iter(words[1:])
    for word in rest:
        option, equals, value = word.partition("=")
        if option in VALUED:
            value = value if equals else next(rest, "")
            settings += [value] if option == "--set" else []
        elif not word.startswith("-"):
            files.append(word)
    return source(files[0], settings) if len(files) == 1 else source(kept)


def shared_setting(sides: Collection[Side]) -> str:
    """Return the data and the number of nodes that all sides share: digits, 5 nodes."""
    data = {_data_name(_table(side.config, "data")) for side in sides}
    nodes = {side.config.get("nodes") for side in sides}
    said = [*data] if len(data) == 1 else []
    said += [f"{count} nodes" for count in nodes if count] if len(nodes) == 1 else []
    return ", ".join(filter(None, said))


def _data_name(data: Table) -> str:
    """Return the name of a data set: that of the user's own file where there is one."""
    return Path(str(data["path"])).name if data.get("path") else str(data.get("name") or "")


def untuned(sides: Mapping[str, str]) -> bool:
    """Tell whether sides are compared of which not every one is tuned for its setting."""
    return len(sides) > 1 and not all(each in FOUND for each in sides.values())


def searched(sides: Iterable[Side]) -> str:
    """Return the options that were tuned: those of all sides, and what some have beside them."""
    found = {side.name: list(_table(_known(side), "options")) for side in sides if _known(side)}
    every = list(dict.fromkeys(name for names in found.values() for name in names))
    shared = [name for name in every if all(name in names for names in found.values())]
    more = {side: [n for n in names if n not in shared] for side, names in found.items()}
    beside = "; ".join(f"{side}: {' and '.join(names)}" for side, names in more.items() if names)
    if not shared:
        return beside
    return " and ".join(shared) + (f" ({beside}, too)" if beside else "")


def told(sides: Mapping[str, str], command: str = "", options: str = "") -> str:
    """Return a line on how the sides of a comparison stand; nothing where there is one side.

    `command` tunes them (`tune_command`), and `options` are those that were tuned (`searched`).
    """
    remedy = f"{command or tune_command()} finds each method's own by one search"
    if len(sides) < 2:
        return ""
    if all(each in FOUND for each in sides.values()):
        what = f" in {options}" if options else ""
        said = f"every side is tuned for this setting{what}, by one search on other seeds"
        said += "; other options are as the file has them" if options else ""
        edged = [label for label, each in sides.items() if each == AT_EDGE]
        more = f"the best of {', '.join(edged)} is the last value that was tried: raise --budget"
        return f"{said}; {more}" if edged else said
    if all(each == UNTUNED for each in sides.values()):
        return f"steps are not tuned: {remedy}"
    alike = "" if len(set(sides.values())) == 1 else " alike"
    return (
        f"conclude nothing yet: the sides are not tuned{alike} for this setting "
        f"({'; '.join(_grouped(sides))}); {remedy}"
    )


def _grouped(sides: Mapping[str, str]) -> Iterator[str]:
    for state in dict.fromkeys(sides.values()):
        labels = [label for label, each in sides.items() if each == state]
        yield f"{state}: {', '.join(labels)}"


def _search_of(config: Table) -> Json:
    """Return by which search the sides were tuned."""
    tuned = _table(config, "tuned")
    return {key: tuned.get(key) for key in ("score", "seeds", "budget", "over", "grid")}
