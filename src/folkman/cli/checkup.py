"""What `folkman doctor` looks at: each check is a function that yields findings, and none fails.

A section is added by a function and a line in `SECTIONS`.
"""

import os
import re
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import NamedTuple

from folkman.machine import usable_bytes, usable_cores

__all__ = ["ABSENT", "EXTRAS", "OK", "SECTIONS", "WARNING", "WRONG", "Finding", "findings"]

OK, ABSENT, WARNING, WRONG = "ok", "absent", "warning", "wrong"
"""Verdicts: as it should be; an option that is not there; a drawback; must be mended."""


class Finding(NamedTuple):
    """One line: what was looked at, the verdict, what was found, and what to do."""

    name: str
    verdict: str
    found: str
    remedy: str = ""


EXTRAS = {
    "dash": "the live page (folkman dash)",
    "dask": "sweeps over several machines (--engine dask)",
    "devices": "nodes that are processes or boards (folkman up, node, certs)",
    "equinox": "models of equinox modules (fm.from_equinox)",
    "export": "models as ONNX (folkman export --to onnx)",
    "flax": "models of flax modules (fm.from_flax)",
    "mlflow": "runs logged to MLflow (--track mlflow)",
    "notebook": "results as pandas data frames",
    "tensorboard": "runs logged to TensorBoard (--track tensorboard)",
    "torch": "the CNN faster on a CPU, PyTorch modules (folkman.torch), export --to torch",
    "wandb": "runs logged to Weights & Biases (--track wandb)",
}
"""Extra -> what it gives to a user."""

LEAST_PYTHON = (3, 11)
LEAST_MEMORY_BYTES = 2e9
LEAST_FREE_BYTES = 1e9
LEAST_FILES = 1024
LEAST_MAPS = 65530
"""Linux's own default; a compiled program takes hundreds of maps."""
DASH_PORT, NODE_PORT = 8600, 7440
"""Where the live page and nodes on boards listen unless told otherwise."""
LEAST_COLUMNS = 80
MADE_S = 1_790_000_000
"""Autumn of 2026: a clock that shows less is not set."""


def _python() -> Iterator[Finding]:
    found = ".".join(map(str, sys.version_info[:3]))
    good = sys.version_info[:2] >= LEAST_PYTHON
    remedy = "" if good else "install Python 3.11 or later, and folkman into it"
    yield Finding("python", OK if good else WRONG, f"{found}, {sys.executable}", remedy)
    import folkman

    yield Finding("folkman", OK, f"{folkman.__version__}, {Path(folkman.__file__).parent}")


def _packages() -> Iterator[Finding]:
    """Look at what folkman needs, then at what its extras need."""
    wanted = _requirements()
    if not wanted:
        remedy = "install it: pip install folkman, or pip install -e . in a checkout"
        yield Finding("packages", WARNING, "folkman is not installed as a package", remedy)
        return
    missing = [text for text in wanted.get("", []) if _lacks(text)]
    remedy = f"pip install {' '.join(repr(each) for each in missing)}" if missing else ""
    found = f"{len(wanted[''])} needed" + (f", missing: {', '.join(missing)}" if missing else "")
    yield Finding("packages", WRONG if missing else OK, found, remedy)
    for extra, gives in EXTRAS.items():
        if extra not in wanted:  # the metadata are of another version than the sources
            yield Finding(f"extra {extra}", ABSENT, gives, f"pip install 'folkman[{extra}]'")
            continue
        lacking = [text for text in wanted[extra] if _lacks(text)]
        verdict = ABSENT if lacking else OK
        remedy = f"pip install 'folkman[{extra}]'" if lacking else ""
        yield Finding(f"extra {extra}", verdict, gives, remedy)


def _requirements() -> dict[str, list[str]]:
    """Return what is asked for, by extra; under "" what is always needed."""
    try:
        listed = requires("folkman") or []
    except PackageNotFoundError:
        return {}
    found: dict[str, list[str]] = {"": []}
    for line in listed:
        text, _, condition = (part.strip() for part in line.partition(";"))
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", condition)
        found.setdefault(extra[1] if extra else "", []).append(text)
    return found


def _lacks(requirement: str) -> bool:
    """Tell whether a package is missing, or older than is asked for."""
    name = re.match(r"[\w.-]+", requirement)
    try:
        there = version(name[0] if name else requirement)
    except PackageNotFoundError:
        return True
    try:
        from packaging.specifiers import SpecifierSet  # comes with matplotlib; a board has none
    except ImportError:
        return False
    asked = re.sub(r"^[\w.-]+(\[[^]]*\])?", "", requirement).strip(" ()")
    return not SpecifierSet(asked).contains(there, prereleases=True)


def _arithmetic() -> Iterator[Finding]:
    from folkman.arithmetic import chosen

    try:
        picked = chosen()
    except (ValueError, RuntimeError, ImportError) as error:
        yield Finding("arithmetic", WRONG, str(error), "pip install jax")
        return
    if picked.name != "jax":
        remedy = "pip install folkman brings JAX and the simulator"
        yield Finding("arithmetic", WARNING, f"{picked.name}: {picked.why}", remedy)
        return
    import jax

    backend, devices = jax.default_backend(), jax.devices()
    found = f"JAX {jax.__version__} on {backend}, {len(devices)} of {devices[0].device_kind}"
    idle = backend == "cpu" and any(Path("/dev").glob("nvidia[0-9]*"))
    remedy = "a GPU is here and not used: pip install 'jax[cuda12]'" if idle else ""
    yield Finding("arithmetic", WARNING if idle else OK, found, remedy)


def _machine() -> Iterator[Finding]:
    yield Finding("cores", OK, f"{usable_cores()} usable")
    memory = usable_bytes()
    low = memory is not None and memory < LEAST_MEMORY_BYTES
    found = "not known" if memory is None else f"{memory / 1e9:.1f} GB usable"
    remedy = "JAX takes 0.3 GB; on a board install folkman-node, which needs 0.1" if low else ""
    yield Finding("memory", WARNING if low else OK, found, remedy)
    yield from _limits()


def _limits() -> Iterator[Finding]:
    try:
        import resource

        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    except (ImportError, OSError):  # not of this system
        return
    few = 0 <= files < LEAST_FILES
    remedy = f"ulimit -n {4 * LEAST_FILES}: large clusters and sweeps need more" if few else ""
    yield Finding("open files", WARNING if few else OK, f"at most {files}", remedy)
    try:
        maps = int(Path("/proc/sys/vm/max_map_count").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    few = maps < LEAST_MAPS
    remedy = f"sysctl -w vm.max_map_count={LEAST_MAPS}: compiled programs need maps" if few else ""
    yield Finding("memory maps", WARNING if few else OK, f"at most {maps}", remedy)


def _folders() -> Iterator[Finding]:
    from folkman.files import program_cache

    cache = Path(os.environ.get("JAX_COMPILATION_CACHE_DIR") or program_cache())
    yield _writable("cache", cache, "set XDG_CACHE_HOME to a folder that you may write to")
    yield _writable("working folder", Path.cwd(), "change to a folder that you may write to")


def _size(path: Path) -> int:
    """Return the bytes of a file; 0 of a folder, and of what another process has just removed."""
    try:
        return path.stat().st_size if path.is_file() else 0
    except FileNotFoundError:
        return 0


def _writable(name: str, folder: Path, remedy: str) -> Finding:
    """Check that files can be made in a folder, or in the nearest that is there above it."""
    place = next(each for each in (folder, *folder.parents) if each.exists())
    if not (place.is_dir() and os.access(place, os.W_OK | os.X_OK)):
        return Finding(name, WRONG, f"{folder} cannot be written", remedy)
    free = shutil.disk_usage(place).free
    size = ""
    if name == "cache" and folder.is_dir():
        held = sum(_size(each) for each in folder.rglob("*"))
        size = f", holds {held / 1e6:.0f} MB (delete it at any time)"
    found = f"{folder}{size}, {free / 1e9:.0f} GB free"
    if free < LEAST_FREE_BYTES:
        return Finding(name, WARNING, found, "make room on this disk")
    return Finding(name, OK, found)


def _data() -> Iterator[Finding]:
    try:
        from folkman.problem.data import DRAWN, default_folder
        from folkman.problem.fetch import status
    except ImportError as error:
        yield Finding("data", WRONG, f"cannot be looked at: {error}", "pip install folkman")
        return
    yield Finding("data", OK, f"always here: {', '.join(DRAWN)}")
    for row in status(default_folder()):
        name, there = row["name"], bool(row["verified"])
        if there or not row["present"]:
            found = f"{row['samples']} samples, verified" if there else "not fetched"
            remedy = "" if there else f"folkman data fetch {name}"
            yield Finding(f"data {name}", OK if there else ABSENT, found, remedy)
        else:
            yield Finding(
                f"data {name}", WRONG, "fails its checksums", f"folkman data fetch {name}"
            )


def _surroundings() -> Iterator[Finding]:
    width = shutil.get_terminal_size().columns
    narrow = width < LEAST_COLUMNS
    remedy = "tables fold; widen the terminal, or use --json" if narrow else ""
    yield Finding("terminal", WARNING if narrow else OK, f"{width} columns", remedy)
    yield _port("port of folkman dash", DASH_PORT, "folkman dash --port 0 takes a free one")
    yield _port("port of nodes", NODE_PORT, "name another in `listen` of node.toml")
    now_s = time.time()
    shown = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now_s))
    behind = now_s < MADE_S
    remedy = "set the clock: certificates of nodes are refused before they begin" if behind else ""
    yield Finding("clock", WRONG if behind else OK, shown, remedy)


def _port(name: str, port: int, remedy: str) -> Finding:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return Finding(name, WARNING, f"{port}: {error.strerror}", remedy)
    return Finding(name, OK, f"{port} is free")


SECTIONS: Mapping[str, Callable[[], Iterator[Finding]]] = {
    "python": _python,
    "packages": _packages,
    "arithmetic": _arithmetic,
    "machine": _machine,
    "folders": _folders,
    "data": _data,
    "surroundings": _surroundings,
}
"""What is looked at, in order."""


def findings() -> list[Finding]:
    """Look at everything; a check that fails itself is a finding too."""
    found: list[Finding] = []
    for name, look in SECTIONS.items():
        try:
            found += look()
        except Exception as error:  # a broken installation breaks in many ways
            text = f"could not be looked at: {type(error).__name__}: {error}"
            found.append(Finding(name, WRONG, text, "install folkman again"))
    return found
