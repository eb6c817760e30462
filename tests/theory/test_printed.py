"""Theorem 2 and its corollaries as printed: what they say on runs, and when they say nothing."""

import numpy as np
import pytest

from folkman import async_sharing, constant, simulate, snapshot
from folkman.engine.simulate import Recording
from folkman.theory.printed import Constants, assumptions, constants_of, corollary_2, theorem_2, u
from folkman.theory.smoothness import ceiling
from folkman.theory.trajectory import Trajectory, follow

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


def made(**columns):
    """Return a path with the given columns and empty others."""
    return Trajectory(**{**dict.fromkeys(Trajectory._fields, np.zeros(0)), **columns})


def flat(local, loss, scales=(1.0, 1.0)):
    """Return a path of two nodes with the shares 1/4 and 3/4."""
    shares = np.array([0.25, 0.75])
    return made(
        shares=shares,
        scales=np.array(scales),
        step=0.1 * float(shares @ scales),
        ages=np.zeros((len(local), 2, 2), int),
        local=np.array(local),
        loss=np.array(loss),
        unlike=np.array([0.5, 0.25]),
    )


def test_u_is_the_printed_formula():
    with_all = PLAIN._replace(nodes=3, step=0.2, gamma=2, l1=0.3, l2=0.5, l3=0.8, delta=0.1)

    assert u(with_all) == pytest.approx(
        3 / 0.8 - 0.1 * 2 / 0.5 - (3 * 3.2 - 1) * 0.3 / 2 - 8 * 0.04 * 0.3 * 4 / 2
    )
    assert u(with_all, 0.0) == pytest.approx(3 / 0.8 - 0.1 * 2 / 0.5 - 8 * 0.3 / 2)
    alone = with_all._replace(nodes=1, delta=np.inf)  # nobody to differ from
    assert u(alone) == pytest.approx(1 / 0.8 - 2.2 * 0.3 / 2 - 2 * 0.04 * 0.3 * 4 / 2)
    assert u(PLAIN) == pytest.approx(10 - 0 - (10 * 3.01 - 1) / 2 - 29 * 1e-4 * 25 / 2)


def test_constants_are_the_extremes_that_a_run_met():
    path = flat([[1.0, 2.0], [3.0, 0.5]], [5.0, 4.0, 3.0], scales=(0.5, 2.0))
    path = path._replace(ages=np.array([[[0, 3], [1, 0]], [[0, 2], [4, 0]]]))

    found = constants_of(path, 0.7)

    assert found == pytest.approx(Constants(2, 0.1, 5, 0.7, 0.5, 2.0, 0.5, 3.0))


def test_the_curve_falls_by_u_times_the_squares_of_what_nodes_add():
    """||s_i|| = alpha_i c_i ||grad F_i||; the first slot adds 1/16 + 9/4, the second 9/16 + 9/64 with c = 1."""
    path = flat([[1.0, 2.0], [3.0, 0.5]], [5.0, 4.9, 4.8])
    c = constants_of(path, 0.01)

    found = theorem_2(path, c)

    added = np.array([37 / 16, 37 / 16 + 45 / 64])
    np.testing.assert_allclose(found["curve"], 5.0 - 0.1 * u(c) * added)
    assert found["u"] == found["u_literal"] == u(c) > 0
    assert found["u_at_zero"] == u(c, 0.0)
    assert not found["vacuous"]
    assert found["verdict"].startswith("not vacuous here")


@pytest.mark.parametrize(
    ("above", "met"), [(-1e-3, "stays below"), (0.0, "stays below"), (1e-3, "exceeds")]
)
def test_a_theorem_that_says_something_is_held_against_every_loss(above, met):
    path = flat([[1.0, 2.0], [3.0, 0.5]], [5.0, 0.0, 0.0])
    c = constants_of(path, 0.01)
    curve = theorem_2(path, c)["curve"]

    for slot in (0, 1):
        loss = np.append(5.0, curve - 0.1)
        loss[1 + slot] = curve[slot] + above
        assert f"the measured loss {met} U" in theorem_2(path._replace(loss=loss), c)["verdict"]


def test_a_theorem_that_only_the_printed_updates_refute_is_vacuous():
    """Small c_i make 1/L_3 large; with the printed s_i, L_2 = L_3 = 1 and the sign of u turns."""
    path = flat([[1.0, 2.0], [3.0, 0.5]], [5.0, 4.9, 4.8], scales=(0.25, 0.25))
    c = constants_of(path, 1.0)

    found = theorem_2(path, c)

    assert c.l2 == c.l3 == 0.25
    assert found["u"] == u(c) > 0 > found["u_literal"]
    assert found["u_literal"] == pytest.approx(2 - 0.5 - (2 * 3.1 - 1) / 2 - 5 * 0.01 / 2)
    assert found["vacuous"]
    assert "with the printed s_i" in found["verdict"]


def test_a_small_u_above_zero_is_enough():
    c = PLAIN._replace(l1=0.645, delta=0.01, step=0.05, gamma=1)
    path = flat([[1.0, 2.0], [3.0, 0.5]], [5.0, 4.9, 4.8])

    assert 0 < u(c) < 1 < u(c._replace(l3=0.9))
    for each in (c, c._replace(l3=0.9)):
        assert theorem_2(path, each)["verdict"].startswith("not vacuous here")
        assert not theorem_2(path, each)["vacuous"]
    assert not corollary_2(c)["vacuous"]
    assert corollary_2(c)["verdict"].startswith("steps in (0.01, 0.1]")


def test_the_remedy_is_a_smaller_step_only_where_one_helps():
    path = flat([[1.0, 2.0], [3.0, 0.5]], [5.0, 4.9, 4.8])
    gentle, steep = PLAIN._replace(l1=0.5, step=2.0, gamma=9), PLAIN._replace(l1=2.0)

    assert u(gentle, 0.0) > 0 >= u(gentle)
    assert "a smaller step would have u > 0" in theorem_2(path, gentle)["verdict"]
    assert "no step helps" in theorem_2(path, steep)["verdict"]
    assert theorem_2(path, gentle)["vacuous"]
    assert theorem_2(path, steep)["vacuous"]


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


def test_corollary_2_lets_steps_be_between_delta_and_the_smaller_of_two_limits():
    """2/(L_1 L_3) - (3I-1)/I = 3.2 - 2.75 = 0.45 with I = 4, L_1 = 1/2, L_3 = 5/4."""
    c = PLAIN._replace(nodes=4, l1=0.5, l3=1.25, delta=0.25)
    curvature, unlike = corollary_2(c), corollary_2(c._replace(delta=0.16))

    assert (curvature["low"], curvature["high"]) == pytest.approx((0.25, 0.45))
    assert (unlike["low"], unlike["high"]) == pytest.approx((0.16, 0.4))
    empty = corollary_2(c._replace(delta=0.45 + 1e-9))
    assert empty["vacuous"]
    assert "2/(L_1 L_3) - (3I-1)/I = 0.45 is not above delta" in empty["verdict"]
    wide = corollary_2(c._replace(l1=0.1, delta=1.0))
    assert wide["vacuous"]
    assert "sqrt(delta) = 1 is not above delta = 1" in wide["verdict"]
    assert corollary_2(c._replace(l1=0.0, delta=0.25))["high"] == 0.5  # straight losses: no limit


@pytest.mark.parametrize(
    ("step", "where"), [(0.01, "not in"), (0.0101, "in"), (0.1, "in"), (0.1001, "not in")]
)
def test_corollary_2_says_whether_the_step_is_one_of_its_own(step, where):
    found = corollary_2(PLAIN._replace(l1=0.1, delta=0.01, step=step))

    assert f"is {where} it" in found["verdict"]
    assert not found["vacuous"]


def test_corollary_2_says_nothing_where_the_terms_it_drops_matter():
    """At gamma = 100 the term in Gamma^2 outweighs the rest, of which the interval knows nothing."""
    found = corollary_2(PLAIN._replace(l1=0.1, delta=0.01, step=0.1, gamma=100))

    assert (found["low"], found["high"]) == pytest.approx((0.01, 0.1))
    assert found["vacuous"]
    assert "the terms that it drops" in found["verdict"]


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


@pytest.fixture
def checked(quadratics):
    """A short run of two nodes alike, and a function that checks it with some columns replaced."""
    problem = quadratics(nodes=2, dim=2, heterogeneity=0.0)
    path, c = told(problem, snapshot(3), 0.05, slots=40)

    def check(constants=c, **columns):
        found = assumptions(problem, path._replace(**columns), constants)
        return {each.name: each for each in found}

    return check, path, c


def test_assumption_1_as_printed_is_counted_copy_by_copy(checked):
    check, path, c = checked
    broken = 0
    for t, i, j in np.ndindex(path.ages.shape):
        tau = t - path.ages[t, i, j]
        broken += i != j and not max(t - c.gamma, 0) < tau <= t

    found = check()["Assumption 1"]

    assert broken > 0
    assert f"as printed {broken} copies break it" in found.text
    assert f"ages 0 .. {c.gamma - 1}" in found.text
    assert found.holds
    first = check(ages=np.zeros((1, 2, 2), int))["Assumption 1"]
    assert "as printed 2 copies" in first.text  # in slot 0 both copies are stamped 0


def test_assumption_2_is_judged_by_the_extremes_of_the_run(checked):
    check, _, c = checked
    at = np.full((40, 2), c.l1)

    assert check(local_loss=np.array([[0.5, 0.0]]))["Assumption 2(a)"].holds
    assert not check(local_loss=np.array([[0.5, -1e-9]]))["Assumption 2(a)"].holds
    assert check(secant=at * 1.0009)["Assumption 2(b)"].holds is None
    assert check(secant=at * 1.0011)["Assumption 2(b)"].holds is False
    assert check(c._replace(l2=0.5, l3=2.5))["Assumption 2(d)"].text == "L_2 = 0.5, L_3 = 2.5"
    assert check()["Assumption 2(e)"].holds
    assert f"least delta {c.delta:.3g};" in check()["Assumption 2(e)"].text
    assert "no finite delta" in check(c._replace(delta=np.inf))["Assumption 2(e)"].text
    assert check(secant_whole=at[:, 0] * 1.0009)["Lemma 2, eq. (16)"].holds
    assert not check(secant_whole=at[:, 0] * 1.0011)["Lemma 2, eq. (16)"].holds


def test_the_gradient_of_the_whole_loss_is_the_sum_of_the_nodes(checked):
    check, _, _ = checked
    found = check()["Lemma 2, eq. (15)"]

    assert found.holds
    assert float(found.text.split(" by ")[1].split()[0]) < 1e-9


def test_where_the_gradients_of_nodes_cancel_their_sum_is_judged_by_their_own_length(quadratics):
    """At the optimum the whole gradient is what rounding leaves of nodes' gradients of 10^6."""
    problem = quadratics(nodes=3, dim=4, heterogeneity=1e6)
    path, c = told(problem, constant(1), 0.2, slots=5)

    found = assumptions(problem, path._replace(last=np.asarray(problem.optimum)), c)

    assert c.gradient > 1e5
    assert {check.name: check.holds for check in found}["Lemma 2, eq. (15)"]


@pytest.mark.parametrize(
    ("end", "holds"), [(0.49, True), (0.51, None), (0.89, None), (0.91, False), (2.0, False)]
)
def test_corollary_1_compares_the_end_of_a_run_with_its_middle(checked, end, holds):
    """Of 40 slots, slots 20 to 23 are the middle tenth and 36 to 39 the last; all others do not count."""
    check, path, _ = checked
    column = np.full((40, 2), 100.0)
    column[20:24], column[36:] = [[0.5, 1.0]], [[end, 0.1 * end]]

    found = check(local=column, apart=column)

    assert found["Corollary 1, s_i -> 0"].holds is holds
    assert found["Corollary 1, eq. (21)"].holds is holds
    assert (
        f"1 in the middle of the run, {end:.3g} at its end" in found["Corollary 1, s_i -> 0"].text
    )
    drift = np.abs(np.diff(path.norm, axis=0)).max(axis=1)[-3:].mean()
    assert f"changes by {drift:.3g} a slot" in found["Corollary 1, s_i -> 0"].text


def test_what_is_lost_in_rounding_has_died_out(checked):
    check, _, _ = checked
    tiny = np.full((40, 2), 0.9e-9)

    assert check(local=tiny)["Corollary 1, s_i -> 0"].holds is True
    assert check(local=2 * tiny)["Corollary 1, s_i -> 0"].holds is False
    assert "changes by 0 a slot" in check(norm=np.ones((1, 2)))["Corollary 1, s_i -> 0"].text
