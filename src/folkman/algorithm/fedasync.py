"""FedAsync: the server takes each model as it comes, the less the older its start.

    node      w_i <- x_tau,   then H times
              w_i <- w_i - eta (grad F_i(w_i) + rho (w_i - x_tau))                [1, Algorithm 1]
    server    x <- (1 - a_t) x + a_t w_i,   a_t = mixing s(t - tau)               [1, Algorithm 1]

with t the number of updates so far and s by `staleness`, s(0) = 1:               [1, Section 5.2]

    constant      s(u) = 1
    polynomial    s(u) = (u + 1)^-slope (default)
    hinge         s(u) = 1 for u <= hinge, else 1 / (slope (u - hinge) + 1)

Nobody waits for anybody: a node is answered in the slot in which its upload arrives. An update
costs S bits up and S down, and in each direction the version of the model. With one node, mixing 1
and rho 0 this is gradient descent.

Differs from [1]: recalled, not verified, are the default mixing 0.6, slope 0.5 (10 for the hinge),
hinge 4 and rho 0.005. Uploads that arrive in one slot are taken one after the other by node number,
each with its own t, and all are answered with the last model. An upload older than `max_staleness`,
or not finite, is dropped and its node answered. [1] ignores how much data a node has; here a node
descends I alpha_i F_i, or with `weighted` F_i while a_t is multiplied by I alpha_i (at most 1).

[1] C. Xie, S. Koyejo, I. Gupta. Asynchronous Federated Optimization. OPT 2020. arXiv:1903.03934
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

from folkman.algorithm.base import Algorithm, Declares, Inbox
from folkman.algorithm.method import Number, method
from folkman.algorithm.pieces.descent import Descent
from folkman.algorithm.pieces.sampling import EVERYONE, Sampling
from folkman.algorithm.pieces.server_side import around_server, versions
from folkman.algorithm.pieces.steps import Decay, step_size
from folkman.arrays import Array, jax, jnp
from folkman.checks import require, within

__all__ = ["FedAsyncServer", "Staleness", "fedasync", "staleness_factor"]

BIBTEX = r"""@misc{fedasync,
  author = {Xie, Cong and Koyejo, Sanmi and Gupta, Indranil},
  title = {Asynchronous Federated Optimization},
  year = {2019},
  eprint = {1903.03934},
  archiveprefix = {arXiv},
}"""

Staleness = Literal["constant", "polynomial", "hinge"]


class FedAsyncServer(NamedTuple):
    """What the server remembers."""

    params: Array  # (d,) x
    rounds: Array  # () moves of the server so far, t
    answers: Array  # (node,) bool: who has uploaded and is to be answered


def staleness_factor(
    kind: Staleness,  # how the factor falls with age
    slope: float,  # how fast it falls
    hinge: Number,  # age until which it does not fall
) -> Callable[[Array], Array]:
    """Return s(u)."""
    if kind == "constant":
        return jnp.ones_like
    if kind == "polynomial":
        return lambda u: (u + 1.0) ** -slope
    require(kind == "hinge", f"staleness must be 'constant', 'polynomial' or 'hinge', got {kind!r}")
    return lambda u: 1.0 / (slope * jnp.maximum(u - hinge, 0.0) + 1.0)


@method
def fedasync(
    step: Number = 0.1,
    mixing: Number = 0.6,  # share of the new model in the server's, before its age counts
    staleness: Staleness = "polynomial",  # how the share falls with age
    # how fast the share falls with age; None: 0.5, and 10 for the hinge
    slope: float | None = None,
    hinge: Number = 4.0,  # age until which the share does not fall
    rho: float = 0.005,  # weight of the pull of local steps towards the server's model
    local_steps: int = 1,
    max_staleness: int = 16,  # versions behind which an upload is dropped
    weighted: bool = False,  # whether the share follows the node's data
    decay: Decay = Decay(),  # noqa: B008 - immutable
    sampling: Sampling = EVERYONE,
    descent: Descent = Descent(),  # noqa: B008 - immutable
) -> Algorithm:
    """Build FedAsync with H = `local_steps`; `slope` None is 0.5, and 10 for the hinge.

    >>> fedasync(step=0.1, mixing=0.6, staleness="hinge").name
    'fedasync'
    """
    eta = step_size(step, decay)
    if slope is None:
        slope = 10.0 if staleness == "hinge" else 0.5
    require(
        within(mixing, 0, 1),
        f"mixing is a share of the new model in [0, 1], got {mixing}; try 0.6",
    )
    require(
        min(slope, rho) >= 0 and within(hinge, 0),
        f"slope, hinge and rho must not be negative, got {slope}, {hinge} and {rho}",
    )
    require(
        max_staleness >= 0,
        f"max_staleness counts updates, at least 0, got {max_staleness}; try 16",
    )
    s = staleness_factor(staleness, slope, hinge)

    def server_init(params: Array, num_nodes: int) -> FedAsyncServer:
        return FedAsyncServer(
            params=params,
            rounds=jnp.zeros((), jnp.int32),
            answers=jnp.zeros(num_nodes, bool),
        )

    def in_turn(state: FedAsyncServer, inbox: Inbox) -> tuple[Array, Array, Array]:
        """Return the next t, and of each upload its a_t (0 if it is dropped) and t - tau."""
        dtype = state.params.dtype

        def take(t: Array, upload: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
            usable, began = upload
            taken = usable & (t - began <= max_staleness)
            a_t = mixing * s((t - began).astype(dtype))
            return t + taken, (jnp.where(taken, a_t, 0.0), t - began)

        uploads = (inbox.heard & inbox.finite, versions(inbox, state.params.shape[0]))
        rounds, (a, late) = jax.lax.scan(take, state.rounds, uploads)
        return rounds, a, late

    def receive(state: FedAsyncServer, inbox: Inbox, key: Array) -> FedAsyncServer:
        del key
        dim = state.params.shape[0]
        rounds, a, _ = in_turn(state, inbox)
        if weighted:
            a = jnp.minimum(a * len(a) * inbox.weight, 1.0)
        # stays[i]: what node i and those after it leave of the model before
        stays = jnp.cumprod((1.0 - a)[::-1])[::-1]
        taken = inbox.mix(a * jnp.append(stays[1:], 1.0))[:dim]
        return FedAsyncServer(
            params=stays[0] * state.params + taken,
            rounds=rounds,
            answers=inbox.heard,
        )

    built = around_server(
        "fedasync",
        server_init,
        receive,
        eta,
        local_steps=local_steps,
        sampling=sampling,
        proximal=rho,
        late=lambda state, inbox: in_turn(state, inbox)[2],
        declares=Declares(
            biased=True,  # towards whoever came last
            draws=True,  # uploads of one slot are taken by node number
            evenly=not weighted,
        ),
    )
    return descent.of(built)
