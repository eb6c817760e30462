"""A plain re-telling of messages on one band: who holds news of whom, and how old it is.

One message at a time takes the whole band. A message that starts at time t carries what its sender
knows at t, stamped with the last whole slot, and takes the largest cost among its receivers in the
block of slot floor(t). Costs are cost[slot, rx, tx], in slots.
"""

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np

KINDS = ("copy", "forward", "sum", "everything")


def known(held, kind, sender, origin, now):
    """Return the stamps (origin,) that a message carries, -1 for what it does not."""
    nodes = len(held)
    mine = held[sender].copy()
    mine[sender] = now
    if kind == "copy":
        return np.where(np.arange(nodes) == sender, mine, -1)
    return np.where(np.arange(nodes) == origin, mine, -1) if kind == "forward" else mine


def receive(held, kind, stamps, receivers, now):
    """Change `held` [rx, origin] by a message: whole sums are taken if they are younger in all."""
    for i in receivers:
        others = np.arange(len(held)) != i
        if kind == "whole":  # the sender decided who takes it
            held[i] = np.where(others, stamps, held[i])
        elif kind != "sum":
            held[i] = np.where(others, np.maximum(held[i], stamps), held[i])
        elif (stamps - held[i])[others].sum() > 0:
            held[i] = np.where(others, stamps, held[i])


def index_choice(kind: str) -> Callable:
    """Return the index rule: the sender, origin and receivers of the most gain per cost."""

    def choose(held, cost, slot, rng):
        del rng
        nodes, best, found = len(held), 0.0, None
        for k in range(nodes):
            order = [i for i in np.argsort(cost[:, k]) if i != k]
            for origin in range(nodes) if kind == "forward" else [k]:
                stamps = known(held, kind, k, origin, slot)
                gain, taken, whole = 0.0, [], kind in ("sum", "whole")
                for m, i in enumerate(order):
                    new, old = slot - stamps.astype(float), slot - held[i].astype(float)
                    each = np.where(stamps >= 0, old**2 - new**2, 0.0)
                    each[i] = 0.0
                    mine = max(each.sum(), 0.0) if whole else np.maximum(each, 0).sum()
                    gain, taken = gain + mine, [*taken, i] if mine > 0 else taken
                    if gain / cost[i, k] > best:
                        best, found = gain / cost[i, k], (k, origin, order[: m + 1])
                        found = (k, origin, taken) if kind == "whole" else found
        return found

    return choose


def random_choice(held, cost, slot, rng):
    """Return any sender with any origin to any of its receivers, or nobody."""
    del slot
    nodes = len(held)
    k, origin = rng.integers(nodes, size=2)
    order = [i for i in np.argsort(cost[:, k]) if i != k]
    chosen = (k, origin, order[: rng.integers(1, nodes)])
    return chosen if rng.random() < 0.9 else None


def play(cost, kind, choose, seed=0):
    """Return the ages (slot, rx, origin) under a rule that chooses whenever the band is free."""
    slots, nodes, _ = cost.shape
    rng = np.random.default_rng(seed)
    held, ages, time, flying = np.zeros((nodes, nodes), int), np.zeros(cost.shape, int), 1.0, None
    for s in range(slots):
        if flying is not None and time <= s:
            receive(held, kind, *flying, s)
            flying = None
        ages[s] = s - held
        while time < s + 1:
            if flying is not None:
                receive(held, kind, *flying, s)
                flying = None
            time = max(time, float(s))
            chosen = choose(held, cost[s], s, rng)
            if chosen is None:
                time = float(s + 1)
                break
            k, origin, receivers = chosen
            flying = (known(held, kind, k, origin, s), receivers)
            time += max(cost[s, i, k] for i in receivers)
    ages[:, np.arange(nodes), np.arange(nodes)] = 0
    return ages


def mean_age(ages, first_slot=0):
    """Return the mean over all pairs and all slots from the first on."""
    return ages[first_slot:][:, ~np.eye(ages.shape[1], dtype=bool)].mean()


def cyclic_age(cost, senders):
    """Return the mean age over pairs, without end, if `senders` repeat and all hear all copies.

    The channel is static, costs (rx, tx) whole slots.
    """
    nodes = len(cost)
    spent = [int(max(cost[i, k] for i in range(nodes) if i != k)) for k in senders]
    starts = np.concatenate([[0], np.cumsum(spent)])
    period, total = int(starts[-1]), 0.0
    for k in range(nodes):
        mine = [(int(starts[n]), spent[n]) for n, who in enumerate(senders) if who == k]
        if not mine:
            return math.inf
        mine.append((mine[0][0] + period, mine[0][1]))
        for (r, c), (r2, c2) in pairwise(mine):  # held from r + c until r2 + c2
            ages = np.arange(c, r2 + c2 - r)
            total += ages.sum()
    return total / (nodes * period)
