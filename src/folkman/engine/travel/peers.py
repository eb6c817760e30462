"""Between peers on their own beat: each node holds of each neighbour the freshest that arrived."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray

from folkman.algorithm.base import Algorithm, Inbox, State
from folkman.algorithm.travel import Broadcast, Mixing
from folkman.checks import require
from folkman.engine import snapshots
from folkman.engine.learner import FinalParameters, Learner, Sender, World, written_out
from folkman.engine.presence import Presence
from folkman.engine.travel.medium import Axes, Ending, Events, Medium, OnAir, Traffic, View, count
from folkman.engine.travel.sending import Links, Sending
from folkman.packing.packing import width_of
from folkman.packing.sums import contributions, forward_bits, settled_sums, sum_bits, wrapped
from folkman.problem.learnable import Learnable
from folkman.problem.objective import model_weights
from folkman.radio.delivery import Delivery, NetworkState, below
from folkman.radio.epochs import RadioState
from folkman.radio.replay import Replay
from folkman.radio.serial import SerialState
from folkman.radio.trace import PeerTimeline, last_slots

__all__ = ["PeerMedium", "PeerState", "SnapshotMedium", "beside", "by_hand", "by_share", "counted"]

MESSAGES = ("copy", "forward", "sum")
"""What a message between peers may hold."""

STRETCH = 64
"""Slots that are run again at most when the store of payloads turns out too small."""


class PeerState(NamedTuple):
    """Between peers: the network's state and the payloads in use."""

    network: NetworkState
    snapshots: snapshots.Snapshots
    brought: Array  # (rx, tx) stamp that the network brought last; held unless one was away
    mixed: Array | None  # (rx, message) sums of the copies by share, where the method asks for them
    links: Links | None = None  # what senders remember, with error feedback
    # (node,) gradients finished before its last broadcast; None in rounds, or where the method says
    # itself what is new
    sent_steps: Array | None = None
    rounds: Array | None = None  # (node,) rounds that have ended, where each has its own edges


def by_share(problem: Learnable) -> Array:
    """Return the data shares as everyone's weights, (rx, tx)."""
    nodes = problem.num_nodes
    return jnp.broadcast_to(problem.share[None], (nodes, nodes))


def beside(mixing: Mixing | None, nodes: int, rounds: Array | None = None) -> Array:
    """Return who is to hear whom, (rx, tx) bool; in a round of its own edges, as its sender has it.

    `rounds` (node,) are those that have ended at each node.
    """
    others = ~jnp.eye(nodes, dtype=bool)
    if mixing is None or not mixing.waits:
        return others
    if mixing.in_round is not None and rounds is not None:
        return (mixing.in_round(nodes, rounds[None, :]) > 0) & others
    return (mixing.weights(others) > 0) & others


class SnapshotMedium(Medium):
    """What peers have in common, on their own beat or in rounds: payloads that are kept once."""

    stretch = STRETCH

    def weights(self, held: PeerState, problem: Learnable) -> Array:
        """Return the weights of the inboxes, (rx, tx)."""
        mixing = self.travel.mixing
        if mixing is None:
            return by_share(problem)
        if mixing.in_round is not None and held.rounds is not None:
            last = jnp.maximum(held.rounds - 1, 0)[:, None]  # the round that a node has heard
            return mixing.in_round(problem.num_nodes, last).astype(problem.share.dtype)
        return mixing.weights(held.snapshots.heard).astype(problem.share.dtype)

    def sent(
        self, held: PeerState, messages: Array, sends: Array, ending: Ending
    ) -> tuple[Array, Links | None]:
        """Return the messages as receivers hold them, and what those who send then remember."""
        way, senders = self.sending(ending.problem), ending.senders
        keys = way.keys(senders, ending.problem.node, senders.steps)
        seen, memory = way.send(held.links, messages, keys)
        if held.links is None:
            return seen, None
        return seen, held.links.started(sends, memory, ending.slot).arrived(sends)

    def stamps(self, held: PeerState) -> Array:
        """Return the stamps in use in the coming slot, (rx, tx)."""
        return held.snapshots.held

    def ages(self, held: PeerState, slot: Array) -> Array:
        """Return the ages of all copies, (rx, tx)."""
        stamps = held.snapshots.held
        return jnp.where(jnp.eye(len(stamps), dtype=bool), 0, slot - stamps)

    def unheard(self, held: PeerState) -> Array:
        """Return the pairs that have only the first message."""
        stamps = held.snapshots.held
        return jnp.sum((stamps == 0) & beside(self.travel.mixing, len(stamps)), dtype=jnp.int32)

    def on_air(self, events: Events, present: Array) -> OnAir:
        """Return how long nodes sent and listened."""
        nothing, airtime = OnAir.nothing(len(present)), events.airtime
        if not self.told(airtime):
            return nothing
        transmit, receive = (jnp.where(present, each, 0.0) for each in airtime)
        return nothing._replace(transmit=transmit, receive=receive)

    def paired(self, ages: NDArray) -> NDArray:
        """Return the ages as they are."""
        return ages

    def lacks_room(self, held: PeerState) -> Array:
        """Tell whether a payload found no room, or was not found."""
        store = held.snapshots
        if store.circulation is not None:
            return jnp.any(store.missing | store.circulation.unfound)
        return jnp.any(store.missing)

    def with_room(self, held: PeerState, after: PeerState | None = None) -> PeerState:
        """Return the state with twice the room for payloads.

        No more can be in use than one for each pair, those on their way, and one being written for
        each sender. `after` is the state that lacked it, and tells whether it was room or reach.
        """
        store = held.snapshots
        rows = store.payload.shape[0]
        nodes, recent = store.newest.shape
        on_air = 0 if store.circulation is None else nodes
        most = nodes * (nodes + recent + on_air)
        if store.circulation is not None:
            if after is None:  # many stores at once
                store = snapshots.look_further(store, 4 * store.circulation.place.shape[1])
            elif not bool(after.snapshots.missing):
                return held._replace(snapshots=_with_reach(store, after.snapshots))
        if rows >= most:
            raise RuntimeError(
                "a copy was needed that the engine had given up: "
                "the network's `recent` is too small for what it delivers"
            )
        return held._replace(snapshots=snapshots.widen(store, min(2 * rows, most)))

    def timeline(
        self, stamps: NDArray[np.int32], finished: NDArray[np.bool_], events: Events
    ) -> PeerTimeline:
        """Return who held what when."""
        return PeerTimeline(stamps, events.sends, finished)

    def view(self, held: PeerState, slot: int) -> View:
        """Return the ages of all copies."""
        ages = (slot - np.asarray(held.snapshots.held)).astype(np.int32)
        stamps = np.full(len(ages), -1, np.int32)
        state = getattr(held.network, "inner", held.network)  # under losses
        state = getattr(state, "radio", state)  # in rounds
        if isinstance(state, RadioState):
            on_air = np.asarray(state.left) > 0
            stamps = np.where(on_air, np.asarray(state.stamp), -1).astype(np.int32)
        elif isinstance(state, SerialState):
            sending = np.arange(len(ages)) == int(state.flight.sender)
            stamps = np.where(sending, int(state.flight.began), -1).astype(np.int32)
        return View(ages, stamps, servers=0)


def _with_reach(store: snapshots.Snapshots, after: snapshots.Snapshots) -> snapshots.Snapshots:
    """Return the store with four times the window, since a stamp was not found."""
    found, lacked = store.circulation, after.circulation
    assert found is not None  # noqa: S101 - payloads travel on
    assert lacked is not None  # noqa: S101
    window = found.place.shape[1]
    if int(lacked.stamp.max()) < window:  # no two stamps share a place
        raise RuntimeError(
            "the network brought a copy that no node held and no message carried: its "
            "`carried` must name every stamp on the air, and `forwards` must be right"
        )
    return snapshots.look_further(store, 4 * window)


class PeerMedium(SnapshotMedium):
    """Peers on their own beat."""

    travel: Broadcast

    def check(self, num_nodes: int, faults: Presence) -> None:
        """Refuse a network without peers, or one that was recorded for other nodes."""
        mixing = self.travel.mixing
        require(
            mixing is None or mixing.in_round is None,
            f"{self.algorithm.name} has no rounds, and each round of its topology has its own "
            "edges; take a fixed one",
        )
        self.network.peers().versions(num_nodes)
        self.check_memory(faults, all_hear=self.network.all_hear)
        self._check_forwarding(faults)

    def _check_forwarding(self, faults: Presence) -> None:
        """Refuse sums of a method that is not one, and faults that the network does not see."""
        name, message = self.algorithm.name, self.network.message
        require(
            message in MESSAGES,
            f"a message between peers is one of {', '.join(MESSAGES)}, '{self.network.name}' has "
            f"message = {message!r}",
        )
        require(
            message != "sum" or self.algorithm.declares.sums,
            f"message = 'sum' sends the aggregate of all copies by data share, and {name} as built "
            "uses the copies in another way; use message = 'forward' or 'copy', or Algorithm 1 "
            "(async_sharing) with the rule 'mean' and without max_age",
        )
        require(
            message != "sum" or not faults.starts_anew,
            "message = 'sum' needs each node's own past parameters, which a node that restarts "
            "after a crash has lost; use 'away' instead of 'crash', or message = 'forward' or "
            "'copy'",
        )
        peers = self.network.peers()
        leaves = bool(faults.away or faults.crash)
        require(
            not (leaves and self._forwards and not hasattr(peers, "attend")) or self._recorded,
            f"on '{self.network.name}' nodes pass on what they hold, and it has no `attend`, which "
            "would let it see who is away; leave out away and crash, or use message = 'copy'",
        )

    @property
    def _forwards(self) -> bool:
        """Tell whether payloads travel on; networks of one's own need not say."""
        return bool(getattr(self.network.peers(), "forwards", False))

    @property
    def _recorded(self) -> bool:
        return isinstance(below(self.network), Replay)

    def open(self, problem: Learnable, states: State, key: Array) -> PeerState:
        """Let everyone hold everyone's first message."""
        peers, nodes = self.network.peers(), problem.num_nodes
        messages = jax.vmap(self.algorithm.message)(states)
        forwards = self._forwards
        recent = 1 if forwards else peers.recent
        store = snapshots.start(messages, peers.versions(nodes), recent, forwards=forwards)
        mixed = None
        if self.travel.mixing is None and self._asks_for_sums(store, problem, states):
            mixed = snapshots.mixture(store, by_share(problem))
        none = jnp.zeros((nodes, nodes), jnp.int32)
        links = self.sending(problem).first(messages)
        sent_steps = jnp.zeros(nodes, jnp.int32) if self.travel.has_news is None else None
        return PeerState(peers.init(nodes, key), store, none, mixed, links, sent_steps)

    def prices(self, problem: Learnable) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the bits of each form of a message, with the stamps that it needs."""
        nodes, message = problem.num_nodes, self.network.message
        if message == "sum":
            width = width_of(problem.initial.dtype)
            return (sum_bits(self.sending(problem).packing, problem.dim, nodes, width),), (0,)
        own, served = super().prices(problem)
        if message == "forward":
            own = tuple(forward_bits(bits, nodes) for bits in own)
        return own, served

    def sending(self, problem: Learnable) -> Sending:
        """Return how nodes pack; contributions to sums are rounded at their origin."""
        if self.network.message != "sum":
            return super().sending(problem)
        packing = settled_sums(self.network.packing, self.algorithm.name)
        return Sending(packing, problem.dim)

    def sent(
        self, held: PeerState, messages: Array, sends: Array, ending: Ending
    ) -> tuple[Array, Links | None]:
        """Return the messages as receivers hold them, and what those who send then remember."""
        if self.network.message != "sum":
            return super().sent(held, messages, sends, ending)
        problem = ending.problem
        packing = self.sending(problem).packing
        return contributions(packing, messages, problem.initial, problem.share), None

    def inboxes(self, held: PeerState, problem: Learnable, slot: Array) -> tuple[Inbox, Axes]:
        """Return what each node holds, with its sums where they are kept."""
        return snapshots.inboxes(held.snapshots, self.weights(held, problem), slot, held.mixed)

    def exchange(self, held: PeerState, ending: Ending) -> tuple[PeerState, Traffic, Events]:
        """Let the network take what is offered and bring what has arrived.

        A message that has not changed since a node's last broadcast is not offered. Where nodes
        pass on what they hold, such a node may still send, with its own newest frozen message.
        """
        peers, nodes = self.network.peers(), ending.nodes
        problem, faults, slot = ending.problem, ending.faults, ending.slot
        messages, offers, form, bits, present = self.offered(ending)
        sent_steps = held.sent_steps
        if sent_steps is not None:
            sent_steps = jnp.where(faults.begins_anew(nodes, slot), -1, sent_steps)
            offers = offers & (ending.steps != sent_steps)
        before = self.attended(peers, held.network, ending)
        network, delivery = peers.step(before, offers, bits, ending.key)
        new = faults.receives(nodes, slot)[:, None] & (delivery.held != held.brought)
        stamps = jnp.where(new, delivery.held, held.snapshots.held)  # who is away hears nothing
        seen, links = self.sent(held, messages, delivery.sends, ending)
        new_ones = (seen, slot + 1, delivery.sends, stamps)
        if held.snapshots.circulation is not None:
            nothing = jnp.full((nodes, nodes), -1, jnp.int32)
            carried = nothing if delivery.carried is None else delivery.carried
            store = snapshots.put_any(held.snapshots, *new_ones, carried, present)
        else:
            store = snapshots.put(held.snapshots, *new_ones, present)
        mixed = held.mixed
        if mixed is not None:
            arrived = jnp.any(stamps != held.snapshots.held)
            shares = by_share(problem)
            mixed = lax.cond(arrived, lambda: snapshots.mixture(store, shares), lambda: mixed)
            mixed = self._as_read(problem, mixed, messages)
        traffic = counted(broadcasts(self, problem, delivery.linked, form), delivery, form)
        if sent_steps is not None:
            sent_steps = jnp.where(delivery.sends, ending.steps, sent_steps)
        moved = PeerState(network, store, delivery.held, mixed, links, sent_steps)
        return moved, traffic, delivery._replace(held=stamps)

    def _as_read(self, problem: Learnable, mixed: Array, messages: Array) -> Array:
        """Return the sums as nodes read them: those of some bits come back to their range."""
        if self.network.message != "sum":
            return mixed
        own, nodes = problem.share[:, None] * messages, problem.num_nodes
        return wrapped(self.sending(problem).packing, mixed, own, problem.initial, nodes)

    def noted(self, states: State, events: Events) -> State:
        """Let the senders of this slot know, where the method notes it."""
        if self.travel.notes is None:
            return states
        after = jax.vmap(self.travel.notes)(states)

        def of_senders(new: Array, old: Array) -> Array:
            sends = events.sends.reshape(events.sends.shape + (1,) * (new.ndim - 1))
            return jnp.where(sends, new, old)

        return jax.tree.map(of_senders, after, states)

    def measures(self, held: PeerState) -> dict[str, Array]:
        """Return what the network has measured so far."""
        return self.network.peers().measures(held.network)

    def _asks_for_sums(self, store: snapshots.Snapshots, problem: Learnable, states: State) -> bool:
        """Tell whether the method mixes by the weights of its inbox in every slot.

        Then the sums of the copies need to be formed only when one arrives.
        """
        asked: list[bool] = []

        class Noting(Inbox):
            """An inbox that notes whether its own weights were asked for."""

            def mix(self, weights: Array | None = None) -> Array:
                asked.append(weights is None)
                return super().mix(weights)

        def point(state: State, inbox: Inbox) -> Array:
            parts = {name: getattr(inbox, name) for name in Inbox.__dataclass_fields__}
            return self.algorithm.point(state, Noting(**parts))

        zero = jnp.zeros((), jnp.int32)
        inbox, axes = snapshots.inboxes(store, by_share(problem), zero)
        jax.eval_shape(jax.vmap(point, (0, axes)), states, inbox)
        return any(asked)


def broadcasts(
    medium: SnapshotMedium,
    problem: Learnable,
    linked: Array,
    form: Array,
    rounds: Array | None = None,
) -> Traffic:
    """Count the broadcasts that start, and their receivers.

    Where a round has its own edges, a node that nobody is to hear does not send.
    """
    forms = len(medium.prices(problem)[0])
    edges = beside(medium.travel.mixing, problem.num_nodes, rounds)
    receivers = jnp.sum(linked & edges, axis=0, dtype=jnp.int32)
    sent = count(jnp.any(linked if rounds is None else linked & edges, axis=0), form, forms)
    none = jnp.zeros(1, jnp.int32)
    return Traffic(sent, count(receivers, form, forms), none, none)


def counted(traffic: Traffic, delivery: Delivery, form: Array) -> Traffic:
    """Return the traffic of a network that says how many broadcasts of a sender start in a slot."""
    if delivery.transfers is None or delivery.copies is None:
        return traffic
    forms = len(traffic.sent)
    sent = count(delivery.transfers, form, forms)
    return traffic._replace(sent=sent, sent_copies=count(delivery.copies, form, forms))


def by_hand(
    world: World,
    timeline: PeerTimeline,
    algorithm: Algorithm,
    nodes: list[Learner],
    *,
    in_rounds: bool = False,
    contribute: Callable[[NDArray], NDArray] | None = None,
) -> FinalParameters:
    """Follow a timeline between peers, one node at a time; in rounds a node hears itself too.

    `contribute` says how all messages of a moment (node, message) enter sums, where they do; a node
    then uses its own message as it stands in the sum.
    """
    summed = contribute is not None
    share, number = world.shares(), len(nodes)
    mixing = algorithm.travel.mixing  # type: ignore[attr-defined] - both ways of peers have one
    heard = np.zeros((number, number), bool)
    ended = np.zeros(number, int)  # rounds of each node
    frozen = [{0: node.message()} for node in nodes]  # frozen[j][s]: what j sent with stamp s
    last_held = last_slots(timeline.held)
    adds = in_rounds and algorithm.declares.differences
    senders = [Sender(world, node.message(), adds=adds) for node in nodes]
    for t in range(len(timeline.held)):
        held, there = timeline.held[t], world.present(t)
        away = ~world.present(max(t - 1, 0))[:, None]
        moved = held != timeline.held[max(t - 1, 0)]
        heard = moved | (heard & away)
        ended += moved.diagonal()
        weights = np.tile(share, (number, 1))
        if mixing is not None:
            weights = np.asarray(mixing.weights(jnp.asarray(heard)), np.float64)
        if mixing is not None and mixing.in_round is not None:
            last = np.maximum(ended - 1, 0)
            rows = [mixing.in_round(number, jnp.asarray(last[i]))[i] for i in range(number)]
            weights = np.asarray(rows, np.float64)
        for i in np.flatnonzero(there):
            world.start_anew(nodes[i], t)
            others = np.arange(number) != i
            used = others | summed
            copies = [frozen[j][int(held[i, j]) if used[j] else 0] for j in range(number)]
            inbox = written_out(
                copies,
                weight=weights[i] * used,
                own_weight=0.0 if summed else weights[i, i],
                heard=heard[i] if in_rounds else heard[i] & others,
                age=t - held[i],
                finite=np.ones(number, bool),
            )
            nodes[i].slot(inbox, finishes=bool(timeline.finished[t, i]))
        if timeline.sends[t].any():
            messages = world.sent(nodes, t)
            if contribute is not None:
                messages = contribute(messages)
            for j in np.flatnonzero(timeline.sends[t]):
                taken = senders[j].take(messages[j], j, nodes[j].steps)
                frozen[j][t + 1] = messages[j] if summed else taken
                senders[j].arrived()
                nodes[j].note_sent()
        _forget(frozen, last_held, t)
    params = np.stack([node.params() for node in nodes])
    weights = model_weights(world.problem, evenly=algorithm.declares.evenly)
    return FinalParameters(np.array(weights, np.float64) @ params, params)


def _forget(frozen: list[dict[int, NDArray[np.float64]]], last_held: NDArray, slot: int) -> None:
    """Drop what nobody will hold again, except stamp 0, which stands in for a node's own copy."""
    for j, messages in enumerate(frozen):
        for stamp in [s for s in messages if s > 0 and last_held[s, j] <= slot]:
            del messages[stamp]
