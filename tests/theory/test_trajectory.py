"""A followed run against Algorithm 1 told again in plain NumPy, each column from its definition."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from folkman import make_problem
from folkman.problem import data
from folkman.problem.problem import Problem
from folkman.theory.trajectory import Trajectory, ages_of, follow, full_gradients

SHARES = np.array([1, 2, 4]) / 7
STEP, SLOTS = 0.3, 13


@pytest.fixture
def uneven(x64):
    """Quadratics on three nodes with one, two and four samples, and so shares that differ."""
    samples = data.quadratic(nodes=3, dim=2, samples_per_node=4, noise=0.5, condition=4.0, seed=3)
    parts = [np.array([0]), np.array([4, 5]), np.array([8, 9, 10, 11])]
    problem = make_problem(samples, "quadratic", parts, dtype="float64")
    return replace(problem, initial=jnp.asarray([0.7, -1.1]))


@pytest.fixture
def held():
    """Stamps of copies up to three slots old, at random."""
    ages = np.random.default_rng(1).integers(0, 4, (SLOTS, 3, 3))
    t = np.arange(SLOTS)[:, None, None]
    return np.maximum(t - ages, 0)


def losses_of(problem):
    """Return F_i and grad F_i as plain functions of (node, point)."""
    x, y, count = (np.asarray(part) for part in (problem.x, problem.y, problem.count))

    def value(i, w):
        n = count[i]
        return np.mean([0.5 * np.sum(y[i, k] * (w - x[i, k]) ** 2) for k in range(n)])

    def slope(i, w):
        n = count[i]
        return np.mean([y[i, k] * (w - x[i, k]) for k in range(n)], axis=0)

    return value, slope


def retold(problem, held, step, c):
    """Return every column of a trajectory, slot by slot and node by node."""
    value, slope = losses_of(problem)
    nodes, norm = range(len(SHARES)), np.linalg.norm
    beta = SHARES * c / np.sum(SHARES * c)
    past = [np.array([problem.initial] * len(SHARES))]
    rows, before = [], None
    for t, stamps in enumerate(held):
        now = past[t]
        v = [
            sum(SHARES[j] * (now[j] if i == j else past[stamps[i, j]][j]) for j in nodes)
            for i in nodes
        ]
        w = sum(SHARES[j] * now[j] for j in nodes)
        g, at_w = [slope(i, v[i]) for i in nodes], [slope(i, w) for i in nodes]
        whole = sum(beta[i] * at_w[i] for i in nodes)
        s = [-SHARES[i] * c[i] * g[i] for i in nodes]
        rows.append(
            {
                "loss": sum(beta[i] * value(i, w) for i in nodes),
                "slope_sq": norm(whole) ** 2,
                "move_sq": norm(sum(beta[i] * g[i] for i in nodes)) ** 2,
                "local": [norm(g[i]) for i in nodes],
                "local_loss": [value(i, v[i]) for i in nodes],
                "apart": [norm(v[i] - w) for i in nodes],
                "spread_sq": sum(beta[i] * norm(at_w[i] - whole) ** 2 for i in nodes),
                "secant": [
                    norm(g[i] - at_w[i]) / norm(v[i] - w) if norm(v[i] - w) > 1e-9 else 0.0
                    for i in nodes
                ],
                "unlike": max(
                    norm(s[i] - s[j]) / min(norm(s[i]), norm(s[j]))
                    for i in nodes
                    for j in nodes
                    if i != j
                ),
                "norm": [norm(now[i]) for i in nodes],
                "secant_whole": 0.0
                if before is None
                else norm(whole - before[1]) / norm(w - before[0]),
            }
        )
        before = (w, whole)
        past.append(np.array([now[i] - step * c[i] * g[i] for i in nodes]))
    models = np.array([SHARES @ each for each in past])
    ending = sum(beta[i] * value(i, models[-1]) for i in nodes)
    return rows, models, ending


@pytest.mark.parametrize(
    ("scaling", "scales"),
    {"local": SHARES, "theorem": np.ones(3), "figure": np.full(3, 3.0)}.items(),
)
def test_every_column_of_a_run_is_what_its_name_says(uneven, held, scaling, scales):
    step = STEP / scales.mean()
    rows, models, ending = retold(uneven, held, step, scales)

    path = follow(uneven, held, step, scaling, keep=4)

    for name in rows[0]:
        exact = np.array([row[name] for row in rows])
        found = getattr(path, name)[:SLOTS] if name == "loss" else getattr(path, name)
        np.testing.assert_allclose(found, exact, rtol=1e-9, atol=1e-11, err_msg=name)
    assert path.loss[-1] == pytest.approx(ending)
    assert len(path.loss) == SLOTS + 1
    assert path.step == pytest.approx(step * (SHARES @ scales))
    np.testing.assert_allclose(path.weights, SHARES * scales / (SHARES @ scales))
    np.testing.assert_allclose(path.shares, SHARES)
    np.testing.assert_allclose(path.scales, scales)
    np.testing.assert_allclose(path.last, models[-1])
    np.testing.assert_allclose(
        path.points, models[:SLOTS:4]
    )  # four stretches of at most four slots
    assert np.all(path.unlike > 0)
    assert np.any(path.secant > 0)


def test_how_many_models_are_kept_changes_nothing_else(uneven, held):
    one, many = (follow(uneven, held, STEP, "theorem", keep) for keep in (0, SLOTS))

    assert one.points.shape == (1, 2)
    assert many.points.shape == (SLOTS, 2)
    np.testing.assert_allclose(one.points[0], uneven.initial)
    for name in ("loss", "local", "secant", "unlike", "last"):
        np.testing.assert_allclose(getattr(one, name), getattr(many, name), rtol=1e-12)


def test_slots_taken_one_by_one_from_python_are_those_of_one_program(uneven, held, monkeypatch):
    """As convolutions are on a CPU."""
    compiled = follow(uneven, held, STEP, "local")
    monkeypatch.setattr(Problem, "called_from_python", True)

    path = follow(uneven, held, STEP, "local")

    for name in Trajectory._fields:
        found, expected = getattr(path, name), getattr(compiled, name)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12, err_msg=name)


def test_a_node_alone_is_gradient_descent_with_nothing_to_compare(uneven):
    alone = uneven.of_node(2)
    alone = replace(alone, share=jnp.ones(1))
    value, slope = losses_of(alone)
    held = np.arange(6)[:, None, None]

    path = follow(alone, held, STEP, "theorem")

    w = np.asarray(alone.initial)
    for t in range(6):
        assert path.loss[t] == pytest.approx(value(0, w))
        w = w - STEP * slope(0, w)
    np.testing.assert_allclose(path.last, w)
    np.testing.assert_array_equal(path.unlike, 0)
    np.testing.assert_array_equal(path.secant, 0)
    np.testing.assert_allclose(path.spread_sq, 0, atol=1e-30)


def test_nodes_at_their_common_optimum_do_not_differ(x64):
    """Nothing moves, and nothing is divided by nothing."""
    samples = data.quadratic(nodes=2, dim=2, heterogeneity=0.0)
    problem = make_problem(samples, "quadratic", [np.array([0]), np.array([1])], dtype="float64")
    held = np.broadcast_to(np.arange(4)[:, None, None], (4, 2, 2))

    there = follow(replace(problem, initial=problem.x[0, 0]), held, STEP, "theorem")
    away = follow(problem, held, STEP, "theorem")

    for column in (there.unlike, there.secant, there.secant_whole, there.local, away.unlike):
        np.testing.assert_array_equal(column, 0)
    np.testing.assert_array_equal(there.last, problem.x[0, 0])


def test_a_node_that_stands_still_while_another_moves_is_infinitely_unlike(uneven):
    centre = uneven.x[0, 0]  # of node 0, with its one sample
    held = np.zeros((1, 3, 3), int)

    assert follow(replace(uneven, initial=centre), held, STEP, "theorem").unlike[0] == np.inf


def test_ages_are_slots_since_the_stamp_and_none_of_a_nodes_own():
    held = np.array([[[0, 0], [0, 0]], [[0, 1], [0, 0]], [[0, 0], [1, 0]]])

    ages = ages_of(held)

    np.testing.assert_array_equal(ages[:, 0, 1], [0, 0, 2])
    np.testing.assert_array_equal(ages[:, 1, 0], [0, 1, 1])
    np.testing.assert_array_equal(ages[:, [0, 1], [0, 1]], 0)


def test_gradients_are_over_all_samples_of_a_problem_with_batches(uneven):
    points = jnp.asarray(np.random.default_rng(0).normal(size=(3, 2)))
    value, slope = losses_of(uneven)

    found = full_gradients(replace(uneven, batch=1), points)

    np.testing.assert_allclose(found[0], [value(i, points[i]) for i in range(3)])
    np.testing.assert_allclose(found[1], [slope(i, points[i]) for i in range(3)])


def test_stamps_that_do_not_fit_are_refused(uneven, held):
    for wrong in (held[:, :2, :2], held[:0], held[:, :, :2]):
        with pytest.raises(ValueError, match="expected stamps"):
            follow(uneven, wrong, STEP, "theorem")
    with pytest.raises(ValueError, match="younger than its slot"):
        follow(uneven, held + 2, STEP, "theorem")
