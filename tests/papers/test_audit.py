"""Verdicts are code: runs made up so that the answer is known, and changed so that it changes."""

from math import log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from folkman.papers import deciders, evidence, measures, verdicts
from folkman.papers.audit import judge, reconsider
from folkman.papers.paper import Found, find
from folkman.papers.plan import plan
from folkman.papers.results import Reproduction, at, select, trailing
from folkman.papers.verdicts import verdict_of_claim
from folkman.papers.xie2024.own import FORMULAS, derive
from folkman.record.run import Run
from folkman.report.paper import Change, changes_markdown, claims_markdown, score

SEEDS = 4
XIE = find("xie2024")


def made_up(loss, seed=0, *, accuracy=None, end=40.0, status="finished", **facts):
    """Return a run whose training loss falls in proportion from 2 to `loss`, as a claim sees it."""
    key = f"{sorted(facts.items())} {seed}"
    rows = []
    for part in np.linspace(0, 1, 6):
        value = 2.0 * (loss / 2.0) ** part if np.isfinite(loss) else 2.0
        rows.append(
            {
                "slots": end * part,
                "seconds": end * part,
                "gradients": end * part,
                "rounds": end * part,
            }
        )
        rows[-1] |= {
            "bits": 100 * end * part,
            "train_loss": value,
            "test_accuracy": accuracy or 1 - value / 2,
        }
        rows[-1] |= {"kappa": 1.0, "gamma_t": 1.0, "mean_age": 1.0, "test_loss": value}
        rows[-1] |= {"gamma_w": 1.0, "max_age": 1.0}
    base = {
        "nodes": 2,
        "factor": 1.0,
        "effective": 1.0,
        "partition": "iid",
        "compute": "equal",
        "method": "fedavg",
    }
    run = Run("made up", key, seed, rows, status)
    return Found("digits", base | facts, seed, run, ("fig5",))


def sharing(loss, seed, scaling="theorem", nodes=2, gamma=2):
    stretch = {"theorem": 1.0, "figure": nodes, "local": 1 / nodes}[scaling]
    facts = {
        "scaling": scaling,
        "nodes": nodes,
        "gamma": gamma,
        "network": "snapshot",
        "effective": stretch,
    }
    return made_up(loss, seed, method="async_sharing", **facts)


def fedavg(loss, seed, effective=1.0):
    facts = {"factor": effective, "effective": effective, "links": "free", "network": "ideal"}
    return made_up(loss, seed, **facts)


def story(theorem, figure, plain, fast):
    """Return runs of Figure 5 with two and four nodes in which these are the last losses, up to a
    little noise."""
    runs = []
    for seed in range(SEEDS):
        noise = 1 + 0.002 * seed
        for nodes in (2, 4):
            runs += [
                sharing(theorem * noise, seed, "theorem", nodes),
                sharing(figure[nodes] * noise, seed, "figure", nodes),
            ]
            runs.append(fedavg(fast[nodes] * noise, seed, float(nodes)))
        runs.append(fedavg(plain * noise, seed))
    return Reproduction(XIE, "smoke", derive(runs), [])


def verdict(results, name):
    return next(claim for claim in judge(results) if claim.name == name)


ETA_I = "step eta I, FedAvg eta, per gradient"
SAME_STEP = "step eta I, FedAvg eta I, per gradient"
AS_MEASURED = {"theorem": 0.5, "figure": {2: 0.3, 4: 0.2}, "plain": 0.5, "fast": {2: 0.3, 4: 0.2}}


def test_a_gain_that_is_the_steps_is_told_as_such():
    results = story(**AS_MEASURED)
    claim = verdict(results, "5.1")

    assert claim.verdict.startswith(f"holds under ({ETA_I}; step eta, FedAvg eta, per second")
    assert claim.kind == "holds under"
    assert {r["name"]: r["verdict"] for r in claim.readings}[SAME_STEP] == "equal"
    assert verdict(results, "5.2").kind == "contradicted"  # FedAvg has the whole gain at that step
    assert verdict(results, "5.3").verdict.startswith("holds under (step eta I)")
    assert verdict(results, "5.4").kind == "contradicted"


def test_a_gain_that_is_not_sure_is_not_explained_away():
    """Draws that disagree leave open whether there is a gain; draws that agree on none leave
    nothing to explain."""

    def reading(*ours):
        sides = {"ours": ours, "other": (0.5,) * 3, "control": (0.3,) * 3}
        leaf = deciders.explained(
            {k: [made_up(v, seed=s) for s, v in enumerate(each)] for k, each in sides.items()}
        )
        return deciders.decide("x", [leaf], deciders.correct([leaf]))

    assert reading(0.2, 0.9, 0.4).verdict == "open"
    assert reading(0.505, 0.504, 0.506).verdict == "vacuous here"
    assert reading(0.31, 0.312, 0.309).verdict == "contradicted"  # the control has all of it
    assert reading(0.1, 0.101, 0.099).verdict == "one cause of several"  # it has a third
    assert reading(0.1, 0.29, 0.02).verdict == "open"  # from a seventh to all of it


def test_a_cause_beside_others_holds_under_that_word():
    """A share between the limits that draws have shown is decided: no more of them could do it."""
    reading = verdicts.Reading("x", verdicts.PARTLY, "the control has a third")

    assert verdict_of_claim([reading], [{}])[0] == "holds under (one cause of several)"
    assert verdicts.kind_of("holds under (one cause of several)") == "holds under"


def test_other_runs_other_verdicts():
    really_better = {**AS_MEASURED, "theorem": 0.4, "fast": {2: 0.5, 4: 0.5}}
    results = story(**really_better)

    readings = {r["name"]: r["verdict"] for r in verdict(results, "5.1").readings}
    assert readings["step eta, FedAvg eta, per gradient"] == readings[SAME_STEP] == "holds"
    assert verdict(results, "5.2").verdict == "holds"
    worse = story(**{**AS_MEASURED, "figure": {2: 0.6, 4: 0.7}, "theorem": 0.55})
    # the printed step was not run: that is said, and counts for nothing
    assert verdict(worse, "5.3").verdict == "contradicted; others: 1 not run, 1 equal"
    assert verdict(worse, "5.2").verdict == "vacuous here"  # nothing to explain


def test_without_runs_or_with_one_draw_nothing_is_decided():
    empty = judge(Reproduction(XIE, "smoke", [], []))
    one = story(**AS_MEASURED)
    one = Reproduction(XIE, "smoke", [found for found in one.runs if found.seed == 0], [])

    undefined = [claim for claim in empty if claim.test == "none"]
    assert {claim.verdict for claim in undefined} == {"vacuous here"}
    assert {claim.verdict for claim in empty if claim not in undefined} == {"not run"}
    assert "one draw has no interval" in verdict(one, "5.1").reason
    assert verdict(one, "5.1").verdict == "open"
    counts = f"{len(undefined)} vacuous here, {len(empty) - len(undefined)} not run"
    assert score(empty) == f"{len(empty)} claims: {counts}"


def test_a_run_that_diverged_counts_against_its_method():
    lost = [sharing(np.inf, seed) for seed in range(SEEDS)]
    for found in lost:
        found.run.rows, found.run.status = found.run.rows[:2], "diverged"
    plain = [fedavg(0.5, seed) for seed in range(SEEDS)]

    reading = deciders.compare_pairs("x", {"": (lost, plain)}, {"test": "lower"})

    assert reading.verdict == "contradicted"
    assert reading.mean == pytest.approx(np.log(1e6))


def test_one_run_that_diverged_does_not_decide_against_the_others():
    """Four draws in which ours is worse and one in which the other diverged: open, not won."""
    ours = [sharing(0.55, seed) for seed in range(5)]
    other = [fedavg(0.5, seed) for seed in range(5)]
    other[4].run.rows, other[4].run.status = other[4].run.rows[:2], "diverged"

    assert deciders.compare_pairs("x", {"": (ours, other)}, {"test": "lower"}).verdict == "open"


def test_the_least_favourable_level_is_told_and_two_draws_decide_nothing():
    ours = {
        nodes: [sharing(loss, seed, nodes=nodes) for seed in range(3)]
        for nodes, loss in ((2, 0.3), (4, 0.4))
    }
    plain = [fedavg(0.5, seed) for seed in range(3)]

    reading = deciders.compare_pairs(
        "x", {f"nodes {n}": (runs, plain) for n, runs in ours.items()}, {"test": "lower"}
    )
    two = deciders.compare_pairs("x", {"": (ours[2][:2], plain)}, {"test": "lower"})

    assert reading.verdict == "holds"
    assert reading.says.endswith("(nodes 4)")
    # the last quarter of 40 gradients has the records at 32 and at 40
    settled = {loss: (2 * (loss / 2) ** 0.8 + loss) / 2 for loss in (0.3, 0.4, 0.5)}
    assert [(each.name, each.verdict, round(each.mean, 6)) for each in reading.levels] == [
        ("nodes 2", "holds", round(log(settled[0.3] / settled[0.5]), 6)),
        ("nodes 4", "holds", round(log(settled[0.4] / settled[0.5]), 6)),
    ]
    assert reading._replace(name="nodes 4", says="", levels=()) == reading.levels[1]._replace(
        says=""
    )
    assert (two.verdict, two.n, two.levels) == ("open", 2, ())


def test_draws_are_compared_each_where_both_still_go_on():
    slow = [made_up(0.5, seed, end=10.0 * (1 + seed), method="fedsa") for seed in range(3)]
    plain = [fedavg(0.5, seed) for seed in range(3)]

    reading = deciders.compare_pairs("x", {"": (slow, plain)}, {"test": "lower"})

    assert "at 10 to 30 gradients" in reading.says


def test_parts_of_a_reading_hold_together():
    parts = [
        deciders.Reading(name, verdict, "")
        for name, verdict in (("a", "holds"), ("b", "holds"), ("c", "contradicted"))
    ]
    both, alone = {"group": ["both"]}, {}

    assert (
        verdict_of_claim(parts, [both, both, alone])[0] == "holds under (both); others: 1 "
        "contradicted"
    )
    assert verdict_of_claim(parts, [alone, both, both])[0].startswith("holds under (a)")
    opened = [*parts[:2], parts[2]._replace(verdict="open")]
    assert verdict_of_claim(opened, [both, both, both])[0] == "open"


WORDS = {"h": "holds", "c": "contradicted", "e": "equal", "o": "open", "n": "not run"}
WORDS |= {"v": "vacuous here", "b": "better than claimed"}


@pytest.mark.parametrize(
    ("readings", "verdict"),
    [
        ("hh", "holds"),
        ("hn", "holds; others: 1 not run"),
        ("hco", "holds under (0); others: 1 contradicted, 1 open"),
        ("cc", "contradicted"),
        ("cen", "contradicted; others: 1 not run, 1 equal"),
        ("co", "contradicted under (0); others: 1 open"),
        ("oc", "open"),  # the open one is the first, and so the middle
        ("eo", "equal; others: 1 open"),
        ("vo", "open"),
        ("vn", "vacuous here; others: 1 not run"),
        ("b", "better than claimed"),
        ("oo", "open"),
        ("nn", "not run"),
    ],
)
def test_the_verdict_of_many_readings_is_the_plans(readings, verdict):
    """One row of plan.md each; a reading that was not run counts for nothing."""
    found = [deciders.Reading(str(i), WORDS[letter], "") for i, letter in enumerate(readings)]

    assert verdict_of_claim(found, [{}] * len(found))[0] == verdict


def test_an_open_reading_that_is_marked_as_the_middle_keeps_a_claim_open():
    found = [deciders.Reading("a", "contradicted", ""), deciders.Reading("b", "open", "")]

    assert verdict_of_claim(found, [{}, {"middle": True}])[0] == "open"
    assert verdict_of_claim(found, [{"middle": True}, {}])[0].startswith("contradicted under (a)")
    built = [deciders.Reading("a", "holds", "")]
    assert verdict_of_claim(built, [{"construction": True}])[0] == "true by construction"


def test_two_runs_of_one_draw_are_refused():
    twice = [fedavg(0.5, 0), fedavg(0.4, 0, 2.0)]
    with pytest.raises(ValueError, match="expected one run a draw"):
        deciders.by_seed(twice)


values = st.lists(st.floats(0.05, 5.0), min_size=2, max_size=8)


@given(values, st.floats(-0.5, 0.5))
def test_the_interval_is_students(losses, shift):
    other = np.array(losses)
    rng = np.random.default_rng(len(losses))
    ours = other * np.exp(shift + 0.1 * rng.standard_normal(len(other)))

    spread = evidence.paired(
        [deciders.difference(a, b, "train_loss") for a, b in zip(ours, other, strict=True)]
    )

    known = stats.ttest_rel(np.log(ours), np.log(other)).confidence_interval(0.95)
    np.testing.assert_allclose((spread.low, spread.high), known, rtol=1e-9, atol=1e-12)


@given(st.lists(st.tuples(st.floats(0.1, 2.0), st.floats(0.1, 2.0)), min_size=3, max_size=6))
def test_lower_one_way_is_higher_the_other(pairs):
    ours = [fedavg(a, seed) for seed, (a, _) in enumerate(pairs)]
    other = [fedavg(b, seed) for seed, (_, b) in enumerate(pairs)]

    one = deciders.compare_pairs("x", {"": (ours, other)}, {"test": "lower"})
    two = deciders.compare_pairs("x", {"": (other, ours)}, {"test": "higher"})
    back = deciders.compare_pairs("x", {"": (other, ours)}, {"test": "lower"})

    assert one.verdict == two.verdict
    assert not (one.verdict == back.verdict == "holds")


def test_what_is_equal_is_neither_lower_nor_open():
    ours = [fedavg(0.5 * (1 + 0.001 * seed), seed) for seed in range(SEEDS)]
    other = [fedavg(0.501 * (1 + 0.001 * seed), seed) for seed in range(SEEDS)]

    assert deciders.compare_pairs("x", {"": (ours, other)}, {"test": "lower"}).verdict == "equal"
    assert deciders.compare_pairs("x", {"": (ours, other)}, {"test": "similar"}).verdict == "holds"
    assert (
        deciders.compare_pairs(
            "x", {"": (ours, other)}, {"test": "similar", "margin": 1e-4}
        ).verdict
        == "contradicted"
    )


def test_formulas_are_held_against_their_runs():
    waiting = made_up(0.5, gamma=4, links="timed")
    for row in waiting.run.rows:
        row["kappa"] = 0.2
    overlapped = made_up(0.5, gamma=4)

    assert measures.formula("x", FORMULAS["kappa_fedavg"], [waiting]).verdict == "holds"  # 1/(4+1)
    asked = FORMULAS["kappa_sharing"]  # 1, not 4/5
    assert measures.formula("x", asked, [overlapped]).verdict == "contradicted"
    assert measures.formula("x", asked, [overlapped], "higher").verdict == "better than claimed"
    assert measures.formula("x", asked, [overlapped], "lower").verdict == "contradicted"
    few = measures.formula("x", FORMULAS["rounds_per_gamma"], [made_up(0.5, gamma=0.5)])
    assert few.verdict == "holds"  # 40 rounds are within O(80)
    assert measures.formula("x", FORMULAS["never_waits"], [overlapped]).verdict == "holds"
    assert measures.formula("x", FORMULAS["never_waits"], [waiting]).verdict == "contradicted"


def test_a_measurement_above_its_limit_refutes():
    rows = [{"measure": "gap_printed", "case": "a", "value": 0.95, "limit": 0.5, "says": "0.95"}]
    rows.append(
        {"measure": "gap_aggregate", "case": "a", "value": 0.2, "limit": 0.5, "says": "0.2"}
    )

    assert verdict(Reproduction(XIE, "smoke", [], rows), "T1.1").verdict.startswith(
        "holds under (with the one aggregate"
    )
    rows[0]["value"] = 0.4
    assert verdict(Reproduction(XIE, "smoke", [], rows), "T1.1").verdict == "holds"
    rows[0]["value"] = None
    assert verdict(Reproduction(XIE, "smoke", [], rows), "T1.1").kind == "holds under"


def test_the_first_reach_is_between_records():
    run = fedavg(0.5, 0).run
    target = float(np.sqrt(run.rows[2]["train_loss"] * run.rows[3]["train_loss"]))

    assert run.rows[2]["gradients"] < deciders.first_reach(run, target) < run.rows[3]["gradients"]
    assert np.isnan(deciders.first_reach(run, 0.1))
    assert deciders.first_reach(run, 3.0) == 0
    assert np.isnan(at(run, "gradients", 41.0, "train_loss"))


def test_every_claim_is_well_formed_and_asks_for_runs_that_the_plan_has():
    """At laptop and full size each reading finds at least one planned run on each side, but for
    CIFAR-10's grid."""
    claims = XIE.claims()["claim"]
    names = [claim["name"] for claim in claims]
    assert len(set(names)) == len(names) >= 35
    for size in ("laptop", "full"):
        planned = {}
        for job in plan(XIE, XIE.figures, size, seeds=1).jobs:
            rows = made_up(0.5).run.rows
            run = Run(job.settings["method"], job.key, 0, rows)
            facts = dict(job.settings) | ({"kind": "clock"} if job.notes.get("clock") else {})
            figures = tuple(job.notes["figures"])
            planned[job.key] = Found(job.notes["variant"], facts, 0, run, figures)
        for claim in judge(Reproduction(XIE, size, derive(list(planned.values())), [])):
            if (
                claim.test.startswith("folkman theory")
                or claim.test == "none"
                or (size, claim.where[-8:]) == ("laptop", "CIFAR-10")
            ):
                continue
            lacking = [r["name"] for r in claim.readings if r["says"] == "no such runs"]
            # the printed step, the grid and the variations are run on MNIST only
            if claim.where.endswith("CIFAR-10"):
                only = ("eta/I", "best", "weight decay", "transfers")
                lacking = [name for name in lacking if not any(each in name for each in only)]
            if size == "laptop":  # its numbers are in float32 anyway
                lacking = [name for name in lacking if "float32" not in name]
            assert not lacking, (size, claim.name, lacking)


@pytest.mark.parametrize("size", ["laptop", "full"])
def test_what_lies_beyond_the_paper_asks_for_runs_that_its_plan_has(size):
    planned = [
        Found(
            job.notes["variant"],
            job.settings,
            5,  # as if they were of the first draw that decides
            Run(job.settings["method"], job.key, 5, made_up(0.5).run.rows),
            XIE.beyond,
        )
        for job in plan(XIE, XIE.beyond, size, seeds=1).jobs
    ]

    judged = judge(Reproduction(XIE, size, planned, []), beyond=True)

    assert [claim.name for claim in judged] == [f"B.{number}" for number in range(1, 7)]
    assert not [
        r["name"] for claim in judged for r in claim.readings if r["says"] == "no such runs"
    ]
    assert not [
        r for claim in judge(Reproduction(XIE, size, planned, [])) for r in claim.readings if r["n"]
    ]


def test_what_becomes_of_a_reading_is_told_by_the_draws_that_both_have():
    """Nothing changes by itself; what FedAvg gains overturns readings; draws that one side lacks
    decide nothing."""
    before = story(**AS_MEASURED)
    ahead = story(**(AS_MEASURED | {"plain": 0.1}))
    torn = ahead._replace(runs=[f._replace(seed=f.seed + 9) if f.seed else f for f in ahead.runs])

    same, other = reconsider(before, before), reconsider(ahead, before)
    assert {each.kind for each in same} == {"alike"}
    assert {each.claim for each in same} >= {"5.1", "5.2", "5.3"}
    found = {each.reading: each for each in other if each.claim == "5.1"}[ETA_I]
    assert (found.was, found.now, found.kind) == ("holds", "contradicted", "overturned")
    assert found.was_says != found.now_says
    with pytest.raises(ValueError, match="expected 3 draws or more that both have"):
        reconsider(torn, before)
    with pytest.raises(ValueError, match="expected runs of one size, got laptop and smoke"):
        reconsider(before._replace(size="laptop"), before)


def test_a_reading_that_no_longer_fails_is_reopened_where_a_level_is_missing():
    """Two nodes contradict and four were never run: once two no longer do, the whole was not
    run."""

    def without_four(plain):
        results = story(**(AS_MEASURED | {"plain": plain}))
        return results._replace(
            runs=[f for f in results.runs if f.facts["nodes"] == 2 or "scaling" not in f.facts]
        )

    name = ETA_I
    changes = {
        (each.claim, each.reading): each
        for each in reconsider(without_four(0.5), without_four(0.1))
    }

    assert (changes["5.1", name].was, changes["5.1", name].now) == ("contradicted", "not run")
    assert changes["5.1", name].kind == "reopened"


@pytest.mark.parametrize(
    ("was", "now", "kind"),
    [
        ("open", "holds", "decided"),
        ("not run", "equal", "decided"),
        ("contradicted", "open", "reopened"),
        ("holds", "equal", "overturned"),
    ],
)
def test_a_change_has_a_name_and_stands_out(was, now, kind):
    changed, alike = (
        Change("5.1", "a | b", was, now, "then", "later"),
        Change("5.2", "c", now, now, "then", "later"),
    )

    text = changes_markdown([changed, alike], "x, before: y")

    assert changed.kind == kind
    assert f"| 5.1 | a \\| b | {was}: then | **{now}**: later |" in text
    assert f"| 5.2 | c | {now}: then | {now}: later |" in text
    assert text.startswith("2 readings: 1 alike, ")
    assert f"1 {kind}" in text.partition(", from x, before: y.")[0]


@given(
    st.floats(0.01, 1.0), st.lists(st.floats(0.01, 5.0), min_size=2, max_size=9), st.integers(0, 8)
)
def test_a_trailing_mean_is_the_integral_over_the_window(part, losses, stall):
    """Against quadrature of the broken line by a thousand points a piece; nothing is computed
    between two records."""
    steps = np.arange(len(losses)) * 4.0
    steps[stall + 1 :] -= 4.0  # the record after the stall has no more gradients
    rows = [
        {"gradients": g, "train_loss": v, "test_accuracy": v}
        for g, v in zip(steps, losses, strict=True)
    ]
    found = Found("digits", {}, 0, Run("made up", "", 0, rows), ("fig5",))

    run = trailing(Reproduction(XIE, "smoke", [found], []), part).runs[0].run

    end = steps[-1]
    fine = np.unique(
        np.concatenate([np.linspace((1 - part) * end, end, 1001), steps[steps >= (1 - part) * end]])
    )
    line = [at(found.run, "gradients", g, "test_accuracy") for g in fine]
    expected = np.trapezoid(line, fine) / (part * end) if end else losses[-1]
    assert run.rows[-1]["test_accuracy"] == pytest.approx(expected, rel=1e-6)
    logs = np.interp(fine, *_last_of_each(steps, np.log(losses)))
    expected = np.exp(np.trapezoid(logs, fine) / (part * end)) if end else losses[-1]
    assert run.rows[-1]["train_loss"] == pytest.approx(expected, rel=1e-6)
    assert "test_loss" not in run.rows[-1]
    assert run.column("gradients") == list(steps)


def _last_of_each(x, y):
    keep = np.append(np.diff(x) > 0, True)
    return x[keep], y[keep]


def test_a_run_that_diverged_stays_so_in_a_mean():
    rows = [{"gradients": float(g), "train_loss": np.inf if g > 5 else 1.0} for g in range(8)]
    found = Found("digits", {}, 0, Run("made up", "", 0, rows, "diverged"), ("fig5",))

    assert (
        trailing(Reproduction(XIE, "smoke", [found], []), 0.5).runs[0].run.column("train_loss")
        == [1.0] * 6 + [np.inf] * 2
    )


def test_one_bad_record_does_not_decide_a_mean_over_a_window():
    spiked = [sharing(0.3, seed, "figure", nodes) for seed in range(SEEDS) for nodes in (2, 4)]
    spiked += [fedavg(0.5, seed) for seed in range(SEEDS)]
    for each in spiked[:2]:
        each.run.rows[-1]["train_loss"] = 0.6
    results = Reproduction(XIE, "smoke", derive(spiked), [])

    def decided(results):
        return next(each for each in verdict(results, "5.1").readings if each["name"] == ETA_I)

    by_both = decided(results)
    assert (by_both["verdict"], by_both["by_last"]) == ("open", "open")
    assert "holds by the median, open by the last value" in by_both["says"]
    assert decided(trailing(results, 0.5))["verdict"] == "holds"
    with pytest.raises(ValueError, match="a window is a part of the gradients"):
        trailing(results, 1.5)


def test_the_markdown_holds_every_claim_and_reading():
    judged = judge(story(**AS_MEASURED))
    text = claims_markdown(judged, "runs/x")

    assert all(f"| {claim.name} |" in text for claim in judged)
    assert text.count("\n| 5.1 |") == 1 + len(verdict(story(**AS_MEASURED), "5.1").readings)


def test_selection_is_by_value():
    runs = [fedavg(0.5, 0, 1 / 15), sharing(0.4, 0)]

    assert len(select(runs, effective=0.066666667)) == 1
    assert len(select(runs, method=["fedavg", "async_sharing"])) == 2
    assert select(runs, scaling=None) == [runs[0]]
    listed = runs[0]._replace(facts={"sizes": [2, 3]})
    assert select([listed, runs[0]], sizes=None) == [runs[0]]


def test_what_many_runs_share_is_compared_once(monkeypatch):
    compared = []
    monkeypatch.setattr(
        "folkman.papers.results._fits", lambda *both: compared.append(both) or both[0] == both[1]
    )
    runs = [fedavg(0.5, draw, 1 / 15) for draw in range(9)]

    assert select(runs, method="fedavg") == runs
    assert compared == [("fedavg", "fedavg")]
