"""A paper's experiments: the plan is the paper's, runs resume, derived curves are those of the
engine."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from folkman.algorithm import ALGORITHMS
from folkman.cli import app
from folkman.config.build import build_problem
from folkman.config.comparison import to_toml
from folkman.engine.simulate import Clock, Recording, simulate
from folkman.experiment import jobs as jobs_module
from folkman.experiment.batch import Asked, run_batch
from folkman.experiment.descent import descend
from folkman.experiment.engines.here import Here
from folkman.experiment.plan import Plan, settle
from folkman.packing import none
from folkman.papers import again
from folkman.papers.again import check
from folkman.papers.audit import judge
from folkman.papers.figures import draw_all, panel_runs
from folkman.papers.paper import Found, find
from folkman.papers.plan import plan, share_of
from folkman.papers.reproduce import Amount, planned, reproduce, verify
from folkman.papers.results import read_reproduction, select
from folkman.papers.xie2024.own import derive
from folkman.problem.data import load
from folkman.problem.models import MODELS
from folkman.problem.problem import make_problem
from folkman.radio import NETWORKS
from folkman.radio.compressed import Compressed
from folkman.record.run import Run
from folkman.record.store import SweepFolder
from shell import undrawn

XIE = find("xie2024")
SIZES = tuple(XIE.sizes)


def clocks():
    """Return the runs of Table I that take no time: two methods on a quadratic."""
    jobs = plan(XIE, ["table1"], "smoke").jobs
    return [job for job in jobs if job.settings["method"] in ("fedavg", "async_sharing")]


@pytest.mark.parametrize("size", SIZES)
def test_every_figure_can_be_planned_at_every_size(size):
    # a figure that a size does not have says so with an empty list
    figures = {name for name in (*XIE.figures, *XIE.beyond) if XIE.figure(name)["variants"][size]}
    jobs = plan(XIE, sorted(figures), size).jobs

    assert {name for job in jobs for name in job.notes["figures"]} == figures
    assert len({job.key for job in jobs}) == len(jobs)
    assert len({(job.arm, job.seed) for job in jobs}) == len(jobs)
    assert [job.rank for job in jobs] == sorted(job.rank for job in jobs)


def test_the_full_plan_is_the_papers_setting():
    jobs = plan(XIE, XIE.figures, "full").jobs
    learning = [job for job in jobs if job.notes["variant"] == "mnist" and job.kind == "run"]
    learning = [job for job in learning if not job.notes.get("clock")]

    def of(figure, method="async_sharing"):
        return [
            j for j in learning if figure in j.notes["figures"] and j.settings["method"] == method
        ]

    assert {job.config.data["train_size"] for job in learning} == {None}  # all 60,000 images
    assert {job.config.model["name"] for job in learning} == {"cnn"}
    assert {job.config.batch for job in learning} == {None}  # full gradients
    assert min(job.config.slots for job in learning) >= 500
    five = [j for j in of("fig5") if j.settings["gamma"] == 5 and j.settings["factor"] == 1]
    steps = {(j.settings["nodes"], j.config.algorithm[0]["step"]) for j in five}
    assert steps == {(5, 0.016), (10, 0.016), (15, 0.016)}
    assert {(j.settings["nodes"], j.settings["gamma"]) for j in of("fig6")} == {
        (5, 5),
        (5, 10),
        (5, 15),
    }
    assert {j.settings["threshold_db"] for j in of("fig7")} == {-15.0, 0.0, 15.0}
    assert {j.config.network["bandwidth_hz"] for j in of("fig7")} == {10e6}
    assert {j.settings["allocation"] for j in of("fig8")} == {"optimal", "uniform", "random"}
    draws = {
        name: len({j.seed for j in jobs if name in j.notes["figures"]}) for name in XIE.figures
    }
    assert (draws["fig5"], draws["fig6"], draws["fig7"], draws["fig8"]) == (5, 5, 20, 20)
    assert {j.seed for j in of("fig5")} == {j.seed for j in of("fig6")} == set(range(5))
    cifar = [job for job in jobs if job.notes["variant"] == "cifar10"]
    assert {job.config.algorithm[0]["step"] / job.settings["factor"] for job in cifar} == {0.02}
    assert {job.settings["scaling"] for job in of("fig5")} == {"local", "theorem", "figure"}


def test_figures_share_what_is_the_same():
    jobs = plan(XIE, ["fig5", "fig6"], "full").jobs
    fedavg = [j for j in jobs if (j.settings["method"], j.notes["variant"]) == ("fedavg", "mnist")]
    once = [job for job in fedavg if job.settings["factor"] == 1]

    assert any({"fig5", "fig6"} <= set(job.notes["figures"]) for job in jobs)
    assert any(
        {"fig7", "fig8"} <= set(job.notes["figures"]) for job in plan(XIE, ["fig7"], "full").jobs
    )
    assert len(once) == len({job.seed for job in once})  # one a seed, whatever Gamma and I


def test_shares_part_the_runs_and_keep_the_seeds_of_a_program_together():
    jobs = plan(XIE, XIE.figures, "full").jobs
    parts = [share_of(jobs, f"{number}/3") for number in (1, 2, 3)]

    assert sorted(job.key for part in parts for job in part) == sorted(job.key for job in jobs)
    programs = [
        {(j.kind, to_toml(j.config.model_copy(update={"seeds": (0,)}))) for j in part}
        for part in parts
    ]
    assert len(set.union(*programs)) == sum(map(len, programs))
    assert max(map(len, programs)) - min(map(len, programs)) <= 1
    for wrong in ("0/3", "4/3", "3", "a/b", "1/0"):
        with pytest.raises(ValueError, match="2/4 is the second of four"):
            share_of(jobs, wrong)


def test_the_sizes_know_how_large_their_models_are():
    shapes = {"digits": (8, 8), "mnist": (28, 28, 1), "cifar10": (32, 32, 3)}
    for size in SIZES:
        for variant in XIE.sizes[size]["variant"].values():
            if "parameters" in variant:
                options = {
                    key: tuple(v) if isinstance(v, list) else v
                    for key, v in variant["model"].items()
                    if key != "name"
                }
                model = MODELS[variant["model"]["name"]](
                    shapes[variant["data"]["name"]], 10, **options
                )
                assert model.layout.size == variant["parameters"]


def test_values_are_looked_up():
    known = {"nodes": [2, 4], "gamma": 5}

    assert settle({"a": "@nodes", "b": ["1/@nodes", "x"]}, known) == {
        "a": [2, 4],
        "b": [[0.5, 0.25], "x"],
    }
    assert settle("1/@gamma", known) == 0.2
    with pytest.raises(ValueError, match="there is no 'gama'; did you mean 'gamma'"):
        settle("@gama", known)


def run_all(jobs, root, **asked):
    """Run jobs in this process as a reproduction does."""
    folder = SweepFolder.create(root, 'paper = "xie2024"\nsize = "smoke"\n')
    facts = {"paper": "xie2024", "size": "smoke"}
    return run_batch(
        Plan("x", [], jobs),
        folder,
        Here(),
        asked=Asked(lean=True, grows=True, facts=facts, **asked),
    )


def rows_of(root, job):
    return str(
        next(found.run.rows for found in read_reproduction(root).runs if found.run.label == job.key)
    )


def test_runs_are_made_once_and_resume_to_the_bit(tmp_path, monkeypatch):
    jobs = clocks()
    victim = next(index for index, job in enumerate(jobs) if job.settings["method"] == "fedavg")
    whole = run_all(jobs, tmp_path / "whole")
    until = jobs_module._until

    def interrupted(watch, until_s):
        def look(run, done, slots):
            until(watch, until_s)(run, done, slots)
            if (run.algorithm, run.seed, done) == ("fedavg", jobs[victim].seed, 30):
                raise jobs_module.OutOfTime

        return look

    with monkeypatch.context() as patch:
        patch.setattr(jobs_module, "_until", interrupted)
        pieces = run_all(jobs, tmp_path / "pieces", budget_s=1000.0)
    seen = []
    with monkeypatch.context() as patch:
        patch.setattr(jobs_module, "_until", lambda *_: lambda *told: seen.append(told[1]))
        again = run_all(jobs, tmp_path / "pieces")

    assert whole.state == "finished"
    assert pieces.stopped == "the budget of 1000 s is spent"
    assert [job["key"] for job in pieces.jobs if job["state"] == "waiting"] == [
        job.key for job in jobs[victim:]
    ]
    assert seen[0] == 33  # went on where it was
    assert set(again.made) == {job.key for job in jobs[victim:]}
    for job in jobs:
        assert rows_of(tmp_path / "whole", job) == rows_of(tmp_path / "pieces", job)
    assert not run_all(jobs, tmp_path / "whole").made
    assert not list((tmp_path / "whole").glob("jobs/*/models/*"))  # parameters are dropped
    assert verify(jobs, tmp_path / "whole") == (jobs[0], 0.0)


def test_a_spent_budget_begins_nothing(tmp_path):
    jobs = clocks()[:2]
    run_all(jobs[:1], tmp_path)
    told = next(tmp_path.glob("jobs/*/job.json"))
    told.write_text(json.dumps(json.loads(told.read_text()) | {"seconds": 50.0}))

    batch = run_all(jobs, tmp_path, budget_s=10.0)

    assert (batch.made, [job["key"] for job in batch.having("waiting")]) == ((), [jobs[1].key])
    assert "less than a run takes" in batch.stopped


def test_seeds_share_an_algorithm_and_its_programs():
    job = clocks()[0]
    workshop = jobs_module._Workshop()
    one, two = (job.config.model_copy(update={"seeds": (seed,)}) for seed in (0, 1))

    first, second = (
        workshop.pairs("arm", each, workshop.problem(each), each.seeds[0])[0] for each in (one, two)
    )

    assert first[0] is second[0]
    assert (
        np.asarray(workshop.problem(one).x) != np.asarray(workshop.problem(two).x)
    ).any()  # another draw


def simulated(job, network, slots, every, slot_s=1.0, method="fedavg", **options):
    """Return the same problem and FedAvg in the engine itself, on another network."""
    problem = build_problem(job.config, job.seed)
    algorithm = ALGORITHMS[method](step=job.config.algorithm[0]["step"], **options)
    priced = Compressed(network, none(network.bits_per_parameter or 16))  # as the paper does
    run = simulate(
        problem,
        priced,
        algorithm,
        slots=slots,
        seed=job.seed,
        clock=Clock(slot_s),
        recording=Recording(every),
    )
    return Found(job.notes["variant"], job.settings, job.seed, run, ("fig5",))


def a_job(figure, **facts):
    """Return the first job of a figure with these facts or notes."""
    jobs = plan(XIE, [figure], "smoke").jobs
    return next(
        j for j in jobs if all({**j.settings, **j.notes}.get(k) == v for k, v in facts.items())
    )


def test_fedavg_that_waits_is_fedavg_later():
    """The curve derived from free links is the engine's own under Gamma, point by point."""
    job = a_job("fig5", links="free", method="fedavg", factor=1.0)
    free = simulated(job, NETWORKS["ideal"](), 12, 1)
    marker = Found(free.variant, {"method": "adafl", "gamma": 3}, 0, free.run, ())
    timed = select(derive([free, marker]), method="fedavg", links="timed", gamma=3)[0].run
    engine = simulated(job, NETWORKS["snapshot"](gamma=3), 48, 4).run

    np.testing.assert_allclose(timed.column("seconds"), engine.column("seconds"))
    np.testing.assert_allclose(timed.column("train_loss"), engine.column("train_loss"), rtol=1e-5)
    np.testing.assert_allclose(timed.last("kappa"), engine.last("kappa"))
    np.testing.assert_allclose(timed.column("bits"), engine.column("bits"))


@pytest.mark.parametrize(("factor", "scaling"), [(1.0, "theorem"), (2.0, "figure")])
def test_algorithm_1_whose_nodes_wait_for_all_is_descent_in_rounds(factor, scaling):
    """The derived curve has the losses of Algorithm 1 where no copy is old, and the times of peers
    that do wait for all in the engine: D-PSGD on a complete graph, which descends the same way."""
    job = a_job("fig5", links="free", method="fedavg", factor=factor)
    free = simulated(job, NETWORKS["ideal"](), 12, 1)
    facts = {"method": "async_sharing", "gamma": 3, "nodes": 2}
    runs = derive([free, Found(free.variant, facts, 0, free.run, ())])
    derived = select(runs, method="async_sharing_waiting", gamma=3, nodes=2)
    assert [found.facts["scaling"] for found in derived] == [scaling]
    waiting = derived[0].run

    plain = a_job("fig5", links="free", method="fedavg", factor=1.0)
    ours: dict[str, Any] = {"method": "async_sharing", "scaling": scaling}
    fresh = simulated(plain, NETWORKS["ideal"](), 12, 1, **ours).run
    peers: dict[str, Any] = {"method": "dpsgd", "topology": "complete", "order": "adapt_first"}
    rounds = simulated(job, NETWORKS["snapshot"](gamma=3), 48, 4, **peers).run

    losses = waiting.column("train_loss")
    np.testing.assert_allclose(losses, fresh.column("train_loss"), rtol=1e-4)
    np.testing.assert_allclose(losses, rounds.column("train_loss"), rtol=1e-4)
    np.testing.assert_allclose(waiting.column("seconds"), rounds.column("seconds"))
    np.testing.assert_allclose(waiting.last("kappa"), rounds.last("kappa"))


@pytest.mark.slow
def test_fedavg_on_the_radio_is_fedavg_at_the_clocks_times():
    """A quadratic of two parameters in messages of the same size keeps the time of the real
    model."""
    clock, job = a_job("fig7", clock=True), a_job("fig7", links="free")
    slot_s, slots = job.config.slot_s, 150
    assert isinstance(slot_s, float)
    ticking = simulated(
        clock, NETWORKS["radio"](slot_s=slot_s, bits_per_parameter=1210 * 8), slots, 5, slot_s
    ).run
    free = simulated(job, NETWORKS["ideal"](), slots, 1)
    ticks = Found(free.variant, {"kind": "clock", "method": "fedavg"}, 0, ticking, ())
    timed = select(derive([free, ticks]), method="fedavg", links="radio")[0].run

    engine = simulated(job, NETWORKS["radio"](slot_s=slot_s), slots, 5, slot_s).run

    assert clock.config.network["bits_per_parameter"] == 1210 * 8
    assert engine.last("gradients") > 2
    np.testing.assert_allclose(timed.column("gradients"), engine.column("gradients"))
    np.testing.assert_allclose(timed.column("train_loss"), engine.column("train_loss"), rtol=1e-5)
    np.testing.assert_allclose(timed.column("bits"), engine.column("bits"))


@pytest.mark.slow
def test_the_smoke_size_runs_is_judged_and_redrawn(tmp_path):
    """All figures at the smallest size, by the command line; then the audit and the figures from
    its metrics alone, which are those of the command: drawn once, here."""
    out = tmp_path / "paper"
    with undrawn():
        done = CliRunner().invoke(app, ["reproduce", "all", "--out", str(out), "--json"])
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    assert (answer["missing"], answer["stopped"]) == (0, "")
    results = read_reproduction(out)

    central = select(results.runs, method="centralised")[0].run
    plain = select(results.runs, method="fedavg", links="free", factor=1)[0].run
    np.testing.assert_allclose(central.last("train_loss"), plain.last("train_loss"), rtol=1e-5)
    for found in results.runs:
        assert np.isfinite(found.run.last("train_loss"))
    judged = {claim.name: claim for claim in judge(results)}
    kinds = dict.fromkeys(("I.1", "I.4", "I.6", "I.7", "I.9"), "true by construction")
    kinds |= {"P1": "holds", "I.3": "better than claimed", "C2": "vacuous here"}
    kinds |= {"I.8": "contradicted", "I.10": "contradicted", "5.8": "not run"}
    assert {name: judged[name].kind for name in kinds} == kinds
    assert judged["T1.1"].verdict.startswith("holds under (with the one aggregate constraint")
    assert judged["C1"].verdict.startswith(
        "holds under (nodes whose losses are minimised by one model"
    )
    told = CliRunner().invoke(
        app, ["audit", str(out), "--out", str(tmp_path / "claims.md"), "--json"]
    )
    assert len(json.loads(told.stdout.strip().splitlines()[-1])["claims"]) == len(judged)
    assert "**holds**" in (tmp_path / "claims.md").read_text()
    drawn = draw_all(results, list(XIE.figures), tmp_path / "again")
    names = {path.name for path in drawn}
    assert names >= {
        f"fig{n}-digits-{x}.png" for n in (5, 6, 7, 8) for x in ("gradients", "seconds")
    }
    assert names == {path.name for path in (out / "figures").glob("fig*")}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reproduce", "fig9"], "there is no experiment 'fig9'"),
        (["reproduce", "fig5", "--size", "huge"], "a size is smoke, laptop or full"),
        (["reproduce", "fig5", "--device", "tpu"], "a device is cpu or gpu"),
        (["reproduce", "fig5", "--share", "5/4"], "a share is written K/N"),
        (
            ["reproduce", "fig5", "--paper", "nobody"],
            "there is no paper 'nobody'; known: xie2024; or name a folder",
        ),
        (
            ["reproduce", "fig5", "--engine", "cloud"],
            "expected 'here', 'processes', 'dask', or an address",
        ),
        (["audit", "nowhere"], "expected a reproduction in nowhere"),
        (
            ["audit", "nowhere", "--against", "elsewhere", "--beyond"],
            "--against tells of the paper's claims",
        ),
        (["reproduce", "fig5", "--redraw", "nowhere"], "expected a reproduction in nowhere"),
    ],
    ids=["figure", "size", "device", "share", "paper", "engine", "audit", "against", "redraw"],
)
def test_wrong_input_is_told(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, arguments)

    assert message in str(result.exception)
    assert not list(tmp_path.iterdir())


def test_the_plan_is_shown_without_running(tmp_path):
    result = CliRunner().invoke(
        app, ["reproduce", "all", "--size", "full", "--plan", "--out", str(tmp_path / "x")]
    )

    assert "runs, shared ones counted once" in result.output
    assert not (tmp_path / "x").exists()


def test_descent_needs_no_engine():
    """On a quadratic the plain loop is the closed form w* + (I - eta H)^t (w0 - w*)."""
    job = next(job for job in plan(XIE, ["fig5"], "smoke").jobs if job.kind == "descent")
    drawn = load("quadratic", nodes=1, dim=3)

    problem = make_problem(drawn, "quadratic", 1)
    run = descend(problem, job.config)

    step, curvature, centre = job.config.algorithm[0]["step"], drawn.y_train[0], drawn.x_train[0]
    w = centre + (1 - step * curvature) ** job.config.slots * (0.0 - centre)
    np.testing.assert_allclose(
        run.last("train_loss"), 0.5 * np.sum(curvature * (w - centre) ** 2), rtol=1e-4
    )


def test_the_cases_of_a_curve_are_in_order_whichever_was_run_first():
    rows = [{"gradients": 0.0}, {"gradients": 5.0}]
    runs = [
        Found(
            "mnist",
            {"method": "async_sharing", "threshold_db": db},
            seed,
            Run("async_sharing", "", seed, rows),
        )
        for seed in (0, 1)
        for db in (0, 15, -15)
    ]
    panel = {"curves": [{"label": "{threshold_db}", "method": "async_sharing"}]}

    shown = panel_runs(XIE, runs, "mnist", panel, "gradients")

    assert [(run.label, run.seed) for run in shown] == [
        (str(db), seed) for db in (-15, 0, 15) for seed in (0, 1)
    ]


def test_more_draws_are_added_to_a_folder(tmp_path):
    first = reproduce(XIE, ["table1"], Amount("smoke", seeds=1), tmp_path)
    _, jobs = planned(XIE, ["table1"], Amount("smoke", seeds=1))
    second = reproduce(XIE, ["table1"], Amount("smoke", seeds=2), tmp_path)

    assert len(first.batch.made) == len(jobs) == len(second.batch.made)
    assert len(read_reproduction(tmp_path).runs) == 2 * len(jobs)


def test_the_first_draw_has_the_number_that_was_asked_for():
    """Draws of a later number are other jobs; nothing else of the plan changes."""
    usual, later = (plan(XIE, ["fig6"], "smoke", first=first).jobs for first in (0, 1000))

    assert {job.seed for job in later} == {1000 + job.seed for job in usual}
    assert [(job.arm, job.rank) for job in later] == [(job.arm, job.rank) for job in usual]
    assert not {job.key for job in later} & {job.key for job in usual}


@pytest.mark.slow
def test_three_kept_runs_of_the_laptop_size_are_made_again(mnist_cache, monkeypatch):
    """The same as kept under docs/, within what one kind of processor allows."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(mnist_cache))
    kept = Path(__file__).parents[2] / "docs" / "data" / "reproduction" / "laptop"

    made = list(check(kept, 3))

    assert [each.agrees for each in made] == [True] * 3
    assert {each.limit for each in made} <= {1e-3, 2e-2}


def test_a_kept_run_that_cannot_be_made_again_says_why(monkeypatch):
    failed = {"state": "failed", "message": "no data; run `folkman data fetch mnist`"}
    monkeypatch.setattr(again, "run_order", lambda *_, **__: failed)
    kept = Path(__file__).parents[2] / "docs" / "data" / "reproduction" / "laptop"

    with pytest.raises(ValueError, match=r"was not made again: .*`folkman data fetch mnist`"):
        list(check(kept, 1))
