"""`folkman node --check`: what the node of a file would do, with no socket opened or file written.

Everything is read and built as for the node itself: its file, the configuration, the samples, keys
and certificates, a saved state. Whatever would stop the node at its start stops the check, with the
same words.
"""

from pathlib import Path
from typing import Any

import numpy as np

from folkman.arithmetic import chosen
from folkman.checks import need, require
from folkman.record.json_file import Json
from folkman.runtime.assembly import NodeConfig, Task, assemble, read_node, read_task, use_precision
from folkman.runtime.codec import HEADER_BYTES
from folkman.runtime.disk import FolderDisk
from folkman.runtime.drive import Drive
from folkman.runtime.durable import read_members_seen, read_state
from folkman.runtime.identity import Identity, Members, name_of, number_of
from folkman.runtime.node import Node
from folkman.runtime.telemetry import Logger

__all__ = ["carried_in_words", "network_of", "preview", "sentences"]


def preview(path: Path) -> Json:
    """Return what the node of a file would do; every key is stable. Wrong input is a ValueError."""
    config = read_node(path)
    task = read_task(config.config, config.label, config.seed)
    use_precision(task)
    drive = assemble(config, task, Logger(name_of(config.number), insecure=config.insecure))
    require(
        config.folder.is_dir(),
        f"expected a folder to write to, there is no {config.folder}; make it",
    )
    if config.transport == "zenoh":
        need("zenoh")
    node, files = drive.core.node, drive.files
    kept = [files.state, files.state_before, files.final, files.incarnation, files.incarnation_copy]
    kept += [files.health]
    writes = [path.name for path in [*kept, *([files.journal] if config.timeline else [])]]
    return {
        "node": name_of(config.number),
        "seed": task.seed,
        "algorithm": _algorithm(task),
        "model": _model(config, task, drive),
        "arithmetic": {"name": chosen().name, "why": chosen().why},
        "samples": int(node.problem.count[0]) if isinstance(node, Node) else None,
        "samples_in_all": sum(config.samples),
        "listen": config.listen,
        "neighbours": {
            name_of(j): config.peers[name]
            for j, name in _peers(config).items()
            if j in node.neighbours
        },
        "transport": config.transport,
        "security": None if config.certs is None else _certificate(config),
        "radio": config.radio,
        "network": network_of(task),
        "steps": drive.core.settings.steps,
        "steps_done": _steps_done(config.folder, task.fingerprint),
        "slot_s": drive.core.settings.slot_s,
        "message_bytes": _message_bytes(config, drive),
        "carries": node.message,
        "trusts_sums": _trusted(drive) if node.message == "sum" else None,
        "metrics": config.metrics,
        "operator": config.operator.listen if config.operator else None,
        "folder": str(config.folder),
        "writes": writes,
    }


def _peers(config: NodeConfig) -> dict[int, str]:
    return {number_of(name): name for name in config.peers}


def _algorithm(task: Task) -> Json:
    """Return the table of the task's algorithm: name and options."""
    return {key: value for key, value in _table(task).items() if key != "network"}


def network_of(task: Task) -> Json:
    """Return the table of the network of the task's algorithm."""
    return dict(_table(task)["network"] or task.comparison.network)


def _table(task: Task) -> Json:
    return next(table for table in task.comparison.algorithm if table["label"] == task.label)


def _model(config: NodeConfig, task: Task, drive: Drive) -> Json:
    table = {"name": config.guest.name} if config.guest else task.comparison.model
    return {
        **table,
        "parameters": len(drive.core.node.params()),
        "precision": task.comparison.precision,
    }


def _trusted(drive: Drive) -> list[str]:
    """Return the names of the neighbours whose sums are taken."""
    trusted: frozenset[int] = drive.core.node.mailbox.rules.trusted  # type: ignore[union-attr]
    return [name_of(j) for j in sorted(trusted & set(drive.core.node.neighbours))]


def _message_bytes(config: NodeConfig, drive: Drive) -> int:
    if drive.core.node.message != "copy":
        node: Any = drive.core.node
        node.freeze()
        return len(node.carry()[0])
    payload = drive.core.node.mailbox.payload
    size = np.dtype(config.wire).itemsize if config.wire == "float16" else payload.dtype.itemsize
    return HEADER_BYTES + payload.shape[1] * size


def _steps_done(folder: Path, fingerprint: str) -> int:
    """Return the gradients of a saved state, 0 without one; refuse a state of another run."""
    arrays = read_state(FolderDisk(folder), fingerprint).arrays
    return 0 if arrays is None else int(arrays["counters"][1])


def _certificate(config: NodeConfig) -> Json:
    """Check a node's own certificate; return until when it holds, and who the members are."""
    assert config.certs is not None  # noqa: S101 - the caller looked
    number, identity = config.number, Identity(config.certs, config.number)
    ends = identity.certificate_until()
    seen = read_members_seen(FolderDisk(config.folder))
    members = Members(config.certs / "members.json", identity.ca, seen)
    require(
        members.allowed(number),
        f"{identity.name} is no member, or was revoked; enter it: folkman certs issue {number}",
    )
    return {"certificate_until": ends.isoformat(), "members": members.names()}


def sentences(found: Json) -> str:
    """Return a preview in plain words."""
    options = {
        key: value for key, value in found["algorithm"].items() if key not in ("name", "label")
    }
    model, security, steps = found["model"], found["security"], found["steps"]
    goal = "for ever" if steps is None else f"{steps} gradients"
    air = (
        "the real links"
        if found["radio"] == "measured"
        else f"the emulated network {_options(found['network'])}"
    )
    if found["carries"] != "copy":
        air += (
            "; whoever has the largest index, from goodput and heard stamps, claims the band"
            if found["radio"] == "measured"
            else "; every node knows its own transfers from the seed"
        )
    pace = (
        f"at most one gradient in {found['slot_s']:g} s"
        if found["slot_s"]
        else "as fast as it goes"
    )
    lines = {
        "node": f"{found['node']}, seed {found['seed']}",
        "learns": (
            f"'{found['algorithm']['label']}': {found['algorithm']['name']} with {_listed(options)}"
        ),
        "model": (
            f"{_options({k: v for k, v in model.items() if k != 'parameters'})}, "
            f"{model['parameters']} parameters"
        ),
        "arithmetic": f"{found['arithmetic']['name']}: {found['arithmetic']['why']}",
        "samples": f"{found['samples'] or 'none: a server'} of {found['samples_in_all']} in all",
        "listens": f"{found['listen']}, {found['transport']}",
        "neighbours": _listed(found["neighbours"], " at "),
        "security": "NONE: anybody can join"
        if security is None
        else f"mutual TLS and signatures; certificate until {security['certificate_until']}; "
        f"members: {', '.join(security['members'])}",
        "radio": f"{found['radio']}: {air}",
        "steps": f"{goal}, {found['steps_done']} of them done; {pace}",
        "message": f"{found['message_bytes']} bytes, {carried_in_words(found)}",
        "writes": f"{', '.join(found['writes'])} to {found['folder']}",
        "metrics": found["metrics"] or "none",
        "operators": f"at {found['operator']}" if found["operator"] else "no door",
    }
    return "\n".join(f"{name:<11} {text}" for name, text in lines.items())


def carried_in_words(found: Json) -> str:
    """Return what messages hold, and on whose word it is taken."""
    if found["carries"] == "sum":
        return (
            "the sum of all nodes' parts with stamps, which no origin can sign; taken of "
            f"{', '.join(found['trusts_sums'])}, on trust"
        )
    if found["carries"] == "forward":
        return "a copy of any node's parameters, under its origin's signature"
    return "the sender's own parameters"


def _options(table: Json) -> str:
    """Return a table as words: its name and its options."""
    rest = {key: value for key, value in table.items() if key != "name"}
    return f"{table['name']}" + (f" ({_listed(rest)})" if rest else "")


def _listed(table: Json, between: str = " ") -> str:
    return ", ".join(f"{key}{between}{value}" for key, value in table.items()) or "no options"
