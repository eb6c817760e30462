"""FedOpt: FedAvg whose server takes adaptive steps: FedAdam, FedYogi, FedAdagrad, FedAvgM.

    w_i <- w^k,   then E times   w_i <- w_i - eta grad F_i(w_i)
    D = sum_i alpha_i w_i - w^k                                                   [1, Algorithm 1]
    m <- beta_1 m + (1 - beta_1) D                                                [1, Algorithm 2]
    adam      v <- beta_2 v + (1 - beta_2) D^2
    yogi      v <- v - (1 - beta_2) D^2 sign(v - D^2)
    adagrad   v <- v + D^2
    w^{k+1} = w^k + eta_s m / (sqrt(v) + tau),   v(0) = tau^2

entry by entry. D stands for a gradient that points downhill. `server` "sgd" is w^k + eta_s D, and
"momentum" m <- beta_1 m + D, w^k + eta_s m. With "sgd" and eta_s = 1 this is FedAvg.

A round costs S bits from each node that takes part and one broadcast of S, as FedAvg's does.

Assumes that every node answers and keeps its state.

Differs from [1]: as recalled, not verified, are v(0) and that moments are not corrected for their
start. The authors' code (github.com/google-research/federated, optimization) begins with v(0) = 0,
and its Adam and Yogi multiply eta_s by sqrt(1 - beta_2^t) / (1 - beta_1^t) with t = k + 2; its
Adagrad has beta_1 = 0. Nothing else differs, to 1e-10 in the tests. beta_1 = 0.9, beta_2 = 0.99 and
tau = 0.001 are the defaults; eta_s = 0.01 is ours, since [1] tunes it. Nodes weigh by their data
shares, and a drawn set by the shares within it.

[1] S. Reddi, Z. Charles, M. Zaheer, Z. Garrett, K. Rush, J. Konecny, S. Kumar, H. B. McMahan.
    Adaptive Federated Optimization. ICLR 2021. arXiv:2003.00295
"""

from typing import NamedTuple

from folkman.algorithm.base import NUMBERS, Algorithm, Declares
from folkman.algorithm.method import Number, method
from folkman.algorithm.pieces.descent import Descent
from folkman.algorithm.pieces.local_optimizers import local_optimizer
from folkman.algorithm.pieces.local_work import local_work
from folkman.algorithm.pieces.sampling import EVERYONE, Sampling
from folkman.algorithm.pieces.server_rounds import Centre, Round, in_server_rounds
from folkman.algorithm.pieces.server_steps import FIRST, SECOND, TAU, ServerRule, ServerStep
from folkman.algorithm.pieces.steps import Decay, step_size
from folkman.arrays import Array

__all__ = ["FedOptServer", "fedopt"]

BIBTEX = r"""@inproceedings{fedopt,
  author = {Reddi, Sashank J. and Charles, Zachary and Zaheer, Manzil and Garrett, Zachary and Rush,
    Keith and Kone{\v{c}}n{\'y}, Jakub and Kumar, Sanjiv and McMahan, H. Brendan},
  title = {Adaptive Federated Optimization},
  booktitle = {International Conference on Learning Representations (ICLR)},
  year = {2021},
  eprint = {2003.00295},
  archiveprefix = {arXiv},
}"""


class FedOptServer(NamedTuple):
    """What the server remembers."""

    params: Array  # (d,) w^k
    moments: Array  # (moment, d) m and v, as many as the rule has


@method
def fedopt(
    step: Number = 0.1,
    server: ServerRule = "adam",
    server_step: float = 0.01,
    beta_1: float = FIRST,  # decay of the first moment
    beta_2: float = SECOND,  # decay of the second moment
    tau: float = TAU,  # added to the root of the second moment
    local_steps: int = 1,
    sampling: Sampling = EVERYONE,
    decay: Decay = Decay(),  # noqa: B008 - immutable
    descent: Descent = Descent(),  # noqa: B008 - immutable
) -> Algorithm:
    """Build FedOpt with eta_s = `server_step` and E = `local_steps`.

    >>> fedopt(step=0.1, server="yogi", local_steps=5).name
    'fedopt'
    """
    serving = ServerStep(server, server_step, beta_1, beta_2, tau)
    serving.check()

    def first(params: Array) -> FedOptServer:
        return FedOptServer(params, serving.first(params))

    def aggregate(memory: FedOptServer, done: Round) -> FedOptServer:
        mean = done.inbox.mix(done.weights)
        return FedOptServer(*serving.take(memory.params, mean, memory.moments))

    built = in_server_rounds(
        "fedopt",
        local_work(step_size(step, decay), local_optimizer("sgd")),
        Centre(first, aggregate, message=lambda memory: memory.params),
        local_steps=local_steps,
        sampling=sampling,
        declares=Declares(exact=local_steps == 1, verified=f"{NUMBERS}, but for its start"),
    )
    return descent.of(built)
