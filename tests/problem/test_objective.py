"""What is minimised where nodes hold unlike numbers of samples, by formulas written out."""

from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from folkman import DataSet, Recording, dpsgd, ideal, make_problem, simulate
from folkman.problem.objective import emphasis_of, emphasised, model_weights, shares

COUNTS = (1, 1, 1, 1, 1, 25)
NODES, DIM = len(COUNTS), 3
EVEN = np.full(NODES, 1 / NODES)
ALPHA = {"samples": np.array(COUNTS) / 30, "nodes": EVEN}


def six_nodes(objective: Any):
    """Six quadratics 1/2 |w - x|^2 about their samples' means; the last has 25 of 30 samples."""
    rng = np.random.default_rng(0)
    centres = 2 * rng.normal(size=(NODES, DIM))
    x: Any = np.repeat(centres, COUNTS, axis=0) + rng.normal(size=(sum(COUNTS), DIM))
    data = DataSet("six", x, np.ones_like(x), x[:0], x[:0], 0)
    parts = np.split(np.arange(len(x)), np.cumsum(COUNTS)[:-1])
    problem = make_problem(data, "quadratic", parts, dtype="float64", objective=objective)
    return problem, np.stack([x[part].mean(axis=0) for part in parts])


@pytest.mark.parametrize("objective", ["samples", "nodes"])
def test_f_and_the_shares_follow_the_objective(x64, objective):
    problem, _ = six_nodes(objective)
    w = np.array([0.3, -0.2, 0.7])

    losses = [
        np.mean(np.sum((w - np.asarray(problem.x[i, :n])) ** 2, axis=1)) / 2
        for i, n in enumerate(COUNTS)
    ]

    np.testing.assert_allclose(problem.share, ALPHA[objective], rtol=1e-15)
    assert float(problem.evaluate(jnp.asarray(w)).train_loss) == pytest.approx(
        ALPHA[objective] @ losses, rel=1e-12
    )
    assert problem.objective == objective
    assert (problem.emphasis is None) == (objective == "nodes")


@pytest.mark.parametrize("objective", ["samples", "nodes"])
def test_gossip_on_a_ring_descends_the_objective(x64, objective):
    """D-PSGD told again in NumPy, and where it ends: F - F* is its own bias, which is O(step^2)."""
    problem, means = six_nodes(objective)
    alpha, step = ALPHA[objective], 0.01
    ring = (
        np.eye(NODES) + np.roll(np.eye(NODES), 1, axis=0) + np.roll(np.eye(NODES), -1, axis=0)
    ) / 3
    x = np.tile(np.asarray(problem.initial), (NODES, 1))
    for _ in range(1500):
        x = ring @ x - step * NODES * alpha[:, None] * (x - means)

    run = simulate(problem, ideal(), dpsgd(step), slots=1500, recording=Recording(1500))

    np.testing.assert_allclose(run.model, x.mean(axis=0), rtol=1e-6, atol=1e-8)
    worth = [float(problem.evaluate(jnp.asarray(w)).train_loss) for w in (run.model, alpha @ means)]
    other = ALPHA["nodes" if objective == "samples" else "samples"]
    wrong = float(problem.evaluate(jnp.asarray(other @ means)).train_loss)
    assert worth[0] - worth[1] < 1e-3
    assert wrong - worth[1] > 0.3  # what it was to descend the other


def test_a_problem_of_ones_own_needs_no_new_member(x64):
    """Its shares say all; where they are even the factor is 1 to the last bit."""
    problem, _ = six_nodes("samples")

    def plain(share) -> Any:
        return SimpleNamespace(num_nodes=len(share), share=share)

    own = plain(problem.share)
    np.testing.assert_allclose(np.asarray(emphasis_of(own)), NODES * ALPHA["samples"], rtol=1e-15)
    np.testing.assert_allclose(model_weights(own, evenly=True), EVEN, rtol=1e-15)
    np.testing.assert_array_equal(model_weights(own, evenly=False), problem.share)
    for nodes in range(1, 60):
        for dtype in (np.float32, np.float64):
            even = plain(shares([7] * nodes, "samples").astype(dtype))
            np.testing.assert_array_equal(np.asarray(emphasis_of(even)), np.ones(nodes))


def test_even_nodes_run_the_program_that_they_ran_before():
    """No factor of 1 enters it, which might round otherwise."""
    x = np.ones((12, DIM), np.float32)
    data = DataSet("even", x, x, x[:0], x[:0], 0)
    problem = make_problem(data, "quadratic", 4)
    gradients = (jnp.ones(4), jnp.ones((4, DIM)))

    assert problem.emphasis is None
    assert emphasised(gradients, emphasis_of(problem)) is gradients
    assert model_weights(problem, evenly=True) is problem.share


def test_a_known_optimum_is_that_of_its_own_objective():
    from folkman.problem.data import quadratic

    data = quadratic(nodes=4, dim=2)
    uneven = [np.array([0, 1]), np.array([2]), np.array([3])]

    assert make_problem(data, "quadratic", uneven).optimum is not None
    assert make_problem(data, "quadratic", uneven, objective="nodes").optimum is None
    assert make_problem(data, "quadratic", 4, objective="nodes").optimum is not None


def test_an_unknown_objective_is_refused(x64):
    with pytest.raises(ValueError, match="objective must be 'samples' or 'nodes', got 'users'"):
        six_nodes("users")
