"""A fourth way to travel: nodes in cells around stations, stations around a root."""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folkman import (
    Inbox,
    Recording,
    Server,
    constant,
    fedavg,
    ideal,
    iid,
    load,
    make_problem,
    pipelined,
    reference,
    simulate,
    snapshot,
)
from folkman.algorithm.hierfavg import hierfavg
from folkman.engine.simulate import Clock, Simulation, march, start
from folkman.engine.travel.hierarchy import HierarchyReplay, HierarchyTimeline
from folkman.faults import Faults
from folkman.problem import data
from folkman.radio import trace
from folkman.radio.loss import Lossy
from folkman.radio.network import RadioNetwork
from folkman.radio.replay import replay
from folkman.radio.trace import record_timeline
from reference import plain, wire

NODES = 5


@pytest.fixture
def problem(x64):
    return make_problem(load("digits", train_size=100), "softmax", NODES, dtype="float64")


def test_with_a_global_round_every_time_it_is_fedavg(problem):
    flat = simulate(problem, constant(3), fedavg(0.2, local_steps=2), slots=40)
    cells = simulate(
        problem, constant(3), hierfavg(0.2, cells=2, global_every=1, local_steps=2), slots=40
    )

    np.testing.assert_allclose(cells.nodes, flat.nodes, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(cells.model, flat.model, rtol=1e-10, atol=1e-13)
    assert cells.last("rounds") == flat.last("rounds")


def test_with_a_global_round_every_time_it_is_fedavg_where_transfers_follow_each_other_too(problem):
    """Its station, too, carries nothing for a node that is away, with and without losses."""
    one_by_one = RadioNetwork(schedule="index", slot_s=0.002)
    away = Faults(away=((1, 5, 18),))

    def played(network, algorithm):
        return simulate(
            problem,
            network,
            algorithm,
            slots=30,
            seed=1,
            clock=Clock(0.002),
            faults=away,
            recording=Recording(30, timeline=True),
        )

    flat = played(one_by_one, fedavg(0.2)).timeline
    cells = played(one_by_one, hierfavg(0.2, cells=2, global_every=1)).timeline
    lossless = played(Lossy(one_by_one, 0.0), fedavg(0.2)).timeline

    for name in flat._fields:
        np.testing.assert_array_equal(getattr(cells, name), getattr(flat, name), err_msg=name)
        np.testing.assert_array_equal(getattr(lossless, name), getattr(flat, name), err_msg=name)
    there = np.delete(np.arange(30), np.s_[6:18])
    assert not flat.down_started[6:18, 1].any()
    assert flat.down_arrived[there, 1].any()


def test_between_global_rounds_each_cell_is_a_fedavg_of_its_own(problem):
    """Until the first global round cell 0 sees nothing of cell 1."""
    run = simulate(problem, ideal(), hierfavg(0.2, cells=2, global_every=100), slots=10)

    for cell in range(2):
        members = [i for i in range(NODES) if i % 2 == cell]
        w = np.asarray(problem.initial)
        share = np.asarray(problem.share)[members]
        share = share / share.sum()
        for _ in range(10):
            point = jnp.broadcast_to(jnp.asarray(w), (NODES, len(w)))
            _, grads = problem.gradients(point, jax.random.split(jax.random.key(0), NODES))
            w = w - 0.2 * share @ np.asarray(grads)[members]
        last = run.nodes[members]
        after = last[0] if np.allclose(last[0], last[-1]) else share @ last
        np.testing.assert_allclose(after, w, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("network", [constant(2), iid(3)], ids=["constant", "varied"])
@pytest.mark.parametrize("backhaul_slots", [0, 4])
def test_simulator_reference_replay_and_byte_level_nodes_agree(problem, network, backhaul_slots):
    algorithm = hierfavg(0.2, cells=2, global_every=2, local_steps=2, backhaul_slots=backhaul_slots)

    run = simulate(problem, network, algorithm, slots=40, recording=Recording(40, timeline=True))

    assert run.last("rounds") > 0
    assert isinstance(run.timeline, HierarchyTimeline)
    slow = reference(problem, run.timeline, algorithm)
    np.testing.assert_allclose(run.nodes, slow.nodes, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(run.model, slow.model, rtol=1e-9, atol=1e-12)
    again = simulate(problem, HierarchyReplay(run.timeline), algorithm, slots=40)
    np.testing.assert_allclose(run.nodes, again.nodes, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(run.nodes, wire.play(problem, run.timeline, algorithm)[0], rtol=1e-6)


def test_a_slow_backhaul_delays_the_global_rounds_alone(problem):
    near, far = (
        simulate(problem, ideal(), hierfavg(0.2, global_every=3, backhaul_slots=slots), slots=60)
        for slots in (0, 10)
    )

    assert near.last("rounds") == 20
    assert far.last("rounds") == (60 + 10) // 23  # three rounds of a slot, ten up, ten down


def test_bits_are_those_of_both_levels(problem):
    run = simulate(
        problem,
        ideal(),
        hierfavg(0.2, cells=2, global_every=2),
        slots=8,
        recording=Recording(8, timeline=True),
    )
    size = 8 * problem.initial.itemsize * problem.dim
    up, cells = NODES * 8, 2 * 8  # every node uploads, every station answers, in every slot
    root = 4 * (2 + 1)  # every second slot two stations ask, and the root broadcasts

    assert run.last("bits") == size * (up + cells + root)
    assert run.last("bits_unicast") == size * (up + up + 4 * (2 + 2))


@pytest.mark.parametrize(
    ("cells", "every", "local_steps"), [(1, 1, 1), (2, 3, 1), (3, 2, 2), (5, 4, 3)]
)
def test_it_is_its_equations(uneven, cells, every, local_steps):
    """Where messages take no time a round is E slots, and every station answers at its end."""
    rounds = 7
    algorithm = hierfavg(0.1, cells, every, local_steps)
    parts = zip(np.asarray(uneven.x), np.asarray(uneven.y), np.asarray(uneven.count), strict=True)

    run = simulate(uneven, ideal(), algorithm, slots=rounds * local_steps)

    share = np.asarray(uneven.share)
    models, done = plain.average_in_cells(
        [partial(plain.quadratic_gradient, x=x[:n], y=y[:n]) for x, y, n in parts],
        np.asarray(uneven.initial),
        share,
        cells,
        0.1,
        local_steps=local_steps,
        every=every,
        rounds=rounds,
    )
    assert run.last("rounds") == done
    by_cell = [share[np.arange(NODES) % cells == c].sum() for c in range(cells)]
    np.testing.assert_allclose(run.model, by_cell @ models, rtol=1e-10, atol=1e-13)


@pytest.fixture
def uneven(quadratics):
    """Five nodes with 1 to 5 samples."""
    samples = data.quadratic(nodes=NODES, dim=4, samples_per_node=5, noise=0.5, heterogeneity=1.0)
    assert samples.group is not None
    parts = [np.flatnonzero(samples.group == i)[: i + 1] for i in range(NODES)]
    return make_problem(samples, "quadratic", parts, dtype="float64")


def upload_box(models, heard, weight, finite=None):
    nodes = len(models)
    return Inbox(
        store=jnp.asarray(models),
        row=jnp.arange(nodes),
        weight=jnp.asarray(weight),
        own_weight=jnp.zeros(()),
        heard=jnp.asarray(heard, bool),
        age=jnp.zeros(nodes, jnp.int32),
        finite=jnp.ones(nodes, bool) if finite is None else jnp.asarray(finite, bool),
    )


def test_a_station_waits_for_its_own_nodes_and_drops_what_is_not_finite(x64):
    way: Any = hierfavg(cells=2, global_every=2).travel
    models = np.array([[1.0], [50.0], [4.0], [60.0], [0.0]])
    weight = [0.1, 0.0, 0.3, 0.0, 0.2]  # of cell 0: nodes 0, 2 and 4
    state, key = way.station.init(jnp.zeros(1), 5), jax.random.key(0)

    def hear(state, heard):
        return way.station.receive(state, upload_box(models, heard, weight, [1, 1, 1, 1, 0]), key)

    state = hear(state, [1, 1, 0, 1, 0])
    assert not way.station.offers(state).any()
    state = hear(state, [0, 0, 0, 0, 1])
    assert (state.params, state.rounds) == (0.0, 0)
    state = hear(state, [0, 0, 1, 0, 0])
    np.testing.assert_allclose(state.params, (0.1 * 1 + 0.3 * 4) / 0.4)
    assert way.station.offers(state).all()
    assert not way.asks(state)  # the first of two rounds
    state = hear(state, [0, 0, 0, 0, 0])
    assert not way.station.offers(state).any()  # an answer is offered once
    state = hear(state, [1, 0, 1, 0, 1])
    assert not way.station.offers(state).any()  # the second is the root's
    assert way.asks(hear(state, [0] * 5))  # until it is answered
    state = way.hears(state, jnp.full(1, 9.0))
    assert way.station.offers(state).all()
    assert not way.asks(state)
    assert state.params == way.asked(state) == way.station.message(state) == 9.0
    assert way.station.rounds(state) == 2


def test_the_root_waits_for_all_stations_and_weighs_them_by_their_cells(x64):
    way: Any = hierfavg(cells=3).travel
    root, key = way.root, jax.random.key(0)
    box = partial(upload_box, np.array([[1.0], [2.0], [5.0]]), weight=[0.5, 0.2, 0.3])

    state = root.receive(root.init(jnp.zeros(1), 3), box(heard=[1, 0, 1]), key)
    assert not root.offers(state).any()
    assert (root.params(state), root.rounds(state)) == (0.0, 0)
    state = root.receive(state, box(heard=[0, 1, 0]), key)
    assert root.offers(state).all()
    np.testing.assert_allclose(root.message(state), 0.5 * 1 + 0.2 * 2 + 0.3 * 5)
    assert root.rounds(state) == 1
    state = root.receive(state, box(heard=[0, 0, 0]), key)
    assert not root.offers(state).any()
    assert root.rounds(state) == 1


class Tossing(NamedTuple):
    params: jax.Array
    arrived: jax.Array
    rounds: jax.Array
    asks: jax.Array


def tossing(cells):
    """Return a method whose stations and root move by draws and by all that they are told."""

    def init(params, number):
        no = jnp.asarray(False)
        return Tossing(params, jnp.zeros(number, bool), jnp.zeros((), jnp.int32), no)

    def receive(state, inbox, key):
        told = jnp.dot(inbox.heard.astype(inbox.weight.dtype), 2.0 ** jnp.arange(len(inbox.heard)))
        drawn = jax.random.uniform(key, (), inbox.weight.dtype)
        mixed = inbox.mix(jnp.where(inbox.heard, inbox.weight, 0.0)) + 0.1 * drawn + 0.01 * told
        some = jnp.any(inbox.heard)
        params = jnp.where(some, 0.5 * state.params + 0.5 * mixed, state.params)
        return Tossing(params, inbox.heard, state.rounds + some, some & (state.rounds % 2 == 1))

    server = Server(
        init=init,
        receive=receive,
        offers=lambda state: state.arrived,
        message=lambda state: state.params,
        params=lambda state: state.params,
        rounds=lambda state: state.rounds,
    )
    built = hierfavg(0.1, cells)

    def receive_at_node(state, inbox):
        moved = built.receive(state, inbox)
        return moved._replace(params=moved.params + 0.001 * jnp.where(inbox.heard, inbox.age, 0)[0])

    way: Any = built.travel
    travel = replace(
        way,
        station=server,
        root=server,
        asks=lambda state: state.asks,
        asked=lambda state: 2 * state.params,
        hears=lambda state, model: state._replace(params=state.params + model),
    )
    return replace(built, receive=receive_at_node, travel=travel)


@pytest.mark.parametrize("cells", [1, 3])
@pytest.mark.parametrize("network", [constant(2), iid(4)], ids=["constant", "varied"])
def test_draws_and_all_that_servers_are_told_are_the_same_everywhere(uneven, network, cells):
    algorithm = tossing(cells)

    run = simulate(
        uneven, network, algorithm, slots=24, seed=5, recording=Recording(24, timeline=True)
    )

    assert run.timeline.root_down_arrived.any()
    slow = reference(uneven, run.timeline, algorithm, seed=5)
    np.testing.assert_allclose(run.nodes, slow.nodes, rtol=1e-9)
    np.testing.assert_allclose(run.model, slow.model, rtol=1e-9)
    nodes, model = wire.play(uneven, run.timeline, algorithm, seed=5)
    np.testing.assert_allclose(run.nodes, nodes, rtol=1e-6)
    assert model is not None
    np.testing.assert_allclose(run.model, model, rtol=1e-6)


def test_a_node_that_is_away_holds_up_its_cell_and_hears_its_answer_when_it_is_back(uneven):
    faults = Faults(away=((1, 5, 12),))
    algorithm = hierfavg(0.1, cells=2, global_every=3)

    run = simulate(
        uneven,
        constant(2),
        algorithm,
        slots=40,
        faults=faults,
        recording=Recording(40, timeline=True),
    )

    at = run.timeline
    slow = reference(uneven, at, algorithm, faults=faults)
    np.testing.assert_allclose(run.nodes, slow.nodes, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(run.model, slow.model, rtol=1e-9, atol=1e-12)
    assert not at.down_started[5:12, 1].any()
    assert not at.up_started[5:12, 1].any()
    assert at.down_arrived[12:, 1].any()
    assert run.last("rounds") > 1


@pytest.mark.parametrize("backhaul_slots", [0, 1, 5])
def test_the_link_to_the_root_takes_the_slots_that_it_says(uneven, backhaul_slots):
    algorithm = hierfavg(0.1, cells=2, global_every=1, backhaul_slots=backhaul_slots)

    run = simulate(uneven, ideal(), algorithm, slots=30, recording=Recording(30, timeline=True))

    at = run.timeline
    asked, told = (
        np.flatnonzero(table.all(axis=1)) for table in (at.root_up_started, at.root_down_arrived)
    )
    assert (told - asked[: len(told)] == 2 * backhaul_slots).all()  # there and back
    assert (np.diff(asked) == 2 * backhaul_slots + 1).all()
    for one, two in ((at.root_up_started, at.root_up_arrived), (at.up_started, at.up_arrived)):
        assert one.sum() >= two.sum() > 0
    assert at.shapes() == {name: table.shape for name, table in at._asdict().items()}


def test_ages_are_counted_from_when_a_station_formed_its_answer(uneven):
    algorithm, slots = hierfavg(0.1, cells=2, global_every=1, local_steps=2), 9
    simulation = Simulation(uneven, constant(4), algorithm)
    (mark, row) = list(march(simulation, start(simulation, 0), slots))[-1]

    view = simulation.medium.view(mark.carry.medium, slots)

    held = np.asarray(mark.carry.medium.held)
    assert view.servers == 1
    assert view.ages.shape == (NODES + 1, NODES + 1)
    np.testing.assert_array_equal(view.ages[:NODES, NODES], slots - held)
    np.testing.assert_array_equal(np.diagonal(view.ages), 0)
    assert (view.ages[NODES, :NODES] == -1).all()
    off = ~np.eye(NODES, dtype=bool)
    assert (view.ages[:NODES, :NODES][off] == -1).all()
    assert row["max_age"] == 1  # at the second of two local steps


def test_a_recording_does_not_run_longer_than_it_is(uneven):
    run = simulate(uneven, constant(1), hierfavg(), slots=6, recording=Recording(6, timeline=True))

    assert simulate(uneven, HierarchyReplay(run.timeline), hierfavg(), slots=6).last("slots") == 6
    with pytest.raises(ValueError, match="recorded for 6 slots, the run asks for 7"):
        simulate(uneven, HierarchyReplay(run.timeline), hierfavg(), slots=7)


@pytest.mark.parametrize(
    "network", [Lossy(snapshot(3), 0.3), RadioNetwork()], ids=["loss", "radio"]
)
def test_it_learns_through_loss_and_on_the_radio(quadratics, network):
    equal = quadratics(nodes=4, heterogeneity=0.0, condition=4.0)

    run = simulate(equal, network, hierfavg(0.05), slots=3000, seed=1, recording=Recording(3000))

    start = float(jnp.linalg.norm(equal.initial - equal.optimum))
    assert run.last("optimum_distance") < 1e-2 * start


def test_a_timeline_is_saved_and_loaded(problem, tmp_path):
    run = simulate(
        problem, pipelined(2), hierfavg(), slots=6, recording=Recording(6, timeline=True)
    )

    trace.save(run.timeline, tmp_path / "cells.npz")

    for ours, theirs in zip(run.timeline, trace.load(tmp_path / "cells.npz"), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_what_cannot_be_is_refused(problem):
    for option in ("cells", "global_every", "local_steps"):
        with pytest.raises(ValueError, match=f"{option} must be at least 1, got 0"):
            hierfavg(**{option: 0})
    with pytest.raises(ValueError, match="backhaul_slots must be at least 0, got -1"):
        hierfavg(backhaul_slots=-1)
    with pytest.raises(ValueError, match="at most the number of nodes, 5"):
        simulate(problem, ideal(), hierfavg(cells=6), slots=2)
    with pytest.raises(ValueError, match="does not carry uploads to a server"):
        simulate(problem, replay(record_timeline(snapshot(2), NODES, 4)), hierfavg(), slots=2)
    run = simulate(problem, ideal(), fedavg(), slots=2, recording=Recording(2, timeline=True))
    with pytest.raises(ValueError, match="travels along a HierarchyTimeline"):
        reference(problem, run.timeline, hierfavg())


def test_a_cell_whose_uploads_are_all_broken_keeps_its_model(problem):
    """Node 1 is alone in its cell and sends noise beyond all numbers; the others go on."""
    liars = Faults(liars=0.2, attack="noise", scale=1.7e308)
    algorithm = hierfavg(0.2, cells=5, global_every=2)

    run = simulate(
        problem, ideal(), algorithm, slots=8, faults=liars, recording=Recording(4, timeline=True)
    )

    assert np.isfinite(run.model).all()
    slow = reference(problem, run.timeline, algorithm, faults=liars)
    np.testing.assert_allclose(run.model, slow.model, rtol=1e-9, atol=1e-12)
