"""A node's door for operators, from the node's file."""

from typing import TYPE_CHECKING

from folkman.checks import need, require
from folkman.record.cluster import STARTING
from folkman.record.json_file import Json
from folkman.runtime.identity import name_of

if TYPE_CHECKING:
    from folkman.runtime.assembly import NodeConfig, Task
    from folkman.runtime.drive import Drive
    from folkman.runtime.transport import Security

__all__ = ["add_door"]


def add_door(drive: "Drive", config: "NodeConfig", task: "Task", security: "Security") -> None:
    """Give a node that is assembled its door. Nothing is opened yet."""
    need("msgspec")
    from folkman.runtime.assembly import address
    from folkman.runtime.fleet.kept_lines import KeptLines
    from folkman.runtime.fleet.operator_door import Desk, OperatorDoor

    options = config.operator
    require(options is not None, "expected [operator] in the node's file")
    assert options is not None  # noqa: S101 - just checked, for the type checker
    lines = KeptLines()
    lines.add_file(drive.files.log)
    drive.logger.listener = lines.add
    new: Json = {"node": name_of(config.number), "state": STARTING, "ok": False}
    new |= drive.home.about
    desk = Desk(
        facts=lambda: new | drive.facts(),
        stop=drive.ask,
        asked=lambda: bool(drive.asked),
        keep=drive.keep,
        lines=lines,
        folder=drive.files,
        task=config.config,
        run=task.fingerprint,
        label=task.label,
        seed=task.seed,
    )
    listen = address(options.listen)
    made = OperatorDoor(
        listen, security, desk, drive.logger, known=options.known, stay_s=options.stay_s
    )
    drive.around = made.around
