"""Theorem H, Theorem 2 with a weight: never crossed, exact without delay, silent where it must be.

Runs are told again in NumPy, float64, by nothing of folkman but the function under test.
"""

import numpy as np
import pytest

from folkman.theory.own_limits import limit_alike
from folkman.theory.printed import theorem_h
from folkman.theory.trajectory import Trajectory


def told(curvature, centre, shares, ages, step, slots, start):
    """Run w_i <- w_i - eta grad F_i(v_i) for F_i(w) = 1/2 (w - b_i)' H_i (w - b_i), mode c_i = 1.

    `ages` (slot, node, node) says how old each copy is; a node's own is fresh.
    """
    nodes, dim = centre.shape
    past = np.broadcast_to(start, (1, nodes, dim)).copy()  # w_j(0), w_j(1), ...
    loss, local, unlike, used = [], [], [], []

    def whole(w):
        away = w - centre
        return float(shares @ np.einsum("ia,iab,ib->i", away, curvature, away)) / 2

    for t in range(slots):
        age = np.minimum(ages[t], t)
        np.fill_diagonal(age, 0)
        copies = past[t - age, np.arange(nodes)[None, :]]  # (rx, tx, d)
        v = np.einsum("j,ijd->id", shares, copies)
        g = np.einsum("iab,ib->ia", curvature, v - centre)
        pushed = shares[:, None] * g
        size = np.linalg.norm(pushed, axis=1)
        apart = np.linalg.norm(pushed[:, None] - pushed[None], axis=2)
        least = np.minimum(size[:, None], size[None])
        with np.errstate(divide="ignore"):  # one that stands still beside one that moves: infinite
            ratio = np.divide(apart, least, out=np.zeros_like(apart), where=apart > 0)
        unlike.append(float(ratio.max()))
        loss.append(whole(shares @ past[-1]))
        local.append(np.linalg.norm(g, axis=1))
        used.append(age)
        past = np.concatenate([past, (past[-1] - step * g)[None]])
    loss.append(whole(shares @ past[-1]))
    columns = {
        "step": step,
        "weights": shares,
        "ages": np.array(used),
        "loss": np.array(loss),
        "local": np.array(local),
        "unlike": np.array(unlike),
    }
    return Trajectory(**{**dict.fromkeys(Trajectory._fields, np.zeros(0)), **columns})


def drawn(rng, apart):
    """Return a random problem of nodes that are alike up to `apart`, and ages."""
    nodes, dim = int(rng.integers(2, 7)), int(rng.integers(1, 5))
    turn = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    common = turn @ np.diag(rng.uniform(0.05, 2.0, dim)) @ turn.T
    curvature = np.stack([common * (1 + apart * rng.uniform(-1, 1)) for _ in range(nodes)])
    centre = apart * rng.standard_normal((nodes, dim))
    shares = np.full(nodes, 1 / nodes) * (1 + apart * rng.uniform(-1, 1, nodes))
    oldest = int(rng.integers(0, 8))
    slots = 60 if apart == 0 else 12  # near the optimum nodes that differ pull apart
    ages = rng.integers(0, oldest + 1, (slots, nodes, nodes))
    start = 3.0 * rng.standard_normal(dim)
    return curvature, centre, shares / shares.sum(), ages, slots, start


@pytest.mark.parametrize("apart", [0.0, 0.01, 0.1])
def test_the_bound_is_never_crossed(apart):
    rng = np.random.default_rng(int(1000 * apart))
    spoke = 0
    for _ in range(150):
        curvature, centre, shares, ages, slots, start = drawn(rng, apart)
        l1 = float(np.linalg.eigvalsh(curvature).max())
        late = 0.5 + (1 - shares.min()) * ages.max()
        step = rng.uniform(0.05, 1.2) / (l1 * late)  # beyond the limit, too: the bound then rises
        path = told(curvature, centre, shares, ages, step, slots, start)

        found = theorem_h(path, l1)

        assert found["holds"], found
        spoke += not found["vacuous"]
    assert spoke > (50 if apart < 0.1 else 10)


def test_without_delay_and_nodes_alike_it_is_an_equality():
    """F falls by eta (1 - eta L / 2) ||grad F||^2 in every slot, along one direction."""
    curvature, centre = np.full((4, 1, 1), 2.0), np.zeros((4, 1))
    ages = np.zeros((10, 4, 4), int)
    path = told(curvature, centre, np.full(4, 0.25), ages, 0.3, 10, np.array([5.0]))

    found = theorem_h(path, 2.0)

    np.testing.assert_allclose(path.loss[1:], found["curve"], rtol=1e-12, atol=1e-12)
    assert found["u"] == pytest.approx(4 * (1 - 0.3))
    assert found["below"] == pytest.approx(1.0)  # 2 / L, the limit of descent


@pytest.mark.parametrize("age", [1, 3, 10])
def test_its_limit_is_below_the_exact_one_and_not_by_much(age):
    """No proof could allow more than the exact limit of nodes alike with constant ages."""
    nodes, slots = 8, 5
    ages = np.full((slots + age, nodes, nodes), age)
    alike = np.full((nodes, 1, 1), 1.0)
    path = told(alike, np.zeros((nodes, 1)), np.full(nodes, 1 / 8), ages, 0.01, slots + age, 1.0)

    below = theorem_h(path, 1.0)["below"]

    exact = limit_alike(age, 1 / nodes)
    assert 0.5 * exact < below < exact


def test_units_of_the_loss_do_not_matter():
    rng = np.random.default_rng(5)
    curvature, centre, shares, ages, slots, start = drawn(rng, 0.01)
    l1 = float(np.linalg.eigvalsh(curvature).max())
    step = 0.3 / (l1 * (1 + ages.max()))
    here = theorem_h(told(curvature, centre, shares, ages, step, slots, start), l1)
    there = theorem_h(
        told(1e3 * curvature, centre, shares, ages, step / 1e3, slots, start), 1e3 * l1
    )

    assert there["u"] == pytest.approx(here["u"])
    assert there["below"] == pytest.approx(here["below"] / 1e3)


def test_it_says_why_it_is_silent():
    curvature, ages = np.ones((2, 1, 1)), np.full((6, 2, 2), 2)
    unlike = told(curvature, np.array([[1.0], [-4.0]]), np.full(2, 0.5), ages, 0.1, 6, 3.0)
    hasty = told(curvature, np.zeros((2, 1)), np.full(2, 0.5), ages, 0.9, 6, 3.0)

    assert theorem_h(unlike, 1.0)["vacuous"]
    assert "nodes differ too much" in theorem_h(unlike, 1.0)["verdict"]
    assert theorem_h(hasty, 1.0)["vacuous"]
    assert "the step 0.9 is not below 0.667" in theorem_h(hasty, 1.0)["verdict"]
