"""Proposition 1 is the optimum of P3: by a linear program, by its KKT conditions, and against any rival."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.sparse import block_diag, csr_array

from folkman.radio import bandwidth

TOTAL_HZ = 10e6
MAX_NODES = 8
DURATION_CONSTANT = 6_891_168 / TOTAL_HZ  # S / (T B), T = 1 s

optimal = jax.jit(jax.vmap(lambda se, on: bandwidth.optimal(se, on, TOTAL_HZ)))
certify = jax.jit(jax.vmap(lambda hz, se, on: bandwidth.certify(hz, se, on, TOTAL_HZ)))


def random_cases(num_cases, seed):
    """Return se_min and schedules, (case, node): a quarter each of plain, wild, equal rates, and one node."""
    rng = np.random.default_rng(seed)
    se = rng.uniform(0.04, 8.0, (num_cases, MAX_NODES))
    kind = np.arange(num_cases) % 4
    se[kind == 1] = 10.0 ** rng.uniform(
        -6.0, 3.0, (np.sum(kind == 1), MAX_NODES)
    )  # nine orders of magnitude
    se[kind == 2] = se[kind == 2][:, :1]
    on = rng.random((num_cases, MAX_NODES)) < rng.uniform(0.2, 1.0, (num_cases, 1))
    on[kind == 3] = np.arange(MAX_NODES) == rng.integers(MAX_NODES, size=(np.sum(kind == 3), 1))
    on[kind == 1, :2] = True
    return np.where(on, se, np.inf).astype(np.float32), on


def linear_program_rate(se_of_case):
    """Return max t s.t. x_i R_i >= t, sum x <= 1 of each case, R_i in units of the smallest.

    Cases do not touch each other: one block-diagonal program maximising the sum of the t solves them all.
    """
    blocks, bounds_rhs, cost = [], [], []
    for se in se_of_case:
        rows = np.zeros((len(se) + 1, len(se) + 1))
        rows[:-1, :-1] = -np.diag(se / se.min())
        rows[:-1, -1] = 1.0
        rows[-1, :-1] = 1.0
        blocks.append(csr_array(rows))
        bounds_rhs += [0.0] * len(se) + [1.0]
        cost += [0.0] * len(se) + [-1.0]
    solved = linprog(cost, A_ub=block_diag(blocks, format="csr"), b_ub=bounds_rhs, method="highs")
    assert solved.status == 0
    ends = np.cumsum([len(se) + 1 for se in se_of_case])
    return solved.x[ends - 1]


def test_proposition_1_attains_the_linear_programs_optimum():
    se, on = random_cases(2400, seed=0)
    hz = np.asarray(optimal(se, on), np.float64)
    occupied = on.any(axis=1)
    assert (~occupied).any()  # the empty schedule is among the cases
    np.testing.assert_array_equal(hz[~occupied], 0.0)

    cases = np.flatnonzero(occupied)
    assert cases.size >= 2000
    assert (se[cases].min(axis=1) < 1e-6 * np.where(on, se, 0)[cases].max(axis=1)).any()
    ours = (
        np.array([np.min(hz[k, on[k]] * se[k, on[k]].astype(float)) / se[k].min() for k in cases])
        / TOTAL_HZ
    )
    theirs = np.concatenate(
        [
            linear_program_rate([se[k, on[k]].astype(float) for k in part])
            for part in np.array_split(cases, 20)
        ]
    )
    np.testing.assert_allclose(ours, theirs, rtol=2e-6)


def test_every_optimal_allocation_carries_its_kkt_certificate():
    se, on = random_cases(4000, seed=1)
    found = certify(optimal(se, on), se, on)
    for name, residual in zip(found._fields[:8], found[:8], strict=True):
        assert float(jnp.max(residual)) < 2e-6, name
    # The multipliers are prices: mu sums to one and lambda B is the common rate.
    occupied = on.any(axis=1)
    np.testing.assert_allclose(found.rate_price.sum(axis=1)[occupied], 1.0, rtol=1e-5)
    expected = 1.0 / np.sum(1.0 / se[occupied].astype(float), axis=1)
    np.testing.assert_allclose(found.bandwidth_price[occupied], expected, rtol=1e-5)
    np.testing.assert_array_equal(found.bandwidth_price[~occupied], 0.0)


def test_certificate_names_what_is_wrong():
    se, on = jnp.array([1.0, 2.0, 4.0]), jnp.array([True, True, False])
    best = bandwidth.optimal(se, on, TOTAL_HZ)
    lop = jnp.array([0.5, 0.5, 0.0]) * TOTAL_HZ

    assert bandwidth.certify(best, se, on, TOTAL_HZ).worst() < 1e-6
    assert bandwidth.certify(best * 1.1, se, on, TOTAL_HZ).over_budget == pytest.approx(
        0.1, rel=1e-5
    )
    assert bandwidth.certify(best * 0.9, se, on, TOTAL_HZ).budget_slackness == pytest.approx(
        0.1, rel=1e-5
    )
    assert bandwidth.certify(best * 0.9, se, on, TOTAL_HZ).duality_gap == pytest.approx(
        0.1, rel=1e-5
    )
    assert bandwidth.certify(best.at[2].set(1e6), se, on, TOTAL_HZ).unscheduled == pytest.approx(
        0.1
    )
    assert bandwidth.certify(best.at[1].set(-1e6), se, on, TOTAL_HZ).negative == pytest.approx(0.1)
    # t* = 2/3 of B; equal shares give rates 0.5 and 1: gap 1/4, spread 3/4, slackness mu_2 (1/2) / t* = 1/4.
    spread = bandwidth.certify(lop, se, on, TOTAL_HZ)
    assert spread.duality_gap == pytest.approx(0.25)
    assert spread.rate_spread == pytest.approx(0.75)
    assert spread.rate_slackness == pytest.approx(0.25)
    np.testing.assert_allclose(spread.rate_price, [2 / 3, 1 / 3, 0.0], rtol=1e-6)


def test_durations_obey_the_identities_of_section_2_7():
    se, on = random_cases(4000, seed=2)
    busy = on.any(axis=1)
    se, on = se[busy].astype(np.float64), on[busy]
    with jax.enable_x64(True):
        best_hz = np.asarray(
            jax.vmap(lambda r, m: bandwidth.optimal(r, m, TOTAL_HZ))(jnp.asarray(se), on)
        )
        even_hz = np.asarray(
            jax.vmap(lambda r, m: bandwidth.uniform(r, m, TOTAL_HZ))(jnp.asarray(se), on)
        )
    assert best_hz.dtype == np.float64
    rate = np.where(on, se, 1.0)

    def longest(hz):
        return np.max(np.where(on, 6_891_168 / (np.where(on, hz, 1.0) * rate), 0.0), axis=1)

    inverse = np.where(on, 1.0 / rate, 0.0)
    np.testing.assert_allclose(
        longest(best_hz), DURATION_CONSTANT * inverse.sum(axis=1), rtol=1e-12
    )
    np.testing.assert_allclose(
        longest(even_hz), DURATION_CONSTANT * on.sum(axis=1) * inverse.max(axis=1), rtol=1e-12
    )
    # Uniform is never faster, and as fast only when all rates are equal.
    all_equal = np.isclose(np.max(np.where(on, se, -np.inf), axis=1), se.min(axis=1), rtol=1e-12)
    ratio = longest(even_hz) / longest(best_hz)
    assert all_equal.any()
    assert (~all_equal).any()
    np.testing.assert_allclose(ratio[all_equal], 1.0, rtol=1e-12)
    assert (ratio[~all_equal] > 1.0 + 1e-12).all()
    # Everyone ends at the same instant.
    end = np.where(on, 6_891_168 / (np.where(on, best_hz, 1.0) * rate), np.nan)
    np.testing.assert_allclose(np.nanmax(end, axis=1), np.nanmin(end, axis=1), rtol=1e-12)


rates = st.lists(
    st.tuples(st.floats(1e-6, 1e3), st.floats(0.0, 1.0), st.booleans()),
    min_size=1,
    max_size=MAX_NODES,
)


@settings(max_examples=150, deadline=None, database=None)
@given(rates)
def test_no_feasible_allocation_beats_the_optimum(nodes):
    padded = nodes + [(1.0, 0.0, False)] * (MAX_NODES - len(nodes))
    se = np.array([r for r, _, _ in padded], np.float32)
    on = np.array([m for _, _, m in padded])
    share = np.array([s for _, s, _ in padded]) * on
    rival_hz = TOTAL_HZ * share / max(share.sum(), 1e-30)  # feasible whatever was drawn
    if on.any():
        best_hz = np.asarray(optimal(se[None], on[None])[0], np.float64)
        rival_rate, best_rate = (
            np.min(hz[on] * se[on].astype(float)) for hz in (rival_hz, best_hz)
        )
        assert rival_rate <= best_rate * (1 + 1e-5)


def test_random_shares_are_dirichlet_over_the_scheduled():
    on = jnp.array([True, False, True, True, True])
    keys = jax.random.split(jax.random.key(0), 8000)
    shares = (
        np.asarray(
            jax.vmap(lambda k: bandwidth.random_shares(jnp.ones(5), on, TOTAL_HZ, k))(keys),
            np.float64,
        )
        / TOTAL_HZ
    )

    np.testing.assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-5)
    assert (shares[:, 1] == 0).all()
    # Dirichlet(1) in 4 parts: mean 1/4, variance (1/4)(3/4)/5.
    assert shares[:, 0].mean() == pytest.approx(0.25, abs=4 * np.sqrt(0.0375 / 8000))
    assert shares[:, 0].var() == pytest.approx(0.0375, rel=0.1)


@pytest.mark.parametrize("name", sorted(bandwidth.ALLOCATIONS))
def test_every_allocation_fills_the_band_for_the_scheduled_only(name):
    allocate = bandwidth.ALLOCATIONS[name]
    se, on = random_cases(400, seed=3)
    keys = jax.random.split(jax.random.key(1), 400)
    hz = np.asarray(jax.jit(jax.vmap(lambda r, m, k: allocate(r, m, TOTAL_HZ, k)))(se, on, keys))

    assert np.isfinite(hz).all()
    assert (hz >= 0).all()
    np.testing.assert_array_equal(hz[~on], 0.0)
    np.testing.assert_allclose(hz.sum(axis=1), np.where(on.any(axis=1), TOTAL_HZ, 0.0), rtol=1e-5)
    alone = on.sum(axis=1) == 1
    assert alone.any()
    np.testing.assert_allclose(hz.max(axis=1)[alone], TOTAL_HZ, rtol=1e-6)


def test_vanishing_and_zero_rates_take_the_band_without_overflow():
    on = jnp.ones(2, bool)
    tiny = bandwidth.optimal(jnp.array([1e-37, 1.0]), on, TOTAL_HZ)
    np.testing.assert_allclose(tiny, [TOTAL_HZ, 0.0], atol=1e-20)
    zero = bandwidth.optimal(jnp.array([0.0, 1.0]), on, TOTAL_HZ)
    np.testing.assert_allclose(zero, [TOTAL_HZ, 0.0])


def test_precision_is_kept():
    with jax.enable_x64(True):
        for dtype in (jnp.float32, jnp.float64):
            se, on = jax.ShapeDtypeStruct((2,), dtype), jax.ShapeDtypeStruct((2,), bool)
            for allocate in bandwidth.ALLOCATIONS.values():
                shaped = jax.eval_shape(
                    lambda r, m, f=allocate: f(r, m, TOTAL_HZ, jax.random.key(0)), se, on
                )
                assert shaped.dtype == dtype
            found = jax.eval_shape(lambda r, m: bandwidth.certify(r, r, m, TOTAL_HZ), se, on)
            assert {field.dtype for field in found} == {jnp.dtype(dtype)}


@pytest.mark.parametrize("name", sorted(bandwidth.ALLOCATIONS))
def test_no_bandwidth_is_refused_with_a_remedy(name):
    with pytest.raises(
        ValueError, match=r"expected total_hz positive.*, got total_hz = 0.0; give the band"
    ):
        bandwidth.ALLOCATIONS[name](jnp.ones(2), jnp.ones(2, bool), 0.0, jax.random.key(0))
