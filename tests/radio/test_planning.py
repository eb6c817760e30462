"""Planning: the published Monte-Carlo table through the command's own path, and its figures."""

import json
import sys
from dataclasses import replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folkman.cli import main
from folkman.experiment.survey import Question, _bits_of, _network, survey
from folkman.keys import Stream, make_key
from folkman.radio.network import RadioNetwork
from folkman.radio.planning import (
    Drops,
    age_means,
    best_threshold,
    drop_costs,
    forecast,
    least_aged,
    sawtooth,
)
from folkman.report.cells import draw_ages, draw_map, print_survey
from shell import folkman

# I = 5, one interferer a cell and band, T = 1 s, the paper's CNN: an independent program's figures
TABLE = {
    (-15.0, "optimal"): (0.90, 1.00, 20.1),
    (0.0, "optimal"): (0.51, 0.92, 1.69),
    (15.0, "optimal"): (0.14, 0.42, 0.24),
    (-15.0, "uniform"): (0.90, 1.00, 44.2),
    (0.0, "uniform"): (0.51, 0.92, 2.59),
    (15.0, "uniform"): (0.14, 0.42, 0.28),
}

# I = 15, the same program: mean Gamma_T
LARGE_TABLE = {
    (-15.0, "optimal"): 114.0,
    (0.0, "optimal"): 7.8,
    (15.0, "optimal"): 1.33,
    (-15.0, "uniform"): 211.0,
    (0.0, "uniform"): 10.1,
    (15.0, "uniform"): 1.65,
}

SMALL = Question(
    nodes=3,
    thresholds_db=(3.0,),
    allocations=("uniform", "optimal"),
    drops=Drops(6, 41, 0),
    parameters=650,
    settings=("bandwidth_hz=6e3",),
)


@pytest.fixture(scope="module")
def found():
    return survey(Question(allocations=("optimal", "uniform"), drops=Drops(60)))


@pytest.mark.slow
@pytest.mark.parametrize(("threshold_db", "allocation"), TABLE)
def test_the_published_table_is_met_within_sampling_error(threshold_db, allocation):
    """600 drops; all of the table is in their first blocks, so the network need not run on."""
    network = RadioNetwork(threshold_db=threshold_db, allocation=allocation)

    drawn = forecast(network, 5, 430_698 * 16, Drops(600, slots=1))

    for values, published in zip(
        (drawn.linked, drawn.scheduled, drawn.gamma_t_slots),
        TABLE[threshold_db, allocation],
        strict=True,
    ):
        known = values[np.isfinite(values)]
        error = known.std(ddof=1) / np.sqrt(len(known))
        # both sides are estimates: four standard errors of ours, and half a unit of the last printed digit
        assert known.mean() == pytest.approx(published, abs=4 * error + 0.005 * max(published, 1.0))
    sinr_db = 10 * np.log10(drawn.sinr[:, ~np.eye(5, dtype=bool)])
    np.testing.assert_allclose(np.percentile(sinr_db, [5, 50, 95]), [-20.0, 0.2, 25.0], atol=1.0)


@pytest.mark.slow
@pytest.mark.parametrize(("threshold_db", "allocation"), LARGE_TABLE)
def test_the_durations_of_fifteen_nodes_are_met_within_sampling_error(threshold_db, allocation):
    network = RadioNetwork(threshold_db=threshold_db, allocation=allocation)

    drawn = forecast(network, 15, 430_698 * 16, Drops(300, slots=1))

    known = drawn.gamma_t_slots[np.isfinite(drawn.gamma_t_slots)]
    error = known.std(ddof=1) / np.sqrt(len(known))
    published = LARGE_TABLE[threshold_db, allocation]
    assert known.mean() == pytest.approx(published, abs=4 * error + 0.005 * max(published, 1.0))


@lru_cache
def stepper(network, nodes, bits):
    """Return the compiled step of a network in which everyone always offers."""
    return jax.jit(lambda state, key: network.peers().step(state, jnp.ones(nodes, bool), bits, key))


def rolled(network, question, drop):
    """Run a drop again and return, in plain NumPy, its pairs' ages (slot, pair), finished waits and running ones."""
    nodes, (_, slots, seed) = question.nodes, question.drops
    key = jax.random.fold_in(make_key(seed, Stream.DELAY), drop)
    step, state = (
        stepper(network, nodes, question.parameters * 16),
        network.peers().init(nodes, key),
    )
    since, serving = np.ones((nodes, nodes), int), np.zeros((nodes, nodes), bool)
    others = ~np.eye(nodes, dtype=bool)
    ages, waits, left = [], [], np.zeros(nodes, int)
    for n in range(1, slots + 1):  # n: the coming slot
        if (left <= 1).all():  # the last broadcast of the epoch arrives
            since[serving] = n
            serving[:] = False
        state, delivery = step(state, jax.random.fold_in(key, n - 1))
        linked, left = np.asarray(delivery.linked), np.asarray(state.left)
        waits += (n - since[linked]).tolist()
        serving |= linked
        ages.append((n - np.asarray(delivery.held))[others])
    running = (slots - since)[others & ~serving]
    early = bool((serving & (left == 0)[None]).any())  # a copy has arrived in an epoch that goes on
    return (
        np.array(ages),
        waits,
        running[running > 0].tolist(),
        np.asarray(state.held)[others] == 0,
        early,
    )


@pytest.mark.parametrize("allocation", ["uniform", "optimal"])
def test_a_drop_counts_ages_after_the_warm_up_and_waits_that_still_run(allocation):
    network = RadioNetwork(threshold_db=3.0, allocation=allocation, bandwidth_hz=6e3)
    number, slots, _ = SMALL.drops

    drawn = forecast(network, SMALL.nodes, SMALL.parameters * 16, SMALL.drops)

    assert drawn.ages.sum() == number * 6 * (slots - slots // 4)
    unfinished = early = 0
    for drop in range(number):
        ages, waits, running, unheard, arrived_early = rolled(network, SMALL, drop)
        late = ages[slots // 4 :]
        np.testing.assert_array_equal(
            drawn.ages[drop], np.bincount(late.ravel(), minlength=slots + 1)
        )
        assert drawn.gamma_w_slots[drop] == pytest.approx(np.mean(waits + running), rel=1e-6)
        assert drawn.unheard[drop] == pytest.approx(unheard.mean())
        unfinished += len(running)
        early += arrived_early
    assert unfinished > 5
    assert early > 0 or allocation == "optimal"


def test_the_sawtooth_is_the_first_drop_slot_by_slot():
    network = RadioNetwork(threshold_db=3.0, allocation="optimal", bandwidth_hz=6e3)
    slots = SMALL.drops.slots

    shown = sawtooth(network, SMALL.nodes, SMALL.parameters * 16, slots)

    ages, *_ = rolled(network, SMALL, 0)
    others = ~np.eye(SMALL.nodes, dtype=bool)
    np.testing.assert_array_equal(shown.ages[:, others], ages)
    drawn = forecast(network, SMALL.nodes, SMALL.parameters * 16, Drops(1, slots, 0))
    np.testing.assert_allclose(shown.sinr_db, 10 * np.log10(drawn.sinr[0]), rtol=1e-4, atol=1e-3)
    np.testing.assert_array_equal(shown.linked, (shown.sinr_db > 3.0) & others)
    assert shown.linked.sum() / 6 == pytest.approx(drawn.linked[0])
    assert np.linalg.norm(shown.nodes_m, axis=1).max() <= shown.cell_radius_m == 500.0
    assert np.linalg.norm(shown.interferers_m, axis=1).min() >= 500.0 - 1e-2


def test_where_nobody_hears_anybody_copies_are_as_old_as_the_run():
    """Held is the common first model, of stamp 0, and the ages are those of the coming slots 1, 2, ..."""
    shown = sawtooth(RadioNetwork(threshold_db=np.inf), 3, 16, slots=7, seed=5)

    expected = np.broadcast_to(np.arange(1, 8)[:, None, None], (7, 3, 3))
    np.testing.assert_array_equal(shown.ages, expected)
    assert not shown.linked.any()


def test_a_row_pools_the_ages_of_all_drops_and_gives_intervals():
    found = survey(SMALL)

    assert [row["allocation"] for row in found.rows] == ["uniform", "optimal"]
    assert set(found.best_thresholds_db) == {"uniform", "optimal"}
    assert found.best_threshold_db == found.best_thresholds_db["uniform"]
    for row in found.rows:
        network = RadioNetwork(threshold_db=3.0, allocation=row["allocation"], bandwidth_hz=6e3)
        drops = [rolled(network, SMALL, drop) for drop in range(SMALL.drops.number)]
        late = [ages[SMALL.drops.slots // 4 :].ravel() for ages, *_ in drops]
        pooled = np.concatenate(late)
        assert row["age"]["p95"] == np.quantile(pooled, 0.95, method="inverted_cdf")
        assert row["age"]["p95"] != np.mean(
            [np.quantile(ages, 0.95, method="inverted_cdf") for ages in late]
        )
        assert row["age"]["mean"] == pytest.approx(pooled.mean(), rel=1e-9)
        gamma_w = [np.mean(waits + running) for _, waits, running, *_ in drops]
        assert row["gamma_w"]["mean"] == pytest.approx(np.mean(gamma_w), rel=1e-5)
        half = 2.5706 * np.std(gamma_w, ddof=1) / np.sqrt(6)  # Student's t, five degrees of freedom
        assert row["ci95"]["gamma_w"]["mean"] == pytest.approx(half, rel=1e-3)
        assert row["unheard"] == pytest.approx(
            np.mean([unheard.mean() for *_, unheard, _ in drops])
        )
        assert row["slots"] == SMALL.drops.slots


CELLS = {
    "small, two allocations": SMALL._replace(objective="age"),
    "weak and narrow": Question(
        nodes=4,
        thresholds_db=(-10.0, 0.0, 12.0),
        drops=Drops(20, 60, 3),
        parameters=650,
        objective="age",
        settings=("bandwidth_hz=2e3", "power_dbm=10"),
    ),
    "moving far in every slot": SMALL._replace(
        allocations=("uniform",),
        objective="age",
        settings=("bandwidth_hz=6e3", "speed_m_per_s=600"),
    ),
}


@pytest.mark.parametrize("name", CELLS)
def test_the_advised_threshold_has_the_least_mean_age_of_the_table(name):
    """And its row is what the same drops give at that threshold."""
    question = CELLS[name]

    found = survey(question)

    assert found.planner == "simulation"
    for allocation, row in found.best_rows.items():
        table = [each for each in found.rows if each["allocation"] == allocation]
        assert row["threshold_db"] == found.best_thresholds_db[allocation]
        assert row["age"]["mean"] <= min(each["age"]["mean"] for each in table)
        network = _network(question, row["threshold_db"], allocation)
        bits = question.parameters * 16
        ages = forecast(network, question.nodes, bits, question.drops).ages  # (drop, age)
        mean = (ages * np.arange(ages.shape[1])).sum() / ages.sum()
        assert row["age"]["mean"] == pytest.approx(mean, rel=1e-9)


def test_a_formula_for_moving_nodes_does_not_advise_a_cell_that_stands_still():
    """Nodes that stay where they are: half of the pairs never meet at the formula's threshold."""
    question = CELLS["weak and narrow"]
    network = RadioNetwork(bandwidth_hz=2e3, power_dbm=10)
    bits = question.parameters * 16
    drawn = forecast(network, question.nodes, bits, question.drops)

    advised_db = survey(question).best_threshold_db
    formula_db = best_threshold(network, drawn.sinr, bits, "age").threshold_db

    ages = {
        db: np.mean(
            age_means(
                forecast(replace(network, threshold_db=db), question.nodes, bits, question.drops)
            )
        )
        for db in (advised_db, formula_db)
    }
    assert ages[advised_db] < 0.9 * ages[formula_db]


def test_the_search_asks_around_the_least_and_keeps_what_was_tried_before():
    asked = []

    def age_at(threshold_db):
        asked.append(threshold_db)
        return 1.0 if threshold_db == 7.7 else 2.0 + (threshold_db + 3.3) ** 2

    assert least_aged(age_at, [0.0, 7.7]) == 7.7  # the least of the table is better than all found
    assert least_aged(age_at, [0.0]) == pytest.approx(-3.3, abs=1.0)
    assert len(asked) < 40


@pytest.mark.slow
def test_the_rows_tell_the_papers_story(found):
    by = {(row["threshold_db"], row["allocation"]): row for row in found.rows}

    for threshold_db in (-15.0, 0.0, 15.0):
        best, even = by[threshold_db, "optimal"], by[threshold_db, "uniform"]
        assert best["gamma_t"]["mean"] <= even["gamma_t"]["mean"]
        assert best["p_link"] == even["p_link"]  # the same draws
    assert by[0.0, "optimal"]["age"]["mean"] < min(
        by[-15.0, "optimal"]["age"]["mean"], by[15.0, "optimal"]["age"]["mean"]
    )
    assert set(found.best_thresholds_db) == {"optimal", "uniform"}
    assert all(0.0 < threshold_db < 12.0 for threshold_db in found.best_thresholds_db.values())


@pytest.mark.slow
def test_the_figures_show_the_links_and_the_ages(found):
    picture = found.picture
    drawn = draw_map(picture)
    arrows = [t for t in drawn.axes[0].texts if getattr(t, "arrow_patch", None) is not None]
    assert len(arrows) == picture.linked.sum()
    # the others, without a name, lead from names to the ends of their curves
    drawn = draw_ages(picture).axes[0].lines
    lines = [line for line in drawn if str(line.get_label()).startswith("node")]
    assert len(lines) == 3
    for line in lines:
        steps = np.diff(np.asarray(line.get_ydata()))
        assert set(steps[steps > 0]) <= {1}  # an age grows by one a slot, or falls


def test_the_command_prints_the_promised_object(tmp_path):
    asked = ["--nodes", 3, "--threshold-db", 0, "--drops", 20, "--period", "node"]
    asked += ["--allocation", "random", "--set", "bandwidth_hz=1e6", "--json", "--plot", "m.png"]

    done = folkman("radio", *asked, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    (row,) = answer["rows"]
    assert {
        "nodes",
        "threshold_db",
        "allocation",
        "period",
        "sinr_db",
        "p_link",
        "p_node",
        "gamma_t",
        "gamma_w",
        "age",
        "unheard",
        "slots",
        "ci95",
        "schedule",
        "message",
        "floor",
    } <= set(row)
    assert (row["schedule"], row["message"], row["floor"]) == ("threshold", "copy", None)
    assert set(row["sinr_db"]) == {"p5", "p50", "p95"}
    assert {"mean", "p95"} <= set(row["gamma_t"])
    assert set(row["age"]) == {"mean", "p95"}
    assert "best_threshold_db" in answer
    assert (tmp_path / "m.png").is_file()
    assert (tmp_path / "m-ages.png").is_file()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--allocation", "greedy"], "allocation"),
        (["--set", "bandwidth_hz=0"], "bandwidth_hz must be positive"),
        (["--set", "bandwith_hz=1"], "did you mean 'bandwidth_hz'?"),
        (["--period", "week"], "period"),
        (["--nodes", "0"], "nodes must be at least 1"),
        (["--drops", "1"], "drops must be at least 2"),
        (["--message", "sum"], "add --schedule index"),
        (["--schedule", "whim"], "there is no schedule 'whim'"),
        (["--schedule", "index", "--message", "rumour"], "rumour"),
        (["--set", "message=sum"], "use --message"),
    ],
)
def test_wrong_input_is_answered_in_one_sentence(monkeypatch, capsys, arguments, complaint):
    monkeypatch.setattr(sys, "argv", ["folkman", "radio", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


def test_one_node_has_nobody_to_hear():
    found = survey(Question(nodes=1, thresholds_db=(0.0,), drops=Drops(5)))

    assert found.best_threshold_db is None
    assert found.rows[0]["p_link"] == 0.0
    assert found.rows[0]["gamma_t"]["mean"] is None
    draw_map(found.picture)
    draw_ages(found.picture)


def test_fresh_air_meets_the_drops_of_the_papers_rule(capsys):
    slots, nodes = 24, 3
    question = SMALL._replace(
        allocations=("optimal",),
        drops=Drops(2, slots, 5),
        schedules=("threshold", "index"),
        messages=("copy", "sum"),
        floor=True,
    )
    found = survey(question)

    paper, copies, sums = found.rows
    assert [row["schedule"] for row in found.rows] == ["threshold", "index", "index"]
    assert paper["sinr_db"] == copies["sinr_db"] == sums["sinr_db"]
    assert sums["threshold_db"] is sums["allocation"] is sums["p_link"] is None
    assert list(found.best_thresholds_db) == ["optimal"]
    # One drop by hand: ages after the warm-up, over all pairs.
    network = RadioNetwork(schedule="index", message="sum", bandwidth_hz=6e3)
    peers: Any = network.peers()
    root = make_key(5, Stream.DELAY)
    step, means, bits = jax.jit(peers.step), [], 650 * 18 + 32 * nodes
    for drop in range(2):
        key, ages = jax.random.fold_in(root, drop), []
        state = peers.init(nodes, key)
        for t in range(slots):
            offers = jnp.ones(nodes, bool)
            state, delivery = step(state, offers, bits, jax.random.fold_in(key, t))
            ages.append((t + 1 - np.asarray(delivery.held))[~np.eye(nodes, dtype=bool)])
        means.append(np.mean(ages[slots // 4 :]))
    assert sums["age"]["mean"] == pytest.approx(np.mean(means), rel=1e-6)
    # Floors are of all schedules, so they are the same for both rules of copies.
    assert 0 < sums["floor"] <= paper["floor"] == copies["floor"]
    assert all(row["floor"] <= row["age"]["mean"] for row in found.rows)
    print_survey(found, quiet=False)
    shown = capsys.readouterr().out
    assert "index" in shown
    assert "no schedule of such messages" in shown
    youngest = min(found.rows, key=lambda row: row["age"]["mean"])
    assert youngest == sums
    assert f"youngest copies: index, sum: {sums['age']['mean']:.3g} slots old" in shown
    draw_map(found.picture)


def test_a_floor_is_for_nodes_that_stay():
    moving = RadioNetwork(schedule="index", speed_m_per_s=10.0)

    with pytest.raises(ValueError, match="nodes that stay, got a speed of 10 m/s"):
        next(drop_costs(moving, 3, 1_000, Drops(2, 8, 0)))


def test_a_message_is_priced_as_in_a_run():
    """A sum of 16-bit contributions of three nodes has 18 bits an entry, and three stamps."""
    ask = SMALL._replace(parameters=650)
    radio = RadioNetwork(schedule="index", message="sum")

    assert _bits_of(radio, ask, 16 * 650) == 650 * 18 + 3 * 32
    assert _bits_of(replace(radio, message="forward"), ask, 16 * 650) == 16 * 650 + 32 + 2
    assert _bits_of(RadioNetwork(), ask, 16 * 650) == 16 * 650
