"""Test sets of the nodes: their own labels, weighted or drawn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folkman import load, make_problem
from folkman.problem.local_tests import drawn, mixtures, weighted

TESTED = np.repeat(np.arange(4), (30, 20, 10, 40))
LABELS = [np.array([0, 0, 0, 1]), np.array([2, 2]), np.array([1, 3, 3, 3, 3])]
MIXTURE = mixtures(LABELS, TESTED)


def test_a_mixture_is_the_share_of_each_tested_class():
    np.testing.assert_allclose(
        MIXTURE, [[0.75, 0.25, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.2, 0.0, 0.8]]
    )
    alone = mixtures([np.array([4, 0]), np.array([4])], TESTED)  # nobody tests class 4
    np.testing.assert_allclose(alone[0], [1.0, 0.0, 0.0, 0.0, 0.0])
    assert np.isnan(alone[1]).all()
    assert np.isnan(drawn(alone, TESTED, 5, 0)[1]).all()


def test_a_drawn_set_has_its_size_the_labels_of_its_node_and_no_sample_twice():
    weight = drawn(MIXTURE, TESTED, 8, seed=3)

    times = weight * 8
    np.testing.assert_allclose(times, np.round(times), atol=1e-12)
    np.testing.assert_allclose(times.sum(axis=1), 8)
    assert times.max() <= 1
    for node, shares in enumerate(MIXTURE):
        assert (shares[TESTED[weight[node] > 0]] > 0).all()
    np.testing.assert_array_equal(weight, drawn(MIXTURE, TESTED, 8, seed=3))
    assert (weight != drawn(MIXTURE, TESTED, 8, seed=4)).any()
    # more of class 2 than there are: with repetitions
    assert drawn(MIXTURE, TESTED, 25, seed=0)[1].max() > 1 / 25


def test_the_mean_over_drawn_sets_is_the_weighted_measure():
    draws = 3000
    found = np.stack([drawn(MIXTURE, TESTED, 6, seed) for seed in range(draws)])

    expected = weighted(MIXTURE, TESTED)
    deviation = found.std(axis=0) / np.sqrt(draws)
    z = (found.mean(axis=0) - expected) / np.maximum(deviation, 1e-9)
    assert np.abs(z).max() < 4.5  # of 130 numbers
    np.testing.assert_allclose(expected.sum(axis=1), 1.0)


def test_local_accuracy_counts_the_hits_in_the_drawn_sets():
    data = load("digits", train_size=200, test_size=80)
    parts = np.array_split(np.argsort(data.y_train, kind="stable"), 3)
    problem = make_problem(data, "softmax", parts, seed=5, local_tests=10)
    first = jnp.broadcast_to(problem.initial, (3, problem.dim))
    models = first - 0.3 * problem.gradients(first, jax.random.split(jax.random.key(0), 3))[1]

    weight = drawn(
        mixtures([data.y_train[part] for part in parts], data.y_test), data.y_test, 10, 5
    )
    hits = [np.asarray(problem.model.hits(w, problem.x_test, problem.y_test)) for w in models]
    expected = [own @ right for own, right in zip(weight, hits, strict=True)]
    assert 0.2 < np.mean(expected) < 1.0

    np.testing.assert_allclose(problem.local_accuracies(models), expected, rtol=1e-5)
    np.testing.assert_allclose(
        problem.of_node(1).local_accuracies(models[1:2]), expected[1:2], rtol=1e-5
    )
    common = make_problem(data, "softmax", parts, seed=5)
    assert common.local_weights is None
    assert (np.asarray(common.local_accuracies(models)) != np.array(expected)).any()


def test_sets_that_cannot_be_drawn_are_refused():
    data = load("digits", train_size=60)
    with pytest.raises(ValueError, match="at least 1 sample"):
        make_problem(data, "softmax", 3, local_tests=0)
    regression = load("gaussian")
    with pytest.raises(ValueError, match="by their labels"):
        make_problem(regression, "linear", 3, local_tests=5)
