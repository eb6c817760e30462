"""Provenance: with what, where and when a run was made, in `provenance.json` of its folder."""

import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from itertools import count
from pathlib import Path

from folkman.checks import notice
from folkman.record.json_file import FORMAT, Json, now, read_json, write_json

__all__ = ["gathered", "note_end", "note_start", "note_ways", "provenance"]

PACKAGES = ("folkman", "jax", "jaxlib", "numpy", "optax", "pyarrow", "scipy", "torch")
"""The packages whose versions are kept."""


def provenance(
    command: list[str] | None,
    own_code: Mapping[str, str] | None = None,
    networks: Sequence[str] = (),
) -> Json:
    """Return what is needed to repeat a run elsewhere; a run made in Python has no command.

    `own_code` has the SHA-256 of every file from outside the package, by its path; `networks` are
    the networks in words.
    """
    own = {"own_code": dict(own_code)} if own_code else {}
    said = {"networks": list(networks)} if networks else {}
    return {"format": FORMAT, "command": command, **own, **said, **_machine(), "started": now()}


def note_start(
    path: Path,
    command: list[str] | None,
    own_code: Mapping[str, str] | None = None,
    networks: Sequence[str] = (),
) -> None:
    """Write the provenance of a folder; one that is resumed keeps what first made it."""
    facts, known = provenance(command, own_code, networks), _known(path)
    if known is not None:
        facts = {**known, "resumed": [*known.get("resumed", []), facts]}
    write_json(path, facts, indent=2)


def note_ways(path: Path, ways: Json) -> None:
    """Add on which way gradients are taken: by the shape of the work, the way and why."""
    write_json(path, {**(_known(path) or {}), "ways": ways}, indent=2)


def note_end(path: Path) -> None:
    """Add to the provenance of a folder when its runs ended."""
    write_json(path, {**(_known(path) or {}), "finished": now()}, indent=2)


def _known(path: Path) -> Json | None:
    """Return the provenance that is there. One that is damaged is kept beside it, and said."""
    known = read_json(path)
    if known is None and path.exists():
        numbers = (f".damaged{number or ''}" for number in count())
        kept = next(place for place in map(path.with_suffix, numbers) if not place.exists())
        path.replace(kept)
        notice(f"{path} is damaged; it is kept as {kept.name} and begun anew")
    return known


def gathered(folders: Mapping[str, Path]) -> Json:
    """Return with what each of many runs was made: what differs once, and of each run which it is.

    `made` has commits, versions, flags and devices; `runs` has by key its place in that list, and
    when the run was started.
    """
    made: list[Json] = []
    runs: dict[str, list[object]] = {}
    for key, folder in folders.items():
        known = read_json(folder / "provenance.json")
        if known is None:
            continue
        apart = ("command", "started", "finished", "networks", "resumed", "ways")
        facts = {name: value for name, value in known.items() if name not in apart}
        if facts not in made:
            made.append(facts)
        runs[key] = [made.index(facts), known.get("started")]
    return {"format": FORMAT, "made": made, "runs": runs}


@lru_cache(maxsize=1)
def _machine() -> Json:
    """Return the software and the machine of this process."""
    from importlib.metadata import PackageNotFoundError, version

    import jax

    versions: dict[str, str | None] = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    return {
        "commit": (commit := _commit()),
        **({"diff_sha256": _diff()} if (commit or "").endswith("-dirty") else {}),
        "versions": versions,
        "xla_flags": os.environ.get("XLA_FLAGS", ""),  # they choose kernels, and so the last bits
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "devices": [device.device_kind for device in jax.devices()],
    }


def _commit() -> str | None:
    """Return the commit of the source tree that is running, if git tracks this very file."""
    here = Path(__file__).resolve()
    if _git(here.parent, "ls-files", "--error-unmatch", here.name) is None:
        return None
    return _git(here.parent, "describe", "--always", "--dirty", "--abbrev=40")


def _diff() -> str | None:
    """Return a digest of what differs from the commit, so that two changed trees are told apart."""
    text = _git(Path(__file__).resolve().parent, "diff", "HEAD")
    return None if text is None else sha256(text.encode()).hexdigest()


def _git(folder: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(folder), *arguments]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None if answer.returncode == 0 else None
