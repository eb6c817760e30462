"""Payloads that travel on: the store, the engines and a replay on random serial transfers."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import serial_air
from engine.serial_air import TableAir
from folkman import (
    Compressed,
    Recording,
    async_sharing,
    load,
    make_problem,
    replay,
    simulate,
    split,
    swift,
)
from folkman import reference as run_reference
from folkman.engine import circulation, snapshots
from folkman.engine.carried_sums import CarriedSums
from folkman.engine.simulate import Simulation, march, outcome
from folkman.engine.simulate import start as begin
from folkman.faults import NO_FAULTS, Faults
from folkman.packing import fixed, qsgd
from folkman.radio.transfers import adoptions
from reference import plain

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
        assert store.circulation is not None
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
    repeated = replay(run.timeline, message=message)
    again = simulate(problem, repeated, method, slots=slots)
    unsaid = simulate(problem, replay(run.timeline), method, slots=slots)
    slow = run_reference(problem, run.timeline, method)

    np.testing.assert_array_equal(run.timeline.held, history.held[:-1])
    assert repeated.peers().forwards == (message != "copy")
    np.testing.assert_allclose(unsaid.nodes, run.nodes, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(again.nodes, run.nodes, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(slow.nodes, run.nodes, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("longest", [0.5, 3.0], ids=["many in a slot", "slots long"])
def test_sums_that_travel_themselves_end_with_the_same_parameters(quadratics, longest):
    problem, slots, method = small(quadratics), 60, async_sharing(0.05)
    rng = np.random.default_rng(11)
    history = serial_air.draw(rng, 4, slots, longest=longest, eager=0.3, stale=0.3)

    run = simulate(problem, TableAir.of(history), method, slots=slots)
    sums = run_reference(problem, history.timeline, method, carry="sums")

    np.testing.assert_allclose(sums.nodes, run.nodes, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("longest", [0.5, 3.0], ids=["many in a slot", "slots long"])
def test_the_messages_as_they_were_drawn_carry_the_same_sums(quadratics, longest):
    """Plain NumPy on the drawn messages, not on those found again in the stamps."""
    problem, slots = small(quadratics), 60
    rng = np.random.default_rng(5)
    history = serial_air.draw(rng, 4, slots, longest=longest, eager=0.3, stale=0.3)
    gradients = [
        partial(plain.quadratic_gradient, x=np.asarray(problem.x[i]), y=np.asarray(problem.y[i]))
        for i in range(4)
    ]

    run = simulate(problem, TableAir.of(history), async_sharing(0.05), slots=slots)
    alpha, first = np.asarray(problem.share), np.asarray(problem.initial)
    path = plain.carry_sums(gradients, first, alpha, history.messages, 0.05, slots)

    assert sum(len(m.adopters) for m in history.messages) > 40
    np.testing.assert_allclose(run.nodes, path[-1], rtol=1e-12, atol=1e-12)


def test_contributions_on_a_grid_are_summed_as_whole_numbers(x64):
    """Unequal shares: simulator on rounded copies, reference on sums of whole numbers."""
    samples = load("digits", train_size=200)
    parts = split("dirichlet", samples.y_train, 4, concentration=1.0, seed=3)
    problem = make_problem(samples, "softmax", parts, dtype="float64")
    history = serial_air.draw(np.random.default_rng(2), 4, 25)
    method, packing = async_sharing(0.5), fixed(10, largest=2.0)

    coarse = simulate(problem, Compressed(TableAir.of(history), packing), method, slots=25)
    sums = run_reference(problem, history.timeline, method, packing=packing, carry="sums")
    fine = simulate(problem, TableAir.of(history), method, slots=25)

    np.testing.assert_allclose(sums.nodes, coarse.nodes, rtol=1e-10, atol=1e-12)
    apart = np.abs(fine.nodes - coarse.nodes).max()
    assert 1e-6 < apart < 1e-2  # it rounds, to steps of 2^-8


def test_a_stamp_older_than_the_window_is_found_in_a_wider_one(quadratics):
    """Node 3 receives nothing, so the others adopt its stamps of long ago again and again."""
    problem, slots, method = small(quadratics), 150, async_sharing(0.02)
    history = serial_air.draw(np.random.default_rng(3), 4, slots, eager=0.5, quiet=(3,))
    expected = simulate(problem, TableAir.of(history), method, slots=slots)
    simulation = Simulation(problem, TableAir.of(history), method)
    mark = begin(simulation, 0)
    narrow = snapshots.look_further(mark.carry.medium.snapshots, 8)
    medium = mark.carry.medium._replace(snapshots=narrow)
    mark = mark._replace(carry=mark.carry._replace(medium=medium))

    *_, (mark, _) = march(simulation, mark, slots)

    assert mark.carry.medium.snapshots.circulation.place.shape[1] > 8
    np.testing.assert_array_equal(outcome(simulation, mark)[1], expected.nodes)


def test_a_network_that_does_not_say_what_it_carries_is_refused(quadratics):
    problem = small(quadratics)
    history = serial_air.draw(np.random.default_rng(3), 4, 40)
    silent = history._replace(carried=np.full_like(history.carried, -1))

    with pytest.raises(RuntimeError, match="`carried` must name every stamp on the air"):
        simulate(problem, TableAir.of(silent), async_sharing(0.1), slots=40)


@pytest.mark.parametrize(
    ("method", "faults", "complaint"),
    [
        (async_sharing(0.1, rule="median"), NO_FAULTS, "use message = 'forward' or 'copy'"),
        (async_sharing(0.1, max_age=5), NO_FAULTS, "use message = 'forward' or 'copy'"),
        (swift(0.1), NO_FAULTS, "use message = 'forward' or 'copy'"),
        (async_sharing(0.1), Faults(crash=((1, 3, 5),)), "own past parameters"),
        (async_sharing(0.1), Faults(away=((1, 3, 5),)), "it has no `attend`"),
    ],
    ids=["median", "max_age", "swift", "restart", "away"],
)
def test_what_cannot_travel_as_a_sum_is_refused(quadratics, method, faults, complaint):
    history = serial_air.draw(np.random.default_rng(3), 4, 5)
    with pytest.raises(ValueError, match=complaint):
        simulate(small(quadratics), TableAir.of(history), method, slots=5, faults=faults)


def test_packings_that_scale_each_message_by_itself_are_refused_for_sums(quadratics):
    history = serial_air.draw(np.random.default_rng(3), 4, 5)
    network = Compressed(TableAir.of(history), qsgd(4))
    with pytest.raises(ValueError, match="'qsgd' scales each message by itself"):
        simulate(small(quadratics), network, async_sharing(0.1), slots=5)


@pytest.mark.parametrize(
    ("message", "bits_per_parameter", "each"),
    [
        ("copy", 16, 16 * 3),
        ("forward", 16, 16 * 3 + 32 + 2),  # a stamp, and one of four origins
        ("sum", 16, (16 + 2) * 3 + 4 * 32),  # a grid of 16 bits, four contributions, four stamps
        ("sum", 32, 32 * 3 + 4 * 32),
        ("sum", None, 64 * 3 + 4 * 32),
    ],
)
def test_stamps_and_longer_sums_are_priced(quadratics, message, bits_per_parameter, each):
    history = serial_air.draw(np.random.default_rng(3), 4, 30, message=message)
    network = TableAir.of(history, message, bits_per_parameter=bits_per_parameter)

    run = simulate(small(quadratics), network, async_sharing(0.1), slots=30)

    assert run.last("bits") == each * history.sends.sum()


def test_a_node_that_has_lost_its_own_past_cannot_adopt():
    history = serial_air.draw(np.random.default_rng(4), 4, 40)
    first = np.ones((4, 2))

    def follow_with(room):
        sums = CarriedSums(adoptions(history.timeline), first, room=room)
        for t in range(40):
            for node in np.flatnonzero(history.sends[t]):
                sums.freeze(int(node), t + 1, first[node])
            sums.end_slot(t)
        return sums

    assert follow_with(None).most_kept <= 5  # I + 1
    np.testing.assert_allclose(follow_with(5).others, 3.0)  # all contributions are 1
    with pytest.raises(ValueError, match=r"no longer keeps; keep more than 1 of them"):
        follow_with(1)


def test_sums_of_some_bits_are_right_while_only_single_nodes_leave_their_range(quadratics):
    """Nodes' data differ, so that each w_j drifts away, and their sum does not."""
    problem, slots, method = small(quadratics), 120, async_sharing(0.1)
    history = serial_air.draw(np.random.default_rng(2), 4, slots)
    packing = fixed(16, largest=3.0)

    exact = simulate(problem, TableAir.of(history), method, slots=slots)
    coarse = simulate(problem, Compressed(TableAir.of(history), packing), method, slots=slots)

    assert np.abs(exact.nodes).max() > 6.0  # twice what a sum can be
    assert np.abs(exact.model).max() < 3.0
    assert 0 < np.abs(coarse.nodes - exact.nodes).max() < 1e-2


def test_a_sum_beyond_its_range_comes_out_on_the_other_side(quadratics):
    """Simulator and whole numbers agree there too: what is priced is what is sent."""
    problem, slots, method = small(quadratics), 30, async_sharing(0.2)
    history = serial_air.draw(np.random.default_rng(2), 4, slots)
    packing = fixed(12, largest=0.25)

    fine = simulate(problem, TableAir.of(history), method, slots=slots)
    run = simulate(problem, Compressed(TableAir.of(history), packing), method, slots=slots)
    sums = run_reference(problem, history.timeline, method, packing=packing, carry="sums")

    assert np.abs(run.nodes - fine.nodes).max() > 0.1
    np.testing.assert_allclose(sums.nodes, run.nodes, rtol=1e-9, atol=1e-9)
