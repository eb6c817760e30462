"""What one node (or the server) does: one paper, one file, and nothing else to write.

Every module of this folder is a method, except the contract itself (`base`, `travel`, `method`).
Its builder has the name of its file: `from folkman.algorithm.dpsgd import dpsgd`,
`ALGORITHMS["dpsgd"]` or `folkman.dpsgd`. A method is imported when it is first used.
"""

from folkman.algorithm.base import Algorithm, Assumption, Declares, Inbox, Place, Price
from folkman.algorithm.travel import Broadcast, Mixing, Rounds, Server, Star
from folkman.builders import Builders, find_methods

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "Assumption",
    "Broadcast",
    "Declares",
    "Inbox",
    "Mixing",
    "Place",
    "Price",
    "Rounds",
    "Server",
    "Star",
]

ALGORITHMS: Builders[Algorithm] = Builders(
    {name: f"folkman.algorithm.{name}:{name}" for name in find_methods()}
)
"""Builders by name."""
