"""The two models in PyTorch, the CNN plain and hand-tuned.

Also the way to folkman's flat vector and back.
"""

import numpy as np
import torch
from torch import nn
from torch.nn import functional

BAND = ((torch.arange(32)[:, None] - torch.arange(32)).abs() <= 4).float()[:, :, None, None]
SCALE = 0.001 / 9


class CNN(nn.Module):
    """The paper's CNN with PyTorch's own layers."""

    def __init__(self):
        super().__init__()
        self.conv0 = nn.Conv2d(1, 32, 5, padding=2)
        self.conv1 = nn.Conv2d(32, 32, 5, padding=2)
        self.pool = nn.MaxPool2d(2)
        self.norm = nn.LocalResponseNorm(9, alpha=9 * SCALE, beta=0.75, k=1.0)
        self.dense0 = nn.Linear(1568, 256)
        self.dense1 = nn.Linear(256, 10)

    def forward(self, x):
        """Return the scores of flattened images."""
        h = self.norm(self.pool(self.conv0(x.reshape(-1, 1, 28, 28)).relu()))
        h = self.pool(self.norm(self.conv1(h).relu()))
        return self.dense1(self.dense0(h.flatten(1)).relu())


class _BandNorm(torch.autograd.Function):
    """Return x d^-3/4, d = 1 + scale * (sum of squares over nine neighbouring channels).

    The sum is a 1x1 convolution.
    """

    @staticmethod
    def forward(ctx, x):
        d = functional.conv2d(x * x, BAND.to(x)).mul_(SCALE).add_(1)
        root = d.rsqrt()
        power = root * root.sqrt()
        ctx.save_for_backward(x, d, power)
        return x * power

    @staticmethod
    def backward(ctx, grad):
        x, d, power = ctx.saved_tensors
        inner = (grad * x * power).div_(d)  # autocast makes the power float32, whatever x is
        spread = functional.conv2d(inner, BAND.to(inner))
        return torch.addcmul(grad * power, x, spread, value=-1.5 * SCALE)


class TunedCNN(CNN):
    """The same function with channels last and the norm as one band convolution each way."""

    def forward(self, x):
        """Return the scores of flattened images."""
        h = x.reshape(-1, 28, 28, 1).permute(
            0, 3, 1, 2
        )  # the strides of channels last: .contiguous() would not set them
        h = _BandNorm.apply(self.pool(self.conv0(h).relu()))
        h = self.pool(_BandNorm.apply(self.conv1(h).relu()))
        return self.dense1(self.dense0(h.flatten(1)).relu())


def make(name, initial, tuned=False):
    """Build a model that starts at folkman's flat vector."""
    if name == "softmax":
        net = nn.Linear(784, 10)
    else:
        net = TunedCNN().to(memory_format=torch.channels_last) if tuned else CNN()
    net.load_state_dict(from_flat(name, initial))
    return net


def from_flat(name, flat):
    """Cut folkman's flat vector into PyTorch's tensors.

    Kernels are height, width, in, out; softmax's out, in.
    """
    flat = np.asarray(flat)
    if name == "softmax":
        return {"weight": _tensor(flat[:7840].reshape(10, 784)), "bias": _tensor(flat[7840:])}
    tensors, start = {}, 0
    for layer, shape in _CNN_SHAPES:
        size = int(np.prod(shape))
        kernel, start = flat[start : start + size].reshape(shape), start + size
        tensors[f"{layer}.weight"] = _tensor(_kernel_in(layer, kernel))
        tensors[f"{layer}.bias"] = _tensor(flat[start : start + shape[-1]])
        start += shape[-1]
    return tensors


def to_flat(name, tensors):
    """Join PyTorch's tensors into folkman's flat vector."""
    arrays = {key: value.detach().cpu().contiguous().numpy() for key, value in tensors.items()}
    if name == "softmax":
        return np.concatenate([arrays["weight"].ravel(), arrays["bias"]])
    parts = []
    for layer, _ in _CNN_SHAPES:
        parts += [_kernel_out(layer, arrays[f"{layer}.weight"]).ravel(), arrays[f"{layer}.bias"]]
    return np.concatenate(parts)


_CNN_SHAPES = (
    ("conv0", (5, 5, 1, 32)),
    ("conv1", (5, 5, 32, 32)),
    ("dense0", (1568, 256)),
    ("dense1", (256, 10)),
)


def _kernel_in(layer, kernel):
    if layer.startswith("conv"):
        return kernel.transpose(3, 2, 0, 1)
    if layer == "dense0":  # flattened as (7, 7, channel) there, as (channel, 7, 7) here
        return kernel.reshape(7, 7, 32, 256).transpose(3, 2, 0, 1).reshape(256, 1568)
    return kernel.T


def _kernel_out(layer, kernel):
    if layer.startswith("conv"):
        return kernel.transpose(2, 3, 1, 0)
    if layer == "dense0":
        return kernel.reshape(256, 32, 7, 7).transpose(2, 3, 1, 0).reshape(1568, 256)
    return kernel.T


def _tensor(array):
    return torch.from_numpy(np.array(array, np.float32, order="C"))
