"""A node's state on disk: its format, and the thread that writes the newest one while it learns.

The state is one safetensors file, whole or not at all, and nothing in it is executed. It holds the
algorithm's state, the mailbox and the counters: a node killed at any instant begins again from its
last save with everything it had heard by then. Writes reach the disk (fsync) before the rename.
"""

import errno
import os
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from folkman.arrays import jax, jnp
from folkman.files import write_whole
from folkman.runtime.codec import Message
from folkman.runtime.feedback import Memory
from folkman.runtime.node import Node
from folkman.runtime.telemetry import Logger

if TYPE_CHECKING:
    from folkman.runtime.server_node import ServerNode

__all__ = ["Saver", "begin_life", "pack", "read_arrays", "restore", "write_arrays"]

FORMAT = "folkman node 1"

Arrays: TypeAlias = dict[str, NDArray]
"""A node by the names of its arrays."""


def begin_life(mark: Path, spoken: int) -> int:
    """Return the number of the life that begins, and note it.

    `spoken` makes up for a note that a power cut spoilt.
    """
    text = mark.read_text().strip() if mark.is_file() else ""
    life = 1 + max(int(text) if text.isdigit() else 0, spoken)

    def write(part: Path) -> None:
        with part.open("w", encoding="ascii") as file:
            file.write(f"{life}\n")
            file.flush()
            os.fsync(file.fileno())

    write_whole(mark, write)
    return life


def pack(node: "Node | ServerNode") -> dict[str, NDArray]:
    """Return all that a node is, as arrays; call it from the thread that wakes the node."""
    arrays = {
        f"state{jax.tree_util.keystr(path)}": np.asarray(leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(node.state)
    }
    with node.mailbox.lock:
        arrays |= {
            f"mailbox.{name}": getattr(node.mailbox, name).copy() for name in node.mailbox.FIELDS
        }
        early = dict(node.mailbox.ahead)
        counters = [node.slot, getattr(node, "steps", 0), node.sequence, node.mailbox.round]
    for row, message in early.items():
        arrays[f"ahead.{row}"] = message.params
        arrays[f"ahead.{row}.head"] = np.array(
            [message.node, message.sequence, message.slot, message.round]
        )
    if memories := node.memories:
        arrays["memory.kept"] = np.stack([each.kept for each in memories])
        arrays["memory.base"] = np.array([each.base for each in memories], np.int64)
    if getattr(node, "last_sent", b""):
        arrays["sent"] = np.frombuffer(node.last_sent, np.uint8)  # type: ignore[union-attr]
    if isinstance(node, Node):
        arrays |= node.more_arrays()
    return arrays | {"counters": np.array(counters, np.int64), "params": node.params()}


def restore(node: "Node | ServerNode", arrays: dict[str, NDArray]) -> None:
    """Put a fresh node where the saved one was; refuse arrays that are not of such a node."""
    paths, structure = jax.tree_util.tree_flatten_with_path(node.state)
    leaves = [
        _fitting(arrays, f"state{jax.tree_util.keystr(path)}", np.asarray(leaf))
        for path, leaf in paths
    ]
    box = {
        name: _fitting(arrays, f"mailbox.{name}", getattr(node.mailbox, name))
        for name in node.mailbox.FIELDS
    }
    memories = _memories(node, arrays)
    slot, steps, sequence, round_ = (int(each) for each in arrays["counters"])
    node.state = jax.tree.unflatten(structure, [jnp.asarray(leaf) for leaf in leaves])
    for name, value in box.items():
        setattr(node.mailbox, name, value.copy())
    node.slot, node.sequence, node.mailbox.round = slot, sequence, round_
    node.memories = memories
    if isinstance(node, Node):
        node.steps = steps
        node.restore_more(arrays)
        node.last_sent = arrays["sent"].tobytes() if "sent" in arrays else b""
    for key in arrays:
        if key.startswith("ahead.") and key.endswith(".head"):
            number, seq, formed, of_round = (int(each) for each in arrays[key])
            params = arrays[key.removesuffix(".head")]
            row = int(key.split(".")[1])
            node.mailbox.ahead[row] = Message(node.wire.run, number, seq, formed, params, of_round)


def _memories(node: "Node | ServerNode", arrays: dict[str, NDArray]) -> list[Memory]:
    """Return what a sender remembered, with error feedback."""
    if not node.memories:
        return []
    kept = _fitting(arrays, "memory.kept", np.stack([each.kept for each in node.memories]))
    base = _fitting(arrays, "memory.base", np.zeros(len(kept), np.int64))
    return [Memory(each.copy(), int(number)) for each, number in zip(kept, base, strict=True)]


def _fitting(arrays: dict[str, NDArray], name: str, like: NDArray) -> NDArray:
    found = arrays.get(name)
    if found is None or found.shape != like.shape or found.dtype != like.dtype:
        came = "none" if found is None else f"{found.dtype}{list(found.shape)}"
        raise ValueError(
            f"saved entry '{name}' should be {like.dtype}{list(like.shape)}, the file has {came}; "
            "it is another node's or configuration's: move it away to begin anew"
        )
    return found


def write_arrays(path: Path, arrays: dict[str, NDArray], fingerprint: str) -> None:
    """Write arrays whole or not at all; a disk that refuses is an OSError."""
    from safetensors import SafetensorError
    from safetensors.numpy import save

    notes = {"format": FORMAT, "fingerprint": fingerprint}

    def write(part: Path) -> None:
        with part.open("wb") as file:
            file.write(
                save(
                    {k: np.ascontiguousarray(v).reshape(np.shape(v)) for k, v in arrays.items()},
                    notes,
                )
            )
            file.flush()
            os.fsync(file.fileno())

    try:
        write_whole(path, write)
    except SafetensorError as error:
        raise OSError(errno.EIO, f"could not write: {error}", str(path)) from error


def read_arrays(path: Path, fingerprint: str | None = None) -> Arrays:
    """Read what `write_arrays` wrote, of the run with this fingerprint."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            notes = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(
            f"expected a saved node, {path} is damaged: {error}; move it away to begin anew"
        ) from None
    if notes.get("format") != FORMAT:
        raise ValueError(
            f"expected a file of format '{FORMAT}', {path} has {notes.get('format')!r}"
        )
    if fingerprint is not None and notes.get("fingerprint") != fingerprint:
        raise ValueError(
            f"{path} belongs to another run or configuration; move it away to begin anew"
        )
    return arrays


class Saver:
    """One slot for what is to be written, the newest wins.

    A slow or full disk costs saves, never slots.
    """

    def __init__(self, path: Path, fingerprint: str, every_s: float, logger: Logger) -> None:
        self._path, self._fingerprint, self._every_s, self._logger = (
            path,
            fingerprint,
            every_s,
            logger,
        )
        self._next: Arrays | None = None
        self._filled = threading.Condition()
        self._writing = threading.Lock()
        self._last_s = time.monotonic()
        self._closed = False
        self.steps = 0  # of the last save
        self.counts: Counter[str] = Counter(saves=0, saves_failed=0)

    def maybe(self, node: "Node | ServerNode") -> None:
        """Take the newest state now and then; called by the learner, and returns at once."""
        if time.monotonic() - self._last_s >= self._every_s:
            self._last_s = time.monotonic()
            arrays = pack(node)
            with self._filled:
                self._next = arrays
                self._filled.notify()

    def now(self, node: "Node | ServerNode") -> bool:
        """Write the state before going on; tell whether the disk took it."""
        with self._filled:
            self._next = None
        return self._write(pack(node))

    def work(self) -> None:
        """Write what comes, until closed: the saver's thread."""
        while not self._closed:
            with self._filled:
                self._filled.wait_for(lambda: self._next is not None or self._closed)
                arrays, self._next = self._next, None
            if arrays is not None:
                self._write(arrays)

    def close(self) -> None:
        """End the thread."""
        with self._filled:
            self._closed = True
            self._filled.notify_all()

    def _write(self, arrays: Arrays) -> bool:
        """Write a finite state.

        One that is not would make the last good one unreachable.
        """
        if not np.isfinite(arrays["params"]).all():
            return False
        try:
            with self._writing:
                write_arrays(self._path, arrays, self._fingerprint)
        except OSError as error:
            self.counts["saves_failed"] += 1
            self._logger.say("not saved", level="error", reason="disk", text=str(error))
            return False
        self.counts["saves"] += 1
        self.steps = int(arrays["counters"][1])
        return True
