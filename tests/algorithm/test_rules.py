"""Robust rules and graphs against NumPy and against their definitions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkman import Inbox, Recording, async_sharing, dpsgd, fedavg, ideal, simulate
from folkman.algorithm.pieces.rules import RULES, Rule, combine
from folkman.algorithm.pieces.topology import Graph, metropolis
from folkman.faults import Faults

FIXED = ("complete", "ring", "star", "regular")


def inbox_of(models, weights):
    count = len(models)
    return Inbox(
        jnp.asarray(models),
        jnp.arange(count),
        jnp.asarray(weights),
        jnp.zeros(()),
        jnp.ones(count, bool),
        jnp.zeros(count, jnp.int32),
        jnp.ones(count, bool),
    )


def plain(rule, models, trim):
    """The rules once more, in NumPy, on the models that count."""
    count = len(models)
    if rule == "median":
        return np.median(models, axis=0)
    if rule == "trimmed_mean":
        cut = min(trim, (count - 1) // 2)
        return np.sort(models, axis=0)[cut : count - cut].mean(axis=0)
    apart = ((models[:, None] - models[None]) ** 2).sum(axis=2)
    near = min(max(count - trim - 2, 1), max(count - 1, 1))
    scores = [np.sort(np.delete(apart[i], i))[:near].sum() for i in range(count)]
    return models[int(np.argmin(scores))]


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(
        sorted({(min(count, rows), rows) for rows in (1, 7, 10) for count in range(1, 8)})
    ),
    st.integers(0, 3),
    st.integers(0, 2**31),
    st.booleans(),
)
def test_each_rule_is_its_definition(counted_of, trim, seed, with_own):
    """Of some rows all or some count; the sizes are few, since each is a program of its own."""
    count, rows = counted_of
    rng = np.random.default_rng(seed)
    models = rng.normal(size=(rows, 3)).astype(np.float32)
    weights = np.where(np.arange(rows) < count, 0.1, 0.0)
    own = rng.normal(size=3).astype(np.float32) if with_own else None
    counted = models[:count] if own is None else np.concatenate([own[None], models[:count]])

    for rule in ("median", "trimmed_mean", "krum"):
        found = combine(
            Rule(rule, trim),
            inbox_of(models, weights),
            jnp.asarray(weights),
            own=None if own is None else jnp.asarray(own),
            own_weight=0.1,
        )
        np.testing.assert_allclose(found, plain(rule, counted, trim), rtol=1e-5, atol=1e-6)


def test_the_mean_weighs_and_adds_its_own():
    models = np.array([[1.0, 2.0], [3.0, 4.0]])

    box = inbox_of(models, [0.2, 0.3])
    own = jnp.asarray([10.0, 20.0])

    found = combine(Rule("mean"), box, jnp.asarray([0.2, 0.3]), own=own, own_weight=0.5)

    np.testing.assert_array_equal(found, combine(Rule(), box, own=own, own_weight=0.5))
    np.testing.assert_allclose(found, 0.5 * np.array([10.0, 20.0]) + [0.2, 0.3] @ models, rtol=1e-6)


@pytest.mark.parametrize("build", [async_sharing, fedavg, dpsgd], ids=lambda b: b.__name__)
def test_one_liar_among_nine_ruins_the_mean_and_not_the_robust_rules(quadratics, build):
    problem = quadratics(nodes=9, heterogeneity=0.0, condition=2.0)
    faults = Faults(liars=0.1, attack="noise", scale=100.0)
    options = {"topology": "complete"} if build is dpsgd else {}
    far = {}

    for rule in RULES:
        algorithm = build(step=0.1, rule=rule, trim=1, **options)
        run = simulate(
            problem, ideal(), algorithm, slots=150, recording=Recording(150), faults=faults
        )
        honest = run.model if build is fedavg else run.nodes[1:].mean(axis=0)
        far[rule] = np.linalg.norm(honest - np.asarray(problem.optimum))

    start = np.linalg.norm(np.asarray(problem.initial) - np.asarray(problem.optimum))
    assert far["mean"] > start
    for rule in ("trimmed_mean", "median", "krum"):
        assert far[rule] < 0.1 * start


@pytest.mark.parametrize("nodes", [2, 3, 6, 9])
@pytest.mark.parametrize("topology", FIXED)
def test_metropolis_weights_are_symmetric_doubly_stochastic_and_follow_the_graph(
    x64, topology, nodes
):
    degree = 2 if nodes > 2 else 1
    edges = Graph(topology, degree, 3).adjacency(nodes)

    weights = np.asarray(
        Graph(topology, degree, 3).mixing().weights(jnp.ones((nodes, nodes), bool))
    )

    np.testing.assert_allclose(weights, weights.T, atol=1e-15)
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, atol=1e-14)
    assert (weights >= 0).all()
    np.testing.assert_array_equal((weights > 0) & ~np.eye(nodes, dtype=bool), edges)
    for i, j in np.argwhere(edges):
        assert weights[i, j] == pytest.approx(1 / (1 + max(edges[i].sum(), edges[j].sum())))
    np.testing.assert_array_equal(edges, edges.T)


def test_regular_graphs_have_the_degree_asked_for_and_follow_their_seed():
    one, same, other = (Graph("regular", 3, seed).adjacency(12) for seed in (1, 1, 2))

    assert (one.sum(axis=1) == 3).all()
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


def test_the_schedule_graph_keeps_links_that_go_both_ways(x64):
    heard = jnp.asarray([[1, 1, 0], [1, 1, 1], [0, 0, 1]], bool)

    weights = np.asarray(Graph("schedule").mixing().weights(heard))

    np.testing.assert_allclose(weights, [[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1.0]])
    assert not Graph("schedule").mixing().waits


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: Graph("regular", 4).adjacency(4), "does not exist"),
        (lambda: Graph("regular", 3).adjacency(5), "does not exist"),
        (lambda: Graph("torus").mixing(), "topology must be"),
        (lambda: fedavg(rule="mode"), "rule must be one of"),
        (lambda: dpsgd(trim=-1), "trim counts"),
    ],
)
def test_what_cannot_be_is_refused(call, complaint):
    with pytest.raises(ValueError, match=complaint):
        call()


def test_krum_of_one_model_is_that_model():
    box = inbox_of(np.array([[9.0, 9.0], [1.0, 2.0]]), [0.0, 1.0])

    np.testing.assert_allclose(combine(Rule("krum"), box, jnp.asarray([0.0, 1.0])), [1.0, 2.0])
    assert jax.jit(lambda w: combine(Rule("krum"), box, w))(jnp.asarray([0.0, 1.0])).shape == (2,)
    np.testing.assert_allclose(np.asarray(metropolis(jnp.zeros((2, 2), bool))), np.eye(2))
