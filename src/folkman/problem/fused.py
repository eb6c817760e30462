"""The stages around conv1 as two pairs of GPU kernels (Pallas), in bfloat16 with float32 sums.

Each kernel reads its input once, keeps everything between in registers, and computes it again on
the way back instead of storing it: conv0's outputs, four times the size of all else, never reach
memory. Of equal outputs in a block the first takes the gradient.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypedDict

import jax
import jax.numpy as jnp
from jax import Array, lax

from folkman.problem.normalisation import SCALE, band, power

if TYPE_CHECKING:
    from jax.experimental.pallas.triton import CompilerParams

__all__ = ["first", "fits", "second"]


class Settings(TypedDict, total=False):
    """How a kernel is compiled."""

    interpret: bool
    compiler_params: "CompilerParams"


class Ref(Protocol):
    """A block of an array, as a kernel reads and writes it."""

    def __getitem__(self, at: object, /) -> Array: ...

    def __setitem__(self, at: object, value: Array, /) -> None: ...


CHANNELS = 32
TILE = 64  # rows a step
PROGRAMS = 2048  # that share the rows on the way back: a few for each of a large GPU's processors


def fits(x: Array) -> bool:
    """Tell whether the kernels are for this input and device."""
    return x.dtype == jnp.bfloat16 and jax.default_backend() == "gpu"


@jax.custom_vjp
def first(rows: Array, kernel: Array) -> Array:
    """Return conv0, bias, ReLU, max-pool and LRN: (row, width) and (4, width, 32) -> (row, 32)."""
    return _call(_first_kernel, rows, (kernel, _band()), (CHANNELS,))[: len(rows)]


@jax.custom_vjp
def second(rows: Array, bias: Array) -> Array:
    """Return bias, ReLU, LRN and max-pool: (row, 4 x 32) -> (row, 32)."""
    return _call(_second_kernel, rows, (bias, _band()), (CHANNELS,))[: len(rows)]


def _first_forward(rows: Array, kernel: Array) -> tuple[Array, tuple[Array, Array]]:
    return first(rows, kernel), (rows, kernel)


def _first_backward(kept: tuple[Array, Array], g: Array) -> tuple[Array, Array]:
    rows, kernel = kept
    parts = _sums(_first_back_kernel, (rows, g), (kernel, _band()), kernel.shape)
    return jnp.zeros_like(rows), jnp.sum(parts, axis=0).astype(
        kernel.dtype
    )  # the input is data: nobody asks


def _second_forward(rows: Array, bias: Array) -> tuple[Array, tuple[Array, Array]]:
    return second(rows, bias), (rows, bias)


def _second_backward(kept: tuple[Array, Array], g: Array) -> tuple[Array, Array]:
    rows, bias = kept
    grad = _call(_second_back_kernel, rows, (bias, _band()), (4 * CHANNELS,), g)[: len(rows)]
    total = jnp.sum(grad.astype(jnp.float32).reshape(-1, CHANNELS), axis=0)
    return grad, total.astype(bias.dtype)


first.defvjp(_first_forward, _first_backward)
second.defvjp(_second_forward, _second_backward)


def _band() -> Array:
    return band(CHANNELS, jnp.bfloat16)


def _normalise(positive: Array, window: Array) -> tuple[Array, Array]:
    """Return u and u^(-3/4) of LRN."""
    squares = (positive * positive).astype(jnp.bfloat16)
    u = 1.0 + SCALE * jnp.dot(squares, window, preferred_element_type=jnp.float32)
    return u, power(u)


def _normalise_back(dy: Array, positive: Array, u: Array, p: Array, window: Array) -> Array:
    """Return the gradient of LRN (see `folkman.problem.normalisation`)."""
    inner = (dy * positive * p / u).astype(jnp.bfloat16)
    return dy * p - 1.5 * SCALE * positive * jnp.dot(
        inner, window, preferred_element_type=jnp.float32
    )


def _largest(four: list[Array]) -> Array:
    return jnp.maximum(jnp.maximum(four[0], four[1]), jnp.maximum(four[2], four[3]))


def _to_largest(four: list[Array], largest: Array, g: Array) -> list[Array]:
    """Give the gradient of a maximum to the first of the four that attains it."""
    given, left = [], g
    for one in four:
        mine = jnp.where(one == largest, left, 0.0)
        left = left - mine
        given.append(mine)
    return given


def _first_kernel(rows: Ref, kernel: Ref, window: Ref, out: Ref) -> None:
    x = rows[...]
    four = [jnp.dot(x, kernel[q], preferred_element_type=jnp.float32) for q in range(4)]
    positive = jnp.maximum(_largest(four), 0.0)
    out[...] = (positive * _normalise(positive, window[...])[1]).astype(jnp.bfloat16)


def _first_back_kernel(
    at: Array, rows: Ref, g: Ref, kernel: Ref, window: Ref, sums: tuple[Array, ...]
) -> tuple[Array, ...]:
    """Add one tile's part of the kernel's gradient."""
    from jax.experimental import pallas as pl

    x, dy = rows[pl.ds(at, TILE), :], g[pl.ds(at, TILE), :].astype(jnp.float32)
    four = [jnp.dot(x, kernel[q], preferred_element_type=jnp.float32) for q in range(4)]
    largest = _largest(four)
    positive = jnp.maximum(largest, 0.0)
    u, p = _normalise(positive, window[...])
    dz = jnp.where(largest > 0, _normalise_back(dy, positive, u, p, window[...]), 0.0)
    return tuple(
        total + jnp.dot(x.T, given.astype(jnp.bfloat16), preferred_element_type=jnp.float32)
        for total, given in zip(sums, _to_largest(four, largest, dz), strict=True)
    )


def _four(rows: Ref, bias: Ref, window: Array) -> list[tuple[Array, Array, Array, Array]]:
    """Return positive, u, u^(-3/4) and the normalised value of the four outputs per row's block."""
    four = []
    for q in range(4):
        columns = rows[:, q * CHANNELS : (q + 1) * CHANNELS].astype(jnp.float32)
        positive = jnp.maximum(columns + bias[...].astype(jnp.float32)[None], 0.0)
        u, p = _normalise(positive, window)
        four.append((positive, u, p, positive * p))
    return four


def _second_kernel(rows: Ref, bias: Ref, window: Ref, out: Ref) -> None:
    four = _four(rows, bias, window[...])
    out[...] = _largest([y for *_, y in four]).astype(jnp.bfloat16)


def _second_back_kernel(rows: Ref, g: Ref, bias: Ref, window: Ref, out: Ref) -> None:
    four = _four(rows, bias, window[...])
    values = [y for *_, y in four]
    given = _to_largest(values, _largest(values), g[...].astype(jnp.float32))
    for q, ((positive, u, p, _), dy) in enumerate(zip(four, given, strict=True)):
        dz = jnp.where(positive > 0, _normalise_back(dy, positive, u, p, window[...]), 0.0)
        out[:, q * CHANNELS : (q + 1) * CHANNELS] = dz.astype(jnp.bfloat16)


def _whole_tiles(rows: Array) -> Array:
    return jnp.pad(rows, ((0, -len(rows) % TILE), (0, 0)))


def _settings() -> Settings:
    """Return how the kernels are compiled; without a GPU they are interpreted, for tests."""
    if jax.default_backend() != "gpu":
        return {"interpret": True}
    from jax.experimental.pallas import triton

    return {"compiler_params": triton.CompilerParams(num_warps=4, num_stages=2)}


def _first_block(ndim: int, _: object) -> tuple[int, ...]:
    return (0,) * ndim


def _call(
    kernel: Callable[..., None],
    rows: Array,
    fixed: tuple[Array, ...],
    width: tuple[int],
    *more: Array,
) -> Array:
    """Run a kernel tile by tile over the rows (and `more` arrays with as many).

    `fixed` are whole in every tile.
    """
    from jax.experimental import pallas as pl

    tiled = [_whole_tiles(a) for a in (rows, *more)]
    by_tile = [pl.BlockSpec((TILE, a.shape[1]), lambda i: (i, 0)) for a in tiled]
    whole = [pl.BlockSpec(a.shape, partial(_first_block, a.ndim)) for a in fixed]
    shape = (len(tiled[0]), *width)
    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct(shape, jnp.bfloat16),
        grid=(shape[0] // TILE,),
        in_specs=[*by_tile, *whole],
        out_specs=pl.BlockSpec((TILE, *width), lambda i: (i, 0)),
        **_settings(),
    )(*tiled, *fixed)


def _sums(
    kernel: Callable[..., tuple[Array, ...]],
    rows: tuple[Array, ...],
    fixed: tuple[Array, ...],
    shape: tuple[int, ...],
) -> Array:
    """Let each of `PROGRAMS` add up its tiles' parts of an array of `shape`.

    Return all of them, in float32.
    """
    from jax.experimental import pallas as pl

    tiled = [_whole_tiles(a) for a in rows]
    tiles = len(tiled[0]) // TILE
    programs = min(PROGRAMS, tiles)
    each = -(-tiles // programs)

    def body(*refs: Ref) -> None:
        *inputs, out = refs
        start = pl.program_id(0) * each
        zeros = tuple(jnp.zeros(shape[1:], jnp.float32) for _ in range(shape[0]))
        stop = jnp.minimum(start + each, tiles)
        sums = lax.fori_loop(start, stop, lambda i, sums: kernel(i * TILE, *inputs, sums), zeros)
        for part in range(shape[0]):
            out[0, part] = sums[part]

    whole = [pl.BlockSpec(a.shape, partial(_first_block, a.ndim)) for a in fixed]
    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct((programs, *shape), jnp.float32),
        grid=(programs,),
        in_specs=[*(pl.BlockSpec() for _ in tiled), *whole],
        out_specs=pl.BlockSpec((1, *shape), lambda i: (i,) + (0,) * len(shape)),
        **_settings(),
    )(*tiled, *fixed)
