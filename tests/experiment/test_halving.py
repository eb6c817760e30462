"""The search alone, against tables of scores whose best setting is known."""

import math

import pytest

from folkman.experiment.halving import Axis, halving, least_budget, solved, usual_budget

STEPS = tuple(float(f"{10 ** (half / 2):.2e}") for half in range(-6, 3))
STEP = Axis("step", STEPS, below=True, above=True, finer=True)
LOCAL = Axis("local_steps", (1, 3, 10), above=True, most=300)
NEAR = 10 ** (1 / 16) * 1.01
"""Half the distance of the finest steps that are told apart, 10^(1/8), and what rounding adds."""


def bowl(*best):
    """Return a score with one valley: the squared distance in decades from the best setting."""
    return lambda setting, _: sum(
        math.log10(value / there) ** 2 for value, there in zip(setting, best, strict=True)
    )


def searched(axes, score, start=(0.2,), seeds=2, budget=None):
    spent = []

    def counted(setting, seed):
        spent.append((setting, seed))
        return score(setting, seed)

    budget = budget or usual_budget(axes, seeds)
    found = solved(halving(axes, start, seeds, budget), counted)
    assert len(spent) == len(set(spent)) == len(found.scores) <= budget  # no trial is paid twice
    return found


@pytest.mark.parametrize("best", [0.0021, 0.05, 0.1, 0.75, 4.2, 10.0])
def test_the_best_of_one_valley_is_found_within_the_usual_budget(best):
    found = searched([STEP], bowl(best))

    assert best / NEAR <= found.best[0] <= best * NEAR
    assert found.score == bowl(best)(found.best, 0) < found.start_score
    assert found.at_edge == ()


@pytest.mark.parametrize("best", [3e-5, 1.2e-4, 56.0, 250.0])
def test_the_grid_is_extended_where_the_best_lies_beyond_it(best):
    found = searched([STEP], bowl(best))

    assert best / NEAR <= found.best[0] <= best * NEAR
    assert found.at_edge == ()


def test_options_that_depend_on_each_other_are_extended_together():
    # the best step is 10 over the local steps, whose best number is beyond the grid
    def score(setting, _):
        step, local = setting
        return math.log10(step * local / 10) ** 2 + math.log10(local / 30) ** 2

    found = searched([STEP, LOCAL], score, (0.2, 1))

    assert found.best == (0.316, 30)


def test_without_room_the_end_of_the_grid_is_told():
    found = searched([STEP], bowl(1000.0), budget=least_budget([STEP], 2))

    assert found.best == (10.0,)
    assert found.at_edge == ("step",)


def test_an_axis_that_may_not_be_extended_has_no_edge():
    momentum = Axis("momentum", (0.0, 0.5, 0.9))

    found = searched([momentum], lambda setting, _: -setting[0], (0.0,))

    assert found.best == (0.9,)
    assert found.at_edge == ()
    assert len(found.scores) == 3 + 2 + 1  # under one seed, the better half under the other


def test_the_better_half_meets_the_next_seed():
    found = searched([STEP._replace(below=False, above=False, finer=False)], bowl(0.1), seeds=3)

    under = [{setting for setting, seed in found.scores if seed == number} for number in range(3)]
    assert [len(each - {(0.2,)}) for each in under] == [9, 4, 2]
    assert under[2] <= under[1] <= under[0]
    # of 0.01 and 1, as far from the best, the smaller
    assert under[1] == {(0.01,), (0.0316,), (0.1,), (0.316,), (0.2,)}


def test_the_mean_over_seeds_decides_and_not_the_first_one():
    unlucky = {(0.1,): (0.0, 9.0), (1.0,): (1.0, 1.0)}

    def score(setting, seed):
        return unlucky.get(setting, (5.0, 5.0))[seed]

    assert searched([STEP], score).best == (1.0,)


def test_a_setting_that_diverged_under_any_seed_is_the_worst():
    def score(setting, seed):
        return math.inf if setting[0] >= 0.3 and seed == 1 else bowl(0.316)(setting, seed)

    found = searched([STEP], score)

    assert math.isfinite(found.score)
    assert 0.2 <= found.best[0] < 0.3


def test_of_equal_scores_the_smallest_step_wins():
    flat = STEP._replace(below=False, above=False, finer=False)

    assert searched([flat], lambda *_: 1.0).best == (0.001,)


def test_a_score_that_tells_nothing_apart_extends_nothing():
    found = searched([STEP._replace(finer=False)], lambda *_: 1.0)

    assert {setting[0] for setting, _ in found.scores} == {*STEPS, 0.2}


def test_where_all_diverge_smaller_steps_are_tried_and_then_it_is_told():
    found = searched([STEP], lambda *_: math.inf)

    assert min(setting for setting, _ in found.scores)[0] < 1e-5
    assert found.score == math.inf


def test_the_configured_setting_is_tried_under_all_seeds_and_may_win():
    exact = STEP._replace(finer=False)

    found = searched([exact], bowl(0.2))

    assert found.best == found.start == (0.2,)
    assert {seed for setting, seed in found.scores if setting == (0.2,)} == {0, 1}


@pytest.mark.parametrize("axes", [[STEP], [STEP, LOCAL], [LOCAL, STEP]])
@pytest.mark.parametrize("seeds", [1, 2, 3])
def test_no_score_makes_a_search_spend_more_than_its_budget(axes, seeds):
    start = tuple(axis.values[0] * 2 for axis in axes)
    for extra in (0, 1, 7):
        for sign in (-1, 1):  # the best is at one end or the other of everything

            def score(setting, seed, sign=sign):
                return sign * math.fsum(map(math.log, setting)) + 0.1 * seed

            searched(axes, score, start, seeds, least_budget(axes, seeds) + extra)


def test_a_budget_that_the_grid_does_not_fit_into_is_refused():
    least = least_budget([STEP], 2)

    with pytest.raises(ValueError, match=f"needs a budget of {least} runs, got {least - 1}; raise"):
        next(halving([STEP], (0.2,), 2, least - 1))


def test_a_search_is_the_same_whenever_it_is_made():
    assert searched([STEP, LOCAL], bowl(0.3, 4), (0.2, 1)) == searched(
        [STEP, LOCAL], bowl(0.3, 4), (0.2, 1)
    )
