"""What has to leave a node: the problem of one origin in the floor of any scheme.

Whatever messages hold, news of node j leaves j in a message of j. In slot r it may reach the first
p receivers of j by their costs c_ij(r). Then it occupies the band for the cost of the p-th, is at
the m-th of them not before r + c_(m)j, and goes on from there. So one set of slots serves all the
receivers of j, and a cheap message costs time on the way. `best_sendings` finds the slots and
the reaches that make the sum of ages and prices least. Proof: docs/fresh-air-theory.md, L2.

Reaches are taken together in groups of 1, 1, 2, 4, 8 ... receivers. A group has the price of its
cheapest and the arrivals of its widest, so that no scheme is left out.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy import ndarray

from folkman.arrays import Float, Int

__all__ = ["Leaving", "Sendings", "best_sendings", "leaving", "sendings_dual"]


class Leaving(NamedTuple):
    """What a message of each node costs that starts in a slot, and when its news is where."""

    price: Float[ndarray, "slot group tx"]  # slots of the band
    held: Int[ndarray, "slot group rx tx"]  # the first slot in which rx can have it


class Sendings(NamedTuple):
    """The best sendings of every origin."""

    value: Float[ndarray, " tx"]  # the sum of its receivers' ages and of the prices paid
    paid: Float[ndarray, " tx"]  # slots of the band


def leaving(
    cost: Float[ndarray, "slot rx tx"],
    arrival: Float[ndarray, "slot rx origin"],
    whole: Callable[[ndarray], ndarray],
) -> Leaving:
    """Return prices and arrivals by reach; `arrival` is the earliest over all ways from a slot on.

    From a receiver l the news goes on no sooner than it is there, and no sooner than if it had been
    there when that slot began. A message of a later slot may bring it as well, whatever its reach.
    """
    slots, nodes, _ = cost.shape
    first, last = _groups(nodes - 1)
    price = np.sort(cost, axis=1)[:, first]
    soonest = np.arange(slots)[:, None, None] + whole(arrival)
    held = np.empty((slots, len(first), nodes, nodes), np.int64)
    for j in range(nodes):
        ways = _by_receiver(cost[:, :, j], arrival)
        order = np.argsort(cost[:, :, j], axis=1)[..., None]
        reached = np.minimum.accumulate(np.take_along_axis(ways, order, axis=1), axis=1)
        held[..., j] = np.arange(slots)[:, None, None] + whole(reached[:, last])
    held[:-1] = np.minimum(held[:-1], soonest[1:, None])
    return Leaving(price, np.maximum(held, soonest[:, None]))


def _groups(receivers: int) -> tuple[ndarray, ndarray]:
    """Return the first and the last of 1, 1, 2, 4, ... receivers, counted from 0."""
    first = np.unique([0, *(2**n for n in range(receivers.bit_length()) if 2**n < receivers)])
    return first, np.append(first[1:] - 1, receivers - 1)


def _by_receiver(
    cost: Float[ndarray, "slot l"], arrival: Float[ndarray, "slot rx origin"]
) -> Float[ndarray, "slot l rx"]:
    """Return when news of one sender can be at rx if receiver l is the one that passes it on."""
    slots, nodes = cost.shape
    there = np.minimum(cost, slots + 1.0)
    at = np.arange(slots)[:, None] + np.floor(there).astype(np.int64)
    on = arrival[np.minimum(at, slots - 1), :, np.arange(nodes)[None]]
    on = np.where((at < slots)[..., None], on, 0.0) + np.floor(there)[..., None]
    return np.maximum(on, there[..., None])


def best_sendings(
    options: Leaving, price: float, receivers: int, longest_gap: int = 128
) -> Sendings:
    """Return the sendings of each origin with the least sum of ages and prices.

    With starts 0 = r_0 < r_1 < ... the ages of receiver i in slots 0 .. S-1 add up to S (S-1) / 2 -
    sum_n (r_n - r_{n-1}) (S - a_in): a shortest path over starts, as for a pair. After
    `longest_gap` slots a sending is free and is held everywhere in the next slot.
    """
    slots, _, nodes = options.price.shape
    early = np.minimum(options.held, slots) - float(slots)  # a - S, 0 beyond the end
    early[:, :, np.arange(nodes), np.arange(nodes)] = 0.0
    slope, every = early.sum(axis=2), np.arange(nodes)
    gap = min(longest_gap, slots)
    gaps = np.arange(gap, 0, -1.0)  # r - r_before, as the window of the last `gap` starts lies
    least, spent = np.full((nodes, gap + slots), np.inf), np.zeros((nodes, gap + slots))
    least[:, gap] = 0.0  # slot r is at gap + r
    for r in range(1, slots):
        cost = slope[r].T[..., None] * gaps + price * options.price[r].T[..., None]
        group = cost.argmin(axis=1)  # (tx, gap)
        cost = np.take_along_axis(cost, group[:, None], axis=1)[:, 0]
        free = (r + 1.0 - slots) * gap * receivers
        unpaid = cost[:, 0] > free
        cost[:, 0] = np.minimum(cost[:, 0], free)
        cost += least[:, r : r + gap]
        choice = cost.argmin(axis=1)
        least[:, gap + r] = cost[every, choice]
        bought = options.price[r, group[every, choice], every]
        now = np.where(unpaid & (choice == 0), 0.0, bought)
        spent[:, gap + r] = now + spent[every, r + choice]
    at = least.argmin(axis=1)
    value = receivers * slots * (slots - 1) / 2 + least[every, at]
    return Sendings(value, spent[every, at])


def sendings_dual(
    options: Leaving, slots: int, longest_gap: int
) -> Callable[[float], tuple[float, float]]:
    """Return the dual function of the draws, per pair and slot: price -> (value, slope)."""
    window, _, nodes = options.price.shape
    pairs, whole = nodes * (nodes - 1), window - 1  # messages that count lie in [1, slots]

    def dual(price: float) -> tuple[float, float]:
        found = best_sendings(options, price * pairs, nodes - 1, longest_gap)
        value = found.value.sum() / (pairs * slots) - price * whole / slots
        return float(value), float((found.paid.sum() - whole) / slots)

    return dual
