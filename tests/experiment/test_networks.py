"""What a comparison says of its networks: in words, and where methods are not charged alike."""

import json

import numpy as np
import pytest

from folkman import async_sharing, compare, dpsgd, fedavg, ideal, iid, pipelined, snapshot, swift
from folkman.config.comparison import resolve
from folkman.config.text import DEFAULT
from folkman.engine.simulate import Recording, Simulation, simulate
from folkman.experiment.parts import Part, parts
from folkman.experiment.run import network_lines
from folkman.radio.loss import Lossy
from folkman.radio.network import RadioNetwork
from folkman.record.run import Run
from shell import folkman


def of(problem, *arms):
    """Return a run of each (label, network, algorithm)."""
    return [
        Part(Run(algorithm.name, label, 0), Simulation(problem, network, algorithm), 4, "")
        for label, network, algorithm in arms
    ]


def test_on_the_network_of_the_demo_a_message_takes_as_long_for_every_method(quadratics):
    """Between peers, in a round, to a server and back: five slots; a gradient takes one more."""
    network = next(iter(parts(resolve(DEFAULT)))).simulation.network
    problem, slots, trip = quadratics(nodes=4), 60, 5

    peers, rounds, server = (
        simulate(problem, network, each, slots=slots, recording=Recording(slots, timeline=True))
        for each in (async_sharing(0.01), dpsgd(0.01), fedavg(0.01))
    )

    ages = np.arange(slots)[:, None, None] - peers.timeline.held
    assert ages[3 * trip :][:, ~np.eye(4, dtype=bool)].min() == trip
    assert rounds.last("rounds") == slots / (1 + trip)
    started, arrived = (
        np.flatnonzero(each[:, 0])
        for each in (server.timeline.up_started, server.timeline.up_arrived)
    )
    assert arrived[0] - started[0] == trip
    assert (np.diff(started) == 1 + 2 * trip).all()  # a gradient, the upload and the answer


def test_one_law_for_all_is_one_line(quadratics):
    problem = quadratics(nodes=2)
    for network in (pipelined(5), snapshot(5)):
        alone = of(problem, ("A", network, async_sharing()), ("S", network, swift()))
        assert network_lines(alone) == [network.in_words()]
    mixed = of(problem, ("A", pipelined(5), async_sharing()), ("F", pipelined(5), fedavg()))
    assert network_lines(mixed) == [
        "pipelined: every transfer takes 5 slots, to a server and back as well"
    ]


def test_only_methods_that_take_turns_are_told_how_messages_follow_each_other(quadratics):
    problem, fresh = quadratics(nodes=2), RadioNetwork(schedule="index", message="sum")

    for network in (fresh, Lossy(fresh, 0.1)):
        lines = network_lines(
            of(problem, ("A", network, async_sharing()), ("F", network, fedavg()))
        )

        assert lines == [f"{network.in_words()} (A)", f"{network.turns_in_words} (F)"]
        assert "weighted sum" in lines[0]
        assert "follow each other" not in lines[0]
        assert "follow each other, each waiting for a good slot" in lines[1]
        assert "sum" not in lines[1]
    paper = RadioNetwork()
    same = network_lines(of(problem, ("A", paper, async_sharing()), ("F", paper, fedavg())))
    assert same == [paper.in_words()]


@pytest.mark.parametrize(
    "network",
    [snapshot(5), iid(5), Lossy(snapshot(5), 0.1)],
    ids=["snapshot", "iid", "lossy snapshot"],
)
def test_a_law_of_age_that_charges_some_and_not_others_is_said(quadratics, network):
    problem = quadratics(nodes=2)
    lines = network_lines(
        of(problem, ("A", network, async_sharing()), ("F", network, fedavg()))
        + of(problem, ("D", network, dpsgd()), ("G", ideal(), fedavg()))
    )

    assert lines[0] == f"{network.in_words()} (A, F, D)"
    assert "transfers take no time for A, and gamma slots for F, D" in lines[1]
    assert lines[2:] == ["ideal: messages take no time (G)"]


def test_the_folder_the_report_and_the_comparison_say_it(quadratics, tmp_path):
    place = tmp_path / "run"
    methods = {"Algorithm 1": async_sharing(), "FedAvg": fedavg()}
    compare(quadratics(nodes=2), snapshot(3), methods, slots=4, seeds=(0,), out=place)

    said = json.loads((place / "provenance.json").read_text())["networks"]
    assert said[0].startswith("snapshot: periodic refresh every 3 slots, transfers take no time")
    assert said[1].startswith("not like for like")
    assert all(line in (place / "report.html").read_text() for line in said)
    for form in ("text", "markdown", "latex"):
        shown = folkman("compare", str(place), "--format", form, cwd=tmp_path).stdout
        assert all(line in shown for line in said)
