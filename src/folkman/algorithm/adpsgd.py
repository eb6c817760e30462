"""AD-PSGD: a node steps on its own beat, and pairs of neighbours meet in their mean.

    x_i, x_j <- (x_i + x_j) / 2,   j drawn uniformly                              [1, Algorithm 1]
    x_i <- x_i - eta grad F_i(x^_i)

where x^_i is the model that the gradient was begun at. The graph is bipartite, so that nodes cannot
wait in a circle: even ones are active, odd ones passive. A meeting is two messages:

    active i    after a gradient, if it is in no meeting: freezes f_i = x_i, broadcasts (f_i, j,
                number of the meeting), and goes on computing
    passive j   takes proposals in turn, one for each message that it can put on the air: f_j = x_j,
                x_j <- (f_i + f_j) / 2, and broadcasts (f_j, i, that number). It then is free
    active i    when it holds the answer of that number: x_i <- x_i + (f_j - f_i) / 2

So a slow node slows nobody else. Both halves of a meeting are applied once, however slow or lossy
the network, and sum_i x_i then changes by gradients alone. A meeting costs 2 (S + 96) bits where
nothing is lost.

Messages are repeated by what the last meetings took. A message carries how often it was sent, an
answer the sendings that both directions needed; a meeting in which that is 1 lost nothing, and its
round trip is known. An active node that has heard nothing for longer than its round trips
(`patience`) *pleads*: it repeats its proposal on every beat, and its partner repeats the answer on
every beat, in turn with those of others that plead, until it hears that the active node has gone
on. It also pleads from the first beat in the meeting after one that lost a message, and then tries
without; after the next loss it pleads in 4 meetings, then in 16, then in 64, and in half as many
after one that lost nothing.

A repeated proposal is answered with the same f_j: what a passive node keeps of its last
`kept_answers` meetings, those of partners that went on given up first. Where an answer was lost and
is kept no more, the passive node says so; the meeting then ends without its active half, and
sum_i x_i has moved by (f_i - f_j) / 2. With as many answers as active neighbours this cannot
happen.

A packing rounds what travels: of one meeting sum_i x_i then moves by half of what it left out of
f_i and half of what it left out of f_j, once each, however often they were sent.

With `wait` an active node rests until its meeting is over, and there is one averaging for each of
its gradients, which is applied after it, as in [1]. The mean then is atomic: nothing happens to x_i
between its proposal and the answer, so that a run is a sequence of pairwise means and gradients.

Differs from [1]: without `wait` the mean is not atomic, and a node goes on computing while a
meeting lasts, so that there are several gradients to one; full-batch gradients unless the problem
has mini-batches; no momentum by default (the released code: 0.9). A node that crashes and starts
anew counts from 1 again and is not answered.

[1] X. Lian, W. Zhang, C. Zhang, J. Liu. Asynchronous Decentralized Parallel Stochastic Gradient
    Descent. ICML 2018. arXiv:1710.06952
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

from folkman.algorithm.base import Algorithm, Assumption, Declares, Inbox, Place, Price
from folkman.algorithm.method import Number, method
from folkman.algorithm.pieces.descent import Descent
from folkman.algorithm.pieces.steps import Decay, StepSize, step_size
from folkman.algorithm.pieces.topology import Graph, metropolis
from folkman.algorithm.travel import Broadcast, Mixing
from folkman.arrays import Array, jax, jnp
from folkman.checks import require

__all__ = ["KeptAnswers", "MeetingState", "adpsgd"]

BIBTEX = r"""@inproceedings{adpsgd,
  author = {Lian, Xiangru and Zhang, Wei and Zhang, Ce and Liu, Ji},
  title = {Asynchronous Decentralized Parallel Stochastic Gradient Descent},
  booktitle = {International Conference on Machine Learning (ICML)},
  year = {2018},
  eprint = {1710.06952},
  archiveprefix = {arXiv},
}"""

FIRST_PATIENCE = 16
"""Slots without an answer after which a proposal is repeated, before any round trip is known."""

FIRST_WAITS = 3
"""Waits in vain after which an active node pleads, before any round trip is known; then 1."""

MOST_DOUBT = 64
"""Meetings that an active node pleads at most before it tries again without."""

SLACK = 2
"""Slots beyond one and a half of the longest round trip: the partner may serve others first."""

HEADER = 3
"""Entries of a message behind the model: partner, number of the meeting, sendings.

The sendings of a proposal are negative while its sender pleads. Those of an answer are its own and
those of the proposal until it was heard, less 1: with 1 nothing was lost.
"""


class KeptAnswers(NamedTuple):
    """The answers that a passive node can repeat."""

    model: Array  # (kept, d) f_j
    partner: Array  # (kept,) whom it answered; -1 for nobody
    number: Array  # (kept,) number of the meeting
    # (kept,) edition of the message in which it went out first: the order of the answers
    edition: Array
    sendings: Array  # (kept,) how often the answer was sent so far


class MeetingState(NamedTuple):
    """What a node remembers."""

    params: Array  # (d,) x_i
    frozen: Array  # (d,) f of the proposal, or of the answer
    move: Array  # (d,) the step that waits for the meeting; (0,) without `wait`
    node: Array  # () i: even nodes are active
    partner: Array  # () whom it proposes to, or answers; -1 for nobody yet
    number: Array  # () number of the meeting; negative: its answer is kept no more
    sendings: Array  # () how often it was sent, as the message says
    # () edition of the message: another one for every proposal, answer and repetition
    edition: Array
    sent: Array  # () edition that went on the air last
    waiting: Array  # () bool, active: for the answer
    waited: Array  # () slots on the air of the proposal and its repetitions
    silent: Array  # () slots on the air of the last of them
    longest: Array  # () slots of the longest round trip, less a quarter for each since; 0: none
    doubt: Array  # () active: meetings in which it still pleads
    spell: Array  # () active: meetings that it pleaded after the last loss
    asked: Array  # (node,) passive: the last number heard of each
    first: Array  # (node,) passive: the sendings of that proposal when it was heard
    served: Array  # (node,) passive: the last number answered of each
    seen: Array  # (node,) passive: the sendings of the proposal that it answered
    kept: KeptAnswers  # answers of the last meetings, to be repeated
    updates: Array  # () gradients done


def _where(choice: Array, new: MeetingState, old: MeetingState) -> MeetingState:
    return jax.tree.map(lambda a, b: jnp.where(choice, a, b), new, old)


@method
def adpsgd(
    step: Number = 0.1,
    # a graph whose edges join even nodes with odd ones
    topology: Literal["bipartite", "ring"] = "bipartite",
    wait: bool = False,  # whether an active node rests until its meeting is over
    # slots without an answer until a proposal is sent again; None: learnt
    patience: int | None = None,
    kept_answers: int = 8,  # answers that a passive node keeps, to repeat them
    decay: Decay = Decay(),  # noqa: B008 - immutable
    descent: Descent = Descent(),  # noqa: B008 - immutable
) -> Algorithm:
    """Build AD-PSGD: 'bipartite' joins every even node with every odd one.

    'ring' needs an even number of nodes. With `wait` there is one averaging for each gradient of an
    active node. `patience` is the slots without an answer after which a proposal is sent again;
    None: by the round trips and losses so far.

    >>> adpsgd().travel.mixing.weights(jnp.ones((4, 4), bool))[0, 2].item()
    0.0
    """
    eta = step_size(step, decay)
    require(
        topology in ("bipartite", "ring"),
        f"topology must be 'bipartite' or 'ring', got {topology!r}; others have odd cycles",
    )
    require(
        kept_answers >= 1,
        f"kept_answers must be at least 1, got {kept_answers}; 8 keep what 16 nodes need",
    )
    require(
        patience is None or patience >= 0,
        f"patience counts slots and must be at least 0, got {patience}; leave it out to learn it",
    )

    def weights(heard: Array) -> Array:
        nodes = len(heard)
        if topology == "ring":
            require(
                nodes % 2 == 0,
                f"a ring of {nodes} nodes is not bipartite; take an even number, or 'bipartite'",
            )
            return metropolis(jnp.asarray(Graph("ring").adjacency(nodes)))
        even = jnp.arange(nodes) % 2 == 0
        return metropolis(even[:, None] != even[None])

    def room(num_nodes: int) -> int:
        """Return how many answers a passive node keeps: no more than it has neighbours."""
        return min(kept_answers, 2 if topology == "ring" else (num_nodes + 1) // 2)

    def receive(state: MeetingState, inbox: Inbox) -> MeetingState:
        return _where(state.node % 2 == 0, _conclude(state, inbox, patience), _answer(state, inbox))

    built = Algorithm(
        name="adpsgd",
        init=_first(room, wait=wait),
        point=lambda state, _: state.params,
        update=_update(eta, wait=wait),
        message=_message,
        params=lambda state: state.params,
        receive=receive,
        model=lambda state, inbox: receive(state, inbox).params,
        travel=Broadcast(
            mixing=Mixing(weights),
            has_news=lambda state: state.edition != state.sent,
            notes=lambda state: state._replace(sent=state.edition),
            **({"rests": lambda state: state.waiting} if wait else {}),
        ),
        declares=Declares(
            assumes=frozenset({Assumption.PRESENT, Assumption.STEADY}),
            price=Price(lambda dim, bits: (bits * dim + 32 * HEADER,)),
            draws=True,
            evenly=True,
        ),
    )
    return descent.of(built)


def _first(room: Callable[[int], int], *, wait: bool) -> Callable[[Array, Place], MeetingState]:
    """Build the start of a node, which has met nobody."""

    def init(params: Array, place: Place) -> MeetingState:
        zero, none = jnp.zeros((), jnp.int32), jnp.zeros(place.num_nodes, jnp.int32)
        kept = room(place.num_nodes)
        return MeetingState(
            params=params,
            frozen=params,
            move=jnp.zeros_like(params if wait else params[:0]),
            node=place.node + zero,
            partner=zero - 1,
            number=zero,
            sendings=zero,
            edition=zero,
            sent=zero,
            waiting=jnp.asarray(False),
            waited=zero,
            silent=zero,
            longest=zero,
            doubt=zero,
            spell=zero,
            asked=none,
            first=none,
            served=none,
            seen=none,
            kept=KeptAnswers(
                model=jnp.zeros((kept, len(params)), params.dtype),
                partner=jnp.full(kept, -1, jnp.int32),
                number=jnp.zeros(kept, jnp.int32),
                edition=jnp.zeros(kept, jnp.int32),
                sendings=jnp.zeros(kept, jnp.int32),
            ),
            updates=zero,
        )

    return init


def _message(state: MeetingState) -> Array:
    header = jnp.stack([state.partner, state.number, state.sendings])
    return jnp.append(state.frozen, header.astype(state.frozen.dtype))


def _update(
    eta: StepSize, *, wait: bool
) -> Callable[[MeetingState, Inbox, Array, Array, Array], MeetingState]:
    """Build what a gradient does: a step, and a proposal of an active node in no meeting."""

    def update(
        state: MeetingState, inbox: Inbox, loss: Array, grad: Array, key: Array
    ) -> MeetingState:
        del loss
        step = -eta(state.updates, grad.dtype) * grad
        moved = state._replace(params=state.params + step, updates=state.updates + 1)
        near = inbox.weight > 0
        ticket = jnp.where(near, 0.0, -jnp.inf)
        proposes = (moved if not wait else moved._replace(params=state.params, move=step))._replace(
            frozen=state.params if wait else moved.params,
            partner=jax.random.categorical(key, ticket).astype(jnp.int32),
            number=state.number + 1,
            sendings=jnp.where(state.doubt > 0, -1, 1).astype(jnp.int32),
            edition=state.edition + 1,
            waiting=jnp.asarray(True),
            waited=jnp.zeros((), jnp.int32),
            silent=jnp.zeros((), jnp.int32),
        )
        active = state.node % 2 == 0
        return _where(active & ~state.waiting & jnp.any(near), proposes, moved)

    return update


def _patience(state: MeetingState) -> Array:
    """Return the slots of silence after which a proposal is repeated."""
    learnt = state.longest + state.longest // 2 + SLACK
    calm = jnp.where(state.longest > 0, learnt, FIRST_PATIENCE)
    return jnp.where(state.sendings < 0, 0, calm)


def _conclude(state: MeetingState, inbox: Inbox, patience: int | None) -> MeetingState:
    """Return the state after the active half of a meeting, if the answer is there.

    If it is long in coming, the proposal gets another edition, and so is sent again.
    """
    answer = inbox.payload(state.partner)
    mine = state.waiting & (answer[-3] == state.node)
    met = mine & (answer[-2] == state.number)
    over = met | mine & (answer[-2] == -state.number)  # the answer was lost, and is kept no more
    half = jnp.where(met, 0.5, 0.0) * (answer[:-HEADER] - state.frozen)
    params = state.params + half
    if state.move.size:
        params = params + jnp.where(over, 1.0, 0.0) * state.move  # [1, Alg. 1, lines 5-6]
    on_air = state.waiting & (state.edition == state.sent)
    waited, silent = state.waited + on_air, state.silent + on_air
    again = on_air & ~over & (silent > (_patience(state) if patience is None else patience))
    repeats = jnp.abs(state.sendings)
    waits = jnp.where(state.longest > 0, 1, FIRST_WAITS)
    pleads = (state.doubt > 0) | (repeats >= waits)
    sendings = jnp.where(pleads, -1, 1) * (repeats + 1)
    whole = met & (answer[-1] == 1)  # nothing was lost: the answer to the first proposal
    moved = state._replace(
        params=params,
        waiting=state.waiting & ~over,
        sendings=jnp.where(again, sendings, state.sendings).astype(jnp.int32),
        edition=state.edition + again,
        waited=waited,
        silent=jnp.where(again, 0, silent),
        longest=jnp.where(whole, jnp.maximum(waited, state.longest * 3 // 4), state.longest),
    )
    return _where(over, _learnt(moved, whole), moved)


def _learnt(state: MeetingState, whole: Array) -> MeetingState:
    """Return the state with what a meeting that is over tells of losses.

    One that pleaded tells nothing: where messages overtake each other, the first is often not the
    first to arrive.
    """
    calm = state.doubt == 0
    longer = jnp.clip(4 * state.spell, 1, MOST_DOUBT)
    spell = jnp.where(whole, state.spell // 2, longer)
    return state._replace(
        spell=jnp.where(calm, spell, state.spell).astype(jnp.int32),
        doubt=jnp.where(calm, jnp.where(whole, 0, spell), state.doubt - 1).astype(jnp.int32),
    )


def _answer(state: MeetingState, inbox: Inbox) -> MeetingState:
    """Return the state after the passive half of a meeting, if somebody asks.

    Nobody is answered while the last answer has not gone on the air.
    """
    partner, number, sendings = inbox.store[inbox.row, -HEADER:].T.astype(jnp.int32)
    pleads, sendings = sendings < 0, jnp.abs(sendings)
    mine = (partner == state.node) & (inbox.weight > 0)
    state = state._replace(
        asked=jnp.where(mine, jnp.maximum(number, state.asked), state.asked),
        first=jnp.where(mine & (number > state.asked), sendings, state.first),
    )
    again = (number == state.served) & (pleads | (sendings > state.seen))
    asks = mine & ((number > state.served) | again)
    # the first who comes after the last one served
    turn = jnp.mod(jnp.arange(len(asks)) - state.partner - 1, len(asks))
    i = jnp.argmin(jnp.where(asks, turn, len(asks))).astype(jnp.int32)
    free = (state.edition == state.sent) & jnp.any(asks)
    return _where(free, _answered(state, inbox, i, number, sendings[i]), state)


def _answered(
    state: MeetingState, inbox: Inbox, i: Array, numbers: Array, sendings: Array
) -> MeetingState:
    """Return the state after node i is answered: for the first time, or with what is kept.

    `numbers` (node,) are those of all proposals, `sendings` those of this one.
    """
    kept, number = state.kept, numbers[i]
    new = number > state.served[i]
    own = (kept.partner == i) & (kept.number == number)
    known = new | jnp.any(own)
    place = jnp.where(new, _place(kept, i, numbers), jnp.argmax(own))
    times = jnp.where(new | ~known, 1, kept.sendings[place] + 1)
    frozen = jnp.where(new, state.params, kept.model[place])
    half = jnp.where(new, 0.5, 0.0) * (inbox.payload(i)[:-HEADER] - state.params)
    edition = state.edition + 1
    slot = jnp.where(known, place, len(kept.partner))  # what is not kept is not written
    return state._replace(
        params=state.params + half,
        frozen=frozen,
        partner=i,
        number=jnp.where(known, number, -number),
        sendings=state.first[i] + times - 1,
        edition=edition,
        served=state.served.at[i].set(number),
        seen=state.seen.at[i].set(sendings),
        kept=KeptAnswers(
            model=kept.model.at[slot].set(frozen, mode="drop"),
            partner=kept.partner.at[slot].set(i, mode="drop"),
            number=kept.number.at[slot].set(number, mode="drop"),
            edition=kept.edition.at[slot].set(
                jnp.where(new, edition, kept.edition[place]), mode="drop"
            ),
            sendings=kept.sendings.at[slot].set(times, mode="drop"),
        ),
    )


def _place(kept: KeptAnswers, partner: Array, number: Array) -> Array:
    """Return where the answer to a partner is kept; `number` (node,) are those of all proposals.

    In this order: in the place of its last one, in an empty one, in that of a partner that has gone
    on to another meeting, in that of the oldest.
    """
    went_on = number[kept.partner] > kept.number
    rank = jnp.where(went_on, -1, kept.edition)
    rank = jnp.where(kept.partner < 0, -2, rank)
    return jnp.argmin(jnp.where(kept.partner == partner, -3, rank))
