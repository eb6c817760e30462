"""Draws without JAX are those of `jax.random`, bit for bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkman.light import threefry
from folkman.light.array import NotHereError

NUMBERS = st.integers(0, 2**32 - 1)


def both(seed, *folds):
    """Return the same key of JAX and of ours."""
    theirs, ours = jax.random.key(jnp.asarray(seed, jnp.uint32)), threefry.key(seed)
    for fold in folds:
        theirs = jax.random.fold_in(theirs, np.uint32(fold))
        ours = threefry.fold_in(ours, fold)
    return theirs, ours


def alike(theirs, ours):
    found = np.asarray(ours)
    assert found.dtype == np.asarray(theirs).dtype
    np.testing.assert_array_equal(np.asarray(theirs), found)


@settings(max_examples=30, deadline=None)
@given(NUMBERS, NUMBERS, NUMBERS)
def test_keys_fold_and_split_as_theirs(seed, first, second):
    theirs, ours = both(seed, first, second)

    alike(jax.random.key_data(theirs), threefry.key_data(ours))
    alike(
        jax.random.key_data(jax.random.split(theirs, 3)), threefry.key_data(threefry.split(ours, 3))
    )


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5)])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32"])
def test_bits_are_theirs(shape, dtype):
    theirs, ours = both(11, 3)

    alike(jax.random.bits(theirs, shape, dtype), threefry.bits(ours, shape, dtype))


@settings(max_examples=30, deadline=None)
@given(NUMBERS, st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1))
def test_whole_numbers_are_theirs_whatever_the_range(seed, low, high):
    theirs, ours = both(seed)

    found = threefry.randint(ours, (9,), low, high)

    alike(jax.random.randint(theirs, (9,), low, high, jnp.int32), found)


@pytest.mark.parametrize("count", [1, 2, 90, 1437, 65_536, 65_537, 2**31 - 1])
def test_mini_batches_are_theirs_whatever_the_number_of_samples(count):
    theirs, ours = both(5, 8, 13)

    alike(
        jax.random.randint(theirs, (40,), 0, jnp.asarray(count, jnp.int32), jnp.int32),
        threefry.randint(ours, (40,), 0, np.int32(count)),
    )


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-1.0, 1.0), (2.5, 7.0)])
def test_uniform_numbers_are_theirs(low, high):
    theirs, ours = both(17, 1)

    wanted = np.asarray(jax.random.uniform(theirs, (1000,), jnp.float32, low, high))
    found = np.asarray(threefry.uniform(ours, (1000,), np.float32, low, high))

    if (low, high) == (0.0, 1.0):
        np.testing.assert_array_equal(wanted, found)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2**-23 * max(abs(low), abs(high)))


def test_normal_numbers_are_theirs_to_the_last_bits():
    theirs, ours = both(23, 4)

    wanted = np.asarray(jax.random.normal(theirs, (20_000,), jnp.float32))
    found = np.asarray(threefry.normal(ours, (20_000,), np.float32))

    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-7)


@settings(max_examples=30, deadline=None)
@given(NUMBERS)
def test_a_drawn_number_is_theirs(seed):
    theirs, ours = both(seed)
    logits = np.where([True, False, True, True, True], np.float32(0), -np.inf).astype(np.float32)

    alike(jax.random.categorical(theirs, logits), threefry.categorical(ours, logits))


@pytest.mark.parametrize("size", [0, 1, 2, 50, 3000])
def test_an_order_is_theirs(size):
    theirs, ours = both(29, size)

    alike(jax.random.permutation(theirs, size), threefry.permutation(ours, size))
    values = np.arange(size, dtype=np.float32) ** 2
    alike(jax.random.permutation(theirs, values), threefry.permutation(ours, values))


def test_many_numbers_fold_into_a_key_at_once_and_one_by_one_alike():
    _, ours = both(3)

    together = threefry.key_data(threefry.fold_in(ours, np.arange(5)))

    alone = [threefry.key_data(threefry.fold_in(ours, number)) for number in range(5)]
    np.testing.assert_array_equal(np.asarray(together), np.stack(alone))


def test_a_law_that_is_not_there_is_refused_with_a_remedy():
    with pytest.raises(NotHereError, match=r"jax\.random\.gamma .* install JAX"):
        _ = threefry.gamma
