"""What a network is made of, layer by layer, for those who write it down elsewhere.

A network that has a property `layers` can be exported: `folkman.deploy` writes each kind of layer
as ONNX and as PyTorch. The layers are those of `scores`, in order. Samples enter as they are, (n,
*sample), with channels last; tensors are named as in the network's `Layout`.

A new kind of layer is a class here, one writer in `folkman.deploy.onnx_file` and one in
`folkman.deploy.torch_file`; `tests/deploy/test_layers.py` holds both against the network.
"""

from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

__all__ = ["Affine", "Convolve", "Embed", "Flatten", "Layer", "Layered", "MaxPool", "Mean"]
__all__ += ["Recur", "Relu", "Reshape", "ResponseNorm"]


class Reshape(NamedTuple):
    """Each sample in another shape, its last axis running fastest."""

    shape: tuple[int, ...]  # -1 for an axis that follows from the others


class Flatten(NamedTuple):
    """Each sample as one row, its last axis running fastest."""


class Affine(NamedTuple):
    """h K + b with a kernel (inputs, outputs), or h K^T + b with one of (outputs, inputs)."""

    kernel: str
    bias: str | None
    outputs_first: bool = False


class Relu(NamedTuple):
    """max(h, 0)."""


class Convolve(NamedTuple):
    """A convolution of stride 1 whose output is as large as its input, channels last.

    The kernel is (width, inputs, outputs), or (height, width, inputs, outputs).
    """

    kernel: str
    bias: str | None


class MaxPool(NamedTuple):
    """The largest of `width` neighbours along each axis in space, with as large a stride."""

    width: int


class ResponseNorm(NamedTuple):
    """h_c / (1 + scale sum_{|c' - c| <= radius} h_c'^2)^(3/4) over channels c."""

    radius: int
    scale: float


class Mean(NamedTuple):
    """The mean over all axes but the first and the last: one number for each channel."""


class Embed(NamedTuple):
    """The row of a table (vocabulary, outputs) for each whole number of a sample (time,)."""

    table: str


class Recur(NamedTuple):
    """The last state of a gated recurrent unit over samples (time, inputs), from zero.

    Kernels are (inputs, 3 hidden) and (hidden, 3 hidden), with the gates r, z, n side by side:

        r = s(x W_r + a_r + h U_r + b_r),   z = s(x W_z + a_z + h U_z + b_z)
        n = tanh(x W_n + a_n + r (h U_n + b_n)),   h <- (1 - z) n + z h
    """

    input_kernel: str
    input_bias: str
    hidden_kernel: str
    hidden_bias: str


OverSpace: TypeAlias = Convolve | MaxPool | ResponseNorm | Mean
OverTime: TypeAlias = Embed | Recur
Layer: TypeAlias = Flatten | Reshape | Affine | Relu | OverSpace | OverTime


@runtime_checkable
class Layered(Protocol):
    """A network that says what it is made of."""

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Return the layers, in order."""
        ...
