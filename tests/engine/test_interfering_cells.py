"""Cells that interfere: each is the cell on its own, its interferers the nodes of its neighbours."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import folkman as fm
from folkman.engine import cells
from folkman.engine.cells import cell_seed
from folkman.engine.simulate import Recording, simulate
from folkman.experiment.cells import simulate_cells
from folkman.problem.field import make_field
from folkman.radio.cells import radio_cells
from folkman.radio.network import RadioNetwork

CELLS, NODES, SLOTS = 9, 4, 12
RULES = {
    "threshold": RadioNetwork(threshold_db=-5.0),
    "index": RadioNetwork(schedule="index", message="sum"),
}


@pytest.fixture(scope="module")
def field():
    data = fm.load("digits", train_size=200, test_size=50)
    return make_field(data, "softmax", cells=CELLS, nodes=NODES, samples=20, batch=5, seed=7)


@pytest.mark.parametrize("rule", RULES)
def test_an_interfering_cell_among_many_is_that_cell_alone(field, rule):
    network = radio_cells(RULES[rule], cells=CELLS, nodes=NODES, seed=2)
    algorithm, recording = fm.async_sharing(step=0.5), Recording(every=6)
    given = {"slots": SLOTS, "recording": recording}

    together = simulate_cells(field, network, algorithm, seed=3, at_once=4, **given)

    for cell in (0, 5, 8):
        seed = cell_seed(3, cell)
        alone = simulate(field.cell(cell), network.cell(cell), algorithm, seed=seed, **given)
        apart = np.linalg.norm(together.model[cell] - alone.model)
        moved = np.linalg.norm(alone.model - np.asarray(field.first.initial))
        assert moved > 0
        assert apart <= 1e-5 * moved


def test_the_interferers_of_a_cell_are_its_neighbours_nodes_of_the_same_band():
    """Eq. (24) worked out from the places of all nodes, in double precision."""
    network = radio_cells(RadioNetwork(), cells=7, nodes=3, seed=1)
    there_m = network.stations_m[:, None].astype(float) + network.nodes_m

    for cell in (0, 6):
        air = network.cell(cell).air
        assert air is not None
        others = [other for other in range(7) if other != cell]
        for rx in range(3):
            for band in range(3):
                reach_m = np.linalg.norm(there_m[others, band] - there_m[cell, rx], axis=-1)
                heard = float(jnp.sum(air.interferer[rx, band]) + air.background[rx, band])
                assert heard == pytest.approx(np.sum(np.maximum(reach_m, 1.0) ** -4.0), rel=1e-4)
        reach_m = np.linalg.norm(there_m[cell][:, None] - there_m[cell][None], axis=-1)
        np.testing.assert_allclose(air.link, np.maximum(reach_m, 1.0) ** -4.0, rtol=1e-4)


def test_nodes_stand_in_the_disc_of_their_cell_and_neighbours_are_nearest_first():
    network = radio_cells(RadioNetwork(cell_radius_m=200.0), cells=40, nodes=5)

    assert np.linalg.norm(network.nodes_m, axis=-1).max() <= 200.0
    assert len(np.unique(network.nodes_m.reshape(-1, 2), axis=0)) == 200
    reach_m = np.linalg.norm(
        network.stations_m[network.neighbours] - network.stations_m[:, None], axis=-1
    )
    assert (np.diff(reach_m, axis=1) >= -1e-3).all()
    np.testing.assert_allclose(reach_m[0, :6], 200.0 * np.sqrt(2 * np.pi / np.sqrt(3)), rtol=1e-5)


def test_the_seed_of_a_cell_does_not_depend_on_how_many_there_are(field):
    seeds = np.random.SeedSequence(11).generate_state(50)

    assert [cell_seed(11, cell) for cell in range(50)] == seeds.tolist()
    assert len(set(seeds.tolist())) == 50


def test_rates_drawn_all_at_once_give_the_same_choices(field, monkeypatch):
    """On a GPU nothing is glanced at first; the choice is the same."""
    network = radio_cells(RULES["index"], cells=CELLS, nodes=NODES, seed=2)
    algorithm = fm.async_sharing(step=0.5)
    glanced = simulate(field.cell(1), network.cell(1), algorithm, slots=SLOTS)

    monkeypatch.setattr(RadioNetwork, "glances", lambda *_: False)
    jax.clear_caches()
    drawn = simulate(field.cell(1), network.cell(1), fm.async_sharing(step=0.5), slots=SLOTS)

    assert drawn.column("bits") == glanced.column("bits")
    np.testing.assert_allclose(drawn.model, glanced.model, rtol=1e-5, atol=1e-7)


def test_memory_follows_the_cells_that_run_at_once(field):
    """A program over a few cells holds arrays of these alone, whatever the number of cells."""
    network = radio_cells(RULES["threshold"], cells=CELLS, nodes=NODES)
    small, large = (
        sum(part.nbytes for part in jax.tree.leaves(network.air(range(size)))) for size in (2, 8)
    )

    assert large == 4 * small
    assert [len(portion) for portion in cells.portions(field, 4)] == [4, 4, 1]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"cells": 1}, "at least two, got 1"),
        ({"nodes": 0}, "needs a node at least, got 0"),
        ({"radio": RadioNetwork(speed_m_per_s=1.0)}, "stand still"),
    ],
)
def test_impossible_layouts_are_refused(wrong, says):
    given = {"radio": RadioNetwork(), "cells": 3, "nodes": 2} | wrong
    with pytest.raises(ValueError, match=says):
        radio_cells(given.pop("radio"), **given)


def test_a_layout_of_other_cells_is_refused(field):
    network = radio_cells(RadioNetwork(), cells=3, nodes=NODES)

    with pytest.raises(ValueError, match="3 cells of 4 nodes and the field 9 of 4"):
        simulate_cells(field, network, fm.async_sharing(), slots=2)
    with pytest.raises(ValueError, match="cells 0 to 2, got 3 to 3"):
        network.cell(3)
    with pytest.raises(ValueError, match="the cell has 4 nodes, the problem 2"):
        network.cell(0).open_air(2, jax.random.key(0))
