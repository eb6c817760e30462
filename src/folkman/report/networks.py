"""On which network each arm of a comparison runs, and which arms are references."""

from collections.abc import Iterable, Mapping, Sequence

from folkman.record.json_file import Json
from folkman.record.tuned import Side

__all__ = ["CHOSEN", "IDEAL", "bounds", "network_names", "unlike_rules"]

CHOSEN = ("threshold_db", "schedule", "message", "allocation", "period", "weights", "thrift")
"""Options of a network by which a method shares the band of one and the same cell."""
IDEAL = "ideal"
"""The network on which messages take no time: what runs on it is a reference for the
others, and not ranked."""


def network_names(sides: Iterable[Side]) -> dict[str, str]:
    """Return the network that each side runs on: its name, and options where two differ in them.

    What a method may choose on it (`CHOSEN`) makes no other network.
    """
    tables = {
        side.name: {key: item for key, item in _network_of(side).items() if key not in CHOSEN}
        for side in sides
    }
    return {label: _name(table, list(tables.values())) for label, table in tables.items()}


def unlike_rules(sides: Iterable[Side]) -> str:
    """Return that sides share the band of the cell by different rules; nothing if they do not."""
    found: dict[str, list[str]] = {}
    for side in sides:
        network = _network_of(side)
        if network.get("name") == "radio":
            found.setdefault(str(network.get("schedule", "threshold")), []).append(side.name)
    if len(found) < 2:
        return ""
    told = "; ".join(f"schedule '{rule}': {', '.join(names)}" for rule, names in found.items())
    return (
        f"the sides share the band by different rules ({told}): what sets them apart may be the "
        "rule, not the method; give all the same one to compare methods alone"
    )


def _network_of(side: Side) -> Json:
    own, config = side.table.get("network"), side.config
    if isinstance(own, dict):
        return own
    if "network" not in config and "radio" not in config:
        return {"name": None}
    return config.get("network") or {"name": "radio", **(config.get("radio") or {})}


def _name(table: Json, every: Sequence[Json]) -> str:
    """Return a name that tells a network from the others: pipelined, gamma=15."""
    alike = [other for other in every if other.get("name") == table.get("name")]
    keys = dict.fromkeys(key for other in alike for key in other)
    unlike = [key for key in keys if any(other.get(key) != table.get(key) for other in alike)]
    return ", ".join([str(table.get("name")), *(f"{key}={table.get(key)}" for key in unlike)])


def bounds(networks: Mapping[str, str]) -> list[str]:
    """Return who runs where messages take no time, if others do not: they are not ranked."""
    free = [label for label, name in networks.items() if name.partition(",")[0] == IDEAL]
    return free if len(free) < len(networks) else []
