"""The CNN through PyTorch's kernels is the CNN of JAX: gradients, mini-batches, penalties, padding,
measures."""

import gc
import weakref
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkman import fedavg, ideal, load, make_problem, simulate
from folkman.keys import Stream, make_key, node_keys
from folkman.problem import kernels
from folkman.problem.data import DataSet
from folkman.problem.kernels import kernel_for
from folkman.problem.models import cnn
from folkman.problem.sampling import batch_keys

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: pip install 'folkman[torch]'"
)

from folkman.problem import onednn  # noqa: E402 - after the skip

SIZES = (3, 6, 4)  # few: rounding seldom moves one across a kink of ReLU or a maximum


@pytest.fixture(autouse=True)
def _on_two_cores_of_a_cpu():
    if jax.default_backend() != "cpu":
        pytest.skip("the kernel is for CPUs")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def images(height=8, width=12, channels=3, **options):
    """Noise on the lower half of images over three nodes of unequal size: the black half makes
    equal maxima."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(sum(SIZES), height, width, channels)).astype(np.float32)
    x[:, : height // 2] = 0.0
    y = rng.integers(0, 10, len(x)).astype(np.int32)
    parts = np.split(np.arange(len(x)), np.cumsum(SIZES)[:-1])
    return make_problem(DataSet("noise", x, y, x[:5], y[:5], 10), "cnn", parts, **options)


def points(problem):
    return jnp.stack([problem.initial * scale for scale in (0.9, 1.0, 1.1)])


def keys(step=0):
    return node_keys(make_key(0, Stream.BATCH), jnp.arange(3), jnp.full(3, step, jnp.int32))


def assert_same_gradient(problem, got, expected):
    """Hold to 1e-5 of the largest entry of each tensor.

    Rounding may move a sample across a kink of ReLU or a maximum, and then the two differ by that
    sample's share; the seeds of these tests have none so close.
    """
    np.testing.assert_allclose(got[0], expected[0], rtol=1e-5)
    for cut in problem.model.layout.segments.values():
        scale = np.abs(np.asarray(expected[1])[:, cut]).max()
        np.testing.assert_allclose(got[1][:, cut] / scale, expected[1][:, cut] / scale, atol=1e-5)


@pytest.mark.parametrize("shape", [(8, 12, 3), (28, 28, 1)], ids=str)
@pytest.mark.parametrize(
    "options", [{}, {"batch": 3, "l2": 0.1}], ids=["full batch", "mini-batch and penalty"]
)
def test_the_gradient_is_that_of_jax(monkeypatch, shape, options):
    problem = images(*shape, **options)
    v = points(problem)

    got = problem.gradients(v, keys())
    monkeypatch.setenv("FOLKMAN_TORCH", "0")
    expected = problem.gradients(v, keys())

    assert_same_gradient(problem, got, expected)


def test_in_epochs_the_gradient_is_that_of_jax(monkeypatch):
    """Also where the batches of an epoch differ in size."""
    problem = images(batch=4, sampling="epochs")
    v, first = points(problem), make_key(0, Stream.BATCH)
    turns = batch_keys(problem, first, problem.node, jnp.asarray([1, 0, 2], jnp.int32))

    got = problem.gradients(v, turns)
    monkeypatch.setenv("FOLKMAN_TORCH", "0")
    expected = problem.gradients(v, turns)

    assert_same_gradient(problem, got, expected)


def test_the_measures_are_those_of_jax_and_padding_enters_none(monkeypatch):
    problem = images(l2=0.1)
    broken = replace(problem, x=problem.x.at[0, SIZES[0] :].set(jnp.nan))

    got = broken.evaluate(problem.initial)
    monkeypatch.setenv("FOLKMAN_TORCH", "0")
    expected = problem.evaluate(problem.initial)

    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_mini_batches_are_those_that_jax_draws():
    count = jnp.asarray(SIZES, jnp.int32)

    drawn, _ = onednn.draw_all(50, keys(), count, max(SIZES))

    for node, size in enumerate(SIZES):
        expected = jax.random.randint(keys()[node], (50,), 0, size, jnp.int32)
        np.testing.assert_array_equal(drawn[node], expected)


@pytest.mark.parametrize("cores", [1, 2, 3])
def test_chunks_and_cores_do_not_matter(monkeypatch, cores):
    problem = images()
    whole = problem.gradients(points(problem), keys())
    measures = problem.evaluate(problem.initial)
    before = torch.get_num_threads()

    monkeypatch.setattr(onednn, "CHUNK", 4)
    monkeypatch.setattr(onednn, "LEAST_PART", 2)
    torch.set_num_threads(cores)
    try:
        divided = problem.gradients(points(problem), keys())
        again = problem.gradients(points(problem), keys())
        in_chunks = problem.evaluate(problem.initial)
    finally:
        torch.set_num_threads(before)

    assert_same_gradient(problem, divided, whole)
    np.testing.assert_array_equal(divided[1], again[1])  # the same bits, whichever core was first
    np.testing.assert_allclose(in_chunks, measures, rtol=1e-5)


@given(st.lists(st.integers(1, 200), min_size=1, max_size=12), st.integers(1, 9))
def test_parts_are_the_batches(sizes, cores):
    parts = onednn._parts(sizes, cores)

    assert [part.node for part in parts[: len(sizes)]] == list(range(len(sizes)))
    for node, size in enumerate(sizes):
        rows = [row for part in parts if part.node == node for row in range(size)[part.rows]]
        assert rows == list(range(size))
    whole = [node for node in range(len(sizes)) if sum(part.node == node for part in parts) == 1]
    assert set(whole) >= set(range(len(sizes) // cores * cores))


def test_the_callers_threads_are_left_as_they_were():
    before = torch.get_num_threads()
    problem = images()

    problem.gradients(points(problem), keys())
    inside: list[int] = []
    onednn._on_all_cores(lambda _: inside.append(torch.get_num_threads()), 8)

    assert torch.get_num_threads() == before
    assert set(inside) == {1}


def test_a_problem_is_given_back_and_its_gradients_stay():
    problem = images()
    _, grads = problem.gradients(points(problem), keys())
    problem.evaluate(problem.initial)
    expected = np.array(grads)
    gone = weakref.ref(problem)

    del problem
    gc.collect()
    _ = [torch.full_like(torch.from_dlpack(grads), 7.0) for _ in range(3)]  # would take freed room

    assert gone() is None
    np.testing.assert_array_equal(grads, expected)


def test_a_diverged_point_has_no_finite_loss():
    problem = images()

    losses, grads = problem.gradients(points(problem).at[1, 0].set(jnp.nan), keys())

    assert np.isfinite(losses).tolist() == [True, False, True]
    assert np.isfinite(grads).all(axis=1).tolist() == [True, False, True]


def test_a_whole_run_agrees(monkeypatch):
    problem = images(batch=2)

    fast = simulate(problem, ideal(), fedavg(0.01), slots=3)
    monkeypatch.setenv("FOLKMAN_TORCH", "0")
    plain = simulate(problem, ideal(), fedavg(0.01), slots=3)

    np.testing.assert_allclose(fast.nodes, plain.nodes, atol=1e-5)
    np.testing.assert_allclose(
        [row["train_loss"] for row in fast.rows],
        [row["train_loss"] for row in plain.rows],
        rtol=1e-5,
    )


def test_the_kernel_is_taken_where_it_fits_and_nowhere_else(monkeypatch):
    problem = images()
    assert isinstance(kernel_for(problem, problem.initial), onednn.OneDnn)

    softmax = make_problem(load("digits", train_size=50), "softmax", 5)
    assert kernel_for(softmax, softmax.initial) is None
    gradient = jax.grad(lambda w: problem.evaluate(w).test_loss)(
        problem.initial
    )  # traced: JAX's own
    assert np.isfinite(gradient).all()
    monkeypatch.setattr(kernels, "_torch_is_there", lambda: False)
    assert kernel_for(problem, problem.initial) is None
    monkeypatch.undo()
    monkeypatch.setenv("FOLKMAN_TORCH", "0")
    assert kernel_for(problem, problem.initial) is None


def test_16_bits_stay_with_jax():
    problem = images()
    halved = replace(problem, model=cnn(problem.x.shape[2:], 10, precision="bfloat16"))

    assert kernel_for(halved, halved.initial) is None


def test_double_precision_stays_with_jax(x64):
    problem = images(dtype="float64")

    assert kernel_for(problem, problem.initial) is None
