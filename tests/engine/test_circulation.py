"""Payloads that travel on: the store, the engines and a replay on random serial transfers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import serial_air
from engine.serial_air import TableAir
from folkman import Recording, async_sharing, replay, simulate
from folkman import reference as run_reference
from folkman.engine import circulation, snapshots

put_any = jax.jit(snapshots.put_any)


def follow(history, messages, window=circulation.WINDOW, versions=None):
    """Put a history into a store, slot by slot; yield the store at the start of each slot."""
    slots, nodes = history.sends.shape
    store = snapshots.start(jnp.asarray(messages[0]), versions or 2 * nodes + 1, forwards=True)
    store = snapshots.look_further(store, window)
    for t in range(slots):
        yield t, store
        given = (messages[t + 1], np.int32(t + 1), history.sends[t])
        store = put_any(store, *given, history.held[t + 1], history.carried[t])
    yield slots, store


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["sum", "forward", "copy"]),
    st.sampled_from([0.0, 0.7]),
)
def test_every_node_holds_what_the_history_says(seed, message, eager):
    rng, nodes, slots = np.random.default_rng(seed), 4, 20
    history = serial_air.draw(rng, nodes, slots, message=message, eager=eager)
    messages = np.arange((slots + 1) * nodes, dtype=np.float32).reshape(slots + 1, nodes, 1)

    for t, store in follow(history, messages):
        assert not store.missing
        assert not store.circulation.unfound
        found = np.asarray(store.payload)[np.asarray(store.row), 0]
        expected = messages[history.held[t], np.arange(nodes)[None], 0]
        others = ~np.eye(nodes, dtype=bool)
        np.testing.assert_array_equal(found[others], expected[others])


def small(quadratics, **options):
    return quadratics(nodes=4, dim=3, heterogeneity=1.0, seed=2, **options)


@pytest.mark.parametrize("message", ["sum", "forward", "copy"])
def test_simulator_replay_and_reference_agree_on_a_live_air(quadratics, message):
    problem, slots = small(quadratics), 40
    history = serial_air.draw(np.random.default_rng(7), 4, slots, message=message, eager=0.3)
    method, network = async_sharing(0.05), TableAir.of(history, message)
    recording = Recording(10, timeline=True)

    run = simulate(problem, network, method, slots=slots, recording=recording)
    again = simulate(problem, replay(run.timeline), method, slots=slots)
    slow = run_reference(problem, run.timeline, method)

    np.testing.assert_array_equal(run.timeline.held, history.held[:-1])
    assert replay(run.timeline).peers().forwards == (message == "sum")
    np.testing.assert_allclose(again.nodes, run.nodes, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(slow.nodes, run.nodes, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("longest", [0.5, 3.0], ids=["many in a slot", "slots long"])
def test_sums_that_travel_themselves_end_with_the_same_parameters(quadratics, longest):
    problem, slots, method = small(quadratics), 60, async_sharing(0.05)
    rng = np.random.default_rng(11)
    history = serial_air.draw(rng, 4, slots, longest=longest, eager=0.3)

    run = simulate(problem, TableAir.of(history), method, slots=slots)
    sums = run_reference(problem, history.timeline, method, carry="sums")

    np.testing.assert_allclose(sums.nodes, run.nodes, rtol=1e-12, atol=1e-12)
