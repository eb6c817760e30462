"""Floors: closed forms, and no method ever below one."""

from itertools import pairwise

import numpy as np
import pytest

import folkman as fm
from folkman import Recording
from folkman.theory.floors import Parts, floor_of

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
