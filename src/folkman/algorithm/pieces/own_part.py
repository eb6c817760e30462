"""The own part of Algorithm 1's aggregate: how much of a node's own progress enters it.

    v_i(rho) = [ sum_{j != i} alpha_j w_j(tau_ij) + alpha_i w_i(t - abar_i) ]
               + rho_i ( w_i(t) - w_i(t - abar_i) )
    abar_i   = sum_{j != i} alpha_j a_ij / (1 - alpha_i), rounded

In brackets stands a coherent aggregate: all its parts are abar_i slots old in the mean. To it comes
a share rho_i of what the node itself has done since.

    newest      rho_i = alpha_i: equation (9) of [1] as it is, without memory (default)
    aligned     rho_i = 0: descent with the delay abar_i, without bias where ages are alike
    a number    rho_i itself, in [0, 1]; 1 is "the others have moved as I have"
    predicted   the least rho_i for which the step is at most half the stable one, from the step,
                the age abar_i and the smoothness L (`stable_steps`)
    measured    from how far the others have moved as the node itself has
    centred     rho_i = alpha_i of what differs from the mean own progress (below)
    adaptive    centred where data differ, rho_i = 1/2 where they are alike, and between

`measured` compares, over windows of at least `WINDOW` slots and abar_i, how the sum of the others'
copies moved, dy = d sum_{j != i} alpha_j w_j(tau_ij), with how it would have moved if all were as
the node itself, dx = d sum_{j != i} alpha_j w_i(tau_ij). Both look at the same slots, copy by copy:

    q_i   = <dy, dx> / <dx, dx>     numerator and denominator averaged over windows
    rho_i = LEAST + (MOST - LEAST) min(1, max(0, GAIN q_i)),   at least alpha_i

q_i is 1 where nodes hold alike data and draw alike, and near 0 where their data differ. The noise
of mini-batches lies in the denominator alone and lowers q_i; long windows and GAIN make up for it.
MOST is a little above 1/2. From 1/2 on the delay no longer limits the step; more lets the nodes'
models drift apart at steps that descent without delay bears (`stable_steps`). LEAST and GAIN are
choices: less bears only short steps where copies are old. LEAST and MOST were settled after a look
at the seeds that benchmarks/own_part.py judges by; benchmarks/own_part_judged.py judges by others.
Until a copy tells something rho_i is START. No bit more is on the air.

`centred` sets the own part back by the node's mean pace:

    v_i = sum_{j != i} alpha_j w_j(tau_ij) + alpha_i ( w_i(t) - abar_i m_i )
    m_i(t+1) = m_i(t) + k ( w_i(t+1) - w_i(t) - m_i(t) ),      k = 1 / (1 + LONG abar_i)

abar_i is the mean age of the copies, m_i a running mean of the own movement in a slot. Equation (9)
of [1] is this with m_i = 0. In other words: to a coherent aggregate, all parts of which are abar_i
slots old, comes the share alpha_i of what the node has done since beyond its mean pace:

    v_i = [ sum_{j != i} alpha_j w_j(tau_ij) + alpha_i w_i(t - abar_i) ]
          + alpha_i ( w_i(t) - w_i(t - abar_i) - abar_i m_i )

At rest every node moves evenly, by - eta c_i grad F_i, also where data differ and grad F_i is not
0. The last bracket is then 0, and with it the bias that equation (9) has on uneven data. A swing of
the network is no even movement. The node's own share of it, which is alpha_i, enters at once and
not abar_i slots late: this damps it, as it does in equation (9). So the rule has no bias, as
`aligned` has none, and bears longer steps than that one.

One vector m_i and the parameters of the slot before are kept: no past, and no bit more on the air.
A node that was away takes what it has done since for the movement of one slot.

`adaptive` asks the question of `measured` for two shares. With a_i = min(1, max(0, GAIN q_i))

    rho_i = alpha_i + (h_i - alpha_i) a_i,      h_i = max(1/2, alpha_i)
    v_i   = [ ... ] + rho_i ( w_i(t) - w_i(t - abar_i) ) - (1 - a_i) alpha_i abar_i m_i

For a_i = 0 this is `centred`, for a_i = 1 the number 1/2. At rest on data that differ the others
move against the node, since all movements cancel: then a_i is 0, and there is no bias.

Ages are counted in slots, as the copies' are, also where a gradient takes several slots: the own
parameters of b slots ago are those that were in force then. A slot is a call of `receive`; a node
that was away knows nothing of the slots in between. The last `memory` own parameters are kept. A
copy older than all of them is met with the oldest. A node that starts anew starts with the first
model as its whole past.

[1] Xie et al. Decentralized Federated Learning with Asynchronous Parameter Sharing for Large-scale
    IoT Networks. IEEE IoT Journal, 2024.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

from folkman.algorithm.base import Inbox
from folkman.algorithm.method import Number
from folkman.algorithm.pieces.rules import Rule, combine
from folkman.arrays import Array, Float, Int, jax, jnp
from folkman.checks import require, within

__all__ = ["LONG", "Copies", "Kept", "OwnMemory", "OwnPart", "OwnRule", "Pace"]

OwnRule: TypeAlias = (
    Literal["newest", "aligned", "predicted", "measured", "centred", "adaptive"] | Number
)
NAMES = ("newest", "aligned", "predicted", "measured", "centred", "adaptive")

MEASURED = ("measured", "adaptive")
"""Own parts for which the node compares its movement with the others'."""

LONG = 4.0
"""How many mean ages of the copies the mean pace looks back."""

LEAST, MOST, GAIN = 0.35, 0.55, 4.0
"""Of `measured`: the ends of rho, and what q is multiplied by."""
START = 0.5
"""Of `measured`: rho until something of the others is known."""
WINDOW, KEPT = 20, 0.9
"""Slots of a window at least; what earlier windows count for once it has ended."""
MARGIN = 0.5
"""The step as a part of the stable one, of `predicted`."""


class OwnPast(NamedTuple):
    """The node's own parameters after its last updates, in a ring."""

    params: Float[Array, "memory d"]
    formed: Int[Array, " memory"]  # the slot from which on each was in force
    clock: Int[Array, ""]  # the slot that is lived, -1 before the first


class Likeness(NamedTuple):
    """How far the others have moved as the node itself has: the open window and those before."""

    others: Float[Array, " d"]  # sum_{j != i} alpha_j w_j(tau_ij) when the window began
    own: Float[Array, " d"]  # sum_{j != i} alpha_j w_i(tau_ij) then
    slots: Int[Array, ""]  # of the open window
    product: Float[Array, ""]  # <dy, dx> of the windows before, averaged
    square: Float[Array, ""]  # <dx, dx>


class OwnMemory(NamedTuple):
    """What a node remembers for its own part."""

    past: OwnPast
    likeness: Likeness | None  # None unless `measured`
    # that of `measured` now, a_i of `adaptive`; else the number, 0 where it is aligned
    rho: Float[Array, ""]


class Pace(NamedTuple):
    """How a node moves in the mean."""

    before: Float[Array, " d"]  # its parameters in the slot before
    pace: Float[Array, " d"]  # m_i, for a slot


class Kept(NamedTuple):
    """What a node keeps for its own part, under the names of its state."""

    own: OwnMemory | None  # None where no own past is looked at
    pace: Pace | None  # None unless the own part is centred


class Copies(NamedTuple):
    """The copies that a node holds of the others, as they count."""

    inbox: Inbox
    weights: Float[Array, " nbr"] | None  # None: those of the inbox
    own_weight: Float[Array, ""]  # alpha_i

    @property
    def age(self) -> Int[Array, ""]:
        """Return abar_i, their mean age."""
        return mean_age(self.inbox, self.weights)

    @property
    def oldest(self) -> Int[Array, ""]:
        """Return the age of the oldest one that counts."""
        counts = (self.inbox.weight if self.weights is None else self.weights) > 0
        return jnp.max(jnp.where(counts, self.inbox.age, 0), initial=0)

    def beside(self, own: Float[Array, " d"], rule: Rule) -> Float[Array, " d"]:
        """Put them and an own part together."""
        return combine(rule, self.inbox, self.weights, own=own, own_weight=self.own_weight)


class OwnPart(NamedTuple):
    """Which own part enters the aggregate, and of how many own parameters the past is kept."""

    own: OwnRule = "newest"
    memory: int = 64

    def is_rule(self, *names: str) -> bool:
        """Tell whether it is one of these; a number may be traced, and is none."""
        return isinstance(self.own, str) and self.own in names

    def check(self, rule: Rule) -> None:
        """Refuse an own part that does not exist, or does not go with the rule."""
        own, memory = self
        named = isinstance(own, str)
        require(
            own in NAMES if named else within(own, 0, 1),
            f"own must be one of {', '.join(NAMES)}, or a number rho in [0, 1], got {own!r}",
        )
        require(
            memory >= 1,
            f"memory counts own parameters that are kept, at least 1, got {memory}; try 64",
        )
        require(
            not self.is_rule(*MEASURED) or rule.rule == "mean",
            f"own = {own!r} looks at the plain sum of all copies, which rule = {rule.rule!r} does "
            "not trust; give own a number, as 0.5",
        )

    def first(self, params: Float[Array, " d"]) -> Kept:
        """Return what is kept before the first slot."""
        centred = self.is_rule("centred", "adaptive")
        pace = Pace(params, jnp.zeros_like(params)) if centred else None
        return Kept(None if self.is_rule("newest", "centred") else self._past(params), pace)

    def _past(self, params: Array) -> OwnMemory:
        past = OwnPast(
            params=jnp.broadcast_to(params[None], (self.memory, *params.shape)),
            formed=jnp.zeros(self.memory, jnp.int32),
            clock=jnp.full((), -1, jnp.int32),
        )
        zero = jnp.zeros((), params.dtype)
        none = jnp.zeros_like(params)
        measures = self.is_rule(*MEASURED)
        likeness = Likeness(none, none, jnp.zeros((), jnp.int32), zero, zero) if measures else None
        rho = START if measures else 0.0 if isinstance(self.own, str) else self.own
        return OwnMemory(past, likeness, jnp.asarray(rho, params.dtype))

    def heard(self, kept: Kept, params: Float[Array, " d"], copies: Copies) -> Kept:
        """Return what is kept in the coming slot, in which the node holds these copies."""
        own, pace = kept
        if own is not None:
            own = _with_heard(own, copies.inbox, adaptive=self.is_rule("adaptive"))
        if pace is not None:
            pace = _with_slot(pace, params, copies.age)
        return Kept(own, pace)

    def rho(self, kept: Kept, copies: Copies, reach: Callable[[], Array]) -> Float[Array, ""]:
        """Return rho_i; `reach` says eta c_i L, for which `predicted` asks."""
        if kept.own is None:
            return copies.own_weight
        if self.is_rule("adaptive"):
            h = jnp.maximum(0.5, copies.own_weight)
            return copies.own_weight + (h - copies.own_weight) * kept.own.rho
        if self.is_rule("predicted"):
            return _predicted(reach(), copies.age)
        return kept.own.rho

    def aggregate(
        self,
        kept: Kept,
        params: Float[Array, " d"],
        copies: Copies,
        rule: Rule,
        reach: Callable[[], Array],
    ) -> Float[Array, " d"]:
        """Return v_i."""
        own, pace = kept
        if own is None:
            return copies.beside(params if pace is None else _set_back(pace, params, copies), rule)
        back = copies.age
        then = _own_at(own.past, back)
        coherent = copies.beside(then, rule)
        point = coherent + self.rho(kept, copies, reach) * (params - then)
        share = pace_share(kept, copies)
        if pace is None or share is None:
            return point
        return point - share * _even_progress(pace, back)

    def updated(self, kept: Kept, params: Float[Array, " d"], updates: Array) -> Kept:
        """Return what is kept after update number `updates`, from 1, has made these parameters."""
        if kept.own is None:
            return kept
        return kept._replace(own=_with_update(kept.own, params, updates))


def pace_share(kept: Kept, copies: Copies) -> Float[Array, ""] | None:
    """Return the share of the mean pace by which the own part is set back; None where by none."""
    if kept.pace is None:
        return None
    return copies.own_weight if kept.own is None else (1.0 - kept.own.rho) * copies.own_weight


def mean_age(inbox: Inbox, weights: Array | None) -> Int[Array, ""]:
    """Return abar, the mean age of the copies by their weights, rounded, halves down."""
    weights = inbox.weight if weights is None else weights
    total = jnp.sum(weights)
    mean = jnp.sum(weights * inbox.age) / jnp.where(total > 0, total, 1.0)
    # engines add in unlike orders: what is a half in one must not be more than a half in another
    return jnp.floor(mean + 0.499).astype(jnp.int32)


def _own_at(past: OwnPast, back: Int[Array, ""]) -> Float[Array, " d"]:
    """Return w_i(t - back), or the oldest that is kept."""
    return past.params[_row(past, back)]


def _row(past: OwnPast, back: Array) -> Array:
    """Return where the parameters that were in force `back` slots ago are kept."""
    then = past.clock - back
    since = jnp.where(past.formed <= then, past.formed, -1)
    return jnp.where(jnp.max(since) < 0, jnp.argmin(past.formed), jnp.argmax(since))


def _with_update(memory: OwnMemory, params: Array, updates: Array) -> OwnMemory:
    """Return the memory with what the update of this slot, number `updates` from 1, has made."""
    past = memory.past
    place = jnp.mod(updates, len(past.formed))
    newer = past._replace(
        params=past.params.at[place].set(params),
        formed=past.formed.at[place].set(past.clock + 1),
    )
    return memory._replace(past=newer)


def _with_heard(memory: OwnMemory, inbox: Inbox, *, adaptive: bool = False) -> OwnMemory:
    """Return the memory in the coming slot, with what has arrived for it."""
    past = memory.past._replace(clock=memory.past.clock + 1)
    if memory.likeness is None:
        return memory._replace(past=past)
    likeness, alike, known = _compared(memory.likeness, past, inbox)
    rho = jnp.maximum(LEAST + (MOST - LEAST) * alike, inbox.own_weight)
    found = jnp.where(known, alike if adaptive else rho, START)
    return OwnMemory(past, likeness, found.astype(memory.rho.dtype))


def _compared(seen: Likeness, past: OwnPast, inbox: Inbox) -> tuple[Likeness, Array, Array]:
    """Compare how the others and the node itself have moved; return a_i and whether it is known."""
    others = inbox.mix()[: past.params.shape[1]]
    rows = jax.vmap(lambda back: _row(past, back))(inbox.age)
    by_row = jnp.zeros(len(past.formed), others.dtype).at[rows].add(inbox.weight)
    own = jnp.dot(by_row, past.params, precision="highest")
    first = past.clock == 0
    dy = jnp.where(first, 0.0, others - seen.others)
    dx = jnp.where(first, 0.0, own - seen.own)
    square = jnp.dot(dx, dx)
    # one window tells at most that all moved alike, or against each other: a node that started
    # anew, or lies, moves the sum by far more than anybody learns
    product = jnp.clip(jnp.dot(dy, dx), -square, square)
    product, square = seen.product * KEPT + product, seen.square * KEPT + square
    known = square > 0
    alike = jnp.clip(GAIN * product / jnp.where(known, square, 1.0), 0.0, 1.0)
    slots = seen.slots + 1
    ends = first | (slots >= jnp.maximum(WINDOW, mean_age(inbox, None)))
    closed = Likeness(others, own, jnp.zeros_like(slots), product, square)
    opened = seen._replace(slots=slots)
    kept = jax.tree.map(lambda new, old: jnp.where(ends, new, old), closed, opened)
    return kept, alike, known


def _predicted(reach: Array, age: Array) -> Array:
    """Return the least rho for which eta c_i is at most MARGIN of the stable step."""
    from folkman.algorithm.pieces.stable_steps import least_rho  # here: other rules never ask

    return least_rho(reach / MARGIN, age.astype(reach.dtype))


def _with_slot(memory: Pace, params: Float[Array, " d"], age: Int[Array, ""]) -> Pace:
    """Return the pace in the coming slot, in which the copies have the mean age `age`."""
    part = 1.0 / (1.0 + LONG * age.astype(params.dtype))
    return Pace(params, memory.pace + part * (params - memory.before - memory.pace))


def _even_progress(memory: Pace, age: Int[Array, ""]) -> Float[Array, " d"]:
    """Return abar_i m_i, what the node makes in so many slots in the mean."""
    return age.astype(memory.pace.dtype) * memory.pace


def _set_back(memory: Pace, params: Float[Array, " d"], copies: Copies) -> Float[Array, " d"]:
    """Return w_i(t) - abar_i m_i."""
    return params - _even_progress(memory, copies.age)
