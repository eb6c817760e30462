"""Fresh air told again: one message at a time, event by event, in plain Python and float64.

Receivers are found by trying all sets of them, not by sorting; nothing is imported from the
package. Times are in slots, arrays are [rx, tx] and [rx, origin].
"""

from itertools import combinations
from typing import NamedTuple

import numpy as np

EDGE = 1e-5  # a transfer that ends so near the end of a slot ends with it


class Message(NamedTuple):
    """One transfer."""

    sender: int
    receivers: frozenset[int]
    stamps: dict[int, int]  # origin -> stamp
    start: float
    end: float
    began: int  # the slot in which it was decided about
    addressed: int  # how many receivers it had then


class Told(NamedTuple):
    """What happened."""

    held: np.ndarray  # (slot + 1, rx, origin) when a slot begins; the diagonal means nothing
    messages: list[Message]
    sends: np.ndarray  # (slot + 1, tx): a payload with this stamp was frozen


def gain(ages_i, ages_k, i, k, j, omega, message):
    """Return what i gains from the message of k, of origin j, by the definitions."""
    others = [o for o in range(len(ages_i)) if o != i]
    if message in ("copy", "forward"):
        return 0.0 if i == j else max(omega[i][j] * (ages_i[j] ** 2 - ages_k[j] ** 2), 0.0)
    if sum(omega[i][o] * (ages_i[o] - ages_k[o]) for o in others) <= 0:
        return 0.0  # it would not adopt it
    return max(sum(omega[i][o] * (ages_i[o] ** 2 - ages_k[o] ** 2) for o in others), 0.0)


def best_of(k, ages, own_ages, cost, omega, message):
    """Return (index, slots, origin) of sender k over all sets of receivers and all origins."""
    nodes = len(own_ages)
    others = [i for i in range(nodes) if i != k and np.isfinite(cost[i][k])]
    origins = range(nodes) if message == "forward" else [k]
    best = (0.0, np.inf, k)
    for size in range(1, len(others) + 1):
        for chosen in combinations(others, size):
            slots = max(cost[i][k] for i in chosen)
            for j in origins:
                total = sum(gain(ages[i], own_ages, i, k, j, omega, message) for i in chosen)
                if (-total / slots, slots, j) < (-best[0], best[1], best[2]):
                    best = (total / slots, slots, j)
    return best


def tell(costs, message, offers, present, omega, *, heard=False, contention=0.0):
    """Return what fresh air does with `costs` (slot, rx, tx), from slot 1 on.

    `offers` and `present` are (slot, node): has it something new, and is it there, in this slot.
    """
    slots, nodes, _ = costs.shape
    held = np.zeros((nodes, nodes), int)
    known = np.zeros((nodes, nodes, nodes), int)  # what the first believes of the second
    history, messages, sends = [held.copy()], [], np.zeros((slots + 1, nodes), bool)
    flight, free = None, 1.0
    for s in range(1, slots):
        history.append(held.copy())
        there = present[s]
        if flight is not None:
            stay = {i for i in flight.receivers if there[i] and there[flight.sender]}
            flight = flight._replace(receivers=frozenset(stay))
        if free > s + 1:
            continue
        own = [s if offers[s][k] and there[k] else held[k][k] for k in range(nodes)]
        absent = ~(there[:, None] & there[None])
        cost = np.where(absent, np.inf, costs[s])
        while True:
            if flight is not None and free <= s + 1:
                _hand_over(held, known, flight, omega, message)
                flight = None
            if free >= s + 1:
                break
            rows = [[own[k] if j == k else held[k][j] for j in range(nodes)] for k in range(nodes)]
            ages = s - np.array(rows)

            seen = s - known if heard else [ages] * nodes  # by each sender, of each node
            index = [best_of(k, seen[k], ages[k], cost, omega, message)[0] for k in range(nodes)]
            k = int(np.argmax(index))
            if index[k] <= 0:
                free = s + 1.0
                break
            _, length, j = best_of(k, seen[k], ages[k], cost, omega, message)
            receivers = frozenset(i for i in range(nodes) if i != k and cost[i][k] <= length)
            origins = range(nodes) if message == "sum" else [j]
            stamps = {o: int(rows[k][o]) for o in origins}
            if k in stamps:
                held[k][k] = own[k]
                sends[s][k] |= bool(offers[s][k] and there[k])
            wait = contention * sum(value > 0.9 * index[k] for value in index) if heard else 0.0
            start, free = free + wait, free + wait + length
            if abs(free - round(free)) < EDGE:
                free = float(round(free))
            flight = Message(k, receivers, stamps, start, free, s, len(receivers))
            messages.append(flight)
    history.append(held.copy())
    return Told(np.array(history), messages, sends)


def _hand_over(held, known, flight, omega, message):
    """Let the receivers take what they are to take, and know of each other."""
    for i in flight.receivers:
        steps = {o: stamp - held[i][o] for o, stamp in flight.stamps.items() if o != i}
        if message == "sum":
            takes = steps if sum(omega[i][o] * step for o, step in steps.items()) > 0 else {}
        else:
            takes = {o for o, step in steps.items() if step > 0}
        for o in takes:
            held[i][o] = flight.stamps[o]
    part = [flight.sender, *flight.receivers]
    for a in part:
        for b in part:
            known[a][b] = held[b]
