"""From a configuration, or from objects built in Python, to a finished run folder.

    import folkman as fm

    results = fm.run("mine.toml", settings={"network.gamma": 10})
    methods = {"ours": fm.async_sharing(0.2), "FedAvg": fm.fedavg(0.2)}
    results = fm.compare(problem, network, methods, slots=300)
    results.folder, results.plot("bits", "test_accuracy")

Both are two steps, which the command line takes one by one. `prepare_run` checks everything,
builds it once and makes the folder: what is wrong is found before. `carry_out_run` makes the runs
and writes results, figures and report.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from folkman.algorithm.base import Algorithm
from folkman.algorithm.travel import Broadcast
from folkman.checks import require
from folkman.config.choices import CHECKS
from folkman.config.comparison import check_labels, resolve, to_toml
from folkman.config.own_code import digests
from folkman.config.plugins import check_unchanged
from folkman.config.text import dump, gather, refuse_beside_resume
from folkman.energy import Energy
from folkman.engine.compute_times import ComputeTimes
from folkman.engine.presence import Presence
from folkman.engine.simulate import Clock, Recording, Simulation, check_clock, check_length
from folkman.experiment.ahead import compiling_ahead
from folkman.experiment.fingerprint import fingerprint
from folkman.experiment.parts import Part, Watch, check, comparison_of, make_all, parts
from folkman.experiment.theory import step_warnings
from folkman.experiment.trackers import check_packages, ignore, tracking
from folkman.experiment.ways import Ways
from folkman.faults import NO_FAULTS
from folkman.problem.learnable import Learnable, check_learnable
from folkman.problem.problem import Problem
from folkman.radio.delivery import Network, check_horizon
from folkman.record.folder import MADE_IN_PYTHON, RunFolder
from folkman.record.json_file import Json, Table, dated
from folkman.record.provenance import note_end, note_start
from folkman.record.run import Run
from folkman.report.kept import keep_labels
from folkman.report.notebook import Results
from folkman.report.write import write_run_report

__all__ = ["PreparedRun", "carry_out_run", "compare", "network_lines", "prepare_run", "run"]


class PreparedRun(NamedTuple):
    """A run folder and all that goes into it."""

    folder: RunFolder
    config: Table  # the content of config.toml
    first: list[Part]  # the runs of the first seed, built
    rest: Iterator[Part]  # those of the other seeds, built when their turn comes
    precision: str
    warnings: list[str]
    own_code: Mapping[str, str] = {}  # SHA-256 of files from outside the package, by path

    @property
    def slots(self) -> int:
        """Return the slots of all runs together."""
        return self.first[0].slots * len(self.config["algorithm"]) * len(self.config["seeds"])


def run(
    config: str | Path | Table | None = None,
    *,
    settings: Sequence[str] | Table | None = None,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    track: Sequence[str] = (),
    watch: Watch | None = None,
) -> Results:
    """Compare algorithms over seeds on the same draws, as `folkman run` does, and return the runs.

    `config` is a TOML file, a dictionary of the same keys, or nothing for the default one.
    `settings` override keys of it: a list of "network.gamma=10", or a dictionary of values by
    dotted key. The run folder is `out`, else runs/DATE-TIME-NAME; `results.folder` says where.
    `resume` goes on with an interrupted folder and takes everything from it. `track` names trackers
    (tensorboard, mlflow, wandb). `watch(run, slots done, slots in all)` is called at every recorded
    slot. A step beyond the stability limit is a Python warning.
    """
    prepared = prepare_run(config, settings=settings, out=out, resume=resume, track=track)
    for text in prepared.warnings:
        warnings.warn(text, stacklevel=2)
    return carry_out_run(prepared, track=track, watch=watch)


def prepare_run(
    config: str | Path | Table | None = None,
    *,
    settings: Sequence[str] | Table | None = None,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    track: Sequence[str] = (),
) -> PreparedRun:
    """Check a configuration, build the first seed's runs, make or open the folder; see `run`."""
    check_packages(track)
    folder = None
    if resume is not None:
        refuse_beside_resume(config, settings, out)
        folder = RunFolder.open(Path(resume))
        check_unchanged(folder.own_code())
        comparison = comparison_of(folder)
    else:
        comparison = resolve(gather(config, settings), try_builders=False)
    with jax.enable_x64(comparison.precision == "float64"):
        wanted = parts(comparison)
        first = list(islice(wanted, len(comparison.algorithm)))
        check(first)
        found = [] if folder is not None else list(step_warnings(comparison, first))
        folder = folder or RunFolder.create(_place(out, comparison.name), to_toml(comparison))
    built = (comparison.model_dump(), first, wanted, comparison.precision)
    return PreparedRun(folder, *built, found, digests(comparison))


def _place(out: str | Path | None, name: str) -> Path:
    """Return the folder to make: as asked for, or named by the time."""
    return Path(out or Path("runs") / dated(name))


def carry_out_run(
    prepared: PreparedRun,
    *,
    track: Sequence[str] = (),
    watch: Watch | None = None,
    command: list[str] | None = None,
) -> Results:
    """Make every run that its folder lacks, write results, figures and report, and return the runs.

    `command` are the arguments of the command line, for the record of how to repeat it.
    """
    folder, config = prepared.folder, prepared.config
    folder.make_folders()
    ways = Ways(folder.provenance)
    note_start(folder.provenance, command, prepared.own_code, network_lines(prepared.first))
    with jax.enable_x64(prepared.precision == "float64"):
        first = [ways.sent(part) for part in prepared.first]
        with (
            tracking(track, folder.root, config["name"], config, then=watch or ignore) as told,
            compiling_ahead(first, folder),
        ):
            runs = make_all(chain(first, map(ways.sent, prepared.rest)), folder, told)
        note_end(folder.provenance)
        _draw_labels(prepared.first[0].simulation.problem, folder)
        write_run_report(folder, figures=True)
    return Results(runs, folder.root)


def network_lines(first: Sequence[Part]) -> list[str]:
    """Return a line for each network, and one where methods are not charged alike on it.

    `first` has one run of each label.
    """
    labels: dict[str, dict[bool, list[str]]] = {}
    uneven = set()
    for part in first:
        network = part.simulation.network
        alone = isinstance(part.simulation.algorithm.travel, Broadcast)
        words = network.in_words() if hasattr(network, "in_words") else type(network).__name__
        words = words if alone else getattr(network, "turns_in_words", "") or words
        labels.setdefault(words, {True: [], False: []})[alone].append(part.run.label)
        if getattr(network, "uneven", False):
            uneven.add(words)
    lines = []
    for words, sides in labels.items():
        own = ", ".join([*sides[True], *sides[False]])
        lines.append(words if len(labels) == 1 else f"{words} ({own})")
        if words in uneven and sides[True] and sides[False]:
            lines.append(
                f"not like for like: on this network transfers take no time for "
                f"{', '.join(sides[True])}, and gamma slots for {', '.join(sides[False])}; "
                "compare them on pipelined"
            )
    return lines


def _draw_labels(problem: Learnable, folder: RunFolder) -> None:
    """Draw which node holds which labels under the first seed, where there are labels."""
    if not isinstance(problem, Problem) or not np.issubdtype(problem.y.dtype, np.integer):
        return
    labels = np.asarray(problem.y)
    counts = [
        np.bincount(labels[i, : problem.count[i]], minlength=labels.max() + 1)
        for i in range(problem.num_nodes)
    ]
    keep_labels(np.stack(counts), folder.figures)


def compare(  # noqa: PLR0913 - all but three by name
    # one for all seeds, or a function from a seed to its problem
    problem: Learnable | Callable[[int], Learnable],
    network: Network | Mapping[str, Network],  # one for all methods, or one by label
    # methods by label, or a list of them
    algorithms: Mapping[str, Algorithm] | Sequence[Algorithm],
    *,
    slots: int,
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
    clock: Clock | None = None,
    recording: Recording = Recording(),  # noqa: B008 - immutable
    faults: Presence = NO_FAULTS,
    energy: Energy = Energy(),  # noqa: B008 - immutable
    out: str | Path | None = None,
    name: str = "comparison",  # names the folder
    track: Sequence[str] = (),
    watch: Watch | None = None,
) -> Results:
    """Compare algorithms that were built in Python, and return the runs.

    The folder is as `run` makes it.

    `problem` is one for all seeds, or a function from a seed to its problem. `network` is one for
    all algorithms, or one for each label. `algorithms` are named by their labels, or in a list by
    their own names. Without a clock a slot lasts as long as the networks say, else a second.

    Calling it again with the same `out` goes on with an interrupted folder, or reads a finished
    one. A folder that was made from something else is refused, as far as can be known: numbers,
    arrays and code are compared, whatever a function reads from elsewhere is not.
    """
    check_packages(track)
    given = list(algorithms.values() if isinstance(algorithms, Mapping) else algorithms)
    networks = network if isinstance(network, Mapping) else {"": network}
    found = [CHECKS["algorithm"](each, {}) for each in given]
    found += [CHECKS["network"](each, {}) for each in networks.values()]
    wrong = next(filter(None, found), "")
    require(
        not wrong,
        f"{wrong}; call the builder, and give algorithms as a list or a dictionary of labels",
    )
    named = algorithms if isinstance(algorithms, Mapping) else {each.name: each for each in given}
    require(
        len(named) == len(algorithms),
        "two algorithms of a list have one name; give a dictionary of labels",
    )
    check_labels(list(named))
    require(Path(name).name == name, f"a name names the folder and has no slashes, got '{name}'")
    networks = networks if isinstance(network, Mapping) else dict.fromkeys(named, network)
    require(
        set(networks) == set(named),
        f"expected a network for each of {list(named)}, got {list(networks)}",
    )
    lengths_s = filter(None, (getattr(each, "slot_s", None) for each in networks.values()))
    time = clock or Clock(next(lengths_s, 1.0))

    def all_parts() -> Iterator[Part]:
        for seed in seeds:
            own = problem(seed) if callable(problem) else problem
            check_learnable(own)
            priced = () if energy == Energy() else (energy,)  # folders of before stay theirs
            known = fingerprint(own, time, recording, faults, slots, *priced)
            for label, algorithm in named.items():
                parts_of = (own, networks[label], algorithm, time, recording, faults, energy)
                simulation = Simulation(*parts_of)
                whole = fingerprint(known, networks[label], algorithm)
                yield Part(Run(algorithm.name, label, seed), simulation, slots, whole)

    wanted = all_parts()
    _check_seeds(seeds)
    first = list(islice(wanted, len(named)))
    _check_built(first)
    config = _described(first, name, seeds)
    precise = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
    precision = "float64" if precise else "float32"
    folder = _folder_for(out, name, dump(config))
    prepared = PreparedRun(folder, config, first, wanted, precision, [])
    return carry_out_run(prepared, track=track, watch=watch)


def _check_seeds(seeds: Sequence[int]) -> None:
    """Refuse seeds that are none, or not told apart."""
    require(len(seeds) > 0, "expected at least one seed, got none")
    require(len(set(seeds)) == len(seeds), f"seeds must differ, got {list(seeds)}")
    for seed in seeds:
        whole = isinstance(seed, int | np.integer) and 0 <= seed < 2**32
        require(whole, f"a seed must be a whole number in 0 .. 2^32 - 1, got {seed!r}")


def _check_built(first: Sequence[Part]) -> None:
    """Refuse, before a folder is made, what a simulation would refuse."""
    require(bool(first), "expected at least one algorithm, got none")
    for part in first:
        _, network, _, clock, recording, *_ = part.simulation
        check_length(part.slots, recording.every)
        check_horizon(network, part.slots)
        check_clock(network, clock)
        clock.per_node(part.simulation.problem.num_nodes)
    check(first)


def _described(first: Sequence[Part], name: str, seeds: Sequence[int]) -> Json:
    """Return what a configuration could say of these objects, with their fingerprint."""
    problem, _, _, clock, recording, *_ = first[0].simulation
    tables = []
    for run, simulation, *_ in first:
        network = simulation.network
        named = {"name": str(getattr(network, "name", type(network).__name__))}
        packed = {key: each for key, each in network.packing._asdict().items() if each is not None}
        head = {"name": run.algorithm, "label": run.label}
        tables.append(head | {"network": named, "compression": packed})
    model = getattr(getattr(problem, "model", problem), "network", problem)
    objective = getattr(problem, "objective", None)  # one's own problem need not tell
    drawn = clock.compute_slots
    return {
        "name": name,
        MADE_IN_PYTHON: fingerprint([part.fingerprint for part in first]),
        "nodes": problem.num_nodes,
        "slots": first[0].slots,
        "seeds": list(seeds),
        "slot_s": clock.slot_s,
        "compute_slots": drawn._asdict() if isinstance(drawn, ComputeTimes) else drawn,
        "record_every": recording.every,
        "evaluate_nodes": recording.nodes,
        "keep_timelines": recording.timeline,
        **({} if objective is None else {"objective": objective}),
        **({"stop_at": dict(recording.stop_at)} if recording.stop_at else {}),
        "data": {"name": getattr(problem, "name", type(problem).__name__)},
        "model": {"name": type(model).__name__},
        "network": tables[0]["network"],
        "compression": tables[0]["compression"],
        "algorithm": tables,
    }


def _folder_for(out: str | Path | None, name: str, config: str) -> RunFolder:
    """Make the folder of a comparison of objects, or open an earlier one of the same objects."""
    place = _place(out, name)
    if not RunFolder(place).config.is_file():
        return RunFolder.create(place, config, in_python=True)
    folder = RunFolder.open(place)
    if folder.config.read_text(encoding="utf-8") != config:
        raise FileExistsError(
            f"expected a folder made from these objects, {place} was made from something else; "
            "choose another `out`, or call with what it was made from"
        )
    return folder
