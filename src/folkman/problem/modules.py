"""Models of other libraries: a pair of JAX functions, a flax module, an equinox module.

    fm.from_jax(first, apply, sample)     first(key) -> parameters, apply(parameters, x) -> scores
    fm.from_flax(module, sample)          a linen module; or rngs -> an nnx module
    fm.from_equinox(make, sample)         make(key) -> a module of one sample

Parameters are any tree of float32 arrays. The flat vector is its leaves in JAX's order, each named
by its path, so that methods, messages and checkpoints see it as any other model. JAX takes the
gradients, and the engine compiles them into its own program.

Modules whose scores depend on more than parameters and samples are refused: batch normalisation and
dropout keep a state or draw. Two models are equal, and share a compiled program, if their functions
or modules are equal.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from folkman.checks import require
from folkman.problem.models import CROSS_ENTROPY, Head, Layout, Model

if TYPE_CHECKING:
    from flax import linen

__all__ = ["from_equinox", "from_flax", "from_jax"]

Tree: TypeAlias = Any
First: TypeAlias = Callable[[Array], Tree]  # key -> parameters
Apply: TypeAlias = Callable[[Tree, Array], Array]  # parameters, (n, *sample) -> (n, outputs)

PURE = "use layers without a state, such as GroupNorm or LayerNorm, and no dropout"
GLANCED = 2  # samples that a module is tried on, by shape alone


@dataclass(frozen=True)
class TreeNetwork:
    """A network whose parameters are a tree of another library."""

    first: First
    apply: Apply

    @cached_property
    def _shapes(self) -> Tree:
        return jax.eval_shape(self.first, jax.random.key(0))

    @property
    def layout(self) -> Layout:
        """Return the leaves by their paths."""
        leaves = jax.tree_util.tree_leaves_with_path(self._shapes)
        return Layout(tuple((_name(path), tuple(leaf.shape)) for path, leaf in leaves))

    def init(self, key: Array) -> Array:
        """Return the first parameters as a flat vector."""
        leaves = jax.tree.leaves(self.first(key))
        return jnp.concatenate([leaf.reshape(-1) for leaf in leaves])

    def prepare(self, x: Array) -> Array:
        """Return the samples as they are."""
        return x

    def scores(self, w: Array, x: Array) -> Array:
        """Return the scores (n, outputs)."""
        leaves = list(self.layout.unflatten(w).values())
        return self.apply(jax.tree.unflatten(jax.tree.structure(self._shapes), leaves), x)


def _name(path: tuple[Any, ...]) -> str:
    """Return a path in a tree as `Dense_0/kernel`."""
    return jax.tree_util.keystr(path, simple=True, separator="/") or "w"


def from_jax(
    first: First,  # key -> the first parameters, a tree
    apply: Apply,  # (parameters, samples) -> scores (n, outputs)
    sample: tuple[int, ...],
    *,
    head: Head = CROSS_ENTROPY,
    convolutional: bool = False,
    dtype: str = "float32",
) -> Model:
    """Build a model of two functions: `first(key)` and `apply(parameters, x)`.

    `first` returns the first parameters, a tree of float32 arrays. `apply` returns the scores
    (n, outputs) of samples (n, *sample), which have the type `dtype`. `head` judges the scores.
    Say `convolutional` of a network of convolutions: on a CPU they are slow inside loops.
    """
    network = TreeNetwork(first, apply)
    odd = [
        f"{_name(path)} {leaf.dtype}"
        for path, leaf in jax.tree_util.tree_leaves_with_path(network._shapes)
        if leaf.dtype != jnp.float32
    ]
    require(not odd, f"expected parameters of float32, got {', '.join(odd)}; convert them")
    names = [name for name, _ in network.layout.shapes]
    require(bool(names), "expected a module with parameters, got none; add a layer")
    require(
        len(set(names)) == len(names),
        f"expected parameters with different paths, got {', '.join(names)}; rename them",
    )
    w = jax.ShapeDtypeStruct((network.layout.size,), jnp.float32)
    x = jax.ShapeDtypeStruct((GLANCED, *sample), np.dtype(dtype))
    found = jax.eval_shape(network.scores, w, x)
    fits = getattr(found, "ndim", 0) == 2 and found.shape[0] == GLANCED
    came = getattr(found, "shape", type(found).__name__)
    require(
        fits,
        f"expected scores of shape (n, outputs) for n samples of shape {sample}, got {came} for "
        f"n = {GLANCED}; flatten each sample, and return one row a sample",
    )
    return Model(network, head, convolutional=convolutional)


def from_flax(
    # a linen module, or a function of `rngs` that makes an nnx module
    module: "linen.Module | Callable[..., Any]",
    sample: tuple[int, ...],
    *,
    head: Head = CROSS_ENTROPY,
    convolutional: bool = False,
    dtype: str = "float32",
) -> Model:
    """Build a model of a flax module, called with samples (n, *sample).

    `module` is a linen module, or a function of `rngs` that returns an nnx module. Other arguments
    are those of `from_jax`.
    """
    linen, nnx = _import("flax.linen", "flax"), _import("flax.nnx", "flax")
    if isinstance(module, nnx.Module):
        raise TypeError(
            "expected a linen module, or a function of rngs that makes an nnx module, got the nnx "
            f"module {type(module).__name__} itself; write `lambda rngs: Net(rngs=rngs)`"
        )
    if isinstance(module, linen.Module):
        first, apply = LinenFirst(module, tuple(sample), dtype), LinenApply(module)
        _check_linen(first)
    else:
        require(callable(module), f"expected a flax module, got {type(module).__name__}")
        first, apply = NnxFirst(module), NnxApply(module)
        _check_nnx(module)
    return from_jax(first, apply, sample, head=head, convolutional=convolutional, dtype=dtype)


@dataclass(frozen=True)
class LinenFirst:
    """The first parameters of a linen module."""

    module: Any
    sample: tuple[int, ...]
    dtype: str

    def variables(self, key: Array) -> Any:
        """Return all that the module has, by kind."""
        return self.module.init(key, jnp.zeros((GLANCED, *self.sample), self.dtype))

    def __call__(self, key: Array) -> Tree:
        return self.variables(key)["params"]


@dataclass(frozen=True)
class LinenApply:
    """The scores of a linen module."""

    module: Any

    def __call__(self, parameters: Tree, x: Array) -> Array:
        return self.module.apply({"params": parameters}, x)


def _check_linen(first: LinenFirst) -> None:
    found = jax.eval_shape(first.variables, jax.random.key(0))
    require("params" in found, "expected a module with parameters, got none; add a layer")
    kept = [kind for kind in found if kind != "params"]
    require(
        not kept,
        f"expected a module with parameters alone, {type(first.module).__name__} keeps "
        f"{', '.join(kept)} too; {PURE}",
    )


@dataclass(frozen=True)
class NnxFirst:
    """The first parameters of an nnx module."""

    make: Callable[..., Any]

    def __call__(self, key: Array) -> Tree:
        nnx = _import("flax.nnx", "flax")
        return nnx.to_pure_dict(nnx.state(self.make(nnx.Rngs(key)), nnx.Param))


@dataclass(frozen=True)
class NnxApply:
    """The scores of an nnx module."""

    make: Callable[..., Any]

    def __call__(self, parameters: Tree, x: Array) -> Array:
        nnx = _import("flax.nnx", "flax")
        graph, state = nnx.split(nnx.eval_shape(lambda: self.make(nnx.Rngs(0))))
        nnx.replace_by_pure_dict(state, parameters)
        return nnx.merge(graph, state)(x)


def _check_nnx(make: Callable[..., Any]) -> None:
    nnx = _import("flax.nnx", "flax")
    made = nnx.eval_shape(lambda: make(nnx.Rngs(0)))
    require(
        isinstance(made, nnx.Module),
        f"expected a function of rngs that makes an nnx module, it made {type(made).__name__}",
    )
    _, _, rest = nnx.split(made, nnx.Param, ...)
    kept = sorted({type(each).__name__ for _, each in nnx.to_flat_state(rest)})
    require(
        not kept,
        f"expected a module with parameters alone, {type(made).__name__} keeps {', '.join(kept)} "
        f"too; {PURE}",
    )


def from_equinox(
    make: Callable[[Array], Any],  # key -> the module
    sample: tuple[int, ...],
    *,
    head: Head = CROSS_ENTROPY,
    convolutional: bool = False,
    dtype: str = "float32",
) -> Model:
    """Build a model of an equinox module, called with one sample at a time.

    `make(key)` returns the module. Other arguments are those of `from_jax`.
    """
    eqx = _import("equinox", "equinox")
    require(
        callable(make) and not isinstance(make, eqx.Module),
        f"expected a function of a key that makes the module, got {type(make).__name__}; "
        "write `lambda key: eqx.nn.MLP(..., key=key)`",
    )
    made = eqx.filter_eval_shape(make, jax.random.key(0))
    kept = [
        type(leaf).__name__
        for leaf in jax.tree.leaves(made, is_leaf=lambda leaf: isinstance(leaf, eqx.nn.StateIndex))
        if isinstance(leaf, eqx.nn.StateIndex)
    ]
    require(
        not kept,
        f"expected a module with parameters alone, {type(made).__name__} keeps a state too; {PURE}",
    )
    first, apply = EquinoxFirst(make), EquinoxApply(make)
    return from_jax(first, apply, sample, head=head, convolutional=convolutional, dtype=dtype)


@dataclass(frozen=True)
class EquinoxFirst:
    """The first parameters of an equinox module."""

    make: Callable[[Array], Any]

    def __call__(self, key: Array) -> Tree:
        eqx = _import("equinox", "equinox")
        found = eqx.filter(self.make(key), eqx.is_array)
        leaves = jax.tree_util.tree_leaves_with_path(found)
        return {_name(path): leaf for path, leaf in leaves}


@dataclass(frozen=True)
class EquinoxApply:
    """The scores of an equinox module, sample by sample."""

    make: Callable[[Array], Any]

    def __call__(self, parameters: Tree, x: Array) -> Array:
        eqx = _import("equinox", "equinox")
        made = eqx.filter_eval_shape(self.make, jax.random.key(0))

        def filled(path: tuple[Any, ...], leaf: Any) -> Any:
            return parameters.get(_name(path), leaf)

        return jax.vmap(jax.tree_util.tree_map_with_path(filled, made))(x)


def _import(name: str, package: str) -> Any:
    """Return a module of a library that is installed apart, or say how to get it."""
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError:
        raise RuntimeError(
            f"this model needs {package}, which is not installed; pip install 'folkman[{package}]'"
        ) from None
