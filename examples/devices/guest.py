"""A PyTorch guest on a device: name this file as `guest` in node.toml.

One loss a sample, hence `reduction`.
"""

from torch import nn


def guest() -> tuple[nn.Module, nn.Module]:
    """Return the module that this network of nodes learns, and its loss."""
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 10))
    return module, nn.CrossEntropyLoss(reduction="none")
