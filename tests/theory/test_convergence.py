"""The bounds hold on more than a thousand random problems, delay laws and steps, and no smaller constant would do."""

import numpy as np
import pytest

from folkman import async_sharing, constant, iid, pipelined, simulate, snapshot
from folkman.engine.simulate import Recording
from folkman.theory.convergence import (
    BOUNDS,
    all_bounds,
    effective_age,
    measured,
    window_sums,
    without_running,
)
from folkman.theory.trajectory import Trajectory, follow, step_weights

SLOPES = {  # losses h f(x - c) with |f''| <= 1 and f >= 0: value and derivative of f
    "quadratic": (lambda x: 0.5 * x**2, lambda x: x),
    "cosine": (lambda x: 1 - np.cos(x), np.sin),  # not convex
    "logcosh": (lambda x: np.logaddexp(x, -x) - np.log(2), np.tanh),
    "welsch": (lambda x: 1 - np.exp(-0.5 * x**2), lambda x: x * np.exp(-0.5 * x**2)),  # not convex
}
LAWS = ("none", "constant", "snapshot", "iid", "pipelined")


def draw_ages(rng, law, slots, nodes, gamma):
    """Return (slot, rx, tx) ages of a delay law of length gamma; nothing is older than the run."""
    t = np.arange(slots)[:, None, None]
    phase = rng.integers(0, gamma, (1, nodes, nodes))
    ages = {
        "none": np.zeros((slots, nodes, nodes), int),
        "constant": np.full((slots, nodes, nodes), gamma),
        "snapshot": (t - phase) % gamma,
        "iid": rng.integers(0, gamma, (slots, nodes, nodes)),
        "pipelined": gamma + (t - phase) % gamma,
    }[law]
    ages = np.minimum(np.broadcast_to(ages, (slots, nodes, nodes)), t)
    return np.where(np.eye(nodes, dtype=bool)[None], 0, ages)


def simulate_many(kind, h, c, ages, alpha, step):
    """Run Algorithm 1 on many problems at once: h, c (problem, node, d), alpha (problem, node), step (problem,)."""
    value, slope = SLOPES[kind]
    problems, nodes, dim = h.shape
    slots = ages.shape[1]
    past = np.zeros((problems, slots + 1, nodes, dim))
    rows = {name: [] for name in ("loss", "slope_sq", "move_sq", "local", "apart", "spread_sq")}
    b, tx = np.arange(problems)[:, None, None], np.arange(nodes)[None, None]
    for t in range(slots + 1):
        w = np.einsum("pj,pjd->pd", alpha, past[:, t])
        rows["loss"].append(np.einsum("pj,pjd->p", alpha, h * value(w[:, None] - c)))
        if t == slots:
            break
        v = np.einsum("pj,pijd->pid", alpha, past[b, t - ages[:, t], tx])
        g, at_w = h * slope(v - c), h * slope(w[:, None] - c)
        whole = np.einsum("pj,pjd->pd", alpha, at_w)
        rows["slope_sq"].append((whole**2).sum(-1))
        rows["move_sq"].append((np.einsum("pj,pjd->pd", alpha, g) ** 2).sum(-1))
        rows["local"].append(np.sqrt((g**2).sum(-1)))
        rows["apart"].append(np.sqrt(((v - w[:, None]) ** 2).sum(-1)))
        rows["spread_sq"].append(np.einsum("pj,pjd->p", alpha, (at_w - whole[:, None]) ** 2))
        past[:, t + 1] = past[:, t] - step[:, None, None] * g
    table = {name: np.stack(list(row), axis=1) for name, row in rows.items()}
    return [
        make_path({name: column[p] for name, column in table.items()}, ages[p], alpha[p], step[p])
        for p in range(problems)
    ]


def make_path(table, ages, alpha, step):
    blank = dict.fromkeys(Trajectory._fields, np.zeros(0))
    return Trajectory(
        **{**blank, **table, "ages": ages, "weights": alpha, "shares": alpha, "step": float(step)}
    )


def random_paths(count=96, slots=40):
    """Return (path, L_i, F*) of every kind of loss under every delay law; steps up to 1/L_mean, some exactly there."""
    rng = np.random.default_rng(7)
    found = []
    for kind in SLOPES:
        for law in LAWS:
            nodes, dim, gamma = (
                int(rng.integers(1, 6)),
                int(rng.integers(1, 4)),
                int(rng.integers(1, 9)),
            )
            h = rng.uniform(0.1, 3.0, (count, nodes, dim))
            h[: count // 8] = h[: count // 8, :1, :1]  # nodes alike in curvature, round
            c = rng.normal(size=(count, nodes, dim)) * rng.choice(
                [0.0, 0.3, 2.0], (count, 1, 1)
            ) + rng.normal(size=(count, 1, dim))
            smooth = h.max(axis=-1)
            alpha = rng.dirichlet(np.ones(nodes), count) * 0.8 + 0.2 / nodes
            step = rng.uniform(0.02, 1.0, count) ** 2
            step[::8] = 1.0
            step /= (alpha * smooth).sum(axis=-1)
            ages = np.stack([draw_ages(rng, law, slots, nodes, gamma) for _ in range(count)])
            paths = simulate_many(kind, h, c, ages, alpha, step)
            found += [(path, smooth[p], 0.0) for p, path in enumerate(paths)]
    return found


def edge_paths():
    """Return cases made to be tight: one step that lands on the optimum, and a standing error.

    Standing: F_1 = (x+1)^2/2 and a nearly straight F_2, equal shares, constant age A, from the optimum. Then grad F(w)
    tends to eta A (L_1 - L_2) g / 4, and v_i - w to eta A g / 2, with g_1 = -g_2 = g.
    """
    one = np.ones((1, 1, 1))
    landing = simulate_many(
        "quadratic", one, one, np.zeros((1, 3, 1, 1), int), np.ones((1, 1)), np.ones(1)
    )
    slots, age, step = 4000, 5, 0.05
    rng = np.random.default_rng(0)
    ages = draw_ages(rng, "constant", slots, 2, age)[None]
    h, c = np.array([[[1.0], [1e-6]]]), np.array([[[-1.0], [1e6]]])
    standing = simulate_many("quadratic", h, c, ages, np.full((1, 2), 0.5), np.array([step]))
    optimum = float((h * c).sum() / h.sum())
    floor = float(0.5 * (0.5 * h * (optimum - c) ** 2).sum())
    return [(landing[0], np.ones(1), 0.0), (standing[0], h[0, :, 0], floor)]


@pytest.fixture(scope="module")
def cases():
    return random_paths(), edge_paths()


def violations(cases, name, constants=(1.0, 1.0)):
    """Return how many cases a bound fails on, and on how many it applied."""
    applied = [BOUNDS[name](path, smooth, floor, constants) for path, smooth, floor in cases]
    held = [bound.holds(case[0], 1e-9) for bound, case in zip(applied, cases, strict=True)]
    return sum(answer is False for answer in held), sum(answer is not None for answer in held)


@pytest.mark.parametrize(
    ("name", "least"), {"simple": 1900, "ages": 1900, "spread": 1000, "afterwards": 1900}.items()
)
def test_every_bound_holds_on_every_problem(cases, name, least):
    broken, applied = violations([*cases[0], *cases[1]], name)

    assert broken == 0
    assert applied >= least


@pytest.mark.parametrize("name", ["simple", "ages", "spread", "afterwards"])
def test_a_first_constant_smaller_by_a_hundredth_fails(cases, name):
    assert violations(cases[1], name, (0.99, 1.0))[0] > 0


@pytest.mark.parametrize(
    ("name", "factor"),
    {"simple": 1 / 17, "ages": 0.95, "afterwards": 0.95, "spread": 1 / 16}.items(),
)
def test_a_second_constant_smaller_by_the_stated_factor_fails(cases, name, factor):
    """How much room each delay term has at most: a factor of 16 in `simple`, 15 in `spread`, none in the others."""
    assert violations(cases[1], name, (1.0, factor))[0] > 0


def test_the_random_problems_alone_catch_a_constant_a_tenth_too_small(cases):
    """Not only the cases made for it."""
    for name in ("simple", "ages", "afterwards"):
        assert violations(cases[0], name, (0.9, 0.9))[0] > 0


def test_measured_ages_give_a_bound_never_above_the_simple_one(cases):
    gains = []
    for path, smooth, floor in cases[0]:
        simple, ages = (BOUNDS[name](path, smooth, floor).curve for name in ("simple", "ages"))
        assert np.all(ages <= simple * (1 + 1e-12))
        gains.append(simple[-1] / ages[-1])
        assert effective_age(path.ages, path.weights) <= path.ages.max() * (1 + 1e-12)
    assert np.max(gains) > 3


def effective_age_told_again(ages, beta):
    """Return A_2: for a sender j and a slot s, every (i, t) that still lacks g_j(s) counts beta_i sum_k beta_k a_ik."""
    slots, nodes = ages.shape[:2]
    largest = 0.0
    for j in range(nodes):
        for s in range(slots):
            lacking = [
                beta[i] * sum(beta[k] * ages[t, i, k] for k in range(nodes))
                for i in range(nodes)
                for t in range(slots)
                if t - ages[t, i, j] <= s < t
            ]
            largest = max(largest, sum(lacking))
    return np.sqrt(largest)


def bounds_told_again(path, smooth, floor):
    """Return the four bounds of all horizons J by the sums in which docs/theory-proofs.md states them."""
    slots, nodes = path.ages.shape[:2]
    beta, eta, every = path.weights, path.step, range(nodes)
    mean_smooth = sum(beta * smooth)
    largest = path.local.max(axis=0)
    q = 3 * (eta * max(smooth) * effective_age_told_again(path.ages, beta)) ** 2
    late, missing = np.zeros(slots), np.zeros(slots)
    for t, i, j in np.ndindex(slots, nodes, nodes):
        pair, age = beta[i] * smooth[i] * beta[j], path.ages[t, i, j]
        late[t] += pair * age * largest[j]
        missing[t] += pair * sum(path.local[s, j] for s in range(t - age, t))
    told = {name: [] for name in BOUNDS}
    for J in range(1, slots + 1):
        start = 2 * (path.loss[0] - floor) / (eta * J)
        delay = (eta * max(smooth) * path.ages.max() * max(largest[j] for j in every)) ** 2
        zeta_sq = sum(path.spread_sq[:J]) / J
        gained = 2 * (path.loss[0] - path.loss[J]) / (eta * J)
        moved = (1 - eta * mean_smooth) * sum(path.move_sq[:J]) / J
        told["simple"].append(start + delay)
        told["ages"].append(start + eta**2 * sum(late[:J] ** 2) / J)
        told["spread"].append(((1 - q) * start + q * zeta_sq) / (1 - 2 * q))
        told["afterwards"].append(gained - moved + eta**2 * sum(missing[:J] ** 2) / J)
    return told, q


@pytest.mark.parametrize("law", ["constant", "snapshot", "iid", "pipelined"])
def test_every_bound_is_the_sum_that_the_document_states(law):
    rng = np.random.default_rng(LAWS.index(law))
    nodes, slots = 3, 12
    h, c = rng.uniform(0.2, 2.0, (1, nodes, 2)), rng.normal(size=(1, nodes, 2))
    alpha = rng.dirichlet(np.ones(nodes), 1) * 0.8 + 0.2 / nodes
    ages = draw_ages(rng, law, slots, nodes, 3)[None]
    path = simulate_many("quadratic", h, c, ages, alpha, np.array([0.03]))[0]
    smooth = h[0].max(axis=-1)

    told, q = bounds_told_again(path, smooth, 0.05)

    assert 0 < q < 0.5
    found = all_bounds(path, smooth, 0.05)
    assert [bound.name for bound in found] == list(told)
    for bound in found:
        np.testing.assert_allclose(bound.curve, told[bound.name], rtol=1e-10, err_msg=bound.name)
        assert bound.reason == ""
    late = effective_age_told_again(path.ages, path.weights)
    assert effective_age(path.ages, path.weights) == pytest.approx(late)


def test_the_effective_age_of_a_constant_age_is_that_age_but_for_a_nodes_own():
    """Equal weights, A slots old: sqrt of A slots times (I-1)/I of the nodes times a mean age of A (I-1)/I."""
    nodes, age = 4, 3
    ages = draw_ages(np.random.default_rng(0), "constant", 30, nodes, age)

    found = effective_age(ages, np.full(nodes, 1 / nodes))

    assert found == pytest.approx(age * (nodes - 1) / nodes)
    assert effective_age(np.zeros_like(ages), np.full(nodes, 1 / nodes)) == 0


def test_a_step_of_one_over_the_curvature_is_allowed_and_a_longer_one_is_not():
    one = np.ones((1, 1, 1))
    at, above = (
        simulate_many("quadratic", one, one, np.zeros((1, 3, 1, 1), int), one[0], np.array([step]))[
            0
        ]
        for step in (1.0, 1.001)
    )

    for bound in all_bounds(at, np.ones(1)):
        assert bound.reason == ""
        assert bound.holds(at, 1e-9) is True
    for bound in all_bounds(above, np.ones(1))[:3]:
        assert bound.holds(above) is None
        assert np.isnan(bound.curve).all()


def test_spread_is_refused_from_a_q_of_one_half():
    """q = 3 (eta L A_2)^2 with A_2 = 3/2 for two nodes alike whose copies are three slots old."""
    ages = draw_ages(np.random.default_rng(0), "constant", 20, 2, 3)[None]
    h, c, alpha = np.ones((1, 2, 1)), np.ones((1, 2, 1)), np.full((1, 2), 0.5)
    edge = np.sqrt(1 / 6) / 1.5

    inside, outside = (
        all_bounds(simulate_many("quadratic", h, c, ages, alpha, np.array([step]))[0], np.ones(2))
        for step in (0.99 * edge, 1.01 * edge)
    )

    assert inside[2].reason == ""
    assert "is not below 1/2" in outside[2].reason
    assert np.isnan(outside[2].curve).all()
    assert outside[0].reason == outside[1].reason == ""


def test_what_is_known_without_running_is_exact_for_quadratics_of_one_curvature():
    """||grad F||^2 = 2 L (F - F*), with an F* above 0 where the nodes differ."""
    h, c = np.full((1, 2, 1), 3.0), np.array([[[-1.0], [2.0]]])
    alpha = np.array([[0.25, 0.75]])
    ages = np.zeros((1, 2, 2, 2), int)
    path = simulate_many("quadratic", h, c, ages, alpha, np.array([0.1]))[0]
    optimum = float(alpha[0] @ c[0, :, 0])
    floor = float(alpha[0] @ (1.5 * (optimum - c[0, :, 0]) ** 2))

    found = without_running(path, np.full(2, 3.0), floor)

    assert found == pytest.approx(path.slope_sq[0])
    assert without_running(path, np.full(2, 3.0)) == pytest.approx(6.0 * path.loss[0])


def test_nodes_alike_have_a_bound_that_goes_to_zero():
    """Without a difference between nodes `spread` falls as 1/J, where `simple` keeps its delay term."""
    rng = np.random.default_rng(2)
    h, c = np.ones((1, 3, 1)), np.ones((1, 3, 1))
    ages = draw_ages(rng, "constant", 3000, 3, 4)[None]
    path = simulate_many("quadratic", h, c, ages, np.full((1, 3), 1 / 3), np.array([0.05]))[0]

    simple, _, spread, _ = all_bounds(path, np.ones(3))

    assert spread.curve[-1] * 2999 == pytest.approx(spread.curve[1] * 1, rel=1.0)
    assert spread.curve[-1] < 0.5 * simple.curve[-1]


def test_bounds_say_when_they_do_not_apply():
    rng = np.random.default_rng(2)
    ages = draw_ages(rng, "constant", 20, 3, 4)[None]
    path = simulate_many(
        "logcosh",
        np.ones((1, 3, 1)),
        np.ones((1, 3, 1)),
        ages,
        np.full((1, 3), 1 / 3),
        np.array([1.5]),
    )[0]

    simple, ages_bound, spread, after = all_bounds(path, np.ones(3))

    assert simple.reason == ages_bound.reason == spread.reason
    assert "eta L_mean = 1.5 is above 1" in simple.reason
    assert simple.holds(path) is None
    assert after.holds(path) is True


@pytest.mark.parametrize(
    ("network", "scaling"),
    [
        (snapshot(4), "theorem"),
        (pipelined(3), "local"),
        (constant(2), "figure"),
        (iid(5), "theorem"),
    ],
    ids=["snapshot", "pipelined", "constant", "iid"],
)
def test_following_a_run_gives_its_last_model(digits, network, scaling):
    run = simulate(
        digits,
        network,
        async_sharing(0.05, scaling),
        slots=30,
        recording=Recording(30, timeline=True),
    )

    path = follow(digits, run.timeline.held, 0.05, scaling)

    np.testing.assert_allclose(path.last, run.model, rtol=0, atol=1e-12)
    assert path.loss[-1] == pytest.approx(run.last("train_loss"), rel=1e-12)
    assert path.ages.max() == run.last("max_age")


def test_following_agrees_with_the_plain_simulator(quadratics):
    problem = quadratics(nodes=4, dim=3, heterogeneity=2.0)
    rng = np.random.default_rng(0)
    ages = draw_ages(rng, "iid", 25, 4, 5)
    h, c = np.asarray(problem.y[:, 0]), np.asarray(problem.x[:, 0])  # one sample a node

    path = follow(problem, np.arange(25)[:, None, None] - ages, 0.1, "theorem")
    plain = simulate_many(
        "quadratic", h[None], c[None], ages[None], np.asarray(problem.share)[None], np.array([0.1])
    )[0]

    for name in ("loss", "slope_sq", "move_sq", "local", "apart", "spread_sq"):
        np.testing.assert_allclose(getattr(path, name), getattr(plain, name), rtol=1e-9, atol=1e-9)
    missing = window_sums(path)
    t, i, j = 20, 1, 2
    assert missing[t, i, j] == pytest.approx(path.local[t - ages[t, i, j] : t, j].sum())
    assert np.all(path.apart <= 0.1 * np.einsum("j,tij->ti", path.weights, missing) + 1e-12)
    assert measured(path)[-1] == pytest.approx(np.mean(path.slope_sq))


def test_every_scaling_is_a_step_and_weights():
    alpha = np.array([0.5, 0.25, 0.25])

    for scaling, step, weights in (
        ("theorem", 0.1, alpha),
        ("figure", 0.3, alpha),
        ("local", 0.0375, alpha**2 / 0.375),
    ):
        _, beta, step_b = step_weights(alpha, 0.1, scaling)
        assert step_b == pytest.approx(step)
        np.testing.assert_allclose(beta, weights)
    with pytest.raises(ValueError, match="scaling must be"):
        step_weights(alpha, 0.1, "none")
