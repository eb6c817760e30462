"""The CNN in blocks is the CNN, and the fused kernels are the plain ones."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import folkman as fm
from folkman.problem import blocks, fused
from folkman.problem.cnn import CNN
from folkman.problem.models import MODELS
from folkman.problem.normalisation import local_response_norm

IMAGES = [(28, 28, 1), (8, 8, 1), (12, 8, 3)]


def apart(a, b):
    a, b = (np.asarray(each, np.float64) for each in (a, b))
    return np.linalg.norm(a - b) / np.linalg.norm(b)


@pytest.mark.parametrize("image", IMAGES)
def test_blocks_are_the_convolutions(x64, image):
    network = CNN(image, 10)
    rng = np.random.default_rng(0)
    w, x = (
        jnp.asarray(rng.normal(size=network.layout.size) * 0.1),
        jnp.asarray(rng.normal(size=(3, *image))),
    )

    def value(w, in_blocks):
        tensors = network.layout.unflatten(w)
        scores = (
            blocks.block_scores(tensors, blocks.windows(x)) if in_blocks else network.scores(w, x)
        )
        return jnp.sum(jnp.sin(scores)), scores

    take = jax.jit(jax.value_and_grad(value, has_aux=True), static_argnums=1)
    ((_, plain), grad), ((_, blocked), blocked_grad) = take(w, False), take(w, True)

    np.testing.assert_allclose(blocked, plain, rtol=1e-10)
    assert apart(blocked_grad, grad) < 1e-10


def test_the_written_gradient_of_the_normalisation_is_the_derived_one(x64):
    x = jnp.asarray(np.random.default_rng(1).normal(size=(4, 32)) * 30)
    weight = jnp.asarray(np.random.default_rng(2).normal(size=(4, 32)))

    def direct(x):
        window = jnp.abs(jnp.subtract.outer(jnp.arange(32), jnp.arange(32))) <= 4
        return x / (1 + 0.001 / 9 * ((x * x) @ window.astype(x.dtype))) ** 0.75

    def value_and_slope(function):
        return jax.jit(
            lambda x: (function(x), jax.grad(lambda x: jnp.sum(weight * function(x)))(x))
        )

    (value, slope), (plain, derived) = (
        value_and_slope(function)(x) for function in (local_response_norm, direct)
    )

    np.testing.assert_allclose(value, plain, rtol=1e-12)
    np.testing.assert_allclose(slope, derived, rtol=1e-10)


@pytest.mark.parametrize(
    ("stage", "width", "fixed"), [("first", 64, (4, 64, 32)), ("second", 128, (32,))]
)
def test_fused_stages_are_the_plain_ones(stage, width, fixed):
    """Interpreted here; a bfloat16 has 8 bits, so values and gradients agree to half a percent in
    norm."""
    rng = np.random.default_rng(3)
    rows = jnp.asarray(rng.normal(size=(150, width)), jnp.bfloat16)  # not a whole number of tiles
    other = jnp.asarray(rng.normal(size=fixed), jnp.bfloat16)
    g = jnp.asarray(rng.normal(size=(150, 32)), jnp.bfloat16)

    def there_and_back(function, g, *given):
        value, back = jax.vjp(function, *given)
        return value, *back(g)

    taken = jax.jit(there_and_back, static_argnums=0)
    value, d_rows, d_other = taken(getattr(fused, stage), g, rows, other)
    wide = (each.astype(jnp.float32) for each in (g, rows, other))
    plain, plain_rows, plain_other = taken(getattr(blocks._Plain, stage), *wide)

    assert value.dtype == jnp.bfloat16
    assert apart(value, plain) < 0.005
    assert apart(d_other, plain_other) < 0.005
    if stage == "second":  # the first stage's input is data
        assert apart(d_rows, plain_rows) < 0.005


@pytest.mark.parametrize(("programs", "each"), [(2048, [1, 1, 1]), (2, [2, 1]), (1, [3])])
def test_on_the_way_back_every_tile_is_taken_once(monkeypatch, programs, each):
    """150 rows are three tiles of 64."""
    monkeypatch.setattr(fused, "PROGRAMS", programs)

    def count(at, rows, sums):
        del at, rows
        return tuple(total + 1.0 for total in sums)

    taken = fused._sums(count, (jnp.ones((150, 8)),), (), (2, 4))

    np.testing.assert_array_equal(taken, np.broadcast_to(np.reshape(each, (-1, 1, 1)), taken.shape))


def test_of_equal_outputs_the_first_takes_the_gradient():
    rows = jnp.full((64, 128), 2.0, jnp.bfloat16)

    grad = jax.grad(
        lambda rows: jnp.sum(fused.second(rows, jnp.zeros(32, jnp.bfloat16)).astype(jnp.float32))
    )(rows)

    assert (np.asarray(grad[:, :32], np.float32) != 0).all()
    assert (np.asarray(grad[:, 32:], np.float32) == 0).all()


def test_sixteen_bits_change_the_final_loss_by_less_than_three_percent_of_its_fall():
    data = fm.load("digits", train_size=20, test_size=10)
    finals, start = {}, 0.0
    for precision in ("float32", "bfloat16"):
        model = MODELS["cnn"](data.x_train.shape[1:], 10, precision=precision)
        run = fm.simulate(
            fm.make_problem(data, model, 2), fm.ideal(), fm.async_sharing(step=0.05), slots=25
        )
        finals[precision], start = run.last("train_loss"), run.rows[0]["train_loss"]
        assert run.nodes.dtype == np.float32

    fall = start - finals["float32"]
    assert fall > 0.3 * start  # it has learnt something
    assert abs(finals["bfloat16"] - finals["float32"]) < 0.03 * fall


def test_an_unknown_precision_and_a_curvature_in_sixteen_bits_are_refused():
    from folkman.theory.smoothness import curvatures

    with pytest.raises(ValueError, match="precision must be one of float32, bfloat16, got 'half'"):
        MODELS["cnn"]((8, 8, 1), 10, precision="half")
    data = fm.load("digits", train_size=20, test_size=10)
    problem = fm.make_problem(data, MODELS["cnn"]((8, 8, 1), 10, precision="bfloat16"), 2)
    with pytest.raises(ValueError, match="curvature of a model needs float32"):
        curvatures(problem, problem.initial)


def test_prepared_samples_give_the_same_losses():
    """What a GPU keeps (windows laid out once) and what it makes on the way are one function."""
    data = fm.load("digits", train_size=20, test_size=10)
    problem = fm.make_problem(data, MODELS["cnn"]((8, 8, 1), 10, precision="bfloat16"), 2)
    laid_out = replace(problem, x=jax.vmap(problem.model.prepare)(problem.x))
    v, keys = jnp.stack([problem.initial] * 2), jax.random.split(jax.random.key(0), 2)

    assert laid_out.x.ndim == 6
    for a, b in zip(laid_out.gradients(v, keys), problem.gradients(v, keys), strict=True):
        np.testing.assert_array_equal(a, b)
