"""What an algorithm is: pure functions over a NamedTuple state, and how its messages travel.

A node lives in slots. In a slot it may hear, takes **one** gradient, and updates; so every method
pays for its gradients on the same axis, and one that needs several for a round takes several slots.
An engine calls, for each node and slot,

    state = receive(state, inbox)                        what arrived
    v     = point(state, inbox)                          where the gradient is wanted
    state = update(state, inbox, loss, grad, key)        with F_i(v), grad F_i(v)

and puts `message(state)` on the air when the network lets the node send. No function sees a clock,
another node's state or a socket: the same functions run under `jax.vmap` in the simulator and one
node at a time on a device. A model is a flat vector of length d throughout; the first d entries of
a message are a model.

`travel` says how messages reach others (`folkman.algorithm.travel`), `declares` what the method
needs and promises. An algorithm is a value: two that were built alike are equal, and it passes
through `jax.jit` as an argument, its numbers traced (`folkman.algorithm.method`).

The rules: pure; state first in, state first out, key last.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, ClassVar, NamedTuple, TypeAlias

from folkman.algorithm.travel import Broadcast, State, Travel
from folkman.arrays import Array, Bool, Float, Int, jax, jnp

if TYPE_CHECKING:
    from folkman.algorithm.method import Recipe

__all__ = [
    "NUMBERS",
    "RECALLED",
    "Algorithm",
    "Assumption",
    "Declares",
    "Inbox",
    "Place",
    "Price",
    "Prices",
    "State",
    "SummedInbox",
    "forms_or_none",
]


RECALLED = "as recalled, not verified"
"""Of a method whose recursion was compared with neither paper nor code."""

NUMBERS = "authors' code, as numbers"
"""Of a method whose iterates are those of its authors' code, which the tests tell again."""


class Assumption(Enum):
    """What a method needs of its network and nodes; an engine refuses those that cannot give it."""

    RELIABLE = "every message arrives"
    PRESENT = "every node answers in the end"
    STEADY = "no node starts anew"


class Place(NamedTuple):
    """Who a node is, told once at its start."""

    node: Int[Array, ""]  # number of the node, from 0
    num_nodes: int  # number of nodes, I
    key: Array  # JAX random key of the node's own draws at the start


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["store", "row", "weight", "own_weight", "heard", "age", "finite", "coming"],
    meta_fields=[],
)
@dataclass(frozen=True, eq=False)
class Inbox:
    """What one node holds of the others: of each neighbour at most the freshest message.

    `store` may be shared by many inboxes (an engine keeps every payload once); `row[j]` says where
    neighbour j's is. A weight of 0 hides a neighbour, and the node itself has weight 0 here.
    """

    store: Float[Array, "row message"]  # payloads
    row: Int[Array, " nbr"]  # row of the held payload of each neighbour
    weight: Float[Array, " nbr"]  # alpha_j, or the mixing weight w_ij
    own_weight: Float[Array, ""]  # alpha_i, or w_ii
    heard: Bool[Array, " nbr"]  # whether a new one arrived since the last slot
    age: Int[Array, " nbr"]  # slots since the payload was formed
    finite: Bool[Array, " nbr"]  # False where the payload was not finite, and is zeros here
    # whether a new one is on its way, where the carrier can tell
    coming: Bool[Array, " nbr"] | None = None

    def mix(self, weights: Float[Array, " nbr"] | None = None) -> Float[Array, " message"]:
        """Return sum_j weights_j x_j over the held payloads x_j; None: the inbox's own weights."""
        weights = self.weight if weights is None else weights
        row_weights = jnp.zeros(self.store.shape[0], self.store.dtype).at[self.row].add(weights)
        return jnp.dot(row_weights, self.store, precision="highest")  # GPUs would round to ten bits

    def payload(
        self,
        nbr: int | Int[Array, ""],  # number of the neighbour
    ) -> Float[Array, " message"]:
        """Return the payload held of one neighbour."""
        return self.store[self.row[nbr]]


@partial(
    jax.tree_util.register_dataclass,
    data_fields=[*Inbox.__dataclass_fields__, "sums"],
    meta_fields=[],
)
@dataclass(frozen=True, eq=False)
class SummedInbox(Inbox):
    """An inbox whose sum by its own weights is at hand."""

    sums: Array | None = None  # (message,)

    def mix(self, weights: Array | None = None) -> Array:
        """Return sum_j weights_j x_j."""
        return self.sums if weights is None and self.sums is not None else super().mix(weights)


def _first_form(state: State) -> Array:
    del state
    return jnp.zeros((), jnp.int32)


Prices: TypeAlias = Callable[[int, int], tuple[int, ...]]
"""(d, bits of a parameter) -> the bits of each form that a message can have."""


class Price(NamedTuple):
    """What a message costs on the air, where it is not its entries at the price of a parameter."""

    bits: Prices  # (d, bits of a parameter) -> bits of each form of a message
    # (d, bits of a parameter) -> bits of what each receiver alone needs of it; None: of all
    copy_bits: Prices | None = None
    form: Callable[[State], Array] = _first_form  # which of the forms the message has now


def forms_or_none(price: Price | None) -> Prices | None:
    """Return the prices of the forms of a message; None: of its entries."""
    return None if price is None else price.bits


class Declares(NamedTuple):
    """What a method needs, and what it promises; the contract's tests hold it to the promises.

    The promises are for the method as it was built: with all nodes taking part, on `ideal`.
    """

    assumes: frozenset[Assumption] = frozenset()  # what a network or a fault must not break
    needs: Callable[[int], int] | None = None  # number of nodes -> how many of them must stay
    # what a message costs; None: every entry at the price of a parameter
    price: Price | None = None
    differences: bool = False  # whether the first d entries of a message are a difference of models
    exact: bool = False  # it ends at the optimum where nodes differ, if all take part
    biased: bool = False  # its distance to the optimum stays with small steps, where nodes differ
    # its aggregate is the sum by data share of what it holds, and copies enter in no other way:
    # they may travel as sums (`Network.message`)
    sums: bool = False
    draws: bool = False  # it draws, or breaks ties by number: renumbering nodes changes the result
    # it weighs all nodes alike, whatever their shares: engines hand it I alpha_i F_i for F_i, and
    # the network's model is the plain mean of the nodes (problem/objective.py)
    evenly: bool = False
    # what rounding leaves out of its messages is lost for ever: they travel as computed
    exactly: bool = False
    # what it was compared with: NUMBERS, "authors' code" (its equations), "paper", or RECALLED;
    # empty where its docstring says it part by part
    verified: str = ""
    # what a row tells of all nodes' states, by the names of columns
    measures: Callable[[State], dict[str, Array]] | None = None


def _keep(state: State, inbox: Inbox) -> State:
    del inbox
    return state


@dataclass(frozen=True, eq=False)
class Algorithm:
    """What one node knows at first, does in a slot, sends, and would deploy."""

    name: str
    init: Callable[[Array, Place], State]  # (w(0), place) -> the first state
    point: Callable[[State, Inbox], Array]  # (state, inbox) -> where the gradient is taken
    # (state, inbox, loss, grad, key) -> state, once a gradient is taken
    update: Callable[[State, Inbox, Array, Array, Array], State]
    message: Callable[[State], Array]  # state -> what is sent
    # state -> the node's parameters; their alpha-weighted sum over nodes is the network's model, or
    # their mean where it `declares` evenly
    params: Callable[[State], Array]
    receive: Callable[[State, Inbox], State] = _keep  # (state, inbox) -> state, before the gradient
    # (state, inbox) -> the model that the node would deploy; None: its params
    model: Callable[[State, Inbox], Array] | None = None
    # how messages reach others
    travel: Travel = Broadcast()  # noqa: RUF009 - immutable
    # what it needs of a network, and what it promises
    declares: Declares = Declares()  # noqa: RUF009 - immutable

    recipe: ClassVar["Recipe | None"] = None  # how it was built; set on what a `method` returns
    kind: ClassVar["Recipe | None"] = None  # the same without its numbers, which may be traced

    @property
    def bears_no_rounding(self) -> bool:
        """Tell whether what rounding leaves out of a message would be lost for ever.

        So it is where a message is the sum of all that was ever sent: between peers on their own
        beat a message replaces the one before, and differences are summed.
        """
        sums = self.declares.differences and isinstance(self.travel, Broadcast)
        return sums or self.declares.exactly

    def __eq__(self, other: object) -> bool:
        if self.recipe is None or not isinstance(other, Algorithm):
            return self is other
        return self.recipe == other.recipe

    def __hash__(self) -> int:
        return id(self) if self.recipe is None else hash(self.recipe)


def _parts(algorithm: Algorithm) -> "tuple[tuple[object, ...], Algorithm | Recipe]":
    """Return the numbers of an algorithm, and what is fixed in a program that runs it."""
    if algorithm.recipe is None:
        return (), algorithm
    return algorithm.recipe.numbers, algorithm.recipe.without_numbers()


def _joined(fixed: "Algorithm | Recipe", numbers: tuple[object, ...]) -> Algorithm:
    return fixed if isinstance(fixed, Algorithm) else fixed.build(numbers)


jax.tree_util.register_pytree_node(Algorithm, _parts, _joined)
