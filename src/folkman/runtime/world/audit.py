"""The auditor: it sees every step of every honest member, and keeps the books that sentences need.

Each invariant is a class of its own (`folkman.runtime.world.invariants`). It looks at what a core
was told, what it wants done, and at what it holds; it changes nothing.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from folkman.runtime.control import Body, Control, Hello
from folkman.runtime.core.events import Effect, Event, Publish, Save, Start, Tell, Told
from folkman.runtime.world.contents import Contents, header_of, held_by
from folkman.runtime.world.ears import Ears, Sealed

if TYPE_CHECKING:
    from folkman.runtime.world.host import Host
    from folkman.runtime.world.world import World

__all__ = ["Auditor", "Invariant", "Moved", "Seen", "broken"]

Kind = TypeVar("Kind")


def broken(invariant: "Invariant", text: str) -> Exception:
    """Return what is to be raised where an invariant does not hold."""
    from folkman.runtime.world.world import Broken

    return Broken(invariant.number, f"{text} ({invariant.sentence})")


class Moved:
    """Among what an invariant looks at: what a member holds of others is not what it was."""


class Seen:
    """One step of one honest member."""

    __slots__ = (
        "_by_kind",
        "beyond",
        "contents",
        "effects",
        "event",
        "host",
        "moved",
        "published",
        "repeated",
        "told",
        "word",
        "world",
    )

    def __init__(
        self,
        world: "World",
        host: "Host",
        event: Event,
        effects: list[Effect],
        contents: Contents,
        sealed: "Sealed",
    ) -> None:
        self.world, self.host, self.event, self.effects = world, host, event, effects
        self._by_kind: dict[type, list[Any]] = {}
        for effect in effects:
            self._by_kind.setdefault(type(effect), []).append(effect)
        self.published = [header_of(effect.peer, effect.data) for effect in self.of(Publish)]
        self.contents = [
            content for each in self.published if (content := contents.of(each)) is not None
        ]
        self.told: list[tuple[int, Control]] = []
        for effect in self.of(Tell):
            control = sealed.opened(effect.data)
            if control is not None:
                self.told.append((effect.peer, control))
        self.moved = True
        """May what is held of others differ from what was held after the step before?"""
        self.word: Body | None = None
        """What a neighbour said in this step, if it counts (`folkman.runtime.world.ears`)."""
        self.beyond: int | None = None
        """The number of a message that a neighbour acknowledges and that was never sent."""
        self.repeated = 0
        """Words that this process was told and had heard before."""

    def kinds(self) -> tuple[type, ...]:
        """Return what there is to look at."""
        return (type(self.event), *((Moved,) if self.moved else ()), *self._by_kind)

    def of(self, kind: type[Kind]) -> "Sequence[Kind]":
        """Return the effects of one kind, in their order."""
        return self._by_kind.get(kind, ())

    @property
    def node(self) -> Any:
        """Return the node inside the core: `folkman.runtime.node.Node`, or a server's."""
        return self.host.core.node  # type: ignore[union-attr]


class Invariant:
    """A sentence that holds in every schedule; what a subclass does not define it does not ask."""

    number = 0
    sentence = ""
    looks_at: tuple[type, ...] | None = None
    """Kinds of events and effects, or `Moved`, of which a step must have one; None: any step."""

    def asks(self, world: "World") -> bool:
        """Tell whether this schedule can be asked."""
        del world
        return True

    def began(self, world: "World", host: "Host", start: Start) -> None:
        """Look at a process that is about to begin with what its disk had."""

    def stepped(self, seen: Seen) -> None:
        """Look at a step that was taken, and whose effects are not carried out yet."""

    def saved(self, world: "World", host: "Host", save: Save) -> None:
        """Look at a save that the disk has taken whole."""

    def ended(self, world: "World", host: "Host") -> None:
        """Look at a process that is about to end."""

    def lost_folder(self, host: "Host") -> None:
        """Take notice that a node's folder is gone."""

    def flipped(self, host: "Host") -> None:
        """Take notice that a bit of a node's folder has changed."""

    def healed(self, world: "World") -> None:
        """Take notice that all faults have ended."""

    def over(self, world: "World") -> None:
        """Look at the end of the schedule's time; nobody was asked to stop yet."""

    def end(self, world: "World") -> None:
        """Look at a schedule in which everybody has ended."""


HOOKS = ("began", "saved", "ended", "lost_folder", "flipped", "healed", "over", "end")


class Auditor:
    """All invariants of one schedule."""

    def __init__(self, invariants: list[Invariant]) -> None:
        self.invariants = invariants
        self._asked: list[Invariant] = []
        self._hooks: dict[str, list[Callable[..., None]]] = {}
        self._stepped: dict[tuple[type, ...], list[Callable[[Seen], None]]] = {}
        self._held: dict[int, tuple[object, ...]] = {}  # member -> after its last step
        self._ears: dict[int, Ears] = {}
        self._clock_liars: frozenset[int] = frozenset()
        self.misled: set[int] = set()
        """Who has gone by clocks most of which were a liar's, or of one that had."""
        self.unasked: tuple[int, ...] = ()

    def begin(self, world: "World") -> None:
        """Leave out what this schedule cannot be asked."""
        plan = world.plan
        self._contents = Contents(plan.carries, world.setting.run, plan.dim, plan.nodes)
        if plan.in_slots:
            self._clock_liars = frozenset(who for who, lie in plan.liars if lie == "clock")
        self._sealed = Sealed(world.setting.run)
        asked = self._asked = [each for each in self.invariants if each.asks(world)]
        self.unasked = tuple(each.number for each in self.invariants if each not in asked)
        for name in HOOKS:
            self._hooks[name] = [
                getattr(each, name)
                for each in asked
                if getattr(type(each), name) is not getattr(Invariant, name)
            ]

    def began(self, world: "World", host: "Host", start: Start) -> None:
        """Pass it on, of honest members."""
        if host.lie is None:
            self._ears[host.number] = Ears(self._sealed)
            for hook in self._hooks["began"]:
                hook(world, host, start)

    def stepped(self, world: "World", host: "Host", event: Event, effects: list[Effect]) -> None:
        """Read what a step says and holds once, and let every invariant look at it."""
        seen = Seen(world, host, event, effects, self._contents, self._sealed)
        ears = self._ears[host.number]
        seen.word, seen.repeated = ears.word(host.core, event), ears.repeated
        seen.beyond = ears.beyond
        self._note_misled(seen)
        held = (host.process, *held_by(seen.node))
        seen.moved = self._held.get(host.number) != held
        self._held[host.number] = held
        kinds = seen.kinds()
        hooks = self._stepped.get(kinds)
        if hooks is None:
            hooks = self._stepped[kinds] = self._looking_at(kinds)
        for hook in hooks:
            hook(seen)

    def _note_misled(self, seen: Seen) -> None:
        """Note who goes by a clock that is not an honest one's: the middle of all it hears."""
        core: Any = seen.host.core
        if not self._clock_liars or not isinstance(seen.event, Told) or not core.is_learning:
            return
        said = self._sealed.opened(seen.event.data)
        there, bad = core.there(), self._clock_liars | self.misled
        outnumbered = sum(peer in bad for peer in there) > len(there) // 2
        if outnumbered and said is not None and isinstance(said.body, Hello):
            self.misled.add(seen.host.number)

    def _looking_at(self, kinds: tuple[type, ...]) -> list[Callable[[Seen], None]]:
        """Return who looks at a step with these kinds of events and effects."""
        return [
            each.stepped
            for each in self._asked
            if type(each).stepped is not Invariant.stepped
            and (each.looks_at is None or not set(kinds).isdisjoint(each.looks_at))
        ]

    def saved(self, world: "World", host: "Host", save: Save) -> None:
        """Pass it on."""
        for hook in self._hooks["saved"]:
            hook(world, host, save)

    def ended(self, world: "World", host: "Host") -> None:
        """Pass it on, of honest members."""
        if host.lie is None:
            for hook in self._hooks["ended"]:
                hook(world, host)

    def lost_folder(self, host: "Host") -> None:
        """Pass it on."""
        for hook in self._hooks["lost_folder"]:
            hook(host)

    def flipped(self, host: "Host") -> None:
        """Pass it on."""
        for hook in self._hooks["flipped"]:
            hook(host)

    def healed(self, world: "World") -> None:
        """Pass it on."""
        for hook in self._hooks["healed"]:
            hook(world)

    def over(self, world: "World") -> None:
        """Pass it on."""
        for hook in self._hooks["over"]:
            hook(world)

    def end(self, world: "World") -> None:
        """Pass it on."""
        for hook in self._hooks["end"]:
            hook(world)
