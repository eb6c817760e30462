"""What one node (or the server) does: one paper, one file. A new algorithm is one file and one line here.

A method is imported when it is first used. Its builder has the name of its file:
`from folkman.algorithm.dpsgd import dpsgd`, `ALGORITHMS["dpsgd"]` or `folkman.dpsgd`.
"""

from folkman.algorithm.base import Algorithm, Assumption, Inbox, Place
from folkman.algorithm.travel import Mixing, Server
from folkman.builders import Builders

__all__ = ["ALGORITHMS", "Algorithm", "Assumption", "Inbox", "Mixing", "Place", "Server"]

METHODS = (
    "async_sharing",
    "fedavg",
    "adafl",
    "fedap",
    "fedsa",
    "twafl",
    "fedasync",
    "fedbuff",
    "dispfl",
    "cga",
    "compcga",
    "dpsgd",
    "dfedavgm",
    "sgp",
    "adpsgd",
    "swift",
)

ALGORITHMS: Builders[Algorithm] = Builders(
    {name: f"folkman.algorithm.{name}:{name}" for name in METHODS}
)
"""Builders by name."""
