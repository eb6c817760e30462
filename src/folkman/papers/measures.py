"""Claims that need no test of a family: a printed formula, and what the paper's code measured.

formula     a measured quantity agrees with a printed formula within 2 %
measured    what the paper's own code measured (`Own.measure`)
"""

from collections.abc import Sequence

import numpy as np

from folkman.papers.paper import Formula, Found
from folkman.papers.verdicts import BETTER, CONTRADICTED, HOLDS, NOT_RUN, OPEN, Reading
from folkman.record.json_file import Table

__all__ = ["formula", "measured"]

FORMULA_MARGIN = 0.02


def formula(
    name: str, asked: Formula, runs: Sequence[Found], favours: str | None = None
) -> Reading:
    """Decide whether a quantity agrees with its formula in all runs, within 2 % or a count.

    Of a bound O(.) less is as good. A value beyond the formula on the side that `favours` the
    paper, higher or lower, is better than claimed.
    """
    if not runs:
        return Reading(name, NOT_RUN, "no such runs")
    pairs = [asked.values(found.run, found.facts) for found in runs]
    gaps = [(measured - wanted) / max(abs(wanted), 1e-12) for measured, wanted in pairs]
    off = [max(gap, 0.0) if asked.bound else abs(gap) for gap in gaps]
    loose = [
        max(FORMULA_MARGIN, 1 / max(wanted, 1.0)) if asked.counted else FORMULA_MARGIN
        for _, wanted in pairs
    ]
    worst = int(np.argmax(np.array(off) - np.array(loose)))
    measured, wanted = pairs[worst]
    if asked.truth:
        kappa = runs[worst].run.last("kappa")
        says = (
            f"computes in {100 * kappa:.3g} % of the slots, {runs[worst].run.last('gradients'):g} "
            "gradients"
        )
    else:
        says = f"measured {measured:.4g}, printed {asked.printed} = {wanted:.4g}, n = {len(runs)}"
    if off[worst] <= loose[worst]:
        return Reading(name, HOLDS, says, len(runs))
    side = {"higher": 1, "lower": -1}.get(favours or "", 0)
    beyond = side and all(gap * side > 0 for gap in gaps)
    return Reading(name, BETTER if beyond else CONTRADICTED, says, len(runs))


def measured(name: str, rows: Sequence[Table], missed: str | None = None) -> Reading:
    """Decide by measurements: none may have a value beyond its limit.

    What `missed` says is the verdict then, contradicted if nothing.
    """
    if not rows:
        return Reading(name, NOT_RUN, "not measured")
    known = [row for row in rows if row["value"] is not None]
    if not known:
        return Reading(name, OPEN, rows[0]["says"])
    worst = max(known, key=lambda row: row["value"] - row["limit"])
    verdict = HOLDS if worst["value"] <= worst["limit"] else missed or CONTRADICTED
    return Reading(name, verdict, f"{worst['case']}: {worst['says']}", len(known))
