"""Exact diffusion, or D2: diffusion whose bias is taken out, in lock-step.

    psi_i+ = x_i - eta grad F_i(x_i)                                      adapt     [1, Algorithm 1]
    phi_i  = psi_i+ + x_i - psi_i                                         correct
    x_i+   = sum_j A_ij phi_j,   A = (1 + W) / 2                          combine

with psi_i(0) = x_i(0), so that the first round is D-PSGD's. Without psi_i it is

    x+ = A (2 x - x' - eta (grad F(x) - grad F(x')))       x' of the round before   [2, eq. (1)]

A constant step ends at the optimum however unlike the nodes' data are. `weights` are "lazy", A as
above, or "whole": W itself, as in [2], which converges if no eigenvalue of W is below -1/3. On the
complete graph with whole weights it is FedAvg with equal weights. A round takes one slot of
computing and the time of one broadcast of each node, S bits each: half of what DSGT sends.

Differs from [1]: D_i = x_i - psi_i is kept in the place of psi_i, the same recursion: code of two
of the authors (github.com/Bluefog-Lib/bluefog, examples/pytorch_optimization.py) has the same
models with both weights, to 1e-10 in the tests; full-batch gradients unless the problem has
mini-batches. It needs a symmetric graph that stays.

[1] K. Yuan, B. Ying, X. Zhao, A. H. Sayed. Exact Diffusion for Distributed Optimization and
    Learning, Part I: Algorithm Development. IEEE Transactions on Signal Processing 67(3), 2019.
    arXiv:1702.05122
[2] H. Tang, X. Lian, M. Yan, C. Zhang, J. Liu. D2: Decentralized Training over Decentralized Data.
    ICML 2018. arXiv:1803.07068
"""

from typing import Literal

from folkman.algorithm.base import NUMBERS, Algorithm, Declares
from folkman.algorithm.method import Number, method
from folkman.algorithm.pieces.bias_correction import bias_corrected
from folkman.algorithm.pieces.descent import Descent
from folkman.algorithm.pieces.steps import Decay, step_size
from folkman.algorithm.pieces.topology import Graph
from folkman.checks import require

__all__ = ["exact_diffusion"]

BIBTEX = r"""@article{exact_diffusion,
  author = {Yuan, Kun and Ying, Bicheng and Zhao, Xiaochuan and Sayed, Ali H.},
  title = {Exact Diffusion for Distributed Optimization and Learning, Part {I}: Algorithm
    Development},
  journal = {IEEE Transactions on Signal Processing},
  volume = {67},
  number = {3},
  year = {2019},
  eprint = {1702.05122},
  archiveprefix = {arXiv},
}"""


@method
def exact_diffusion(
    step: Number = 0.1,
    weights: Literal["lazy", "whole"] = "lazy",  # W itself, or the lazy (1 + W) / 2
    graph: Graph = Graph("ring"),  # noqa: B008 - immutable
    decay: Decay = Decay(),  # noqa: B008 - immutable
    descent: Descent = Descent(),  # noqa: B008 - immutable
) -> Algorithm:
    """Build exact diffusion.

    >>> from folkman.arrays import jnp
    >>> mixing = exact_diffusion(topology="complete").travel.mixing
    >>> mixing.weights(jnp.ones((4, 4), bool))[0, 0].item()
    0.625
    """
    require(weights in ("lazy", "whole"), f"weights must be 'lazy' or 'whole', got {weights!r}")
    eta = step_size(step, decay)
    declares = Declares(verified=NUMBERS)
    lazy = weights == "lazy"
    return descent.of(bias_corrected("exact_diffusion", eta, graph, lazy=lazy, declares=declares))
