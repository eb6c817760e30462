"""CHOCO-SGD: by its equations, its copies agree whatever is lost, and what it costs."""

from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkman import Recording, ideal, iid, simulate
from folkman.algorithm.choco import choco
from folkman.algorithm.pieces.topology import Graph, metropolis
from folkman.radio.loss import Lossy
from reference import peers, plain
from reference.slots import teller

NODES, STEP, ROUNDS, GAMMA = 5, 0.1, 25, 0.3
close = partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-12)


def gradients_of(problem):
    parts = zip(np.asarray(problem.x), np.asarray(problem.y), strict=True)
    each = [partial(plain.quadratic_gradient, x=x, y=y) for x, y in parts]
    return lambda models: np.stack([of(w)[1] for of, w in zip(each, models, strict=True)])


def ring():
    return np.asarray(metropolis(jnp.asarray(Graph("ring").adjacency(NODES))), np.float64)


@pytest.fixture
def uneven(quadratics):
    return quadratics(nodes=NODES, heterogeneity=1.0)


def test_it_follows_its_equations(uneven):
    """Every node keeps every copy apart in the re-telling."""
    x, copies = peers.gossip_compressed(
        gradients_of(uneven), uneven.initial, ring(), STEP, GAMMA,
        partial(peers.top_entries, kept=3), ROUNDS,
    )  # fmt: skip

    states, _ = teller(uneven, ideal(), choco(STEP, GAMMA, kept=0.3), ROUNDS)()

    close(states.memory.params[1:], x[1:])
    close(states.memory.public[1:], copies[:-1, 0])  # a round's end is heard in the next slot


@pytest.mark.parametrize(
    "options",
    [{"kept": 0.2}, {"compression": "sign"}, {"compression": "qsgd", "bits": 3}],
    ids=lambda options: options.get("compression", "top_k"),
)
def test_copies_agree_and_the_sum_moves_by_gradients_under_loss_and_delay(uneven, options):
    tell = teller(uneven, Lossy(iid(2), 0.3), choco(STEP, GAMMA, **options), 40)
    gradients = gradients_of(uneven)
    rounds = []

    @settings(max_examples=5, deadline=None, derandomize=True)
    @given(st.integers(0, 2**31))
    def check(seed):
        states, _ = tell(seed)
        memory, even = states.memory, states.rounds.min(axis=1) == states.rounds.max(axis=1)
        assert even.all()
        around = np.einsum("ij,tjd->tid", ring(), memory.public)
        close(memory.around, around)  # what i thinks of its neighbours is what they think
        taken = np.flatnonzero(np.diff(states.updates[:, 0]))
        for slot in taken:
            before, after = memory.params[slot], memory.params[slot + 1]
            moved = -STEP * gradients(before).sum(axis=0)
            close(after.sum(axis=0) - before.sum(axis=0), moved, atol=1e-10)
        rounds.append(states.rounds[-1, 0])

    check()
    assert min(rounds) > 1


def test_what_is_left_out_comes_later(uneven):
    """With a step that ends, the copies become the models, though a message has one entry of ten."""
    algorithm = choco(STEP, 0.1, kept=0.1, decay="cosine", decay_steps=100)
    states, _ = teller(uneven, ideal(), algorithm, 1500)()

    np.testing.assert_allclose(states.memory.public[-1], states.memory.params[-1], atol=1e-6)
    apart = np.ptp(states.memory.params, axis=1).max(axis=1)
    assert apart[-1] < 1e-5
    assert apart[100] > 1e-2


def test_without_compression_it_is_dpsgd_that_combines_first(uneven):
    """x^ is x of the round before: x+ = W x - step g(x), once the copies are there."""
    states, _ = teller(uneven, ideal(), choco(STEP, 1.0, compression="none"), ROUNDS)()
    x, gradients = states.memory.params, gradients_of(uneven)

    for t in range(1, ROUNDS):
        close(x[t + 1], ring() @ x[t] - STEP * gradients(x[t]))


@pytest.mark.parametrize(
    ("options", "bits"),
    [
        ({"kept": 0.25}, 25 * (32 + 7)),
        ({"compression": "rand_k", "kept": 0.25}, 32 + 25 * 32),
        ({"compression": "qsgd", "bits": 4}, 32 + 400),
        ({"compression": "sign"}, 32 + 100),
    ],
)
def test_a_message_costs_what_its_packing_does(options, bits):
    price = choco(**options).declares.price

    assert price is not None
    assert price.bits(100, 32) == (bits,)


def test_its_floor_shrinks_with_the_step_and_it_needs_a_tenth_of_the_bits(uneven):
    ends = {
        step: simulate(
            uneven, ideal(), choco(step, 0.2, kept=0.1), slots=4000, recording=Recording(4000)
        )
        for step in (0.05, 0.0125)
    }

    far = {step: run.last("optimum_distance") for step, run in ends.items()}
    assert far[0.0125] < 0.5 * far[0.05] < 0.2
    assert ends[0.05].last("bits") == NODES * 4000 * (32 + 4)


def test_options_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="compression must be one of"):
        choco(compression="zip")
    with pytest.raises(ValueError, match="gossip_step must be in"):
        choco(gossip_step=1.5)
    with pytest.raises(ValueError, match="neighbours that stay"):
        choco(topology="matching")
