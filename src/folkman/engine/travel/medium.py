"""What the simulator asks of a way to travel: how messages move within a slot.

A medium is made for one algorithm and one network. `open` begins; `inboxes` is what each node holds
when a slot begins; `exchange` runs at the end of a slot, after the updates, and lets the network
carry messages. Its state is a pytree of arrays.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import Any, ClassVar, Generic, NamedTuple, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray

from folkman.algorithm.base import Algorithm, Inbox, Place, Price, State, forms_or_none
from folkman.algorithm.travel import Server, Travel
from folkman.checks import require
from folkman.engine.presence import Presence
from folkman.engine.travel.sending import Senders, Sending
from folkman.keys import Stream, make_key, node_keys
from folkman.packing.packing import NONE
from folkman.packing.price import forms_of, settled
from folkman.problem.learnable import Learnable
from folkman.problem.objective import model_weights
from folkman.radio.delivery import Network, NetworkState
from folkman.radio.trace import Timeline

__all__ = [
    "Axes",
    "Ending",
    "Events",
    "Held",
    "Medium",
    "Offered",
    "OnAir",
    "Traffic",
    "Way",
    "count",
    "first_states",
    "mean_model",
    "server_entries",
]

Way = TypeVar("Way", bound=Travel)
Held: TypeAlias = State  # a medium's state: a NamedTuple of arrays
Events: TypeAlias = State  # a slot's row of a timeline: NamedTuples of arrays
Axes: TypeAlias = Inbox | int  # those that an inbox has for `jax.vmap`

MOST_ENTRIES = 64
_ENTRIES: dict[Hashable, int] = {}
"""The entries of messages of methods that were asked for of late."""


class Traffic(NamedTuple):
    """What was put on the air in one slot, counted in messages of each form."""

    sent: Int[Array, " form"]  # by nodes
    sent_copies: Int[Array, " form"]  # the same, each receiver counted
    served: Int[Array, " form"]  # by servers
    served_copies: Int[Array, " form"]


class OnAir(NamedTuple):
    """How long radios were in use, in slots: within one, or added up."""

    transmit: Float[Array, " node"]
    receive: Float[Array, " node"]
    station_transmit: Float[Array, ""]  # of all stations together
    station_receive: Float[Array, ""]

    @classmethod
    def nothing(cls, nodes: int) -> "OnAir":
        """Return that no radio was in use."""
        none, zero = jnp.zeros(nodes, jnp.float32), jnp.zeros((), jnp.float32)
        return cls(none, none, zero, zero)


class Ending(NamedTuple):
    """A slot that ends, after the updates."""

    problem: Learnable
    faults: Presence
    states: State
    steps: Int[Array, " node"]  # gradients that each node has finished
    slot: Int[Array, ""]
    senders: Senders
    key: Array

    @property
    def nodes(self) -> int:
        """Return how many nodes there are."""
        return self.problem.num_nodes


class Offered(NamedTuple):
    """What the nodes would put on the air at the end of a slot."""

    messages: Float[Array, "node message"]  # lies included
    offers: Bool[Array, " node"]
    form: Int[Array, " node"]
    bits: Float[Array, " node"]  # of a message
    present: Bool[Array, " node"]


class View(NamedTuple):
    """A medium as a picture shows it; servers stand behind the nodes."""

    ages: NDArray[np.int32]  # (rx, tx) slots since the held copy was formed, -1 for none
    stamps: NDArray[np.int32]  # (tx,) when what is on the air was formed, -1 for nothing
    servers: int


class Medium(ABC, Generic[Way]):
    """The simulator's half of a way to travel."""

    stretch: ClassVar[int | None] = None
    """Slots after which `lacks_room` must be asked; None: never."""

    has_server: ClassVar[bool] = False
    """Are nodes' messages for a server or a station, and not for each other?"""

    forms_on_air: ClassVar[slice] = slice(None)
    """The forms of a server's messages that go by radio, and not by wire."""

    def __init__(self, algorithm: Algorithm, network: Network) -> None:
        self.algorithm = algorithm
        self.network = network
        self.travel: Way = algorithm.travel  # type: ignore[assignment] - the table matches types

    @abstractmethod
    def check(self, num_nodes: int, faults: Presence) -> None:
        """Refuse a network or faults that this way cannot do with."""

    @abstractmethod
    def open(self, problem: Learnable, states: State, key: Array) -> Held:
        """Return the state before slot 0."""

    @abstractmethod
    def inboxes(self, held: Held, problem: Learnable, slot: Array) -> tuple[Inbox, Axes]:
        """Return all nodes' inboxes as one batched `Inbox`, and the axes to `jax.vmap` it over."""

    @abstractmethod
    def exchange(self, held: Held, ending: Ending) -> tuple[Held, Traffic, Events]:
        """Carry messages at the end of a slot; the last part is the slot's row of a timeline."""

    @abstractmethod
    def on_air(self, events: Events, present: Array) -> OnAir:
        """Return how long radios were in use in the slot of these events.

        Nothing where the network does not tell. `present` (node,): who is away uses none.
        """

    def attended(self, face: Any, state: NetworkState, ending: Ending) -> NetworkState:
        """Return the network's state, told who is there in the coming slot if it asks for that."""
        if not hasattr(face, "attend"):
            return state
        return face.attend(state, ending.faults.receives(ending.nodes, ending.slot + 1))

    def told(self, airtime: object) -> bool:
        """Tell whether an answer of the network says how long radios were in use."""
        require(
            airtime is not None or not self.network.times_air,
            f"'{self.network.name}' has times_air = True, so its answers need an `airtime`, and "
            "one has none; fill it in, or set times_air to False to price messages by their bits",
        )
        return airtime is not None

    @abstractmethod
    def measures(self, held: Held) -> dict[str, Array]:
        """Return what the network has measured so far."""

    @abstractmethod
    def timeline(
        self, stamps: NDArray[np.int32], finished: NDArray[np.bool_], events: Events
    ) -> Timeline:
        """Join what `stamps` and `exchange` left, stacked over slots."""

    @abstractmethod
    def view(self, held: Held, slot: int) -> View:
        """Return the medium as a picture shows it."""

    def stamps(self, held: Held) -> Array:
        """Return the stamps in use in the coming slot, for a timeline."""
        del held
        return jnp.zeros(0, jnp.int32)

    @abstractmethod
    def ages(self, held: Held, slot: Array) -> Array:
        """Return the slots since each copy was formed that is in use in this slot, int32.

        (rx, tx) between peers, (node,) where a server is everyone's only neighbour.
        """

    def late(self, held: Held) -> Array:
        """Return how many versions late each upload was that arrived in the last slot, (node,).

        -1 for a node of which none arrived; (0,) where there is no server.
        """
        del held
        return jnp.zeros(0, jnp.int32)

    @abstractmethod
    def unheard(self, held: Held) -> Array:
        """Return how many links have never brought a message beyond the common first one, () int.

        A link is a pair of a receiver and a sender that the method wants it to hear.
        """

    @abstractmethod
    def paired(self, ages: NDArray) -> NDArray:
        """Return ages as `View` has them, (rx, tx) with servers behind the nodes; -1 for none."""

    def model(self, held: Held, problem: Learnable, params: Array) -> Array:
        """Return the model of the whole network, w = sum_i alpha_i w_i of `params` (node, d).

        For a method that weighs all nodes alike it is the plain mean.
        """
        del held
        weights = model_weights(problem, evenly=self.algorithm.declares.evenly)
        return jnp.dot(weights, params, precision="highest")

    def centre(self, w: Array, problem: Learnable, models: Array) -> Array:
        """Return what the nodes' models (node, d) are compared with, (d,): the network's model.

        Where nodes wait for each other it is the mean of their models: a newer one is on its way to
        all of them, and their distance from it would only tell how far the round is.
        """
        del problem, models
        return w

    def noted(self, states: State, events: Events) -> State:
        """Return the states of nodes that know what they have just put on the air."""
        del events
        return states

    def rounds(self, held: Held) -> Array | None:
        """Return the aggregations so far; None where the broadcasts of a node are its rounds."""
        del held
        return None

    def lacks_room(self, held: Held) -> Array:
        """Tell whether a copy was needed that found no room: the stretch must be run again."""
        del held
        return jnp.asarray(False)

    def with_room(self, held: Held, after: Held | None = None) -> Held:
        """Return the state with more room, to take the last stretch again.

        `after` is the state at its end; None where many states are looked at as one.
        """
        del after
        return held

    def prices(self, problem: Learnable) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the bits of each form of a node's and of a server's messages."""
        forms, entries = forms_or_none(self.algorithm.declares.price), self.entries(problem)
        packing = self.sending(problem).packing
        return forms_of(packing, forms, entries, problem.dim, problem.initial.dtype), (0,)

    def entries(self, problem: Learnable) -> int:
        """Return the entries of a node's message."""
        if self.algorithm.kind is None:
            return _entries(problem, self.algorithm)
        initial = problem.initial
        alike = (self.algorithm.kind, problem.num_nodes, initial.shape, initial.dtype)
        entries = _ENTRIES.get(alike)
        if entries is None:  # a trace takes milliseconds, and a run asks a dozen times
            if len(_ENTRIES) >= MOST_ENTRIES:
                _ENTRIES.clear()
            _ENTRIES[alike] = entries = _entries(problem, self.algorithm)
        return entries

    def sending(self, problem: Learnable) -> Sending:
        """Return how nodes pack, or refuse a packing that their messages cannot take.

        Between peers on their own beat a message replaces the one before; elsewhere differences
        are added up.
        """
        declares, dim = self.algorithm.declares, problem.dim
        name, entries = self.algorithm.name, self.entries(problem)
        sums, forms = self.algorithm.bears_no_rounding, forms_or_none(declares.price)
        packing = settled(self.network.packing, forms, entries, dim, name, sums=sums)
        return Sending(packing, dim, adds=declares.differences and not sums)

    def answering(self, problem: Learnable, server: Server, num_senders: int) -> Sending:
        """Return how a server packs."""
        packing, dim = self.network.packing, problem.dim
        if not packing.servers:
            return Sending(NONE, dim)
        entries, name = server_entries(server, problem, num_senders), self.algorithm.name
        return Sending(settled(packing, forms_or_none(server.price), entries, dim, name), dim)

    def server_prices(
        self, problem: Learnable, server: Server, num_senders: int
    ) -> tuple[int, ...]:
        """Return the bits of each form of a server's messages."""
        entries = server_entries(server, problem, num_senders)
        packing = self.answering(problem, server, num_senders).packing
        forms, dtype = forms_or_none(server.price), problem.initial.dtype
        return forms_of(packing, forms, entries, problem.dim, dtype)

    def check_memory(self, faults: Presence, *, all_hear: bool) -> None:
        """Refuse error feedback where a message may not reach everyone, in order."""
        if not self.network.packing.remembers:
            return
        away = faults.leaves_for_good or faults.starts_anew or bool(getattr(faults, "away", ()))
        name = self.network.name
        broken = (
            f"the network '{name}' loses some"
            if not self.network.reliable
            else f"on '{name}' peers miss or overtake some"
            if not all_hear
            else "nodes that are away miss some"
            if away
            else ""
        )
        require(
            not broken,
            f"error feedback builds each message on the one before and needs every message to "
            f"arrive, in order; {broken}. Leave feedback out: float16, bfloat16, int8, qsgd and "
            "rand_k do without",
        )

    def offered(self, ending: Ending) -> Offered:
        """Return what the nodes would put on the air now."""
        algorithm, problem, states = self.algorithm, ending.problem, ending.states
        faults = ending.faults
        messages = faults.corrupt(
            jax.vmap(algorithm.message)(states),
            problem.initial,
            ending.key,
            about_zero=algorithm.declares.differences,
        )
        present = faults.present(problem.num_nodes, ending.slot)
        offers = jax.vmap(algorithm.travel.offers)(states) & present
        form = jnp.zeros(problem.num_nodes, jnp.int32)
        if algorithm.declares.price is not None:
            form = jax.vmap(algorithm.declares.price.form)(states)
        bits = in_bits(self.prices(problem)[0])[form]
        return Offered(messages, offers, form, bits, present)


def first_states(problem: Learnable, algorithm: Algorithm, seed: ArrayLike) -> State:
    """Return all nodes' first states: the common first model, and each node's own draws."""
    nodes = problem.num_nodes
    keys = node_keys(make_key(seed, Stream.START), problem.node, jnp.zeros(nodes, jnp.int32))

    def of_one(node: Array, key: Array) -> State:
        return algorithm.init(problem.initial, Place(node, nodes, key))

    return jax.vmap(of_one)(jnp.arange(nodes, dtype=jnp.int32), keys)


def _entries(problem: Learnable, algorithm: Algorithm) -> int:
    states = jax.eval_shape(lambda: first_states(problem, algorithm, 0))
    return jax.eval_shape(jax.vmap(algorithm.message), states).shape[1]


def mean_model(problem: Learnable, models: Array) -> Array:
    """Return sum_i alpha_i v_i of models (node, d), to the bit their common value if it is one."""
    first = models[0]
    return first + jnp.dot(problem.share, models - first[None], precision="highest")


def server_entries(server: Server, problem: Learnable, num_senders: int) -> int:
    """Return the entries of a server's message."""
    kept = jax.eval_shape(lambda w: server.init(w, num_senders), problem.initial)
    return jax.eval_shape(server.message, kept).size


def form_of(price: Price | None, state: State) -> Array:
    """Return which of its forms a message has now."""
    return jnp.zeros((), jnp.int32) if price is None else price.form(state)


def in_bits(price: tuple[int, ...]) -> Array:
    """Return prices as an array; NumPy first, since they may exceed an int32."""
    return jnp.asarray(np.asarray(price, np.float32))


def count(mask: Array, form: Array, forms: int) -> Array:
    """Count the messages of each form among those of the mask, (form,)."""
    return jnp.zeros(forms, jnp.int32).at[form].add(mask.astype(jnp.int32))
