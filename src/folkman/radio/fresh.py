"""Fresh air: which message on the whole band makes the copies that are held youngest.

Let x_ij be the age of what node i holds of node j, c_ik the slots that one message takes from k to
i on the whole band, and omega_ij the weight of the pair. A broadcast takes as long as its worst
receiver asks, so the best m receivers of k are the first m by c_ik: replacing any other receiver by
a cheaper one only adds to the sum. Whenever the band is free, the sender k and the prefix m with
the largest index

    V_k = max_m  sum over the first m receivers i of (gain of i)  /  c_(m)k

send. This is a Whittle-type index: a pair that is refreshed every D slots costs D/2 + lambda c / D,
so that one sends when x^2 / (2 c) >= lambda [1]. A `thrift` above 1 divides by its power of c
instead: where rates change from slot to slot, a message that would take long had better wait for a
good one. What a receiver gains depends on the message:

    copy      the sender's own parameters       gain_i = omega_ik (x_ik^2 - x_kk^2)
    forward   what it holds of any node j       gain_i = omega_ij (x_ij^2 - x_kj^2), the best j
    sum       its aggregate with all stamps     gain_i = sum_{j != i} omega_ij (x_ij^2 - x_kj^2)

each where it is positive, and 0 elsewhere. The age x_kk of a node's own newest payload is 0 if it
has something new. A receiver adopts a sum whole, or not at all: it does where that lowers its
weighted sum of ages (`younger`). One that would not adopt gains nothing, whatever its squares say;
otherwise a message that nobody takes could have the largest index again and again.

Ties go to the lowest sender, then to the fewest receivers, then to the lowest origin. All functions
are pure, and can be used without a network.

[1] Kadota, Sinha, Uysal-Biyikoglu, Singh, Modiano. Scheduling Policies for Minimizing Age of
    Information in Broadcast Wireless Networks. IEEE/ACM Trans. Networking 26(6), 2018.
    arXiv:1801.01803
"""

from typing import Literal, NamedTuple

from folkman.arrays import Array, Bool, Float, Int, jnp, lax

__all__ = [
    "MESSAGES",
    "Choice",
    "Offers",
    "best_prefix",
    "choose",
    "gains",
    "gains_believed",
    "gains_of_origin",
    "offers",
    "over_origins",
    "pick",
    "powered",
    "prefix_of_one",
    "younger",
]

Message = Literal["copy", "forward", "sum"]

MESSAGES: tuple[Message, ...] = ("copy", "forward", "sum")
"""What a message may hold."""

SETTLED = 2e-6
"""A gain below this part of what it is a difference of is rounding of float32, and counts as 0."""


class Offers(NamedTuple):
    """The best that each sender could do."""

    value: Float[Array, " tx"]  # the index V_k, 0 where nobody gains
    # slots that it takes; its receivers are those with this cost or less
    slots: Float[Array, " tx"]
    origin: Int[Array, " tx"]  # node whose payload it is; of a copy and of a sum the sender itself


class Choice(NamedTuple):
    """Who sends now, to whom, and for how long."""

    value: Float[Array, ""]  # the index; 0: nobody gains, the band stays free
    sender: Int[Array, ""]
    origin: Int[Array, ""]
    receivers: Bool[Array, " rx"]
    slots: Float[Array, ""]  # slots that its message takes


def gains(
    ages: Int[Array, "rx origin"],
    omega: Float[Array, "rx origin"] | Float[Array, " node"],
    message: Message = "copy",
) -> Float[Array, "rx tx *origin"]:
    """Return what each receiver gains from a message of each sender; of a forward, by origin.

    `ages` are those that every node holds, on the diagonal of its own newest payload. Weights are
    one for each pair, or one for each node: omega_ij is then the product of two.
    """
    if message == "sum" and omega.ndim == 1:
        return _sum_gains(ages.astype(omega.dtype), omega)
    weight = _apart(omega if omega.ndim == 2 else omega[:, None] * omega[None])
    x = ages.astype(weight.dtype)
    square = x * x
    if message == "copy":
        return jnp.maximum(weight * (square - jnp.diagonal(square)[None]), 0.0)
    if message == "forward":
        return jnp.maximum(weight[:, None] * (square[:, None] - square[None]), 0.0)
    both = jnp.concatenate([square, x])  # one product for the squares and for the ages
    theirs = jnp.dot(weight, both.T, precision="highest")  # (rx, 2 tx)
    squares, sums = jnp.split(theirs, 2, axis=1)
    gain = _settled(jnp.sum(weight * square, axis=1)[:, None], squares)
    return jnp.where(_settled(jnp.sum(weight * x, axis=1)[:, None], sums) > 0, gain, 0.0)


def gains_of_origin(
    ages: Int[Array, "rx origin"], omega: Float[Array, " node"], origin: Array
) -> Float[Array, "rx tx"]:
    """Return the gains of a forward of one origin: a slice of `gains`, without the others."""
    x = ages[:, origin].astype(omega.dtype)
    square, own = x * x, jnp.arange(len(x)) == origin
    weight = jnp.where(own, 0.0, omega * omega[origin])  # nobody gains news of itself
    return jnp.maximum(weight[:, None] * (square[:, None] - square[None]), 0.0)


def gains_believed(
    believed: Int[Array, "tx rx origin"],  # ages as each node takes them to be, (tx, rx, origin)
    ages: Int[Array, "tx origin"],
    omega: Float[Array, "rx origin"],
    message: Message = "copy",
) -> Float[Array, "rx tx *origin"]:
    """Return the gains as each sender believes them: k takes the ages of i to be `believed[k, i]`.

    It knows its own `ages`. Where all believe the truth these are the `gains`.
    """
    theirs, own = believed.astype(omega.dtype), ages.astype(omega.dtype)
    weight = _apart(omega)
    if message == "copy":
        square = jnp.diagonal(theirs, axis1=0, axis2=2) ** 2  # (rx, tx)
        return jnp.maximum(weight * (square - (jnp.diagonal(own) ** 2)[None]), 0.0)
    theirs = jnp.swapaxes(theirs, 0, 1)  # (rx, tx, origin)
    weight, square, own_square = weight[:, None], theirs * theirs, (own * own)[None]
    if message == "forward":
        return jnp.maximum(weight * (square - own_square), 0.0)

    def less(mine: Array, other: Array) -> Array:
        return _settled(jnp.sum(weight * mine, axis=2), jnp.sum(weight * other, axis=2))

    return jnp.where(less(theirs, own[None]) > 0, less(square, own_square), 0.0)


def best_prefix(
    gain: Float[Array, "rx tx"], cost_slots: Float[Array, "rx tx"], thrift: float = 1.0
) -> tuple[Float[Array, " tx"], Float[Array, " tx"]]:
    """Return the index of each sender, and what its best message takes; costs to itself infinite.

    Adding up, over receivers i, where c_ik <= c_mk takes less time than sorting.
    """

    def add(i: Array, total: Array) -> Array:
        return total + jnp.where(cost_slots[i][None] <= cost_slots, gain[i][None], 0.0)

    total = lax.fori_loop(0, len(gain), add, jnp.zeros_like(gain), unroll=2)
    return _best(total, cost_slots, thrift)


def prefix_of_one(
    gain: Float[Array, " rx"], cost_slots: Float[Array, " rx"], thrift: float = 1.0
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return `best_prefix` of a single sender."""
    within = cost_slots[:, None] <= cost_slots[None]
    return _best(jnp.sum(jnp.where(within, gain[:, None], 0.0), axis=0), cost_slots, thrift)


def offers(
    gain: Float[Array, "rx tx *origin"], cost_slots: Float[Array, "rx tx"], thrift: float = 1.0
) -> Offers:
    """Return the best prefix of receivers, and origin, of each sender; no node hears itself."""
    cost = jnp.where(jnp.eye(len(cost_slots), dtype=bool), jnp.inf, cost_slots)
    if gain.ndim == 2:
        return Offers(*best_prefix(gain, cost, thrift), jnp.arange(len(gain), dtype=jnp.int32))
    by_origin = jnp.moveaxis(gain, 2, 0)
    return over_origins(*lax.map(lambda one: best_prefix(one, cost, thrift), by_origin))


def over_origins(
    value: Float[Array, "origin tx"],  # index of each message, (origin, tx)
    slots: Float[Array, "origin tx"],  # slots that it takes, (origin, tx)
) -> Offers:
    """Return the best origin of each sender; of equal ones the shortest message."""
    most = jnp.max(value, axis=0)
    shortest = jnp.min(jnp.where(value == most[None], slots, jnp.inf), axis=0)
    origin = jnp.argmax((value == most[None]) & (slots == shortest[None]), axis=0)
    return Offers(most, shortest, origin.astype(jnp.int32))


def pick(
    offered: Offers,  # the best message of each sender
    cost_slots: Float[Array, "rx tx"],
) -> Choice:
    """Return the sender of the largest index, and all who can hear it."""
    sender = jnp.argmax(offered.value).astype(jnp.int32)
    slots = offered.slots[sender]
    others = jnp.arange(len(cost_slots)) != sender
    receivers = others & (cost_slots[:, sender] <= slots)
    return Choice(offered.value[sender], sender, offered.origin[sender], receivers, slots)


def choose(
    ages: Int[Array, "rx origin"],
    cost_slots: Float[Array, "rx tx"],
    omega: Float[Array, "rx origin"],
    message: Message = "copy",
    thrift: float = 1.0,
) -> Choice:
    """Return who is to send now, to whom, and which origin, where everybody knows all ages.

    >>> import jax.numpy as jnp
    >>> ages = jnp.array([[0, 9, 4], [2, 0, 4], [2, 1, 0]])
    >>> cost = jnp.array([[1.0, 8.0, 2.0], [8.0, 1.0, 2.0], [1.0, 4.0, 1.0]])
    >>> found = choose(ages, cost, jnp.ones((3, 3)), "forward")
    >>> int(found.sender), int(found.origin), found.receivers.tolist(), float(found.value)
    (2, 1, [True, True, False], 40.0)
    """
    return pick(offers(gains(ages, omega, message), cost_slots, thrift), cost_slots)


def younger(
    held: Int[Array, "rx origin"],
    stamps: Int[Array, " origin"],
    omega: Float[Array, "rx origin"],
) -> Bool[Array, " rx"]:
    """Tell whose weighted sum of ages a sum with these stamps lowers, its own stamp left out."""
    steps = (stamps[None] - held).astype(omega.dtype)
    return jnp.sum(_apart(omega) * steps, axis=1) > 0


def powered(cost_slots: Array, thrift: float) -> Array:
    """Return what the gain of a message is divided by."""
    return cost_slots if thrift == 1 else cost_slots**thrift


def _apart(omega: Array) -> Array:
    """Return the weights without those of a node in itself."""
    return jnp.where(jnp.eye(len(omega), dtype=bool), 0.0, omega)


def _settled(mine: Array, theirs: Array, scale: Array | None = None) -> Array:
    """Return mine - theirs where it is above rounding, and 0 elsewhere."""
    gain = mine - theirs
    return jnp.where(gain > SETTLED * (mine if scale is None else scale), gain, 0.0)


def _sum_gains(x: Array, weight: Array) -> Array:
    """Return the gains of sums where omega_ij = a_i a_j: no product of matrices is needed.

    What i would hold of others is the sum of all that k holds, less what it holds of i.
    """

    def less(part: Array) -> Array:
        total = part @ weight
        own = weight * jnp.diagonal(part)
        without = weight[:, None] * part.T  # (rx, tx): what k holds of i
        mine = (weight * (total - own))[:, None]
        theirs = weight[:, None] * (total[None] - without)
        return _settled(mine, theirs, jnp.maximum(mine, weight[:, None] * total[None]))

    # one after the other: XLA would split a longer kernel between threads, which costs more
    ages, squares = lax.map(less, jnp.stack([x, x * x]))
    return jnp.where(ages > 0, squares, 0.0)


def _best(total: Array, cost: Array, thrift: float) -> tuple[Array, Array]:
    """Return the largest total / cost^thrift over the first axis, and the least such cost."""
    ratio = jnp.where(jnp.isfinite(cost), total / powered(cost, thrift), 0.0)
    most = jnp.max(ratio, axis=0)
    return most, jnp.min(jnp.where(ratio == most[None], cost, jnp.inf), axis=0)
