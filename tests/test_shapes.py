"""The shapes that annotations promise are checked: an array of another shape or type is refused."""

import os

import jax
import jax.numpy as jnp
import pytest
from jaxtyping import TypeCheckError

from folkman.problem.projection import l2_ball
from folkman.radio import bandwidth, channel, latency, schedule

pytestmark = pytest.mark.skipif(
    os.environ.get("FOLKMAN_SHAPES") == "0", reason="FOLKMAN_SHAPES=0 leaves shapes unchecked"
)
SINR = jnp.ones((3, 3))
ON = jnp.ones(3, bool)


def test_the_promised_shapes_pass_under_jit_and_vmap():
    sinr = jnp.ones((4, 3, 3))
    linked = jax.vmap(lambda one: schedule.links(one, 0.5))(sinr)
    rates = jax.jit(schedule.se_min)(sinr, linked)

    assert rates.shape == (4, 3)
    assert jax.vmap(lambda r, on: bandwidth.optimal(r, on, 1e6))(
        rates, schedule.scheduled(linked)
    ).shape == (4, 3)


@pytest.mark.parametrize(
    "call",
    [
        lambda: schedule.se_min(SINR, jnp.ones((3, 2), bool)),  # other nodes
        lambda: schedule.se_min(SINR, SINR),  # numbers for truths
        lambda: bandwidth.optimal(jnp.ones(3), jnp.ones(4, bool), 1e6),
        lambda: bandwidth.optimal(jnp.ones(3, int), ON, 1e6),  # whole numbers for rates
        lambda: channel.link_gain(jnp.ones((3, 2)), jnp.ones((3, 3))),  # positions have two numbers
        lambda: latency.aggregated_slots(jnp.ones(3), jnp.ones((3, 3), bool)),
        lambda: l2_ball(1.0)(jnp.ones((2, 2)), jnp.ones(())),  # a model is a flat vector
    ],
)
def test_another_shape_or_type_is_refused(call):
    with pytest.raises(TypeCheckError):
        call()
