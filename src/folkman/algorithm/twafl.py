"""TWAFL: shallow layers travel in every round, deep ones seldom, and old uploads count less.

    w_k <- w^t,   then E times   w_k <- w_k - eta grad F_k(w_k),   at m nodes drawn in each round t
    w^{t+1} = sum_k p_k w_k,   p_k = n_k a^-(t - t_k) / sum_j n_j a^-(t - t_j)   over all nodes [1]

for each of two groups of layers separately: w_k is what node k last uploaded of the group, t_k the
round in which it did so, n_k its data, a = e/2. The shallow group is all tensors before the first
with two axes (the convolutions of a CNN), the deep group the rest. Deep layers are exchanged in the
last `deep_rounds` rounds of every `loop`; in the others a node goes on with its own, which the next
exchange replaces. A round costs m messages of S_shallow or S bits up and one broadcast of such a
message down, each with 32 bits for the round's number.

Differs from [1]: recalled, not verified, are the loop of 15 with its last 5 rounds, and a. The draw
of m, half the nodes by default, is the server's. Round 0 takes all nodes and all layers: no message
of the server precedes it, and afterwards something of everyone is known. Without shapes, or with
one group empty, all layers travel in every round. An upload that is not finite has weight 0 until
the node's next.

[1] Y. Chen, X. Sun, Y. Jin. Communication-Efficient Federated Deep Learning with Layerwise
    Asynchronous Model Update and Temporally Weighted Aggregation. IEEE Trans. Neural Networks and
    Learning Systems 31(10), 2020. arXiv:1903.07424
"""

from math import e, prod
from typing import NamedTuple

from folkman.algorithm.base import Algorithm, Assumption, Declares, Inbox, Price
from folkman.algorithm.method import Number, method
from folkman.algorithm.pieces.descent import Descent
from folkman.algorithm.pieces.segments import Shapes
from folkman.algorithm.pieces.server_side import around_server, check_number, half
from folkman.algorithm.pieces.steps import Decay, step_size
from folkman.arrays import Array, jax, jnp
from folkman.checks import require

__all__ = ["TWAFLServer", "temporal_weights", "twafl"]

BIBTEX = r"""@article{twafl,
  author = {Chen, Yang and Sun, Xiaoyan and Jin, Yaochu},
  title = {Communication-Efficient Federated Deep Learning with Layerwise Asynchronous Model Update
    and Temporally Weighted Aggregation},
  journal = {IEEE Transactions on Neural Networks and Learning Systems},
  volume = {31},
  number = {10},
  year = {2020},
  eprint = {1903.07424},
  archiveprefix = {arXiv},
}"""


class TWAFLServer(NamedTuple):
    """What the server remembers."""

    params: Array  # (d,) w^t
    rounds: Array  # () t
    chosen: Array  # (node,) bool: who takes part in this round
    arrived: Array  # (node,) bool: uploads of this round
    stamps: Array  # (group, node) t_k of the shallow and of the deep group
    answers: Array  # (node,) bool: who is to receive the new model


def temporal_weights(
    shares: Array,
    age: Array,
    base: float,  # a, by which an upload counts less for each round
) -> Array:
    """Return p_k, (node,), from the data shares and t - t_k."""
    weights = shares * base ** -age.astype(shares.dtype)
    return weights / jnp.sum(weights)


@method
def twafl(
    step: Number = 0.1,
    m: int | None = None,  # nodes drawn in a round; None: half of them, rounded up
    loop: int = 15,  # rounds from one exchange of deep layers to the next
    deep_rounds: int = 5,  # rounds of a loop in which deep layers travel
    base: float = e / 2,  # a, by which an upload counts less for each round
    local_steps: int = 1,
    decay: Decay = Decay(),  # noqa: B008 - immutable
    shapes: Shapes | None = None,
    descent: Descent = Descent(),  # noqa: B008 - immutable
) -> Algorithm:
    """Build TWAFL with a = `base`; `m` None is half the nodes, rounded up.

    `shapes` are those of the model's tensors.

    >>> twafl(shapes=((5, 5, 1, 32), (32,), (1568, 10), (10,))).declares.price.bits(16522, 16)
    (13344, 264384)
    """
    eta = step_size(step, decay)
    check_number("m", m)
    require(
        1 <= deep_rounds <= loop,
        f"deep_rounds must be in 1 .. loop, got {deep_rounds} of {loop}; try 5 of 15",
    )
    require(base >= 1, f"base must be at least 1, got {base}; 1 does not look at age")
    sizes = [prod(shape) for shape in shapes or ()]
    flat = next((place for place, shape in enumerate(shapes or ()) if len(shape) == 2), 0)
    shallow = sum(sizes[:flat])  # entries; 0: there are no two groups

    def full(t: Array) -> Array:
        """Return whether all layers travel in round t."""
        return (t == 0) | (t % loop >= loop - deep_rounds) | (shallow == 0)

    def server_init(params: Array, num_nodes: int) -> TWAFLServer:
        check_number("m", m, num_nodes)
        require(
            not sizes or sum(sizes) == params.shape[0],
            f"shapes must hold the {params.shape[0]} parameters of the model, got {sum(sizes)}",
        )
        nobody = jnp.zeros(num_nodes, bool)
        return TWAFLServer(
            params=params,
            rounds=jnp.zeros((), jnp.int32),
            chosen=~nobody,
            arrived=nobody,
            stamps=jnp.zeros((2, num_nodes), jnp.int32),
            answers=nobody,
        )

    def receive(state: TWAFLServer, inbox: Inbox, key: Array) -> TWAFLServer:
        t = state.rounds
        dim = state.params.shape[0]
        nodes = len(inbox.heard)
        arrived = state.arrived | inbox.heard
        closes = jnp.all(arrived | ~state.chosen)
        groups = jnp.stack([jnp.asarray(True), full(t)])  # which ones this round exchanges
        new = (closes & state.chosen)[None] & groups[:, None]
        stamps = jnp.where(new, t, state.stamps)
        known = inbox.weight * inbox.finite
        shallow_mean = inbox.mix(temporal_weights(known, t - stamps[0], base))[:dim]
        deep_mean = inbox.mix(temporal_weights(known, t - stamps[1], base))[:dim]
        deep = jnp.where(full(t), deep_mean, state.params)
        mean = jnp.where(jnp.arange(dim) >= shallow, deep, shallow_mean)
        drawn = jax.random.permutation(key, nodes) < (half(nodes) if m is None else m)
        return TWAFLServer(
            params=jnp.where(closes, mean, state.params),
            rounds=t + closes,
            chosen=jnp.where(closes, drawn, state.chosen),
            arrived=arrived & ~closes,
            stamps=stamps,
            answers=closes & drawn,
        )

    def travels(t: Array) -> Array:
        return full(t) | (jnp.arange(sum(sizes)) < shallow)

    def bits_of(dim: int, bits: int) -> tuple[int, int]:
        """Return the bits of the shallow layers, and of all."""
        return (shallow or dim) * bits + 32, dim * bits + 32

    built = around_server(
        "twafl",
        server_init,
        receive,
        eta,
        local_steps=local_steps,
        travels=travels if shallow else None,
        declares=Declares(
            assumes=frozenset({Assumption.PRESENT, Assumption.STEADY}),
            price=Price(bits_of, form=lambda state: full(state.version).astype(jnp.int32)),
            exact=local_steps == 1,
            draws=True,
        ),
        server_price=Price(bits_of, form=lambda state: full(state.rounds).astype(jnp.int32)),
    )
    return descent.of(built)
