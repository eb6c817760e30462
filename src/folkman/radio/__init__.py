"""Who hears whom, when, at what cost."""

from collections.abc import Callable

from folkman.radio.delay import DELAYS
from folkman.radio.delivery import Network
from folkman.radio.network import RadioNetwork
from folkman.radio.replay import from_file

__all__ = ["NETWORKS"]

NETWORKS: dict[str, Callable[..., Network]] = {**DELAYS, "radio": RadioNetwork, "trace": from_file}
"""Builders by name."""
