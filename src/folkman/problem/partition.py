"""Partitions: labels -> the sample indices that each node holds.

With N nodes, C = l_max - l_min + 1 labels, and a sample of label l at position
idx [1, and its code]:

    case 1  iid            node idx mod N
    case 2  sorted_labels  node (l - l_min) mod N
    case 3  everything     every node holds every sample
    case 4  half           with h = ceil(min(N, C)/2): labels below (l_min + l_max)/2 go to node
                           idx mod h, the others to node h + (l - l_min) mod (min(N, C) - h)
    spill-over (2 and 4)   if N > C, among the nodes n with n mod C = the node above, the one with
                           fewest samples so far, the lowest on ties

`dirichlet` is the label skew of [2], `shards` that of [3]; `given` takes the nodes from the data
itself, and `by_device` takes one node for each device, person or user that the data come from. A
node left without samples is an error, never a silent empty array.

[1] Wang et al. Adaptive Federated Learning in Resource Constrained Edge Computing Systems.
    JSAC 2019. arXiv:1804.05271
[2] Hsu, Qi, Brown. Measuring the Effects of Non-Identical Data Distribution for Federated Visual
    Classification. 2019. arXiv:1909.06335
[3] McMahan et al. Communication-Efficient Learning of Deep Networks from Decentralized Data.
    AISTATS 2017. arXiv:1602.05629
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from folkman.arrays import jax
from folkman.checks import pick, require
from folkman.keys import Stream
from folkman.problem.data import DataSet

__all__ = [
    "PARTITIONS",
    "by_device",
    "check_group",
    "check_samples",
    "dirichlet",
    "everything",
    "given",
    "half",
    "iid",
]
__all__ += ["label_counts", "shards", "sorted_labels", "split", "take"]

Labels = NDArray
Parts = list[NDArray[np.int64]]

DIRICHLET_DRAWS = 100
MOST_HELD = 10**9
"""Samples of all nodes together, each held as often as it is given out."""
ADVICE = "use fewer nodes, more samples or a milder partition"


def iid(labels: Labels, nodes: int) -> Parts:
    """Deal the samples out in turn (case 1): equal sizes to within one sample.

    >>> [part.tolist() for part in iid(np.array([7, 7, 8, 8, 9]), nodes=2)]
    [[0, 2, 4], [1, 3]]
    """
    return _by_node(np.arange(len(labels)) % _checked(labels, nodes), nodes, "iid")


def sorted_labels(labels: Labels, nodes: int) -> Parts:
    """Give every label to one node (case 2), or to several if nodes outnumber labels."""
    _checked(labels, nodes)
    shifted, num_labels = _shift(labels)
    return _by_node(_spill(shifted % nodes, nodes, num_labels), nodes, "case2")


def everything(labels: Labels, nodes: int) -> Parts:
    """Give every sample to every node (case 3)."""
    held = _checked(labels, nodes) * len(labels)
    require(
        held < MOST_HELD,
        f"case3: expected at most {MOST_HELD:.0e} samples at all nodes together, got {nodes} nodes "
        f"of {len(labels)} samples each; use fewer nodes or another partition",
    )
    return [np.arange(len(labels)) for _ in range(nodes)]


def half(labels: Labels, nodes: int) -> Parts:
    """Mix the lower labels over half the nodes and sort the upper labels over the rest (case 4).

    Differs from [1]: with one node or one label the divisor min(N, C) - h is zero, and the upper
    labels belong to node 0 (before the spill-over); the code of [1] keeps case 2's node there, or
    fails.
    """
    _checked(labels, nodes)
    shifted, num_labels = _shift(labels)
    used = min(nodes, num_labels)
    mixing = math.ceil(used / 2)  # h
    lower = 2 * shifted < num_labels - 1  # l < (l_min + l_max)/2, kept in integers
    upper_node = mixing + shifted % (used - mixing) if used > mixing else np.zeros_like(shifted)
    target = np.where(lower, np.arange(len(labels)) % mixing, upper_node)
    return _by_node(_spill(target, nodes, num_labels), nodes, "case4")


def dirichlet(
    labels: Labels,
    nodes: int,
    *,
    concentration: float = 0.3,  # of the draws; 0.3 is a common skew, 100 nearly none
    seed: int = 0,
) -> Parts:
    """Divide each label over the nodes in proportions drawn from Dirichlet(concentration) [2].

    A draw that leaves a node empty is thrown away; after 100 such draws the partition is refused.
    """
    _checked(labels, nodes)
    require(
        nodes <= len(labels),
        f"dirichlet: expected samples at every node, got {nodes} nodes and {len(labels)} samples; "
        f"{ADVICE}",
    )
    require(
        0 < concentration < math.inf,
        f"expected a finite concentration > 0, got {concentration}; "
        "0.3 is a common skew, 100 is nearly iid",
    )
    rng = np.random.default_rng([seed, int(Stream.PARTITION)])
    shifted, num_labels = _shift(labels)
    node = np.zeros(len(labels), np.int64)
    for _ in range(DIRICHLET_DRAWS):
        for label in range(num_labels):
            members = rng.permutation(np.flatnonzero(shifted == label))
            edges = np.cumsum(rng.dirichlet(np.full(nodes, concentration)))
            cuts = np.rint(edges * len(members)).astype(
                np.int64
            )  # the last is whole: the draws sum to 1
            node[members] = np.repeat(np.arange(nodes), np.diff(cuts, prepend=0))
        if len(np.unique(node)) == nodes:
            break
    return _by_node(node, nodes, f"dirichlet({concentration})")


def shards(
    labels: Labels,
    nodes: int,
    *,
    shards_per_node: int = 2,  # shards dealt to each node
    seed: int = 0,
) -> Parts:
    """Sort the samples by label, cut them into equal shards, deal the shards out at random [3]."""
    _checked(labels, nodes)
    num_shards = nodes * shards_per_node
    require(
        shards_per_node >= 1 and num_shards <= len(labels),
        f"expected 1 <= nodes * shards_per_node <= {len(labels)} samples, got {nodes} * "
        f"{shards_per_node}; lower shards_per_node",
    )
    rng = np.random.default_rng([seed, int(Stream.PARTITION)])
    cut = np.array_split(np.argsort(labels, kind="stable"), num_shards)
    dealt = rng.permutation(num_shards).reshape(nodes, shards_per_node)
    return [np.sort(np.concatenate([cut[shard] for shard in row])) for row in dealt]


def given(group: Labels, nodes: int | None = None) -> Parts:
    """Give each sample to the node that `group` names: the partition of a drawn data set."""
    nodes = int(np.max(group)) + 1 if nodes is None else nodes
    _checked(group, nodes)
    low, high = int(np.min(group)), int(np.max(group))
    fits = low >= 0 and high < nodes
    require(fits, f"expected groups in 0..{nodes - 1}, got {low}..{high}; set nodes = {high + 1}")
    return _by_node(np.asarray(group), nodes, "given")


def by_device(group: Labels, nodes: int) -> Parts:
    """Give each node the samples of one device: the natural partition of data that name theirs.

    >>> [part.tolist() for part in by_device(np.array([7, 3, 7]), nodes=2)]
    [[1], [0, 2]]
    """
    devices, node = np.unique(group, return_inverse=True)
    require(
        len(devices) == nodes,
        f"by_device: expected one node for each of the {len(devices)} devices in the data, got "
        f"{nodes} nodes; set nodes = {len(devices)}, or load fewer devices",
    )
    return _by_node(node, nodes, "by_device")


def take(
    indices: Sequence[NDArray[np.int64]], *, total: int | None = None, per_node: int | None = None
) -> Parts:
    """Thin a partition to `per_node` samples a node, or to `total` samples in its own proportions.

    Each node keeps samples evenly spaced over its own, so that order in the file biases nothing.
    """
    sizes = [len(part) for part in indices]
    require(
        total is None or per_node is None,
        f"expected one limit, got {total=} and {per_node=}; drop one",
    )
    counts = sizes if per_node is None else [per_node] * len(sizes)
    if total is not None:
        there = sum(sizes)
        require(
            1 <= total <= there,
            f"expected total in 1..{there}, the samples held, got {total}; lower it",
        )
        counts = _apportion(total, sizes)
    for node, (count, size) in enumerate(zip(counts, sizes, strict=True)):
        fits, advice = 1 <= count <= size, "change total or per_node"
        require(fits, f"expected to keep 1..{size} samples of node {node}, got {count}; {advice}")
    return [
        part[np.arange(count) * len(part) // count]
        for part, count in zip(indices, counts, strict=True)
    ]


PARTITIONS: dict[str, Callable[..., Parts]] = {
    "iid": iid,
    "even": iid,
    "by_label": sorted_labels,
    "case1": iid,  # the names of the paper
    "case2": sorted_labels,
    "case3": everything,
    "case4": half,
    "dirichlet": dirichlet,
    "shards": shards,
    "given": given,
    "by_device": by_device,
}


def split(
    kind: str,  # name of a partition, one of `PARTITIONS`
    labels: Labels,  # labels of all training samples
    nodes: int,
    *,
    group: Labels | None = None,  # the node or device that each sample was made for
    total: int | None = None,
    per_node: int | None = None,
    **options: object,
) -> Parts:
    """Partition by name, then thin as `take` does.

    `options` are those of the partition's function.
    """
    builder = pick(PARTITIONS, kind)
    if builder in (given, by_device):
        check_group(kind, group)
        labels = np.asarray(group)
    return take(builder(labels, nodes, **options), total=total, per_node=per_node)


def check_group(kind: str, group: Labels | None) -> None:
    """Refuse data that do not say which device each sample came from."""
    require(
        group is not None,
        f"{kind}: expected data that say which device each sample came from, got none that do; add "
        "an array `group` to an .npz, name a column of a .csv (data.group), let a function of your "
        "own return a DataSet with group, or use another partition",
    )


def label_counts(
    labels: Labels, parts: Sequence[NDArray[np.int64]], num_classes: int
) -> NDArray[np.int64]:
    """Count the samples of each class at each node: (node, class)."""
    return np.stack([np.bincount(labels[part], minlength=num_classes) for part in parts])


def _checked(labels: Labels, nodes: int) -> int:
    fits = nodes >= 1 and len(labels) >= 1
    require(
        fits,
        f"expected nodes >= 1 and samples, got {nodes} and {len(labels)} samples; correct them",
    )
    return nodes


def _shift(labels: Labels) -> tuple[NDArray[np.int64], int]:
    """Return l - l_min and the number of labels C."""
    kind = np.asarray(labels).dtype.kind
    require(
        kind in "iu",
        f"expected integer labels, got {labels.dtype}; regression data take iid, case3 or given",
    )
    shifted = labels.astype(np.int64) - int(labels.min())
    return shifted, int(shifted.max()) + 1


def _spill(target: NDArray[np.int64], nodes: int, num_labels: int) -> NDArray[np.int64]:
    """Apply the rule for N > C.

    As one target alone fills its nodes, "fewest so far" means in turn.
    """
    if nodes <= num_labels:
        return target
    node = target.copy()
    for first in range(num_labels):
        members = np.flatnonzero(target == first)
        takers = np.arange(first, nodes, num_labels)
        node[members] = takers[np.arange(len(members)) % len(takers)]
    return node


def _apportion(total: int, sizes: Sequence[int]) -> list[int]:
    """Divide `total` in proportion to `sizes` by largest remainder; ties go to the lowest node."""
    quotas = [divmod(total * size, sum(sizes)) for size in sizes]
    left = total - sum(quota for quota, _ in quotas)
    first = sorted(range(len(sizes)), key=lambda node: -quotas[node][1])[:left]
    return [quota + (node in first) for node, (quota, _) in enumerate(quotas)]


def _by_node(node: Labels, nodes: int, kind: str) -> Parts:
    """Return the samples of each node; a node without any is refused before anything is made."""
    taken = np.unique(node)
    if len(taken) < nodes:
        empty = next((k for k, which in enumerate(taken) if which != k), len(taken))
        raise ValueError(
            f"{kind}: expected samples at every node, got none at node {empty}; {ADVICE}"
        )
    return [np.flatnonzero(node == which) for which in range(nodes)]


def check_samples(
    data: DataSet, parts: Sequence[NDArray], l2: float, batch: int | None, dtype: str
) -> None:
    """Refuse what cannot be learnt from, before anything is compiled."""
    if not parts:
        raise ValueError(
            "a problem needs at least one node, got no parts; give one index array a node"
        )
    for node, part in enumerate(parts):
        if len(part) == 0:
            raise ValueError(
                f"every node needs a sample, node {node} of {len(parts)} has none; "
                "use fewer nodes, more data or another partition"
            )
    for name, samples in (
        ("x_train", data.x_train),
        ("y_train", data.y_train),
        ("x_test", data.x_test),
    ):
        if np.issubdtype(samples.dtype, np.floating) and not np.isfinite(samples).all():
            bad = int(
                np.flatnonzero(~np.isfinite(samples.reshape(len(samples), -1)).all(axis=1))[0]
            )
            raise ValueError(f"{name} must be finite, sample {bad} is not; clean or drop it")
    if l2 < 0:
        raise ValueError(f"l2 must not be negative, got {l2}; use 0 for no penalty")
    if batch is not None and batch < 1:
        raise ValueError(
            f"batch must be at least 1, got {batch}; leave it out for full-batch gradients"
        )
    held = max(len(part) for part in parts)
    if batch is not None and batch > max(held, len(data.x_train)):
        raise ValueError(
            f"batch must be at most the {held} samples of a node, got {batch}; leave it out for "
            "full-batch gradients"
        )
    precise = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
    if dtype == "float64" and not precise:
        raise ValueError(
            "float64 needs JAX's 64-bit mode, which is off; "
            "call jax.config.update('jax_enable_x64', True) before any array is made"
        )
