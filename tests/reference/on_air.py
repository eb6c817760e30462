"""Sums on the air, told in plain NumPy with complex signals: nothing imported from the package."""

import numpy as np


def received(models, gain, sends, reach, noise_by_energy, rng, frames=1):
    """Return what each node makes of one round of frames, (rx, d + 1), by its complex signals.

    y_im = sum_j h_ijm sqrt(p_jm) e^(i phi_jm) + n_im;   `noise_by_energy` is N0 / E
    """
    nodes, dim = models.shape
    p = np.zeros((nodes, 2 * dim + 1))
    for j, w in enumerate(models):
        p[j, :dim] = np.where(w > 0, w, 0) / reach
        p[j, dim : 2 * dim] = np.where(w < 0, -w, 0) / reach
        p[j, 2 * dim] = 1 - np.abs(w).sum() / reach
    energy = np.zeros((nodes, 2 * dim + 1))
    for _ in range(frames):
        h = complex_normal(rng, (nodes, nodes, 2 * dim + 1)) * np.sqrt(gain)[:, :, None]
        phase = np.exp(2j * np.pi * rng.random((nodes, 2 * dim + 1)))
        sent = np.sqrt(p) * phase * sends[:, None]
        y = np.einsum("ijm,jm->im", h, sent)
        y = y + np.sqrt(noise_by_energy) * complex_normal(rng, y.shape)
        energy += np.abs(y) ** 2 / frames
    r = (energy - noise_by_energy) / gain.sum(axis=1).max()
    r[sends] = 0
    model = reach * (r[:, :dim] - r[:, dim : 2 * dim])
    return np.concatenate([model, r.sum(axis=1, keepdims=True)], axis=1)


def complex_normal(rng, shape):
    """Return CN(0, 1)."""
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)) / np.sqrt(2)


def expected(models, gain, sends):
    """Return the same in expectation: the weighted sum of models, and of weights."""
    weights = gain / gain.sum(axis=1).max() * sends[None] * ~sends[:, None]
    return np.concatenate([weights @ models, weights.sum(axis=1, keepdims=True)], axis=1)


def descend(gradients, w0, sums, step, gamma, delta):
    """NCOTA-DGD along the sums (round, node, d + 1) of its rounds: return x before each and after.

    x+ = x + gamma / (1 + delta k)^(3/4) (s_1..d - s_{d+1} x) - step g(x)
    """
    x = np.tile(np.asarray(w0, np.float64), (sums.shape[1], 1))
    path = [x]
    for k, total in enumerate(sums):
        pull = total[:, :-1] - total[:, -1:] * x
        x = x + gamma / (1 + delta * k) ** 0.75 * pull - step * gradients(x)
        path.append(x)
    return np.array(path)
