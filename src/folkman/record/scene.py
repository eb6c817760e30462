"""The scene of a run, frame by frame: positions, the ages of held copies, who is on the air.

A run keeps at most `MOST_FRAMES` frames, evenly over its recorded slots, in `network/RUN.npz` of
its folder. Index order is [receiver, sender]. Around a server the last index is the server. What a
network does not have is NaN (or -1 for ages and slots): an abstract delay law has neither positions
nor bandwidth.
"""

import math
import zipfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkman.files import write_whole
from folkman.record.json_file import Json
from folkman.record.run import Run

__all__ = ["MOST_FRAMES", "MOST_NODES", "MOVING", "STATIC", "Scene", "frame_json", "from_timeline"]
__all__ += ["join", "load_scene", "plain", "save_scene", "scene_of", "take"]

MOST_FRAMES = 60
MOST_NODES = 64
"""Nodes up to which pairs are kept: a frame holds three tables of nodes x nodes."""


class Scene(NamedTuple):
    """The frames of one run, and what does not change between them."""

    slot: NDArray[np.int32]  # (frame,)
    seconds: NDArray[np.float64]  # (frame,)
    positions_m: NDArray[np.float32]  # (frame, node, 2)
    age_slots: NDArray[np.int32]  # (frame, rx, tx) of the copy held; -1: none
    # (frame, rx, tx) ages of the copies in use, summed over all slots before the frame's
    age_sums: NDArray[np.int64]
    on_air: NDArray[np.bool_]  # (frame, rx, tx) a broadcast of tx is on its way to rx
    left_slots: NDArray[np.int32]  # (frame, tx) until it has arrived; -1: unknown
    stamp: NDArray[np.int32]  # (frame, tx) the slot before which it was formed; -1: unknown
    # (frame, tx) slots on the air, added up over all slots before the frame's; NaN: not known
    air_slots: NDArray[np.float64]
    share: NDArray[np.float32]  # (frame, tx) of the bandwidth
    sinr_db: NDArray[np.float32]  # (frame, rx, tx) of what is on the air
    disagreement: NDArray[np.float32]  # (frame, node) ||v_i - w||
    gradients: NDArray[np.int64]  # (frame, node) finished so far
    samples: NDArray[np.int64]  # (node,) held
    interferers_m: NDArray[np.float32]  # (point, 2) near the cell
    cell_radius_m: float
    bandwidth_hz: float
    threshold_db: float
    server: bool

    @property
    def size(self) -> int:
        """Return the number of nodes, the server counted."""
        return self.positions_m.shape[1]

    @property
    def placed(self) -> bool:
        """Tell whether the network has positions."""
        return bool(np.isfinite(self.positions_m).all())

    @property
    def paired(self) -> bool:
        """Tell whether pairs were kept."""
        return self.age_slots.shape[1] == self.size

    @property
    def mean_ages(self) -> NDArray[np.float64]:
        """Return the mean age of the copy that each held of each other over all slots, (rx, tx).

        NaN on the diagonal and where none is held. Of a scene that has no sums, kept by an earlier
        version, the mean of its frames.
        """
        held = np.all(self.age_slots >= 0, axis=0) & ~np.eye(self.age_slots.shape[1], dtype=bool)
        if self.age_sums.shape == self.age_slots.shape:
            means = self.age_sums[-1] / max(int(self.slot[-1]), 1)
        else:
            means = self.age_slots.mean(axis=0)
        return np.where(held, means, np.nan)

    @property
    def airtimes(self) -> NDArray[np.float64]:
        """Return the share of all slots that each sender was on the air, (tx,); NaN: not known.

        A frame is an instant: what was sent between two frames is in none of them.
        """
        return self.air_slots[-1] / max(int(self.slot[-1]), 1)

    @property
    def seen(self) -> NDArray[np.int64]:
        """Return in how many frames each sender was seen on the air, (tx,)."""
        sending = np.where(self.left_slots >= 0, self.left_slots, np.nan_to_num(self.share)) > 0
        return sending.sum(axis=0)

    def name(self, index: int) -> str:
        """Return what a node is called on a figure."""
        return "server" if self.server and index == self.size - 1 else str(index)

    def where(self, frame: int) -> NDArray[np.float32]:
        """Return where to draw nodes, (node, 2): their positions, or around the server."""
        if self.placed:
            return self.positions_m[frame]
        around = self.size - self.server
        angle = 2 * np.pi * np.arange(around) / max(around, 1) + np.pi / 2
        circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        return np.concatenate([circle, np.zeros((int(self.server), 2))]).astype(np.float32)


STATIC = ("samples", "interferers_m", "cell_radius_m", "bandwidth_hz", "threshold_db", "server")
"""The fields that are the same in all frames."""
MOVING = tuple(name for name in Scene._fields if name not in STATIC)
"""The others, whose first axis is the frame."""
LATER = ("age_sums", "air_slots")
"""The fields that a scene of an earlier version may lack."""


def take(scene: Scene, kept: NDArray[np.bool_]) -> Scene:
    """Return the scene with some of its frames."""
    return scene._replace(**{name: getattr(scene, name)[kept] for name in MOVING})


def join(scenes: Sequence[Scene]) -> Scene:
    """Return the frames of all scenes of one run, one after the other."""
    frames = {name: [getattr(part, name) for part in scenes] for name in MOVING}
    return scenes[0]._replace(**{name: np.concatenate(each) for name, each in frames.items()})


def frame_json(scene: Scene, frame: int) -> Json:
    """Return one frame as JSON can hold it."""
    fields = scene._asdict().items()
    return {name: plain(value if name in STATIC else value[frame]) for name, value in fields}


def plain(value: Any) -> Any:
    """Return what JSON can hold: numbers in six digits, None for those that are not finite."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


def save_scene(scene: Scene, path: Path) -> None:
    """Write a scene, whole or not at all."""
    arrays = {name: np.asarray(value) for name, value in scene._asdict().items()}
    path.parent.mkdir(exist_ok=True)
    write_whole(path, partial(np.savez_compressed, allow_pickle=False, **arrays))


def load_scene(path: Path) -> Scene | None:
    """Read a scene, which nobody needs: None if there is none, or one of another version."""
    if not path.is_file():
        return None
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays: dict[str, Any] = {
                name: file[name] for name in Scene._fields if name in file or name not in LATER
            }
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    arrays.setdefault("age_sums", np.zeros((len(arrays["slot"]), 0, 0), np.int64))
    arrays.setdefault("air_slots", np.full(arrays["share"].shape, np.nan))
    plain = {name: arrays[name].item() for name in STATIC[2:]}
    return Scene(**(arrays | plain))


def scene_of(run: Run) -> Scene | None:
    """Return the scene of a run: as its folder kept it, or by its timeline; None without both."""
    if run.scene is not None or not hasattr(run.timeline, "held"):
        return run.scene
    slot_s = run.last("seconds") / run.last("slots") if run.rows and run.last("slots") else 1.0
    return from_timeline(run.timeline.held, run.timeline.finished, slot_s)


def from_timeline(
    held: NDArray[np.int32], finished: NDArray[np.bool_], slot_s: float = 1.0
) -> Scene:
    """Return the scene of a timeline between peers: ages and gradients, in few frames."""
    slots, nodes = finished.shape
    slot = np.unique(np.linspace(0, slots - 1, min(slots, MOST_FRAMES)).astype(np.int32))
    frames, unknown = len(slot), np.float32(np.nan)
    return Scene(
        slot=slot,
        seconds=slot * slot_s,
        positions_m=np.full((frames, nodes, 2), unknown),
        age_slots=np.maximum(slot[:, None, None] - held[slot], 0).astype(np.int32),
        age_sums=_sums_before(slot, held),
        on_air=np.zeros((frames, nodes, nodes), bool),
        left_slots=np.full((frames, nodes), -1, np.int32),
        stamp=np.full((frames, nodes), -1, np.int32),
        air_slots=np.full((frames, nodes), np.nan),
        share=np.full((frames, nodes), unknown),
        sinr_db=np.full((frames, nodes, nodes), unknown),
        disagreement=np.full((frames, nodes), unknown),
        gradients=np.cumsum(finished, axis=0, dtype=np.int64)[slot],
        samples=np.zeros(nodes, np.int64),
        interferers_m=np.zeros((0, 2), np.float32),
        cell_radius_m=float("nan"),
        bandwidth_hz=float("nan"),
        threshold_db=float("nan"),
        server=False,
    )


def _sums_before(slot: NDArray[np.int32], held: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the ages summed over the slots before each frame's, (frame, rx, tx)."""
    sums = np.zeros((len(slot), *held.shape[1:]), np.int64)
    for frame in range(1, len(slot)):
        between = np.arange(slot[frame - 1], slot[frame])
        ages = np.maximum(between[:, None, None] - held[between], 0)
        sums[frame] = sums[frame - 1] + ages.sum(axis=0)
    return sums
