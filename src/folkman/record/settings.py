"""What each arm of some folders was run with, flat: `nodes`, `network.gamma`, `algorithm.step`.

    facts = settings_of_folders([Path("sweeps/delay")])
    facts["FedAvg, gamma=5"]["network.gamma"]     # 5

A setting that does not concern an arm is not there: an arm whose messages take no time has no
`network.gamma`. The entry `algorithm` is the label, and `folder` the folder's name.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from folkman.record.json_file import Json, Table
from folkman.record.table import named_in, settings_of_arms, sides_of_arms
from folkman.record.tuned import BESIDE, Side

__all__ = ["ALGORITHM", "FOLDER", "Settings", "settings_of_folders", "varying"]

ALGORITHM, FOLDER = "algorithm", "folder"
"""The names under which an arm's label and folder are settings too."""
APART = (*BESIDE, "algorithm", "tuned", "network", "radio")
"""Tables of a configuration that are no settings, or that are taken apart."""

Settings = Mapping[str, str | float | bool]
"""The settings of one arm by name; a list or a table is its JSON text."""


def settings_of_folders(roots: Sequence[Path]) -> dict[str, Settings]:
    """Return the settings of each arm of folders, by the names that `arms_of` gives the arms.

    Axes of a sweep come first, so that what was varied on purpose is found first.
    """
    found: dict[str, Json] = {}
    for root in roots:
        for name, arm in settings_of_arms([root]).items():
            own = {key: _plain(value) for key, value in arm.settings.items()}
            found[named_in(name, root, roots)] = {ALGORITHM: arm.label, FOLDER: root.name, **own}
        for side in sides_of_arms([root]):
            known = found.setdefault(
                named_in(side.name, root, roots),
                {ALGORITHM: str(side.table.get("label")), FOLDER: root.name},
            )
            for key, value in _flat(side).items():
                known.setdefault(key, value)
    return dict(found)


def _flat(side: Side) -> Json:
    """Return what an arm was run with, table by table; its own network replaces the common one."""
    config, own = side.config, side.table
    network = own.get("network") or config.get("network") or config.get("radio") or {}
    tables: Json = {key: value for key, value in config.items() if key not in APART}
    tables["network"] = network
    options = {key: value for key, value in own.items() if key not in ("label", "network")}
    return _opened(tables, "") | _opened(options, f"{ALGORITHM}.")


def _opened(table: Table, before: str) -> Json:
    found: Json = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            found |= _opened(value, f"{before}{key}.")
        else:
            found[f"{before}{key}"] = _plain(value)
    return found


def _plain(value: object) -> str | float | bool:
    """Return a value that can be compared and written; a table by its entries, a list as JSON."""
    if isinstance(value, Mapping):
        first = [str(value["name"])] if "name" in value else []
        rest = [f"{key}={_plain(item)}" for key, item in value.items() if key != "name"]
        return ", ".join([*first, *rest])
    return value if isinstance(value, str | int | float | bool) else json.dumps(value)


def varying(facts: Mapping[str, Settings]) -> dict[str, list[str | float | bool]]:
    """Return the settings that differ between arms, each with its values in order.

    One that some arms do not have differs if the others have two values of it.
    """
    found: dict[str, list[str | float | bool]] = {}
    for own in facts.values():
        for key, value in own.items():
            values = found.setdefault(key, [])
            if value not in values:
                values.append(value)
    return {key: values for key, values in found.items() if len(values) > 1}
