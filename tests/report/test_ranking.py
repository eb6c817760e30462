"""Ranks, budgets, tests and maps: against SciPy, by hand, and on 80 columns."""

import numpy as np
import pytest
from scipy import stats

from folkman.record.run import DIVERGED, FINISHED, Run
from folkman.report.ranking import (
    Ranking,
    friedman,
    holm,
    map_lines,
    order,
    rank_runs,
    ranking_section,
    table_rows,
)

SEEDS = range(6)


def run_of(label, seed, losses, bits, status=FINISHED):
    run = Run("fedavg", label, seed)
    run.status = status
    run.rows = [
        {
            "seconds": float(t),
            "bits": t * bits,
            "gradients": t,
            "energy_j": 1.0 * t,
            "train_loss": loss,
        }
        for t, loss in enumerate(losses)
    ]
    return run


def arms_of(ends, bits=None, diverged=()):
    """Return arms whose losses fall from 1 to their ends in four steps; ends are (seed, arm)."""
    return {
        f"arm {k}": {
            seed: run_of(
                f"arm {k}",
                seed,
                np.geomspace(1.0, ends[seed, k], 5).tolist(),
                1.0 if bits is None else bits[k],
                DIVERGED if (k, seed) in diverged else FINISHED,
            )
            for seed in SEEDS
        }
        for k in range(ends.shape[1])
    }


@pytest.fixture
def ends():
    rng = np.random.default_rng(3)
    return 0.1 * np.exp(0.05 * rng.normal(size=(6, 4)) + np.array([0.3, 0.0, 0.31, 1.0]))


def test_friedmans_p_is_scipys_with_ties_and_without(ends):
    for values in (ends, ends.round(2)):
        ranks = np.apply_along_axis(stats.rankdata, 1, values)

        expected = stats.friedmanchisquare(*values.T).pvalue

        assert friedman(ranks) == pytest.approx(expected, rel=1e-10)


def test_pairs_are_scipys_paired_t_tests_of_the_logarithms_after_holm(ends):
    first = rank_runs(arms_of(ends), "train_loss")[0]

    places = [int(label[-1]) for label in first.labels]
    logs = np.log(ends[:, places])
    pairs = [(i, j) for i in range(4) for j in range(i + 1, 4)]
    raw = np.array([stats.ttest_rel(logs[:, i], logs[:, j]).pvalue for i, j in pairs])
    np.testing.assert_allclose([first.p[i][j] for i, j in pairs], holm(raw), rtol=1e-9)
    np.testing.assert_allclose(
        first.rank, np.apply_along_axis(stats.rankdata, 1, ends).mean(0)[places]
    )
    assert [first.sign(i, 3) for i in range(4)] == ["+", "+", "+", " "]
    assert first.sign(3, 0) == "-"
    assert first.sign(1, 2) == "."  # 0.30 and 0.31 are not told apart


def test_at_equal_bits_a_run_is_judged_by_what_it_had_within_the_median_of_all():
    ends = np.full((6, 3), 0.1) * np.array([1.0, 0.5, 2.0])
    found = {
        each.axis: each for each in rank_runs(arms_of(ends, bits=(1.0, 8.0, 2.0)), "train_loss")
    }

    assert list(found) == ["seconds", "bits", "gradients", "energy_j"]
    assert found["seconds"].labels == ("arm 1", "arm 0", "arm 2")
    assert found["bits"].budget == 8.0  # ends are 4, 32 and 8 bits: arm 1 is at its second row
    assert found["bits"].labels == ("arm 0", "arm 2", "arm 1")
    assert found["bits"].score[2] == pytest.approx(np.geomspace(1.0, 0.05, 5)[1])


def test_one_that_diverged_ranks_last_and_has_no_finite_score(ends):
    broken = {(1, seed) for seed in SEEDS}
    first = rank_runs(arms_of(ends, diverged=broken), "train_loss")[0]

    assert first.labels[-1] == "arm 1"
    assert first.rank[-1] == 4.0
    assert np.isinf(first.score[-1])
    assert first.sign(0, 3) == "+"


def test_a_difference_that_all_seeds_share_is_not_sure(ends):
    """Arm 1 ends at twice the loss of arm 0 in every seed; arm 2 never by the same."""
    ends[:, 1], ends[:, 2] = 2 * ends[:, 0], 4 * ends[:, 2]
    first = rank_runs(arms_of(ends[:, :3]), "train_loss")[0]
    place = first.labels.index

    assert first.sign(place("arm 0"), place("arm 1")) == "."
    assert first.sign(place("arm 0"), place("arm 2")) == "+"


def test_one_that_always_diverged_is_surely_behind_the_worst_that_never_did(ends):
    """It counts as ten times the worst, which is arm 3 in every seed: a difference all share."""
    broken = {(1, seed) for seed in SEEDS}
    first = rank_runs(arms_of(ends, diverged=broken), "train_loss")[0]

    assert first.labels[2:] == ("arm 3", "arm 1")
    assert first.sign(2, 3) == "+"


def test_more_is_better_for_accuracy(ends):
    arms = arms_of(ends)
    for runs in arms.values():
        for run in runs.values():
            run.rows = [row | {"test_accuracy": 1 - row["train_loss"]} for row in run.rows]

    by_loss, by_accuracy = (
        rank_runs(arms, metric)[0] for metric in ("train_loss", "test_accuracy")
    )

    assert by_loss.labels == by_accuracy.labels
    assert by_accuracy.score[0] == pytest.approx(1 - by_loss.score[0])


def test_thirty_methods_of_long_names_fit_on_eighty_columns():
    ends = 0.1 * np.exp(np.random.default_rng(0).normal(size=(6, 30)))
    found = rank_runs(
        {f"a method of a long name {label}": runs for label, runs in arms_of(ends).items()},
        "train_loss",
    )

    lines = map_lines(found[0])
    heads, rows = table_rows(found, "train_loss")
    assert len(lines) == 31
    assert max(map(len, lines)) <= 80
    widths = [max(len(cell) for cell in column) for column in zip(heads, *rows, strict=True)]
    assert sum(widths[2:]) + 2 * len(widths) + widths[0] + 16 <= 80  # names may be folded
    assert [row[1] for row in rows] == list(order(found))


def test_an_answer_is_read_back_and_drawn(ends):
    found = rank_runs(arms_of(ends), "train_loss")
    answer = {"score": "train_loss", "seeds": [*SEEDS], "left_out": {"x": "no <server>"}}
    answer["rankings"] = [each.answer() for each in found]

    assert [Ranking.read(each) for each in answer["rankings"]] == found
    section = ranking_section(answer)
    assert "arm 3" in section.body
    assert "no &lt;server&gt;" in section.body
    assert section.body.count("<details") == len(found)
