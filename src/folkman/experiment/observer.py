"""Looking at a run between two stretches: what is shown of it, and what is kept of its network.

Live files are written by `folkman.record.live`; the frames over the whole run, at most sixty, by
`folkman.record.scene`.
"""

import math

from folkman.engine.simulate import Mark, Simulation
from folkman.experiment.frames import frame_of
from folkman.record.folder import RunFolder
from folkman.record.live import LiveWriter
from folkman.record.run import DIVERGED, Run
from folkman.record.scene import MOST_FRAMES, Scene, join, load_scene, save_scene, take

__all__ = ["Observer"]


class Observer:
    """The watcher of one run; `see` every recorded slot, `save` with each checkpoint, `end` when it is done."""

    def __init__(self, folder: RunFolder, run: Run, simulation: Simulation, slots: int) -> None:
        self.run, self.simulation, self.slots = run, simulation, slots
        self.live = LiveWriter(folder.live(run), run, slots, simulation.problem.num_nodes)
        self.kept = folder.scene(run)
        records = math.ceil(slots / simulation.recording.every)
        self.every = max(
            1, math.ceil(records / (MOST_FRAMES - 2))
        )  # frames at slot 0 and at the end come on top
        self.frames: list[Scene] = []

    def begin(self, done: int) -> None:
        """Start, or go on at slot `done`: what was told of later slots is forgotten."""
        before = load_scene(self.kept) if done else None
        self.frames = [] if before is None else [take(before, before.slot <= done)]
        self.live.begin()

    def see(self, mark: Mark, row: dict[str, float]) -> None:
        """Look at a recorded slot; the row is the last of the run's rows."""
        done = int(row["slots"])
        last = done >= self.slots or self.run.status == DIVERGED
        number = math.ceil(done / self.simulation.recording.every)
        scene = None
        if number % self.every == 0 or last:
            scene = frame_of(self.simulation, mark)
            if not self.frames or done > self.frames[-1].slot[-1]:
                self.frames.append(scene)
        self.live.add(last=last)
        self.live.show(lambda: scene or frame_of(self.simulation, mark))

    def save(self) -> None:
        """Write the frames so far: before a checkpoint, which is then never ahead of them."""
        if self.frames:
            self.frames = [join(self.frames)]
            save_scene(self.frames[0], self.kept)

    def end(self) -> None:
        """Write the frames, and take the live files away."""
        self.save()
        self.run.scene = self.frames[0] if self.frames else None
        self.live.end()
