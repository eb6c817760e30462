"""The command line of an installation: `folkman doctor`."""

import sys
from typing import Annotated

import typer

from folkman.checks import require
from folkman.cli.checkup import ABSENT, OK, WARNING, WRONG, Finding, findings
from folkman.cli.common import AsJson, Config, columns, folded, print_json

__all__ = ["doctor"]

NAME_WIDTH, VERDICT_WIDTH = 21, 8


def doctor(
    config: Config = None,
    speed: Annotated[
        bool,
        typer.Option(
            "--speed", help="Show how gradients are taken here, and why; of CONFIG, or all known."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check this installation and machine: packages, extras, JAX, limits, cache, data, ports.

    Each line has a verdict and, where something is missing, what to do. The exit code is 1 if
    something is wrong; absent extras and warnings leave it 0.
    """
    if speed:
        from folkman.cli.speed import show_speed

        show_speed(config, as_json=as_json)
        return
    require(config is None, f"a configuration goes with --speed: folkman doctor --speed {config}")
    found = findings()
    counts = {
        each: sum(one.verdict == each for one in found) for each in (OK, ABSENT, WARNING, WRONG)
    }
    if as_json:
        print_json({"counts": counts, "findings": [each._asdict() for each in found]})
    else:
        for each in found:
            print("\n".join(_lines(each, columns(quiet=False))))
        print(_conclusion(counts))
    if counts[WRONG]:
        sys.exit(1)


def _lines(finding: Finding, width: int) -> list[str]:
    """Return a finding as lines of a table, with the remedy below it."""
    head = f"{finding.name:<{NAME_WIDTH}} {finding.verdict:<{VERDICT_WIDTH}} "
    room = max(width - len(head), 30)
    cells = folded(finding.found, room)
    cells += [f"-> {line}" for line in folded(finding.remedy, room - 3)] if finding.remedy else []
    blank = " " * len(head)
    return [(head if at == 0 else blank) + cell for at, cell in enumerate(cells)]


def _conclusion(counts: dict[str, int]) -> str:
    if counts[WRONG]:
        return f"{counts[WRONG]} of these must be mended before folkman works as it should"
    more = f"; {counts[WARNING]} with a drawback" if counts[WARNING] else ""
    return f"folkman can run here{more}; {counts[ABSENT]} of what is optional is absent"
