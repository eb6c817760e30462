"""The models in PyTorch, the CNN plain and hand-tuned.

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

    def __init__(self, form):
        super().__init__()
        self.sample = form.sample
        height, width, channels = form.sample
        self.conv0 = nn.Conv2d(channels, 32, 5, padding=2)
        self.conv1 = nn.Conv2d(32, 32, 5, padding=2)
        self.pool = nn.MaxPool2d(2)
        self.norm = nn.LocalResponseNorm(9, alpha=9 * SCALE, beta=0.75, k=1.0)
        self.dense0 = nn.Linear((height // 4) * (width // 4) * 32, 256)
        self.dense1 = nn.Linear(256, form.classes)

    def images(self, x):
        """Return flattened images with their channels first in order, and last in memory."""
        return x.reshape(-1, *self.sample).permute(0, 3, 1, 2)

    def forward(self, x):
        """Return the scores of flattened images."""
        h = self.norm(self.pool(self.conv0(self.images(x).contiguous()).relu()))
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
        h = self.images(x)  # the strides of channels last: .contiguous() would not set them
        h = _BandNorm.apply(self.pool(self.conv0(h).relu()))
        h = self.pool(_BandNorm.apply(self.conv1(h).relu()))
        return self.dense1(self.dense0(h.flatten(1)).relu())


def make(form, initial, tuned=False):
    """Build a model that starts at folkman's flat vector."""
    if form.model == "cnn":
        net = TunedCNN(form).to(memory_format=torch.channels_last) if tuned else CNN(form)
    else:
        dense = [nn.Linear(*widths) for widths in zip(form.widths, form.widths[1:])]
        layers = [part for layer in dense for part in (layer, nn.ReLU())][:-1]
        net = nn.Sequential(*layers) if len(dense) > 1 else dense[0]
    net.load_state_dict(from_flat(form, initial))
    return net


def _layers(form):
    """Return the names of the layers, and the shapes of their kernels in the flat vector."""
    if form.model != "cnn":
        shapes = [(b, a) for a, b in zip(form.widths, form.widths[1:])]
        return [(f"{2 * k}." if form.hidden else "", shape) for k, shape in enumerate(shapes)]
    height, width, channels = form.sample
    flat = (height // 4) * (width // 4) * 32
    return [
        ("conv0.", (5, 5, channels, 32)),
        ("conv1.", (5, 5, 32, 32)),
        ("dense0.", (flat, 256)),
        ("dense1.", (256, form.classes)),
    ]


def from_flat(form, flat):
    """Cut folkman's flat vector into PyTorch's tensors.

    Kernels of the CNN are height, width, in, out there; those of softmax and mlp out, in.
    """
    flat = np.asarray(flat)
    tensors, start = {}, 0
    for layer, shape in _layers(form):
        size, outputs = int(np.prod(shape)), shape[-1] if form.model == "cnn" else shape[0]
        kernel, start = flat[start : start + size].reshape(shape), start + size
        tensors[f"{layer}weight"] = _tensor(_kernel_in(form, layer, kernel))
        tensors[f"{layer}bias"] = _tensor(flat[start : start + outputs])
        start += outputs
    return tensors


def to_flat(form, tensors):
    """Join PyTorch's tensors into folkman's flat vector."""
    arrays = {key: value.detach().cpu().contiguous().numpy() for key, value in tensors.items()}
    parts = []
    for layer, _ in _layers(form):
        kernel = _kernel_out(form, layer, arrays[f"{layer}weight"])
        parts += [kernel.ravel(), arrays[f"{layer}bias"]]
    return np.concatenate(parts)


def _kernel_in(form, layer, kernel):
    if form.model != "cnn":
        return kernel
    if layer.startswith("conv"):
        return kernel.transpose(3, 2, 0, 1)
    if layer == "dense0.":  # flattened as (height, width, channel) there, channel first here
        height, width = form.sample[0] // 4, form.sample[1] // 4
        return kernel.reshape(height, width, 32, 256).transpose(3, 2, 0, 1).reshape(256, -1)
    return kernel.T


def _kernel_out(form, layer, kernel):
    if form.model != "cnn":
        return kernel
    if layer.startswith("conv"):
        return kernel.transpose(2, 3, 1, 0)
    if layer == "dense0.":
        height, width = form.sample[0] // 4, form.sample[1] // 4
        return kernel.reshape(256, 32, height, width).transpose(2, 3, 1, 0).reshape(-1, 256)
    return kernel.T


def _tensor(array):
    return torch.from_numpy(np.array(array, np.float32, order="C"))
