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

    def gradients(order):
        low = order["precision"] == "bfloat16"
        found = {}
        for way in ("eager", "compiled"):
            net = torch_models.make(task["model"], arrays.initial, tuned=way == "eager").cuda()

            def loss(xs, ys, net=net):
                with torch.autocast("cuda", torch.bfloat16, enabled=low):
                    return functional.cross_entropy(net(xs).float(), ys)

            called = torch.compile(loss) if way == "compiled" else loss
            found[way] = _timed(called, net, x, y, order["times"])
        way = min(found, key=lambda name: found[name]["seconds"])
        return {**found[way], "way": way}

    def nothing(*given):
        raise RuntimeError("this side computes gradients only")

    return protocol.Learner(torch.__version__, nothing, nothing, nothing, orders={"gradients": gradients})


def _timed(loss, net, x, y, times):
    took = []
    for _ in range(times + 2):
        begun = time.perf_counter()
        for xs, ys in zip(x, y):
            net.zero_grad(set_to_none=True)
            loss(xs, ys).backward()
        torch.cuda.synchronize()
        took.append(time.perf_counter() - begun)
    used_mb = torch.cuda.max_memory_allocated() / 1e6
    return {"seconds": sorted(took[2:])[times // 2], "compile_s": took[0], "device_memory_mb": used_mb}


if __name__ == "__main__":
    protocol.serve(build)
