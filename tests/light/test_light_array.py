"""NumPy under JAX's rules: types, places, trees and loops are those of JAX."""
# ruff: noqa: ARG005 - the operations of the table share their arguments

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from folkman.algorithm.base import Inbox
from folkman.light import names, transforms, trees
from folkman.light.array import Array, NotHereError, settings

WHOLE, REAL, SHORT = np.arange(1, 4), np.linspace(0.5, 2, 3), np.arange(3, dtype=np.uint8)
OPERATIONS = {
    "whole times real": lambda xp, i, r, s: i * r,
    "whole over whole": lambda xp, i, r, s: i / (i + 1),
    "a number of Python's": lambda xp, i, r, s: 0.1 * r + 2,
    "a sum of whole numbers": lambda xp, i, r, s: xp.sum(i),
    "a mean": lambda xp, i, r, s: r.mean(),
    "a deviation": lambda xp, i, r, s: r.std(),
    "whole numbers' mean": lambda xp, i, r, s: i.mean(),
    "an order": lambda xp, i, r, s: (-r).argsort(),
    "a smallest place": lambda xp, i, r, s: r.argmin() * i,
    "an element": lambda xp, i, r, s: i[1] * r[2],
    "elements in turn": lambda xp, i, r, s: sum(a * b for a, b in zip(i, r, strict=True)),
    "where": lambda xp, i, r, s: xp.where(i > 1, r, -1),
    "where of whole numbers": lambda xp, i, r, s: xp.where(i > 1, i, 0.5),
    "short": lambda xp, i, r, s: s + s,
    "short and whole": lambda xp, i, r, s: s + i,
    "powers": lambda xp, i, r, s: r**2,
    "zeros": lambda xp, i, r, s: xp.zeros(3),
    "counting": lambda xp, i, r, s: xp.arange(3),
    "a largest place": lambda xp, i, r, s: xp.argmax(r),
    "a norm": lambda xp, i, r, s: xp.linalg.norm(r),
    "a product": lambda xp, i, r, s: xp.dot(r, r, precision="highest"),
    "truth": lambda xp, i, r, s: xp.any(i > 2),
    "a cast": lambda xp, i, r, s: r.astype(xp.int32),
    "a wide cast": lambda xp, i, r, s: i.astype(xp.float32) / 3,
    "no number": lambda xp, i, r, s: (r - r) / (r - r),
    "set": lambda xp, i, r, s: r.at[xp.asarray(1)].set(7),
    "set beyond the end": lambda xp, i, r, s: r.at[xp.asarray(3)].set(7),
    "add to one entry twice": lambda xp, i, r, s: r.at[xp.asarray([0, 0, 2])].add(r),
    "get beyond the end": lambda xp, i, r, s: r[xp.asarray(5)],
    "from the back": lambda xp, i, r, s: r.at[-1].multiply(2),
    "a sorted copy": lambda xp, i, r, s: (-r).sort(),
    "sorted along an axis": lambda xp, i, r, s: xp.outer(i, -r)[::-1].sort(axis=0),
    "from the largest": lambda xp, i, r, s: r.sort(descending=True),
    "half and whole": lambda xp, i, r, s: r.astype(xp.float16) + i,
    "a half and a whole": lambda xp, i, r, s: xp.float16(1) + xp.int32(1) * i[0],
    "half, whole and real": lambda xp, i, r, s: xp.where(i > 1, r.astype(xp.float16) * i, r),
    "half or whole": lambda xp, i, r, s: xp.where(i > 1, r.astype(xp.float16), i),
    "half beside whole": lambda xp, i, r, s: xp.concatenate([r.astype(xp.float16), i]),
    "half times whole": lambda xp, i, r, s: xp.dot(r.astype(xp.float16), i),
    "half above whole": lambda xp, i, r, s: xp.maximum(r.astype(xp.float16), i),
    "half and short": lambda xp, i, r, s: r.astype(xp.float16) * s - 2,
    "the root of short ones": lambda xp, i, r, s: xp.sqrt(s) + xp.exp(i > 1),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_values_and_types_are_those_of_jax(name):
    given = (WHOLE, REAL, SHORT)

    wanted = OPERATIONS[name](jnp, *map(jnp.asarray, given))
    found = OPERATIONS[name](names, *map(names.asarray, given))

    assert isinstance(found, Array)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=1e-6)


def places(xp):
    """Return indices of a table of 2 rows and 3 columns; most of them leave it."""
    several, one = xp.asarray([1, 9, -1, -9, 0]), xp.asarray(7)
    return {
        "one row": one,
        "one row as Python's number": 7,
        "before the front": xp.asarray(-7),
        "several rows": several,
        "rows in a short type": xp.asarray([1, 200], xp.uint8),
        "an entry": (0, 7),
        "an entry by arrays": (xp.asarray(0), one),
        "a row that is not there": (9, 0),
        "columns": (slice(None), several),
        "columns after all else": (Ellipsis, several),
        "rows before all else": (several, Ellipsis),
        "with an axis more": (None, one, slice(1, 9)),
        "both by arrays": (several[:, None], xp.asarray([2, 5, -4])),
        "a mask and a column": (xp.asarray([True, False]), one),
        "none": xp.asarray([], xp.int32),
        "within": (1, xp.asarray([0, -1])),
    }


USES = {
    "read": lambda x, at: x[at],
    "clipped": lambda x, at: x.at[at].get(mode="clip"),
    "filled": lambda x, at: x.at[at].get(mode="fill", fill_value=-1),
    "filled by default": lambda x, at: x.at[at].get(mode="fill"),
    "whole and filled": lambda x, at: x.astype("int32").at[at].get(mode="drop"),
    "set": lambda x, at: x.at[at].set(7),
    "dropped": lambda x, at: x.at[at].set(7, mode="drop"),
    "set at the end": lambda x, at: x.at[at].set(7, mode="clip"),
    "added": lambda x, at: x.at[at].add(0.5),
    "added at the end": lambda x, at: x.at[at].add(0.5, mode="clip"),
    "the smaller": lambda x, at: x.at[at].min(1.5, unique_indices=False),
}


@pytest.mark.parametrize("use", USES)
def test_beyond_an_end_is_what_it_is_in_jax(use):
    table = np.arange(6.0).reshape(2, 3)
    for name, at in places(names).items():
        wanted = USES[use](jnp.asarray(table), places(jnp)[name])

        found = USES[use](names.asarray(table), at)

        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), name
        np.testing.assert_array_equal(np.asarray(found), np.asarray(wanted), name)


def test_values_go_to_the_entries_that_are_there():
    table, rows = np.zeros((2, 3)), np.arange(6.0).reshape(2, 3)

    wanted = jnp.asarray(table).at[jnp.asarray([9, 1])].set(jnp.asarray(rows), mode="drop")

    found = names.asarray(table).at[names.asarray([9, 1])].set(names.asarray(rows), mode="drop")
    np.testing.assert_array_equal(np.asarray(found), np.asarray(wanted))
    every: list[dict[str, Any]] = [{}, {"axis": 0}, {"axis": 1, "mode": "clip"}]
    for options in every:
        np.testing.assert_array_equal(
            np.asarray(names.take(names.asarray(rows), names.asarray([1, 9]), **options)),
            np.asarray(jnp.take(jnp.asarray(rows), jnp.asarray([1, 9]), **options)),
        )


def test_with_64_bits_numbers_stay_as_wide_as_they_are():
    try:
        transforms.config.update("jax_enable_x64", True)
        assert names.zeros(2).dtype == np.float64
        assert (names.asarray(REAL) * 0.1).dtype == np.float64
    finally:
        settings.wide = False
    assert names.zeros(2).dtype == np.float32


def test_arrays_never_change():
    first = names.asarray(REAL)
    second = first
    second += 1

    assert float(first[0]) == 0.5
    assert float(second[0]) == 1.5
    with pytest.raises(TypeError, match=r"write x = x.at\[i\].set"):
        first[0] = 3
    with pytest.raises(TypeError, match="never changed in place"):
        np.add(first, 1, out=np.zeros(3))
    for change in (lambda: first.fill(0), lambda: first.partition(1), lambda: first.put(0, 3)):
        with pytest.raises(TypeError, match="changes x, and arrays are never changed"):
            change()
    falling = -first
    assert float(falling.sort()[0]) == -2
    assert float(falling[0]) == -0.5


def test_what_is_given_may_change_afterwards():
    given = REAL.astype(np.float32)
    held, put = names.asarray(given), transforms.device_put({"x": given})["x"]

    given[:] = 9

    assert float(held[0]) == float(put[0]) == 0.5


class Pair(NamedTuple):
    first: object
    second: object


def tree(xp):
    """Return all kinds of nodes that a state may have."""
    box = Inbox(*(xp.ones(2) * k for k in range(7)))
    return Pair({"b": xp.zeros(2), "a": (xp.ones(1), None)}, [box, xp.arange(2)])


def test_leaves_have_the_order_and_the_names_of_jax(monkeypatch):
    fields = list(Inbox.__dataclass_fields__)
    monkeypatch.setitem(trees._FIELDS, Inbox, fields)

    wanted = jax.tree_util.tree_leaves_with_path(tree(jnp))
    found, structure = trees.tree_flatten_with_path(tree(names))

    assert [trees.keystr(path) for path, _ in found] == [
        jax.tree_util.keystr(path) for path, _ in wanted
    ]
    doubled = trees.unflatten(structure, [2 * leaf for _, leaf in found])
    assert isinstance(doubled.second[0], Inbox)
    assert doubled.first["a"][1] is None
    for ours, (_, theirs) in zip(trees.leaves(doubled), wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(ours), 2 * np.asarray(theirs))


def test_loops_and_batches_do_what_those_of_jax_do():
    def body(x, row):
        return x * 0.5 + row["a"], (x, row["b"] + 1)

    rows = {"a": REAL, "b": WHOLE}
    theirs = lax.scan(body, jnp.float32(1), jax.tree.map(jnp.asarray, rows))
    ours = transforms.lax.scan(body, names.asarray(1.0), transforms.device_put(rows))
    for wanted, found in zip(jax.tree.leaves(theirs), trees.leaves(ours), strict=True):
        np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=1e-6)
    counted = [
        loop.fori_loop(0, 5, lambda i, x: x * i + 1, one, unroll=2)
        for loop, one in ((lax, jnp.float32(1)), (transforms.lax, names.asarray(1.0)))
    ]
    assert float(counted[0]) == float(counted[1]) == 65
    batched = transforms.vmap(lambda x, y: {"sum": x + y}, (0, None))(names.asarray(REAL), 2.0)
    np.testing.assert_allclose(np.asarray(batched["sum"]), REAL + 2)
    best, places = transforms.lax.top_k(names.asarray([1.0, 3.0, 3.0, 2.0]), 2)
    wanted, at = lax.top_k(jnp.asarray([1.0, 3.0, 3.0, 2.0]), 2)
    np.testing.assert_array_equal(np.asarray(best), np.asarray(wanted))
    np.testing.assert_array_equal(np.asarray(places), np.asarray(at))


@pytest.mark.parametrize("function", ["log_softmax", "softplus", "relu"])
def test_functions_of_networks_are_those_of_jax(function):
    scores = np.array([[-200.0, 0.0, 3.0], [1e-8, 80.0, 100.0]], np.float32)

    wanted = getattr(jax.nn, function)(jnp.asarray(scores))

    found = getattr(transforms.nn, function)(names.asarray(scores))
    np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: transforms.grad,
        lambda: names.bfloat16,
        lambda: transforms.lax.conv,
        lambda: names.zeros(2).at[3].get(mode="wrap"),
        lambda: names.zeros(2).at[-1].set(1, wrap_negative_indices=False),
    ],
)
def test_what_is_not_there_is_refused_with_a_remedy(ask):
    with pytest.raises(NotHereError, match="install JAX beside it"):
        ask()
