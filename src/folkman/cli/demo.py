"""The command line of the demo: `folkman demo`."""

import json
import sys
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from folkman.cli import common
from folkman.cli.common import AsJson

if TYPE_CHECKING:
    from collections.abc import Iterable

    from folkman.record.run import Run

__all__ = ["CONFIG", "demo", "renamed", "story"]

CONFIG = Path(str(resources.files("folkman.config"))) / "demo.toml"
"""The configuration of the demo, as `folkman run` takes it."""

PAPER, FEDAVG, FRESH, FREE = "Paper's rule", "FedAvg", "Fresh air", "Free links"


def demo(
    out: Annotated[
        Path | None, typer.Option(help="The run folder to make; default runs/DATE-TIME-demo.")
    ] = None,
    write: Annotated[
        Path | None, typer.Option(help="Only write the demo's configuration here, to change it.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what folkman is about: four ways to learn in one radio cell.

    Five nodes, embedded data, some seconds.
    """
    if write is not None:
        if write.exists():
            raise FileExistsError(
                f"expected a file to make, {write} is there; choose another name, or remove it"
            )
        write.write_text(renamed(CONFIG.read_text(encoding="utf-8"), write.stem), encoding="utf-8")
        common.print_paths([write], quiet=as_json)
        if as_json:
            common.print_json({"config": str(write)})
        return
    with common.ending_at_once():
        common.begin("preparing the demo: five nodes in one radio cell learn to read digits ...")
        from folkman.cli.run import carried_out, print_results
        from folkman.experiment.run import prepare_run
        from folkman.record.run import DIVERGED

        prepared = prepare_run(CONFIG, out=out)
        results = carried_out(prepared, [])
        print_results(results, prepared, quiet=as_json)
        lines = ["", *story(results, prepared.folder.root)]
        print("\n".join(lines), file=common.stream(quiet=as_json))
    if as_json:
        common.print_json(prepared.folder.summarised(results))
    sys.stdout.flush()
    if any(run.status == DIVERGED for run in results):
        sys.exit(common.DIVERGED)


def renamed(config: str, name: str) -> str:
    """Return the demo's configuration under another name, so that its report is not called demo."""
    return config.replace('name = "demo"', f"name = {json.dumps(name, ensure_ascii=False)}", 1)


def story(results: "Iterable[Run]", folder: Path) -> list[str]:
    """Return what the demo's results show, where to look and what to try, in 80 columns."""
    loss = {label: _median(results, label, "train_loss") for label in (PAPER, FEDAVG, FRESH, FREE)}
    age = {label: _median(results, label, "mean_age") for label in (PAPER, FRESH)}
    return [
        "What to look at (medians over the seeds)",
        f"  train loss: {PAPER} {loss[PAPER]:.2g}, {FEDAVG} {loss[FEDAVG]:.2g}, "
        f"{FRESH} {loss[FRESH]:.2g}, {FREE} {loss[FREE]:.2g}",
        f"  {FRESH} uses copies that are {age[FRESH]:.2g} slots old; "
        f"the {PAPER[0].lower()}{PAPER[1:]} {age[PAPER]:.2g}.",
        "  The first three share one cell and one band; all are at their tuned steps.",
        "What to try next",
        f"  folkman dash {folder}     the cell, and who sends what to whom",
        "  folkman demo --write mine.toml     the configuration, to change",
        "  folkman tune mine.toml --over step --over local_steps     after a change",
    ]


def _median(results: "Iterable[Run]", label: str, metric: str) -> float:
    """Return the median of a metric's last values over the seeds."""
    values = sorted(run.last(metric) for run in results if run.label == label)
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2
