"""What one node (or the server) does: one paper, one file. A new algorithm is one file and one line here."""

from collections.abc import Callable

from folkman.algorithm.async_sharing import async_sharing
from folkman.algorithm.base import Algorithm, Assumption, Inbox, Server
from folkman.algorithm.fedavg import fedavg

__all__ = ["ALGORITHMS", "Algorithm", "Assumption", "Inbox", "Server", "async_sharing", "fedavg"]

ALGORITHMS: dict[str, Callable[..., Algorithm]] = {
    "async_sharing": async_sharing,
    "fedavg": fedavg,
}
"""Builders by name."""
