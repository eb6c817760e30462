"""FedAvg as an all-reduce between the devices: the models of FedAvg, at other times."""

import jax.numpy as jnp
import numpy as np
import pytest

from folkman import Clock, Lossy, RadioNetwork, Recording, ideal, simulate
from folkman import reference as run_reference
from folkman.algorithm.dpsgd import dpsgd
from folkman.algorithm.fedavg import fedavg
from folkman.engine.travel.all_reduce import contributed
from folkman.faults import NO_FAULTS, Faults
from folkman.packing import fixed, none
from folkman.packing.packing import step_of
from folkman.packing.sums import grid_numbers, partial_sum_bits, signed
from folkman.radio.compressed import Compressed
from folkman.radio.shared import shared
from folkman.runtime.ways import way_of

NODES, DIM, SLOT_S = 4, 30, 1e-4
AIR = RadioNetwork(schedule="index", slot_s=SLOT_S)
EXACT = Compressed(AIR, none())
METHOD = fedavg(0.05, local_steps=2, through="devices")


@pytest.fixture
def problem(quadratics):
    return quadratics(nodes=NODES, dim=DIM, heterogeneity=1.0)


def losses(problem, network, method, slots, **options):
    """Return the losses of the network's model, one for each model that it had."""
    clock = Clock(getattr(network, "slot_s", 1.0))
    run = simulate(
        problem, network, method, slots=slots, clock=clock, recording=Recording(1), **options
    )
    found = [run.rows[0]["train_loss"]]
    for row in run.rows:
        if row["train_loss"] != found[-1]:
            found.append(row["train_loss"])
    return np.array(found)


@pytest.mark.parametrize(
    ("network", "faults"),
    [
        (ideal(), NO_FAULTS),
        (shared(0.3), NO_FAULTS),
        (EXACT, NO_FAULTS),
        (Lossy(EXACT, 0.2), NO_FAULTS),
        (EXACT, Faults(away=((1, 6, 20),))),
    ],
    ids=["ideal", "shared", "radio", "losses", "away"],
)
def test_its_models_are_those_of_fedavg_with_free_links_round_for_round(problem, network, faults):
    station = losses(problem, ideal(), fedavg(0.05, local_steps=2), 40)
    mine = losses(problem, network, METHOD, 60, faults=faults)
    number = min(len(mine), len(station))
    assert number >= 5
    np.testing.assert_allclose(mine[:number], station[:number], rtol=1e-12)


def test_through_the_station_by_turns_they_are_the_same_too(problem):
    method = fedavg(0.05, local_steps=2)
    free, mine = (losses(problem, network, method, 60, seed=1) for network in (ideal(), EXACT))
    assert len(mine) >= 5
    np.testing.assert_allclose(mine, free[: len(mine)], rtol=1e-12)


@pytest.mark.parametrize("topology", ["ring", "schedule"])
def test_rounds_of_copies_on_the_band_are_those_of_the_reference_engine(problem, topology):
    method, recording = dpsgd(0.05, topology=topology), Recording(60, timeline=True)
    run = simulate(problem, EXACT, method, slots=60, clock=Clock(SLOT_S), recording=recording)
    again = run_reference(problem, run.timeline, method)
    assert run.last("gradients") >= 4
    np.testing.assert_allclose(again.nodes, run.nodes, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("packing", [None, fixed(16)], ids=["as computed", "16 bits"])
def test_the_reference_engine_ends_with_the_same_parameters(problem, packing):
    network = EXACT if packing is None else AIR  # 16 bits: the radio rounds what it prices
    recording, clock = Recording(20, timeline=True), Clock(SLOT_S, (1, 2, 1, 3))
    run = simulate(problem, network, METHOD, slots=40, clock=clock, recording=recording)
    again = run_reference(problem, run.timeline, METHOD, packing=packing or none())
    assert run.timeline.held[-1].min() > 4
    np.testing.assert_allclose(again.nodes, run.nodes, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(run.nodes, run.nodes[:1].repeat(NODES, axis=0), rtol=0)  # all agree


def test_a_round_costs_one_partial_sum_of_every_node(problem):
    network = shared(0.3, bits_per_parameter=16)
    run = simulate(problem, network, METHOD, slots=17, recording=Recording(17, timeline=True))
    assert run.timeline.sends[:, 0].sum() == 4  # 2 slots of gradients, 2 of air
    price = DIM * (16 + 2) + NODES  # B = 16 + log2 4 bits an entry, and whose they are
    assert price == partial_sum_bits(fixed(16), DIM, NODES)
    assert run.last("bits") == 4 * NODES * price
    assert run.last("rounds") == 4


def test_rounds_are_counted_where_a_node_sends_several_times_in_one(problem):
    run = simulate(
        problem,
        EXACT,
        METHOD,
        slots=60,
        clock=Clock(SLOT_S),
        recording=Recording(60, timeline=True),
    )
    ended = len(np.unique(run.timeline.held[:, 0, 0])) - 1
    assert ended <= run.last("rounds") <= ended + 1  # the last one is heard a slot later
    assert run.last("gradients") >= 2 * ended


def test_a_sum_beyond_its_range_comes_out_as_its_bits_read():
    draw, packing, share = np.random.default_rng(0), fixed(8), np.array([0.1, 0.2, 0.3, 0.4])
    initial, messages = draw.normal(size=5), 30.0 * draw.normal(size=(4, 5))
    found = share @ np.asarray(contributed(packing, *map(jnp.asarray, (messages, initial, share))))
    numbers = np.sum(
        [grid_numbers(packing, messages[j], initial, 4 * share[j]) for j in range(4)], axis=0
    )
    read = signed(numbers, 8 + 2)
    step = step_of(packing)
    np.testing.assert_allclose(
        found, initial + step / 4 * read, rtol=0, atol=1e-5
    )  # steps are 1e-2
    assert (numbers != read).any()  # some did leave the range


def test_what_a_plain_sum_cannot_do_is_refused(problem):
    with pytest.raises(ValueError, match="carries the plain sum of all models"):
        fedavg(participation=0.5, through="devices")
    with pytest.raises(ValueError, match="through is 'station' or 'devices'"):
        fedavg(through="air")
    with pytest.raises(ValueError, match="travels by AllReduce, which devices do not carry"):
        way_of(METHOD)
    with pytest.raises(ValueError, match="leave feedback out"):
        simulate(problem, Compressed(AIR, fixed(8)._replace(feedback=True)), METHOD, slots=2,
                 clock=Clock(SLOT_S))  # fmt: skip
