"""gossipy: push gossip on a clique.

A node that hears a model merges it with its own and takes one local step.

That is one gradient a node a round on average, as in the others' work, but pairwise mixing in place
of an average of all, and mini-batches of its own: another method, compared by its gradients a
second.
"""

import logging
import os
import sys
import types
from importlib.metadata import version

for name in ("torchvision", "torchvision.transforms", "torchvision.datasets"):
    sys.modules.setdefault(
        name, types.ModuleType(name)
    )  # imported to download data, and not declared

import numpy as np
import protocol
import torch
import torch_models
from gossipy import set_seed
from gossipy.core import AntiEntropyProtocol, CreateModelMode, StaticP2PNetwork
from gossipy.data import DataDispatcher
from gossipy.data.handler import ClassificationDataHandler
from gossipy.model import TorchModel
from gossipy.model.handler import TorchModelHandler
from gossipy.node import GossipNode
from gossipy.simul import GossipSimulator

TIME_STEPS = 100  # a round, as in gossipy's own examples


class Net(TorchModel):
    """A model that starts where all start."""

    def __init__(self, form, initial):
        super().__init__()
        self.net = torch_models.make(form, initial)

    def init_weights(self):
        """Keep the common first model."""

    def forward(self, x):
        """Return the scores."""
        return self.net(x)


def build():
    """Build the data; a repetition starts from fresh nodes."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    logging.disable(logging.INFO)
    task, arrays = protocol.task(), protocol.load_arrays()
    form = protocol.form(task)
    x, y = (torch.from_numpy(part) for part in arrays.samples())
    samples = ClassificationDataHandler(
        x.reshape(-1, x.shape[-1]), y.reshape(-1).long(), test_size=0
    )

    def begin(rounds):
        set_seed(0)
        spread = DataDispatcher(samples, n=task["nodes"], eval_on_user=False)
        prototype = TorchModelHandler(
            net=Net(form, arrays.initial),
            optimizer=torch.optim.SGD,
            optimizer_params={"lr": task["step"]},
            criterion=torch.nn.functional.cross_entropy,
            local_epochs=0 if task["batch"] else 1,
            batch_size=task["batch"] or 0,
            create_model_mode=CreateModelMode.MERGE_UPDATE,
        )
        nodes = GossipNode.generate(
            data_dispatcher=spread,
            p2p_net=StaticP2PNetwork(task["nodes"]),
            model_proto=prototype,
            round_len=TIME_STEPS,
            sync=True,
        )
        simulator = GossipSimulator(
            nodes=nodes, data_dispatcher=spread, delta=TIME_STEPS, protocol=AntiEntropyProtocol.PUSH
        )
        simulator.init_nodes(seed=0)
        return nodes, simulator

    def learn(state, rounds):
        state[1].start(n_rounds=rounds)
        return state

    def model(state):
        nets = [node.model_handler.model.net for node in state[0].values()]
        return np.mean([torch_models.to_flat(form, net.state_dict()) for net in nets], axis=0)

    return protocol.Learner(
        version("gossipy-dfl"), begin, learn, model, notes={"batches": "own", "mixing": "pairs"}
    )


if __name__ == "__main__":
    protocol.serve(build)
