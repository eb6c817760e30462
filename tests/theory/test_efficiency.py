"""Table I's learning efficiency, rounds and bits against runs."""

import pytest

from folkman import async_sharing, fedavg, load, make_problem, simulate, snapshot
from folkman.algorithm.adafl import adafl
from folkman.record.run import Run
from folkman.theory.efficiency import Setting, compare_efficiency


@pytest.fixture(scope="module")
def problem():
    return make_problem(load("digits", train_size=60), "softmax", 4)


def found(problem, algorithm, gamma, slots, steps=1):
    run = simulate(problem, snapshot(gamma), algorithm, slots=slots)
    rows = compare_efficiency(run, Setting(4, gamma, 32 * problem.dim, steps))
    return {row.quantity: row for row in rows}


@pytest.mark.parametrize("gamma", [2, 5])
def test_algorithm_1_computes_in_every_slot_and_not_as_table_1_says(problem, gamma):
    rows = found(problem, async_sharing(0.1), gamma, 60)

    assert rows["kappa"].measured == rows["kappa"].corrected == 1
    assert rows["kappa"].printed == pytest.approx(gamma / (gamma + 1))
    assert rows["rounds"].measured == pytest.approx(rows["rounds"].corrected, rel=0.1)
    assert rows["bits"].measured == pytest.approx(rows["bits"].corrected, rel=0.1)


@pytest.mark.parametrize(("gamma", "steps"), [(2, 1), (5, 1), (3, 3)])
def test_fedavg_waits_as_the_formulas_say(problem, gamma, steps):
    rows = found(problem, fedavg(0.1, local_steps=steps), gamma, 24 * (gamma + steps), steps)

    for name in ("kappa", "rounds", "bits"):
        assert rows[name].measured == pytest.approx(rows[name].corrected, rel=0.05)
    if steps == 1:
        assert rows["kappa"].printed == pytest.approx(rows["kappa"].corrected)


def test_adafl_has_the_printed_half_only_if_its_tau_is_gamma(problem):
    rows = found(problem, adafl(0.1, tau=4), 4, 160, 4)

    assert rows["kappa"].measured == pytest.approx(0.5, abs=0.05)
    assert found(problem, adafl(0.1, tau=1), 4, 160, 1)["kappa"].measured == pytest.approx(
        0.2, abs=0.05
    )


def test_methods_outside_the_table_give_nothing():
    assert compare_efficiency(Run("dpsgd", "dpsgd", 0), Setting(4, 2, 1)) == []
    with pytest.raises(ValueError, match="Gamma of at least 1"):
        compare_efficiency(Run("fedavg", "fedavg", 0), Setting(4, 0, 1))
