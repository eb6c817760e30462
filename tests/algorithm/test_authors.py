"""Our methods beside the authors' public code, told again in `reference.authors`: trajectories.

Where the two differ by convention, the test has the mapping, or shows that nothing else differs.
"""

from dataclasses import replace
from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest

from folkman import Clock, Recording, ideal, pipelined, simulate
from folkman.algorithm.a2cid2 import a2cid2, constants
from folkman.algorithm.choco import choco
from folkman.algorithm.dfl_aa import dfl_aa
from folkman.algorithm.divshare import divshare, fragment_of
from folkman.algorithm.epidemic import epidemic, receivers
from folkman.algorithm.exact_diffusion import exact_diffusion
from folkman.algorithm.feddyn import feddyn
from folkman.algorithm.fedopt import fedopt
from folkman.algorithm.fedprox import fedprox
from folkman.algorithm.matcha import best_weight, matcha, matchings, probabilities
from folkman.algorithm.pieces.topology import Graph, metropolis
from folkman.algorithm.ringmaster import ringmaster
from folkman.algorithm.scaffold import scaffold
from folkman.algorithm.sgp import sgp
from folkman.algorithm.swift import swift
from folkman.problem import data
from folkman.problem.problem import make_problem
from folkman.radio.loss import Lossy
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


def test_ringmaster_with_stops(even):
    """As long as no two gradients come in one slot, in which ours answers all of them alike."""
    compute, slots = (13, 17, 19, 23, 29), 200
    run = simulate(
        even, ideal(), ringmaster(STEP, 4, stops=True), slots=slots,
        clock=Clock(compute_slots=compute), recording=Recording(slots),
    )  # fmt: skip

    theirs = authors.ringmaster(one_each(even), START, STEP, compute, slots, max_delay=4)
    close(run.model, theirs[0])
    assert run.last("rounds") == theirs[1] > 30
    assert theirs[2] > 10


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
    first, second = (
        told(one_each(even), 0 * START, *options)
        for told in (authors.choco, authors.choco_of_parts)
    )
    close(first, second)  # from a start of 0 they are one
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


def test_sgp_in_lockstep(even):
    """On a directed graph whose weights y_i are not 1."""
    receivers = [[1, 2], [2], [3, 0], [4], [0]]
    edges = "edges: " + " ".join(f"{i}>{j}" for i, row in enumerate(receivers) for j in row)
    states, _ = teller(even, ideal(), sgp(STEP, topology=edges), ROUNDS)()

    close(states.memory[1:], authors.sgp(one_each(even), START, receivers, STEP, ROUNDS))
    assert np.abs(states.memory[-1, :, -1] - 1).max() > 0.1


@pytest.mark.parametrize("weights", ["lazy", "whole"])
def test_exact_diffusion(even, weights):
    states, _ = teller(even, ideal(), exact_diffusion(STEP, weights), ROUNDS + 1)()

    theirs = authors.exact_diffusion(
        one_each(even), START, ring(), STEP, ROUNDS, averaged=weights == "lazy"
    )
    close(states.mixed[1:], theirs)


def test_divshare(even):
    """Fragments of a model that were lost, or came late."""
    algorithm = divshare(STEP, fragments=3, fanout=2, local_steps=2)
    states, held = teller(even, Lossy(pipelined(2), 0.3), algorithm, 2 * ROUNDS)()

    part = fragment_of(10, 3, 0)
    draws = [
        [(order[n - 1], set(chosen[order[n - 1]])) for order, n, chosen in zip(*now, strict=True)]
        for now in zip(states.order, states.sent, states.receivers, strict=True)
    ]
    places = [np.flatnonzero(part == fragment) for fragment in range(3)]
    theirs = authors.divshare(one_each(even), START, places, draws, held, STEP, 2)
    close(states.params, theirs)
    assert (np.ptp(theirs[-1], axis=0) < np.ptp(np.asarray(even.x)[:, 0], axis=0)).all()


@pytest.mark.parametrize("missing", ["stored", "self", "scale"])
def test_swift(even, missing):
    algorithm = swift(STEP, 2, missing)
    states, held = teller(even, Lossy(pipelined(2), 0.3), algorithm, 2 * ROUNDS)()

    close(states.params, authors.swift(one_each(even), START, ring(), held, STEP, 2, missing))
    others = (ring() > 0) & ~np.eye(5, dtype=bool)
    assert (held[2::2] == held[:-2:2])[
        :, others
    ].any()  # between two averages somebody was not heard


def test_dfl_aa_where_models_come_whole(even):
    """With one chunk a model is there or not: parts of it are what the two weigh otherwise."""
    states, held = teller(even, Lossy(ideal(), 0.4), dfl_aa(STEP, chunks=1, tau=6.0), 2 * ROUNDS)()

    hears = (ring() > 0) & ~np.eye(5, dtype=bool)
    close(states.params, authors.dfl_aa(one_each(even), START, held, hears, STEP, 6.0))
    assert states.age[:, hears].max() > 2


@pytest.mark.parametrize("nodes", [4, 5, 8])
def test_the_constants_of_a2cid2(nodes):
    around = [[(i - 1) % nodes, (i + 1) % nodes] for i in range(nodes)]

    close(constants("ring", nodes, 0.7), authors.acid_constants(around, 0.7))


def test_a2cid2(quadratics):
    """Slot by slot flow, meeting and gradient are theirs.

    Who answers has the other's model as it was sent, as both have there. Who asked has the answer
    later, and takes its own model as it asked: so the moves of a meeting cancel here, not there.
    """
    problem = replace(quadratics(nodes=6), initial=jnp.asarray(START))
    states, _ = teller(problem, ideal(), a2cid2(STEP), 2 * ROUNDS)()
    eta, beta = constants("ring", 6, 1.0)
    own, answered, met = states.own, {}, [0, 0]
    done = own.number - own.waiting
    for t in range(2 * ROUNDS):
        x, second = authors.acid_flow(own.params[t], states.second[t], eta, 1.0)
        other = x.copy()  # of nobody: a meeting with itself moves nothing
        for i in np.flatnonzero((done[t + 1] > done[t]) & (np.arange(6) % 2 == 0)):
            other[i] = x[i] + answered[own.partner[t, i], i] - own.frozen[t, i]
            met[0] += 1
        for j, i in np.argwhere(own.served[t + 1] > own.served[t]):
            answered[j, i], other[j] = x[j], own.frozen[t, i]
            met[1] += 1
        x, second = authors.acid_meeting(x, second, other, beta)
        moved = STEP * np.stack([of(w)[1] for of, w in zip(one_each(problem), x, strict=True)])
        close(own.params[t + 1], x - moved)
        close(states.second[t + 1], second - moved)
    assert min(met) > 5
