"""Places drawn before a run are those that its network would draw, by one program for all."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest

import folkman as fm
from folkman.engine import places
from folkman.engine.simulate import Simulation, start
from folkman.keys import Stream, make_key
from folkman.radio.gains import GainRadio
from folkman.radio.loss import Lossy
from folkman.radio.network import RadioNetwork

NODES, SEED = 3, 5
RADIO = RadioNetwork(cell_radius_m=321.0)
INDEX = replace(RADIO, schedule="index")
FACES = {
    "peers by the threshold": (RADIO, lambda network: network.peers()),
    "peers by the index": (INDEX, lambda network: network.peers()),
    "rounds with losses": (Lossy(INDEX, 0.1), lambda network: network.rounds()),
    "around a station": (RADIO, lambda network: network.star()),
}


@pytest.mark.parametrize("face", FACES)
def test_a_network_begins_as_if_it_had_drawn_its_places_itself(face):
    network, of = FACES[face]
    key = make_key(SEED, Stream.DELAY)
    drawn = jax.jit(lambda: of(network).init(NODES, key))()
    given = of(places.placed(network, NODES, np.uint32(SEED))).init(NODES, key)

    assert jax.tree.structure(drawn) == jax.tree.structure(given)
    for own, other in zip(jax.tree.leaves(drawn), jax.tree.leaves(given), strict=True):
        np.testing.assert_array_equal(own, other)


def test_methods_share_the_program_that_places():
    before = len(places._open)
    kinds = (RADIO, replace(RADIO, threshold_db=-5.0), INDEX, replace(INDEX, message="sum"))
    for network in (*kinds, Lossy(RADIO, 0.1)):
        places.placed(network, NODES + 1, np.uint32(SEED))

    assert len(places._open) == before + 1


def test_a_run_begins_in_the_places_of_its_seed():
    problem = fm.make_problem(fm.load("digits", train_size=9), "softmax", NODES)

    def where(seed):
        mark = start(Simulation(problem, RADIO, fm.async_sharing(0.1)), seed)
        return np.asarray(mark.carry.medium.network.air.nodes.positions_m)

    own = jax.jit(lambda: RADIO.open_air(NODES, make_key(SEED, Stream.DELAY)))()
    np.testing.assert_array_equal(where(SEED), own.nodes.positions_m)
    assert not np.array_equal(where(SEED), where(SEED + 1))


def test_a_radio_that_draws_nothing_is_left_as_it_is():
    table, start_s = np.ones((1, NODES, NODES), np.float32), np.zeros(1, np.float32)
    given = GainRadio(table=table, start_s=start_s)

    assert places.placed(given, NODES, np.uint32(SEED)) is given


def test_a_radio_in_space_has_the_sinr_of_every_other_with_its_places():
    other: dict[str, Any] = {
        "path_loss_exponent": 3.0,
        "bandwidth_hz": 5e6,
        "power_dbm": 20.0,
        "slot_s": 0.1,
    }
    other |= {"noise_dbm_per_hz": -170.0, "interferers_per_cell": 2.0, "thrift": 1.5}
    radio = RadioNetwork(**other, schedule="index", message="sum", interferer_radius_m=4000.0)
    key = make_key(SEED, Stream.FADING)

    @partial(jax.jit, static_argnums=0)
    def drawn(radio):
        return radio.sinr(radio.open_air(NODES, key), key)

    np.testing.assert_array_equal(drawn(radio), drawn(radio.in_space))
    assert not np.array_equal(drawn(radio), drawn(RadioNetwork()))
