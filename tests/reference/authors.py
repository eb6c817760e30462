"""What the authors' public code computes, told again in NumPy, float64, with its own conventions.

Each function names the repository and the file that was read; no line of it is here. Sets of nodes,
draws and compressions come from outside, so that two codes can be asked about the same ones.
`gradients` are functions w -> (loss, gradient), one a node; `sizes` their numbers of samples.
"""

import numpy as np
from scipy.linalg import expm

# --- around a server


def feddyn(gradients, x0, sizes, sets, steps, *, alpha, local_steps):
    """github.com/alpemreacar/FedDyn: utils_methods.py, utils_general.py; return the cloud's models.

    alpha is divided by the node's size over the mean size. Its quadratic part is a weight decay of
    the optimizer, the rest a linear term of the loss. `history` is -lambda_i over that alpha; the
    cloud adds its mean over all nodes to the mean model of those that took part. `steps` is one a
    node. Gradients above a norm of 10 are cut there; none here is.
    """
    nodes = len(gradients)
    weight = np.asarray(sizes) / np.mean(sizes)
    history = np.zeros((nodes, len(x0)))
    cloud, path = np.array(x0), [np.array(x0)]
    for active in sets:
        trained = {}
        for i in active:
            own_alpha = alpha / weight[i]
            linear = own_alpha * (history[i] - cloud)
            w = cloud.copy()
            for _ in range(local_steps):
                of_loss = gradients[i](w)[1] + linear
                assert np.linalg.norm(of_loss) < 10
                w = w - steps[i] * (of_loss + own_alpha * w)
            history[i] += w - cloud
            trained[i] = w
        cloud = np.mean(list(trained.values()), axis=0) + history.mean(axis=0)
        path.append(cloud)
    return np.array(path)


def scaffold(gradients, x0, sizes, sets, steps, *, local_steps, server_step, scaled_renewal=False):
    """github.com/alpemreacar/FedDyn: utils_methods.py; return the server's models.

    Of FedDyn's authors; code of SCAFFOLD's own authors was not found. The common
    c is divided by a node's relative size in its steps, yet not where c_i is renewed;
    `scaled_renewal` divides it there too.
    """
    nodes = len(gradients)
    weight = np.asarray(sizes) / np.mean(sizes)
    own, common = np.zeros((nodes, len(x0))), np.zeros(len(x0))
    server, path = np.array(x0), [np.array(x0)]
    for active in sets:
        trained, change = [], np.zeros(len(x0))
        for i in active:
            correction = common / weight[i] - own[i]
            w = server.copy()
            for _ in range(local_steps):
                w = w - steps[i] * (gradients[i](w)[1] + correction)
            taken_off = common / weight[i] if scaled_renewal else common
            renewed = own[i] - taken_off + (server - w) / (local_steps * steps[i])
            change += weight[i] * (renewed - own[i])
            own[i] = renewed
            trained.append(w)
        server = server_step * np.mean(trained, axis=0) + (1 - server_step) * server
        common = common + change / nodes
        path.append(server)
    return np.array(path)


def fedprox(gradients, x0, sizes, sets, step, *, mu, local_steps):
    """github.com/litian96/FedProx: flearn/trainers/fedprox.py, fedbase.py, optimizer/pgd.py.

    Nobody is dropped. The mean is by numbers of samples, where the paper has the plain one.
    """
    latest, path = np.array(x0), [np.array(x0)]
    for selected in sets:
        total, samples = np.zeros(len(x0)), 0.0
        for i in selected:
            v, centre = latest.copy(), latest
            for _ in range(local_steps):
                v -= step * (gradients[i](v)[1] + mu * (v - centre))
            total += sizes[i] * v
            samples += sizes[i]
        latest = total / samples
        path.append(latest)
    return np.array(path)


def fedopt(
    gradients, x0, sizes, sets, step, *, rule, server_step, betas, epsilon, first, corrected=True
):
    """github.com/google-research/federated: optimization/shared/fed_avg_schedule.py, with
    utils/optimizers/yogi.py; Adam and Adagrad of github.com/keras-team/keras, optimizer_v2, whose
    fused kernels were not read. Return the server's models.

    One local step. The server's optimizer descends along minus the mean change. Adam and Yogi
    correct for the start of their moments (`corrected`). The step that makes their variables has a
    zero gradient and is counted, so that the first round is number 2. `first` is the first v: the
    authors set 0 everywhere.
    """
    server, path = np.array(x0), [np.array(x0)]
    m, v = np.zeros(len(x0)), np.full(len(x0), float(first))
    for number, active in enumerate(sets, start=2):
        changes = [-step * gradients[i](server)[1] for i in active]
        g = -np.average(changes, axis=0, weights=np.asarray(sizes)[active])
        if rule == "momentum":
            m = betas[0] * m - server_step * g
            server = server + m
        elif rule == "adagrad":
            v = v + g * g
            server = server - server_step * g / (np.sqrt(v) + epsilon)
        else:
            m = m + (1 - betas[0]) * (g - m)
            up = np.sign(g * g - v) * g * g if rule == "yogi" else g * g - v
            v = v + (1 - betas[1]) * up
            start = np.sqrt(1 - betas[1] ** number) / (1 - betas[0] ** number)
            long = server_step * start if corrected else server_step
            server = server - long * m / (np.sqrt(v) + epsilon)
        path.append(server)
    return np.array(path)


def ringmaster(gradients, x0, step, compute, until, *, max_delay):
    """github.com/vectozavr/ringmaster-lmo: code/experiments/asynchronous/algorithm.py, which has
    Ringmaster ASGD in the form with stops; return x, its steps and the stops.

    A queue of events: who is ready next. A node goes on from the point that its gradient led to; a
    counter of steps for each node, and who has reached R begins anew. No two are ready at once.
    """
    x, taken, stopped = np.array(x0), 0, 0
    ready = {i: (slots, x) for i, slots in enumerate(compute)}
    delays = np.zeros(len(compute), int)
    while min(when for when, _ in ready.values()) <= until:
        first = min(ready, key=lambda i: ready[i][0])
        now, at = ready[first]
        assert sum(when == now for when, _ in ready.values()) == 1
        x, taken = x - step * gradients[first](at)[1], taken + 1
        delays += 1
        delays[first] = 0
        late = np.flatnonzero(delays == max_delay)
        delays[late] = 0
        for i in (first, *late.tolist()):
            ready[i] = (now + compute[i], x)
        stopped += len(late)
    return x, taken, stopped


# --- between peers; here columns or rows are nodes as the authors have them


def _gradients_at(gradients, models):
    return np.stack([of(w)[1] for of, w in zip(gradients, models, strict=True)])


def choco(gradients, x0, weights, step, gamma, compress, rounds):
    """github.com/epfml/ChocoSGD: convex_code/logistic.py; return x by round, (round, node, d).

    Models are columns. Copies begin at the models.
    """
    nodes = len(weights)
    x = np.tile(np.asarray(x0, np.float64)[:, None], (1, nodes))
    copies, path = x.copy(), [x.T]
    for _ in range(rounds):
        ahead = x - step * _gradients_at(gradients, x.T).T
        x = ahead + gamma * copies @ (weights - np.eye(nodes))
        copies = copies + np.stack([compress(column) for column in (x - copies).T], axis=1)
        path.append(x.T)
    return np.array(path)


def choco_of_parts(gradients, x0, weights, step, gamma, compress, rounds):
    """github.com/epfml/ChocoSGD: dl_code/pcode/optim/parallel_choco.py; return x by round.

    A node keeps its own copy and the weighted sum of its neighbours'. Both begin at 0.
    """
    nodes = len(weights)
    x = np.tile(np.asarray(x0, np.float64), (nodes, 1))
    own, memory, path = np.zeros_like(x), np.zeros_like(x), [x]
    for _ in range(rounds):
        x = x - step * _gradients_at(gradients, x)
        x = x + gamma * (memory - own)
        sent = [compress(change) for change in x - own]
        own = own + np.stack(sent)
        for i, j in zip(*np.nonzero(weights), strict=True):
            memory[i] = memory[i] + weights[i, j] * sent[j]
        path.append(x)
    return np.array(path)


def matcha(gradients, x0, partners, flags, neighbour_weight, step):
    """github.com/JYWa/MATCHA: communicator.py, train_mpi.py; return x after each round.

    `partners[m][i]` is whom i meets in matching m, or -1; `flags[k][m]` tells whether it is used in
    round k. A node steps, then takes the same part of each partner, and the rest of itself.
    """
    x = np.tile(np.asarray(x0, np.float64), (len(gradients), 1))
    path = [x]
    for on in flags:
        x = x - step * _gradients_at(gradients, x)
        if any(on):
            mixed = np.zeros_like(x)
            for i in range(len(x)):
                met = [row[i] for row, used in zip(partners, on, strict=True) if used]
                met = [j for j in met if j != -1]
                mixed[i] = (1 - len(met) * neighbour_weight) * x[i]
                for j in met:
                    mixed[i] += neighbour_weight * x[j]
            x = mixed
        path.append(x)
    return np.array(path)


def matcha_weight(laplacians, p):
    """graph_manager.py there: the a of the semidefinite program, which has b = a^2 at its end.

    The least s with (1 - s) 1 - 2 a L - J + b (L^2 + 2 V) <= 0, as they sign it, is at the least
    largest eigenvalue; it is searched on a grid that closes in.
    """
    nodes = laplacians.shape[1]
    mean = np.einsum("m,mij->ij", p, laplacians)
    spread = np.einsum("m,mij->ij", p * (1 - p), laplacians)

    def norm(a):
        square = a**2 * (mean @ mean + 2 * spread)
        return np.linalg.eigvalsh(np.eye(nodes) - 2 * a * mean - 1 / nodes + square)[-1]

    low, high = 0.0, 2.0
    for _ in range(12):
        grid = np.linspace(low, high, 41)
        best = int(np.argmin([norm(a) for a in grid]))
        low, high = grid[max(best - 1, 0)], grid[min(best + 1, 40)]
    return 0.5 * (low + high)


def epidemic(gradients, x0, sent_to, step, local_steps):
    """github.com/sacs-epfl/decentralizepy: node/EpidemicLearning/EL_Local.py, with
    sharing/PlainAverageSharing.py; return x after each round.

    A node that nobody chose keeps its model; the others take the plain mean.
    """
    x = np.tile(np.asarray(x0, np.float64), (len(gradients), 1))
    path = [x]
    for chosen in sent_to:
        for _ in range(local_steps):
            x = x - step * _gradients_at(gradients, x)
        after = x.copy()
        for i in range(len(x)):
            senders = [j for j in range(len(x)) if j != i and i in chosen[j]]
            if senders:
                part = 1 / (len(senders) + 1)
                after[i] = sum(part * x[j] for j in senders) + part * x[i]
        x = after
        path.append(x)
    return np.array(path)


def sgp(gradients, x0, receivers, step, rounds):
    """github.com/facebookresearch/stochastic_gradient_push: gossip_module/distributed.py,
    gossiper.py, mixing_manager.py; return x and y after the gradient of each round.

    Nothing overlaps. A model is divided by its weight for the forward pass and multiplied again
    before the optimizer's step. Then a node scales what it has once, sends that to each of its
    `receivers`, and adds what comes.
    """
    nodes = len(gradients)
    params, weight = np.tile(np.asarray(x0, np.float64), (nodes, 1)), np.ones(nodes)
    path = []
    for _ in range(rounds):
        taken = _gradients_at(gradients, params / weight[:, None])
        params = params - step * taken
        path.append(np.column_stack([params, weight]))
        scale = np.array([1 / (1 + len(others)) for others in receivers])
        params, weight = params * scale[:, None], weight * scale
        came, came_weight = np.zeros_like(params), np.zeros(nodes)
        for i, others in enumerate(receivers):
            for j in others:
                came[j] += params[i]
                came_weight[j] += weight[i]
        params, weight = params + came, weight + came_weight
    return np.array(path)


def exact_diffusion(gradients, x0, weights, step, rounds, *, averaged):
    """github.com/Bluefog-Lib/bluefog: examples/pytorch_optimization.py; return w by round.

    `averaged`: weights are halved, and the node's own is (1 + w_ii) / 2.
    """
    nodes = len(weights)
    own, others = np.diag(weights).copy(), weights - np.diag(np.diag(weights))
    if averaged:
        own, others = (own + 1) / 2, others / 2
    w = np.tile(np.asarray(x0, np.float64), (nodes, 1))
    psi_before, path = w.copy(), [w]
    for _ in range(rounds):
        psi = w - step * _gradients_at(gradients, w)
        phi = psi + w - psi_before
        w = own[:, None] * phi + others @ phi
        psi_before = psi
        path.append(w)
    return np.array(path)


def divshare(gradients, x0, places, draws, held, step, local_steps):
    """github.com/sacs-epfl/divshare: node/DivShare.py, sharing/DivShareSharing.py under
    async-dp/src/asyncNodes; return x after each slot.

    `places[f]` are the entries of fragment f, `draws` and `held` as in `peers.share_fragments`. A
    queue has one list for each sender, in which a newer fragment replaces the same older one. The
    trained model goes out, and then entries are summed and counted, the own ones first.
    """
    nodes = len(gradients)
    x = np.tile(np.asarray(x0, np.float64), (nodes, 1))
    out, path, queues = [x.copy()], [x.copy()], [{} for _ in range(nodes)]
    before = np.zeros_like(held[0])
    for slot, stamps in enumerate(held, start=1):
        for i, j in np.argwhere(stamps != before):
            fragment, receivers = draws[stamps[i, j]][j]
            if i != j and i in receivers:
                waiting = [each for each in queues[i].get(j, []) if each[0] != fragment]
                queues[i][j] = [*waiting, (fragment, out[stamps[i, j]][j][places[fragment]])]
        before = stamps
        x = x - step * _gradients_at(gradients, x)
        out.append(out[-1] if slot % local_steps else x.copy())
        for i in range(nodes) if slot % local_steps == 0 else ():
            total, count = x[i].copy(), np.ones(x.shape[1])
            for came in queues[i].values():
                for fragment, values in came:
                    total[places[fragment]] += values
                    count[places[fragment]] += 1
            x[i], queues[i] = total * (1 / count), {}
        path.append(x.copy())
    return np.array(path)


def dfl_aa(gradients, x0, held, hears, step, tau):
    """github.com/DFedN/DFL-AA: dfl_core.py; return the trained models, (slot + 1, node, d).

    Models come whole or not at all, so that completeness is 1. A round trains, sends, and adds the
    weighted differences to the neighbours' newest models, over 1 plus the weights. Ages run from
    the sending of a model, here in slots.
    """
    x = np.tile(np.asarray(x0, np.float64), (len(gradients), 1))
    trained = [x]
    for now, stamps in enumerate(held):
        after = x.copy()
        for i in range(len(x)):
            change, total = np.zeros(x.shape[1]), 0.0
            for j in np.flatnonzero(hears[i] & (stamps[i] > 0)):
                w = np.exp(-max(0.0, now - stamps[i, j]) / max(1e-6, tau))
                change += w * (trained[stamps[i, j]][j] - x[i])
                total += w
            after[i] = x[i] + change / (1.0 + total)
        x = after - step * _gradients_at(gradients, after)
        trained.append(x)
    return np.array(trained)


def swift(gradients, x0, weights, held, step, every, missing):
    """github.com/marcobornstein/SWIFT: AsyncCommunicator.py, Train.py; return x after each slot.

    The gradient is that before the averaging, which takes the newest message of each neighbour.
    `missing` "stored" is the standard average, with the last model of whoever was not heard;
    the others are the one that saves memory, "scale" with its weight boost.
    """
    nodes = len(weights)
    x = np.tile(np.asarray(x0, np.float64), (nodes, 1))
    path, stored = [x], np.tile(x, (nodes, 1, 1))
    waiting, before = [set() for _ in range(nodes)], np.zeros_like(held[0])
    for number, stamps in enumerate(held, start=1):
        taken = _gradients_at(gradients, x)
        after = x.copy()
        for i in range(nodes):
            near = [j for j in np.flatnonzero(weights[i]) if j != i]
            waiting[i] |= {j for j in near if stamps[i, j] != before[i, j]}
            if number % every:
                continue
            for j in waiting[i]:
                stored[i, j] = path[stamps[i, j]][j]
            used = near if missing == "stored" else sorted(waiting[i])
            own, boost = 1 - sum(weights[i, j] for j in used), 1.0
            if missing == "scale":
                boost = (len(used) + 1) / (len(near) + 1)
                own = (1 - sum(weights[i, j] for j in near)) / boost
            after[i] = own * x[i] + sum(weights[i, j] / boost * stored[i, j] for j in used)
            waiting[i] = set()
        before = stamps
        x = after - step * taken
        path.append(x)
    return np.array(path)


def acid_constants(neighbours, rate):
    """github.com/AdelNabli/ACiD: utils/graph_utils.py; return eta and beta~ of a regular graph."""
    nodes = len(neighbours)
    chances = np.zeros((nodes, nodes))
    for i, others in enumerate(neighbours):
        chances[i, others] += 1 / len(others)
    laplacian = rate * (np.eye(nodes) - chances)
    inverse = np.linalg.pinv(laplacian)
    resistance = 0.0
    for i, others in enumerate(neighbours):
        for j in others:
            along = np.eye(nodes)[i] - np.eye(nodes)[j]
            resistance = max(resistance, 0.5 * along @ inverse @ along)
    connectivity = 1 / np.linalg.eigvalsh(laplacian)[1]
    return 0.5 / np.sqrt(connectivity * resistance), 0.5 * np.sqrt(connectivity / resistance)


def acid_flow(x, second, eta, elapsed):
    """utils/acid_utils.py there: x and x~ after so much time, in units of a gradient's."""
    flow = expm(eta * elapsed * np.array([[-1.0, 1.0], [1.0, -1.0]]))
    return flow[0, 0] * x + flow[0, 1] * second, flow[1, 1] * second + flow[1, 0] * x


def acid_meeting(x, second, other, beta):
    """p2p_averaging.py there, after the flow: x~ is moved by the difference, x to the middle."""
    return x + 0.5 * (other - x), second + beta * (other - x)
