"""The table of arms: paired differences by their textbook formula, winners, ties, and three ways to
print it."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from folkman.record.folder import MADE_IN_PYTHON, RunFolder
from folkman.record.run import Run
from folkman.record.store import SweepFolder
from folkman.record.table import Arm, objectives_of
from folkman.report.comparison import compare_arms, complaints
from folkman.report.networks import bounds
from folkman.report.pivot import pivoted
from folkman.report.sheets import render
from folkman.report.tables import spread

NUMBERS = st.floats(-10, 10, allow_nan=False, width=32)


def arms(**values):
    """Return arms whose runs end at the given losses, seed by seed; halfway they stand at twice
    that."""
    return {
        name: {
            seed: Run(
                "x",
                name,
                seed,
                [
                    {"slots": 5.0, "train_loss": 2 * v, "kappa": v},
                    {"slots": 10.0, "train_loss": v, "kappa": v},
                ],
            )
            for seed, v in enumerate(own)
        }
        for name, own in values.items()
    }


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=2, max_size=8))
def test_differences_are_those_of_a_paired_t_test(pairs):
    a, b = (np.array(side, float) for side in zip(*pairs, strict=True))
    found = compare_arms(arms(a=a, b=b), ["train_loss"], against="b").cells["a", "train_loss"]

    assert found.difference == pytest.approx((a - b).mean(), abs=1e-12)
    if np.std(a - b) > 1e-4:  # less is the rounding of single precision
        interval = stats.ttest_rel(a, b).confidence_interval(0.95)
        assert found.difference - found.difference_half == pytest.approx(
            interval.low, rel=1e-6, abs=1e-9
        )
        assert found.difference + found.difference_half == pytest.approx(
            interval.high, rel=1e-6, abs=1e-9
        )


def test_pairing_finds_what_the_arms_own_intervals_hide():
    """Seeds that differ by 10 and arms that differ by 0.1: the arms' intervals overlap, the
    difference is plain."""
    base = np.array([0.0, 10.0, 20.0, 30.0])
    found = compare_arms(
        arms(low=base, high=base + 0.1 + 0.01 * np.array([1, -1, 1, -1])), ["train_loss"]
    )
    low, high = found.cells["low", "train_loss"], found.cells["high", "train_loss"]

    assert low.rank == "winner"
    assert high.rank == ""
    assert low.half > 10 > high.difference > high.difference_half


def test_an_arm_within_the_interval_of_the_difference_is_tied():
    found = compare_arms(
        arms(a=[1.0, 2.0, 3.0], b=[1.3, 1.9, 3.2], c=[9.0, 9.5, 9.1]), ["train_loss"]
    )

    assert [found.cells[arm, "train_loss"].rank for arm in "abc"] == ["winner", "tied", ""]


@pytest.mark.parametrize("form", ["text", "markdown", "latex"])
def test_a_difference_that_all_seeds_share_tells_no_arm_apart(form):
    """One test sample of 160 in each of three seeds: no spread, and so no size of chance."""
    hits = {"a": (150, 152, 155), "b": (149, 151, 154)}
    both = arms(**{n: [float(np.float32(1 - k / 160)) for k in own] for n, own in hits.items()})

    found = compare_arms(both, ["train_loss"])
    cell, text = found.cells["b", "train_loss"], render(found, form)

    assert (cell.difference_half, cell.rank) == (0.0, "tied")
    assert cell.difference == pytest.approx(1 / 160, rel=1e-4)
    assert "not told apart from 0: b (train loss)" in text
    assert "surely best" not in text
    grid = pivoted(both, {n: Arm("m", {"gamma": 5, "of": n}) for n in both}, "gamma", "train_loss")
    assert "surely best" not in grid


def test_equal_arms_are_tied_without_a_note():
    found = compare_arms(arms(a=[1.0, 2.0, 3.0], b=[1.0, 2.0, 3.0]), ["train_loss"])

    assert found.cells["b", "train_loss"].rank == "tied"
    assert "all seeds alike" not in render(found)


def test_more_is_better_where_it_is():
    found = compare_arms(arms(a=[0.1, 0.2], b=[0.8, 0.9]), ["train_loss", "kappa"])

    assert found.references == {"train_loss": "a", "kappa": "b"}
    assert "paired by seed, from the best of each column: 'a'; 'b'" in render(found)


def test_a_diverged_run_cannot_win_and_is_shown_as_such():
    found = compare_arms(arms(a=[0.1, float("nan")], b=[5.0, 6.0]), ["train_loss"])

    assert found.cells["b", "train_loss"].rank == "winner"
    assert found.cells["a", "train_loss"].rank == ""
    assert re.search(r"^a\s+-", render(found), re.M)
    assert next(row for row in found.rows() if row["arm"] == "a")["mean"] is None


def test_only_seeds_that_both_arms_have_are_paired():
    both = arms(a=[1.0, 2.0, 3.0], b=[2.0, 3.0, 5.0])
    del both["b"][0]

    cell = compare_arms(both, ["train_loss"], against="a").cells["b", "train_loss"]

    assert (cell.num_seeds, cell.num_paired, cell.difference) == (2, 2, 1.5)


def test_a_mean_is_of_the_seeds_that_are_ranked():
    both = arms(a=[9.0, 2.0, 3.0, 4.0], b=[2.5, 3.5, 4.5, 5.5])
    del both["b"][0]

    found = compare_arms(both, ["train_loss"])

    assert [found.cells[arm, "train_loss"].mean for arm in "ab"] == [3.0, 4.5]
    assert found.cells["a", "train_loss"].rank == "winner"
    assert found.cells["a", "train_loss"].num_seeds == 3


def test_an_arm_with_too_few_seeds_is_shown_and_not_ranked():
    three = arms(a=[1.0, 2.0, 3.0], b=[2.0, 3.0, 5.0], c=[0.1, 0.1, 0.1])
    del three["c"][1], three["c"][2]

    found = compare_arms(three, ["train_loss"])

    assert found.references["train_loss"] == "a"
    assert found.cells["c", "train_loss"].rank == ""
    assert "not ranked: c (too few common seeds: it has 1)" in render(found)


def test_free_links_are_shown_and_not_ranked():
    found = compare_arms(
        arms(a=[1.0, 1.1, 1.2], b=[2.0, 2.2, 2.1], free=[0.1, 0.2, 0.1]),
        ["train_loss"],
        bounds=bounds({"a": "radio", "b": "radio", "free": "ideal"}),
    )

    assert found.references["train_loss"] == "a"
    assert [found.cells[arm, "train_loss"].rank for arm in ("a", "b", "free")] == ["winner", "", ""]
    assert "not ranked: free (its messages take no time)" in render(found)
    assert bounds({"a": "ideal", "b": "ideal"}) == []  # nobody pays: all are ranked


def test_in_latex_what_an_arm_is_has_columns_of_its_own():
    known = {"a, 5": Arm("a", {"gamma": 5}), "a, 10": Arm("a", {"gamma": 10})}
    found = compare_arms(arms(**{"a, 5": [1.0, 1.1, 1.2], "a, 10": [2.0, 2.1, 2.3]}), ["bits"])
    text = render(found, "latex", arms=known)

    assert r"\begin{tabular}{llS[table-format=1]S[table-format=1]}" in text
    assert r"algorithm & gamma & {bits} & {bits: difference} \\" in text
    assert r"a & 10 & " in text


def sweep_arms():
    ends = {("A_1", 5): 1.0, ("A_1", 10): 3.0, ("B", 5): 2.0, ("B", 10): 1.5}
    known = {f"{n}, gamma={g}": Arm(n, {"gamma": g}) for n, g in ends}
    last = {"A_1": 0.2, "B": 0.201}
    losses = {f"{n}, gamma={g}": [v, v + 0.1, v + last[n]] for (n, g), v in ends.items()}
    return arms(**losses), known


def test_a_pivot_has_an_axis_across_and_a_winner_in_each_column():
    known = sweep_arms()[1]
    text = pivoted(*sweep_arms(), "gamma", "train_loss", "latex")

    assert r"\begin{tabular}{lS[table-format=1.2(3)]S[table-format=1.2(3)]}" in text
    assert r"algorithm & {gamma=5} & {gamma=10} \\" in text
    assert r"A\_1 & \bfseries 1.10 +- 0.25 & 3.10 +- 0.25 \\" in text
    assert r"B & 2.10 +- 0.25 & \bfseries 1.60 +- 0.25 \\" in text
    known["free"] = Arm("free", {})
    some = {"free": next(iter(sweep_arms()[0].values())), **sweep_arms()[0]}
    lines = pivoted(some, known, "gamma", "train_loss").splitlines()
    assert lines[0].split() == ["algorithm", "gamma=5", "gamma=10", "without", "it"]
    assert lines[2].split() == ["free", "1.10", "±", "0.25"]  # alone in its column: no star
    with pytest.raises(ValueError, match="there is no axis 'gama' in these arms; did you mean 'ga"):
        pivoted(*sweep_arms(), "gama", "train_loss")
    with pytest.raises(ValueError, match="--pivot AXIS is for sweeps"):
        pivoted(sweep_arms()[0], {}, "gamma", "train_loss")


@pytest.mark.parametrize("width", [34, 50, 80])
def test_a_pivot_keeps_to_a_terminal_and_loses_nothing(width):
    whole = pivoted(*sweep_arms(), "gamma", "train_loss")
    text = pivoted(*sweep_arms(), "gamma", "train_loss", width=width)

    assert max(map(len, text.splitlines())) <= width
    for cell in ("gamma=5", "gamma=10", "1.10 ± 0.25 *", "1.60 ± 0.25 *", "3.10 ± 0.25"):
        assert text.count(cell) == whole.count(cell), cell
    tables = text.count("algorithm")
    assert (tables, text.count("A_1")) == ((2, 2) if width == 34 else (1, 1))


@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_terminal_is_kept_to(width):
    found = compare_arms(
        arms(**{"Algorithm 1": [1.0, 1.11, 1.2], "FedAvg, free links": [2.0, 2.22, 2.1]}),
        ["train_loss", "test_accuracy", "bits"],
    )
    text = render(found, notes=["radio: " + "word " * 40], width=width)

    assert max(map(len, text.split("\n"))) <= width
    assert text.count("FedAvg, free links") >= 3  # a table per metric
    assert "±" in text


def test_arms_can_be_compared_on_the_way():
    found = compare_arms(arms(a=[1.0, 2.0]), ["train_loss"], at=("slots", 7))

    assert found.cells["a", "train_loss"].mean == 3.0


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"metrics": ["train_los"]}, "did you mean 'train_loss'"),
        ({"metrics": ["train_loss"], "against": "q"}, "there is no arm 'q'"),
        ({"metrics": ["train_loss"], "at": ("slot", 1.0)}, "did you mean 'slots'"),
    ],
)
def test_what_is_not_there_is_told(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        compare_arms(arms(a=[1.0]), **options)


def test_the_three_forms_mark_the_winner_and_say_the_same_numbers():
    found = compare_arms(
        arms(**{"a_1 & b": [1.0, 2.0, 3.0], "c|d": [9.0, 9.5, 9.1]}), ["train_loss"]
    )
    text, markdown, latex = (render(found, form) for form in ("text", "markdown", "latex"))

    assert "2.0 ± 2.5 *" in text
    assert "**2.0 ± 2.5**" in markdown
    assert "c\\|d" in markdown
    assert r"a\_1 \& b & \bfseries 2.0 +- 2.5 & " in latex
    for form in (text, markdown, latex):
        assert "+7.2" in form
    with pytest.raises(ValueError, match="there is no format 'html'"):
        render(found, "html")


def test_one_seed_ties_nobody_and_the_table_says_so():
    found = compare_arms(arms(a=[0.35], b=[0.82]), ["train_loss"])

    assert [found.cells[arm, "train_loss"].rank for arm in "ab"] == ["winner", ""]
    for form in ("text", "markdown", "latex"):
        assert "ne seed: no interval" in render(found, form)
        assert "surely" not in render(found, form)
        assert not set("*~†") & set(render(found, form))
        assert "bfseries" not in render(found, form)


def test_latex_has_minus_signs_and_no_digits_beyond_the_interval():
    found = compare_arms(
        arms(a=[0.1, 0.12, 0.11], b=[0.234567, 0.2445, 0.2345]), ["train_loss"], against="b"
    )
    line = next(line for line in render(found, "latex").splitlines() if line.startswith("a &"))

    assert line == r"a & \bfseries 0.110 +- 0.025 & -0.128 +- 0.014 \\"


@given(st.floats(-1e7, 1e7, allow_subnormal=False), st.floats(1e-9, 1e6, allow_subnormal=False))
def test_mean_and_half_width_end_at_the_same_place(mean, half):
    """The half-width keeps two digits, and the mean is rounded where they end."""
    shown_mean, shown_half = spread(mean, half).split(" ± ")
    unit = 10.0 ** (np.floor(np.log10(float(f"{half:.1e}"))) - 1)

    assert float(shown_half) == pytest.approx(half, abs=0.51 * unit)
    assert float(shown_mean) == pytest.approx(mean, abs=max(0.51 * unit, 1e-12 * abs(mean)))
    if "e" not in shown_mean:
        assert len(shown_mean.partition(".")[2]) == len(shown_half.partition(".")[2])


def test_arms_that_do_not_learn_are_named_with_their_first_reason():
    def ended(seed, verdict, reason=""):
        return Run("fedavg", "FedAvg", seed, verdict=verdict, reason=reason)

    arms = {
        "good": {0: ended(0, "finished"), 1: ended(1, "finished")},
        "bad": {0: ended(0, "finished"), 1: ended(1, "not learning", "the loss rose; lower it")},
        "worse": {0: ended(0, "diverged", "not finite; try less")},
    }
    assert complaints(arms) == [
        "bad: 1 of 2 runs not learning; the loss rose; lower it",
        "worse: 1 of 1 runs diverged; not finite; try less",
    ]


@pytest.mark.parametrize("form", ["text", "markdown", "latex"])
def test_the_objective_is_printed_with_the_table(form):
    found = compare_arms(arms(a=[1.0, 2.0], b=[2.0, 3.0]), ["train_loss"])

    assert "objective" not in render(found, form)  # nobody knows
    assert "objective nodes" in render(found._replace(objectives=["nodes"]), form)
    unlike = render(found._replace(objectives=["samples", "nodes"]), form)
    assert "losses of unlike objectives do not compare" in unlike


def test_a_folder_tells_its_objective_and_one_of_before_is_of_samples(tmp_path):
    for name, text in (("before", ""), ("nodes", 'objective = "nodes"\n')):
        RunFolder.create(tmp_path / name, text)
    RunFolder.create(tmp_path / "python", f"{MADE_IN_PYTHON} = true\n", in_python=True)

    assert objectives_of([tmp_path / "before"]) == ["samples"]
    assert objectives_of([tmp_path / "nodes", tmp_path / "before"]) == ["nodes", "samples"]
    assert objectives_of([tmp_path / "python"]) == []


def test_a_sweep_tells_the_objectives_of_its_jobs(tmp_path):
    folder = SweepFolder(tmp_path)
    folder.definition.write_text('objective = "nodes"\n')

    found = folder.objectives([{"settings": {}}, {"settings": {"objective": "samples"}}])

    assert found == ["nodes", "samples"]
