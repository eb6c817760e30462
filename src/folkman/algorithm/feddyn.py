"""FedDyn: a linear term for each node makes the optimum of all a rest point of each.

    theta_i <- theta,   then E times
    theta_i <- theta_i - eta (grad F_i(theta_i) - lambda_i + a (theta_i - theta))   [1, Algorithm 1]
    lambda_i <- lambda_i - a (theta_i - theta)
    h <- h - (a / I) sum_{i in S} (theta_i - theta)
    theta <- mean_{i in S} theta_i - h / a

A node descends F_i - <lambda_i, .> + (a / 2) ||. - theta||^2, and lambda_i follows grad F_i. The
server's h is the mean of all lambda_i, without anyone sending them. At the optimum lambda_i is
grad F_i and h is 0: the method is exact where nodes differ, with a constant step and with local
steps that solve nothing to the end.

A round costs S bits from each node that takes part and one broadcast of S: half of SCAFFOLD's.

Assumes that every node answers and keeps its state.

Differs from [1]: a local problem is worked on for E gradient steps, where the proof of [1] solves
it. Nodes weigh alike: engines hand node i the loss I alpha_i F_i. The authors' code
(github.com/alpemreacar/FedDyn, utils_methods.py) divides a by I alpha_i instead, which has the same
local least point: with their step times I alpha_i at node i its models are those here, to 1e-10 in
the tests. It keeps -lambda_i / a in the place of lambda_i. a is 0.1 by default, within the range
0.001 to 0.1 that is recalled from [1]. The sum of rounding errors stays in h: messages of few bits
do not suit this method.

[1] D. A. E. Acar, Y. Zhao, R. Matas Navarro, M. Mattina, P. N. Whatmough, V. Saligrama. Federated
    Learning Based on Dynamic Regularization. ICLR 2021. arXiv:2111.04263
"""

from typing import NamedTuple

from folkman.algorithm.base import NUMBERS, Algorithm, Declares
from folkman.algorithm.method import Number, method
from folkman.algorithm.pieces.descent import Descent
from folkman.algorithm.pieces.sampling import EVERYONE, Sampling
from folkman.algorithm.pieces.server_rounds import Centre, Half, Round, in_server_rounds
from folkman.algorithm.pieces.steps import Decay, step_size
from folkman.arrays import Array, jnp
from folkman.checks import require

__all__ = ["FedDynNode", "FedDynServer", "feddyn"]

BIBTEX = r"""@inproceedings{feddyn,
  author = {Acar, Durmus Alp Emre and Zhao, Yue and Matas Navarro, Ramon and Mattina, Matthew and
    Whatmough, Paul N. and Saligrama, Venkatesh},
  title = {Federated Learning Based on Dynamic Regularization},
  booktitle = {International Conference on Learning Representations (ICLR)},
  year = {2021},
  eprint = {2111.04263},
  archiveprefix = {arXiv},
}"""


class FedDynNode(NamedTuple):
    """What a node remembers."""

    params: Array  # (d,) theta_i
    anchor: Array  # (d,) theta
    dual: Array  # (d,) lambda_i, of the round before


class FedDynServer(NamedTuple):
    """What the server remembers."""

    params: Array  # (d,) theta
    dual: Array  # (d,) h


@method
def feddyn(
    step: Number = 0.1,
    alpha: float = 0.1,  # a, the weight of the pull towards the server's model
    local_steps: int = 1,
    sampling: Sampling = EVERYONE,
    decay: Decay = Decay(),  # noqa: B008 - immutable
    descent: Descent = Descent(),  # noqa: B008 - immutable
) -> Algorithm:
    """Build FedDyn with a = `alpha` and E = `local_steps`.

    >>> feddyn(step=0.1, alpha=0.1, local_steps=5).declares.exact
    True
    """
    eta = step_size(step, decay)
    require(alpha > 0, f"alpha must be above 0, got {alpha}; try 0.1")

    def first(params: Array) -> FedDynNode:
        return FedDynNode(params, anchor=params, dual=jnp.zeros_like(params))

    def begin(memory: FedDynNode, model: Array) -> FedDynNode:
        dual = memory.dual - alpha * (memory.params - memory.anchor)
        return FedDynNode(model, anchor=model, dual=dual)

    def descend(memory: FedDynNode, grad: Array, updates: Array) -> FedDynNode:
        held = alpha * (memory.params - memory.anchor)
        params = memory.params - eta(updates, grad.dtype) * (grad - memory.dual + held)
        return memory._replace(params=params)

    def server_first(params: Array) -> FedDynServer:
        return FedDynServer(params, jnp.zeros_like(params))

    def aggregate(memory: FedDynServer, done: Round) -> FedDynServer:
        mean = done.inbox.mix(done.weights)
        # done.taken is the part of the nodes that took part, |S| / I
        dual = memory.dual - alpha * done.taken * (mean - memory.params)
        return FedDynServer(mean - dual / alpha, dual)

    built = in_server_rounds(
        "feddyn",
        Half(first, begin, descend, upload=lambda memory: memory.params),
        Centre(server_first, aggregate, message=lambda memory: memory.params),
        local_steps=local_steps,
        sampling=sampling,
        declares=Declares(exact=True, evenly=True, verified=NUMBERS),
    )
    return descent.of(built)
