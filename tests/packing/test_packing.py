"""The laws of packings: unbiased, contracting, priced by hand, and the same as bytes."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from folkman.packing import (
    PACKINGS,
    bfloat16,
    fixed,
    float16,
    float32,
    implied,
    int8,
    none,
    qsgd,
    rand_k,
    sign,
    top_k,
    wire,
)
from folkman.packing.memory import first_memory, send
from folkman.packing.packing import bits_of, message_bits, pack, pack_message, places, variance_of
from folkman.packing.sums import signed
from folkman.radio.compressed import Compressed
from folkman.radio.delay import snapshot
from folkman.radio.network import RadioNetwork

DIM = 12
ALL = [
    float32(),
    float16(),
    bfloat16(),
    float16(rounding="stochastic"),
    bfloat16(rounding="stochastic"),
    int8(),
    qsgd(4),
    qsgd(3, "two"),
    fixed(9, largest=50.0),
    sign(),
    top_k(0.3),
    rand_k(0.3),
    qsgd(4, feedback=True),
    rand_k(0.3, feedback=True),
]
NUMBERS = st.floats(-1e3, 1e3, width=32).map(lambda x: 0.0 if abs(x) < 1e-3 else x)
VECTORS = arrays(np.float32, DIM, elements=NUMBERS)
PACK = jax.jit(pack, static_argnums=0)
SOME = np.random.default_rng(4).normal(size=DIM).astype(np.float32)


def key(number=0):
    return jax.random.key(number)


def many(packing, x, draws):
    """Return the packed vector under many keys, (draw, d)."""
    keys = jax.random.split(key(1), draws)
    return np.asarray(jax.vmap(partial(pack, packing, jnp.asarray(x)))(keys), np.float64)


@pytest.mark.parametrize(
    ("packing", "bits"),
    [
        (none(), 32 * 650),
        (none(16), 16 * 650),
        (float32(), 32 * 650),
        (float16(), 16 * 650),
        (bfloat16(), 16 * 650),
        (int8(), 8 * 650 + 32),
        (qsgd(4), 4 * 650 + 32),
        (fixed(12), 12 * 650 + 32),
        (sign(), 650 + 32),
        (top_k(0.01), 7 * (32 + 10)),  # 6.5 entries are 7; 2^9 < 650 <= 2^10
        (rand_k(0.01), 7 * 32 + 32),
        (top_k(1e-9), 42),
        (top_k(1.0), 650 * 42),
    ],
)
def test_bits_are_those_counted_by_hand(packing, bits):
    assert bits_of(packing, 650) == bits
    tail = 3 * (packing.bits or 32) if packing.exact else 3 * 32
    assert message_bits(packing, 2 * 650 + 3, 650) == 2 * bits + tail


def test_numbers_as_computed_are_priced_at_their_width():
    assert message_bits(none(), 10, 10, 64) == 640
    assert message_bits(float16(), 11, 10, 64) == 160 + 64  # what is left over is exact


@settings(max_examples=40, deadline=None)
@given(
    VECTORS,
    st.sampled_from(
        [
            float16(),
            bfloat16(),
            float32(),
            float16(rounding="stochastic"),
            bfloat16(rounding="stochastic"),
        ]
    ),
)
def test_rounding_twice_is_rounding_once(x, packing):
    once = PACK(packing, x, key())
    np.testing.assert_array_equal(PACK(packing, once, key()), once)


@pytest.mark.parametrize("packing", [float16(), bfloat16(), float32()])
def test_what_a_width_cannot_hold_is_its_largest_number(packing):
    most = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float32": 3.4028235e38}
    big = jnp.asarray([3.4e38, -3.4e38, 1.0], jnp.float32)
    expected = min(most[packing.name], 3.4e38)
    seen = np.asarray(PACK(packing, big, key()))
    assert np.isfinite(seen).all()
    np.testing.assert_allclose(seen, [expected, -expected, 1.0], rtol=1e-2)


@pytest.mark.parametrize("packing", ALL, ids=str)
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_vector_that_is_not_finite_is_seen_to_be_so(packing, wrong):
    x = jnp.asarray(SOME).at[3].set(wrong)
    assert not np.isfinite(np.asarray(PACK(packing, x, key()))).all()


@pytest.mark.parametrize("packing", ALL, ids=str)
def test_nothing_packs_to_nothing(packing):
    np.testing.assert_array_equal(PACK(packing, jnp.zeros(DIM), key()), np.zeros(DIM))


def test_qsgd_is_unbiased_exactly():
    """Each entry goes up with its remainder's probability: the mean over both outcomes is x."""
    packing = qsgd(3, "two")
    scale = np.float32(np.linalg.norm(SOME)) / 3
    seen = many(packing, SOME, 400)
    steps = np.abs(SOME) / scale
    low = np.floor(steps)
    for i in range(DIM):
        outcomes = np.unique(np.round(np.abs(seen[:, i]) / scale, 3))
        assert set(outcomes) <= {low[i], low[i] + 1}
        mean = (1 - (steps[i] - low[i])) * low[i] + (steps[i] - low[i]) * (low[i] + 1)
        assert np.sign(SOME[i]) * scale * mean == pytest.approx(SOME[i], rel=1e-5)


AT_RANDOM = [float16(rounding="stochastic"), bfloat16(rounding="stochastic")]


@pytest.mark.parametrize("packing", AT_RANDOM, ids=str)
def test_rounding_at_random_takes_one_of_the_two_numbers_around_by_its_distance(packing):
    """By NumPy's neighbours of a float16, and the bits of a float32; below 2^-14 too."""
    scales = np.float32(10.0) ** np.arange(-8, 4)
    x = np.concatenate([SOME * scale for scale in scales]).astype(np.float32)
    x = np.concatenate(
        [x, np.array([0.0, 65504.0, -65504.0, 1.5, 2.0**-24, -(2.0**-14)], np.float32)]
    )
    if packing.name == "float16":
        near = x.astype(np.float16)
        step = np.where(near.astype(np.float32) <= x, np.float16(np.inf), -np.float16(np.inf))
        with np.errstate(over="ignore"):  # of the largest, which is exact
            other = np.where(near == x, near, np.nextafter(near, step.astype(np.float16)))
        ends = np.stack([near, other]).astype(np.float64)
    else:
        towards_0 = x.view(np.uint32) & np.uint32(0xFFFF0000)
        exact = towards_0 == x.view(np.uint32)
        away = np.where(exact, towards_0, towards_0 + np.uint32(0x10000))
        ends = np.stack([towards_0, away.astype(np.uint32)]).view(np.float32).astype(np.float64)
    low, high = ends.min(axis=0), ends.max(axis=0)

    draws = 4000
    seen = many(packing, x, draws)

    assert ((seen == low) | (seen == high)).all()
    share = np.divide(x - low, high - low, out=np.zeros_like(low), where=high > low)
    deviation = np.sqrt(share * (1 - share) / draws)
    ups = np.where(high > low, (seen == high).mean(axis=0), 0.0)
    assert (np.abs(ups - share) <= 5 * deviation + 1e-12).all()


@pytest.mark.parametrize("packing", [qsgd(3), qsgd(2, "two"), rand_k(0.3), *AT_RANDOM], ids=str)
def test_draws_are_unbiased(packing):
    draws = 4000
    seen = many(packing, SOME, draws)
    deviation = seen.std(axis=0) / np.sqrt(draws)
    z = (seen.mean(axis=0) - SOME) / np.maximum(deviation, 1e-6)
    assert np.abs(z).max() < 4.0  # a false alarm in a thousand such tests


def test_every_set_of_places_is_as_likely_and_drawn_by_the_seed_alone():
    seeds = jnp.arange(6000, dtype=jnp.uint32)
    found = np.asarray(jax.vmap(lambda seed: places(seed, 4, 2))(seeds))
    _, counts = np.unique(found, axis=0, return_counts=True)
    assert len(counts) == 6  # of 4 places 2
    assert np.abs(counts - 1000).max() < 4 * np.sqrt(1000 * 5 / 6)


CONTRACTIONS = [
    (top_k(0.25), 3 / DIM),
    (rand_k(0.25, feedback=True), 3 / DIM),
    (qsgd(3, feedback=True), 1 / (1 + variance_of(qsgd(3), DIM))),
    (qsgd(3, "two", feedback=True), 1 / (1 + variance_of(qsgd(3, "two"), DIM))),
    (int8(), 1 / DIM),
    (sign(), 1 / DIM),
]


@settings(max_examples=25, deadline=None)
@given(VECTORS, st.sampled_from(CONTRACTIONS))
def test_a_packing_with_memory_is_a_contraction(x, case):
    packing, delta = case
    draws = 600 if packing.name in ("qsgd", "rand_k") else 1
    errors = ((many(packing, x, draws) - x) ** 2).sum(axis=1)
    size = float((x.astype(np.float64) ** 2).sum())
    slack = 4 * errors.std() / np.sqrt(draws)
    assert errors.mean() <= (1 - delta) * size * (1 + 1e-4) + slack + 1e-12


@settings(max_examples=30, deadline=None)
@given(VECTORS)
def test_the_sign_leaves_what_its_closed_form_says(x):
    x64 = x.astype(np.float64)
    error = ((np.asarray(PACK(sign(), x, key()), np.float64) - x64) ** 2).sum()
    expected = (x64**2).sum() - np.abs(x64).sum() ** 2 / DIM
    assert error == pytest.approx(expected, rel=1e-4, abs=1e-4 * max((x64**2).sum(), 1e-9))


@settings(max_examples=30, deadline=None)
@given(VECTORS)
def test_eight_bits_are_off_by_half_a_level(x):
    error = np.abs(np.asarray(PACK(int8(), x, key())) - x)
    assert error.max() <= np.abs(x).max() / 127 / 2 * (1 + 1e-4)


def test_top_k_keeps_the_largest_and_they_travel_exactly():
    seen = np.asarray(PACK(top_k(0.25), SOME, key()))
    kept = np.argsort(-np.abs(SOME))[:3]
    expected = np.zeros(DIM, np.float32)
    expected[kept] = SOME[kept]
    np.testing.assert_array_equal(seen, expected)


@pytest.mark.parametrize("packing", [top_k(0.25), sign(), int8(), qsgd(3)], ids=str)
def test_what_was_sent_and_what_is_remembered_is_all_there_was(packing):
    packing = packing._replace(feedback=True)
    rng = np.random.default_rng(1)
    memory = first_memory(jnp.zeros(DIM), DIM, adds=True)
    sent, wanted = np.zeros(DIM), np.zeros(DIM)
    for step in range(30):
        message = rng.normal(size=DIM).astype(np.float32)
        memory, seen = send(packing, memory, jnp.asarray(message), key(step), adds=True)
        sent += np.asarray(seen, np.float64)
        wanted += message
    np.testing.assert_allclose(sent + np.asarray(memory), wanted, atol=1e-4)


def test_a_model_that_stands_still_is_known_in_the_end():
    """Of d entries k arrive with each message: after d / k messages all of them."""
    packing = top_k(0.25, feedback=True)
    memory, seen = first_memory(jnp.zeros(DIM), DIM, adds=False), jnp.zeros(DIM)
    for _ in range(4):
        memory, seen = send(packing, memory, jnp.asarray(SOME), key(), adds=False)
    np.testing.assert_allclose(seen, SOME, rtol=1e-6)
    np.testing.assert_array_equal(memory, seen)


def test_a_message_that_is_not_finite_leaves_the_memory():
    packing = top_k(0.25, feedback=True)
    broken = jnp.asarray(SOME).at[0].set(jnp.nan)
    memory, seen = send(packing, jnp.asarray(SOME), broken, key(), adds=True)
    np.testing.assert_array_equal(memory, SOME)
    assert not np.isfinite(np.asarray(seen)).all()


@settings(max_examples=30, deadline=None)
@given(arrays(np.float32, 2 * DIM + 2, elements=NUMBERS), st.sampled_from(ALL))
def test_bytes_hold_what_the_simulator_sees(x, packing):
    seen = jax.jit(pack_message, static_argnums=(0, 2))(packing, jnp.asarray(x), DIM, key(5))
    data = wire.write(packing, x, DIM, key(5))
    layout = wire.layout_of(wire.CODES[packing.name], data, len(x))
    found = wire.read(layout, data)
    np.testing.assert_array_equal(found, np.asarray(seen))
    np.testing.assert_array_equal(found[-2:], x[-2:])  # what is left over is exact
    bits = 2 * bits_of(packing, DIM) + 2 * 32
    assert len(data) == layout.total_bytes
    assert 0 <= 8 * (len(data) - wire.HEAD_BYTES) - bits < 2 * 8  # whole bytes a block


def test_hostile_heads_and_places_are_refused():
    data = wire.write(top_k(0.3), SOME, DIM, key())
    code = wire.CODES["top_k"]
    for wrong in (b"", data[:11], b"\0\0\0\0" + data[4:], b"\xff\xff\xff\xff" + data[4:]):
        with pytest.raises(ValueError, match="expected"):
            wire.layout_of(code, wrong, DIM)
    layout = wire.layout_of(code, data, DIM)
    with pytest.raises(ValueError, match="4 ascending places below 12"):
        wire.read(layout, data[:-2] + b"\xff\xff")
    with pytest.raises(ValueError, match="expected blocks"):
        wire.layout_of(wire.CODES["int8"], data, DIM)  # which has no number of its own


@pytest.mark.parametrize(
    ("bits", "packing"),
    [
        (None, none()),
        (1, sign()),
        (2, qsgd(2)),
        (8, int8()),
        (12, qsgd(12)),
        (16, float16(rounding="stochastic")),
        (32, float32()),
        (64, none(64)),
    ],
)
def test_the_bits_of_a_network_say_how_its_messages_are_packed(bits, packing):
    assert implied(bits) == snapshot(5, bits).packing == packing
    assert bits is None or bits_of(packing, 1000) in (bits * 1000, bits * 1000 + 32)


def test_bits_that_no_packing_has_are_a_price_only_if_one_says_so():
    with pytest.raises(ValueError, match=r"no packing has 9680 bits.*price only"):
        implied(9680)
    assert Compressed(snapshot(5, 9680), none()).packing == none(9680)


def test_the_share_that_the_radio_keeps_is_of_the_largest_entries():
    assert RadioNetwork().packing == float16(rounding="stochastic")
    assert RadioNetwork(kept_fraction=0.01).packing == top_k(0.01)
    with pytest.raises(ValueError, match="leave kept_fraction out"):
        Compressed(RadioNetwork(kept_fraction=0.01), sign())


@pytest.mark.parametrize(
    ("build", "options", "message"),
    [
        ("qsgd", {"bits": 1}, "2 to 16 bits, got 1; for 1 use sign"),
        ("qsgd", {"bits": 17}, "got 17"),
        ("qsgd", {"norm": "one"}, "'max' or 'two'"),
        ("top_k", {"fraction": 0.0}, "in"),
        ("rand_k", {"fraction": 1.5}, "got 1.5"),
        ("none", {"bits": 0}, "at least 1"),
        ("float16", {"rounding": "up"}, "'nearest' or 'stochastic', got 'up'"),
    ],
)
def test_numbers_out_of_range_are_refused(build, options, message):
    with pytest.raises(ValueError, match=message):
        PACKINGS[build](**options)


@settings(max_examples=30, deadline=None)
@given(VECTORS, st.sampled_from([2, 9, 16]))
def test_fixed_is_the_nearest_point_of_one_grid_for_all(x, bits):
    packing = fixed(bits, largest=50.0)
    step = 50.0 / 2 ** (bits - 1)
    most = 50.0 - step
    seen = np.asarray(PACK(packing, x, key()), np.float64)

    np.testing.assert_allclose(seen / step, np.round(seen / step), atol=1e-6)
    assert (np.abs(seen - np.clip(x, -most, most)) <= step / 2 * (1 + 1e-6)).all()


@pytest.mark.parametrize("bits", [5, 19])
def test_numbers_are_read_from_their_lowest_bits(bits):
    numbers = np.arange(-(2**bits), 2**bits, 7)
    whole = 2**bits
    expected = [n % whole - whole * (n % whole >= whole // 2) for n in numbers.tolist()]
    np.testing.assert_array_equal(signed(numbers, bits), expected)
