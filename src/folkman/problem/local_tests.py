"""On which test data a node's own model is judged: those with the node's mixture of labels.

    weighted   every test sample counts by the share of its class in the node's training data: the
               mean over all test sets of that mixture, the same in every run
    drawn      a test set of its own for each node, of a fixed size: its labels are drawn from the
               node's mixture, and its samples from those of the label in the common test data

Both are weights of the common test data, and no training sample is in either. Classes without test
data are left out of a mixture.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from folkman.arrays import Float, Int
from folkman.keys import Stream

__all__ = ["drawn", "mixtures", "weighted"]


def mixtures(
    labels: Sequence[NDArray[np.integer]], tested: Int[NDArray, " test"]
) -> Float[NDArray, "node class"]:
    """Return the share of each class in `labels[i]`, node i's; NaN where none is tested."""
    classes = 1 + max(int(tested.max()), *(int(own.max()) for own in labels))
    held = np.stack([np.bincount(own, minlength=classes) for own in labels])
    there = np.bincount(tested, minlength=classes)
    mixture = np.where(there > 0, held, 0).astype(np.float64)
    with np.errstate(invalid="ignore"):  # a node without a class that is tested: NaN
        return mixture / mixture.sum(axis=1, keepdims=True)


def weighted(
    mixture: Float[NDArray, "node class"], tested: Int[NDArray, " test"]
) -> Float[NDArray, "node test"]:
    """Return what each test sample counts for each node, by the share of its class."""
    there = np.bincount(tested, minlength=mixture.shape[1])
    return (mixture / np.maximum(there, 1))[:, tested]


def drawn(
    mixture: Float[NDArray, "node class"], tested: Int[NDArray, " test"], size: int, seed: int
) -> Float[NDArray, "node test"]:
    """Draw a test set of `size` samples for each node, by its number and the seed.

    Return what each test sample counts for each node. A sample is in a set once, unless the set
    asks for more samples of its class than there are.
    """
    weight = np.zeros((len(mixture), len(tested)))
    for node, shares in enumerate(mixture):
        if np.isnan(shares).any():
            weight[node] = np.nan
            continue
        random = np.random.default_rng((seed, int(Stream.LOCAL_TEST), node))
        for label, number in enumerate(random.multinomial(size, shares)):
            (there,) = np.nonzero(tested == label)
            chosen = random.choice(there, number, replace=number > len(there)) if number else []
            np.add.at(weight[node], np.asarray(chosen, np.intp), 1.0 / size)
    return weight
