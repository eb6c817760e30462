"""SGP: stochastic gradient push; mass is pushed along a directed graph, and divided by its weight.

    x_i <- x_i - eta grad F_i(z_i)                                                  [1, Alg. 1]
    x_i+ = sum_j p_ij x_j,   y_i+ = sum_j p_ij y_j,   z_i = x_i / y_i

with y_i(0) = 1 and p_ji = 1 / (out_i + 1) for node i itself and each node j that hears it, so
columns sum to 1. Where rows do too, y_i = 1 and this is D-PSGD (adapt, then combine). A round in
lock-step takes one slot of computing and one broadcast of each node, S + 32 bits.

In the mode 'asynchronous' a node pushes after every gradient, never waits, and broadcasts what it
has pushed to each neighbour in all, sigma_i; a receiver adds sum_j sigma_j less the same sum as
last taken [2]. Losing or repeating messages is harmless: sum_i x_i + what is in flight moves by
gradients alone, and sum_i y_i + what is in flight = I. A sum is taken if no part of it is older
than what was taken before; by the `sums` 'neighbour' a node keeps what it took of each neighbour,
I (d + 1) numbers, and takes each sigma_j that is not older. There x_i counts from y_i w(0) to keep
sigma small; still it grows with time, and float32 loses digits.

While mass is in flight y_i is small, and a step of z_i is eta / y_i. A node that pushes
out_i / (out_i + 1) of its mass after every gradient has almost none left on a dense graph until the
first of it comes back. So by the `pushes` 'by_age' it pushes the part 1 / (1 + a_i) of that, with
a_i the mean age in slots of what it holds of its neighbours: about half of all mass is then in
flight, whatever the delay and the graph. Before it has heard anyone it keeps half of its mass. By
'whole' it pushes all of that part, as in [1]; where messages take no time that is D-PSGD's model
exactly, and with delays y_i sits at `least_weight`. The column `push_weight` of a run is the least
y_i that a last gradient was divided by; a run in which it is below 0.2 ends with a warning.

Differs from [1]: full-batch gradients unless the problem has mini-batches; the asynchronous form
pushes by age, and only as much as leaves y_i >= `least_weight`, as many pushes before the first
arrival would take y_i to 0 and the step eta / y_i to infinity; z_i = x_i / max(y_i, 1e-3) in both.
In lock-step the authors' code (github.com/facebookresearch/stochastic_gradient_push, gossip_module)
has the same x_i and y_i on a directed graph, to 1e-10 in the tests.

[1] M. Assran, N. Loizou, N. Ballas, M. Rabbat. Stochastic Gradient Push. ICML 2019.
    arXiv:1811.10792
[2] C. N. Hadjicostis, N. H. Vaidya, A. D. Dominguez-Garcia. Robust Distributed Average Consensus
    via Exchange of Running Sums. IEEE Transactions on Automatic Control 61(6), 2016.
"""

from typing import Literal, NamedTuple

from folkman.algorithm.base import NUMBERS, Algorithm, Assumption, Declares, Inbox, Place, Price
from folkman.algorithm.method import Number, method
from folkman.algorithm.pieces.descent import Descent
from folkman.algorithm.pieces.rounds import Gradient, in_rounds
from folkman.algorithm.pieces.steps import Decay, StepSize, step_size
from folkman.algorithm.pieces.topology import Graph, push_weights
from folkman.algorithm.travel import Broadcast, Mixing
from folkman.arrays import Array, jax, jnp
from folkman.checks import require, within

__all__ = ["PushState", "push_weights", "sgp"]

BIBTEX = r"""@inproceedings{sgp,
  author = {Assran, Mahmoud and Loizou, Nicolas and Ballas, Nicolas and Rabbat, Michael},
  title = {Stochastic Gradient Push for Distributed Deep Learning},
  booktitle = {International Conference on Machine Learning (ICML)},
  year = {2019},
  eprint = {1811.10792},
  archiveprefix = {arXiv},
}"""


UNHEARD_WEIGHT = 0.5
"""Least weight of a node that pushes by age, before it has heard anyone."""


class PushState(NamedTuple):
    """What a node remembers in the asynchronous mode; the last entry of (d + 1,) is the weight."""

    mass: Array  # (d + 1,) x_i - y_i w(0), y_i
    origin: Array  # (d,) w(0)
    pushed: Array  # (d + 1,) sigma_i, pushed to each neighbour in all
    taken: Array  # (d + 1,) sum_j sigma_j when it was last taken; or (node, d + 1) each of them
    seen: Array  # (node,) the weight in each of these sigma_j
    divisor: Array  # () y_i that the last gradient was divided by
    updates: Array  # () gradients done


@method
def sgp(
    step: Number = 0.1,
    # lockstep: in rounds; asynchronous: each node on its own beat
    mode: Literal["lockstep", "asynchronous"] = "lockstep",
    least_weight: Number = 0.1,  # below it y_i never falls, in the mode asynchronous
    # what a receiver keeps: the sum of all, or one for each neighbour
    sums: Literal["total", "neighbour"] = "total",
    graph: Graph = Graph("ring"),  # noqa: B008 - immutable
    decay: Decay = Decay(),  # noqa: B008 - immutable
    descent: Descent = Descent(),  # noqa: B008 - immutable
    # part of its mass that a node gives away: less where copies are old, or always the whole
    pushes: Literal["by_age", "whole"] = "by_age",
) -> Algorithm:
    """Build stochastic gradient push.

    It runs on directed graphs, and in lock-step on those whose edges change with the round. The
    topology 'schedule' is for lock-step, where senders learn who heard them. `least_weight`, `sums`
    and `pushes` are of the mode 'asynchronous'.

    >>> sgp(topology="star").travel.mixing.weights(jnp.ones((4, 4), bool))[:, 0].sum().item()
    1.0
    """
    eta = step_size(step, decay)
    graph.check()
    require(
        mode == "lockstep" or (mode == "asynchronous" and graph.pushes_evenly),
        "mode must be 'lockstep', or 'asynchronous' on a fixed graph without weights; "
        f"got {mode!r} on {graph.topology!r}",
    )
    require(
        within(least_weight, above=0, below=1),
        f"least_weight must be between 0 and 1, got {least_weight}; try 0.1",
    )
    require(
        sums in ("total", "neighbour"),
        f"sums must be 'total' or 'neighbour', got {sums!r}",
    )
    require(
        pushes in ("by_age", "whole"),
        f"pushes must be 'by_age' or 'whole', got {pushes!r}",
    )

    mixing = graph.pushing()
    price = Price(lambda dim, bits: (bits * dim + 32,))
    if mode == "lockstep":
        return descent.of(_in_lockstep(eta, mixing, price))
    push = _Push(least_weight, apart=sums == "neighbour", by_age=pushes == "by_age")
    return descent.of(_asynchronous(eta, push, mixing, price))


def _ratio(mass: Array) -> Array:
    """Return z_i = x_i / y_i."""
    return mass[:-1] / jnp.maximum(mass[-1], 1e-3)


def _in_lockstep(eta: StepSize, mixing: Mixing, price: Price) -> Algorithm:
    """Build the form of [1]; a node remembers its mass (d + 1,) x_i, y_i."""

    def first(params: Array, place: Place) -> Array:
        del place
        return jnp.append(params, 1.0).astype(params.dtype)

    def descend(mass: Array, grad: Gradient) -> Array:
        move = -eta(grad.updates, grad.value.dtype) * grad.value
        return mass.at[:-1].add(move)  # [1, Alg. 1, line 3]

    def push(mass: Array, inbox: Inbox) -> Array:
        return inbox.own_weight * mass + inbox.mix()  # [1, Alg. 1, lines 5-6]

    return in_rounds(
        "sgp",
        first=first,
        gradient=descend,
        end=push,
        message=lambda mass: mass,
        params=_ratio,
        mixing=mixing,
        declares=Declares(
            assumes=frozenset({Assumption.PRESENT}),
            price=price,
            evenly=True,
            verified=NUMBERS,
        ),
    )


class _Push(NamedTuple):
    """How much is pushed, and how it is taken."""

    least_weight: Number
    apart: bool  # the sums of neighbours are kept apart
    by_age: bool  # less is pushed where messages take long

    def most(self, weight: Array, inbox: Inbox) -> tuple[Array, Array]:
        """Return the share of a node's mass for each neighbour, and the least weight it keeps."""
        least = jnp.asarray(self.least_weight, weight.dtype)
        if not self.by_age:
            return inbox.own_weight, least
        heard = (inbox.weight > 0) & (inbox.store[inbox.row, -1] > 0)
        number = jnp.sum(heard)
        age = jnp.sum(jnp.where(heard, inbox.age, 0)) / jnp.maximum(number, 1)
        pace = 1.0 / (1.0 + age.astype(weight.dtype))
        least = jnp.where(number > 0, least, jnp.maximum(least, UNHEARD_WEIGHT))
        return inbox.own_weight * pace, least


def _least_weights(states: PushState) -> dict[str, Array]:
    return {"push_weight": jnp.min(states.divisor)}


def _asynchronous(eta: StepSize, push: _Push, mixing: Mixing, price: Price) -> Algorithm:
    """Build the form with running sums of [2]."""

    def init(params: Array, place: Place) -> PushState:
        none = jnp.zeros(len(params) + 1, params.dtype)
        return PushState(
            mass=none.at[-1].set(1.0),
            origin=params,
            pushed=none,
            taken=jnp.zeros((place.num_nodes, len(none)), none.dtype) if push.apart else none,
            seen=jnp.zeros(place.num_nodes, params.dtype),
            divisor=jnp.ones((), params.dtype),
            updates=jnp.zeros((), jnp.int32),
        )

    def take_each(state: PushState, inbox: Inbox) -> PushState:
        held = inbox.store[inbox.row]
        forward = (inbox.weight > 0) & (held[:, -1] >= state.seen)
        taken = jnp.where(forward[:, None], held, state.taken)
        return state._replace(
            mass=state.mass + jnp.sum(taken - state.taken, axis=0),
            taken=taken,
            seen=taken[:, -1],
        )

    def receive(state: PushState, inbox: Inbox) -> PushState:
        if push.apart:
            return take_each(state, inbox)
        hears = inbox.weight > 0
        held = inbox.store[inbox.row, -1]
        total = inbox.mix(hears.astype(held.dtype))
        forward = jnp.all((held >= state.seen) | ~hears)  # nothing older than what was taken
        new = state._replace(mass=state.mass + total - state.taken, taken=total, seen=held)
        return jax.tree.map(lambda a, b: jnp.where(forward, a, b), new, state)

    def update(state: PushState, inbox: Inbox, loss: Array, grad: Array, key: Array) -> PushState:
        del loss, key
        move = -eta(state.updates, grad.dtype) * grad
        mass = state.mass.at[:-1].add(move)
        out = jnp.round(1.0 / inbox.own_weight) - 1.0
        share, least = push.most(mass[-1], inbox)
        most = jnp.maximum(1.0 - least / mass[-1], 0.0) / jnp.maximum(out, 1.0)
        pushed = state.pushed + jnp.minimum(share, most) * mass
        return state._replace(
            mass=mass - out * (pushed - state.pushed),  # what was lost in rounding stays here
            pushed=pushed,
            divisor=mass[-1],
            updates=state.updates + 1,
        )

    def model(state: PushState) -> Array:
        return state.origin + _ratio(state.mass)

    return Algorithm(
        name="sgp",
        init=init,
        point=lambda state, _: model(state),
        update=update,
        message=lambda state: state.pushed,
        params=model,
        receive=receive,
        model=lambda state, inbox: model(receive(state, inbox)),
        travel=Broadcast(mixing=mixing),
        declares=Declares(
            assumes=frozenset({Assumption.PRESENT, Assumption.STEADY}),
            price=price,
            differences=True,
            evenly=True,
            measures=_least_weights,
        ),
    )
