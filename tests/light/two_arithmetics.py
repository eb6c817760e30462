"""Small clusters of nodes inside one process, for JAX and for NumPy: `python two_arithmetics.py F`
runs all of them without JAX and writes what the nodes held to F.

A message reaches its receivers in most slots and is lost in others, by a fixed rule, so that
copies have ages.
"""

import sys
from pathlib import Path

import numpy as np

NODES, SLOTS, SAMPLES, FEATURES, CLASSES = 3, 24, 10, 5, 3
REFUSED = ("jax", "jaxlib", "jaxtyping", "scipy", "sklearn", "pyarrow", "matplotlib", "optax")
STEP = {"step": 0.3}

PEERS = {
    "plain": ("async_sharing", STEP),
    "local": ("async_sharing", STEP | {"scaling": "local"}),
    "figure": ("async_sharing", STEP | {"scaling": "figure"}),
    "momentum": ("async_sharing", STEP | {"momentum": 0.7}),
    "network": ("async_sharing", STEP | {"network_momentum": 0.75, "own": "centred"}),
    "max_age": ("async_sharing", STEP | {"max_age": 1}),
    "warmup": ("async_sharing", STEP | {"warmup_steps": 5, "schedule": ((6, 0.5), (12, 0.1))}),
    **{
        f"decay_{name}": ("async_sharing", STEP | {"decay": name, "decay_steps": 9})
        for name in ("cosine", "exponential", "inverse_sqrt")
    },
    **{
        f"own_{name}": ("async_sharing", STEP | {"own": name, "memory": 8})
        for name in ("aligned", "predicted", "measured", "centred", "adaptive", 0.5)
    },
    **{
        f"rule_{name}": ("async_sharing", STEP | {"rule": name})
        for name in ("trimmed_mean", "median", "krum")
    },
    **{
        f"delay_{name}": ("async_sharing", STEP | {"delay_policy": name})
        for name in ("staleness", "koloskova", "mishchenko", "wu_1", "wu_2", "stable")
    },
    "dpsgd": ("dpsgd", STEP),
    "dpsgd_ring": ("dpsgd", STEP | {"topology": "ring"}),
    "dpsgd_given": ("dpsgd", STEP | {"topology": "edges: 0-1 1-2 | 2-0"}),
    "dfedavgm": ("dfedavgm", STEP | {"local_steps": 2, "momentum": 0.5}),
    "sgp": ("sgp", STEP),
    "swift": ("swift", STEP),
    "adpsgd": ("adpsgd", STEP),
    "dispfl": ("dispfl", STEP),
    "dsgt": ("dsgt", STEP | {"topology": "directed_ring"}),
    "exact_diffusion": ("exact_diffusion", STEP | {"weight_decay": 0.01}),
    "edm": ("edm", STEP | {"clip_norm": 0.5}),
    "proxskip": ("proxskip", STEP),
    "rfast": ("rfast", STEP),
    "choco": ("choco", STEP),
    "epidemic": ("epidemic", STEP),
    "divshare": ("divshare", STEP),
    "draco": ("draco", STEP),
    "dfl_aa": ("dfl_aa", STEP),
    "ncota_dgd": ("ncota_dgd", STEP),
    "dfedsam": ("dfedsam", STEP | {"local_steps": 2}),
    "async_dgd": ("async_dgd", STEP),
    "a2cid2": ("a2cid2", STEP | {"topology": "bipartite"}),
}
"""Methods between peers that a node runs under both: name -> (method, options)."""

MODELS = {"softmax": {}, "mlp": {"hidden": (4,)}}
MODELS |= {"conv1d": {"channels": (3,), "width": 2}, "gru": {"hidden": 3}}


class Refusal:
    """A finder of modules that lets no heavy package be imported."""

    def find_spec(self, name, *_):
        if name.split(".")[0] in REFUSED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def data_of(node):
    """Return the samples of a node."""
    from folkman.problem.data import DataSet

    rng = np.random.default_rng(100 + node)
    x = rng.normal(size=(SAMPLES, FEATURES)).astype(np.float32)
    y = rng.integers(0, CLASSES, SAMPLES).astype(np.int32)
    return DataSet(f"part{node}", x, y, x[:0], y[:0], CLASSES)


def problem_of(node, name, batch, sampling):
    """Return the problem of a node, with gradients by the arithmetic of this process."""
    from folkman.arithmetic import chosen
    from folkman.problem.by_hand import make_hand_problem
    from folkman.problem.models import MODELS as BUILDERS

    model = BUILDERS[name]((FEATURES,), CLASSES, **MODELS[name])
    options = {"batch": batch, "l2": 0.01, "seed": 5, "sampling": sampling}
    if chosen().name == "numpy":
        return make_hand_problem(data_of(node), model, [np.arange(SAMPLES)], **options)
    from folkman.problem.problem import make_problem

    return make_problem(data_of(node), model, [np.arange(SAMPLES)], **options)


def told(slot, sender, receiver):
    """Tell whether a message of this slot arrives."""
    return (3 * slot + 5 * sender + 2 * receiver) % 4 != 0


def run(method, options, model="softmax", batch=4, sampling="replacement"):
    """Return what each node's parameters and model are in the end, and its losses on the way."""
    from folkman.algorithm import ALGORITHMS
    from folkman.runtime.node import Node

    algorithm = ALGORITHMS[method](**options)
    shares = np.array([0.5, 0.3, 0.2])
    nodes = [
        Node(i, problem_of(i, model, batch, sampling), algorithm, shares, run=1, seed=3)
        for i in range(NODES)
    ]
    losses, sent = [], {}
    for slot in range(SLOTS):
        for node in nodes:
            place = (node.steps, node.mailbox.round)
            if node.offers() and sent.get(node.index) != place:
                sent[node.index] = place
                data = node.send()
                for receiver in node.receivers(max(node.mailbox.round, 1)):
                    if node.way.waits or told(slot, node.index, receiver):
                        nodes[receiver].receive(data)
        for node in nodes:
            node.wake()
        losses.append([node.loss for node in nodes])
    return {
        "params": np.stack([node.params() for node in nodes]),
        "model": np.stack([node.model() for node in nodes]),
        "losses": np.array(losses),
        "heard": np.stack([node.mailbox.sequence for node in nodes]),
    }


STARS = {
    "fedavg": ("fedavg", STEP | {"local_steps": 2}),
    "fedavg_some": ("fedavg", STEP | {"participation": 0.6, "server": "adam", "server_step": 0.1}),
    "scaffold": ("scaffold", STEP | {"local_steps": 2, "participation": 0.6}),
    "feddyn": ("feddyn", STEP | {"local_steps": 2, "alpha": 1.0}),
    "ringmaster": ("ringmaster", STEP | {"max_delay": 3, "stops": True}),
    "ringleader": ("ringleader", STEP),
    "fedasync": ("fedasync", STEP),
    "fedasync_some": ("fedasync", STEP | {"participation": 0.6}),
    "fedbuff": ("fedbuff", STEP),
    "fedsa": ("fedsa", STEP),
    "fedap": ("fedap", STEP | {"selection": "random"}),
    "adafl": ("adafl", {}),
    "twafl": ("twafl", STEP | {"shapes": ((CLASSES, FEATURES), (CLASSES,))}),
}
"""Methods around a server that run under both."""


def run_around(method, options):
    """Return what the nodes and the server hold in the end."""
    from folkman.algorithm import ALGORITHMS
    from folkman.runtime.node import Node
    from folkman.runtime.server_node import ServerNode

    algorithm, shares = ALGORITHMS[method](**options), np.array([0.5, 0.3, 0.2])
    problems = [problem_of(i, "softmax", 4, "replacement") for i in range(NODES)]
    nodes = [Node(i, own, algorithm, shares, run=1, seed=3) for i, own in enumerate(problems)]
    server = ServerNode(problems[0].initial, algorithm, shares, run=1, seed=3)
    sent = {}
    for _ in range(SLOTS):
        for node in nodes:
            place = (node.steps, int(node.mailbox.sequence[0]))
            if node.offers() and sent.get(node.index) != place:
                sent[node.index] = place
                server.receive(node.send())
        asked = []
        if server.complete() and server.wake():
            asked = [int(peer) for peer in np.flatnonzero(server.offers())]
        for peer, data in (server.answers(asked)[0] if asked else {}).items():
            nodes[peer].receive(data)
        for node in nodes:
            node.wake()
    return {
        "params": np.stack([node.params() for node in nodes]),
        "model": server.params(),
        "rounds": np.array(server.steps),
    }


CELLS = {
    "hierfavg": {"step": 0.3, "cells": 2, "local_steps": 2, "global_every": 2},
    "hierfavg_every_round": {"step": 0.3, "cells": 2, "local_steps": 1, "global_every": 1},
}
"""Options of hierfavg, which has stations and a root."""


def run_in_cells(options):
    """Return what nodes, stations and the root hold in the end."""
    from folkman.algorithm import ALGORITHMS
    from folkman.runtime.hierarchy import RootNode, StationNode
    from folkman.runtime.node import Node

    algorithm, shares = ALGORITHMS["hierfavg"](**options), np.array([0.5, 0.3, 0.2])
    problems = [problem_of(i, "softmax", 4, "replacement") for i in range(NODES)]
    nodes = [Node(i, own, algorithm, shares, run=1, seed=3) for i, own in enumerate(problems)]
    first = problems[0].initial
    stations = [StationNode(k, first, algorithm, shares, run=1, seed=3) for k in range(2)]
    root, sent = RootNode(first, algorithm, shares, run=1, seed=3), {}
    for _ in range(SLOTS):
        for node in nodes:
            place = (node.steps, int(node.mailbox.sequence[0]))
            if node.offers() and sent.get(node.index) != place:
                sent[node.index] = place
                data = node.send()
                for station in stations:
                    if node.index in station.neighbours:
                        station.receive(data)
        answering = [station for station in stations if station.complete() and station.wake()]
        for station in stations:
            if station.asks():
                root.receive(station.ask())
        if root.complete() and root.wake():
            told = root.send()
            answering += [station for station in stations if station.hear(told)]
        for station in answering:
            data = station.send()
            for peer in station.neighbours:
                nodes[peer].receive(data)
        for node in nodes:
            node.wake()
    return {
        "params": np.stack([node.params() for node in nodes]),
        "stations": np.stack([station.params() for station in stations]),
        "model": root.params(),
        "rounds": np.array([root.steps, *(station.steps for station in stations)]),
    }


PACKINGS = ("float32", "float16", "int8", "fixed", "qsgd", "sign", "top_k", "rand_k")


def packed(name):
    """Return the bytes of a message under a packing."""
    from folkman.keys import Stream, make_key
    from folkman.packing import PACKINGS as BUILDERS
    from folkman.packing import wire

    params = np.random.default_rng(2).normal(size=333).astype(np.float32)
    packing = BUILDERS[name]()
    assert packing is not None
    data = wire.write(packing, params, len(params), make_key(3, Stream.PACKING))
    return {"bytes": np.frombuffer(data, np.uint8)}


MESSAGES = ("copy", "forward", "sum")
LAWS = {
    **{f"shared_{message}": ("shared", {"slots": 1.5, "message": message}) for message in MESSAGES},
    "shared_heard": ("shared", {"slots": 0.4, "control": "heard", "contention_slots": 0.1}),
    "constant": ("constant", {"delay": 2}),
    **{law: (law, {"gamma": 3}) for law in ("snapshot", "iid", "pipelined")},
}
"""Networks that a node emulates under both: name -> (network, options)."""


def emulated(name, options):
    """Return what a network between peers says in each slot; the last node offers every second."""
    from folkman.arrays import jax, jnp
    from folkman.keys import Stream, make_key
    from folkman.radio import NETWORKS

    peers, key = NETWORKS[name](**options).peers(), make_key(3, Stream.DELAY)
    step, state, said = jax.jit(peers.step), peers.init(NODES, key), []
    for slot in range(12):
        offers = jnp.asarray([True, True, slot % 2 == 0])
        state, found = step(state, offers, 1000, jax.random.fold_in(key, slot))
        said.append([np.asarray(part) for part in (found.held, found.sends, found.linked)])
    held, sends, linked = map(np.stack, zip(*said, strict=True))
    return {"held": held, "sends": sends, "linked": linked}


def chosen_air(message):
    """Return who is to send what to whom, for ages, costs and weights that were drawn."""
    from folkman.arrays import jnp
    from folkman.radio import fresh

    rng = np.random.default_rng(7)
    ages, cost = rng.integers(0, 9, (5, 5)), rng.uniform(1, 4, (5, 5)).astype(np.float32)
    np.fill_diagonal(ages, 0)
    omega = jnp.asarray(rng.uniform(0.5, 1, (5, 5)).astype(np.float32))
    found = fresh.choose(jnp.asarray(ages), jnp.asarray(cost), omega, message, 1.2)
    return {part: np.asarray(value) for part, value in found._asdict().items()}


def cases():
    """Return all cases: name -> arguments of `run`."""
    found = dict(PEERS)
    for model in MODELS:
        for batch, sampling in ((None, "replacement"), (4, "replacement"), (4, "epochs")):
            name = f"{model}_{batch}_{sampling}"
            found[name] = ("async_sharing", STEP, model, batch, sampling)
    return found


if __name__ == "__main__":
    sys.meta_path.insert(0, Refusal())
    held = {
        f"{name}/{part}": value
        for name, case in cases().items()
        for part, value in run(*case).items()
    }
    held |= {
        f"{name}/{part}": value
        for name, case in STARS.items()
        for part, value in run_around(*case).items()
    }
    held |= {
        f"{name}/{part}": value
        for name, options in CELLS.items()
        for part, value in run_in_cells(options).items()
    }
    held |= {
        f"{name}/{part}": value
        for name, case in LAWS.items()
        for part, value in emulated(*case).items()
    }
    held |= {
        f"fresh_{name}/{part}": value
        for name in MESSAGES
        for part, value in chosen_air(name).items()
    }
    held |= {f"{name}/bytes": packed(name)["bytes"] for name in PACKINGS}
    np.savez(Path(sys.argv[1]), **held)
    from folkman.arithmetic import chosen

    print(chosen().name, chosen().why, sorted(set(REFUSED) & set(sys.modules)))
