"""DRACO and DFL-AA: updates and chunks of models on own beats, over links that lose some."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkman import ideal, pipelined
from folkman.algorithm.dfl_aa import dfl_aa
from folkman.algorithm.divshare import fragment_of
from folkman.algorithm.draco import draco
from folkman.algorithm.pieces.topology import Graph
from folkman.packing import none
from folkman.radio.loss import Lossy
from reference import any_order, peers, plain
from reference.slots import teller

NODES, STEP, SLOTS = 5, 0.1, 40
LOSSY = Lossy(pipelined(2), 0.3)
close = partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-12)


@pytest.fixture
def uneven(quadratics):
    return quadratics(nodes=NODES, heterogeneity=1.0)


def gradients_of(problem):
    parts = zip(np.asarray(problem.x), np.asarray(problem.y), strict=True)
    each = [partial(plain.quadratic_gradient, x=x, y=y) for x, y in parts]
    return lambda models: np.stack([of(w)[1] for of, w in zip(each, models, strict=True)])


def test_draco_follows_its_rules_along_a_timeline(uneven):
    algorithm = draco(STEP, send_chance=0.7, most_received=3, window=4)
    states, held = teller(uneven, LOSSY, algorithm, SLOTS)()
    forms = np.diff(states.number, axis=0) > 0

    x = peers.share_updates(
        gradients_of(uneven), uneven.initial, forms, held, STEP, most=3, window=4
    )

    close(states.params, x)
    assert 0.5 < forms.mean() < 0.9
    assert states.used.max() == 3  # the bound was met, and never passed


def test_where_nothing_is_lost_all_models_are_the_sum_of_all_updates(uneven):
    """A node has its own last update at once, and those of the others a slot later."""
    states, _ = teller(uneven, ideal(), draco(STEP, send_chance=1.0), 20)()
    moves = states.outgoing  # (slot + 1, node, d); every gradient goes out by itself

    for t in range(2, 21):
        known = moves[:t].sum(axis=(0, 1))[None] + moves[t]
        close(states.params[t], np.asarray(uneven.initial) + known / NODES)


def chunk_draws(states):
    """Return (chunk, number of the model, does it begin here?) of each node's message by stamp."""
    draws = []
    before = np.zeros_like(states.model[0])
    for order, sent, model in zip(states.order, states.sent, states.model, strict=True):
        chunks = [o[max(s - 1, 0)] for o, s in zip(order, sent, strict=True)]
        draws.append(list(zip(chunks, model, model > before, strict=True)))
        before = model
    return draws


def test_dfl_aa_follows_its_rules_along_a_timeline(uneven):
    algorithm = dfl_aa(STEP, chunks=3, tau=6.0, beta=0.2, least_share=0.25)
    states, held = teller(uneven, LOSSY, algorithm, SLOTS)()
    part = fragment_of(uneven.dim, 3, 0)
    weights = np.asarray(Graph("ring").mixing().weights(jnp.ones((NODES, NODES), bool)))
    hears = (weights > 0) & ~np.eye(NODES, dtype=bool)

    x, p = peers.share_chunks(
        gradients_of(uneven), uneven.initial, part, chunk_draws(states), held, hears, STEP,
        tau=6.0, beta=0.2, least=0.25,
    )  # fmt: skip

    close(states.params, x)
    close(states.share[-1], p)
    assert states.age.max() > 4
    assert (states.share[-1][hears] < 0.9).any()


def test_the_chance_of_a_chunk_is_learnt_from_what_is_there(uneven):
    """A running mean of the part that is there: with losses it is lower."""
    shares = []
    for network in (pipelined(1), Lossy(pipelined(1), 0.5)):
        states, _ = teller(uneven, network, dfl_aa(STEP, chunks=4, beta=0.02), 400)()
        near = states.newest[-1] > 0
        there = states.there[100:].mean(axis=(0, 3))
        assert np.abs(states.share[-1] - there)[near].max() < 0.12
        shares.append(states.share[-1][near].mean())

    assert shares[1] < shares[0] - 0.1


def test_an_entry_of_dfl_aa_is_a_mean_of_what_came_in_any_order():
    """What a node averages was once on its way from another, as it was, whatever was lost."""
    algorithm = dfl_aa(0.0, chunks=2, topology="complete")
    moved = []

    @settings(max_examples=10, deadline=None, derandomize=True)
    @given(st.integers(0, 2**31), *[st.sampled_from([0.1, 0.5, 0.9])] * 2, st.integers(0, 12))
    def check(seed, computing, sending, late):
        lags, finishes, sends = any_order.drawn(seed, computing, sending, late)
        with jax.enable_x64(True):
            told = any_order.program(algorithm, none())(lags, finishes, sends)
        params = np.asarray(told.params)
        low, high = any_order.MODELS.min(axis=0), any_order.MODELS.max(axis=0)
        assert (params >= low - 1e-12).all()
        assert (params <= high + 1e-12).all()
        moved.append(np.abs(params[-1] - any_order.MODELS).max())

    check()
    assert max(moved) > 0.5


@pytest.mark.parametrize(
    ("build", "options", "complaint"),
    [
        (draco, {"send_chance": 1.5}, "send_chance is the chance"),
        (draco, {"most_received": 0}, "most_received must be at least 1"),
        (draco, {"window": 0}, "window must be at least 1"),
        (dfl_aa, {"chunks": 0}, "chunks must be at least 1"),
        (dfl_aa, {"tau": 0.0}, "tau counts gradients"),
        (dfl_aa, {"beta": 2.0}, "beta is the weight"),
        (dfl_aa, {"least_share": 0.0}, "least_share must be above 0"),
    ],
)
def test_options_that_cannot_be_are_refused(build, options, complaint):
    with pytest.raises(ValueError, match=complaint):
        build(**options)
