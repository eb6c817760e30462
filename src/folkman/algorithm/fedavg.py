"""FedAvg: local steps from the server's model, then a weighted average of all.

    w_i <- w^k,   then E times   w_i <- w_i - eta grad F_i(w_i)
    w^{k+1} = sum_i alpha_i w_i                                                   [1, Algorithm 1]

With E = 1 this is gradient descent on the union of the data. A round takes E slots of computing and
the time of one upload and one download, during which the nodes wait.

With `mu` a node descends F_i(w_i) + (mu / 2) ||w_i - w^k||^2: FedProx [2]. With `participation` P
below 1 the server draws ceil(P I) nodes after each round, sends its model to them alone, and
averages what they upload; the first round takes all (`pieces/sampling.py`). `server` is what it
makes of the mean (`pieces/server_steps.py`; `fedopt` has its constants as options).

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

from typing import Literal, NamedTuple

from folkman.algorithm.base import Algorithm, Declares
from folkman.algorithm.method import Number, method
from folkman.algorithm.pieces.between_devices import between_devices
from folkman.algorithm.pieces.descent import Shrinking
from folkman.algorithm.pieces.local_optimizers import local_optimizer
from folkman.algorithm.pieces.local_work import local_work
from folkman.algorithm.pieces.rules import Rule, combine
from folkman.algorithm.pieces.sampling import EVERYONE, Sampling
from folkman.algorithm.pieces.server_rounds import Centre, Round, in_server_rounds
from folkman.algorithm.pieces.server_steps import ServerRule, ServerStep
from folkman.algorithm.pieces.steps import Decay, step_size
from folkman.arrays import Array
from folkman.checks import require

__all__ = ["FedAvgServer", "fedavg"]

BIBTEX = r"""@inproceedings{fedavg,
  author = {McMahan, Brendan and Moore, Eider and Ramage, Daniel and Hampson, Seth and Ag{\"u}era y
    Arcas, Blaise},
  title = {Communication-Efficient Learning of Deep Networks from Decentralized Data},
  booktitle = {International Conference on Artificial Intelligence and Statistics (AISTATS)},
  year = {2017},
  eprint = {1602.05629},
  archiveprefix = {arXiv},
}"""


class FedAvgServer(NamedTuple):
    """What the server remembers."""

    params: Array  # (d,) w^k
    moments: Array  # (moment, d) moments of the server's step


@method
def fedavg(
    step: Number = 0.1,
    local_steps: int = 1,
    # optimiser of local steps; it begins anew in every round
    optimizer: Literal["sgd", "momentum", "adam"] = "sgd",
    decay: Decay = Decay(),  # noqa: B008 - immutable
    rule: Rule = Rule(),  # noqa: B008 - immutable
    mu: float = 0.0,
    sampling: Sampling = EVERYONE,
    server: ServerRule = "sgd",
    server_step: float = 1.0,
    # whether a station averages, or the devices by an all-reduce
    through: Literal["station", "devices"] = "station",
    shrinking: Shrinking = Shrinking(),  # noqa: B008 - immutable
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
    sampling.check()
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
            rule.rule == "mean" and sampling.whole and serving.plain,
            "through = 'devices' carries the plain sum of all models, and this FedAvg asks for "
            "more; leave out rule, participation, server and server_step, or take "
            "through = 'station'",
        )
        return shrinking.of(between_devices("fedavg", eta, local, local_steps=local_steps, mu=mu))

    def first(params: Array) -> FedAvgServer:
        return FedAvgServer(params, serving.first(params))

    def aggregate(memory: FedAvgServer, done: Round) -> FedAvgServer:
        mean = combine(rule, done.inbox, done.weights)
        return FedAvgServer(*serving.take(memory.params, mean, memory.moments))

    plain = rule.rule == "mean" and serving.plain
    built = in_server_rounds(
        "fedavg",
        local_work(eta, local, mu),  # [2, eq. (2)]
        Centre(first, aggregate, message=lambda memory: memory.params),
        local_steps=local_steps,
        sampling=sampling,
        declares=Declares(exact=local_steps == 1 and plain),
    )
    return shrinking.of(built)
