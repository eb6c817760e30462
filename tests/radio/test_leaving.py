"""What has to leave a node: the solver against all sendings, and arrivals against a search."""

import heapq
from itertools import combinations, product

import numpy as np
import pytest

from folkman.radio import floor as fl
from folkman.radio import leaving as lv
from tests.reference.band import index_choice, mean_age, play, random_choice


def drop(seed, nodes, slots):
    """Return costs (slot, rx, tx): a level for each pair, and fading like that of rates."""
    rng = np.random.default_rng(seed)
    level = np.exp(1.5 * rng.standard_normal((nodes, nodes)))
    cost = level / np.log2(1 + 3 * rng.exponential(size=(slots, nodes, nodes)))
    cost[:, np.arange(nodes), np.arange(nodes)] = np.inf
    return cost


def ages_of(sent, options, origin, slots):
    """Return the sum of all receivers' ages of an origin whose sendings are {slot: group}."""
    total = 0
    for i in range(options.held.shape[2]):
        if i == origin:
            continue
        held = np.zeros(slots, int)
        for r, group in sent.items():
            at = options.held[r, group, i, origin]
            held[at:] = np.maximum(held[at:], r)
        total += (np.arange(slots) - held).sum()
    return total


@pytest.mark.parametrize("seed", range(3))
def test_no_sendings_do_better_than_the_best(seed):
    slots, nodes, price = 7, 3, 1.5
    cost = drop(seed, nodes, slots)
    options = lv.leaving(cost, fl.earliest_arrival(cost), fl._whole)
    groups = range(options.price.shape[1])

    found = lv.best_sendings(options, price, nodes - 1, slots)

    for j in range(nodes):
        values = {}
        for number in range(slots):
            for starts in combinations(range(1, slots), number):
                for chosen in product(groups, repeat=number):
                    sent = dict(zip(starts, chosen, strict=True))
                    paid = sum(options.price[r, group, j] for r, group in sent.items())
                    values[ages_of(sent, options, j, slots) + price * paid] = paid
        best = min(values)
        assert found.value[j] == pytest.approx(best, abs=1e-9)
        assert found.paid[j] == pytest.approx(values[best], abs=1e-9)


def arrival_from(cost, slot, sender, reach):
    """Return when news that leaves `sender` in `slot` for its first `reach` receivers is where."""
    slots, nodes, _ = cost.shape
    near = np.argsort(cost[slot, :, sender])[:reach]
    best, queue = np.full(nodes, np.inf), [(slot + cost[slot, i, sender], i) for i in near]
    while queue:
        time, k = heapq.heappop(queue)
        if time >= best[k]:
            continue
        best[k] = time
        for start in [time, *range(int(time) + 1, slots)]:
            for i in range(nodes):
                if i not in (k, sender) and start < slots:
                    heapq.heappush(queue, (start + cost[int(start), i, k], i))
    return best


def test_no_news_is_anywhere_before_it_is_said_to_be():
    slots, nodes, more = 8, 8, 0
    first, last = lv._groups(nodes - 1)
    others = ~np.eye(nodes, dtype=bool)
    for seed in range(4):
        cost = 3 * drop(seed, nodes, slots)
        arrival = fl.earliest_arrival(cost)
        options = lv.leaving(cost, arrival, fl._whole)
        soonest = np.arange(slots)[:, None, None] + fl._whole(arrival)
        for r, j, group in product(range(1, slots - 1), range(nodes), range(len(first))):
            exact = arrival_from(cost, r, j, int(last[group]) + 1)
            exact = np.minimum(exact, r + 1 + arrival[r + 1, :, j])  # or by a later message
            at, least = options.held[r, group, :, j][others[j]], soonest[r, :, j][others[j]]
            assert (at <= np.maximum(np.ceil(exact[others[j]]), r + 1)).all()
            assert (at >= least).all()
            assert options.price[r, group, j] == np.sort(cost[r, :, j])[first[group]]
            more += (at > least).sum()
    assert more > 50  # it says more than the earliest arrival does


def test_reaches_fall_into_groups_that_leave_none_out():
    for receivers in range(1, 40):
        first, last = lv._groups(receivers)
        covered = [n for a, b in zip(first, last, strict=True) for n in range(a, b + 1)]
        assert covered == list(range(receivers))


def test_a_price_per_pair_in_which_receivers_choose_apart_is_never_above():
    """The floor of one problem for each pair (the same arrivals, a price split evenly) is lower."""
    raised = []
    for seed in range(8):
        nodes, slots = 3 + seed % 3, 40
        cost = fl._window(np.nan_to_num(drop(seed, nodes, slots), posinf=1.0), 0)
        rx, tx = fl._pairs(cost)
        lasting = fl._whole(fl.earliest_arrival(cost)[:, rx, tx].T)
        apart = fl._path_dual(lasting, cost.min(axis=1)[:, tx].T / (nodes - 1), slots, 128)
        options = lv.leaving(cost, fl.earliest_arrival(cost), fl._whole)
        joint = lv.sendings_dual(options, slots, 128)
        for price in (0.0, 0.05, 0.3, 1.0):
            assert joint(price)[0] >= apart(price)[0] - 1e-9
        raised.append(fl.maximise(joint).value_slots / fl.maximise(apart).value_slots)
    assert max(raised) > 1.03


def cycle(senders, reach):
    """Return a rule by which these send in turn, each to all who need no more than `reach`."""
    turn = iter(senders * 1000)

    def choose(held, cost, slot, rng):
        del held, slot, rng
        k = next(turn)
        return k, k, [i for i in range(len(cost)) if i != k and cost[i, k] <= reach]

    return choose


@pytest.mark.parametrize("far", [1.0, 4.0])
def test_on_a_line_of_three_every_cycle_of_senders_is_above_it(far):
    """0 - 1 - 2, messages hold all that is known: some cycle comes near, and none is below."""
    cost = np.full((90, 3, 3), far)
    cost[:, [0, 1, 1, 2], [1, 0, 2, 1]] = 1.0
    found = fl.floor_any(cost, first_slot=30).value_slots

    ages = [
        mean_age(play(cost, "everything", cycle(senders, reach)), 30)
        for length in (3, 4)
        for senders in product(range(3), repeat=length)
        for reach in {1.0, far}
    ]

    assert min(ages) >= found > 0.75 * min(ages)


def test_no_scheme_is_below_it():
    closest = np.inf
    for seed in range(40):
        nodes, first = 3 + seed % 4, seed % 5
        cost = np.nan_to_num(drop(1000 + seed, nodes, 26), posinf=1.0)
        floor = fl.floor_any(cost, first_slot=first).value_slots
        for kind, rule in product(("sum", "everything"), (random_choice, None)):
            age = mean_age(play(cost, kind, rule or index_choice(kind), seed), first)
            assert age >= floor
            closest = min(closest, age / floor)
    assert closest < 1.4
