"""The paper's experiments: the plan is the paper's, runs resume, derived curves are those of the engine."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from folkman.algorithm import ALGORITHMS
from folkman.cli import app
from folkman.config.comparison import to_toml
from folkman.engine.simulate import Clock, Recording, simulate
from folkman.papers import reproduce as module
from folkman.papers.arms import BEYOND, FIGURES, SIZES, figure, plan, read_table, settle, share
from folkman.papers.audit import judge
from folkman.papers.figures import draw_all, panel_runs
from folkman.papers.reproduce import Store, Workshop, reproduce, verify
from folkman.papers.results import Found, pack, read_results, select, with_timed
from folkman.problem.data import load
from folkman.problem.models import MODELS
from folkman.radio import NETWORKS
from folkman.record.run import Run


def clocks():
    """Return the runs of Table I that take no time: two methods on a quadratic."""
    return [arm for arm in plan(["table1"], "smoke") if arm.facts["method"] in ("fedavg", "async_sharing")]


@pytest.mark.parametrize("size", SIZES)
def test_every_figure_can_be_planned_at_every_size(size):
    arms = plan([*FIGURES, BEYOND], size)

    assert {arm.figure for arm in arms} == {*FIGURES, BEYOND}
    same = {}
    for arm in arms:  # one key, one configuration, one set of facts
        known = same.setdefault(arm.key, arm)
        assert (known.comparison, known.facts, known.seed, known.kind) == (
            arm.comparison, arm.facts, arm.seed, arm.kind)  # fmt: skip
    assert [arm.rank for arm in arms] == sorted(arm.rank for arm in arms)


def test_the_full_plan_is_the_papers_setting():
    arms = plan(FIGURES, "full")
    learning = [arm for arm in arms if arm.variant == "mnist" and arm.kind == "run"]

    assert {arm.comparison.data["train_size"] for arm in learning} == {None}  # all 60,000 images
    assert {arm.comparison.model["name"] for arm in learning} == {"cnn"}
    assert {arm.comparison.batch for arm in learning} == {None}  # full gradients
    assert min(arm.comparison.slots for arm in learning) >= 500
    five = [arm for arm in learning if arm.figure == "fig5" and arm.facts["method"] == "async_sharing"]
    assert {(a.facts["nodes"], a.facts["gamma"], a.comparison.algorithm[0]["step"]) for a in five
            if a.facts["factor"] == 1} == {(5, 5, 0.016), (10, 5, 0.016), (15, 5, 0.016)}  # fmt: skip
    six = [arm for arm in learning if arm.figure == "fig6" and arm.facts["method"] == "async_sharing"]
    assert {(a.facts["nodes"], a.facts["gamma"]) for a in six} == {(5, 5), (5, 10), (5, 15)}
    seven = [arm for arm in learning if arm.figure == "fig7" and arm.facts["method"] == "async_sharing"]
    assert {a.facts["threshold_db"] for a in seven} == {-15.0, 0.0, 15.0}
    assert {a.comparison.network["bandwidth_hz"] for a in seven} == {10e6}
    eight = {a.facts["allocation"] for a in learning if a.figure == "fig8" and a.facts["method"] == "async_sharing"}
    assert eight == {"optimal", "uniform", "random"}
    draws = {name: len({a.seed for a in arms if a.figure == name}) for name in FIGURES}
    assert (draws["fig5"], draws["fig6"], draws["fig7"], draws["fig8"]) == (5, 5, 20, 20)
    cifar = [arm for arm in arms if arm.variant == "cifar10"]
    assert {arm.comparison.algorithm[0]["step"] / arm.facts["factor"] for arm in cifar} == {0.02}
    assert {arm.facts["scaling"] for arm in five} == {"local", "theorem", "figure"}


def test_figures_share_what_is_the_same():
    keys = {name: {arm.key for arm in figure(name, "full").arms} for name in FIGURES}
    shared = plan(["fig5", "fig6"], "full")
    fedavg = [arm for arm in shared if (arm.facts["method"], arm.variant) == ("fedavg", "mnist")]

    assert keys["fig5"] & keys["fig6"]
    assert keys["fig7"] & keys["fig8"]
    assert len({arm.key for arm in fedavg if arm.facts["factor"] == 1}) == 5  # one a seed, whatever Gamma and I


def test_shares_part_the_runs_and_keep_the_seeds_of_a_program_together():
    arms = plan(FIGURES, "full")
    parts = [share(arms, f"{number}/3") for number in (1, 2, 3)]

    assert sorted(arm.key for part in parts for arm in part) == sorted(arm.key for arm in arms)
    kinds = [{(arm.kind, to_toml(arm.comparison.model_copy(update={"seeds": (0,)}))) for arm in part} for part in parts]
    assert len(set.union(*kinds)) == sum(map(len, kinds))
    assert max(map(len, kinds)) - min(map(len, kinds)) <= 1
    for wrong in ("0/3", "4/3", "3", "a/b", "1/0"):
        with pytest.raises(ValueError, match="2/4 is the second of four"):
            share(arms, wrong)


def test_the_sizes_know_how_large_their_models_are():
    shapes = {"digits": (8, 8), "mnist": (28, 28, 1), "cifar10": (32, 32, 3)}
    for size in SIZES:
        for variant in read_table("sizes")[size]["variant"].values():
            if "parameters" in variant:
                options = {
                    key: tuple(v) if isinstance(v, list) else v for key, v in variant["model"].items() if key != "name"
                }
                model = MODELS[variant["model"]["name"]](shapes[variant["data"]["name"]], 10, **options)
                assert model.layout.size == variant["parameters"]


def test_values_are_looked_up():
    known = {"nodes": [2, 4], "gamma": 5}

    assert settle({"a": "@nodes", "b": ["1/@nodes", "x"]}, known) == {"a": [2, 4], "b": [[0.5, 0.25], "x"]}
    assert settle("1/@gamma", known) == 0.2
    with pytest.raises(ValueError, match="there is no 'gama'; did you mean 'gamma'"):
        settle("@gama", known)


def test_runs_are_made_once_and_resume_to_the_bit(tmp_path):
    arms = clocks()
    whole, pieces = Store(tmp_path / "whole"), Store(tmp_path / "pieces")
    assert not reproduce(arms, whole).missing

    victim = next(index for index, arm in enumerate(arms) if arm.facts["method"] == "fedavg")

    def stop(arm, run, done, slots):
        if arm.key == arms[victim].key and done == 30:
            raise module.OutOfTime

    left = reproduce(arms, pieces, stop, budget_s=1000.0)
    assert left.stopped == "the budget of 1000 s is spent"
    assert [arm.key for arm in left.missing] == [arm.key for arm in arms[victim:]]
    told = []
    again = reproduce(arms, Store(tmp_path / "pieces"), lambda *seen: told.append((seen[0].key, seen[2])))

    assert told[0] == (arms[victim].key, 33)  # went on where it was
    assert len(again.made) == len(arms) - victim
    for arm in arms:
        assert str(whole.load(arm).rows) == str(pieces.load(arm).rows)
    assert not reproduce(arms, whole).made
    assert not list((tmp_path / "whole" / "models").iterdir())  # parameters are dropped
    assert verify(arms[0], whole, tmp_path / "scratch") == 0.0


def test_a_spent_budget_begins_nothing(tmp_path):
    arms = clocks()[:2]
    store = Store(tmp_path)
    reproduce(arms[:1], store)
    store.wall_s[arms[0].key] = 50.0

    left = reproduce(arms, store, budget_s=10.0)

    assert (left.made, [arm.key for arm in left.missing]) == ((), [arms[1].key])
    assert "less than a run takes" in left.stopped


def test_seeds_share_an_algorithm_and_its_programs():
    arms = [arm for arm in clocks() if arm.facts == clocks()[0].facts]
    workshop = Workshop()

    one, two = (workshop.part(arm).simulation for arm in arms[:2])

    assert one.algorithm is two.algorithm
    samples = [workshop.problem(arm).x for arm in arms[:2]]
    assert (np.asarray(samples[0]) != np.asarray(samples[1])).any()  # another draw


def simulated(arm, network, slots, every, slot_s=1.0):
    """Return the same problem and FedAvg in the engine itself, on another network."""
    problem = Workshop().problem(arm)
    algorithm = ALGORITHMS["fedavg"](step=arm.comparison.algorithm[0]["step"])
    run = simulate(
        problem, network, algorithm, slots=slots, seed=arm.seed, clock=Clock(slot_s), recording=Recording(every)
    )
    return Found(arm.variant, arm.facts, arm.seed, run, ("fig5",))


def test_fedavg_that_waits_is_fedavg_later(tmp_path):
    """The curve derived from free links is the engine's own under Gamma, point by point."""
    arm = next(a for a in plan(["fig5"], "smoke") if a.facts.get("links") == "free" and a.kind == "run")
    free = simulated(arm, NETWORKS["ideal"](), 12, 1)
    marker = Found(arm.variant, {"method": "adafl", "gamma": 3}, 0, free.run, ())
    timed = select(with_timed([free, marker]), method="fedavg", links="timed", gamma=3)[0].run
    engine = simulated(arm, NETWORKS["snapshot"](gamma=3), 48, 4).run

    np.testing.assert_allclose(timed.column("seconds"), engine.column("seconds"))
    np.testing.assert_allclose(timed.column("train_loss"), engine.column("train_loss"), rtol=1e-5)
    np.testing.assert_allclose(timed.last("kappa"), engine.last("kappa"))
    np.testing.assert_allclose(timed.column("bits"), engine.column("bits"))


@pytest.mark.slow
def test_fedavg_on_the_radio_is_fedavg_at_the_clocks_times():
    """A quadratic of two parameters in messages of the same size keeps the time of the real model."""
    clock = next(a for a in plan(["fig7"], "smoke") if a.kind == "clock")
    arm = next(a for a in plan(["fig7"], "smoke") if a.facts.get("links") == "free")
    slot_s, slots = arm.comparison.slot_s, 150
    assert isinstance(slot_s, float)
    ticking = simulated(clock, NETWORKS["radio"](slot_s=slot_s, bits_per_parameter=1210 * 8), slots, 5, slot_s).run
    free = simulated(arm, NETWORKS["ideal"](), slots, 1)
    ticks = Found(arm.variant, {"kind": "clock", "method": "fedavg"}, 0, ticking, ())
    timed = select(with_timed([free, ticks]), method="fedavg", links="radio")[0].run

    engine = simulated(arm, NETWORKS["radio"](slot_s=slot_s), slots, 5, slot_s).run

    assert clock.comparison.network["bits_per_parameter"] == 1210 * 8
    assert engine.last("gradients") > 2
    np.testing.assert_allclose(timed.column("gradients"), engine.column("gradients"))
    np.testing.assert_allclose(timed.column("train_loss"), engine.column("train_loss"), rtol=1e-5)
    np.testing.assert_allclose(timed.column("bits"), engine.column("bits"))


@pytest.mark.slow
def test_the_smoke_size_runs_is_judged_and_redrawn(tmp_path):
    """All figures at the smallest size, by the command line; then the audit and the figures from its metrics alone."""
    out = tmp_path / "paper"
    done = CliRunner().invoke(app, ["reproduce", "all", "--out", str(out), "--json"])
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    assert (answer["missing"], answer["stopped"]) == (0, "")
    results = read_results(out)

    central = select(results.runs, method="centralised")[0].run
    plain = select(results.runs, method="fedavg", links="free", factor=1)[0].run
    np.testing.assert_allclose(central.last("train_loss"), plain.last("train_loss"), rtol=1e-5)
    for found in results.runs:
        assert np.isfinite(found.run.last("train_loss"))
    judged = {claim.name: claim for claim in judge(results)}
    for name in ("I.1", "I.4", "I.6", "I.7", "I.9", "P1"):
        assert judged[name].verdict == "holds", judged[name]
    for name in ("I.3", "I.8", "I.10", "C2"):
        assert judged[name].verdict == "does not hold", judged[name]
    assert judged["T1.1"].verdict.startswith("holds only if with the one aggregate constraint")
    assert judged["C1"].verdict.startswith("holds only if nodes whose losses are minimised by one model")
    assert judged["5.8"].verdict == "cannot be decided"
    told = CliRunner().invoke(app, ["audit", str(out), "--out", str(tmp_path / "claims.md"), "--json"])
    assert len(json.loads(told.stdout.strip().splitlines()[-1])["claims"]) == len(judged)
    assert "**holds**" in (tmp_path / "claims.md").read_text()
    drawn = draw_all(out, list(FIGURES), tmp_path / "again")
    assert {path.name for path in drawn} >= {
        f"fig{n}-digits-{x}.png" for n in (5, 6, 7, 8) for x in ("gradients", "seconds")
    }


def test_packed_results_are_read_back(tmp_path):
    arms = clocks()[:2]
    store = Store(tmp_path)
    reproduce(arms, store)
    pack(arms, store, "smoke", [{"measure": "m", "case": "c", "value": float("nan"), "limit": 1.0, "says": ""}])

    results = read_results(tmp_path)

    assert results.theory[0]["value"] is None
    for arm in arms:
        run = next(found.run for found in results.runs if found.run.label == arm.key)
        assert run.column("train_loss") == store.load(arm).column("train_loss")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reproduce", "fig9"], "there is no experiment 'fig9'"),
        (["reproduce", "fig5", "--size", "huge"], "a size is smoke, laptop or full"),
        (["reproduce", "fig5", "--device", "tpu"], "a device is cpu or gpu"),
        (["reproduce", "fig5", "--share", "5/4"], "a share is written K/N"),
        (["audit", "nowhere"], "expected arms.json and metrics.parquet in nowhere"),
        (["audit", "nowhere", "--against", "elsewhere", "--beyond"], "--against tells of the paper's claims"),
        (["reproduce", "fig5", "--redraw", "nowhere"], "expected arms.json and metrics.parquet in nowhere"),
    ],
    ids=["figure", "size", "device", "share", "audit", "against", "redraw"],
)
def test_wrong_input_is_told(arguments, message):
    result = CliRunner().invoke(app, arguments)

    assert message in str(result.exception)


def test_the_plan_is_shown_without_running(tmp_path):
    result = CliRunner().invoke(app, ["reproduce", "all", "--size", "full", "--plan", "--out", str(tmp_path / "x")])

    assert "runs, shared ones counted once" in result.output
    assert not (tmp_path / "x").exists()


def test_descent_needs_no_engine():
    """On a quadratic the plain loop is the closed form w* + (I - eta H)^t (w0 - w*)."""
    arm = next(a for a in plan(["fig5"], "smoke") if a.kind == "descent")
    drawn = load("quadratic", nodes=1, dim=3)
    from folkman.problem.problem import make_problem

    problem = make_problem(drawn, "quadratic", 1)
    run = module.descend(problem, arm)

    step, curvature, centre = arm.comparison.algorithm[0]["step"], drawn.y_train[0], drawn.x_train[0]
    w = centre + (1 - step * curvature) ** arm.comparison.slots * (0.0 - centre)
    np.testing.assert_allclose(run.last("train_loss"), 0.5 * np.sum(curvature * (w - centre) ** 2), rtol=1e-4)


def test_the_cases_of_a_curve_are_in_order_whichever_was_run_first():
    rows = [{"gradients": 0.0}, {"gradients": 5.0}]
    runs = [
        Found("mnist", {"method": "async_sharing", "threshold_db": db}, seed, Run("async_sharing", "", seed, rows))
        for seed in (0, 1)
        for db in (0, 15, -15)
    ]

    shown = panel_runs(runs, "mnist", {"curves": [{"label": "{threshold_db}", "method": "async_sharing"}]}, "gradients")

    assert [(run.label, run.seed) for run in shown] == [(str(db), seed) for db in (-15, 0, 15) for seed in (0, 1)]
