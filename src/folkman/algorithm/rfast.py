"""R-FAST: gradient tracking on own beats, over directed and lossy links, exact where data differ.

    z_i <- z_i + sum_j (rho_j(newest held) - rho~_ij),   rho~_ij <- rho_j   [1, Algorithm 1]
    v_i = x_i - eta z_i
    x_i <- sum_j r_ij v_j(newest held)                        rows of r sum to 1
    z_i <- z_i + grad F_i(x_i) - grad F_i(x_i before)
    rho_i <- rho_i + c_i z_i,   z_i <- c_i z_i                c_i = 1 / (out_i + 1)

with z_i = rho_i = 0 and a gradient of 0 before the first one. A node never waits. It broadcasts v_i
and rho_i, the running sum of all that it has pushed to each node that hears it; a receiver adds
what is new in the sum since it last looked. Losing, repeating, delaying or overtaking messages is
therefore harmless:

    sum_i z_i + sum over edges (rho_j - rho~_ij) = sum_i grad F_i(x_i)

in every slot. So a constant step ends at the optimum. z_i is what a node holds of the sum of all
gradients; what is on its way is missing from it, so steps shorten by themselves where links are
slow. A message has 2 S bits.

Differs from [1], whose recursion is the one of [2] with losses: rows r_ij = 1 / (in_i + 1) and
columns c_i are equal parts on one graph, where [1] also allows two spanning trees with a common
root; a receiver keeps the sum of all rho~_ij in the place of each, the same number. What arrived is
added before the step and not after it, as in code of [2] (github.com/MidoAssran/maopy), which was
read. The recursion of [1] itself is as recalled, not verified. On a ring in one direction the
longest stable step falls fast with the number of nodes, whatever is lost
(`folkman.theory.tracking_limits`): eta L = 0.22 with 4, 0.025 with 8, 0.005 with 16. A run with a
longer one is warned of; the directed graph 'exponential' bears steps above 1 / L.
Running sums grow until the gradients vanish and lose digits in float32; a node that starts anew
would lose its own.

[1] Z. Zhu, Y. Tian, Y. Huang, J. Xu, S. He. R-FAST: Robust Fully-Asynchronous Stochastic Gradient
    Tracking over General Topology. IEEE Transactions on Signal and Information Processing over
    Networks 10, 2024. arXiv:2307.11617
[2] Y. Tian, Y. Sun, G. Scutari. Achieving Linear Convergence in Distributed Asynchronous
    Multi-agent Optimization. IEEE Transactions on Automatic Control 65(12), 2020. arXiv:1803.10359
"""

from typing import NamedTuple

from folkman.algorithm.base import RECALLED, Algorithm, Assumption, Declares, Inbox, Place
from folkman.algorithm.method import Number, method
from folkman.algorithm.pieces.descent import Descent
from folkman.algorithm.pieces.steps import Decay, step_size
from folkman.algorithm.pieces.topology import Graph, even_parts
from folkman.algorithm.travel import Broadcast
from folkman.arrays import Array, jnp
from folkman.checks import require

__all__ = ["PushedTracking", "rfast"]

BIBTEX = r"""@article{rfast,
  author = {Zhu, Zehan and Tian, Ye and Huang, Yan and Xu, Jinming and He, Shibo},
  title = {{R-FAST}: Robust Fully-Asynchronous Stochastic Gradient Tracking over General Topology},
  journal = {IEEE Transactions on Signal and Information Processing over Networks},
  volume = {10},
  year = {2024},
  eprint = {2307.11617},
  archiveprefix = {arXiv},
}"""


class PushedTracking(NamedTuple):
    """What a node remembers."""

    moved: Array  # (d,) v_i
    params: Array  # (d,) x_i, where the gradient in work is taken
    begun: Array  # () bool: is one in work?
    tracked: Array  # (d,) z_i
    grad: Array  # (d,) the gradient before
    pushed: Array  # (d,) rho_i
    taken: Array  # (d,) sum_j rho~_ij
    updates: Array  # () gradients done


@method
def rfast(
    step: Number = 0.1,
    graph: Graph = Graph("ring"),  # noqa: B008 - immutable
    decay: Decay = Decay(),  # noqa: B008 - immutable
    descent: Descent = Descent(),  # noqa: B008 - immutable
) -> Algorithm:
    """Build R-FAST; the graph may be directed, and must stay.

    >>> rfast(topology="directed_ring").travel.mixing.weights(jnp.ones((4, 4), bool))[1, 0].item()
    0.5
    """
    eta = step_size(step, decay)
    graph.check()
    require(
        graph.pushes_evenly,
        "rfast pushes equal parts to neighbours that stay, got the topology "
        f"{graph.topology!r}; take a fixed one without weights",
    )

    def init(params: Array, place: Place) -> PushedTracking:
        del place
        none = jnp.zeros_like(params)
        return PushedTracking(
            moved=params,
            params=params,
            begun=jnp.asarray(False),
            tracked=none,
            grad=none,
            pushed=none,
            taken=none,
            updates=jnp.zeros((), jnp.int32),
        )

    def receive(state: PushedTracking, inbox: Inbox) -> PushedTracking:
        """Take what is new in the sums; note where the next gradient is taken."""
        dim = len(state.params)
        hears = (inbox.weight > 0).astype(state.params.dtype)
        total = inbox.mix(hears)[dim:]
        tracked = state.tracked + total - state.taken
        others, own = even_parts(inbox)
        moved = state.params - eta(state.updates, tracked.dtype) * tracked
        mixed = own * moved + inbox.mix(others)[:dim]
        return state._replace(
            moved=jnp.where(state.begun, state.moved, moved),
            params=jnp.where(state.begun, state.params, mixed),
            begun=jnp.asarray(True),
            tracked=tracked,
            taken=total,
        )

    def update(
        state: PushedTracking, inbox: Inbox, loss: Array, grad: Array, key: Array
    ) -> PushedTracking:
        del loss, key
        tracked = state.tracked + grad - state.grad
        pushed = state.pushed + inbox.own_weight * tracked
        out = jnp.round(1.0 / inbox.own_weight) - 1.0
        kept = tracked - out * (pushed - state.pushed)  # what was lost in rounding stays here
        return state._replace(
            begun=jnp.asarray(False),
            tracked=kept,
            grad=grad,
            pushed=pushed,
            updates=state.updates + 1,
        )

    built = Algorithm(
        name="rfast",
        init=init,
        point=lambda state, _: state.params,
        update=update,
        message=lambda state: jnp.concatenate([state.moved, state.pushed]),
        params=lambda state: state.params,
        receive=receive,
        model=lambda state, inbox: receive(state, inbox).params,
        travel=Broadcast(mixing=graph.pushing()),
        declares=Declares(
            assumes=frozenset({Assumption.PRESENT, Assumption.STEADY}),
            exact=True,
            exactly=True,
            evenly=True,
            verified=RECALLED,
        ),
    )
    return descent.of(built)
