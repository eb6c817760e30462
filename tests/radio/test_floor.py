"""Floors under mean ages: exact solvers against other methods, and no schedule below a floor."""

import heapq
from itertools import combinations, pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from folkman.radio import floor as fl
from folkman.radio.network import RadioNetwork
from folkman.radio.trace import record_timeline
from tests.reference.band import KINDS, cyclic_age, index_choice, mean_age, play, random_choice


def drop(seed, nodes, slots, spread=1.5, static=False):
    """Return costs (slot, rx, tx): a level for each pair, and fading like that of rates."""
    rng = np.random.default_rng(seed)
    level = np.exp(spread * rng.standard_normal((nodes, nodes)))
    fading = rng.exponential(size=(1 if static else slots, nodes, nodes))
    cost = level / np.log2(1 + 3 * fading)
    return np.broadcast_to(cost, (slots, nodes, nodes)).copy()


def ages_by_hand(starts, lasting, slots):
    """Return the sum of ages if refreshes start in these slots."""
    held = np.zeros(slots)
    for r in starts:
        if r + lasting[r] < slots:
            late = held[r + lasting[r] :]
            late[:] = np.maximum(late, r)
    return (np.arange(slots) - held).sum()


@given(st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_the_best_refreshes_are_those_of_all_subsets(seed):
    rng = np.random.default_rng(seed)
    slots = 9
    lasting, prices = rng.integers(1, 5, (3, slots)), rng.exponential(4.0, (3, slots))

    found = fl.best_refreshes(lasting, prices, slots)

    for n in range(3):
        every = (c for m in range(slots) for c in combinations(range(1, slots), m))
        best = min(ages_by_hand(c, lasting[n], slots) + prices[n][list(c)].sum() for c in every)
        assert found.value[n] == pytest.approx(best)
        starts = np.flatnonzero(found.times[n])
        again = ages_by_hand(starts, lasting[n], slots) + prices[n][starts].sum()
        assert again == pytest.approx(best)


def test_a_bound_on_gaps_only_lowers_the_value():
    rng = np.random.default_rng(1)
    lasting, prices = rng.integers(1, 9, (20, 60)), rng.exponential(300.0, (20, 60))

    values = [fl.best_refreshes(lasting, prices, gap).value for gap in (4, 8, 16, 32, 60)]

    assert all((low <= high + 1e-9).all() for low, high in pairwise(values))
    assert values[0].sum() < 0.9 * values[-1].sum()


def stopping_by_linear_program(lasting, prices, most):
    """Return the largest g with W_g(1) >= 0, as one linear program in g, W(D) and the minima."""
    draws = len(prices)
    size = 1 + most + (most - 1) * draws  # g, W(1 .. most), z(D, draw)
    rows, right = [], []

    def below(terms, limit):
        row = np.zeros(size)
        for at, factor in terms:
            row[at] += factor
        rows.append(row)
        right.append(limit)

    for d in range(1, most):
        z = [1 + most + (d - 1) * draws + n for n in range(draws)]
        below([(d, 1.0), *((at, -1.0 / draws) for at in z)], 0.0)
        for n in range(draws):
            below([(z[n], 1.0), (0, d)], d * (d - 1) / 2 + lasting[n] * d + prices[n])
            below([(z[n], 1.0), (d + 1, -1.0)], 0.0)
    below([(most, 1.0), (0, most)], most * (most - 1) / 2 + most)
    below([(1, -1.0)], 0.0)
    goal = np.zeros(size)
    goal[0] = -1.0
    return -linprog(goal, np.array(rows), np.array(right), bounds=(None, None)).fun


@pytest.mark.parametrize("seed", range(4))
def test_optimal_stopping_agrees_with_a_linear_program(seed):
    rng = np.random.default_rng(seed)
    lasting, prices = rng.integers(1, 4, (2, 6)), rng.exponential(20.0, (2, 6))

    value, paid = fl.stopping(lasting, prices, 14)

    exact = [stopping_by_linear_program(lasting[n], prices[n], 14) for n in range(2)]
    np.testing.assert_allclose(value, exact, rtol=1e-6)
    assert (value <= np.array(exact) + 1e-9).all()  # from below
    steeper, _ = fl.stopping(lasting, prices * 1.001, 14)
    np.testing.assert_allclose((steeper - value) / 0.001, paid, rtol=0.05)  # the slope in the price


@given(st.integers(0, 10**6), st.integers(2, 5))
@settings(max_examples=40, deadline=None)
def test_no_set_of_receivers_pays_more_than_its_message_costs(seed, nodes):
    cost = drop(seed, nodes, 3)
    cost[:, np.arange(nodes), np.arange(nodes)] = np.inf

    prices = fl.share_prices(cost)

    assert (prices >= 0).all()
    for k in range(nodes):
        others = [i for i in range(nodes) if i != k]
        for size in range(1, nodes):
            for who in map(list, combinations(others, size)):
                assert (prices[:, who, k].sum(axis=1) <= cost[:, who, k].max(axis=1)).all()
        everyone = prices[:, others, k].sum(axis=1)
        assert (everyone > 0.5 * cost[:, others, k].max(axis=1)).all()  # and not far below


def arrival_by_heap(cost, slot, origin):
    """Return the times after `slot` at which news of the origin can be at each node."""
    slots, nodes, _ = cost.shape
    best, queue = np.full(nodes, np.inf), [(float(slot), origin)]
    while queue:
        time, k = heapq.heappop(queue)
        if time >= best[k]:
            continue
        best[k] = time
        for start in [time, *range(int(time) + 1, slots)]:  # go on at once, or in a later block
            for i in range(nodes):
                if i != k and start < slots:
                    heapq.heappush(queue, (start + cost[int(start), i, k], i))
    return best - slot


@pytest.mark.parametrize("seed", range(5))
def test_the_earliest_arrival_is_the_shortest_way_through_time(seed):
    cost = drop(seed, 4, 12)
    cost[:, np.arange(4), np.arange(4)] = np.inf

    found = fl.earliest_arrival(cost, 8)

    for slot, origin in product(range(12), range(4)):
        exact = np.minimum(arrival_by_heap(cost, slot, origin), 8)
        np.testing.assert_allclose(found[slot, :, origin], exact)


def test_a_concave_function_is_climbed_by_tangents():
    calls = []

    def dual(price):
        calls.append(price)
        return 7.0 - (price - 3.3) ** 2 / 10, -(price - 3.3) / 5

    found = fl.maximise(dual)

    assert 7.0 * (1 - 5e-3) <= found.value_slots <= 7.0 <= found.best_slots
    assert len(calls) < 12


@pytest.mark.parametrize("start", [0.01, 2.0, 3.3, 9.0])
def test_a_search_may_start_on_either_side_and_at_a_band_that_is_not_short(start):
    def dual(price):
        return 7.0 - (price - 3.3) ** 2 / 10, -(price - 3.3) / 5

    found = fl.maximise(dual, start=start)

    assert 7.0 * (1 - 5e-3) <= found.value_slots <= 7.0 <= found.best_slots
    ample = fl.maximise(lambda price: (2.0 - price, -1.0), start=start)
    assert ample.value_slots == pytest.approx(2.0) == ample.best_slots
    assert ample.price == 0


@pytest.mark.parametrize("nodes", [2, 3])
def test_round_robin_meets_the_floor_of_a_symmetric_static_channel(nodes):
    lasts = 3
    cost = np.full((900, nodes, nodes), float(lasts))
    optimum = lasts + (nodes * lasts - 1) / 2  # ages c .. c + Ic - 1

    searched = min(
        cyclic_age(cost[0], senders)
        for length in range(nodes, 7)
        for senders in product(range(nodes), repeat=length)
    )
    floors = fl.floor_direct(cost), fl.floor_any(cost), fl.floor_direct(cost, knowledge="now")

    assert searched == pytest.approx(optimum)
    for found in floors:
        assert 0.98 * optimum < found.value_slots <= optimum
        assert found.value_slots <= found.best_slots
        assert found.airtime == pytest.approx(1.0, abs=0.15)  # the slope jumps there


@pytest.mark.parametrize("costs", [(1, 4), (2, 5), (3, 3), (1, 9)])
def test_two_unequal_nodes_come_near_the_best_cycle(costs):
    cost = np.zeros((600, 2, 2))
    cost[:, 1, 0], cost[:, 0, 1] = costs  # of the senders 0 and 1
    best = min(
        cyclic_age(cost[0] + np.eye(2), senders)
        for length in range(2, 9)
        for senders in product(range(2), repeat=length)
    )

    found = fl.floor_direct(cost).value_slots

    assert 0.85 * best < found <= best  # one message at a time: the relaxation does not ask it


def test_no_schedule_is_below_its_floor():
    closest = dict.fromkeys(KINDS, np.inf)
    for seed in range(40):
        nodes, first = 2 + seed % 3, seed % 4 * 3
        cost = drop(seed, nodes, 30, static=seed % 5 == 0)
        direct = fl.floor_direct(cost, first_slot=first).value_slots
        anyhow = fl.floor_any(cost, first_slot=first).value_slots
        for kind, rule in product(KINDS, (random_choice, None)):
            age = mean_age(play(cost, kind, rule or index_choice(kind), seed), first)
            under = direct if kind == "copy" else anyhow
            assert age >= under
            closest[kind] = min(closest[kind], age / under)
    assert max(closest.values()) < 1.4  # the floors are not empty words


def test_sums_go_below_the_floor_of_direct_copies():
    cost = np.full((200, 5, 5), 60.0)  # a chain: neighbours are near, all others far
    for k in range(4):
        cost[:, k, k + 1] = cost[:, k + 1, k] = 0.9

    sums = mean_age(play(cost, "sum", index_choice("sum")), 50)

    assert sums < fl.floor_direct(cost, first_slot=50).value_slots
    assert sums >= fl.floor_any(cost, first_slot=50).value_slots


@pytest.mark.parametrize("allocation", ["optimal", "uniform"])
def test_the_radio_of_the_paper_stays_above_the_floors_of_its_own_draws(allocation):
    slots, bits = 60, 16 * 430_698
    network = RadioNetwork(-5.0, allocation=allocation)

    ages = np.arange(slots)[:, None, None] - record_timeline(network, 5, slots, 3, bits).held
    cost = fl.cost_draws(network, 5, slots, 3, bits)

    for first in (0, 20):
        direct, anyhow = (
            fl.floor_direct(cost, first_slot=first),
            fl.floor_any(cost, first_slot=first),
        )
        assert mean_age(ages, first) >= direct.value_slots >= anyhow.value_slots > 1.0


def test_the_costs_are_those_that_the_network_meets():
    slots, bits = 80, 16 * 20_000
    network = RadioNetwork(-np.inf, slot_s=0.05)  # two nodes hear each other in every epoch

    held = record_timeline(network, 2, slots, 1, bits).held[:, 0, 1]
    cost = fl.cost_draws(network, 2, slots, 1, bits)

    stamp, expected = 1, np.zeros(slots, int)
    while stamp < slots:  # Proposition 1: both end together, after the sum of what they take
        end = stamp + int(np.ceil((cost[stamp, 0, 1] + cost[stamp, 1, 0]) * (1 - 1e-6)))
        expected[end:] = stamp
        stamp = end
    np.testing.assert_array_equal(held, expected)
    assert len(np.unique(held)) > 5


def test_a_longer_message_never_lowers_a_floor():
    cost = drop(3, 4, 60)

    for build in (fl.floor_direct, fl.floor_any):
        values = [build(cost * factor) for factor in (0.5, 1.0, 2.0)]
        assert values[0].value_slots < values[1].best_slots
        assert values[1].value_slots < values[2].best_slots


def test_wrong_costs_are_refused_with_what_to_do():
    with pytest.raises(ValueError, match=r"expected costs \(slot, rx, tx\)"):
        fl.floor_any(np.ones((9, 2, 3)))
    with pytest.raises(ValueError, match="look for NaN or 0"):
        fl.floor_direct(np.zeros((9, 2, 2)))
    with pytest.raises(ValueError, match="three slots"):
        fl.floor_direct(np.ones((9, 2, 2)), first_slot=7)
    with pytest.raises(ValueError, match="'future' or 'now'"):
        fl.floor_direct(np.ones((9, 2, 2)), knowledge="past")
