"""SCAFFOLD: local steps that correct for what the own data pull to one side.

    y_i <- x,   then E times   y_i <- y_i - eta (grad F_i(y_i) - c_i + c)         [1, Algorithm 1]
    c_i^+ = c_i - c + (x - y_i) / (E eta)                                         [1, option II]
    x <- x + eta_s mean_{i in S} (y_i - x),   c <- mean_i c_i                     over all nodes

The control variate c_i is the mean of the gradients that node i took in its last round, and c the
mean of all c_i. So c - c_i replaces the pull of the own data by that of all. At the optimum c_i is
grad F_i, c is 0, and no step moves: the method is exact where nodes differ, with a constant step,
and with part of the nodes in a round too. With E = 1, eta_s = 1 and all nodes it is FedAvg.

A message is (y_i, c_i^+) up and (x, c) down: a round costs 2 S bits from each node that takes part
and one broadcast of 2 S.

Assumes that every node answers and keeps its state.

Differs from [1]: a node uploads y_i and c_i^+ whole, where [1] sends the differences y_i - x and
c_i^+ - c_i. The server forms c anew from the newest c_i of all, which in exact numbers is [1]'s c +
(1 / I) sum_{i in S} (c_i^+ - c_i); so neither rounding nor loss adds up in c. Nodes weigh alike:
engines hand node i the loss I alpha_i F_i. With a step that falls, E eta is the sum of the steps
that were taken. The authors' own code was not at hand. That of FedDyn's authors
(github.com/alpemreacar/FedDyn, utils_methods.py) has the same models for nodes of equal size, to
1e-10 in the tests. For others it divides c by I alpha_i in a node's steps and not where c_i is
renewed; this is the only difference.

[1] S. P. Karimireddy, S. Kale, M. Mohri, S. J. Reddi, S. U. Stich, A. T. Suresh. SCAFFOLD:
    Stochastic Controlled Averaging for Federated Learning. ICML 2020. arXiv:1910.06378
"""

from typing import NamedTuple

from folkman.algorithm.base import Algorithm, Declares
from folkman.algorithm.method import Number, method
from folkman.algorithm.pieces.descent import Descent
from folkman.algorithm.pieces.sampling import EVERYONE, Sampling
from folkman.algorithm.pieces.server_rounds import Centre, Half, Round, in_server_rounds
from folkman.algorithm.pieces.steps import Decay, step_size
from folkman.arrays import Array, jnp
from folkman.checks import require

__all__ = ["ScaffoldNode", "ScaffoldServer", "scaffold"]

BIBTEX = r"""@inproceedings{scaffold,
  author = {Karimireddy, Sai Praneeth and Kale, Satyen and Mohri, Mehryar and Reddi, Sashank J. and
    Stich, Sebastian U. and Suresh, Ananda Theertha},
  title = {{SCAFFOLD}: Stochastic Controlled Averaging for Federated Learning},
  booktitle = {International Conference on Machine Learning (ICML)},
  year = {2020},
  eprint = {1910.06378},
  archiveprefix = {arXiv},
}"""


class ScaffoldNode(NamedTuple):
    """What a node remembers."""

    params: Array  # (d,) y_i
    control: Array  # (d,) c_i, of the round before
    common: Array  # (d,) c
    total: Array  # (d,) sum of eta times the gradients of this round, as they came
    steps: Array  # () sum of the steps eta of this round


class ScaffoldServer(NamedTuple):
    """What the server remembers."""

    params: Array  # (d,) x
    control: Array  # (d,) c


@method
def scaffold(
    step: Number = 0.1,
    local_steps: int = 1,
    server_step: float = 1.0,  # eta_g, step of the server along the mean difference
    sampling: Sampling = EVERYONE,
    decay: Decay = Decay(),  # noqa: B008 - immutable
    descent: Descent = Descent(),  # noqa: B008 - immutable
) -> Algorithm:
    """Build SCAFFOLD with E = `local_steps` and eta_s = `server_step`.

    >>> scaffold(step=0.1, local_steps=5).declares.exact
    True
    """
    eta = step_size(step, decay)
    require(
        server_step > 0,
        f"server_step must be above 0, got {server_step}; 1 takes the mean as it is",
    )

    def first(params: Array) -> ScaffoldNode:
        zero = jnp.zeros_like(params)
        return ScaffoldNode(params, zero, zero, zero, jnp.zeros((), params.dtype))

    def begin(memory: ScaffoldNode, message: Array) -> ScaffoldNode:
        dim = memory.params.shape[0]
        begun = first(message[:dim])
        return begun._replace(control=renewed(memory), common=message[dim:])

    def descend(memory: ScaffoldNode, grad: Array, updates: Array) -> ScaffoldNode:
        eta_t = eta(updates, grad.dtype)
        return memory._replace(
            params=memory.params - eta_t * (grad - memory.control + memory.common),
            total=memory.total + eta_t * grad,
            steps=memory.steps + eta_t,
        )

    def renewed(memory: ScaffoldNode) -> Array:
        """Return c_i^+: c_i - c + (x - y_i) / (E eta) is the mean gradient of the round."""
        took = memory.steps > 0  # with a step of 0 nothing was learnt
        mean = memory.total / jnp.where(took, memory.steps, 1.0)
        return jnp.where(took, mean, memory.control)

    def upload(memory: ScaffoldNode) -> Array:
        return jnp.concatenate([memory.params, renewed(memory)])

    def server_first(params: Array) -> ScaffoldServer:
        return ScaffoldServer(params, jnp.zeros_like(params))

    def aggregate(memory: ScaffoldServer, done: Round) -> ScaffoldServer:
        dim = memory.params.shape[0]
        mean = done.inbox.mix(done.weights)[:dim]
        # zeros of a node that was never heard are its first c_i
        common = done.inbox.mix(done.shares)[dim:]
        if server_step != 1:
            mean = memory.params + server_step * (mean - memory.params)
        return ScaffoldServer(mean, common)

    built = in_server_rounds(
        "scaffold",
        Half(first, begin, descend, upload),
        Centre(
            server_first,
            aggregate,
            message=lambda memory: jnp.concatenate([memory.params, memory.control]),
        ),
        local_steps=local_steps,
        sampling=sampling,
        declares=Declares(exact=True, evenly=True, verified="code of FedDyn's authors, as numbers"),
    )
    return descent.of(built)
