"""Schedules in which something is broken on purpose, run in a process that computes with NumPy.

`python -m tests.world.cases` prints one JSON object: of each case the invariant that broke. Every
invariant has a case, so that none of them is unable to fail.
"""

import json
import os
import sys
from collections.abc import Callable
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

os.environ["FOLKMAN_ARITHMETIC"] = "numpy"

from folkman.runtime import control, durable
from folkman.runtime.core.core import Core
from folkman.runtime.core.events import (
    Compute,
    Effect,
    Event,
    Finish,
    Health,
    Linked,
    MembersChanged,
    Note,
    Publish,
    Received,
    Save,
    Start,
    Tell,
    Tick,
)
from folkman.runtime.journal import WAKE
from folkman.runtime.world.audit import Auditor
from folkman.runtime.world.cores import Setting
from folkman.runtime.world.invariants import all_invariants
from folkman.runtime.world.page import page
from folkman.runtime.world.plan import Fault, plan_of
from folkman.runtime.world.swarm import run_plan, watch
from folkman.runtime.world.world import World
from tests.world.broken import (
    PLAN,
    Twisted,
    TwistedSetting,
    broken_by,
    broken_in,
    republished,
    retold,
    spoken,
    without,
)
from tests.world.cases_of_code import CASES_OF_CODE
from tests.world.cases_of_habit import CASES_OF_HABIT
from tests.world.mended import MENDED
from tests.world_coverage import watched


def older_applied() -> int:
    """A mailbox goes back to a message before the one that it held."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        box = core.node.mailbox
        if isinstance(event, Received) and box.sequence[1] > (1 << 32) + 2:
            box.sequence[1] -= 1
        return effects

    return broken_by(change)


def published_unsaved() -> int:
    """In rounds, saves are reported and not made."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        return [
            effect._replace(state=None) if isinstance(effect, Save) and effect.state else effect
            for effect in effects
        ]

    return broken_by(change, PLAN._replace(method="rounds", steps=6))


def sequence_falls() -> int:
    """A node numbers its messages backwards now and then."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        if core.node.steps > 3:
            return republished(effects, lambda m: m._replace(sequence=m.sequence - (1 << 20)))
        return effects

    return broken_by(change)


def two_contents() -> int:
    """A node says different things to different neighbours under one number."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        found: list[Effect] = []
        for effect in effects:
            extra = float(effect.peer) if isinstance(effect, Publish) else 0.0
            found += republished([effect], lambda m, by=extra: m._replace(params=m.params + by))
        return found

    return broken_by(change)


def revoked_kept() -> int:
    """A core does not hear of a change of members."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        box = core.node.mailbox
        if isinstance(event, MembersChanged) and len(event.members) < 3:
            box.sequence[1] = box.newest[1] = box.newest[1] + 1
        return effects

    revoked = Fault("revoke", 1, 4.0, 6.0)
    return broken_by(change, PLAN._replace(faults=(revoked,)))


def hoards() -> int:
    """A node keeps every message that it ever got."""
    kept: list[bytes] = []

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        if isinstance(event, Received):
            kept.append(bytes(bytearray(event.data * 100)))
            core.hoard = kept
        return effects

    return broken_by(change)


def state_never_saved() -> int:
    """A disk gives back another state than it was given."""
    given = durable.read_state

    def read(disk: Any, fingerprint: str | None = None) -> Any:
        found = given(disk, fingerprint)
        if found.arrays is not None:
            found.arrays["params"] = found.arrays["params"] + 1
        return found

    durable.read_state = read
    try:
        killed = Fault("kill", 0, 6.5, 7.0)
        return broken_by(lambda *given: given[-1], PLAN._replace(faults=(killed,)))
    finally:
        durable.read_state = given


def beyond_share() -> int:
    """A node sends as soon as it has something, whatever its share is."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        core.pace._due_s = float("-inf")
        slower = [effect for effect in effects if isinstance(effect, Tell)]
        del slower
        return retold(
            effects,
            lambda body: body._replace(rate=300.0) if type(body).__name__ == "Period" else body,
        )

    return broken_by(change, asked=8)


def beyond_share_unsaid() -> int:
    """A node says a low rate once, has no news of it, and sends as soon as it has something."""
    said: list[float] = []

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        core.pace._due_s = float("-inf")
        if any(said):
            return without(effects, control.Period)
        said.extend(body.rate for _, body in spoken(effects) if isinstance(body, control.Period))
        return retold(
            effects,
            lambda body: (
                body._replace(rate=300.0)
                if isinstance(body, control.Period) and body.rate
                else body
            ),
        )

    return broken_by(change, asked=8)


def says_no_rate() -> int:
    """A node never says what its rate is."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        return without(effects, control.Period)

    return broken_by(change, asked=8)


def silent_after_heal() -> int:
    """A node sends nothing any more."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        if core.node.steps > 5:
            return [effect for effect in effects if not isinstance(effect, Publish)]
        return effects

    return broken_by(change, asked=9)


def silent_in_rounds_among_poison() -> int:
    """A node sends nothing any more, and not for a liar that poisons."""
    return silent_beside((2, "poison"), "rounds", seed=4)


def silent_in_rounds_among_false_answers() -> int:
    """A node sends nothing any more, and not for a liar that acknowledges all."""
    return silent_beside((2, "acknowledges_all"), "rounds")


def silent_to_its_server() -> int:
    """A node sends its server nothing any more, and not for a liar that acknowledges all."""
    return silent_beside((2, "acknowledges_all"), "server")


def silent_beside(liar: tuple[int, str], method: str, seed: int = 1) -> int:
    """Silence node 0 once it has taken some steps."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        if core.node.steps > 3:
            return [effect for effect in effects if not isinstance(effect, Publish)]
        return effects

    plan = PLAN._replace(seed=seed, method=method, liars=(liar,))
    return broken_by(change, plan, asked=9)


def acknowledges_unheard() -> int:
    """A node acknowledges the message after the one that it took."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        def later(body: control.Body) -> control.Body:
            return control.Ack(body.sequence + 1) if isinstance(body, control.Ack) else body

        return retold(effects, later)

    return broken_by(change)


def unacknowledged() -> int:
    """A node takes messages and does not say so."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        return without(effects, control.Ack)

    return broken_by(change)


def slot_twice() -> int:
    """A node lives a slot twice."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        return [
            effect._replace(slot=min(effect.slot, 4))
            if isinstance(effect, Note) and effect.kind == WAKE
            else effect
            for effect in effects
        ]

    return broken_by(change)


def journal_lies() -> int:
    """A journal leaves a message out that a slot saw."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        return [
            effect._replace(sequence=(0,) * len(effect.sequence))
            if isinstance(effect, Note) and effect.kind == WAKE and effect.slot > 5
            else effect
            for effect in effects
        ]

    return broken_by(change, PLAN._replace(seed=5), only=None)


def journal_of_sums_lies() -> int:
    """A journal of a node with whole numbers names an older stamp than the one that a slot saw."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        return [
            effect._replace(sequence=(0, *effect.sequence[1:]))
            if isinstance(effect, Note) and effect.kind == WAKE and effect.slot == 5
            else effect
            for effect in effects
        ]

    return broken_by(change, PLAN._replace(method="sum", on_grid=True), only=1)


def acknowledged_and_left() -> int:
    """A node acknowledges what comes over the band, and lets it fall off the air."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        if isinstance(event, Received) and now_s > 4.0:
            core.pace.air._air.clear()
        return effects

    return broken_by(change, PLAN._replace(method="band_forward"))


def torn_pair() -> int:
    """A save holds the parameters of another step than its counters."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        for effect in effects:
            if isinstance(effect, Save) and effect.state is not None:
                effect.state["counters"] = effect.state["counters"] + [0, 1, 0, 0]
        return effects

    return broken_by(change)


def key_twice() -> int:
    """A node takes the same gradient twice."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        return [
            effect._replace(step=min(effect.step, 3)) if isinstance(effect, Compute) else effect
            for effect in effects
        ]

    return broken_by(change)


def round_skipped() -> int:
    """A node leaves a round out."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        if core.node.mailbox.round == 3:
            core.node.mailbox.round = 5
        return effects

    return broken_by(change, PLAN._replace(method="rounds", steps=8))


def never_done() -> int:
    """In rounds, a node stops sending, and nobody gets to the end."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        if core.node.mailbox.round >= 3:
            return [effect for effect in effects if not isinstance(effect, Publish)]
        return effects

    return broken_by(change, PLAN._replace(method="rounds", steps=8, end_s=40.0), asked=14)


def says_it_is_well() -> int:
    """A node that takes no gradient any more says that it is well."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        stopped = core.node.steps >= 2
        found: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Compute) and stopped:
                continue
            found.append(effect._replace(ok=True) if isinstance(effect, Health) else effect)
        return found

    return broken_by(change, PLAN._replace(slots=60, heal_s=36.0, end_s=60.0), asked=15)


def uncounted() -> int:
    """A node counts a message twice."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        if isinstance(event, Received):
            core.node.mailbox.refused["stale"] += 1
        return effects

    return broken_by(change)


def result_missing() -> int:
    """A node ends with 0 and has written no result."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        return [
            effect._replace(final=None) if isinstance(effect, Save) else effect
            for effect in effects
        ]

    return broken_by(change, PLAN._replace(steps=5))


def fault_of_its_own() -> int:
    """A node ends with a fault."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        return [Finish(1) if isinstance(effect, Finish) else effect for effect in effects]

    return broken_by(change)


def stays_apart() -> int:
    """A node moves away from the others for good."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        for effect in effects:
            if isinstance(effect, Finish):
                core.node.params = lambda: [100.0] * PLAN.dim
        return effects

    return broken_by(change, PLAN._replace(seed=16), asked=18)


def depends_on_more() -> int:
    """A core draws from something that is not the seed."""
    count = [0]

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        count[0] += 1
        return effects

    plan = PLAN._replace(seed=25)
    auditor = Auditor([each for each in all_invariants() if each.number == 19])
    world = World(plan, TwistedSetting(plan, change, 0), auditor, compares=True)
    world.trace.say(0.0, -1, "something that no seed has drawn")
    return broken_in(world)


def stands_still() -> int:
    """A core asks to be called at once, for ever."""

    class Restless(Twisted):
        def next_s(self) -> float:
            return 0.0

    class Setting2(Setting):
        def core(self, number: int, verify: Any) -> Any:
            return Restless(super().core(number, verify), lambda *given: given[-1])

    world = World(PLAN, Setting2(PLAN), Auditor([]))
    return broken_in(world)


def adopts_older_sum() -> int:
    """A node takes over stamps that are older than its own."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        box = core.node.mailbox
        if isinstance(event, Received) and box.sequence[1] & 0xFFFF > 2:
            box.sequence = box.sequence - (box.sequence > 0)
        return effects

    return broken_by(change, PLAN._replace(method="sum"), asked=1)


def sum_of_other_parts() -> int:
    """A node holds a sum that is not that of the parts which its stamps name."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        if isinstance(event, Received):
            core.node.mailbox.others = core.node.mailbox.others + 0.01
        return effects

    return broken_by(change, PLAN._replace(method="sum"), asked=1)


def stranger_in_a_sum() -> int:
    """A node goes on taking sums of one that was revoked."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        if core.members is not None and 1 not in core.members:
            core.node.mailbox.last[1] += 1
        return effects

    revoked = Fault("revoke", 1, 4.0, 6.0)
    return broken_by(change, PLAN._replace(method="sum", faults=(revoked,)), asked=5)


def slots_ahead() -> int:
    """On the emulated channel a node lives slots that nobody's clock has come to."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        return [
            effect._replace(slot=effect.slot + 50)
            if isinstance(effect, Note) and effect.kind == WAKE
            else effect
            for effect in effects
        ]

    plan = PLAN._replace(method="emulated", liars=((2, "clock"),))
    return broken_by(change, plan, asked=11)


def waits_for_nobody() -> int:
    """A node whose neighbours are all linked waits for the limit of a start."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        core.everyone_linked = lambda: False
        return effects

    return broken_by(change, asked=22)


def stays_for_nobody() -> int:
    """A node whose neighbours are all done stays for the limit of an end."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        if core.goes_on():
            return effects
        core._counting = lambda: [99]
        return effects

    return broken_by(change, PLAN._replace(steps=4), asked=22)


def answer_lost() -> int:
    """A node does not hear one acknowledgement."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        if core.hands.counts["taken"] == 3:
            return [effect for effect in effects if not isinstance(effect, Tell)]
        return effects

    return broken_by(change, asked=22)


def sends_again() -> int:
    """In rounds a node sends again what was acknowledged long ago."""
    sent: list[Effect] = []

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        sent.extend(effect for effect in effects if isinstance(effect, Publish))
        return [*effects, sent[0]] if core.node.steps == 5 else effects

    return broken_by(change, PLAN._replace(method="rounds"), asked=22)


def measures_wrongly() -> int:
    """A node says twice the rate that it measured."""

    def doubled(facts: Any) -> Any:
        return facts | {"goodput_bit_s": {k: 2 * v for k, v in facts["goodput_bit_s"].items()}}

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        return [
            each._replace(facts=doubled(each.facts)) if isinstance(each, Health) else each
            for each in effects
        ]

    return broken_by(change, asked=23)


def keeps_news_to_itself() -> int:
    """A node that may send does not."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        return [effect for effect in effects if not isinstance(effect, Publish)]

    return broken_by(change, asked=23)


def says_another_time() -> int:
    """A node says that its clock of slots is a second ahead."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        return retold(
            effects,
            lambda body: (
                body._replace(clock_s=body.clock_s + 1.0)
                if isinstance(body, control.Hello)
                else body
            ),
        )

    return broken_by(change, asked=24)


def answers_nobody() -> int:
    """A node gives no answer to what it refuses."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        return [] if isinstance(event, Received) else effects

    return broken_by(change, asked=24)


def greets_nobody() -> int:
    """A node says hello no more."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        return [effect for effect in effects if not isinstance(effect, Tell)]

    return broken_by(change, asked=24)


def claims_nothing() -> int:
    """A node sends on a shared band without a word."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        return [effect for effect in effects if not isinstance(effect, Tell)]

    return broken_by(change, PLAN._replace(method="sum"), asked=25)


def saves_seldom() -> int:
    """A node saves no state after its first."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        core.saving._last_s = now_s
        return effects

    return broken_by(change, asked=26)


def skips_a_slot_in_its_journal() -> int:
    """A node leaves a slot out of its journal."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        return [e for e in effects if not (isinstance(e, Note) and e.kind == WAKE and e.slot == 2)]

    return broken_by(change, asked=26)


def begins_elsewhere() -> int:
    """A node that begins again counts one message more than it saved."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        if isinstance(event, Start) and event.state is not None:
            core.node.sequence += 1
        return effects

    return broken_by(change, PLAN._replace(faults=(Fault("kill", 0, 4.0, 5.0),)), asked=27)


def carried_away() -> int:
    """A node takes parameters that are far from all others."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        core.node.mailbox.payload[1] = 9e5
        return effects

    return broken_by(change, asked=28)


def stranger_passed_on() -> int:
    """A node keeps a copy under another's number."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        letters = core.node.letters
        if 1 in letters:
            letters[2] = letters[1]
        return effects

    return broken_by(change, PLAN._replace(method="forward"), asked=5)


def another_round_taken() -> int:
    """A node counts a message of a round long past as taken."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        if isinstance(event, Received) and core.node.mailbox.round > 4:
            core.hands.counts["taken"] += 1
        return effects

    plan = PLAN._replace(method="rounds", faults=(Fault("duplicate", 1, 0.0, 7.0, 0.9, 0),))
    return broken_by(change, plan, asked=14)


def sends_again_too_soon() -> int:
    """In rounds a node sends its last message at every look around."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        sent = core.node.last_sent
        again = isinstance(event, Tick) and sent and core.node.slot > 2
        return [*effects, Publish(1, sent), Publish(1, sent)] if again else effects

    return broken_by(change, PLAN._replace(method="rounds"), asked=29)


def sends_nothing_over_a_new_link() -> int:
    """In rounds a node sends nothing to one that is linked again."""

    def change(core: Any, now_s: float, event: Event, effects: list[Effect]) -> list[Effect]:
        if isinstance(event, Linked):
            return [effect for effect in effects if not isinstance(effect, Publish)]
        return effects

    plan = PLAN._replace(method="rounds", faults=(Fault("flap", 0, 4.0, 5.0, 0.0, 1),))
    return broken_by(change, plan, asked=29)


CASES: tuple[Callable[[], int], ...] = (
    older_applied,
    published_unsaved,
    sequence_falls,
    two_contents,
    revoked_kept,
    hoards,
    state_never_saved,
    beyond_share,
    beyond_share_unsaid,
    says_no_rate,
    silent_after_heal,
    silent_in_rounds_among_poison,
    silent_in_rounds_among_false_answers,
    silent_to_its_server,
    acknowledges_unheard,
    unacknowledged,
    slot_twice,
    journal_lies,
    journal_of_sums_lies,
    acknowledged_and_left,
    torn_pair,
    key_twice,
    round_skipped,
    never_done,
    says_it_is_well,
    uncounted,
    result_missing,
    fault_of_its_own,
    stays_apart,
    depends_on_more,
    stands_still,
    adopts_older_sum,
    sum_of_other_parts,
    stranger_in_a_sum,
    slots_ahead,
    waits_for_nobody,
    stays_for_nobody,
    answer_lost,
    sends_again,
    measures_wrongly,
    keeps_news_to_itself,
    says_another_time,
    answers_nobody,
    greets_nobody,
    claims_nothing,
    saves_seldom,
    skips_a_slot_in_its_journal,
    begins_elsewhere,
    carried_away,
    stranger_passed_on,
    another_round_taken,
    sends_again_too_soon,
    sends_nothing_over_a_new_link,
    *CASES_OF_CODE,
    *CASES_OF_HABIT,
)
"""What is broken on purpose; `tests/world/test_world_auditor.py` knows which invariant says so."""


def unlike_their_source() -> list[str]:
    """Return the functions of the runtime that are not what their files say, after a schedule.

    Every function of a file is looked up by its name, so that one that was replaced is found
    wherever the other comes from.
    """
    run_plan(PLAN)
    wrong, looked_at = [], 0
    for name, module in sorted(sys.modules.items()):
        if name.startswith("folkman.runtime.") and ".world" not in name and module.__file__:
            source = compile(Path(module.__file__).read_bytes(), module.__file__, "exec")
            for place, codes in _written(source).items():
                looked_at += 1
                if _code_at(module, place) not in codes:
                    wrong.append(f"{name}.{place}")
    return wrong if looked_at > 100 else ["nothing was looked at"]


def unlike_when_replaced() -> list[str]:
    """Return what is found where a method and a function are replaced."""
    kept = Core.next_s, durable.save_state
    Core.next_s = lambda self, *given: kept[0](self, *given)
    durable.save_state = lambda *given: kept[1](*given)
    try:
        return unlike_their_source()
    finally:
        Core.next_s, durable.save_state = kept


def _written(code: CodeType) -> dict[str, set[CodeType]]:
    """Return the functions of a file by their names; a property has one for each of its halves."""
    found: dict[str, set[CodeType]] = {}
    for each in code.co_consts:
        if not isinstance(each, CodeType) or each.co_name.startswith("<"):
            continue
        if each.co_flags & CO_OPTIMIZED:  # a function; the others are bodies of classes
            found.setdefault(each.co_qualname, set()).add(each)
        else:
            found.update(_written(each))
    return found


def _code_at(module: ModuleType, place: str) -> CodeType | None:
    """Return the code that is run under a name of a module."""
    item: Any = module
    for part in place.split("."):
        item = vars(item).get(part)
        if item is None:
            return None
    for inner in ("fget", "__func__", "__wrapped__"):
        item = getattr(item, inner, item)
    return getattr(item, "__code__", None)


def heals(seed: int) -> dict[str, object]:
    """Return what a schedule with a partition shows: its faults, its link, and ages of copies."""
    outcome, world = watch(plan_of(seed))
    up = [line for line in world.trace.lines if line.what in ("link up", "link down")]
    return {
        "text": outcome.text,
        "faults": [fault.said() for fault in outcome.plan.faults],
        "nodes": outcome.plan.nodes,
        "links": [[line.now_s, line.what] for line in up],
        "ages": [[now_s, node, ages[1 - node]] for now_s, node, ages, _ in world.ages],
    }


def files_run() -> list[str]:
    """Return the files of the runtime of which schedules of all methods run a line."""
    root = Path(__file__).resolve().parents[2]
    files = {path.relative_to(root).as_posix() for path in root.glob("src/folkman/runtime/**/*.py")}
    seeds = {plan_of(seed).method: seed for seed in reversed(range(200))}
    ran = {
        name
        for seed in seeds.values()
        for name, lines in watched(seed, frozenset(files))[2].items()
        if lines
    }
    return sorted(name for name in ran if "/world/" not in name)


def main() -> None:
    """Run all cases, the bugs that were mended, and the plan without any change."""
    chosen = sys.argv[1:]
    found: dict[str, object] = {
        case.__name__: case() for case in CASES if not chosen or case.__name__ in chosen
    }
    if not chosen:
        found["nothing"] = run_plan(PLAN).broken
        found["mended"] = {name: run_plan(plan).text for name, plan in MENDED.items()}
        found["again"] = [run_plan(PLAN).digest, run_plan(PLAN).digest]
        found["other"] = run_plan(PLAN._replace(seed=2)).digest
        found["unlike"] = unlike_their_source()
        found["replaced"] = unlike_when_replaced()
        found["files"] = files_run()
        found["heals"] = heals(2372)
        found["jax"] = "jax" in sys.modules
        found["page"] = page(*watch(PLAN._replace(liars=((1, "flood"),))))
        found["core"] = type(Setting(PLAN).core(0, lambda *_: True)) is Core
    print(json.dumps(found))


if __name__ == "__main__":
    main()
