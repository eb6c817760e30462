"""Make a failing schedule small: leave out what it does not need to break the same invariant.

Faults and liars go one by one, then nodes, then slots. Draws are keyed by their use, so what stays
happens as before.
"""

from collections.abc import Callable, Iterator

from folkman.runtime.world.plan import Plan

__all__ = ["shrink"]

FEWEST_SLOTS = 4


def shrink(plan: Plan, breaks: Callable[[Plan], bool], most_runs: int = 200) -> Plan:
    """Return the smallest plan found that still breaks; `breaks` runs a plan and tells."""
    runs = 0
    smaller = True
    while smaller:
        smaller = False
        for candidate in _candidates(plan):
            if runs >= most_runs:
                return plan
            runs += 1
            if breaks(candidate):
                plan, smaller = candidate, True
                break
    return plan


def _candidates(plan: Plan) -> Iterator[Plan]:
    """Return plans with one thing less, the largest things first."""
    half = len(plan.faults) // 2
    if half > 1:
        yield plan._replace(faults=plan.faults[:half])
        yield plan._replace(faults=plan.faults[half:])
    for at in range(len(plan.faults)):
        yield plan._replace(faults=plan.faults[:at] + plan.faults[at + 1 :])
    if plan.liars:
        yield plan._replace(liars=())
    last = plan.nodes - 1
    named = {each for fault in plan.faults for each in (fault.node, fault.peer)}
    if plan.nodes > 2 and last not in named | {liar for liar, _ in plan.liars}:
        yield plan._replace(nodes=last)
    for slots in (plan.slots // 2, plan.slots - 1):
        shorter_s = (plan.slots - slots) * plan.slot_s
        ends = [fault.stop_s for fault in plan.faults]
        if slots >= FEWEST_SLOTS and max(ends, default=0.0) <= plan.heal_s - shorter_s:
            yield plan._replace(
                slots=slots,
                heal_s=plan.heal_s - shorter_s,
                end_s=plan.end_s - shorter_s,
            )
