"""Compute times that are drawn: by their law, one draw per gradient, the same in every engine."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folkman import (
    Clock,
    ComputeTimes,
    Recording,
    async_sharing,
    constant,
    fedap,
    iid,
    load,
    make_problem,
    reference,
    simulate,
)
from folkman.config.choices import ConfigError
from folkman.config.comparison import resolve, to_toml
from folkman.config.text import override
from folkman.engine.compute_times import slots_of_gradients
from folkman.experiment.parts import parts
from folkman.keys import Stream, make_key, node_key


@pytest.mark.parametrize(
    ("law", "variance"),
    [("geometric", 3.0 * 2.0), ("uniform", (5**2 - 1) / 12)],  # of mean 3
)
def test_times_follow_their_law(law, variance):
    draws = 4000
    nodes, steps = jnp.zeros(draws, jnp.int32), jnp.arange(draws, dtype=jnp.int32)
    compute = ComputeTimes(3.0, law).per_node(draws)

    slots = np.asarray(slots_of_gradients(compute, 0, nodes, steps))

    assert slots.min() == 1
    assert slots.mean() == pytest.approx(3.0, abs=4 * np.sqrt(variance / draws))
    assert slots.var() == pytest.approx(variance, rel=0.15)
    assert slots.max() == 5 or law == "geometric"


def test_a_mean_of_one_slot_is_one_slot_always():
    steps = jnp.arange(200, dtype=jnp.int32)
    for law in ("geometric", "uniform"):
        compute = ComputeTimes(1, law).per_node(200)
        assert (np.asarray(slots_of_gradients(compute, 0, steps * 0, steps)) == 1).all()


def test_each_gradient_ends_when_its_own_draw_says_in_simulator_and_reference(x64):
    """The draws told again in NumPy, one after the other; a node begins anew at once."""
    problem = make_problem(load("digits", train_size=30), "softmax", 3, dtype="float64")
    means, slots, seed = (1.0, 3.0, 5.5), 40, 2
    clock, algorithm = Clock(1.0, ComputeTimes(means)), async_sharing(0.2)
    recording = Recording(slots, timeline=True)

    run = simulate(
        problem, constant(2), algorithm, slots=slots, seed=seed, clock=clock, recording=recording
    )

    for node, mean in enumerate(means):
        keys = [node_key(make_key(seed, Stream.COMPUTE), node, step) for step in range(slots)]
        u = np.array([float(jax.random.uniform(key, (), jnp.float32)) for key in keys])
        with np.errstate(divide="ignore"):
            took = 1 + np.floor(np.log1p(-u) / np.log1p(-1 / mean)).astype(int)
        ends = np.cumsum(took) - 1
        np.testing.assert_array_equal(
            np.flatnonzero(run.timeline.finished[:, node]), ends[ends < slots]
        )
    slow = reference(problem, run.timeline, algorithm, seed=seed)
    np.testing.assert_allclose(run.nodes, slow.nodes, rtol=1e-9, atol=1e-12)


def test_a_gradient_of_an_old_model_is_given_up_in_simulator_and_reference(x64):
    """FedAP closes a round with the fastest two; the new model finds the third node at work.

    The run ends with the gradient that was begun anew: the next model would wipe it out.
    """
    problem = make_problem(load("digits", train_size=30), "softmax", 3, dtype="float64")
    clock, algorithm, slots = Clock(1.0, ComputeTimes((1.0, 1.0, 2.0))), fedap(0.2, m=2), 26

    run = simulate(
        problem,
        iid(4),
        algorithm,
        slots=slots,
        seed=1,
        clock=clock,
        recording=Recording(slots, timeline=True),
    )

    ended, arrived = (
        np.flatnonzero(told[:, 2]) for told in (run.timeline.finished, run.timeline.down_arrived)
    )
    assert ended[-1] == slots - 1
    assert ((ended[-2] < arrived) & (arrived < ended[-1])).sum() > 1  # all but one began in vain
    slow = reference(problem, run.timeline, algorithm, seed=1)
    np.testing.assert_allclose(run.nodes, slow.nodes, rtol=1e-9, atol=1e-12)


def test_a_configuration_has_them_as_a_table():
    raw = {"nodes": 3, "slots": 5, "data": {"name": "digits", "train_size": 30}}
    table = resolve(override(raw, ['compute_slots={mean = 2.5, law = "uniform"}']))

    part = next(iter(parts(table)))

    assert part.simulation.clock.compute_slots == ComputeTimes(2.5, "uniform")
    assert "[compute_slots]\nmean = 2.5" in to_toml(table)
    with pytest.raises(ConfigError, match="compute_slots must be one number or 3"):
        resolve({**raw, "compute_slots": {"mean": [1.0, 2.0]}})
    with pytest.raises(ConfigError, match=r"compute_slots must be at least 1, got 0\.5"):
        resolve({**raw, "compute_slots": {"mean": 0.5}})


@pytest.mark.parametrize(
    ("times", "complaint"),
    [
        (ComputeTimes((1.0, 2.0)), "one for each of the 3 nodes"),
        (ComputeTimes(0.5), "at least 1"),
        (ComputeTimes(2.3, "uniform"), "halves of a slot"),
        (ComputeTimes(2.0, "normal"), "law must be one of geometric, uniform"),  # pyright: ignore[reportArgumentType]
    ],
    ids=lambda value: "" if isinstance(value, str) else str(value.mean),
)
def test_what_cannot_be_drawn_is_refused(times, complaint):
    with pytest.raises(ValueError, match=complaint):
        Clock(1.0, times).per_node(3)
