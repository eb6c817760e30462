"""A server without sockets: bytes in, bytes out, like `folkman.runtime.node`.

It computes no gradient: it acts on what arrives, and answers.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkman.algorithm.base import Algorithm, State
from folkman.algorithm.pieces.one_node import serve
from folkman.algorithm.travel import Server, Star
from folkman.arrays import Array, jax
from folkman.keys import Stream, make_key, node_key
from folkman.packing.packing import NONE
from folkman.runtime.codec import SERVER, Message
from folkman.runtime.feedback import Memory, Remembering, first_memory
from folkman.runtime.mailbox import Mailbox
from folkman.runtime.node import Wire, first_upload
from folkman.runtime.ways import way_of

__all__ = ["Seat", "ServerNode"]


class Seat(NamedTuple):
    """Where a server sits: what it does, and whom it hears."""

    server: Server
    number: int  # its own, on the wire
    first: Array  # what it holds of a sender before it hears any
    weights: NDArray  # (sender,)
    first_sender: int = 0


class ServerNode:
    """A side of a method that computes no gradient; around a server: a node's only neighbour."""

    message = "copy"
    excluded: Mapping[int, tuple[bytes, bytes]] = MappingProxyType({})

    def __init__(
        self,
        initial: Array,  # w(0), (d,)
        algorithm: Algorithm,
        shares: NDArray,
        *,
        run: int = 0,
        seed: int = 0,
        wire: Wire | None = None,
    ) -> None:
        self.algorithm = algorithm
        self.way = way_of(algorithm)
        self.wire = wire or Wire(run)
        seat = self._seat(initial, np.asarray(shares), make_key(seed, Stream.START))
        self.server, self.index = seat.server, seat.number
        self._weights, self._first_sender = seat.weights, seat.first_sender
        self.state: State = self.server.init(initial, len(seat.weights))
        self.mailbox = Mailbox(
            np.asarray(seat.first),
            len(seat.weights),
            self.wire.run,
            first_sender=seat.first_sender,
            note_broken=True,
            loses_nothing=True,
            checks=self.wire.checks,
        )
        self._seed = seed
        self.dim, self.num_nodes = initial.shape[0], len(shares)
        entries = jax.eval_shape(self.server.message, self.state).shape[0]
        own = self.wire.settled(algorithm, self.server.price, entries, self.dim)
        self.packing = own if own.servers else NONE
        self.memories = self._first_memories()
        """With error feedback: what the server remembers of each node; else none."""
        self.slot = 0
        self.used = self.mailbox.sequence.copy()
        self.sequence = 0

    def _seat(self, initial: Array, shares: NDArray, key: Array) -> Seat:
        """Return where the server of a star sits."""
        if not isinstance(self.algorithm.travel, Star):
            raise ValueError(f"{self.algorithm.name} has no server role; run it between peers")
        first = first_upload(initial, self.algorithm, len(shares), key)
        return Seat(self.algorithm.travel.server, SERVER, first, shares)

    def _draws(self) -> Array:
        """Return the key of this slot's draws."""
        key = jax.random.fold_in(make_key(self._seed, Stream.DELAY), self.slot)
        return jax.random.fold_in(key, int(Stream.SERVER))

    @property
    def neighbours(self) -> list[int]:
        """Return the numbers of the nodes."""
        return [self._first_sender + int(row) for row in np.flatnonzero(self._weights)]

    @property
    def steps(self) -> int:
        """Return the aggregations so far."""
        return int(self.server.rounds(self.state))

    def receive(
        self,
        data: bytes,  # bytes of a message
    ) -> bool:
        """Take an upload; tell whether it was kept."""
        return self.mailbox.put(data)

    def take(
        self,
        data: bytes,  # bytes of a message
    ) -> Message:
        """Take an upload and return it, or raise `CodecError`."""
        return self.mailbox.take(data)

    def wake(self) -> bool:
        """Let the server act on what arrived; tell whether it has an answer to send."""
        self.used = self.mailbox.sequence.copy()
        inbox = self.mailbox.inbox(self._weights, 0.0, self.slot)
        self.state = serve(self.state, self.server, inbox, self._draws())
        self.slot += 1
        return bool(self.offers().any())

    def forget(self, sender: int) -> bool:
        """Let go of what is held of a node that is no member; tell whether anything was."""
        return self.mailbox.forget(sender)

    def offers(self) -> NDArray[np.bool_]:
        """Tell to whom the server has something to send, (node,)."""
        return np.asarray(self.server.offers(self.state))

    def send(self) -> bytes:
        """Return the message to broadcast now."""
        return self.formed()[0]

    def complete(self) -> bool:
        """Tell whether anything has come since the last time."""
        return bool(self.mailbox.heard.any())

    def formed(
        self,
        number: int = 0,  # what the field of the round would say; not used
    ) -> tuple[bytes, int, int]:
        """Return the message to broadcast now, its sequence number, and its slot.

        It was formed after that slot.
        """
        del number
        self.sequence += 1
        params = np.asarray(self.server.message(self.state))
        data = self._packed(params, self._packing_number)
        return data, self.sequence, self.slot

    def answers(
        self,
        peers: Sequence[int],  # numbers of the nodes
    ) -> tuple[dict[int, bytes], int, int]:
        """Return the message for each of some nodes, its sequence number, and its slot.

        With error feedback nodes that have heard different messages get different bytes.
        """
        if not self.memories:
            data, sequence, slot = self.formed()
            return dict.fromkeys(peers, data), sequence, slot
        self.sequence += 1
        message, key = self._message(np.asarray(self.server.message(self.state)))
        way = Remembering(self.packing, self.dim, adds=False, sign=self.wire.sign)
        written: dict[int, tuple[Memory, bytes]] = {}  # by the memory that was written from
        found = {}
        for peer in peers:
            before = self.memories[peer - self._first_sender]
            if id(before) not in written:
                after, _, data = way.write(before, message, key)
                written[id(before)] = after, data
            self.memories[peer - self._first_sender], found[peer] = written[id(before)]
        return found, self.sequence, self.slot

    def _first_memories(self) -> list[Memory]:
        if not self.packing.remembers:
            return []
        self.way.check_memory(self.packing)
        first = np.asarray(self.server.message(self.state))
        return [first_memory(first, first, self.dim, adds=False)] * len(self.mailbox.payload)

    @property
    def _packing_number(self) -> int:
        """Return the number that keys the packing of answers: behind those of the nodes."""
        return self.num_nodes

    def _packed(self, params: NDArray, number: int) -> bytes:
        """Return the bytes of a message; the aggregations so far and a number key its packing."""
        message, key = self._message(params, number)
        return self.wire.packed(message, self.packing, self.dim, key)

    def _message(self, params: NDArray, number: int | None = None) -> tuple[Message, Array]:
        """Return a message, and the key of its packing."""
        number = self._packing_number if number is None else number
        key = node_key(make_key(self._seed, Stream.PACKING), number, self.steps)
        return Message(self.wire.run, self.index, self.sequence, self.slot, params), key

    def warm(self) -> None:
        """Do nothing: a server computes little."""

    def params(self) -> NDArray:
        """Return the server's model."""
        return np.asarray(self.server.params(self.state))

    def model(self) -> NDArray:
        """Return the server's model."""
        return self.params()
