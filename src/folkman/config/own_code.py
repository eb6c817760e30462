"""The own code of a comparison: the files that it names, their digests, how they travel with it."""

import base64
from pathlib import Path

from folkman.config.comparison import Comparison, renamed
from folkman.config.plugins import Parcel, Plugin, is_file, place_of, write_files

__all__ = ["bundled", "digests", "parcel", "write_bundle"]


def digests(comparison: Comparison) -> dict[str, str]:
    """Return the SHA-256 of every file of own code by its path."""
    found: dict[str, str] = {}
    for plugin in _plugins(comparison).values():
        found |= plugin.digests
    return found


def parcel(comparison: Comparison) -> Parcel:
    """Return the own files of a comparison as JSON holds them; `plugins.unpacked` takes them."""
    found = {}
    for name, plugin in _plugins(comparison).items():
        if is_file(name):
            files = plugin.files.items()
            found[place_of(name)] = {path: base64.b64encode(each).decode() for path, each in files}
    return found


def bundled(comparison: Comparison) -> Comparison:
    """Return a comparison that names its own files where `write_bundle` puts them."""

    def below(name: str, plugin: Plugin) -> str:
        return f"{_home(plugin)}/{Path(name).name}" if is_file(name) else name

    return renamed(comparison, below)


def write_bundle(comparison: Comparison, root: Path) -> None:
    """Copy the own files of a comparison below a folder."""
    for name, plugin in _plugins(comparison).items():
        if is_file(name):
            write_files(plugin.files, root / _home(plugin))


def _home(plugin: Plugin) -> str:
    return f"own_code/{plugin.digest[:12]}"


def _plugins(comparison: Comparison) -> dict[str, Plugin]:
    found: dict[str, Plugin] = {}

    def collect(name: str, plugin: Plugin) -> str:
        found[name] = plugin
        return name

    renamed(comparison, collect)
    return found
