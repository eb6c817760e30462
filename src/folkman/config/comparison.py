"""The configuration of a comparison: one TOML file, overrides, defaults.

All of it is checked before anything runs.

    slots = 300
    seeds = [0, 1, 2]

    [network]
    name = "pipelined"
    gamma = 5

    [[algorithm]]
    name = "async_sharing"
    step = 0.2

Every algorithm meets every seed, on the same data, first model and delays. `resolve` fills in all
defaults; what it returns is what a run folder keeps as `config.toml`, and resolving that again
changes nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, TypeAdapter, ValidationError

from folkman.algorithm import ALGORITHMS
from folkman.checks import nearest
from folkman.config.choices import Choice, ConfigError, describe
from folkman.config.plugins import Plugin, anchored, title
from folkman.config.text import DEFAULT, TUNED, dump
from folkman.energy import Energy
from folkman.packing import PACKINGS
from folkman.problem.data import BUILDERS
from folkman.problem.models import MODELS
from folkman.problem.objective import Objective
from folkman.problem.partition import PARTITIONS
from folkman.problem.projection import PROJECTIONS
from folkman.problem.sampling import Sampling
from folkman.radio import NETWORKS
from folkman.radio.delivery import check_horizon
from folkman.record.json_file import Json, Table
from folkman.record.run import METRICS, slug

if TYPE_CHECKING:
    from folkman.faults import Faults

__all__ = ["CHOICES", "OWN", "Comparison", "ComputeTable", "FaultTable", "Latency"]
__all__ += ["by_content", "check_labels", "read_energy", "renamed", "resolve", "to_toml", "told"]

_SIZE = (int | None, Field(default=None, ge=1))
ALWAYS = frozenset({"seed", "nodes", "horizon"})
"""What every builder is given that asks for it; `folkman.config.build` has the meaning of each."""
OF_DATA = ALWAYS | {"sample", "classes"}
TIMED = ALWAYS | {"slot_s", "shapes"}
OWN = ("network", "compression")
"""The tables that an algorithm may have for itself."""
_SIDE = {"label": (str | None, None), **dict.fromkeys(OWN, (Json | None, None))}
_CHOICES = (
    Choice("data", BUILDERS, ALWAYS, {"train_size": _SIZE, "test_size": _SIZE}),
    Choice(
        "partition", PARTITIONS, OF_DATA | {"labels", "group"}, {"total": _SIZE, "per_node": _SIZE}
    ),
    Choice("model", MODELS, OF_DATA),
    Choice("projection", PROJECTIONS, TIMED),
    Choice("network", NETWORKS, TIMED),
    Choice("compression", PACKINGS, ALWAYS),
    Choice("algorithm", ALGORITHMS, TIMED | {"projection"}, _SIDE),
)
CHOICES: dict[str, Choice] = {choice.table: choice for choice in _CHOICES}
"""The tables that choose a builder."""
SINGLE = tuple(kind for kind in CHOICES if kind != "algorithm")
"""Those of which a comparison has one."""
LONGEST_LABEL = 80
MOST_SHOWN = 100
"""Characters of a wrong label that are told."""
MOST_NODES, MOST_SLOTS, MOST_ROWS = 10**6, 10**9, 2 * 10**6
"""Beyond these nothing is begun: tables of all pairs of nodes, slots that are counted in 32 bits,
and the rows that one run records."""


class Latency(BaseModel):
    """The seconds of a slot: T(D) = base_s + per_sample_s max(D - threshold, 0)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    base_s: float = Field(1.0, gt=0, allow_inf_nan=False)  # seconds of a gradient of few samples
    threshold: int = Field(128, ge=0)  # samples up to which it takes no longer
    per_sample_s: float = Field(1e-3, ge=0, allow_inf_nan=False)  # seconds of each sample more


class ComputeTable(BaseModel):
    """Slots of a gradient that are drawn anew for every gradient, around a mean."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mean: float | tuple[float, ...]  # slots of a gradient, one number or one for each node
    law: Literal["geometric", "uniform"] = "geometric"  # of the draws


class FaultTable(BaseModel):
    """What goes wrong; see `folkman.faults` and `folkman.radio.loss`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    loss: Annotated[float, Field(ge=0, lt=1)] = 0.0
    away: tuple[tuple[int, int, int], ...] = ()  # (node, first slot away, first slot back)
    # (node, first slot away) or (node, first slot away, slot of its new start)
    crash: tuple[tuple[int, int] | tuple[int, int, int], ...] = ()
    liars: Annotated[float, Field(ge=0, lt=1)] = 0.0  # share of the nodes that lie
    # what liars send: their message turned round, or noise
    attack: Literal["noise", "sign_flip"] = "sign_flip"
    # of the attack: a factor, or the deviation of the noise
    scale: Annotated[float, Field(allow_inf_nan=False)] = 1.0

    def faults(self) -> "Faults":
        """Return the faults of the nodes; losses are the network's."""
        crash = tuple(
            (each[0], each[1], each[2] if len(each) == 3 else None) for each in self.crash
        )
        from folkman.faults import Faults  # here and not above: a device node has none

        return Faults(self.away, crash, self.liars, self.attack, self.scale)


def read_energy(table: object) -> Energy:
    """Return a table [energy] as the engine takes it, or raise `ConfigError`."""
    if not isinstance(table, dict):
        raise ConfigError(f"[energy] must be a table, got {table!r}; write [energy] above it")
    known = [field.name for field in fields(Energy)]
    for key in table:
        if key not in known:
            raise ConfigError(f"unknown key 'energy.{key}'; {nearest(key, known)}")
    try:
        return TypeAdapter(Energy).validate_python(table)
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "value_error":  # a number out of its range, in our own words
            raise ConfigError(f"[energy]: {first.get('ctx', {}).get('error')}") from None
        raise ConfigError(describe(error, "energy")) from None


class Comparison(BaseModel):
    """A resolved comparison. The fields are the top-level keys of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field("comparison", pattern=r"^[\w][\w .+-]*$", max_length=100)
    nodes: int = Field(5, ge=1, strict=True)
    slots: int = Field(300, ge=1, strict=True)
    seeds: tuple[int, ...] = Field((0, 1, 2, 3, 4), min_length=1)
    slot_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | Latency = 1.0
    compute_slots: StrictInt | tuple[StrictInt, ...] | ComputeTable = 1
    record_every: int = Field(10, ge=1, strict=True)
    evaluate_nodes: bool = False
    keep_timelines: bool = False
    keep_nodes: bool = False
    stop_at: dict[str, float] | None = None
    precision: Literal["float32", "float64"] = "float32"
    l2: float = Field(0.0, ge=0, allow_inf_nan=False)
    batch: int | None = Field(None, ge=1, strict=True)
    sampling: Sampling = "replacement"
    objective: Objective = "samples"
    local_tests: int | None = Field(None, ge=1, strict=True)
    data: Json
    partition: Json
    model: Json
    projection: Json
    network: Json
    compression: Json
    faults: FaultTable = FaultTable()
    energy: Energy = Energy()
    algorithm: tuple[Json, ...] = Field(min_length=1)
    tuned: Json | None = None  # what `folkman tune` notes; it decides about no result


def resolve(raw: Table, *, try_builders: bool = True) -> Comparison:
    """Check a configuration and fill in every default, or raise `ConfigError`.

    Builders check their own ranges; `try_builders` calls them now. Leave it to
    `folkman.config.build.pairs` where that follows anyway.
    """
    for key in raw:
        if key not in Comparison.model_fields and key != "radio":
            raise ConfigError(f"unknown key '{key}'; {nearest(key, Comparison.model_fields)}")
    raw = _told_traces(anchored(_with_radio(raw), Path.cwd()))
    tables = {**DEFAULT, **_fitting(raw), **raw}
    resolved = {name: CHOICES[name].resolve(tables[name]) for name in SINGLE}
    if "energy" in raw:
        raw = {**raw, "energy": read_energy(raw["energy"])}
    algorithms = tables["algorithm"]
    if not isinstance(algorithms, (list, tuple)) or not algorithms:
        raise ConfigError(
            f"[[algorithm]] must be one table or more, got {algorithms!r}; write [[algorithm]] in "
            'two brackets above each, and name = "fedavg" below it'
        )
    sides = _algorithms(algorithms, resolved)
    try:
        comparison = Comparison(**{**raw, **resolved, "algorithm": sides})
    except ValidationError as error:
        raise ConfigError(describe(error, "")) from None
    _check(comparison)
    if try_builders:
        _try_builders(comparison)
    return comparison if {"algorithm", "tuned"} & raw.keys() else _with_note(comparison)


def _told_traces(raw: Table) -> Table:
    """Return a configuration with numbers in the place of traces of devices, if it names any."""
    tables = (raw.get("compute_slots"), raw.get("faults"))
    if not any(isinstance(table, Mapping) and "trace" in table for table in tables):
        return raw
    from folkman.config.traces import with_traces  # here and not above: few have traces

    try:
        return with_traces(raw)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _with_note(comparison: Comparison) -> Comparison:
    """Return the usual algorithms with the note of their search, where it was made for this."""
    noted = comparison.model_copy(update={"tuned": TUNED})
    from folkman.record.tuned import FOUND, SAME_SEEDS, sides_of, standings

    found = standings(sides_of(told(noted))).values()
    return noted if {*FOUND, SAME_SEEDS}.issuperset(found) else comparison


def _fitting(raw: Table) -> Json:
    """Return the partition and model that a synthetic data set is made for, as its defaults."""
    table = raw.get("data")
    name = table.get("name") if isinstance(table, dict) else None
    if name == "quadratic":
        return {"partition": {"name": "given"}, "model": {"name": "quadratic"}}
    return {"model": {"name": "linear"}} if name == "gaussian" else {}


def _with_radio(raw: Table) -> Table:
    """Read a table [radio] as the network of that name."""
    if "radio" not in raw:
        return raw
    if "network" in raw or not isinstance(raw["radio"], dict):
        raise ConfigError(
            "[radio] is a table, and short for [network] with name = 'radio'; give one of the two"
        )
    rest = {key: value for key, value in raw.items() if key != "radio"}
    return {**rest, "network": {"name": "radio", **raw["radio"]}}


def _algorithms(tables: Sequence[object], base: Mapping[str, Table]) -> list[Json]:
    """Resolve each algorithm and give each its own label.

    Its own network and compression, if of the same name, start from those of `base`.
    """
    found = [
        _with_graph(CHOICES["algorithm"].resolve(table, f"algorithm.{i}"), f"algorithm.{i}")
        for i, table in enumerate(tables)
    ]
    for i, table in enumerate(found):
        for kind in OWN:
            table[kind] = _own(kind, table[kind], base[kind], f"algorithm.{i}.{kind}")
        if table["label"] is None:
            alike = [other for other in found if other["name"] == table["name"]]
            apart = [key for key in table if any(other[key] != table[key] for other in alike)]
            told = [f"{key}={_short(table[key])}" for key in apart if key != "label"]
            table["label"] = " ".join([title(table["name"]), *told])
    check_labels([table["label"] for table in found])
    return found


def _own(kind: str, own: Json | None, base: Table, where: str) -> Json | None:
    """Resolve an algorithm's own table of a kind."""
    if own is None:
        return None
    own = {**base, **own} if own.get("name", base["name"]) == base["name"] else own
    return CHOICES[kind].resolve(own, where)


def _with_graph(table: Json, where: str) -> Json:
    """Return an algorithm's table with the edges of its graph, where it names a file of them."""
    if not {"topology", "graph_seed"} <= table.keys():
        return table
    # here and not above: only some methods have a graph
    from folkman.algorithm.pieces.topology import Graph

    try:
        return Graph.settled(table)
    except ValueError as error:
        raise ConfigError(f"[{where}] topology: {error}") from None


def check_labels(labels: Sequence[str]) -> None:
    """Refuse labels that cannot be told apart, on paper or as file names, or cannot be shown."""
    names: dict[str, str] = {}
    for label in labels:
        plain = label.isprintable() and any(map(str.isalnum, label))
        if not plain or len(label) > LONGEST_LABEL:
            least = "a letter or digit, no control characters"
            most = f"at most {LONGEST_LABEL} characters"
            raise ConfigError(f"a label needs {least} and {most}; got {label[:MOST_SHOWN]!r}")
        other = names.setdefault(slug(label, 0), label)
        if labels.count(label) > 1 or other != label:
            raise ConfigError(
                f"two algorithms are labelled '{other}' and '{label}', too alike; give each its "
                "own label"
            )


def _short(value: object) -> str:
    text = str(title(value["name"])) if isinstance(value, dict) else str(value)
    return text if len(text) <= LONGEST_LABEL // 2 else f"{text[: LONGEST_LABEL // 2 - 3]}..."


def _check(comparison: Comparison) -> None:
    """Refuse what no single table can know is wrong."""
    if len(set(comparison.seeds)) != len(comparison.seeds):
        raise ConfigError(f"seeds must differ, got {list(comparison.seeds)}")
    if any(not 0 <= seed < 2**32 for seed in comparison.seeds):
        raise ConfigError(f"a seed must lie in 0 .. 2^32 - 1, got {list(comparison.seeds)}")
    _check_size(comparison)
    times = comparison.compute_slots
    if isinstance(times, ComputeTable):
        times = times.mean
    if isinstance(times, tuple) and len(times) != comparison.nodes:
        raise ConfigError(
            f"compute_slots must be one number or {comparison.nodes}, one a node; got {len(times)}"
        )
    each = times if isinstance(times, tuple) else (times,)
    if min(each, default=0) < 1:
        raise ConfigError(f"compute_slots must be at least 1, got {times}")
    if max(each) > MOST_SLOTS:
        raise ConfigError(f"compute_slots must be at most {MOST_SLOTS}, got {times}; lower it")
    for metric in comparison.stop_at or {}:
        if metric not in METRICS:
            raise ConfigError(f"stop_at has no metric '{metric}'; {nearest(metric, METRICS)}")
        if metric.startswith("node_") and metric != "node_norm" and not comparison.evaluate_nodes:
            raise ConfigError(f"stop_at.{metric} needs evaluate_nodes = true")
    if comparison.faults != FaultTable():
        try:
            comparison.faults.faults().check(comparison.nodes)
        except ValueError as error:
            raise ConfigError(f"[faults]: {error}") from None
    for i, table in enumerate(comparison.algorithm):
        _check_graph(table, comparison.nodes, f"algorithm.{i} ({table['label']})")


def _check_size(comparison: Comparison) -> None:
    """Refuse a run that no machine could finish, before anything is allocated for it."""
    nodes, slots, every = comparison.nodes, comparison.slots, comparison.record_every
    if nodes > MOST_NODES:
        raise ConfigError(
            f"nodes must be at most {MOST_NODES}, got {nodes}: every pair of nodes has an age; "
            "use fewer, or many cells (folkman.simulate_cells)"
        )
    if slots > MOST_SLOTS:
        raise ConfigError(f"slots must be at most {MOST_SLOTS}, got {slots}; run fewer slots")
    if slots // every > MOST_ROWS:
        raise ConfigError(
            f"a run of {slots} slots with record_every = {every} would have {slots // every} rows, "
            f"expected at most {MOST_ROWS}; set record_every = {-(-slots // MOST_ROWS)} or more"
        )


def _check_graph(table: Table, nodes: int, where: str) -> None:
    """Refuse a graph that does not exist between so many nodes."""
    keys = ("topology", "degree", "graph_seed")
    if not set(keys) <= table.keys() or table["topology"] == "schedule":
        return
    from folkman.algorithm.pieces.topology import Graph  # here: only some methods have a graph

    try:
        Graph(*(table[key] for key in keys)).adjacency(nodes)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None


def _try_builders(comparison: Comparison) -> None:
    """Build everything once: a negative step is found here and not in the middle of a run.

    A builder that needs to know the data or the model waits until they are there.
    """
    given: Json = {"nodes": comparison.nodes, "horizon": comparison.slots}
    given |= {"seed": comparison.seeds[0], "slot_s": 1.0}
    for i, table in enumerate(comparison.algorithm):
        tables = {"algorithm": table, "projection": comparison.projection}
        tables |= {kind: table[kind] or getattr(comparison, kind) for kind in OWN}
        try:
            for kind, each in tables.items():
                if CHOICES[kind].needs(each["name"]) <= set(given):
                    built = CHOICES[kind].build(each, **given)
                    if kind == "network":
                        check_horizon(built, comparison.slots)
        except ValueError as error:
            raise ConfigError(f"algorithm.{i} ({table['label']}): {error}") from None


LATER: Json = {"sampling": "replacement", "objective": "samples", "stop_at": None, "tuned": None}
LATER |= {"local_tests": None, "energy": asdict(Energy()), "keep_nodes": False}
"""Keys that came later, each with the value that stands for what was done before.

With that value they are not told, so that folders and stores of before are still those of the same
configuration.
"""


def told(comparison: Comparison) -> Json:
    """Return the fields of a comparison, without later keys that change nothing."""
    fields = comparison.model_dump()
    return {key: value for key, value in fields.items() if LATER.get(key, ...) != value}


def to_toml(comparison: Comparison) -> str:
    """Write a resolved comparison as TOML; a key whose value is None is left out."""
    return dump(told(comparison))


def by_content(comparison: Comparison) -> Comparison:
    """Return a comparison with own code named by its digest: all that decides its results."""
    alone = comparison.model_copy(update={"tuned": None})
    return renamed(alone, lambda name, plugin: f"{plugin.digest}:{title(name)}")


def renamed(comparison: Comparison, rename: Callable[[str, Plugin], str]) -> Comparison:
    """Return a comparison with another name for each builder from outside the package."""

    def of_table(kind: str, table: Json) -> Json:
        plugin = CHOICES[kind].own(table["name"])
        table = table if plugin is None else {**table, "name": rename(table["name"], plugin)}
        own = {each: table.get(each) for each in OWN} if kind == "algorithm" else {}
        return {**table, **{each: of_table(each, tab) for each, tab in own.items() if tab}}

    tables = {kind: of_table(kind, getattr(comparison, kind)) for kind in SINGLE}
    algorithms = tuple(of_table("algorithm", table) for table in comparison.algorithm)
    return comparison.model_copy(update={**tables, "algorithm": algorithms})
