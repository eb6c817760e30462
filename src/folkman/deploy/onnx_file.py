"""A trained model as an ONNX file.

The graph takes `x`, samples (n, *sample) in float32 with channels last, as folkman does, and gives
`scores` (n, output) and, where the loss is a likelihood, `probabilities` (n, class). ONNX has its
channels first, so images are turned once before the first layer over space and once after the last.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from folkman.checks import need, require
from folkman.deploy.trained import Trained
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
from folkman.problem.models import CROSS_ENTROPY, LOGISTIC

__all__ = ["WRITERS", "Graph", "onnx_bytes"]

OPSET, IR = 17, 8
"""Of 2022: what runtimes of the last years read."""


class Graph:
    """An ONNX graph in the making: nodes, constants, and the name and axes of what came last."""

    def __init__(self, tensors: dict[str, NDArray], sample: tuple[int, ...]) -> None:
        self.helper = need("onnx.helper", "folkman[export]")
        self.numpy = need("onnx.numpy_helper", "folkman[export]")
        self.tensors, self.nodes, self.constants = tensors, [], {}
        self.last, self.axes, self.channels_first = "x", len(sample), False

    def add(self, operator: str, *more: str, to: str | None = None, **options: Any) -> None:
        """Let an operator take what came last, and constants by name."""
        out = to or f"{operator.lower()}{len(self.nodes)}"
        self.nodes.append(self.helper.make_node(operator, [self.last, *more], [out], **options))
        self.last = out

    def constant(self, name: str, value: NDArray) -> str:
        """Keep a constant under a name, and return the name."""
        self.constants[name] = self.numpy.from_array(np.ascontiguousarray(value), name)
        return name

    def turn(self, *, channels_first: bool) -> None:
        """Bring the axis of channels to the front or to the end, where it is not yet."""
        if channels_first == self.channels_first:
            return
        space = range(1, self.axes)
        order = [0, self.axes, *space] if channels_first else [0, *range(2, self.axes + 1), 1]
        self.add("Transpose", perm=order)
        self.channels_first = channels_first


def _flatten(graph: Graph, _: Flatten) -> None:
    graph.turn(channels_first=False)
    graph.add("Flatten", axis=1)
    graph.axes = 1


def _affine(graph: Graph, layer: Affine) -> None:
    names = [graph.constant(layer.kernel, graph.tensors[layer.kernel])]
    if layer.bias is not None:
        names.append(graph.constant(layer.bias, graph.tensors[layer.bias]))
    graph.add("Gemm", *names, transB=int(layer.outputs_first))


def _relu(graph: Graph, _: Relu) -> None:
    graph.add("Relu")


def _convolve(graph: Graph, layer: Convolve) -> None:
    graph.turn(channels_first=True)
    kernel = graph.tensors[layer.kernel]  # (*space, inputs, outputs)
    kernel = np.moveaxis(kernel, (-1, -2), (0, 1))
    names = [graph.constant(layer.kernel, kernel)]
    if layer.bias is not None:
        names.append(graph.constant(layer.bias, graph.tensors[layer.bias]))
    # SAME_UPPER is XLA's SAME: of an even width the extra zero comes last
    graph.add("Conv", *names, auto_pad="SAME_UPPER", kernel_shape=list(kernel.shape[2:]))


def _max_pool(graph: Graph, layer: MaxPool) -> None:
    graph.turn(channels_first=True)
    width = [layer.width] * (graph.axes - 1)
    graph.add("MaxPool", kernel_shape=width, strides=width)


def _response_norm(graph: Graph, layer: ResponseNorm) -> None:
    graph.turn(channels_first=True)
    size = 2 * layer.radius + 1
    graph.add("LRN", size=size, alpha=layer.scale * size, beta=0.75, bias=1.0)


def _reshape(graph: Graph, layer: Reshape) -> None:
    graph.turn(channels_first=False)
    shape = np.array([0, *layer.shape], np.int64)  # 0: as many samples as came
    graph.add("Reshape", graph.constant(f"shape{len(graph.nodes)}", shape))
    graph.axes = len(layer.shape)


def _mean(graph: Graph, _: Mean) -> None:
    graph.turn(channels_first=False)
    graph.add("ReduceMean", axes=list(range(1, graph.axes)), keepdims=0)
    graph.axes = 1


def _embed(graph: Graph, layer: Embed) -> None:
    onnx = need("onnx", "folkman[export]")
    whole, rows = f"{graph.last}/whole", f"{graph.last}/rows"
    table = graph.constant(layer.table, graph.tensors[layer.table])
    make = graph.helper.make_node
    graph.nodes.append(make("Cast", [graph.last], [whole], to=onnx.TensorProto.INT64))
    graph.nodes.append(make("Gather", [table, whole], [rows], axis=0))
    graph.last, graph.axes = rows, 2


def _recur(graph: Graph, layer: Recur) -> None:
    """Write a GRU: ONNX has the gates in the order z, r, n, and its kernels transposed."""

    def turned(name: str) -> NDArray:
        r, z, n = np.split(graph.tensors[name], 3, axis=-1)
        return np.concatenate([z, r, n], axis=-1)

    given, hidden = turned(layer.input_kernel).T[None], turned(layer.hidden_kernel).T[None]
    biases = np.concatenate([turned(layer.input_bias), turned(layer.hidden_bias)])[None]
    names = [
        graph.constant(layer.input_kernel, given),
        graph.constant(layer.hidden_kernel, hidden),
        graph.constant(f"{layer.input_bias}+{layer.hidden_bias}", biases),
    ]
    graph.add("Transpose", perm=[1, 0, 2])  # ONNX has time first
    last, states = f"{graph.last}/last", f"{graph.last}/all"
    graph.nodes.append(
        graph.helper.make_node(
            *("GRU", [graph.last, *names], [states, last]),
            hidden_size=hidden.shape[2],
            linear_before_reset=1,
        )
    )
    graph.last, graph.axes = last, 1
    graph.add("Squeeze", graph.constant("first axis", np.array([0], np.int64)))


WRITERS: dict[type, Callable[[Graph, Any], None]] = {
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

Tail: TypeAlias = Callable[[Graph], None]


def _softmax(graph: Graph) -> None:
    graph.add("Softmax", to="probabilities", axis=1)


def _both(graph: Graph) -> None:
    graph.add("Sigmoid", to="one")
    one = graph.constant("1", np.ones(1, np.float32))
    graph.nodes.append(graph.helper.make_node("Sub", [one, "one"], ["zero"]))
    graph.nodes.append(graph.helper.make_node("Concat", ["zero", "one"], ["probabilities"], axis=1))


TAILS: dict[Callable[..., object], Tail] = {CROSS_ENTROPY.losses: _softmax, LOGISTIC.losses: _both}
"""By the loss of a head: how probabilities come from scores."""


def onnx_bytes(trained: Trained, layers: tuple[Layer, ...], notes: dict[str, str]) -> bytes:
    """Return a trained model as the bytes of an ONNX file."""
    graph = Graph(trained.tensors, trained.fitted.sample)
    for layer in layers:
        require(type(layer) in WRITERS, f"there is no ONNX for {type(layer).__name__} yet")
        WRITERS[type(layer)](graph, layer)
    graph.nodes.append(graph.helper.make_node("Identity", [graph.last], ["scores"]))
    graph.last = "scores"
    outputs = trained.outputs
    given = {"x": ("n", *trained.fitted.sample)}
    found = {"scores": ("n", outputs)}
    if tail := TAILS.get(trained.fitted.model.head.losses):
        tail(graph)
        found["probabilities"] = ("n", max(2, outputs))
    return _file(graph, given, found, notes)


def _file(graph: Graph, given: Any, found: Any, notes: dict[str, str]) -> bytes:
    onnx = need("onnx", "folkman[export]")
    typed = [
        [
            graph.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, list(shape))
            for name, shape in each.items()
        ]
        for each in (given, found)
    ]
    whole = graph.helper.make_graph(
        graph.nodes, "folkman", *typed, initializer=list(graph.constants.values())
    )
    imports = [graph.helper.make_opsetid("", OPSET)]
    model = graph.helper.make_model(whole, opset_imports=imports, producer_name="folkman")
    model.ir_version = IR
    graph.helper.set_model_props(model, notes)
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()
