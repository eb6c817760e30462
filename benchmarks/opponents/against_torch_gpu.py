"""PyTorch by hand on the GPU: every node's gradient in float32 (TF32 units) or bfloat16.

The CNN plain or tuned (channels last, the norm as a band convolution), eager or compiled.
"""

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
    y, form = y.long(), protocol.form(task)

    made = {}

    def gradients(order):
        asked = order["precision"], order["way"]
        if asked not in made:
            made[asked] = _prepared(
                torch_models.make(form, arrays.initial, "tuned" in asked[1]), *asked
            )
        loss, net = made[asked]
        if order.get("show"):
            _gradient(loss, net, x, y)
            slopes = {name: each.grad for name, each in net.named_parameters()}
            return {
                "gradient": protocol.keep("gradient", torch_models.to_flat(form, slopes) / len(x))
            }
        return _timed(loss, net, x, y, order["times"])

    def nothing(*given):
        raise RuntimeError("this side computes gradients only")

    return protocol.Learner(
        torch.__version__, nothing, nothing, nothing, orders={"gradients": gradients}
    )


def _prepared(net, precision, way):
    net = net.cuda()

    def loss(xs, ys):
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bfloat16"):
            return functional.cross_entropy(net(xs).float(), ys)

    return torch.compile(loss) if "compiled" in way else loss, net


def _gradient(loss, net, x, y):
    net.zero_grad(set_to_none=True)
    for xs, ys in zip(x, y):
        loss(xs, ys).backward()  # adds to the sum over the nodes


def _timed(loss, net, x, y, times):
    took = []
    for _ in range(times):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        _gradient(loss, net, x, y)
        torch.cuda.synchronize()
        took.append(time.perf_counter() - begun)
    return {
        "seconds": sorted(took)[times // 2],
        "device_memory_mb": torch.cuda.max_memory_allocated() / 1e6,
    }


if __name__ == "__main__":
    protocol.serve(build)
