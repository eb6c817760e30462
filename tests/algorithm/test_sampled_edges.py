"""MATCHA and BASS: sets of links, probabilities, weights and rounds, by their definitions and in NumPy."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from folkman import Recording, ideal, simulate
from folkman.algorithm import bass
from folkman.algorithm.matcha import best_weight, matcha, matchings, probabilities
from folkman.algorithm.pieces.sampled_edges import weight_of
from reference import plain

NODES, STEP = 6, 0.1


def connected(nodes, seed):
    """Return a ring with drawn chords."""
    rng = np.random.default_rng(seed)
    drawn = np.triu(rng.random((nodes, nodes)) < 0.4, 1)
    ring = np.roll(np.eye(nodes, dtype=bool), 1, axis=1)
    found = drawn | drawn.T | ring | ring.T
    return found & ~np.eye(nodes, dtype=bool)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(nodes=st.integers(3, 9), seed=st.integers(0, 99))
def test_matchings_hold_every_edge_once_and_no_node_twice(nodes, seed):
    graph = connected(nodes, seed)

    parts = matchings(graph)

    np.testing.assert_array_equal(-(parts * (1 - np.eye(nodes))).sum(axis=0), graph)
    assert parts.diagonal(axis1=1, axis2=2).max() == 1.0
    np.testing.assert_array_equal(parts.sum(axis=2), 0.0)
    np.testing.assert_array_equal(parts @ parts, 2 * parts)


def test_probabilities_keep_the_budget_and_favour_the_bridge():
    """Two triangles that one edge joins: cutting it cuts the graph, so it is used more often."""
    graph = np.zeros((6, 6), bool)
    for i, j in ((0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5), (2, 3)):
        graph[i, j] = graph[j, i] = True
    parts = matchings(graph)
    p = probabilities(parts, 0.5)

    assert p.sum() == pytest.approx(0.5 * len(parts))
    assert ((p >= 0) & (p <= 1)).all()
    bridge = int(np.flatnonzero(parts[:, 2, 3])[0])
    assert p[bridge] == p.max() > 0.6

    def second(q):
        return -np.linalg.eigvalsh(np.einsum("m,mij->ij", q, parts))[1]

    rule = {"type": "eq", "fun": lambda q: q.sum() - 0.5 * len(parts)}
    best = minimize(
        second, np.full(len(parts), 0.5), bounds=[(0, 1)] * len(parts), constraints=rule
    )
    assert second(p) <= best.fun * 0.99  # both are negative


def test_the_weight_is_least_in_the_mean_of_the_squares_over_draws():
    parts = matchings(connected(NODES, 1))
    p = probabilities(parts, 0.4)
    a = best_weight(parts, p)

    every = np.array(np.meshgrid(*[[0, 1]] * len(parts))).reshape(len(parts), -1).T
    chance = np.prod(np.where(every == 1, p, 1 - p), axis=1)

    def norm(weight):
        w = np.eye(NODES) - weight * np.einsum("km,mij->kij", every.astype(float), parts)
        mean = np.einsum("k,kij,kjl->il", chance, w, w) - 1 / NODES
        return np.linalg.norm(mean, 2)

    assert norm(a) < 1
    assert norm(a) <= min(norm(a * 1.02), norm(a * 0.98))


def test_rounds_follow_the_drawn_weights(quadratics):
    problem = quadratics(nodes=NODES, heterogeneity=1.0, condition=4.0)
    algorithm = matcha(STEP, 0.5, topology="complete", graph_seed=3)

    run = simulate(problem, ideal(), algorithm, slots=12, recording=Recording(12))

    descend = [
        partial(plain.quadratic_gradient, x=np.asarray(x), y=np.asarray(y))
        for x, y in zip(problem.x, problem.y, strict=True)
    ]
    parts = matchings(~np.eye(NODES, dtype=bool))
    p = probabilities(parts, 0.5)
    drawn = np.random.default_rng(3).random((256, len(parts))) < p
    x = np.tile(np.asarray(problem.initial), (NODES, 1))
    for on in drawn[:11]:  # the round of slot 12 is heard in slot 13
        x = np.stack([x[i] - STEP * descend[i](x[i])[1] for i in range(NODES)])
        x = x - best_weight(parts, p) * np.einsum("m,mij->ij", on.astype(float), parts) @ x
    ahead = np.stack([x[i] - STEP * descend[i](x[i])[1] for i in range(NODES)])
    np.testing.assert_allclose(run.nodes, ahead, rtol=1e-10)
    assert 0 < drawn[:11].mean() < 1


def test_a_budget_or_a_graph_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match="budget is a part of the matchings"):
        matcha(budget=0.0)
    with pytest.raises(ValueError, match="is none that stays"):
        matcha(topology="matching")


# --- BASS


@settings(max_examples=25, deadline=None, derandomize=True)
@given(nodes=st.integers(3, 9), seed=st.integers(0, 99))
def test_members_of_a_broadcast_set_collide_at_nobody(nodes, seed):
    graph = connected(nodes, seed)

    sets = bass.broadcast_sets(graph)

    for each in range(sets.max() + 1):
        heard = graph[:, sets == each].sum(axis=1)
        assert heard.max() <= 1  # nobody hears two of them
        assert heard[sets == each].max() == 0  # nor does one that sends hear another
    p = bass.probabilities(graph, sets, 0.6)
    assert p.sum() == pytest.approx(0.6 * len(p))
    assert ((p >= 0) & (p <= 1)).all()


def test_bass_uses_an_edge_if_both_ends_are_on_the_air(quadratics):
    problem = quadratics(nodes=NODES, heterogeneity=1.0, condition=4.0)
    run = simulate(
        problem, ideal(), bass.bass(STEP, 0.8, graph_seed=3), slots=12, recording=Recording(12)
    )

    ring = np.isin(np.subtract.outer(range(NODES), range(NODES)) % NODES, (1, NODES - 1))
    sets = bass.broadcast_sets(ring)
    p = bass.probabilities(ring, sets, 0.8)
    on = np.random.default_rng(3).random((256, len(p))) < p
    laplacians = []
    for row in on:
        graph = np.array(
            [
                [ring[i, j] and row[sets[i]] and row[sets[j]] for j in range(NODES)]
                for i in range(NODES)
            ]
        )
        laplacians.append(np.diag(graph.sum(axis=1)) - graph.astype(float))
    squares = np.mean([each @ each for each in laplacians], axis=0)
    a = weight_of(np.mean(laplacians, axis=0), squares)
    x = np.tile(np.asarray(problem.initial), (NODES, 1))
    curvature, least = np.asarray(problem.y)[:, 0], np.asarray(problem.x)[:, 0]
    for laplacian in laplacians[:11]:
        x = x - STEP * curvature * (x - least)
        x = x - a * laplacian @ x
    np.testing.assert_allclose(run.nodes, x - STEP * curvature * (x - least), rtol=1e-10)
