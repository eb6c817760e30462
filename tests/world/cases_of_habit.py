"""Schedules in which a node waits, leaves, notes or computes as a mutant would have it."""

from collections.abc import Callable
from typing import Any

from folkman.runtime.contributions import Contributions
from folkman.runtime.control import Hello, Quality
from folkman.runtime.core.core import Phase
from folkman.runtime.core.events import Compute, Effect, Event, Note, Received, Start
from folkman.runtime.core.fresh_beat import FreshBeat
from folkman.runtime.core.owed import Owed
from folkman.runtime.emulation import Emulation
from folkman.runtime.fresh_air import FreshAir
from folkman.runtime.fresh_index import Band
from folkman.runtime.fresh_node import ForwardNode
from folkman.runtime.journal import FORGOT, LOST
from folkman.runtime.world.plan import Fault, plan_of
from tests.world.broken import PLAN, another, broken_by, retold, unchanged, without

__all__ = ["CASES_OF_HABIT"]


def gradient_elsewhere() -> int:
    """A gradient is taken beside the mean."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        return [
            each._replace(point=each.point + 0.01) if isinstance(each, Compute) else each
            for each in effects
        ]

    return broken_by(change)


def gradient_elsewhere_in_sums() -> int:
    """The same where messages are sums of whole numbers."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        return [
            each._replace(point=each.point + 0.01) if isinstance(each, Compute) else each
            for each in effects
        ]

    return broken_by(change, PLAN._replace(method="sum", on_grid=True), asked=33)


def forgets_when_it_was_formed() -> int:
    """A copy is held under another slot than the one after which it was formed."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        if isinstance(event, Received):
            core.node.mailbox.slot[:] = 0
        return effects

    return broken_by(change, asked=1)


def holds_too_large_a_number() -> int:
    """A parameter beyond all limits is held."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        if isinstance(event, Received):
            core.node.mailbox.payload[event.peer, 0] = 1e7
        return effects

    return broken_by(change, asked=1)


def says_other_links() -> int:
    """A node tells its neighbours that its links are faster than it measured."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        return retold(
            effects,
            lambda body: (
                Quality(dict.fromkeys(body.links, (1e15, 0.0)))
                if isinstance(body, Quality)
                else body
            ),
        )

    return broken_by(change, asked=23)


def sends_what_is_no_news() -> int:
    """A node sends before it has taken a gradient."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        core.node._sent_steps = -1
        return effects

    return broken_by(change, asked=8)


def leaves_out_whom_it_forgot() -> int:
    """A journal does not have whose copy was given up."""
    plan = PLAN._replace(faults=(Fault("revoke", 1, 4.0, 6.0),))
    return broken_by(_without_notes(FORGOT), plan, asked=26)


def saves_all_the_time() -> int:
    """A node that rests writes the same slot again and again."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        core.saving.slot, core.saving._last_s = -1, float("-inf")
        return effects

    return broken_by(change, asked=26)


def names_another_bringer() -> int:
    """A journal has another as the one who brought a sum without the own part."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        return [
            each._replace(sequence=(each.sequence[0] + 1, *each.sequence[1:]))
            if isinstance(each, Note) and each.kind == LOST
            else each
            for each in effects
        ]

    return broken_by(change, plan_of(123), None, asked=26)


def _without_notes(kind: int) -> Callable[..., list[Effect]]:
    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        return [each for each in effects if not (isinstance(each, Note) and each.kind == kind)]

    return change


def leaves_at_once() -> int:
    """A node that is done does not wait for its last word to come."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        if core.phase is Phase.LINGER:
            core._until_s = now_s
        return effects

    return broken_by(change, PLAN._replace(steps=6), asked=22)


def waits_for_one_who_refused() -> int:
    """A node waits for an answer though it has one: a refusal."""
    with another(Owed, "refused", lambda _: lambda *_: None):
        return broken_by(unchanged, plan_of(30), asked=22)


def waits_for_what_is_there() -> int:
    """On the emulated channel a slot begins late, and nothing is missing."""
    with another(Emulation, "missing", lambda _: lambda *_: True):
        return broken_by(unchanged, PLAN._replace(method="emulated"), asked=22)


def takes_it_before_its_time() -> int:
    """What comes over a band is taken before its transfer ends."""

    def made_of(given: Any) -> Any:
        return lambda *found: given(*found) or True

    with another(FreshAir, "receive", made_of):
        return broken_by(unchanged, PLAN._replace(method="band_forward"), asked=10)


def leaves_what_is_late() -> int:
    """What comes over a band after a node has gone on without it is never taken."""

    def give_up(air: Any) -> None:
        air._mine.popleft()

    with another(FreshAir, "give_up", lambda _: give_up):
        return broken_by(unchanged, plan_of(47), asked=10)


def lets_one_claim_without_end() -> int:
    """Who claims the band again and again is given all of it."""

    def made_of(given: Any) -> Any:
        def heard(band: Any, *found: Any) -> None:
            band._budget.clear()
            given(band, *found)

        return heard

    plan = PLAN._replace(method="sum", liars=((1, "rate"),))
    with another(Band, "heard", made_of):
        return broken_by(unchanged, plan, asked=25)


def ends_without_its_last_save() -> int:
    """A node that is asked to stop ends, and its last gradients are nowhere."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        if isinstance(event, Start):
            given = core.saving.start

            def start(**what: Any) -> int | None:
                return None if core.phase is Phase.STOP else given(**what)

            core.saving.start = start
        return effects

    return broken_by(change, asked=26)


def says_its_links_too_often() -> int:
    """A node tells its neighbours what it measured at every look around."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        core._kept = 0
        return effects

    return broken_by(change, asked=23)


def looks_at_the_band_late() -> int:
    """A node that may send over a band wants to be called a second later."""

    def made_of(given: Any) -> Any:
        return lambda *found: given(*found) + 1.0

    with another(FreshBeat, "next_s", made_of):
        return broken_by(unchanged, PLAN._replace(method="sum"), asked=25)


def adds_more_than_its_share() -> int:
    """The own part of a sum is larger than the own share."""

    def made_of(given: Any) -> Any:
        return lambda *found: 1.1 * given(*found)

    with another(Contributions, "of", made_of):
        return broken_by(unchanged, PLAN._replace(method="sum"), asked=32)


def takes_a_copy_for_another() -> int:
    """A node that passes copies on does not know which it has."""
    with another(ForwardNode, "stamps", lambda _: lambda node: 0 * node.last):
        return broken_by(unchanged, PLAN._replace(method="forward"), asked=32)


def adopts_a_sum_beyond_limits() -> int:
    """A sum with a number beyond all limits is held."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        if isinstance(event, Received):
            core.node.mailbox.others[0] = 1e7
        return effects

    return broken_by(change, PLAN._replace(method="sum", liars=((2, "flood"),)), asked=1)


def learns_without_a_word() -> int:
    """A node begins to learn and tells nobody its clock."""
    begun: list[bool] = []

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        if core.phase is not Phase.LEARN or begun:
            return effects
        begun.append(True)
        return without(effects, Hello)

    return broken_by(change, asked=24)


CASES_OF_HABIT: tuple[Callable[[], int], ...] = (
    gradient_elsewhere,
    gradient_elsewhere_in_sums,
    forgets_when_it_was_formed,
    holds_too_large_a_number,
    says_other_links,
    sends_what_is_no_news,
    leaves_out_whom_it_forgot,
    names_another_bringer,
    saves_all_the_time,
    leaves_at_once,
    waits_for_one_who_refused,
    waits_for_what_is_there,
    takes_it_before_its_time,
    leaves_what_is_late,
    lets_one_claim_without_end,
    ends_without_its_last_save,
    says_its_links_too_often,
    looks_at_the_band_late,
    adds_more_than_its_share,
    takes_a_copy_for_another,
    adopts_a_sum_beyond_limits,
    learns_without_a_word,
)
"""See `tests/world/cases.py`."""
