"""Ringmaster ASGD: asynchronous gradient descent that drops gradients of more than R versions ago.

    node      g = grad F_i(x_a) at the model that it received last, of version a
    server    if k - a < R:   x <- x - eta g,   k <- k + 1         [1, Algorithm 4]
              and the node goes on from x in either case

With `stops` the server does not wait for a gradient that will be dropped: it sends x to every node
whose delay has reached R, and the node gives up what it does [1, Algorithm 5]. With an R that no
delay reaches this is asynchronous SGD, and FedBuff with K = 1, exponent 0 and one local step.

For noisy gradients of variance sigma^2 on alike data, R = max(1, ceil(sigma^2 / eps)) reaches
||grad F||^2 <= eps in the least time that any method can, up to a constant, however unlike the
nodes' speeds are [1, Theorem 4.2]. Where data differ it leans to the data of fast nodes; take
Ringleader then.

A gradient costs S bits up and S down, and in each direction the version of the model. A stop costs
one more S down.

Assumes nothing of the network.

Differs from [1]: R is the number of nodes by default. Messages take time, where [1] counts
computing alone; a delay has both. Gradients that arrive in one slot are taken by node number, and
all answers of a slot carry its last model. A node sends eta g. All nodes weigh alike: engines hand
node i the loss I alpha_i F_i. The public code of Ringmaster LMO, a method built on this one
(github.com/vectozavr/ringmaster-lmo), has the form with stops: while no two gradients come in one
slot its models are those here, to 1e-10 in the tests.

[1] A. Maranjyan, A. Tyurin, P. Richtarik. Ringmaster ASGD: The First Asynchronous SGD with Optimal
    Time Complexity. ICML 2025. arXiv:2501.16168
"""

from typing import NamedTuple

from folkman.algorithm.base import Algorithm, Declares, Inbox
from folkman.algorithm.method import Number, method
from folkman.algorithm.pieces.descent import Descent
from folkman.algorithm.pieces.sampling import EVERYONE, Sampling
from folkman.algorithm.pieces.server_side import around_server, versions
from folkman.algorithm.pieces.steps import Decay, step_size
from folkman.arrays import Array, jax, jnp
from folkman.checks import require

__all__ = ["RingmasterServer", "ringmaster"]

BIBTEX = r"""@inproceedings{ringmaster,
  author = {Maranjyan, Artavazd and Tyurin, Alexander and Richt{\'a}rik, Peter},
  title = {Ringmaster {ASGD}: The First Asynchronous {SGD} with Optimal Time Complexity},
  booktitle = {International Conference on Machine Learning (ICML)},
  year = {2025},
  eprint = {2501.16168},
  archiveprefix = {arXiv},
}"""


class RingmasterServer(NamedTuple):
    """What the server remembers."""

    params: Array  # (d,) x
    rounds: Array  # () k
    sent: Array  # (node,) the version that each node was sent last
    answers: Array  # (node,) bool: who is to be sent x


@method
def ringmaster(
    step: Number = 0.1,
    max_delay: int | None = None,  # versions behind which a gradient is dropped, R; None: I
    stops: bool = False,  # whether the server ends work that will be dropped
    decay: Decay = Decay(),  # noqa: B008 - immutable
    sampling: Sampling = EVERYONE,
    descent: Descent = Descent(),  # noqa: B008 - immutable
) -> Algorithm:
    """Build Ringmaster ASGD with R = `max_delay`; None is the number of nodes.

    >>> ringmaster(step=0.1, max_delay=8).name
    'ringmaster'
    """
    require(
        max_delay is None or max_delay >= 1,
        f"max_delay counts versions, at least 1, got {max_delay}; 1 takes only fresh gradients",
    )
    require(
        sampling.whole or not stops,
        "with stops the server sends to nodes that it did not draw; leave out stops or "
        "participation",
    )

    def server_init(params: Array, num_nodes: int) -> RingmasterServer:
        return RingmasterServer(
            params=params,
            rounds=jnp.zeros((), jnp.int32),
            sent=jnp.zeros(num_nodes, jnp.int32),
            answers=jnp.zeros(num_nodes, bool),
        )

    def limit(nodes: int) -> int:
        return nodes if max_delay is None else max_delay

    def in_turn(state: RingmasterServer, inbox: Inbox) -> tuple[Array, tuple[Array, Array]]:
        """Return the next k, and of each gradient whether it is taken and its delay k - a."""

        def take(k: Array, upload: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
            usable, began = upload
            taken = usable & (k - began < limit(len(inbox.heard)))
            return k + taken, (taken, k - began)

        uploads = (inbox.heard & inbox.finite, versions(inbox, state.params.shape[0]))
        return jax.lax.scan(take, state.rounds, uploads)

    def receive(state: RingmasterServer, inbox: Inbox, key: Array) -> RingmasterServer:
        del key
        dim = state.params.shape[0]
        rounds, (taken, _) = in_turn(state, inbox)
        answers = inbox.heard
        if stops:
            answers = answers | (rounds - state.sent >= limit(len(answers)))
        return RingmasterServer(
            params=state.params - inbox.mix(taken.astype(state.params.dtype))[:dim],
            rounds=rounds,
            sent=jnp.where(answers, rounds, state.sent),
            answers=answers,
        )

    built = around_server(
        "ringmaster",
        server_init,
        receive,
        step_size(step, decay),
        restarts=stops,
        sampling=sampling,
        late=lambda state, inbox: in_turn(state, inbox)[1][1],
        declares=Declares(
            differences=True,
            exact=max_delay is None,
            biased=max_delay is not None,  # towards those whose gradients are taken
            draws=True,  # gradients of one slot are taken by node number
            evenly=True,
            verified="code of Ringmaster LMO, as numbers",
        ),
    )
    return descent.of(built)
