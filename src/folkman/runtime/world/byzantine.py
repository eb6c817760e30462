"""Members that keep to the format and mean no good.

A liar is an honest core whose words are changed on their way out. It has its own key and no other:
what it says is signed, well-formed and within limits, and yet not true.
"""

from collections.abc import Callable
from random import Random
from typing import NamedTuple, TypeAlias

import numpy as np

from folkman.runtime import fresh_codec
from folkman.runtime.codec import (
    FIELDS,
    HEADER_BYTES,
    CodecError,
    Message,
    Sign,
    decode,
    encode,
    sender_of,
    version_of,
)
from folkman.runtime.control import (
    Ack,
    Body,
    Claim,
    Control,
    Done,
    Hello,
    Known,
    Period,
    Quality,
    Refusal,
    open_sealed,
    seal,
)
from folkman.runtime.core.events import Effect, Event, Publish, Received, Tell
from folkman.runtime.fresh_codec import Carried
from folkman.runtime.world.cores import Setting
from folkman.runtime.world.draws import stream
from folkman.runtime.world.plan import Plan
from folkman.runtime.world.signing import signer

__all__ = ["MENU", "Lie", "lie_of"]

WITHIN_LIMITS = 9e5
"""Of a poisoned parameter; a mailbox refuses those beyond 1e6."""
NOT_FINITE = 0.25
"""This share of the poisoned messages has a number that is not finite."""
TOO_LARGE = 0.1
"""This share has a number beyond the limits."""
SUMS_TOO_LARGE = 0.25
"""This share of the poisoned sums has one; sums of whole numbers have none."""
CLAIMED_S = 1e3
"""For so long one that lies about its rate claims the band."""
FLOOD = 20
"""Messages that a flooding member sends to every neighbour in a slot, of each kind."""


Said: TypeAlias = Body | Message | Carried | Publish | Tell
"""What a liar may say of its own accord; the last two as they are, without a new number."""


class Change(NamedTuple):
    """One entry of the menu: what it makes of a control message, of parameters, and unasked.

    `carried` is what it makes of a sum or a copy that is passed on; None: nothing.
    """

    told: "Callable[[Lie, int, Body], list[Body]]"
    published: "Callable[[Lie, int, Message], list[Message]]"
    unasked: "Callable[[Lie, int], list[Said]]"
    carried: "Callable[[Lie, int, Carried], list[Carried]] | None" = None


class Lie:
    """What one byzantine member does to its own words."""

    def __init__(self, kind: str, member: int, setting: Setting, draws: Random) -> None:
        self.kind, self.draws = kind, draws
        self.flaps = kind == "flapping"
        self._member, self._setting = member, setting
        self._sign: Sign = signer(member)
        self._change = MENU[kind]
        self._told = 0  # number of the last control message
        self.last: dict[int, Message | Carried] = {}  # peer -> the last message to it
        self.first: dict[int, Carried] = {}  # peer -> the first sum or copy to it
        self.heard: dict[int, bytes] = {}  # peer -> the last message of it
        self.words: dict[int, Tell] = {}  # peer -> the last word to it
        self.slots = 0

    def said(self, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        """Return what leaves the liar in place of what its core wants."""
        del now_s
        if isinstance(event, Received):
            self.heard[event.peer] = event.data
        found: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Tell):
                found += self._retold(effect)
            elif isinstance(effect, Publish):
                found += self._republished(effect)
            else:
                found.append(effect)
        return found

    def unasked(self, now_s: float) -> list[Effect]:
        """Return what the liar says of its own accord, once a slot."""
        del now_s
        self.slots += 1
        found: list[Effect] = []
        for peer in self._setting.neighbours[self._member]:
            for item in self._change.unasked(self, peer):
                if isinstance(item, Message):
                    found.append(Publish(peer, encode(item, self._sign)))
                elif isinstance(item, Carried):
                    found.append(Publish(peer, fresh_codec.encode(item, self._sign)))
                elif isinstance(item, Publish | Tell):
                    found.append(item)
                else:
                    found.append(self._tell(peer, item, 0))
        return found

    def _retold(self, effect: Tell) -> list[Effect]:
        try:
            control = open_sealed(effect.data, self._setting.run)
        except CodecError:
            return [effect]
        return [
            self._tell(effect.peer, body, control.sequence)
            for body in self._change.told(self, effect.peer, control.body)
        ]

    def _tell(self, peer: int, body: Body, at_least: int) -> Tell:
        self._told = max(self._told + 1, at_least)
        control = Control(self._setting.run, self._member, self._told, body)
        self.words[peer] = Tell(peer, seal(control, self._sign))
        return self.words[peer]

    def _republished(self, effect: Publish) -> list[Effect]:
        if len(effect.data) < HEADER_BYTES:
            return [effect]
        size = FIELDS.unpack(effect.data[: FIELDS.size])[-1]
        if version_of(effect.data) == fresh_codec.VERSION:
            return self._recarried(effect, size)
        try:
            message = decode(effect.data, self._setting.run, size)
        except CodecError:
            return [effect]
        self.last[effect.peer] = message
        return [
            Publish(effect.peer, encode(each, self._sign))
            for each in self._change.published(self, effect.peer, message)
        ]

    def _recarried(self, effect: Publish, size: int) -> list[Effect]:
        nodes = len(self._setting.members)
        carried = fresh_codec.decode(effect.data, self._setting.run, size, nodes)
        self.last[effect.peer] = carried
        self.first.setdefault(effect.peer, carried)
        change = self._change.carried
        if change is None:
            return [effect]
        return [
            Publish(effect.peer, fresh_codec.encode(each, self._sign))
            for each in change(self, effect.peer, carried)
        ]

    def inner(self, carried: Carried, change: Callable[[Message], Message]) -> Carried:
        """Return a forward with another content, if that is the liar's own: it has no other key."""
        if sender_of(carried.inner) != self._member:
            return carried
        message = change(decode(carried.inner, self._setting.run, carried.size))
        return carried._replace(inner=encode(message, self._sign))


def lie_of(plan: Plan, member: int, setting: Setting) -> Lie | None:
    """Return what a member lies about; None if it is honest."""
    kind = plan.lie_of(member)
    return Lie(kind, member, setting, stream(plan.seed, "lie", member)) if kind else None


# -- the menu ------------------------------------------------------------------------------------


def _as_told(lie: Lie, peer: int, body: Body) -> list[Body]:
    del lie, peer
    return [body]


def _as_published(lie: Lie, peer: int, message: Message) -> list[Message]:
    del lie, peer
    return [message]


def _nothing(lie: Lie, peer: int) -> list[Said]:
    del lie, peer
    return []


def _silent(lie: Lie, peer: int, body: Body) -> list[Body]:
    del lie, peer
    return [] if isinstance(body, Ack | Refusal) else [body]


def _acknowledge_all(lie: Lie, peer: int) -> list[Said]:
    del peer
    return [Ack(lie.draws.choice((1, 1 << 32, (1 << 33) + 7, 1 << 40, 2**63 - 1)))]


def _poisoned(lie: Lie, peer: int, message: Message) -> list[Message]:
    del peer
    signs = np.array([lie.draws.choice((-1.0, 1.0)) for _ in message.params])
    kind = lie.draws.random()
    if kind < NOT_FINITE + TOO_LARGE:
        signs[0] = np.nan if kind < NOT_FINITE else 10.0
    return [message._replace(params=(signs * WITHIN_LIMITS).astype(message.params.dtype))]


def _poisoned_sum(lie: Lie, peer: int, carried: Carried) -> list[Carried]:
    if carried.entries is None:
        return [lie.inner(carried, lambda message: _poisoned(lie, peer, message)[0])]
    signs = np.array([lie.draws.choice((-1.0, 1.0)) for _ in carried.entries])
    if not carried.bits and lie.draws.random() < SUMS_TOO_LARGE:
        signs[0] = 10.0
    return [carried._replace(entries=(signs * WITHIN_LIMITS).astype(carried.entries.dtype))]


def _equivocal_sum(lie: Lie, peer: int, carried: Carried) -> list[Carried]:
    if carried.entries is None:
        return [lie.inner(carried, lambda message: _equivocal(lie, peer, message)[0])]
    more = peer % 97 if carried.bits else np.float32(0.01 * (peer % 97))
    return [carried._replace(entries=carried.entries + more)]


def _other_transfer(lie: Lie, peer: int, carried: Carried) -> list[Carried]:
    del peer
    return [carried._replace(round=max(carried.round + lie.draws.choice((-1, 1, 2, 1000)), 0))]


def _first_again(lie: Lie, peer: int, carried: Carried) -> list[Carried]:
    """Say the first of all sums again under a new number, every other time."""
    first = lie.first[peer]
    again = first._replace(sequence=carried.sequence, slot=carried.slot, round=carried.round)
    return [again if lie.slots % 2 else carried]


def _wrong_clock(lie: Lie, peer: int, body: Body) -> list[Body]:
    del peer
    if not isinstance(body, Hello):
        return [body]
    ahead_s = lie.draws.choice((10.0, 1e3, 1e4, 1e9))
    return [body._replace(clock_s=max(body.clock_s + ahead_s * lie.draws.choice((1, -1)), 0.0))]


def _wrong_rate(lie: Lie, peer: int, body: Body) -> list[Body]:
    del peer
    if isinstance(body, Period):
        return [body._replace(rate=lie.draws.choice((1e-9, 1.0, 1e15)))]
    if isinstance(body, Quality):
        return [body._replace(links=dict.fromkeys(body.links, (1e15, 0.0)))]
    if isinstance(body, Claim) and body.seconds > 0:
        return [body._replace(seconds=CLAIMED_S)]
    return [body]


def _flood(lie: Lie, peer: int) -> list[Said]:
    last = lie.last.get(peer)
    more: list[Said] = [Done(lie.slots) for _ in range(FLOOD)]
    if last is not None:
        for _ in range(FLOOD):
            last = last._replace(sequence=last.sequence + 1)
            more.append(last)
        lie.last[peer] = last
    return more


def _old_life(lie: Lie, peer: int, body: Body) -> list[Body]:
    del peer
    return [body._replace(incarnation=lie.slots % 3)] if isinstance(body, Hello) else [body]


def _replayed(lie: Lie, peer: int) -> list[Said]:
    """Claim to know lives, and repeat: a word, a message of one's own, and those of others."""
    last, word = lie.last.get(peer), lie.words.get(peer)
    more: list[Said] = [Known(lie.draws.choice((1, 7, 2**31 - 2, 2**40)))]
    if word is not None:
        more.insert(0, word)
    if last is not None:
        more.append(last._replace(sequence=max(last.sequence - 1, 0)))
    return more + [Publish(peer, data) for other, data in lie.heard.items() if other != peer]


def _equivocal(lie: Lie, peer: int, message: Message) -> list[Message]:
    del lie
    return [message._replace(params=message.params + np.float32(0.01 * (peer % 97)))]


def _other_round(lie: Lie, peer: int, message: Message) -> list[Message]:
    del peer
    other = max(message.round + lie.draws.choice((-1, 1, 2, 1000)), 0)
    return [message._replace(round=other)]


MENU = {
    "never_acknowledges": Change(_silent, _as_published, _nothing),
    "acknowledges_all": Change(_as_told, _as_published, _acknowledge_all),
    "poison": Change(_as_told, _poisoned, _nothing, _poisoned_sum),
    "clock": Change(_wrong_clock, _as_published, _nothing),
    "rate": Change(_wrong_rate, _as_published, _nothing),
    "flood": Change(_as_told, _as_published, _flood),
    "old_life": Change(_old_life, _as_published, _replayed, _first_again),
    "equivocation": Change(_as_told, _equivocal, _nothing, _equivocal_sum),
    "wrong_round": Change(_as_told, _other_round, _nothing, _other_transfer),
    "flapping": Change(_as_told, _as_published, _nothing),
}
"""What a byzantine member may do, by name."""
