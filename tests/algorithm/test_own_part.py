"""The own part of Algorithm 1: exact reductions, stability and bias in closed form, a NumPy re-telling."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkman import (
    Clock,
    Faults,
    Inbox,
    Place,
    Recording,
    async_sharing,
    constant,
    iid,
    make_problem,
    pipelined,
    reference,
    simulate,
)
from folkman.algorithm.pieces import own_part
from folkman.algorithm.pieces.stable_steps import least_rho, stable_limit
from folkman.problem.data import DataSet, quadratic
from reference import plain
from reference.own_part import share_with_own_part

COUNTS = (1, 2, 3)
CONSTANTS = {
    "least": own_part.LEAST,
    "most": own_part.MOST,
    "gain": own_part.GAIN,
    "window": own_part.WINDOW,
    "kept": own_part.KEPT,
    "start": own_part.START,
    "long": own_part.LONG,
}


def unequal(dim=4):
    """Three nodes of unlike data and unlike numbers of samples."""
    samples = quadratic(nodes=3, dim=dim, heterogeneity=1.0, condition=4.0, seed=2)
    parts = [np.full(count, node) for node, count in enumerate(COUNTS)]
    return make_problem(samples, "quadratic", parts, dtype="float64")


def told(problem, held, step, rho, **more):
    """Tell a run again."""
    parts = [
        (np.asarray(problem.x[i, :n]), np.asarray(problem.y[i, :n])) for i, n in enumerate(COUNTS)
    ]
    gradients = [lambda w, x=x, y=y: plain.quadratic_gradient(w, x, y) for x, y in parts]
    alpha = np.divide(COUNTS, sum(COUNTS))
    start = np.asarray(problem.initial)
    return share_with_own_part(
        gradients, start, alpha, held, step, rho, constants=CONSTANTS, **more
    )


def run_of(problem, network, algorithm, slots, **more):
    recording = Recording(slots, timeline=True)
    return simulate(problem, network, algorithm, slots=slots, recording=recording, **more)


def equal_nodes(nodes, centres=(1.0,)):
    """Return 0.5 (w - centre_i)^2 with centres of mean 1, start 0."""
    ones = np.ones((nodes, 1), np.float32)
    samples = DataSet(
        "equal",
        np.array(centres, np.float32)[:, None] * ones,
        ones,
        ones[:1],
        ones[:1],
        0,
        np.arange(nodes),
        np.ones(1),
    )
    parts = [np.array([i]) for i in range(nodes)]
    return make_problem(samples, "quadratic", parts, dtype="float64")


# -- reductions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("network", [constant(3), pipelined(4), iid(5)], ids=lambda n: n.name)
def test_a_share_of_alpha_is_algorithm_1(quadratics, network):
    problem = quadratics(nodes=4, dim=3, heterogeneity=1.0)

    newest = simulate(problem, network, async_sharing(0.1), slots=40)
    knob = simulate(problem, network, async_sharing(0.1, own=0.25, memory=16), slots=40)

    np.testing.assert_allclose(knob.nodes, newest.nodes, rtol=1e-12, atol=1e-12)


def test_the_newest_own_part_needs_no_memory():
    place = Place(jnp.asarray(0), 4, jax.random.key(0))
    sizes = {
        own: sum(
            leaf.size
            for leaf in jax.tree.leaves(async_sharing(own=own, memory=9).init(jnp.ones(5), place))
        )
        for own in ("newest", "aligned", "measured")
    }

    assert async_sharing().init(jnp.ones(5), place).own is None
    assert sizes["aligned"] == sizes["newest"] + 9 * (5 + 1) + 2  # a ring, its slots, clock and rho
    assert sizes["measured"] == sizes["aligned"] + 2 * 5 + 3


@pytest.mark.parametrize("delay", [1, 4])
def test_aligned_nodes_alike_descend_with_a_delay(x64, delay):
    """w(t+1) = w(t) - eta grad F(w(t - D)), exactly."""
    step, slots = 0.2, 40
    w = [0.0]
    for t in range(slots):
        w.append(w[t] - step * (w[max(t - delay, 0)] - 1.0))

    algorithm = async_sharing(step, own="aligned", memory=8)
    run = simulate(equal_nodes(3), constant(delay), algorithm, slots=slots)

    np.testing.assert_allclose(run.nodes[:, 0], w[-1], rtol=1e-13)


def test_all_of_the_own_progress_undoes_the_delay_of_nodes_alike(x64):
    """With rho = 1 and equal nodes v_i is w(t): descent without delay, whatever D is."""
    algorithm = async_sharing(0.2, own=1.0, memory=8)
    run = simulate(equal_nodes(3), constant(5), algorithm, slots=30)

    np.testing.assert_allclose(run.nodes[:, 0], 1.0 - (1.0 - 0.2) ** 30, rtol=1e-13)


# -- stability -------------------------------------------------------------------------------------


def radius(e, rho, delay):
    """Return the largest |z| with z^(D+1) = z^D (1 - e rho) - e (1 - rho)."""
    coefficients = np.zeros(delay + 2)
    coefficients[0], coefficients[1] = 1.0, -(1.0 - e * rho)
    coefficients[-1] += e * (1.0 - rho)
    return np.abs(np.roots(coefficients)).max()


def apart(e, rho, delay):
    """Return the largest |z| of the nodes' differences, the drift z = 1 left out."""
    return np.abs(np.roots([1.0] + [e * rho] * delay)).max()


@settings(max_examples=60, deadline=None)
@given(st.floats(0.0, 1.0), st.integers(1, 30))
def test_the_limit_is_where_a_root_crosses_the_unit_circle(rho, delay):
    with jax.enable_x64(True):
        limit = float(stable_limit(jnp.asarray(rho), jnp.asarray(float(delay))))

    assert radius(0.999 * limit, rho, delay) <= 1 + 1e-9
    assert apart(0.999 * limit, rho, delay) <= 1 + 1e-9
    beyond = max(radius(1.01 * limit, rho, delay), apart(1.01 * limit, rho, delay))
    assert beyond > 1 or rho > 0.49  # e <= 2 is asked for also where an odd delay allows more


@pytest.mark.parametrize("delay", [1, 2, 7, 22])
def test_without_own_progress_the_limit_is_the_known_one(x64, delay):
    limit = stable_limit(jnp.asarray(0.0), jnp.asarray(float(delay)))

    assert float(limit) == pytest.approx(2 * np.sin(np.pi / (2 * (2 * delay + 1))), rel=1e-7)


@settings(max_examples=40, deadline=None)
@given(st.floats(0.0, 0.49), st.integers(1, 30))
def test_the_least_share_gives_back_the_limit(rho, delay):
    with jax.enable_x64(True):
        late = jnp.asarray(float(delay))
        limit = stable_limit(jnp.asarray(rho), late)
        found = float(least_rho(limit, late))

    assert found == pytest.approx(rho, abs=1e-5) or float(limit) == 2.0


@pytest.mark.parametrize(
    ("own", "limit"), [("aligned", 2 * np.sin(np.pi / 18)), (0.2, 0.4919), (0.5, 2.0), (0.8, 1.25)]
)
def test_runs_grow_just_beyond_the_limit(x64, own, limit):
    """Copies four slots old; a little off the common start, so that differences can grow too."""
    problem = equal_nodes(3, (0.0, 1.0, 2.0))

    def late_over_early(e):
        algorithm = async_sharing(e, own=own, memory=8)
        run = simulate(problem, constant(4), algorithm, slots=1400, recording=Recording(7))
        far = np.array(run.column("optimum_distance"))
        spread = np.abs(np.diff(run.column("consensus")))
        return max(far[-50:].max() / far[10:60].max(), spread[-50:].max() / spread[10:60].max())

    assert late_over_early(0.97 * limit) < 1
    assert late_over_early(1.03 * limit) > 1


@pytest.mark.parametrize("own", ["newest", "aligned", 0.5, "measured", "centred"])
@pytest.mark.parametrize("smoothness", [1.0, None], ids=["given", "estimated"])
def test_a_step_that_knows_the_ages_is_stable_whatever_it_was(x64, own, smoothness):
    problem = equal_nodes(3)
    algorithm = async_sharing(5.0, own=own, memory=8, delay_policy="stable", smoothness=smoothness)

    run = simulate(problem, constant(4), algorithm, slots=600, recording=Recording(600))

    # of a first one of 1; so near the limit it dies out slowly
    assert run.last("optimum_distance") < 0.3


def test_the_ceiling_leaves_a_small_step_as_it_is(quadratics):
    problem = quadratics(nodes=3, dim=3)
    left, right = (
        simulate(problem, constant(2), async_sharing(0.01, **options), slots=20).nodes
        for options in ({}, {"delay_policy": "stable", "smoothness": 20.0})
    )

    np.testing.assert_array_equal(left, right)


# -- bias ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("own", ["newest", "aligned", 0.4, 1.0])
def test_the_bias_of_unlike_data_is_that_of_moreau_envelopes(x64, own):
    """w ends where sum_i alpha_i k_i (w - c_i) = 0, k_i = h_i / (1 + eta rho_i D h_i): no bias if aligned."""
    problem, step, delay = unequal(), 0.05, 3
    alpha = np.divide(COUNTS, sum(COUNTS))
    rho = {"newest": alpha, "aligned": np.zeros(3)}.get(own, np.full(3, own))
    curvature = np.asarray(problem.y[:, 0])
    k = alpha[:, None] * curvature / (1 + step * rho[:, None] * delay * curvature)
    expected = (k * np.asarray(problem.x[:, 0])).sum(axis=0) / k.sum(axis=0)

    run = simulate(problem, constant(delay), async_sharing(step, own=own, memory=8), slots=3000)

    np.testing.assert_allclose(run.model, expected, rtol=1e-7, atol=1e-9)
    pull = alpha[:, None] * curvature
    optimum = (pull * np.asarray(problem.x[:, 0])).sum(axis=0) / pull.sum(axis=0)
    assert (np.abs(expected - optimum).max() < 1e-12) == (own == "aligned")


# -- told again ------------------------------------------------------------------------------------


@pytest.mark.parametrize("own", ["aligned", 0.7, "measured", "adaptive"])
@pytest.mark.parametrize("network", [pipelined(4), iid(6)], ids=lambda n: n.name)
def test_it_is_what_the_equations_say(x64, own, network):
    problem = unequal()

    run = run_of(problem, network, async_sharing(0.1, own=own, memory=16), 60, seed=3)

    path = told(problem, run.timeline.held, 0.1, 0.0 if own == "aligned" else own)
    np.testing.assert_allclose(run.nodes, path[-1], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("own", ["aligned", "measured", "adaptive"])
def test_ages_count_slots_also_where_gradients_take_several(x64, own):
    problem, algorithm = unequal(), async_sharing(0.1, own=own, memory=16)

    run = run_of(problem, pipelined(4), algorithm, 60, clock=Clock(1.0, (1, 2, 5)), seed=3)

    rho = 0.0 if own == "aligned" else own
    path = told(problem, run.timeline.held, 0.1, rho, finished=run.timeline.finished)
    np.testing.assert_allclose(run.nodes, path[-1], rtol=1e-9, atol=1e-11)
    slow = reference(problem, run.timeline, algorithm, seed=3)
    np.testing.assert_allclose(run.nodes, slow.nodes, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("own", ["aligned", "measured"])
def test_a_copy_older_than_the_memory_is_met_with_the_oldest_own_parameters(x64, own):
    problem, rho = unequal(), 0.0 if own == "aligned" else own

    run = run_of(problem, pipelined(6), async_sharing(0.1, own=own, memory=4), 50, seed=1)

    short = told(problem, run.timeline.held, 0.1, rho, memory=4)
    np.testing.assert_allclose(run.nodes, short[-1], rtol=1e-9, atol=1e-11)
    whole = told(problem, run.timeline.held, 0.1, rho)
    assert np.abs(short[-1] - whole[-1]).max() > 1e-3


def test_a_memory_of_one_is_the_newest_own_part_twice_over(x64):
    """Nothing older is kept: coherent part and progress collapse, and v_i is that of equation (9)."""
    problem = unequal()
    left, right = (
        simulate(problem, pipelined(4), async_sharing(0.1, **options), slots=30).nodes
        for options in ({}, {"own": 0.9, "memory": 1})
    )

    np.testing.assert_allclose(left, right, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("own", [0.3, "measured"])
def test_a_node_deploys_the_point_of_the_coming_slot(x64, own):
    algorithm = async_sharing(0.1, own=own, memory=8)
    state = algorithm.init(jnp.ones(3), Place(jnp.asarray(0), 3, jax.random.key(0)))
    for slot in range(6):
        box = boxed(jnp.full((3, 3), 1.0 - 0.01 * slot), ages=(0, 2, 3))
        assert algorithm.model is not None
        expected = algorithm.model(state, box)
        state = algorithm.receive(state, box)
        np.testing.assert_array_equal(expected, algorithm.point(state, box))
        state = algorithm.update(state, box, jnp.zeros(()), jnp.ones(3), jax.random.key(0))


# -- measured --------------------------------------------------------------------------------------


def boxed(store, ages):
    """Return the inbox of node 0 of three even nodes."""
    store = jnp.asarray(store)
    third = jnp.asarray(1 / 3, store.dtype)
    return Inbox(
        store,
        jnp.arange(3),
        jnp.asarray([0.0, 1 / 3, 1 / 3], store.dtype),
        third,
        jnp.ones(3, bool),
        jnp.asarray(ages, jnp.int32),
        jnp.ones(3, bool),
    )


def measured_rho(moves, slots=60, jump=None):
    """Return rho of a node that goes one way while the others go `moves` times as far, two slots ago."""
    algorithm = async_sharing(1.0, own="measured", memory=8)
    state = algorithm.init(jnp.zeros(2), Place(jnp.asarray(0), 3, jax.random.key(0)))
    way, found = jnp.asarray([-1.0, 0.5]), []
    slot = jax.jit(
        lambda state, box: algorithm.update(
            algorithm.receive(state, box), box, jnp.zeros(()), -way, jax.random.key(0)
        )
    )
    for t in range(slots):
        copies = jnp.tile(max(t - 2, 0) * moves * way, (3, 1))
        if jump is not None and t >= jump:
            copies = copies.at[1].add(-1e6 * way)
        state = slot(state, boxed(copies, ages=(0, min(t, 2), min(t, 2))))
        found.append(float(state.own.rho))
    return found


def test_others_that_move_alike_are_believed_and_others_that_do_not_are_not(x64):
    assert measured_rho(1.0)[-1] == pytest.approx(own_part.MOST)
    assert measured_rho(0.0)[-1] == pytest.approx(max(own_part.LEAST, 1 / 3))
    assert measured_rho(-1.0)[-1] == pytest.approx(max(own_part.LEAST, 1 / 3))


def test_a_neighbour_that_jumps_moves_rho_by_no_more_than_one_window(x64):
    """One that starts anew, or lies, counts like one window in which all moved against the node."""
    found = measured_rho(1.0, slots=240, jump=100)

    assert found[99] == pytest.approx(own_part.MOST)
    assert found[-1] > 0.9 * own_part.MOST
    assert min(found) >= own_part.LEAST


def test_nodes_that_crash_start_with_the_first_model_as_their_past(quadratics):
    problem = quadratics(nodes=3, dim=3, heterogeneity=0.0, condition=4.0)
    for own in ("aligned", "measured", "predicted"):
        algorithm = async_sharing(0.05, own=own, memory=8)
        faults = Faults(crash=((1, 20, 30),))
        run = simulate(
            problem, constant(2), algorithm, slots=800, faults=faults, recording=Recording(800)
        )
        assert run.last("optimum_distance") < 1e-3, own


# -- predicted -------------------------------------------------------------------------------------


def predicted(reach, age):
    """Return rho where eta c_i L is `reach` and all copies are so old."""
    part, none = own_part.OwnPart("predicted", 4), jnp.zeros(1)
    copies = own_part.Copies(inbox_of(age), None, jnp.asarray(0.5))
    return part.rho(part.first(none), copies, lambda: jnp.asarray(reach))


def inbox_of(age):
    """Return an inbox with one copy of this age and the weight 1/2."""
    return Inbox(
        store=jnp.zeros((1, 1)),
        row=jnp.zeros(1, jnp.int32),
        weight=jnp.full(1, 0.5),
        own_weight=jnp.asarray(0.5),
        heard=jnp.ones(1, bool),
        age=jnp.full(1, age, jnp.int32),
        finite=jnp.ones(1, bool),
    )


def test_the_predicted_share_makes_the_step_half_the_stable_one(x64):
    for step, age in ((0.3, 5), (0.05, 20), (0.8, 2)):
        rho = predicted(step, age)
        if 0 < float(rho) < 0.5:
            limit = stable_limit(rho, jnp.asarray(float(age)))
            assert float(limit) == pytest.approx(min(step / own_part.MARGIN, 2.0), rel=1e-5)
    small = predicted(1e-3, 20)
    assert float(small) == 0.0


def test_with_a_predicted_share_a_step_too_long_for_aligned_parts_converges(x64):
    problem, step = equal_nodes(3), 0.9  # of a limit of 0.347 at rho = 0
    ends = {
        own: simulate(
            problem,
            constant(4),
            async_sharing(step, own=own, memory=8, smoothness=1.0),
            slots=300,
            recording=Recording(300),
        )
        for own in ("aligned", "predicted")
    }

    assert ends["aligned"].status == "diverged" or ends["aligned"].last("optimum_distance") > 1
    assert ends["predicted"].last("optimum_distance") < 1e-3


# -- options ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"own": "oldest"}, "own must be one of"),
        ({"own": 1.5}, "own must be one of"),
        ({"own": -0.1}, "own must be one of"),
        ({"own": float("nan")}, "own must be one of"),
        ({"own": "aligned", "memory": 0}, "memory counts own parameters"),
        ({"own": "measured", "rule": "median"}, "looks at the plain sum"),
        ({"own": "predicted", "momentum": 0.9}, "without momentum"),
    ],
)
def test_wrong_options_are_refused(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        async_sharing(0.1, **options)


def test_a_number_is_an_argument_of_the_program_and_a_name_is_not():
    assert jax.tree.leaves(async_sharing(0.1, own=0.3)) == [0.1, 0.3]
    assert jax.tree.leaves(async_sharing(0.1, own="aligned")) == [0.1]
    alike = [jax.tree.structure(async_sharing(0.1, own=own)) for own in (0.3, 1)]
    assert alike[0] == alike[1] != jax.tree.structure(async_sharing(0.1, own="measured"))


@pytest.mark.parametrize("own", [0.4, "measured"])
def test_it_goes_with_momentum_an_age_limit_and_a_decay(quadratics, own):
    problem = quadratics(nodes=3, dim=3, heterogeneity=0.0, condition=4.0)
    algorithm = async_sharing(
        0.05, own=own, memory=8, momentum=0.5, max_age=4, decay="inverse_sqrt"
    )

    run = simulate(problem, pipelined(3), algorithm, slots=800, recording=Recording(800))

    assert run.last("optimum_distance") < 1e-3
