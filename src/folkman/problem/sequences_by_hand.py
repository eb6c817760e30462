"""Gradients on NumPy of the networks over time (`problem/sequences.py`), written by hand.

Each function goes forward and returns the scores, with a function that goes back: from the
derivatives of the losses by the scores (n, classes) to the gradient (d,).
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from folkman.problem.models import Layout
from folkman.problem.sequences import Convolutions, Gru

__all__ = ["Back", "convolve", "recur"]

Back: TypeAlias = Callable[[NDArray], NDArray]


def _cut(layout: Layout, w: NDArray) -> dict[str, NDArray]:
    segments = layout.segments
    return {name: w[segments[name]].reshape(shape) for name, shape in layout.shapes}


def _joined(layout: Layout, found: dict[str, NDArray]) -> NDArray:
    return np.concatenate([found[name].ravel() for name, _ in layout.shapes])


def convolve(network: Convolutions, w: NDArray, x: NDArray) -> tuple[NDArray, Back]:
    """Return the scores of `Convolutions` and the way back."""
    t = _cut(network.layout, w)
    h = x.reshape(len(x), *network.sample)
    seen, larger = [], []
    for layer in range(len(network.channels)):
        kernel = t[f"conv{layer}/kernel"]
        seen.append(_taps(h, network.width))
        felt = seen[-1] @ kernel.reshape(-1, kernel.shape[-1]) + t[f"conv{layer}/bias"]
        h, share = _pool(felt, network.pool)
        larger.append(share)
    mean = h.mean(axis=1)

    def back(delta: NDArray) -> NDArray:
        found = {"dense0/kernel": mean.T @ delta, "dense0/bias": delta.sum(axis=0)}
        later = np.repeat((delta @ t["dense0/kernel"].T / h.shape[1])[:, None], h.shape[1], axis=1)
        for layer in reversed(range(len(network.channels))):
            kernel = t[f"conv{layer}/kernel"]
            own = _unpool(later, larger[layer], seen[layer].shape[1])
            flat = own.reshape(-1, own.shape[-1])
            taps = seen[layer].reshape(len(flat), -1)
            found[f"conv{layer}/kernel"] = taps.T @ flat
            found[f"conv{layer}/bias"] = flat.sum(axis=0)
            later = _untap(own @ kernel.reshape(-1, kernel.shape[-1]).T, network.width)
        return _joined(network.layout, found)

    return mean @ t["dense0/kernel"] + t["dense0/bias"], back


def _taps(h: NDArray, width: int) -> NDArray:
    before = (width - 1) // 2
    padded = np.pad(h, ((0, 0), (before, width - 1 - before), (0, 0)))
    return np.concatenate([padded[:, k : k + h.shape[1]] for k in range(width)], axis=-1)


def _untap(taps: NDArray, width: int) -> NDArray:
    """Add up what every tap says of a step of time."""
    n, time, wide = taps.shape
    channels, before = wide // width, (width - 1) // 2
    padded = np.zeros((n, time + width - 1, channels), taps.dtype)
    for k in range(width):
        padded[:, k : k + time] += taps[..., k * channels : (k + 1) * channels]
    return padded[:, before : before + time]


def _pool(felt: NDArray, pool: int) -> tuple[NDArray, NDArray]:
    """Return relu of the largest of each pool, and what each step of time has in it.

    Steps that are equally large share alike, as in JAX.
    """
    n, time, channels = felt.shape
    blocks = felt[:, : time // pool * pool].reshape(n, time // pool, pool, channels)
    largest = blocks.max(axis=2)
    share = (blocks == largest[:, :, None]).astype(felt.dtype)
    share /= np.maximum(share.sum(axis=2, keepdims=True), 1)
    share *= (largest > 0)[:, :, None]
    return np.maximum(largest, 0), share


def _unpool(later: NDArray, share: NDArray, time: int) -> NDArray:
    n, blocks, pool, channels = share.shape
    own = (share * later[:, :, None]).reshape(n, blocks * pool, channels)
    return np.pad(own, ((0, 0), (0, time - blocks * pool), (0, 0)))


def _logistic(a: NDArray) -> NDArray:
    return (1 / (1 + np.exp(-a))).astype(a.dtype)


def recur(network: Gru, w: NDArray, x: NDArray) -> tuple[NDArray, Back]:
    """Return the scores of `Gru` and the way back through time."""
    t = _cut(network.layout, w)
    series = x if network.vocabulary is None else t["embedding/table"][x.astype(np.int64)]
    series = series.reshape(*x.shape[:2], network.inputs)
    driven = series @ t["gru0/input_kernel"] + t["gru0/input_bias"]
    state = np.zeros((len(x), network.hidden), driven.dtype)
    kept = []
    for step in range(driven.shape[1]):
        recurrent = state @ t["gru0/hidden_kernel"] + t["gru0/hidden_bias"]
        drive = np.split(driven[:, step], 3, axis=1)
        own = np.split(recurrent, 3, axis=1)
        r, z = _logistic(drive[0] + own[0]), _logistic(drive[1] + own[1])
        n = np.tanh(drive[2] + r * own[2])
        kept.append((state, r, z, n, own[2]))
        state = (1 - z) * n + z * state
    last = state

    def back(delta: NDArray) -> NDArray:
        found = {"dense0/kernel": last.T @ delta, "dense0/bias": delta.sum(axis=0)}
        kernel, bias = (np.zeros_like(t[f"gru0/hidden_{name}"]) for name in ("kernel", "bias"))
        pull, drives = delta @ t["dense0/kernel"].T, []
        for before, r, z, n, own in reversed(kept):
            of_n = pull * (1 - z) * (1 - n * n)
            of_z = pull * (before - n) * z * (1 - z)
            of_r = of_n * own * r * (1 - r)
            drives.append(np.concatenate([of_r, of_z, of_n], axis=1))
            recurrent = np.concatenate([of_r, of_z, of_n * r], axis=1)
            kernel += before.T @ recurrent
            bias += recurrent.sum(axis=0)
            pull = pull * z + recurrent @ t["gru0/hidden_kernel"].T
        drive = np.stack(drives[::-1], axis=1)
        flat = drive.reshape(-1, drive.shape[-1])
        found |= {"gru0/hidden_kernel": kernel, "gru0/hidden_bias": bias}
        found["gru0/input_kernel"] = series.reshape(len(flat), -1).T @ flat
        found["gru0/input_bias"] = flat.sum(axis=0)
        if network.vocabulary is not None:
            table = np.zeros_like(t["embedding/table"])
            np.add.at(table, x.astype(np.int64), drive @ t["gru0/input_kernel"].T)
            found["embedding/table"] = table
        return _joined(network.layout, found)

    return last @ t["dense0/kernel"] + t["dense0/bias"], back
