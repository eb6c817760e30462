"""HierFAVG: FedAvg in cells, and an average of the cells every q rounds.

    node      w_i <- w^c,   then E times   w_i <- w_i - eta grad F_i(w_i)
    station   w^c = sum_{i in c} alpha_i w_i / sum_{i in c} alpha_i          a round of the cell
    root      w   = sum_c alpha_c w^c,   alpha_c = sum_{i in c} alpha_i      every q rounds of all

                                                                                  [1, Algorithm 1]

With q = 1 this is FedAvg with a second hop. With one cell the root only repeats the station. A
round of a cell takes E slots of computing and the time of one upload and one download; every q-th
also waits for the other cells and for the link to the root.

Differs from [1]: full batches unless the problem has mini-batches; node i is in cell i mod `cells`.
An upload that is not finite is dropped and the other shares of its cell are renormalised.

[1] L. Liu, J. Zhang, S. H. Song, K. B. Letaief. Client-Edge-Cloud Hierarchical Federated Learning.
    IEEE International Conference on Communications (ICC), 2020. arXiv:1905.06641
"""

from typing import NamedTuple

from folkman.algorithm.base import Algorithm, Assumption, Declares, Inbox, Place
from folkman.algorithm.method import Number, method
from folkman.algorithm.pieces.descent import Descent
from folkman.algorithm.pieces.hierarchy import Hierarchy
from folkman.algorithm.pieces.server_side import received
from folkman.algorithm.pieces.steps import Decay, step_size
from folkman.algorithm.travel import Server
from folkman.arrays import Array, jax, jnp
from folkman.checks import require

__all__ = ["CellNode", "Root", "Station", "hierfavg"]

BIBTEX = r"""@inproceedings{hierfavg,
  author = {Liu, Lumin and Zhang, Jun and Song, S. H. and Letaief, Khaled B.},
  title = {Client-Edge-Cloud Hierarchical Federated Learning},
  booktitle = {IEEE International Conference on Communications (ICC)},
  year = {2020},
  eprint = {1905.06641},
  archiveprefix = {arXiv},
}"""


class CellNode(NamedTuple):
    """What a node remembers."""

    params: Array  # (d,) w_i
    steps: Array  # () local steps done in this round
    updates: Array  # () updates done in all


class Station(NamedTuple):
    """What a station remembers."""

    params: Array  # (d,) w^c
    arrived: Array  # (node,) bool: uploads of this round
    fresh: Array  # () bool: is there a new model for its nodes?
    asks: Array  # () bool: does it wait for the root?
    rounds: Array  # () rounds of the cell


class Root(NamedTuple):
    """What the root remembers."""

    params: Array  # (d,) w
    arrived: Array  # (cell,) bool: whose average has come
    fresh: Array  # () bool: is there a new model for the stations?
    rounds: Array  # () averages of all cells so far


@method
def hierfavg(
    step: Number = 0.1,
    cells: int = 2,
    global_every: int = 2,  # rounds of the cells between two averages of all, q
    local_steps: int = 1,
    backhaul_slots: int = 0,  # slots of a message between a station and the root
    decay: Decay = Decay(),  # noqa: B008 - immutable
    descent: Descent = Descent(),  # noqa: B008 - immutable
) -> Algorithm:
    """Build HierFAVG with E = `local_steps` and q = `global_every`.

    >>> hierfavg(step=0.1, cells=3, global_every=5).name
    'hierfavg'
    """
    eta = step_size(step, decay)
    require(cells >= 1, f"cells must be at least 1, got {cells}; 1 is FedAvg with a second hop")
    require(global_every >= 1, f"global_every must be at least 1, got {global_every}; 1 is FedAvg")
    require(local_steps >= 1, f"local_steps must be at least 1, got {local_steps}; try 1")
    require(
        backhaul_slots >= 0,
        f"backhaul_slots must be at least 0, got {backhaul_slots}; 0 is a link that takes no time",
    )

    def init(params: Array, place: Place) -> CellNode:
        require(
            cells <= place.num_nodes,
            f"cells must be at most the number of nodes, {place.num_nodes}, got {cells}",
        )
        zero = jnp.zeros((), jnp.int32)
        return CellNode(params, zero, zero)

    def receive(state: CellNode, inbox: Inbox) -> CellNode:
        new = CellNode(inbox.payload(0), jnp.zeros((), jnp.int32), state.updates)
        return jax.tree.map(lambda a, b: jnp.where(inbox.heard[0], a, b), new, state)

    def update(state: CellNode, inbox: Inbox, loss: Array, grad: Array, key: Array) -> CellNode:
        del inbox, loss, key
        params = state.params - eta(state.updates, grad.dtype) * grad
        return CellNode(params, state.steps + 1, state.updates + 1)

    def station_init(params: Array, num_nodes: int) -> Station:
        no = jnp.asarray(False)
        return Station(params, jnp.zeros(num_nodes, bool), no, no, jnp.zeros((), jnp.int32))

    def average_cell(state: Station, inbox: Inbox, key: Array) -> Station:
        del key
        own = inbox.weight > 0
        arrived = state.arrived | (inbox.heard & own)
        done = jnp.all(arrived | ~own)
        weights = inbox.weight * inbox.finite
        usable = jnp.sum(weights) > 0  # a cell without a whole upload keeps its model
        mean = inbox.mix(weights / jnp.where(usable, jnp.sum(weights), 1.0))
        rounds = state.rounds + done
        turn = rounds % global_every == 0
        return Station(
            params=jnp.where(done & usable, mean, state.params),
            arrived=arrived & ~done,
            fresh=done & ~turn,
            asks=state.asks | (done & turn),
            rounds=rounds,
        )

    def hear_root(state: Station, model: Array) -> Station:
        return state._replace(params=model, fresh=jnp.asarray(True), asks=jnp.asarray(False))

    def root_init(params: Array, num_cells: int) -> Root:
        no = jnp.asarray(False)
        return Root(params, jnp.zeros(num_cells, bool), no, jnp.zeros((), jnp.int32))

    def average_all(state: Root, inbox: Inbox, key: Array) -> Root:
        del key
        arrived = state.arrived | inbox.heard
        done = jnp.all(arrived)
        weights = inbox.weight * inbox.finite
        mean = inbox.mix(weights / jnp.sum(weights))  # all shares 0: NaN, which stops the run
        params = jnp.where(done, mean, state.params)
        return Root(params, arrived & ~done, done, state.rounds + done)

    station = Server(
        init=station_init,
        receive=average_cell,
        offers=lambda state: jnp.broadcast_to(state.fresh, state.arrived.shape),
        message=lambda state: state.params,
        params=lambda state: state.params,
        rounds=lambda state: state.rounds,
    )
    root = Server(
        init=root_init,
        receive=average_all,
        offers=lambda state: jnp.broadcast_to(state.fresh, state.arrived.shape),
        message=lambda state: state.params,
        params=lambda state: state.params,
        rounds=lambda state: state.rounds,
    )
    built = Algorithm(
        name="hierfavg",
        init=init,
        point=lambda state, _: state.params,
        update=update,
        message=lambda state: state.params,
        params=lambda state: state.params,
        receive=receive,
        model=received,
        travel=Hierarchy(
            cells=cells,
            station=station,
            root=root,
            ready=lambda state: state.steps >= local_steps,
            asks=lambda state: state.asks,
            asked=lambda state: state.params,
            hears=hear_root,
            backhaul_slots=backhaul_slots,
        ),
        declares=Declares(
            assumes=frozenset({Assumption.PRESENT, Assumption.STEADY}),
            exact=global_every == 1 and local_steps == 1,
            draws=cells > 1,  # a cell's nodes are told by their numbers
        ),
    )
    return descent.of(built)
