"""A node without sockets: bytes in, bytes out, the very functions that the simulator runs.

    node.receive(data)      a message came; keep it if it is whole, known and newer than what is
                            held
    node.wake()             one slot: hear, take one gradient, update
    node.send() -> bytes    what to broadcast now

A slot has two halves, so that whoever owns time may take the gradient elsewhere meanwhile:
`begin_slot` returns the point, `end_slot` takes loss and gradient. Memory is bounded by
construction: one message a neighbour. A bad message is refused, counted in `refused` by reason, and
otherwise without effect. The other role is `folkman.runtime.server_node`.
"""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkman.algorithm.base import Algorithm, Inbox, Price, State, forms_or_none
from folkman.algorithm.pieces.one_node import begin, hear, learn
from folkman.arrays import Array, jax
from folkman.keys import Stream, make_key, node_key
from folkman.packing import wire
from folkman.packing.packing import NONE, Packing
from folkman.packing.price import settled
from folkman.problem.learnable import Learnable
from folkman.problem.objective import emphasised, uneven_emphasis
from folkman.problem.sampling import next_gradient
from folkman.runtime.codec import Message, Sign, encode, encode_packed, slot_of
from folkman.runtime.feedback import NOTHING, Memory, Remembering, first_memory
from folkman.runtime.mailbox import Checks, Mailbox
from folkman.runtime.reach import Reach
from folkman.runtime.ways import way_of

__all__ = ["Mailbox", "Node", "Wire", "first_upload"]


class Wire(NamedTuple):
    """How a node's messages look, and what it asks of others'."""

    run: int = 0
    sign: Sign | None = None  # None: insecure
    checks: Checks = Checks()
    dtype: str | None = None  # of the parameters on the wire; None: as they are
    packing: Packing = NONE  # of the models in a message; another than none wins over `dtype`

    def encode(self, message: Message, dim: int) -> bytes:
        """Return the bytes of models of d entries, and of what is behind them.

        Models that 16 bits cannot hold go as they are, and so they do with numbers behind them
        that 16 bits would change: a receiver goes by those.
        """
        if self.dtype is not None:
            with np.errstate(over="ignore"):
                short = message.params.astype(self.dtype)
            behind = len(short) - len(short) % dim
            kept = np.array_equal(short[behind:], message.params[behind:])
            if kept and np.isfinite(short).all():
                message = message._replace(params=short)
        return encode(message, self.sign)

    def packed(self, message: Message, packing: Packing, dim: int, key: Array) -> bytes:
        """Return the bytes of a message whose models of d entries are packed."""
        if packing.exact:
            return self.encode(message, dim)
        body = wire.write(packing, message.params, dim, key)
        return encode_packed(message, packing.name, body, self.sign)

    def settled(self, algorithm: Algorithm, price: Price | None, entries: int, dim: int) -> Packing:
        """Return the packing of messages of so many entries, or refuse one."""
        sums = algorithm.bears_no_rounding
        return settled(self.packing, forms_or_none(price), entries, dim, algorithm.name, sums=sums)


_STREAMS = (Stream.ALGORITHM, Stream.BATCH, Stream.PACKING)
"""Those that a node draws from while it lives."""
_fold = jax.jit(jax.random.fold_in)


@partial(jax.jit, static_argnums=1)
def _deployed(state: State, algorithm: Algorithm, inbox: Inbox) -> Array:
    assert algorithm.model is not None  # noqa: S101 - the caller looked
    return algorithm.model(state, inbox)


class _Begun(NamedTuple):
    """A slot that waits for its gradient."""

    state: State
    inbox: Inbox
    used: NDArray


class Node:
    """One learner.

    `problem` is its own part (`Learnable.of_node`), `shares` are the alpha_i of all nodes.
    """

    message = "copy"
    """What a message holds."""

    def __init__(
        self,
        index: int,  # number of the node, from 0
        problem: Learnable,  # what is learnt, with its own part of the data
        algorithm: Algorithm,
        shares: NDArray,
        *,
        run: int = 0,
        seed: int = 0,
        wire: Wire | None = None,
    ) -> None:
        if problem.num_nodes != 1:
            raise ValueError(
                f"a node holds one part of the data, got {problem.num_nodes}; "
                f"use problem.of_node({index})"
            )
        if not 0 <= index < len(shares):
            raise ValueError(
                f"node {index} is not among the {len(shares)} shares; number nodes from 0"
            )
        self.index, self.problem, self.algorithm = index, problem, algorithm
        self.dim = problem.dim
        self.wire = wire or Wire(run)
        key = node_key(make_key(seed, Stream.START), index, 0)
        self.state: State = begin(
            problem.initial, algorithm, len(shares), jax.device_put(np.int32(index)), key
        )
        self._seed = seed
        self._roots = {each: make_key(seed, each) for each in _STREAMS}
        self._own_roots = {each: _fold(root, index) for each, root in self._roots.items()}
        self.way = way_of(algorithm)
        self._shares = np.asarray(shares)
        self.slot = 0
        self.sequence = 0
        first = self.way.first_message(self.state, problem.initial, len(shares))
        self.mailbox = self._open(first, len(shares))
        own_entries = jax.eval_shape(algorithm.message, self.state).shape[0]
        self.packing = self.wire.settled(
            algorithm, algorithm.declares.price, own_entries, problem.dim
        )
        self.memories = self._first_memories(len(shares))
        """With error feedback: what this node remembers, one entry; else none."""
        self._own = self.way.own(index)
        self._fixed = self.way.weights(index, self._shares)
        self.neighbours = self.way.neighbours(index, self._fixed[0])
        """The numbers of those that this node hears or sends to."""
        self._receivers = self.way.receivers(index, self._fixed[0], 0)
        self.holds_back = self.way.holds_back(len(shares))
        uneven = uneven_emphasis(self._shares) if algorithm.declares.evenly else None
        self._emphasis = None if uneven is None else jax.device_put(uneven[index])
        self.reach = self._reach()
        self.steps = 0
        self._sent_steps = 0  # gradients taken before the last message was formed
        self.loss = float("nan")  # of the last gradient
        self.used = self.mailbox.sequence.copy()  # the messages that the last slot saw, by sender
        self.last_sent = b""  # in rounds, until everyone has it: a neighbour may be a round behind
        self.sent_before = b""  # the message before it
        self._held: Message | None = None  # with error feedback: the last one, as receivers hold it
        self._begun: _Begun | None = None

    def _reach(self) -> Reach | None:
        """Return what is far, None where nobody asks or where a message that is refused is missed.

        In lock-step and around a server somebody would wait for it.
        """
        farthest = self.wire.checks.farthest
        if not farthest or self.way.loses_nothing or not isinstance(self.mailbox, Mailbox):
            return None
        reach = Reach(farthest, len(self.neighbours))
        self._message = np.asarray(self.algorithm.message(self.state))
        self.mailbox.guard = lambda message: reach.check(message, self._message, self.slot)
        return reach

    def _open(self, first: Array, num_nodes: int) -> Mailbox:
        """Return where messages are kept; everyone's first one is known."""
        return Mailbox(
            np.asarray(first),
            self.way.senders(num_nodes),
            self.wire.run,
            first_sender=self.way.first_sender(self.index),
            in_rounds=self.way.waits,
            loses_nothing=self.way.loses_nothing,
            checks=self.wire.checks,
        )

    @property
    def excluded(self) -> Mapping[int, tuple[bytes, bytes]]:
        """Return whom this node takes no part with any more, and the proof: none."""
        return {}

    def more_arrays(self) -> dict[str, NDArray]:
        """Return what a node of this kind saves besides.

        As long as a message is formed anew after a restart, the one before it is the last that was
        sent. Of the last of all messages, which is not, the one before is saved too.
        """
        if not self.sent_before or slot_of(self.last_sent) != self.slot:
            return {}
        return {"sent.before": np.frombuffer(self.sent_before, np.uint8)}

    def restore_more(self, arrays: dict[str, NDArray]) -> None:
        """Take up what `more_arrays` has saved."""
        if "sent.before" in arrays:
            self.sent_before = arrays["sent.before"].tobytes()

    def reach_arrays(self) -> dict[str, NDArray]:
        """Return what is saved of the measure of what is far."""
        return {} if self.reach is None else {"reach": np.array([self.reach.step])}

    def restore_reach(self, arrays: dict[str, NDArray]) -> None:
        """Take up the measure of what is far, if it was saved."""
        if self.reach is not None:
            self._message = np.asarray(self.algorithm.message(self.state))
            self.reach.step = float(arrays["reach"][0]) if "reach" in arrays else 0.0

    def receivers(
        self,
        round_: int = 1,  # number of the round, from 1
    ) -> list[int]:
        """Return the numbers of those that are to hear this node in a round, counted from 1."""
        if not self.way.varies:
            return self._receivers
        return self.way.receivers(self.index, self._fixed[0], max(round_ - 1, 0))

    def _weights(self, round_: int) -> tuple[NDArray, float]:
        """Return the weights of a round, counted from 1, and the node's own."""
        if not self.way.varies:
            return self._fixed
        return self.way.weights_in(self.index, self._shares, max(round_ - 1, 0))

    def _look(self) -> Inbox:
        """Return what is held, with the weights of the last round that was heard."""
        return self.mailbox.peek(*self._weights(self.mailbox.round - 1), self.slot)

    def receive(
        self,
        data: bytes,  # bytes of a message
    ) -> bool:
        """Take a message; tell whether it was kept."""
        return self.mailbox.put(data, self._own)

    def take(
        self,
        data: bytes,  # bytes of a message
    ) -> Message:
        """Take a message and return it, or raise `CodecError`."""
        return self.mailbox.take(data, self._own)

    def complete(self) -> bool:
        """Tell whether the next slot will hear what a node that waits is waiting for."""
        weight, _ = self._weights(self.mailbox.round)
        return bool(self.mailbox.heard[weight > 0].all())

    def wake(self) -> bool:
        """Live one slot; tell whether a gradient was taken."""
        point = self.begin_slot()
        if point is None:
            return False
        self.end_slot(*self.gradient(point, self.steps))
        return True

    def begin_slot(self) -> Array | None:
        """Hear what is held; return where a gradient is wanted, None if the slot is over without.

        What comes from now on is for the next slot.
        """
        if self.way.waits and not (
            self.offers() and self.complete()
        ):  # a round ends when its own part is sent too
            used, inbox = self.used, self._look()
        else:
            used = self.mailbox.sequence.copy()
            if self.way.varies:
                used[self.index] = self.mailbox.round  # a round may end without a message
            weight, own_weight = self._weights(self.mailbox.round)
            inbox = self.mailbox.inbox(weight, own_weight, self.slot, self._round_of())
        state, _, wants, point = hear(self.state, self.algorithm, inbox)
        self._begun = _Begun(state, inbox, used)
        if wants:
            return point
        self._end(state, computed=False)
        return None

    def end_slot(
        self,
        loss: Array,  # F_i at the point of this slot
        grad: Array,  # gradient of F_i there (d,)
    ) -> None:
        """Learn from the gradient at the point that `begin_slot` returned."""
        assert self._begun is not None  # noqa: S101 - a slot was begun
        state, inbox, _ = self._begun
        self.loss = float(loss)  # F_i, whatever it counts for
        own_loss, own_grad = emphasised((loss, grad), self._emphasis)
        key = self._key(Stream.ALGORITHM)
        self._end(learn(state, self.algorithm, inbox, own_loss, own_grad, key), computed=True)

    def _end(self, state: State, *, computed: bool) -> None:
        assert self._begun is not None  # noqa: S101 - a slot was begun
        self.state, self.used, self._begun = state, self._begun.used, None
        self.steps += int(computed)
        self.slot += 1
        if self.reach is not None:
            before, self._message = self._message, np.asarray(self.algorithm.message(state))
            self.reach.moved(before, self._message)

    def gradient(
        self,
        point: Array,
        step: int,  # number of the gradient, which keys its mini-batch
    ) -> tuple[Array, Array]:
        """Return F_i and its gradient at a point, as of the node's gradient number `step`.

        It reads nothing of the node that changes, and may run anywhere.
        """
        number, steps = (jax.device_put(np.array([each], np.int32)) for each in (self.index, step))
        return next_gradient(self.problem, point, self._roots[Stream.BATCH], number, steps)

    def _round_of(self) -> int | None:
        """Return the node's own number if it lives in lock-step.

        It then hears all its neighbours at once, or none.
        """
        return self.index if self.way.waits else None

    def offers(self) -> bool:
        """Tell whether the node has something to send."""
        return self.way.offers(self.state, learnt=self.steps > self._sent_steps)

    @property
    def may_send(self) -> bool:
        """Tell whether a message may be formed: where a state notes what it sent, between slots."""
        return self._begun is None or not self.algorithm.travel.knows_sends

    def forget(self, sender: int) -> bool:
        """Let go of what is held of a sender that is no member; tell whether anything was."""
        return self.mailbox.forget(sender)

    def newest_from(
        self,
        peer: int,  # number of the neighbour
    ) -> int:
        """Return the number of the newest message that a neighbour brought."""
        return self.mailbox.newest_of(peer)

    def send(self) -> bytes:
        """Return the message to broadcast now."""
        return self.formed()[0]

    def formed(
        self,
        number: int = 0,  # what the field of the round says, where there are no rounds
    ) -> tuple[bytes, int, int]:
        """Return the message to broadcast now, its sequence number, and its slot.

        It was formed after that slot.

        `number` goes into the field of the round, for those who do not live in rounds.
        """
        assert self.may_send  # noqa: S101 - the slot that is on would lose what sending notes
        state, slot = self.state, self.slot
        self._sent_steps = self.steps
        self.state = self.algorithm.travel.after_sending(state)
        self.sequence += 1
        sequence = self.sequence
        params = np.asarray(self.algorithm.message(state))
        message = Message(
            self.wire.run, self.index, sequence, slot, params, self.mailbox.round or number
        )
        drawn = not self.packing.exact  # nothing else looks at the key
        key = self._key(Stream.PACKING) if drawn else self._own_roots[Stream.PACKING]
        return self._written(message, key), sequence, slot

    def _written(self, message: Message, key: Array) -> bytes:
        if not self.memories:
            return self.wire.packed(message, self.packing, self.dim, key)
        way = Remembering(self.packing, self.dim, self._adds, self.wire.sign)
        memory, self._held, data = way.write(self.memories[0], message, key)
        self.memories = [memory]
        return data

    def whole(self) -> bytes:
        """Return the last message for one that lacks what it builds on; with error feedback."""
        assert self._held is not None  # noqa: S101 - only a message that was sent is asked for
        return encode(self._held, self.wire.sign)

    def forget_receivers(self) -> None:
        """Send a whole message next: in an earlier life more may have been sent than was saved."""
        self.memories = [each._replace(base=NOTHING) for each in self.memories]

    @property
    def _adds(self) -> bool:
        """Tell whether receivers add messages up."""
        return self.algorithm.declares.differences and not self.algorithm.bears_no_rounding

    def _first_memories(self, num_nodes: int) -> list[Memory]:
        if not self.packing.remembers:
            return []
        self.way.check_memory(self.packing)
        other = (self.index + 1) % num_nodes
        key = node_key(make_key(self._seed, Stream.START), other, 0)
        at = jax.device_put(np.int32(other))
        state = begin(self.problem.initial, self.algorithm, num_nodes, at, key)
        first, elsewhere = (
            np.asarray(self.algorithm.message(each)) for each in (self.state, state)
        )
        return [first_memory(first, elsewhere, self.dim, adds=self._adds)]

    def warm(self) -> None:
        """Compile everything that a slot needs, without living one."""
        inbox = self._look()
        state, _, _, point = hear(self.state, self.algorithm, inbox)
        loss, grad = emphasised(self.gradient(point, self.steps), self._emphasis)
        jax.block_until_ready(
            learn(state, self.algorithm, inbox, loss, grad, self._key(Stream.ALGORITHM))
        )

    def params(self) -> NDArray:
        """Return the node's parameters w_i."""
        return np.asarray(self.algorithm.params(self.state))

    def model(self) -> NDArray:
        """Return what the node would deploy: its own v_i, or its params."""
        if self.algorithm.model is None:
            return self.params()
        inbox = self._look()
        return np.asarray(_deployed(self.state, self.algorithm, inbox))

    def _key(self, stream: Stream) -> Array:
        """Return the node's own key of its next step: `node_key`, but for what never changes."""
        return _fold(self._own_roots[stream], self.steps)


def first_upload(initial: Array, algorithm: Algorithm, num_nodes: int, key: Array) -> Array:
    """Return the message of a node that has done nothing yet."""
    state = begin(initial, algorithm, num_nodes, jax.device_put(np.int32(0)), key)
    return algorithm.message(state)
