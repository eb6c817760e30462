"""Traces of real devices as numbers of a configuration: how fast each computes, when it is there.

FedScale [1] publishes two traces of clients. Here they are read as CSV or JSON:

    capacity       client, computation, communication    ms to infer one sample; kbit/s
    availability   client, active_s, inactive_s[, finish_s]
                   from when to when the client is there; after finish_s all begins again

and become what a configuration holds anyway, where it is resolved:

    [compute_slots]           compute_slots = [2, 1, 5, ...], one for each node
    trace = "capacity.csv"

    [faults]                  away = [[node, first slot away, first slot back], ...]
    trace = "availability.json"

so that runs, sweeps and devices need no file. Node i is the i-th client of the file, after `skip`
of them. A gradient takes `passes` times as long as inference: 3 in FedScale, for the way back. A
node is there in a slot if its client is when the slot begins.

FedScale's own files are pickles, which can run any code when they are read, and are refused; the
refusal says how to convert one that you trust. `communication` is not used: a network has rates.

[1] Lai et al. FedScale: Benchmarking Model and System Performance of Federated Learning at Scale.
    ICML 2022. arXiv:2105.11367
"""

import csv
import json
from collections.abc import Iterable, Mapping
from math import ceil, inf, isfinite
from pathlib import Path
from typing import Any, NamedTuple

from folkman.checks import nearest, require
from folkman.record.json_file import Json, Table

__all__ = ["Availability", "away", "compute_slots", "read_availability", "read_capacity"]
__all__ += ["with_traces"]

MOST_CLIENTS = 10**6
MOST_SLOTS_A_GRADIENT = 10**6
MOST_ABSENCES = 20_000
"""Absences of all nodes together: each is looked at in every slot."""
PASSES = 3.0
CONVERT = (
    'convert a copy that you trust: python -c "import json, pickle; json.dump(pickle.load('
    "open('TRACE', 'rb')), open('trace.json', 'w'))\""
)


class Availability(NamedTuple):
    """When one client is there."""

    active_s: tuple[tuple[float, float], ...]  # from, to; sorted, and may overlap
    finish_s: float  # when all begins again; inf: never


def with_traces(raw: Table) -> Table:
    """Return a configuration with numbers in the place of its traces."""
    found = dict(raw)
    times, faults = raw.get("compute_slots"), raw.get("faults")
    if isinstance(times, Mapping) and "trace" in times:
        found["compute_slots"] = _times(times, raw)
    if isinstance(faults, Mapping) and "trace" in faults:
        found["faults"] = _absences(faults, raw)
    return found


def _times(table: Table, raw: Table) -> list[int]:
    where = "compute_slots"
    _known(table, where, ("trace", "samples", "passes", "skip"))
    samples = table.get("samples", raw.get("batch"))
    require(
        samples is not None,
        f"'{where}.samples' is needed with a trace and without batch: how many samples a gradient "
        "takes; add it",
    )
    return compute_slots(
        read_capacity(_path(table, where)),
        nodes=int(_number(raw, "", "nodes", 5)),
        slot_s=_slot_s(raw, where),
        samples=_number({"samples": samples}, where, "samples", 1),
        passes=_number(table, where, "passes", PASSES),
        skip=int(_number(table, where, "skip", 0)),
    )


def _absences(table: Table, raw: Table) -> Json:
    where = "faults"
    nodes, slots = int(_number(raw, "", "nodes", 5)), int(_number(raw, "", "slots", 300))
    found = away(
        read_availability(_path(table, where)),
        nodes=nodes,
        slots=slots,
        slot_s=_slot_s(raw, where),
        skip=int(_number(table, where, "skip", 0)),
    )
    rest = {key: value for key, value in table.items() if key not in ("trace", "skip")}
    return {**rest, "away": [*rest.get("away", ()), *found]}


def _known(table: Table, where: str, keys: tuple[str, ...]) -> None:
    for key in table:
        require(key in keys, f"unknown key '{where}.{key}' beside a trace; {nearest(key, keys)}")


def _path(table: Table, where: str) -> Path:
    path = table["trace"]
    require(isinstance(path, str), f"'{where}.trace' is a path, as text, got {path!r}; correct it")
    return Path(path)


def _number(table: Table, where: str, key: str, default: float) -> float:
    value = table.get(key, default)
    good = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    name = f"{where}.{key}" if where else key
    require(good and value >= 0, f"'{name}' must be a number of at least 0, got {value!r}")
    return value


def _slot_s(raw: Table, where: str) -> float:
    slot_s = raw.get("slot_s", 1.0)
    require(
        isinstance(slot_s, int | float) and slot_s > 0,
        f"'{where}.trace' is in seconds and needs slot_s as a number, got {slot_s!r}; set it",
    )
    return float(slot_s)


def compute_slots(
    capacity: Mapping[str, float],
    *,
    nodes: int,
    slot_s: float,
    samples: float,
    passes: float = PASSES,
    skip: int = 0,
) -> list[int]:
    """Return the slots of a gradient for each node: `passes` times `samples` inferences."""
    kept = _clients(capacity, nodes, skip)
    found = []
    for client in kept:
        seconds = passes * samples * capacity[client] / 1000.0
        slots = max(1, ceil(seconds / slot_s * (1 - 1e-9)))  # a whole number of slots stays one
        require(
            slots <= MOST_SLOTS_A_GRADIENT,
            f"a gradient of client {client} would take {slots} slots, expected at most "
            f"{MOST_SLOTS_A_GRADIENT}; lengthen slot_s",
        )
        found.append(slots)
    return found


def away(
    clients: Mapping[str, Availability], *, nodes: int, slots: int, slot_s: float, skip: int = 0
) -> list[tuple[int, int, int]]:
    """Return (node, first slot away, first slot back) of every absence within `slots` slots."""
    found: list[tuple[int, int, int]] = []
    for node, client in enumerate(_clients(clients, nodes, skip)):
        gone = 0  # the first slot in which the node is not yet known to be there
        for start, end in _periods(clients[client], slots * slot_s):
            first, back = (ceil(time / slot_s * (1 - 1e-9)) for time in (start, end))
            if first >= back:  # no slot begins in it
                continue
            if first > gone:
                found.append((node, gone, min(first, slots)))
            gone = max(gone, back)
            if gone >= slots:
                break
        if gone < slots:
            found.append((node, gone, slots))
        require(
            len(found) <= MOST_ABSENCES,
            f"expected at most {MOST_ABSENCES} absences within {slots} slots, got more by node "
            f"{node}; run fewer slots, or lengthen slot_s",
        )
    return [each for each in found if each[1] < each[2]]


def _periods(client: Availability, until_s: float) -> Iterable[tuple[float, float]]:
    """Yield when a client is there, again and again after its finish."""
    shift = 0.0
    while shift < until_s:
        for start, end in client.active_s:
            if start < client.finish_s:
                yield shift + start, shift + min(end, client.finish_s)
        shift += client.finish_s
        if not isfinite(shift) or not client.active_s:
            return


def _clients(found: Mapping[str, Any], nodes: int, skip: int) -> list[str]:
    kept = list(found)[skip : skip + nodes]
    require(
        len(kept) == nodes,
        f"the trace has {len(found)} clients, expected {skip + nodes} for {nodes} nodes after "
        f"{skip}; lower nodes or skip",
    )
    return kept


def read_capacity(path: Path) -> dict[str, float]:
    """Read the milliseconds that each client takes to infer one sample."""
    rows = _rows(path, ("client", "computation"))
    found: dict[str, float] = {}
    for where, row in rows:
        client = str(row["client"])
        require(client not in found, f"{where}: client {client} stands twice; keep one of them")
        value = _real(row["computation"], f"{where}: computation")
        require(value > 0, f"{where}: expected computation above 0 ms, got {value:g}; correct it")
        found[client] = value
    return found


def read_availability(path: Path) -> dict[str, Availability]:
    """Read when each client is there."""
    periods: dict[str, list[tuple[float, float]]] = {}
    finish: dict[str, float] = {}
    for where, row in _rows(path, ("client", "active_s", "inactive_s")):
        client = str(row["client"])
        start = _real(row["active_s"], f"{where}: active_s")
        end = _real(row["inactive_s"], f"{where}: inactive_s")
        require(
            0 <= start <= end,
            f"{where}: expected a period from active_s >= 0 to a later inactive_s, got {start:g} "
            f"to {end:g}; correct it",
        )
        periods.setdefault(client, []).append((start, end))
        own = row.get("finish_s")
        found = inf if own in (None, "") else _real(own, f"{where}: finish_s")
        require(found > 0, f"{where}: expected finish_s above 0, got {found:g}; correct it")
        require(
            finish.setdefault(client, found) == found,
            f"{where}: expected one finish_s for client {client}, got {found:g} and "
            f"{finish[client]:g}; correct it",
        )
    return {name: Availability(tuple(sorted(own)), finish[name]) for name, own in periods.items()}


def _real(value: Any, where: str) -> float:
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = inf
    good = isfinite(found) and not isinstance(value, bool)
    require(good, f"{where}: expected a finite number, got {value!r:.40}; correct it")
    return found


Rows = list[tuple[str, dict[str, Any]]]


def _rows(path: Path, columns: tuple[str, ...]) -> Rows:
    """Return the rows of a trace, each with its place in the file."""
    require(path.is_file(), f"expected a trace at {path}, found none; check the path")
    with path.open("rb") as stream:
        head = stream.read(2)
    pickled = head[:1] == b"\x80" or path.suffix in (".pkl", ".pickle")
    require(
        not pickled,
        f"{path} is a pickle, which can run any code when it is read, and is not read here; "
        f"{CONVERT}",
    )
    try:
        found = _from_json(path) if path.suffix == ".json" else _from_csv(path, columns)
    except UnicodeDecodeError:
        raise ValueError(f"{path}: expected text in UTF-8; convert the file") from None
    require(
        0 < len(found) <= 10 * MOST_CLIENTS,
        f"{path}: expected clients, one or more, got {len(found)} lines; check the file",
    )
    return found


def _from_csv(path: Path, columns: tuple[str, ...]) -> Rows:
    with path.open(newline="", encoding="utf-8") as stream:
        reader = csv.DictReader(stream, skipinitialspace=True)
        header = [name.strip() for name in reader.fieldnames or ()]
        reader.fieldnames = header
        missing = [name for name in columns if name not in header]
        require(
            not missing,
            f"{path}, line 1: expected the columns {', '.join(columns)}, got "
            f"{', '.join(header) or 'none'}; correct the header",
        )
        return [(f"{path}, line {reader.line_num}", row) for row in reader]


def _from_json(path: Path) -> Rows:
    """Return FedScale's own objects, client -> fields, as rows; a period is one of them."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{path}, line {error.lineno}: expected JSON, got {error.msg}; convert it again"
        ) from None
    require(isinstance(table, dict), f"{path}: expected an object client -> fields; convert again")
    rows: Rows = []
    for client, own in table.items():
        where = f"{path}: client {client}"
        require(isinstance(own, dict), f"{where}: expected an object, got {own!r:.40}; correct it")
        if "computation" in own:
            rows.append((where, {"client": client, **own}))
            continue
        starts, ends = own.get("active"), own.get("inactive")
        lists = isinstance(starts, list) and isinstance(ends, list)
        require(
            lists and len(starts) == len(ends),
            f"{where}: expected computation, or lists active and inactive of one length, found "
            f"{', '.join(sorted(own)) or 'nothing'}; correct it",
        )
        for start, end in zip(starts, ends, strict=True):
            rows.append(
                (
                    where,
                    {"client": client, "active_s": start, "inactive_s": end}
                    | {"finish_s": own.get("finish_time")},
                )
            )
    return rows
