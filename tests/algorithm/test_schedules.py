"""Schedules of the step are those of optax, bit for bit: they were optax's before."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from folkman.algorithm.pieces.steps import Decay, step_size

COUNTS = jnp.arange(0, 90, dtype=jnp.int32)
THEIRS = {
    "cosine": optax.cosine_decay_schedule,
    "exponential": lambda step, count: optax.exponential_decay(step, count, 0.36787944117144233),
}


@pytest.mark.parametrize("decay", THEIRS)
@pytest.mark.parametrize(("step", "decay_steps"), [(0.37, 37), (1.7, 1000), (0.1, 1)])
def test_a_decay_is_that_of_optax(decay, step, decay_steps):
    own = step_size(step, Decay(decay, decay_steps))
    theirs = THEIRS[decay](step, decay_steps)

    found = jax.jit(jax.vmap(lambda count: own(count, jnp.float32)))(COUNTS)

    wanted = jax.jit(jax.vmap(theirs))(COUNTS.astype(jnp.float32))
    np.testing.assert_array_equal(np.asarray(found), np.asarray(wanted))
