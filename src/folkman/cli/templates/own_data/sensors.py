"""Data of one's own: here drawn, in your project read from files.

Three kinds of movement, measured by sensors of six numbers; every device has its own offset, so
that devices differ from each other.
"""

import numpy as np

import folkman as fm


def sensors(samples: int = 600, noise: float = 0.4, *, nodes: int, seed: int) -> fm.DataSet:
    """Return samples for training and testing; `nodes` and `seed` are given by folkman."""
    rng = np.random.default_rng(seed)
    movement = rng.integers(0, 3, samples)  # labels 0, 1, 2
    device = np.arange(samples) % nodes
    centre = rng.normal(size=(3, 6))
    offset = 0.3 * rng.normal(size=(nodes, 6))
    x = centre[movement] + offset[device] + noise * rng.normal(size=(samples, 6))
    x, y = x.astype(np.float32), movement.astype(np.int32)
    tested = samples // 5  # the first fifth is kept for testing
    return fm.DataSet(
        "sensors",
        x_train=x[tested:],
        y_train=y[tested:],
        x_test=x[:tested],
        y_test=y[:tested],
        num_classes=3,
        group=device[tested:],  # which device each training sample came from
    )


if __name__ == "__main__":  # samples for `folkman predict`
    found = sensors(nodes=6, seed=0)
    np.savez("samples.npz", x=found.x_test, y=found.y_test)
