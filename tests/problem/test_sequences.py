"""Networks over time against PyTorch's own layers, and what they refuse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folkman import load, make_problem, simulate
from folkman.algorithm.fedavg import fedavg
from folkman.problem.data import DataSet
from folkman.problem.operations import forward_operations
from folkman.problem.sequences import conv1d, gru
from folkman.radio.delay import ideal

torch = pytest.importorskip("torch")
COUNT, TIME, CHANNELS, CLASSES, LETTERS = 6, 11, 3, 4, 7


def drawn(model, seed=0):
    """Draw samples, labels and parameters."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(COUNT, TIME, CHANNELS))
    if model.network.layout.shapes[0][0] == "embedding/table":
        x = rng.integers(0, LETTERS, (COUNT, TIME))
    y = rng.integers(0, CLASSES, COUNT)
    return x, y, 0.5 * rng.normal(size=model.layout.size)


def judged(model, x, y, w, dtype):
    """Return the mean loss and its gradient by JAX, tensor by tensor."""
    with jax.enable_x64(dtype == "float64"):
        x = jnp.asarray(x, dtype if x.dtype.kind == "f" else "int32")

        @jax.jit
        @jax.value_and_grad
        def taken(v):
            return model.losses(v, x, jnp.asarray(y)).mean()

        loss, grad = taken(jnp.asarray(w, dtype))
        return float(loss), {k: np.asarray(v) for k, v in model.layout.unflatten(grad).items()}


def tensors(model, w):
    """Return the parameters as PyTorch's, which ask for gradients."""
    cut = model.layout.unflatten(np.asarray(w))
    return {name: torch.tensor(value, requires_grad=True) for name, value in cut.items()}


def compare(model, scores_of, dtype, tolerance):
    """Compare loss and gradient with those of PyTorch in float64."""
    x, y, w = drawn(model)
    loss, grad = judged(model, x, y, w, dtype)
    t = tensors(model, w)
    theirs = torch.nn.functional.cross_entropy(scores_of(t, torch.tensor(x)), torch.tensor(y))
    theirs.backward()
    assert loss == pytest.approx(theirs.item(), rel=tolerance)
    for name, value in t.items():
        np.testing.assert_allclose(grad[name], value.grad, rtol=tolerance, atol=tolerance)


PRECISE = pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-11)])


@PRECISE
@pytest.mark.parametrize(("width", "pool"), [(5, 2), (4, 1), (1, 3)])
def test_convolutions_are_those_of_pytorch(width, pool, dtype, tolerance):
    model = conv1d((TIME, CHANNELS), CLASSES, channels=(5, 2), width=width, pool=pool)
    functional = torch.nn.functional

    def scores_of(t, x):
        h = x.transpose(1, 2)  # (n, channels, time)
        for layer in range(2):
            before = (width - 1) // 2
            h = functional.pad(h, (before, width - 1 - before))
            kernel = t[f"conv{layer}/kernel"].permute(2, 1, 0)  # (outputs, inputs, width)
            h = functional.conv1d(h, kernel, t[f"conv{layer}/bias"])
            h = functional.relu(functional.max_pool1d(h, pool))
        return h.mean(dim=2) @ t["dense0/kernel"] + t["dense0/bias"]

    compare(model, scores_of, dtype, tolerance)


@PRECISE
@pytest.mark.parametrize("embedding", [0, 2])
def test_the_recurrent_network_is_that_of_pytorch(embedding, dtype, tolerance):
    options = {"embedding": embedding, "vocabulary": LETTERS} if embedding else {}
    model = gru((TIME,) if embedding else (TIME, CHANNELS), CLASSES, hidden=5, **options)

    def scores_of(t, x):
        if embedding:
            x = torch.nn.functional.embedding(x, t["embedding/table"])
        unit = torch.nn.GRU(x.shape[-1], 5, batch_first=True, dtype=torch.float64)
        own = {
            "weight_ih_l0": t["gru0/input_kernel"].T,
            "weight_hh_l0": t["gru0/hidden_kernel"].T,
            "bias_ih_l0": t["gru0/input_bias"],
            "bias_hh_l0": t["gru0/hidden_bias"],
        }
        _, last = torch.func.functional_call(unit, own, (x,))
        return last[0] @ t["dense0/kernel"] + t["dense0/bias"]

    compare(model, scores_of, dtype, tolerance)


@pytest.mark.parametrize("build", [conv1d, gru])
def test_kernels_start_with_their_variance_and_biases_at_zero(build):
    model = build((TIME, 40), 50)
    gain = 2.0 if build is conv1d else 1.0

    t = model.layout.unflatten(model.init(jax.random.key(1)))

    for name, value in t.items():
        if "bias" in name:
            assert not value.any()
        else:
            inputs = np.prod(value.shape[:-1])
            assert float(value.var()) == pytest.approx(gain / inputs, rel=0.1)


def series(seed=0, count=60):
    """Draw series of two kinds, told apart by the sign of their slope at the end."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, count).astype(np.int32)
    slope = np.where(y, 1.0, -1.0)[:, None] * np.linspace(0, 1, TIME)[None]
    x = (slope[..., None] + 0.3 * rng.normal(size=(count, TIME, CHANNELS))).astype(np.float32)
    return DataSet("slopes", x[:40], y[:40], x[40:], y[40:], num_classes=2)


@pytest.mark.parametrize("name", ["conv1d", "gru"])
def test_both_learn_to_tell_series_apart(name):
    problem = make_problem(series(), name, 2)

    run = simulate(problem, ideal(), fedavg(step=0.3), slots=40)

    assert run.last("test_accuracy") >= 0.95


def test_characters_are_counted_as_operations_and_not_read_as_numbers():
    rng = np.random.default_rng(0)
    x = rng.integers(0, LETTERS, (20, TIME)).astype(np.int32)
    data = DataSet("text", x, x[:, 0], x, x[:, 0], num_classes=LETTERS)
    problem = make_problem(data, gru((TIME,), LETTERS, hidden=5, embedding=3), 2)

    counted = forward_operations(problem)

    products = TIME * (3 * 15 + 5 * 15) + 5 * LETTERS
    assert problem.x.dtype == np.int32
    assert counted == 2 * products


@pytest.mark.parametrize(
    ("build", "sample", "options", "said"),
    [
        (conv1d, (8, 8, 1), {}, r"conv1d: expected samples of shape \(time, channels\)"),
        (gru, (8, 8, 1), {}, r"gru: expected samples of shape \(time, channels\)"),
        (conv1d, (3, 2), {}, "expected at least 4 steps of time"),
        (conv1d, (8, 2), {"channels": ()}, "expected one layer of channels"),
        (conv1d, (8, 2), {"width": 0}, "width >= 1"),
        (gru, (8, 2), {"hidden": 0}, "expected hidden >= 1"),
        (gru, (8, 2), {"embedding": 3}, r"expected samples of shape \(time,\) with embedding"),
        (gru, (8,), {"vocabulary": 3}, "expected no vocabulary without embedding"),
        (gru, (8,), {"embedding": 2, "vocabulary": 0}, "a vocabulary of 1 or more"),
    ],
)
def test_what_cannot_be_built_is_refused_with_a_remedy(build, sample, options, said):
    with pytest.raises(ValueError, match=said):
        build(sample, 3, **options)


def test_images_are_refused_by_the_name_of_the_model():
    with pytest.raises(ValueError, match="use a data set of series, or another model"):
        make_problem(load("digits"), "conv1d", 2)
