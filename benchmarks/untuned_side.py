"""One side of `benchmarks/untuned.py`: SIDE WORK BATCH.

Reads numbers of slots and writes what they took.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

STEP, CLASSES = 0.01, 10


class Work(NamedTuple):
    """A model on nodes; `kernels` are the outputs of 5x5 convolutions, each pooled by two."""

    nodes: int
    hidden: tuple[int, ...] = ()
    kernels: tuple[int, ...] = ()


WORKS = {
    "mlp": Work(20, hidden=(128,)),
    "wide": Work(10, hidden=(512, 256)),
    "small": Work(10, hidden=(64,), kernels=(8, 16)),
    "softmax": Work(100),
}

Run = Callable[[int], object]


def shapes(work: Work) -> list[tuple[int, ...]]:
    """Return the kernels of all layers, (height, width, inputs, outputs) or (inputs, outputs)."""
    found: list[tuple[int, ...]] = []
    channels, side = 1, 28
    for outputs in work.kernels:
        found.append((5, 5, channels, outputs))
        channels, side = outputs, side // 2
    widths = (side * side * channels, *work.hidden, CLASSES)
    return found + list(pairwise(widths))


def samples(work: Work, batch: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return samples (node, n, 28, 28, 1), labels, and the batches of 64 slots."""
    draws = np.random.default_rng(0)
    n = max(100, batch)
    x = draws.random((work.nodes, n, 28, 28, 1), np.float32)
    y = draws.integers(0, CLASSES, (work.nodes, n))
    return x, y, draws.integers(0, n, (64, work.nodes, batch))


def parameters(work: Work) -> list[np.ndarray]:
    """Return kernels and biases in turn."""
    draws, found = np.random.default_rng(1), []
    for shape in shapes(work):
        scale = np.sqrt(2 / np.prod(shape[:-1]))
        found += [np.float32(scale) * draws.standard_normal(shape, np.float32)]
        found += [np.zeros(shape[-1], np.float32)]
    return found


def scores_in_jax(tensors: list[Any], x: Any) -> Any:
    """Return the scores of images (n, 28, 28, 1)."""
    import jax

    h = x
    for at in range(0, len(tensors), 2):
        kernel, bias = tensors[at], tensors[at + 1]
        if kernel.ndim == 4:
            names = ("NHWC", "HWIO", "NHWC")
            h = jax.lax.conv_general_dilated(h, kernel, (1, 1), "SAME", dimension_numbers=names)
            h = jax.nn.relu(h + bias[None, None, None])
            n, height, width, channels = h.shape
            h = h.reshape(n, height // 2, 2, width // 2, 2, channels).max((2, 4))
            continue
        h = h.reshape(len(h), -1) @ kernel + bias[None]
        h = jax.nn.relu(h) if at + 2 < len(tensors) else h
    return h


def folkman(work: Work, batch: int) -> tuple[Run, str]:
    """Run the engine: FedAvg with one local step on a free network."""
    import jax
    import jax.numpy as jnp

    import folkman as fm
    from folkman.engine.simulate import Simulation, march, start
    from folkman.problem.data import DataSet

    x, y, _ = samples(work, batch)
    images = x.reshape(-1, 28, 28, 1)
    data = DataSet("drawn", images, y.reshape(-1), images[:0], y[0, :0], CLASSES)
    model = fm.mlp((28, 28, 1), CLASSES, hidden=work.hidden)
    if not work.hidden:
        model = fm.softmax((28, 28, 1), CLASSES)
    if work.kernels:
        given = parameters(work)
        model = fm.from_jax(
            lambda _: [jnp.asarray(each) for each in given],
            scores_in_jax,
            (28, 28, 1),
            convolutional=True,
        )
    parts = list(np.arange(len(images)).reshape(work.nodes, -1))
    problem = fm.fastest(fm.make_problem(data, model, parts, batch=batch))
    recording = fm.Recording(every=2**30)
    simulation = Simulation(problem, fm.ideal(), fm.fedavg(step=STEP), fm.Clock(), recording)
    path: list[Any] = []

    def run(slots: int) -> object:
        if not path:
            return path.append(prepared(slots))
        *_, (mark, _) = path.pop()
        return jax.block_until_ready(mark)

    def prepared(slots: int) -> Any:
        steps = march(simulation, start(simulation, 0), slots)
        next(steps)  # the evaluation of the first slot
        return steps

    return run, problem.way or "default"


def torch_module(work: Work) -> Any:
    """Return the model as one writes it in PyTorch."""
    from torch import nn

    layers: list[Any] = []
    for at, shape in enumerate(shapes(work)):
        if len(shape) == 4:
            layers += [nn.Conv2d(shape[2], shape[3], 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)]
            continue
        flat = not any(isinstance(each, nn.Flatten) for each in layers)
        layers += [nn.Flatten()] if flat else []
        layers += [nn.Linear(shape[0], shape[1])]
        layers += [nn.ReLU()] if at + 1 < len(shapes(work)) else []
    return nn.Sequential(*layers)


def torch_vmap(work: Work, batch: int) -> tuple[Run, str]:
    """Map `torch.func.grad` over the nodes."""
    import torch
    from torch.func import functional_call, grad, stack_module_state, vmap

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    net = torch_module(work)
    x, y, rows = (torch.from_numpy(each) for each in samples(work, batch))
    x = x.permute(0, 1, 4, 2, 3).contiguous()
    nodes = torch.arange(work.nodes)[:, None]

    def loss(p: Any, xs: Any, ys: Any) -> Any:
        return torch.nn.functional.cross_entropy(functional_call(net, p, (xs,)), ys)

    gradients = vmap(grad(loss))

    def run(slots: int) -> object:
        p, _ = stack_module_state([net] * work.nodes)
        p = {name: value.detach() for name, value in p.items()}
        for k in range(slots):
            at = rows[k % len(rows)]
            found = gradients(p, x[nodes, at], y[nodes, at])
            p = {name: value - STEP * found[name] for name, value in p.items()}
            p = {
                name: value.mean(0, keepdim=True).expand_as(value).reshape(value.shape)
                for name, value in p.items()
            }
        return p

    return run, "vmap"


def torch_loop(work: Work, batch: int) -> tuple[Run, str]:
    """Take node after node, as one writes it."""
    import torch

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    nets = [torch_module(work) for _ in range(work.nodes)]
    steps = [torch.optim.SGD(net.parameters(), lr=STEP) for net in nets]
    x, y, rows = (torch.from_numpy(each) for each in samples(work, batch))
    x = x.permute(0, 1, 4, 2, 3).contiguous()

    def run(slots: int) -> object:
        for k in range(slots):
            for i, (net, step) in enumerate(zip(nets, steps, strict=True)):
                at = rows[k % len(rows), i]
                step.zero_grad()
                torch.nn.functional.cross_entropy(net(x[i, at]), y[i, at]).backward()
                step.step()
            with torch.no_grad():
                for copies in zip(*(net.parameters() for net in nets), strict=True):
                    mean = torch.stack(copies).mean(0)
                    for copy in copies:
                        copy.copy_(mean)
        return None

    return run, "loop"


def _jax_step(p: Any, x: Any, y: Any, at: Any) -> Any:
    import jax
    import jax.numpy as jnp

    def loss(tensors: Any) -> Any:
        odds = jax.nn.log_softmax(scores_in_jax(tensors, x[at]))
        return -jnp.take_along_axis(odds, y[at][:, None], 1).mean()

    return jax.tree.map(lambda value, found: value - STEP * found, p, jax.grad(loss)(p))


def jax_vmap(work: Work, batch: int) -> tuple[Run, str]:
    """Map a jitted step over the nodes."""
    import jax
    import jax.numpy as jnp

    x, y, rows = (jnp.asarray(each) for each in samples(work, batch))
    first = [jnp.asarray(each) for each in parameters(work)]

    @jax.jit
    def slot(p: Any, at: Any) -> Any:
        p = jax.vmap(_jax_step)(p, x, y, at)
        return jax.tree.map(lambda v: jnp.broadcast_to(v.mean(0, keepdims=True), v.shape), p)

    def run(slots: int) -> object:
        p = jax.tree.map(lambda v: jnp.broadcast_to(v, (work.nodes, *v.shape)), first)
        for k in range(slots):
            p = slot(p, rows[k % len(rows)])
        return jax.block_until_ready(p)

    return run, "vmap"


def jax_loop(work: Work, batch: int) -> tuple[Run, str]:
    """Call a jitted step for node after node."""
    import jax
    import jax.numpy as jnp

    x, y, rows = samples(work, batch)
    xs, ys = [jnp.asarray(each) for each in x], [jnp.asarray(each) for each in y]
    step = jax.jit(_jax_step)
    average = jax.jit(lambda copies: jax.tree.map(lambda *p: sum(p) / work.nodes, *copies))
    first = [jnp.asarray(each) for each in parameters(work)]

    def run(slots: int) -> object:
        p = first
        for k in range(slots):
            at = rows[k % len(rows)]
            p = average([step(p, xs[i], ys[i], at[i]) for i in range(work.nodes)])
        return jax.block_until_ready(p)

    return run, "loop"


BUILDERS = {
    "folkman": folkman,
    "torch-vmap": torch_vmap,
    "torch-loop": torch_loop,
    "jax-vmap": jax_vmap,
    "jax-loop": jax_loop,
}


def mflop(work: Work, batch: int) -> float:
    """Return the arithmetic of a slot: 2 (3 sum p_l - p_1) for each sample."""
    side, found = 28, []
    for shape in shapes(work):
        pixels = side * side if len(shape) == 4 else 1
        found.append(pixels * int(np.prod(shape)))
        side = side // 2 if len(shape) == 4 else side
    return 2e-6 * (3 * sum(found) - found[0]) * batch * work.nodes


def threads() -> dict[str, float]:
    """Return the CPU milliseconds of every thread."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            found[task.name] = int((task / "schedstat").read_text().split()[0]) / 1e6
        except OSError:
            continue
    return found


def main() -> None:
    """Answer until 0 slots are asked for."""
    side, name, batch = sys.argv[1], sys.argv[2], int(sys.argv[3])
    work = WORKS[name]
    run, way = BUILDERS[side](work, batch)
    for line in sys.stdin:
        slots = int(line)
        if not slots:
            return
        if side == "folkman":
            run(slots)  # evaluates at the first slot, which is no part of the work
        before, cpu_s, wall_s = threads(), time.process_time(), time.perf_counter()
        run(slots)
        wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
        own = [value - before.get(task, 0.0) for task, value in threads().items()]
        print(
            json.dumps(
                {
                    "wall_ms": 1e3 * wall_s / slots,
                    "cpu_ms": 1e3 * cpu_s / slots,
                    "busiest_ms": max(own) / slots,
                    "mflop": mflop(work, batch),
                    "way": way,
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
