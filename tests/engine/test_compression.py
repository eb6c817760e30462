"""What is priced is what is sent: in the simulator, by hand, and between byte-level nodes."""

from itertools import pairwise

import numpy as np
import pytest

from folkman import (
    Clock,
    Compressed,
    Faults,
    Lossy,
    RadioNetwork,
    Recording,
    adafl,
    adpsgd,
    async_sharing,
    cga,
    compcga,
    constant,
    dfedavgm,
    dpsgd,
    fedavg,
    fedbuff,
    hierfavg,
    ideal,
    iid,
    load,
    make_problem,
    pipelined,
    sgp,
    simulate,
    snapshot,
)
from folkman import reference as run_reference
from folkman.engine.metrics import _on_air
from folkman.engine.simulate import Simulation, march, start
from folkman.packing import float16, int8, none, qsgd, rand_k, sign, top_k
from reference import plain, wire

STEP = 0.05


def named(value):
    """Return how a case is called."""
    if not hasattr(value, "name"):  # a method and its network
        return " on ".join(each.name for each in value)
    return value.name + ", memory" * getattr(value, "feedback", False)


@pytest.fixture
def problem(quadratics):
    return quadratics(nodes=4, dim=10, heterogeneity=1.0)


@pytest.fixture(scope="module")
def small():
    return make_problem(load("digits", train_size=40), "softmax", 4)


def end(problem, network, algorithm, slots=12, **options):
    return simulate(problem, network, algorithm, slots=slots, seed=3, **options)


@pytest.mark.parametrize("algorithm", [async_sharing(STEP), fedavg(STEP), dpsgd(STEP)], ids=named)
def test_fewer_bits_are_other_values(problem, algorithm):
    """One bit and sixteen bits a parameter are not the same loss to the last digit."""
    exact = end(problem, snapshot(2), algorithm)
    sixteen = end(problem, snapshot(2, 16), algorithm)
    one = end(problem, snapshot(2, 1), algorithm)

    apart = [np.abs(run.nodes - exact.nodes).max() for run in (sixteen, one)]
    assert 1e-9 < apart[0] < 1e-2 < apart[1]
    messages = exact.last("bits") / 640
    assert (sixteen.last("bits"), one.last("bits")) == (160 * messages, 42 * messages)


def test_a_price_only_changes_no_bit(problem):
    exact = end(problem, snapshot(2), async_sharing(STEP))
    priced = end(problem, Compressed(snapshot(2, 16), none()), async_sharing(STEP))
    np.testing.assert_array_equal(exact.nodes, priced.nodes)
    assert exact.last("bits") == 4 * priced.last("bits")


def test_the_radio_rounds_what_it_prices_and_its_times_follow(problem):
    kept = {"slots": 30, "clock": Clock(1e-5)}
    radio = RadioNetwork(slot_s=1e-5, bandwidth_hz=1e7)
    half = end(problem, radio, async_sharing(STEP), **kept)
    priced = end(problem, Compressed(radio, none()), async_sharing(STEP), **kept)
    one = end(problem, Compressed(radio, sign()), async_sharing(STEP), **kept)
    assert 0 < np.abs(half.nodes - priced.nodes).max() < 1e-2
    assert half.last("gamma_t") == priced.last("gamma_t") > one.last("gamma_t")


def by_the_equations(problem, slots, packs):
    """Return Algorithm 1 without delay in NumPy: v_i = alpha_i w_i + sum_j alpha_j C(w_j)."""
    alpha, nodes = np.asarray(problem.share), problem.num_nodes
    w = np.tile(np.asarray(problem.initial), (nodes, 1))
    seen = w.copy()
    x, y = np.asarray(problem.x), np.asarray(problem.y)
    for _ in range(slots):
        v = [alpha @ np.where(np.arange(nodes)[:, None] == i, w, seen) for i in range(nodes)]
        gradient = [plain.quadratic_gradient(v[i], x=x[i], y=y[i])[1] for i in range(nodes)]
        w = w - STEP * np.array(gradient)
        seen = packs(w, seen)
    return w


def largest(x, kept):
    found = np.zeros_like(x)
    for row, own in zip(found, x, strict=True):
        places = np.argsort(-np.abs(own))[:kept]
        row[places] = own[places].astype(np.float32)
    return found


def signs(x):
    """Return the sign of every entry, times the mean modulus of its row."""
    return np.where(x >= 0, 1, -1) * np.abs(x).mean(axis=-1, keepdims=True)


RETOLD = {
    "float16": (float16(), lambda w, _: w.astype(np.float32).astype(np.float16).astype(float)),
    "sign": (sign(), lambda w, _: signs(w)),
    "top_k": (top_k(0.2), lambda w, _: largest(w, 2)),
    "top_k, feedback": (top_k(0.2, feedback=True), lambda w, h: h + largest(w - h, 2)),
}


@pytest.mark.parametrize(("packing", "packs"), RETOLD.values(), ids=list(RETOLD))
def test_algorithm_1_with_packed_messages_is_its_equations(problem, packing, packs):
    run = end(problem, Compressed(ideal(), packing), async_sharing(STEP), slots=9)
    np.testing.assert_allclose(run.nodes, by_the_equations(problem, 9, packs), rtol=1e-5, atol=1e-6)


def retold(method, problem, slots, packs, *, remembers):
    """Return the models of the nodes, or of the server, after so many slots without delay.

    `packs` is C, row by row. What is sent in place of a model m is C(m), or h + C(m - h),
    which is then h; in place of a difference C(m), or C(m + e), of which e is what is left out.
    """
    nodes, first = problem.num_nodes, np.asarray(problem.initial)
    x, y = np.asarray(problem.x), np.asarray(problem.y)

    def slopes(points):
        each = zip(points, x, y, strict=True)
        return np.stack([plain.quadratic_gradient(w, x=a, y=b)[1] for w, a, b in each])

    def sent(m, h):
        return h + packs(m - h) if remembers else packs(m)

    w = np.tile(first, (nodes, 1))
    up, left, down, server = w.copy(), np.zeros_like(w), first[None], first
    ring = (np.eye(nodes) + np.roll(np.eye(nodes), 1, 0) + np.roll(np.eye(nodes), -1, 0)) / 3
    for slot in range(slots):
        moves = -STEP * slopes(w)
        if method == "dpsgd":  # x_i <- W_ii x_i + sum_j W_ij C(x_j) - eta grad F_i(x_i)
            if slot + 1 < slots:  # the last round has not ended
                up = sent(w, up)
                w = np.diag(ring)[:, None] * w + (ring - np.diag(np.diag(ring))) @ up
            w = w + moves
            continue
        if method == "fedavg":
            up = sent(w + moves, up)
            server = up.mean(axis=0)
        else:  # FedBuff: differences, and a buffer that all nodes fill
            wanted = left - moves if remembers else -moves
            server = server - packs(wanted).mean(axis=0)
            left = wanted - packs(wanted)
        down = sent(server[None], down)
        w = np.tile(down, (nodes, 1))
    return w if method == "dpsgd" else server


@pytest.mark.parametrize("feedback", [False, True], ids=["plain", "memory"])
@pytest.mark.parametrize(
    ("packing", "packs"), [(top_k, lambda x: largest(x, 2)), (sign, signs)], ids=["top_k", "sign"]
)
@pytest.mark.parametrize(
    "algorithm", [dpsgd(STEP), fedavg(STEP), fedbuff(STEP, buffer_size=4)], ids=named
)
def test_what_packed_methods_send_and_remember_is_told_in_numpy(
    problem, algorithm, packing, packs, feedback
):
    fraction = (0.2,) if packing is top_k else ()
    network = Compressed(ideal(), packing(*fraction, feedback=feedback))
    run = end(problem, network, algorithm, slots=9)
    told = retold(algorithm.name, problem, 9, packs, remembers=feedback)
    found = run.nodes if algorithm.name == "dpsgd" else run.model
    np.testing.assert_allclose(found, told, rtol=1e-5, atol=1e-6)


MEMORYLESS = [
    float16(),
    float16(rounding="stochastic"),
    int8(),
    qsgd(5),
    rand_k(0.3),
    top_k(0.3, servers=False),
]
METHODS = [
    (async_sharing(STEP), pipelined(2)),
    (fedavg(STEP, local_steps=2), snapshot(2)),
    (dpsgd(STEP), constant(1)),
    (hierfavg(STEP, cells=2), constant(1)),
    (fedbuff(STEP, buffer_size=2), iid(3)),  # it sends differences
    (adpsgd(STEP), constant(1)),  # a meeting is two messages, with a head of three numbers each
    (adpsgd(STEP), Lossy(pipelined(2), 0.3)),
]
CASES = [(METHODS[0], packing) for packing in MEMORYLESS] + [
    (METHODS[i], packing)
    for i, packing in [(1, qsgd(5)), (2, rand_k(0.3)), (3, qsgd(5)), (4, int8())]
]
CASES += [(METHODS[5], packing) for packing in (int8(), top_k(0.3))]
CASES += [(METHODS[6], int8())]
REMEMBERED = [(METHODS[i], top_k(0.3, feedback=True)) for i in (0, 1, 2, 3, 5)]
REMEMBERED += [(METHODS[1], qsgd(5, feedback=True)), (METHODS[4], sign(feedback=True))]


@pytest.mark.parametrize(("method", "packing"), CASES + REMEMBERED, ids=named)
def test_simulator_reference_and_bytes_agree(problem, method, packing):
    algorithm, law = method
    network = Compressed(law, packing)
    run = end(problem, network, algorithm, recording=Recording(12, timeline=True))
    slow = run_reference(problem, run.timeline, algorithm, seed=3, packing=packing)
    exact = end(problem, law, algorithm)

    assert np.abs(run.nodes - exact.nodes).max() > 1e-8  # it did something
    np.testing.assert_allclose(run.nodes, slow.nodes, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(run.model, slow.model, rtol=1e-6, atol=1e-9)
    if algorithm.name != "hierfavg" or not packing.feedback:  # no byte-level station remembers
        nodes, model = wire.play(problem, run.timeline, algorithm, seed=3, packing=packing)
        np.testing.assert_allclose(nodes, run.nodes, rtol=1e-6, atol=1e-9)
        if model is not None:
            np.testing.assert_allclose(model, run.model, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("algorithm", [async_sharing(0.2), fedavg(0.2)], ids=named)
def test_a_tenth_of_the_entries_converges_with_memory_and_not_without(quadratics, algorithm):
    problem = quadratics(nodes=3, dim=10, heterogeneity=0.0, condition=3.0)
    away = {}
    for feedback in (False, True):
        network = Compressed(ideal(), top_k(0.1, feedback=feedback))
        run = end(problem, network, algorithm, slots=2500, recording=Recording(2500))
        away[feedback] = run.last("optimum_distance")
    assert away[True] < 1e-3
    assert away[False] > 0.1


def test_a_memory_moves_when_its_node_sends_and_is_what_others_hold(problem):
    network = Compressed(snapshot(3), top_k(0.2, feedback=True))
    simulation = Simulation(
        problem, network, async_sharing(STEP), recording=Recording(1, timeline=True)
    )
    events, memories, stores = [], [], []
    for mark, _ in march(simulation, start(simulation, 3), 7, events):
        held = mark.carry.medium
        memories.append(np.asarray(held.links.kept))
        newest = np.asarray(held.snapshots.newest)[:, 0]
        stores.append(np.asarray(held.snapshots.payload)[newest])
    sends = np.concatenate([stretch[2].sends for stretch in events])
    moved = np.array([(a != b).any(axis=1) for a, b in pairwise(memories)])
    np.testing.assert_array_equal(moved, sends)
    assert 0 < moved.sum() < moved.size
    np.testing.assert_array_equal(memories, stores)


def price(network, algorithm, problem):
    up, _, down = _on_air(Simulation(problem, network, algorithm))
    return up, down


def test_prices_of_messages_with_more_than_a_model(small):
    d = small.dim
    net = Compressed(ideal(), int8())
    assert price(net, async_sharing(0.1), small)[0] == [8 * d + 32]
    assert price(net, sgp(0.1), small)[0] == [8 * d + 32 + 32]  # its weight is exact
    assert price(net, fedbuff(0.1), small)[0] == [8 * d + 32 + 32]  # its version
    assert price(net, fedavg(0.1), small) == ([8 * d + 32], [8 * d + 32])
    assert price(net, adafl(0.1), small)[0] == [2 * (8 * d + 32) + 4 * 32]
    spared = Compressed(ideal(), top_k(0.01, servers=False))
    assert price(spared, fedavg(0.1), small) == ([7 * 42], [32 * d])
    assert price(ideal(16), sgp(0.1), small)[0] == [16 * d + 32]


@pytest.mark.parametrize(
    "algorithm", [compcga(0.1), dfedavgm(0.1, exchange="differences", bits=8)], ids=named
)
def test_methods_that_pack_by_themselves_keep_their_form(small, algorithm):
    with pytest.raises(ValueError, match=r"packs its messages by itself, and 'sign' cannot"):
        end(small, Compressed(ideal(), sign()), algorithm)
    assert price(Compressed(ideal(), float16()), algorithm, small)[0][0] > 0


def test_a_method_whose_messages_are_quantised_is_not_rounded_on_top(problem):
    algorithm = dfedavgm(STEP, exchange="differences", bits=8)
    exact, half = (end(problem, net, algorithm) for net in (ideal(), ideal(16)))
    np.testing.assert_array_equal(exact.nodes, half.nodes)
    assert exact.last("bits") == half.last("bits")


@pytest.mark.parametrize(
    ("network", "algorithm", "faults", "message"),
    [
        (Lossy(snapshot(2), 0.1), async_sharing(), Faults(), "loses some"),
        (RadioNetwork(), async_sharing(), Faults(), "peers miss or overtake some"),
        (iid(3), async_sharing(), Faults(), "overtake"),
        (ideal(), fedavg(), Faults(away=((0, 2, 4),)), "away miss some"),
        (ideal(), dpsgd(topology="schedule"), Faults(), "miss"),
    ],
    ids=["loss", "radio", "iid", "away", "schedule"],
)
def test_memory_needs_every_message_to_arrive(small, network, algorithm, faults, message):
    network = Compressed(network, top_k(0.1, feedback=True))
    with pytest.raises(ValueError, match=f"{message}.*int8, qsgd and rand_k do without"):
        end(small, network, algorithm, faults=faults)


def test_running_sums_travel_as_computed_and_are_priced_so(problem):
    algorithm = sgp(STEP, mode="asynchronous")
    exact, half = (end(problem, net, algorithm) for net in (ideal(), ideal(16)))
    np.testing.assert_array_equal(exact.nodes, half.nodes)
    assert exact.last("bits") == half.last("bits")
    with pytest.raises(ValueError, match=r"'int8' would lose mass; use the compression 'none'"):
        end(problem, ideal(8), algorithm)


@pytest.mark.parametrize("algorithm", [adafl(0.1), cga(0.1)], ids=named)
def test_memory_is_of_messages_with_one_model(small, algorithm):
    with pytest.raises(ValueError, match="error feedback needs messages of one model"):
        end(small, Compressed(ideal(), int8(feedback=True)), algorithm)


@pytest.mark.parametrize(
    "algorithm", [hierfavg(0.1, cells=2), dpsgd(0.1, topology="matching")], ids=named
)
def test_devices_refuse_memory_where_not_everyone_hears_every_message(small, algorithm):
    assert wire.make_nodes(small, algorithm, 3, wire.Wire(1, packing=sign()))
    with pytest.raises(ValueError, match=r"every receiver must have heard.*leave feedback out"):
        wire.make_nodes(small, algorithm, 3, wire.Wire(1, packing=sign(feedback=True)))


@pytest.mark.parametrize("algorithm", [adpsgd(0.1), adafl(0.1), sgp(0.1)], ids=named)
@pytest.mark.parametrize("network", [ideal(8), RadioNetwork()], ids=["int8", "radio"])
def test_numbers_behind_a_model_are_never_rounded_as_if_they_were_one(algorithm, network):
    """AD-PSGD's partner and number of a meeting, say: with three parameters they look alike."""
    behind = {"adpsgd": 3, "adafl": 4, "sgp": 1}[algorithm.name]
    for dim in (behind, behind + 1):
        problem = make_problem(load("quadratic", nodes=4, dim=dim), "quadratic", 4)
        if dim > behind:
            Simulation(problem, network, algorithm).medium.sending(problem)
            continue
        with pytest.raises(ValueError, match=f"have {behind} numbers behind the model"):
            Simulation(problem, network, algorithm).medium.sending(problem)
    Simulation(problem, Compressed(network, none()), algorithm).medium.sending(problem)


def test_answers_with_a_memory_count_once_where_they_are_one_message(problem):
    """FedAvg answers all at once, with one memory; FedBuff answers whom it hears, each its own."""
    packing = int8(feedback=True)
    together = end(problem, Compressed(ideal(), packing), fedavg(STEP))
    message = 8 * problem.dim + 32
    assert together.last("bits") == 12 * (4 + 1) * message
    clock = Clock(compute_slots=(1, 2, 3, 5))
    apart = end(problem, Compressed(ideal(), packing), fedbuff(STEP, buffer_size=1), clock=clock)
    plain = end(problem, Compressed(ideal(), int8()), fedbuff(STEP, buffer_size=1), clock=clock)
    assert plain.last("bits") <= apart.last("bits") <= plain.last("bits_unicast")


@pytest.mark.parametrize("packing", [int8(), top_k(0.2, feedback=True)], ids=named)
def test_an_upload_that_is_not_finite_is_dropped_packed_or_not(problem, packing):
    lies = Faults(liars=0.25, attack="noise", scale=float("inf"))
    run = end(problem, Compressed(ideal(), packing), fedavg(STEP), faults=lies)
    assert np.isfinite(run.model).all()
