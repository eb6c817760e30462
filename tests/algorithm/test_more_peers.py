"""DFedSAM, asynchronous DGD and A2CiD2: by their equations, and where they end."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkman import Recording, constant, dpsgd, ideal, pipelined, simulate, swift
from folkman.algorithm.a2cid2 import a2cid2, constants
from folkman.algorithm.async_dgd import async_dgd
from folkman.algorithm.dfedsam import dfedsam
from folkman.algorithm.pieces.topology import Graph, metropolis
from folkman.packing import none
from folkman.radio.loss import Lossy
from reference import any_order, peers, plain
from reference.slots import teller

NODES, STEP = 5, 0.1
LOSSY = Lossy(pipelined(2), 0.3)
close = partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-12)


def gradients_of(problem):
    parts = zip(np.asarray(problem.x), np.asarray(problem.y), strict=True)
    each = [partial(plain.quadratic_gradient, x=x, y=y) for x, y in parts]
    return lambda models: np.stack([of(w)[1] for of, w in zip(each, models, strict=True)])


def ring(nodes=NODES):
    return np.asarray(metropolis(jnp.asarray(Graph("ring").adjacency(nodes))), np.float64)


@pytest.fixture
def uneven(quadratics):
    return quadratics(nodes=NODES, heterogeneity=1.0)


def test_dfedsam_follows_its_equations(uneven):
    x = peers.sharpen(gradients_of(uneven), uneven.initial, ring(), STEP, 0.2, 3, rounds=5)

    states, _ = teller(uneven, ideal(), dfedsam(STEP, 0.2, local_steps=3), 31)()

    close(states.mixed[1::6], x)


def test_without_a_radius_dfedsam_is_dpsgd_at_every_second_gradient(uneven):
    left = simulate(uneven, ideal(), dfedsam(STEP, 0.0, local_steps=1), slots=20)
    right = simulate(uneven, ideal(), dpsgd(STEP, "adapt_first"), slots=10)

    close(left.model, right.model)


def test_dfedsam_circles_the_optimum_within_what_its_radius_moves_it(quadratics):
    """On equal quadratics a step at the optimum moves by at most eta rho L, L = 1 here."""
    problem = quadratics(nodes=NODES, heterogeneity=0.0)
    run = simulate(
        problem, ideal(), dfedsam(STEP, 0.5, local_steps=1), slots=2000, recording=Recording(2000)
    )

    assert 1e-3 < run.last("optimum_distance") <= STEP * 0.5


@pytest.mark.parametrize("form", ["atc", "dgd"])
def test_asynchronous_dgd_follows_its_equations_over_lossy_links(uneven, form):
    states, held = teller(uneven, LOSSY, async_dgd(STEP, form), 30)()

    shared = peers.descend_on_own_beats(
        gradients_of(uneven), uneven.initial, ring(), held, STEP, form
    )
    close(states.shared, shared)


def test_the_dgd_form_is_swift(uneven):
    left, right = (
        simulate(uneven, constant(2), algorithm, slots=20).nodes
        for algorithm in (async_dgd(STEP, "dgd"), swift(STEP))
    )

    close(left, right)


@pytest.mark.parametrize("network", [ideal(), LOSSY], ids=["at once", "lossy"])
def test_the_end_is_that_of_synchronous_steps_whatever_the_delay(uneven, network):
    """x = W (x - step H (x - c)), with a step near 2 / L that no delay shortens."""
    step, hessian, centre = 1.6, *(np.asarray(part)[:, 0] for part in (uneven.y, uneven.x))
    ends = np.empty((NODES, uneven.dim))
    for k in range(uneven.dim):
        curved = step * ring() @ np.diag(hessian[:, k])
        ends[:, k] = np.linalg.solve(np.eye(NODES) - ring() + curved, curved @ centre[:, k])

    run = simulate(uneven, network, async_dgd(step), slots=3000, recording=Recording(3000))

    close(run.model, ends.mean(axis=0), atol=1e-8)
    assert np.linalg.norm(ends.mean(axis=0) - uneven.optimum) > 1e-2


# --- A2CiD2 ---


def test_its_constants_are_those_of_the_authors_code():
    """A cycle of four: W has eigenvalues 1, 0, 0, -1, so L has 0, 1, 1, 2."""
    flow, pull = constants("ring", 4, 1.0)

    # chi_1 = 1; the resistance of an edge is half of 3/4 * 2: edges have conductance 1/2
    assert flow == pytest.approx(0.5 / np.sqrt(0.75))
    assert pull == pytest.approx(0.5 / np.sqrt(0.75))
    assert constants("ring", 16, 1.0)[1] > 2 * pull  # far nodes gain most
    twice = constants("ring", 4, 2.0)
    assert twice == pytest.approx((2 * flow, pull))


def events_of(states):
    """Return what happened in each slot, as `meet_with_momentum` has it."""
    done = states.number - states.waiting
    for before in range(len(done) - 1):
        now = before + 1
        answers = np.full(done.shape[1], -1)
        for j, i in np.argwhere(np.diff(states.served[before : now + 1], axis=0)[0] > 0):
            answers[j] = i
        active = np.arange(done.shape[1]) % 2 == 0
        ended = active & (done[now] > done[before])
        ends = np.where(ended, states.partner[before], -1)
        asks = active & (states.number[now] > states.number[before])
        yield answers, ends, asks


def test_a2cid2_follows_its_equations_along_its_meetings(quadratics):
    problem = quadratics(nodes=6, heterogeneity=1.0)
    flow, pull = constants("ring", 6, 1.0)
    values, vectors = np.linalg.eigh(flow * np.array([[-1.0, 1.0], [1.0, -1.0]]))

    states, _ = teller(problem, LOSSY, a2cid2(STEP), 60)()

    events = list(events_of(states.own))
    x, second = peers.meet_with_momentum(
        gradients_of(problem), problem.initial, vectors @ np.diag(np.exp(values)) @ vectors.T,
        pull, events, STEP,
    )  # fmt: skip
    close(states.own.params, x)
    close(states.second, second)
    assert sum((ends >= 0).sum() for _, ends, _ in events) > 5


def test_the_mean_of_both_copies_moves_by_gradients_alone_in_any_order():
    """Together with what meetings still owe: half of x_j - x_i, and a~ of it to the second copy."""
    algorithm = a2cid2(STEP, "bipartite")
    _, pull = constants("bipartite", any_order.NODES, 1.0)
    met = []

    @settings(max_examples=15, deadline=None, derandomize=True)
    @given(st.integers(0, 2**31), *[st.sampled_from([0.1, 0.5, 0.9])] * 2, st.integers(0, 12))
    def check(seed, computing, sending, late):
        lags, finishes, sends = any_order.drawn(seed, computing, sending, late)
        with jax.enable_x64(True):
            told = any_order.program(algorithm, none())(lags, finishes, sends)
        states = jax.tree.map(np.asarray, told)
        own, total = states.own, (states.own.params + states.second).sum(axis=1)
        for slot, j, place in np.argwhere(own.kept.partner >= 0):
            i = own.kept.partner[slot, j, place]
            if own.waiting[slot, i] and own.number[slot, i] == own.kept.number[slot, j, place]:
                whole = own.kept.model[slot, j, place] - own.frozen[slot, i]
                total[slot] += (0.5 + pull) * whole
        moved = -2 * STEP * (any_order.GRADIENTS * finishes[:, :, None]).sum(axis=1)
        expected = 2 * any_order.MODELS.sum(axis=0) + np.cumsum(moved, axis=0)
        np.testing.assert_allclose(total[1:], expected, rtol=1e-9, atol=1e-9)
        met.append((own.number - own.waiting)[-1, ::2].sum())

    check()
    assert max(met) > 3
