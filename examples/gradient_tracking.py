"""A lock-step method of one's own: gradient tracking, which is exact where nodes differ.

    x_i+ = sum_j W_ij x_j - eta y_i                                                     [1, DIGing]
    y_i+ = sum_j W_ij y_j + grad F_i(x_i+) - grad F_i(x_i)

The y_i sum to the sum of all gradients, so every node follows the gradient of the whole network.
D-PSGD follows its own, and stops away from the optimum where nodes have different data.

[1] A. Nedic, A. Olshevsky, W. Shi. Achieving Geometric Convergence for Distributed Optimization
    over Time-Varying Graphs. SIAM Journal on Optimization 27(4), 2017. arXiv:1607.03218
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

import folkman as fm
from folkman.algorithm.pieces.rounds import Gradient, in_rounds
from folkman.algorithm.pieces.topology import Graph


class Tracking(NamedTuple):
    """What a node remembers."""

    params: Array  # (d,) x_i
    track: Array  # (d,) y_i
    last: Array  # (d,) grad F_i at the x_i before


@fm.method
def gradient_tracking(step: fm.Number = 0.1, graph: Graph = Graph("ring")) -> fm.Algorithm:  # noqa: B008
    def first(start: Array, place: fm.Place) -> Tracking:
        del place
        zero = jnp.zeros_like(start)
        return Tracking(start, track=zero, last=zero)

    def follow(memory: Tracking, grad: Gradient) -> Tracking:
        track = memory.track + grad.value - memory.last
        return memory._replace(track=track, last=grad.value)

    def average(memory: Tracking, inbox: fm.Inbox) -> Tracking:
        own = jnp.concatenate([memory.params, memory.track])
        params, track = jnp.split(inbox.own_weight * own + inbox.mix(), 2)
        return memory._replace(params=params - step * memory.track, track=track)

    return in_rounds(
        "gradient_tracking",
        first=first,
        gradient=follow,
        end=average,
        message=lambda memory: jnp.concatenate([memory.params, memory.track]),
        params=lambda memory: memory.params,
        mixing=graph.mixing(),
        declares=fm.Declares(assumes=frozenset({fm.Assumption.PRESENT}), exact=True, evenly=True),
    )


if __name__ == "__main__":
    data = fm.load("quadratic", nodes=6, dim=10, heterogeneity=1.0)
    problem = fm.make_problem(data, "quadratic", 6)
    for algorithm in (gradient_tracking(step=0.05), fm.dpsgd(step=0.05)):
        run = fm.simulate(problem, fm.ideal(), algorithm, slots=1500)
        print(f"{run.label:<18} distance to the optimum {run.last('optimum_distance'):.1e}")
