"""Stopped and taken up again: the same bits, and a clear word about a file that does not fit."""

import jax
import numpy as np
import pytest

from folkman import Clock, Recording, async_sharing, fedavg, iid, load, make_problem, pipelined
from folkman.engine import checkpoint
from folkman.engine.simulate import Simulation, march, outcome, start

CLOCK = Clock(compute_slots=(1, 2, 1, 3))


@pytest.fixture(scope="module")
def problem():
    return make_problem(load("digits", train_size=200), "mlp", 4, batch=8, seed=3)


def simulation(problem, algorithm, network):
    return Simulation(problem, network, algorithm, CLOCK, Recording(4))


@pytest.mark.parametrize(
    ("algorithm", "network"),
    [(async_sharing(0.1), pipelined(3)), (fedavg(0.05, 2, "adam"), iid(4))],
    ids=["async_sharing", "fedavg"],
)
def test_a_resumed_run_is_bit_identical(problem, algorithm, network, tmp_path):
    sim = simulation(problem, algorithm, network)
    whole = list(march(sim, start(sim, 7), 25))

    stopped = [*zip(range(4), march(sim, start(sim, 7), 25), strict=False)][-1][1][0]
    checkpoint.save(stopped, tmp_path / "c.safetensors", "run")
    loaded = checkpoint.load(tmp_path / "c.safetensors", start(sim, 7), "run")
    rest = list(march(sim, loaded, 25))

    assert str([row for _, row in whole[4:]]) == str([row for _, row in rest])
    for a, b in zip(
        jax.tree.leaves(whole[-1][0].carry), jax.tree.leaves(rest[-1][0].carry), strict=True
    ):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(outcome(sim, whole[-1][0])[1], outcome(sim, rest[-1][0])[1])


def test_a_checkpoint_that_does_not_fit_is_refused(problem, tmp_path):
    sim = simulation(problem, async_sharing(0.1), pipelined(3))
    path = tmp_path / "c.safetensors"
    checkpoint.save(start(sim, 7), path, "run")

    with pytest.raises(ValueError, match="belongs to another run"):
        checkpoint.load(path, start(sim, 7), "other")
    other = Simulation(
        make_problem(load("digits", train_size=200), "mlp", 3), pipelined(3), async_sharing(0.1)
    )
    with pytest.raises(ValueError, match=r"should be .*; delete it to start this run again"):
        checkpoint.load(path, start(other, 7), "run")
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(ValueError, match="is damaged"):
        checkpoint.load(path, start(sim, 7), "run")
    from safetensors.numpy import save_file

    save_file({"a": np.zeros(1)}, path)
    with pytest.raises(ValueError, match="expected a file of format"):
        checkpoint.load(path, start(sim, 7), "run")


def test_nothing_is_left_of_a_checkpoint_that_cannot_be_written(problem, tmp_path, monkeypatch):
    sim = simulation(problem, async_sharing(0.1), pipelined(3))

    def full(arrays, path, metadata):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("safetensors.numpy.save_file", full)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save(start(sim, 7), tmp_path / "c.safetensors")

    assert list(tmp_path.iterdir()) == []
