"""Compile ahead: the programs of the next methods, on all cores, while the first one runs.

A first run of a small comparison spends half of its time compiling, one method after the other on
one core. Here threads make the first slot of each later method and drop it. The run itself then
finds every program compiled. Its numbers are the same: they come from the same programs.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from threading import Event, Thread

import jax

from folkman.engine import simulate
from folkman.experiment.parts import Part
from folkman.problem.problem import Problem
from folkman.record.folder import RunFolder

__all__ = ["compiling_ahead"]

MOST_NUMBERS = 10**7
"""Numbers in all samples, and in all nodes' models, up to which a slot costs less than compiling
it."""


@contextmanager
def compiling_ahead(first: Sequence[Part], folder: RunFolder) -> Iterator[None]:
    """Compile what the parts after the first need, while the block runs; `first` has one a label.

    Parts that the folder has begun are left alone. When the block ends in an error nothing more is
    compiled; Ctrl-C waits for nothing.
    """
    later = [part for part in first[1:] if _is_light(part) and not folder.part(part.run).exists()]
    if not later or jax.default_backend() != "cpu" or _cores() < 2:
        yield
        return
    precise, ended = bool(jax.config.jax_enable_x64), Event()  # type: ignore[attr-defined]
    waiting = SimpleQueue[Part]()
    for part in later:
        waiting.put(part)
    # one for each core, though the run itself has a core: it waits for what a thread compiles
    number = min(_cores(), len(later))
    threads = [
        Thread(target=_compile, args=(waiting, precise, ended), daemon=True) for _ in range(number)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException:
        ended.set()
        for thread in threads:
            thread.join()
        raise
    for thread in threads:
        thread.join()


def _cores() -> int:
    """Return the cores that this process may use."""
    known = getattr(os, "sched_getaffinity", None)
    return len(known(0)) if known is not None else os.cpu_count() or 1


def _is_light(part: Part) -> bool:
    """Tell whether one slot more costs next to nothing: little data, compiled as one program."""
    problem = part.simulation.problem
    if not isinstance(problem, Problem) or problem.called_from_python:
        return False
    largest = max(problem.x.size, problem.num_nodes * problem.dim)
    # the program of a timeline is made for the length of its stretch
    return largest <= MOST_NUMBERS and not part.simulation.recording.timeline


def _compile(waiting: "SimpleQueue[Part]", precise: bool, ended: Event) -> None:
    """Make the first slot of each part that waits, and drop it."""
    # the setting is the thread's own; what is wrong with a part is said when it runs
    with jax.enable_x64(precise), suppress(Exception):
        while not ended.is_set():
            part = waiting.get_nowait()  # the last one leaves it empty, which ends this too
            mark = simulate.start(part.simulation, part.run.seed)
            for reached, _ in simulate.march(part.simulation, mark, slots=1):
                simulate.outcome(part.simulation, reached)
