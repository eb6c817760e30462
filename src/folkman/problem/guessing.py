"""What the best constant answer is worth: a model that is no better has learnt nothing.

It gives every sample the same scores. With classes these are their shares in the training data:
the loss is then their entropy, ln C for C balanced classes. With numbers the answer is the mean.
The accuracy is that of the most frequent class of the test data.
"""

from math import isfinite, nan
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from folkman.problem.learnable import Learnable
from folkman.problem.models import CROSS_ENTROPY, HINGE, LOGISTIC, SQUARE, Head

__all__ = ["Guess", "Guessable", "best_constant"]


class Guess(NamedTuple):
    """What the best constant answer is worth."""

    loss: float  # on the training data, weighted as F weighs them
    accuracy: float  # on the test data; not a number without classes
    tested: int  # number of test samples


@runtime_checkable
class Guessable(Learnable, Protocol):
    """A problem that knows what the best constant answer is worth."""

    def guess(self) -> Guess | None:
        """Return it; None where there is none, as on a quadratic."""
        ...


def best_constant(
    head: Head, y: NDArray, weight: NDArray, tested: NDArray
) -> Guess | None:  # None where the answer is not known, or already perfect
    """Return what the best constant answer to targets y of these weights is worth.

    `weight` sums to 1, and `tested` are the targets of the test data.
    """
    if head is SQUARE:
        mean = float(np.sum(weight * y))
        loss = 0.5 * float(np.sum(weight * (y - mean) ** 2))
        return Guess(loss, nan, len(tested)) if isfinite(loss) and loss > 0 else None
    if head not in (CROSS_ENTROPY, LOGISTIC, HINGE):
        return None
    # these two heads take more than two labels by parity
    labels, seen = (y, tested) if head is CROSS_ENTROPY else (y % 2, tested % 2)
    shares = np.bincount(labels, weight)
    shares = shares[shares > 0]
    if len(shares) < 2:
        return None
    loss = 2 * shares[0] * shares[1] if head is HINGE else -np.sum(shares * np.log(shares))
    accuracy = float(np.bincount(seen).max() / len(seen)) if len(seen) else nan
    return Guess(float(loss), accuracy, len(seen))
