"""CHOCO-SGD: gossip of compressed differences, with copies of all models that all nodes agree on.

    x_i <- x_i - eta grad F_i(x_i)                                             [1, Algorithm 2]
    x_i <- x_i + gamma sum_j W_ij (x^_j - x^_i)
    q_i = Q(x_i - x^_i), broadcast;   x^_j <- x^_j + q_j    for every j that is heard, and for i

with x^_i(0) = x_i(0). x^_i is what the others know of x_i: a public copy, the same at node i and at
every node that hears it. Only the change since then is compressed, so what Q leaves out comes later
and nothing is lost. sum_i x_i moves by gradients alone. A node needs the sum of its neighbours'
copies and no single one: it keeps x_i, x^_i and s_i = sum_j W_ij x^_j, 3 d numbers.

`compression` is a packing of `folkman.packing` with error feedback, that is, a contraction: top_k
and rand_k keep `kept` of all entries, qsgd has levels of `bits` bits, sign has one. With "none" and
gamma = 1 it is D-PSGD (combine, then adapt). A round takes one slot of computing
and one broadcast of each node, of the bits of Q.

Differs from [1]: gamma is an option, 0.4 by default, in the place of the one of its proof, which is
far smaller; full-batch gradients unless the problem has mini-batches; the compression of a network
does not apply, since the method packs by itself. Order and start are those of the authors' code
(github.com/epfml/ChocoSGD, convex_code/logistic.py): its models are those here, to 1e-10 in the
tests, where kept entries are rounded to 32 bits as they are here. Their code for networks (dl_code)
differs from it in its start alone, x^_i(0) = 0.

[1] A. Koloskova, S. U. Stich, M. Jaggi. Decentralized Stochastic Optimization and Gossip Algorithms
    with Compressed Communication. ICML 2019. arXiv:1902.00340
"""

from typing import Literal, NamedTuple

from folkman.algorithm.base import NUMBERS, Algorithm, Assumption, Declares, Inbox, Place, Price
from folkman.algorithm.method import Number, method
from folkman.algorithm.pieces.descent import Descent
from folkman.algorithm.pieces.rounds import Gradient, in_rounds
from folkman.algorithm.pieces.steps import Decay, step_size
from folkman.algorithm.pieces.topology import Graph
from folkman.arrays import Array, jnp
from folkman.checks import require, within
from folkman.packing.packing import Packing, bits_of, none, pack, qsgd, rand_k, sign, top_k

__all__ = ["ChocoMemory", "choco"]

BIBTEX = r"""@inproceedings{choco,
  author = {Koloskova, Anastasia and Stich, Sebastian U. and Jaggi, Martin},
  title = {Decentralized Stochastic Optimization and Gossip Algorithms with Compressed
    Communication},
  booktitle = {International Conference on Machine Learning (ICML)},
  year = {2019},
  eprint = {1902.00340},
  archiveprefix = {arXiv},
}"""


class ChocoMemory(NamedTuple):
    """What a node remembers."""

    params: Array  # (d,) x_i
    public: Array  # (d,) x^_i
    around: Array  # (d,) s_i = sum_j W_ij x^_j, its own among them
    sent: Array  # (d,) q_i


@method
def choco(
    step: Number = 0.1,
    gossip_step: Number = 0.4,
    # how differences are packed
    compression: Literal["top_k", "rand_k", "qsgd", "sign", "none"] = "top_k",
    kept: float = 0.25,  # share of the entries that top_k and rand_k send
    bits: int = 4,  # bits of an entry with qsgd
    graph: Graph = Graph("ring"),  # noqa: B008 - immutable
    decay: Decay = Decay(),  # noqa: B008 - immutable
    descent: Descent = Descent(),  # noqa: B008 - immutable
) -> Algorithm:
    """Build CHOCO-SGD with gamma = `gossip_step`.

    >>> choco(compression="sign").declares.price.bits(100, 32)
    (132,)
    """
    eta = step_size(step, decay)
    require(
        within(gossip_step, 0, 1),
        f"gossip_step must be in [0, 1], got {gossip_step}; less where more is left out",
    )
    packing = _packing(compression, kept, bits)
    graph.check_fixed("choco")
    require(
        graph.waits,
        f"choco needs the same neighbours in every round, got the topology {graph.topology!r}; "
        "take complete, ring or another",
    )

    def first(params: Array, place: Place) -> ChocoMemory:
        del place
        return ChocoMemory(params, params, params, jnp.zeros_like(params))

    def descend(memory: ChocoMemory, grad: Gradient) -> ChocoMemory:
        half = memory.params - eta(grad.updates, grad.value.dtype) * grad.value
        params = half + gossip_step * (memory.around - memory.public)  # [1, Alg. 2, line 4]
        change = params - memory.public
        sent = change if packing.exact else pack(packing, change, grad.key)
        return memory._replace(params=params, sent=sent.astype(params.dtype))

    def agree(memory: ChocoMemory, inbox: Inbox) -> ChocoMemory:
        return memory._replace(
            public=memory.public + memory.sent,
            around=memory.around + inbox.own_weight * memory.sent + inbox.mix(),
        )

    built = in_rounds(
        "choco",
        first=first,
        gradient=descend,
        end=agree,
        message=lambda memory: memory.sent,
        params=lambda memory: memory.params,
        mixed=lambda memory: memory.params,
        mixing=graph.mixing(),
        declares=Declares(
            assumes=frozenset({Assumption.PRESENT, Assumption.STEADY}),
            price=None if packing.exact else Price(lambda dim, _: (bits_of(packing, dim),)),
            differences=True,
            exactly=packing.exact,
            draws=compression in ("rand_k", "qsgd"),
            evenly=True,
            verified=NUMBERS,
        ),
    )
    return descent.of(built)


def _packing(name: str, kept: float, bits: int) -> Packing:
    """Return Q, a contraction."""
    choices = {
        "top_k": lambda: top_k(kept, feedback=True),
        "rand_k": lambda: rand_k(kept, feedback=True),
        "qsgd": lambda: qsgd(bits, feedback=True),
        "sign": lambda: sign(feedback=True),
        "none": none,
    }
    require(
        name in choices, f"compression must be one of {', '.join(choices)}, got {name!r}; try top_k"
    )
    return choices[name]()
