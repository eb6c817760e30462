"""How a schedule is broken on purpose: a core whose effects are changed, or whose parts are."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

os.environ["FOLKMAN_ARITHMETIC"] = "numpy"

from folkman.runtime import control
from folkman.runtime.codec import Message, decode, encode
from folkman.runtime.core.events import Effect, Event, Publish, Tell
from folkman.runtime.world.audit import Auditor
from folkman.runtime.world.cores import Setting
from folkman.runtime.world.invariants import all_invariants
from folkman.runtime.world.plan import Plan
from folkman.runtime.world.signing import signer
from folkman.runtime.world.world import Broken, World

PLAN = Plan(
    seed=1,
    method="alone",
    nodes=3,
    slots=12,
    slot_s=1.0,
    steps=None,
    heal_s=7.2,
    end_s=17.2,
    liars=(),
    faults=(),
)
Change = Callable[[Any, float, Event, list[Effect]], list[Effect]]


@dataclass
class Twisted:
    """A core whose effects are changed, and which counts as honest all the same."""

    core: Any
    change: Change

    def __getattr__(self, name: str) -> Any:
        return getattr(self.core, name)

    def step(self, now_s: float, event: Event) -> list[Effect]:
        return self.change(self.core, now_s, event, self.core.step(now_s, event))


class TwistedSetting(Setting):
    """A setting in which one node, or every one, is twisted."""

    def __init__(self, plan: Plan, change: Change, only: int | None) -> None:
        super().__init__(plan)
        self._change, self._only = change, only

    def core(self, number: int, verify: Any) -> Any:
        core = super().core(number, verify)
        if self._only is None or number == self._only:
            return Twisted(core, self._change)
        return core


def broken_by(
    change: Change, plan: Plan = PLAN, only: int | None = 0, *, asked: int | None = None
) -> int:
    """Return the invariant that breaks when a core is changed so; `asked`: of this one alone."""
    auditor = Auditor([each for each in all_invariants() if asked in (None, each.number)])
    return broken_in(World(plan, TwistedSetting(plan, change, only), auditor, compares=False))


def broken_in(world: World) -> int:
    """Return the invariant that breaks in a world; 0: none."""
    try:
        world.run()
    except Broken as error:
        return error.number
    return 0


def retold(effects: list[Effect], change: Callable[[control.Body], control.Body]) -> list[Effect]:
    """Change what a node says, under its own signature and number."""
    found: list[Effect] = []
    for effect in effects:
        if isinstance(effect, Tell):
            said = control.open_sealed(effect.data, Setting.run)
            data = control.seal(said._replace(body=change(said.body)), signer(said.node))
            found.append(Tell(effect.peer, data))
        else:
            found.append(effect)
    return found


def spoken(effects: list[Effect]) -> list[tuple[Effect, control.Body | None]]:
    """Return effects, each with what it says if it is a word."""
    return [
        (each, control.open_sealed(each.data, Setting.run).body if isinstance(each, Tell) else None)
        for each in effects
    ]


def without(effects: list[Effect], kind: type) -> list[Effect]:
    """Leave out what a node says of one kind."""
    return [effect for effect, body in spoken(effects) if not isinstance(body, kind)]


def republished(effects: list[Effect], change: Callable[[Message], Message]) -> list[Effect]:
    """Change the messages of a node, under its own signature."""
    found: list[Effect] = []
    for effect in effects:
        if isinstance(effect, Publish):
            message = change(decode(effect.data, Setting.run, PLAN.dim))
            found.append(Publish(effect.peer, encode(message, signer(message.node))))
        else:
            found.append(effect)
    return found


@contextmanager
def another(owner: Any, name: str, made_of: Callable[[Any], Any]) -> Iterator[None]:
    """Let a function be another one for a while, made of the one that is there."""
    there = vars(owner)[name]  # of a static function, not what it gives
    setattr(owner, name, made_of(getattr(owner, name)))
    try:
        yield
    finally:
        setattr(owner, name, there)


def unchanged(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
    """Leave a core as it is, where a function of the runtime is another."""
    del core, now_s, event
    return effects
