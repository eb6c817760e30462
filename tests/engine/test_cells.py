"""Many cells at once are the same cells one by one."""

import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

import folkman as fm
from folkman.engine import cells
from folkman.engine.simulate import Recording, simulate
from folkman.experiment.cells import simulate_cells
from folkman.problem.field import make_field
from folkman.radio.network import RadioNetwork
from folkman.radio.replay import replay
from folkman.radio.trace import record_timeline
from shell import python

SLOTS = 12
METHODS = {
    "sharing on the radio": (
        lambda: RadioNetwork(threshold_db=0.0),
        lambda: fm.async_sharing(step=0.5),
    ),
    "sharing, snapshots": (lambda: fm.snapshot(gamma=3), lambda: fm.async_sharing(step=0.5)),
    "a server": (fm.ideal, lambda: fm.fedavg(step=0.5)),
    "lock-step": (fm.ideal, lambda: fm.dpsgd(step=0.5)),
}


def field(number=3):
    data = fm.load("digits", train_size=200, test_size=50)
    return make_field(data, "softmax", cells=number, nodes=4, samples=20, batch=5, seed=7)


@pytest.mark.parametrize("method", METHODS)
def test_a_cell_among_many_is_that_cell_alone(method):
    network, algorithm = (build() for build in METHODS[method])
    many = field()
    together = simulate_cells(
        many, network, algorithm, slots=SLOTS, seed=3, recording=Recording(every=5)
    )

    seeds = np.random.SeedSequence(3).generate_state(3)
    alone = []
    for cell, seed in enumerate(seeds):
        stacked = many.problem(range(cell, cell + 1))
        own = {name: getattr(stacked, name)[0] for name in ("x", "y", "count", "share", "node")}
        problem = replace(stacked, **own)
        alone.append(
            simulate(
                problem,
                network,
                algorithm,
                slots=SLOTS,
                seed=int(seed),
                recording=Recording(every=5),
            )
        )

    np.testing.assert_allclose(together.model, [run.model for run in alone], rtol=2e-4, atol=2e-6)
    for name in (
        "train_loss",
        "test_accuracy",
        "consensus",
        "gradients",
        "rounds",
        "mean_age",
        "kappa",
        "gamma_t",
    ):
        expected = np.mean([run.column(name) for run in alone], axis=0)
        np.testing.assert_allclose(
            together.column(name), expected, rtol=2e-4, atol=1e-6, err_msg=name
        )
    for name in ("bits", "bits_unicast"):
        assert together.column(name) == list(np.sum([run.column(name) for run in alone], axis=0))
    assert together.last("max_age") == max(run.last("max_age") for run in alone)


def test_how_many_run_at_once_does_not_matter():
    runs = [
        simulate_cells(
            field(5), fm.snapshot(gamma=3), fm.async_sharing(step=0.5), slots=SLOTS, at_once=size
        )
        for size in (1, 2, 5)
    ]

    for run in runs[1:]:
        np.testing.assert_allclose(run.model, runs[0].model, rtol=1e-5, atol=1e-7)
        assert run.column("slots") == runs[0].column("slots")
        assert run.column("bits") == runs[0].column("bits")
        np.testing.assert_allclose(
            run.column("train_loss"), runs[0].column("train_loss"), rtol=1e-5
        )


def test_seconds_are_slots_times_their_length():
    clock = fm.Clock(slot_s=0.5)

    run = simulate_cells(
        field(2), fm.ideal(), fm.fedavg(step=0.5), slots=6, clock=clock, recording=Recording(3)
    )

    assert run.column("seconds") == [0.0, 1.5, 3.0]


def test_nodes_of_a_field_hold_distinct_samples_of_their_own():
    whole = field(2).problem(range(2))
    again = field(2).problem(range(1, 2))

    np.testing.assert_array_equal(whole.x[1], again.x[0])
    images = np.asarray(whole.x).reshape(8, 20, -1)
    assert all(len(np.unique(node, axis=0)) == 20 for node in images)
    assert not np.array_equal(images[0], images[1])
    assert np.asarray(whole.node).ravel().tolist() == list(range(8))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [({"cells": 0}, "a cell and a node at least"), ({"samples": 201}, "1 to 200 samples")],
)
def test_impossible_fields_are_refused(wrong, says):
    data = fm.load("digits", train_size=200, test_size=50)
    with pytest.raises(ValueError, match=says):
        make_field(data, "softmax", **({"cells": 2, "nodes": 4, "samples": 20} | wrong))
    with pytest.raises(ValueError, match="neither timelines"):
        simulate_cells(
            field(), fm.ideal(), fm.fedavg(), slots=2, recording=Recording(timeline=True)
        )


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"slots": 0}, "must be at least 1, got 0"),
        ({"slots": 2, "recording": Recording(every=0)}, "at least 1, got 2 and 0"),
        ({"slots": 2, "at_once": 0}, "at least one cell must run at once, got 0"),
        ({"slots": 2, "clock": fm.Clock(slot_s=0.5)}, "the same slot_s"),
    ],
)
def test_impossible_runs_of_cells_are_refused(options, says):
    with pytest.raises(ValueError, match=says):
        simulate_cells(field(), RadioNetwork(), fm.async_sharing(), **options)


def test_cells_do_not_run_beyond_what_was_recorded():
    recorded = replay(record_timeline(fm.snapshot(gamma=2), 4, 6))
    one = field(1)

    assert simulate_cells(one, recorded, fm.async_sharing(), slots=6).last("slots") == 6
    with pytest.raises(ValueError, match="recorded for 6 slots, the run asks for 7"):
        simulate_cells(one, recorded, fm.async_sharing(), slots=7)


@pytest.mark.parametrize("nodes", [10, 100])
@pytest.mark.parametrize("dim", [1_000, 50_000])
@pytest.mark.parametrize("cell_bytes", [0, 3_000_000])
def test_by_default_as_many_cells_run_at_once_as_fit_in_a_gigabyte(nodes, dim, cell_bytes):
    """A cell has its samples, and of each node some float32 vectors."""
    many: Any = SimpleNamespace(
        first=SimpleNamespace(num_nodes=nodes, dim=dim), cell_bytes=cell_bytes, num_cells=10**5
    )

    portions = cells.portions(many, None)

    own = cell_bytes + cells.COPIES * nodes * dim * np.dtype(np.float32).itemsize
    assert len(portions[0]) * own <= 1e9 < (len(portions[0]) + 1) * own
    assert [cell for portion in portions for cell in portion] == list(range(10**5))


def test_a_cell_that_does_not_fit_runs_alone():
    large: Any = SimpleNamespace(
        first=SimpleNamespace(num_nodes=100, dim=10**7), cell_bytes=10**10, num_cells=3
    )

    assert cells.portions(large, None) == [range(1), range(1, 2), range(2, 3)]


AS_TWO = """
from folkman.problem import cores
cores.use_cores(2)
cores.WORTH = 0
import jax
assert len(jax.devices()) == 2
"""
ON_ANY = """
import folkman as fm
import numpy as np
problem = fm.make_problem(fm.load("digits", train_size=200, test_size=50), "softmax", 4, batch=5)
field = fm.make_field(fm.load("digits", train_size=200, test_size=50), "softmax", cells=4, nodes=4, samples=20, batch=5)
run = fm.simulate_cells(field, fm.ideal(), fm.fedavg(step=0.5), slots=20)
print(run.model.astype(np.float64).tobytes().hex(), run.last("train_loss"))
for network, algorithm in ((fm.snapshot(gamma=3), fm.async_sharing(step=0.5)), (fm.ideal(), fm.fedavg(step=0.5))):
    run = fm.simulate(problem, network, algorithm, slots=20)
    print(run.nodes.astype(np.float64).tobytes().hex(), run.last("train_loss"))
"""


def test_two_cores_compute_what_one_does(tmp_path):
    """Devices are made before JAX starts, so two are of another process; one is of this one."""
    command = [sys.executable, "-c", AS_TWO + ON_ANY]
    other = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    own = python("-c", ON_ANY, cwd=tmp_path)
    assert own.returncode == 0, own.stderr
    found = []
    for done in (own, other):
        lines = [line.split() for line in done.stdout.splitlines()]
        found.append([(np.frombuffer(bytes.fromhex(nodes)), float(loss)) for nodes, loss in lines])
    assert len(found[0]) == 3

    for (one, loss_one), (two, loss_two) in zip(*found, strict=True):
        np.testing.assert_allclose(two, one, rtol=1e-5, atol=1e-7)
        assert loss_two == pytest.approx(loss_one, rel=1e-5)


def test_this_process_has_one_device():
    """The other tests are about one: a second would hide what `use_cores` changes."""
    assert len(jax.devices()) == 1
