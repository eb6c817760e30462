"""A node as arrays and back.

A state holds the algorithm's state, the mailbox and the counters: a node killed at any instant
begins again from its last save with everything it had heard by then. How files survive a power cut
is `folkman.runtime.durable`'s.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from folkman.arrays import jax, jnp
from folkman.runtime.codec import Message
from folkman.runtime.durable import Arrays, DamagedError, arrays_of
from folkman.runtime.feedback import Memory
from folkman.runtime.node import Node

if TYPE_CHECKING:
    from folkman.runtime.server_node import ServerNode

__all__ = ["pack", "read_arrays", "restore"]


def pack(node: "Node | ServerNode") -> dict[str, NDArray]:
    """Return all that a node is, as arrays; between two slots."""
    arrays = {
        f"state{jax.tree_util.keystr(path)}": np.asarray(leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(node.state)
    }
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
        arrays |= node.more_arrays() | node.reach_arrays()
    return arrays | {"counters": np.array(counters, np.int64), "params": node.params()}


def restore(node: "Node | ServerNode", arrays: dict[str, NDArray]) -> None:
    """Put a fresh node where the saved one was; refuse arrays that are not of such a node."""
    paths, structure = jax.tree_util.tree_flatten_with_path(node.state)
    leaves = [
        _fitting(arrays, f"state{jax.tree_util.keystr(path)}", np.asarray(leaf))
        for path, leaf in paths
    ]
    if "mailbox.sequence" in arrays:  # before senders could be forgotten they were one
        arrays = {"mailbox.newest": arrays["mailbox.sequence"], **arrays}
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
        node.restore_reach(arrays)
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


def read_arrays(path: Path, fingerprint: str | None = None) -> Arrays:
    """Read the state in a file, of the run with this fingerprint."""
    try:
        return arrays_of(path.read_bytes(), fingerprint)
    except DamagedError as error:
        raise ValueError(
            f"expected a saved node, {path} is damaged: {error}; move it away to begin anew"
        ) from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}; move it away to begin anew") from None
