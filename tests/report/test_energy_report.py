"""Joules in tables, pages and comparisons, and folders of versions that knew none."""

from math import isnan, nan

from folkman.record.folder import RunFolder
from folkman.record.run import ENERGY_COLUMNS, Run
from folkman.report.comparison import compare_arms
from folkman.report.run_page import curves_section, results_table
from folkman.report.screen import explained, result_lines
from folkman.report.sheets import render
from folkman.report.tables import final_rows


def rows(joules):
    known = {"energy_j": joules, "joules_per_percent": joules / 50}
    base = dict.fromkeys(("seconds", "slots", "gradients", "bits", "rounds"), 1.0)
    base |= {"train_loss": 1.0, "test_accuracy": 0.5, "optimum_distance": nan}
    return [base | {"mean_age": 0.0, "kappa": 1.0, "max_age": 0.0} | known]


def test_pages_and_terminals_have_joules():
    runs = [Run("a", "ours", seed, rows(2.0 + seed), "finished") for seed in (0, 1)]
    headings, lines = final_rows(runs)
    assert headings[4] == "joules"
    assert lines[0][4].startswith("2.5 ± ")
    assert "joules" in result_lines(runs, 80)[0]


def test_arms_are_compared_by_joules_in_eighty_columns():
    arms = {name: {0: Run("a", name, 0, rows(j))} for name, j in (("ours", 2.0), ("theirs", 3.0))}
    found = compare_arms(arms, ["energy_j", "joules_per_percent"])
    assert found.references["energy_j"] == "ours"  # less is better
    table = render(found).splitlines()
    assert "joules" in table[0]
    assert max(map(len, table[:4])) <= 80
    at = compare_arms(arms, ["train_loss"], at=("energy_j", 2.5))
    assert at.cells["ours", "train_loss"].mean == 1.0
    assert isnan(at.cells["theirs", "train_loss"].mean)  # its first row has spent more


def test_curves_of_a_radio_run_have_an_axis_of_energy(radio_folder):
    runs = RunFolder.open(radio_folder).load_results()
    assert all(run.last("energy_j") > 0 for run in runs)
    assert "Training loss F(w) against energy of all nodes (J)" in curves_section(runs).body
    summary = runs[0].summary()
    assert summary["energy_j"] == runs[0].last("energy_j")


def test_rows_of_earlier_versions_are_shown_without_joules():
    old = [{k: v for k, v in rows(1.0)[0].items() if k not in ENERGY_COLUMNS}]
    runs = [Run("a", "ours", 0, old, "finished")]
    assert "joules" not in final_rows(runs)[0]
    assert "joules" not in result_lines(runs, 80)[0]
    assert runs[0].summary()["energy_j"] is None
    assert "energy" not in curves_section(runs).body
    cell = compare_arms({"ours": {0: runs[0]}}, ["train_loss"], at=("energy_j", 5.0))
    assert isnan(cell.cells["ours", "train_loss"].mean)


def test_joules_of_links_without_a_radio_are_explained_where_they_are_shown():
    """Such a message takes no time, and yet it is charged: by its bits."""
    runs = [Run("a", "Free links", 0, rows(78.9), "finished")]
    assert "free links are charged by their bits" in " ".join(explained(runs, 80))
    page = results_table(runs, "algorithm")
    tooltip = page[page.index('title="') : page.index(">joules<")]
    assert "bits / energy.link_bits_per_s" in tooltip
