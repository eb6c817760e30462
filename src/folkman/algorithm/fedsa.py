"""FedSA: semi-asynchronous averaging; a round ends with the M-th upload, and the others go on.

    w_i     = w^{a_i} - eta_i grad F_i(w^{a_i})
    eta_i   = eta / (I f_i),   f_i = c_i / sum_j c_j,   in [eta/4, 4 eta]
    retain    w^{k+1} = (1 - sum_{M_k} alpha_i) w^k + sum_{M_k} alpha_i w_i   (default)
    mean      w^{k+1} = sum_{M_k} alpha_i w_i / sum_{M_k} alpha_i

M_k are the first M uploads by arrival, ties by node number; c_i counts how often node i was among
them, and f_i = 1/I before. They receive the new model. A node as old as the `bound`,
k - a_i = tau_0, must be in the next M_k: the round stays open until it has arrived and takes all
who came before ('wait'), or older uploads are dropped and answered ('discard'). A round costs M S
bits up, and as many down or one broadcast of S; a message also has its version and, with adaptive
rates, the server's has an entry for each node.

If nodes take T_i slots from model to upload, rounds of H slots close with
M(H) = sum_i 1 / ceil(T_i / H) uploads; `best_number` is the M of least
(I/M) H / -ln(1 - (M/I) mu eta).

Differs from [1]: only its abstract was at hand. All of this is recalled, not verified; the choice
of M is our own. Rounds that close in one slot follow each other, and their nodes all receive the
last model. NaN and inf have weight 0.

[1] Q. Ma, Y. Xu, H. Xu, Z. Jiang, L. Huang, H. Huang. FedSA: A Semi-Asynchronous Federated Learning
    Mechanism in Heterogeneous Edge Computing. IEEE JSAC 39(12), 2021.
    doi:10.1109/JSAC.2021.3118435
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from folkman.algorithm.base import Algorithm, Assumption, Declares, Inbox
from folkman.algorithm.method import Number, method
from folkman.algorithm.pieces.descent import Descent
from folkman.algorithm.pieces.sampling import EVERYONE, Sampling
from folkman.algorithm.pieces.server_side import around_server, check_number, half, versions
from folkman.algorithm.pieces.steps import step_size
from folkman.arrays import Array, jax, jnp
from folkman.checks import require

__all__ = ["FedSAServer", "best_number", "fedsa", "relative_rates"]

BIBTEX = r"""@article{fedsa,
  author = {Ma, Qianpiao and Xu, Yang and Xu, Hongli and Jiang, Zhida and Huang, Liusheng and Huang,
    He},
  title = {{FedSA}: A Semi-Asynchronous Federated Learning Mechanism in Heterogeneous Edge
    Computing},
  journal = {IEEE Journal on Selected Areas in Communications},
  volume = {39},
  number = {12},
  pages = {3654--3672},
  year = {2021},
  doi = {10.1109/JSAC.2021.3118435},
}"""

NO_BOUND = 2**30  # rounds


class FedSAServer(NamedTuple):
    """What the server remembers."""

    params: Array  # (d,) w^k
    rounds: Array  # () k
    anchor: Array  # (node,) a_i
    counts: Array  # (node,) c_i
    queue: Array  # (node,) slot in which the upload that waits arrived, -1 for none
    slot: Array  # () slots so far
    answers: Array  # (node,) bool: who is to receive the new model


def best_number(
    cycle_slots: Sequence[float],  # slots from model to upload of each node, T_i
    step: float,
    mu: float,  # strong convexity of the losses
) -> int:
    """Return the M that should finish first for mu-strongly convex losses.

    `cycle_slots` holds the T_i.
    """
    require(
        0 < mu * step < 1,
        f"mu times step must be between 0 and 1, got {mu * step}; lower the step",
    )
    cycle = np.asarray(cycle_slots, float)[:, None]
    slots = np.unique(cycle / np.arange(1, 11))  # H
    number = np.floor(np.sum(1 / np.ceil(cycle / slots - 1e-9), axis=0) + 1e-9)  # M(H)
    closes = number > 0
    number = number[closes]
    slots = slots[closes]
    cost = slots / number / -np.log1p(-number / len(cycle) * mu * step)
    return int(number[np.argmin(cost)])


def relative_rates(
    counts: Array,  # how often each node was in time, (node,)
    clip: float,  # largest factor
) -> Array:
    """Return eta_i / eta, (node,)."""
    rates = jnp.sum(counts) / (len(counts) * jnp.maximum(counts, 1))
    return jnp.where(counts > 0, jnp.clip(rates, 1.0 / clip, clip), 1.0)


@method
def fedsa(
    step: Number = 0.1,
    # uploads that end a round; None: half the nodes, rounded up
    M: int | None = None,  # noqa: N803 - the paper's name
    aggregation: Literal["retain", "mean"] = "retain",  # whether the model before keeps its share
    bound: int | None = None,  # rounds that a node may be behind; None: any number
    late: Literal["wait", "discard"] = "wait",  # what becomes of the upload of a node at the bound
    adaptive: bool = True,  # whether nodes that upload seldom take longer steps
    clip: float = 4.0,  # largest factor between a node's step and the mean one
    local_steps: int = 1,
    sampling: Sampling = EVERYONE,
    descent: Descent = Descent(),  # noqa: B008 - immutable
) -> Algorithm:
    """Build FedSA; `M` None is half the nodes, rounded up; `clip` bounds the relative rates.

    >>> fedsa(step=0.1, M=2, bound=3, late="discard").name
    'fedsa'
    """
    check_number("M", M)
    require(
        aggregation in ("retain", "mean"),
        f"aggregation must be 'retain' or 'mean', got {aggregation!r}",
    )
    require(late in ("wait", "discard"), f"late must be 'wait' or 'discard', got {late!r}")
    require(
        bound is None or bound >= 0,
        f"bound counts rounds, at least 0, got {bound}; leave it out for none",
    )
    require(clip >= 1, f"clip must be at least 1, got {clip}; 1 keeps all rates equal")
    eta = step_size(step)
    oldest = NO_BOUND if bound is None else bound
    waits = bound is not None and late == "wait"

    def server_init(params: Array, num_nodes: int) -> FedSAServer:
        check_number("M", M, num_nodes)
        zero = jnp.zeros((), jnp.int32)
        zeros = jnp.zeros(num_nodes, jnp.int32)
        return FedSAServer(
            params=params,
            rounds=zero,
            anchor=zeros,
            counts=zeros,
            queue=zeros - 1,
            slot=zero,
            answers=zeros > 0,
        )

    def members(state: FedSAServer, anchor: Array, order: Array, size: int) -> tuple[Array, ...]:
        """Return M_k (nobody while the round stays open), who is dropped, and whether it closes."""
        old = state.rounds - anchor
        arrived = state.queue >= 0
        dropped = arrived & (old > oldest) & (late == "discard")
        must = (old >= oldest) & ~state.answers & (late == "wait")
        waiting = arrived & ~dropped
        place = jnp.cumsum(waiting[order], dtype=jnp.int32)  # from 1, by arrival
        rank = jnp.zeros_like(state.queue).at[order].set(place)
        closes = (jnp.sum(waiting) >= size) & jnp.all(waiting | ~must)
        last = jnp.maximum(size, jnp.max(jnp.where(must, rank, 0)))
        return waiting & (rank <= last) & closes, dropped, closes

    def receive(state: FedSAServer, inbox: Inbox, key: Array) -> FedSAServer:
        del key
        dim = state.params.shape[0]
        size = M or half(len(inbox.heard))
        queue = jnp.where(inbox.heard, state.slot, state.queue)
        anchor = jnp.where(inbox.heard & inbox.finite, versions(inbox, dim), state.anchor)
        order = jnp.argsort(queue, stable=True)

        def close(
            _: Array, carry: tuple[Array, Array, FedSAServer]
        ) -> tuple[Array, Array, FedSAServer]:
            """Close a round if possible; the model is kept w^k + sum_i part_i w_i."""
            kept, part, s = carry
            chosen, dropped, closes = members(s, anchor, order, size)
            weights = jnp.where(chosen & inbox.finite, inbox.weight, 0.0)
            if aggregation == "mean":
                weights = weights / jnp.maximum(jnp.sum(weights), 1e-30)
            leaves = 1.0 - jnp.sum(weights)
            answered = chosen | dropped
            s = s._replace(
                rounds=s.rounds + closes,
                counts=s.counts + chosen,
                queue=jnp.where(answered, -1, s.queue),
                answers=s.answers | answered,
            )
            return leaves * kept, leaves * part + weights, s

        none = jnp.zeros_like(inbox.weight)
        begun = state._replace(queue=queue, answers=queue < -1)  # nobody is answered yet
        kept, part, new = jax.lax.fori_loop(
            0, len(queue) // size, close, (none[0] + 1.0, none, begun)
        )
        return new._replace(
            params=kept * state.params + inbox.mix(part)[:dim],
            anchor=jnp.where(new.answers, new.rounds, anchor),
            slot=state.slot + 1,
        )

    built = around_server(
        "fedsa",
        server_init,
        receive,
        eta,
        local_steps=local_steps,
        sampling=sampling,
        factors=(lambda state: relative_rates(state.counts, clip)) if adaptive else None,
        declares=Declares(
            assumes=frozenset({Assumption.PRESENT} if waits else ()),
            needs=lambda nodes: M or half(nodes),
            exact=local_steps == 1,
        ),
    )
    return descent.of(built)
