"""The compute seam: shares, padding, mini-batches, penalties, chunks."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folkman import MODELS, load, make_problem, split
from folkman.keys import Stream, make_key, node_keys
from folkman.problem import cores
from folkman.problem import problem as module
from folkman.problem.data import DataSet
from reference import plain


def keys(nodes):
    return node_keys(make_key(0, Stream.BATCH), jnp.arange(nodes), jnp.zeros(nodes, jnp.int32))


@pytest.fixture
def uneven(x64):
    samples = load("digits", train_size=300)
    parts = split("dirichlet", samples.y_train, 4, concentration=0.5, seed=1)
    return samples, parts, make_problem(samples, "softmax", parts, l2=0.1, dtype="float64")


def test_every_node_takes_the_gradient_of_its_own_samples(uneven):
    samples, parts, problem = uneven
    v = jnp.asarray(np.random.default_rng(0).normal(size=(4, problem.dim)))

    losses, grads = problem.gradients(v, keys(4))

    for node, part in enumerate(parts):
        loss, grad = plain.softmax_gradient(
            np.asarray(v[node]), samples.x_train[part], samples.y_train[part], l2=0.1
        )
        assert float(losses[node]) == pytest.approx(loss, rel=1e-10)
        np.testing.assert_allclose(grads[node], grad, rtol=1e-9, atol=1e-12)


def test_shares_are_sample_counts_and_the_loss_is_that_of_the_union(uneven):
    samples, parts, problem = uneven
    w = jnp.asarray(np.random.default_rng(0).normal(size=problem.dim))
    union = np.concatenate(parts)

    values = problem.evaluate(w)

    np.testing.assert_allclose(problem.share, [len(part) / 300 for part in parts])
    expected, _ = plain.softmax_gradient(
        np.asarray(w), samples.x_train[union], samples.y_train[union], l2=0.1
    )
    assert float(values.train_loss) == pytest.approx(expected, rel=1e-10)
    kernel, bias = np.asarray(w)[:-10].reshape(10, 64), np.asarray(w)[-10:]
    scores = samples.x_test.reshape(len(samples.x_test), -1) @ kernel.T + bias
    assert float(values.test_accuracy) == pytest.approx(
        np.mean(scores.argmax(axis=1) == samples.y_test)
    )
    assert np.isnan(values.optimum_distance)


def test_a_node_sees_only_its_own_part(uneven):
    _, parts, problem = uneven
    v = jnp.asarray(np.random.default_rng(0).normal(size=(4, problem.dim)))
    losses, grads = problem.gradients(v, keys(4))

    for node, part in enumerate(parts):
        own = problem.of_node(node)
        assert own.node.tolist() == [node]  # it keys the mini-batches
        assert own.count.tolist() == [len(part)]
        assert own.share.tolist() == [len(part) / 300]
        loss, grad = own.gradients(v[node : node + 1], keys(4)[node : node + 1])
        assert own.x.shape[1] == len(part)
        np.testing.assert_allclose(loss[0], losses[node], rtol=1e-12)
        np.testing.assert_allclose(grad[0], grads[node], rtol=1e-9, atol=1e-13)


def test_mini_batches_are_unbiased_and_never_padding(uneven):
    _, _, problem = uneven
    small = replace(problem, batch=4, l2=0.0)
    full = replace(problem, l2=0.0)
    v = jnp.asarray(0.1 * np.random.default_rng(0).normal(size=(4, problem.dim)))
    draws = 3000

    many = jax.vmap(
        lambda s: small.gradients(
            v, node_keys(make_key(0, Stream.BATCH), small.node, jnp.full(4, s))
        )[1]
    )
    grads = np.asarray(many(jnp.arange(draws)))

    error = grads.std(axis=0) / np.sqrt(draws)
    expected = np.asarray(full.gradients(v, keys(4))[1])
    seen = error > 1e-9  # a pixel that is black in every sample has no gradient and no error
    z = (grads.mean(axis=0) - expected)[seen] / error[seen]
    # near 1 on average, but pixels of one image move together: about forty independent directions
    # in all. Padding in a batch, or a sample never drawn, is a bias that does not shrink with the
    # draws: tens of standard errors
    assert 0.4 < np.mean(z**2) < 2.5
    assert np.abs(z).max() < 8
    assert np.abs(expected[~seen]).max() < 1e-9


def test_convolutions_in_chunks_and_one_by_one_give_the_whole(monkeypatch):
    monkeypatch.setenv("FOLKMAN_TORCH", "0")
    rng = np.random.default_rng(0)
    x, y = (
        rng.normal(size=(26, 8, 8, 1)).astype(np.float32),
        rng.integers(0, 10, 26).astype(np.int32),
    )
    problem = make_problem(
        DataSet("noise", x, y, x[:5], y[:5], 10), "cnn", [np.arange(13), np.arange(13, 26)]
    )
    v = jnp.stack([problem.initial, problem.initial * 0.9])
    whole = problem.gradients(v, keys(2))
    value = problem.evaluate(v[0])

    assert problem.called_from_python is (jax.default_backend() == "cpu")
    monkeypatch.setattr(module, "CONVOLUTION_CHUNK", {jax.default_backend(): 5})
    looped = problem.gradients(v, keys(2))
    monkeypatch.setattr(type(problem), "called_from_python", property(lambda _: False))
    traced = problem.gradients(v, keys(2))

    for other in (looped, traced):
        np.testing.assert_allclose(other[0], whole[0], rtol=2e-5)
        np.testing.assert_allclose(other[1], whole[1], rtol=2e-3, atol=2e-5)
    for a, b in zip(problem.evaluate(v[0]), value, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5)


@pytest.mark.parametrize("data", ["quadratic", "gaussian"])
def test_the_known_optimum_is_one(x64, data):
    samples = load(data)
    model = {"quadratic": "quadratic", "gaussian": "linear"}[data]
    problem = make_problem(samples, model, 5, dtype="float64")
    w = jnp.tile(jnp.asarray(problem.optimum), (5, 1))

    _, grads = problem.gradients(w, keys(5))

    # the samples are float32, so the optimum of their float64 values is met to float32 accuracy
    # only
    assert np.abs(np.asarray(problem.share) @ np.asarray(grads)).max() < 1e-6
    assert float(problem.evaluate(w[0]).optimum_distance) == 0.0


def test_an_optimum_of_other_samples_is_not_reported(x64):
    samples = load("quadratic", samples_per_node=4, noise=1.0)
    thinned = make_problem(
        samples, "quadratic", split("given", samples.y_train, 5, group=samples.group, per_node=2)
    )
    intercept = make_problem(load("gaussian"), MODELS["linear"]((20,), 0, intercept=True), 5)

    assert thinned.optimum is None
    assert intercept.optimum is None


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"l2": -1.0}, "l2 must not be negative, got -1.0"),
        ({"batch": 0}, "batch must be at least 1, got 0"),
        ({"dtype": "float64"}, "64-bit mode"),
    ],
)
def test_wrong_settings_are_refused(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        make_problem(load("digits", train_size=50), "softmax", 5, **options)


@pytest.mark.parametrize(
    ("data", "models"),
    [
        ("digits", {"softmax", "mlp", "cnn", "conv1d", "gru", "logistic", "svm", "linear"}),
        ("quadratic", {"quadratic"}),
        ("gaussian", {"linear"}),
    ],
)
def test_a_model_takes_the_targets_that_its_loss_is_of_and_no_others(data, models):
    """A number may be a label too: least squares on labels is a classic."""
    samples = load(data)
    for name in MODELS:
        sample = (8, 8, 1) if name == "cnn" else samples.x_train.shape[1:]
        sample = (8, 8) if name in ("conv1d", "gru") else sample
        model = MODELS[name](sample, max(samples.num_classes, 2))
        if name in models:
            assert make_problem(samples, model, 2).model == model
        else:
            with pytest.raises(ValueError, match=f"as targets, '{data}' has .*; labels go with"):
                make_problem(samples, model, 2)


def test_labels_are_of_two_classes_at_least():
    samples = load("digits", train_size=20)
    for classes in (2, 1):
        few = samples._replace(
            y_train=samples.y_train % classes, y_test=samples.y_test % classes, num_classes=classes
        )
        if classes == 2:
            assert make_problem(few, "softmax", 2).dim == 2 * 65
        else:
            with pytest.raises(
                ValueError, match="expects labels as targets, 'digits' has one class, of"
            ):
                make_problem(few, "softmax", 2)


def test_one_node_with_one_sample_and_a_batch_of_one_will_do():
    samples = load("digits", train_size=1)

    problem = make_problem(samples, "softmax", 1, l2=0.0, batch=1)

    assert (problem.num_nodes, problem.count.tolist(), problem.share.tolist()) == (1, [1], [1.0])
    v = jnp.ones((1, problem.dim))
    whole, batched = (each.gradients(v, keys(1)) for each in (problem.full_batch(), problem))
    np.testing.assert_array_equal(whole[1], batched[1])  # the only sample there is


def test_wrong_data_are_refused():
    samples = load("digits", train_size=50)
    broken = samples.x_train.copy()
    broken[7, 0, 0, 0] = np.nan

    with pytest.raises(ValueError, match="x_train must be finite, sample 7 is not"):
        make_problem(samples._replace(x_train=broken), "softmax", 5)
    with pytest.raises(ValueError, match="node 1 of 2 has none"):
        make_problem(samples, "softmax", [np.arange(50), np.arange(0)])
    with pytest.raises(ValueError, match="at least one node"):
        make_problem(samples, "softmax", [])
    with pytest.raises(ValueError, match="did you mean 'softmax'"):
        make_problem(samples, "sofmax", 5)


@pytest.mark.parametrize(("batch", "rows"), [(None, 20), (5, 5)])
def test_the_work_of_a_step_is_that_of_all_samples_or_of_the_batches(monkeypatch, batch, rows):
    """Of 60 digits each of three nodes has 20; a softmax model of them has 650 parameters."""
    works = []
    problem = make_problem(load("digits", train_size=60), "softmax", 3, batch=batch)
    monkeypatch.setattr(cores, "over_cores", lambda f, work: works.append(work) or f)

    problem.gradients(jnp.zeros((3, 650)), keys(3))

    assert works == [3 * rows * 650]
