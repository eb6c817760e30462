"""Error feedback: what a packing left out is remembered by the sender and sent later.

Where receivers add messages up (differences, in rounds and around a server) the memory e is what
has not been sent yet [1, Alg. 1]:

    sent = C(m + e),    e <- m + e - sent

Where a message replaces the one before (a model, a running sum) both sides keep h, what the others
know of the sender, and only the change travels [2, 3]:

    h <- h + C(m - h),  the receiver holds h

Such messages build on the one before, so every one must arrive, at every receiver and in order.
The memory has the first d entries of a message; what follows them travels as it is.

[1] Karimireddy, Rebjock, Stich, Jaggi. Error Feedback Fixes SignSGD and other Gradient Compression
    Schemes. ICML 2019. arXiv:1901.09847
[2] Koloskova, Stich, Jaggi. Decentralized Stochastic Optimization and Gossip Algorithms with
    Compressed Communication (CHOCO-SGD). ICML 2019. arXiv:1902.00340
[3] Richtarik, Sokolov, Fatkhullin. EF21: A New, Simpler, Theoretically Better, and Practically
    Faster Error Feedback. NeurIPS 2021. arXiv:2106.05203
"""

from folkman.arrays import Array, Float, PRNGKeyArray, jax, jnp
from folkman.packing.packing import Packing, pack

__all__ = ["first_memory", "send"]


def first_memory(first: Float[Array, "... message"], dim: int, *, adds: bool) -> Array:
    """Return the memory before anything was sent; `first` are messages that everyone knows."""
    known = first[..., :dim]
    return jnp.zeros_like(known) if adds else known


def send(
    packing: Packing,
    memory: Float[Array, " d"],
    message: Float[Array, " message"],
    key: PRNGKeyArray,
    *,
    adds: bool,
) -> tuple[Float[Array, " d"], Float[Array, " message"]]:
    """Return the memory after a message is sent, and the message as its receivers then hold it.

    `adds`: receivers add messages up. A message that is not finite leaves the memory alone.
    """
    dim = memory.shape[0]
    model, key = message[:dim], jax.random.fold_in(key, 0)
    if adds:
        wanted = model + memory
        seen = pack(packing, wanted, key)
        after = wanted - seen
    else:
        seen = memory + pack(packing, model - memory, key)
        after = seen
    after = jnp.where(jnp.all(jnp.isfinite(after)), after, memory)
    return after, jnp.concatenate([seen, message[dim:]])
