"""Every leaf test of an audit again, from the kept files alone: nothing of folkman is imported.

    python tests/papers/recompute.py docs/data/reproduction/full src/folkman/papers/xie2024

It reads index.json, results.parquet (by pyarrow, a reader) and the TOML files of the paper, chooses
runs, pairs draws and tests differences in its own words, with NumPy and the standard library.
`test_recomputed.py` holds the audit against it.
"""

import json
import sys
import tomllib
from functools import cache
from itertools import pairwise, product
from math import atan, comb, cos, isnan, log, nan, pi, sin, sqrt
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

LOSSES = ("train_loss", "test_loss", "test_accuracy")


@cache
def load(folder):
    """Return runs as dictionaries: variant, facts, seed, status, figures, columns."""
    index = json.loads((folder / "index.json").read_text())
    table = pq.read_table(folder / "results.parquet")
    jobs = np.array(table["job"].to_pylist())
    names = [n for n in table.column_names if n not in ("arm", "algorithm", "label", "seed", "job")]
    values = {n: np.array([nan if v is None else v for v in table[n].to_pylist()]) for n in names}
    where = {}
    for row, key in enumerate(jobs):
        where.setdefault(key, []).append(row)
    runs = []
    for job in index["jobs"]:
        if job["state"] in ("finished", "diverged"):
            rows = where.get(job["key"], [])
            facts = {**job["settings"], **({"kind": "clock"} if job.get("clock") else {})}
            columns = {n: values[n][rows].astype(float) for n in names}
            runs.append(
                {
                    "variant": job["variant"],
                    "facts": facts,
                    "seed": job["seed"],
                    "status": job["state"],
                    "figures": job["figures"],
                    "columns": columns,
                }
            )
    return index["size"], runs + waiting(runs)


def waiting(runs):
    """Return FedAvg that pays for its rounds: the models of the free run, later."""
    added = []
    for run in runs:
        facts = run["facts"]
        if facts["method"] != "fedavg" or facts.get("links") != "free" or "kind" in facts:
            continue
        alike = [r for r in runs if r["variant"] == run["variant"]]
        for gamma in sorted({r["facts"]["gamma"] for r in alike if "gamma" in r["facts"]}):
            old = run["columns"]
            slots = old["gradients"] * (1 + gamma)
            slot_s = old["seconds"][-1] / old["slots"][-1]
            new = {**old, "slots": slots, "seconds": slots * slot_s}
            more = {"links": "timed", "network": "snapshot", "gamma": gamma}
            added.append({**run, "facts": {**facts, **more}, "columns": new})
            if facts["partition"] == "iid" and not facts.get("l2"):
                added += [
                    {**run, "facts": f, "columns": new} for f in all_wait(facts, gamma, alike)
                ]
        for clock in alike:
            if clock["facts"].get("kind") == "clock" and clock["seed"] == run["seed"]:
                ticks = dict(clock["columns"])
                done = np.minimum(ticks["rounds"], run["columns"]["gradients"][-1])
                for name in LOSSES:
                    ticks[name] = np.interp(done, *moved(run["columns"], "gradients", name))
                more = {"links": "radio", "network": "radio"}
                added.append({**run, "facts": {**facts, **more}, "columns": ticks})
    return added


def all_wait(facts, gamma, alike):
    """Yield what Algorithm 1 is whose nodes wait for all: descent at its effective step."""
    sharing = [r["facts"] for r in alike if r["facts"]["method"] == "async_sharing"]
    for nodes in sorted({f["nodes"] for f in sharing if "gamma" in f}):
        for scaling, stretch in (("theorem", 1), ("figure", nodes), ("local", 1 / nodes)):
            if abs(stretch - facts["effective"]) < 1e-6:
                same = {"method": "async_sharing_waiting", "network": "snapshot", "factor": 1.0}
                yield {**same, "scaling": scaling, "nodes": nodes, "gamma": gamma}


def moved(columns, axis, name):
    """Return axis and values without records after which nothing has moved."""
    x = columns[axis]
    keep = np.append(np.diff(x) > 0, True)
    return x[keep], columns[name][keep]


def value(run, axis, end, metric, part, beside=()):
    """Return the value at a point, or the median over the last part of the way to it.

    There it is looked at wherever it or one of those `beside` it was recorded.
    """
    x, y = moved(run["columns"], axis, metric)
    if end > run["columns"][axis][-1] * (1 + 1e-9):
        return np.inf if run["status"] == "diverged" and metric == "train_loss" else nan
    last = np.interp(end, x, y)
    if not part or metric not in LOSSES or not np.isfinite(last):
        return last
    marks = {mark for r in (run, *beside) for mark in r["columns"][axis]}
    late = sorted(m for m in marks if (1 - part) * end * (1 - 1e-9) <= m < end * (1 - 1e-9))
    return float(np.median([*np.interp(late, x, y), last]))


def fits(value, wanted):
    if isinstance(wanted, list):
        return any(fits(value, each) for each in wanted)
    if wanted == "none":
        return value is None
    if isinstance(wanted, int | float) and isinstance(value, int | float):
        return abs(value - wanted) <= 1e-6 * max(1, abs(wanted))
    return value == wanted


def choose(runs, facts):
    left = [r for r in runs if "kind" not in r["facts"]]
    for name, wanted in facts.items():
        values = {repr(r["facts"].get(name)): r["facts"].get(name) for r in left}
        right = {word for word, value in values.items() if fits(value, wanted)}
        left = [r for r in left if repr(r["facts"].get(name)) in right]
    return left


def looked_up(table, size):
    if isinstance(table, dict):
        return {k: looked_up(v, size) for k, v in table.items()}
    if isinstance(table, list):
        return [looked_up(v, size) for v in table]
    return size[table[1:]] if isinstance(table, str) and table.startswith("@") else table


def student_p(t, dof):
    """Return the two-sided p of Student's t, by the finite series for a whole number of degrees."""
    a = atan(abs(t) / sqrt(dof))
    c, s = cos(a), sin(a)
    term = total = 1.0 if dof % 2 == 0 else c
    for k in range(2, dof - 1, 2) if dof % 2 == 0 else range(3, dof - 1, 2):
        term *= c * c * (k - 1) / k
        total += term
    if dof % 2 == 0:
        return 1 - s * total
    return 1 - 2 / pi * (a + s * total if dof > 1 else a)


def flip_p(d):
    """Return the exact p of all flips of signs, one draw at a time."""
    sums = np.array([0.0])
    for value in d:
        sums = np.concatenate([sums + value, sums - value])
    return float(np.mean(np.abs(sums) >= abs(sum(d)) * (1 - 1e-12)))


def rank_test(d):
    """Return the middle of all means of two draws, and Wilcoxon's p over all tosses of signs."""
    n = len(d)
    ways = [1] + [0] * (n * (n + 1) // 2)  # of so many tosses each sum of ranks comes out
    for rank in range(1, n + 1):
        ways = [one + (ways[s - rank] if s >= rank else 0) for s, one in enumerate(ways)]
    ranks = np.array([sum(abs(d) < abs(x)) + (sum(abs(d) == abs(x)) + 1) / 2 for x in d])
    plus = sum(ranks[d > 0]) + sum(ranks[d == 0]) / 2
    least = min(plus, n * (n + 1) / 2 - plus)
    middle = np.median([(d[i] + d[j]) / 2 for i in range(n) for j in range(i, n)])
    p = min(1.0, 2 * sum(ways[: int(least) + 1]) / 2**n)
    return {"n": n, "mean": float(middle), "p": p}


def newest(seeds, ranks):
    """Return the draws that decide: those of the last plan that has eight."""
    for k in reversed(range(len(ranks))):
        later = ranks[k + 1] if k + 1 < len(ranks) else float("inf")
        new = [seed for seed in seeds if ranks[k] <= seed < later]
        if len(new) >= 8:
            return new
    return [seed for seed in seeds if seed < ranks[0]]


def tested(d, by_ranks):
    """Return draws, mean and p of paired differences."""
    d = np.array(d, float)
    if by_ranks:
        return rank_test(d)
    if len(d) < 3 or not np.isfinite(d).all():
        return {"n": len(d), "mean": float(d.mean()) if len(d) else nan, "p": nan}
    if len(d) >= 8:
        p = flip_p(d)
    elif d.std(ddof=1) <= 1e-12 * abs(d.mean()):
        p = 1.0 if d.mean() == 0 else 0.0
    else:
        p = student_p(d.mean() / (d.std(ddof=1) / sqrt(len(d))), len(d) - 1)
    return {"n": len(d), "mean": float(d.mean()), "p": p}


def apart(a, b, metric):
    if metric == "test_accuracy":
        return a - b
    if not (a > 0 and b > 0):
        return nan if a != b else 0.0
    if np.isinf(a) and np.isinf(b):
        return nan
    return float(np.clip(np.log(a) - np.log(b), -log(1e6), log(1e6)))


def common_end(runs, axis):
    ends = [r["columns"][axis][-1] for r in runs if r["status"] != "diverged"]
    return min(ends) if ends else nan


def difference(ours, other, metric, axis, part, ranks):
    left, right = ({r["seed"]: r for r in side} for side in (ours, other))
    d, seeds = [], newest(sorted(left.keys() & right.keys()), ranks)
    for seed in seeds:
        pair = left[seed], right[seed]
        end = common_end(pair, axis)
        mine, its = (value(r, axis, end, metric, part, pair) for r in pair)
        d.append(apart(mine, its, metric))
    return tested(d, max(seeds, default=0) >= ranks[0])


def reached(run, target):
    loss, steps = run["columns"]["train_loss"], run["columns"]["gradients"]
    if not target > 0:
        return nan
    for i, now in enumerate(loss):
        if now <= target * (1 + 1e-9):
            if i == 0:
                return steps[0]
            part = (loss[i - 1] - target) / (loss[i - 1] - now) if loss[i - 1] > now else 1.0
            return steps[i - 1] + part * (steps[i] - steps[i - 1])
    return nan


def sooner(ours, other, targets, ranks):
    left, right = ({r["seed"]: r for r in side} for side in (ours, other))
    wins = losses = 0
    seeds = newest(sorted(left.keys() & right.keys()), ranks)
    for seed in seeds:
        a, b = (reached(side[seed], targets.get(seed, nan)) for side in (left, right))
        wins += not isnan(a) and (isnan(b) or a < b)
        losses += not isnan(b) and (isnan(a) or b < a)
    n = wins + losses
    p = min(
        1.0,
        sum(comb(n, k) for k in range(n + 1) if comb(n, k) <= comb(n, wins) * (1 + 1e-7)) / 2**n,
    )
    return {
        "n": len(seeds),
        "mean": (losses - wins) / len(seeds) if seeds else nan,
        "p": p if seeds else nan,
    }


def thrown(run):
    loss = run["columns"]["train_loss"]
    start = max(1, -(-(len(loss) - 1) // 10))
    return any(
        not np.isfinite(loss[i]) or loss[i] > 1.5 * min(loss[:i]) for i in range(start, len(loss))
    )


def oftener(ours, other, ranks):
    bounds = [float("-inf"), *ranks, float("inf")]
    plans = [
        [[r for r in side if bounds[k] <= r["seed"] < bounds[k + 1]] for side in (ours, other)]
        for k in range(len(bounds) - 1)
    ]
    while len(plans) > 1 and min(map(len, plans[-1])) < 8:
        plans.pop()
    ours, other = plans[-1]
    (k, n), (k2, n2) = ((sum(map(thrown, side)), len(side)) for side in (ours, other))
    if not (n and n2):
        return {"n": 0, "mean": nan, "p": nan}

    def weight(x):
        return comb(n, x) * comb(n2, k + k2 - x)

    everything = range(max(0, k + k2 - n2), min(n, k + k2) + 1)
    few = sum(weight(x) for x in everything if weight(x) <= weight(k) * (1 + 1e-7))
    return {"n": min(n, n2), "mean": k / n - k2 / n2, "p": few / sum(map(weight, everything))}


def gain(pair, part, ranks):
    sides = {k: {r["seed"]: r for r in v} for k, v in pair.items()}
    seeds = newest(sorted(set.intersection(*(set(v) for v in sides.values()))), ranks)
    d = []
    for seed in seeds:
        four = [side[seed] for side in sides.values()]
        end = common_end(four, "gradients")
        loss = {
            k: log(value(v[seed], "gradients", end, "train_loss", part, four))
            for k, v in sides.items()
        }
        d.append(loss["other"] - loss["ours"])
    return tested(d, max(seeds, default=0) >= ranks[0])


def along(table):
    found = {}
    for key, values in table.items():
        for each in values if isinstance(values, list) else [values]:
            found[f"{key} {each:g}" if isinstance(each, int | float) else f"{key} {each}"] = {
                key: each
            }
    return found or {"": {}}


def partners(runs, wanted, ours):
    if not ours:
        return []
    facts = ours[0]["facts"]
    said = {
        k: facts.get(v[1:]) if isinstance(v, str) and v.startswith("=") else v
        for k, v in wanted.items()
    }
    return choose(runs, {k: "none" if v is None else v for k, v in said.items()})


def best(runs, reading, axis):
    groups = []
    for side in ("ours", "other"):
        grid = next(k for k, v in reading[side].items() if isinstance(v, list))
        steps = {}
        for run in choose(runs, reading[side]):
            steps.setdefault(run["facts"][grid], []).append(run)
        if len(steps) < len(reading[side][grid]):
            return [], []
        groups.append(steps)
    shared = set.intersection(*({r["seed"] for r in g} for s in groups for g in s.values()))
    everyone = [r for s in groups for g in s.values() for r in g if r["seed"] in shared]
    end = common_end(everyone, axis)

    def worth(group):
        kept = [r for r in group if r["seed"] in shared]
        return sum(value(r, axis, end, "train_loss", 0) for r in kept) / max(len(kept), 1)

    return [[r for r in min(s.values(), key=worth) if r["seed"] in shared] for s in groups]


def leaves(runs, claim, reading, size, targets, part, ranks):
    """Yield level and numbers of every test of one reading."""
    metric = reading.get("metric", claim.get("metric", "train_loss"))
    axis = reading.get("axis", claim.get("axis", "gradients"))

    def one(ours, other):
        return (
            sooner(ours, other, targets, ranks)
            if targets is not None
            else difference(ours, other, metric, axis, part, ranks)
        )

    if claim["test"] == "ordered":
        levels = {
            name: choose(runs, {**reading["ours"], **fact})
            for name, fact in along(looked_up(claim["levels"], size)).items()
        }
        for a, b in pairwise(levels):
            yield f"{b} against {a}", one(levels[b], levels[a])
        return
    if reading.get("best"):
        yield "", one(*best(runs, reading, axis))
        return
    fixed = {name: looked_up(fact, size) for name, fact in claim.get("fix", {}).items()}
    pool = choose(runs, {**fixed, **reading["ours"]})
    across = looked_up(reading.get("across", claim.get("across", {})), size)
    for level, fact in along(across).items():
        ours = choose(pool, fact)
        pair = {
            k: partners(runs, reading[k], ours)
            for k in ("other", "control", "control_other")
            if k in reading
        }
        if claim["test"] == "explained":
            yield level, gain({"ours": ours, **pair}, part, ranks)
        elif claim["test"] == "oftener":
            yield level, oftener(ours, pair["other"], ranks)
        else:
            yield level, one(ours, pair["other"])


def recompute(folder, paper, part=0.25):
    """Return claim, reading, variant, level and numbers of every test that has draws."""
    name, runs = load(folder)
    size = tomllib.loads((paper / "sizes.toml").read_text())[name]
    table = tomllib.loads((paper / "claims.toml").read_text())
    head = tomllib.loads((paper / "paper.toml").read_text())
    figures = {f: tomllib.loads((paper / f"{f}.toml").read_text()) for f in head["figures"]}
    hidden = {f for f, t in figures.items() if t.get("apart")}
    runs = [r for r in runs if set(r["figures"]) & set(figures)]
    ranks = table["ranks"]
    later = [r for r in runs if r["seed"] >= ranks[0]]
    runs = [r for r in runs if r["seed"] < ranks[0]]
    runs = ([r for r in runs if r["seed"] >= table["confirmatory"]] or runs) + later
    found, sets = [], {}
    for claim in table["claim"]:
        if claim["test"] in ("formula", "measured", "undefined"):
            continue
        listed = [
            *table["readings"].get(claim.get("readings"), {"list": []})["list"],
            *claim.get("reading", []),
        ]
        variants = (
            [claim["variant"]]
            if "variant" in claim
            else [v for v in figures[claim["figure"]]["variants"][name] if v not in head["aside"]]
        )
        for variant, reading in product(variants, listed):
            if "lacks" in reading:
                continue
            out, on = hidden - {reading.get("figure")}, reading.get("variant", variant)
            if (on, *out) not in sets:
                sets[on, *out] = [
                    r for r in runs if r["variant"] == on and not set(r["figures"]) <= out
                ]
            seen = sets[on, *out]
            goal, targets = table["targets"].get(claim.get("metric")), None
            if goal:
                targets = {
                    r["seed"]: goal["near"] * r["columns"]["train_loss"][-1]
                    for r in choose(seen, goal["of"])
                }
            for level, numbers in leaves(
                seen, claim, looked_up(reading, size), size, targets, part, ranks
            ):
                if numbers["n"]:
                    found.append((claim["name"], reading["name"], variant, level, numbers))
    return found


def corrected(family):
    """Return Benjamini and Hochberg's corrected p, in the order given."""
    order = np.argsort(family)[::-1]
    out, least = np.empty(len(family)), 1.0
    for rank, at in zip(range(len(family), 0, -1), order, strict=True):
        least = min(least, family[at] * len(family) / rank)
        out[at] = least
    return out


if __name__ == "__main__":
    for row in recompute(Path(sys.argv[1]), Path(sys.argv[2])):
        print(*row)
