"""FedAvg: local steps from the server's model, then a weighted average of all.

    w_i <- w^k,   then E times   w_i <- w_i - eta grad F_i(w_i)
    w^{k+1} = sum_i alpha_i w_i                                                   [1, Algorithm 1]

With E = 1 this is gradient descent on the union of the data. A round takes E slots of computing and
the time of one upload and one download, during which the nodes wait.

With `mu` a node descends F_i(w_i) + (mu / 2) ||w_i - w^k||^2: FedProx [2]. With `participation` P
below 1 the server draws ceil(P I) nodes after each round, sends its model to them alone, and
averages what they upload; the first round takes all. `server` is what it makes of the mean
(`pieces/server_steps.py`).

With `through` "devices" there is no server: when all have taken their steps, the sum of all models
by data share goes round between the devices, as an all-reduce, and everyone waits until it has it
(`pieces/between_devices.py`). The models are those of the form with a server; only the time of a
round differs, and how it follows from the network.

Differs from [1]: full participation by default, and full-batch gradients unless the problem has
mini-batches; alpha_i are the data shares over all nodes. An upload that is not finite is dropped
and the other shares are renormalised. Xie et al. (2024) plot it as "FedAv" and cite something else
(FedFomo); the method meant is this one.

[1] B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Aguera y Arcas. Communication-Efficient Learning
    of Deep Networks from Decentralized Data. AISTATS 2017. arXiv:1602.05629
[2] T. Li, A. K. Sahu, M. Zaheer, M. Sanjabi, A. Talwalkar, V. Smith. Federated Optimization in
    Heterogeneous Networks. MLSys 2020. arXiv:1812.06127
"""

from math import ceil
from typing import Literal, NamedTuple

from folkman.algorithm.base import Algorithm, Assumption, Declares, Inbox, Place, State
from folkman.algorithm.method import Number, method
from folkman.algorithm.pieces.between_devices import between_devices
from folkman.algorithm.pieces.local_optimizers import local_optimizer
from folkman.algorithm.pieces.rules import Rule, combine
from folkman.algorithm.pieces.server_side import received
from folkman.algorithm.pieces.server_steps import ServerRule, ServerStep
from folkman.algorithm.pieces.steps import Decay, step_size
from folkman.algorithm.travel import Server, Star
from folkman.arrays import Array, jax, jnp
from folkman.checks import require

__all__ = ["FedAvgServer", "FedAvgState", "fedavg"]

BIBTEX = r"""@inproceedings{fedavg,
  author = {McMahan, Brendan and Moore, Eider and Ramage, Daniel and Hampson, Seth and Ag{\"u}era y
    Arcas, Blaise},
  title = {Communication-Efficient Learning of Deep Networks from Decentralized Data},
  booktitle = {International Conference on Artificial Intelligence and Statistics (AISTATS)},
  year = {2017},
  eprint = {1602.05629},
  archiveprefix = {arXiv},
}"""


class FedAvgState(NamedTuple):
    """What a node remembers."""

    params: Array  # (d,) w_i
    anchor: Array  # (d,) w^k; (0,) without `mu`
    optimizer: State  # state of the local optimiser, fresh in each round
    steps: Array  # () local steps done in this round
    updates: Array  # () updates done in all


class FedAvgServer(NamedTuple):
    """What the server remembers."""

    params: Array  # (d,) w^k
    moments: Array  # (moment, d) of the server's step
    arrived: Array  # (node,) bool: uploads of this round
    chosen: Array  # (node,) bool: who takes part in this round
    fresh: Array  # () bool: is there a new model to send?
    rounds: Array  # () k


@method
def fedavg(
    step: Number = 0.1,
    local_steps: int = 1,
    optimizer: Literal["sgd", "momentum", "adam"] = "sgd",
    decay: Decay = Decay(),  # noqa: B008 - immutable
    rule: Rule = Rule(),  # noqa: B008 - immutable
    mu: float = 0.0,
    participation: float = 1.0,
    server: ServerRule = "sgd",
    server_step: float = 1.0,
    through: Literal["station", "devices"] = "station",
) -> Algorithm:
    """Build FedAvg with E = `local_steps`.

    The `optimizer` 'sgd' is the paper's; the others restart in every round. `mu` is FedProx's,
    `participation` the part of the nodes in a round, `server` and `server_step` the server's step;
    `through` says what carries the average.

    >>> fedavg(step=0.1, local_steps=5).travel.server is not None
    True
    """
    require(
        local_steps >= 1,
        f"local_steps must be at least 1, got {local_steps}; 1 is gradient descent",
    )
    require(mu >= 0, f"mu must be at least 0, got {mu}; 0 is FedAvg")
    require(
        0 < participation <= 1,
        f"participation is a part of the nodes, above 0 and at most 1, got {participation}",
    )
    serving = ServerStep(server, server_step)
    serving.check()
    rule.check()
    eta = step_size(step, decay)
    local = local_optimizer(optimizer)
    require(
        through in ("station", "devices"),
        f"through is 'station' or 'devices', got {through!r}",
    )
    if through == "devices":
        require(
            rule.rule == "mean" and participation == 1 and serving.plain,
            "through = 'devices' carries the plain sum of all models, and this FedAvg asks for "
            "more; leave out rule, participation, server and server_step, or take "
            "through = 'station'",
        )
        return between_devices("fedavg", eta, local, local_steps=local_steps, mu=mu)

    def init(params: Array, place: Place) -> FedAvgState:
        del place
        zero = jnp.zeros((), jnp.int32)
        anchor = params if mu else params[:0]
        return FedAvgState(params, anchor, local.init(params), steps=zero, updates=zero)

    def receive(state: FedAvgState, inbox: Inbox) -> FedAvgState:
        model = inbox.payload(0)  # the server is a node's only neighbour
        new = FedAvgState(
            params=model,
            anchor=model if mu else state.anchor,
            optimizer=local.init(model),
            steps=jnp.zeros((), jnp.int32),
            updates=state.updates,
        )
        return jax.tree.map(lambda a, b: jnp.where(inbox.heard[0], a, b), new, state)

    def update(
        state: FedAvgState, inbox: Inbox, loss: Array, grad: Array, key: Array
    ) -> FedAvgState:
        del inbox, loss, key
        if mu:
            grad = grad + mu * (state.params - state.anchor)  # [2, eq. (2)]
        direction, memory = local.update(grad, state.optimizer, state.params)
        return FedAvgState(
            params=state.params - eta(state.updates, grad.dtype) * jnp.asarray(direction),
            anchor=state.anchor,
            optimizer=memory,
            steps=state.steps + 1,
            updates=state.updates + 1,
        )

    def server_init(params: Array, num_nodes: int) -> FedAvgServer:
        return FedAvgServer(
            params=params,
            moments=serving.first(params),
            arrived=jnp.zeros(num_nodes, bool),
            chosen=jnp.ones(num_nodes, bool),
            fresh=jnp.asarray(False),
            rounds=jnp.zeros((), jnp.int32),
        )

    def aggregate(state: FedAvgServer, inbox: Inbox, key: Array) -> FedAvgServer:
        nodes = len(inbox.heard)
        arrived = state.arrived | inbox.heard
        done = jnp.all(arrived | ~state.chosen)
        weights = inbox.weight * inbox.finite
        chosen = state.chosen
        if participation < 1:
            weights = weights * chosen
            drawn = jax.random.permutation(key, nodes) < ceil(participation * nodes)
            chosen = jnp.where(done, drawn, chosen)
        weights = weights / jnp.sum(weights)  # all shares 0: NaN, which stops the run
        mean = combine(rule, inbox, weights)
        params, moments = serving.take(state.params, mean, state.moments)
        return FedAvgServer(
            params=jnp.where(done, params, state.params),
            moments=jnp.where(done, moments, state.moments),
            arrived=arrived & ~done,
            chosen=chosen,
            fresh=done,
            rounds=state.rounds + done,
        )

    side = Server(
        init=server_init,
        receive=aggregate,
        offers=lambda state: state.fresh & state.chosen,
        message=lambda state: state.params,
        params=lambda state: state.params,
        rounds=lambda state: state.rounds,
    )
    return Algorithm(
        name="fedavg",
        init=init,
        point=lambda state, _: state.params,
        update=update,
        message=lambda state: state.params,
        params=lambda state: state.params,
        receive=receive,
        model=received,
        travel=Star(side, ready=lambda state: state.steps >= local_steps),
        declares=Declares(
            assumes=frozenset({Assumption.PRESENT, Assumption.STEADY}),
            exact=local_steps == 1 and rule.rule == "mean" and participation == 1 and serving.plain,
            draws=participation < 1,
        ),
    )
