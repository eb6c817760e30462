"""FedProx: FedAvg whose local steps are held to the server's model.

    w_i <- w^k,   then E times   w_i <- w_i - eta (grad F_i(w_i) + mu (w_i - w^k))   [1, eq. (2)]
    w^{k+1} = sum_i alpha_i w_i                                                   [1, Algorithm 2]

A node descends h_i(w) = F_i(w) + (mu / 2) ||w - w^k||^2. With mu = 0 this is FedAvg, to the bit; so
`fedavg(mu=...)` is this method too. With E = 1 the term is 0 where the gradient is taken, and any
mu is gradient descent. Where nodes differ it stops beside the optimum: with exact local solves at
the w with sum_i alpha_i (A_i + mu)^-1 A_i (w - w_i*) = 0 for quadratics of curvature A_i and least
point w_i*. A large mu moves this point towards the optimum.

A round costs S bits from each node that takes part and one broadcast of S.

Assumes that every node answers and keeps its state.

Differs from [1]: all nodes take the same E steps, where [1] lets slow ones take fewer; alpha_i are
the data shares, where [1] draws nodes by their shares and takes the plain mean; mu is 0.1 by
default. The authors' code (github.com/litian96/FedProx, flearn) draws evenly and weighs by shares,
as is done here: where it drops nobody its models are those here, to 1e-10 in the tests.

[1] T. Li, A. K. Sahu, M. Zaheer, M. Sanjabi, A. Talwalkar, V. Smith. Federated Optimization in
    Heterogeneous Networks. MLSys 2020. arXiv:1812.06127
"""

from typing import NamedTuple

from folkman.algorithm.base import NUMBERS, Algorithm, Declares
from folkman.algorithm.method import Number, method
from folkman.algorithm.pieces.descent import Descent
from folkman.algorithm.pieces.local_optimizers import local_optimizer
from folkman.algorithm.pieces.local_work import local_work
from folkman.algorithm.pieces.sampling import EVERYONE, Sampling
from folkman.algorithm.pieces.server_rounds import Centre, Round, in_server_rounds
from folkman.algorithm.pieces.steps import Decay, step_size
from folkman.arrays import Array

__all__ = ["FedProxServer", "fedprox"]

BIBTEX = r"""@inproceedings{fedprox,
  author = {Li, Tian and Sahu, Anit Kumar and Zaheer, Manzil and Sanjabi, Maziar and Talwalkar,
    Ameet and Smith, Virginia},
  title = {Federated Optimization in Heterogeneous Networks},
  booktitle = {Conference on Machine Learning and Systems (MLSys)},
  year = {2020},
  eprint = {1812.06127},
  archiveprefix = {arXiv},
}"""


class FedProxServer(NamedTuple):
    """What the server remembers."""

    params: Array  # (d,) w^k


@method
def fedprox(
    step: Number = 0.1,
    mu: float = 0.1,
    local_steps: int = 1,
    sampling: Sampling = EVERYONE,
    decay: Decay = Decay(),  # noqa: B008 - immutable
    descent: Descent = Descent(),  # noqa: B008 - immutable
) -> Algorithm:
    """Build FedProx with E = `local_steps`.

    >>> fedprox(step=0.1, mu=0.5, local_steps=5).name
    'fedprox'
    """

    def mean(memory: FedProxServer, done: Round) -> FedProxServer:
        del memory
        return FedProxServer(done.inbox.mix(done.weights))

    built = in_server_rounds(
        "fedprox",
        local_work(step_size(step, decay), local_optimizer("sgd"), mu),
        Centre(first=FedProxServer, aggregate=mean, message=lambda memory: memory.params),
        local_steps=local_steps,
        sampling=sampling,
        declares=Declares(exact=local_steps == 1, verified=NUMBERS),
    )
    return descent.of(built)
