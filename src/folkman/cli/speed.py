"""The command line of speed: `folkman doctor --speed`."""

from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from folkman.cli.common import columns, folded, print_json, say

if TYPE_CHECKING:
    from folkman.problem.problem import Problem
    from folkman.problem.speed import Choice

__all__ = ["show_speed"]


def show_speed(config: Path | None, *, as_json: bool) -> None:
    """Show how the gradients of works are taken on this machine: what was timed, chosen, and why.

    With a configuration its own work, which is timed if it was not. Without, all that is kept, or
    an example if nothing is.
    """
    from folkman.problem import speed

    choices = speed.kept_choices() if config is None else [_choice_of(config)]
    if not choices:
        say("nothing is kept yet: timing an example ...")
        choices = [speed.choice_for(_example())]
    if as_json:
        rows = [{"name": _name(each.work["shape"]), **each._asdict()} for each in choices]
        print_json({"folder": str(speed.folder()), "works": rows})
        return
    width = columns(quiet=False)
    for line in _lines(choices):
        print("\n".join(folded(line, width)) if line else "")
    print(f"kept in {speed.folder()} (delete it to time again)")


def _choice_of(config: Path) -> "Choice":
    import jax

    from folkman.config.build import build_problem
    from folkman.config.comparison import resolve
    from folkman.config.text import gather
    from folkman.problem.speed import choice_for

    comparison = resolve(gather(config, None), try_builders=False)
    with jax.enable_x64(comparison.precision == "float64"):
        return choice_for(build_problem(comparison, comparison.seeds[0]))


def _example() -> "Problem":
    """Return the gradients of 20 nodes that hold an MLP 784-128-10, in batches of 64."""
    import numpy as np

    from folkman.problem.data import DataSet
    from folkman.problem.models import mlp
    from folkman.problem.problem import make_problem

    draws = np.random.default_rng(0)
    x = draws.random((20 * 100, 784), np.float32)
    y = draws.integers(0, 10, len(x))
    data = DataSet("drawn", x, y, x[:0], y[:0], 10)
    return make_problem(data, mlp((784,), 10, hidden=(128,)), 20, batch=64)


def _lines(choices: "Sequence[Choice]") -> Iterator[str]:
    """Yield a title for each work, a line for each way, and why it goes the way it goes."""
    for work, way, ms, why in choices:
        yield _name(work["shape"])
        for each, taken in sorted(ms.items(), key=lambda item: item[1]):
            yield f"  {each:<10}{taken:>10.3f} ms{'   chosen' if each == way else ''}"
        yield f"  {'default way' if way is None else way}: {why}"
        yield ""


def _name(shape: dict[str, Any]) -> str:
    size = sum(prod(tensor) for _, tensor in shape["tensors"])
    batch = "all samples" if shape["batch"] is None else f"batches of {shape['batch']}"
    return f"{shape['model']}, d = {size:,}, {shape['nodes']} nodes, {batch}, {shape['dtype']}"
