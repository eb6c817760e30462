"""What a figure of runs is asked to show, and which runs that takes: its names, groups and panels.

    asked = Asked("network.gamma", "loss", hue="algorithm", facet="nodes")
    panels = chosen(arms, facts, asked).panels

The x axis is a cost (seconds, bits, ...), for curves; or a setting, for what runs ended at. Runs
that differ in their seed alone are one arm. Arms are never averaged: a line is of one arm, a point
of one arm, and if a grouping would mix two, it is refused with what they differ in.
"""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from folkman.checks import one_of, require
from folkman.record.run import AXES, METRICS, Run
from folkman.record.settings import ALGORITHM, FOLDER, Settings, varying

__all__ = ["LOGS", "WITHOUT", "Asked", "Chosen", "Grid", "Panel", "chosen", "column_of"]
__all__ += ["grid_of", "known_settings", "metric_of", "told_value"]

SHORT = {"loss": "train_loss", "accuracy": "test_accuracy", "age": "mean_age"}
SHORT |= {"time": "seconds", "joules": "energy_j", "iterations": "gradients"}
"""Short names of columns."""
SETTING = "set."
"""Before the name of a setting that is also the name of a column: set.slots."""
LOGS = {"x": (True, False), "y": (False, True), "xy": (True, True), "none": (False, False)}
"""Which axes are logarithmic, as the option says."""
MOST_PANELS, MOST_TOLD = 12, 6
WITHOUT = "without it"
"""The line or column of arms that a setting does not concern."""

Arms = Mapping[str, Mapping[int, Run]]
Plain = str | float | bool | None


class Asked(NamedTuple):
    """What is asked for; see `folkman plot`. None leaves a choice to what there is."""

    x: str = "seconds"
    y: str = "train_loss"
    hue: str | Sequence[str] | None = None
    facet: str | None = None
    log: str | None = None
    where: Mapping[str, object] = {}


class Panel(NamedTuple):
    """One value of the facet: each group's arms, by their value on the x axis (None: no value)."""

    title: str
    groups: Mapping[str, Mapping[Plain, str]]  # group -> x -> arm


class Chosen(NamedTuple):
    """The names in full, and what each panel shows."""

    x: str
    y: str
    is_cost: bool  # x is a cost: curves
    panels: Sequence[Panel]


def chosen(arms: Arms, facts: Mapping[str, Settings], asked: Asked) -> Chosen:
    """Return what to draw of arms, or say what to ask for instead."""
    own = known_settings(arms, facts)
    y = metric_of(asked.y)
    x = column_of(asked.x)
    is_cost = x in AXES
    if not is_cost:
        x = _setting(x, own, "axis or setting", "costs: " + ", ".join(AXES))
    own = _held(own, asked.where)
    if not is_cost:
        _must_vary(x, own)
    facet = None if asked.facet is None else _setting(asked.facet, own, "setting")
    if facet is not None:
        _must_vary(facet, own)
    asked_hue = [asked.hue] if isinstance(asked.hue, str) else list(asked.hue or ())
    hue = [_setting(key.strip(), own, "setting") for part in asked_hue for key in part.split(",")]
    across = None if is_cost else x
    wanted = hue if asked.hue is not None else None
    panels = _panels(own, across, wanted, facet, plainly=wanted is None and not asked.where)
    return Chosen(x, y, is_cost, panels)


def column_of(name: str) -> str:
    """Return the column that a name stands for: loss is train_loss."""
    return SHORT.get(name, name)


def metric_of(name: str) -> str:
    """Return the column that the name of a metric stands for; refuse another with the nearest."""
    one_of("metric", name, [*SHORT, *METRICS, *AXES])
    return column_of(name)


def known_settings(
    arms: Arms, facts: Mapping[str, Settings], where: Mapping[str, object] | None = None
) -> Mapping[str, Settings]:
    """Return the settings of each arm, of those alone that have the values of `where`.

    An arm of which nothing is known has its name.
    """
    return _held({arm: facts.get(arm) or {ALGORITHM: arm} for arm in arms}, where or {})


class Grid(NamedTuple):
    """Arms by two settings, each of which is told as text."""

    row: str
    column: str
    rows: Sequence[str]
    columns: Sequence[str]
    cells: Mapping[tuple[str, str], str]  # (row, column) -> arm


def grid_of(
    facts: Mapping[str, Settings],
    row: str,
    column: str,
) -> Grid:
    """Return arms by two settings; arms that one does not concern are in a line of their own."""
    down, across = (_setting(key.strip(), facts, "setting") for key in (row, column))
    require(down != across, f"a grid has two settings, got '{down}' twice; choose another")
    own, sides = facts, []
    for key in (down, across):
        values = _in_order([settings.get(key) for settings in own.values()])
        lacking = any(key not in settings for settings in own.values())
        sides.append([*map(told_value, values), *([WITHOUT] if lacking else [])])

    def place(settings: Settings, key: str) -> str:
        return told_value(settings[key]) if key in settings else WITHOUT

    met: dict[tuple[str, str], list[str]] = {}
    for arm, each in own.items():
        met.setdefault((place(each, down), place(each, across)), []).append(arm)
    for arms in met.values():
        if len(arms) > 1:
            told, key, one = _differing({arm: own[arm] for arm in arms}, (down, across))
            raise ValueError(
                f"a cell would mix arms that {told}; keep one value with --where {key}={one}"
            )
    cells = {spot: arms[0] for spot, arms in met.items()}
    return Grid(down, across, sides[0], sides[1], cells)


def _panels(
    own: Mapping[str, Settings],
    x: str | None,
    hue: list[str] | None,
    facet: str | None,
    *,
    plainly: bool,
) -> list[Panel]:
    values = [None] if facet is None else _facets(own, facet)
    plainly = plainly and facet is None and x is None
    keys = list(hue) if hue is not None else _enough(own, x, facet)
    found = []
    for value in values:
        # an arm that the facet does not concern is in every panel
        here = {arm: s for arm, s in own.items() if facet is None or s.get(facet, value) == value}
        groups = _grouped(here, x, keys, plainly=plainly)
        title = "" if facet is None else _title(facet, value)
        found.append(Panel(title, groups))
    return found


def _title(facet: str, value: Plain) -> str:
    """Return the title of a panel: nodes = 5; a label or a folder names itself."""
    return told_value(value) if facet in (ALGORITHM, FOLDER) else f"{facet} = {told_value(value)}"


def _facets(own: Mapping[str, Settings], facet: str) -> list[Plain]:
    """Return the values that have a panel each."""
    values = _in_order([settings.get(facet) for settings in own.values()])
    some = ",".join(map(told_value, values[:2]))
    require(
        len(values) <= MOST_PANELS,
        f"'{facet}' has {len(values)} values, a figure has at most {MOST_PANELS} panels; keep some "
        f"of them: --where {facet}={some}",
    )
    return values


def _grouped(
    here: Mapping[str, Settings], x: str | None, keys: Sequence[str], *, plainly: bool
) -> dict[str, dict[Plain, str]]:
    """Return the arms by group and value of x; refuse to mix two.

    Where nothing was asked for, a group is an arm and has its name (`plainly`).
    """
    met: dict[str, dict[Plain, list[str]]] = {}
    for arm, settings in here.items():
        name = arm if plainly else _named(settings, keys)
        value = None if x is None else settings.get(x)
        met.setdefault(name, {}).setdefault(value, []).append(arm)
    for at in met.values():
        for arms in at.values():
            if len(arms) > 1:
                raise ValueError(_mixed({arm: here[arm] for arm in arms}, x, keys))
    return {name: {value: arms[0] for value, arms in at.items()} for name, at in met.items()}


def _mixed(arms: Mapping[str, Settings], x: str | None, keys: Sequence[str]) -> str:
    """Return that a curve or a point would be of several arms, and how to tell them apart."""
    told, key, one = _differing(arms, (x, *keys))
    what = "curve" if x is None else "point"
    by = ",".join([*keys, key])
    return (
        f"a {what} would mix arms that {told}; tell them apart with --hue {by} or --facet {key}, "
        f"or keep one value with --where {key}={one}"
    )


def _differing(arms: Mapping[str, Settings], used: Sequence[str | None]) -> tuple[str, str, str]:
    """Return in what arms differ that a grouping does not use: in words, its name and a value."""
    differ = varying(arms)
    apart = [key for key in differ if key not in used] or list(differ)
    alike = f"{' and '.join(arms)} have the same settings; show their folders apart"
    require(bool(apart), alike)
    values = differ[apart[0]]
    return (
        f"differ in {apart[0]} ({', '.join(map(_quoted, values))})",
        apart[0],
        told_value(values[0]),
    )


def _enough(own: Mapping[str, Settings], x: str | None, facet: str | None) -> list[str]:
    """Return settings that tell all arms apart: the label, and others as far as they are needed."""
    keys = [ALGORITHM]
    while True:
        met: dict[tuple[Plain, ...], str] = {}
        more = None
        for arm, settings in own.items():
            place = tuple(settings.get(key) for key in (*keys, x or "", facet or ""))
            if place in met:
                apart = varying({met[place]: own[met[place]], arm: settings})
                more = next((key for key in apart if key not in (*keys, x, facet)), None)
                break
            met[place] = arm
        if more is None:
            return keys
        keys.append(more)


def _named(settings: Settings, keys: Sequence[str]) -> str:
    """Return the name of a group: FedAvg, nodes=5 (runs-a)."""
    parts = [str(settings[key]) for key in keys if key == ALGORITHM]
    for key in keys:
        if key in settings and key not in (ALGORITHM, FOLDER):
            parts.append(f"{key.rpartition('.')[2]}={told_value(settings[key])}")
    folder = f"({settings[FOLDER]})" if FOLDER in keys and FOLDER in settings else ""
    named = " ".join(filter(None, [", ".join(parts), folder]))
    return named or str(settings.get(ALGORITHM, "all"))


def told_value(value: object) -> str:
    """Return a value as it is written: 0.5, 10, dirichlet."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _in_order(values: Sequence[Plain]) -> list[Plain]:
    """Return values once each, numbers in order and names as they came; no None."""
    met = [value for value in dict.fromkeys(values) if value is not None]
    numbers = [value for value in met if isinstance(value, int | float)]
    return [*sorted(numbers)] if len(numbers) == len(met) else [*met]


def _setting(name: str, own: Mapping[str, Settings], what: str, more: str = "") -> str:
    """Return a setting's whole name: as given, by its last part if that is one's alone."""
    known = list(dict.fromkeys(key for settings in own.values() for key in settings))
    plain = name.removeprefix(SETTING)
    if plain in known:
        return plain
    ending = [key for key in known if key.rpartition(".")[2] == plain]
    if len(ending) == 1:
        return ending[0]
    close = ending or get_close_matches(plain, known, n=3)
    lasts = {key.rpartition(".")[2]: key for key in known}
    close = close or [lasts[last] for last in get_close_matches(plain, lasts, n=3)]
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    told = "; ".join(filter(None, [more, _what_varies(own)]))
    raise ValueError(f"there is no {what} '{name}'; {hint}{told}")


def _must_vary(key: str, own: Mapping[str, Settings]) -> None:
    if key in varying(own):
        return
    met = next((told_value(own[arm][key]) for arm in own if key in own[arm]), "nothing")
    raise ValueError(
        f"nothing to draw along '{key}': all arms have {met}; {_what_varies(own)}; for more values "
        f"run: folkman sweep --grid {key}=..."
    )


def _what_varies(own: Mapping[str, Settings]) -> str:
    """Return which settings differ between arms, and their values."""
    found = {key: values for key, values in varying(own).items() if key != FOLDER or len(own) > 1}
    if not found:
        return "no setting varies here"
    told = []
    for key, values in list(found.items())[:MOST_TOLD]:
        rest = ", ..." if len(values) > MOST_TOLD else ""
        shown = ", ".join(map(_quoted, values[:MOST_TOLD]))
        told.append(f"{key} ({shown}{rest})")
    more = f" and {len(found) - MOST_TOLD} more" if len(found) > MOST_TOLD else ""
    return f"what varies here: {', '.join(told)}{more}"


def _quoted(value: object) -> str:
    """Return a value within a list; one with a comma in it has marks around it."""
    text = told_value(value)
    return f"'{text}'" if "," in text else text


def _held(own: Mapping[str, Settings], where: Mapping[str, object]) -> Mapping[str, Settings]:
    """Return the arms that have one of the values asked for; those without the setting stay."""
    kept = own
    for name, wanted in where.items():
        key = _setting(name, own, "setting")
        values = [*wanted] if isinstance(wanted, list | tuple) else [wanted]
        texts = [told_value(value).strip() for value in values]
        kept = {
            arm: settings
            for arm, settings in kept.items()
            if key not in settings or _text(settings[key]) in {_text(text) for text in texts}
        }
        met = dict.fromkeys(told_value(own[arm][key]) for arm in own if key in own[arm])
        hit = any(key in settings for settings in kept.values())
        require(
            hit, f"no arm has {key} = {', '.join(dict.fromkeys(texts))}; there is {', '.join(met)}"
        )
    return kept


def _text(value: object) -> str:
    """Return a value so that 5, 5.0 and "5" are alike."""
    try:
        return repr(float(str(value)))
    except ValueError:
        return str(value).lower()
