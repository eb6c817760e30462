"""Delay-adaptive steps and the age limit of Algorithm 1, against their formulas."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkman import (
    Clock,
    Inbox,
    Place,
    Recording,
    async_sharing,
    constant,
    ideal,
    pipelined,
    simulate,
)
from folkman.algorithm.pieces.delay_steps import (
    BACK,
    POLICIES,
    first_memory,
    step_under_delay,
)
from folkman.engine.simulate import Simulation, march, start

ETA, L = 0.1, 5.0


def steps_of(policy, delays, smoothness=L, num_nodes=3):
    """Return the steps that a policy takes for a sequence of delays."""
    memory, taken = first_memory(policy, smoothness, jnp.zeros(2)), []
    for delay in delays:
        step, memory = step_under_delay(
            memory,
            policy,
            eta=jnp.asarray(ETA),
            delay=jnp.asarray(delay),
            num_nodes=jnp.asarray(num_nodes),
            point=jnp.zeros(2),
            grad=jnp.zeros(2),
        )
        taken.append(float(step))
    return np.array(taken)


@pytest.mark.parametrize("policy", POLICIES)
def test_without_delay_every_policy_takes_the_base_step(policy):
    np.testing.assert_allclose(steps_of(policy, [0] * 5), ETA, rtol=1e-6)


def test_policies_follow_their_formulas():
    delays = np.array([1, 2, 3, 4, 10])

    np.testing.assert_allclose(steps_of("staleness", delays), ETA / delays, rtol=1e-6)
    np.testing.assert_allclose(
        steps_of("mishchenko", delays), np.minimum(ETA, 1 / (2 * L * delays)), rtol=1e-6
    )
    slow = np.where(delays <= 3, ETA, np.minimum(ETA, 1 / (4 * L * delays)))
    np.testing.assert_allclose(steps_of("koloskova", delays), slow, rtol=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=40))
def test_wus_window_holds_at_every_update(delays):
    """[4]: the steps of the last tau updates and of this one never sum to more than the base step."""
    delays = [min(delay, k) for k, delay in enumerate(delays)]
    for policy in ("wu_1", "wu_2"):
        taken = steps_of(policy, delays)
        for k, delay in enumerate(delays):
            assert taken[k - delay : k + 1].sum() <= ETA * (1 + 1e-5) or taken[k] == 0
        assert (taken >= 0).all()
        assert taken[0] == pytest.approx(ETA)


def test_the_estimate_of_smoothness_is_that_of_a_quadratic(x64):
    memory = first_memory("mishchenko", None, jnp.zeros(3))
    curvature = jnp.asarray([1.0, 2.0, 7.0])
    for point in (
        jnp.asarray([1.0, 0.0, 0.0]),
        jnp.asarray([0.0, 0.0, 0.0]),
        jnp.asarray([0.0, 0.0, 1.0]),
    ):
        _, memory = step_under_delay(
            memory,
            "mishchenko",
            eta=jnp.asarray(ETA),
            delay=jnp.asarray(4),
            num_nodes=jnp.asarray(3),
            point=point,
            grad=curvature * point,
        )

    assert float(memory.smoothness) == pytest.approx(7.0)


def test_stable_looks_at_the_curvature_along_the_last_moves(x64):
    """A swing along one axis has that axis's curvature, and is forgotten over the mean age."""
    memory, curvature = first_memory("stable", None, jnp.zeros(2)), jnp.asarray([1.0, 20.0])
    age, steps = 3, []

    def move(point, grad):
        nonlocal memory
        step, memory = step_under_delay(
            memory,
            "stable",
            eta=jnp.asarray(1.0),
            delay=jnp.asarray(9),
            mean_delay=jnp.asarray(age),
            num_nodes=jnp.asarray(3),
            point=point,
            grad=grad,
        )
        steps.append(float(step))

    for x in (4.0, 3.0, 2.0):  # even descent where the curvature is 1
        move(jnp.asarray([x, 0.0]), curvature * jnp.asarray([x, 0.0]))
    limit = 0.9 * 2 * np.sin(np.pi / (2 * (2 * age + 1)))  # the mean age, not that of the oldest
    assert steps[0] == 1.0  # nothing is known yet
    assert steps[1:] == pytest.approx([limit, limit])

    for y in (1.0, -1.0):  # a swing where it is 20
        move(jnp.asarray([2.0, y]), curvature * jnp.asarray([2.0, y]))
    kept = 1 - 1 / (1 + BACK * age)  # of three moves of squares 2, 1 and 4, the first two old
    squares = np.array([kept**3 + kept**2, kept, 4.0])  # first two even ones as one
    turned = squares @ [1.0, 20.0, 20.0]
    assert steps[-1] == pytest.approx(limit * squares.sum() / turned)


def test_noise_of_gradients_does_not_lower_the_ceiling_of_stable(x64):
    """Without correlation it cancels in the mean; the largest secant would be far above L."""
    rng = np.random.default_rng(0)
    found = []
    for policy in ("stable", "mishchenko"):
        memory = first_memory(policy, None, jnp.zeros(400))
        for x in np.linspace(4.0, 0.0, 60):
            point = np.full(400, x)
            _, memory = step_under_delay(
                memory,
                policy,
                eta=jnp.asarray(1.0),
                delay=jnp.asarray(10),
                num_nodes=jnp.asarray(3),
                point=jnp.asarray(point),
                grad=jnp.asarray(point + 0.5 * rng.standard_normal(400)),
            )
        product, square = memory.swing if policy == "stable" else (memory.smoothness, 1.0)
        found.append(float(product / square))
    assert found[0] == pytest.approx(1.0, abs=0.5)
    assert found[1] > 5


@pytest.mark.parametrize("delay", [1, 4])
def test_a_step_beyond_the_stability_limit_is_tamed(quadratics, delay):
    """With delay D identical quadratics are stable below 2 sin(pi / (2 (2D + 1))) / lambda; the policies find a way."""
    problem = quadratics(nodes=4, heterogeneity=0.0, condition=1.0)
    step = 1.2

    plain = simulate(
        problem, constant(delay), async_sharing(step), slots=300, recording=Recording(300)
    )
    start = float(jnp.linalg.norm(problem.initial - problem.optimum))
    if delay == 4:
        assert plain.status == "diverged" or plain.last("optimum_distance") > start
    for policy in ("staleness", "mishchenko", "wu_1", "wu_2"):
        tamed = async_sharing(step, delay_policy=policy)
        run = simulate(problem, constant(delay), tamed, slots=300, recording=Recording(300))
        assert run.last("optimum_distance") < 0.05 * start, policy


def test_copies_beyond_the_age_limit_are_left_out_and_the_others_scaled_up():
    algorithm = async_sharing(0.1, max_age=3)
    state = algorithm.init(jnp.asarray([8.0]), Place(jnp.asarray(0), 4, None))  # type: ignore[arg-type]
    box = Inbox(
        jnp.asarray([[0.0], [1.0], [2.0], [4.0]]),
        jnp.arange(4),
        jnp.asarray([0.0, 0.25, 0.25, 0.25]),
        jnp.asarray(0.25),
        jnp.ones(4, bool),
        jnp.asarray([0, 3, 4, 0]),
        jnp.ones(4, bool),
    )

    assert float(algorithm.point(state, box)[0]) == pytest.approx((8.0 + 1.0 + 4.0) / 3)


def test_an_age_limit_that_nothing_exceeds_changes_nothing(quadratics):
    problem = quadratics(nodes=3)
    left, right = (
        simulate(problem, ideal(), async_sharing(0.1, max_age=limit), slots=10).model
        for limit in (None, 5)
    )

    np.testing.assert_allclose(left, right, rtol=1e-12)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"delay_policy": "hope"}, "delay_policy must be one of"),
        ({"smoothness": 0.0}, "smoothness is L"),
        ({"max_age": -1}, "max_age counts slots"),
    ],
)
def test_wrong_options_are_refused(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        async_sharing(0.1, **options)


@pytest.mark.parametrize("compute_slots", [1, 5])
def test_the_estimate_is_that_at_the_points_of_the_gradients_however_long_they_take(
    quadratics, compute_slots
):
    """Copies that come while a gradient is in work are not in its point: told in NumPy."""
    slots, problem = 60, quadratics(nodes=4, dim=3, condition=6.0, heterogeneity=1.0)
    algorithm = async_sharing(0.1, delay_policy="mishchenko")
    simulation = Simulation(
        problem, pipelined(3), algorithm, Clock(1.0, compute_slots), Recording(1)
    )
    w, held = [], []
    first = mark = start(simulation, 1)
    for mark, _ in march(simulation, first, slots):
        w.append(np.asarray(mark.carry.states.params))
        held.append(np.asarray(mark.carry.medium.snapshots.held))

    alpha = np.asarray(problem.share)
    centre, curvature = (np.asarray(part)[:, 0] for part in (problem.x, problem.y))
    found = np.asarray(mark.carry.states.memory.smoothness)
    for i in range(4):
        begins = range(0, slots, compute_slots)
        v = np.array([sum(alpha[j] * w[t if j == i else held[t][i, j]][j] for j in range(4))
                      for t in begins])  # fmt: skip
        apart, steeper = np.diff(v, axis=0), np.diff(curvature[i] * (v - centre[i]), axis=0)
        moved = np.linalg.norm(apart, axis=1) > 0
        ratio = np.linalg.norm(steeper, axis=1)[moved] / np.linalg.norm(apart, axis=1)[moved]
        assert found[i] == pytest.approx(ratio.max(), rel=1e-6)
    largest = curvature.max(axis=1)  # one sample per node: its Hessian
    assert (found <= largest * (1 + 1e-9)).all()
    assert (found > 0.2 * largest).all()
