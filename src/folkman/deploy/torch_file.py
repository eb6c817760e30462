"""A trained model as a PyTorch `state_dict`, and the module that takes it.

    model.pt    the state_dict; torch.load(..., weights_only=True) reads it
    model.py    a module with the same layers; it needs PyTorch alone, and no folkman

The module takes samples (n, *sample) in float32 with channels last, as folkman does, and gives
scores (n, output).
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkman.checks import need, require
from folkman.deploy.trained import Trained
from folkman.files import write_whole
from folkman.problem.layers import (
    Affine,
    Convolve,
    Embed,
    Flatten,
    Layer,
    MaxPool,
    Mean,
    Recur,
    Relu,
    Reshape,
    ResponseNorm,
)
from folkman.record.json_file import write_text

__all__ = ["WRITERS", "Sequence", "write_torch"]


class Sequence:
    """A `torch.nn.Sequential` in the making: lines of its source, and its state by key."""

    def __init__(self, tensors: dict[str, NDArray], sample: tuple[int, ...]) -> None:
        self.tensors, self.lines, self.state = tensors, [], {}
        self.axes, self.channels_first = len(sample), False

    def add(self, line: str, **state: NDArray | None) -> None:
        """Add a module by its source, with its parameters by their names."""
        number = len(self.lines)
        kept = {key: value for key, value in state.items() if value is not None}
        self.state |= {f"layers.{number}.{key}": value for key, value in kept.items()}
        self.lines.append(line)

    def turn(self, *, channels_first: bool) -> None:
        """Bring the axis of channels to the front or to the end, where it is not yet."""
        if channels_first == self.channels_first:
            return
        space = range(1, self.axes)
        order = [0, self.axes, *space] if channels_first else [0, *range(2, self.axes + 1), 1]
        self.add(f"Permute({', '.join(map(str, order))})")
        self.channels_first = channels_first


class _Affine(NamedTuple):
    kernel: NDArray
    bias: NDArray | None


def _parameters(made: Sequence, layer: Affine | Convolve) -> _Affine:
    bias = None if layer.bias is None else made.tensors[layer.bias]
    return _Affine(made.tensors[layer.kernel], bias)


def _flatten(made: Sequence, _: Flatten) -> None:
    made.turn(channels_first=False)
    made.add("nn.Flatten()")
    made.axes = 1


def _affine(made: Sequence, layer: Affine) -> None:
    kernel, bias = _parameters(made, layer)
    weight = kernel if layer.outputs_first else kernel.T
    outputs, inputs = weight.shape
    line = f"nn.Linear({inputs}, {outputs}{'' if layer.bias else ', bias=False'})"
    made.add(line, weight=weight, bias=bias)


def _relu(made: Sequence, _: Relu) -> None:
    made.add("nn.ReLU()")


def _convolve(made: Sequence, layer: Convolve) -> None:
    made.turn(channels_first=True)
    kernel, bias = _parameters(made, layer)
    *widths, inputs, outputs = kernel.shape
    kind = f"nn.Conv{len(widths)}d({inputs}, {outputs}, {tuple(widths)}, padding='same'"
    weight = np.moveaxis(kernel, (-1, -2), (0, 1))
    made.add(kind + ("" if layer.bias else ", bias=False") + ")", weight=weight, bias=bias)


def _max_pool(made: Sequence, layer: MaxPool) -> None:
    made.turn(channels_first=True)
    made.add(f"nn.MaxPool{made.axes - 1}d({layer.width})")


def _response_norm(made: Sequence, layer: ResponseNorm) -> None:
    made.turn(channels_first=True)
    size = 2 * layer.radius + 1
    made.add(f"nn.LocalResponseNorm({size}, alpha={layer.scale * size!r}, beta=0.75, k=1.0)")


def _reshape(made: Sequence, layer: Reshape) -> None:
    made.turn(channels_first=False)
    made.add(f"Reshape({', '.join(map(str, layer.shape))})")
    made.axes = len(layer.shape)


def _mean(made: Sequence, _: Mean) -> None:
    made.turn(channels_first=False)
    made.add(f"Mean({', '.join(map(str, range(1, made.axes)))})")
    made.axes = 1


def _embed(made: Sequence, layer: Embed) -> None:
    table = made.tensors[layer.table]
    made.add(f"Embed({table.shape[0]}, {table.shape[1]})", weight=table)
    made.axes = 2


def _recur(made: Sequence, layer: Recur) -> None:
    given, hidden = (made.tensors[name].T for name in (layer.input_kernel, layer.hidden_kernel))
    state = {"weight_ih_l0": given, "weight_hh_l0": hidden}
    state |= {"bias_ih_l0": made.tensors[layer.input_bias]}
    state |= {"bias_hh_l0": made.tensors[layer.hidden_bias]}
    made.add(f"LastState({given.shape[1]}, {hidden.shape[1]}, batch_first=True)", **state)
    made.axes = 1


WRITERS: dict[type, Callable[[Sequence, Any], None]] = {
    Flatten: _flatten,
    Reshape: _reshape,
    Mean: _mean,
    Embed: _embed,
    Recur: _recur,
    Affine: _affine,
    Relu: _relu,
    Convolve: _convolve,
    MaxPool: _max_pool,
    ResponseNorm: _response_norm,
}
"""How each kind of layer is written."""

HELPERS = {
    "Permute": '''

class Permute(nn.Module):
    """Reorders the axes: channels first for layers over space, last elsewhere."""

    def __init__(self, *order):
        super().__init__()
        self.order = order

    def forward(self, x):
        return x.permute(self.order)
''',
    "Reshape": '''

class Reshape(nn.Module):
    """Gives each sample another shape."""

    def __init__(self, *shape):
        super().__init__()
        self.shape = shape

    def forward(self, x):
        return x.reshape(len(x), *self.shape)
''',
    "Mean": '''

class Mean(nn.Module):
    """The mean over some axes."""

    def __init__(self, *axes):
        super().__init__()
        self.axes = axes

    def forward(self, x):
        return x.mean(self.axes)
''',
    "Embed": '''

class Embed(nn.Embedding):
    """Rows of a table by numbers that may come as floats."""

    def forward(self, x):
        return super().forward(x.long())
''',
    "LastState": '''

class LastState(nn.GRU):
    """A gated recurrent unit of which the last state alone goes on."""

    def forward(self, x):
        return super().forward(x)[1][0]
''',
}
"""Modules that PyTorch does not have, by name."""

SOURCE = '''"""{title}

{notes}

    from {stem} import load
    scores = load()(x)    # x: float32 of shape (n, {sample})
"""

from pathlib import Path

import torch
from torch import nn
{helpers}

class Model(nn.Module):
    """Scores (n, output) of samples (n, {sample})."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            {layers},
        )

    def forward(self, x):
        return self.layers(x)


def load(path=Path(__file__).with_suffix(".pt")):
    """Return the model with its learnt parameters."""
    model = Model()
    model.load_state_dict(torch.load(path, weights_only=True))
    return model.eval()
'''


def write_torch(
    target: Path, trained: Trained, layers: Iterable[Layer], notes: dict[str, str]
) -> list[Path]:
    """Write the state_dict and the module beside it; return both files."""
    torch = need("torch", "folkman[torch]")
    made = Sequence(trained.tensors, trained.fitted.sample)
    for layer in layers:
        require(type(layer) in WRITERS, f"there is no PyTorch for {type(layer).__name__} yet")
        WRITERS[type(layer)](made, layer)
    state = {key: torch.from_numpy(np.array(value)) for key, value in made.state.items()}
    module = target.with_suffix(".py")
    write_whole(target, lambda part: torch.save(state, part))
    write_text(module, _source(module.stem, trained, made, notes))
    return [target, module]


def _source(stem: str, trained: Trained, made: Sequence, notes: dict[str, str]) -> str:
    told = "\n".join(f"{key}: {value}" for key, value in notes.items())
    return SOURCE.format(
        title=f"{trained.title}, as a PyTorch module.".replace('"', "'"),
        notes=told.replace('"', "'").replace("\\", "/"),
        stem=stem,
        sample=", ".join(map(str, trained.fitted.sample)),
        helpers="".join(
            source
            for name, source in HELPERS.items()
            if any(line.startswith(f"{name}(") for line in made.lines)
        ),
        layers=",\n            ".join(made.lines),
    )
