"""Which way to take gradients is fastest here: timed once for a work on a machine, and kept.

    problem = folkman.fastest(problem)

A *work* is all that the time of a gradient depends on: the shapes of model and samples, nodes,
batch, precision, cores and versions. The first time a work is met, every way that is open to it
(`problem/ways.py`) is timed in turn, and the choice goes into a file of its own in the cache. From
then on it is read, so that the same work goes the same way in every run on this machine: ways
differ in rounding, and a choice that changed would change bits.

Works below `WORTH_TIMING` keep their default way and are never timed.
"""

import hashlib
import json
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from folkman.files import machine_cache
from folkman.keys import Stream, make_key
from folkman.machine import usable_cores
from folkman.problem.learnable import Learnable
from folkman.problem.operations import gradient_operations
from folkman.problem.sampling import batch_keys
from folkman.problem.ways import FROM_PYTHON, WAYS, Way, open_ways

__all__ = [
    "Choice",
    "choice_for",
    "decide",
    "fastest",
    "folder",
    "kept_choices",
    "key_of",
    "on_way",
]
__all__ += ["work_of"]

Work: TypeAlias = dict[str, Any]
Timer: TypeAlias = Callable[[Learnable, Sequence[Way]], dict[Way, float]]
Some = TypeVar("Some", bound=Learnable)

FORMAT = 1
"""Of a kept choice; a file of another one is timed again."""

WORTH_TIMING = 5e7
"""Operations of all nodes' gradients below which no way can save a noticeable time."""

MARGIN = 0.9
"""Part of the default's time that another way must stay below: a loaded machine times badly."""

ROUNDS = 7
"""Turns of all ways; the least time of a way counts."""

LIMIT_S = 4.0
"""After this time no further turn begins."""

PACKAGES = ("folkman", "jax", "jaxlib", "torch")


class Choice(NamedTuple):
    """The way of a work, and how it came about."""

    work: Work
    way: Way | None  # None: the problem's own default
    ms: Mapping[Way, float]  # of all nodes' gradients; empty where nothing was timed
    why: str

    @property
    def other(self) -> Way | None:
        """Return the way if it is not the default, which is the first that is timed."""
        return None if self.way == next(iter(self.ms), self.way) else self.way


def fastest(problem: Some) -> Some:
    """Return the problem on its fastest way here: as kept, or timed now and kept.

    The numbers are the same to rounding. Problems of little work come back as they are.
    """
    return on_way(problem, choice_for(problem).other)


def on_way(problem: Some, way: Way | None) -> Some:
    """Return a problem that goes a way; None is its default."""
    return problem if way is None else replace(problem, way=way)  # type: ignore[type-var]


def choice_for(problem: Learnable, timer: Timer | None = None) -> Choice:
    """Return what is kept for a problem's work; time its ways and keep the choice if nothing is."""
    work = work_of(problem)
    ways, why = open_ways(problem)
    if len(ways) < 2:
        return Choice(work, None, {}, why or "there is one way")
    operations = float(gradient_operations(problem).sum())
    if operations < WORTH_TIMING:
        return Choice(work, None, {}, f"{operations / 1e6:.1f} million operations: too few to time")
    file = folder() / f"{key_of(work)}.json"
    known = _read(file, work, ways)
    if known is not None:
        return known
    found = decide(work, ways, (timer or _timed)(problem, ways))
    return _keep(file, found, ways)


def decide(work: Work, ways: Sequence[Way], ms: Mapping[Way, float]) -> Choice:
    """Return the fastest way, but the default (the first) unless another is clearly faster.

    >>> decide({}, ("together", "apart"), {"together": 10.0, "apart": 9.0}).way
    'together'
    >>> decide({}, ("together", "apart"), {"together": 10.0, "apart": 5.0}).way
    'apart'
    """
    default = ways[0]
    best = min(ways, key=lambda way: ms[way])
    share = ms[best] / ms[default]
    if best == default:
        return Choice(work, default, dict(ms), "the default, and the fastest")
    if share >= MARGIN:
        why = f"the default: {best} takes {share:.2f} of its time, and {MARGIN:.2f} is asked for"
        return Choice(work, default, dict(ms), why)
    return Choice(work, best, dict(ms), f"takes {share:.2f} of the time of {default}")


def work_of(problem: Learnable) -> Work:
    """Return all that the time of a problem's gradients depends on."""
    return {
        "shape": _shape_of(problem),
        "machine": {
            "cores": usable_cores(),
            "devices": len(jax.devices()),
            "flags": os.environ.get("XLA_FLAGS", ""),
            "versions": {name: _version(name) for name in PACKAGES},
        },
    }


def _shape_of(problem: Learnable) -> Work:
    """Return what is known of a work on every machine."""
    model = getattr(problem, "model", problem)
    network = getattr(model, "network", getattr(model, "module", model))
    head = getattr(getattr(model, "head", None), "losses", None)
    x = getattr(problem, "x", None)
    return {
        "model": type(network).__name__,
        "tensors": [[name, list(shape)] for name, shape in problem.layout.shapes],
        "loss": getattr(head, "__name__", None),
        "precision": getattr(network, "precision", None),
        "convolutional": bool(getattr(model, "convolutional", False)),
        "nodes": problem.num_nodes,
        "samples": int(np.asarray(problem.count).max()) if x is None else int(x.shape[1]),
        "sample": None if x is None else list(x.shape[2:]),
        "batch": problem.batch,
        "sampling": getattr(problem, "sampling", None),
        "l2": bool(getattr(problem, "l2", 0.0)),
        "dtype": str(problem.initial.dtype),
    }


def key_of(work: Work) -> str:
    """Return the name of a work, or of its shape: the same in every process."""
    return hashlib.sha256(json.dumps(work, sort_keys=True).encode()).hexdigest()[:20]


def kept_choices() -> list[Choice]:
    """Return all choices that are kept for this machine, oldest first."""
    files = sorted(folder().glob("*.json"), key=lambda file: (file.stat().st_mtime, file.name))
    found = (_read(file, None, WAYS) for file in files)
    return [each for each in found if each is not None]


def folder() -> Path:
    """Return where choices are kept, a file for each work."""
    return machine_cache("speed")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _read(file: Path, work: Work | None, ways: Sequence[Way]) -> Choice | None:
    """Return the choice in a file; say what is wrong with one that cannot be used, and drop it."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError:
        return None
    try:
        return _checked(json.loads(text), work, ways)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        warnings.warn(
            f"{file} should keep the fastest way of a work and does not ({error}); it is removed, "
            "and the ways are timed again when the work is next met",
            stacklevel=2,
        )
        file.unlink(missing_ok=True)
        return None


def _checked(known: Any, work: Work | None, ways: Sequence[Way]) -> Choice:
    if known["format"] != FORMAT:
        raise ValueError(f"its format is {known['format']!r}, expected {FORMAT}")
    ms = {way: float(value) for way, value in known["ms"].items()}
    if set(ms) - set(WAYS) or known["way"] not in ms or known["way"] not in ways:
        raise ValueError(f"it names the way {known['way']!r}, expected one of {', '.join(ways)}")
    if not all(0 < value < float("inf") for value in ms.values()):
        raise ValueError("its times are not all above zero")
    if not isinstance(known["work"], dict) or (work is not None and known["work"] != work):
        raise ValueError("it was made for another work")
    return Choice(known["work"], known["way"], ms, str(known["why"]))


def _keep(file: Path, found: Choice, ways: Sequence[Way]) -> Choice:
    """Keep a choice unless another process has kept one meanwhile; return the one that counts."""
    part = file.with_name(f".{file.stem}.{os.getpid()}.part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps({"format": FORMAT, **found._asdict()}), encoding="utf-8")
        try:
            os.link(part, file)  # unlike a rename it gives way to a file that is there
        finally:
            part.unlink()
    except FileExistsError:
        if file.is_file():
            return _read(file, found.work, ways) or found
        _not_kept(file, "a file stands where a folder should be")
    except OSError as error:
        _not_kept(file, str(error))
    return found


def _not_kept(file: Path, why: str) -> None:
    warnings.warn(
        f"the fastest way of this work could not be kept in {file.parent} ({why}); the next run "
        "times it again, and may round otherwise; set XDG_CACHE_HOME to a folder that you may "
        "write to",
        stacklevel=3,
    )


def _timed(problem: Learnable, ways: Sequence[Way]) -> dict[Way, float]:
    """Return the milliseconds of all nodes' gradients by each way: the least of several turns."""
    nodes = problem.num_nodes
    steps = jnp.zeros(nodes, jnp.int32)
    keys = batch_keys(problem, make_key(0, Stream.BATCH), problem.node, steps)
    points = jnp.broadcast_to(problem.initial, (nodes, problem.dim)) + 0
    takers: dict[Way, Callable[[], object]] = {
        way: _taker(on_way(problem, way), points, keys) for way in ways
    }
    for take in takers.values():
        take()  # compiles
    least_s: dict[Way, float] = dict.fromkeys(ways, float("inf"))
    begun_s = time.monotonic()
    for _ in range(ROUNDS):
        for way, take in takers.items():
            at_s = time.perf_counter()
            take()
            least_s[way] = min(least_s[way], time.perf_counter() - at_s)
        if time.monotonic() - begun_s > LIMIT_S:
            break
    return {way: round(1e3 * taken_s, 4) for way, taken_s in least_s.items()}


def _taker(problem: Learnable, points: Array, keys: Any) -> Callable[[], object]:
    called = getattr(problem, "way", None) in FROM_PYTHON or problem.called_from_python
    gradients = type(problem).gradients
    take = gradients if called else jax.jit(gradients)
    return partial(_wait, partial(take, problem, points, keys))


def _wait(work: Callable[[], object]) -> None:
    jax.block_until_ready(work())
