"""Floors: mean ages that no schedule of a drop of nodes can be below.

    floor_direct(cost_slots)    of every schedule of direct copies, whatever shares of the band
    floor_any(cost_slots)       of every scheme at all: forwarding, sums, any coding of messages

`cost_slots[slot, rx, tx]` is what one message takes on the whole band if it starts in that slot,
c = S / (T B log2(1 + SINR)). A message of k to the receivers Y that starts in slot r occupies
max_{i in Y} c_ik(r) slots of the whole band, and shares of the band add up to at most 1. Its
payload is that of its start: news of stamp r is held from the first slot s >= r + c_ik(r) on. The
age in slot s is s - stamp. In slot 0 all nodes hold stamp 0.

A floor is the value of a Lagrange relaxation. With x_ij(s) the ages, N = I (I - 1) pairs, W slots
and mu >= 0 the price of a slot of the band,

    N W (mean age)  >=  sum_ij sum_s x_ij(s)  +  mu ( sum of max_{i in Y} c_ik(r)  -  W )

for every schedule, because the bracket is not positive. Prices pi_ik(r) of a pair with

    sum_{i in Y} pi_ik(r)  <=  max_{i in Y} c_ik(r)    for all Y,                            (1)

part the price of a message between the pairs that it serves. Then every pair (i, k) has a problem
of its own, min sum_s x_ik(s) + mu sum_r pi_ik(r) over its own refreshes, and the sum of their
values minus mu W is a floor for every mu and every pi of (1). It is concave in mu: `maximise`
climbs it by tangents. Proofs and measurements: docs/fresh-air-theory.md.

Nothing is assumed of the fading: each pair may know all draws in advance, so that the floor holds
on these very draws, for static channels and correlated ones alike. `knowledge="now"` is the floor
of the mean over independent blocks with the law of these draws, of schedules that know the present
block alone; it is higher, and it is a statement on means, not on one run.

A floor is safe against rounding: durations are shortened by 1e-4 slots, gaps above `longest_gap`
are ended at no cost, and the result is lowered by 1e-9 of itself.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy import ndarray

from folkman.arrays import Array, Bool, Float, Int, jax, jnp
from folkman.checks import require
from folkman.keys import Stream, make_key
from folkman.radio.leaving import Leaving, leaving, sendings_dual
from folkman.radio.network import RadioNetwork

__all__ = [
    "Floor",
    "cost_draws",
    "earliest_arrival",
    "floor_any",
    "floor_direct",
    "maximise",
    "share_prices",
]

SLACK_SLOTS = 1e-4
"""Taken off every duration: a transfer that ends at a slot's edge up to rounding ends with it."""


MOST_DRAWS = 128
"""Blocks, evenly spread over the draws, whose law `knowledge="now"` takes."""


SOUGHT_SLOTS = 64
"""Of long runs the price of the band is first sought on so many slots, at least a longest gap."""


class Floor(NamedTuple):
    """A certified lower bound on the mean age over all pairs and the slots asked about."""

    value_slots: float  # no mean age can be below it
    price: float  # slots of mean age that one more slot of band per slot would save
    airtime: float  # share of the band that the relaxed problems use at this price
    best_slots: float  # no price of the band gives more than this with the same sharing of costs


class Refreshes(NamedTuple):
    """The best refreshes of many independent problems."""

    value: Float[ndarray, " problem"]  # sum of ages and prices paid
    times: Bool[ndarray, "problem slot"]  # in which slots a paid refresh starts


def floor_direct(
    cost_slots: Float[ndarray, "slot rx tx"],
    *,
    first_slot: int = 0,
    knowledge: str = "future",  # what a schedule may know of later draws: future or now
    longest_gap: int = 128,
) -> Floor:
    """Return a floor under every schedule of direct copies.

    `first_slot` is where the mean over slots begins; ages are then free to be 1 there.

    >>> import numpy as np
    >>> static = np.full((400, 3, 3), 2.0)  # the best is round robin: ages 2 to 7, mean 4.5
    >>> round(floor_direct(static).value_slots, 1)
    4.4
    >>> round(floor_direct(static, knowledge="now").value_slots, 1)  # no ends of the run to use
    4.5
    """
    cost = _window(cost_slots, first_slot)
    rx, tx = _pairs(cost)
    prices = share_prices(cost)[:, rx, tx].T
    lasting = _whole(cost[:, rx, tx].T)
    slots = len(cost_slots) - first_slot
    if knowledge == "now":
        draws = np.unique(np.linspace(1, len(cost) - 1, MOST_DRAWS).astype(int))
        return maximise(_average_dual(lasting[:, draws], prices[:, draws], longest_gap))
    require(knowledge == "future", f"knowledge is 'future' or 'now', got {knowledge!r}")
    return _best_price(lasting, prices, slots, longest_gap)


def floor_any(
    cost_slots: Float[ndarray, "slot rx tx"], *, first_slot: int = 0, longest_gap: int = 128
) -> Floor:
    """Return a floor under every scheme whose messages take at least the costs given.

    News of j with stamp r must leave j in a message that starts in slot r. One set of such messages
    serves all receivers of j. Each costs what the widest of its receivers needs, and brings the
    news no sooner than the best way on from them (`folkman.radio.leaving`).

    >>> import numpy as np
    >>> static = np.full((400, 3, 3), 2.0)  # symmetric: forwarding gains nothing
    >>> round(floor_any(static).value_slots, 1)
    4.4
    """
    cost = _window(cost_slots, first_slot)
    options = leaving(cost, earliest_arrival(cost), _whole)
    slots, part, start = len(cost_slots) - first_slot, max(SOUGHT_SLOTS, longest_gap), 0.0
    if len(cost) > 2 * part:
        short = Leaving(options.price[:part], options.held[:part])
        start = maximise(sendings_dual(short, part, longest_gap), within=5e-2).price
    return maximise(sendings_dual(options, slots, longest_gap), start=start)


def cost_draws(
    network: RadioNetwork, num_nodes: int, slots: int, seed: int, message_bits: int
) -> Float[ndarray, "slot rx tx"]:
    """Return the costs that `record_timeline` with the same arguments meets, slot by slot.

    What a node may start in slot s was drawn at the end of slot s - 1; nothing starts in slot 0.
    """
    require(network.speed_m_per_s == 0, "floors are of nodes that stay; set speed_m_per_s = 0")
    key = make_key(seed, Stream.DELAY)
    bits = network.payload_bits(message_bits)

    @jax.jit
    def draw() -> Array:
        air = network.open_air(num_nodes, key)

        def block(slot: Array) -> Array:
            fading_key = jax.random.fold_in(jax.random.fold_in(key, slot), int(Stream.FADING))
            return network.cost_slots(air, bits, fading_key)

        return jax.lax.map(block, jnp.arange(slots - 1))

    met = np.asarray(draw(), np.float64)
    return np.concatenate([met[:1], met])


def share_prices(
    cost: Float[ndarray, "slot rx tx"],
    rounds: int = 4,  # passes over the sets
) -> Float[ndarray, "slot rx tx"]:
    """Return prices pi >= 0 that satisfy (1): no set of receivers pays more than its message costs.

    Only the sets of the m cheapest receivers matter. Start with sqrt(c), and divide each price by
    the largest ratio of paid to cost among the sets that contain it: every set then pays at most
    its cost, and repeating it fills what is left. The last line makes (1) hold despite rounding.
    """
    order = np.argsort(cost, axis=1)
    rank, ranked = np.argsort(order, axis=1), np.take_along_axis(cost, order, axis=1)
    prices = np.sqrt(np.where(np.isfinite(cost), cost, 0.0))
    for _ in range(rounds):
        paid = np.cumsum(np.take_along_axis(prices, order, axis=1), axis=1)
        ratio = np.maximum.accumulate((paid / ranked)[:, ::-1], axis=1)[:, ::-1]
        worst = np.take_along_axis(ratio, rank, axis=1)
        prices = np.where(np.isfinite(cost), prices / np.where(worst > 0, worst, 1.0), 0.0)
    return prices * (1 - 1e-12)


def earliest_arrival(
    cost: Float[ndarray, "slot rx tx"],
    reach_slots: int = 32,  # times above it are cut to it
) -> Float[ndarray, "slot rx origin"]:
    """Return the least time from the start of a slot until news of each origin can be at rx.

    Over all ways and waits, with the band free for it: a hop from k that starts in slot q takes
    c_lk(q). A time above `reach_slots` is cut to it, which keeps it a lower bound.
    """
    slots, nodes, _ = cost.shape
    arrival = np.full((slots, nodes, nodes), np.inf)
    arrival[:, np.arange(nodes), np.arange(nodes)] = 0.0
    for offset in range(min(reach_slots, slots)):
        open_ = np.flatnonzero((arrival[: slots - offset] > offset).any(axis=(1, 2)))
        now, hop = arrival[open_], cost[open_ + offset]
        while len(open_):
            start = np.where(now < offset + 1, np.maximum(now, offset), np.inf)
            new = now
            for k in range(nodes):
                new = np.minimum(new, hop[:, :, k, None] + start[:, None, k])
            if np.array_equal(new, now):
                break
            now = new
        arrival[open_] = now
    return np.minimum(arrival, reach_slots)


def maximise(
    dual: Callable[[float], tuple[float, float]],  # price -> (value, slope)
    *,
    start: float = 0.0,  # the price to begin with
    most: int = 24,  # prices that are tried at most
    within: float = 5e-3,  # share of the maximum by which the result may be below it
) -> Floor:
    """Maximise a concave `dual`: price -> (value, slope); slope + 1 is the airtime.

    Every value is a floor. Tangents bound the maximum from above; the next price is where the two
    nearest meet, until the best value is within a share `within` of that bound. A good `start`
    spares most of the steps.
    """
    below = above = None  # the tangents on both sides of the maximum
    best, price, ceiling = (-np.inf, 0.0), 0.0, np.inf
    trial, stride = start, 4.0 if start == 0 else 1.3
    for _ in range(most):
        value, slope = dual(trial)
        if value > best[0]:
            best, price = (value, slope), trial
        if slope > 0:
            below = (trial, value, slope)
        else:
            above = (trial, value, slope)
        if below is None:
            if trial == 0:  # the band is not short
                ceiling = value
                break
            trial = trial / stride if trial > 1e-3 else 0.0
            stride = 2 * stride
            continue
        if above is None:
            trial = trial * stride or 1.0
            stride = stride if start == 0 else 2 * stride
            continue
        (p, v, up), (q, u, down) = below, above
        meet = (u - v + p * up - q * down) / (up - down) if up > down else (p + q) / 2
        ceiling = v + up * (meet - p)
        if ceiling - best[0] <= within * abs(best[0]):
            break
        trial = float(np.clip(meet, p + 0.02 * (q - p), q - 0.02 * (q - p)))
    return Floor(float(best[0] * (1 - 1e-9)), float(price), float(best[1] + 1.0), float(ceiling))


def _best_price(
    lasting: Int[ndarray, "problem slot"],
    prices: Float[ndarray, "problem slot"],
    slots: int,
    longest_gap: int,
) -> Floor:
    """Return the floor of the draws themselves, at a price that was sought on a part of them."""
    part = max(SOUGHT_SLOTS, longest_gap)
    start = 0.0
    if lasting.shape[1] > 2 * part:
        short = _path_dual(lasting[:, :part], prices[:, :part], part, longest_gap)
        start = maximise(short, within=5e-2).price
    return maximise(_path_dual(lasting, prices, slots, longest_gap), start=start)


def best_refreshes(
    lasting: Int[ndarray, "problem slot"],
    prices: Float[ndarray, "problem slot"],
    longest_gap: int = 128,
) -> Refreshes:
    """Return, for each problem, the refreshes with the least sum of ages and prices.

    A refresh that starts in slot r is held from slot a = r + lasting(r) on. With r_0 = 0 < r_1 <
    r_2 ... the ages of slots 0 .. S-1 add up to S (S-1) / 2 - sum_n (r_n - r_{n-1}) (S - a_n), a
    shortest path over starts. After `longest_gap` slots a refresh is free and lasts a slot.
    """
    problems, slots = prices.shape
    gap = min(longest_gap, slots)
    gaps = np.arange(gap, 0, -1.0)  # r - r_before, as the window of the last `gap` starts lies
    held = np.arange(slots) + lasting
    prices = np.where(held <= slots - 1, prices, np.inf)
    early = np.minimum(held, slots) - float(slots)  # a - S
    least = np.full((problems, gap + slots), np.inf)
    least[:, gap] = 0.0  # slot r is at gap + r
    back = np.zeros((problems, slots), np.int64)
    paid = np.zeros((problems, slots), bool)
    every = np.arange(problems)
    for r in range(1, slots):
        cost = early[:, r, None] * gaps + prices[:, r, None]
        free = (r + 1.0 - slots) * gap
        paid[:, r] = cost[:, 0] <= free
        cost[:, 0] = np.minimum(cost[:, 0], free)
        cost += least[:, r : r + gap]
        choice = cost.argmin(axis=1)
        paid[:, r] |= choice > 0
        back[:, r] = gap - choice
        least[:, gap + r] = cost[every, choice]
    total = least[:, gap:]
    at = total.argmin(axis=1)
    value = slots * (slots - 1) / 2 + total[every, at]
    return Refreshes(value, _walk_back(at, back, paid))


def _walk_back(
    last: Int[ndarray, " problem"],
    back: Int[ndarray, "problem slot"],
    paid: Bool[ndarray, "problem slot"],
) -> Bool[ndarray, "problem slot"]:
    """Return the paid starts on the ways that end in `last`."""
    times, at, every = np.zeros(paid.shape, bool), last.copy(), np.arange(len(last))
    while at.any():
        times[every, at] |= paid[every, at] & (at > 0)
        at = at - np.where(at > 0, back[every, at], 0)
    return times


def stopping(
    lasting: Int[ndarray, "problem draw"],
    prices: Float[ndarray, "problem draw"],
    longest_gap: int = 128,
) -> tuple[Float[ndarray, " problem"], Float[ndarray, " problem"]]:
    """Return the least mean of age and price per slot, and the price per slot paid then.

    A block's (lasting, price) is drawn anew in every slot and known before the decision to start.
    A cycle of D slots costs D (D-1) / 2 + lasting D + price, so that the least ratio g of mean cost
    to mean D solves W_g(1) = 0 for

        W_g(D) = E min( D (D-1) / 2 + lasting D + price - g D,  W_g(D + 1) )

    Dinkelbach's iteration comes from above; g + W_g(1) is from below, since E D >= 1.
    """
    ratio = lasting.mean(axis=1) + np.sqrt(2 * prices.mean(axis=1))  # any start will do
    for _ in range(30):
        excess, length, paid = _stop_once(lasting, prices, ratio, longest_gap)
        ratio = ratio + excess / length
        if np.all(np.abs(excess) <= 1e-7 * ratio):
            break
    excess, length, paid = _stop_once(lasting, prices, ratio, longest_gap)
    return ratio + np.minimum(excess, 0.0), paid / length


def _stop_once(
    lasting: Int[ndarray, "problem draw"],
    prices: Float[ndarray, "problem draw"],
    ratio: Float[ndarray, " problem"],
    longest_gap: int,
) -> tuple[Float[ndarray, " problem"], ...]:
    """Return W_g(1), and the mean length and price of a cycle of its policy, per problem."""
    end = float(longest_gap)
    excess = end * (end - 1) / 2 + end - ratio * end  # free, and it lasts a slot
    length, paid = np.full(len(ratio), end), np.zeros(len(ratio))
    for gap in range(longest_gap - 1, 0, -1):
        now = lasting * float(gap) + prices + (gap * (gap - 1) / 2 - ratio * gap)[:, None]
        stop = now <= excess[:, None]
        share = 1.0 - stop.mean(axis=1)
        length = (1 - share) * gap + share * length
        paid = np.where(stop, prices, 0.0).mean(axis=1) + share * paid
        excess = np.where(stop, now, 0.0).mean(axis=1) + share * excess
    return excess, length, paid


def _path_dual(
    lasting: Int[ndarray, "problem slot"],
    prices: Float[ndarray, "problem slot"],
    slots: int,
    longest_gap: int,
) -> Callable[[float], tuple[float, float]]:
    """Return the dual function of the draws themselves, per pair and slot."""
    pairs, whole = len(prices), lasting.shape[1] - 1  # messages that count lie in [1, slots]

    def dual(price: float) -> tuple[float, float]:
        found = best_refreshes(lasting, prices * (price * pairs), longest_gap)
        paid = np.where(found.times, prices, 0.0).sum()
        value = found.value.sum() / (pairs * slots) - price * whole / slots
        return float(value), float((paid - whole) / slots)

    return dual


def _average_dual(
    lasting: Int[ndarray, "problem draw"],
    prices: Float[ndarray, "problem draw"],
    longest_gap: int,
) -> Callable[[float], tuple[float, float]]:
    """Return the dual function of independent blocks with the law of the draws."""
    pairs = len(prices)

    def dual(price: float) -> tuple[float, float]:
        value, paid = stopping(lasting, prices * (price * pairs), longest_gap)
        slope = float(paid.sum()) / (price * pairs) - 1.0 if price > 0 else float(pairs)
        return float(value.mean()) - price, slope

    return dual


def _window(
    cost_slots: Float[ndarray, "slot rx tx"], first_slot: int
) -> Float[ndarray, "slot rx tx"]:
    """Return the costs from the slot before the first on, the diagonal infinite.

    The slot before the first gives every node news of stamp first - 1 at no cost. A message longer
    than the window cannot end in it; its cost is cut to a slot more than the window.
    """
    cost = np.array(cost_slots, np.float64)
    slots, nodes = len(cost), cost.shape[-1]
    require(
        cost.shape == (slots, nodes, nodes) and nodes >= 2,
        f"expected costs (slot, rx, tx) of two nodes or more, got shape {cost.shape}",
    )
    require(
        0 <= first_slot <= slots - 3,
        f"a floor needs three slots from first_slot on, got {first_slot} of {slots}",
    )
    cost = cost[max(first_slot - 1, 0) :]
    each = np.arange(nodes)
    cost[:, each, each] = np.inf
    require(bool((cost > 0).all()), "a message takes more than 0 slots; look for NaN or 0 in costs")
    cost = np.minimum(cost, len(cost) + 1.0)
    cost[:, each, each] = np.inf
    return cost


def _pairs(cost: Float[ndarray, "slot rx tx"]) -> tuple[ndarray, ndarray]:
    """Return rx and tx of all pairs."""
    rx, tx = np.nonzero(~np.eye(cost.shape[1], dtype=bool))
    return rx, tx


def _whole(duration_slots: Float[ndarray, "*any"]) -> Int[ndarray, "*any"]:
    """Return the slots from the start slot to the first in which news is held, at least 1."""
    return np.maximum(np.ceil(duration_slots - SLACK_SLOTS), 1.0).astype(np.int64)
