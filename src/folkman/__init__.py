"""Decentralized federated learning with asynchronous parameter sharing: simulate, run and check it.

    import folkman as fm

    results = fm.run()                    # the default; or a TOML file, or a dictionary
    results.plot("bits", "test_accuracy")

The public names, nothing else. They are imported on first use, so that `import folkman` and the
command line start at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from folkman.builders import find_methods

if TYPE_CHECKING:
    from folkman.algorithm import (
        ALGORITHMS,
        Algorithm,
        Assumption,
        Broadcast,
        Declares,
        Inbox,
        Mixing,
        Place,
        Price,
        Rounds,
        Server,
        Star,
    )
    from folkman.algorithm.adafl import adafl
    from folkman.algorithm.adpsgd import adpsgd
    from folkman.algorithm.async_sharing import async_sharing
    from folkman.algorithm.bass import bass
    from folkman.algorithm.cga import cga
    from folkman.algorithm.compcga import compcga
    from folkman.algorithm.dfedavgm import dfedavgm
    from folkman.algorithm.dispfl import dispfl
    from folkman.algorithm.dpsgd import dpsgd
    from folkman.algorithm.fedap import fedap
    from folkman.algorithm.fedasync import fedasync
    from folkman.algorithm.fedavg import fedavg
    from folkman.algorithm.fedbuff import fedbuff
    from folkman.algorithm.feddyn import feddyn
    from folkman.algorithm.fedopt import fedopt
    from folkman.algorithm.fedprox import fedprox
    from folkman.algorithm.fedsa import fedsa
    from folkman.algorithm.hierfavg import hierfavg
    from folkman.algorithm.matcha import matcha
    from folkman.algorithm.method import Number, method
    from folkman.algorithm.ringleader import ringleader
    from folkman.algorithm.ringmaster import ringmaster
    from folkman.algorithm.scaffold import scaffold
    from folkman.algorithm.sgp import sgp
    from folkman.algorithm.swift import swift
    from folkman.algorithm.twafl import twafl
    from folkman.deploy.export import export
    from folkman.deploy.predict import Predictions
    from folkman.energy import Energy
    from folkman.engine.compute_times import ComputeTimes
    from folkman.engine.reference import reference
    from folkman.engine.simulate import Clock, Recording, simulate
    from folkman.experiment.cells import simulate_cells
    from folkman.experiment.rank import Ranked, rank
    from folkman.experiment.run import compare, run
    from folkman.experiment.sweep import sweep
    from folkman.experiment.tune import tune
    from folkman.experiment.tuned import Tuned
    from folkman.faults import Faults
    from folkman.packing import PACKINGS, Packing
    from folkman.problem.cores import use_cores
    from folkman.problem.data import DataSet, load
    from folkman.problem.field import Field, make_field
    from folkman.problem.learnable import Analysable, Evaluation, Learnable
    from folkman.problem.models import (
        MODELS,
        Model,
        cnn,
        linear,
        logistic,
        mlp,
        quadratic,
        softmax,
        svm,
    )
    from folkman.problem.modules import from_equinox, from_flax, from_jax
    from folkman.problem.partition import PARTITIONS, split
    from folkman.problem.problem import Problem, make_problem
    from folkman.problem.projection import PROJECTIONS
    from folkman.problem.sequences import conv1d, gru
    from folkman.problem.speed import fastest
    from folkman.radio import NETWORKS
    from folkman.radio.compressed import Compressed
    from folkman.radio.delay import constant, ideal, iid, pipelined, snapshot
    from folkman.radio.delivery import Network
    from folkman.radio.gains import gains
    from folkman.radio.loss import Lossy
    from folkman.radio.network import RadioNetwork
    from folkman.radio.over_air import over_air
    from folkman.radio.replay import replay
    from folkman.radio.shared import shared
    from folkman.radio.trace import record_timeline
    from folkman.record.run import Run
    from folkman.report.figures import draw_curves, draw_labels
    from folkman.report.notebook import Results, plot, read_results
    from folkman.runtime.node import Node
    from folkman.runtime.server_node import ServerNode

__version__ = "0.2.0"

_METHODS = find_methods()
"""Each lives in a file of its own name."""

_HOMES = {
    "folkman.algorithm": (
        "ALGORITHMS Algorithm Assumption Broadcast Declares Inbox Mixing Place Price "
        "Rounds Server Star"
    ),
    "folkman.algorithm.method": "Number method",
    **{f"folkman.algorithm.{name}": name for name in _METHODS},
    "folkman.deploy.export": "export",
    "folkman.deploy.predict": "Predictions",
    "folkman.energy": "Energy",
    "folkman.engine.compute_times": "ComputeTimes",
    "folkman.engine.reference": "reference",
    "folkman.engine.simulate": "Clock Recording simulate",
    "folkman.experiment.cells": "simulate_cells",
    "folkman.experiment.rank": "Ranked rank",
    "folkman.experiment.run": "compare run",
    "folkman.experiment.sweep": "sweep",
    "folkman.experiment.tune": "tune",
    "folkman.experiment.tuned": "Tuned",
    "folkman.faults": "Faults",
    "folkman.packing": "PACKINGS Packing",
    "folkman.problem.cores": "use_cores",
    "folkman.problem.data": "DataSet load",
    "folkman.problem.field": "Field make_field",
    "folkman.problem.learnable": "Analysable Evaluation Learnable",
    "folkman.problem.models": "MODELS Model cnn linear logistic mlp quadratic softmax svm",
    "folkman.problem.modules": "from_equinox from_flax from_jax",
    "folkman.problem.partition": "PARTITIONS split",
    "folkman.problem.problem": "Problem make_problem",
    "folkman.problem.projection": "PROJECTIONS",
    "folkman.problem.sequences": "conv1d gru",
    "folkman.problem.speed": "fastest",
    "folkman.radio": "NETWORKS",
    "folkman.radio.compressed": "Compressed",
    "folkman.radio.delay": "constant ideal iid pipelined snapshot",
    "folkman.radio.delivery": "Network",
    "folkman.radio.gains": "gains",
    "folkman.radio.loss": "Lossy",
    "folkman.radio.network": "RadioNetwork",
    "folkman.radio.over_air": "over_air",
    "folkman.radio.replay": "replay",
    "folkman.radio.shared": "shared",
    "folkman.radio.trace": "record_timeline",
    "folkman.record.run": "Run",
    "folkman.report.figures": "draw_curves draw_labels",
    "folkman.report.notebook": "Results plot read_results",
    "folkman.runtime.node": "Node",
    "folkman.runtime.server_node": "ServerNode",
}
"""Where each public name lives; type checkers read the imports above, and a test compares the
two."""
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [
    "ALGORITHMS",
    "MODELS",
    "NETWORKS",
    "PACKINGS",
    "PARTITIONS",
    "PROJECTIONS",
    "Algorithm",
    "Analysable",
    "Assumption",
    "Broadcast",
    "Clock",
    "Compressed",
    "ComputeTimes",
    "DataSet",
    "Declares",
    "Energy",
    "Evaluation",
    "Faults",
    "Field",
    "Inbox",
    "Learnable",
    "Lossy",
    "Mixing",
    "Model",
    "Network",
    "Node",
    "Number",
    "Packing",
    "Place",
    "Predictions",
    "Price",
    "Problem",
    "RadioNetwork",
    "Ranked",
    "Recording",
    "Results",
    "Rounds",
    "Run",
    "Server",
    "ServerNode",
    "Star",
    "Tuned",
    "adafl",
    "adpsgd",
    "async_sharing",
    "bass",
    "cga",
    "cnn",
    "compare",
    "compcga",
    "constant",
    "conv1d",
    "dfedavgm",
    "dispfl",
    "dpsgd",
    "draw_curves",
    "draw_labels",
    "export",
    "fastest",
    "fedap",
    "fedasync",
    "fedavg",
    "fedbuff",
    "feddyn",
    "fedopt",
    "fedprox",
    "fedsa",
    "from_equinox",
    "from_flax",
    "from_jax",
    "gains",
    "gru",
    "hierfavg",
    "ideal",
    "iid",
    "linear",
    "load",
    "logistic",
    "make_field",
    "make_problem",
    "matcha",
    "method",
    "mlp",
    "over_air",
    "pipelined",
    "plot",
    "quadratic",
    "rank",
    "read_results",
    "record_timeline",
    "reference",
    "replay",
    "ringleader",
    "ringmaster",
    "run",
    "scaffold",
    "sgp",
    "shared",
    "simulate",
    "simulate_cells",
    "snapshot",
    "softmax",
    "split",
    "svm",
    "sweep",
    "swift",
    "tune",
    "twafl",
    "use_cores",
]
__all__ += [name for name in _METHODS if name not in __all__]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'folkman' has no attribute '{name}'")
    from folkman.config.helped import helped

    return helped(getattr(import_module(_HOME[name]), name))


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
