"""CGA, CompCGA and DisPFL against their equations: NumPy re-tellings, SciPy's NNLS, closed forms, exact reductions."""

from dataclasses import replace
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from folkman import Recording, constant, fedavg, ideal, make_problem, reference, simulate
from folkman.algorithm.base import Place
from folkman.algorithm.cga import cga
from folkman.algorithm.compcga import compcga, signs
from folkman.algorithm.dispfl import dispfl
from folkman.algorithm.dpsgd import dpsgd
from folkman.algorithm.pieces.nnls import shortest_combination
from folkman.algorithm.pieces.rounds import RoundState
from folkman.algorithm.pieces.segments import segments
from folkman.algorithm.pieces.seldom import seldom
from folkman.algorithm.pieces.sparsity import Sparsity, kept, lowest
from folkman.algorithm.pieces.topology import Graph, metropolis
from folkman.engine.simulate import Simulation, march, one_slot, start
from folkman.engine.slot import first
from folkman.faults import NO_FAULTS
from folkman.problem.data import quadratic

STEP, NODES, DIM = 0.05, 5, 10
SHAPES = ((2, 3), (3,), (1,))  # of the 10 parameters
PLAIN, COMBINE_FIRST = cga(STEP, momentum=0.0), dpsgd(STEP)


def close(a, b, rtol=1e-10):
    return np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-12)


def states(problem, network, algorithm, slots):
    """Return what the nodes remember after each slot, and before the first one first."""
    simulation = Simulation(problem, network, algorithm, recording=Recording(1))
    return [
        jax.tree.map(np.asarray, remembered(mark.carry.states))
        for mark, _ in march(simulation, start(simulation, 0), slots)
    ]


def last_states(problem, network, algorithm, slots):
    simulation = Simulation(problem, network, algorithm, recording=Recording(slots))
    *_, (mark, _) = march(simulation, start(simulation, 0), slots)
    return jax.tree.map(np.asarray, remembered(mark.carry.states))


def remembered(state):
    """Return what a method in rounds remembers beyond its counts."""
    return state.memory if isinstance(state, RoundState) else state


def gradient(problem, node, w):
    """Return grad F_node(w) of a quadratic with one sample a node."""
    return np.asarray(problem.y[node, 0]) * (w - np.asarray(problem.x[node, 0]))


# --- the shortest combination ---------------------------------------------------------------------------------


def programs(kind, rng, rows, dim=30, room=14):
    """Return g0 (dim,) and G (room, dim), of whose rows the first `rows` are drawn and the others 0."""
    g0, g = rng.normal(size=dim), rng.normal(size=(rows, dim))
    if kind == "conflicting":
        g = -np.abs(g) * np.sign(g0) + 0.5 * rng.normal(size=(rows, dim))
    elif kind == "parallel":
        base = rng.normal(size=(1 + rows // 3, dim))
        g = base[rng.integers(len(base), size=rows)] * rng.choice([-1.0, 1.0, 2.0], size=(rows, 1))
    elif kind == "nearly parallel":
        g = -g0 + 0.3 * rng.normal(size=dim) + 10.0 ** rng.uniform(-9, -1, (rows, 1)) * g
    elif kind == "zero":
        g[rng.random(rows) < 0.4] = 0.0
    elif kind == "scales":
        g, g0 = g * 10.0 ** rng.uniform(-3, 3, (rows, 1)), g0 * 10.0 ** rng.uniform(-3, 3)
    elif kind == "more rows than dimensions":
        g[:, 6:], g0[6:] = 0.0, 0.0
    return g0, np.concatenate([g, np.zeros((room - rows, dim))])


KINDS = (
    "plain",
    "conflicting",
    "parallel",
    "nearly parallel",
    "zero",
    "scales",
    "more rows than dimensions",
)


@pytest.mark.parametrize("margin", [0.0, 0.5])
def test_the_cone_is_scipys_least_squares_and_meets_the_conditions_of_an_optimum(x64, margin):
    rng = np.random.default_rng(0)
    cases = [programs(kind, rng, 1 + place % 14) for kind in KINDS for place in range(28)]
    own, rows = (np.array(part) for part in zip(*cases, strict=True))

    found = np.asarray(
        jax.jit(jax.vmap(lambda g0, g: shortest_combination(g0, g, margin)))(own, rows)
    )

    for g0, g, closest in zip(own, rows, found, strict=True):
        norm = np.linalg.norm(g, axis=1)
        unit = g / np.where(norm > 0, norm, 1.0)[:, None]
        shifted, size = g0 + margin * g.sum(axis=0), np.linalg.norm(g0) + margin * norm.sum()
        weight = scipy.optimize.nnls(unit.T, -shifted, maxiter=10000)[0]
        np.testing.assert_allclose(closest, shifted + weight @ unit, rtol=0, atol=1e-6 * size)
        assert (unit @ closest).min() > -1e-8 * size  # no row is harmed
        assert (
            abs((closest - shifted) @ closest) < 1e-8 * size**2
        )  # only rows at right angles have weight


def test_a_gradient_without_conflict_is_kept_to_the_last_bit(x64):
    own = jnp.asarray(np.random.default_rng(0).normal(size=DIM))
    rows = jnp.stack([own, 0.3 * own + 1e-3, jnp.zeros(DIM)])

    np.testing.assert_array_equal(shortest_combination(own, rows), own)
    np.testing.assert_array_equal(shortest_combination(own, jnp.zeros((3, DIM)), 0.5), own)


def test_the_cone_keeps_float32_and_stays_finite_on_hostile_rows():
    row = jnp.asarray([-1.0, 1e-4, 0.0], jnp.float32)
    rows = jnp.stack([row, row, -row, row * 1e6, row.at[2].set(1e-7)])

    found = shortest_combination(jnp.asarray([1.0, 1.0, 1.0], jnp.float32), rows)

    assert found.dtype == jnp.float32
    assert float(jnp.min(rows @ found / jnp.linalg.norm(rows, axis=1))) > -1e-3


# --- CGA and CompCGA --------------------------------------------------------------------------------------------


def retold(
    problem, iterations, topology, form, margin, momentum, cuts, *, compress=None, memory=True
):
    """Tell CGA again, in NumPy, one node and one link at a time: returns x (node, d)."""
    edges = Graph(topology).adjacency(problem.num_nodes)
    weight = np.asarray(metropolis(jnp.asarray(edges)), float)
    nodes = range(problem.num_nodes)
    x = np.tile(np.asarray(problem.initial), (problem.num_nodes, 1))
    u, error = np.zeros_like(x), {(i, j): 0.0 for i in nodes for j in nodes}

    def squeezed(maker, owner, g):
        if compress != ("own" if maker == owner else "exchanged"):
            return g
        whole = g + error[maker, owner]
        short = np.concatenate([np.abs(whole[c]).mean() * np.sign(whole[c]) for c in cuts])
        error[maker, owner] = (whole - short) if memory else 0.0
        return short

    for _ in range(iterations):
        new = weight @ x
        for i in nodes:
            nbr = np.flatnonzero(edges[i])
            own = squeezed(i, i, gradient(problem, i, x[i]))
            rows = np.array([squeezed(j, i, gradient(problem, j, x[i])) for j in nbr])
            if form == "released":
                own, rows = weight[i, i] * own, weight[i, nbr][:, None] * rows
            closest = np.empty_like(own)
            for cut in cuts if form == "released" else (slice(None),):
                base = own[cut] + margin * rows[:, cut].sum(axis=0)
                closest[cut] = base + scipy.optimize.nnls(rows[:, cut].T, -base)[0] @ rows[:, cut]
            if form == "released":
                u[i] = momentum * u[i] + closest
                new[i] -= STEP * (closest + momentum * u[i])
            else:
                u[i] = momentum * u[i] - STEP * closest
                new[i] += u[i]
        x = new
    return x


@pytest.mark.parametrize(("form", "margin"), [("paper", 0.0), ("released", 0.5)])
def test_cga_is_its_numpy_retelling_where_degrees_differ(quadratics, form, margin):
    problem = quadratics(nodes=NODES, heterogeneity=2.0)
    algorithm = cga(STEP, form, topology="star", momentum=0.5, shapes=SHAPES)

    after = last_states(
        problem, ideal(), algorithm, 6 * NODES + 1
    )  # 1 own and NODES - 1 cross gradients

    assert set(after.iterations) == {6}
    expected = retold(problem, 6, "star", form, margin, 0.5, segments(SHAPES, DIM))
    close(after.params, expected, rtol=1e-7)
    plain = retold(problem, 6, "star", form, margin, 0.5, (slice(None),))
    assert (np.abs(expected - plain).max() > 1e-4) == (form == "released")  # tensors matter


@pytest.mark.parametrize(
    ("form", "compress", "memory"),
    [("paper", "exchanged", True), ("released", "own", False)],
    ids=["paper", "released"],
)
def test_compcga_is_its_numpy_retelling(quadratics, form, compress, memory):
    problem = quadratics(nodes=NODES, heterogeneity=2.0)
    algorithm = compcga(STEP, compress, memory, form, topology="ring", momentum=0.5, shapes=SHAPES)

    after = last_states(problem, ideal(), algorithm, 6 * 3 + 1)

    margin = 0.5 if form == "released" else 0.0
    cuts = segments(SHAPES, DIM)
    close(
        after.plain.memory.params,
        retold(problem, 6, "ring", form, margin, 0.5, cuts, compress=compress, memory=memory),
        rtol=1e-7,
    )


@pytest.mark.parametrize(
    ("form", "factor"), [("paper", 1.0), ("released", (NODES + 1) / (2 * NODES))]
)
def test_on_identical_data_cga_is_descent_with_a_known_step(quadratics, form, factor):
    problem = quadratics(nodes=NODES, heterogeneity=0.0)

    after = last_states(
        problem, ideal(), cga(STEP, form, momentum=0.0, topology="complete"), 8 * NODES + 1
    )

    w = np.zeros(DIM)
    for _ in range(8):
        w = w - factor * STEP * gradient(problem, 0, w)
    close(after.params, np.tile(w, (NODES, 1)))


@pytest.mark.parametrize(("heterogeneity", "same"), [(0.0, True), (0.1, True), (3.0, False)])
def test_without_conflict_and_momentum_cga_is_dpsgd_combine_first(quadratics, heterogeneity, same):
    problem = quadratics(nodes=NODES, heterogeneity=heterogeneity)

    left = last_states(problem, ideal(), PLAIN, 5 * 3 + 1)
    right = last_states(problem, ideal(), COMBINE_FIRST, 5 + 1)

    assert (np.ptp(right.params, axis=0).max() > 1e-3) == (heterogeneity > 0)
    if same:
        close(left.params, right.params)
    else:
        assert np.abs(left.params - right.params).max() > 1e-4


def test_compression_of_single_numbers_loses_nothing(quadratics):
    problem = quadratics(nodes=NODES, heterogeneity=2.0)

    left = last_states(problem, ideal(), compcga(STEP, momentum=0.0, shapes=((1,),) * DIM), 13)
    right = last_states(problem, ideal(), PLAIN, 13)

    close(left.plain.memory.params, right.params)
    np.testing.assert_allclose(left.error, 0.0, atol=1e-12)


def test_the_memory_of_a_link_holds_what_was_left_out(x64):
    rng, cuts = np.random.default_rng(0), segments(SHAPES, DIM)
    given, error, sent = rng.normal(size=(20, DIM)), np.zeros(DIM), np.zeros(DIM)

    for g in given:
        short = np.asarray(signs(jnp.asarray(g + error), cuts))
        error, sent = g + error - short, sent + short
        assert all(len(set(np.abs(short[cut]).round(12))) == 1 for cut in cuts)

    close(sent + error, given.sum(axis=0))


def test_models_and_cross_gradients_are_paid_for_what_they_are(quadratics):
    problem = quadratics(nodes=NODES)

    run = simulate(
        problem,
        ideal(),
        cga(STEP, topology="star"),
        slots=3 * NODES,
        recording=Recording(3 * NODES),
    )

    links = Graph("star").adjacency(NODES).sum()
    assert run.last("bits") == 3 * (NODES + links) * DIM * 64
    assert run.last("gradients_max") == 3 * NODES  # the hub: its own and one for each neighbour
    assert run.last("gradients") == pytest.approx(3 * (1 + links / NODES))


@pytest.mark.parametrize(("compress", "link"), [("exchanged", DIM + 32 * 3), ("own", DIM * 16)])
def test_compressed_gradients_cost_a_bit_an_entry_and_a_number_a_tensor(x64, compress, link):
    algorithm = compcga(STEP, compress, topology="star", shapes=SHAPES)
    priced = algorithm.declares.price
    assert priced is not None
    hub = algorithm.init(jnp.ones(DIM), Place(jnp.asarray(0), NODES, jax.random.key(0)))
    crosses = hub.plain.memory._replace(crossing=jnp.asarray(True))
    sends_links = hub._replace(plain=hub.plain._replace(memory=crosses))

    price = priced.bits(DIM, 16)

    assert price[int(priced.form(hub))] == DIM * 16
    assert price[int(priced.form(sends_links))] == (NODES - 1) * link


# --- DisPFL -----------------------------------------------------------------------------------------------------


def test_dense_dispfl_on_a_full_topology_is_fedavg_with_equal_weights(quadratics):
    problem = quadratics(nodes=NODES, heterogeneity=1.0)

    left = simulate(problem, ideal(), dispfl(STEP, density=1.0), slots=20)
    right = simulate(problem, ideal(), fedavg(STEP), slots=20)

    close(left.model, right.model)


@pytest.mark.parametrize(
    ("topology", "regrowth", "listens"),
    [("full", "random", 4), ("ring", "gradient", 2), ("random", "random", 3)],
)
def test_a_round_of_dispfl_follows_its_equations(quadratics, topology, regrowth, listens):
    problem = replace(
        quadratics(nodes=NODES, heterogeneity=1.0), initial=jnp.linspace(1.0, 2.0, DIM)
    )
    algorithm = dispfl(
        STEP,
        regrowth=regrowth,
        topology=topology,
        in_degree=3,
        local_steps=2,
        rounds=4,
        shapes=SHAPES,
    )
    slots_a_round, numbers = 2 + (regrowth == "gradient"), kept(SHAPES, 0.5, "erk")

    path = states(problem, ideal(), algorithm, 4 * slots_a_round)

    assert len({tuple(mask) for mask in path[0].mask}) > 1  # different first masks
    partners = []
    for slot, (old, new) in enumerate(pairwise(path)):
        r, step = divmod(slot, slots_a_round)
        for k in range(NODES):
            w, shared = old.params[k], old.shared[k]
            if step == 0 and r > 0:  # aggregate first
                heard = [*np.flatnonzero(old.chosen[k]), k]
                values, masks = old.params[heard].sum(axis=0), old.shared[heard].sum(axis=0)
                w = np.where(old.mask[k] & (masks > 0), values / np.maximum(masks, 1), 0.0)
                shared = old.mask[k]
                partners.append(tuple(heard))
                assert len(heard) == listens + 1
            slope = gradient(problem, k, w)
            w = shared * (w - STEP * slope) if step < 2 else w
            close(new.params[k], w)
            np.testing.assert_array_equal(new.shared[k], shared)
            np.testing.assert_array_equal(new.params[k][~shared], 0.0)
            if step == slots_a_round - 1:
                ratio = 0.25 * (1 + np.cos(np.pi * r / 4))
                check_evolution(shared, new.mask[k], w, slope, ratio, numbers, regrowth)
    assert (len(set(partners)) > NODES) == (topology == "random")  # drawn anew


def check_evolution(old, new, w, slope, ratio, numbers, regrowth):
    for cut, number in zip(segments(SHAPES, DIM), numbers, strict=True):
        moved = int(np.ceil(ratio * number - 1e-9))
        assert old[cut].sum() == new[cut].sum() == number
        assert (old[cut] & ~new[cut]).sum() <= moved
        smallest = np.sort(np.abs(w[cut][old[cut]]))[:moved]
        assert set(np.abs(w[cut][old[cut] & ~new[cut]])) <= set(smallest)
        if regrowth == "gradient":
            left = old[cut].copy()
            at = np.flatnonzero(old[cut])
            left[at[np.argsort(np.abs(w[cut][at]), kind="stable")[:moved]]] = False
            out = np.flatnonzero(~left)
            left[out[np.argsort(-np.abs(slope[cut][out]), kind="stable")[:moved]]] = True
            np.testing.assert_array_equal(new[cut], left)


def test_who_is_never_active_learns_alone_with_clip_and_decays(quadratics):
    problem = quadratics(nodes=2, heterogeneity=1.0)
    alone = dispfl(
        STEP, density=1.0, active=0.0, local_steps=3, round_decay=0.9, clip=0.5, weight_decay=0.1
    )

    run = simulate(problem, ideal(), alone, slots=12)

    for k in range(2):
        w = np.zeros(DIM)
        for slot in range(12):
            slope = gradient(problem, k, w)
            slope = slope * min(1.0, 0.5 / (np.linalg.norm(slope) + 1e-6)) + 0.1 * w
            w = w - STEP * 0.9 ** (slot // 3) * slope
        close(run.nodes[k], w)


def test_the_share_that_moves_falls_from_f_to_zero():
    sparsity = Sparsity(0.5, "erk", 0.3, 40, None)

    found = [float(sparsity.ratio(jnp.asarray(float(r)))) for r in (0, 20, 39, 40, 100)]

    np.testing.assert_allclose(
        found, [0.3, 0.15, 0.15 * (1 - np.cos(np.pi / 40)), 0.0, 0.0], rtol=1e-5, atol=1e-8
    )
    mask = jnp.asarray([True, True, False, False])
    late = sparsity.evolve(mask, jnp.ones(4), jnp.ones(4), jnp.asarray(40.0))
    np.testing.assert_array_equal(late, mask)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_lowest_are_those_of_a_stable_sort(x64, dtype):
    rng, taken = np.random.default_rng(3), jax.jit(lowest)
    for scores in (
        rng.normal(size=40),
        rng.integers(-3, 4, 40),  # ties
        np.where(rng.random(40) < 0.3, np.inf, -rng.random(40)),
        np.array([0.0, -0.0, np.nan, -np.inf, -0.0, 0.0, -np.nan, 1e-30, -1e-30]),
        np.zeros(0),
    ):
        scores = scores.astype(dtype)
        order = np.argsort(scores, kind="stable")
        for number in (0, 1, 2, 3, 7, len(scores), len(scores) + 5, jnp.float32(4)):
            mask = np.zeros(len(scores), bool)
            mask[order[: int(number)]] = True
            found = taken(jnp.asarray(scores), number)
            np.testing.assert_array_equal(found, mask, str((scores, number)))


def test_masks_are_formed_only_in_slots_in_which_they_move(x64):
    calls = []

    def costly(value):
        jax.debug.callback(lambda: calls.append(1))
        return 10.0 * value

    values, kept_ones = jnp.arange(3.0), jnp.full(3, -1.0)
    many = jax.jit(jax.vmap(lambda when, x, old: seldom(when, costly, old, x)))

    for wants in ([False] * 3, [False, True, False], [True] * 3):
        before = len(calls)
        found = many(jnp.asarray(wants), values, kept_ones)
        jax.effects_barrier()
        np.testing.assert_array_equal(found, np.where(wants, 10.0 * np.arange(3), -1.0))
        assert (len(calls) > before) == any(wants)
    assert seldom(jnp.asarray(True), costly, kept_ones[0], values[2]) == 20.0


def test_dispfl_sorts_nothing_in_a_slot(quadratics):
    problem = quadratics(nodes=NODES)
    carry = first(problem, ideal(), dispfl(STEP), (1,) * NODES, 0)

    program = jax.make_jaxpr(
        lambda now: one_slot(problem, ideal(), dispfl(STEP), (1,) * NODES, NO_FAULTS, now)
    )(carry)

    assert "sort[" not in str(program)
    assert "cond[" in str(program)


def test_at_most_the_whole_mask_and_at_least_nothing_moves():
    mask, score = jnp.asarray([True, True, False, False]), jnp.asarray([0.0, 0.0, 1.0, 1.0])
    for anneal, expected in ((1.0, ~mask), (0.0, mask)):
        sparsity = Sparsity(0.5, "erk", anneal, 40, None)
        sparsity.check()

        moved = sparsity.evolve(mask, jnp.ones(4), score, jnp.asarray(0.0))

        np.testing.assert_array_equal(moved, expected)


def test_erk_keeps_the_density_and_gives_small_tensors_more():
    shapes = ((5, 5, 1, 32), (32,), (5, 5, 32, 32), (32,), (1568, 256), (256,), (256, 10), (10,))
    size = np.array([np.prod(shape) for shape in shapes])

    for density in (0.05, 0.5, 0.9):
        number = np.array(kept(shapes, density, "erk"))
        assert density * size.sum() - len(shapes) <= number.sum() <= density * size.sum()
        sparse = number < size
        slope = number[sparse] / np.array([sum(shape) for shape in shapes])[sparse]
        np.testing.assert_allclose(slope, slope[0], rtol=0.05)  # eps
        assert (number >= 0).all()
    assert kept(shapes, 1.0, "erk") == tuple(size)
    assert kept(((4, 4), (8, 8)), 0.3, "erk") == (8, 16)  # 24 of 80, shared as 4 + 4 to 8 + 8
    assert kept(shapes, 0.5, "uniform") == tuple(size // 2)


def test_dispfl_pays_for_what_is_not_zero_and_for_the_mask(quadratics):
    problem = quadratics(nodes=NODES)

    run = simulate(problem, ideal(), dispfl(STEP, layers="uniform", shapes=SHAPES), slots=3)

    assert run.last("bits") == 3 * NODES * ((3 + 1 + 0) * 64 + DIM)


# --- all three --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "algorithm",
    [
        cga(STEP, topology="star"),
        cga(STEP, "released", shapes=SHAPES),
        compcga(STEP, shapes=SHAPES),
        dispfl(
            STEP, regrowth="gradient", topology="random", local_steps=2, active=0.7, shapes=SHAPES
        ),
    ],
    ids=["cga paper", "cga released", "compcga", "dispfl"],
)
def test_simulator_and_reference_agree(quadratics, algorithm):
    problem = quadratics(nodes=3, heterogeneity=2.0)

    run = simulate(
        problem, constant(2), algorithm, slots=16, recording=Recording(16, timeline=True)
    )

    assert np.abs(run.nodes - np.asarray(problem.initial)).max() > 1e-2
    close(run.nodes, reference(problem, run.timeline, algorithm).nodes, rtol=1e-9)


def test_a_step_of_zero_changes_nothing(quadratics):
    """Of the released program; that of the papers is in the contract."""
    problem = replace(quadratics(nodes=3, heterogeneity=2.0), initial=jnp.linspace(1.0, 2.0, DIM))
    released = cga(0.0, "released", shapes=SHAPES)

    run = simulate(problem, constant(2), released, slots=16, recording=Recording(16, timeline=True))

    close(run.nodes, np.tile(problem.initial, (3, 1)), rtol=1e-14)


def test_one_node_alone_needs_no_neighbours(quadratics):
    problem = quadratics(nodes=1)

    left = last_states(problem, ideal(), cga(STEP, momentum=0.0, topology="complete"), 9)
    w = np.zeros(DIM)
    for _ in range(int(left.iterations[0])):
        w = w - STEP * gradient(problem, 0, w)

    assert left.iterations[0] > 2
    close(left.params[0], w)


@pytest.mark.parametrize(
    ("builder", "options", "complaint"),
    [
        (cga, {"form": "draft"}, "form must be"),
        (cga, {"margin": -0.1}, "margin must be"),
        (cga, {"momentum": 1.0}, "momentum must be"),
        (cga, {"topology": "schedule"}, "neighbours that stay"),
        (cga, {"topology": "tree"}, "topology must be"),
        (cga, {"rule": "mode"}, "rule must be"),
        (cga, {"step": -1.0}, "step must be"),
        (compcga, {"compress": "all"}, "compress must be"),
        (dispfl, {"density": 0.0}, "density must be"),
        (dispfl, {"layers": "er"}, "layers must be"),
        (dispfl, {"anneal": 1.5}, "anneal must be"),
        (dispfl, {"rounds": 0}, "rounds must be"),
        (dispfl, {"regrowth": "none"}, "regrowth must be"),
        (dispfl, {"topology": "star"}, "topology must be"),
        (dispfl, {"in_degree": 0}, "in_degree must be"),
        (dispfl, {"active": 2.0}, "active is a chance"),
        (dispfl, {"local_steps": 0}, "local_steps must be"),
        (dispfl, {"clip": -1.0}, "clip and weight_decay"),
        (dispfl, {"round_decay": 0.0}, "round_decay must be"),
        (dispfl, {"step": float("nan")}, "step must be"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_wrong_options_are_refused(builder, options, complaint):
    with pytest.raises(ValueError, match=complaint):
        builder(**options)


def test_shapes_and_networks_that_do_not_fit_are_refused(quadratics):
    with pytest.raises(ValueError, match="shapes must hold the 9 parameters"):
        segments(SHAPES, 9)
    with pytest.raises(ValueError, match="in_degree must be below the 3 nodes"):
        simulate(quadratics(nodes=3), ideal(), dispfl(topology="random", in_degree=3), slots=1)


@pytest.mark.parametrize("counts", [(1, 1), (1, 9)], ids=str)
def test_between_two_minima_cga_stays_wherever_it_is_however_many_samples_count(x64, counts):
    """Gradients of one curvature oppose each other there: g_1 + v g_2 = 0 for some v > 0."""
    samples = quadratic(nodes=2, condition=1.0)
    parts = [np.full(count, node) for node, count in enumerate(counts)]
    problem = make_problem(samples, "quadratic", parts, dtype="float64", objective="samples")
    centre = problem.x[:, 0]
    point = 0.3 * centre[0] + 0.7 * centre[1]

    run = simulate(replace(problem, initial=point), ideal(), cga(0.1), slots=30)

    np.testing.assert_allclose(run.nodes, np.tile(point, (2, 1)), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("factor", [1e-3, 7.0])
def test_the_length_of_a_neighbours_gradient_does_not_count(x64, factor):
    draw = np.random.default_rng(3)
    own, rows = jnp.asarray(draw.normal(size=6)), jnp.asarray(draw.normal(size=(4, 6)))
    scaled = rows.at[1].multiply(factor)

    found, again = (shortest_combination(own, each) for each in (rows, scaled))

    assert float(jnp.min(rows @ own)) < 0  # some conflict
    np.testing.assert_allclose(found, again, rtol=1e-8, atol=1e-9)
