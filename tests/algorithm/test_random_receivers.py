"""Epidemic learning and DivShare: receivers are drawn anew, of models and of fragments."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkman import Recording, constant, dpsgd, fedavg, ideal, pipelined, simulate
from folkman.algorithm.divshare import divshare, fragment_of
from folkman.algorithm.epidemic import epidemic, receivers
from folkman.packing import none
from folkman.radio.loss import Lossy
from reference import any_order, peers, plain
from reference.slots import teller

NODES, STEP = 5, 0.1
close = partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-12)


def gradients_of(problem):
    parts = zip(np.asarray(problem.x), np.asarray(problem.y), strict=True)
    each = [partial(plain.quadratic_gradient, x=x, y=y) for x, y in parts]
    return lambda models: np.stack([of(w)[1] for of, w in zip(each, models, strict=True)])


@pytest.fixture
def uneven(quadratics):
    return quadratics(nodes=NODES, heterogeneity=1.0)


@pytest.mark.parametrize("sampling", ["local", "oracle"])
def test_epidemic_learning_follows_its_equations(uneven, sampling):
    sent_to = receivers(sampling, NODES, 2, 0)
    x = peers.spread(gradients_of(uneven), uneven.initial, sent_to, STEP, 10, local_steps=2)

    states, _ = teller(uneven, ideal(), epidemic(STEP, sampling, 2, local_steps=2), 21)()

    close(states.mixed[1::2], x)


@pytest.mark.parametrize("nodes", [2, 5, 8, 13])
@pytest.mark.parametrize("sampling", ["local", "oracle"])
def test_receivers_are_others_each_once_and_new_in_every_round(sampling, nodes):
    sent_to = receivers(sampling, nodes, None, 3)

    rounds, senders, number = sent_to.shape
    assert senders == nodes
    assert number == min(
        int(np.ceil(np.log2(nodes))) + (sampling == "oracle" and nodes in (5,)), nodes - 1
    )
    assert (np.sort(sent_to, axis=2)[..., 1:] != np.sort(sent_to, axis=2)[..., :-1]).all()
    assert (sent_to != np.arange(nodes)[None, :, None]).all()
    if number < nodes - 1:
        assert len(np.unique(sent_to.reshape(rounds, -1), axis=0)) > 10
    if sampling == "oracle":
        weights = [np.asarray(w) for w in oracle_weights(nodes)]
        for w in weights:
            np.testing.assert_allclose(w, w.T)
            np.testing.assert_allclose(w.sum(axis=1), 1.0, rtol=1e-6)
    else:  # each other is as likely as any
        counts = np.bincount(sent_to[:, 0].ravel(), minlength=nodes)[1:]
        wanted = rounds * number / (nodes - 1)
        assert np.abs(counts - wanted).max() < 5 * np.sqrt(wanted)


def oracle_weights(nodes):
    mixing = epidemic(sampling="oracle", graph_seed=3).travel.mixing  # type: ignore[attr-defined]
    return [mixing.in_round(nodes, jnp.asarray(number)) for number in (0, 7, 700)]


def test_with_all_others_epidemic_learning_is_fedavg(uneven):
    left = simulate(uneven, ideal(), epidemic(STEP, fanout=NODES - 1), slots=20)
    right = simulate(uneven, ideal(), fedavg(STEP), slots=20)

    close(left.model, right.model)


def test_the_mean_of_oracle_rounds_moves_by_gradients_alone_under_loss_and_delay(uneven):
    tell = teller(uneven, Lossy(constant(1), 0.3), epidemic(STEP, "oracle"), 40)
    gradients = gradients_of(uneven)

    @settings(max_examples=5, deadline=None, derandomize=True)
    @given(st.integers(0, 2**31))
    def check(seed):
        states, _ = tell(seed)
        x, taken = states.memory, np.diff(states.updates.min(axis=1))
        for slot in np.flatnonzero(taken):
            start = states.mixed[slot + 1]
            moved = start.mean(axis=0) - STEP * gradients(start).mean(axis=0)
            close(x[slot + 1].mean(axis=0), moved, atol=1e-10)
        assert states.rounds[-1].min() > 3

    check()


def test_a_new_graph_in_each_round_mixes_faster_than_a_fixed_one(quadratics):
    """Steps that end after four rounds set the nodes apart; then they only mix."""
    problem = quadratics(nodes=16, heterogeneity=1.0)
    still = {"decay": "cosine", "decay_steps": 4}

    apart = {
        name: simulate(problem, ideal(), algorithm, slots=16, recording=Recording(16)).last(
            "consensus"
        )
        for name, algorithm in {
            "fixed": dpsgd(STEP, "adapt_first", topology="regular", degree=4, **still),
            "oracle": epidemic(STEP, "oracle", **still),
            "local": epidemic(STEP, "local", **still),
        }.items()
    }

    assert apart["oracle"] < 0.3 * apart["fixed"]
    assert apart["local"] < apart["fixed"]


# --- DivShare ---


def test_divshare_follows_its_rules_along_a_timeline(uneven):
    algorithm = divshare(STEP, fragments=3, fanout=2, local_steps=3)
    states, held = teller(uneven, Lossy(pipelined(2), 0.3), algorithm, 40)()
    part = fragment_of(uneven.dim, 3, 0)
    draws = [
        [
            (order[sent - 1], set(chosen[order[sent - 1]]))
            for order, sent, chosen in zip(*now, strict=True)
        ]
        for now in zip(states.order, states.sent, states.receivers, strict=True)
    ]

    x = peers.share_fragments(
        gradients_of(uneven), uneven.initial, part, draws, held, STEP, local_steps=3
    )

    close(states.params, x)
    assert (states.sent[3:] > 0).any()
    assert (np.ptp(x[-1], axis=0) < np.ptp(np.asarray(uneven.x)[:, 0], axis=0)).all()


def test_an_entry_is_the_mean_of_what_came_of_it_in_any_order():
    """What a node averages was once on its way from another, as it was, whatever was lost."""
    algorithm = divshare(0.0, fragments=2, fanout=1)
    moved = []

    @settings(max_examples=15, deadline=None, derandomize=True)
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


@pytest.mark.parametrize("fragments", [1, 3, 7])
def test_fragments_are_a_partition_of_near_equal_parts(fragments):
    part = fragment_of(10, fragments, 0)

    sizes = np.bincount(part, minlength=fragments)
    assert sizes.sum() == 10
    assert sizes.max() - sizes.min() <= 1
    price = divshare(fragments=fragments, fanout=2).declares.price
    assert price is not None
    assert price.bits(10, 32) == (32 * sizes.max() + 32 * 4,)


def test_whole_models_to_all_without_delay_are_averaged_whole(uneven):
    """F = 1, J = I - 1: an average of what the others had a step before, each with weight 1/I."""
    algorithm = divshare(STEP, fragments=1, fanout=NODES - 1)
    states, _ = teller(uneven, ideal(), algorithm, 12)()
    gradients, x = gradients_of(uneven), states.params

    for t in range(1, 12):
        moved = x[t] - STEP * gradients(x[t])
        others = states.outgoing[t].sum(axis=0)[None] - states.outgoing[t]
        close(x[t + 1], (moved + others) / NODES)


@pytest.mark.parametrize(
    ("build", "options", "complaint"),
    [
        (epidemic, {"sampling": "central"}, "sampling must be"),
        (epidemic, {"fanout": 0}, "fanout is how many others"),
        (divshare, {"fragments": 0}, "fragments must be at least 1"),
        (divshare, {"fanout": 0}, "fanout is how many others"),
    ],
)
def test_options_that_cannot_be_are_refused(build, options, complaint):
    with pytest.raises(ValueError, match=complaint):
        build(**options)
