"""`folkman radio`: a survey of thresholds, allocations and fresh air on the same drops."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkman.checks import require
from folkman.config.comparison import CHOICES, read_energy
from folkman.config.text import override
from folkman.energy import Energy
from folkman.packing.packing import message_bits
from folkman.packing.sums import forward_bits, settled_sums, sum_bits
from folkman.radio.floor import floor_any, floor_direct
from folkman.radio.network import RadioNetwork
from folkman.radio.planning import (
    Drops,
    Forecast,
    Sawtooth,
    age_means,
    best_threshold,
    drop_costs,
    forecast,
    least_aged,
    moves_far,
    sawtooth,
)
from folkman.record.json_file import Json
from folkman.report.statistics import half_width

__all__ = ["PAPER_CNN_PARAMETERS", "Question", "Survey", "survey"]

PAPER_CNN_PARAMETERS = 430_698
"""The message surveyed unless told otherwise: the paper's CNN for MNIST."""

LOW_DB, HIGH_DB = -20.0, 20.0
"""Where the best threshold is looked for."""


EPOCHS, SIMULATION = "epochs", "simulation"
"""Planners: a formula for epochs with new positions each, or the simulated drops themselves."""


SCHEDULES = ("threshold", "index")
NEEDS_INDEX = "a message other than a copy needs the schedule 'index'; add --schedule index"

REFUSED = {
    "threshold_db": " would be the same for every row; use --threshold-db",
    "allocation": " would be the same for every row; use --allocation",
    "period": " would be the same for every row; use --period",
    "name": ": this command plans a radio; `folkman run` takes other networks",
    "slot_s": ": use --slot-s",
    "schedule": " would be the same for every row; use --schedule",
    "message": " would be the same for every row; use --message",
}
"""Keys of [radio] that have an option of their own -> what is said instead."""


ENERGY = "energy."
"""How a setting begins that is a key of [energy]."""


class Question(NamedTuple):
    """What is to be surveyed."""

    nodes: int = 5
    thresholds_db: Sequence[float] = (-15.0, 0.0, 15.0)
    allocations: Sequence[str] = ("optimal",)
    period: str = "epoch"
    drops: Drops = Drops()
    slot_s: float = 1.0
    parameters: int = PAPER_CNN_PARAMETERS
    objective: str = "duration"  # or "age"
    settings: Sequence[str] = ()  # "key=value" of [radio], "energy.key=value" of [energy]
    schedules: Sequence[str] = ("threshold",)
    messages: Sequence[str] = ("copy",)  # under the schedule "index"
    floor: bool = False  # bound the ages of every row from below; takes a second or so a drop


class Survey(NamedTuple):
    """What was found: rows as `--json` prints them, and one drop to look at."""

    rows: list[Json]
    best_thresholds_db: dict[str, float]  # by allocation; nothing for one node
    notes: list[str]
    picture: Sawtooth
    planner: str = EPOCHS  # what the best thresholds are the least of
    best_rows: dict[str, Json] = {}  # noqa: RUF012 - their rows, where they were simulated

    @property
    def best_threshold_db(self) -> float | None:
        """Return that of the first allocation asked for."""
        return next(iter(self.best_thresholds_db.values()), None)


MOST_SLOTS, MOST_LINKS = 10**9, 10**9
"""Of a drop, and of all drops together: a number for each link is held at once."""


def survey(question: Question, tell: Callable[[str], None] = lambda _: None) -> Survey:
    """Simulate every threshold with every allocation, on the same drops and fading."""
    ask = question
    require(ask.nodes >= 1, f"nodes must be at least 1, got {ask.nodes}")
    require(ask.parameters >= 1, f"parameters must be at least 1, got {ask.parameters}")
    number, slots, seed = ask.drops
    require(
        number >= 2, f"drops must be at least 2 for an interval, got {number}; 600 is the default"
    )
    require(slots >= 4, f"slots must be at least 4, a quarter of which is warm-up; got {slots}")
    require(slots <= MOST_SLOTS, f"slots must be at most {MOST_SLOTS}, got {slots}; 2000 are many")
    links = ask.nodes**2 * number
    require(
        links <= MOST_LINKS,
        f"{number} drops of {ask.nodes} nodes have {links:.3g} links, expected at most "
        f"{MOST_LINKS:.0e}; lower --nodes or --drops",
    )
    require(0 <= seed < 2**32, f"a seed must lie in 0 .. 2^32 - 1, got {seed}")
    require(
        ask.objective in ("duration", "age"),
        f"objective is 'duration' or 'age', got '{ask.objective}'",
    )
    networks, energy = _networks(ask), _energy(ask)
    bits = message_bits(networks[0].packing, ask.parameters, ask.parameters)
    rows, best, best_rows, notes = [], {}, {}, []
    floors: dict[bool, float] = {}
    for network in networks:
        found = forecast(network, ask.nodes, _bits_of(network, ask, bits), ask.drops)
        rows.append(_row(network, ask, found, energy, _floor(network, ask, bits, floors)))
        tell(f"{_rule(network)}: done")
        if network.schedule == "threshold" and ask.nodes > 1 and network.allocation not in best:
            search = best_threshold(network, found.sinr, bits, ask.objective, LOW_DB, HIGH_DB)
            best[network.allocation] = search.threshold_db
    planner = SIMULATION if ask.objective == "age" else EPOCHS
    if planner == SIMULATION:
        for allocation, proposed_db in best.items():
            row = _least_aged(ask, bits, allocation, rows, proposed_db, energy, tell)
            best_rows[allocation] = row
        best = {allocation: float(row["threshold_db"]) for allocation, row in best_rows.items()}
    if any(min(abs(t - LOW_DB), abs(t - HIGH_DB)) < 1.0 for t in best.values()):
        notes.append(
            f"a best threshold lies at an end of the range searched, {LOW_DB:g} to {HIGH_DB:g} dB"
        )
    target = next(iter(best.values()), 0.0)
    shown = min(
        networks,
        key=lambda network: (network.schedule == "index", abs(network.threshold_db - target)),
    )
    picture = sawtooth(shown, ask.nodes, bits, seed=seed)
    return Survey(rows, best, notes, picture, planner, best_rows)


def _least_aged(
    ask: Question,
    bits: int,
    allocation: str,
    rows: Sequence[Json],
    proposed_db: float,
    energy: Energy,
    tell: Callable[[str], None],
) -> Json:
    """Return the row with the least mean age, of the table and of a search on the same drops.

    Where nodes move so far that every epoch has new positions, the formula's `proposed_db` stands
    in for the search.
    """
    mine = [
        row for row in rows if (row["schedule"], row["allocation"]) == ("threshold", allocation)
    ]
    known = {float(row["threshold_db"]): row for row in mine}
    asked_db = list(known)

    def age_at(threshold_db: float) -> float:
        if threshold_db not in known:
            network = _network(ask, threshold_db, allocation)
            found = forecast(network, ask.nodes, bits, ask.drops)
            known[threshold_db] = _row(network, ask, found, energy)
            tell(f"{threshold_db:.1f} dB, {allocation}: tried")
        return known[threshold_db]["age"]["mean"]

    if moves_far(_network(ask, 0.0, allocation)):
        return known[min([*asked_db, proposed_db], key=age_at)]
    return known[least_aged(age_at, asked_db, LOW_DB, HIGH_DB)]


def _networks(ask: Question) -> list[RadioNetwork]:
    """Return the networks of the table: the paper's rule first, fresh air by message."""
    known = ", ".join(SCHEDULES)
    for name in ask.schedules:
        require(name in SCHEDULES, f"there is no schedule '{name}'; known: {known}")
    require("index" in ask.schedules or set(ask.messages) == {"copy"}, NEEDS_INDEX)
    networks = []
    if "threshold" in ask.schedules:
        networks += [
            _network(ask, t, a)
            for a in dict.fromkeys(ask.allocations)
            for t in dict.fromkeys(ask.thresholds_db)
        ]
    if "index" in ask.schedules:
        networks += [_network(ask, message=message) for message in dict.fromkeys(ask.messages)]
    require(bool(networks), f"expected a schedule, got none; known: {known}")
    return networks


def _network(
    ask: Question, threshold_db: float = 0.0, allocation: str = "optimal", message: str = ""
) -> RadioNetwork:
    """Return the network of a row; with a message that of fresh air."""
    for setting in ask.settings:
        key = setting.partition("=")[0].strip()
        require(key not in REFUSED, f"--set {key}{REFUSED.get(key)}")
    own = {"name": "radio", "threshold_db": float(threshold_db)}
    own |= {"allocation": allocation, "period": ask.period}
    own |= {"schedule": "index", "message": message} if message else {}
    settings = [f"network.{each}" for each in ask.settings if not each.startswith(ENERGY)]
    table = override({"network": own}, settings)["network"]
    return CHOICES["network"].build(CHOICES["network"].resolve(table, "radio"), slot_s=ask.slot_s)


def _energy(ask: Question) -> Energy:
    """Return the powers that were set."""
    own = [setting for setting in ask.settings if setting.startswith(ENERGY)]
    return read_energy(override({"energy": {}}, own)["energy"])


def _spent(network: RadioNetwork, energy: Energy, found: Forecast) -> Json:
    """Return the share of time that a node's radio is in use, and the watts that this takes.

    Without gradients: a planner knows no model.
    """
    transmit_w = energy.transmit_w(network.power_w)
    node_w = transmit_w * found.transmit + energy.receive_w * found.receive + energy.idle_w
    return {
        "transmit_share": _mean(found.transmit),
        "receive_share": _mean(found.receive),
        "transmit_w": transmit_w,
        "receive_w": energy.receive_w,
        "node_w": _mean(node_w),
        "node_w_ci95": _half(node_w),
        "j_per_slot": _mean(node_w * network.slot_s * found.sinr.shape[1]),
    }


def _rule(network: RadioNetwork) -> str:
    """Return a row in a few words."""
    if network.schedule == "index":
        return f"index, {network.message}"
    return f"{network.threshold_db:g} dB, {network.allocation}"


def _bits_of(network: RadioNetwork, ask: Question, copy_bits: int) -> int:
    """Return what a message of this network costs, as a run prices it."""
    if network.message == "sum":
        return sum_bits(settled_sums(network.packing, "a sum"), ask.parameters, ask.nodes)
    return forward_bits(copy_bits, ask.nodes) if network.message == "forward" else copy_bits


def _floor(
    network: RadioNetwork, ask: Question, bits: int, known: dict[bool, float]
) -> float | None:
    """Return the mean over drops of a floor under the ages of all rules that send alike.

    Copies have that of direct transfers, other messages that of every scheme; none is taken to be
    shorter than a copy.
    """
    if not ask.floor or ask.nodes == 1:
        return None
    copies = network.message == "copy"
    if copies not in known:
        bound = floor_direct if copies else floor_any
        first = ask.drops.slots // 4 + 1  # the first slot after the warm-up
        costs = drop_costs(network, ask.nodes, bits, ask.drops)
        floors = [bound(cost, first_slot=first).value_slots for cost in costs]
        known[copies] = float(np.mean(floors))
    return known[copies]


def _row(
    network: RadioNetwork,
    ask: Question,
    found: Forecast,
    energy: Energy,
    floor: float | None = None,
) -> Json:
    """Return one row; `ci95` are half-widths over drops, of quantiles by bootstrap."""
    pairs = ~np.eye(ask.nodes, dtype=bool)
    sinr_db = np.full((len(found.linked), 1), np.nan)
    if ask.nodes > 1:
        sinr_db = 10 * np.log10(found.sinr[:, pairs])
    finite = network.allocation != "random"  # the mean of random shares is infinite (D11)
    gamma_t = found.gamma_t_slots
    threshold, epochs = network.threshold_db, network.schedule == "threshold"
    return {
        "nodes": ask.nodes,
        "schedule": network.schedule,
        "message": network.message,
        "threshold_db": (threshold if np.isfinite(threshold) else str(threshold))
        if epochs
        else None,
        "allocation": network.allocation if epochs else None,
        "period": network.period if epochs else None,
        "slots": ask.drops.slots,
        "sinr_db": {f"p{q}": _percentile(sinr_db, q) for q in (5, 50, 95)},
        "p_link": _mean(found.linked),
        "p_node": _mean(found.scheduled),
        "gamma_t": {
            "mean": _mean(gamma_t) if finite else None,
            "p95": _percentile(gamma_t, 95),
            "median": _percentile(gamma_t, 50),
        },
        "gamma_w": {"mean": _mean(found.gamma_w_slots)},
        "age": {"mean": _mean(age_means(found)), "p95": _age_percentile(found, 95)},
        "unheard": _mean(found.unheard),
        "floor": floor,
        "energy": _spent(network, energy, found),
        "ci95": {
            "sinr_db": {f"p{q}": _bootstrap(sinr_db, q) for q in (5, 50, 95)},
            "p_link": _half(found.linked),
            "p_node": _half(found.scheduled),
            "gamma_t": {
                "mean": _half(gamma_t) if finite else None,
                "p95": _bootstrap(gamma_t[:, None], 95),
                "median": _bootstrap(gamma_t[:, None], 50),
            },
            "gamma_w": {"mean": _half(found.gamma_w_slots)},
            "age": {"mean": _half(age_means(found))},
        },
    }


def _age_percentile(found: Forecast, q: float) -> float | None:
    """Return the age below which q % of all held copies are, over all drops together."""
    counts = found.ages.sum(axis=0)
    if counts.sum() == 0:
        return None
    return float(np.searchsorted(np.cumsum(counts), q / 100 * counts.sum()))


def _half(values: NDArray[np.float64]) -> float | None:
    known = values[np.isfinite(values)]
    return _number(half_width(known[:, None])[0]) if len(known) > 1 else None


def _bootstrap(values: NDArray, q: float, repeats: int = 200) -> float | None:
    """Return half the central 95 % of a quantile over redrawn drops of (drop, sample)."""
    known = values[np.isfinite(values).all(axis=1)]
    if len(known) < 2:
        return None
    rng = np.random.default_rng(0)
    found = [
        np.percentile(known[rng.integers(0, len(known), len(known))], q) for _ in range(repeats)
    ]
    low, high = np.percentile(found, [2.5, 97.5])
    return _number((high - low) / 2)


def _number(value: np.floating | float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _mean(values: NDArray[np.float64]) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None


def _percentile(values: NDArray, q: float) -> float | None:
    known = values[np.isfinite(values)]
    return float(np.percentile(known, q)) if len(known) else None
