"""Random keys: (seed, stream, node, step) -> key, and nowhere else.

Every source of randomness has its own stream, so that two algorithms compared under one seed see
the same data split, the same first model and the same delays, whatever else they draw; and node 3
at its step 17 draws the same mini-batch in the simulator and on a device.
"""

from enum import IntEnum

from folkman.arithmetic import chosen
from folkman.arrays import Array, ArrayLike, jax, jnp

__all__ = ["Stream", "make_key", "make_keys", "node_key", "node_keys", "stream_keys", "tickets"]


class Stream(IntEnum):
    """What a key is for. Values are part of the reproducibility contract: never renumber."""

    DATA = 1  # synthetic samples
    PARTITION = 2  # who holds which sample
    MODEL = 3  # the common initial model
    DELAY = 4  # abstract delay laws
    BATCH = 5  # mini-batches
    ALGORITHM = 6  # an algorithm's own draws
    GEOMETRY = 7  # node positions
    INTERFERENCE = 8  # interferer positions
    FADING = 9  # small-scale fading
    ALLOCATION = 10  # random bandwidth shares
    START = 11  # an algorithm's own draws before its first slot
    SERVER = 12  # a server's own draws
    LOSS = 13  # messages that are lost
    FAULT = 14  # what faulty nodes send
    PACKING = 15  # how messages are rounded, and which entries are sent
    COMPUTE = 16  # slots that gradients take
    LOCAL_TEST = 17  # test sets of the nodes


def make_key(seed: ArrayLike, stream: Stream) -> Array:
    """Return the root key of `stream` under `seed`."""
    return jax.random.fold_in(jax.random.key(jnp.asarray(seed, jnp.uint32)), int(stream))


def make_keys(seed: ArrayLike, *streams: Stream) -> tuple[Array, ...]:
    """Return the root key of each stream, as `make_key` does."""
    return stream_keys(jax.random.key(jnp.asarray(seed, jnp.uint32)), *streams)


def stream_keys(key: Array, *streams: Stream) -> tuple[Array, ...]:
    """Return what `fold_in` makes of a key and each stream, in one draw: it compiles once."""
    found = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, jnp.asarray(streams, jnp.uint32))
    return tuple(found[place] for place in range(len(streams)))


def node_key(stream_key: Array, node: ArrayLike, step: ArrayLike) -> Array:
    """Return the key of one node at its own step: fold in the node, then the step."""
    return jax.random.fold_in(jax.random.fold_in(stream_key, node), step)


def node_keys(stream_key: Array, nodes: Array, steps: Array) -> Array:
    """Return the keys of many nodes, each at its own step."""
    return jax.vmap(node_key, in_axes=(None, 0, 0))(stream_key, nodes, steps)


def tickets(key: Array, numbers: Array) -> Array:
    """Return 32 random bits for each number under a key, which depend on that number alone."""

    def ticket(number: Array) -> Array:
        return jax.random.bits(jax.random.fold_in(key, number), dtype=jnp.uint32)

    # NumPy draws for all numbers at once; JAX's own draws take one number, and a batch by `vmap`
    return ticket(numbers) if chosen().name == "numpy" else jax.vmap(ticket)(numbers)
