"""FedBuff: asynchronous nodes, and a server that moves once its buffer holds K differences.

    node      x_i <- x_a,   then H times   x_i <- x_i - eta grad F_i(x_i)
              Delta_i = x_a - x_i                                                 [1, Algorithm 2]
    server    on the K-th Delta:   x <- x - (eta_g / K) sum_i s(tau_i) Delta_i    [1, Algorithm 1]
              s(tau) = (1 + tau)^-exponent,   tau = how often x has moved since x_a

A node is answered with the server's present x in the slot in which its upload arrives, whether x
has moved or not. A move costs K S bits up and K S down, and in each direction the version of the
model. With K = I, equal shares, no delay, H = 1 and eta_g = 1 this is FedAvg; with K = 1 and
exponent 0 it is asynchronous gradient descent.

Differs from [1]: recalled, not verified, are K = 10 and exponent 1/2; K is min(10, I/2 rounded up)
by default, all nodes work at once, and weigh alike: engines hand node i the loss I alpha_i F_i. The
sum is divided by K and not by the sum of the s. The authors' own code (FLSim) has other
normalisations and empties the buffer at the end; here what is left in it is not used. Uploads that
arrive in one slot enter by node number. One that is not finite takes its place with weight 0.

[1] J. Nguyen, K. Malik, H. Zhan, A. Yousefpour, M. Rabbat, M. Malek, D. Huba. Federated Learning
    with Buffered Asynchronous Aggregation. AISTATS 2022. arXiv:2106.06639
"""

from typing import NamedTuple

from folkman.algorithm.base import Algorithm, Declares, Inbox
from folkman.algorithm.method import Number, method
from folkman.algorithm.pieces.descent import Descent
from folkman.algorithm.pieces.sampling import EVERYONE, Sampling
from folkman.algorithm.pieces.server_side import around_server, check_number, half, versions
from folkman.algorithm.pieces.steps import Decay, step_size
from folkman.arrays import Array, jnp
from folkman.checks import require

__all__ = ["FedBuffServer", "fedbuff"]

BIBTEX = r"""@inproceedings{fedbuff,
  author = {Nguyen, John and Malik, Kshitiz and Zhan, Hongyuan and Yousefpour, Ashkan and Rabbat,
    Michael and Malek, Mani and Huba, Dzmitry},
  title = {Federated Learning with Buffered Asynchronous Aggregation},
  booktitle = {International Conference on Artificial Intelligence and Statistics (AISTATS)},
  year = {2022},
  eprint = {2106.06639},
  archiveprefix = {arXiv},
}"""


class FedBuffServer(NamedTuple):
    """What the server remembers."""

    params: Array  # (d,) x
    rounds: Array  # () moves so far
    buffer: Array  # (d,) sum of s(tau_i) Delta_i
    filled: Array  # () how many of them
    answers: Array  # (node,) bool: who has uploaded and is to be answered


@method
def fedbuff(
    step: Number = 0.1,
    # differences that move the server, K; None: half the nodes, at most 10
    buffer_size: int | None = None,
    server_step: float = 1.0,
    exponent: float = 0.5,  # power by which a difference counts less with its age
    local_steps: int = 1,
    decay: Decay = Decay(),  # noqa: B008 - immutable
    sampling: Sampling = EVERYONE,
    descent: Descent = Descent(),  # noqa: B008 - immutable
) -> Algorithm:
    """Build FedBuff with K = `buffer_size`, eta_g = `server_step` and H = `local_steps`.

    >>> fedbuff(step=0.1, buffer_size=4).name
    'fedbuff'
    """
    eta = step_size(step, decay)
    check_number("buffer_size", buffer_size)
    require(
        server_step >= 0,
        f"server_step must not be negative, got {server_step}; 1 applies the mean difference",
    )
    require(
        exponent >= 0,
        f"exponent must not be negative, got {exponent}; 0 takes old uploads as new ones",
    )

    def server_init(params: Array, num_nodes: int) -> FedBuffServer:
        zero = jnp.zeros((), jnp.int32)
        return FedBuffServer(
            params=params,
            rounds=zero,
            buffer=jnp.zeros_like(params),
            filled=zero,
            answers=jnp.zeros(num_nodes, bool),
        )

    def size_of(inbox: Inbox) -> int:
        return min(10, half(len(inbox.heard))) if buffer_size is None else buffer_size

    def moves_before(state: FedBuffServer, inbox: Inbox) -> Array:
        """Return the moves of this slot before each upload, by its place in the buffer from 0."""
        place = state.filled + jnp.cumsum(inbox.heard, dtype=jnp.int32) - 1
        return jnp.maximum(place, 0) // size_of(inbox)

    def staleness(state: FedBuffServer, inbox: Inbox) -> Array:
        """Return tau_i."""
        began = versions(inbox, state.params.shape[0])
        return jnp.maximum(state.rounds + moves_before(state, inbox) - began, 0)

    def receive(state: FedBuffServer, inbox: Inbox, key: Array) -> FedBuffServer:
        del key
        dim = state.params.shape[0]
        size = size_of(inbox)
        before = moves_before(state, inbox)
        filled = state.filled + jnp.sum(inbox.heard, dtype=jnp.int32)
        moves = filled // size
        tau = staleness(state, inbox)
        s = (1.0 + tau.astype(state.params.dtype)) ** -exponent
        weights = (inbox.heard & inbox.finite) * s
        used = state.buffer + inbox.mix(jnp.where(before < moves, weights, 0.0))[:dim]
        left = inbox.mix(jnp.where(before >= moves, weights, 0.0))[:dim]
        moved = state.params - (server_step / size) * used  # [1, Alg. 1]
        return FedBuffServer(
            params=jnp.where(moves > 0, moved, state.params),
            rounds=state.rounds + moves,
            buffer=jnp.where(moves > 0, left, state.buffer + left),
            filled=filled - moves * size,
            answers=inbox.heard,
        )

    built = around_server(
        "fedbuff",
        server_init,
        receive,
        eta,
        local_steps=local_steps,
        sampling=sampling,
        late=staleness,
        declares=Declares(differences=True, exact=local_steps == 1, evenly=True),
    )
    return descent.of(built)
