"""Schedules in which one decision of the runtime is another, each as a mutant would have it."""

from collections.abc import Callable
from typing import Any

from folkman.runtime import durable
from folkman.runtime.core import events, fresh_beat
from folkman.runtime.core.core import Core
from folkman.runtime.core.events import Effect, Event, Note, Start, Tell
from folkman.runtime.core.life import Life
from folkman.runtime.core.rounds import InRounds
from folkman.runtime.fresh_air import FreshAir
from folkman.runtime.journal import SEND
from folkman.runtime.mailbox import Mailbox
from folkman.runtime.node import Node
from folkman.runtime.world.plan import Fault
from tests.world.broken import PLAN, another, broken_by, unchanged

__all__ = ["CASES_OF_CODE"]


def removes_the_state_before() -> int:
    """A save has a moment in which no state is left: a cut right then is fatal."""

    def made_of(given: Any) -> Any:
        def save(disk: Any, arrays: Any, fingerprint: str) -> None:
            given(disk, arrays, fingerprint)
            data = disk.read(durable.STATE_FILE)
            disk.remove(durable.STATE_BEFORE_FILE)
            disk.remove(durable.STATE_FILE)
            disk.sync_folder()
            durable.write_whole(disk, durable.STATE_FILE, data)

        return save

    with another(durable, "save_state", made_of):
        return broken_by(unchanged, PLAN._replace(seed=8), asked=30)


def takes_rot_for_a_state() -> int:
    """A digest says nothing of the bytes."""
    with another(durable, "_digest", lambda _: lambda _: durable.NO_DIGEST):
        return broken_by(unchanged, PLAN._replace(seed=8), asked=30)


def believes_nobody() -> int:
    """A node does not heed that a neighbour knows a later life of it."""
    plan = PLAN._replace(liars=((1, "old_life"),))
    with another(Life, "told", lambda _: lambda *_: None):
        return broken_by(unchanged, plan, asked=31)


def tells_nobody_of_its_life() -> int:
    """A node says nothing to one that repeats its words."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        return [effect for effect in effects if not isinstance(effect, Tell)]

    return broken_by(change, PLAN._replace(liars=((1, "old_life"),)), asked=31)


def sends_what_it_was() -> int:
    """On a band a node sends the parameters of an earlier transfer."""
    with another(FreshAir, "starts_own", lambda _: lambda *_: False):
        return broken_by(unchanged, PLAN._replace(method="band_sum"), asked=32)


def leaves_messages_out_of_its_journal() -> int:
    """A node notes its slots and not what it sends."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        return [each for each in effects if not (isinstance(each, Note) and each.kind == SEND)]

    return broken_by(change, asked=26)


def builds_on_an_earlier_life() -> int:
    """With error feedback a node that begins again goes on with changes."""
    plan = PLAN._replace(method="feedback", faults=(Fault("kill", 0, 1.0, 1.5),))
    with another(Node, "forget_receivers", lambda _: lambda _: None):
        return broken_by(unchanged, plan, asked=4)


def claims_too_much() -> int:
    """A node claims the band for three times as long as its message takes."""

    def made_of(given: Any) -> Any:
        return lambda *found: 3.0 * given(*found)

    with another(fresh_beat.Beliefs, "_costs_s", made_of):
        return broken_by(unchanged, PLAN._replace(method="sum"), asked=25)


def never_ends() -> int:
    """A node that has all its gradients waits for nothing."""
    with another(Core, "finish", lambda _: lambda _: None):
        return broken_by(unchanged, PLAN._replace(steps=6), asked=22)


def waits_after_its_round() -> int:
    """In rounds a node that has heard everyone does not go on."""
    with another(InRounds, "may_end", lambda _: lambda *_: False):
        return broken_by(unchanged, PLAN._replace(method="rounds"), asked=22)


def lives_empty_slots() -> int:
    """In rounds a node lives slots while it waits."""
    with another(InRounds, "may_end", lambda _: lambda *_: True):
        return broken_by(unchanged, PLAN._replace(method="rounds"), asked=14)


def uses_the_next_round() -> int:
    """In rounds a message that is early takes the place of the one that is due."""

    def keep(box: Any, message: Any) -> None:
        row = message.node - box._first_sender
        box.payload[row] = message.params
        box.sequence[row] = box.newest[row] = message.sequence
        box.slot[row], box.heard[row], box.finite[row] = message.slot, True, True

    slow = Fault("partition", 2, 1.0, 4.0, 0.0, 0)
    with another(Mailbox, "_keep", lambda _: keep):
        return broken_by(unchanged, PLAN._replace(method="rounds", faults=(slow,)), asked=14)


def logs_its_trouble_again_and_again() -> int:
    """A node that is not well says so in its log at every look around."""
    plan = PLAN._replace(faults=tuple(Fault("kill", peer, 1.0, 12.0) for peer in (1, 2)))

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        core.watch.said = ""
        return effects

    return broken_by(change, plan, asked=15)


def hears_another_rate() -> int:
    """A node says another rate of the links to it than its neighbours said."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        for peer in () if isinstance(event, Start) else core.hearing.qualities:
            core.hearing.qualities[peer] = (1.0, 0.0)
        return [
            each._replace(facts=each.facts | {"goodput_here_bit_s": {"node-1": 1}})
            if isinstance(each, events.Health)
            else each
            for each in effects
        ]

    return broken_by(change, asked=23)


CASES_OF_CODE: tuple[Callable[[], int], ...] = (
    removes_the_state_before,
    takes_rot_for_a_state,
    believes_nobody,
    tells_nobody_of_its_life,
    sends_what_it_was,
    leaves_messages_out_of_its_journal,
    builds_on_an_earlier_life,
    claims_too_much,
    never_ends,
    waits_after_its_round,
    lives_empty_slots,
    uses_the_next_round,
    logs_its_trouble_again_and_again,
    hears_another_rate,
)
"""See `tests/world/cases.py`."""
