"""Exported models give the scores of the network, in ONNX Runtime and in PyTorch."""

import importlib.util
from dataclasses import dataclass
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from folkman.deploy import onnx_file, torch_file
from folkman.deploy.export import export
from folkman.deploy.predict import predict
from folkman.deploy.trained import Trained, trained_of_run
from folkman.problem import layers, models
from folkman.problem.layers import (
    Affine,
    Convolve,
    Embed,
    Flatten,
    MaxPool,
    Mean,
    Recur,
    Relu,
    Reshape,
)
from folkman.problem.models import Fitted, Layout
from folkman.record.run import Run

onnxruntime = pytest.importorskip("onnxruntime", reason="pip install 'folkman[export]'")
torch = pytest.importorskip("torch", reason="pip install 'folkman[torch]'")

TOLERANCE = 1e-5


@dataclass(frozen=True)
class Waves:
    """Two convolutions over time, channels last: no built-in model has one axis in space."""

    length: int = 12
    channels: int = 3

    @property
    def layout(self):
        flat = self.length // 2 * 4
        first = (("c0", (5, self.channels, 4)), ("b0", (4,)), ("c1", (4, 4, 4)))
        return Layout((*first, ("kernel", (flat, 2)), ("bias", (2,))))

    @property
    def layers(self):
        over_time = (Convolve("c0", "b0"), Relu(), MaxPool(2), Convolve("c1", None), Relu())
        return (*over_time, Flatten(), Affine("kernel", "bias"))

    def init(self, key):
        del key
        return jnp.zeros(self.layout.size)

    def prepare(self, x):
        return x

    def scores(self, w, x):
        t = self.layout.unflatten(w)
        h = jax.nn.relu(self._convolve(x, t["c0"]) + t["b0"][None, None])
        h = h.reshape(len(x), self.length // 2, 2, 4).max(axis=2)
        h = jax.nn.relu(self._convolve(h, t["c1"]))
        return h.reshape(len(x), -1) @ t["kernel"] + t["bias"][None]

    def _convolve(self, x, kernel):
        numbers = ("NWC", "WIO", "NWC")
        return lax.conv_general_dilated(x, kernel, (1,), "SAME", dimension_numbers=numbers)


@dataclass(frozen=True)
class Spoken:
    """Whole numbers over time, each with a vector, through a gated recurrent unit."""

    vocabulary: int = 6
    inputs: int = 3
    hidden: int = 4

    @property
    def layout(self):
        gates = 3 * self.hidden
        given = (("u", (self.inputs, gates)), ("a", (gates,)))
        state = (("v", (self.hidden, gates)), ("b", (gates,)))
        last = (("kernel", (self.hidden, 2)), ("bias", (2,)))
        return Layout((("table", (self.vocabulary, self.inputs)), *given, *state, *last))

    @property
    def layers(self):
        return (Embed("table"), Recur("u", "a", "v", "b"), Affine("kernel", "bias"))

    def init(self, key):
        del key
        return jnp.zeros(self.layout.size)

    def prepare(self, x):
        return x

    def scores(self, w, x):
        t = self.layout.unflatten(w)
        return self._last_state(t, t["table"][x.astype(int)]) @ t["kernel"] + t["bias"][None]

    def _last_state(self, t, x):
        h = jnp.zeros((len(x), self.hidden))
        for at in range(x.shape[1]):  # as Cho et al. write it, gate by gate
            driven, own = (x[:, at] @ t["u"] + t["a"][None], h @ t["v"] + t["b"][None])
            (r0, z0, n0), (r1, z1, n1) = jnp.split(driven, 3, axis=1), jnp.split(own, 3, axis=1)
            r, z = 1 / (1 + jnp.exp(-r0 - r1)), 1 / (1 + jnp.exp(-z0 - z1))
            h = (1 - z) * jnp.tanh(n0 + r * n1) + z * h
        return h


@dataclass(frozen=True)
class Pulse:
    """One number a step of time: reshaped, convolved, pooled with a rest, averaged over time."""

    time: int = 7

    @property
    def layout(self):
        return Layout((("c", (3, 1, 4)), ("b", (4,)), ("kernel", (4, 2)), ("bias", (2,))))

    @property
    def layers(self):
        over_time = (Reshape((-1, 1)), Convolve("c", "b"), MaxPool(2), Relu(), Mean())
        return (*over_time, Affine("kernel", "bias"))

    def init(self, key):
        del key
        return jnp.zeros(self.layout.size)

    def prepare(self, x):
        return x

    def scores(self, w, x):
        t = self.layout.unflatten(w)
        padded = jnp.pad(x, ((0, 0), (1, 1)))
        taps = jnp.stack([padded[:, k : k + self.time] for k in range(3)], axis=-1)
        h = taps @ t["c"][:, 0] + t["b"][None, None]
        whole = self.time // 2 * 2
        h = jax.nn.relu(h[:, :whole].reshape(len(x), -1, 2, 4).max(axis=2))
        return h.mean(axis=1) @ t["kernel"] + t["bias"][None]


OWN = {"waves": (Waves(), (12, 3)), "spoken": (Spoken(), (5,)), "pulse": (Pulse(), (7,))}
"""Networks with the layers that no model of dense layers or images has, and their samples."""


def made(name):
    """Return a model of a name with drawn parameters."""
    sample, classes = ((8, 8, 3) if name == "cnn" else (4, 4, 1)), 10
    options = {"hidden": (7, 5)} if name == "mlp" else {}
    if name in OWN:
        network, sample = OWN[name]
        model, classes = models.Model(network, models.CROSS_ENTROPY), 2
    else:
        builder = "linear" if name == "intercept" else name
        options = {"intercept": True} if name == "intercept" else options
        model = models.MODELS[builder](sample, classes, **options)
    rng = np.random.default_rng(3)
    w = rng.normal(size=model.layout.size).astype(np.float32) * 0.3
    return Trained(Fitted(model, sample, classes), w, f"a {name}")


def samples(trained, count=9):
    if isinstance(trained.fitted.model.network, Spoken):
        return np.random.default_rng(4).integers(0, 6, (count, 5)).astype(np.float32)
    return np.random.default_rng(4).normal(size=(count, *trained.fitted.sample)).astype(np.float32)


def written(trained, to, folder):
    run = Run("method", "label", 0, model=trained.w, fitted=trained.fitted)
    return export(run, to, folder / {"onnx": "model.onnx", "torch": "model.pt"}[to])


NAMES = ["softmax", "mlp", "cnn", "logistic", "svm", "linear", "intercept", *OWN]


@pytest.mark.parametrize("name", NAMES)
def test_onnx_runtime_gives_the_scores_and_probabilities_of_the_network(name, tmp_path):
    trained = made(name)
    x = samples(trained)

    (path,) = written(trained, "onnx", tmp_path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_outputs()]
    found = dict(zip(names, session.run(None, {"x": x}), strict=True))

    expected = predict(trained, x)
    np.testing.assert_allclose(found["scores"], expected.scores, rtol=TOLERANCE, atol=TOLERANCE)
    if expected.probabilities is None:
        assert list(found) == ["scores"]
    else:
        np.testing.assert_allclose(
            found["probabilities"], expected.probabilities, rtol=TOLERANCE, atol=TOLERANCE
        )


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize("name", NAMES)
def test_pytorch_gives_the_scores_of_the_network_by_the_module_that_is_written(name, tmp_path):
    trained = made(name)
    x = samples(trained)

    state, source = written(trained, "torch", tmp_path)
    spec = importlib.util.spec_from_file_location("model", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with torch.no_grad():
        found = module.load()(torch.from_numpy(x)).numpy()

    assert state.name == "model.pt"
    assert "folkman" not in source.read_text().split('"""', 2)[2]  # it needs PyTorch alone
    np.testing.assert_allclose(found, predict(trained, x).scores, rtol=TOLERANCE, atol=TOLERANCE)


def test_every_kind_of_layer_has_both_writers():
    kinds = set(get_args(layers.Layer))

    assert set(onnx_file.WRITERS) == kinds
    assert set(torch_file.WRITERS) == kinds


def test_every_built_in_network_but_the_quadratic_says_its_layers():
    for name, build in models.MODELS.items():
        sample = (12, 3) if name in ("conv1d", "gru") else (4, 4, 1)
        network = build(sample, 10).network
        assert isinstance(network, layers.Layered) == (name != "quadratic"), name


def test_layers_use_every_tensor_of_the_network():
    for name in NAMES:
        network = made(name).fitted.model.network
        assert isinstance(network, layers.Layered)
        used = [each for layer in network.layers for each in layer if isinstance(each, str)]
        assert sorted(used) == sorted(network.layout.segments), name


def test_a_wrong_layer_is_seen(tmp_path):
    """The comparison can fail: a kernel that is read the other way gives other scores."""
    trained = made("mlp")
    x = samples(trained)
    turned = Trained(trained.fitted, trained.w[::-1].copy(), "turned")

    (path,) = written(turned, "onnx", tmp_path)
    found = onnxruntime.InferenceSession(path).run(["scores"], {"x": x})[0]

    assert np.abs(found - predict(trained, x).scores).max() > 0.1


def test_the_cnn_of_the_paper_has_its_response_norm(tmp_path):
    import onnx

    trained = made("cnn")
    (path,) = written(trained, "onnx", tmp_path)

    kinds = [node.op_type for node in onnx.load(path).graph.node]
    assert kinds.count("LRN") == 2
    assert kinds.count("Transpose") == 2  # once before the first layer over space, once after


def test_a_run_in_memory_is_exported_and_predicts(tmp_path):
    import folkman as fm

    problem = fm.make_problem(fm.load("digits", train_size=60), "softmax", 3)
    run = fm.simulate(problem, fm.ideal(), fm.async_sharing(0.5), slots=6)
    data = fm.load("digits")

    found = run.predict(data.x_test)
    (path,) = fm.export(run, "onnx", tmp_path / "m.onnx")

    scores = onnxruntime.InferenceSession(path).run(["scores"], {"x": data.x_test})[0]
    np.testing.assert_array_equal(scores.argmax(axis=1), found.classes)
    assert np.mean(found.classes == data.y_test) == pytest.approx(run.last("test_accuracy"))
    assert trained_of_run(run).w.dtype == jnp.float32
