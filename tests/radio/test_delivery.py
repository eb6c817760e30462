"""A network of one's own: what it must be, and what it need not say."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folkman import async_sharing, constant, dpsgd, fedavg, load, make_problem, simulate
from folkman.radio.delivery import Network, as_value, check_horizon, let_pass
from folkman.radio.replay import replay
from folkman.radio.trace import record_timeline


@pytest.fixture(scope="module")
def small():
    return make_problem(load("digits", train_size=40), "softmax", 3)


def test_one_that_is_no_pytree_runs_and_its_fields_are_fixed(small):
    @dataclass(frozen=True)
    class Own(Network):
        slots: int = 2
        name: str = "own"

        def peers(self):
            assert isinstance(self.slots, int)  # not traced
            return constant(self.slots).peers()

    ours = simulate(small, Own(5), async_sharing(0.2), slots=6)
    theirs = simulate(small, constant(5), async_sharing(0.2), slots=6)

    np.testing.assert_allclose(ours.nodes, theirs.nodes, rtol=1e-6)
    assert jax.tree.leaves(Own()) == []
    assert jax.tree.structure(Own(2)) == jax.tree.structure(Own(2)) != jax.tree.structure(Own(5))


def test_a_plain_class_is_compared_by_identity_and_asked_once(small):
    class Plain(Network):
        def star(self):
            return constant(1).star()

    network = Plain()
    for _ in range(2):
        let_pass(network)
    runs = [simulate(small, each, fedavg(0.2), slots=4).nodes for each in (network, Plain())]

    np.testing.assert_array_equal(*runs)
    assert jax.tree.structure(network) != jax.tree.structure(Plain())


def test_one_that_can_change_is_refused(small):
    @dataclass
    class Loose(Network):
        slots: int = 2

        def peers(self):
            return constant(self.slots).peers()

    with pytest.raises(ValueError, match="Loose cannot; make it a dataclass with frozen=True"):
        simulate(small, Loose(), async_sharing(), slots=2)
    assert jax.tree_util.all_leaves([Loose()])  # it was not let pass on the way


def test_one_that_says_what_is_traced_is_left_as_it_is():
    @as_value("slots")
    @dataclass(frozen=True)
    class Traced(Network):
        slots: float = 2.0
        kind: str = "short"

    let_pass(Traced())

    assert jax.tree.leaves(Traced(3.0)) == [3.0]
    assert jax.tree.structure(Traced(3.0)) == jax.tree.structure(Traced(4.0))
    assert jax.tree.structure(Traced()) != jax.tree.structure(Traced(kind="long"))
    doubled = jax.jit(lambda network: network.slots * 2 * (network.kind == "short"))
    assert doubled(Traced(3.0)) == 6
    assert doubled(Traced(3.0, "long")) == 0


def test_one_with_no_numbers_at_all_is_a_pytree_too():
    @as_value()
    @dataclass(frozen=True)
    class Fixed(Network):
        slots: int = 2

    let_pass(Fixed())

    assert jax.tree.leaves(Fixed()) == []


@pytest.mark.parametrize(
    ("algorithm", "lacks"),
    [
        (async_sharing(), "messages between peers on their own beat"),
        (dpsgd(), "rounds in lock-step"),
        (fedavg(), "uploads to a server"),
    ],
    ids=["peers", "rounds", "star"],
)
def test_what_a_network_does_not_carry_it_refuses_by_name(small, algorithm, lacks):
    class Mute(Network):
        name = "mute"

    with pytest.raises(ValueError, match=f"'mute' does not carry {lacks}"):
        simulate(small, Mute(), algorithm, slots=1)


def test_a_horizon_is_the_last_number_of_slots_that_is_allowed():
    recorded = replay(record_timeline(constant(1), 3, 5))

    check_horizon(recorded, 5)
    with pytest.raises(ValueError, match="recorded for 5 slots, the run asks for 6"):
        check_horizon(recorded, 6)
    check_horizon(constant(1), 10**9)


def test_what_all_networks_share_costs_what_it_says():
    plain = Network()

    assert plain.payload_bits(123) == 123
    assert plain.bits_per_parameter is None  # parameters as they are computed
    assert plain.reliable
    assert plain.horizon is None
    assert jnp.asarray(plain.payload_bits(jnp.asarray(7))) == 7
