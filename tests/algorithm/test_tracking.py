"""Methods that are exact where data differ: by their equations, invariants and where they end."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkman import Compressed, Recording, constant, dpsgd, ideal, iid, pipelined, simulate
from folkman.algorithm.dsgt import dsgt
from folkman.algorithm.edm import edm
from folkman.algorithm.exact_diffusion import exact_diffusion
from folkman.algorithm.pieces.topology import Graph, metropolis
from folkman.algorithm.proxskip import proxskip, tosses
from folkman.packing import float16, int8
from folkman.radio.loss import Lossy
from reference import peers, plain
from reference.slots import teller

NODES, STEP, ROUNDS = 5, 0.1, 20
LOSSY = Lossy(iid(2), 0.3)
SEVERAL_SEEDS = settings(max_examples=5, deadline=None, derandomize=True)
close = partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-12)


def gradients_of(problem):
    parts = zip(np.asarray(problem.x), np.asarray(problem.y), strict=True)
    each = [partial(plain.quadratic_gradient, x=x, y=y) for x, y in parts]
    return lambda models: np.stack([of(w)[1] for of, w in zip(each, models, strict=True)])


def ring():
    return np.asarray(metropolis(jnp.asarray(Graph("ring").adjacency(NODES))), np.float64)


def lazy():
    return 0.5 * (np.eye(NODES) + ring())


@pytest.fixture
def uneven(quadratics):
    return quadratics(nodes=NODES, heterogeneity=1.0)


def test_dsgt_follows_its_equations(uneven):
    x, y = peers.track(gradients_of(uneven), uneven.initial, ring(), ring(), STEP, ROUNDS)

    states, _ = teller(uneven, ideal(), dsgt(STEP), ROUNDS)()

    close(states.memory.params[1:], (x - STEP * y)[:-1])
    close(states.memory.tracked[1:], y[:-1])


def test_dsgt_mixes_a_directed_graph_by_rows_and_by_columns(uneven):
    edges = "edges: 0>1 1>2 2>3 3>4 4>0 0>2 2>0"
    heard = Graph(edges).adjacency(NODES) | np.eye(NODES, dtype=bool)
    rows, columns = (heard / heard.sum(axis=axis, keepdims=True) for axis in (1, 0))
    x, y = peers.track(gradients_of(uneven), uneven.initial, rows, columns, STEP, ROUNDS)

    states, _ = teller(uneven, ideal(), dsgt(STEP, topology=edges), ROUNDS)()

    close(states.memory.params[1:], (x - STEP * y)[:-1])
    close(states.memory.tracked[1:], y[:-1])


@pytest.mark.parametrize("weights", ["lazy", "whole"])
@pytest.mark.parametrize("beta", [0.0, 0.8])
def test_exact_diffusion_follows_its_equations_with_momentum_too(uneven, weights, beta):
    matrix = lazy() if weights == "lazy" else ring()
    x = peers.diffuse(gradients_of(uneven), uneven.initial, matrix, STEP, ROUNDS, beta)
    algorithm = edm(STEP, beta, weights=weights) if beta else exact_diffusion(STEP, weights)

    states, _ = teller(uneven, ideal(), algorithm, ROUNDS + 1)()

    close(states.mixed[1:], x[: ROUNDS + 1])


def test_proxskip_follows_its_equations_between_rounds_of_drawn_lengths(uneven):
    lengths = [int(tosses(3, 0.4, jnp.asarray(number))) for number in range(8)]
    x = peers.skip(gradients_of(uneven), uneven.initial, lazy(), STEP, 0.4, lengths)

    states, _ = teller(uneven, ideal(), proxskip(STEP, 0.4, coin_seed=3), sum(lengths) + 1)()

    ends = np.cumsum(lengths) + 1
    close(states.mixed[ends], x[1:])
    assert len(set(lengths)) > 2


def test_tosses_follow_the_law_of_the_first_success():
    lengths = np.asarray(jax.vmap(partial(tosses, 0, 0.25))(jnp.arange(4000)))

    assert lengths.min() == 1
    assert abs(lengths.mean() - 4) < 4 * np.sqrt(12 / 4000)  # its variance is (1 - p) / p^2
    assert abs((lengths == 1).mean() - 0.25) < 4 * np.sqrt(0.25 * 0.75 / 4000)


SAME = {
    "ProxSkip, p = 1 = exact diffusion": (proxskip(STEP, 1.0), exact_diffusion(STEP)),
    "EDM, beta = 0 = exact diffusion": (edm(STEP, 0.0), exact_diffusion(STEP)),
    "DSGT, complete = D-PSGD of the mean": (
        dsgt(STEP, topology="complete"),
        dpsgd(STEP, "adapt_first", topology="complete"),
    ),
    "Exact diffusion, whole, complete = D-PSGD": (
        exact_diffusion(STEP, "whole", topology="complete"),
        dpsgd(STEP, "adapt_first", topology="complete"),
    ),
}


@pytest.mark.parametrize("row", SAME)
def test_methods_that_are_one_in_some_setting(uneven, row):
    left, right = (simulate(uneven, ideal(), each, slots=ROUNDS).model for each in SAME[row])

    close(left, right)
    assert np.linalg.norm(left - np.asarray(uneven.initial)) > 0.1


# --- what is kept, under loss and delay ---


def test_tracked_gradients_sum_to_the_gradients_under_loss_and_delay(uneven):
    """On a directed graph, whatever is lost and repeated; the seed decides what."""
    tell = teller(uneven, LOSSY, dsgt(STEP, topology="exponential"), 40)
    gone = []

    @SEVERAL_SEEDS
    @given(st.integers(0, 2**31))
    def check(seed):
        states, _ = tell(seed)
        ready = states.taken.min(axis=1) == 1  # all have taken the round's gradient
        tracked, grad = (part[ready].sum(axis=1) for part in states.memory[1:])
        np.testing.assert_allclose(tracked, grad, rtol=1e-9, atol=1e-9)
        gone.append(states.rounds[-1, 0])

    check()
    assert min(gone) > 1


@pytest.mark.parametrize(
    "algorithm",
    [exact_diffusion(STEP), edm(STEP, 0.8), proxskip(STEP, 0.5)],
    ids=lambda each: each.name,
)
def test_corrections_sum_to_zero_under_loss_and_delay(uneven, algorithm):
    tell = teller(uneven, LOSSY, algorithm, 40)

    @SEVERAL_SEEDS
    @given(st.integers(0, 2**31))
    def check(seed):
        states, _ = tell(seed)
        correction = states.memory.correction
        np.testing.assert_allclose(correction.sum(axis=1), 0.0, atol=1e-10)
        assert np.abs(correction[-1]).max() > 1e-3

    check()


# --- where they end ---


ENDS = {
    "dsgt": dsgt(0.3),
    "dsgt, directed": dsgt(0.2, topology="exponential"),
    "exact_diffusion": exact_diffusion(0.5),
    "exact_diffusion, momentum": exact_diffusion(0.3, momentum=0.5),
    "edm": edm(0.5, 0.5),
    "proxskip": proxskip(0.3, 0.5),
}


@pytest.mark.parametrize("case", ENDS)
def test_a_constant_step_ends_at_the_optimum_of_unlike_nodes(uneven, case):
    run = simulate(
        uneven, Lossy(pipelined(1), 0.3), ENDS[case], slots=6000, recording=Recording(6000)
    )

    assert run.last("optimum_distance") < 1e-8
    np.testing.assert_allclose(run.nodes, np.tile(uneven.optimum, (NODES, 1)), atol=1e-7)


def test_dpsgd_stops_where_its_fixed_point_is(uneven):
    """(1 - W) x + step H (x - c) = 0, which is not the optimum."""
    step, hessian, centre = 0.2, *(np.asarray(part)[:, 0] for part in (uneven.y, uneven.x))
    ends = np.empty((NODES, uneven.dim))
    for k in range(uneven.dim):
        system = np.eye(NODES) - ring() + step * np.diag(hessian[:, k])
        ends[:, k] = np.linalg.solve(system, step * hessian[:, k] * centre[:, k])

    run = simulate(uneven, ideal(), dpsgd(step), slots=3000, recording=Recording(3000))

    mixed = ring() @ ends
    close(run.model, mixed.mean(axis=0), atol=1e-8)
    assert np.linalg.norm(mixed.mean(axis=0) - uneven.optimum) > 1e-2


@pytest.mark.parametrize("build", [exact_diffusion, edm, proxskip], ids=lambda b: b.__name__)
def test_neighbours_that_change_are_refused(build):
    with pytest.raises(ValueError, match="needs neighbours that stay"):
        build(STEP, topology="matching")
    with pytest.raises(ValueError, match="the same neighbours in every round"):
        build(STEP, topology="schedule")
    with pytest.raises(ValueError, match="is directed"):
        build(STEP, topology="directed_ring")


def test_rounded_corrections_would_be_lost_so_they_are_refused_or_travel_as_computed(uneven):
    with pytest.raises(ValueError, match="'int8' would lose mass"):
        simulate(uneven, Compressed(constant(1), int8()), exact_diffusion(STEP), slots=2)
    runs = [
        simulate(uneven, network, exact_diffusion(STEP), slots=6)
        for network in (Compressed(constant(1), float16()), constant(1))
    ]
    np.testing.assert_array_equal(runs[0].nodes, runs[1].nodes)
    assert runs[0].last("bits") == runs[1].last("bits")
