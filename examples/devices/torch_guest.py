"""A PyTorch module learns by Algorithm 1: in the simulator, and as nodes that exchange bytes."""

import jax.numpy as jnp
import numpy as np
import torch

import folkman as fm
import folkman.torch

NODES = 4
samples = fm.load("digits", train_size=400)
x, y = torch.from_numpy(samples.x_train), torch.from_numpy(samples.y_train).long()
test = torch.from_numpy(samples.x_test), torch.from_numpy(samples.y_test).long()
parts = [(x[i::NODES], y[i::NODES]) for i in range(NODES)]

torch.manual_seed(0)
module = torch.nn.Sequential(
    torch.nn.Flatten(), torch.nn.Linear(64, 24), torch.nn.ReLU(), torch.nn.Linear(24, 10)
)
problem = folkman.torch.problem(
    module, torch.nn.CrossEntropyLoss(reduction="none"), parts, test=test
)

run = fm.simulate(problem, fm.pipelined(gamma=5), fm.async_sharing(step=0.1), slots=200)
print(f"simulated  loss {run.last('train_loss'):.3f}  accuracy {run.last('test_accuracy'):.3f}")

share = np.asarray(problem.share)
nodes = [fm.Node(i, problem.of_node(i), fm.async_sharing(step=0.1), share) for i in range(NODES)]
for slot in range(200):
    for node in nodes:
        node.wake()
    for sender in nodes:
        if (slot + sender.index) % 5 == 0:  # each on its own beat
            data = sender.send()
            for node in nodes:
                node.receive(data)  # a node refuses its own
model = share @ np.stack([node.params() for node in nodes])
found = problem.evaluate(jnp.asarray(model))
print(f"over bytes loss {found.train_loss:.3f}  accuracy {found.test_accuracy:.3f}")
