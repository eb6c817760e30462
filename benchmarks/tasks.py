"""The works and their tasks: `tasks/*.toml`, and the least arithmetic and bytes of each.

flops of a gradient = samples x products   forward once, and backward once for the kernels and once
                                           for the inputs, of which the first layer's are not needed
bytes of a node-step = 4 (batch x features + 4 d)   samples read; parameters read and written by the
                                                    step, and again by the average

Both are known of the models softmax, mlp and cnn. Works of a user's own are in `configured.py`.
"""

import tomllib
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import NamedTuple

from folkman.checks import nearest, require

__all__ = [
    "IMAGE",
    "Task",
    "Work",
    "bytes_per_node_step",
    "chosen",
    "flops_per_node_step",
    "load_works",
    "num_parameters",
    "quicker",
]

FOLDER = Path(__file__).with_name("tasks")
IMAGE = (28, 28, 1)
CLASSES = 10
QUICK_SHARE, QUICK_LEAST, QUICK_NODES = 10, 5, 1_000
"""In a hurry: a tenth of the rounds but five at least, and no task of more nodes."""


class Task(NamedTuple):
    """A work at one number of nodes: what the process of a side reads."""

    work: str
    model: str  # softmax, mlp or cnn; with a configuration any
    nodes: int
    samples: int  # a node
    batch: int | None  # samples a gradient; None is all of them
    rounds: int
    step: float
    network: str  # free: average of all after every step; radio, snapshot: Algorithm 1 over these
    cell: int | None  # nodes of a cell, within which averages are taken; None is all nodes
    precision: str = "float32"  # of the model's products
    hidden: tuple[int, ...] = ()  # widths of an mlp
    sample: tuple[int, ...] = IMAGE
    classes: int = CLASSES
    seed: int = 0
    label: str = ""  # of the method, where there are several
    config: str = ""  # the configuration that it is made of, as TOML
    uneven: bool = False  # nodes hold unequal numbers of samples
    beyond: str = ""  # why no opponent can do it

    @property
    def node_steps(self) -> int:
        """Return the gradients of all nodes in all rounds."""
        return self.nodes * self.rounds

    @property
    def batch_size(self) -> int:
        """Return the samples of one gradient."""
        return self.batch or self.samples


class Work(NamedTuple):
    """One work: a file of tasks at several numbers of nodes, and who takes part."""

    name: str
    title: str
    kind: str  # learning, gradient (GPU) or experiment
    opponents: tuple[str, ...]
    tasks: tuple[Task, ...]
    opponents_up_to: int | None  # nodes beyond which the opponents are not asked
    beside: str | None  # a work of folkman's own to compare with
    precisions: tuple[str, ...]
    quick: bool = False  # worth doing in a hurry


def load_works() -> dict[str, Work]:
    """Return all works by name."""
    return {file.stem: _work(file.stem, file) for file in sorted(FOLDER.glob("*.toml"))}


def _work(name: str, file: Path) -> Work:
    table = tomllib.loads(file.read_text(encoding="utf-8"))
    tasks = tuple(
        Task(
            name,
            table["model"],
            size["nodes"],
            size["samples"],
            table.get("batch"),
            size["rounds"],
            table["step"],
            table.get("network", "free"),
            size.get("cell"),
            hidden=tuple(table.get("hidden", ())),
        )
        for size in table.get("size", ())
    )
    return Work(
        name,
        table["title"],
        table["kind"],
        tuple(table["opponents"]),
        tasks,
        table.get("opponents_up_to"),
        table.get("beside"),
        tuple(table.get("precisions", ("float32",))),
        table.get("quick", False),
    )


def quicker(work: Work) -> Work:
    """Return a work with fewer rounds, and without its largest tasks."""
    tasks = tuple(
        task._replace(rounds=min(task.rounds, max(task.rounds // QUICK_SHARE, QUICK_LEAST)))
        for task in work.tasks
        if task.nodes <= QUICK_NODES
    )
    return work._replace(tasks=tasks)


def chosen(names: list[str], known: list[str], what: str) -> list[str]:
    """Return the names asked for, in the order known, all of them where none is.

    Refuse a name that is not known.
    """
    for name in names:
        require(name in known, f"there is no {what} '{name}'; {nearest(name, known)}")
    return [name for name in known if not names or name in names]


def _widths(task: Task) -> tuple[int, ...]:
    return (prod(task.sample), *task.hidden, task.classes)


def _layers(task: Task) -> list[tuple[int, int, int]] | None:
    """Return the inputs, outputs and positions of each layer; None where they are not known."""
    if task.model in ("softmax", "mlp"):
        widths = _widths(task)
        return [(a, b, 1) for a, b in pairwise(widths)]
    if task.model != "cnn":
        return None
    height, width, channels = task.sample
    flat = (height // 4) * (width // 4) * 32
    return [
        (25 * channels, 32, height * width),
        (25 * 32, 32, (height // 2) * (width // 2)),
        (flat, 256, 1),
        (256, task.classes, 1),
    ]


def num_parameters(task: Task) -> int | None:
    """Return d; None for a model that is not known."""
    layers = _layers(task)
    return None if layers is None else sum((a + 1) * b for a, b, _ in layers)


def flops_per_node_step(task: Task) -> float | None:
    """Return the multiplications and additions of one gradient; None for an unknown model.

    The first layer needs no gradient of its input.
    """
    layers = _layers(task)
    if layers is None:
        return None
    products = [a * b * positions for a, b, positions in layers]
    return 2.0 * task.batch_size * (3 * sum(products) - products[0])


def bytes_per_node_step(task: Task) -> float | None:
    """Return the least bytes that one step and its share of the average must move, in float32."""
    size = num_parameters(task)
    return None if size is None else 4.0 * (task.batch_size * prod(task.sample) + 4 * size)
