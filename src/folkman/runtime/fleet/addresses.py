"""Where the nodes of a fleet are: a file, or words of the command line.

    certs = "certs"               # ca.crt, members.json, operator-NAME.crt, operator-NAME.key
    operator = "alice"            # whose key, if the folder has several

    [nodes]
    node-0 = "192.0.2.10:7600"    # the address of [operator] listen in its node.toml

Paths are relative to the file.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from folkman.checks import nearest, require
from folkman.config.choices import ConfigError, describe
from folkman.config.text import dump, read
from folkman.record.json_file import write_text
from folkman.runtime.entrance import Address
from folkman.runtime.identity import name_of, number_of

__all__ = ["Fleet", "chosen", "read_fleet", "write_fleet"]


class Fleet(NamedTuple):
    """Names and addresses, and whose certificate to show."""

    nodes: dict[str, Address]
    certs: Path
    operator: str | None


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    nodes: dict[str, str]
    certs: Path = Path("certs")
    operator: str | None = None


def read_fleet(path: Path) -> Fleet:
    """Read a fleet's file, or say what is wrong with it."""
    raw = read(path)
    for key in raw:
        if key not in _File.model_fields:
            raise ConfigError(f"unknown key '{key}' in {path}; {nearest(key, _File.model_fields)}")
    try:
        found = _File(**raw)
    except ValidationError as error:
        raise ConfigError(describe(error, "")) from None
    places = {_named(name): _placed(text) for name, text in found.nodes.items()}
    require(bool(places), f"expected nodes under [nodes] in {path}, got none")
    return Fleet(places, path.resolve().parent / found.certs, found.operator)


def write_fleet(
    path: Path, nodes: Mapping[str, Address], certs: str, operator: str | None = None
) -> None:
    """Write a fleet's file; refuse to replace one."""
    require(not path.exists(), f"{path} is there; choose another name")
    places = {name: _text(place) for name, place in nodes.items()}
    write_text(path, dump({"certs": certs, "operator": operator, "nodes": places}))


def chosen(fleet: Fleet | None, words: Sequence[str], certs: Path | None) -> Fleet:
    """Return the nodes to talk to: those of a file, some of them by name, or NAME=HOST:PORT."""
    require(
        fleet is not None or bool(words),
        "expected a fleet: name its file with --fleet, or its nodes with --node node-0=HOST:PORT",
    )
    known = fleet.nodes if fleet is not None else {}
    nodes: dict[str, Address] = {}
    for word in words:
        name, equals, place = word.partition("=")
        name = _named(name)
        if equals:
            nodes[name] = _placed(place)
            continue
        require(
            name in known,
            f"there is no address of '{name}'; write --node {name}=HOST:PORT"
            + (f", or one of {', '.join(known)}" if known else ""),
        )
        nodes[name] = known[name]
    home = certs or (fleet.certs if fleet is not None else Path("certs"))
    return Fleet(nodes or dict(known), home, fleet.operator if fleet is not None else None)


def _named(name: str) -> str:
    return name_of(number_of(name))


def _placed(text: str) -> Address:
    host, _, port = text.rpartition(":")
    require(
        bool(host) and port.isdigit() and 0 < int(port) < 65536, f"expected HOST:PORT, got '{text}'"
    )
    return host.strip("[]"), int(port)


def _text(place: Address) -> str:
    host, port = place
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
