"""Ringleader ASGD: asynchronous descent in which every step uses the data of every node.

The server keeps a table: of each node i the mean of its gradients of this round, m_i.

    collect   a gradient of node i enters m_i; nobody moves until every node is in the table
    move      x <- x - eta (1/I) sum_i m_i, first for the node that completed the table, then for
              each other node once, when its next gradient has entered m_i
    buffer    while nodes are due, a gradient of one that has had its move enters the table of the
              next round; when none is due, that table becomes the table      [1, Algorithm 1]

A round has I moves. Each m_i counts alike, however many gradients it holds: a fast node lowers its
noise and does not outweigh the others. A gradient that is used is at most 2 I - 2 versions old. For
unlike data and noisy gradients the time is optimal, up to a constant and where the smoothness of
the mean and of the parts are alike [1]. At a rest point the mean gradient is 0: the method is exact
where nodes differ, and where their speeds do.

A gradient costs S bits up and S down, and in each direction the version of the model. The server
remembers 2 I models.

Assumes that every node answers in the end.

Differs from [1]: messages take time, where [1] counts computing alone. Gradients that arrive in one
slot are taken by node number, and all answers of a slot carry its last model. A node sends eta g.
All nodes weigh alike: engines hand node i the loss I alpha_i F_i. The rule is as recalled, not
verified: no code of its authors was at hand.

[1] A. Maranjyan, P. Richtarik. Ringleader ASGD: The First Asynchronous SGD with Optimal Time
    Complexity under Data Heterogeneity. ICLR 2026. arXiv:2509.22860
"""

from typing import NamedTuple

from folkman.algorithm.base import RECALLED, Algorithm, Assumption, Declares, Inbox
from folkman.algorithm.method import Number, method
from folkman.algorithm.pieces.descent import Descent
from folkman.algorithm.pieces.server_side import around_server
from folkman.algorithm.pieces.steps import Decay, step_size
from folkman.arrays import Array, jax, jnp

__all__ = ["RingleaderServer", "Table", "ringleader"]

BIBTEX = r"""@inproceedings{ringleader,
  author = {Maranjyan, Artavazd and Richt{\'a}rik, Peter},
  title = {Ringleader {ASGD}: The First Asynchronous {SGD} with Optimal Time Complexity under Data
    Heterogeneity},
  booktitle = {International Conference on Learning Representations (ICLR)},
  year = {2026},
  eprint = {2509.22860},
  archiveprefix = {arXiv},
}"""


class Table(NamedTuple):
    """The gradients of a round."""

    means: Array  # (node, d) m_i, times eta; zeros for none
    counts: Array  # (node,) how many of each node

    def entered(
        self,
        node: Array,
        gradient: Array,  # the gradient that came (d,)
        enters: Array,  # () bool: whether it does
    ) -> "Table":
        """Return the table after a gradient of a node has entered, if it does."""
        counts = self.counts.at[node].add(enters.astype(jnp.int32))
        number = jnp.maximum(counts[node], 1).astype(gradient.dtype)
        change = jnp.where(enters, (gradient - self.means[node]) / number, 0.0)
        return Table(self.means.at[node].add(change), counts)


class RingleaderServer(NamedTuple):
    """What the server remembers."""

    params: Array  # (d,) x
    rounds: Array  # () moves so far
    now: Table  # gradients of this round
    after: Table  # gradients of the next round
    due: Array  # (node,) bool: who has yet to have its move; nobody while the server collects
    answers: Array  # (node,) bool: who has uploaded and is to be answered


@method
def ringleader(
    step: Number = 0.1,
    decay: Decay = Decay(),  # noqa: B008 - immutable
    descent: Descent = Descent(),  # noqa: B008 - immutable
) -> Algorithm:
    """Build Ringleader ASGD.

    >>> ringleader(step=0.1).declares.exact
    True
    """

    def server_init(params: Array, num_nodes: int) -> RingleaderServer:
        empty = Table(
            jnp.zeros((num_nodes, params.shape[0]), params.dtype),
            jnp.zeros(num_nodes, jnp.int32),
        )
        nobody = jnp.zeros(num_nodes, bool)
        zero = jnp.zeros((), jnp.int32)
        return RingleaderServer(params, zero, now=empty, after=empty, due=nobody, answers=nobody)

    def take(
        state: RingleaderServer, upload: tuple[Array, Array, Array]
    ) -> tuple[RingleaderServer, None]:
        """Take the gradient of one node, if it has come."""
        node, usable, gradient = upload
        collects = ~jnp.any(state.due)
        counts_now = collects | state.due[node]
        now = state.now.entered(node, gradient, usable & counts_now)
        after = state.after.entered(node, gradient, usable & ~counts_now)
        completes = collects & jnp.all(now.counts > 0)
        moves = usable & (completes | state.due[node])
        params = state.params - jnp.where(moves, jnp.mean(now.means, axis=0), 0.0)
        due = (state.due | (usable & completes)).at[node].set(False)
        due = jnp.where(usable, due, state.due)
        ends = moves & ~jnp.any(due)
        empty = jax.tree.map(jnp.zeros_like, after)
        now, after = (
            jax.tree.map(lambda new, old: jnp.where(ends, new, old), *pair)
            for pair in ((after, now), (empty, after))
        )
        return state._replace(
            params=params, rounds=state.rounds + moves, now=now, after=after, due=due
        ), None

    def receive(state: RingleaderServer, inbox: Inbox, key: Array) -> RingleaderServer:
        del key
        dim = state.params.shape[0]
        nodes = jnp.arange(len(inbox.heard))
        uploads = (nodes, inbox.heard & inbox.finite, inbox.store[inbox.row][:, :dim])
        taken, _ = jax.lax.scan(take, state, uploads)
        return taken._replace(answers=inbox.heard)

    built = around_server(
        "ringleader",
        server_init,
        receive,
        step_size(step, decay),
        declares=Declares(
            assumes=frozenset({Assumption.PRESENT}),
            differences=True,
            exact=True,
            draws=True,  # gradients of one slot are taken by node number
            evenly=True,
            verified=RECALLED,
        ),
    )
    return descent.of(built)
