"""The comparison of all methods: its plan is whole, and its arithmetic is that of the plan."""

from collections.abc import Sequence
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text

from benchmarks.comparison import concerned, lines_of, packed, padded, read_plan, settled
from benchmarks.comparison_expected import expected
from benchmarks.comparison_expected_added import expected_of_added
from benchmarks.comparison_figures import _write_names, apart
from benchmarks.comparison_judge import (
    NEVER_WAITS,
    Side,
    compared,
    mean_ranks,
    ranked,
    sides_of,
)
from benchmarks.comparison_momentum import MEASURED, PAIRS, momentum_by_cell, momentum_table
from benchmarks.comparison_page import draw
from benchmarks.comparison_pairs import pairs_table
from folkman.algorithm import ALGORITHMS
from folkman.config.build import build_problem
from folkman.config.comparison import resolve
from folkman.experiment.tunable import GRIDS

PLAN = read_plan()
ROOT = Path(__file__).parents[2]


LATER = {
    "a2cid2",
    "async_dgd",
    "bass",
    "choco",
    "dfedsam",
    "dfl_aa",
    "divshare",
    "draco",
    "dsgt",
    "edm",
    "epidemic",
    "exact_diffusion",
    "feddyn",
    "fedopt",
    "fedprox",
    "matcha",
    "ncota_dgd",
    "proxskip",
    "rfast",
    "ringleader",
    "ringmaster",
    "scaffold",
}
"""Methods that came when the runs of the plan had been made."""


def test_every_method_but_later_ones_is_a_side_of_the_plan() -> None:
    assert {method["name"] for method in PLAN.methods} == set(ALGORITHMS) - LATER


def test_nobody_is_tuned_on_seeds_that_are_judged() -> None:
    for cell in PLAN.cells:
        assert not set(cell.judge_seeds) & set(PLAN.tune_seeds)


def test_the_cells_of_the_factors_are_all_there() -> None:
    names = {cell.name for cell in PLAN.cells}
    for gamma in (5, 15):
        for data in ("even", "label"):
            for batch in ("", "-batch"):
                for compute in ("", "-unequal"):
                    assert f"digits-{gamma}-{data}{batch}{compute}" in names


def test_mnist_is_crossed() -> None:
    by_name = {cell.name: cell for cell in PLAN.cells}
    for model, uneven in (
        ("mnist-softmax", "dirichlet"),
        ("mnist-mlp", "dirichlet"),
        ("cnn", "label"),
    ):
        for network in ("5", "15", "radio"):
            for data in ("even", uneven):
                cell = by_name[f"{model}-{network}-{data}"].config
                assert cell["data"]["name"] == "mnist"
                assert cell["model"]["name"] == model.removeprefix("mnist-")
                assert str(cell["network"].get("gamma", "radio")) == network
                assert (cell.get("partition") is None) == (data == "even")


def test_momentum_is_the_only_thing_that_differs_in_a_pair() -> None:
    """A side with 0.9 and its side without resolve to the same options but for momentum."""
    cell = PLAN.cells[0]
    tables = {
        method["label"]: resolve(settled(cell, method, None)).algorithm[0]
        for method in PLAN.methods
        if concerned(cell, method)
    }
    momentum = {"sgd": 0.0, "momentum": 0.9}
    for none, heavy in PAIRS.values():
        without, with_it = ({**tables[label], "label": ""} for label in (none, heavy))
        told = [
            table.get("momentum", momentum.get(table.get("optimizer", "")))
            for table in (without, with_it)
        ]
        assert told == [0.0, 0.9]
        differ = {key for key in without if without[key] != with_it[key]}
        assert differ in ({"momentum"}, {"optimizer"})


def test_parts_are_run_in_order_and_first_lines_first() -> None:
    """A cut leaves the parts before it whole; what was there first has the first part."""
    parts = [max(cells[0].part, method.get("part", 1)) for cells, method in PLAN.jobs()]
    assert parts == sorted(parts)
    assert set(parts) == {1, 2, 3, 4}
    assert len(parts) == len({cell.group for cell in PLAN.cells}) * len(PLAN.methods)
    assert all(cell.part == 1 for cell in PLAN.cells if not cell.added)
    assert all(method.get("part", 1) > 1 for method in PLAN.methods if method.get("added"))
    assert sum(not cell.added for cell in PLAN.cells) == 25
    assert len(PLAN.methods) - len(PLAN.unranked()) == 18


@pytest.mark.parametrize("cell", PLAN.cells, ids=lambda cell: cell.name)
def test_every_cell_is_a_configuration(cell) -> None:
    for method in (*PLAN.methods[:4], *(m for m in PLAN.methods if m.get("added"))):
        if concerned(cell, method):
            config = resolve(settled(cell, method, None))
            assert config.algorithm[0]["label"] == method["label"]
            assert set(cell.over) <= set(GRIDS)


def test_the_line_has_the_transfer_time_of_its_cell() -> None:
    cell = next(cell for cell in PLAN.cells if cell.name == "digits-15-even")
    line = next(method for method in PLAN.methods if method["label"] == "one step per traversal")
    network = settled(cell, line, None)["algorithm"][0]["network"]
    assert network == {"name": "pipelined", "gamma": 15, "download_slots": 0}


def test_padding_changes_no_measure() -> None:
    config = resolve({"model": {"name": "softmax"}, "algorithm": [{"name": "fedavg"}]})
    problem = build_problem(config, 3)
    wide = padded(problem, problem.x.shape[1] + 13)
    w = jnp.asarray(np.random.default_rng(0).normal(size=problem.dim), jnp.float32)
    for one, other in zip(problem.evaluate(w), wide.evaluate(w), strict=True):
        assert float(one) == pytest.approx(float(other), rel=1e-5, nan_ok=True)


def _line(label: str, losses: Sequence[float | None], score: float = 1.0) -> dict:
    """Return a line of two records per seed: the first loss is 2."""
    judged = {
        str(seed): {
            "status": "finished" if loss is not None else "diverged",
            "slots": [0, 150, 300],
            "gradients": [0, 50, 300],
            "bits": [0, 61 * 32, 90 * 32],
            "train_loss": [2.0, 1.5, loss],
            "test_accuracy": [0.1, 0.5, 0.9],
            "kappa": 1.0,
        }
        for seed, loss in enumerate(losses)
    }
    line = {"cell": "digits-5-even", "label": label, "score": score, "message_bits": 32}
    return {**line, "judged": judged, "options": {"step": 0.1}, "at_edge": []}


def _sides(*lines: dict) -> list[Side]:
    return sides_of(lines, "digits-5-even", 60, 50)


def test_a_run_is_read_at_the_last_record_that_is_not_beyond_the_point() -> None:
    (side,) = _sides(_line("FedAvg", [0.5, 0.25]))
    np.testing.assert_allclose(side.measure["time"], np.log([0.5, 0.25]))
    np.testing.assert_allclose(side.measure["gradients"], np.log([1.5, 1.5]))
    np.testing.assert_allclose(side.measure["bits"], np.log([2.0, 2.0]))  # 61 messages are beyond


def test_a_run_that_diverged_counts_as_ten_times_its_first_loss() -> None:
    (side,) = _sides(_line("FedAvg", [None, 1e9]))
    np.testing.assert_allclose(side.measure["time"], np.log([20.0, 20.0]))


def test_ranks_and_their_intervals() -> None:
    sides = _sides(
        _line("best", [0.1, 0.1, 0.1]),
        _line("FedAvg", [0.2, 0.9, 0.2]),  # one bad seed
        _line("third", [0.4, 0.4, 0.4]),
    )
    places = ranked(sides, "time")
    assert places["best"] == (1, 1, 1)
    assert places["FedAvg"] == (2, 2, 3)
    assert places["third"][0] == 3
    assert mean_ranks([sides, sides], "time")["best"] == (1.0, 1.0, 1.0, 2)


def test_ahead_needs_an_interval_and_a_margin() -> None:
    even = [0.50, 0.52, 0.51, 0.49, 0.50]
    fedavg, near, half, wild = _sides(
        _line("FedAvg", even),
        _line("near", [0.97 * loss for loss in even]),
        _line("half", [0.50 * loss for loss in even]),
        _line("wild", [0.01, 2.0, 0.3, 1.0, 0.2]),
    )
    assert compared(half, fedavg).verdict == "ahead"
    assert compared(fedavg, half).verdict == "behind"
    assert compared(near, fedavg).verdict == "level"
    assert compared(wild, fedavg).verdict == "level"
    assert compared(half, fedavg).ratio == pytest.approx(0.5)


def test_expectations_tell_refuted_from_open() -> None:
    sides = _sides(
        _line("FedAvg", [0.5, 0.5, 0.5]),
        _line("Algorithm 1", [0.1, 0.1, 0.1]),
    )
    table = expected({"digits-5-even": sides}).splitlines()
    assert table[2].endswith("| refuted |")
    assert "Algorithm 1 ahead" in table[2]
    assert all("open" in row for row in table[3:])


def test_momentum_is_told_by_ratio_verdicts_and_ranks_at_equal_momentum() -> None:
    even = [0.50, 0.52, 0.51, 0.49, 0.50]
    losses = {
        "FedAvg": 1.0,
        "FedAvg, momentum 0.9": 0.5,
        "Algorithm 1": 0.9,
        "Algorithm 1, momentum 0.9": 1.8,
        "DFedAvgM, no momentum": 0.8,
        "DFedAvgM": 0.4,
    }
    sides = _sides(
        *(_line(label, [times * loss for loss in even]) for label, times in losses.items())
    )
    rows = [row.split(" | ") for row in momentum_table({"a": sides, "b": sides}).splitlines()]
    assert rows[2][:6] == [
        "| FedAvg",
        "2",
        "0.50",
        "2, 0, 0",
        "3.0 (3.0 to 3.0)",
        "2.0 (2.0 to 2.0)",
    ]
    assert rows[3][1:6] == ["2", "2.00", "0, 0, 2", "2.0 (2.0 to 2.0)", "3.0 (3.0 to 3.0)"]
    assert rows[4][1:6] == ["2", "0.50", "2, 0, 0", "1.0 (1.0 to 1.0)", "1.0 (1.0 to 1.0)"]
    (row,) = momentum_by_cell({"a": sides}).splitlines()[2:]
    ratios = [float(told.split(" (")[0]) for told in row.split(" | ")[1:5]]
    assert ratios == [0.8, 0.8, 0.9, 3.6]


def test_the_measured_own_part_is_judged_on_seeds_that_nobody_had_seen() -> None:
    """On digits the seeds 0 to 4 do not count; on MNIST all do."""
    plain, good = [1.0] * 10, [10.0] * 5 + [0.1, 0.11, 0.1, 0.11, 0.1]
    sides = _sides(_line("FedAvg", plain), _line("Algorithm 1", plain), _line(MEASURED, good))
    for cell, verdict in (("digits-5-even", "ahead in 1"), ("mnist-mlp-5-even", "ahead in 0")):
        table = expected_of_added(PLAN.cells, {cell: sides}, PLAN.unranked()).splitlines()
        assert verdict in table[-2]
        assert "of 10" in table[-2]
        assert "of 28" in table[-1]


def test_expectations_of_the_added_are_open_until_their_cells_are_there() -> None:
    rows = expected_of_added(PLAN.cells, {cell.name: [] for cell in PLAN.cells}, set()).splitlines()
    assert len(rows) == 2 + 9
    assert all("nothing yet | open" in row for row in rows[2:])
    fall = {
        "mnist-softmax-radio-even": _sides(
            _line("FedAvg", [0.5] * 3), _line("Algorithm 1", [0.4] * 3)
        )
    }
    rows = expected_of_added(PLAN.cells, fall, set()).splitlines()
    assert rows[4] == "| E9 | `mnist-softmax-radio-even`: 0.80 | refuted |"


def test_pairs_are_told_on_seeds_that_nobody_had_seen() -> None:
    """The measured own part is bad on the seeds 0 to 4 of digits, and these do not count."""
    plain, good = [1.0] * 10, [10.0] * 5 + [0.1, 0.11, 0.1, 0.11, 0.1]
    sides = _sides(
        _line("FedAvg", plain), _line(MEASURED, good), _line("FedAvg, free links", [0.01] * 10)
    )
    for cell, row, wins in (
        (
            "digits-5-even",
            "| measured own part / FedAvg, without the radio | 1 | 0.10 | 1, 0, 0 |",
            1,
        ),
        ("mnist-softmax-radio-even", "| measured own part / FedAvg, on the radio | 1 | 1.02 |", 0),
    ):
        table = pairs_table(PLAN.cells, {cell: sides}, {"FedAvg, free links"})
        assert row in table
        assert f"in {wins} of 1 cells" in table


def test_a_verdict_stands_early_only_if_no_missing_cell_can_change_it() -> None:
    """E13 with 14 cells of Gamma 15 is refuted by five in which momentum is ahead."""
    plain, twice = [1.0, 1.01, 1.0], [0.5, 0.51, 0.5]
    worse = _sides(_line("Algorithm 1", twice), _line("Algorithm 1, momentum 0.9", plain))
    better = _sides(_line("Algorithm 1", plain), _line("Algorithm 1, momentum 0.9", twice))
    names = [cell.name for cell in PLAN.cells if cell.config["network"].get("gamma") == 15]
    assert len(names) == 14

    def verdict(behind: int, ahead: int) -> str:
        cells = dict(zip(names, [worse] * behind + [better] * ahead, strict=False))
        rows = expected_of_added(PLAN.cells, cells, set()).splitlines()
        return rows[2 + 13 - 7].split(" | ")[-1]

    assert verdict(9, 0) == "open: cells are missing |"
    assert verdict(10, 0) == "not refuted, whatever the missing cells show |"
    assert verdict(10, 4) == "not refuted |"
    assert verdict(0, 4) == "open: cells are missing |"
    assert verdict(0, 5) == "refuted |"


def test_nobody_ahead_counts_only_where_all_who_never_wait_ran() -> None:
    """E7: two cells with FedAvg and Algorithm 1 alone tell nothing of the others."""
    few = _sides(_line("FedAvg", [1.0, 1.1, 1.0]), _line("Algorithm 1", [2.0, 2.1, 2.0]))
    cells = {f"cnn-{gamma}-even": few for gamma in (5, 15)}
    row = expected_of_added(PLAN.cells, cells, set()).splitlines()[2]
    assert row.count("nobody so far") == 2
    assert row.endswith("| open: cells are missing |")
    whole = [*few, *(few[1]._replace(label=label) for label in NEVER_WAITS[1:])]
    row = expected_of_added(PLAN.cells, dict.fromkeys(cells, whole), set()).splitlines()[2]
    assert row.endswith("| refuted |")


def test_a_cell_that_lacks_one_of_the_eighteen_has_no_ranks(tmp_path) -> None:
    """Its table says so, its panel too, and no mean rank or row of the factors counts it."""
    lines = [_line(label, [0.5, 0.4]) for label in sorted(PLAN.ranked())]
    few = [{**line, "cell": "digits-5-label"} for line in lines[:-1]]
    blocks = ("ranks", "factors", "group-digits")
    page = tmp_path / "comparison.md"
    page.write_text("".join(f"<!-- begin {name} -->\n<!-- end {name} -->\n" for name in blocks))
    plan = PLAN._replace(cells=PLAN.cells[:2])
    draw(plan, [*lines, *few], tmp_path)
    told = page.read_text()
    assert "Mean ranks over the 1 cells in which all ran." in told
    assert "`digits-5-label`" not in told  # no row of the factors
    assert "<code>digits-5-label</code>: partly run, 17 methods, no ranks" in told
    assert told.count("| rank |") == 3  # of the one whole cell


def test_names_are_moved_apart_by_as_little_as_needed() -> None:
    np.testing.assert_allclose(apart([0.1, 0.5, 0.9], 0.1), [0.1, 0.5, 0.9])
    np.testing.assert_allclose(apart([0.5, 0.5, 0.9], 0.1), [0.45, 0.55, 0.9])
    low = apart([0.0, 0.01, 0.02], 0.1)  # the panel ends at 0
    np.testing.assert_allclose(low, [0.0, 0.1, 0.2])
    many = apart(sorted(np.random.default_rng(0).random(9)), 0.08)
    assert np.diff(many).min() > 0.08 - 1e-9


def test_a_line_to_a_name_crosses_no_other_name() -> None:
    """Five curves that end together: each line ends where its name begins."""
    figure = Figure(figsize=(4.9, 3.3), layout="constrained")
    axes = figure.add_subplot()
    axes.set_yscale("log")
    for _ in range(5):
        axes.plot([0, 100], [2.0, 0.5])
    axes.set_ylim(0.01, 3.0)
    _write_names(axes, [(0.5 + k / 1e3, f"a long name {k}", "black") for k in range(5)])
    figure.draw_without_rendering()
    names = [text for text in axes.texts if isinstance(text, Annotation)]
    assert len(names) == 5
    left = min(Text.get_window_extent(name).x0 for name in names)
    for arrow in (name.arrow_patch for name in names):
        assert arrow is not None
        path = arrow.get_path().transformed(arrow.get_transform())
        assert np.asarray(path.vertices)[:, 0].max() <= left + 1


def test_results_are_packed_and_read_in_the_order_of_the_plan(tmp_path) -> None:
    late, early = _line("Algorithm 1", [0.5]), _line("FedAvg", [0.25])
    packed([late, early], PLAN, tmp_path / "results.jsonl.xz")
    assert lines_of(tmp_path) == [early, late]
    assert lines_of(tmp_path / "results.jsonl.xz") == [early, late]


def test_the_pages_show_the_results_that_are_kept() -> None:
    kept = lines_of(ROOT / "docs" / "data" / "comparison")
    fixed = (PLAN.bits_in_messages, PLAN.gradients)
    sides = {cell.name: sides_of(kept, cell.name, *fixed) for cell in PLAN.cells}
    page = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
    assert expected(sides) in page
    unranked = PLAN.unranked()
    assert expected_of_added(PLAN.cells, sides, unranked) in page
    assert momentum_table(sides) in page
    references = {m["label"] for m in PLAN.methods if m.get("reference")}
    assert pairs_table(PLAN.cells, sides, references) in page
    assert momentum_by_cell(sides) in page
    first = [sides[cell.name] for cell in PLAN.cells if not cell.added]
    judged = [[s for s in each if s.label not in unranked] for each in first]
    ranks = [mean_ranks(judged, axis) for axis in ("time", "bits", "gradients")]
    for label in ranks[0]:
        row = ["{:.1f} ({:.1f} to {:.1f})".format(*found[label]) for found in ranks]
        assert f"| {label} | {' | '.join(row)} |" in page


def test_every_judged_seed_of_the_kept_results_is_there() -> None:
    seeds = {cell.name: {str(seed) for seed in cell.judge_seeds} for cell in PLAN.cells}
    for line in lines_of(ROOT / "docs" / "data" / "comparison"):
        assert set(line["judged"]) == seeds[line["cell"]]
        assert line["runs"] <= line["budget"]
