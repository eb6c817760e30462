"""Who hears whom, when, at what cost."""

from folkman.builders import Builders
from folkman.radio.delivery import Network

__all__ = ["NETWORKS"]

NETWORKS: Builders[Network] = Builders(
    {
        **{
            name: f"folkman.radio.delay:{name}"
            for name in ("ideal", "constant", "snapshot", "iid", "pipelined")
        },
        "shared": "folkman.radio.shared:shared",
        "over_air": "folkman.radio.over_air:over_air",
        "radio": "folkman.radio.network:RadioNetwork",
        "gains": "folkman.radio.gains:gains",
        "trace": "folkman.radio.replay:from_file",
    }
)
"""Builders by name."""
