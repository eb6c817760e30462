"""How a process of the benchmark is spoken to: one JSON object a line, both ways.

    it says   {"ready": true, "version": "..."}                      once it could begin
    is asked  {"do": "repeat", "rounds": 20}, {"do": "end"}, or an order of its own
    answers   {"seconds": 1.2, "aside_s": 0, "model": "x.npy", ...}  or  {"error": "..."}

Runs under Python 3.9 and later with NumPy alone: it is also loaded inside the opponents'
environments. Whatever else a process prints goes to its standard error.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Arrays", "Form", "Learner", "folder", "form", "keep", "load_arrays", "serve", "task"]


class Form(NamedTuple):
    """What a model is made of."""

    model: str  # softmax, mlp or cnn
    sample: tuple[int, ...]  # height, width, channels of an image; any shape for dense models
    hidden: tuple[int, ...]
    classes: int

    @property
    def widths(self) -> tuple[int, ...]:
        """Return the widths of a dense model, from the features to the classes."""
        return (int(np.prod(self.sample)), *self.hidden, self.classes)


class Arrays(NamedTuple):
    """What is learnt from, the same for all: a pool of samples, and who holds which."""

    pool_x: np.ndarray  # (sample, 784) float32
    pool_y: np.ndarray  # (sample,) int32
    parts: np.ndarray  # (node, sample) rows of the pool
    initial: np.ndarray  # (d,) the common first model, in folkman's layout
    draws: np.ndarray | None  # (round, node, batch) which of its samples a node takes; None for all
    counts: np.ndarray | None = None  # (node,) samples that are real, where nodes hold unequal many
    shares: np.ndarray | None = None  # (node,) what a node weighs in the average; None: all alike

    def samples(self) -> tuple[np.ndarray, np.ndarray]:
        """Return every node's own samples, (node, sample, feature) and (node, sample), padded."""
        return self.pool_x[self.parts], self.pool_y[self.parts]

    def rows(self, k: int, i: int) -> Any:
        """Return which of its samples node i takes in round k: rows, or a slice of all."""
        if self.draws is not None:
            return self.draws[k, i]
        return slice(None) if self.counts is None else slice(int(self.counts[i]))


class Learner(NamedTuple):
    """One side of the benchmark."""

    version: str
    begin: Callable[[int], Any]  # (rounds) -> state; not timed
    learn: Callable[[Any, int], Any]  # (state, rounds) -> state; timed, and ended when it returns
    model: Callable[
        [Any], np.ndarray
    ]  # state -> (d,) the average model, in folkman's layout; not timed
    aside_s: Callable[[Any], float] = lambda state: (
        0.0
    )  # seconds within `learn` that are not the work
    orders: Mapping[str, Callable[[dict], dict]] = MappingProxyType(
        {}
    )  # answers to orders of its own
    notes: Mapping[str, Any] = MappingProxyType({})  # said with every answer


def folder() -> Path:
    """Return the folder with the task and its arrays: the first argument."""
    return Path(sys.argv[1])


def task(given: str | None = None) -> dict[str, Any]:
    """Return the task, of another folder where one is given."""
    place = Path(given) if given else folder()
    return json.loads((place / "task.json").read_text(encoding="utf-8"))


def form(task: Mapping[str, Any]) -> Form:
    """Return what the model of a task is made of."""
    return Form(task["model"], tuple(task["sample"]), tuple(task["hidden"]), task["classes"])


def load_arrays(given: str | None = None) -> Arrays:
    """Read the arrays of the task, from another folder where one is given."""
    place = Path(given) if given else folder()
    pool_x, pool_y, parts, initial = (
        np.load(place / f"{name}.npy") for name in ("pool_x", "pool_y", "parts", "initial")
    )
    draws, counts, shares = (
        np.load(path) if (path := place / f"{name}.npy").exists() else None
        for name in ("draws", "counts", "shares")
    )
    return Arrays(pool_x, pool_y, parts, initial, draws, counts, shares)


def keep(name: str, values: np.ndarray) -> str:
    """Write a vector where the benchmark can read it, and return where."""
    path = folder() / f"{name}-{os.getpid()}.npy"
    np.save(path, np.asarray(values, np.float32))
    return str(path)


def serve(build: Callable[[], Learner]) -> None:
    """Build a side of the benchmark, say so, and answer orders until told to end or left alone."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(**facts: Any) -> None:
        answers.write(json.dumps(facts) + "\n")
        answers.flush()

    try:
        learner = build()
    except Exception as error:
        say(error=_text(error))
        return
    say(ready=True, version=learner.version)
    for line in sys.stdin:
        order = json.loads(line)
        if order["do"] == "end":
            return
        try:
            say(**_obey(learner, order))
        except Exception as error:
            say(error=_text(error))


def _obey(learner: Learner, order: dict[str, Any]) -> dict[str, Any]:
    if order["do"] in learner.orders:
        return learner.orders[order["do"]](order)
    state = learner.begin(order["rounds"])
    begun = time.perf_counter()
    state = learner.learn(state, order["rounds"])
    seconds = time.perf_counter() - begun
    path = keep("model", learner.model(state))
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6  # Linux counts KiB
    facts = {
        "seconds": seconds,
        "aside_s": learner.aside_s(state),
        "model": path,
        "memory_mb": memory_mb,
    }
    return {**facts, **learner.notes}


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:500]
