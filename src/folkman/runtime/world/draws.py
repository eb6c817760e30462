"""Random numbers of a schedule: one stream for each use, all from one seed.

A fault that is dropped from a plan leaves the draws of all others as they were, which is what makes
schedules shrink.
"""

from random import Random

__all__ = ["stream"]


def stream(seed: int, *use: object) -> Random:
    """Return the random numbers of one use under a seed, the same on every machine."""
    return Random("/".join(map(str, (seed, *use))))  # noqa: S311 - not a secret
