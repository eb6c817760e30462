"""Cores driven by hand: a heap of events, a virtual clock, links that lose nothing unless told."""

import heapq
import itertools
import math
from collections import defaultdict
from typing import Any

import numpy as np

from folkman import async_sharing
from folkman.arrays import jnp
from folkman.runtime.core import events
from folkman.runtime.core.core import Core
from folkman.runtime.core.own_beat import OwnBeat
from folkman.runtime.core.settings import Settings
from folkman.runtime.node import Node, Wire, _Begun

RUN = 5


class Bowl:
    """F(w) = |w - target|^2 / 2, on NumPy or JAX, one node's part."""

    num_nodes, batch, called_from_python, differentiable = 1, None, True, False

    def __init__(self, target):
        self.target = jnp.asarray(target, jnp.float32)
        self.dim, self.initial = len(target), jnp.zeros(len(target), jnp.float32)
        self.share, self.count = jnp.ones(1), np.array([10])

    def gradients(self, v, keys):
        del keys
        error = v - self.target[None]
        return 0.5 * (error * error).sum(axis=1), error


class Idle(Node):
    """A node that lives slots and learns nothing: for long schedules, where only timing matters."""

    def begin_slot(self) -> Any:
        none: Any = None
        self._begun = _Begun(self.state, none, self.mailbox.sequence.copy())
        self.mailbox.heard[:] = False
        return np.zeros(self.dim, np.float32)

    def gradient(self, point, step) -> Any:
        del step
        return np.float32(0.5), point

    def end_slot(self, loss, grad):
        del grad
        self.loss = float(loss)
        self._end(self.state, computed=True)


def node_of(number, nodes, dim=4, algorithm=None, wire=None, kind: Any = Idle):
    target = np.random.default_rng(number).normal(size=dim)
    shares = np.full(nodes, 1 / nodes)
    algorithm = algorithm or async_sharing(0.1)
    part: Any = Bowl(target)
    return kind(number, part, algorithm, shares, seed=1, wire=wire or Wire(RUN))


def core_of(number, nodes, settings=None, pace=None, **more):
    settings = settings or Settings(slot_s=0.1)
    return Core(node_of(number, nodes, **more), settings, pace or OwnBeat())


class Disk:
    """What survives: the last state and life that were saved."""

    def __init__(self):
        self.state: Any = None
        self.life, self.final, self.full = 0, None, False

    def write(self, save):
        if self.full:
            return events.SaveFailed(save.ticket, "no space left on device")
        self.state = save.state if save.state is not None else self.state
        self.life = save.life if save.life is not None else self.life
        self.final = save.final if save.final is not None else self.final
        return events.Saved(save.ticket)


class Air:
    """Cores on one virtual clock. `told` and `published` may be replaced to lose or change things."""

    def __init__(self, cores, delay_s=0.001, compute_s=0.01, save_s=0.001):
        self.cores: Any = dict(enumerate(cores)) if isinstance(cores, list) else cores
        self.delay_s, self.compute_s, self.save_s = delay_s, compute_s, save_s
        self.now_s, self._heap, self._count = 0.0, [], itertools.count()
        self.disks = {number: Disk() for number in self.cores}
        self.effects = defaultdict(list)
        self.codes, self.ticks = {}, {}
        self.drops = set()  # (kind, sender, receiver) that never arrive

    def later(self, after_s, number, event):
        heapq.heappush(self._heap, (self.now_s + after_s, next(self._count), number, event))

    def start(self, *numbers):
        for number in numbers or self.cores:
            disk = self.disks[number]
            self.step(number, events.Start(disk.state, disk.life))
        for one, other in itertools.permutations(numbers or self.cores, 2):
            self.later(0.0, one, events.Linked(other))

    def step(self, number, event):
        core = self.cores[number]
        for effect in core.step(self.now_s, event):
            self.effects[number].append((self.now_s, effect))
            self._do(number, core, effect)
        self.ticks[number] = core.next_s()

    def _do(self, number, core, effect):
        if isinstance(effect, events.Publish | events.Tell):
            kind = type(effect)
            if (kind, number, effect.peer) not in self.drops and effect.peer in self.cores:
                comes = events.Received if kind is events.Publish else events.Told
                self.later(self.delay_s, effect.peer, comes(number, effect.data))
        elif isinstance(effect, events.Compute):
            found = core.node.gradient(effect.point, effect.step)
            self.later(self.compute_s, number, events.Computed(effect.ticket, *found))
        elif isinstance(effect, events.Save):
            self.later(self.save_s, number, self.disks[number].write(effect))
        elif isinstance(effect, events.Finish):
            self.codes[number] = effect.code

    def run(self, until_s):
        stuck = 0
        while True:
            tick_s = min(self.ticks.values(), default=math.inf)
            due_s = self._heap[0][0] if self._heap else math.inf
            at_s = min(tick_s, due_s)
            if at_s > until_s:
                self.now_s = max(self.now_s, until_s)
                return
            stuck = 0 if at_s > self.now_s else stuck + 1
            assert stuck < 10_000, "time stands still: a core wants ticks and does nothing"
            self.now_s = max(self.now_s, at_s)
            if due_s <= tick_s:
                _, _, number, event = heapq.heappop(self._heap)
                if number in self.cores:
                    self.step(number, event)
            else:
                number = min(self.ticks, key=self.ticks.__getitem__)
                self.step(number, events.Tick())

    def sent(self, number, since_s=0.0, kind: Any = events.Publish) -> list[Any]:
        return [e for at_s, e in self.effects[number] if at_s >= since_s and isinstance(e, kind)]

    def logged(self, number, event) -> list[dict[str, Any]]:
        logs = [e for _, e in self.effects[number] if isinstance(e, events.Log)]
        return [dict(e.fields) for e in logs if e.event == event]

    def health(self, number) -> Any:
        return [e for _, e in self.effects[number] if isinstance(e, events.Health)][-1]
