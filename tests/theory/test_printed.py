"""Theorem 2 and its corollaries as printed: what they say on runs, and when they say nothing."""

import numpy as np
import pytest

from folkman import async_sharing, constant, simulate, snapshot
from folkman.engine.simulate import Recording
from folkman.theory.printed import Constants, assumptions, constants_of, corollary_2, theorem_2, u
from folkman.theory.smoothness import ceiling
from folkman.theory.trajectory import follow

PLAIN = Constants(nodes=10, step=0.01, gamma=5, l1=1.0, l2=1.0, l3=1.0, delta=0.0, gradient=1.0)


def told(problem, network, step, slots=120):
    run = simulate(
        problem,
        network,
        async_sharing(step),
        slots=slots,
        recording=Recording(slots, timeline=True),
    )
    path = follow(problem, run.timeline.held, step, "theorem")
    return path, constants_of(path, float(ceiling(problem).max()))


def test_u_is_the_printed_formula():
    assert u(PLAIN) == pytest.approx(10 - 0 - (10 * 3.01 - 1) / 2 - 29 * 1e-4 * 25 / 2)


def test_no_step_is_small_enough_once_the_curvature_is_two_thirds():
    """2I/(3I-1) is the limit of L_1 for plain descent of nodes alike."""
    edge = 2 * 10 / 29

    assert u(PLAIN._replace(l1=0.99 * edge), 1e-9) > 0
    assert u(PLAIN._replace(l1=1.01 * edge), 1e-9) < 0


def test_measuring_losses_in_other_units_changes_the_verdict():
    """100 F with the step eta/100 is the same run; u differs in sign, so the condition cannot be right."""
    small = PLAIN._replace(l1=0.1, step=0.05)
    large = small._replace(l1=10.0, step=0.0005)

    assert u(small) > 0 > u(large)


def test_the_theorem_is_called_vacuous_on_a_run_that_converges(quadratics):
    path, c = told(quadratics(nodes=4, dim=5, heterogeneity=1.0, condition=10.0), snapshot(4), 0.05)

    found = theorem_2(path, c)

    assert path.loss[-1] < path.loss[0]
    assert found["vacuous"]
    assert found["verdict"].startswith("vacuous here because u(eta) = -")
    assert found["curve"][-1] > path.loss[0]
    assert corollary_2(c)["vacuous"]
    assert "vacuous here because" in corollary_2(c)["verdict"]


def test_corollary_2_has_an_interval_only_for_flat_losses():
    assert (
        corollary_2(PLAIN._replace(l1=0.1, delta=0.01))["verdict"]
        == "steps in (0.01, 0.1]; eta = 0.01 is not in it"
    )
    assert "is not above delta" in corollary_2(PLAIN._replace(delta=2.0, l1=0.1))["verdict"]


def test_corollary_1_fails_for_nodes_that_differ_and_holds_for_nodes_alike(quadratics):
    """Updates die out only at a common stationary point of all F_i."""
    verdicts = []
    for heterogeneity in (0.0, 2.0):
        problem = quadratics(nodes=4, dim=5, heterogeneity=heterogeneity, condition=3.0)
        path, c = told(problem, constant(3), 0.2, slots=400)
        verdicts.append({check.name: check.holds for check in assumptions(problem, path, c)})

    alike, unlike = verdicts
    assert alike["Corollary 1, s_i -> 0"]
    assert alike["Corollary 1, eq. (21)"]
    assert unlike["Corollary 1, s_i -> 0"] is False
    assert unlike["Corollary 1, eq. (21)"] is False
    for found in verdicts:
        assert all(found[name] is not False for name in found if not name.startswith("Corollary"))


def test_assumption_1_as_printed_leaves_no_copy_in_the_first_slot(quadratics):
    problem = quadratics(nodes=3, dim=2)
    path, c = told(problem, snapshot(4), 0.05, slots=30)

    check = assumptions(problem, path, c)[0]

    assert c.gamma == path.ages.max() + 1
    assert "as printed" in check.text
    assert (
        int(check.text.split("as printed ")[1].split()[0]) >= 6
    )  # slot 0: no tau with 0 < tau <= 0


def test_a_node_that_stands_still_leaves_no_finite_delta(quadratics):
    problem = quadratics(nodes=3, dim=2)
    path, c = told(problem, snapshot(2), 0.05, slots=10)

    still = constants_of(path._replace(unlike=np.array([np.inf])), c.l1)

    assert u(still) == -np.inf
    assert not {check.name: check for check in assumptions(problem, path, still)}[
        "Assumption 2(e)"
    ].holds
