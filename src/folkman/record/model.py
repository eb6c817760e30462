"""The last models of a run: named tensors, and the samples that they are for.

A file is safetensors. Its metadata say the shape of a sample and the number of classes, so that a
model can be built again without the data that it was learnt from:

    sample   "[8, 8, 1]"     as JSON
    classes  "10"            0 where targets are numbers

Files of before this was noted have neither, nor do those of problems that are not folkman's own.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from folkman.files import save_tensors

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["StoredModel", "load_model", "save_model"]


class StoredModel(NamedTuple):
    """The tensors of a model by name, and what is known of its samples."""

    tensors: "dict[str, NDArray]"
    sample: tuple[int, ...] | None = None  # shape of a sample; None: not noted
    classes: int = 0


def save_model(path: Path, model: StoredModel) -> None:
    """Write a model, whole or not at all."""
    notes = None
    if model.sample is not None:
        notes = {"sample": json.dumps(list(model.sample)), "classes": str(model.classes)}
    save_tensors(path, model.tensors, notes)


def load_model(path: Path) -> StoredModel:
    """Read a model; refuse a file that is none."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            notes = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no dict
        sample = tuple(json.loads(notes["sample"])) if "sample" in notes else None
        return StoredModel(tensors, sample, int(notes.get("classes", 0)))
    except (SafetensorError, ValueError, TypeError) as error:
        raise ValueError(
            f"expected a model as safetensors, {path} is damaged: {error}; run it again"
        ) from None
