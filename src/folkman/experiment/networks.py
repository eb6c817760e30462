"""The networks of a comparison in words: what a transfer costs, and whether all pay the same."""

from collections.abc import Sequence

from folkman.algorithm.travel import Broadcast
from folkman.experiment.parts import Part

__all__ = ["network_lines"]


def network_lines(first: Sequence[Part]) -> list[str]:
    """Return a line for each network, and one where methods are not charged alike on it.

    `first` has one run of each label.
    """
    labels: dict[str, dict[bool, list[str]]] = {}
    uneven = set()
    for part in first:
        network = part.simulation.network
        words = network.in_words() if hasattr(network, "in_words") else type(network).__name__
        alone = isinstance(part.simulation.algorithm.travel, Broadcast)
        labels.setdefault(words, {True: [], False: []})[alone].append(part.run.label)
        if getattr(network, "uneven", False):
            uneven.add(words)
    lines = []
    for words, sides in labels.items():
        own = ", ".join([*sides[True], *sides[False]])
        lines.append(words if len(labels) == 1 else f"{words} ({own})")
        if words in uneven and sides[True] and sides[False]:
            lines.append(
                f"not like for like: on this network transfers take no time for "
                f"{', '.join(sides[True])}, and gamma slots for {', '.join(sides[False])}; "
                "compare them on pipelined"
            )
    return lines
