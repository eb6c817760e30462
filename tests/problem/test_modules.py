"""Models of other libraries: the losses of folkman's own from equal parameters, and refusals."""

import sys
from dataclasses import replace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import folkman as fm
from folkman.problem.models import SQUARE
from shell import folkman

linen = pytest.importorskip("flax.linen")
nnx = pytest.importorskip("flax.nnx")
eqx = pytest.importorskip("equinox")
SAMPLE, CLASSES, WIDTH = (8, 8, 1), 10, 6


class Linen(linen.Module):
    @linen.compact
    def __call__(self, x):
        h = linen.Dense(WIDTH)(x.reshape(len(x), -1))  # flax numbers layers as they are made
        return linen.Dense(CLASSES)(linen.relu(h))


class Nnx(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(64, WIDTH, rngs=rngs)
        self.second = nnx.Linear(WIDTH, CLASSES, rngs=rngs)

    def __call__(self, x):
        return self.second(nnx.relu(self.first(x.reshape(len(x), -1))))


class Equinox(eqx.Module):
    mlp: Any

    def __init__(self, key):
        self.mlp = eqx.nn.MLP(64, CLASSES, WIDTH, depth=1, key=key)

    def __call__(self, x):
        return self.mlp(x.ravel())


def first(key):
    one, two = jax.random.split(key)
    shapes = (one, (64, WIDTH)), (two, (WIDTH, CLASSES))
    return [(jax.random.normal(k, s), jnp.zeros(s[1])) for k, s in shapes]


def apply(parameters, x):
    (kernel, bias), (last, add) = parameters
    return jax.nn.relu(x.reshape(len(x), -1) @ kernel + bias[None]) @ last + add[None]


BUILT = {
    "linen": lambda: fm.from_flax(Linen(), SAMPLE),
    "nnx": lambda: fm.from_flax(Nnx, SAMPLE),
    "equinox": lambda: fm.from_equinox(Equinox, SAMPLE),
    "jax": lambda: fm.from_jax(first, apply, SAMPLE),
}
ORDER = {"linen": "b0 k0T b1 k1T", "nnx": "b0 k0T b1 k1T", "equinox": "b0 k0 b1 k1"}
ORDER |= {"jax": "k0T b0 k1T b1"}
"""Where the tensors of folkman's own dense layers stand in the flat vector of each."""


def moved(order, layout, w):
    """Return a flat vector of folkman's own dense network as another library has it."""
    own = layout.unflatten(w)
    short = {f"{name[0]}{name[-1]}": value for name, value in own.items()}
    found = [short[each[:2]].T if each.endswith("T") else short[each[:2]] for each in order.split()]
    return jnp.concatenate([each.ravel() for each in found])


@pytest.mark.parametrize("name", BUILT)
def test_a_module_trains_to_the_loss_of_the_built_in_network(name):
    digits = fm.load("digits", train_size=60, test_size=20)
    options = {"l2": 0.01, "batch": 8, "seed": 3}
    ours = fm.make_problem(digits, fm.mlp(SAMPLE, CLASSES, hidden=(WIDTH,)), 3, **options)
    model = BUILT[name]()
    theirs = fm.make_problem(digits, model, 3, **options)
    if name == "equinox":  # its kernels are called weights, and penalised as well
        assert [key for key, _ in model.layout.shapes][1] == "mlp/layers/0/weight"
    if name == "jax":  # paths without names: biases are penalised there, so without penalty
        ours, theirs = replace(ours, l2=0.0), replace(theirs, l2=0.0)
    theirs = replace(theirs, initial=moved(ORDER[name], ours.layout, ours.initial))

    one, other = (
        fm.simulate(each, fm.pipelined(2), fm.async_sharing(0.2), slots=12)
        for each in (ours, theirs)
    )

    for key in ("train_loss", "test_loss"):
        assert other.last(key) == pytest.approx(one.last(key), rel=1e-5)
    assert one.last("train_loss") < 0.9 * one.rows[0]["train_loss"]


@pytest.mark.parametrize("name", BUILT)
def test_the_seed_draws_the_first_parameters(name):
    digits = fm.load("digits", train_size=60)
    drawn = [fm.make_problem(digits, BUILT[name](), 3, seed=seed).initial for seed in (0, 0, 1)]

    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])


def test_equal_modules_are_one_compiled_program():
    assert fm.from_flax(Linen(), SAMPLE) == fm.from_flax(Linen(), SAMPLE)
    assert fm.from_equinox(Equinox, SAMPLE) == fm.from_equinox(Equinox, SAMPLE)
    assert fm.from_jax(first, apply, SAMPLE) != fm.from_jax(first, lambda p, x: apply(p, x), SAMPLE)


def test_another_head_judges_the_scores():
    model = fm.from_equinox(lambda key: eqx.nn.Linear(20, 1, key=key), (20,), head=SQUARE)
    data = fm.load("gaussian", samples=100)

    run = fm.simulate(fm.make_problem(data, model, 2), fm.ideal(), fm.fedavg(0.1), slots=40)

    assert run.last("train_loss") < 0.1 * run.rows[0]["train_loss"]


def test_convolutions_are_called_from_python_with_the_same_loss():
    class Images(linen.Module):
        @linen.compact
        def __call__(self, x):
            h = linen.relu(linen.Conv(3, (3, 3))(x))
            return linen.Dense(CLASSES)(h.reshape(len(x), -1))

    digits = fm.load("digits", train_size=40)
    losses = []
    for convolutional in (False, True):
        model = fm.from_flax(Images(), SAMPLE, convolutional=convolutional)
        problem = fm.make_problem(digits, model, 2)
        assert problem.called_from_python == (convolutional and jax.default_backend() == "cpu")
        run = fm.simulate(problem, fm.ideal(), fm.fedavg(0.1), slots=3)
        losses.append(run.last("train_loss"))

    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


class Normal(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.BatchNorm(use_running_average=False)(linen.Dense(CLASSES)(x))


class Drops(nnx.Module):
    def __init__(self, rngs):
        self.drop = nnx.Dropout(0.5, rngs=rngs)
        self.last = nnx.Linear(4, 2, rngs=rngs)

    def __call__(self, x):
        return self.last(self.drop(x))


def halved(key):
    return jax.tree.map(
        lambda leaf: leaf.astype(jnp.bfloat16), eqx.nn.Linear(4, 2, key=key), is_leaf=eqx.is_array
    )


def stateful(key):
    del key
    return eqx.nn.BatchNorm(4, "batch", mode="ema")


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: fm.from_flax(Normal(), (4,)), "Normal keeps batch_stats too; use layers without"),
        (lambda: fm.from_flax(Drops, (4,)), "Drops keeps .*Rng.* too; use layers without"),
        (lambda: fm.from_flax(linen.Sequential([jnp.tanh]), (4,)), "with parameters, got none"),
        (lambda: fm.from_flax(cast("Any", 3), (4,)), "expected a flax module, got int"),
        (lambda: fm.from_flax(lambda rngs: rngs, (4,)), "it made Rngs"),
        (lambda: fm.from_equinox(stateful, (4,)), "BatchNorm keeps a state too"),
        (lambda: fm.from_equinox(halved, (4,)), r"float32, got bias bfloat16, weight bfloat16"),
        (
            lambda: fm.from_equinox(eqx.nn.Identity(), (4,)),
            "expected a function of a key that makes the module, got Identity",
        ),
        (
            lambda: fm.from_jax(lambda key: jax.random.normal(key, (3,)), lambda w, _: w, (4,)),
            r"expected scores of shape \(n, outputs\) .* got \(3,\)",
        ),
    ],
)
def test_what_is_no_function_of_parameters_and_samples_is_refused(build, said):
    with pytest.raises(ValueError, match=said):
        build()


def test_an_nnx_module_itself_is_refused_with_how_to_write_it():
    with pytest.raises(TypeError, match="write `lambda rngs:"):
        fm.from_flax(Nnx(nnx.Rngs(0)), SAMPLE)


@pytest.mark.parametrize("name", ["flax", "equinox"])
def test_a_library_that_is_not_there_is_named(name, monkeypatch):
    for module in ("flax", "flax.linen", "flax.nnx", "equinox"):
        monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(RuntimeError, match=rf"needs {name}, .* pip install 'folkman\[{name}\]'"):
        getattr(fm, f"from_{name}")(lambda key: key, (4,))


NETS = """
import equinox as eqx
import jax.numpy as jnp
from flax import linen

import folkman as fm


def net(sample, classes, *, width: int = 4):
    flat = jnp.zeros(sample).size
    return fm.from_equinox(
        lambda key: eqx.nn.Sequential(
            [eqx.nn.Lambda(jnp.ravel), eqx.nn.MLP(flat, classes, width, 1, key=key)]
        ),
        sample,
    )


def norm(sample, classes):
    return fm.from_flax(linen.Sequential([linen.BatchNorm(False), linen.Dense(classes)]), sample)
"""


def test_a_configuration_names_a_module_and_a_bad_one_ends_without_a_traceback(tmp_path):
    (tmp_path / "nets.py").write_text(NETS)
    small = ["slots=3", "seeds=[0]", "data.train_size=40", "nodes=2"]
    small = [word for each in small for word in ("--set", each)]
    one = ["--set", 'algorithm=[{name="async_sharing"}]']

    done = folkman("run", "--set", "model.name=nets.py:net", *small, *one, cwd=tmp_path)
    bad = folkman("run", "--set", "model.name=nets.py:norm", *small, *one, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert bad.returncode == 2
    assert "keeps batch_stats too" in bad.stderr
    assert "Traceback" not in bad.stderr
