"""What a core does with its hands: it collects effects, and words them."""

from collections.abc import Container, Iterable

from folkman.runtime import control
from folkman.runtime.core.events import Effect, Log, Note, Publish, Tell
from folkman.runtime.identity import name_of

__all__ = ["Hands"]


class Hands:
    """The effects of the step that is on, and the numbers of what was done so far."""

    def __init__(self, neighbours: Container[int] = (), linked: Container[int] = ()) -> None:
        self._neighbours = neighbours
        self._linked = linked  # whose links we have noticed, as its owner keeps them
        self._effects: list[Effect] = []
        self.voice: control.Voice | None = None  # None until a life has begun
        self._answers: dict[tuple[int, type], control.Ack | control.Refusal | control.Known] = {}
        self.counts: dict[str, int] = dict.fromkeys(
            (
                "sent",
                "periods_given_up",
                "taken",
                "sent_whole",
                "given_up",
                "not_held",
                "gave_way",
                "copies_sent",
                "forgotten",
                "excluded",
                "saves",
                "saves_failed",
            ),
            0,
        )

    def taken(self) -> list[Effect]:
        """Return what is to be done, once."""
        effects, self._effects = self._effects, []
        return effects

    def do(self, effect: Effect) -> None:
        """Let something be done after all that was wanted before it."""
        self._effects.append(effect)

    def publish(self, peer: int, data: bytes | None) -> None:
        """Send parameters to a neighbour; None: there is nothing to send."""
        if data is not None:
            self._effects.append(Publish(peer, data))

    def tell(self, peer: int, body: control.Body) -> None:
        """Say something to a neighbour.

        Before a life has begun nothing is said, and before we notice a link what is said on it may
        be lost. The newest answers wait for both: whoever sent something so early would wait for a
        whole period's limit.
        """
        if self.voice is not None:
            self._effects.append(Tell(peer, self.voice.sealed(body)))
        is_lost = self.voice is None or peer not in self._linked
        waits = is_lost and peer in self._neighbours
        if waits and isinstance(body, control.Ack | control.Refusal | control.Known):
            before = self._answers.get((peer, type(body)), body)
            self._answers[peer, type(body)] = max(before, body, key=lambda answer: answer[0])

    def begin_to_speak(self, voice: control.Voice) -> None:
        """Say from now on what is to be said, and first what has waited for it."""
        self.voice = voice
        for peer in dict.fromkeys(peer for peer, _ in self._answers):
            self.answer(peer)

    def answer(self, peer: int) -> None:
        """Give a neighbour the answers that have waited for it, if we can speak."""
        if self.voice is None:
            return
        waiting = [key for key in self._answers if key[0] == peer]
        for body in [self._answers.pop(key) for key in waiting]:
            self.tell(peer, body)

    def owe_no_answer(self, peer: int) -> None:
        """Answer nothing that one sent who takes no part any more."""
        self._answers = {key: body for key, body in self._answers.items() if key[0] != peer}

    def tell_all(self, peers: Iterable[int], body: control.Body) -> None:
        """Say something to some neighbours."""
        for peer in peers:
            self.tell(peer, body)

    def note(
        self, kind: int, slot: int, sequence: Iterable[int], *, computed: bool = False
    ) -> None:
        """Note something in the journal."""
        self._effects.append(Note(kind, slot, tuple(sequence), computed))

    def log(self, event: str, *, level: str = "info", **fields: object) -> None:
        """Write a line of the log."""
        self._effects.append(Log(event, level, tuple(fields.items())))

    def log_refused(self, peer: int, reason: str, text: str) -> None:
        """Log a message that was not taken."""
        self.log("refused", level="warning", reason=reason, peer=name_of(peer), text=text)
