"""What a message costs is asked for at every row, and looked up once."""

from dataclasses import dataclass, replace

import jax.numpy as jnp
import pytest

from folkman import (
    async_sharing,
    cga,
    compcga,
    dfedavgm,
    fedavg,
    ideal,
    load,
    make_problem,
    simulate,
)
from folkman.algorithm.hierfavg import hierfavg
from folkman.engine import metrics
from folkman.engine.metrics import Counts, Totals, traffic_bits
from folkman.engine.simulate import Simulation
from folkman.engine.travel import medium, medium_of
from folkman.radio.delivery import Network


@pytest.fixture
def known(monkeypatch):
    """Start with no known prices."""
    prices = {}
    monkeypatch.setattr(metrics, "_KNOWN_PRICES", prices)
    return prices


def problem(nodes=4, **options):
    return make_problem(load("digits", train_size=40), "softmax", nodes, **options)


@pytest.fixture(scope="module")
def small():
    return problem()


def test_one_price_is_known_for_all_that_is_alike(known, small):
    first = metrics._on_air(Simulation(small, ideal(), async_sharing(0.1)))

    assert metrics._on_air(Simulation(small, ideal(), async_sharing(0.1))) is first
    assert len(known) == 1
    assert first == [[32.0 * small.dim], [32.0 * small.dim], [0.0]]  # no server


def test_a_message_is_as_long_as_its_method_and_problem_make_it(monkeypatch, small):
    """Looked at once for all numbers of a method; a method made by hand is looked at each time."""
    traced, looked = [], medium._entries
    monkeypatch.setattr(medium, "_ENTRIES", {})
    monkeypatch.setattr(medium, "_entries", lambda *given: traced.append(1) or looked(*given))
    large = make_problem(load("digits", train_size=40), "mlp", 4)
    base = async_sharing(0.1)
    twice = replace(base, message=lambda state: jnp.tile(base.message(state), 2))

    for given in (small, large):
        for algorithm in (base, async_sharing(0.2), async_sharing(0.1, own="aligned")):
            assert medium_of(algorithm, ideal()).entries(given) == given.dim
        assert len(traced) == 2
        assert medium_of(twice, ideal()).entries(given) == 2 * given.dim
        traced.clear()


def test_another_size_network_method_or_precision_has_its_own_price(known, small, x64):
    law = ideal()
    given = [
        Simulation(small, law, async_sharing(0.1)),
        Simulation(small, replace(law, bits_per_parameter=16), async_sharing(0.1)),
        Simulation(small, law, dfedavgm(exchange="differences", bits=8)),
        Simulation(make_problem(load("digits", train_size=40), "mlp", 4), law, async_sharing(0.1)),
        Simulation(problem(5), law, async_sharing(0.1)),
        Simulation(problem(dtype="float64"), law, async_sharing(0.1)),
    ]

    up = [metrics._on_air(one)[0][0] for one in given]

    d, wide = small.dim, given[3].problem.dim
    assert up == [32 * d, 16 * d, 8 * d + 32, 32 * wide, 32 * d, 64 * d]
    assert len(known) == len(given)


def test_only_the_last_few_prices_are_known(known, small):
    for number in range(metrics.MOST_KNOWN + 5):
        metrics._on_air(Simulation(small, ideal(), async_sharing(1.0 + number)))
        assert len(known) == min(number + 1, metrics.MOST_KNOWN)

    steps = [algorithm.recipe.numbers[0] for algorithm, *_ in known]
    assert steps == [1.0 + number for number in range(5, metrics.MOST_KNOWN + 5)]


def test_bits_are_counts_times_prices_of_each_form_and_side(known, small):
    """A method in cells has one price up, and three of its servers."""
    d = 32 * small.dim
    totals = Totals((0,) * 4, (0,) * 4, Counts((3,), (5,), (1, 2, 4), (10, 20, 40)))

    found = traffic_bits(Simulation(small, ideal(), hierfavg()), totals)

    assert found == (3 * d + 7 * d, 5 * d + 70 * d)


def test_a_copy_may_cost_less_than_the_broadcast_that_it_is_of(known, small):
    """CGA sends each neighbour one gradient of its own: sent to each, that is all it needs."""
    up, copies, _ = metrics._on_air(Simulation(small, ideal(), cga()))

    assert copies == [32.0 * small.dim] * len(up)
    assert max(up) > max(copies)
    compressed, *_ = metrics._on_air(Simulation(small, ideal(), compcga()))
    assert max(compressed) < max(up)


def test_a_network_may_add_to_every_message(known, small):
    @dataclass(frozen=True)
    class WithHeaders(Network):
        header: int = 100

        def payload_bits(self, message_bits):
            return message_bits + self.header

        def star(self):
            return ideal().star()

    plain = simulate(small, ideal(), fedavg(0.1), slots=3)
    headed = simulate(small, WithHeaders(), fedavg(0.1), slots=3)

    messages = plain.last("bits") / (32 * small.dim)
    assert headed.last("bits") - plain.last("bits") == 100 * messages
    assert jnp.isfinite(headed.last("train_loss"))
