"""The comparison that is run when nothing is asked for; a file or a setting replaces its parts."""

from typing import Any

__all__ = ["DEFAULT"]

DEFAULT: dict[str, Any] = {
    "data": {"name": "digits"},
    "partition": {"name": "iid"},
    "model": {"name": "mlp"},
    "projection": {"name": "none"},
    "network": {"name": "snapshot"},
    "algorithm": [
        {"name": "async_sharing", "label": "Algorithm 1", "step": 0.2},
        {"name": "fedavg", "label": "FedAvg", "step": 0.2},
        {"name": "fedavg", "label": "FedAvg, free links", "step": 0.2, "network": {"name": "ideal"}},
    ],
}
"""What `folkman run` does when told nothing: Algorithm 1 against FedAvg on the embedded digits."""
