"""Every method that a node runs without JAX gives JAX's numbers: one contract over both."""

import os
import subprocess
import sys

import numpy as np
import pytest

from light import two_arithmetics as two

TOLERANCE = 1e-6


@pytest.fixture(scope="module")
def without_jax(tmp_path_factory):
    """Return what nodes held in a process that refuses to import JAX."""
    place = tmp_path_factory.mktemp("numpy") / "held.npz"
    done = subprocess.run(
        [sys.executable, two.__file__, str(place)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == "numpy JAX is not installed []"
    return dict(np.load(place))


@pytest.mark.parametrize("name", two.cases())
def test_nodes_hold_what_they_hold_under_jax(name, without_jax):
    wanted = two.run(*two.cases()[name])

    assert np.isfinite(wanted["params"]).all()
    assert np.ptp(wanted["losses"]) > 0  # something was learnt, and not in one step
    assert (wanted["heard"].max(axis=1) > 1).all()  # messages went round
    compare(name, wanted, without_jax)


def compare(name, wanted, held):
    """Check that what was held is the same, in the same types and shapes."""
    for part, value in wanted.items():
        found = held[f"{name}/{part}"]
        assert found.dtype == value.dtype
        assert found.shape == value.shape
        scale = max(np.abs(value).max(), 1.0)
        np.testing.assert_allclose(found, value, rtol=0, atol=TOLERANCE * scale)


@pytest.mark.parametrize("name", two.STARS)
def test_nodes_around_a_server_hold_what_they_hold_under_jax(name, without_jax):
    wanted = two.run_around(*two.STARS[name])

    assert wanted["rounds"] > (0 if name == "adafl" else 3)
    assert np.abs(wanted["model"]).max() > 0
    compare(name, wanted, without_jax)


@pytest.mark.parametrize("name", two.CELLS)
def test_nodes_in_cells_hold_what_they_hold_under_jax(name, without_jax):
    wanted = two.run_in_cells(two.CELLS[name])

    assert (wanted["rounds"] > 2).all()
    assert np.ptp(wanted["params"]) > 0
    compare(name, wanted, without_jax)


@pytest.mark.parametrize("name", two.PACKINGS)
def test_packed_messages_are_the_same_bytes(name, without_jax):
    np.testing.assert_array_equal(two.packed(name)["bytes"], without_jax[f"{name}/bytes"])


@pytest.mark.parametrize("name", two.LAWS)
def test_emulated_networks_deliver_what_they_deliver_under_jax(name, without_jax):
    wanted = two.emulated(*two.LAWS[name])

    assert wanted["linked"].any()
    assert np.ptp(wanted["held"]) > 2
    compare(name, wanted, without_jax)


@pytest.mark.parametrize("message", two.MESSAGES)
def test_the_next_message_on_a_shared_channel_is_the_same(message, without_jax):
    wanted = two.chosen_air(message)

    assert wanted["receivers"].any()
    assert wanted["value"] > 0
    compare(f"fresh_{message}", wanted, without_jax)
