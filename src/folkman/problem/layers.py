"""What a network is made of, layer by layer, for those who write it down elsewhere.

A network that has a property `layers` can be exported: `folkman.deploy` writes each kind of layer
as ONNX and as PyTorch. The layers are those of `scores`, in order. Samples enter as they are, (n,
*sample), with channels last; tensors are named as in the network's `Layout`.

A new kind of layer is a class here, one writer in `folkman.deploy.onnx_file` and one in
`folkman.deploy.torch_file`; `tests/deploy/test_layers.py` holds both against the network.
"""

from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

__all__ = ["Affine", "Convolve", "Flatten", "Layer", "Layered", "MaxPool", "Relu", "ResponseNorm"]


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


Layer: TypeAlias = Flatten | Affine | Relu | Convolve | MaxPool | ResponseNorm


@runtime_checkable
class Layered(Protocol):
    """A network that says what it is made of."""

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Return the layers, in order."""
        ...
