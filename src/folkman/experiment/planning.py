"""`folkman radio`: a survey of thresholds and allocations on the same drops."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkman.checks import require
from folkman.experiment.config import CHOICES, override
from folkman.radio.network import RadioNetwork
from folkman.radio.planning import Drops, Plan, Sawtooth, best_threshold, plan, sawtooth
from folkman.report.statistics import half_width

__all__ = ["PAPER_CNN_PARAMETERS", "Survey", "survey"]

PAPER_CNN_PARAMETERS = 430_698
"""The message surveyed: the paper's CNN for MNIST."""


class Survey(NamedTuple):
    """What was found: rows as `--json` prints them, their 95 % half-widths, and one drop to look at."""

    rows: list[dict[str, Any]]
    half_widths: list[dict[str, float | None]]
    best_threshold_db: float | None
    picture: Sawtooth


def survey(
    nodes: int,
    thresholds_db: Sequence[float],
    allocations: Sequence[str],
    period: str,
    drops: int,
    seed: int,
    settings: Sequence[str] = (),
) -> Survey:
    """Simulate every threshold with every allocation, on the same drops and fading."""
    require(nodes >= 1, f"nodes must be at least 1, got {nodes}")
    require(drops >= 2, f"drops must be at least 2 for an interval, got {drops}; 600 is the default")
    networks = [_network(settings, t, a, period) for t in thresholds_db for a in allocations]
    bits = PAPER_CNN_PARAMETERS * networks[0].bits_per_parameter
    plans = [plan(network, nodes, bits, Drops(drops, seed=seed)) for network in networks]
    rows = [_row(network, nodes, found) for network, found in zip(networks, plans, strict=True)]
    best = best_threshold(networks[0], plans[0].sinr, bits).threshold_db if nodes > 1 else None
    shown = min(networks, key=lambda network: abs(network.threshold_db - (best or 0.0)))
    return Survey(rows, [_half_widths(found) for found in plans], best, sawtooth(shown, nodes, bits, seed=seed))


def _network(settings: Sequence[str], threshold_db: float, allocation: str, period: str) -> RadioNetwork:
    own = {"name": "radio", "threshold_db": float(threshold_db), "allocation": allocation, "period": period}
    table = override({"network": own}, [f"network.{setting}" for setting in settings])["network"]
    return CHOICES["network"].build(CHOICES["network"].resolve(table, "radio"))


def _row(network: RadioNetwork, nodes: int, found: Plan) -> dict[str, Any]:
    pairs = ~np.eye(nodes, dtype=bool)
    sinr_db = 10 * np.log10(found.sinr[:, pairs]) if nodes > 1 else np.array([np.nan])
    return {
        "nodes": nodes,
        "threshold_db": network.threshold_db,
        "allocation": network.allocation,
        "period": network.period,
        "sinr_db": {f"p{q}": _number(np.percentile(sinr_db, q)) for q in (5, 50, 95)},
        "p_link": _number(np.mean(found.linked)),
        "p_node": _number(np.mean(found.scheduled)),
        "gamma_t": {
            "mean": _mean(found.gamma_t),
            "p95": _percentile(found.gamma_t),
            "median": _percentile(found.gamma_t, 50),
        },
        "gamma_w": {"mean": _mean(found.gamma_w)},
        "age": {"mean": _mean(found.age), "p95": _mean(found.age_p95)},
    }


def _half_widths(found: Plan) -> dict[str, float | None]:
    columns = {"p_link": found.linked, "p_node": found.scheduled, "gamma_t": found.gamma_t}
    columns |= {"gamma_w": found.gamma_w, "age": found.age}
    return {name: _half(values) for name, values in columns.items()}


def _half(values: NDArray[np.float64]) -> float | None:
    known = values[np.isfinite(values)]
    return _number(half_width(known[:, None])[0]) if len(known) > 1 else None


def _number(value: np.floating | float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _mean(values: NDArray[np.float64]) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None


def _percentile(values: NDArray[np.float64], q: float = 95.0) -> float | None:
    known = values[np.isfinite(values)]
    return float(np.percentile(known, q)) if len(known) else None
