"""Asynchronous DGD: decentralised gradient descent on own beats, with steps that need no delay.

    atc   x_i <- sum_j W_ij y_j(newest held),   y_i <- x_i - eta grad F_i(x_i)    [1, eq. (5)]
    dgd   x_i <- sum_j W_ij x_j(newest held) - eta grad F_i(x_i)                  [1, eq. (3)]

A node never waits; it broadcasts y_i, or x_i, after every gradient, S bits. Both recursions have
the fixed points of their synchronous forms, whatever the delays. They converge to them with steps
that depend on the nodes' own smoothness alone: eta < 2 / L_i for atc (adapt, then combine), and
eta < 2 W_ii / L_i for dgd. Where messages take longer it is slower, and needs no smaller step.
Where data differ the fixed point is not the optimum: its distance shrinks with eta.

`form` dgd is SWIFT with s = 1; atc bears longer steps.

Differs from [1], of which the abstract alone was read: the recursions and the bounds of the steps
are as recalled, not verified. Full-batch gradients unless the problem has mini-batches; one step
for all nodes.

[1] X. Wu, C. Liu, S. Magnusson, M. Johansson. Asynchronous Distributed Optimization with Delay-free
    Parameters. 2023. arXiv:2312.06508
"""

from typing import Literal, NamedTuple

from folkman.algorithm.base import RECALLED, Algorithm, Declares, Inbox, Place
from folkman.algorithm.method import Number, method
from folkman.algorithm.pieces.descent import Descent
from folkman.algorithm.pieces.steps import Decay, step_size
from folkman.algorithm.pieces.topology import Graph
from folkman.algorithm.travel import Broadcast
from folkman.arrays import Array, jnp
from folkman.checks import require

__all__ = ["OwnBeatState", "async_dgd"]

BIBTEX = r"""@misc{async_dgd,
  author = {Wu, Xuyang and Liu, Changxin and Magnusson, Sindri and Johansson, Mikael},
  title = {Asynchronous Distributed Optimization with Delay-free Parameters},
  year = {2023},
  eprint = {2312.06508},
  archiveprefix = {arXiv},
}"""


class OwnBeatState(NamedTuple):
    """What a node remembers."""

    shared: Array  # (d,) what it broadcasts: y_i of atc, x_i of dgd
    params: Array  # (d,) x_i, where the gradient in work is taken
    begun: Array  # () bool: is one in work?
    updates: Array  # () gradients done


@method
def async_dgd(
    step: Number = 0.1,
    # atc: a node steps, then sends; dgd: it sends the model that it steps from
    form: Literal["atc", "dgd"] = "atc",
    graph: Graph = Graph("ring"),  # noqa: B008 - immutable
    decay: Decay = Decay(),  # noqa: B008 - immutable
    descent: Descent = Descent(),  # noqa: B008 - immutable
) -> Algorithm:
    """Build asynchronous DGD.

    >>> async_dgd(form="dgd").name
    'async_dgd'
    """
    eta = step_size(step, decay)
    require(form in ("atc", "dgd"), f"form must be 'atc' or 'dgd', got {form!r}")
    graph.check_fixed("async_dgd")

    def init(params: Array, place: Place) -> OwnBeatState:
        del place
        return OwnBeatState(params, params, jnp.asarray(False), jnp.zeros((), jnp.int32))

    def mixed(state: OwnBeatState, inbox: Inbox) -> Array:
        return inbox.own_weight * state.shared + inbox.mix()

    def receive(state: OwnBeatState, inbox: Inbox) -> OwnBeatState:
        """Note where the next gradient is taken: what comes while it is in work is not in it."""
        start = mixed(state, inbox) if form == "atc" else state.shared
        params = jnp.where(state.begun, state.params, start)
        return state._replace(params=params, begun=jnp.asarray(True))

    def update(
        state: OwnBeatState, inbox: Inbox, loss: Array, grad: Array, key: Array
    ) -> OwnBeatState:
        del loss, key
        start = state.params if form == "atc" else mixed(state, inbox)
        return OwnBeatState(
            shared=start - eta(state.updates, grad.dtype) * grad,
            params=state.params,
            begun=jnp.asarray(False),
            updates=state.updates + 1,
        )

    built = Algorithm(
        name="async_dgd",
        init=init,
        point=lambda state, _: state.params,
        update=update,
        message=lambda state: state.shared,
        params=lambda state: state.shared,
        receive=receive,
        model=mixed,
        travel=Broadcast(mixing=graph.mixing()),
        declares=Declares(evenly=True, verified=RECALLED),
    )
    return descent.of(built)
