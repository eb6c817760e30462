"""Our methods beside the authors' public code, told again in `reference.authors`: trajectories.

Where the two differ by convention, the test has the mapping, or shows that nothing else differs.
"""

from dataclasses import replace
from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest

from folkman import ideal
from folkman.algorithm.choco import choco
from folkman.algorithm.epidemic import epidemic, receivers
from folkman.algorithm.exact_diffusion import exact_diffusion
from folkman.algorithm.feddyn import feddyn
from folkman.algorithm.fedopt import fedopt
from folkman.algorithm.fedprox import fedprox
from folkman.algorithm.matcha import best_weight, matcha, matchings, probabilities
from folkman.algorithm.pieces.topology import Graph, metropolis
from folkman.algorithm.scaffold import scaffold
from folkman.problem import data
from folkman.problem.problem import make_problem
from reference import authors, peers, plain
from reference.slots import server_teller, teller

STEP, ROUNDS = 0.1, 20
close = partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-12)

# --- around a server: four nodes with one, two, three and four samples, two of them in a round

SIZES = np.array([1, 2, 3, 4])
PARTS = [np.arange(0, 1), np.arange(1, 3), np.arange(3, 6), np.arange(6, 10)]


START = np.linspace(-1.0, 2.0, 10)


@pytest.fixture
def uneven(x64):
    problem = make_problem(data.quadratic(nodes=10), "quadratic", PARTS, dtype="float64")
    return replace(problem, initial=jnp.asarray(START))


@pytest.fixture
def even(quadratics):
    return replace(quadratics(nodes=5), initial=jnp.asarray(START))


def of_parts():
    """Return the gradient of each part's mean loss."""
    samples = data.quadratic(nodes=10)
    x, y = samples.x_train.astype(np.float64), samples.y_train.astype(np.float64)
    return [partial(plain.quadratic_gradient, x=x[part], y=y[part]) for part in PARTS]


def rounds_of(problem, algorithm, local_steps):
    """Return the server's model after each round, the start first, and who took part in it."""
    slots = ROUNDS * local_steps
    models, rounds, chosen = server_teller(problem, ideal(), algorithm, slots)
    ends = [int(np.argmax(rounds >= number)) for number in range(ROUNDS + 1)]
    assert rounds[-1] == ROUNDS
    sets = [np.flatnonzero(chosen[end]) for end in ends[:-1]]
    assert {len(each) for each in sets[1:]} == {2}
    return models[ends], sets


def test_feddyn(uneven):
    """Ours weighs F_i by its relative size, theirs divides alpha by it: a step times as long."""
    path, sets = rounds_of(uneven, feddyn(STEP, 0.3, 3, participation=0.5), 3)

    steps = STEP * SIZES / SIZES.mean()
    theirs = partial(authors.feddyn, of_parts(), START, SIZES, sets, alpha=0.3, local_steps=3)
    close(path, theirs(steps))
    assert np.abs(path - theirs(np.full(4, STEP))).max() > 1e-3


def test_scaffold(uneven):
    """Ours is theirs with the common part divided by the size where c_i is renewed, too."""
    path, sets = rounds_of(uneven, scaffold(STEP, 3, 0.8, participation=0.5), 3)

    steps = STEP * SIZES / SIZES.mean()
    theirs = partial(
        authors.scaffold, of_parts(), START, SIZES, sets, steps, local_steps=3, server_step=0.8
    )
    close(path, theirs(scaled_renewal=True))
    assert np.abs(path - theirs()).max() > 1e-3


def test_scaffold_for_nodes_of_one_size(quadratics):
    """Then their code as it stands is ours."""
    problem = replace(quadratics(nodes=4), initial=jnp.asarray(START))
    path, sets = rounds_of(problem, scaffold(STEP, 3, 0.8, participation=0.5), 3)

    theirs = authors.scaffold(
        one_each(problem), START, np.ones(4), sets, np.full(4, STEP),
        local_steps=3, server_step=0.8,
    )  # fmt: skip
    close(path, theirs)


def test_fedprox(uneven):
    path, sets = rounds_of(uneven, fedprox(STEP, 0.7, 3, participation=0.5), 3)

    close(path, authors.fedprox(of_parts(), START, SIZES, sets, STEP, mu=0.7, local_steps=3))


@pytest.mark.parametrize("rule", ["adam", "yogi", "adagrad", "momentum"])
def test_fedopt(uneven, rule):
    """Theirs begins with v = 0 and corrects Adam and Yogi for their start; nothing else differs.

    Adagrad has no first moment there: beta_1 = 0 here. FedAvgM is the same as it stands.
    """
    betas = (0.0 if rule == "adagrad" else 0.8, 0.9)
    algorithm = fedopt(STEP, rule, 0.05, *betas, tau=0.01, participation=0.5)
    path, sets = rounds_of(uneven, algorithm, 1)

    theirs = partial(
        authors.fedopt, of_parts(), START, SIZES, sets, STEP,
        rule=rule, server_step=0.05, betas=betas, epsilon=0.01,
    )  # fmt: skip
    close(path, theirs(first=0.01**2, corrected=False))
    if rule != "momentum":
        assert np.abs(path - theirs(first=0.0, corrected=False)).max() > 1e-6
    if rule in ("adam", "yogi"):
        assert np.abs(path - theirs(first=0.01**2)).max() > 1e-3


# --- between peers: five nodes on a ring, quadratics of their own


def one_each(problem):
    parts = zip(np.asarray(problem.x), np.asarray(problem.y), strict=True)
    return [partial(plain.quadratic_gradient, x=x, y=y) for x, y in parts]


def ring():
    return np.asarray(metropolis(jnp.asarray(Graph("ring").adjacency(5))), np.float64)


@pytest.mark.parametrize("compression", ["none", "top_k"])
def test_choco(even, compression):
    """Entries travel as float32 here. Their code for networks begins with copies of 0."""
    algorithm = choco(STEP, 0.3, compression, kept=0.3)
    states, _ = teller(even, ideal(), algorithm, ROUNDS)()

    compress = partial(peers.top_entries, kept=3) if compression == "top_k" else np.array
    options = (ring(), STEP, 0.3, compress, ROUNDS)
    path = authors.choco(one_each(even), START, *options)
    close(states.memory.params[1:], path[1:])
    both = [
        told(one_each(even), 0 * START, *options)
        for told in (authors.choco, authors.choco_of_parts)
    ]
    close(*both)  # from a start of 0 they are one
    apart = np.abs(authors.choco_of_parts(one_each(even), START, *options) - path).max()
    assert apart > 1e-2 if compression == "top_k" else apart < 1e-12


def test_matcha(even):
    algorithm = matcha(STEP, 0.5, topology="complete", graph_seed=3)
    states, _ = teller(even, ideal(), algorithm, ROUNDS + 1)()

    parts = matchings(~np.eye(5, dtype=bool))
    partners = [[int(np.argmin(row)) if row.min() < 0 else -1 for row in part] for part in parts]
    p = probabilities(parts, 0.5)
    flags = np.random.default_rng(3).random((256, len(parts)))[:ROUNDS] < p
    a = best_weight(parts, p)
    theirs = authors.matcha(one_each(even), START, partners, flags, a, STEP)
    close(states.mixed[1:], theirs)
    assert 0 < flags.mean() < 1
    np.testing.assert_allclose(a, authors.matcha_weight(parts, p), rtol=1e-6)


def test_epidemic_learning(even):
    """Some nodes are chosen by nobody in some rounds."""
    sent_to = receivers("local", 5, 1, 0)[:ROUNDS]
    states, _ = teller(even, ideal(), epidemic(STEP, "local", 1, local_steps=2), 2 * ROUNDS + 1)()

    close(states.mixed[1::2], authors.epidemic(one_each(even), START, sent_to, STEP, 2))
    assert any(set(range(5)) - set(chosen.ravel()) for chosen in sent_to)


@pytest.mark.parametrize("weights", ["lazy", "whole"])
def test_exact_diffusion(even, weights):
    states, _ = teller(even, ideal(), exact_diffusion(STEP, weights), ROUNDS + 1)()

    theirs = authors.exact_diffusion(
        one_each(even), START, ring(), STEP, ROUNDS, averaged=weights == "lazy"
    )
    close(states.mixed[1:], theirs)
