"""What a call leaves out has the value that is written down: defaults are an interface."""

import inspect

import pytest

from folkman import MODELS, NETWORKS, Clock, Recording
from folkman.algorithm.pieces.hierarchy import Hierarchy
from folkman.energy import Energy
from folkman.experiment import cells
from folkman.packing import NONE
from folkman.problem import data, field, partition, problem
from folkman.radio import channel, geometry, latency, planning, replay, schedule, trace
from folkman.runtime import codec, mailbox, node, server_node

TABLE_3 = {  # of the paper, and docs/guide.md
    "threshold_db": 0.0,
    "allocation": "optimal",
    "period": "epoch",
    "slot_s": 1.0,
    "cell_radius_m": 500.0,
    "path_loss_exponent": 4.0,
    "bandwidth_hz": 10e6,
    "power_dbm": 30.0,
    "noise_dbm_per_hz": -174.0,
    "bits_per_parameter": 16,
    "kept_fraction": 1.0,
    "interferers_per_cell": 1.0,
    "interferer_radius_m": 8000.0,
    "speed_m_per_s": 0.0,
    "answers": "broadcast",
    "least_sinr_db": -20.0,
    "schedule": "threshold",
    "message": "copy",
    "control": "ideal",
    "control_bits": None,
    "contention_s": 1e-3,
    "weights": "alike",
    "thrift": 1.0,
}
CHANNEL = {"slots": 1.0, "message": "copy", "control": "ideal"}
CHANNEL |= {"contention_slots": 0.0, "weights": "alike"}
ON_AIR = {key: TABLE_3[key] for key in ("slot_s", "cell_radius_m", "bandwidth_hz", "power_dbm")}
ON_AIR |= {"noise_dbm_per_hz": -174.0, "path_loss_exponent": 2.0, "least_distance_m": 50.0}
ON_AIR |= {"send_chance": 0.5, "radius": 10.0, "frames": 1, "noise": "drawn"}
BITS = {"bits_per_parameter": None}  # as they are computed
SEED = {"seed": 0}
NOBODY = {"run": 0, "seed": 0, "wire": None}
DRAWN_QUADRATIC = {"nodes": 5, "dim": 10, "heterogeneity": 1.0, "condition": 10.0}

DEFAULTS = [
    (NETWORKS["ideal"], BITS),
    (NETWORKS["constant"], BITS),
    (NETWORKS["snapshot"], {"gamma": 5} | BITS),
    (NETWORKS["iid"], {"gamma": 5} | BITS),
    (NETWORKS["pipelined"], {"gamma": 5, "download_slots": None} | BITS),
    (NETWORKS["shared"], CHANNEL | BITS),
    (NETWORKS["over_air"], ON_AIR),
    (NETWORKS["radio"], TABLE_3),
    (
        NETWORKS["gains"],
        {"nodes": None, "slot_s": 1.0, "fading": "none", "threshold_db": 0.0}
        | {"allocation": "optimal", "period": "epoch", "bandwidth_hz": 10e6, "power_dbm": 30.0}
        | {"noise_dbm_per_hz": -174.0, "bits_per_parameter": 16, "least_sinr_db": -20.0}
        | {"schedule": "threshold", "message": "copy"},
    ),
    (NETWORKS["trace"], BITS | {"message": "copy", "alike": False}),
    (replay.replay, BITS | {"message": "copy", "alike": False}),
    (replay.replay_rounds, BITS),
    (replay.replay_star, BITS),
    (trace.record_timeline, SEED | {"message_bits": 16}),
    (channel.path_gain, {"exponent": 4.0}),
    (channel.link_gain, {"exponent": 4.0}),
    (channel.interferer_gain, {"exponent": 4.0}),
    (channel.sinr, {"power_w": 1.0}),
    (channel.sinr_draw, {"power_w": 1.0}),
    (geometry.interferers, {"inner_radius_m": 500.0, "outer_radius_m": 8000.0}),
    (geometry.waypoint_step, {"radius_m": 500.0}),
    (latency.payload_bits, {"bits_per_parameter": 16, "kept_fraction": 1.0}),
    (latency.training_latency_s, {"base_s": 1.0, "threshold": 128, "per_sample_s": 1e-3}),
    (schedule.bracket_search, {"num_coarse": 9, "tolerance_db": 0.25}),
    (schedule.expected_duration, {"whole": True}),
    (planning.Drops, {"number": 600, "slots": 200} | SEED),  # as `folkman radio` has them
    (planning.best_threshold, {"objective": "duration", "low_db": -20.0, "high_db": 20.0}),
    (planning.least_aged, {"low_db": -20.0, "high_db": 20.0}),
    (planning.sawtooth, {"slots": 120} | SEED),
    (data.quadratic, DRAWN_QUADRATIC | {"samples_per_node": 1, "noise": 0.0} | SEED),
    (data.gaussian, {"samples": 1000, "dim": 20, "noise": 0.1, "test_samples": 200} | SEED),
    (data.npz, {"regression": False}),
    (partition.dirichlet, {"concentration": 0.3} | SEED),
    (partition.shards, {"shards_per_node": 2} | SEED),
    (MODELS["linear"], {"intercept": False}),
    (MODELS["mlp"], {"hidden": (64,)}),
    (MODELS["cnn"], {"precision": "float32"}),
    (MODELS["conv1d"], {"channels": (16, 32), "width": 5, "pool": 2}),
    (MODELS["gru"], {"hidden": 32, "embedding": 0, "vocabulary": None}),
    (
        problem.make_problem,
        {"l2": 0.0, "batch": None, "dtype": "float32", "prepare": True}
        | {"objective": "samples", "sampling": "replacement", "local_tests": None}
        | SEED,
    ),
    (field.make_field, {"batch": None, "l2": 0.0} | SEED),
    (
        cells.simulate_cells,
        {"at_once": None, "clock": Clock(), "recording": Recording(), "engine": "here"}
        | {"workers": None, "tls": ()}
        | SEED,
    ),
    (
        Energy,  # docs/energy.md
        {"radiated_w": None, "amplifier_efficiency": 0.35, "transmit_circuit_w": 0.0828}
        | {"receive_w": 0.1058, "idle_w": 0.0, "joules_per_operation": 1e-10}
        | {"joules_per_gradient": None, "link_bits_per_s": 10e6},
    ),
    (Hierarchy, {"backhaul_slots": 0}),
    (node.Node, NOBODY),
    (server_node.ServerNode, NOBODY),
    (node.Wire, {"run": 0, "sign": None, "dtype": None, "packing": NONE}),
    (mailbox.Checks, {"verify": None, "largest": 1e6, "farthest": 10.0}),  # docs/protocol.md
    (
        mailbox.Mailbox,
        {"first_sender": 0, "note_broken": False, "in_rounds": False, "loses_nothing": False},
    ),
    (codec.Message, {"round": 0, "base": None}),
]


@pytest.mark.parametrize(("build", "written"), DEFAULTS, ids=[f.__name__ for f, _ in DEFAULTS])
def test_defaults_are_those_that_are_written_down(build, written):
    found = {
        each.name: each.default
        for each in inspect.signature(build).parameters.values()
        if isinstance(each.default, int | float | str | tuple | None)
        and not isinstance(each.default, mailbox.Checks)
    }

    assert found == written


def test_every_network_and_model_with_options_is_in_the_table():
    written = {build for build, _ in DEFAULTS}

    for builders in (NETWORKS, MODELS, partition.PARTITIONS):
        for name in builders:
            options = inspect.signature(builders[name]).parameters.values()
            if any(isinstance(each.default, int | float | str | tuple) for each in options):
                assert builders[name] in written, name
