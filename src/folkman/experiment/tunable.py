"""What a tuning searches: which options of which methods, over which values, on which seeds.

An option is read off the signature of a method's builder. A method without it is left out of that
search; an option that no method has is refused with the nearest name.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, get_args

from folkman.checks import nearest, require
from folkman.config.choices import ConfigError
from folkman.config.comparison import CHOICES, Comparison, resolve
from folkman.experiment.halving import Axis, Setting, least_budget, usual_budget
from folkman.experiment.plan import option_values
from folkman.record.json_file import Json

__all__ = ["FIRST_SEED", "GRIDS", "Method", "Over", "axes_asked", "budget_for", "methods_of"]
__all__ += ["table_at", "tuning_seeds"]

FIRST_SEED = 1000
"""The first seed to tune on where none are given; those that are judged on are left out."""
SEEDS = 4
"""Seeds to tune on. A seed is a placement, and the best of many settings on two placements may be
the best by chance: docs/tuning.md has what was measured."""

Over: TypeAlias = Sequence[str] | Mapping[str, Sequence[float] | None]
"""What to tune: "step" or "step=0.1,1", or values by option, None for the usual ones."""


def _half_decades(low: int, high: int) -> tuple[float, ...]:
    """Return 10^low to 10^high by half-decades, in three digits."""
    return tuple(float(f"{10 ** (half / 2):.2e}") for half in range(2 * low, 2 * high + 1))


GRIDS: dict[str, Axis] = {
    "step": Axis("step", _half_decades(-3, 1), below=True, above=True, finer=True),
    "local_steps": Axis("local_steps", (1, 3, 10), above=True),
    "momentum": Axis("momentum", (0.0, 0.5, 0.9)),
}
"""The values that are tried of an option where none are given."""


class Method(NamedTuple):
    """One algorithm of a configuration and what is searched of it."""

    number: int  # its place in the configuration
    label: str
    axes: tuple[Axis, ...]
    start: Setting  # the configured values


def axes_asked(over: Over) -> dict[str, Axis]:
    """Return the axes that are asked for.

    An option with values of its own may be extended and refined as the usual ones are.
    """
    wrong = f"options are a list of texts, got {over!r}; write [{over!r}]"
    require(not isinstance(over, str), wrong)
    pairs: list[tuple[str, Sequence[Any] | None]] = []
    if isinstance(over, Mapping):
        pairs = list(over.items())
    else:
        pairs = [option_values(text, "over") if "=" in text else (text, None) for text in over]
    require(bool(pairs), "a tuning needs an option; write --over step")
    found: dict[str, Axis] = {}
    for name, values in pairs:
        require(name not in found, f"'{name}' is given twice; give each option once")
        axis = GRIDS.get(name, Axis(name, ()))
        found[name] = axis if values is None else axis._replace(values=_numbers(name, values))
    return found


def _numbers(name: str, values: Sequence[Any]) -> tuple[float, ...]:
    sound = all(isinstance(each, int | float) and not isinstance(each, bool) for each in values)
    sound = sound and all(map(math.isfinite, values)) and len(set(values)) == len(values)
    require(
        sound and len(values) > 0,
        f"expected different numbers for '{name}', got {list(values)}; write "
        f"--over {name}=0.01,0.1,1",
    )
    return tuple(sorted(values))


def methods_of(
    comparison: Comparison, grids: Mapping[str, Axis]
) -> tuple[tuple[Method, ...], dict[str, tuple[str, ...]]]:
    """Return what is searched of each algorithm, and who lacks an option; one must have it."""
    choice = CHOICES["algorithm"]
    options = [choice.options(table["name"]) for table in comparison.algorithm]
    known: list[str] = []
    for table, kinds in zip(comparison.algorithm, options, strict=True):
        known += [name for name, (kind, _) in kinds.items() if _is_number(kind, table.get(name))]
    known = list(dict.fromkeys(known))
    for name, axis in grids.items():
        require(name in known, f"no algorithm here has a number '{name}'; {nearest(name, known)}")
        remedy = f"write them: --over {name}=0.1,0.3,1"
        require(bool(axis.values), f"'{name}' has no usual values; {remedy}")
    found = []
    for number, (table, kinds) in enumerate(zip(comparison.algorithm, options, strict=True)):
        own = [name for name in grids if name in kinds and _is_number(kinds[name][0], table[name])]
        axes = tuple(_of_type(grids[name], kinds[name][0], comparison.slots) for name in own)
        open_ones = [name for name in own if table[name] is None]
        require(
            not open_ones,
            f"'{table['label']}' leaves '{''.join(open_ones[:1])}' to its builder; write a number "
            "to start from",
        )
        method = Method(number, table["label"], axes, tuple(table[name] for name in own))
        _check_values(comparison, method)
        found.append(method)
    skipped = {
        name: tuple(each.label for each in found if name not in {axis.name for axis in each.axes})
        for name in grids
    }
    lacking = {name: labels for name, labels in skipped.items() if labels}
    return tuple(method for method in found if method.axes), lacking


def _is_number(kind: object, value: object) -> bool:
    """Tell whether an option is a number, and not the name of a policy or a switch."""
    kinds = set(get_args(kind)) or {kind}
    given = isinstance(value, int | float) and not isinstance(value, bool)
    return bool(kinds & {int, float}) and (given or value is None)


def _of_type(axis: Axis, kind: object, slots: int) -> Axis:
    """Return an axis with values of the option's type; counts of gradients stop at the slots."""
    kinds = set(get_args(kind)) or {kind}
    if float in kinds:
        return axis._replace(values=tuple(map(float, axis.values)))
    whole = [round(value) for value in axis.values]
    wanted = f"expected whole numbers for '{axis.name}'"
    require(whole == list(axis.values), f"{wanted}, got {list(axis.values)}")
    values = tuple(value for value in whole if value <= slots) or (1,)
    return axis._replace(values=values, most=slots)


def _check_values(comparison: Comparison, method: Method) -> None:
    """Let the builder refuse values now and not in the middle."""
    for place, axis in enumerate(method.axes):
        for value in (axis.values[0], axis.values[-1]):
            point = (*method.start[:place], value, *method.start[place + 1 :])
            whole = table_at(comparison, method, point).items()
            table = {key: each for key, each in whole if each is not None}
            rest = comparison.model_dump(exclude={"tuned"})
            try:
                resolve({**rest, "algorithm": [table]})
            except ValueError as error:
                raise ConfigError(f"--over {axis.name}, at {value:g}: {error}") from None


def table_at(comparison: Comparison, method: Method, point: Setting) -> Json:
    """Return the table of an algorithm at a setting."""
    names = [axis.name for axis in method.axes]
    return {**comparison.algorithm[method.number], **dict(zip(names, point, strict=True))}


def tuning_seeds(
    comparison: Comparison, seeds: Sequence[int] | None, number: int = SEEDS
) -> tuple[int, ...]:
    """Return the seeds to tune on, else `number` of them; refuse those that are judged on."""
    judged = set(comparison.seeds)
    if seeds is None:
        free = (seed for seed in range(FIRST_SEED, 2**32) if seed not in judged)
        return tuple(next(free) for _ in range(number))
    own = tuple(seeds)
    sound = all(isinstance(seed, int) and 0 <= seed < 2**32 for seed in own)
    require(
        bool(own) and sound and len(set(own)) == len(own),
        f"expected different whole numbers in 0 .. 2^32 - 1 as seeds, got {list(own)}",
    )
    common = sorted(judged & set(own))
    require(
        not common,
        f"the comparison is judged on the seeds {common} too; tune on others, as --seeds "
        f"{FIRST_SEED},{FIRST_SEED + 1}",
    )
    return own


def budget_for(methods: Sequence[Method], seeds: int, budget: int | None) -> int:
    """Return the runs of each method: as given, or what the largest grid usually takes."""
    if budget is None:
        return max(usual_budget(method.axes, seeds) for method in methods)
    largest = max(methods, key=lambda method: least_budget(method.axes, seeds))
    needed = least_budget(largest.axes, seeds)
    require(
        budget >= needed,
        f"--budget {budget} is too small: the grid of '{largest.label}' needs {needed} runs under "
        f"{seeds} seeds; raise it, or give fewer values, as --over step=0.1,1",
    )
    return budget
