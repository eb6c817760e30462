"""On which way the runs of a folder take their gradients: chosen once, and noted in its provenance.

A new folder chooses where the environment asks for it (FOLKMAN_WAYS=1); without, all its problems
keep their default way, and so their bits on every machine. A folder that is resumed keeps its
ways, whatever is asked for now: ways differ in rounding. Jobs of a sweep keep the default way:
their store is shared between machines.
"""

import os
from pathlib import Path

from folkman.experiment.parts import Part
from folkman.problem.learnable import Learnable
from folkman.problem.speed import Choice, choice_for, key_of, on_way, work_of
from folkman.problem.ways import Way
from folkman.record.json_file import Json, read_json
from folkman.record.provenance import note_ways

__all__ = ["SWITCH", "Ways"]

SWITCH = "FOLKMAN_WAYS"
"""Environment variable: 1 lets new run folders choose their ways."""


class Ways:
    """The ways of one folder, by the shape of the work."""

    def __init__(self, provenance: Path) -> None:
        before = read_json(provenance)
        self._provenance = provenance
        self._known: Json = dict((before or {}).get("ways", {}))
        asked = before is None and os.environ.get(SWITCH) == "1"
        self._default = not asked and not self._known

    def sent(self, part: Part) -> Part:
        """Return a run whose problem goes the way of this folder."""
        if self._default:
            return part
        simulation = part.simulation
        problem = on_way(simulation.problem, self._way(simulation.problem))
        return part._replace(simulation=simulation._replace(problem=problem))

    def _way(self, problem: Learnable) -> Way | None:
        shape = key_of(work_of(problem)["shape"])
        if shape not in self._known:
            self._known[shape] = _told(choice_for(problem))
            note_ways(self._provenance, self._known)
        return self._known[shape]["way"]


def _told(choice: Choice) -> Json:
    """Return a choice for the record; the way is null for the default."""
    timed = {"ms": dict(choice.ms)} if choice.ms else {}
    return {"way": choice.other, **timed, "why": choice.why}
