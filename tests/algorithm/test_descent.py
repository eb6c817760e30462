"""Momentum, weight decay and clipping: written once, the same for every method that takes them."""

import inspect
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folkman import ALGORITHMS, Clock, Place, constant, ideal, simulate
from reference import plain

NODES, STEP = 4, 0.1
TAKES = [
    name
    for name, build in ALGORITHMS.items()
    if {"weight_decay", "clip_norm"} <= inspect.signature(build).parameters.keys()
]
"""Methods whose gradients can be changed."""
DESCENDS = ["dpsgd", "dsgt", "async_sharing", "fedavg", "hierfavg", "fedprox", "matcha", "scaffold"]
"""Those that are gradient descent where all nodes are alike and messages take no time."""
PLAIN = {"dpsgd": {"order": "adapt_first"}, "hierfavg": {"global_every": 1}}
"""What lets a method be gradient descent where all nodes are alike."""


def mean_gradient(problem, w):
    x, y = (np.asarray(a).reshape(-1, problem.dim) for a in (problem.x, problem.y))
    return plain.quadratic_gradient(w, x, y)[1]


def descent(problem, steps, momentum=0.0, weight_decay=0.0, clip_norm=0.0):
    """Return gradient descent on equal nodes, changed as by the book."""
    w, u = np.asarray(problem.initial, np.float64), 0.0
    for _ in range(steps):
        g = mean_gradient(problem, w)
        if clip_norm:
            g = g * min(1.0, clip_norm / np.linalg.norm(g))
        u = momentum * u + g + weight_decay * w
        w = w - STEP * u
    return w


CHANGES = [
    {"weight_decay": 0.3},
    {"clip_norm": 0.5},
    {"weight_decay": 0.2, "clip_norm": 0.7, "momentum": 0.6},
]


@pytest.mark.parametrize("name", DESCENDS)
def test_equal_nodes_descend_as_one_machine_does(quadratics, name):
    """Nodes alike stay alike, so that each of them is gradient descent."""
    problem = quadratics(nodes=NODES, heterogeneity=0.0)
    known = inspect.signature(ALGORITHMS[name]).parameters.keys()
    for change in (each for each in CHANGES if each.keys() <= known):
        algorithm = ALGORITHMS[name](STEP, **PLAIN.get(name, {}) | change)

        run = simulate(problem, ideal(), algorithm, slots=12)

        np.testing.assert_allclose(run.model, descent(problem, 12, **change), rtol=1e-9)


def test_weight_decay_is_of_the_point_where_a_slow_gradient_was_begun(quadratics):
    """Where gradients take three slots, copies that come meanwhile do not move it."""
    problem = quadratics(nodes=NODES, heterogeneity=1.0)
    clock = Clock(compute_slots=(3,) * NODES)
    decayed = replace(problem, y=problem.y + 0.2, x=problem.x * problem.y / (problem.y + 0.2))

    left, right = (
        simulate(
            each, constant(1), ALGORITHMS["async_sharing"](STEP, **more), slots=24, clock=clock
        )
        for each, more in ((problem, {"weight_decay": 0.2}), (decayed, {}))
    )

    np.testing.assert_allclose(left.nodes, right.nodes, rtol=1e-9)


@pytest.mark.parametrize("name", TAKES)
def test_what_is_no_decay_or_norm_is_refused_and_none_is_the_method_itself(name):
    for option in ("weight_decay", "clip_norm"):
        with pytest.raises(ValueError, match=f"{option} must be a finite number of at least 0"):
            ALGORITHMS[name](**{option: -0.1})
    assert ALGORITHMS[name](weight_decay=0.0) == ALGORITHMS[name]()
    assert ALGORITHMS[name](weight_decay=0.1) != ALGORITHMS[name]()


@pytest.mark.parametrize("name", TAKES)
def test_every_method_that_takes_them_answers_as_before(name):
    """Its way to travel, its price and what it assumes are those of the method without."""
    plain_one = ALGORITHMS[name](STEP)
    changed = ALGORITHMS[name](STEP, weight_decay=0.1, clip_norm=1.0)

    place = Place(jnp.zeros((), jnp.int32), NODES, jax.random.key(0))
    states = [each.init(jnp.ones(6), place) for each in (plain_one, changed)]
    for ask in (lambda a: a.message, lambda a: a.params, lambda a: a.travel.computes):
        left, right = (ask(a)(state) for a, state in zip((plain_one, changed), states, strict=True))
        np.testing.assert_array_equal(left, right)
    assert changed.declares.assumes == plain_one.declares.assumes
    assert type(changed.travel) is type(plain_one.travel)
