"""R-FAST: by its equations along a timeline, its mass in any order, and exact on lossy links."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkman import Recording, pipelined, simulate
from folkman.algorithm.base import Inbox, Place
from folkman.algorithm.pieces.topology import Graph
from folkman.algorithm.rfast import rfast
from folkman.packing import none
from folkman.radio.loss import Lossy
from reference import peers, plain
from reference.any_order import GRADIENTS, NODES, drawn, program
from reference.slots import teller

STEP = 0.1
IRREGULAR = "edges: 0>1 1>2 2>3 3>4 4>0 0>2 2>0"
LOSSY = Lossy(pipelined(2), 0.3)


def gradients_of(problem):
    parts = zip(np.asarray(problem.x), np.asarray(problem.y), strict=True)
    each = [partial(plain.quadratic_gradient, x=x, y=y) for x, y in parts]
    return lambda models: np.stack([of(w)[1] for of, w in zip(each, models, strict=True)])


def test_it_follows_its_equations_over_lossy_links(quadratics):
    problem = quadratics(nodes=NODES, heterogeneity=1.0)
    hears = Graph(IRREGULAR).adjacency(NODES)

    states, held = teller(problem, LOSSY, rfast(STEP, topology=IRREGULAR), 30)()

    x, z, rho = peers.track_on_own_beats(gradients_of(problem), problem.initial, hears, held, STEP)
    close = partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-12)
    close(states.params[1:], x[1:])
    close(states.tracked[1:], z[1:])
    close(states.pushed[1:], rho[1:])
    assert (held[-1][hears] < 27).any()  # some messages were lost or late


def test_what_is_held_and_on_its_way_sums_to_the_gradients_in_any_order():
    """Every node may hold any message ever sent, older ones after newer ones too."""
    algorithm = rfast(STEP, topology=IRREGULAR)
    out = Graph(IRREGULAR).adjacency(NODES).sum(axis=0)
    on_its_way = []

    @settings(max_examples=25, deadline=None, derandomize=True)
    @given(st.integers(0, 2**31), *[st.sampled_from([0.1, 0.5, 0.9])] * 2, st.integers(0, 12))
    def check(seed, computing, sending, late):
        lags, finishes, sends = drawn(seed, computing, sending, late)
        with jax.enable_x64(True):
            told = program(algorithm, none())(lags, finishes, sends)
        states = jax.tree.map(np.asarray, told)
        flight = (out[:, None] * states.pushed - states.taken).sum(axis=1)
        newest = np.zeros_like(states.grad)
        for slot, (done, grads) in enumerate(zip(finishes, GRADIENTS, strict=True)):
            newest[slot + 1] = np.where(done[:, None], grads, newest[slot])
        total = states.tracked.sum(axis=1) + flight
        np.testing.assert_allclose(total, newest.sum(axis=1), rtol=1e-9, atol=1e-9)
        on_its_way.append(np.abs(flight).max())

    check()
    assert max(on_its_way) > 1


@pytest.mark.parametrize(
    ("topology", "step"), [(IRREGULAR, 0.1), ("exponential", 0.15)], ids=["irregular", "circulant"]
)
def test_a_constant_step_ends_at_the_optimum_though_a_third_is_lost(quadratics, topology, step):
    problem = quadratics(nodes=NODES, heterogeneity=1.0)

    algorithm = rfast(step, topology=topology)
    run = simulate(problem, LOSSY, algorithm, slots=8000, recording=Recording(8000))

    assert run.last("optimum_distance") < 1e-8
    np.testing.assert_allclose(run.nodes, np.tile(problem.optimum, (NODES, 1)), atol=1e-7)


def test_graphs_that_change_or_have_weights_are_refused():
    for topology in ("matching", "schedule", "edges: 0>1:0.3 1>0:0.3"):
        with pytest.raises(ValueError, match="pushes equal parts to neighbours that stay"):
            rfast(topology=topology)


def test_an_empty_inbox_leaves_it_gradient_descent_by_what_it_keeps():
    """Alone a node pushes to nobody: z is its gradient, and a slot is a plain step."""
    algorithm = rfast(STEP)
    state = algorithm.init(jnp.ones(3), Place(jnp.zeros((), jnp.int32), 2, jax.random.key(0)))
    yes = jnp.ones(2, bool)
    nobody = Inbox(
        jnp.zeros((2, 6)), jnp.arange(2), jnp.zeros(2), jnp.ones(()), ~yes,
        jnp.zeros(2, jnp.int32), yes,
    )  # fmt: skip
    for _ in range(3):
        state = algorithm.receive(state, nobody)
        point = algorithm.point(state, nobody)
        state = algorithm.update(state, nobody, jnp.zeros(()), 2 * point, jax.random.key(0))
    np.testing.assert_allclose(algorithm.params(state), 0.8**2 * np.ones(3), rtol=1e-6)
