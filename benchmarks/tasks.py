"""The works and their tasks: `tasks/*.toml`, and the least arithmetic and bytes of each.

flops of a gradient = samples x products   forward once, and backward once for the kernels and once
                                           for the inputs, of which the first layer's are not needed
bytes of a node-step = 4 (batch x features + 4 d)   samples read; parameters read and written by the
                                                    step, and again by the average
"""

import tomllib
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
]

FOLDER = Path(__file__).with_name("tasks")
IMAGE = (28, 28, 1)
CLASSES = 10
NUM_PARAMETERS = {"softmax": 7_850, "cnn": 430_698}


class Task(NamedTuple):
    """A work at one number of nodes: what the process of a side reads."""

    work: str
    model: str  # softmax or cnn
    nodes: int
    samples: int  # a node
    batch: int | None  # samples a gradient; None is all of them
    rounds: int
    step: float
    network: str  # free: average of all after every step; radio, snapshot: Algorithm 1 over these
    cell: int | None  # nodes of a cell, within which averages are taken; None is all nodes
    precision: str = "float32"  # of the model's products

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
    )


def chosen(names: list[str], known: list[str], what: str) -> list[str]:
    """Return the names asked for, in the order known, all of them where none is.

    Refuse a name that is not known.
    """
    for name in names:
        require(name in known, f"there is no {what} '{name}'; {nearest(name, known)}")
    return [name for name in known if not names or name in names]


def products_forward(model: str) -> dict[str, int]:
    """Return the multiplications of one sample's forward pass, layer by layer."""
    height, width, channels = IMAGE
    if model == "softmax":
        return {"dense": height * width * channels * CLASSES}
    flat = (height // 4) * (width // 4) * 32
    return {
        "conv0": height * width * 25 * channels * 32,
        "conv1": (height // 2) * (width // 2) * 25 * 32 * 32,
        "dense0": flat * 256,
        "dense1": 256 * CLASSES,
    }


def flops_per_node_step(task: Task) -> float:
    """Return the multiplications and additions of one gradient.

    The first layer needs no gradient of its input.
    """
    layers = list(products_forward(task.model).values())
    return 2.0 * task.batch_size * (3 * sum(layers) - layers[0])


def bytes_per_node_step(task: Task) -> float:
    """Return the least bytes that one step and its share of the average must move, in float32."""
    height, width, channels = IMAGE
    return 4.0 * (task.batch_size * height * width * channels + 4 * NUM_PARAMETERS[task.model])
