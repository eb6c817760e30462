"""Messages one after the other on the whole band: the medium of fresh air.

There are no epochs and no threshold. Whenever the band is free the best (sender, receivers, origin)
by the index of `folkman.radio.fresh` sends; if nobody gains, the band waits for the next slot.

    time       A transfer starts and ends at its true time, in the middle of a slot if need be, and
               several may fit into one slot. What ends by the end of slot t is held in slot t+1.
    payload    It is frozen when its sender starts. Its stamp is the last completed update: s for
               all transfers that start within slot s.
    rate       That of the block (slot) in which the transfer starts, until it ends. The fading of a
               slot has the same key as under the threshold rule, hence the same draws.
    duplex     Nobody sends and receives at once: one sender at a time.
    absence    A node that is away neither sends nor hears. Who is away in a slot of a transfer does
               not hear it; if that is the sender, nobody does, and the band stays busy to the end.

A step at the end of slot t answers with the stamps at the start of slot s = t+1. Then it decides
about all transfers that start within slot s, whose payloads it lets the engine freeze.

Every message carries `control_bits` more than its payload: reports of stamps and of SINR. `control`
says who knows what:

    ideal      All nodes know all stamps and the rates of the present block.
    heard      A node knows its own stamps, and of others what it heard: those who take part in a
               message (its sender and all who hear it) know each other's stamps when it ends. In
               each block a node asks who hears it at which rate: it knows its own present rates,
               and who is away. Each node works out its own index alone; nodes contend, the larger
               index by a shorter back-off. Nodes within a tenth of the largest index collide. Each
               of them costs one contention, and the largest wins.

Differs from the paper: it prices no control traffic and lets nodes send and receive at once (D5).
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from folkman.arrays import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray, jax, jnp, lax
from folkman.checks import require
from folkman.keys import Stream, stream_keys
from folkman.radio import contest, fresh
from folkman.radio.delivery import Airtime, Delivery
from folkman.radio.turns import at_edge

__all__ = [
    "CONTROLS",
    "HOLDS",
    "Band",
    "Flight",
    "Glancing",
    "SerialPeers",
    "SerialState",
    "Transfers",
    "after_loss",
    "check_fresh",
    "node_weights",
    "pair_weights",
    "time_on_air",
    "with_control",
]

Control = Literal["ideal", "heard"]
CONTROLS: tuple[Control, ...] = ("ideal", "heard")

HOLDS = {
    "copy": "a copy of its sender's parameters",
    "forward": "a copy of anyone's parameters",
    "sum": "its sender's weighted sum, with stamps",
}
"""What a message holds, in words."""

STAMP_BITS, SINR_BITS = 16, 8
"""Of one entry of a report: an age up to 65,535 slots, and an SINR in steps of half a decibel."""

RIVAL = 0.9
"""Nodes whose index is above this part of the largest one collide (`heard`)."""

LEAST_SLOTS = 1e-6
"""No transfer is shorter; keeps the index finite where a rate is infinite."""


class Band(Protocol):
    """What a serial medium asks of its network: how long a message takes from k to i."""

    @property
    def message(self) -> str:
        """Return what a message holds, one of `fresh.MESSAGES`."""
        ...

    @property
    def control(self) -> Control:
        """Return who knows what."""
        ...

    @property
    def control_bits(self) -> int | None:
        """Return what a message carries beyond its payload; None: a report of every pair."""
        ...

    @property
    def weights(self) -> tuple[float, ...] | str:
        """Return one weight per node, or 'alike'."""
        ...

    @property
    def contention_slots(self) -> float:
        """Return the slots that one contention takes."""
        ...

    def open_air(self, num_nodes: int, key: Array) -> Any:
        """Return where everything is before slot 0; any pytree."""
        ...

    def next_air(self, air: Any, slot: Array, key: Array) -> Any:
        """Return where everything is when a slot begins."""
        ...

    def cost_slots(self, air: Any, bits: ArrayLike, key: Array) -> Float[Array, "rx tx"]:
        """Return the slots that a message of `bits`, one number or (tx,), takes in a block."""
        ...


@runtime_checkable
class Glancing(Protocol):
    """A band that need not draw all rates of a block to tell who sends (`folkman.radio.contest`).

    Where a band has these, its rates in full are those of `cost_slots` up to rounding.
    """

    def glances(self, air: Any, key: Array) -> bool:
        """Tell whether it can, with keys and numbers of this kind."""
        ...

    def glance_slots(
        self,
        air: Any,
        bits: ArrayLike,
        key: Array,
        *,
        full: bool = False,  # whether all interferers are drawn
    ) -> Float[Array, "rx tx"]:
        """Return slots that are not above `cost_slots`; in full, those of `cost_slots`."""
        ...

    def sent_slots(self, air: Any, bits: ArrayLike, key: Array, sender: Array) -> Array:
        """Return what messages of one sender take, (rx,)."""
        ...


class Flight(NamedTuple):
    """The message on the air."""

    sender: Int[Array, ""]  # number of the node that sends; -1: nobody
    receivers: Bool[Array, " rx"]
    stamps: Int[Array, " origin"]  # stamps of what it holds, -1 where it holds nothing
    began: Int[Array, ""]  # the slot in which it started


class Transfers(NamedTuple):
    """Sums over what has started and ended so far."""

    air_slots: Float[Array, ""]  # slots on the air of transfers begun
    number: Int[Array, ""]  # number of transfers begun
    # slots that pairs waited, from their last news to the start of the next
    waited_slots: Int[Array, ""]
    waits: Int[Array, ""]


class SerialState(NamedTuple):
    """Between peers. Index order [rx, tx]."""

    slot: Int[Array, ""]  # slots ended so far
    air: Any
    # stamps held when the coming slot begins; on the diagonal of a node's newest frozen payload
    held: Int[Array, "rx origin"]
    flight: Flight  # the message on the air
    busy: Float[Array, ""]  # slots from the end of this slot until the band is free
    present: Bool[Array, " node"]  # who is there in the coming slot
    since: Int[Array, "rx origin"]  # slot of the pair's last news
    sums: Transfers  # sums for the means over all transfers
    # what a node believes that another holds; None where all know all
    known: Int[Array, "node rx origin"] | None
    airtime: Airtime  # airtime of the coming slot


class _Slot(NamedTuple):
    """What changes with every transfer within a slot."""

    held: Array
    flight: Flight
    busy: Array
    since: Array
    sums: Transfers
    known: Array | None
    sends: Array  # (tx,)
    linked: Array  # (rx, tx)
    transfers: Array  # (tx,) begun
    copies: Array  # (tx,) their receivers
    quiet: Array  # () nobody gains: wait for the next slot
    airtime: Airtime


class _Now(NamedTuple):
    """What is fixed within a slot."""

    slot: Array  # the one that begins: stamp of all that starts
    own: Array  # (node,) stamp of each node's newest payload
    offers: Array  # (node,) is it new?
    present: Array
    cost_slots: Array  # (rx, tx), infinite to oneself; bounds from below where `drawn` is not
    drawn: Array  # (tx,)
    draw: contest.Draw  # what messages of one sender take
    weights: Array  # (node,)
    omega: Array
    key: Array


@dataclass(frozen=True)
class SerialPeers:
    """A band that carries one message at a time, between peers on their own beat."""

    band: Band
    loss: ArrayLike | None = None  # probability that a receiver loses a message
    recent = 2  # the one on the air, and one that starts in the slot in which it ends

    @property
    def forwards(self) -> bool:
        """Tell whether a message may bring payloads of others than its sender."""
        return self.band.message != "copy"

    def losing(self, loss: ArrayLike) -> "SerialPeers":
        """Return the same band, each receiver losing each message with this probability.

        Losses are drawn here, when a transfer ends, and not by a wrapper at the end of a slot:
        whoever lost a message cannot have forwarded it meanwhile.
        """
        return replace(self, loss=loss)

    def versions(self, num_nodes: int) -> int:
        """Return a first guess: held, on the air, and two for pairs that have waited."""
        weights = self.band.weights
        require(
            weights != "shares",
            "weights = 'shares' is for a configuration, which knows the data; in Python give them: "
            "weights=tuple(map(float, problem.share))",
        )
        require(
            isinstance(weights, str) or len(weights) == num_nodes,
            f"weights must be one number per node, got {len(weights)} for {num_nodes} nodes; "
            "leave them out to weigh all alike",
        )
        return min(4, max(2, num_nodes))

    def init(self, num_nodes: int, key: PRNGKeyArray) -> SerialState:
        """Return the state before slot 0: a free band, everyone holding stamp 0 (C2)."""
        self.versions(num_nodes)
        zero, pair = jnp.zeros((), jnp.int32), jnp.zeros((num_nodes, num_nodes), jnp.int32)
        nobody = jnp.zeros(num_nodes, bool)
        heard = self.band.control == "heard"
        return SerialState(
            slot=zero,
            air=self.band.open_air(num_nodes, key),
            held=pair,
            flight=Flight(zero - 1, nobody, jnp.full(num_nodes, -1, jnp.int32), zero),
            busy=jnp.zeros((), jnp.float32),
            present=~nobody,
            since=pair + 1,  # the first transfer starts at the end of slot 0 (C2)
            sums=Transfers(jnp.zeros((), jnp.float32), zero, zero, zero),
            known=jnp.zeros((num_nodes,) * 3, jnp.int32) if heard else None,
            airtime=Airtime(*[jnp.zeros(num_nodes, jnp.float32)] * 2),
        )

    def attend(self, state: SerialState, present: Bool[Array, " node"]) -> SerialState:
        """Tell the network who is there in the coming slot."""
        return state._replace(present=present)

    def step(
        self,
        state: SerialState,
        offers: Bool[Array, " node"],
        message_bits: ArrayLike,
        key: PRNGKeyArray,
    ) -> tuple[SerialState, Delivery]:
        """Answer with what is held at the end of a slot, and start the transfers of the next."""
        coming, there = state.slot + 1, state.present
        flight = state.flight._replace(
            receivers=state.flight.receivers & there & there[state.flight.sender]
        )
        state = state._replace(slot=coming, flight=flight)
        begin = opening(state)

        def transmit() -> tuple[_Slot, Any]:
            air, now = self._look(state, offers, message_bits, key)
            return self._fill(begin, now), air

        done, air = lax.cond(state.busy <= 1, transmit, lambda: (begin, state.air))
        new = state._replace(
            air=air,
            held=done.held,
            flight=done.flight,
            busy=jnp.maximum(done.busy - 1, 0.0),
            since=done.since,
            sums=done.sums,
            known=done.known,
            airtime=done.airtime,
        )
        carried = _carried(state) if self.forwards else None
        return new, Delivery(
            state.held,
            done.sends,
            done.linked,
            carried,
            done.transfers,
            done.copies,
            state.airtime,
        )

    def measures(self, state: SerialState) -> dict[str, Array]:
        """Return the mean slots of a transfer, and those that a pair waited for one to start."""
        sums = state.sums
        return {
            "gamma_t": sums.air_slots / sums.number,
            "gamma_w": sums.waited_slots / sums.waits,
        }

    def _look(
        self, state: SerialState, offers: Array, message_bits: ArrayLike, key: Array
    ) -> tuple[Any, _Now]:
        """Return where everything is now, and what nodes decide from."""
        band, nodes = self.band, len(offers)
        fading_key, motion_key, loss_key = stream_keys(
            key, Stream.FADING, Stream.GEOMETRY, Stream.LOSS
        )
        air = band.next_air(state.air, state.slot, motion_key)
        bits = with_control(band, message_bits, nodes)
        all_drawn = band.control == "heard" or band.message == "forward"
        shut = ~(state.present[:, None] & state.present[None]) | jnp.eye(nodes, dtype=bool)

        def in_use(slots: Array, closed: Array) -> Array:
            return jnp.where(closed, jnp.inf, jnp.maximum(slots, LEAST_SLOTS))

        if isinstance(band, Glancing) and band.glances(air, fading_key):
            first = band.glance_slots(air, bits, fading_key, full=all_drawn)
            column: contest.Draw = partial(band.sent_slots, air, bits, fading_key)
        else:
            first, all_drawn = band.cost_slots(air, bits, fading_key), True
            column = partial(jnp.take, first, axis=1)
        fresh_own = offers & state.present
        own = jnp.where(fresh_own, state.slot, jnp.diagonal(state.held))
        return air, _Now(
            state.slot,
            own,
            fresh_own,
            state.present,
            in_use(first, shut),
            jnp.full(nodes, all_drawn),
            lambda sender: in_use(column(sender), shut[:, sender]),
            node_weights(band.weights, nodes),
            pair_weights(band.weights, nodes),
            loss_key,
        )

    def _fill(self, begin: _Slot, now: _Now) -> _Slot:
        """Let transfers follow each other until the slot is full or nobody gains."""

        def body(carry: tuple[_Slot, Any]) -> tuple[_Slot, Any]:
            at, standing = carry
            choice, wait, standing = self._decide(at, now, standing)
            at = self._end(self._start(at, now, choice, wait), now)
            return at, standing

        begin = self._end(begin, now)
        return lax.while_loop(
            lambda carry: (carry[0].busy < 1) & ~carry[0].quiet,
            body,
            (begin, self._standing(begin, now)),
        )[0]

    def _standing(self, at: _Slot, now: _Now) -> contest.Contest | None:
        """Return what is known of everyone's index; None where nodes find it out by themselves."""
        if at.known is not None:
            return None
        ages = now.slot - _with_own(at.held, now.own)
        rates = (now.cost_slots, now.drawn)
        return contest.enter(ages, now.weights, self._message, *rates, self._thrift)

    @property
    def _message(self) -> fresh.Message:
        return self.band.message  # type: ignore[return-value] - `check_fresh` has seen to it

    @property
    def _thrift(self) -> float:
        return getattr(self.band, "thrift", 1.0)  # a band whose rates stay has none

    def _decide(
        self, at: _Slot, now: _Now, standing: contest.Contest | None
    ) -> tuple[fresh.Choice, Array, contest.Contest | None]:
        """Return who sends next, and the slots that finding this out takes."""
        ages = now.slot - _with_own(at.held, now.own)
        if standing is not None:
            asked = (ages, now.weights, self._message)
            standing = contest.renew(standing, *asked, self._thrift)
            choice, standing = contest.choose(standing, *asked, now.draw, self._thrift)
            return choice, jnp.zeros_like(at.busy), standing
        believed = now.slot - jnp.asarray(at.known)
        gain = fresh.gains_believed(believed, ages, now.omega, self._message)
        offered = fresh.offers(gain, now.cost_slots, self._thrift)
        choice = fresh.pick(offered, now.cost_slots)
        rivals = jnp.sum(offered.value > RIVAL * choice.value, dtype=jnp.int32)
        return choice, self.band.contention_slots * rivals.astype(at.busy.dtype), None

    def _start(self, at: _Slot, now: _Now, choice: fresh.Choice, wait: Array) -> _Slot:
        """Put a message on the free band; if nobody gains, let it wait for the next slot.

        Masks say that nobody sends: to choose between two whole states costs more than to decide.
        """
        go, nodes = choice.value > 0, len(now.own)
        is_sender = (jnp.arange(nodes) == choice.sender) & go
        receivers = choice.receivers & go
        row = _with_own(at.held, now.own)[choice.sender]
        holds = jnp.arange(nodes) == choice.origin
        stamps = row if self.band.message == "sum" else jnp.where(holds, row, -1)
        own_part = (stamps >= 0) & is_sender  # of a forward only where its origin is the sender
        held = jnp.where(own_part[:, None] & jnp.eye(nodes, dtype=bool), row[None], at.held)
        started = Flight(choice.sender, receivers, stamps, now.slot)
        flight = jax.tree.map(lambda new, old: jnp.where(go, new, old), started, at.flight)
        busy = jnp.where(go, at_edge(at.busy + wait + choice.slots), 1.0)
        # contentions too: they are signals
        used = jnp.where(go, jnp.minimum(busy, 1.0) - at.busy, 0.0)
        more = time_on_air(started.sender, started.receivers, used)
        sums = at.sums._replace(
            air_slots=at.sums.air_slots + jnp.where(go, choice.slots, 0.0),
            number=at.sums.number + go,
        )
        return at._replace(
            held=held,
            flight=flight,
            busy=busy,
            airtime=jax.tree.map(jnp.add, at.airtime, more),
            sums=sums,
            sends=at.sends | (own_part & now.offers),
            linked=at.linked | (receivers[:, None] & is_sender[None]),
            transfers=at.transfers + is_sender,
            copies=at.copies + is_sender * jnp.sum(receivers, dtype=jnp.int32),
            quiet=~go,
        )

    def _end(self, at: _Slot, now: _Now) -> _Slot:
        """Hand over the message on the air, if there is one that ends within this slot."""
        flight, sums, over = at.flight, at.sums, at.busy <= 1
        on_air = (flight.sender >= 0) & over
        heard = flight.receivers & on_air
        heard = after_loss(self.loss, heard, sums.number, now.key)
        takes = heard[:, None] & ~jnp.eye(len(heard), dtype=bool)
        if self.band.message == "sum":
            takes = takes & fresh.younger(at.held, flight.stamps, now.omega)[:, None]
        else:
            takes = takes & (flight.stamps[None] > at.held)
        news = takes & (flight.stamps[None] > at.held)
        held = jnp.where(takes, flight.stamps[None], at.held)
        waited = jnp.where(news, jnp.maximum(flight.began - at.since, 0), 0)
        known = at.known
        if known is not None:
            part = heard | ((jnp.arange(len(heard)) == flight.sender) & on_air)
            known = jnp.where(part[:, None, None] & part[None, :, None], held[None], known)
        return at._replace(
            held=held,
            flight=flight._replace(sender=jnp.where(over, -1, flight.sender)),
            since=jnp.where(news, now.slot + 1, at.since),  # in use from the next slot on
            sums=sums._replace(
                waited_slots=sums.waited_slots + jnp.sum(waited, dtype=jnp.int32),
                waits=sums.waits + jnp.sum(news, dtype=jnp.int32),
            ),
            known=known,
        )


def node_weights(weights: tuple[float, ...] | str, num_nodes: int) -> Float[Array, " node"]:
    """Return one weight per node, in the mean 1."""
    if isinstance(weights, str):
        return jnp.ones(num_nodes)
    each = jnp.asarray(weights, jnp.float32)
    return each / jnp.mean(each)


def pair_weights(weights: tuple[float, ...] | str, num_nodes: int) -> Float[Array, "rx origin"]:
    """Return omega_ij: 1 for nodes alike, or the product of two weights over their mean square."""
    each = node_weights(weights, num_nodes)
    return each[:, None] * each[None]


def check_fresh(band: Band) -> None:
    """Refuse a message, a control, a price or weights that there are not."""
    require(
        band.message in fresh.MESSAGES,
        f"message is {', '.join(map(repr, fresh.MESSAGES))}, got '{band.message}'",
    )
    require(
        band.control in CONTROLS,
        f"control is {' or '.join(map(repr, CONTROLS))}, got '{band.control}'",
    )
    require(
        band.control_bits is None or band.control_bits >= 0,
        f"control_bits must not be negative, got {band.control_bits}; leave it out for "
        f"{STAMP_BITS + SINR_BITS} bits for each pair of nodes, 0 is none",
    )
    weights = band.weights
    require(
        weights in ("alike", "shares")
        if isinstance(weights, str)
        else len(weights) > 0 and all(0 < weight < float("inf") for weight in weights),
        f"weights are 'alike', 'shares', or one positive number per node, got {weights!r}",
    )


def opening(state: SerialState) -> _Slot:
    """Return a slot before anything in it has started or ended."""
    nodes = len(state.present)
    pairs, none = jnp.zeros((nodes, nodes), bool), jnp.zeros(nodes, jnp.int32)
    on_air = jnp.where(state.flight.sender >= 0, jnp.minimum(state.busy, 1.0), 0.0)
    return _Slot(
        held=state.held,
        flight=state.flight,
        busy=state.busy,
        since=state.since,
        sums=state.sums,
        known=state.known,
        sends=pairs[0],
        linked=pairs,
        transfers=none,
        copies=none,
        quiet=jnp.asarray(False),
        airtime=time_on_air(state.flight.sender, state.flight.receivers, on_air),
    )


def time_on_air(sender: Array, receivers: Array, slots: Array) -> Airtime:
    """Return the time on the air of a message that takes `slots` of a slot."""
    sends = jnp.arange(len(receivers)) == sender
    return Airtime(jnp.where(sends, slots, 0.0), jnp.where(receivers, slots, 0.0))


def with_control(band: Band, message_bits: ArrayLike, num_nodes: int) -> Float[Array, ""]:
    """Return the bits of a message and of what nodes tell each other to choose it."""
    more_bits = band.control_bits
    if more_bits is None:
        more_bits = (STAMP_BITS + SINR_BITS) * num_nodes**2
    return jnp.asarray(message_bits, jnp.float32) + more_bits


def after_loss(
    loss: ArrayLike | None,  # chance that a receiver does not hear it; None: 0
    heard: Bool[Array, " rx"],  # who would hear it, (rx,)
    number: Int[Array, ""],  # number of the transfer, which keys the draw
    key: Array,
) -> Bool[Array, " rx"]:
    """Return who hears the transfer of this number; each receiver loses it on its own."""
    if loss is None:
        return heard
    own_key = jax.random.fold_in(key, number)
    return heard & ~jax.random.bernoulli(own_key, loss, heard.shape)


def _with_own(held: Array, own: Array) -> Array:
    return jnp.where(jnp.eye(len(own), dtype=bool), own[:, None], held)


def _carried(state: SerialState) -> Array:
    """Return the stamps in the message that is on the air, and every node's own newest one."""
    nodes = len(state.present)
    own = jnp.eye(nodes, dtype=bool)
    sending = (jnp.arange(nodes) == state.flight.sender)[:, None]
    mine = jnp.where(own, state.held, -1)
    return jnp.where(sending & (state.flight.stamps >= 0)[None], state.flight.stamps[None], mine)
