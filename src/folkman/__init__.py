"""Decentralized federated learning with asynchronous parameter sharing: simulate it, run it, check it.

The public names, nothing else. They are imported on first use, so that `import folkman` and the command line
start at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from folkman.algorithm import ALGORITHMS, Algorithm, Assumption, Inbox, Place, Server
    from folkman.algorithm.async_sharing import async_sharing
    from folkman.algorithm.dpsgd import dpsgd
    from folkman.algorithm.fedavg import fedavg
    from folkman.engine.cells import simulate_cells
    from folkman.engine.reference import reference
    from folkman.engine.simulate import Clock, Recording, simulate
    from folkman.faults import Faults
    from folkman.problem.cores import use_cores
    from folkman.problem.data import DataSet, load
    from folkman.problem.field import Field, make_field
    from folkman.problem.models import MODELS, Model
    from folkman.problem.partition import split
    from folkman.problem.problem import Problem, make_problem
    from folkman.problem.projection import PROJECTIONS
    from folkman.radio import NETWORKS
    from folkman.radio.delay import constant, ideal, iid, pipelined, snapshot
    from folkman.radio.trace import record_timeline, replay
    from folkman.record.run import Run
    from folkman.report.figures import draw_curves, draw_labels
    from folkman.report.notebook import Results, read_results
    from folkman.runtime.node import Node, ServerNode

__version__ = "0.1.0"

_HOMES = {
    "folkman.algorithm": (
        "ALGORITHMS",
        "Algorithm",
        "Assumption",
        "Inbox",
        "Place",
        "Server",
    ),
    "folkman.algorithm.async_sharing": ("async_sharing",),
    "folkman.algorithm.dpsgd": ("dpsgd",),
    "folkman.algorithm.fedavg": ("fedavg",),
    "folkman.engine.cells": ("simulate_cells",),
    "folkman.faults": ("Faults",),
    "folkman.engine.reference": ("reference",),
    "folkman.engine.simulate": ("Clock", "Recording", "simulate"),
    "folkman.problem.cores": ("use_cores",),
    "folkman.problem.data": ("DataSet", "load"),
    "folkman.problem.field": ("Field", "make_field"),
    "folkman.problem.models": ("MODELS", "Model"),
    "folkman.problem.partition": ("split",),
    "folkman.problem.problem": ("Problem", "make_problem"),
    "folkman.problem.projection": ("PROJECTIONS",),
    "folkman.radio": ("NETWORKS",),
    "folkman.radio.delay": ("constant", "ideal", "iid", "pipelined", "snapshot"),
    "folkman.radio.trace": ("record_timeline", "replay"),
    "folkman.record.run": ("Run",),
    "folkman.report.figures": ("draw_curves", "draw_labels"),
    "folkman.report.notebook": ("Results", "read_results"),
    "folkman.runtime.node": ("Node", "ServerNode"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "ALGORITHMS",
    "MODELS",
    "NETWORKS",
    "PROJECTIONS",
    "Algorithm",
    "Assumption",
    "Clock",
    "DataSet",
    "Faults",
    "Field",
    "Inbox",
    "Model",
    "Node",
    "Place",
    "Problem",
    "Recording",
    "Results",
    "Run",
    "Server",
    "ServerNode",
    "async_sharing",
    "constant",
    "dpsgd",
    "draw_curves",
    "draw_labels",
    "fedavg",
    "ideal",
    "iid",
    "load",
    "make_field",
    "make_problem",
    "pipelined",
    "read_results",
    "record_timeline",
    "reference",
    "replay",
    "simulate",
    "simulate_cells",
    "snapshot",
    "split",
    "use_cores",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'folkman' has no attribute '{name}'")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
