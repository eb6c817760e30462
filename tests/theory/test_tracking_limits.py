"""The longest steps of R-FAST on a graph: runs shrink just below them, and grow just beyond."""

import numpy as np
import pytest

from folkman import Recording, ideal, rfast, simulate
from folkman.algorithm.pieces.topology import Graph
from folkman.config.comparison import resolve
from folkman.experiment.parts import parts
from folkman.experiment.theory import step_warnings
from folkman.theory.tracking_limits import tracking_limit


@pytest.mark.parametrize(
    ("topology", "nodes"), [("directed_ring", 5), ("directed_ring", 8), ("ring", 4)]
)
def test_runs_shrink_just_below_the_limit_and_grow_just_beyond(quadratics, topology, nodes):
    """Nodes of one curvature in all directions, with optima of their own."""
    problem = quadratics(nodes=nodes, dim=3, heterogeneity=0.0, condition=1.0)
    moved = np.random.default_rng(0).normal(size=problem.x.shape)
    problem = type(problem)(**{**vars(problem), "x": problem.x + moved, "optimum": None})
    curvature = float(np.asarray(problem.y).max())
    np.testing.assert_allclose(problem.y, curvature)  # of all nodes and entries
    longest = tracking_limit(Graph(topology).adjacency(nodes)) / curvature

    apart = {}
    for factor in (0.8, 1.3):
        algorithm = rfast(factor * longest, topology=topology)
        run = simulate(problem, ideal(), algorithm, slots=6000, recording=Recording(6000))
        apart[factor] = np.ptp(np.asarray(run.nodes), axis=0).max()

    assert apart[0.8] < 1e-6  # all at the optimum
    assert not apart[1.3] < 10.0  # grown, or no number any more


def test_on_a_ring_in_one_direction_it_falls_with_the_number_of_nodes():
    rings, others = (
        [tracking_limit(Graph(name).adjacency(nodes)) for nodes in (4, 8, 16)]
        for name in ("directed_ring", "exponential")
    )

    assert rings[0] > 5 * rings[1] > 25 * rings[2] > 0.1
    assert min(others) > 1


SETTING = {
    "nodes": 8,
    "slots": 20,
    "data": {"name": "quadratic", "dim": 2},
    "network": {"name": "ideal"},
}


@pytest.mark.parametrize(
    ("options", "warned"),
    [
        ({"step": 0.1, "topology": "directed_ring"}, True),
        ({"step": 0.01, "topology": "directed_ring"}, False),
        ({"step": 0.1, "topology": "exponential"}, False),
        ({"step": 0.1}, False),
    ],
)
def test_a_step_beyond_it_is_warned_of(options, warned):
    comparison = resolve({**SETTING, "algorithm": [{"name": "rfast", **options}]})

    said = list(step_warnings(comparison, [next(iter(parts(comparison)))]))

    assert len(said) == warned
    assert all("beyond the stability limit of R-FAST" in each for each in said)
