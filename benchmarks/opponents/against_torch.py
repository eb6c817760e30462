"""PyTorch by hand, in one process: a loop over nodes with the tuned CNN.

For softmax the better of that and vmap.
"""

import os
import time

import protocol
import torch
import torch_models
from torch.func import functional_call, grad, stack_module_state, vmap

Learner = protocol.Learner


def build():
    """Choose the way: the loop for the CNN, whichever is faster for softmax."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    task, arrays = protocol.task(), protocol.load_arrays()
    x, y = (torch.from_numpy(part) for part in arrays.samples())
    y = y.long()
    draws = None if arrays.draws is None else torch.from_numpy(arrays.draws).long()
    loop = _loop(task, arrays.initial, x, y, draws)
    if task["model"] == "cnn":
        return loop
    ways = [loop, _vmapped(task, arrays.initial, x, y, draws)]
    return min(ways, key=_quick_trial)


def _quick_trial(learner):
    learner.learn(learner.begin(1), 1)
    state, begun = learner.begin(3), time.perf_counter()
    learner.learn(state, 3)
    return time.perf_counter() - begun


def _loop(task, initial, x, y, draws):
    nodes, cell = task["nodes"], task["cell"] or task["nodes"]
    nets = [torch_models.make(task["model"], initial, tuned=True) for _ in range(nodes)]
    optimizers = [torch.optim.SGD(net.parameters(), lr=task["step"]) for net in nets]
    start = torch_models.from_flat(task["model"], initial)

    def begin(rounds):
        for net in nets:
            net.load_state_dict(start)

    def learn(state, rounds):
        for k in range(rounds):
            for i, (net, optimizer) in enumerate(zip(nets, optimizers)):
                rows = slice(None) if draws is None else draws[k, i]
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(net(x[i, rows]), y[i, rows]).backward()
                optimizer.step()
            for first in range(0, nodes, cell):
                _average(nets[first : first + cell])

    def model(state):
        return sum(torch_models.to_flat(task["model"], net.state_dict()) for net in nets) / nodes

    return Learner(torch.__version__, begin, learn, model, notes={"way": "loop"})


@torch.no_grad()
def _average(nets):
    for copies in zip(*(net.parameters() for net in nets)):
        mean = torch.stack(copies).mean(0)
        for copy in copies:
            copy.copy_(mean)


def _vmapped(task, initial, x, y, draws):
    nodes, cell = task["nodes"], task["cell"] or task["nodes"]
    net = torch_models.make(task["model"], initial)
    rows = torch.arange(nodes)[:, None]

    def loss(params, xs, ys):
        return torch.nn.functional.cross_entropy(functional_call(net, params, (xs,)), ys)

    gradients = vmap(grad(loss))

    def begin(rounds):
        params, _ = stack_module_state([net] * nodes)
        return {name: value.detach() for name, value in params.items()}

    def learn(params, rounds):
        for k in range(rounds):
            xs, ys = (x, y) if draws is None else (x[rows, draws[k]], y[rows, draws[k]])
            found = gradients(params, xs, ys)
            params = {name: value - task["step"] * found[name] for name, value in params.items()}
            params = {name: _mean_of_cells(value, cell) for name, value in params.items()}
        return params

    def model(params):
        return torch_models.to_flat(
            task["model"], {name: value.mean(0) for name, value in params.items()}
        )

    return Learner(torch.__version__, begin, learn, model, notes={"way": "vmap"})


def _mean_of_cells(value, cell):
    cells = value.reshape(-1, cell, *value.shape[1:])
    return cells.mean(1, keepdim=True).expand_as(cells).reshape(value.shape)


if __name__ == "__main__":
    protocol.serve(build)
