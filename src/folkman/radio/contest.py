"""Who has the largest index, found without drawing every rate and without looking at everything.

The index V_k of `folkman.radio.fresh` falls where costs rise. So a bound on costs from below bounds
V_k from above, and the sender with the largest V_k is known when no bound of another is above it:

    copy, sum   Costs are first drawn with the nearest interferers alone (`glance_slots`), which can
                only lower them. The sender with the largest bound is drawn in full, until one that
                has been is the largest. Of fifty nodes about two to five have to be.
    forward     All costs are drawn. V_k of origin j is at most sum_i (gain of i) / c_ik, since no
                receiver of a message needs more than its worst; in ranges of the worst cost it is
                less (`_bounds`). Origins are settled, all senders at once, from the largest of
                these bounds on.

After a message only what it changed is worked out anew: of a copy its sender's index, of a forward
that of its origin, of a sum all. The choice is that of `fresh.choose` on costs drawn in full.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from folkman.arrays import Array, Bool, Float, Int, jnp, lax
from folkman.radio import fresh

__all__ = ["Contest", "Draw", "choose", "enter", "renew"]

Draw = Callable[[Array], Array]
"""Sender -> the costs (rx,) of its messages in this block."""


class Contest(NamedTuple):
    """What is known of the senders in this block."""

    cost_slots: Float[Array, "rx tx"]  # of senders that are drawn; of others a bound from below
    drawn: Bool[Array, " tx"]
    # the index, or a bound on it, of each origin for a forward, and of one kind of message else
    value: Float[Array, "kind tx"]
    slots: Float[Array, "kind tx"]
    settled: Bool[Array, " kind"]  # is the value worked out, or a bound?
    gain: Float[Array, "rx tx"]  # of copies and sums
    changed: Int[Array, ""]  # the sender of a copy, the origin of a forward, that was chosen last


def enter(
    ages: Int[Array, "rx origin"],
    omega: Float[Array, " node"],
    message: fresh.Message,
    cost_slots: Float[Array, "rx tx"],
    drawn: Bool[Array, " tx"],
    thrift: float = 1.0,
) -> Contest:
    """Return the contest as a block begins; costs of a node to itself are infinite.

    The index is worked out by `renew`, before every choice: nothing is worked out after the last
    message of a slot.
    """
    nodes = len(ages)
    begun = Contest(
        cost_slots,
        drawn,
        value=jnp.zeros((1, nodes), omega.dtype),
        slots=jnp.zeros((1, nodes), cost_slots.dtype),
        settled=jnp.ones(1, bool),
        gain=jnp.zeros(cost_slots.shape, omega.dtype),
        changed=jnp.zeros((), jnp.int32),
    )
    if message == "sum":
        return begun
    if message == "copy":
        gain = fresh.gains(ages, omega, message)
        value, slots = fresh.best_prefix(gain, cost_slots, thrift)
        return begun._replace(value=value[None], slots=slots[None], gain=gain)
    return begun._replace(
        value=_bounds(ages, omega, cost_slots, thrift),
        slots=jnp.zeros_like(cost_slots),
        settled=jnp.zeros(nodes, bool),
        gain=jnp.zeros((0, 0), omega.dtype),
    )


def _bounds(
    ages: Array, omega: Array, cost_slots: Array, thrift: float
) -> Float[Array, "origin tx"]:
    """Return bounds on the index of every origin, from above.

    Let the worst receiver of the best message cost between `low` and `high`. Then all its receivers
    are below `high`, and each is paid for with `low` at least, or its own cost. One of the ranges
    holds the worst receiver, so that the largest of their bounds holds.
    """
    nodes = len(ages)
    rates = jnp.sum(1 / cost_slots, axis=0, keepdims=True)  # 0 where nobody hears a sender
    middle = (nodes - 1) / jnp.maximum(rates, LEAST_RATES)
    edges = (0.0, *RANGES, jnp.inf)
    parts = jnp.stack(
        [
            jnp.where(
                cost_slots < high * middle,
                1 / fresh.powered(jnp.maximum(cost_slots, low * middle), thrift),
                0.0,
            )
            for low, high in pairwise(edges)
        ]
    )  # (range, rx, tx)
    x = ages.astype(omega.dtype)
    square = x * x

    def add(i: Array, total: Array) -> Array:  # (range, tx, origin)
        weight = jnp.where(jnp.arange(nodes) == i, 0.0, omega * omega[i])
        gain = jnp.maximum(weight[None] * (square[i][None] - square), 0.0)
        return total + gain[None] * parts[:, i][..., None]

    none = jnp.zeros((len(parts), nodes, nodes), omega.dtype)
    return jnp.max(lax.fori_loop(0, nodes, add, none), axis=0).T


def renew(
    contest: Contest,
    ages: Int[Array, "rx origin"],
    omega: Float[Array, " node"],
    message: fresh.Message,
    thrift: float = 1.0,
) -> Contest:
    """Return the contest at these ages: what the last choice has changed is worked out anew."""
    if message == "forward":
        return _settle_one(contest, ages, omega, contest.changed, thrift)
    gain = fresh.gains(ages, omega, message)
    contest = contest._replace(gain=gain)
    if message == "copy":
        return _renew_one(contest, contest.changed, thrift)
    value, slots = fresh.best_prefix(gain, contest.cost_slots, thrift)
    return contest._replace(value=value[None], slots=slots[None])


def choose(
    contest: Contest,
    ages: Int[Array, "rx origin"],
    omega: Float[Array, " node"],
    message: fresh.Message,
    draw: Draw,
    thrift: float = 1.0,
) -> tuple[fresh.Choice, Contest]:
    """Return who sends now, and what had to be found out for it."""
    if message == "forward":
        contest = _settle(contest, ages, omega, thrift)
        offered = fresh.over_origins(
            jnp.where(contest.settled[:, None], contest.value, 0.0), contest.slots
        )
    else:
        contest = _draw(contest, draw, thrift)
        senders = jnp.arange(len(ages), dtype=jnp.int32)
        offered = fresh.Offers(contest.value[0], contest.slots[0], senders)
    choice = fresh.pick(offered, contest.cost_slots)
    changed = choice.origin if message == "forward" else choice.sender
    return choice, contest._replace(changed=changed)


def _draw(contest: Contest, draw: Draw, thrift: float) -> Contest:
    """Draw senders in full until the largest index is one of theirs."""

    def rival(at: Contest) -> tuple[Array, Array]:
        bound = jnp.where(at.drawn, -1.0, at.value[0])
        most = jnp.max(jnp.where(at.drawn, at.value[0], 0.0))
        sender = jnp.argmax(bound)
        return sender, (bound[sender] > 0) & (bound[sender] >= most * ROUNDED)

    def body(carry: tuple[Contest, Array, Array]) -> tuple[Contest, Array, Array]:
        at, sender, _ = carry
        at = at._replace(
            cost_slots=at.cost_slots.at[:, sender].set(draw(sender)),
            drawn=at.drawn.at[sender].set(True),
        )
        at = _renew_one(at, sender, thrift)
        return at, *rival(at)

    return lax.while_loop(lambda carry: carry[2], body, (contest, *rival(contest)))[0]


def _renew_one(contest: Contest, sender: Array, thrift: float) -> Contest:
    """Return the contest with the index of one sender worked out anew."""
    of_one = (contest.gain[:, sender], contest.cost_slots[:, sender])
    value, slots = fresh.prefix_of_one(*of_one, thrift)
    return contest._replace(
        value=contest.value.at[0, sender].set(value), slots=contest.slots.at[0, sender].set(slots)
    )


def _settle(contest: Contest, ages: Array, omega: Array, thrift: float) -> Contest:
    """Settle origins until no bound is above the largest index."""

    def rival(settled: Array, by_origin: Array) -> tuple[Array, Array]:
        bound = jnp.where(settled, -1.0, by_origin)
        most = jnp.max(jnp.where(settled, by_origin, 0.0))
        origin = jnp.argmax(bound)
        return origin, (bound[origin] > 0) & (bound[origin] >= most * ROUNDED)

    def body(carry: tuple[Contest, Array, Array, Array]) -> tuple[Contest, Array, Array, Array]:
        at, by_origin, origin, _ = carry
        at = _settle_one(at, ages, omega, origin, thrift)
        by_origin = by_origin.at[origin].set(jnp.max(at.value[origin]))
        return at, by_origin, *rival(at.settled, by_origin)

    by_origin = jnp.max(contest.value, axis=1)
    begin = (contest, by_origin, *rival(contest.settled, by_origin))
    return lax.while_loop(lambda carry: carry[3], body, begin)[0]


def _settle_one(
    contest: Contest, ages: Array, omega: Array, origin: Array, thrift: float
) -> Contest:
    gain = fresh.gains_of_origin(ages, omega, origin)
    value, slots = fresh.best_prefix(gain, contest.cost_slots, thrift)
    return contest._replace(
        value=contest.value.at[origin].set(value),
        slots=contest.slots.at[origin].set(slots),
        settled=contest.settled.at[origin].set(True),
    )


RANGES = (0.5, 1.0, 2.0)
"""Where ranges of costs meet, in harmonic means of a sender's costs."""

LEAST_RATES = 1e-30
"""Keeps the mean cost of a sender that nobody hears finite."""

ROUNDED = 1 - 1e-5
"""A bound this much below the largest index might be above it but for rounding."""
