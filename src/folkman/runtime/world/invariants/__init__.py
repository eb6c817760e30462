"""Some thirty sentences, each a class: what holds in every schedule, whatever happens."""

from folkman.runtime.world.audit import Invariant
from folkman.runtime.world.invariants.band import AsItIs
from folkman.runtime.world.invariants.cuts import EveryCut
from folkman.runtime.world.invariants.habits import Resends, Restored, Saves, Unmoved
from folkman.runtime.world.invariants.keeping import ExitCode, OnePair, SavedFirst, SavedStates
from folkman.runtime.world.invariants.lives import Lives
from folkman.runtime.world.invariants.measuring import Measured
from folkman.runtime.world.invariants.messages import (
    Counted,
    Heard,
    Newer,
    OfMembers,
    OneContent,
    Rising,
    WithinShare,
)
from folkman.runtime.world.invariants.points import AtTheMean
from folkman.runtime.world.invariants.progress import (
    FreshAfterHeal,
    HonestHealth,
    InStep,
    Together,
    TwinSpread,
)
from folkman.runtime.world.invariants.waiting import Prompt
from folkman.runtime.world.invariants.whole import Bounded, Replays, SameTrace
from folkman.runtime.world.invariants.words import Claims, Words

__all__ = ["ALL", "all_invariants"]

ALL: tuple[type[Invariant], ...] = (
    Newer,
    SavedFirst,
    Rising,
    OneContent,
    OfMembers,
    Bounded,
    SavedStates,
    WithinShare,
    FreshAfterHeal,
    Heard,
    Together,
    Replays,
    OnePair,
    InStep,
    HonestHealth,
    Counted,
    ExitCode,
    TwinSpread,
    SameTrace,
    Prompt,
    Measured,
    Words,
    Claims,
    Saves,
    Restored,
    Unmoved,
    Resends,
    EveryCut,
    Lives,
    AsItIs,
    AtTheMean,
)
"""By their numbers."""


def all_invariants() -> list[Invariant]:
    """Return new books for one schedule."""
    return [each() for each in ALL]
