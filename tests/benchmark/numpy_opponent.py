"""An opponent for the tests: softmax regression in plain NumPy, spoken to like any other.

Its first argument is `right`, `wrong` (steps twice as long) or `broken` (fails when asked).
"""

import sys
from pathlib import Path

import numpy as np

MODE = sys.argv.pop(1)
sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.opponents import protocol  # noqa: E402


def build():
    task, arrays = protocol.task(), protocol.load_arrays()
    x, y = arrays.samples()
    classes = task["classes"]
    step = task["step"] * (2 if MODE == "wrong" else 1)
    print("what an opponent prints does not disturb the protocol")

    def gradient(w, xs, ys):
        scores = xs @ w[:-classes].reshape(classes, -1).T + w[-classes:]
        odds = np.exp(scores - scores.max(1, keepdims=True))
        odds /= odds.sum(1, keepdims=True)
        odds[np.arange(len(ys)), ys] -= 1
        return np.concatenate([(odds.T @ xs).ravel(), odds.sum(0)]) / len(ys)

    def learn(w, rounds):
        if MODE == "broken":
            raise ValueError("out of order")
        for k in range(rounds):
            moved = []
            for i in range(task["nodes"]):
                rows = arrays.rows(k, i)
                moved.append(w - step * gradient(w, x[i, rows], y[i, rows]))
            w = np.average(moved, axis=0, weights=arrays.shares)
        return w

    def begin(rounds):
        return arrays.initial.astype(float)

    return protocol.Learner(np.__version__, begin, learn, np.asarray)


if __name__ == "__main__":
    protocol.serve(build)
