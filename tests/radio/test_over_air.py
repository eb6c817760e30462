"""Sums that are formed on the air, and the method that uses them."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from folkman import Compressed, Recording, dpsgd, ideal, over_air, simulate
from folkman.algorithm.ncota_dgd import ncota_dgd
from folkman.engine.slot import begin, finish, first
from folkman.faults import NO_FAULTS
from folkman.packing import int8
from folkman.radio.loss import Lossy
from folkman.radio.over_air import NUMBER_BITS, decoded, encoded
from reference import on_air, plain

NODES, STEP, SLOTS = 5, 0.1, 24
close = partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-12)


@pytest.fixture
def uneven(quadratics):
    return quadratics(nodes=NODES, heterogeneity=1.0)


def gradients_of(problem):
    parts = zip(np.asarray(problem.x), np.asarray(problem.y), strict=True)
    each = [partial(plain.quadratic_gradient, x=x, y=y) for x, y in parts]
    return lambda models: np.stack([of(w)[1] for of, w in zip(each, models, strict=True)])


def told(problem, network, algorithm, slots=SLOTS):
    """Return the states, the network's states and the sums after every slot."""
    compute = (1,) * problem.num_nodes

    def slot(carry, _):
        carry, point, keys = begin(problem, network, algorithm, compute, NO_FAULTS, carry)
        gradients = problem.gradients(point, keys)
        carry, _ = finish(problem, network, algorithm, NO_FAULTS, carry, gradients)
        return carry, (carry.states, carry.medium.network, carry.medium.mixed)

    @jax.jit
    def run():
        carry = first(problem, network, algorithm, compute, 0)
        return jax.lax.scan(slot, carry, None, slots)[1]

    return jax.tree.map(np.asarray, run())


@pytest.mark.parametrize("noise", ["none", "drawn"])
def test_it_follows_its_equations_along_the_sums_of_the_air(uneven, noise):
    algorithm = ncota_dgd(STEP, gossip_step=0.3, gossip_decay=0.2)
    states, air, sums = told(uneven, over_air(noise=noise), algorithm)
    begins = np.flatnonzero(np.diff(air.since, prepend=0))
    on_the_air = sums[begins, 0]

    x = on_air.descend(gradients_of(uneven), uneven.initial, on_the_air, STEP, 0.3, 0.2)

    ends = begins + 2  # a frame takes the slot after it was formed, and is heard in the one after
    ends = ends[ends < SLOTS]
    assert len(ends) > 6
    close(states.memory.params[ends], x[1 : len(ends) + 1])
    assert (np.diff(states.rounds[ends, 0]) == 1).all()
    sends = air.sends[begins]
    assert (on_the_air[sends] == 0).all()  # who sends hears nothing
    assert (on_the_air[~sends & sends.any(axis=1)[:, None]][:, -1] > 0).all()
    assert 0.25 < sends.mean() < 0.75
    if noise == "none":
        for k, slot in enumerate(begins):
            gain, sends = air.gain[slot].astype(float), air.sends[slot]
            close(on_the_air[k], on_air.expected(x[k], gain, sends), rtol=1e-6, atol=1e-7)


def test_a_model_goes_into_energies_and_comes_back():
    rng = np.random.default_rng(0)
    for size in (0.1, 1.0, 3.0):
        w = size * rng.standard_normal(7)
        energies = np.asarray(encoded(jnp.asarray(w), 50.0))

        assert (energies >= 0).all()
        np.testing.assert_allclose(energies.sum(), 1.0, rtol=1e-6)
        np.testing.assert_allclose(decoded(jnp.asarray(energies), 50.0)[:-1], w, rtol=1e-4)
    far = encoded(jnp.asarray([3.0, -5.0]), 4.0)  # scaled down to the range, its direction kept
    np.testing.assert_allclose(decoded(far, 4.0), [1.5, -2.5, 1.0], rtol=1e-6)


@pytest.fixture(scope="module")
def drawn():
    """Models, gains, senders, and what 4,000 rounds of frames of the package make of them."""
    rng = np.random.default_rng(1)
    network = over_air(radius=2.0, noise_dbm_per_hz=-80.0)  # noise that matters
    frames = network.on_air()
    state = frames.init(4, jax.random.key(0))
    sends = np.array([True, True, False, False])
    state = state._replace(sends=jnp.asarray(sends))
    models = 0.3 * rng.standard_normal((4, 3))
    messages = jnp.asarray(np.concatenate([models, np.ones((4, 1))], axis=1))
    keys = jax.random.split(jax.random.key(2), 4000)
    sums = jax.jit(jax.vmap(lambda key: frames.superpose(state, messages, key)))(keys)
    return network, np.asarray(state.gain, float), sends, models, np.asarray(sums, float)


def test_sums_are_unbiased(drawn):
    _, gain, sends, models, sums = drawn

    error = sums.mean(axis=0) - on_air.expected(models, gain, sends)

    spread = sums.std(axis=0) / np.sqrt(len(sums))
    assert (np.abs(error) <= 4.5 * spread + 1e-9).all()
    assert spread[2:].min() > 0


def test_sums_have_the_law_of_complex_signals_that_fade(drawn):
    """The package draws energies; signals, phases and noise by themselves make the same law."""
    network, gain, sends, models, sums = drawn
    reach, units = 2.0 * 3**0.5, 2 * 3 + 1
    noise_w_per_hz = 10 ** ((network.noise_dbm_per_hz - 30) / 10)
    by_energy = noise_w_per_hz / (network.power_w * units / network.bandwidth_hz)
    rng = np.random.default_rng(3)

    signals = [on_air.received(models, gain, sends, reach, by_energy, rng) for _ in range(2000)]

    assert by_energy / gain[2:].sum(axis=1).max() > 0.1  # it is not lost beside the fading
    for rx in (2, 3):
        for entry in range(4):
            law = stats.ks_2samp(sums[:, rx, entry], np.array(signals)[:, rx, entry])
            chance = float(np.asarray(law)[1])
            assert chance > 1e-4, (rx, entry)


def test_frames_that_are_repeated_halve_the_noise_fourfold_and_take_as_long():
    once, often = over_air(), over_air(frames=16)
    messages = jnp.asarray([[1.0, -1.0, 1.0]] * 3)
    spread = []
    for network in (once, often):
        frames = network.on_air()
        state = frames.init(3, jax.random.key(0))
        state = state._replace(sends=jnp.asarray([True, True, False]))
        keys = jax.random.split(jax.random.key(1), 1500)
        sums = jax.jit(jax.vmap(partial(frames.superpose, state, messages)))(keys)
        spread.append(np.asarray(sums)[:, 2].std(axis=0))

    np.testing.assert_allclose(spread[0] / spread[1], 4.0, rtol=0.15)
    assert often.frame_slots(100) == 16 * once.frame_slots(100) == 16 * 201 / 1e7
    assert often.on_air().units(100) == 16 * 201


def test_on_other_networks_with_a_whole_gossip_step_it_is_dpsgd(uneven):
    left = simulate(uneven, ideal(), ncota_dgd(STEP, 1.0), slots=20, recording=Recording(20))
    right = simulate(uneven, ideal(), dpsgd(STEP), slots=20, recording=Recording(20))

    close(left.nodes, right.nodes)
    assert left.last("bits") == right.last("bits")


@pytest.mark.parametrize("nodes", [3, 9])
def test_a_round_takes_as_long_however_many_nodes_there_are(quadratics, nodes):
    """Slow enough for a frame of 2.1 slots: it takes three, and one slot is for the gradient."""
    problem = quadratics(nodes=nodes, heterogeneity=1.0)
    units = 2 * problem.dim + 1
    network = over_air(bandwidth_hz=units / 2.1)

    run = simulate(problem, network, ncota_dgd(STEP, 0.1), slots=41, recording=Recording(41))

    rounds = 10
    assert run.last("gradients") == rounds + 1
    assert run.last("rounds") == rounds
    sent = run.last("bits") / (NUMBER_BITS * units)  # frames begun
    assert sent == int(sent)
    assert 0 < sent < nodes * (rounds + 1)
    on_air_s = run.last("transmit_s") + run.last("receive_s")
    np.testing.assert_allclose(on_air_s, nodes * rounds * 2.1, rtol=1e-5)  # each sends or listens
    assert run.last("transmit_j") > 0


def test_smaller_and_falling_gossip_steps_bear_the_noise(quadratics):
    problem = quadratics(nodes=NODES, heterogeneity=0.3)
    far = {}
    for name, options in {
        "whole": {"gossip_step": 1.0},
        "small": {"gossip_step": 0.1},
        "falling": {"gossip_step": 0.5, "gossip_decay": 0.1},
    }.items():
        algorithm = ncota_dgd(0.2, decay="inverse_sqrt", decay_steps=50, **options)
        run = simulate(problem, over_air(), algorithm, slots=6000, recording=Recording(6000))
        far[name] = run.last("optimum_distance")

    assert far["small"] < 0.5 * far["whole"]
    assert far["falling"] < 0.5 * far["whole"]


@pytest.mark.parametrize("noise", ["none", "drawn"])
def test_one_node_alone_descends(quadratics, noise):
    problem = quadratics(nodes=1)
    runs = [
        simulate(problem, network, ncota_dgd(0.2), slots=40, recording=Recording(40))
        for network in (over_air(noise=noise), ideal())
    ]

    assert np.isfinite(runs[0].last("train_loss"))
    assert runs[0].last("optimum_distance") < 0.5 * runs[0].rows[0]["optimum_distance"]
    assert runs[1].last("optimum_distance") < 0.5 * runs[1].rows[0]["optimum_distance"]


def test_what_needs_single_messages_or_bits_is_refused(uneven):
    network, algorithm = over_air(), ncota_dgd(STEP)
    with pytest.raises(ValueError, match="no single message arrives"):
        simulate(uneven, network, dpsgd(STEP), slots=2)
    with pytest.raises(ValueError, match="no packets that could be lost"):
        simulate(uneven, Lossy(network, 0.1), algorithm, slots=2)
    with pytest.raises(ValueError, match="no compression packs"):
        simulate(uneven, Compressed(network, int8()), algorithm, slots=2)
    with pytest.raises(ValueError, match="leave the timeline out"):
        simulate(uneven, network, algorithm, slots=2, recording=Recording(2, timeline=True))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"send_chance": 1.0}, "send_chance must be above 0 and below 1"),
        ({"frames": 0}, "frames is how often"),
        ({"noise": "loud"}, "noise is 'drawn' or 'none'"),
        ({"radius": 0.0}, "radius must be positive"),
        ({"power_dbm": float("inf")}, "power_dbm must be a finite number"),
    ],
)
def test_options_of_the_air_that_cannot_be_are_refused(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        over_air(**options)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [({"gossip_step": 1.5}, "gossip_step is a part"), ({"gossip_decay": -1.0}, "gossip_decay")],
)
def test_gossip_steps_that_cannot_be_are_refused(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        ncota_dgd(STEP, **options)
