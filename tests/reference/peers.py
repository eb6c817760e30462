"""Methods between peers that are exact, or send few bits, told in plain NumPy, float64.

By the equations of their papers alone: no JAX, nothing imported from the package. `gradients` is a
function of all models (node, d), `W` what node i takes of node j. Paths begin with the start.
"""

import numpy as np


def track(gradients, w0, rows, columns, step, rounds):
    """DSGT, rows of `rows` and columns of `columns` sum to 1: return x and y after each round.

    x+ = A (x - step y),   y+ = B y + g(x+) - g(x),   y(0) = g(x(0))
    """
    x = np.tile(np.asarray(w0, np.float64), (len(rows), 1))
    grad = y = gradients(x)
    path = [(x, y)]
    for _ in range(rounds):
        x = rows @ (x - step * y)
        new = gradients(x)
        y = columns @ y + new - grad
        grad = new
        path.append((x, y))
    return tuple(map(np.array, zip(*path, strict=True)))


def diffuse(gradients, w0, weights, step, rounds, beta=0.0):
    """Exact diffusion as its authors' code has it, with psi of the round before; beta: EDM.

    m = beta m + (1 - beta) g(x),   psi+ = x - step m,   phi = psi+ + x - psi,   x+ = A phi
    """
    x = np.tile(np.asarray(w0, np.float64), (len(weights), 1))
    before, m = x, np.zeros_like(x)
    path = [x]
    for _ in range(rounds):
        m = beta * m + (1 - beta) * gradients(x)
        psi = x - step * m
        x, before = weights @ (psi + x - before), psi
        path.append(x)
    return np.array(path)


def skip(gradients, w0, weights, step, chance, lengths):
    """ProxSkip with its control variates h; `lengths` are the gradients of each round."""
    x = np.tile(np.asarray(w0, np.float64), (len(weights), 1))
    h, path = np.zeros_like(x), [x]
    for length in lengths:
        for _ in range(length):
            x = x - step * (gradients(x) - h)
        mixed = weights @ x
        h = h + chance / step * (mixed - x)
        x = mixed
        path.append(x)
    return np.array(path)


def track_on_own_beats(gradients, w0, hears, held, step):
    """R-FAST along a timeline: return x, z and rho (slot + 1, node, d).

    `hears[i, j]`: node i hears node j; `held` (slot, rx, tx) are the stamps of the messages held. A
    message of stamp s has v and rho as they were after slot s - 1. Each rho~ is kept apart.
    """
    nodes = len(hears)
    start = np.tile(np.asarray(w0, np.float64), (nodes, 1))
    x, grad, z, rho = start.copy(), *(np.zeros_like(start) for _ in range(3))
    sent = [(start.copy(), rho.copy())]
    taken = np.zeros((nodes, nodes, len(w0)))
    path = [(x.copy(), z.copy(), rho.copy())]
    for stamps in held:
        v = np.empty_like(x)
        for i in range(nodes):
            others = np.flatnonzero(hears[i])
            for j in others:
                z[i] += sent[stamps[i, j]][1][j] - taken[i, j]
                taken[i, j] = sent[stamps[i, j]][1][j]
            v[i] = x[i] - step * z[i]
            copies = [sent[stamps[i, j]][0][j] for j in others]
            x[i] = (v[i] + sum(copies)) / (1 + len(copies))
        new = gradients(x)
        z += new - grad
        grad = new
        parts = 1 + hears.sum(axis=0)[:, None]
        rho = rho + z / parts
        z = z / parts
        sent.append((v, rho))
        path.append((x.copy(), z.copy(), rho.copy()))
    return tuple(map(np.array, zip(*path, strict=True)))


def top_entries(vector, kept):
    """Return the `kept` largest entries of a vector as float32 has them, 0 elsewhere."""
    found = np.zeros_like(vector)
    places = np.argsort(-np.abs(vector.astype(np.float32)), kind="stable")[:kept]
    found[places] = vector.astype(np.float32)[places]
    return found


def gossip_compressed(gradients, w0, weights, step, gamma, compress, rounds):
    """CHOCO-SGD, each node with its own copy of every other: return x and copies by round.

    x <- x - step g(x) + gamma sum_j W_ij (x^_j - x^_i),   x^_j <- x^_j + Q(x_j - x^_j)
    """
    nodes = len(weights)
    x = np.tile(np.asarray(w0, np.float64), (nodes, 1))
    copies = np.tile(x, (nodes, 1, 1))  # (holder, whose, d)
    path = [(x, copies)]
    for _ in range(rounds):
        pull = np.stack([weights[i] @ (copies[i] - copies[i, i]) for i in range(nodes)])
        x = x - step * gradients(x) + gamma * pull
        changes = [compress(x[i] - copies[i, i]) for i in range(nodes)]
        copies = copies + np.stack(changes)[None]
        path.append((x, copies))
    return tuple(map(np.array, zip(*path, strict=True)))


def spread(gradients, w0, sent_to, step, rounds, local_steps=1):
    """Epidemic learning; `sent_to[t, j]` are those whom node j sends to: return x by round."""
    x = np.tile(np.asarray(w0, np.float64), (sent_to.shape[1], 1))
    path = [x]
    for targets in sent_to[:rounds]:
        for _ in range(local_steps):
            x = x - step * gradients(x)
        boxes = [[own] for own in x]
        for sender, chosen in enumerate(targets):
            for receiver in chosen:
                boxes[receiver].append(x[sender])
        x = np.stack([np.mean(box, axis=0) for box in boxes])
        path.append(x)
    return np.array(path)


def share_fragments(gradients, w0, part, draws, held, step, local_steps):
    """DivShare along a timeline: return x (slot + 1, node, d).

    `part[k]` is the fragment of entry k. `draws[s][j]` is (fragment, receivers) of the message of
    stamp s of node j, `held` (slot, rx, tx) the stamps held. A box has the newest value of each
    sender and fragment.
    """
    nodes = held.shape[1]
    x = np.tile(np.asarray(w0, np.float64), (nodes, 1))
    outgoing, path = [x.copy()], [x.copy()]
    boxes = [{} for _ in range(nodes)]
    before = np.zeros_like(held[0])
    for t, stamps in enumerate(held):
        for i, j in np.argwhere(stamps != before):
            fragment, receivers = draws[stamps[i, j]][j]
            if i != j and i in receivers:
                boxes[i][j, fragment] = outgoing[stamps[i, j]][j][part == fragment]
        before = stamps
        moved = x - step * gradients(x)
        ends = (t + 1) % local_steps == 0
        outgoing.append(moved.copy() if ends else outgoing[-1])
        x = moved
        if ends:
            for i, box in enumerate(boxes):
                for fragment in np.unique(part):
                    came = [value for (_, which), value in box.items() if which == fragment]
                    inside = part == fragment
                    x[i, inside] = np.mean([x[i, inside], *came], axis=0)
            boxes = [{} for _ in range(nodes)]
        path.append(x.copy())
    return np.array(path)


def sharpen(gradients, w0, weights, step, rho, local_steps, rounds):
    """DFedSAM: return x by round."""
    x = np.tile(np.asarray(w0, np.float64), (len(weights), 1))
    path = [x]
    for _ in range(rounds):
        for _ in range(local_steps):
            g = gradients(x)
            x = x - step * gradients(x + rho * g / np.linalg.norm(g, axis=1, keepdims=True))
        x = weights @ x
        path.append(x)
    return np.array(path)


def descend_on_own_beats(gradients, w0, weights, held, step, form):
    """Asynchronous DGD along a timeline: return what is broadcast, (slot + 1, node, d)."""
    nodes = len(weights)
    shared = [np.tile(np.asarray(w0, np.float64), (nodes, 1))]
    for t, stamps in enumerate(held):
        mixed = np.stack(
            [
                sum(weights[i, j] * shared[t if i == j else stamps[i, j]][j] for j in range(nodes))
                for i in range(nodes)
            ]
        )
        at = mixed if form == "atc" else shared[t]
        shared.append(mixed - step * gradients(at))
    return np.array(shared)


def meet_with_momentum(gradients, w0, flow, pull, events, step):
    """A2CiD2 along the meetings of a run: return x and x~ (slot + 1, node, d).

    `flow` is the matrix exp([[-e, e], [e, -e]]) of a slot. `events` of a slot are (answers,
    ends, asks): answers[j] is whom j answers, ends[i] with whom i ends its meeting, or -1; asks[i]
    tells whether i proposes after its gradient.
    """
    nodes = len(events[0][0])
    x = np.tile(np.asarray(w0, np.float64), (nodes, 1))
    second, frozen, answered = x.copy(), x.copy(), {}
    path = [(x.copy(), second.copy())]
    for answers, ends, asks in events:
        x, second = flow[0, 0] * x + flow[0, 1] * second, flow[1, 0] * x + flow[1, 1] * second
        whole = np.zeros_like(x)  # x_j - x_i of the meetings of this slot
        for i in np.flatnonzero(ends >= 0):
            whole[i] = answered[ends[i], i] - frozen[i]
        for j in np.flatnonzero(answers >= 0):
            answered[j, answers[j]] = x[j].copy()
            whole[j] = frozen[answers[j]] - x[j]
        x, second = x + whole / 2, second + pull * whole
        step_now = step * gradients(x)
        x, second = x - step_now, second - step_now
        frozen = np.where(asks[:, None], x, frozen)
        path.append((x.copy(), second.copy()))
    return tuple(map(np.array, zip(*path, strict=True)))


def share_updates(gradients, w0, forms, held, step, most, window):
    """DRACO on a complete graph along a timeline: return x (slot + 1, node, d).

    `forms[t, j]` tells whether node j forms a message after its gradient of slot t; `held`
    (slot, rx, tx) are the stamps held. Message number n of a node is its n-th.
    """
    nodes = held.shape[1]
    x = np.tile(np.asarray(w0, np.float64), (nodes, 1))
    waiting, outgoing = np.zeros_like(x), np.zeros_like(x)
    number, used = np.zeros(nodes, int), np.zeros(nodes, int)
    seen = np.zeros((nodes, nodes), int)
    sent, path = [(outgoing.copy(), number.copy())], [x.copy()]
    for t, stamps in enumerate(held):
        for i in range(nodes):
            for j in range(nodes):
                updates, numbers = sent[stamps[i, j]]
                if i == j or numbers[j] <= seen[i, j]:
                    continue
                seen[i, j] = numbers[j]
                if used[i] < most:
                    used[i] += 1
                    x[i] += updates[j] / nodes
        move = -step * gradients(x)
        x, waiting = x + move / nodes, waiting + move
        outgoing[forms[t]], waiting[forms[t]] = waiting[forms[t]], 0.0
        number = number + forms[t]
        if (t + 1) % window == 0:
            used[:] = 0
        sent.append((outgoing.copy(), number.copy()))
        path.append(x.copy())
    return np.array(path)


def share_chunks(gradients, w0, part, draws, held, hears, step, *, tau, beta, least):
    """DFL-AA along a timeline: return x (slot + 1, node, d) and p (node, node) at the end.

    `part[k]` is the chunk of entry k. `draws[s][j]` is (chunk, number of the model, does the model
    begin here?) of the message of stamp s of node j. A box has the newest model's chunks of each.
    """
    nodes = held.shape[1]
    x = np.tile(np.asarray(w0, np.float64), (nodes, 1))
    out, path = [x.copy()], [x.copy()]
    boxes = [{} for _ in range(nodes)]  # sender -> [number, age, {chunk: values}]
    p, before = np.ones((nodes, nodes)), np.zeros_like(held[0])
    for t, stamps in enumerate(held):
        mixed = x.copy()
        for i in range(nodes):
            for j in np.flatnonzero(hears[i] & (stamps[i] != before[i])):
                chunk, number, _ = draws[stamps[i, j]][j]
                if number > boxes[i].get(j, [0])[0]:
                    boxes[i][j] = [number, 0, {}]
                if number == boxes[i][j][0]:
                    boxes[i][j][2][chunk] = out[stamps[i, j]][j][part == chunk]
            for chunk in np.unique(part):
                total, weight = x[i, part == chunk].copy(), 1.0
                for j, (_, age, values) in boxes[i].items():
                    if chunk in values:
                        u = np.exp(-age / tau) / max(p[i, j], least)
                        total, weight = total + u * values[chunk], weight + u
                mixed[i, part == chunk] = total / weight
            for j, box in boxes[i].items():
                box[1] += 1
                p[i, j] += beta * (len(box[2]) / len(np.unique(part)) - p[i, j])
        before = stamps
        x = mixed - step * gradients(mixed)
        begins = np.array([begun for _, _, begun in draws[t + 1]])
        out.append(np.where(begins[:, None], x, out[-1]))
        path.append(x.copy())
    return np.array(path), p
