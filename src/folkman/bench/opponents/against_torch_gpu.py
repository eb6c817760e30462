"""PyTorch by hand on the GPU: every node's gradient, eager or compiled, in float32 (TF32 units) or bfloat16."""

import time

import protocol
import torch
import torch_models
from torch.nn import functional


def build():
    """Put the samples on the GPU, and answer the order `gradients` for one precision."""
    if not torch.cuda.is_available():
        raise RuntimeError("PyTorch sees no GPU")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    task, arrays = protocol.task(), protocol.load_arrays()
    x, y = (torch.from_numpy(part).cuda() for part in arrays.samples())
    y = y.long()

    made = {}

    def gradients(order):
        asked = order["precision"], order["way"]
        if asked not in made:
            made[asked] = _prepared(torch_models.make(task["model"], arrays.initial, order["way"] == "eager"), *asked)
        return _timed(*made[asked], x, y, order["times"])

    def nothing(*given):
        raise RuntimeError("this side computes gradients only")

    return protocol.Learner(torch.__version__, nothing, nothing, nothing, orders={"gradients": gradients})


def _prepared(net, precision, way):
    net = net.cuda()

    def loss(xs, ys):
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bfloat16"):
            return functional.cross_entropy(net(xs).float(), ys)

    return torch.compile(loss) if way == "compiled" else loss, net


def _timed(loss, net, x, y, times):
    took = []
    for _ in range(times):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        net.zero_grad(set_to_none=True)
        for xs, ys in zip(x, y):
            loss(xs, ys).backward()  # adds to the sum over the nodes
        torch.cuda.synchronize()
        took.append(time.perf_counter() - begun)
    whole = torch.cat([each.grad.flatten() for each in net.parameters()])
    used_mb = torch.cuda.max_memory_allocated() / 1e6
    norm = float(whole.norm()) / len(x)
    return {"seconds": sorted(took)[times // 2], "norm": norm, "device_memory_mb": used_mb}


if __name__ == "__main__":
    protocol.serve(build)
