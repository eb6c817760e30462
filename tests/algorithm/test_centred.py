"""Own parts that are set back by the mean pace: a NumPy re-telling, no bias, and longer steps."""

import jax.numpy as jnp
import numpy as np
import pytest

from folkman import Clock, Recording, async_sharing, constant, iid, make_problem, simulate
from folkman.algorithm.base import Inbox
from folkman.algorithm.pieces.own_part import LONG, Copies, OwnPart
from folkman.algorithm.pieces.rules import Rule
from folkman.problem.data import quadratic
from reference import plain
from reference.own_part import share_with_own_part

COUNTS = (1, 2, 3)


@pytest.fixture
def unequal(x64):
    """Three nodes of unlike data and unlike numbers of samples."""
    samples = quadratic(nodes=3, dim=4, heterogeneity=1.0, condition=4.0, seed=2)
    parts = [np.full(count, node) for node, count in enumerate(COUNTS)]
    return make_problem(samples, "quadratic", parts, dtype="float64")


def run_of(problem, network, own, step, slots, **more):
    recording = Recording(slots, timeline=True)
    algorithm = async_sharing(step, own=own)
    return simulate(problem, network, algorithm, slots=slots, recording=recording, **more)


@pytest.mark.parametrize(
    ("network", "clock"),
    [(iid(5), Clock()), (constant(3), Clock()), (iid(4), Clock(compute_slots=(1, 2, 3)))],
)
def test_it_is_what_the_equations_say(unequal, network, clock):
    run = run_of(unequal, network, "centred", 0.2, 40, clock=clock)
    parts = [
        (np.asarray(unequal.x[i, :n]), np.asarray(unequal.y[i, :n])) for i, n in enumerate(COUNTS)
    ]
    gradients = [lambda w, x=x, y=y: plain.quadratic_gradient(w, x, y) for x, y in parts]
    told = share_with_own_part(
        gradients,
        np.asarray(unequal.initial),
        np.divide(COUNTS, sum(COUNTS)),
        run.timeline.held,
        0.2,
        "centred",
        finished=run.timeline.finished,
        constants={"long": LONG},
    )
    np.testing.assert_allclose(run.nodes, told[-1], rtol=0, atol=1e-12)


def test_without_delay_it_is_algorithm_1_to_the_bit(unequal):
    ends = [run_of(unequal, constant(0), own, 0.3, 30).nodes for own in ("newest", "centred")]
    np.testing.assert_array_equal(*ends)


@pytest.mark.parametrize("delay", [2, 7])
def test_where_ages_are_alike_unlike_data_leave_no_bias(unequal, delay):
    """The network's model rests at the optimum of F itself, and every node's point with it."""
    centres, curvatures = np.asarray(unequal.x[:, 0]), np.asarray(unequal.y[:, 0])
    weights = np.array(COUNTS)[:, None] * curvatures
    optimum, away = (weights * centres).sum(axis=0) / weights.sum(axis=0), {}
    for own in ("newest", "centred", "adaptive"):
        run = run_of(unequal, constant(delay), own, 0.05, 2500)
        model = np.divide(COUNTS, sum(COUNTS)) @ np.asarray(run.nodes)
        away[own] = np.linalg.norm(model - optimum)
    assert away["centred"] < 1e-10
    assert away["adaptive"] < 1e-10
    assert away["newest"] > 1e-3  # the bias of equation (9): the test can tell


def radius(e, delay, share):
    """Return the largest root of nodes alike: w(t), ..., w(t-D) and the pace as one vector."""
    size = delay + 2
    system = np.zeros((size, size))
    system[1 : delay + 1, :delay] = np.eye(delay)
    point = np.zeros(size)
    point[0], point[-1] = share, -share * delay
    point[delay] += 1 - share
    system[0, 0] = 1
    system[0] -= e * point
    part = 1 / (1 + LONG * delay)
    system[-1] = part * (system[0] - np.eye(size)[0])
    system[-1, -1] += 1 - part
    return np.abs(np.linalg.eigvals(system)).max()


def limit(delay, share):
    steps = np.linspace(0.005, 2.5, 1000)
    grows = [radius(e, delay, share) > 1 + 1e-9 for e in steps]
    return steps[np.argmax(grows)] if any(grows) else np.inf


@pytest.mark.parametrize("share", [1 / 15, 1 / 5, 1 / 2])
@pytest.mark.parametrize("delay", [1, 2, 5, 10, 20])
def test_it_bears_longer_steps_than_aligned_parts(delay, share):
    assert limit(delay, share) > 2 * np.sin(np.pi / (2 * (2 * delay + 1)))


@pytest.mark.parametrize("beyond", [0.97, 1.03])
def test_runs_grow_just_beyond_the_limit_of_the_roots(x64, beyond):
    nodes, delay = 4, 5
    samples = quadratic(nodes=1, dim=1, heterogeneity=0.0, condition=1.0, seed=1)
    problem = make_problem(samples, "quadratic", [np.zeros(1, int)] * nodes, dtype="float64")
    step = beyond * limit(delay, 1 / nodes)
    run = run_of(problem, constant(delay), "centred", float(step), 1500)
    away = float(np.abs(np.mean(run.nodes, axis=0) - problem.optimum).max())
    first = float(np.abs(np.asarray(problem.initial) - problem.optimum).max())
    assert (away > 10 * first) if beyond > 1 else (away < first / 10)


def test_an_even_movement_is_taken_for_the_pace():
    """After many even slots the own part is where it was when the copies were made."""
    part, pace = OwnPart("centred"), jnp.array([1.0, -2.0])
    inbox = Inbox(
        store=jnp.zeros((1, 2)),
        row=jnp.zeros(1, jnp.int32),
        weight=jnp.full(1, 0.5),
        own_weight=jnp.asarray(0.5),
        heard=jnp.ones(1, bool),
        age=jnp.full(1, 3, jnp.int32),
        finite=jnp.ones(1, bool),
    )
    copies = Copies(inbox, None, inbox.own_weight)
    kept = part.first(jnp.zeros(2))
    for slot in range(1, 200):
        kept = part.heard(kept, pace * slot, copies)
    own = part.aggregate(kept, pace * 199, copies, Rule(), lambda: jnp.zeros(()))  # half of it
    np.testing.assert_allclose(2 * own, pace * 196, atol=1e-3)


def test_nodes_alike_trust_half_of_their_progress(x64):
    samples = quadratic(nodes=1, dim=3, heterogeneity=0.0, condition=4.0, seed=1)
    problem = make_problem(samples, "quadratic", [np.zeros(1, int)] * 3, dtype="float64")
    half, adaptive = (run_of(problem, constant(4), own, 0.2, 60).nodes for own in (0.5, "adaptive"))
    unlike = run_of(problem, constant(4), "centred", 0.2, 60).nodes
    away = np.abs(adaptive - half).max()  # they differ by the first window alone
    assert away < 0.2 * np.abs(unlike - half).max()
