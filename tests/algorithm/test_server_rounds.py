"""SCAFFOLD, FedProx, FedDyn, FedOpt and client sampling: against re-tellings, theory and each other."""

from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkman import Inbox, Recording, Server, Star, ideal, iid, simulate
from folkman.algorithm.base import Place
from folkman.algorithm.fedasync import fedasync
from folkman.algorithm.fedavg import fedavg
from folkman.algorithm.fedbuff import fedbuff
from folkman.algorithm.feddyn import feddyn
from folkman.algorithm.fedopt import fedopt
from folkman.algorithm.fedprox import fedprox
from folkman.algorithm.fedsa import fedsa
from folkman.algorithm.pieces.sampling import Sampling
from folkman.algorithm.scaffold import scaffold
from reference import plain, servers

NODES, STEP, ROUNDS, E = 4, 0.1, 12, 3


@pytest.fixture
def problem(quadratics):
    return quadratics(nodes=NODES, heterogeneity=1.0, condition=4.0)


def gradients(problem):
    return [
        partial(plain.quadratic_gradient, x=np.asarray(x), y=np.asarray(y))
        for x, y in zip(problem.x, problem.y, strict=True)
    ]


def run_rounds(problem, algorithm, rounds=ROUNDS) -> tuple[Any, list[list[int]]]:
    """Return a run without delay, and who took part in each of its rounds."""
    slots = rounds * E
    run = simulate(
        problem, ideal(), algorithm, slots=slots, seed=2, recording=Recording(slots, timeline=True)
    )
    assert run.timeline is not None
    heard = cast("Any", run.timeline).up_arrived
    return run, [np.flatnonzero(row).tolist() for row in heard if row.any()]


def built(method, **options):
    return method(STEP, local_steps=E, participation=0.5, **options)


# --- against NumPy, with two of four nodes in a round


def test_fedprox_follows_its_paper(problem):
    run, sets = run_rounds(problem, built(fedprox, mu=0.7))

    share = np.asarray(problem.share)
    start = np.asarray(problem.initial)
    path = servers.fedprox(gradients(problem), start, share, sets, STEP, mu=0.7, local_steps=E)
    assert [len(chosen) for chosen in sets] == [NODES] + [2] * (ROUNDS - 1)
    np.testing.assert_allclose(run.model, path[-1], rtol=1e-10)


@pytest.mark.parametrize("rule", ["adam", "yogi", "adagrad"])
def test_fedopt_follows_its_paper(problem, rule):
    options = {"server_step": 0.05, "beta_1": 0.8, "beta_2": 0.9, "tau": 0.01}
    run, sets = run_rounds(problem, built(fedopt, server=rule, **options))

    path = servers.fedopt(
        gradients(problem),
        np.asarray(problem.initial),
        np.asarray(problem.share),
        sets,
        STEP,
        rule=rule,
        server_step=0.05,
        betas=(0.8, 0.9),
        tau=0.01,
        local_steps=E,
    )
    np.testing.assert_allclose(run.model, path[-1], rtol=1e-10)


def test_scaffold_follows_its_paper(problem):
    run, sets = run_rounds(problem, built(scaffold, server_step=0.8))

    start = np.asarray(problem.initial)
    path, controls = servers.scaffold(
        gradients(problem), start, sets, STEP, local_steps=E, server_step=0.8
    )
    np.testing.assert_allclose(run.model, path[-1], rtol=1e-10)
    assert np.linalg.norm(controls[-1]) > 1e-3  # it had something to correct


def test_feddyn_follows_its_authors_code(problem):
    run, sets = run_rounds(problem, built(feddyn, alpha=0.3))

    start = np.asarray(problem.initial)
    path = servers.feddyn(gradients(problem), start, sets, STEP, alpha=0.3, local_steps=E)
    np.testing.assert_allclose(run.model, path[-1], rtol=1e-10)


# --- where they end, with a constant step, on nodes that differ


@pytest.mark.parametrize("algorithm", [built(scaffold), built(feddyn, alpha=1.0)])
def test_corrected_methods_end_at_the_optimum_with_half_of_the_nodes_too(problem, algorithm):
    run, _ = run_rounds(problem, algorithm, rounds=500)

    start = float(np.linalg.norm(np.asarray(problem.initial) - np.asarray(problem.optimum)))
    assert run.last("optimum_distance") < 1e-8 * start


@pytest.mark.parametrize("mu", [0.0, 1.0])
def test_local_steps_without_correction_end_where_theory_says(problem, mu):
    """After e steps w_i = a_e w + b_e x_i, a_e + b_e = 1: the mean rests where b-weighted x_i do."""
    run, _ = run_rounds(problem, fedprox(STEP, mu, local_steps=E), rounds=500)

    curvature, least = np.asarray(problem.y)[:, 0], np.asarray(problem.x)[:, 0]
    b = np.zeros_like(curvature)
    for _ in range(E):
        b = (1 - STEP * (curvature + mu)) * b + STEP * curvature
    np.testing.assert_allclose(run.model, (b * least).sum(axis=0) / b.sum(axis=0), rtol=1e-8)
    assert run.last("optimum_distance") > 1e-3


# --- where two are one


@pytest.mark.parametrize(
    "other",
    [
        fedprox(STEP, mu=0.0, local_steps=E, participation=0.5),
        fedopt(STEP, "sgd", 1.0, local_steps=E, participation=0.5),
    ],
    ids=["FedProx, mu = 0", "FedOpt, sgd, step 1"],
)
def test_it_is_fedavg_bit_for_bit(problem, other):
    left, right = (run_rounds(problem, each)[0] for each in (other, built(fedavg)))

    np.testing.assert_array_equal(left.model, right.model)
    np.testing.assert_array_equal(left.nodes, right.nodes)


@pytest.mark.parametrize(
    "other",
    [scaffold(STEP), fedprox(STEP, mu=5.0)],
    ids=["SCAFFOLD, E = 1", "FedProx, E = 1"],
)
def test_with_one_local_step_and_everyone_it_is_descent_on_the_union(problem, other):
    run = simulate(problem, ideal(), other, slots=36, recording=Recording(36))

    start, share = np.asarray(problem.initial), np.asarray(problem.share)
    path = plain.average(gradients(problem), start, share, STEP, 1, 36)
    np.testing.assert_allclose(run.model, path[-1], rtol=1e-10)


# --- invariants, under sampling, loss and any order of arrival


class World:
    """A star by hand: quadratics, and in each slot the links that work are given."""

    def __init__(self, algorithm, dim=3):
        travel: Star = algorithm.travel
        server: Server = travel.server
        self.algorithm, self.server, self.dim = algorithm, server, dim
        rng = np.random.default_rng(5)
        curvature = jnp.asarray(rng.uniform(0.5, 2.0, (NODES, dim)))
        least = jnp.asarray(rng.normal(size=(NODES, dim)))

        def slot(states, center, up, got, owed, ups, downs, key):
            def node(state, payload, heard, a, b):
                box = inbox(payload[None], heard[None])
                state = algorithm.receive(state, box)
                v = algorithm.point(state, box)
                moved = algorithm.update(state, box, jnp.zeros(()), a * (v - b), key)
                busy = travel.computes(state)
                return jax.tree.map(lambda new, old: jnp.where(busy, new, old), moved, state)

            states = jax.vmap(node)(states, got, owed & downs, curvature, least)
            owed = owed & ~downs
            arrived = jax.vmap(travel.offers)(states) & ups & ~owed
            up = jnp.where(arrived[:, None], jax.vmap(algorithm.message)(states), up)
            # who has uploaded and waits must not be heard twice in a round: the server drops it
            center = server.receive(center, inbox(up, arrived), key)
            told = server.offers(center)
            got = jnp.where(told[:, None], server.message(center), got)
            return states, center, up, got, owed | told

        self.slot = jax.jit(slot)

    def begin(self):
        start = jnp.ones(self.dim)
        places = [Place(jnp.asarray(i), NODES, jax.random.key(i)) for i in range(NODES)]
        each = [self.algorithm.init(start, place) for place in places]
        states = jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)
        center = self.server.init(start, NODES)
        first = jnp.broadcast_to(
            self.server.message(center), (NODES, len(self.server.message(center)))
        )
        up = jnp.zeros_like(jax.vmap(self.algorithm.message)(states))
        return states, center, up, first, jnp.zeros(NODES, bool)


def inbox(rows, heard):
    senders = len(rows)
    return Inbox(
        rows,
        jnp.arange(senders),
        jnp.full(senders, 1 / senders, rows.dtype),
        jnp.zeros((), rows.dtype),
        heard,
        jnp.zeros(senders, jnp.int32),
        jnp.ones(senders, bool),
    )


@pytest.fixture(scope="module")
def worlds():
    return {
        "scaffold": lambda: World(scaffold(STEP, 2, participation=0.5)),
        "feddyn": lambda: World(feddyn(STEP, 0.3, 2, participation=0.5)),
    }


def memories(name, world, states, center, owed):
    """Return what the nodes remember of their newest whole round, and the server's sum of it.

    A node that works in the present round has the memory of the round before as it is; one that
    waits, or to which the model is still on its way, has to renew it by the round that it ended.
    """
    memory = states.memory
    works = np.asarray(center.chosen & ~owed)[:, None]
    if name == "scaffold":
        renewed = np.asarray(jax.vmap(world.algorithm.message)(states))[:, world.dim :]
        return np.where(works, memory.control, renewed), np.asarray(center.memory.control)
    renewed = memory.dual - 0.3 * (memory.params - memory.anchor)
    return np.where(works, memory.dual, renewed), np.asarray(center.memory.dual)


LINKS = st.lists(st.integers(0, 2 ** (2 * NODES) - 1), min_size=20, max_size=20)


@pytest.mark.parametrize("name", ["scaffold", "feddyn"])
def test_the_servers_memory_is_the_mean_of_the_nodes_whatever_is_lost(x64, worlds, name):
    """SCAFFOLD's corrections c - c_i sum to zero, and FedDyn's h is the mean of its lambda_i."""
    world = worlds[name]()

    @settings(max_examples=15, deadline=None, derandomize=True)
    @given(links=LINKS)
    def holds(links):
        held = world.begin()
        for number, bits in enumerate(links):
            works = np.array([bits >> place & 1 for place in range(2 * NODES)], bool)
            key = jax.random.key(number)
            held = world.slot(*held, jnp.asarray(works[:NODES]), jnp.asarray(works[NODES:]), key)
            own, common = memories(name, world, held[0], held[1], held[4])
            if held[1].rounds > 0:
                np.testing.assert_allclose(own.mean(axis=0), common, rtol=1e-9, atol=1e-12)

    holds()


# --- client sampling at any time


@pytest.mark.parametrize(
    "algorithm",
    [
        fedasync(STEP, participation=0.5),
        fedbuff(STEP, buffer_size=2, participation=0.5),
        fedsa(STEP, M=2, participation=0.5),
    ],
    ids=lambda algorithm: algorithm.name,
)
def test_at_most_the_part_that_was_asked_for_works_at_a_time_and_all_have_their_turn(
    problem, algorithm
):
    recording = Recording(120, timeline=True)
    run = simulate(problem, iid(2), algorithm, slots=120, seed=1, recording=recording)

    timeline = cast("Any", run.timeline)
    ends = np.cumsum(timeline.up_arrived, axis=0)
    begins = np.cumsum(timeline.down_started, axis=0)
    working = 1 + begins - ends  # all begin from the first model
    assert set(np.unique(working)) == {0, 1}
    after_the_first = np.all(ends >= 1, axis=1)
    assert working[after_the_first].sum(axis=1).max() == 2
    assert begins[-1].min() >= 3
    assert run.last("optimum_distance") < run.column("optimum_distance")[0]


def test_everyone_is_the_same_server():
    algorithm = fedbuff(STEP)

    assert algorithm == fedbuff(STEP, participation=1.0)
    assert type(algorithm.travel.servers[0].init(jnp.ones(2), 3)).__name__ == "FedBuffServer"


def test_a_part_that_cannot_be_is_refused():
    for participation in (0.0, 1.5):
        with pytest.raises(ValueError, match="participation is a part of the nodes"):
            fedasync(STEP, participation=participation)
    with pytest.raises(ValueError, match=r"raise participation to 0\.75"):
        fedsa(STEP, M=3, participation=0.5).travel.servers[0].init(jnp.ones(2), NODES)
    assert Sampling(0.3).number(10) == 3
