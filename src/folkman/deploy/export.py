"""Write a trained model for other libraries: `fm.export("runs/first", "onnx")`.

What can be written are networks that say what they are made of (`folkman.problem.layers`); all
built-in ones do, but for the quadratic, which predicts nothing.
"""

from pathlib import Path

import folkman
from folkman.checks import one_of, require
from folkman.deploy.trained import Trained, trained
from folkman.files import write_whole
from folkman.problem.layers import Layer, Layered
from folkman.record.run import Run

__all__ = ["FORMATS", "export"]

FORMATS = {"onnx": ".onnx", "torch": ".pt"}
"""What can be written, and how a file of it ends."""


def export(
    source: Run | str | Path,  # a run, a run folder, or the folder of a cluster
    to: str,  # onnx or torch
    out: str | Path | None = None,
    *,
    algorithm: str | None = None,  # label of the method; None: the only one
    seed: int | None = None,  # seed of the run; None: the first
    node: int | None = None,  # number of the node; None: the network's model
) -> list[Path]:
    """Write the last model of a run as ONNX or for PyTorch; return the files.

    `source` is a run, a run folder or the folder of a cluster. `to` is `onnx` (one file) or `torch`
    (a `state_dict`, and beside it a Python module that loads it). `out` is the file to write,
    default model.onnx or model.pt in the working directory; a file that is there is refused.
    `algorithm`, `seed` and `node` choose among those of a folder, as `folkman predict` does.
    """
    one_of("format", to, FORMATS)
    target = Path(f"model{FORMATS[to]}" if out is None else out)
    _check_target(target, to)
    found = trained(source, algorithm=algorithm, seed=seed, node=node)
    layers = _layers(found)
    notes = {"model": found.title, "made by": f"folkman {folkman.__version__}"}
    notes["sample"] = str(found.fitted.sample)
    if to == "torch":
        from folkman.deploy.torch_file import write_torch

        return write_torch(target, found, layers, notes)
    from folkman.deploy.onnx_file import onnx_bytes

    content = onnx_bytes(found, layers, notes)
    write_whole(target, lambda part: part.write_bytes(content))
    return [target]


def _check_target(target: Path, to: str) -> None:
    """Refuse to write over a file, or a name that says something else than what is in it."""
    ending = FORMATS[to]
    require(
        target.suffix == ending, f"expected a file that ends in {ending}, got {target}; name it so"
    )
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"expected a folder to write into, there is no {target.parent}; make it first"
        )
    for file in (target, target.with_suffix(".py")) if to == "torch" else (target,):
        if file.exists():
            raise FileExistsError(f"expected a new file, {file} is there; name another --out")


def _layers(found: Trained) -> tuple[Layer, ...]:
    network = found.fitted.model.network
    kind = type(network).__name__
    remedy = (
        "it predicts nothing"
        if found.fitted.model.head.targets == "curvatures"
        else f"predict with `folkman predict`, or give {kind} a property `layers` "
        "(folkman.problem.layers)"
    )
    require(
        isinstance(network, Layered),
        f"{found.title}: its network {kind} does not say which layers it is made of, so it cannot "
        f"be written for another library; {remedy}",
    )
    return network.layers  # type: ignore[attr-defined] - just checked
