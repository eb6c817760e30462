"""Fetch the folders of a fleet's nodes into one cluster folder, which is then as a local one.

A node holds its files as they are at one instant; they come in parts into a file beside, are
compared with the node's digest, and then take their names by rename. What was fetched stays when a
line breaks: the next attempt goes on from there, and of files that only grow fetches the rest.

A board may be in somebody else's hands. So nothing that it sends is run: its configuration must
name no code of its own (bring your own with `config`), of its `node.toml` only known keys are
taken, and file names are ours.
"""

import asyncio
import os
import shutil
import tomllib
from pathlib import Path
from typing import NamedTuple, TypeVar

from folkman.checks import require
from folkman.config.comparison import resolve, to_toml
from folkman.config.own_code import bundled, write_bundle
from folkman.config.text import dump, read
from folkman.record.cluster import ClusterFolder, NodeFolder
from folkman.record.collected import Collected, Noted, sha256_of
from folkman.record.folder import RunFolder
from folkman.record.json_file import Json, write_text
from folkman.runtime.assembly import read_node, task_of
from folkman.runtime.disk import for_owner
from folkman.runtime.entrance import Address
from folkman.runtime.fleet import words
from folkman.runtime.fleet.calls import Called, CallError, Line, ask_each
from folkman.runtime.fleet.words import Held, HeldFile
from folkman.runtime.identity import number_of
from folkman.runtime.operators import OperatorFiles

__all__ = ["collect"]

MOST_NODE_BYTES = 1 << 32
"""Of all files of a node; a board that claims more is not believed."""
MOST_CONFIG_BYTES = 1 << 20
ATTEMPTS, AGAIN_S = 3, 1.0
KEPT_KEYS = {"node", "label", "seed", "samples", "listen", "peers", "transport", "radio"}
KEPT_KEYS |= {"slot_s", "steps", "wire", "largest", "farthest", "threshold_bit_s", "trust"}
KEPT_KEYS |= {"shared_medium", "past", "timeline", "insecure", "arithmetic"}
"""Keys of a board's `node.toml` that say what it did; the others are paths and doors of its own."""
Answered = TypeVar("Answered", bound=words.Answer)


class Fetched(NamedTuple):
    """What came from a node."""

    files: int
    received_bytes: int
    there_already: int  # files that were whole here before


def collect(
    root: Path,
    nodes: dict[str, Address],
    operator: OperatorFiles,
    patience_s: float,
    config: Path | None = None,
) -> "list[Called[Fetched]]":
    """Fetch the files of every node that answers into a folder; return what came, node by node."""
    notes = Collected.open(root)
    own = None if config is None else read(config)
    work = _Collecting(root, notes, own, patience_s)
    return asyncio.run(work.all(nodes, operator))


class _Collecting:
    """One collection: the folder, and which run it is of once the first node has answered."""

    def __init__(
        self, root: Path, notes: Collected | None, own: Json | None, patience_s: float
    ) -> None:
        self._root, self._notes, self._own, self._patience_s = root, notes, own, patience_s
        self._cluster = ClusterFolder(root)
        self._received: dict[str, int] = {}
        self._nodes: dict[str, Address] = {}

    async def all(
        self, nodes: dict[str, Address], operator: OperatorFiles
    ) -> "list[Called[Fetched]]":
        """Fetch from all nodes, and again from those whose lines broke."""
        self._nodes = nodes
        found: dict[str, Called[Fetched]] = {}
        for attempt in range(ATTEMPTS):
            left = {name: place for name, place in nodes.items() if self._may_go_on(found, name)}
            if not left:
                break
            if attempt:
                await asyncio.sleep(AGAIN_S)
            before = sum(self._received.values())
            for each in await ask_each(left, operator, self._patience_s, self._fetch_node):
                found[each.node] = each
            if sum(self._received.values()) == before:  # nobody is any further
                break
        return [found[name] for name in nodes]

    def _may_go_on(self, found: "dict[str, Called[Fetched]]", name: str) -> bool:
        """Tell whether a node is still to be asked: new, or broken off while bytes came."""
        return name not in found or (found[name].broken and name in self._received)

    async def _fetch_node(self, name: str, line: Line) -> Fetched:
        held = await _asked(line, words.Hold(), Held)
        total = sum(each.size for each in held.files)
        if total > MOST_NODE_BYTES:
            raise CallError(f"it offers {total} bytes, expected at most {MOST_NODE_BYTES}")
        known = NodeFolder(self._cluster.node(name).root).told()
        files = {each.name: each for each in held.files}
        strange = sorted(set(files) - {*known, NodeFolder.TASK})
        if strange or len(files) != len(held.files):
            raise CallError(f"it offers files that no node has: {strange}")
        try:
            notes = await self._begin(files, held, line)
            before = self._received.get(name, 0)
            there = [
                await self._fetch(name, each, held.held, line, notes)
                for each in held.files
                if each.name != NodeFolder.TASK
            ]
            self._write_node_file(name)
        except (OSError, ValueError) as error:
            raise CallError(str(error)) from None
        received = self._received.get(name, 0) - before
        return Fetched(len(there), received, sum(there))

    async def _begin(self, files: dict[str, HeldFile], held: Held, line: Line) -> Collected:
        """Return the notes of the folder, made by the first node; refuse a node of another run."""
        if self._notes is None:
            task = self._own
            if task is None:
                task = await _task_of_board(files.get(NodeFolder.TASK), held.held, line)
            # no other node has come between: nothing is awaited from here on
            comparison = resolve(task, try_builders=False)
            chosen = task_of(comparison, held.label, held.seed)
            require(
                chosen.fingerprint == held.run,
                "its run is not the one of the configuration; give the right one with --config",
            )
            if self._notes is None:
                RunFolder.create(self._root, to_toml(bundled(comparison)))
                write_bundle(comparison, self._root)
                self._notes = Collected.begin(self._root, held.run)
        if self._notes.run != held.run:
            raise CallError(f"it is in another run than {self._root}; choose another --out")
        return self._notes

    async def _fetch(
        self, node: str, file: HeldFile, held: str, line: Line, notes: Collected
    ) -> bool:
        """Fetch one file; tell whether it was here already, whole."""
        folder = self._cluster.node(node)
        path = folder.board_config if file.name == folder.config.name else folder.told()[file.name]
        if path.exists():
            digest = sha256_of(path)
            if digest == file.sha256:
                return True
            require(
                digest == notes.digest(node, file.name),
                f"{path} is not what was collected; move it away, or choose another --out",
            )
        folder.root.mkdir(parents=True, exist_ok=True)
        grows = path in (folder.journal, folder.log)
        part = path.with_name(f".{path.name}.{'grown' if grows else file.sha256[:16]}.part")
        if grows and path.exists() and not part.exists():
            shutil.copyfile(path, part)
        await self._receive(node, file, held, line, part)
        if sha256_of(part) != file.sha256 and grows:  # it was begun anew on the board
            part.unlink()
            await self._receive(node, file, held, line, part)
        if sha256_of(part) != file.sha256:
            part.unlink()
            raise CallError(f"what came of {file.name} is not what its digest says")
        os.replace(part, path)
        for old in folder.root.glob(f".{path.name}.*.part"):
            old.unlink()
        notes.note(
            node, "{}:{}".format(*self._nodes[node]), file.name, Noted(file.size, file.sha256)
        )
        return False

    async def _receive(self, node: str, file: HeldFile, held: str, line: Line, part: Path) -> None:
        """Append to a part what it lacks."""
        with open(part, "ab", opener=for_owner) as out:
            if out.tell() > file.size:
                out.truncate(0)
            offset = out.seek(0, os.SEEK_END)
            while offset < file.size:
                length = min(words.PART_BYTES, file.size - offset)
                ask = words.Read(held, file.name, offset, length)
                data = (await _asked(line, ask, words.Part)).data
                if len(data) != length:
                    raise CallError(f"it sent {len(data)} of {length} bytes of {file.name}")
                out.write(data)
                out.flush()
                offset += length
                self._received[node] = self._received.get(node, 0) + length

    def _write_node_file(self, name: str) -> None:
        """Write a `node.toml` that is good here, from what the board's says that it did."""
        folder = self._cluster.node(name)
        require(folder.board_config.is_file(), "it has no node.toml")
        table = tomllib.loads(folder.board_config.read_text(encoding="utf-8"))
        kept = {key: value for key, value in table.items() if key in KEPT_KEYS}
        here = {"config": f"../../{RunFolder(self._root).config.name}", "shard": folder.shard.name}
        if not kept.get("insecure"):
            here["certs"] = f"../../{self._cluster.certs.name}"
        write_text(folder.config, dump({**kept, **here}))
        found = read_node(folder.config).number
        if found != number_of(name):
            folder.config.unlink()
            raise CallError(f"its file says that it is node {found}")


async def _task_of_board(file: HeldFile | None, held: str, line: Line) -> Json:
    """Return the configuration that a board sends; refuse one that names code."""
    if file is None or file.size > MOST_CONFIG_BYTES:
        raise CallError("it sends no configuration; give one with --config")
    data = b""
    while len(data) < file.size:
        length = min(words.PART_BYTES, file.size - len(data))
        ask = words.Read(held, file.name, len(data), length)
        more = (await _asked(line, ask, words.Part)).data
        if len(more) != length:
            raise CallError("its configuration was cut")
        data += more
    try:
        found = tomllib.loads(data.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise CallError(f"its configuration is no TOML: {error}") from None
    if code := _own_code(found):
        raise CallError(
            f"its configuration names code ({', '.join(code)}), which is not taken from a board; "
            "give your own configuration with --config"
        )
    return found


def _own_code(value: object) -> list[str]:
    """Return names of builders outside of folkman, anywhere in a configuration."""
    if isinstance(value, dict):
        name = value.get("name")
        own = [name] if isinstance(name, str) and ":" in name else []
        return own + [code for each in value.values() for code in _own_code(each)]
    return [code for each in value for code in _own_code(each)] if isinstance(value, list) else []


async def _asked(line: Line, question: words.Question, kind: type[Answered]) -> Answered:
    """Return an answer of a kind; another one is nonsense."""
    found = await line.ask(question)
    if not isinstance(found, kind):
        raise CallError(f"expected {kind.__name__.lower()}, the node answers otherwise")
    return found
