"""Rounds on a band with one sender at a time, told plainly: loops, sets and lists, no JAX.

`costs[s]` (rx, tx) are the slots of a message in slot s. A round that begins at the end of slot t
has its first transfers in slot t + 1.
"""

from itertools import product

import numpy as np

MEMORY = 16


def worth(past):
    """Return V = mean of min(c, 1 + V) over a list of costs, by trying every kink.

    The sum of the minima less n V is piecewise linear in V, so its zero is between two kinks. Costs
    that are missing of `MEMORY` count together as one of a slot with the weight of their part.
    """
    past = list(past)[-MEMORY:]
    weight = 1.0 - len(past) / MEMORY
    terms = [(1.0, c) for c in past]

    def left(v):
        return sum(w * (min(c, 1 + v) - v) for w, c in terms) + weight * (1.0 - v)

    kinks = sorted({0.0, 1.0, *[max(c - 1, 0.0) for c in past], *past})
    for low, high in zip(kinks, [*kinks[1:], kinks[-1] + 1], strict=True):
        a, b = left(low), left(high)
        if a > 0 >= b:
            return low + (high - low) * a / (a - b)
    return 0.0


def broadcast(waiting, now):
    """Return (index, sender, receivers, slots) of the best prefix; ties to the lowest sender."""
    n, best = len(now), None
    for k in range(n):
        able = sorted((now[i, k], i) for i in range(n) if waiting[i, k] and np.isfinite(now[i, k]))
        for m in range(1, len(able) + 1):
            value = m / able[m - 1][0]
            if best is None or value > best[0] * (1 + 1e-6):
                best = (value, k, {i for _, i in able[:m]}, able[m - 1][0])
    return best


def trees(cost, holders):
    """Yield (cost, root, parents) of the tree that grows from each root."""
    n = len(cost)
    way = np.where(np.eye(n, dtype=bool), 0.0, cost)
    for k, i, j in product(range(n), repeat=3):  # k outermost: ways over more and more nodes
        way[i, j] = min(way[i, j], way[i, k] + way[k, j])
    for root in holders:
        inside, parent, total = [root], {}, 0.0
        while len(inside) < len(holders):
            edges = [(cost[i, k], i, k) for i in inside for k in holders if k not in inside]
            least = min(edges)
            total, parent[least[2]] = total + least[0], least[1]
            inside.append(least[2])
        yield total + max(way[:, root]), root, parent


def join(held, now, later):
    """Return the leaf of the best tree that saves the most, and to whom it passes its sum."""
    holders = [i for i, parts in enumerate(held) if parts]
    _, _, parent = min(trees(np.minimum(now, later), holders), key=lambda tree: tree[0])
    leaves = [k for k in parent if k not in parent.values() and np.isfinite(now[parent[k], k])]
    if not leaves:
        return None
    k = max(leaves, key=lambda k: (later[parent[k], k] - now[parent[k], k]) / now[parent[k], k])
    return 1.0, k, {parent[k]}, now[parent[k], k]


class Copies:
    """Every pair of `wanted` is to be served; without it each node sends once."""

    def __init__(self, wanted, n):
        self.once = wanted is None
        self.missing = {
            (i, k) for i in range(n) for k in range(n) if i != k and (self.once or wanted[i, k])
        }

    def over(self):
        return not self.missing

    def choose(self, now, later):
        del later  # copies go by their index alone
        waiting = np.zeros(now.shape, bool)
        for pair in self.missing:
            waiting[pair] = True
        return broadcast(waiting, now)

    def take(self, sender, receivers):
        self.missing -= {
            (i, k) for i, k in self.missing if k == sender and (self.once or i in receivers)
        }


class Sums:
    """Everyone is to have the sum of all: sets of contributions that are added where disjoint."""

    def __init__(self, wanted, n):
        del wanted  # everyone wants the sum
        self.held, self.n = [{i} for i in range(n)], n
        self.whole = {0} if n == 1 else set()

    def over(self):
        return len(self.whole) == self.n

    def choose(self, now, later):
        if not self.whole:
            return join(self.held, now, later)
        waiting = np.zeros(now.shape, bool)
        for i, k in product(range(self.n), repeat=2):
            waiting[i, k] = k in self.whole and i not in self.whole
        return broadcast(waiting, now)

    def take(self, sender, receivers):
        if sender in self.whole:
            self.whole |= receivers
            return
        (to,) = receivers
        assert not self.held[to] & self.held[sender]  # never twice in one sum
        self.held[to] |= self.held[sender]
        self.held[sender] = set()
        if len(self.held[to]) == self.n:
            self.whole.add(to)


def rounds(costs, task, wanted=None):
    """Return, for each slot, the stamp held at its end and the transfers that start in it.

    All nodes offer in every slot. A transfer is (sender, receivers).
    """
    n, slots = costs.shape[1], len(costs) - 1
    past = {pair: [] for pair in product(range(n), repeat=2)}
    held, since, at, on_air, busy = 0, 0, None, None, 0.0
    told, started = [], []
    for t in range(slots):
        mine = []
        if at is not None and at.over():
            held, at = since, None
        elif at is None:
            at, since = task(wanted, n), t + 1
        told.append(held)
        if at is not None and busy <= 1:
            cost = costs[t + 1]
            v = np.full((n, n), np.inf)
            for i, k in past:
                if i != k:
                    past[i, k].append(float(cost[i, k]))
                    v[i, k] = worth(past[i, k])
            while busy < 1:
                if on_air:
                    at.take(*on_air)
                    on_air = None
                if at.over():
                    break
                later = 1 - busy + v
                now = np.where((cost <= later) & ~np.eye(n, dtype=bool), cost, np.inf)
                turn = at.choose(now, later)
                if turn is None:
                    busy = 1.0
                    break
                on_air = turn[1:3]
                mine.append(on_air)
                busy += turn[3]
            if busy <= 1 and on_air:
                at.take(*on_air)
                on_air = None
        busy = max(busy - 1, 0.0)
        started.append(mine)
    return told, started
