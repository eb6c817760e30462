"""Plain NumPy re-tellings of methods around a server, float64, by the equations of their papers: no
JAX, nothing imported from the package.

`gradients` are functions w -> (loss, gradient), one a node; `sets` the nodes of each round.
"""

import numpy as np


def fedprox(gradients, w0, alpha, sets, step, *, mu, local_steps):
    """Return the server's iterates, w(0) first."""
    path = [w0]
    for chosen in sets:
        ends = []
        for i in chosen:
            w = path[-1]
            for _ in range(local_steps):
                w = w - step * (gradients[i](w)[1] + mu * (w - path[-1]))
            ends.append(alpha[i] * w)
        path.append(np.sum(ends, axis=0) / sum(alpha[i] for i in chosen))
    return np.array(path)


def fedopt(gradients, w0, alpha, sets, step, *, rule, server_step, betas, tau, local_steps):
    """Return the server's iterates; `rule` adam, yogi or adagrad."""
    x, m, v = w0, np.zeros_like(w0), np.full_like(w0, tau**2)
    path = [x]
    for chosen in sets:
        mean = fedprox(gradients, x, alpha, [chosen], step, mu=0.0, local_steps=local_steps)[-1]
        delta = mean - x
        m = betas[0] * m + (1 - betas[0]) * delta
        if rule == "adam":
            v = betas[1] * v + (1 - betas[1]) * delta**2
        elif rule == "yogi":
            v = v - (1 - betas[1]) * delta**2 * np.sign(v - delta**2)
        else:
            v = v + delta**2
        x = x + server_step * m / (np.sqrt(v) + tau)
        path.append(x)
    return np.array(path)


def scaffold(gradients, x0, sets, step, *, local_steps, server_step):
    """Algorithm 1 with option II, differences sent: return the server's x and c by round."""
    nodes = len(gradients)
    x, c, own = x0, np.zeros_like(x0), [np.zeros_like(x0) for _ in gradients]
    path, controls = [x], [c]
    for chosen in sets:
        moves, changes = [], []
        for i in chosen:
            y = x
            for _ in range(local_steps):
                y = y - step * (gradients[i](y)[1] - own[i] + c)
            renewed = own[i] - c + (x - y) / (local_steps * step)
            moves.append(y - x)
            changes.append(renewed - own[i])
            own[i] = renewed
        x = x + server_step * np.mean(moves, axis=0)
        c = c + np.sum(changes, axis=0) / nodes
        path.append(x)
        controls.append(c)
    return np.array(path), np.array(controls)


def feddyn(gradients, x0, sets, step, *, alpha, local_steps):
    """As the authors' code has it, with -lambda_i / alpha as each node's memory."""
    memory, x, path = np.zeros((len(gradients), len(x0))), x0, [x0]
    for chosen in sets:
        ends = []
        for i in chosen:
            w = x
            for _ in range(local_steps):
                linear = -alpha * x + alpha * memory[i]
                w = w - step * (gradients[i](w)[1] + alpha * w + linear)
            memory[i] += w - x
            ends.append(w)
        x = np.mean(ends, axis=0) + memory.mean(axis=0)
        path.append(x)
    return np.array(path)


def ringmaster(gradients, x0, step, compute_slots, slots, *, max_delay, stops):
    """Return x after so many slots, messages taking no time; node i takes compute_slots[i].

    With `stops` as the authors' code: a counter of delays for each node, reset when it reaches R.
    """
    nodes = len(gradients)
    x, k, at, version = x0, 0, [x0] * nodes, [0] * nodes
    left = list(compute_slots)
    for _ in range(slots):
        left = [each - 1 for each in left]
        told = []
        for i in range(nodes):
            if left[i] == 0:
                if k - version[i] < max_delay:
                    x, k = x - step * gradients[i](at[i])[1], k + 1
                told.append(i)
        told += [i for i in range(nodes) if stops and i not in told and k - version[i] >= max_delay]
        for i in told:
            at[i], version[i], left[i] = x, k, compute_slots[i]
    return x, k


def ringleader(gradients, x0, step, compute_slots, slots):
    """Return x and its moves, told as events: two phases, sums and counts."""
    nodes = len(gradients)
    x, moves, at, left = x0, 0, [x0] * nodes, list(compute_slots)
    now, after, due = [[] for _ in gradients], [[] for _ in gradients], set()

    def moved():
        return x - step * np.mean([np.mean(each, axis=0) for each in now], axis=0), moves + 1

    for _ in range(slots):
        left = [each - 1 for each in left]
        done = [i for i in range(nodes) if left[i] == 0]
        for i in done:
            g = gradients[i](at[i])[1]
            if not due:
                now[i].append(g)
                if all(now):
                    x, moves = moved()
                    due = set(range(nodes)) - {i}
            elif i in due:
                now[i].append(g)
                x, moves = moved()
                due.remove(i)
            else:
                after[i].append(g)
                continue
            if all(now) and not due:
                now, after = after, [[] for _ in gradients]
        for i in done:
            at[i], left[i] = x, compute_slots[i]
    return x, moves
