"""Floors: closed forms, and no method ever below one."""

from dataclasses import replace
from itertools import pairwise

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

import folkman as fm
from folkman import Recording
from folkman.problem.data import DataSet
from folkman.theory.floors import Parts, floor_of
from folkman.theory.logistic_floors import LogisticParts, logistic_floor_of

NODES, DIM, SLOTS = 3, 40, 16


@pytest.fixture
def problem(quadratics):
    return quadratics(nodes=NODES, dim=DIM, heterogeneity=1.0, condition=100.0)


def parts_of(problem):
    curvature = np.stack([np.diag(np.asarray(y)[0]) for y in problem.y])
    return Parts(curvature, np.asarray(problem.x)[:, 0], np.asarray(problem.share))


def random_parts(nodes, dim, seed=0):
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(nodes, dim, dim))
    curvature = np.einsum("nij,nkj->nik", roots, roots) / dim + 0.1 * np.eye(dim)
    return Parts(curvature, rng.normal(size=(nodes, dim)), np.full(nodes, 1 / nodes))


def test_for_one_node_it_is_what_conjugate_gradients_reach():
    """CG has the least F over the Krylov space of each step: the floor and it are one."""
    parts, start = random_parts(1, 12), np.zeros(12)

    floor = floor_of(parts, start, 8)

    a, b = parts.curvature[0], parts.curvature[0] @ parts.least[0]
    best = 0.5 * parts.least[0] @ b
    w, r = start, b.copy()
    p = r.copy()
    for slot in range(9):
        assert floor.excess_loss[slot] == pytest.approx(0.5 * w @ a @ w - b @ w + best, rel=1e-8)
        rate = r @ r / (p @ a @ p)
        w, new = w + rate * p, r - rate * a @ p
        p, r = new + new @ new / (r @ r) * p, new


def test_it_falls_with_time_and_rises_with_the_time_of_messages_and_gradients():
    parts, start = random_parts(3, 60), np.zeros(60)

    floors = [
        floor_of(parts, start, 9, compute_slots=compute, message_slots=message).excess_loss
        for compute, message in ((1, 0), (1, 2), (1, 5), (3, 5))
    ]

    assert all(np.all(np.diff(floor) <= 1e-12) for floor in floors)
    for lower, higher in pairwise(floors):
        assert np.all(lower <= higher + 1e-9)
    assert floors[0][3] < 0.9 * floors[1][3]
    assert floors[2][8] < 0.9 * floors[3][8]


def test_the_time_to_a_gradient_norm_is_the_first_slot_at_which_it_may_be():
    parts, start = random_parts(2, 20), np.zeros(20)
    floor = floor_of(parts, start, 30, message_slots=1)

    slot = floor.slots_to(0.1)

    assert slot is not None
    assert floor.gradient_norm[slot] <= 0.1 < floor.gradient_norm[slot - 1]
    assert floor_of(parts, start, slot - 1, message_slots=1).slots_to(0.1) is None


METHODS = {
    "fedavg": fm.fedavg(1.5),
    "scaffold": fm.scaffold(0.5, 3),
    "ringmaster": fm.ringmaster(0.4),
    "dpsgd": fm.dpsgd(1.0, topology="complete"),
    "async_sharing": fm.async_sharing(1.0),
}


@pytest.mark.parametrize("name", METHODS)
def test_no_method_is_ever_below_it(problem, name):
    """At long steps, where messages take two slots."""
    floor = floor_of(parts_of(problem), np.asarray(problem.initial), SLOTS, message_slots=2)
    best = problem.evaluate(problem.optimum).train_loss

    run = fm.simulate(problem, fm.pipelined(2), METHODS[name], slots=SLOTS, recording=Recording(1))

    excess = np.array(run.column("train_loss")) - float(best)
    slots = np.array(run.column("slots"), int)
    assert excess[-1] < 0.9 * excess[0]  # it has learnt
    assert np.all(excess >= floor.excess_loss[slots] - 1e-9)


def test_times_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="at least 1 for gradients"):
        floor_of(random_parts(2, 3), np.zeros(3), 4, compute_slots=0)


# --- logistic losses ---

LINKS, L2 = 6, 0.02


def chain():
    """Samples in a chain over two nodes: each link is felt when the one before it has moved.

    Node 0 has e_1, which all feel, and the even links; node 1 the odd ones. Links have both labels,
    and every sample its mirror, so that a bias stays 0.
    """
    eye = np.eye(LINKS + 1)
    links = [4.0 * (eye[k] - eye[k + 1]) for k in range(LINKS)]
    margins = [[4.0 * eye[0]] * 4, []]
    for k, z in enumerate(links):
        margins[(k + 1) % 2] += [z, -z]
    return [np.repeat(np.array(each), 2, axis=0) for each in margins]


def chained_problem():
    """Return the same as a problem: of each margin the sample x = z and its mirror."""
    margins = chain()
    x, y, parts, begin = [], [], [], 0
    for each in margins:
        sign = np.tile([1.0, -1.0], len(each) // 2)
        x.append(each * sign[:, None])
        y.append((sign > 0).astype(np.int32))
        parts.append(np.arange(begin, begin + len(each)))
        begin += len(each)
    x, y = np.concatenate(x).astype(np.float32), np.concatenate(y)
    samples = DataSet("chain", x, y, x, y, 2)
    return fm.make_problem(samples, "logistic", parts, l2=L2, dtype="float64")


def chained_parts(problem):
    return LogisticParts(chain(), np.asarray(problem.share), L2)


def test_in_a_chain_every_link_costs_a_gradient_and_a_message():
    """By hand: node 0 needs a gradient for e_1, node 1 the message for the first link, and so on."""
    parts = LogisticParts(chain(), np.array([0.5, 0.5]), L2)
    compute, message = 2, 3

    floor = logistic_floor_of(
        parts, np.zeros(LINKS + 1), 40, compute_slots=compute, message_slots=message
    )

    changes = np.flatnonzero(np.diff(floor.excess_loss) < -1e-12) + 1
    assert changes.tolist() == [compute + k * (message + compute) for k in range(LINKS + 1)]
    assert floor.excess_loss[0] == pytest.approx(
        parts.loss(np.zeros(LINKS + 1))[0] - least_with(parts, LINKS + 1), rel=1e-6
    )
    for known in range(1, LINKS + 1):  # only the first coordinates can have moved
        slot = changes[known - 1]
        reached = least_with(parts, known) - least_with(parts, LINKS + 1)
        assert floor.excess_loss[slot] == pytest.approx(reached, rel=1e-5, abs=1e-9)
    assert floor.excess_loss[-1] == pytest.approx(0.0, abs=1e-12)


def least_with(parts, known):
    """Return the least F with all but the first `known` entries at 0, by another method."""

    def of(first):
        w = np.append(first, np.zeros(LINKS + 1 - known))
        value, slope, _ = parts.loss(w)
        return value, slope[:known]

    tight = {"gtol": 1e-12, "ftol": 1e-16}
    return minimize(of, np.zeros(known), jac=True, method="L-BFGS-B", options=tight).fun


def test_samples_that_overlap_bound_the_first_gradient_alone():
    rng = np.random.default_rng(0)
    parts = LogisticParts([rng.normal(size=(30, 5)) for _ in range(2)], np.array([0.5, 0.5]), 0.1)

    floor = logistic_floor_of(parts, np.zeros(5), 4, compute_slots=2)

    assert floor.excess_loss[0] == floor.excess_loss[1] > floor.excess_loss[2] > 1e-4
    assert floor.excess_loss[4] == pytest.approx(0.0, abs=1e-12)
    assert floor.slots_to(1e-3) == 4


LOGISTIC_METHODS = {
    "fedavg": fm.fedavg(0.5),
    "scaffold": fm.scaffold(0.4, 2),
    "dpsgd": fm.dpsgd(0.5, topology="complete"),
    "dsgt": fm.dsgt(0.3, topology="complete"),
    "exact_diffusion": fm.exact_diffusion(0.3, topology="complete"),
    "async_sharing": fm.async_sharing(0.3, momentum=0.3),
    "ringmaster": fm.ringmaster(0.3),
    "draco": fm.draco(0.4, 1.0),
    "ncota_dgd": fm.ncota_dgd(0.4, topology="complete"),
}


@pytest.mark.parametrize("name", LOGISTIC_METHODS)
def test_no_method_is_ever_below_the_floor_of_a_logistic_loss(x64, name):
    """On a chain, where a message takes a slot: the floor falls with every second slot."""
    problem, slots = chained_problem(), 24
    problem = replace(problem, initial=jnp.zeros_like(problem.initial))
    parts = chained_parts(problem)
    floor = logistic_floor_of(parts, np.zeros(LINKS + 1), slots, message_slots=1)
    best = least_with(parts, LINKS + 1)

    run = fm.simulate(
        problem, fm.pipelined(1), LOGISTIC_METHODS[name], slots=slots, recording=Recording(1)
    )

    excess = np.array(run.column("train_loss")) - best
    at = np.array(run.column("slots"), int)
    assert excess[0] == pytest.approx(floor.excess_loss[0], rel=1e-6)
    assert excess[-1] < 0.9 * excess[0]  # it has learnt
    assert np.all(excess >= floor.excess_loss[at] - 1e-9)
    assert (floor.excess_loss[at] > 1e-6).sum() > slots / 3  # the floor says something


def test_a_logistic_loss_without_l2_has_no_floor():
    with pytest.raises(ValueError, match="needs an l2 above 0"):
        logistic_floor_of(LogisticParts(chain(), np.array([0.5, 0.5]), 0.0), np.zeros(7), 3)
