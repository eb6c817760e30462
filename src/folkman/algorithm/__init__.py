"""What one node (or the server) does: one paper, one file. A new algorithm is one file and one line here."""

from collections.abc import Callable

from folkman.algorithm.adafl import adafl
from folkman.algorithm.adpsgd import adpsgd
from folkman.algorithm.async_sharing import async_sharing
from folkman.algorithm.base import Algorithm, Assumption, Inbox, Mixing, Place, Server
from folkman.algorithm.cga import cga
from folkman.algorithm.compcga import compcga
from folkman.algorithm.dfedavgm import dfedavgm
from folkman.algorithm.dispfl import dispfl
from folkman.algorithm.dpsgd import dpsgd
from folkman.algorithm.fedap import fedap
from folkman.algorithm.fedasync import fedasync
from folkman.algorithm.fedavg import fedavg
from folkman.algorithm.fedbuff import fedbuff
from folkman.algorithm.fedsa import fedsa
from folkman.algorithm.sgp import sgp
from folkman.algorithm.swift import swift
from folkman.algorithm.twafl import twafl

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "Assumption",
    "Inbox",
    "Mixing",
    "Place",
    "Server",
    "adafl",
    "adpsgd",
    "async_sharing",
    "cga",
    "compcga",
    "dfedavgm",
    "dispfl",
    "dpsgd",
    "fedap",
    "fedasync",
    "fedavg",
    "fedbuff",
    "fedsa",
    "sgp",
    "swift",
    "twafl",
]

ALGORITHMS: dict[str, Callable[..., Algorithm]] = {
    "async_sharing": async_sharing,
    "fedavg": fedavg,
    "adafl": adafl,
    "fedap": fedap,
    "fedsa": fedsa,
    "twafl": twafl,
    "fedasync": fedasync,
    "fedbuff": fedbuff,
    "dispfl": dispfl,
    "cga": cga,
    "compcga": compcga,
    "dpsgd": dpsgd,
    "dfedavgm": dfedavgm,
    "sgp": sgp,
    "adpsgd": adpsgd,
    "swift": swift,
}
"""Builders by name."""
