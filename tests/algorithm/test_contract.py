"""One contract for every algorithm: pure, stateless outside its state, shapes and bits kept, the same everywhere."""

import inspect
import sys
from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folkman import (
    ALGORITHMS,
    Broadcast,
    Inbox,
    Recording,
    constant,
    ideal,
    iid,
    load,
    make_problem,
    pipelined,
    reference,
    simulate,
)
from folkman.algorithm.base import Assumption, Place
from folkman.algorithm.pieces.steps import Decay, step_size
from folkman.engine.travel import medium_of
from folkman.problem.data import quadratic
from folkman.radio.loss import Lossy
from folkman.radio.network import RadioNetwork
from reference import wire

D, NODES = 6, 4
PLACE = Place(jnp.asarray(0, jnp.int32), NODES, jax.random.key(1))

# What a method needs to end at the optimum of equal quadratics: a sparse model cannot, momentum needs time.
# Epidemic learning with local draws keeps a noise that falls with the root of the step alone.
# SWIFT averages the same old models again and again unless it is told to wait for new ones, and is slow by nature.
OPTIONS = {
    "dispfl": {"density": 1.0},
    "adafl": {"budget": 100_000},
    "fedasync": {"rho": 0.0},
    "swift": {"missing": "self"},
    "epidemic": {"sampling": "oracle"},
    "dfedsam": {"rho": 0.0},  # a gradient at a distance of rho does not vanish at the optimum
}
EVERYONE = {
    "adafl": {"tau": 1},
    "fedsa": {"M": NODES},
    "fedbuff": {"buffer_size": NODES},
    "hierfavg": {"global_every": 1},
    "twafl": {"m": NODES},
}
"""What lets all nodes take part in every round."""


def build(name, **more):
    return ALGORITHMS[name](**{"step": 0.05, **OPTIONS.get(name, {}), **more})


def options_of(name):
    return inspect.signature(ALGORITHMS[name]).parameters


def with_everyone(name, **more):
    return build(name, **EVERYONE.get(name, {}), **more)


def inbox(key, algorithm, state, dtype=jnp.float32):
    """Everyone's message is the node's own, moved a little."""
    if algorithm.travel.servers:
        nearest = algorithm.travel.servers[0]
        first = nearest.message(nearest.init(jnp.ones(D, dtype), NODES))
        senders, weight, own = 1, jnp.ones(1, dtype), jnp.zeros((), dtype)
    else:
        first, senders = algorithm.message(state), NODES
        mixing = jnp.full((NODES, NODES), 1 / NODES)
        if algorithm.travel.mixing is not None:
            mixing = algorithm.travel.mixing.weights(jnp.ones((NODES, NODES), bool))
        weight, own = mixing[0].at[0].set(0.0).astype(dtype), mixing[0, 0].astype(dtype)
    noise = (
        jnp.zeros((senders, len(first)), dtype)
        .at[:, :D]
        .set(0.1 * jax.random.normal(key, (senders, D), dtype))
    )
    return Inbox(
        first[None].astype(dtype) + noise,
        jnp.arange(senders),
        weight,
        own,
        jnp.ones(senders, bool),
        jnp.zeros(senders, jnp.int32),
        jnp.ones(senders, bool),
    )


COUNTS = (1, 1, 1, 3)
"""Samples of the nodes where they are not alike."""


def on_unequal_nodes(objective, heterogeneity) -> Any:
    """Quadratics of which the last node has half of all samples, and where F is least.

    Emphasis is written out, also where it is 1, and both objectives go by one name, which nothing
    computes with: they then run one program.
    """
    samples = quadratic(nodes=NODES, heterogeneity=heterogeneity, condition=4.0)
    parts = [np.full(count, node) for node, count in enumerate(COUNTS)]
    problem = make_problem(samples, "quadratic", parts, dtype="float64", objective=objective)
    alpha = np.divide(COUNTS, sum(COUNTS)) if objective == "samples" else np.full(NODES, 1 / NODES)
    weight = alpha[:, None] * np.asarray(problem.y[:, 0])
    least = (weight * np.asarray(problem.x[:, 0])).sum(axis=0) / weight.sum(axis=0)
    emphasis = jnp.asarray(NODES * alpha, jnp.float64)
    return replace(problem, optimum=jnp.asarray(least), emphasis=emphasis, objective="samples")


WITH_MEMORY = {
    "async_sharing-aligned": {"own": "aligned"},
    "async_sharing-measured": {"own": "measured"},
    "async_sharing-predicted": {"own": "predicted", "delay_policy": "stable"},
}
"""Options that make another state of a method: they are held to the contract too."""


def build_case(case, **more):
    name, _, _ = case.partition("-")
    return build(name, **WITH_MEMORY.get(case, {}), **more)


EACH_WAY = ("async_sharing", "dpsgd", "fedavg", "hierfavg")
"""A method for each way in which messages travel."""


@pytest.fixture(
    params=[
        pytest.param(each, marks=() if each in EACH_WAY else pytest.mark.broad)
        for each in (*ALGORITHMS, *WITH_MEMORY)
    ],
    scope="module",
)
def case(request):
    """One method after the other through all of this file: its tests share compiled programs."""
    return request.param


@pytest.fixture
def name(case):
    if case in WITH_MEMORY:
        pytest.skip("the method itself is held to it")
    return case


@pytest.fixture
def algorithm(case):
    return build_case(case)


@cache
def recorded(case, varied) -> Any:
    """Return a problem on nodes of unequal size, a network, and a run with its timeline."""
    algorithm = build_case(case)
    alone = isinstance(algorithm.travel, Broadcast)
    network = (
        constant(2) if not varied else pipelined(3) if alone else iid(3)
    )  # to peers, iid may bring older copies
    return (problem := digits_on(PARTS, varied)), network, go(problem, network, algorithm)


PARTS = np.split(np.arange(100), (10, 35, 60))


def edges_of_rounds(algorithm) -> Any:
    """Return who is heard by whom in a round, a function (nodes, round); None if it is always so."""
    mixing = getattr(algorithm.travel, "mixing", None)
    if mixing is None or mixing.in_round is None:
        return None
    return lambda nodes, k: np.asarray(mixing.in_round(nodes, jnp.asarray(k))) * (1 - np.eye(nodes))


def digits_on(parts, varied):
    draws = {"batch": 8, "sampling": "epochs"} if varied else {}
    samples = load("digits", train_size=100)
    return make_problem(samples, "softmax", parts, dtype="float64", **draws)


def go(problem, network, algorithm):
    return simulate(problem, network, algorithm, slots=16, recording=Recording(16, timeline=True))


def live(algorithm, state, box, key):
    """One slot with the gradient 2 v."""
    state = algorithm.receive(state, box)
    v = algorithm.point(state, box)
    return algorithm.update(state, box, jnp.sum(v**2), 2 * v, key)


def test_it_runs_under_jit_and_vmap_and_gives_the_same(algorithm):
    key = jax.random.key(0)
    state = algorithm.init(jnp.ones(D), PLACE)
    box = inbox(key, algorithm, state)
    twice = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), state)
    traced = []

    def slot(state):
        traced.append(1)
        return live(algorithm, state, box, key)

    alone, compiled, both = (
        slot(state),
        (jit := jax.jit(slot))(state),
        jax.jit(jax.vmap(slot))(twice),
    )

    for a, b, c in zip(*map(jax.tree.leaves, (alone, compiled, both)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
        np.testing.assert_allclose(a, c[1], rtol=1e-6)
    traced.clear()
    jit(jit(compiled))
    assert not traced  # what it returns has the type of what it takes, weak types too


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_it_keeps_structure_shapes_and_dtypes(x64, algorithm, dtype):
    def before_and_after(key):
        state = algorithm.init(jnp.ones(D, dtype), PLACE)
        after = live(algorithm, state, inbox(key, algorithm, state, dtype), key)
        return state, after, algorithm.message(state)

    state, after, message = jax.eval_shape(before_and_after, jax.random.key(0))

    assert jax.tree.structure(state) == jax.tree.structure(after)
    for a, b in zip(jax.tree.leaves(state), jax.tree.leaves(after), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
    assert message.dtype == dtype


def test_an_empty_inbox_is_harmless(algorithm):
    """Nobody has been heard and nobody counts: the node goes on alone, with finite numbers."""
    key = jax.random.key(0)
    state = algorithm.init(jnp.ones(D), PLACE)
    full = inbox(key, algorithm, state)
    box = replace(
        full,
        heard=jnp.zeros_like(full.heard),
        weight=jnp.zeros_like(full.weight),
        own_weight=jnp.ones(()),
    )

    for _ in range(3):
        state = live(algorithm, state, box, key)

    assert all(
        np.isfinite(leaf).all()
        for leaf in jax.tree.leaves(state)
        if jnp.issubdtype(leaf.dtype, jnp.floating)
    )


def test_it_reaches_the_optimum_of_equal_quadratics(x64, algorithm):
    """On equal nodes the theory of every method here says that it does, without a floor."""
    problem = on_unequal_nodes("nodes", heterogeneity=0.0)

    run = simulate(problem, ideal(), algorithm, slots=4000, recording=Recording(4000))

    assert run.last("optimum_distance") < 1e-6


@pytest.mark.parametrize("more", [{}, {"local_steps": 2}], ids=["default", "local_steps"])
def test_it_reaches_the_optimum_where_nodes_differ_just_if_it_declares_so(x64, name, more):
    """Every method that of the same F, whether samples or nodes count alike."""
    if not more.keys() <= options_of(name).keys():
        pytest.skip("it has no such option")
    algorithm = with_everyone(name, **more)
    for objective in ("samples", "nodes"):
        problem = on_unequal_nodes(objective, heterogeneity=1.0)

        run = simulate(problem, ideal(), algorithm, slots=2500, recording=Recording(2500))

        assert (run.last("optimum_distance") < 1e-6) == algorithm.declares.exact, objective


@pytest.mark.parametrize("objective", ["samples", "nodes"])
def test_where_nodes_differ_it_stays_near_the_optimum_and_nearer_with_smaller_steps(
    x64, name, objective
):
    """Gossip and partial methods have a floor that shrinks with the step, unless declared biased."""
    declares = with_everyone(name).declares
    if declares.exact:
        pytest.skip("it declares to be exact")
    problem = on_unequal_nodes(objective, heterogeneity=0.3)
    far = []
    for step in (0.1, 0.0125):
        algorithm = build(name, step=step)
        run = simulate(problem, ideal(), algorithm, slots=6000, recording=Recording(6000))
        far.append(run.last("optimum_distance"))

    start = float(jnp.linalg.norm(problem.initial - problem.optimum))
    assert far[0] < 0.5 * start
    assert far[1] < max(0.6 * far[0], 1e-6) or declares.biased


def test_what_weighs_nodes_alike_takes_a_node_for_what_its_samples_count(x64, name):
    """Like even nodes whose losses are I alpha_i F_i, also where it ends at no optimum."""
    algorithm = build(name)
    if not (algorithm.declares.evenly and algorithm.declares.biased):
        pytest.skip("it uses the shares, or the test of its optimum says as much")
    unequal = on_unequal_nodes("samples", heterogeneity=1.0)
    emphasis = NODES * np.divide(COUNTS, sum(COUNTS))
    samples = quadratic(nodes=NODES, heterogeneity=1.0, condition=4.0)
    scaled = samples._replace(y_train=samples.y_train * emphasis[:, None])
    parts = [np.array([node]) for node in range(NODES)]
    even = make_problem(scaled, "quadratic", parts, dtype="float64")

    runs = [simulate(problem, constant(1), algorithm, slots=30) for problem in (unequal, even)]

    np.testing.assert_allclose(runs[0].nodes, runs[1].nodes, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(runs[0].model, runs[1].model, rtol=1e-10, atol=1e-12)


def test_it_survives_loss_and_delay(x64, case, algorithm):
    """Rounded to 16 bits; on the radio one method for each way to travel, since its programs are
    long, and methods that travel alike meet the same ones there."""
    over = RadioNetwork() if case in EACH_WAY else pipelined(2, bits_per_parameter=16)
    network, slots = Lossy(over, 0.3), 4000 if case in EACH_WAY else 8000
    assert Assumption.RELIABLE not in algorithm.declares.assumes  # none needs to declare it
    problem = on_unequal_nodes("nodes", heterogeneity=0.0)

    run = simulate(problem, network, algorithm, slots=slots, seed=1, recording=Recording(slots))

    start = float(jnp.linalg.norm(problem.initial - problem.optimum))
    assert run.last("optimum_distance") < 1e-2 * start
    assert run.last("bits") > 0


def test_the_same_seed_gives_the_same_bits(x64, case):
    problem, network, left = recorded(case, varied=True)

    right = go(problem, network, build_case(case))

    np.testing.assert_array_equal(left.nodes, right.nodes)
    assert left.column("train_loss") == right.column("train_loss")
    assert not np.array_equal(left.nodes[0], problem.initial)  # it has moved


def test_a_step_of_zero_leaves_every_model_where_it_was(x64, case):
    problem, network, _ = recorded(case, varied=True)
    start = jnp.linspace(1.0, 2.0, problem.dim)

    run = go(replace(problem, initial=start), network, build_case(case, step=0.0))

    np.testing.assert_allclose(run.model, start, rtol=1e-13)
    np.testing.assert_allclose(run.nodes, np.tile(start, (NODES, 1)), rtol=1e-13)


def test_renumbering_the_nodes_renumbers_the_result_unless_it_draws(x64, name):
    adaptive = {"tau": "adaptive"} if name == "adafl" else {}
    algorithm = ALGORITHMS[name](step=0.05, **EVERYONE.get(name, {}) | adaptive)
    if algorithm.declares.draws:
        pytest.skip("it draws, or breaks ties by number")
    orders = PARTS, PARTS[::-1]  # a ring read backwards is a ring

    left, right = (go(digits_on(parts, False), constant(2), algorithm) for parts in orders)

    np.testing.assert_allclose(left.nodes, right.nodes[::-1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("varied", [False, True], ids=["constant", "varied"])
def test_simulator_reference_and_byte_level_nodes_agree(x64, case, varied):
    problem, _, run = recorded(case, varied)
    algorithm = build_case(case)

    slow = reference(problem, run.timeline, algorithm)
    np.testing.assert_allclose(run.nodes, slow.nodes, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(run.model, slow.model, rtol=1e-9, atol=1e-12)
    if edges_of_rounds(algorithm) is not None:
        return  # a node that rests in a round is ahead on devices: tests/algorithm/test_graphs.py
    nodes, model = wire.play(problem, run.timeline, algorithm)
    np.testing.assert_allclose(run.nodes, nodes, rtol=1e-6, atol=1e-7)
    if model is not None:
        np.testing.assert_allclose(run.model, model, rtol=1e-6, atol=1e-7)


def test_bits_are_messages_times_their_price(x64, case, algorithm):
    problem, network, run = recorded(case, varied=False)

    up, down = medium_of(algorithm, network).prices(problem)
    if len(up) == len(down) == 1:
        if not algorithm.travel.servers:
            sent, served = run.timeline.sends.sum(), 0
            edges = edges_of_rounds(algorithm)
            if edges is not None:  # who has nobody to tell in a round sends nothing
                rounds = int(run.timeline.sends.any(axis=1).sum())
                sent = sum((edges(NODES, k) > 0).any(axis=0).sum() for k in range(rounds))
        else:
            sent, served = (
                run.timeline.up_started.sum(),
                run.timeline.down_started.any(axis=1).sum(),
            )
        assert run.last("bits") == sent * up[0] + served * down[0]


def test_a_step_that_cannot_be_taken_is_refused(name):
    for step in (-0.1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="step must be a finite number of at least 0"):
            ALGORITHMS[name](step=step)


@pytest.mark.parametrize(
    ("method", "options", "complaint"),
    [
        ("async_sharing", {"scaling": "global"}, "scaling must be"),
        ("fedavg", {"local_steps": 0}, "local_steps must be at least 1"),
        ("fedavg", {"optimizer": "lion"}, "optimizer must be"),
        ("fedavg", {"decay": "linear"}, "decay must be"),
        ("fedavg", {"decay_steps": 0}, "decay_steps must be at least 1"),
        ("fedavg", {"warmup_steps": -1}, "warmup_steps must be at least 0"),
        ("fedavg", {"schedule": ((5, 1.0), (2, 0.5))}, "schedule must be pairs"),
        ("fedavg", {"schedule": ((0, -1.0),)}, "schedule must be pairs"),
        ("fedavg", {"mu": -1.0}, "mu must be at least 0"),
        ("fedavg", {"participation": 0.0}, "participation is a part"),
        ("fedavg", {"server": "sgdm"}, "server must be"),
        ("fedavg", {"server_step": 0.0}, "server_step must be above 0"),
        ("dpsgd", {"momentum": 1.0}, "momentum must be"),
        (
            "async_sharing",
            {"momentum": 0.9, "delay_policy": "wu_1", "smoothness": 1.0},
            "momentum goes",
        ),
    ],
)
def test_wrong_options_are_refused(method, options, complaint):
    with pytest.raises(ValueError, match=complaint):
        ALGORITHMS[method](step=0.1, **options)


@pytest.mark.parametrize(
    ("decay", "steps", "factors"),
    [
        ("constant", 1, [1.0, 1.0, 1.0]),
        ("cosine", 100, [1.0, 0.5, 0.0]),
        ("exponential", 50, np.exp([0.0, -1.0, -2.0])),
        ("inverse_sqrt", 50, 1 / np.sqrt([1.0, 2.0, 3.0])),
    ],
)
def test_schedules_follow_their_formulas(decay, steps, factors):
    eta = step_size(0.2, Decay(decay, steps))

    found = np.array([eta(jnp.asarray(count), jnp.float32) for count in (0, 50, 100)], float)

    np.testing.assert_allclose(found, 0.2 * np.asarray(factors), rtol=1e-6, atol=1e-8)


def test_a_step_warms_up_in_equal_parts_and_follows_a_schedule_of_factors():
    warm = step_size(0.2, Decay("inverse_sqrt", 50, warmup_steps=4))
    stairs = step_size(0.2, Decay(schedule=((3, 0.5), (10, 0.0))))

    found = [
        [float(eta(jnp.asarray(n), jnp.float32)) for n in (0, 2, 3, 9, 10)]
        for eta in (warm, stairs)
    ]

    grown = np.array([0.25, 0.75, 1.0, 1.0, 1.0]) / np.sqrt(1 + np.array([0, 2, 3, 9, 10]) / 50)
    np.testing.assert_allclose(found[0], 0.2 * grown, rtol=1e-6)
    np.testing.assert_allclose(found[1], 0.2 * np.array([1.0, 1.0, 0.5, 0.5, 0.0]), rtol=1e-6)


def falling(count):
    return 0.05 / (1 + count)


def test_a_step_may_be_a_function_wherever_it_may_decay(name):
    if "decay" not in options_of(name):
        with pytest.raises(ValueError, match="step must be a number"):
            build(name, step=falling)
        return
    own, key = build(name, step=falling), jax.random.key(0)

    assert own == build(name, step=falling) != build(name, step=lambda count: 0.05 / (1 + count))
    assert hash(own) == hash(build(name, step=falling))
    states = []
    for algorithm in (own, build(name, decay="inverse_sqrt", decay_steps=1)):
        state = algorithm.init(jnp.ones(D), PLACE)
        states.append(live(algorithm, state, inbox(key, algorithm, state), key))
    for a, b in zip(*map(jax.tree.leaves, states), strict=True):  # both begin with 0.05
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_a_step_that_is_a_function_is_traced_once_and_followed(quadratics):
    problem, calls = quadratics(nodes=2, heterogeneity=0.0), []

    def step(count):
        calls.append(count)
        return 0.1 / (1 + count) ** 2

    algorithm = ALGORITHMS["fedavg"](step=step)
    run = simulate(problem, ideal(), algorithm, slots=9, recording=Recording(9))
    before = len(calls)
    again = simulate(problem, ideal(), algorithm, slots=9, seed=1, recording=Recording(9))

    assert len(calls) == before
    w, curvature = np.asarray(problem.initial), np.asarray(problem.y)[0, 0]
    for count in range(9):
        w = w - 0.1 / (1 + count) ** 2 * curvature * (w - np.asarray(problem.optimum))
    np.testing.assert_allclose(run.model, w, rtol=1e-10)
    np.testing.assert_allclose(again.model, w, rtol=1e-10)


@pytest.mark.parametrize(
    ("step", "more", "complaint"),
    [
        (lambda count: -0.1 - count, {}, "step.0. must be a finite number"),
        (lambda count: jnp.ones(2) * count, {}, "step.0. must be a finite number"),
        (lambda count: 0.1 * count, {"decay": "cosine"}, "leave decay out"),
    ],
)
def test_a_function_that_is_no_step_is_refused(step, more, complaint):
    with pytest.raises(ValueError, match=complaint):
        build("fedavg", step=step, **more)


def test_fedavgs_server_drops_what_is_not_finite_and_renormalises():
    (server,) = ALGORITHMS["fedavg"](step=0.1).travel.servers
    uploads = jnp.asarray([[1.0, 2.0], [0.0, 0.0], [5.0, 6.0]])
    box = Inbox(
        uploads,
        jnp.arange(3),
        jnp.asarray([0.5, 0.3, 0.2]),
        jnp.zeros(()),
        jnp.ones(3, bool),
        jnp.zeros(3, jnp.int32),
        jnp.asarray([True, False, True]),
    )

    after = server.receive(server.init(jnp.zeros(2), 3), box, jax.random.key(0))

    np.testing.assert_allclose(
        server.params(after), (0.5 * uploads[0] + 0.2 * uploads[2]) / 0.7, rtol=1e-6
    )
    nobody = server.receive(
        server.init(jnp.zeros(2), 3), replace(box, finite=jnp.zeros(3, bool)), jax.random.key(0)
    )
    assert np.isnan(server.params(nobody)).all()  # which stops the run


def test_its_docstring_has_the_reference_and_the_differences(name):
    doc = sys.modules[ALGORITHMS[name].__module__].__doc__ or ""

    assert "[1]" in doc
    assert "Differs from [1]" in doc
    assert "arXiv:" in doc or "doi" in doc.lower()


def test_a_rule_that_does_not_exist_or_trims_too_little_is_refused(name):
    if "rule" not in options_of(name):
        pytest.skip("it has no such option")
    with pytest.raises(ValueError, match="rule must be"):
        build(name, rule="mode")
    with pytest.raises(ValueError, match="trim"):
        build(name, rule="trimmed_mean", trim=-1)
    assert build(name, rule="trimmed_mean", trim=0).name == name


@pytest.mark.parametrize("option", ["local_steps", "every", "cells"])
def test_numbers_of_steps_begin_at_one(name, option):
    if option not in options_of(name):
        pytest.skip("it has no such option")
    with pytest.raises(ValueError, match=option):
        build(name, **{option: 0})
    assert build(name, **{option: 1}).name == name


def test_a_largest_age_of_zero_uses_only_what_was_just_formed():
    """The smallest that is allowed."""
    with pytest.raises(ValueError, match="max_age counts slots"):
        build("async_sharing", max_age=-1)
    algorithm = build("async_sharing", max_age=0)
    state = algorithm.init(jnp.ones(1), PLACE)
    held = Inbox(
        store=jnp.asarray([[0.0], [3.0], [5.0], [7.0]]),
        row=jnp.arange(NODES),
        weight=jnp.asarray([0.0, 0.25, 0.25, 0.25]),
        own_weight=jnp.asarray(0.25),
        heard=jnp.ones(NODES, bool),
        age=jnp.asarray([0, 0, 1, 2]),
        finite=jnp.ones(NODES, bool),
    )

    v = algorithm.point(state, held)

    np.testing.assert_allclose(v, [(1.0 + 3.0) / 2], rtol=1e-6)
