"""Methods around a server: the properties that their definitions promise, and the settings in which two are one."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folkman import Clock, Inbox, Recording, ideal, iid, pipelined, reference, simulate
from folkman.algorithm.adafl import Measured, adafl, best_tau, divergence
from folkman.algorithm.base import Assumption, Place
from folkman.algorithm.fedap import fedap
from folkman.algorithm.fedasync import fedasync, staleness_factor
from folkman.algorithm.fedavg import fedavg
from folkman.algorithm.fedbuff import fedbuff
from folkman.algorithm.fedsa import best_number, fedsa, relative_rates
from folkman.algorithm.twafl import temporal_weights, twafl
from reference import plain

NODES, STEP, SLOTS = 4, 0.1, 18
NOTHING: Any = None
SHAPES = ((2, 1, 1, 1), (2,), (2, 2), (2,))  # of a model with ten parameters, four of them shallow


def round_trip(slots):
    """Return a network on which an upload and its answer together take so many slots."""
    return pipelined(slots, download_slots=0)


def close(a, b):
    return np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-13)


def gradients(problem):
    return [
        partial(plain.quadratic_gradient, x=np.asarray(x), y=np.asarray(y))
        for x, y in zip(problem.x, problem.y, strict=True)
    ]


def box(uploads, heard, stamps, share=None, finite=None, coming=None):
    """Return a server's inbox: the models (node, d), who was heard, and the versions that they began from."""
    nodes = len(uploads)
    return Inbox(
        jnp.concatenate(
            [jnp.asarray(uploads), jnp.asarray(stamps, jnp.asarray(uploads).dtype)[:, None]], axis=1
        ),
        jnp.arange(nodes),
        jnp.full(nodes, 1 / nodes) if share is None else jnp.asarray(share),
        jnp.zeros(()),
        jnp.asarray(heard, bool),
        jnp.zeros(nodes, jnp.int32),
        jnp.ones(nodes, bool) if finite is None else jnp.asarray(finite, bool),
        None if coming is None else jnp.asarray(coming, bool),
    )


def server_of(algorithm) -> Any:
    return algorithm.travel.server


def drive(algorithm, arrivals, uploads, start):
    """Let the nodes of arrivals[t] upload in slot t, from the version they last heard; yield stamps and states."""
    receive, state = (
        jax.jit(server_of(algorithm).receive),
        server_of(algorithm).init(start, len(uploads)),
    )
    stamps = np.zeros(len(uploads), int)
    for t, nodes in enumerate(arrivals):
        before = state
        state = receive(
            state, box(uploads, np.isin(np.arange(len(uploads)), nodes), stamps), jax.random.key(t)
        )
        yield stamps.copy(), before, state
        stamps[np.asarray(state.answers)] = int(state.rounds)


# --- one contract: simulator and reference agree, eta 0 changes nothing, FedAvg as a special case

EVERY = {
    "adafl": partial(adafl, budget=30),
    "fedap": partial(fedap, m=2, rule="median"),
    "fedsa": partial(fedsa, M=2, bound=2),
    "fedasync": partial(fedasync, local_steps=2, rho=0.3, max_staleness=2),
    "fedbuff": partial(fedbuff, buffer_size=3),
    "twafl": partial(twafl, m=2, loop=3, deep_rounds=1, shapes=SHAPES),
}


@pytest.fixture(params=EVERY, scope="module")
def build(request):
    """One method after the other: the tests of each share a compiled program."""
    return EVERY[request.param]


def run_unevenly(problem, algorithm):
    clock, recording = Clock(compute_slots=(1, 2, 1, 3)), Recording(SLOTS, timeline=True)
    return simulate(problem, iid(3), algorithm, slots=SLOTS, clock=clock, recording=recording)


def test_simulator_and_reference_agree_on_uneven_nodes(quadratics, build):
    problem = quadratics(nodes=NODES, heterogeneity=1.0)

    algorithm = build(step=STEP)
    run = run_unevenly(problem, algorithm)
    outcome = reference(problem, run.timeline, algorithm)

    assert run.last("rounds") >= 2
    np.testing.assert_allclose(run.model, outcome.model, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(run.nodes, outcome.nodes, rtol=1e-9, atol=1e-12)


def test_a_step_of_zero_changes_nothing(quadratics, build):
    problem = quadratics(nodes=NODES)
    start = replace(problem, initial=jnp.arange(1.0, 11.0))

    run = run_unevenly(start, build(step=0.0))

    np.testing.assert_allclose(run.model, np.arange(1.0, 11.0), rtol=1e-14)
    np.testing.assert_allclose(run.nodes, np.tile(np.arange(1.0, 11.0), (NODES, 1)), rtol=1e-14)


AS_FEDAVG = {
    "fedap, m = I": fedap(STEP, m=NODES, local_steps=2),
    "fedsa, M = I, retain": fedsa(STEP, M=NODES, local_steps=2),
    "fedsa, M = I, mean": fedsa(STEP, M=NODES, aggregation="mean", adaptive=False, local_steps=2),
    "fedbuff, K = I": fedbuff(STEP, buffer_size=NODES, local_steps=2),
    "twafl, a = 1, always deep": twafl(
        STEP, m=NODES, base=1.0, loop=1, deep_rounds=1, local_steps=2, shapes=SHAPES
    ),
}


@pytest.mark.parametrize("algorithm", AS_FEDAVG.values(), ids=AS_FEDAVG)
def test_with_everyone_in_every_round_it_is_fedavg(quadratics, algorithm):
    problem = quadratics(nodes=NODES, heterogeneity=1.0)

    run = simulate(problem, round_trip(1), algorithm, slots=3 * 10, recording=Recording(30))

    path = plain.average(
        gradients(problem), np.asarray(problem.initial), np.asarray(problem.share), STEP, 2, 10
    )
    assert run.last("rounds") == 10
    close(run.model, path[-1])


def test_adafl_with_one_local_step_is_descent_on_the_union(quadratics):
    problem = quadratics(nodes=NODES, heterogeneity=1.0)

    run = simulate(problem, ideal(), adafl(STEP, tau=1), slots=20, recording=Recording(20))

    path = plain.average(
        gradients(problem), np.asarray(problem.initial), np.asarray(problem.share), STEP, 1, 20
    )
    close(run.model, path[-1])


def test_fedsa_with_one_upload_a_round_is_fedasync_with_the_shares_as_mixing(quadratics):
    problem = quadratics(nodes=NODES, heterogeneity=1.0)
    clock, recording = Clock(compute_slots=(1, 2, 1, 3)), Recording(40)

    left = simulate(
        problem,
        iid(3),
        fedsa(STEP, M=1, adaptive=False),
        slots=40,
        clock=clock,
        recording=recording,
    )
    mixing = fedasync(
        STEP, 1 / NODES, staleness="constant", rho=0.0, max_staleness=10**6, weighted=True
    )
    right = simulate(problem, iid(3), mixing, slots=40, clock=clock, recording=recording)

    assert left.last("rounds") == right.last("rounds") > 20
    close(left.model, right.model)


# --- FedAvg


def test_fedavgs_momentum_is_a_heavy_ball_of_nine_tenths_that_rests_between_rounds(x64):
    """Under a constant gradient g, k steps go eta g sum_{j <= k} (1 + 0.9 + ... + 0.9^(j-1))."""
    algorithm, key = fedavg(0.1, local_steps=3, optimizer="momentum"), jax.random.key(0)
    state = algorithm.init(jnp.zeros(2), Place(jnp.asarray(0), 1, key))
    grad, went = np.array([1.0, -2.0]), 0.1 * (1 + 1.9 + 2.71)

    for _ in range(3):
        state = algorithm.update(state, NOTHING, jnp.zeros(()), jnp.asarray(grad), key)
    close(algorithm.params(state), -went * grad)

    answer = box(np.ones((1, 1)), [True], [5.0])  # a new model: (1, 5)
    state = algorithm.receive(state, answer)
    state = algorithm.update(state, answer, jnp.zeros(()), jnp.asarray(grad), key)
    close(algorithm.params(state), np.array([1.0, 5.0]) - 0.1 * grad)


def test_fedavg_with_adam_takes_a_whole_step_against_the_sign_first(x64):
    """Bias-corrected, the first direction of Adam is g / |g|."""
    algorithm, key = fedavg(0.1, optimizer="adam"), jax.random.key(0)
    state = algorithm.init(jnp.zeros(2), Place(jnp.asarray(0), 1, key))

    state = algorithm.update(state, NOTHING, jnp.zeros(()), jnp.asarray([5.0, -0.01]), key)

    np.testing.assert_allclose(algorithm.params(state), [-0.1, 0.1], rtol=1e-5)


# --- AdaFL


def test_adafls_divergence_is_zero_for_one_step_and_quadratic_for_two(x64):
    h = divergence(jnp.asarray([0.0, 1.0, 2.0]), 0.1, jnp.asarray(3.0), jnp.asarray(0.5))

    np.testing.assert_allclose(h, [0.0, 0.0, 0.1**2 * 3.0 * 0.5], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(("phi", "tau"), [(5e-5, 63), (1e-3, 29), (0.025, 10)])
def test_adafls_tau_minimises_the_gap(x64, phi, tau):
    run = Measured(*map(jnp.asarray, (3.0, 1.0, 0.5, 1.0, 5.0, 1000.0)))
    free = run._replace(b=0 * run.b)  # talk costs no time

    assert best_tau(jnp.asarray(100), 100, 0.016, phi, run) == tau
    assert best_tau(jnp.asarray(1), 100, 0.016, phi, run) == 10  # grows tenfold at most
    assert best_tau(jnp.asarray(100), 100, 0.016, phi, free) == 1


def test_adafls_tau_survives_an_overflow():
    run = Measured(*map(jnp.float32, (1e3, 1.0, 0.5, 1.0, 5.0, 1000.0)))

    assert 1 <= best_tau(jnp.asarray(100), 100, 1.0, 5e-5, run) <= 100


def taus_of(run, more):
    """Return the local steps of each round; `more`: gradients of a round that only estimate."""
    ends = np.flatnonzero(run.timeline.up_arrived[:, 0])
    return (np.diff(np.cumsum(run.timeline.finished[:, 0])[ends], prepend=0) - more).tolist()


def test_adafl_estimates_at_its_end_model_and_pays_for_that_gradient(quadratics):
    problem = quadratics(nodes=4, heterogeneity=0.2, condition=10.0)
    parts = zip(np.asarray(problem.x), np.asarray(problem.y), strict=True)
    gradients = [partial(plain.quadratic_gradient, x=x, y=y) for x, y in parts]
    options = {"phi": 1e-4, "budget": 2000}
    taus, path = plain.adapt(
        gradients,
        np.asarray(problem.initial),
        np.asarray(problem.share),
        0.2,
        talk=4,
        rounds=7,
        **options,
    )
    slots = sum(taus) + 7 * (1 + 4)

    run, old = (
        simulate(
            problem,
            round_trip(4),
            adafl(0.2, estimate=estimate, **options),
            slots=slots,
            recording=Recording(slots, timeline=True),
        )
        for estimate in ("end", "last_gradient")
    )

    assert taus_of(run, 1) == taus
    assert len(set(taus)) > 3
    close(run.model, path[-1])
    assert taus_of(old, 0)[:7] != taus


def test_adafl_on_equal_nodes_takes_ever_more_steps_until_the_budget_ends(quadratics):
    problem = quadratics(nodes=2, heterogeneity=0.0, condition=2.0)

    run = simulate(
        problem,
        round_trip(4),
        adafl(STEP, budget=400),
        slots=450,
        recording=Recording(450, timeline=True),
    )

    # rounds take tau + 1 + 4 slots: 6 + 6 + 15 + 105 + 105 = 237 are spent; 237 + 101 + 2 * 5 leaves room for
    # another 100 (342); then 400 - 342 - 11 = 47 for a last round and 6 for its evaluation
    assert taus_of(run, 1) == [1, 1, 10, 100, 100, 100, 47, 1]
    assert np.flatnonzero(run.timeline.up_arrived[:, 0])[-1] + 1 == 400
    assert run.last("optimum_distance") < 1e-5


def test_adafl_ends_at_the_model_of_least_loss(quadratics):
    problem = quadratics(
        nodes=2, heterogeneity=0.0, condition=1.0
    )  # curvature 1: a step above 2 diverges

    run = simulate(problem, round_trip(1), adafl(2.5, budget=12), slots=20, recording=Recording(20))

    close(run.model, problem.initial)


@pytest.mark.parametrize(("loss", "best"), [(1.9, 5.0), (2.0, 7.0), (2.1, 7.0), (np.inf, 7.0)])
def test_adafl_leaves_its_best_model_only_for_a_better_one(x64, loss, best):
    server = server_of(adafl(0.1))
    least = 2.0 if np.isfinite(loss) else np.inf  # in the first round nothing is known
    before = server.init(jnp.full(1, 5.0), 2)._replace(
        best=jnp.full(1, 7.0), best_loss=jnp.asarray(least)
    )
    # model, gradient, (loss, beta, rho) of each node
    uploads = np.asarray([[1.0, 0.5, loss, 1.0, 1.0], [3.0, 0.5, loss, 1.0, 1.0]])

    after = server.receive(before, box(uploads, [1, 1], [1, 1]), jax.random.key(0))

    assert (after.params, after.best) == (2.0, best)


def test_adafl_estimates_the_curvature_and_the_dissimilarity_of_quadratics(x64):
    curvature, centres = 0.7, np.asarray([[1.0, 0.0, 2.0], [-2.0, 1.0, 0.0], [0.0, 0.0, 4.0]])
    share = np.asarray([0.5, 0.3, 0.2])
    algorithm = adafl(0.016, budget=2000)
    server, key = server_of(algorithm), jax.random.key(0)
    w, uploads, reports = jnp.ones(3), [], []
    for i, m in enumerate(jnp.asarray(centres)):
        state = algorithm.init(w, Place(jnp.asarray(i), 3, key))
        for model in (w, 0.5 * w):  # two rounds of one step, the second from another model
            state = state._replace(params=model, steps=jnp.asarray(0))
            loss, grad = 0.5 * curvature * jnp.sum((model - m) ** 2), curvature * (model - m)
            state = algorithm.update(state, NOTHING, loss, grad, key)
        uploads.append(algorithm.message(state)[:-1])
        reports.append(state.report)
    beta, rho = (np.asarray(reports)[:, k] for k in (1, 2))

    now = {
        "tau": 100,
        "rounds": 2,
        "since": 1 - 100 - 5,
    }  # a round of 100 slots computing and 5 of talk
    before = server.init(0.5 * w, 3)._replace(
        **{name: jnp.asarray(value, jnp.int32) for name, value in now.items()}
    )
    after = server.receive(before, box(jnp.stack(uploads), [1, 1, 1], [100, 100, 100], share), key)

    np.testing.assert_allclose(beta, curvature, rtol=1e-12)
    delta = curvature * share @ np.linalg.norm(centres - share @ centres, axis=1)
    expected, other = (
        best_tau(
            jnp.asarray(100),
            100,
            0.016,
            5e-5,
            Measured(*map(jnp.asarray, (curvature, share @ rho, d, 1.0, 5.0, 2e3))),
        )
        for d in (delta, 1.2 * delta)
    )
    assert after.tau == expected != other


def test_adafl_counts_two_vectors_and_four_numbers_up():
    algorithm: Any = adafl(0.1)

    assert algorithm.declares.price.bits(1000, 16) == (2 * 16000 + 4 * 32,)
    assert server_of(algorithm).price.bits(1000, 16) == (16000 + 32,)


def test_adafl_stays_over_once_it_is_over(x64):
    """An upload that is repeated after the end does not bring the last model back."""
    server = server_of(adafl(0.1, budget=5))
    state = server.init(jnp.zeros(1), 2)._replace(
        phase=jnp.asarray(3, jnp.int32), best=jnp.full(1, 7.0), best_loss=jnp.zeros(())
    )
    # model, gradient, (loss, beta, rho, slots) of each node
    uploads = jnp.asarray([[1.0, 0.5, 9.0, 1.0, 1.0, 1.0], [3.0, 0.5, 9.0, 1.0, 1.0, 1.0]])
    inbox = Inbox(
        uploads,
        jnp.arange(2),
        jnp.full(2, 0.5),
        jnp.zeros(()),
        jnp.ones(2, bool),
        jnp.zeros(2, jnp.int32),
        jnp.ones(2, bool),
    )

    for _ in range(3):
        state = server.receive(state, inbox, jax.random.key(0))

        assert server.params(state) == 7.0
        assert not server.offers(state).any()


# --- FedAvg's options


def fedavg_told(problem, *, rounds, mu=0.0, local_steps=1, change=lambda _, mean: mean):
    """Return FedAvg's model by closed form: a node goes to its fixed point at a constant rate."""
    centre, curve = np.asarray(problem.x)[:, 0], np.asarray(problem.y)[:, 0]
    w, share = np.asarray(problem.initial), np.asarray(problem.share)
    for _ in range(rounds):
        fixed = (curve * centre + mu * w) / (curve + mu)
        ends = fixed + (1 - STEP * (curve + mu)) ** local_steps * (w - fixed)
        w = change(w, share @ ends)
    return w


def test_fedprox_is_its_closed_form_on_quadratics(quadratics):
    problem = quadratics(nodes=NODES, heterogeneity=1.0, condition=3.0)

    run = simulate(problem, ideal(), fedavg(STEP, 4, mu=0.7), slots=20, recording=Recording(20))

    close(run.model, fedavg_told(problem, rounds=5, mu=0.7, local_steps=4))
    assert np.abs(run.model - fedavg_told(problem, rounds=5, local_steps=4)).max() > 1e-3


@pytest.mark.parametrize("rule", ["sgd", "momentum", "adam", "yogi"])
def test_the_servers_step_is_its_rule_told_in_numpy(quadratics, rule):
    problem = quadratics(nodes=NODES, heterogeneity=1.0, condition=3.0)
    m, v = np.zeros(10), np.full(10, 1e-6)

    def change(w, mean):
        nonlocal m, v
        d = mean - w
        if rule == "sgd":
            return w + 0.3 * d
        m = 0.9 * m + (d if rule == "momentum" else 0.1 * d)
        if rule == "momentum":
            return w + 0.3 * m
        v = 0.99 * v + 0.01 * d**2 if rule == "adam" else v - 0.01 * d**2 * np.sign(v - d**2)
        return w + 0.3 * m / (np.sqrt(v) + 1e-3)

    algorithm = fedavg(STEP, server=rule, server_step=0.3)
    run = simulate(problem, ideal(), algorithm, slots=12, recording=Recording(12))

    close(run.model, fedavg_told(problem, rounds=12, change=change))


def test_a_part_of_the_nodes_is_drawn_for_each_round_of_fedavg(quadratics):
    problem = quadratics(nodes=NODES, heterogeneity=1.0, condition=3.0)
    centre, curve = np.asarray(problem.x)[:, 0], np.asarray(problem.y)[:, 0]

    run = simulate(
        problem,
        round_trip(1),
        fedavg(STEP, participation=0.3),
        slots=80,
        recording=Recording(80, timeline=True),
    )

    rounds = [np.flatnonzero(row) for row in run.timeline.up_arrived if row.any()]
    assert [len(each) for each in rounds] == [NODES] + [2] * (len(rounds) - 1)
    assert (np.bincount(np.concatenate(rounds[1:]), minlength=NODES) > 5).all()
    w, share = np.asarray(problem.initial), np.asarray(problem.share)
    for who in rounds:
        ends = w - STEP * curve[who] * (w - centre[who])
        w = share[who] @ ends / share[who].sum()
    close(run.model, w)
    assert run.timeline.finished.sum() < 0.7 * run.timeline.finished.shape[0] / 2 * NODES


# --- FedAP


@pytest.mark.parametrize("selection", ["fastest", "sinr"])
def test_fedap_converges_to_the_minimum_over_those_who_are_always_first(quadratics, selection):
    problem = quadratics(nodes=NODES, heterogeneity=1.0, condition=2.0)

    run = simulate(
        problem,
        ideal(),
        fedap(0.8, m=2, selection=selection),
        slots=150,
        clock=Clock(compute_slots=(1, 3, 2, 1)),
        recording=Recording(150, timeline=True),
    )

    first = [0, 3]
    x, y = np.asarray(problem.x)[first, 0], np.asarray(problem.y)[first, 0]
    np.testing.assert_allclose(run.model, np.sum(x * y, axis=0) / np.sum(y, axis=0), rtol=1e-9)
    assert run.timeline.up_started.sum(axis=0).tolist() == [150, 0, 0, 150]
    assert run.last("optimum_distance") > 0.1


def test_fedap_takes_the_first_m_uploads_with_ties_at_random(x64):
    """Node 3 is first; of nodes 0, 1 and 2, which come together, each is the second in a third."""
    uploads, server = np.eye(4), server_of(fedap(0.1, m=2))

    def one_round(key):
        earlier, later = jax.random.split(key)
        state = server.receive(
            server.init(jnp.zeros(4), 4), box(uploads, [0, 0, 0, 1], [0] * 4), earlier
        )
        closed = server.receive(state, box(uploads, [1, 1, 1, 0], [0] * 4), later)
        return state.answers, closed.answers, closed.params

    keys = jax.random.split(jax.random.key(1), 3000)
    open_still, answers, models = map(np.asarray, jax.vmap(one_round)(keys))

    assert not open_still.any()
    assert answers.all()
    np.testing.assert_allclose(np.sort(models, axis=1), np.tile([0, 0, 0.5, 0.5], (3000, 1)))
    np.testing.assert_allclose(models[:, 3], 0.5)
    np.testing.assert_allclose(2 * models[:, :3].mean(axis=0), 1 / 3, atol=0.03)


def test_fedap_uses_all_data_in_time_where_all_are_equally_fast(quadratics):
    """The mean of its models circles the optimum of F; that of nodes 0 and 1 is far from it."""
    problem = quadratics(nodes=NODES, heterogeneity=1.0, condition=1.0)

    run = simulate(problem, round_trip(1), fedap(0.02, m=2), slots=2400, recording=Recording(50))

    two = np.asarray(problem.x)[:2, 0].mean(axis=0)
    away = np.mean(run.column("optimum_distance")[-24:])
    assert away < 0.2 * np.linalg.norm(two - np.asarray(problem.optimum))


def test_fedap_ignores_uploads_of_rounds_gone_by():
    server = server_of(fedap(0.1, m=1))
    state = server.init(jnp.zeros(2), 2)._replace(rounds=jnp.asarray(3, jnp.int32))

    late = server.receive(state, box(np.ones((2, 2)), [1, 0], [2, 3]), jax.random.key(0))

    assert late.rounds == 3
    assert not late.arrived.any()


def test_fedap_at_random_is_fair(x64):
    algorithm, uploads = fedap(0.1, m=1, selection="random"), np.eye(5)
    server = server_of(algorithm)
    (_, _, state) = next(drive(algorithm, [range(5)], uploads, jnp.zeros(5)))  # round 0 takes all

    def one_round(key):
        draw, later = jax.random.split(key)
        drawn = server.receive(
            state._replace(chosen=jnp.ones(5, bool)), box(uploads, [1] * 5, [1] * 5), draw
        )
        return server.receive(drawn, box(uploads, [1] * 5, [2] * 5), later).params

    models = np.asarray(jax.vmap(one_round)(jax.random.split(jax.random.key(1), 4000)))

    np.testing.assert_array_equal(
        np.sort(models, axis=1), np.tile([0, 0, 0, 0, 1], (4000, 1))
    )  # one upload each
    assert np.abs(models.mean(axis=0) - 0.2).max() < 5 * np.sqrt(0.2 * 0.8 / 4000)


def test_fedap_at_random_lets_only_the_chosen_upload(quadratics):
    problem = quadratics(nodes=NODES)
    recording = Recording(21, timeline=True)

    run = simulate(
        problem, round_trip(2), fedap(STEP, m=3, selection="random"), slots=21, recording=recording
    )

    started = run.timeline.up_started.sum(axis=1)
    assert started[started > 0].tolist() == [4, 3, 3, 3, 3, 3, 3]
    assert run.timeline.finished.sum(axis=0).tolist() == [7] * NODES  # all compute, in vain or not


def test_fedap_by_sinr_closes_when_nothing_is_on_its_way():
    server, uploads = server_of(fedap(0.1, selection="sinr")), np.eye(3)
    state, key = server.init(jnp.zeros(3), 3), jax.random.key(0)

    quiet = server.receive(state, box(uploads, [0, 0, 0], [0] * 3, coming=[0, 0, 0]), key)
    waits = server.receive(quiet, box(uploads, [1, 0, 0], [0] * 3, coming=[0, 1, 0]), key)
    closed = server.receive(waits, box(uploads, [0, 1, 0], [0] * 3, coming=[0, 0, 0]), key)

    assert (quiet.rounds, waits.rounds, closed.rounds) == (0, 0, 1)
    np.testing.assert_allclose(closed.params, [0.5, 0.5, 0.0])
    with pytest.raises(ValueError, match="needs to know who is uploading"):
        server.receive(state, box(uploads, [0, 0, 0], [0] * 3), key)


# --- FedSA


def test_fedsa_with_equal_speeds_goes_round_robin(x64):
    arrivals = [[0, 1], [2, 3], [4, 5]] * 4

    rows = list(drive(fedsa(0.1, M=2), arrivals, np.eye(6), jnp.zeros(6)))

    for k, (stamps, before, after) in enumerate(rows):
        assert np.flatnonzero(after.answers).tolist() == arrivals[k]
        if k >= 3:
            assert (int(before.rounds) - stamps[arrivals[k]] == 6 // 2 - 1).all()
        if (k + 1) % 3 == 0:
            np.testing.assert_array_equal(relative_rates(after.counts, 4.0), np.ones(6))


@pytest.mark.parametrize(
    ("rule", "expected"), [("retain", [0.5, 0.8, 0.7]), ("mean", [0.0, 0.6, 0.4])]
)
def test_fedsa_retains_the_share_of_those_who_are_not_there_or_divides_it(x64, rule, expected):
    server = server_of(fedsa(0.1, M=2, aggregation=rule))
    inbox = box(np.eye(3), [0, 1, 1], [0, 0, 0], share=[0.5, 0.3, 0.2])

    after = server.receive(server.init(jnp.ones(3), 3), inbox, jax.random.key(0))

    np.testing.assert_allclose(after.params, expected, atol=1e-15)


def test_fedsas_rates_undo_uneven_participation_within_the_clip():
    rates = relative_rates(jnp.asarray([4, 2, 2, 0, 0, 0, 0, 0]), 4.0)  # f_i = 1/2, 1/4, 1/4

    np.testing.assert_allclose(rates, [0.25, 0.5, 0.5, 1, 1, 1, 1, 1])
    assert relative_rates(jnp.asarray([90, 9, 1]), 4.0).tolist() == pytest.approx(
        [100 / 270, 100 / 27, 4.0]
    )


def test_a_fedsa_node_takes_the_rate_it_is_told():
    algorithm, key = fedsa(0.5, M=1), jax.random.key(0)
    told = jnp.asarray([1.0, 1.0, 7.0, 4.0, 0.25])  # model, version, rates of three nodes
    answer = Inbox(
        told[None], jnp.zeros(1, jnp.int32), *([jnp.ones(1)] * 2), *([jnp.ones(1, bool)] * 3)
    )

    state = algorithm.receive(algorithm.init(jnp.zeros(2), Place(jnp.asarray(2), 3, key)), answer)
    moved = algorithm.update(state, answer, jnp.zeros(()), jnp.ones(2), key)

    np.testing.assert_allclose(algorithm.message(moved), [1 - 0.5 * 0.25, 1 - 0.5 * 0.25, 7.0])


def test_fedsa_waits_for_a_node_at_the_bound_and_takes_all_who_came_before(x64):
    arrivals = [[0], [1], [0], [1], [2], [0]]

    states = [
        after for *_, after in drive(fedsa(0.1, M=1, bound=2), arrivals, np.eye(3), jnp.zeros(3))
    ]

    assert [int(s.rounds) for s in states] == [1, 2, 2, 2, 3, 4]
    assert np.flatnonzero(states[4].answers).tolist() == [0, 1, 2]
    assert states[4].counts.tolist() == [2, 2, 1]
    assert Assumption.PRESENT in fedsa(0.1, bound=2).declares.assumes
    assert Assumption.PRESENT not in fedsa(0.1).declares.assumes


def test_fedsa_drops_what_is_beyond_the_bound_and_answers_it(x64):
    arrivals = [[0], [1], [0], [2], [2]]

    rows = list(drive(fedsa(0.1, M=1, bound=2, late="discard"), arrivals, np.eye(3), jnp.zeros(3)))

    states = [after for *_, after in rows]
    assert [int(s.rounds) for s in states] == [1, 2, 3, 3, 4]
    np.testing.assert_array_equal(states[3].params, states[2].params)
    assert states[3].answers.tolist() == [False, False, True]
    assert states[4].counts.tolist() == [2, 1, 1]


def test_fedsa_takes_several_rounds_in_one_slot_in_order_of_arrival(x64):
    first, second = (
        after for *_, after in drive(fedsa(0.1, M=2), [[4], [0, 1, 2, 3]], np.eye(5), jnp.zeros(5))
    )

    assert (first.rounds, second.rounds) == (0, 2)
    np.testing.assert_allclose(second.params, [0.2 * 0.6, 0.2, 0.2, 0.0, 0.2 * 0.6])
    assert second.answers.tolist() == [True, True, True, False, True]


@pytest.mark.parametrize(
    ("cycles", "number"),
    [([3.0] * 6, 6), ([1.0] * 5 + [100.0], 5), ([1.0, 1.0, 1.0, 9.0, 9.0, 9.0], 3)],
)
def test_fedsas_number_leaves_out_the_stragglers(cycles, number):
    assert best_number(cycles, 0.1, 0.5) == number


# --- FedAsync


def test_one_fedasync_worker_with_full_mixing_is_descent(quadratics):
    problem = quadratics(nodes=1)

    run = simulate(
        problem, round_trip(1), fedasync(STEP, 1.0, rho=0.0), slots=20, recording=Recording(20)
    )

    close(
        run.model, plain.descend(gradients(problem)[0], np.asarray(problem.initial), STEP, 10)[-1]
    )


def test_fedasync_without_mixing_stays_and_with_it_stays_in_the_hull(x64):
    uploads = np.eye(3)
    arrivals = [[0, 1], [2], [0, 1, 2], [1]]

    still = [
        after.params for *_, after in drive(fedasync(0.1, 0.0), arrivals, uploads, jnp.ones(3))
    ]
    moved = [
        after.params for *_, after in drive(fedasync(0.1, 0.6), arrivals, uploads, jnp.zeros(3))
    ]

    np.testing.assert_array_equal(still, np.ones((4, 3)))
    for params in np.asarray(moved):  # the hull of 0 and the unit vectors
        assert (params >= 0).all()
        assert params.sum() <= 1


@pytest.mark.parametrize("kind", ["constant", "polynomial", "hinge"])
def test_staleness_counts_one_at_zero_and_never_more_later(kind):
    s = staleness_factor(kind, 0.5, 4.0)(jnp.arange(20.0))

    assert s[0] == 1
    assert (np.diff(s) <= 0).all()
    if kind == "hinge":
        np.testing.assert_allclose(s[:8], [1, 1, 1, 1, 1, 1 / 1.5, 1 / 2, 1 / 2.5], rtol=1e-6)


def test_fedasync_takes_uploads_of_one_slot_one_after_the_other_and_drops_the_old(x64):
    server = server_of(fedasync(0.1, 0.5, staleness="polynomial", slope=1.0, max_staleness=3))
    state = server.init(jnp.ones(3), 3)._replace(rounds=jnp.asarray(4, jnp.int32))

    after = server.receive(state, box(np.eye(3), [1, 1, 1], [4, 0, 4]), jax.random.key(0))

    once = (
        0.5 * np.ones(3) + 0.5 * np.eye(3)[0]
    )  # age 0, then one of age 5, dropped, then one of age 1
    np.testing.assert_allclose(after.params, 0.75 * once + 0.25 * np.eye(3)[2])
    assert after.rounds == 6
    assert after.answers.all()


def test_fedasyncs_nodes_are_held_near_their_anchor(x64):
    algorithm, key = fedasync(0.1, rho=2.0, local_steps=2), jax.random.key(0)
    state = algorithm.init(jnp.zeros(1), Place(jnp.asarray(0), 1, key))
    for _ in range(2):
        state = algorithm.update(state, NOTHING, jnp.zeros(()), jnp.ones(1), key)

    np.testing.assert_allclose(algorithm.params(state), [-0.1 - 0.1 * (1 - 2.0 * 0.1)])


def test_the_pull_towards_the_anchor_is_along_the_way_that_was_gone(x64):
    """With the gradient v - c a node obeys v <- v - eta ((v - c) + rho (v - a)), a not 0."""
    step, rho, anchor, centre = 0.1, 0.5, np.array([3.0, -2.0]), np.array([1.0, 1.0])
    algorithm, key = fedasync(step, rho=rho, local_steps=4), jax.random.key(0)
    state = algorithm.init(jnp.asarray(anchor), Place(jnp.asarray(0), 1, key))

    for _ in range(4):
        grad = algorithm.point(state, NOTHING) - centre
        state = algorithm.update(state, NOTHING, jnp.zeros(()), grad, key)

    rest = (centre + rho * anchor) / (1 + rho)
    close(algorithm.params(state), rest + (1 - step * (1 + rho)) ** 4 * (anchor - rest))


# --- FedBuff


def test_fedbuff_with_a_buffer_of_one_and_no_discount_is_asynchronous_descent(x64):
    deltas = np.diag([1.0, 2.0, 3.0])

    states = [
        after
        for *_, after in drive(
            fedbuff(0.1, buffer_size=1, exponent=0.0), [[0, 2], [1]], deltas, jnp.zeros(3)
        )
    ]

    np.testing.assert_allclose(states[0].params, [-1.0, 0.0, -3.0])
    np.testing.assert_allclose(states[1].params, [-1.0, -2.0, -3.0])
    assert states[1].rounds == 3


@pytest.mark.parametrize("server_step", [1.0, 2.0])
def test_fedbuffs_moves_are_linear_in_the_server_step_and_discount_age(x64, server_step):
    arrivals = [[0], [1, 2], [3]]  # K = 2: 0 and 1 move the model, 2 and 3 are one move old then
    algorithm = fedbuff(0.1, buffer_size=2, server_step=server_step)

    states = [after for *_, after in drive(algorithm, arrivals, np.eye(4), jnp.zeros(4))]

    half, old = server_step / 2, server_step / 2 / np.sqrt(2)
    np.testing.assert_array_equal(states[0].params, np.zeros(4))
    np.testing.assert_allclose(states[1].params, [-half, -half, 0, 0])
    np.testing.assert_allclose(states[2].params, [-half, -half, -old, -old])
    assert [s.answers.tolist().count(True) for s in states] == [1, 2, 1]


@pytest.mark.parametrize(("nodes", "size"), [(4, 2), (19, 10), (30, 10)])
def test_fedbuff_waits_for_half_the_nodes_and_for_ten_at_most(x64, nodes, size):
    arrivals = [range(size - 1), [size - 1]]

    states = [s for *_, s in drive(fedbuff(0.1), arrivals, np.ones((nodes, 1)), jnp.zeros(1))]

    assert [int(state.rounds) for state in states] == [0, 1]
    np.testing.assert_allclose(states[1].params, -1.0)  # the mean of what was heard


# --- TWAFL


def test_temporal_weights_sum_to_one_and_discount_age_by_the_base(x64):
    weights = temporal_weights(jnp.asarray([0.2, 0.2, 0.6]), jnp.asarray([0, 1, 5]), np.e / 2)

    assert (weights > 0).all()
    assert weights.sum() == pytest.approx(1)
    assert weights[0] / weights[1] == pytest.approx(np.e / 2)


def test_twafl_moves_deep_layers_only_in_the_last_rounds_of_a_loop(quadratics):
    problem = quadratics(nodes=NODES, heterogeneity=1.0)
    algorithm = twafl(STEP, m=NODES, loop=3, deep_rounds=1, shapes=SHAPES)

    run = simulate(problem, ideal(), algorithm, slots=5, recording=Recording(1))

    shallow, full = 4 * 64 + 32, 10 * 64 + 32
    rounds = [full, shallow, full, shallow, shallow]  # round 0 is full; then 2, 5, 8, ...
    assert np.diff(run.column("bits")).tolist() == [
        NODES * up + down for up, down in zip(rounds, [*rounds[1:], full], strict=True)
    ]
    start, share = np.asarray(problem.initial), np.asarray(problem.share)
    path = plain.average(gradients(problem), start, share, STEP, 1, 5)
    close(run.model[:4], path[-1][:4])  # coordinates of a quadratic do not touch
    close(run.model[4:], path[2][4:])  # of rounds 0 and 2
    for node, gradient in zip(
        run.nodes, gradients(problem), strict=True
    ):  # round 2, then 3 and 4 on its own
        close(node[4:], plain.descend(gradient, path[1], STEP, 3)[-1][4:])


def test_twafl_remembers_the_uploads_of_those_who_are_not_drawn(quadratics):
    problem = quadratics(nodes=NODES, heterogeneity=1.0)
    recording = Recording(2, timeline=True)

    run = simulate(problem, ideal(), twafl(STEP, m=1), slots=2, recording=recording)

    start, share, grads = np.asarray(problem.initial), np.asarray(problem.share), gradients(problem)
    uploads = np.stack([plain.descend(g, start, STEP, 1)[-1] for g in grads])
    (drawn,) = np.flatnonzero(run.timeline.up_started[1])
    uploads[drawn] = plain.descend(grads[drawn], share @ uploads, STEP, 1)[-1]
    weights = share * np.where(np.arange(NODES) == drawn, 1.0, 2 / np.e)
    close(run.model, weights @ uploads / weights.sum())


# --- what is refused


@pytest.mark.parametrize(
    ("build", "options", "complaint"),
    [
        (adafl, {"tau": 0}, "tau must be 'adaptive' or at least 1"),
        (adafl, {"budget": 0}, "budget and tau_max must be at least 1"),
        (adafl, {"phi": 0.0}, "phi must be above 0"),
        (fedap, {"m": 0}, "m must be at least 1"),
        (fedap, {"m": 3}, "m must be at most the number of nodes, 2, got 3"),
        (fedap, {"selection": "slowest"}, "selection must be"),
        (fedap, {"local_steps": 0}, "local_steps must be at least 1"),
        (fedap, {"rule": "mode"}, "rule must be"),
        (fedsa, {"M": 3}, "M must be at most the number of nodes"),
        (fedsa, {"aggregation": "sum"}, "aggregation must be"),
        (fedsa, {"late": "never"}, "late must be"),
        (fedsa, {"bound": -1}, "bound counts rounds"),
        (fedsa, {"clip": 0.5}, "clip must be at least 1"),
        (fedasync, {"mixing": 1.5}, "mixing is a share"),
        (fedasync, {"staleness": "linear"}, "staleness must be"),
        (fedasync, {"rho": -1.0}, "must not be negative"),
        (fedasync, {"max_staleness": -1}, "max_staleness counts updates"),
        (fedbuff, {"buffer_size": 0}, "buffer_size must be at least 1"),
        (fedbuff, {"server_step": -1.0}, "server_step must not be negative"),
        (fedbuff, {"exponent": -1.0}, "exponent must not be negative"),
        (twafl, {"deep_rounds": 16}, "deep_rounds must be in 1 .. loop"),
        (twafl, {"base": 0.5}, "base must be at least 1"),
        (twafl, {"shapes": ((2, 2),)}, "shapes must hold the 5 parameters"),
        *(
            (build, {"step": -1.0}, "step must be a finite")
            for build in (adafl, fedap, fedsa, fedasync, fedbuff, twafl)
        ),
    ],
)
def test_wrong_options_are_refused(build, options, complaint):
    with pytest.raises(ValueError, match=complaint):
        server_of(build(**options)).init(jnp.zeros(5), 2)


def test_a_step_too_long_for_the_choice_of_m_is_refused():
    with pytest.raises(ValueError, match="mu times step"):
        best_number([1.0], 1.0, 2.0)


@pytest.mark.parametrize(
    "build", [fedap, fedsa, fedbuff, twafl, fedasync], ids=lambda b: b.__name__
)
def test_an_upload_that_is_not_finite_does_no_harm(x64, build):
    server = server_of(build(0.1))
    inbox = box(np.asarray([[1.0], [0.0]]), [1, 1], [0, 0], finite=[1, 0])

    after = server.receive(server.init(jnp.zeros(1), 2), inbox, jax.random.key(0))

    assert np.isfinite(after.params).all()
    assert after.answers.any()


def test_adafl_keeps_its_model_if_no_upload_is_finite(x64):
    server = server_of(adafl(0.1))
    inbox = box(np.zeros((2, 5)), [1, 1], [0, 0], finite=[0, 0])

    after = server.receive(server.init(jnp.full(1, 3.0), 2), inbox, jax.random.key(0))

    assert (after.params, after.best, after.tau) == (3.0, 3.0, 1)
