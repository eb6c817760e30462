"""Rounds on a band that carries one message at a time: what `schedule = "index"` does for them.

A round begins when all nodes are ready. Then transfers follow each other on the whole band
(`folkman.radio.turns`) until the task of the round is done. It ends at its true time, and nodes go
on with the slot that follows. A task says what has to be carried:

    Copies      every pair that is wanted: a sender's message reaches those who wait for it, in one
                broadcast or in several. If nobody says which pairs, each node sends once
    all-reduce  the sum of all messages to everyone (`folkman.radio.all_reduce`)

    time, rate, duplex   as in `folkman.radio.serial`: a transfer has the rate of the slot in which
                         it starts, several fit into one slot, one node sends at a time
    price                every message carries `control_bits` more than its payload
    control              all nodes know all rates and who lacks what, whatever `control` says: this
                         favours methods in rounds
    absence              a node that is away neither sends nor hears; the round waits for it
    loss                 drawn for each receiver when a transfer ends; what is lost is sent again
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from folkman.arrays import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray, jax, jnp, lax
from folkman.keys import Stream, stream_keys
from folkman.radio.delivery import Airtime, Delivery
from folkman.radio.serial import LEAST_SLOTS, Band, after_loss, time_on_air, with_control
from folkman.radio.turns import Patience, Turn, at_edge, broadcast, no_patience

__all__ = ["Copies", "RoundSums", "SerialRoundState", "SerialRounds", "Task"]


class Task(Protocol):
    """What a round has to carry. Progress is any pytree of arrays."""

    @property
    def sums(self) -> bool:
        """Tell whether messages are sums."""
        ...

    def begin(self, num_nodes: int, wanted: Bool[Array, "rx tx"] | None) -> Any:
        """Return the progress when a round begins."""
        ...

    def over(self, progress: Any) -> Bool[Array, ""]:
        """Tell whether everything has arrived."""
        ...

    def choose(
        self, progress: Any, cost_slots: Array, patience: Patience, left_slots: Array
    ) -> Turn:
        """Return the next transfer, in a block that lasts `left_slots` more."""
        ...

    def take(self, progress: Any, sender: Array, heard: Bool[Array, " rx"]) -> Any:
        """Return the progress after a transfer has ended."""
        ...

    def got(self, progress: Any) -> Bool[Array, "rx tx"]:
        """Tell who has heard whom in this round."""
        ...


class Waiting(NamedTuple):
    """Progress of copies."""

    missing: Bool[Array, "rx tx"]  # pairs that are still to be served
    got: Bool[Array, "rx tx"]


@dataclass(frozen=True)
class Copies:
    """Every wanted pair is served by its sender; `once`: a sender is done after one transfer."""

    once: bool = False
    sums = False

    def begin(self, num_nodes: int, wanted: Bool[Array, "rx tx"] | None) -> Waiting:
        """Let all wanted pairs wait."""
        own = jnp.eye(num_nodes, dtype=bool)
        return Waiting(~own if wanted is None else wanted & ~own, jnp.zeros_like(own))

    def over(self, progress: Waiting) -> Bool[Array, ""]:
        """Tell whether nobody waits."""
        return ~jnp.any(progress.missing)

    def choose(
        self, progress: Waiting, cost_slots: Array, patience: Patience, left_slots: Array
    ) -> Turn:
        """Return the sender and the prefix of those that wait for it with the largest index."""
        return broadcast(progress.missing, patience.now(cost_slots, left_slots))

    def take(self, progress: Waiting, sender: Array, heard: Bool[Array, " rx"]) -> Waiting:
        """Let those who heard wait no longer; `once`: nobody waits for this sender any more."""
        sends = jnp.arange(len(heard)) == sender
        got = heard[:, None] & sends[None]
        served = sends[None] if self.once else got
        return Waiting(progress.missing & ~served, progress.got | got)

    def got(self, progress: Waiting) -> Bool[Array, "rx tx"]:
        """Tell who has heard whom in this round."""
        return progress.got


class RoundSums(NamedTuple):
    """Sums over what has ended so far."""

    air_slots: Float[Array, ""]  # of transfers
    number: Int[Array, ""]  # of them
    round_slots: Float[Array, ""]  # from the start of a round to its true end
    rounds: Int[Array, ""]


class SerialRoundState(NamedTuple):
    """Between peers in lock-step. Index order [rx, tx]."""

    slot: Int[Array, ""]  # slots ended so far
    air: Any
    running: Bool[Array, ""]  # is a round on?
    since: Int[Array, ""]  # its stamp
    held: Int[Array, "rx tx"]  # what the nodes may use
    progress: Any
    sender: Int[Array, ""]  # of the message on the air, -1 for none
    receivers: Bool[Array, " rx"]
    busy: Float[Array, ""]  # slots from the end of this slot until the band is free
    present: Bool[Array, " node"]  # in the coming slot
    patience: Patience
    sums: RoundSums
    airtime: Airtime  # of the coming slot


class _Slot(NamedTuple):
    """What changes with every transfer within a slot."""

    progress: Any
    sender: Array
    receivers: Array
    busy: Array
    sums: RoundSums
    linked: Array  # (rx, tx)
    transfers: Array  # (tx,) begun
    copies: Array  # (tx,) their receivers
    quiet: Array  # () nothing more starts in this slot
    airtime: Airtime


@dataclass(frozen=True)
class SerialRounds:
    """A band that carries one message at a time, between peers in lock-step."""

    band: Band
    task: Task = Copies()
    loss: ArrayLike | None = None  # probability that a receiver loses a message

    @property
    def sums(self) -> bool:
        """Tell whether messages are sums."""
        return self.task.sums

    def losing(self, loss: ArrayLike) -> "SerialRounds":
        """Return the same band, each receiver losing each message with this probability."""
        return replace(self, loss=loss)

    def init(self, num_nodes: int, key: PRNGKeyArray) -> SerialRoundState:
        """Return the state before slot 0: a free band, and no round."""
        zero, none = jnp.zeros((), jnp.int32), jnp.zeros((), jnp.float32)
        everyone = jnp.ones(num_nodes, bool)
        return SerialRoundState(
            slot=zero,
            air=self.band.open_air(num_nodes, key),
            running=jnp.asarray(False),
            since=zero,
            held=jnp.zeros((num_nodes, num_nodes), jnp.int32),
            progress=self.task.begin(num_nodes, None),
            sender=zero - 1,
            receivers=~everyone,
            busy=none,
            present=everyone,
            patience=no_patience(num_nodes, num_nodes),
            sums=RoundSums(none, zero, none, zero),
            airtime=Airtime(*[jnp.zeros(num_nodes, jnp.float32)] * 2),
        )

    def attend(self, state: SerialRoundState, present: Bool[Array, " node"]) -> SerialRoundState:
        """Tell the network who is there in the coming slot."""
        return state._replace(present=present)

    def step(
        self,
        state: SerialRoundState,
        offers: Bool[Array, " node"],
        wanted: Bool[Array, "rx tx"] | None,
        message_bits: ArrayLike,
        key: PRNGKeyArray,
    ) -> tuple[SerialRoundState, Delivery]:
        """End the round if it is done, begin one if all are ready; then fill the coming slot."""
        task = self.task
        if isinstance(task, Copies):
            task = replace(task, once=wanted is None)
        serving, nodes = replace(self, task=task), len(offers)
        coming, there = state.slot + 1, state.present
        ends = state.running & task.over(state.progress)
        begins = ~state.running & jnp.all(offers)
        running = (state.running | begins) & ~ends
        since = jnp.where(begins, coming, state.since)
        first = task.begin(nodes, wanted)
        progress = jax.tree.map(lambda new, old: jnp.where(begins, new, old), first, state.progress)
        none = jnp.zeros((nodes, nodes), bool)
        receivers = state.receivers & there & there[state.sender]
        on_air = jnp.where(state.sender >= 0, jnp.minimum(state.busy, 1.0), 0.0)
        begin = _Slot(
            progress,
            state.sender,
            receivers,
            state.busy,
            state.sums,
            none,
            jnp.zeros(nodes, jnp.int32),
            jnp.zeros(nodes, jnp.int32),
            ~running,
            time_on_air(state.sender, receivers, on_air),
        )
        before = state._replace(slot=coming, running=running, since=since)

        def transmit() -> tuple[_Slot, Any, Patience]:
            return serving._fill(before, begin, message_bits, key)

        def rest() -> tuple[_Slot, Any, Patience]:
            return begin, state.air, state.patience

        done, air, patience = lax.cond(running & (state.busy <= 1), transmit, rest)
        own = jnp.eye(nodes, dtype=bool)
        heard = task.got(state.progress) | own | jnp.asarray(wanted is not None)
        new = before._replace(
            air=air,
            held=jnp.where(ends & heard, since, state.held),
            progress=done.progress,
            sender=done.sender,
            receivers=done.receivers,
            busy=jnp.maximum(done.busy - 1, 0.0),
            patience=patience,
            sums=done.sums,
            airtime=done.airtime,
        )
        sends = jnp.broadcast_to(begins, offers.shape)
        counts = (done.transfers, done.copies)
        return new, Delivery(new.held, sends, done.linked, None, *counts, state.airtime)

    def measures(self, state: SerialRoundState) -> dict[str, Array]:
        """Return the mean slots of a transfer, and those between the start and end of a round.

        `gamma_w` is here what a round takes in all, at its true times.
        """
        sums = state.sums
        return {
            "gamma_t": sums.air_slots / sums.number,
            "gamma_w": sums.round_slots / sums.rounds,
        }

    def _fill(
        self, state: SerialRoundState, begin: _Slot, message_bits: ArrayLike, key: Array
    ) -> tuple[_Slot, Any, Patience]:
        """Let transfers follow each other until the slot is full, or the round is over."""
        band, nodes = self.band, len(begin.receivers)
        fading_key, motion_key, loss_key = stream_keys(
            key, Stream.FADING, Stream.GEOMETRY, Stream.LOSS
        )
        air = band.next_air(state.air, state.slot, motion_key)
        bits = with_control(band, message_bits, nodes)
        slots = jnp.maximum(band.cost_slots(air, bits, fading_key), LEAST_SLOTS)
        apart = ~jnp.eye(nodes, dtype=bool) & state.present[:, None] & state.present[None]
        slots = jnp.where(apart, slots, jnp.inf).astype(jnp.float32)
        patience = state.patience.after(slots)

        def body(at: _Slot) -> _Slot:
            at = self._end(at, state, loss_key)
            turn = self.task.choose(at.progress, slots, patience, 1.0 - at.busy)
            go = (turn.value > 0) & ~self.task.over(at.progress)
            started = self._start(at, turn)
            waits = at._replace(quiet=~go)
            return jax.tree.map(lambda new, old: jnp.where(go, new, old), started, waits)

        done = lax.while_loop(lambda at: (at.busy < 1) & ~at.quiet, body, begin)
        over = done.busy <= 1
        ended = self._end(done, state, loss_key)
        done = jax.tree.map(lambda new, old: jnp.where(over, new, old), ended, done)
        idle = done.quiet & ~self.task.over(done.progress)  # wait for the next block
        return done._replace(busy=jnp.where(idle, 1.0, done.busy)), air, patience

    def _start(self, at: _Slot, turn: Turn) -> _Slot:
        """Put a message on the air."""
        is_sender = jnp.arange(len(turn.receivers)) == turn.sender
        number = jnp.sum(turn.receivers, dtype=jnp.int32)
        sums, busy = at.sums, at_edge(at.busy + turn.slots)
        more = time_on_air(turn.sender, turn.receivers, jnp.minimum(busy, 1.0) - at.busy)
        return at._replace(
            sender=turn.sender,
            receivers=turn.receivers,
            busy=busy,
            airtime=jax.tree.map(jnp.add, at.airtime, more),
            sums=sums._replace(air_slots=sums.air_slots + turn.slots, number=sums.number + 1),
            linked=at.linked | (turn.receivers[:, None] & is_sender[None]),
            transfers=at.transfers + is_sender,
            copies=at.copies + is_sender * number,
        )

    def _end(self, at: _Slot, state: SerialRoundState, loss_key: Array) -> _Slot:
        """Hand over the message on the air, if there is one, and note the end of a round."""
        on_air, sums = at.sender >= 0, at.sums
        heard = after_loss(self.loss, at.receivers & on_air, sums.number, loss_key)
        taken = self.task.take(at.progress, at.sender, heard)
        progress = jax.tree.map(lambda new, old: jnp.where(on_air, new, old), taken, at.progress)
        over = on_air & self.task.over(progress)
        lasted = (state.slot - state.since).astype(jnp.float32) + at.busy
        return at._replace(
            progress=progress,
            sender=jnp.full_like(at.sender, -1),
            sums=sums._replace(
                round_slots=sums.round_slots + jnp.where(over, lasted, 0.0),
                rounds=sums.rounds + over,
            ),
        )
