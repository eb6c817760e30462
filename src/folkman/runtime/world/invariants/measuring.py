"""What a sender knows of its links: invariant 23, a re-telling of its books."""

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from folkman.runtime.control import Ack, Body, Period, Quality, Refusal
from folkman.runtime.core.core import Phase
from folkman.runtime.core.events import Health, MembersChanged, Publish, Start, Told, Unlinked
from folkman.runtime.identity import name_of
from folkman.runtime.world.audit import Invariant, Seen, broken

if TYPE_CHECKING:
    from folkman.runtime.world.host import Host
    from folkman.runtime.world.world import World

__all__ = ["Measured"]

PAST = 0.8
"""Weight of what was measured before."""
PATIENCE = 20.0
"""Median latencies, and at least a second, that a receiver is waited for."""
IN_A_ROW = 2
"""Messages that a receiver may leave unanswered before nobody waits for it."""
MOST_PENALTY = 256
NEWS_SHARE, NEWS_S = 0.1, 4.0
"""Neighbours are told of a rate that has changed by this share, and after this time anyway."""
TABLE_EVERY = 16
"""Looks around from one telling of all links to the next."""
TRY_S = 0.05
"""Where nobody was there, it is looked again after this time."""


class _Open(NamedTuple):
    sequence: int
    at_s: float
    bits: int


class _Receiver:
    """What one receiver did with what it was sent."""

    def __init__(self) -> None:
        self.open: _Open | None = None
        self.rate: float | None = None  # bit/s
        self.latency_s: float | None = None
        self.loss = 0.0
        self.says: float | None = None  # its own rate, as it says
        self.lapses, self.penalty, self.left = 0, 1, 0

    @property
    def counts(self) -> bool:
        """Tell whether it is waited for."""
        return self.lapses < IN_A_ROW

    def answered(self, now_s: float) -> None:
        """Count an answer that came in time."""
        assert self.open is not None  # noqa: S101 - the caller looked
        took_s = now_s - self.open.at_s
        self.rate = _mixed(self.rate, self.open.bits / max(took_s, 1e-6))
        self.latency_s = _mixed(self.latency_s, took_s)
        self.loss, self.open = PAST * self.loss, None
        self.left = max(self.left - 1, 0)
        if not self.left:
            self.lapses = 0

    def lapsed(self) -> None:
        """Count a message that was not answered in time."""
        self.open, self.loss = None, PAST * self.loss + (1.0 - PAST)
        self.lapses += 1
        if self.lapses == IN_A_ROW:
            self.left, self.penalty = self.penalty, min(2 * self.penalty, MOST_PENALTY)


def _mixed(before: float | None, now: float) -> float:
    return now if before is None else PAST * before + (1.0 - PAST) * now


class _Books:
    """One process."""

    def __init__(self, neighbours: list[int], longest_s: float) -> None:
        self.of = {peer: _Receiver() for peer in neighbours}
        self.longest_s = longest_s
        self.members: frozenset[int] | None = None
        self.phase = Phase.START
        self.given_up = 0
        self.due_s, self.sent_slot = -math.inf, -1
        self.slot = -1  # after the step before
        self.alone_s = -math.inf  # when last nobody was there to send to
        self.told: tuple[float, float] | None = None  # the rate that was told last, and when
        self.table_s = -math.inf  # when neighbours were told of all links last
        self.here: dict[int, float] = {}  # neighbour -> rate of its link to us, as it says

    def learn(self, seen: Seen, now_s: float) -> None:
        """Take notice of the event of a step."""
        event, body = seen.event, seen.word
        if isinstance(event, Unlinked):
            self._gone(event.peer)
        elif isinstance(event, MembersChanged) and event.members != self.members:
            self.members = event.members
            for peer in self.of:
                if peer not in event.members:
                    self._gone(peer)
        elif isinstance(event, Told) and isinstance(body, Quality):
            self.here[event.peer] = body.links.get(seen.host.number, (0.0, 0.0))[0]
        elif isinstance(event, Told) and body is not None and event.peer in self.of:
            self._heed(self.of[event.peer], body, now_s)

    def _gone(self, peer: int) -> None:
        if peer in self.of:
            self.of[peer].open = self.of[peer].says = None

    @staticmethod
    def _heed(receiver: _Receiver, body: Body, now_s: float) -> None:
        waits = receiver.open
        if isinstance(body, Period):
            receiver.says = body.rate
        elif waits is None or not isinstance(body, Ack | Refusal):
            return
        elif body.sequence >= waits.sequence:
            if isinstance(body, Ack):
                receiver.answered(now_s)
            else:
                receiver.open = None

    def patience_s(self) -> float:
        """Return how long a receiver is waited for."""
        known = sorted(r.latency_s for r in self.of.values() if r.latency_s is not None)
        if not known:
            return self.longest_s
        return min(max(PATIENCE * known[(len(known) - 1) // 2], 1.0), self.longest_s)

    def give_up(self, now_s: float) -> None:
        """Wait no longer for those whose time is over."""
        patience_s = self.patience_s()
        for receiver in self.of.values():
            if receiver.open is not None and receiver.open.at_s + patience_s <= now_s:
                receiver.lapsed()
                self.given_up += 1

    def pause_s(self, receivers: list[int], bits: int) -> float:
        """Return how long a broadcast keeps the node's share of the medium busy [1, eq. (29)]."""
        rates = [r.rate for r in self.of.values() if r.rate is not None]
        own = min((r for j in receivers if (r := self.of[j].rate) is not None), default=None)
        if own is None:
            return 0.0
        said = [r.says for r in self.of.values() if r.says]
        others = sum(own / min(max(each, min(rates)), max(rates)) for each in said)
        return min(bits * (1.0 + others) / own, self.longest_s)


class Measured(Invariant):
    """23: estimates are averages of what happened, and a period lasts as long as they say."""

    number = 23
    sentence = "what a node says of its links is what it measured, and it sends by it"

    def __init__(self) -> None:
        self._books: dict[int, _Books] = {}

    def asks(self, world: "World") -> bool:
        """Ask where every message is broadcast, on measured links and on the emulated channel."""
        return world.plan.method in ("alone", "emulated")

    def began(self, world: "World", host: "Host", start: Start) -> None:
        """Begin anew."""
        del start
        near = world.setting.neighbours[host.number]
        self._books[host.number] = _Books(near, world.setting.settings.period_timeout_s)

    def stepped(self, seen: Seen) -> None:
        """Tell a step again, and compare what the node says with it."""
        core: Any = seen.host.core
        books, now_s = self._books[seen.host.number], core._now_s
        was, books.phase = books.phase, core.phase
        books.learn(seen, now_s)
        acted = core.phase is Phase.LEARN or (was is Phase.LEARN and core.phase is Phase.WRITE)
        if acted and seen.world.plan.method == "alone":
            books.give_up(now_s)
            if core.phase is Phase.LEARN:
                self._look_at_period(seen, books, core, now_s)
        for effect in seen.of(Publish):
            receiver = books.of[effect.peer]
            if receiver.counts or receiver.open is None:
                number = int.from_bytes(effect.data[24:32], "little")
                receiver.open = _Open(number, now_s, 8 * len(effect.data))
        books.slot = core.node.slot
        tables = [each.body for _, each in seen.told if isinstance(each.body, Quality)]
        if tables:
            self._look_at_table(seen, books, tables[0])
            least_s = TABLE_EVERY * seen.world.setting.settings.keep_every_s
            if now_s < books.table_s + least_s - 1e-6:
                raise broken(self, f"node {seen.host.number} says too often how its links are")
            books.table_s = now_s
        for said in seen.of(Health):
            self._compare(seen, books, said.facts)

    def _look_at_table(self, seen: Seen, books: _Books, said: Quality) -> None:
        """See that neighbours are told of links as they were measured."""
        wanted = {
            j: (each.rate, each.loss) for j, each in books.of.items() if each.rate is not None
        }
        same = said.links.keys() == wanted.keys() and all(
            _near(rate, wanted[j][0]) and _near(loss, wanted[j][1])
            for j, (rate, loss) in said.links.items()
        )
        if not same:
            text = f"node {seen.host.number} says {said.links} of its links"
            raise broken(self, f"{text}, it measured {wanted}")

    def _look_at_period(self, seen: Seen, books: _Books, core: Any, now_s: float) -> None:
        """See that a broadcast comes when its time has come, not before, and to whom it says."""
        sent = sorted({effect.peer for effect in seen.of(Publish)})
        there = core.there()
        self._look_at_next(seen, books, core, now_s)
        waits = any(books.of[j].open is not None and books.of[j].counts for j in there)
        number = seen.host.number
        if not sent:
            news = books.slot not in (books.sent_slot, -1) and core.node.may_send
            news = news and core.node.offers()
            if not there:
                books.alone_s = now_s
            since_s = max(books.due_s, books.alone_s + TRY_S)
            if news and there and not waits and now_s > since_s + 1e-6:
                raise broken(self, f"node {number} has news, may send, and does not")
            return
        if waits or now_s < books.due_s - 1e-6:
            raise broken(self, f"node {number} sends before its period is over")
        worst = min((r for j in sent if (r := books.of[j].rate) is not None), default=0.0)
        said = [each.body for _, each in seen.told if isinstance(each.body, Period)]
        for period in said:
            if sorted(period.receivers) != sent or not _near(period.rate, worst):
                raise broken(self, f"node {number} says {period}, measured {worst:.1f}")
        if not said and (books.told is None or _is_news(books.told, worst, now_s)):
            raise broken(self, f"node {number} does not tell that its rate is {worst:.1f} bit/s")
        if said and books.told is not None and not _is_news(books.told, worst, now_s + 2e-6):
            raise broken(self, f"node {number} tells its rate again, which is no news")
        if said:
            books.told = worst, now_s
        bits = 8 * len(seen.of(Publish)[0].data)
        books.due_s, books.sent_slot = now_s + books.pause_s(sent, bits), core.node.slot
        if abs(core.pace._due_s - books.due_s) > 1e-6:
            text = f"node {number} would send again at {core.pace._due_s:.4f} s"
            raise broken(self, f"{text}, its share allows it at {books.due_s:.4f} s")

    def _look_at_next(self, seen: Seen, books: _Books, core: Any, now_s: float) -> None:
        """See that a node wants to be called when it may send what it has not sent yet."""
        node, there = core.node, core.there()
        sent = bool(seen.of(Publish)) or node.slot == books.sent_slot
        waits = any(books.of[j].open is not None and books.of[j].counts for j in there)
        if sent or waits or not there or not node.may_send or not node.offers():
            return
        wanted_s = max(books.due_s, books.alone_s + TRY_S, now_s)
        if core.next_s() > wanted_s + 1e-6:
            raise broken(self, f"node {seen.host.number} has news, and wants to send it too late")

    def _compare(self, seen: Seen, books: _Books, facts: Any) -> None:
        of = {name_of(peer): receiver for peer, receiver in books.of.items()}
        expected = {
            "goodput_bit_s": {k: r.rate for k, r in of.items() if r.rate is not None},
            "latency_s": {k: r.latency_s for k, r in of.items() if r.latency_s is not None},
            "loss_share": {k: r.loss for k, r in of.items()},
            "goodput_here_bit_s": {name_of(j): rate for j, rate in books.here.items()},
        }
        for name, wanted in expected.items():
            said = facts[name]
            if said.keys() != wanted.keys() or not all(_near(said[k], wanted[k]) for k in wanted):
                raise broken(self, f"{name} of node {seen.host.number} is {said}, not {wanted}")
        unheard = sorted(k for k, r in of.items() if not r.counts)
        if sorted(facts["unheard"]) != unheard:
            raise broken(self, f"node {seen.host.number} waits for others than those who answer")
        if facts["counts"]["periods_given_up"] != books.given_up:
            raise broken(self, f"node {seen.host.number} gave up another number of periods")


def _is_news(told: tuple[float, float], rate: float, now_s: float) -> bool:
    """Tell whether neighbours must hear of a rate: it has changed, or they were told long ago."""
    return abs(rate - told[0]) > NEWS_SHARE * told[0] + 1e-6 or now_s - told[1] > NEWS_S + 1e-6


def _near(one: float, other: float) -> bool:
    """Compare numbers that are said with few digits."""
    return abs(one - other) <= 1e-6 * abs(other) + (0.51 if abs(other) > 10.0 else 1e-4)
