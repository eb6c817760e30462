"""A run, saved between two slots and taken up again with the same bits.

A checkpoint is one safetensors file: the arrays of the carry by their path in it, and the host's
totals and a fingerprint of what is being run as text. Nothing in it is executed on loading. It
appears by rename, so a reader sees the last whole one or none.
"""

import json
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open

from folkman.engine.metrics import Counts, Totals, Uses
from folkman.engine.simulate import Mark
from folkman.engine.slot import Carry
from folkman.engine.snapshots import widen
from folkman.files import save_tensors
from folkman.record.json_file import Json

__all__ = ["load", "save"]

FORMAT = "folkman checkpoint 4"
HELD_AGES = "totals.held_ages"
"""The entry of the pairs' ages: the only totals that are an array. Empty: unknown."""
AIR_PARTS = (".air_left", ".up_air", ".down_air", ".airtime")
"""Entries of networks that note how long radios are in use; earlier versions had none."""


def save(mark: Mark, path: str | os.PathLike[str], fingerprint: str = "") -> None:
    """Write `mark` whole or not at all; `fingerprint` names the run it belongs to."""
    arrays = {name: np.array(leaf, order="C") for name, leaf in _named(mark.carry).items()}
    counts = mark.totals._asdict()
    arrays[HELD_AGES] = counts.pop("held_ages")
    notes = {"format": FORMAT, "fingerprint": fingerprint, "totals": json.dumps(counts)}
    save_tensors(Path(path), arrays, notes)


def load(path: str | os.PathLike[str], like: Mark, fingerprint: str = "") -> Mark:
    """Read the mark saved at `path`.

    `like` is a fresh one of the same run and gives the structure.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            notes = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(
            f"expected a checkpoint, {path} is damaged: {error}; delete it to start this run again"
        ) from error
    if notes.get("format") != FORMAT:
        raise ValueError(
            f"expected a file of format '{FORMAT}', {path} has {notes.get('format')!r}; "
            "delete it to start this run again"
        )
    if notes.get("fingerprint") != fingerprint:
        raise ValueError(
            f"{path} belongs to another run or configuration; delete it to start this run again"
        )
    like = _as_roomy(like, arrays)
    expected = _named(like.carry)
    for name, leaf in expected.items():
        found = _lengthened(name, _filled_in(name, arrays.get(name), leaf), leaf)
        if found is None or found.shape != leaf.shape or found.dtype != leaf.dtype:
            raise ValueError(
                f"checkpoint entry '{name}' should be {leaf.dtype}{list(leaf.shape)}, {path} has "
                f"{'none' if found is None else f'{found.dtype}{list(found.shape)}'}; "
                "delete it to start this run again"
            )
        arrays[name] = found
    structure = jax.tree.structure(like.carry)
    carry = jax.tree.unflatten(structure, [jnp.asarray(arrays[name]) for name in expected])
    ages = arrays.get(HELD_AGES, np.zeros(0, np.int64))
    if ages.size and ages.shape != like.carry.tally.held_ages.shape:
        raise ValueError(
            f"checkpoint entry '{HELD_AGES}' should be {list(like.carry.tally.held_ages.shape)}, "
            f"{path} has {list(ages.shape)}; delete it to start this run again"
        )
    return Mark(carry, _totals(json.loads(notes["totals"]))._replace(held_ages=ages))


def _as_roomy(like: Mark, arrays: dict[str, np.ndarray]) -> Mark:
    """Return `like` with as much room for payloads as the saved run had come to need."""
    saved = arrays.get(".medium.snapshots.payload")
    medium = like.carry.medium
    if saved is None or saved.ndim != 2 or saved.shape[0] <= medium.snapshots.payload.shape[0]:
        return like
    roomy = medium._replace(snapshots=widen(medium.snapshots, saved.shape[0]))
    return like._replace(carry=like.carry._replace(medium=roomy))


def _filled_in(name: str, saved: np.ndarray | None, leaf: np.ndarray) -> np.ndarray | None:
    """Return what an earlier version did not note.

    Every node has something to send, and counts stand at zero: they are added up before a mark is
    saved. The time that messages on the air still take only prices energy, which is not known then.
    """
    if saved is None and name.endswith(".sent_steps"):
        return np.full_like(leaf, -1)
    if saved is None and (name.startswith(".tally") or any(part in name for part in AIR_PARTS)):
        return np.zeros_like(leaf)
    return saved


def _lengthened(name: str, saved: np.ndarray | None, leaf: np.ndarray) -> np.ndarray | None:
    """Return a delay law's trail as long as it is kept now.

    A trail of an earlier version ends where it was looked at.

    Its last row stands for all older ones.
    """
    if saved is None or not name.endswith(".trail") or saved.ndim != 2:
        return saved
    return np.pad(saved, ((0, max(len(leaf) - len(saved), 0)), (0, 0)), mode="edge")


def _named(carry: Carry) -> dict[str, np.ndarray]:
    """Return the leaves of a carry by path, in the order of the tree."""
    return {
        jax.tree_util.keystr(path): np.asarray(leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(carry)
    }


def _totals(fields: Json) -> Totals:
    lists = {name: tuple(fields.pop(name)) for name in ("gradients", "busy")}
    transmit, receive, *stations = fields.pop("on_air", Uses())
    uses = Uses(tuple(transmit), tuple(receive), *stations)
    counts = Counts(*map(tuple, fields.pop("traffic")))
    return Totals(traffic=counts, on_air=uses, **lists, **fields)
