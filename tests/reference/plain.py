"""Plain NumPy re-tellings, float64, by the equations alone: no JAX, nothing imported from the
package."""

import numpy as np


def softmax_gradient(w, x, y, classes=10, l2=0.0):
    """Return loss and gradient of softmax regression; w is the kernel (class, feature), then the
    bias (class)."""
    x = np.asarray(x.reshape(len(x), -1), np.float64)  # no copy if it is float64 already
    kernel, bias = w[:-classes].reshape(classes, -1), w[-classes:]
    scores = x @ kernel.T + bias
    scores -= scores.max(axis=1, keepdims=True)
    p = np.exp(scores)
    p /= p.sum(axis=1, keepdims=True)
    loss = -np.mean(np.log(p[np.arange(len(y)), y])) + 0.5 * l2 * np.sum(kernel**2)
    p[np.arange(len(y)), y] -= 1.0
    return loss, np.concatenate([(p.T @ x / len(y) + l2 * kernel).ravel(), p.mean(axis=0)])


def quadratic_gradient(w, x, y):
    """Return loss and gradient of the mean of 0.5 sum_k y_k (w_k - x_k)^2."""
    return 0.5 * np.mean(np.sum(y * (w - x) ** 2, axis=1)), np.mean(y * (w - x), axis=0)


def descend(gradient, w, step, steps):
    """Return the iterates of gradient descent, w(0) first."""
    path = [w]
    for _ in range(steps):
        path.append(path[-1] - step * gradient(path[-1])[1])
    return np.array(path)


def share_asynchronously(gradients, w0, alpha, held, step, scale):
    """Algorithm 1 along tau = held[t, i, j], keeping every w_j(t) that ever was.

    Returns w (slot + 1, node, d).

    v_i(t) = sum_j alpha_j w_j(tau_ij(t)), tau_ii = t
    w_i(t+1) = w_i(t) - step scale_i grad F_i(v_i(t))
    """
    nodes = len(alpha)
    history = [np.tile(w0, (nodes, 1))]
    for t, tau in enumerate(held):
        new = history[t].copy()
        for i in range(nodes):
            v = alpha[i] * history[t][i]
            for j in range(nodes):
                if j != i:
                    v = v + alpha[j] * history[tau[i, j]][j]
            new[i] -= step * scale[i] * gradients[i](v)[1]
        history.append(new)
    return np.array(history)


def average(gradients, w0, alpha, step, local_steps, rounds):
    """FedAvg: returns the server's iterates, w(0) first."""
    path = [w0]
    for _ in range(rounds):
        total = np.zeros_like(w0)
        for gradient, share in zip(gradients, alpha, strict=True):
            total += share * descend(gradient, path[-1], step, local_steps)[-1]
        path.append(total)
    return np.array(path)


def average_in_cells(gradients, w0, alpha, cells, step, *, local_steps, every, rounds):
    """HierFAVG, node i in cell i mod `cells`: return the stations' models and the global rounds."""
    nodes = np.arange(len(alpha))
    models, shares = np.tile(w0, (cells, 1)), [alpha[nodes % cells == c] for c in range(cells)]
    done = 0
    for number in range(1, rounds + 1):
        ends = np.stack(
            [descend(gradients[i], models[i % cells], step, local_steps)[-1] for i in nodes]
        )
        for c in range(cells):
            models[c] = shares[c] @ ends[nodes % cells == c] / shares[c].sum()
        if number % every == 0:
            done += 1
            models[:] = np.array([share.sum() for share in shares]) @ models
    return models, done


def meet(gradients, w0, partners, held, sends, step):
    """AD-PSGD along a timeline: return x (slot + 1, node, d).

    Even nodes propose, to whom `partners[i]` says in turn; odd ones answer. `held` (slot, rx, tx)
    are the stamps of the messages that are held, `sends` (slot, node) who is on the air. Each
    message is told apart by hand, as are its repetitions.
    """
    nodes = len(gradients)
    x = np.tile(w0, (nodes, 1))
    path = [x.copy()]
    heard = [{0: {"kind": "", "whom": -1}} for _ in range(nodes)]  # by stamp
    asking = {i: _calm(iter(partners[i])) for i in range(0, nodes, 2)}
    answering = {
        j: {"says": None, "aired": True, "last": -1, "of": {i: _unheard() for i in asking}}
        for j in range(1, nodes, 2)
    }
    for t in range(len(held)):
        for i, own in asking.items():
            if own["says"] is not None:
                _listen(i, own, x, heard[own["says"]["whom"]][held[t, i, own["says"]["whom"]]])
        for j, own in answering.items():
            _reply(j, own, x, {i: heard[i][held[t, j, i]] for i in asking})
        x -= step * np.stack([gradient(w)[1] for gradient, w in zip(gradients, x, strict=True)])
        for i, own in asking.items():
            if own["says"] is None:
                own["number"] += 1
                own.update(aired=False, waited=0, silent=0)
                own["says"] = {
                    "kind": "asks", "whom": next(own["draws"]), "number": own["number"],
                    "model": x[i].copy(), "times": 1, "pleads": own["doubt"] > 0,
                }  # fmt: skip
        for node in map(int, np.flatnonzero(sends[t])):
            own = (asking if node % 2 == 0 else answering)[node]
            heard[node][t + 1] = dict(own["says"])
            own["aired"] = True
        path.append(x.copy())
    return np.array(path)


def meet_at_once(gradients, w0, asks, answers, step):
    """AD-PSGD with atomic averages: return x (slot + 1, node, d).

    In slot t node j answers each i of answers[t, j, i]: both models become their mean in this one
    moment. Then odd nodes step. Even ones step where asks[t, i]: by the gradient that was taken
    before their mean, which counts after it, and they take the next one.
    """
    nodes = len(gradients)
    x, moves = np.tile(w0, (nodes, 1)), np.zeros((nodes, len(w0)))
    path = [x.copy()]
    for asking, answering in zip(asks, answers, strict=True):
        for j, i in np.argwhere(answering):
            x[[i, j]] = (x[i] + x[j]) / 2
        for node, gradient in enumerate(gradients):
            if node % 2:
                x[node] -= step * gradient(x[node])[1]
            elif asking[node]:
                x[node] += moves[node]
                moves[node] = -step * gradient(x[node])[1]
        path.append(x.copy())
    return np.array(path)


def _calm(draws):
    return {
        "draws": draws, "says": None, "aired": True, "number": 0, "trip": 0, "doubt": 0, "spell": 0,
        "waited": 0, "silent": 0,
    }  # fmt: skip


def _unheard():
    return {"asked": 0, "late": 0, "served": 0, "seen": 0, "model": None, "times": 0}


def _listen(i, own, x, reply):
    """Let an active node end its meeting if the answer is there, or ask again if it is late."""
    says = own["says"]
    if own["aired"]:
        own["waited"] += 1
        own["silent"] += 1
    if (reply["kind"], reply["whom"]) == ("answers", i) and reply["number"] == says["number"]:
        x[i] += (reply["model"] - says["model"]) / 2
        clean, own["says"] = reply["times"] == 1, None
        if clean:
            own["trip"] = max(own["waited"], 3 * own["trip"] // 4)
        if own["doubt"]:
            own["doubt"] -= 1
        elif clean:
            own["spell"] //= 2
        else:
            own["doubt"] = own["spell"] = min(max(4 * own["spell"], 1), 64)
        return
    patience = 0 if says["pleads"] else int(1.5 * own["trip"]) + 2 if own["trip"] else 16
    if own["aired"] and own["silent"] > patience:
        says["pleads"] = own["doubt"] > 0 or own["trip"] > 0 or says["times"] >= 3
        says["times"] += 1
        own.update(aired=False, silent=0)


def _reply(j, own, x, proposals):
    """Let a passive node answer one of those who ask, in turn."""
    mine = {i: m for i, m in proposals.items() if (m["kind"], m["whom"]) == ("asks", j)}
    for i, m in mine.items():
        if m["number"] > own["of"][i]["asked"]:
            own["of"][i].update(asked=m["number"], late=m["times"] - 1)
    turns = sorted(mine, key=lambda i: (i <= own["last"], i))
    for i in turns if own["aired"] else []:
        m, of = mine[i], own["of"][i]
        if m["number"] > of["served"]:
            of.update(served=m["number"], model=x[j].copy(), times=0)
            x[j] = (x[j] + m["model"]) / 2
        elif m["number"] < of["served"] or not (m["pleads"] or m["times"] > of["seen"]):
            continue
        of["seen"] = m["times"]
        of["times"] += 1
        own["says"] = {
            "kind": "answers", "whom": i, "number": m["number"], "model": of["model"],
            "times": of["late"] + of["times"],
        }  # fmt: skip
        own.update(aired=False, last=i)
        return


def push(gradients, w0, hears, held, step, *, least, by_age=True, apart=False):
    """Asynchronous SGP along a timeline: return x (slot + 1, node, d) and y (slot + 1, node).

    `hears[i, j]`: node i hears node j; `held` (slot, rx, tx) are the stamps of the sums that are
    held. A sum of stamp s is what had been pushed to each hearer, of x and of y, before slot s.

    z_i = x_i / y_i,   x_i <- x_i - step grad F_i(z_i),   p_i = min(q_i / (out_i + 1), room_i)
    q_i = 1 / (1 + mean age of what was heard) by age, or 1;   y_i keeps `least` at least, and one
    half by age before anybody was heard.
    """
    nodes, out = len(gradients), hears.sum(axis=0)
    x, y = np.tile(np.asarray(w0, np.float64), (nodes, 1)), np.ones(nodes)
    sums = [(np.zeros_like(x), np.zeros(nodes))]  # by stamp
    stamp_taken = np.zeros((nodes, nodes), int)
    path = [(x.copy(), y.copy())]
    for t in range(len(held)):
        pushed_x, pushed_y = (each.copy() for each in sums[-1])
        for i in range(nodes):
            others = [j for j in range(nodes) if hears[i, j]]
            before = {j: stamp_taken[i, j] for j in others}
            newer = [j for j in others if sums[held[t, i, j]][1][j] >= sums[before[j]][1][j]]
            for j in newer if apart or newer == others else []:
                stamp = stamp_taken[i, j] = held[t, i, j]
                x[i] += sums[stamp][0][j] - sums[before[j]][0][j]
                y[i] += sums[stamp][1][j] - sums[before[j]][1][j]
            x[i] -= step * gradients[i](x[i] / y[i])[1]
            heard = [t - held[t, i, j] for j in others if sums[held[t, i, j]][1][j] > 0]
            share, keep = 1.0 / (out[i] + 1.0), least
            if by_age and heard:
                share /= 1.0 + sum(heard) / len(heard)
            elif by_age:
                keep = max(least, 0.5)
            share = min(share, max(y[i] - keep, 0.0) / (y[i] * out[i]))
            pushed_x[i] += share * x[i]
            pushed_y[i] += share * y[i]
            x[i] *= 1.0 - out[i] * share
            y[i] *= 1.0 - out[i] * share
        sums.append((pushed_x, pushed_y))
        path.append((x.copy(), y.copy()))
    return tuple(map(np.array, zip(*path, strict=True)))


def adapt(gradients, w0, alpha, step, *, phi, budget, talk, tau_max=100, rounds=8):
    """AdaFL with one gradient more a round, at the end model: return the taus and the server's w.

    One slot a gradient, `talk` slots of transfers a round; the budget is not reached.
    """
    w, tau, spent, before = w0, 1, 0, None
    taus, path = [], [w0]
    for number in range(rounds):
        at_w = [gradient(w) for gradient in gradients]
        ends = [descend(gradient, w, step, tau)[-1] for gradient in gradients]
        beta = rho = 0.0
        if before is not None:
            for gradient, share, p, (loss, grad) in zip(
                gradients, alpha, before, at_w, strict=True
            ):
                end_loss, end_grad = gradient(p)
                apart = np.linalg.norm(p - w)
                beta += share * max(np.linalg.norm(end_grad - grad) / apart, 1e-5)
                rho += share * abs(end_loss - loss) / apart
        mean = sum(share * grad for share, (_, grad) in zip(alpha, at_w, strict=True))
        delta = sum(
            share * np.linalg.norm(grad - mean)
            for share, (_, grad) in zip(alpha, at_w, strict=True)
        )
        w = sum(share * end for share, end in zip(alpha, ends, strict=True))
        before = ends
        taus.append(tau)
        path.append(w)
        spent += tau + 1 + talk
        b, c = 1 + talk, 1
        if number > 0:
            t = np.arange(1, 10 * tau + 1)
            h = np.maximum(delta / beta * ((1 + step * beta) ** t - 1) - step * delta * t, 0)
            half = 1 / (2 * step * phi * (budget - b - c) * t / (c * t + b))
            gap = half + np.sqrt(half**2 + rho * h / (step * phi * t)) + rho * h
            tau = min(int(t[np.argmin(gap)]), tau_max)
    return taus, np.array(path)


def carry_sums(gradients, w0, alpha, messages, step, slots):
    """Algorithm 1 with aggregates that travel: `messages` in the order in which they started.

    A message has `sender`, `stamps`, `used` and `adopters`. Nobody holds a copy: node i
    has u_i, the sum of the others' parts, and every own part that it ever had. Returns w (slot + 1,
    node, d).

    sent     v_k = u_k + alpha_k w_k(stamps_k)
    adopted  u_i = v_k - alpha_i w_i(stamps_i)
    """
    nodes = len(alpha)
    own = [np.tile(w0, (nodes, 1))]
    u = np.array([sum(alpha[j] * w0 for j in range(nodes) if j != i) for i in range(nodes)])
    waiting = list(messages)
    for t in range(slots):
        v = u + alpha[:, None] * own[t]
        own.append(own[t] - step * np.stack([gradients[i](v[i])[1] for i in range(nodes)]))
        while waiting and waiting[0].used == t + 1:  # one at a time: they end as they began
            sent = waiting.pop(0)
            sum_ = u[sent.sender] + alpha[sent.sender] * own[sent.stamps[sent.sender]][sent.sender]
            for i in sent.adopters:
                u[i] = sum_ - alpha[i] * own[sent.stamps[i]][i]
    return np.array(own)
