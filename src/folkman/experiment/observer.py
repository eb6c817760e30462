"""What a run tells while it goes on, for a page that watches and for the report at its end.

    live/RUN.jsonl     a line when it begins (label, seed, slots, process), then a line a recorded slot
    live/RUN.json      the scene of this moment, replaced as the run goes on
    network/RUN.npz    the scene over the whole run, at most sixty frames (`folkman.record.scene`)

The files under `live/` are gone when the run has ended. At most fifty lines are written a second and at most
`MOST_LINES` kept (every second one is then dropped); looking at a scene takes at most a twentieth of the run's time.
"""

import json
import math
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from folkman.engine.simulate import Mark, Simulation
from folkman.experiment.frames import frame_of
from folkman.files import write_whole
from folkman.record.run import Run, slug
from folkman.record.scene import MOST_FRAMES, Scene, frame_json, join, load_scene, plain, save_scene, take

__all__ = ["Observer"]

LEAST_GAP_S = 0.02
MOST_LINES = 20_000
SCENE_GAP_S = 0.1
SCENE_COST = 20.0
"""A live scene waits for this many times as long as the last one took."""


class Observer:
    """The watcher of one run; `see` every recorded slot, `save` with each checkpoint, `end` when it is done."""

    def __init__(self, root: Path, run: Run, simulation: Simulation, slots: int) -> None:
        name = slug(run.label, run.seed)
        self.run, self.simulation, self.slots = run, simulation, slots
        self.lines, self.moment = root / "live" / f"{name}.jsonl", root / "live" / f"{name}.json"
        self.kept = root / "network" / f"{name}.npz"
        records = math.ceil(slots / simulation.recording.every)
        self.every = max(1, math.ceil(records / (MOST_FRAMES - 2)))  # frames at slot 0 and at the end come on top
        self.frames: list[Scene] = []
        self.written = 0
        self.next_line_s = self.next_scene_s = 0.0

    def begin(self, done: int) -> None:
        """Start, or go on at slot `done`: what was told of later slots is forgotten."""
        for folder in (self.lines.parent, self.kept.parent):
            folder.mkdir(exist_ok=True)
        before = load_scene(self.kept) if done else None
        self.frames = [] if before is None else [take(before, before.slot <= done)]
        self._rewrite(1)

    def see(self, mark: Mark, row: dict[str, float]) -> None:
        """Look at a recorded slot; the row is the last of the run's rows."""
        done = int(row["slots"])
        last = done >= self.slots or self.run.status == "diverged"
        number = math.ceil(done / self.simulation.recording.every)
        scene = None
        if number % self.every == 0 or last:
            scene = frame_of(self.simulation, mark)
            if not self.frames or done > self.frames[-1].slot[-1]:
                self.frames.append(scene)
        now_s = time.monotonic()
        if now_s >= self.next_line_s or last:
            self._tell(row)
            self.next_line_s = now_s + LEAST_GAP_S
        if now_s >= self.next_scene_s:
            self._show(scene or frame_of(self.simulation, mark))
            took_s = time.monotonic() - now_s
            self.next_scene_s = now_s + took_s + max(SCENE_GAP_S, SCENE_COST * took_s)

    def save(self) -> None:
        """Write the frames so far: before a checkpoint, which is then never ahead of them."""
        if self.frames:
            self.frames = [join(self.frames)]
            save_scene(self.frames[0], self.kept)

    def end(self) -> None:
        """Write the frames, and take the live files away."""
        self.save()
        self.run.scene = self.frames[0] if self.frames else None
        for path in (self.lines, self.moment):
            path.unlink(missing_ok=True)
        with suppress(OSError):  # not empty: another run of the folder goes on
            self.lines.parent.rmdir()

    def _tell(self, row: dict[str, float]) -> None:
        if self.written >= MOST_LINES:
            self._rewrite(2 * math.ceil(len(self.run.rows) / MOST_LINES))
            return
        with self.lines.open("a", encoding="utf-8") as file:
            file.write(_line({"at": time.time(), "row": row}))
        self.written += 1

    def _rewrite(self, step: int) -> None:
        """Write the head and every `step`-th row there is, by rename: who follows the file starts again."""
        rows, now_s = self.run.rows[::step], time.time()
        head = {"label": self.run.label, "algorithm": self.run.algorithm, "seed": self.run.seed, "slots": self.slots}
        head |= {"nodes": self.simulation.problem.num_nodes, "pid": os.getpid(), "host": socket.gethostname()}
        text = _line({"at": now_s, **head}) + "".join(_line({"at": now_s, "row": row}) for row in rows)
        write_whole(self.lines, lambda part: part.write_text(text, encoding="utf-8"))
        self.written = len(rows)

    def _show(self, scene: Scene) -> None:
        """Replace the scene of this moment."""
        text = _line({"at": time.time(), **frame_json(scene, -1)})
        write_whole(self.moment, lambda part: part.write_text(text, encoding="utf-8"))


def _line(content: dict[str, Any]) -> str:
    return json.dumps(plain(content) | {"at": content["at"]}, allow_nan=False, separators=(",", ":")) + "\n"
