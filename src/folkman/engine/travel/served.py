"""Nodes and who serves them: the server of a star, the stations of cells.

One payload is frozen for each link and direction; both media keep it in fields of the same names.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from folkman.algorithm.base import Algorithm, Inbox
from folkman.engine.learner import Learner, Sender, Vector, World, written_out
from folkman.engine.presence import Presence
from folkman.engine.travel.medium import Axes, Events, Medium, OnAir, mean_model
from folkman.engine.travel.sending import Links
from folkman.keys import Stream, make_key
from folkman.problem.learnable import Learnable
from folkman.radio.delivery import Transfer

if TYPE_CHECKING:
    from folkman.engine.travel.hierarchy import HierarchyHeld, HierarchyTimeline
    from folkman.engine.travel.star import StarHeld
    from folkman.radio.trace import StarTimeline

__all__ = ["ServedByHand", "ServedMedium", "behind_nodes", "carried", "first_fields", "uploads"]
__all__ += ["with_answers", "with_uploads"]


class ServedMedium(Medium):
    """What a star and cells have in common: a node's only neighbour is who serves it."""

    has_server = True

    @abstractmethod
    def members(self, num_nodes: int) -> Array:
        """Return who serves whom, (server, node) bool."""

    def check(self, num_nodes: int, faults: Presence) -> None:
        """Refuse a network without servers."""
        self.check_memory(faults, all_hear=True)
        key = make_key(0, Stream.DELAY)
        star = self.network.star()
        jax.eval_shape(lambda: star.init(num_nodes, key))

    def inboxes(self, held: Any, problem: Learnable, slot: Array) -> tuple[Inbox, Axes]:
        """Return the server's message as everyone's only neighbour's."""
        del problem
        nodes, got = len(held.heard), held.got
        inbox = Inbox(
            store=got[:, None],
            row=jnp.zeros((nodes, 1), jnp.int32),
            weight=jnp.ones((nodes, 1), got.dtype),
            own_weight=jnp.zeros(nodes, got.dtype),
            heard=held.heard[:, None],
            age=(slot - held.held)[:, None],
            finite=jnp.ones((nodes, 1), bool),
        )
        return inbox, 0

    def on_air(self, events: Events, present: Array) -> OnAir:
        """Return how long nodes and servers sent and listened.

        A server listens while any of its nodes sends, and sends one message to all who listen.
        Where transfers follow each other within a slot the network says how long that was.
        """
        upload, download, *_ = events
        if not self.told(upload.airtime) or not self.told(download.airtime):
            return OnAir.nothing(len(present))
        member = self.members(len(present))
        sent, heard = (jnp.asarray(each.airtime) for each in (upload, download))
        transmit, receive = (jnp.where(present, each, 0.0) for each in (sent, heard))

        def on(way: Transfer, slots: Array) -> Array:
            longest = jnp.sum(jnp.max(jnp.where(member, slots[None], 0.0), axis=1))
            return longest if way.server is None else way.server

        return OnAir(transmit, receive, on(download, heard), on(upload, transmit))

    def measures(self, held: Any) -> dict[str, Array]:
        """Return what the network has measured so far."""
        return self.network.star().measures(held.network)

    def centre(self, w: Array, problem: Learnable, models: Array) -> Array:
        """Return the mean of what the nodes would deploy."""
        del w
        return mean_model(problem, models)

    def ages(self, held: Any, slot: Array) -> Array:
        """Return the ages of the models in use, (node,)."""
        return slot - held.held

    def unheard(self, held: Any) -> Array:
        """Return the nodes that have only the first model."""
        return jnp.sum(held.held == 0, dtype=jnp.int32)

    def paired(self, ages: NDArray) -> NDArray:
        """Return the ages of the server's model at the nodes; the server stands last."""
        return behind_nodes(ages)


def first_fields(up: Array, answer: Array) -> dict[str, Array]:
    """Return what is held before slot 0: everyone has the first answer.

    `up` (node, message) are the nodes' own messages.
    """
    nodes = len(up)
    no, zero = jnp.zeros(nodes, bool), jnp.zeros(nodes, jnp.int32)
    first = jnp.broadcast_to(answer, (nodes, answer.shape[0]))
    fields = {"up": jnp.zeros_like(up), "up_finite": ~no, "down": first, "got": first}
    return fields | {"heard": no, "coming": no, "owed": no, "stamp": zero, "held": zero}


def with_uploads(
    held: "StarHeld | HierarchyHeld", messages: Array, upload: Transfer
) -> dict[str, Array]:
    """Return what a slot's uploads change; a message that is not finite arrives as zeros."""
    whole = jnp.all(jnp.isfinite(messages), axis=1)
    finite = jnp.where(upload.started, whole, held.up_finite)
    clean = jnp.where((finite & upload.started)[:, None], messages, 0.0)
    return {
        "up": jnp.where(upload.started[:, None], clean, held.up),
        "up_finite": finite,
        "coming": (held.coming | upload.started) & ~upload.arrived & ~upload.lost,
    }


def with_answers(
    held: "StarHeld | HierarchyHeld",
    answer: Array,
    download: Transfer,
    owed: Array,
    present: Array,
    slot: Array,
) -> dict[str, Array]:
    """Return what a slot's answers change; `owed` (node,): for whom there is one."""
    down = jnp.where(download.started[:, None], answer, held.down)
    stamp = jnp.where(download.started, slot + 1, held.stamp)
    return {
        "down": down,
        "got": jnp.where(download.arrived[:, None], down, held.got),
        "heard": download.arrived | (held.heard & ~present),  # who is away hears it on its return
        "coming": held.coming & ~download.started,
        "owed": (owed & ~download.started) | download.lost,
        "stamp": stamp,
        "held": jnp.where(download.arrived, stamp, held.held),
    }


def carried(links: Links | None, transfer: Transfer, memory: Array, slot: Array) -> Links | None:
    """Return the memories of links after a slot's transfers."""
    if links is None:
        return None
    return links.started(transfer.started, memory, slot).arrived(transfer.arrived)


def behind_nodes(ages: NDArray) -> NDArray:
    """Return ages (node,) of the server's model as a table in which the server stands last."""
    nodes = len(ages)
    table = np.full((nodes + 1, nodes + 1), -1, ages.dtype)
    np.fill_diagonal(table, 0)
    table[:nodes, nodes] = ages
    return table


def uploads(up: Array, share: Array, arrived: Array, finite: Array, coming: Array) -> Inbox:
    """Return a server's inbox."""
    nodes = len(share)
    return Inbox(
        store=up,
        row=jnp.arange(nodes),
        weight=share,
        own_weight=jnp.zeros((), up.dtype),
        heard=arrived,
        age=jnp.zeros(nodes, jnp.int32),
        finite=finite,
        coming=coming,
    )


class ServedByHand:
    """The nodes' half of a timeline, one node at a time; `first`: what each node holds at first."""

    def __init__(
        self,
        world: World,
        timeline: "StarTimeline | HierarchyTimeline",
        algorithm: Algorithm,
        nodes: list[Learner],
        first: list[Vector],
    ) -> None:
        self._world, self._timeline, self._nodes = world, timeline, nodes
        self._up = [node.message() * 0.0 for node in nodes]
        self._down, self._got = list(first), list(first)  # what is carried, what arrived last
        adds = algorithm.declares.differences
        self._senders = [Sender(world, node.message(), adds=adds) for node in nodes]
        self._answers_to = [Sender(world, each, adds=False, server=True) for each in first]
        self._finite = np.ones(len(nodes), bool)
        self._heard, self._coming = np.zeros(len(nodes), bool), np.zeros(len(nodes), bool)
        self._formed, self._held = np.zeros(len(nodes), int), np.zeros(len(nodes), int)

    def learn(self, t: int) -> None:
        """Let the nodes that are there take their slot."""
        for i in np.flatnonzero(self._world.present(t)):
            self._world.start_anew(self._nodes[i], t)
            answer = written_out(
                [self._got[i]],
                weight=np.ones(1),
                own_weight=0.0,
                heard=self._heard[i : i + 1],
                age=t - self._held[i : i + 1],
                finite=np.ones(1, bool),
            )
            self._nodes[i].slot(answer, finishes=bool(self._timeline.finished[t, i]))

    def upload(self, t: int) -> None:
        """Carry what nodes send."""
        started, arrived = self._timeline.up_started[t], self._timeline.up_arrived[t]
        messages = self._world.sent(self._nodes, t) if started.any() else []
        for i in np.flatnonzero(started):
            seen = self._senders[i].take(messages[i], i, self._nodes[i].steps)
            self._finite[i] = np.isfinite(seen).all()
            self._up[i] = seen if self._finite[i] else np.zeros_like(seen)
        for i in np.flatnonzero(arrived):
            self._senders[i].arrived()
        self._coming = (self._coming | started) & ~arrived

    def inbox(self, t: int, weight: NDArray, member: NDArray | bool = True) -> Inbox:
        """Return the inbox of who serves the nodes of `member`."""
        return written_out(
            self._up,
            weight=weight,
            own_weight=0.0,
            heard=self._timeline.up_arrived[t] & member,
            age=np.zeros(len(self._up), int),
            finite=self._finite,
            coming=self._coming & member,
        )

    def answer(self, t: int, told: Callable[[int], tuple[Vector, int, int]]) -> None:
        """Carry answers.

        `told(node)`: what its server says, and the number and step of its draws.
        """
        started, arrived = self._timeline.down_started[t], self._timeline.down_arrived[t]
        for i in np.flatnonzero(started):
            self._down[i] = self._answers_to[i].take(*told(int(i)))
            self._formed[i] = t + 1
        for i in np.flatnonzero(arrived):
            self._answers_to[i].arrived()
            self._got[i] = self._down[i]
        self._coming = self._coming & ~started
        self._heard = arrived | (self._heard & ~self._world.present(t))
        self._held = np.where(arrived, self._formed, self._held)
