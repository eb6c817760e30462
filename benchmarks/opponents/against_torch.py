"""PyTorch by hand, in one process: a loop over nodes with the tuned CNN.

For dense models the better of that and vmap.
"""

import os
import time

import protocol
import torch
import torch_models
from torch.func import functional_call, grad, stack_module_state, vmap

Learner = protocol.Learner


def build():
    """Choose the way: the loop for the CNN, whichever is faster for dense models.

    All samples of nodes that hold unequal many are no one array, so they leave the loop alone.
    """
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    task, arrays = protocol.task(), protocol.load_arrays()
    x, y = (torch.from_numpy(part) for part in arrays.samples())
    y = y.long()
    loop = _loop(task, arrays, x, y)
    if task["model"] == "cnn" or (arrays.draws is None and arrays.counts is not None):
        return loop
    return min([loop, _vmapped(task, arrays, x, y)], key=_quick_trial)


def _quick_trial(learner):
    learner.learn(learner.begin(1), 1)
    state, begun = learner.begin(3), time.perf_counter()
    learner.learn(state, 3)
    return time.perf_counter() - begun


def _loop(task, arrays, x, y):
    nodes, cell, form = task["nodes"], task["cell"] or task["nodes"], protocol.form(task)
    nets = [torch_models.make(form, arrays.initial, tuned=True) for _ in range(nodes)]
    optimizers = [torch.optim.SGD(net.parameters(), lr=task["step"]) for net in nets]
    start, shares = torch_models.from_flat(form, arrays.initial), _shares(arrays)
    draws = _draws(arrays)

    def begin(rounds):
        for net in nets:
            net.load_state_dict(start)

    def learn(state, rounds):
        for k in range(rounds):
            for i, (net, optimizer) in enumerate(zip(nets, optimizers)):
                rows = arrays.rows(k, i) if draws is None else draws[k, i]
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(net(x[i, rows]), y[i, rows]).backward()
                optimizer.step()
            for first in range(0, nodes, cell):
                _average(nets[first : first + cell], shares)

    def model(state):
        return sum(torch_models.to_flat(form, net.state_dict()) for net in nets) / nodes

    return Learner(torch.__version__, begin, learn, model, notes={"way": "loop"})


def _draws(arrays):
    return None if arrays.draws is None else torch.from_numpy(arrays.draws).long()


def _shares(arrays):
    return None if arrays.shares is None else torch.from_numpy(arrays.shares).float()


def _mean(stacked, shares):
    return stacked.mean(0) if shares is None else torch.tensordot(shares, stacked, 1)


@torch.no_grad()
def _average(nets, shares):
    for copies in zip(*(net.parameters() for net in nets)):
        mean = _mean(torch.stack(copies), shares)
        for copy in copies:
            copy.copy_(mean)


def _vmapped(task, arrays, x, y):
    nodes, cell, form = task["nodes"], task["cell"] or task["nodes"], protocol.form(task)
    net, shares = torch_models.make(form, arrays.initial), _shares(arrays)
    draws, rows = _draws(arrays), torch.arange(nodes)[:, None]

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
            params = {name: _mean_of_cells(value, cell, shares) for name, value in params.items()}
        return params

    def model(params):
        return torch_models.to_flat(form, {name: value.mean(0) for name, value in params.items()})

    return Learner(torch.__version__, begin, learn, model, notes={"way": "vmap"})


def _mean_of_cells(value, cell, shares):
    if shares is not None:
        return _mean(value, shares).expand_as(value)
    cells = value.reshape(-1, cell, *value.shape[1:])
    return cells.mean(1, keepdim=True).expand_as(cells).reshape(value.shape)


if __name__ == "__main__":
    protocol.serve(build)
