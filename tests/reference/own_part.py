"""Algorithm 1 with a share of the own progress, told again in plain NumPy, slot by slot."""

import numpy as np


class Likeness:
    """What one node measures of the others, by the equations of `measured`."""

    def __init__(self, constants):
        self.c, self.start, self.window = constants, None, 0
        self.product = self.square = 0.0

    def rho(self, others, own, age, share):
        """Return rho in a slot in which the sums are `others` and `own`."""
        part = self.alike(others, own, age)
        if part is None:
            return self.c["start"]
        return max(self.c["least"] + (self.c["most"] - self.c["least"]) * part, share)

    def alike(self, others, own, age):
        """Return how far the others move as the node does, from 0 to 1; None for unknown."""
        if self.start is None:
            self.start, self.window = (others, own), 0
            return None
        self.window += 1
        dy, dx = others - self.start[0], own - self.start[1]
        square = dx @ dx
        product = self.c["kept"] * self.product + np.clip(dy @ dx, -square, square)
        square = self.c["kept"] * self.square + square
        ends = self.window >= max(self.c["window"], age)
        if ends:
            self.start, self.window = (others, own), 0
            self.product, self.square = product, square
        return None if square == 0 else np.clip(self.c["gain"] * product / square, 0, 1)


class NetworkPace:
    """Where the network goes, as one node sees it, by the equations of `network_momentum`."""

    def __init__(self, constants):
        self.c, self.before, self.ages = constants, None, []
        self.pace = self.slope = self.age = 0.0

    def movement(self, point, slope, age, step, beta):
        """Return w_i(t+1) - w_i(t) after the gradient `slope`."""
        self.ages.append(age)
        self.age += (age - self.age) / min(len(self.ages), self.c["look_back"])
        part = 1 / (1 + self.c["long"] * self.age)
        moved = 0.0 if self.before is None else point - self.before
        self.before = point
        self.pace = (1 - part) * self.pace + part * moved
        self.slope = (1 - part) * self.slope + part * slope
        return beta * self.pace - step * (slope - self.slope / 2)


def share_with_own_part(
    gradients, w0, alpha, held, step, rho, *, constants, finished=None, memory=10**9, beta=None
):
    """Return w (slot + 1, node, d) along tau = held[t, i, j], every w_i(t) that ever was kept.

    rho is a number, "measured", "centred" or "adaptive". A gradient is taken at the v_i of the
    slot in which it begins, and applied where `finished`. At most the last `memory` different own
    parameters are looked at. With `beta` nodes go on along the network's pace.
    """
    slots, nodes = len(held), len(alpha)
    finished = np.ones((slots, nodes), bool) if finished is None else finished
    history = [np.tile(w0, (nodes, 1))]
    changes = [[0] for _ in range(nodes)]  # slots from which on a node had other parameters
    points, seen = [None] * nodes, [Likeness(constants) for _ in range(nodes)]
    pace = np.zeros_like(history[0])  # of "centred": the mean own movement in a slot
    network = [NetworkPace(constants) for _ in range(nodes)]
    for t in range(slots):
        new = history[t].copy()
        for i in range(nodes):
            oldest = changes[i][-memory:][0]
            others = [j for j in range(nodes) if j != i]
            ages = t - held[t, i]
            mean = sum(alpha[j] * ages[j] for j in others) / sum(alpha[j] for j in others)
            back = int(np.ceil(mean - 0.5 - 1e-9))  # rounded, halves down
            then = history[max(t - back, oldest)][i]
            copies = sum(alpha[j] * history[held[t, i, j]][j] for j in others)
            share, even = rho, 0.0
            own = sum(alpha[j] * history[max(held[t, i, j], oldest)][i] for j in others)
            moved = history[t][i] - history[max(t - 1, 0)][i]
            pace[i] += (moved - pace[i]) / (1 + constants["long"] * back)
            if rho == "measured":
                share = seen[i].rho(copies, own, back, alpha[i])
            if rho == "centred":
                share, even = alpha[i], alpha[i]
            if rho == "adaptive":
                part = seen[i].alike(copies, own, back)
                part = constants["start"] if part is None else part
                share = (1 - part) * alpha[i] + part * max(0.5, alpha[i])
                even = (1 - part) * alpha[i]
            point = (
                copies + alpha[i] * then + share * (history[t][i] - then) - even * back * pace[i]
            )
            if points[i] is None:
                points[i] = point
            if finished[t, i]:
                slope = gradients[i](points[i])[1]
                if beta is None:
                    new[i] -= step * slope
                else:
                    new[i] += network[i].movement(point, slope, back, step, beta)
                points[i] = None
                changes[i].append(t + 1)
        history.append(new)
    return np.array(history)
