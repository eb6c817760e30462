"""EDM: exact diffusion with momentum, in lock-step.

    m_i+   = beta m_i + (1 - beta) grad F_i(x_i)                                    [1, Algorithm 1]
    psi_i+ = x_i - eta m_i+
    phi_i  = psi_i+ + x_i - psi_i
    x_i+   = sum_j A_ij phi_j,   A = (1 + W) / 2

with m_i(0) = 0 and psi_i(0) = x_i(0). With beta = 0 it is exact diffusion; a constant step ends at
the optimum however unlike the nodes' data are. A round takes one slot of computing and the time of
one broadcast of each node, S bits each; m_i stays at the node.

Differs from [1], of which the abstract alone was read: the recursion is as recalled, not verified.
A is that of exact diffusion here, with `weights` "whole" W itself; full-batch gradients unless the
problem has mini-batches.

[1] Y. Hu, X. Chen, et al. A Bias-Correction Decentralized Stochastic Gradient Algorithm with
    Momentum Acceleration. 2025. arXiv:2501.19082
"""

from typing import Literal

from folkman.algorithm.base import RECALLED, Algorithm, Declares
from folkman.algorithm.method import Number, method
from folkman.algorithm.pieces.bias_correction import bias_corrected
from folkman.algorithm.pieces.descent import Shrinking
from folkman.algorithm.pieces.steps import Decay, step_size
from folkman.algorithm.pieces.topology import Graph
from folkman.checks import require

__all__ = ["edm"]

BIBTEX = r"""@misc{edm,
  author = {Hu, Yuchen and Chen, Xi and Liu, Weidong and Mao, Xiaojun},
  title = {A Bias-Correction Decentralized Stochastic Gradient Algorithm with Momentum
    Acceleration},
  year = {2025},
  eprint = {2501.19082},
  archiveprefix = {arXiv},
}"""


@method
def edm(
    step: Number = 0.1,
    momentum: float = 0.9,  # beta, of the method's own momentum
    weights: Literal["lazy", "whole"] = "lazy",  # W itself, or the lazy (1 + W) / 2
    graph: Graph = Graph("ring"),  # noqa: B008 - immutable
    decay: Decay = Decay(),  # noqa: B008 - immutable
    shrinking: Shrinking = Shrinking(),  # noqa: B008 - immutable
) -> Algorithm:
    """Build exact diffusion with beta = `momentum`.

    >>> edm(momentum=0.5).name
    'edm'
    """
    require(
        0 <= momentum < 1,
        f"momentum must be at least 0 and below 1, got {momentum}; 0.9 is usual",
    )
    require(weights in ("lazy", "whole"), f"weights must be 'lazy' or 'whole', got {weights!r}")
    built = bias_corrected(
        "edm",
        step_size(step, decay),
        graph,
        lazy=weights == "lazy",
        momentum=momentum,
        declares=Declares(verified=RECALLED),
    )
    return shrinking.of(built)
