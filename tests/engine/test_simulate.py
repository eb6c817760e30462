"""The four axes and the counters, against closed forms; determinism; how a run ends."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folkman import (
    Clock,
    Recording,
    async_sharing,
    constant,
    dpsgd,
    fedavg,
    ideal,
    iid,
    load,
    make_problem,
    pipelined,
    record_timeline,
    replay,
    simulate,
    snapshot,
)
from folkman.algorithm.base import Assumption, Declares
from folkman.engine import simulate as engine
from folkman.problem.data import DataSet
from folkman.radio.loss import Lossy
from folkman.radio.network import RadioNetwork
from folkman.record.run import AXES, METRICS
from reference import plain

S = 650 * 64  # bits of one softmax model on 8x8 digits in float64


@pytest.mark.parametrize(("gamma", "local_steps"), [(0, 1), (0, 3), (4, 1), (4, 3)])
def test_fedavg_pays_for_its_rounds(digits, gamma, local_steps):
    rounds = 6
    whole = local_steps + 2 * gamma  # the upload and the answer take gamma each
    run = simulate(digits, constant(gamma), fedavg(0.1, local_steps), slots=rounds * whole)

    assert run.last("rounds") == rounds
    assert run.last("gradients") == rounds * local_steps
    assert run.last("kappa") == pytest.approx(local_steps / whole)
    assert run.last("bits") == rounds * (5 * S + S)  # five uploads and one broadcast
    assert run.last("bits_unicast") == rounds * (5 * S + 5 * S)
    # all but the first model are gamma slots old when a node begins with them
    assert run.last("max_age") == local_steps - 1 + gamma
    travel = gamma * (rounds - 1) / rounds
    assert run.last("mean_age") == pytest.approx((local_steps - 1) / 2 + travel)


def test_algorithm_1_never_waits(digits):
    run = simulate(digits, snapshot(5), async_sharing(0.1), slots=100, clock=Clock(slot_s=2.5))

    assert run.last("kappa") == 1
    assert run.last("gradients") == 100
    assert run.last("seconds") == 250
    assert run.last("rounds") == 20  # J / Gamma, as Table I says
    assert run.last("bits") == 20 * 5 * S
    assert run.last("bits_unicast") == 20 * 5 * 4 * S
    assert run.last("max_age") == 4


@pytest.mark.parametrize(
    ("network", "oldest", "sends_a_slot"),
    [
        (ideal(), 0, 1),
        (constant(6), 6, 1),
        (iid(7), 6, 1),
        (snapshot(7), 6, 1 / 7),
        (pipelined(7), 13, 1 / 7),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_ages_and_traffic_follow_the_law(digits, network, oldest, sends_a_slot):
    run = simulate(digits, network, async_sharing(0.1), slots=140)

    assert run.last("max_age") == oldest
    assert run.last("rounds") == pytest.approx(140 * sends_a_slot, abs=1)


def test_a_slow_node_takes_fewer_gradients_and_is_always_busy(digits):
    run = simulate(
        digits,
        snapshot(5),
        async_sharing(0.1),
        slots=60,
        clock=Clock(compute_slots=(1, 2, 3, 4, 60)),
    )

    assert run.last("gradients") == (60 + 30 + 20 + 15 + 1) / 5
    assert run.last("gradients_max") == 60
    assert run.last("kappa") == 1


def test_ages_are_those_of_the_copies_a_gradient_began_with(digits):
    """What is sent when a gradient ends arrives 3 slots later: the next begins with the one before."""
    run = simulate(digits, constant(3), async_sharing(0.1), slots=40, clock=Clock(compute_slots=5))

    began = np.arange(0, 40, 5)  # at slot 10 the copy formed after slot 4, with stamp 5, is held
    assert run.last("mean_age") == pytest.approx(np.minimum(began, 5).mean())
    assert run.last("max_age") == 5


def test_the_servers_model_ages_at_the_nodes_until_its_next_one_comes(digits):
    """A round of one step and an upload of two slots, answered at once, lasts three."""
    network = pipelined(2, download_slots=0)
    simulation = engine.Simulation(digits, network, fedavg(0.1), recording=Recording(1))
    marks = [mark for mark, _ in engine.march(simulation, engine.start(simulation, 0), 7)]

    for slot, mark in enumerate(marks):
        view = simulation.medium.view(mark.carry.medium, slot)

        assert view.ages[:5, 5].tolist() == [slot % 3] * 5
        assert view.stamps.tolist() == [-1] * 5 + [slot - slot % 3]
        assert view.ages[5].tolist() == [-1] * 5 + [0]
    assert len(marks) == 8


def test_mean_age_under_the_snapshot_law_is_exact(digits):
    run = simulate(
        digits, snapshot(4), async_sharing(0.1), slots=40, recording=Recording(timeline=True)
    )

    others = ~np.eye(5, dtype=bool)
    ages = (np.arange(40)[:, None, None] - run.timeline.held)[:, others]
    assert run.last("mean_age") == pytest.approx(ages.mean(), rel=1e-6)


def test_consensus_and_norms_are_measured_on_the_nodes(digits):
    run = simulate(
        digits, constant(3), async_sharing(0.3), slots=9, recording=Recording(9, timeline=True)
    )

    v = []
    path = plain_path(digits, run.timeline.held, 0.3)
    share = np.asarray(digits.share)
    held = np.full((5, 5), 9 - 3)
    for i in range(5):
        v.append(
            share[i] * path[-1][i] + sum(share[j] * path[held[i, j]][j] for j in range(5) if j != i)
        )
    apart = np.linalg.norm(np.array(v) - run.model, axis=1)
    assert run.last("consensus") == pytest.approx(apart.mean(), rel=1e-9)
    assert run.last("consensus_max") == pytest.approx(apart.max(), rel=1e-9)
    assert run.last("node_norm") == pytest.approx(np.linalg.norm(run.nodes, axis=1).max(), rel=1e-9)


def plain_path(problem, held, step):
    gradients = [
        partial(
            plain.softmax_gradient, x=np.asarray(problem.x[i, :n]), y=np.asarray(problem.y[i, :n])
        )
        for i, n in enumerate(np.asarray(problem.count))
    ]
    share = np.asarray(problem.share)
    return plain.share_asynchronously(
        gradients, np.asarray(problem.initial), share, held, step, np.ones(len(share))
    )


def test_counts_do_not_wrap_between_two_records(quadratics, monkeypatch):
    monkeypatch.setattr(engine, "MOST_COUNTED", 300)  # as if int32 were this small
    problem = quadratics(nodes=5, dim=2)

    run = simulate(problem, ideal(), async_sharing(0.1), slots=100, recording=Recording(100))

    assert [row["slots"] for row in run.rows] == [0, 100]
    assert run.last("bits_unicast") == 100 * 5 * 4 * 2 * 64


@pytest.mark.parametrize("seed", [-1, 2**32, 1.5])
def test_a_seed_that_is_none_is_refused(digits, seed):
    with pytest.raises(ValueError, match="a seed must be a whole number"):
        simulate(digits, ideal(), async_sharing(), slots=1, seed=seed)


def test_a_slow_node_uses_the_point_it_began_with(x64):
    """One node with c = 3 on 0.5 (w - 1)^2: one step of descent every third slot."""
    samples = load("quadratic", nodes=1, dim=3, condition=1.0)
    problem = make_problem(samples, "quadratic", [np.array([0])], dtype="float64")

    run = simulate(
        problem,
        ideal(),
        async_sharing(0.5),
        slots=7,
        clock=Clock(compute_slots=3),
        recording=Recording(1),
    )

    distance = np.array(run.column("optimum_distance"))
    curvature = float(problem.y.max())
    factor = 1 - 0.5 * curvature
    np.testing.assert_allclose(
        distance / distance[0], factor ** np.array([0, 0, 0, 1, 1, 1, 2, 2]), rtol=1e-7
    )


def test_equal_seeds_give_equal_bits_and_other_seeds_do_not():
    samples = load("digits", train_size=200)
    problem = make_problem(samples, "mlp", 4, batch=8)
    first, again, other = (
        simulate(problem, iid(4), async_sharing(0.1), slots=25, seed=s) for s in (1, 1, 2)
    )

    assert str(first.rows) == str(again.rows)  # as text: NaN is not equal to itself
    np.testing.assert_array_equal(first.nodes, again.nodes)
    assert (first.nodes != other.nodes).any()


def test_how_often_metrics_are_taken_does_not_change_the_run(digits):
    often, seldom = (
        simulate(digits, iid(4), async_sharing(0.2), slots=24, recording=Recording(every))
        for every in (1, 24)
    )

    np.testing.assert_array_equal(often.nodes, seldom.nodes)
    assert often.rows[-1] == pytest.approx(seldom.rows[-1], rel=1e-6, nan_ok=True)


def test_a_row_has_every_axis_and_metric(digits):
    run = simulate(
        digits, snapshot(3), async_sharing(0.1), slots=3, recording=Recording(1, nodes=True)
    )

    of_others = {"push_weight"}  # a column of asynchronous SGP
    assert set(AXES) | set(METRICS) - of_others == set(run.rows[0])
    assert [row["slots"] for row in run.rows] == [0, 1, 2, 3]


def test_evaluating_nodes_evaluates_each_v_i(digits):
    run = simulate(digits, ideal(), async_sharing(0.1), slots=5, recording=Recording(5, nodes=True))

    # without delay every v_i is w
    assert run.last("node_train_loss") == pytest.approx(run.last("train_loss"), rel=1e-12)
    assert run.last("node_test_accuracy") == pytest.approx(run.last("test_accuracy"), rel=1e-12)


@pytest.mark.parametrize("algorithm", [async_sharing(1e4), fedavg(1e4)], ids=lambda a: a.name)
def test_a_divergent_run_stops_and_keeps_its_rows(quadratics, algorithm):
    run = simulate(quadratics(nodes=3), ideal(), algorithm, slots=2000)

    assert run.status == "diverged"
    assert "smaller step" in run.message
    assert run.last("slots") < 2000
    assert all(np.isfinite(row["train_loss"]) for row in run.rows[:-1])


def test_a_network_that_breaks_an_assumption_is_refused(digits):
    recorded = replay(record_timeline(snapshot(3), 5, 20))
    careful = replace(
        async_sharing(0.1), declares=Declares(assumes=frozenset({Assumption.RELIABLE}))
    )

    with pytest.raises(
        ValueError, match="'a recorded timeline' does not carry rounds in lock-step"
    ):
        simulate(digits, recorded, dpsgd(0.1), slots=1)
    with pytest.raises(
        ValueError, match=r"async_sharing assumes that every message arrives.*'snapshot'"
    ):
        simulate(digits, Lossy(snapshot(3), 0.1), careful, slots=1)
    with pytest.raises(ValueError, match="does not carry uploads to a server"):
        simulate(digits, recorded, fedavg(0.1), slots=1)
    simulate(digits, snapshot(3), careful, slots=1)


def test_two_clocks_are_refused(digits):
    with pytest.raises(ValueError, match=r"network's slots last 0.5 s and the clock's 1.0 s"):
        simulate(digits, RadioNetwork(slot_s=0.5), async_sharing(0.1), slots=1)


@pytest.mark.parametrize(
    "clock",
    [Clock(compute_slots=0), Clock(compute_slots=(1, 2)), Clock(compute_slots=(1,) * 4 + (0,))],
)
def test_bad_compute_times_are_refused(digits, clock):
    with pytest.raises(ValueError, match="compute_slots must be one whole number"):
        simulate(digits, ideal(), async_sharing(), slots=1, clock=clock)


@pytest.mark.parametrize(("slots", "every"), [(0, 1), (5, 0)])
def test_bad_horizons_are_refused(digits, slots, every):
    with pytest.raises(ValueError, match="must be at least 1"):
        simulate(digits, ideal(), async_sharing(), slots=slots, recording=Recording(every))


def test_the_python_loop_and_the_compiled_loop_agree(digits, monkeypatch):
    """A convolutional model runs slot by slot from Python on the CPU; the arithmetic is the same."""
    compiled = simulate(
        digits, iid(3), async_sharing(0.2), slots=12, recording=Recording(5, timeline=True)
    )
    monkeypatch.setattr(type(digits), "called_from_python", property(lambda _: True))
    looped = simulate(
        digits, iid(3), async_sharing(0.2), slots=12, recording=Recording(5, timeline=True)
    )

    np.testing.assert_allclose(looped.nodes, compiled.nodes, rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(looped.timeline.held, compiled.timeline.held)


def test_a_mark_can_be_gone_on_from_twice_in_the_python_loop_too(digits, monkeypatch):
    """A carry is written over its predecessor, but not over the one in the caller's hands."""
    monkeypatch.setattr(type(digits), "called_from_python", property(lambda _: True))
    simulation = engine.Simulation(digits, iid(3), async_sharing(0.2), recording=Recording(4))
    begun = engine.start(simulation, 0)

    ends = [list(engine.march(simulation, begun, 8))[-1][0] for _ in range(2)]

    for one, two in zip(*(jax.tree.leaves(end.carry) for end in ends), strict=True):
        if not jnp.issubdtype(one.dtype, jax.dtypes.prng_key):
            np.testing.assert_array_equal(one, two)
    assert int(begun.carry.slot) == 0


@pytest.mark.parametrize("nodes", [1, 5, 1000, 2**14, 2**15, 2**16, 10**6])
def test_a_stretch_is_at_least_a_slot_and_short_enough_to_count_its_copies_in_int32(nodes):
    for stretch in (None, 64):
        medium: Any = SimpleNamespace(stretch=stretch)
        longest = engine.longest_stretch(medium, nodes, 1)
        among_many = engine.longest_stretch(medium, nodes, 10**8)

        assert among_many * 10**8 < 2**31  # an age is at most the slots of the run
        assert 1 <= longest <= (stretch or 2**30)
        assert longest == 1 or longest * nodes**2 < 2**31
        if nodes <= 1000:
            assert longest * nodes**2 > 2**29 or longest == stretch


def test_every_node_draws_its_own_mini_batch_in_every_slot(x64):
    """With F_i = |w - x|^2 / 2 and a step of 1, a node stands on the sample that it drew."""
    samples = np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32)
    ones = np.ones_like(samples)
    data = DataSet("points", samples, ones, samples[:1], ones[:1], num_classes=0)
    problem = make_problem(data, "quadratic", [np.arange(200)] * 3, batch=1, dtype="float64")
    algorithm = fedavg(1.0, local_steps=100)  # no exchange within these slots

    stood = []
    for slots in (1, 2, 3):
        nodes = simulate(problem, ideal(), algorithm, slots=slots).nodes
        apart = np.linalg.norm(nodes[:, None] - samples[None], axis=2)
        assert apart.min(axis=1).max() < 1e-12
        stood.append(apart.argmin(axis=1))

    assert len(set(np.concatenate(stood))) > 6  # of nine draws; one key for all would give one
