"""The slow, obvious twin of the simulator: node by node, every held copy written out, float64.

For reading and for checking. It takes a recorded timeline, so that it says nothing about who hears
whom when, and must end with the simulator's parameters:

    for each slot
        for each node      hear, take one gradient, update
        for each sender    freeze its message

Nothing here is compiled across nodes, shared between them or stored by row number.
"""

from typing import Literal

import jax
import numpy as np
from jax import Array

from folkman.algorithm.base import Algorithm, forms_or_none
from folkman.checks import require
from folkman.engine.carried_sums import follow_sums
from folkman.engine.learner import FinalParameters, Learner, World
from folkman.engine.presence import Presence
from folkman.engine.travel import way_of
from folkman.faults import NO_FAULTS
from folkman.packing.packing import NONE, Packing
from folkman.packing.price import settled
from folkman.problem.learnable import Learnable, check_learnable
from folkman.radio.trace import PeerTimeline, Timeline

__all__ = ["FinalParameters", "reference"]


def reference(
    problem: Learnable,
    timeline: Timeline,
    algorithm: Algorithm,
    *,
    seed: int = 0,
    faults: Presence = NO_FAULTS,
    packing: Packing = NONE,  # how messages are packed
    carry: Literal["copies", "sums"] = "copies",  # whether copies or sums travel
) -> FinalParameters:
    """Run `algorithm` on `problem` along `timeline`, always in float64.

    `packing` is that of the messages; a timeline does not say. With `carry` "sums" the sums of a
    timeline of `message = "sum"` travel themselves (`folkman.engine.carried_sums`): nodes adopt
    them and correct their own part, and nobody holds a copy.
    """
    require(carry in ("copies", "sums"), f"carry is 'copies' or 'sums', got {carry!r}")
    check_learnable(problem)
    if timeline.finished.shape[1] != problem.num_nodes:
        raise ValueError(
            f"the timeline has {timeline.finished.shape[1]} nodes, "
            f"the problem {problem.num_nodes}; record it again"
        )
    way = way_of(algorithm)
    if not isinstance(timeline, way.timeline):
        raise ValueError(
            f"{algorithm.name} travels along a {way.timeline.__name__}, "
            f"got a {type(timeline).__name__}; record one of this method"
        )
    with jax.enable_x64(True):
        world = World(jax.tree.map(_doubled, problem), seed, faults, packing)
        nodes = [Learner(world, algorithm, index) for index in range(problem.num_nodes)]
        forms, entries = forms_or_none(algorithm.declares.price), len(nodes[0].message())
        sums, name = algorithm.bears_no_rounding, algorithm.name
        settles = settled(packing, forms, entries, problem.dim, name, sums=sums)
        if carry == "sums":
            require(
                algorithm.declares.sums and isinstance(timeline, PeerTimeline),
                f"{name} as built does not travel as sums; use carry='copies', or Algorithm 1 with "
                "the rule 'mean' and without max_age",
            )
            return follow_sums(world, timeline, algorithm, nodes)  # type: ignore[arg-type]
        world = world._replace(packing=settles)
        return way.by_hand(world, timeline, algorithm, nodes)


def _doubled(leaf: Array) -> Array:
    real = np.issubdtype(leaf.dtype, np.floating)
    return jax.device_put(np.asarray(leaf, np.float64)) if real else leaf
