"""Joules of a run: closed forms, a re-telling from what was recorded, and what must not move."""

from dataclasses import fields, replace
from math import isnan
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkman import (
    Clock,
    Recording,
    async_sharing,
    constant,
    fedavg,
    make_problem,
    replay,
    simulate,
)
from folkman.algorithm.hierfavg import hierfavg
from folkman.energy import Energy, Spent, joules
from folkman.engine.simulate import Simulation, march, start
from folkman.faults import Faults
from folkman.problem.data import digits, quadratic
from folkman.problem.models import cnn
from folkman.problem.operations import _of_model, gradient_operations
from folkman.radio.loss import Lossy
from folkman.radio.network import RadioNetwork
from folkman.radio.shared import shared
from folkman.record.run import ENERGY_COLUMNS

NODES, DIM, SLOTS = 4, 3, 12
S = 32 * DIM  # bits of a message
POWERS = Energy(
    radiated_w=0.5,
    amplifier_efficiency=0.25,
    transmit_circuit_w=1.0,
    receive_w=0.125,
    idle_w=0.0625,
    joules_per_gradient=2.0,
    link_bits_per_s=1000.0,
)
SILENT = Energy(0.0, 1.0, 0.0, 0.0, 0.0, 0.0)
TIMES = st.floats(0, 1e6)


@pytest.fixture(scope="module")
def bowls():
    data = quadratic(nodes=NODES, dim=DIM, seed=1)
    return make_problem(data, "quadratic", [np.array([i]) for i in range(NODES)])


def test_powers_times_seconds_by_hand():
    spent = Spent(10.0, 2, 3.0, 5.0, 7.0, 11.0, (1, 2), (100.0, 1000.0))
    found = joules(replace(POWERS, joules_per_gradient=None, joules_per_operation=0.01), spent)
    assert found.transmit == 3.0 * 3.0  # 0.5 / 0.25 + 1 W
    assert found.receive == 5.0 * 0.125
    assert found.compute == pytest.approx(0.01 * (100 + 2000))
    assert found.idle == 10 * 2 * 0.0625
    assert found.station == 7 * 3.0 + 11 * 0.125
    assert found.nodes == pytest.approx(9 + 0.625 + 21 + 1.25)
    assert joules(POWERS, spent).compute == 6.0


def test_the_network_says_what_is_radiated_unless_the_table_does():
    assert Energy().transmit_w() == pytest.approx(1 / 0.35 + 0.0828)
    assert Energy().transmit_w(0.1) == pytest.approx(0.1 / 0.35 + 0.0828)
    assert replace(POWERS, radiated_w=1.0).transmit_w(0.1) == 5.0
    assert RadioNetwork(power_dbm=20.0).power_w == pytest.approx(0.1)


@given(times=st.tuples(*[TIMES] * 5), scale=st.floats(1, 10), which=st.sampled_from(range(5)))
@settings(max_examples=50, deadline=None)
def test_more_power_is_never_cheaper_and_no_power_costs_nothing(times, scale, which):
    seconds, sent, heard, told, asked = times
    spent = Spent(seconds, 3, sent, heard, told, asked, (1, 2, 3), (5.0, 5.0, 5.0))
    names = ("radiated_w", "transmit_circuit_w", "receive_w", "idle_w", "joules_per_operation")
    plain = Energy(radiated_w=1.0)
    more = replace(plain, **{names[which]: scale * getattr(plain, names[which])})
    assert joules(more, spent).nodes >= joules(plain, spent).nodes
    assert joules(more, spent).station >= joules(plain, spent).station
    silent = joules(SILENT, spent)
    assert (silent.nodes, silent.station) == (0, 0)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        *((field.name, -1.0, field.name) for field in fields(Energy)),
        ("receive_w", float("nan"), "not negative, got nan; 0 costs nothing"),
        ("amplifier_efficiency", 1.5, "at most 1, got 1.5; 0.35 is usual"),
        ("link_bits_per_s", 0.0, "positive and finite, got 0.0; 10e6"),
    ],
)
def test_impossible_powers_are_refused(name, value, said):
    with pytest.raises(ValueError, match=said):
        Energy(**{name: value})


def test_broadcasts_of_a_law_take_their_bits_at_the_nominal_rate(bowls):
    """One message per node and slot: one transmission and three receptions."""
    run = simulate(bowls, constant(1), async_sharing(0.1), slots=SLOTS, energy=POWERS)
    sent_s = SLOTS * NODES * S / 1000
    assert run.last("transmit_s") == pytest.approx(sent_s, rel=1e-12)
    assert run.last("receive_s") == pytest.approx(3 * sent_s, rel=1e-12)
    assert run.last("transmit_j") == pytest.approx(3.0 * sent_s, rel=1e-12)
    assert run.last("receive_j") == pytest.approx(0.125 * 3 * sent_s, rel=1e-12)
    assert run.last("compute_j") == 2.0 * SLOTS * NODES
    idle = 0.0625 * SLOTS * NODES
    whole = sum(run.last(name) for name in ("transmit_j", "receive_j", "compute_j")) + idle
    assert run.last("energy_j") == pytest.approx(whole, rel=1e-12)
    assert run.last("station_j") == 0
    assert isnan(run.last("joules_per_percent"))  # quadratics have no accuracy
    assert [row["energy_j"] for row in run.rows] == sorted(row["energy_j"] for row in run.rows)


def test_a_replay_is_priced_by_its_bits(bowls):
    recording = Recording(timeline=True)
    first = simulate(
        bowls, constant(1), async_sharing(0.1), slots=SLOTS, recording=recording, energy=POWERS
    )
    again = simulate(bowls, replay(first.timeline), async_sharing(0.1), slots=SLOTS, energy=POWERS)
    assert again.last("energy_j") == first.last("energy_j")


def test_a_lost_message_costs_what_any_message_does(bowls):
    lossy = simulate(bowls, Lossy(constant(1), 0.5), async_sharing(0.1), slots=SLOTS, energy=POWERS)
    assert lossy.last("transmit_s") == pytest.approx(SLOTS * NODES * S / 1000, rel=1e-12)


def test_a_server_listens_to_uploads_and_sends_one_answer_to_all(bowls):
    run = simulate(bowls, constant(1), fedavg(0.1), slots=SLOTS, energy=POWERS)
    rounds = run.last("rounds")
    assert rounds == SLOTS / 3
    assert run.last("transmit_s") == pytest.approx(rounds * NODES * S / 1000, rel=1e-12)
    assert run.last("receive_s") == pytest.approx(rounds * NODES * S / 1000, rel=1e-12)
    station = 3.0 * rounds * S / 1000 + 0.125 * rounds * NODES * S / 1000
    assert run.last("station_j") == pytest.approx(station, rel=1e-12)


def test_the_wire_between_stations_and_the_root_costs_nothing(bowls):
    run = simulate(bowls, constant(0), hierfavg(), slots=SLOTS, energy=POWERS)
    assert run.last("receive_s") == pytest.approx(run.last("transmit_s"), rel=1e-12)
    uploads = run.last("transmit_s")
    cells = 2
    answers = uploads / NODES * cells
    assert run.last("station_j") == pytest.approx(3.0 * answers + 0.125 * uploads, rel=1e-12)
    assert run.last("bits") > 1000 * (uploads + answers)  # the wire's bits are counted


def test_a_shared_channel_is_in_use_as_long_as_its_messages_take(bowls):
    """Half a slot each, without a pause from the end of slot 0 on, whatever the bits."""
    clock = Clock(slot_s=0.5)
    run = simulate(bowls, shared(0.5), async_sharing(0.1), slots=SLOTS, clock=clock, energy=POWERS)
    assert run.last("transmit_s") == pytest.approx(0.5 * (SLOTS - 1), rel=1e-5)
    assert run.last("receive_s") == pytest.approx(3 * 0.5 * (SLOTS - 1), rel=1e-5)


RADIO: Any = {"bandwidth_hz": 400.0, "slot_s": 0.5}
ARMS = {
    "epochs": (RadioNetwork(-5.0, **RADIO), async_sharing(0.1)),
    "fresh": (RadioNetwork(schedule="index", message="sum", **RADIO), async_sharing(0.1)),
    "station": (RadioNetwork(**RADIO), fedavg(0.1)),
    "cells": (RadioNetwork(**RADIO), hierfavg()),
}


@pytest.mark.parametrize("arm", ARMS)
def test_totals_are_those_of_what_was_recorded(bowls, arm):
    """A node that is away uses no radio; a station listens while any of its nodes sends."""
    network, algorithm = ARMS[arm]
    away = Faults(away=((1, 5, 9),)) if arm in ("epochs", "fresh") else Faults()
    recording = Recording(every=6, timeline=True)  # two stretches of one program
    simulation = Simulation(
        bowls, network, algorithm, Clock(0.5), recording, away, replace(POWERS, radiated_w=None)
    )
    stretches = []
    *_, (_, row) = march(simulation, start(simulation, 3), SLOTS, stretches)
    transmit, receive = np.zeros((2, SLOTS, NODES))
    station_sent = station_heard = 0.0
    gradients, t = 0, 0
    for _, finished, events in stretches:
        gradients += int(finished.sum())
        for n in range(len(finished)):
            if arm in ("epochs", "fresh"):
                transmit[t], receive[t] = events.airtime.transmit[n], events.airtime.receive[n]
            else:
                transmit[t], receive[t] = events[0].airtime[n], events[1].airtime[n]
                cells = [range(NODES)] if arm == "station" else [range(0, NODES, 2), (1, 3)]
                station_sent += sum(max(receive[t, i] for i in cell) for cell in cells)
                station_heard += sum(max(transmit[t, i] for i in cell) for cell in cells)
            if arm in ("epochs", "fresh") and 5 <= t < 9:
                transmit[t, 1] = receive[t, 1] = 0.0
            t += 1
    assert t == SLOTS
    assert transmit.sum() > 0.5
    watt = 1.0 / 0.25 + 1.0
    assert row["transmit_s"] == pytest.approx(0.5 * transmit.sum(), rel=1e-5)
    assert row["receive_s"] == pytest.approx(0.5 * receive.sum(), rel=1e-5)
    station = 0.5 * (watt * station_sent + 0.125 * station_heard)
    assert row["station_j"] == pytest.approx(station, rel=1e-5)
    nodes = 0.5 * (watt * transmit.sum() + 0.125 * receive.sum()) + 2.0 * gradients
    idle = 0.0625 * 0.5 * SLOTS * NODES
    assert row["energy_j"] == pytest.approx(nodes + idle, rel=1e-5)


def test_a_lossy_station_makes_nodes_send_again_and_pay_again(bowls):
    network, algorithm = ARMS["station"]
    runs = [
        simulate(bowls, each, algorithm, slots=60, clock=Clock(0.5), energy=POWERS)
        for each in (network, Lossy(network, 0.4))
    ]
    sure, lossy = (run.last("transmit_s") / run.last("rounds") for run in runs)
    assert lossy > 1.1 * sure
    assert 0 < runs[1].last("transmit_s") <= 60 * 0.5 * NODES


def test_a_network_that_says_it_tells_must_tell(bowls):
    class Forgetful(type(constant(1))):
        times_air = True

    law = constant(1)
    silent = Forgetful(**{field.name: getattr(law, field.name) for field in fields(law)})
    with pytest.raises(ValueError, match="its answers need an `airtime`, and one has none"):
        simulate(bowls, silent, async_sharing(0.1), slots=2)


def test_prices_change_no_other_column(bowls):
    dear = simulate(bowls, constant(1), async_sharing(0.1), slots=SLOTS, energy=POWERS)
    free = simulate(bowls, constant(1), async_sharing(0.1), slots=SLOTS, energy=SILENT)
    assert free.last("energy_j") == 0
    for row, other in zip(dear.rows, free.rows, strict=True):
        kept = {name: value for name, value in row.items() if name not in ENERGY_COLUMNS}
        np.testing.assert_equal(kept, {name: other[name] for name in kept})
        assert row["transmit_s"] > other["transmit_s"] or row["slots"] == 0  # another rate


def test_joules_per_percent_are_the_energy_over_the_accuracy():
    problem = make_problem(digits(), "softmax", NODES, batch=8)
    run = simulate(problem, constant(1), async_sharing(0.5), slots=6)
    percent = 100 * run.last("test_accuracy")
    assert percent > 20
    assert run.last("joules_per_percent") == pytest.approx(run.last("energy_j") / percent)
    assert run.last("compute_j") == pytest.approx(1e-10 * 6 * NODES * 8 * 3 * 2 * 650)
    assert run.summary()["energy_j"] == run.last("energy_j")


def test_operations_of_the_papers_cnn_are_those_of_its_layers():
    """Two for each multiplication and addition; its normalisation sums 32 channels as a product."""
    model = cnn((28, 28, 1), 10)
    layers = 784 * 25 * 32 + 196 * 25 * 32 * 32 + 1568 * 256 + 256 * 10
    normalisation = 2 * 196 * 32 * 32
    assert _of_model(model, (28, 28, 1), 430_698) == 2 * (layers + normalisation)
    small = make_problem(digits(), "mlp", 2)
    assert gradient_operations(small) == pytest.approx(3 * 2 * small.dim * np.asarray(small.count))
