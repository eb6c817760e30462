"""Between peers in lock-step: a round begins when all are ready, and all hear it at its end."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from folkman.algorithm.base import Inbox, State
from folkman.algorithm.travel import Rounds
from folkman.checks import require
from folkman.engine import snapshots
from folkman.engine.presence import Presence
from folkman.engine.travel import peers
from folkman.engine.travel.medium import Axes, Ending, Events, Offered, Traffic, mean_model
from folkman.engine.travel.peers import PeerState, SnapshotMedium, beside, broadcasts, counted
from folkman.keys import Stream, make_key
from folkman.problem.learnable import Learnable
from folkman.radio.delivery import RoundNetwork
from folkman.radio.serial_rounds import SerialRoundState

__all__ = ["RoundMedium", "by_hand"]

by_hand = partial(peers.by_hand, in_rounds=True)


class RoundMedium(SnapshotMedium):
    """Peers in lock-step."""

    travel: Rounds

    def air(self) -> RoundNetwork:
        """Return the network's face for rounds."""
        return self.network.rounds()

    def check(self, num_nodes: int, faults: Presence) -> None:
        """Refuse a network without rounds, and rounds that need who is away."""
        mixing = self.travel.mixing
        follows = mixing is not None and not mixing.waits
        require(
            not (follows and (faults.away or faults.crash)),
            f"{self.algorithm.name} on the topology 'schedule' needs every node in every round, "
            "and some are away or crash; use another topology, or no such faults",
        )
        key = make_key(0, Stream.DELAY)
        rounds = self.air()
        jax.eval_shape(lambda: rounds.init(num_nodes, key))
        varies = mixing is not None and mixing.in_round is not None
        self.check_memory(faults, all_hear=not follows and not varies)

    def open(self, problem: Learnable, states: State, key: Array) -> PeerState:
        """Let everyone hold everyone's first message."""
        nodes = problem.num_nodes
        messages = jax.vmap(self.algorithm.message)(states)
        rounds = self.air()
        recent = getattr(rounds, "recent", 2)  # in a recording one may be a round ahead, or more
        store = snapshots.start(messages, recent, recent)
        none = jnp.zeros((nodes, nodes), jnp.int32)
        links = self.sending(problem).first(messages)
        mixing = self.travel.mixing
        varies = mixing is not None and mixing.in_round is not None
        ended = jnp.zeros(nodes, jnp.int32) if varies else None
        return PeerState(rounds.init(nodes, key), store, none, None, links, rounds=ended)

    def inboxes(self, held: PeerState, problem: Learnable, slot: Array) -> tuple[Inbox, Axes]:
        """Return what each node holds; at the end of a round it hears itself too."""
        inbox, axes = snapshots.inboxes(held.snapshots, self.weights(held, problem), slot)
        return replace(inbox, heard=held.snapshots.heard), axes

    def exchange(self, held: PeerState, ending: Ending) -> tuple[PeerState, Traffic, Events]:
        """Advance the round."""
        return self.advanced(held, self.offered(ending), ending)

    def advanced(
        self, held: PeerState, offered: Offered, ending: Ending
    ) -> tuple[PeerState, Traffic, Events]:
        """Advance the round in which nodes offer this."""
        messages, offers, form, bits, present = offered
        mixing = self.travel.mixing
        waits = mixing is None or mixing.waits
        wanted = beside(mixing, ending.nodes, held.rounds) if waits else None
        air = self.air()
        before = self.attended(air, held.network, ending)
        network, delivery = air.step(before, offers, wanted, bits, ending.key)
        seen, links = self.sent(held, messages, delivery.sends, ending)
        store = snapshots.put(
            held.snapshots, seen, ending.slot + 1, delivery.sends, delivery.held, present
        )
        traffic = counted(
            broadcasts(self, ending.problem, delivery.linked, form, held.rounds), delivery, form
        )
        rounds = held.rounds
        if rounds is not None:
            ends = jnp.diagonal(delivery.held) != jnp.diagonal(held.brought)
            rounds = rounds + ends.astype(jnp.int32)
        moved = PeerState(network, store, delivery.held, None, links, rounds=rounds)
        return moved, traffic, delivery

    def centre(self, w: Array, problem: Learnable, models: Array) -> Array:
        """Return the mean of what the nodes would deploy."""
        del w
        return mean_model(problem, models)

    def rounds(self, held: PeerState) -> Array | None:
        """Return the rounds so far, where a node may send several times in one."""
        state = held.network
        return state.sums.rounds if isinstance(state, SerialRoundState) else None

    def measures(self, held: PeerState) -> dict[str, Array]:
        """Return what the network has measured so far."""
        return self.air().measures(held.network)
