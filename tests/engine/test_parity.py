"""Three ways to run one timeline: the simulator, the reference engine, and plain NumPy by the equations."""

from functools import cache, partial
from typing import Any

import numpy as np
import pytest

from folkman import (
    Clock,
    Recording,
    async_sharing,
    constant,
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
    split,
)
from folkman import reference as run_reference
from folkman.packing import implied
from folkman.problem.projection import l2_ball
from folkman.radio.network import RadioNetwork
from reference import plain

LAWS = [ideal(), snapshot(4), iid(4), pipelined(3), constant(3)]
ALGORITHMS = {
    "sharing, theorem": async_sharing(0.3),
    "sharing, local": async_sharing(0.3, "local"),
    "sharing, figure, cosine": async_sharing(0.05, "figure", "cosine", 50),
    "sharing, projected": async_sharing(0.3, projection=l2_ball(0.5)),
    "fedavg": fedavg(0.3),
    "fedavg, local steps": fedavg(0.3, local_steps=3),
    "fedavg, adam": fedavg(0.01, local_steps=2, optimizer="adam"),
    "fedavg, momentum": fedavg(0.1, local_steps=2, optimizer="momentum", decay="inverse_sqrt"),
}


def uneven(**options):
    """Return 400 digits split by Dirichlet over 5 nodes: unequal shares, unequal data."""
    samples = load("digits", train_size=400)
    parts = split("dirichlet", samples.y_train, 5, concentration=1.0, seed=3)
    return make_problem(samples, "softmax", parts, dtype="float64", **options)


PAIRS = [(ALGORITHMS[name], snapshot(4)) for name in ALGORITHMS]
PAIRS += [
    (algorithm, law)
    for law in LAWS
    for algorithm in (async_sharing(0.3), fedavg(0.3))
    if law != snapshot(4)
]


@cache
def ran(algorithm, network) -> Any:
    """Return 21 slots on uneven digits with their timeline: simulated once, looked at by several
    tests."""
    return simulate(
        uneven(), network, algorithm, slots=21, seed=5, recording=Recording(7, timeline=True)
    )


@pytest.mark.parametrize(("algorithm", "network"), PAIRS, ids=lambda value: value.name)
def test_simulator_and_reference_agree(x64, algorithm, network):
    problem, run = uneven(), ran(algorithm, network)

    slow = run_reference(problem, run.timeline, algorithm, seed=5)

    np.testing.assert_allclose(run.nodes, slow.nodes, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(run.model, slow.model, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "algorithm", [async_sharing(0.3), fedavg(0.3, local_steps=2)], ids=lambda a: a.name
)
def test_they_agree_with_unequal_compute_times_and_mini_batches(x64, algorithm):
    problem = uneven(batch=8, l2=0.01)
    clock = Clock(compute_slots=(1, 2, 3, 1, 5))

    run = simulate(
        problem,
        snapshot(4),
        algorithm,
        slots=19,
        seed=2,
        clock=clock,
        recording=Recording(19, timeline=True),
    )
    slow = run_reference(problem, run.timeline, algorithm, seed=2)

    np.testing.assert_allclose(run.nodes, slow.nodes, rtol=1e-9, atol=1e-12)
    if not algorithm.travel.servers:
        assert run.last("gradients_max") == 19
        np.testing.assert_array_equal(run.timeline.finished.sum(axis=0), [19, 9, 6, 19, 3])


@pytest.mark.parametrize(
    ("network", "scaling"),
    [*((law, "theorem") for law in LAWS), (snapshot(4), "local"), (iid(4), "figure")],
    ids=lambda value: getattr(value, "name", value),
)
def test_algorithm_1_is_its_equations(x64, network, scaling):
    problem = uneven()
    alpha = np.asarray(problem.share)
    scale = {"local": alpha, "theorem": np.ones(5), "figure": np.full(5, 5.0)}[scaling]
    gradients = [
        partial(
            plain.softmax_gradient, x=np.asarray(problem.x[i, :n]), y=np.asarray(problem.y[i, :n])
        )
        for i, n in enumerate(np.asarray(problem.count))
    ]
    timeline = record_timeline(network, 5, 21, seed=5)

    run = ran(async_sharing(0.3, scaling), network)

    path = plain.share_asynchronously(
        gradients, np.asarray(problem.initial), alpha, timeline.held, 0.3, scale
    )
    np.testing.assert_allclose(run.nodes, path[-1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("network", LAWS, ids=lambda n: n.name)
def test_a_recorded_network_replays_to_the_bit(x64, network):
    """Also from slot to slot without its timeline, which is another program."""
    timeline = record_timeline(network, 5, 21, seed=5)

    first = ran(async_sharing(0.3), network)
    second = simulate(uneven(), replay(timeline), async_sharing(0.3), slots=21, seed=5)

    np.testing.assert_array_equal(first.timeline.held, timeline.held)
    np.testing.assert_array_equal(first.timeline.sends, timeline.sends)
    np.testing.assert_array_equal(first.nodes, second.nodes)


@pytest.mark.parametrize("versions", [1, 120], ids=["grows", "in blocks"])
def test_on_the_radio_the_store_of_copies_is_the_reference(x64, versions):
    """A store that grows again and again, and one that is summed block by block, hold what the timeline says."""
    kind = type("Sized", (RadioNetwork,), {"versions": lambda *_: versions})
    problem = make_problem(load("digits", train_size=100), "softmax", 5, dtype="float64")

    run = simulate(
        problem,
        kind(bandwidth_hz=15e3),
        async_sharing(0.2),
        slots=60,
        seed=2,
        recording=Recording(timeline=True),
    )
    slow = run_reference(problem, run.timeline, async_sharing(0.2), seed=2, packing=implied(16))

    np.testing.assert_allclose(run.nodes, slow.nodes, rtol=1e-9, atol=1e-11)


def test_a_widened_store_outlives_a_checkpoint(x64, tmp_path):
    """Interrupted after the store has grown, taken up again: the same bits."""
    from folkman.engine import checkpoint
    from folkman.engine.simulate import Simulation, march, outcome, start

    kind = type("Cramped", (RadioNetwork,), {"versions": lambda *_: 1})
    problem = make_problem(load("digits", train_size=100), "softmax", 5, dtype="float64")
    simulation = Simulation(
        problem, kind(bandwidth_hz=15e3), async_sharing(0.2), recording=Recording(every=20)
    )
    *_, (whole, _) = march(simulation, start(simulation, seed=2), 60)

    *_, (half, _) = march(simulation, start(simulation, seed=2), 40)
    assert half.carry.medium.snapshots.payload.shape[0] > problem.num_nodes
    checkpoint.save(half, tmp_path / "half.safetensors")
    taken_up = checkpoint.load(tmp_path / "half.safetensors", start(simulation, seed=2))
    *_, (rest, _) = march(simulation, taken_up, 60)

    np.testing.assert_array_equal(outcome(simulation, rest)[1], outcome(simulation, whole)[1])


def test_float32_stays_near_the_float64_reference():
    samples = load("digits", train_size=300)
    problem = make_problem(samples, "mlp", 4, seed=1)

    run = simulate(
        problem, snapshot(3), async_sharing(0.1), slots=40, recording=Recording(timeline=True)
    )
    slow = run_reference(problem, run.timeline, async_sharing(0.1))

    assert run.nodes.dtype == np.float32
    # 40 steps of float32 arithmetic, each good to about 1e-7 of the largest entry
    assert np.abs(run.nodes - slow.nodes).max() < 2e-5 * np.abs(slow.nodes).max()


def test_mini_batches_are_the_same_in_float32_and_in_the_float64_reference():
    problem = make_problem(load("digits", train_size=200), "softmax", 4, batch=8)

    run = simulate(
        problem, snapshot(3), async_sharing(0.1), slots=20, recording=Recording(timeline=True)
    )
    slow = run_reference(problem, run.timeline, async_sharing(0.1))

    np.testing.assert_allclose(run.nodes, slow.nodes, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_fedavgs_local_optimisers_and_schedule_are_their_equations(x64, optimizer):
    """Momentum m <- 0.9 m + g and Adam [Kingma, Ba 2015], restarted every round; step eta / sqrt(1 + updates/20)."""
    problem = uneven()
    gradients = [
        partial(
            plain.softmax_gradient, x=np.asarray(problem.x[i, :n]), y=np.asarray(problem.y[i, :n])
        )
        for i, n in enumerate(np.asarray(problem.count))
    ]
    w, updates = np.zeros(problem.dim), 0
    for _ in range(4):
        ends = []
        for gradient in gradients:
            x, m, v = w.copy(), np.zeros_like(w), np.zeros_like(w)
            for k in range(3):
                g = gradient(x)[1]
                m = {"sgd": g, "momentum": 0.9 * m + g, "adam": 0.9 * m + 0.1 * g}[optimizer]
                v = 0.999 * v + 0.001 * g**2
                corrected = (m / (1 - 0.9 ** (k + 1))) / (
                    np.sqrt(v / (1 - 0.999 ** (k + 1))) + 1e-8
                )
                x = x - 0.05 / np.sqrt(1 + (updates + k) / 20) * (
                    corrected if optimizer == "adam" else m
                )
            ends.append(x)
        updates += 3
        w = np.asarray(problem.share) @ np.array(ends)

    run = simulate(problem, ideal(), fedavg(0.05, 3, optimizer, "inverse_sqrt", 20), slots=12)

    np.testing.assert_allclose(run.model, w, rtol=1e-7, atol=1e-10)


def test_algorithm_1s_schedule_counts_a_nodes_updates_from_zero(quadratics):
    problem = quadratics(nodes=1, dim=3, condition=1.0)
    curvature, centre = float(problem.y[0, 0, 0]), np.asarray(problem.x[0, 0])

    run = simulate(
        problem, ideal(), async_sharing(0.5, decay="inverse_sqrt", decay_steps=4), slots=6
    )

    left = np.prod([1 - 0.5 / np.sqrt(1 + t / 4) * curvature for t in range(6)])
    np.testing.assert_allclose(run.model - centre, -left * centre, rtol=1e-6)


def test_the_reference_refuses_a_timeline_that_does_not_fit(digits):
    with pytest.raises(ValueError, match="has 3 nodes, the problem 5"):
        run_reference(digits, record_timeline(snapshot(2), 3, 5), async_sharing())
    with pytest.raises(ValueError, match="fedavg travels along a StarTimeline, got a PeerTimeline"):
        run_reference(digits, record_timeline(snapshot(2), 5, 5), fedavg())
