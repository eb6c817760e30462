"""Links from files: the same rates and timelines as the radio they were taken from, and refusals."""

from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import folkman as fm
from folkman.keys import Stream, make_key
from folkman.radio import schedule
from folkman.radio.gains import gains, read_links
from folkman.radio.network import RadioNetwork
from folkman.radio.trace import record_timeline
from shell import folkman

NODES, SLOTS, BITS = 4, 30, 20_000
RADIO = RadioNetwork(interferers_per_cell=0.0, slot_s=1e-3, threshold_db=5.0)
SAMPLE = Path(__file__).parents[1] / "data" / "formats" / "links.csv"


def save(folder, name="links.npz", **arrays):
    path = folder / name
    if name.endswith(".npy"):
        np.save(path, arrays["gain"])
    else:
        np.savez(path, **arrays)
    return str(path)


def off(table):
    """Return all but the diagonal."""
    return np.asarray(table)[~np.eye(len(table), dtype=bool)]


def rates(network, key=None):
    """Return the spectral efficiency between all pairs, in one block."""
    key = jax.random.key(5) if key is None else key
    air = network.open_air(NODES, make_key(0, Stream.DELAY))
    return off(schedule.spectral_efficiency(network.sinr(air, key)))


def own_gains(seed=0):
    """Return the path gains of folkman's own radio."""
    return np.asarray(RADIO.open_air(NODES, make_key(seed, Stream.DELAY)).link)


def test_gains_of_the_radio_give_its_rates_under_the_same_fading(tmp_path):
    path = save(tmp_path, gain=own_gains())

    given = gains(path, nodes=NODES, slot_s=1e-3, threshold_db=5.0, fading="rayleigh")

    np.testing.assert_allclose(rates(given), rates(RADIO), rtol=1e-6)


@pytest.mark.parametrize("quantity", ["gain", "gain_db", "snr_db", "rate_bps"])
def test_one_block_of_the_radio_gives_its_rates_in_every_unit(tmp_path, quantity):
    air = RADIO.open_air(NODES, make_key(0, Stream.DELAY))
    snr = np.asarray(RADIO.sinr(air, jax.random.key(5)), np.float64)
    gain = snr * float(RADIO.noise_w) / 1.0  # 30 dBm are 1 W
    table = {
        "gain": gain,
        "gain_db": 10 * np.log10(gain),
        "snr_db": 10 * np.log10(snr),
        "rate_bps": RADIO.bandwidth_hz * np.log2(1 + snr),
    }[quantity]

    given = gains(save(tmp_path, **{quantity: table}), nodes=NODES)

    np.testing.assert_allclose(rates(given), rates(RADIO), rtol=1e-6)
    slots = given.cost_slots(
        given.open_air(NODES, make_key(0, Stream.DELAY)), BITS, jax.random.key(1)
    )
    np.testing.assert_allclose(
        off(slots) * given.slot_s, BITS / off(RADIO.bandwidth_hz * np.log2(1 + snr)), rtol=1e-6
    )


@pytest.mark.parametrize(
    "options",
    [{}, {"period": "node"}, {"allocation": "uniform"}, {"schedule": "index"}],
    ids=["epoch", "node", "uniform", "index"],
)
def test_the_timeline_on_given_gains_is_that_of_the_radio(tmp_path, options):
    path = save(tmp_path, "links.npy", gain=own_gains())

    given = gains(path, nodes=NODES, slot_s=1e-3, threshold_db=5.0, fading="rayleigh", **options)
    found = record_timeline(given, NODES, SLOTS, message_bits=BITS)
    wanted = record_timeline(replace(RADIO, **options), NODES, SLOTS, message_bits=BITS)

    assert wanted.held.max() > 3
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_table_holds_from_its_time_on(tmp_path):
    rng = np.random.default_rng(0)
    cube = rng.uniform(1e-12, 1e-10, (NODES, NODES, 3))
    path = save(tmp_path, gain=cube, time_s=[0.0, 2.0, 2.5])
    given = gains(path, nodes=NODES, slot_s=0.5)
    air = given.open_air(NODES, make_key(0, Stream.DELAY))

    for slot, table in ((0, 0), (3, 0), (4, 1), (5, 2), (6, 2), (100, 2)):
        now = given.next_air(air, jnp.asarray(slot), make_key(0, Stream.DELAY))
        np.testing.assert_allclose(off(now.link), off(cube[..., table]), rtol=1e-6)


@pytest.mark.parametrize("period", ["epoch", "node"])
def test_links_that_open_late_bring_nothing_before(tmp_path, period):
    """Node 1 hears node 0 from slot 10 on, and nobody hears anyone else."""
    cube = np.zeros((NODES, NODES, 2))
    cube[1, 0, 1] = 1e-8
    path = save(tmp_path, gain=cube, time_s=[0.0, 10.0])

    held = record_timeline(gains(path, period=period), NODES, SLOTS, message_bits=BITS).held

    assert held[:10].max() == 0
    assert held[-1, 1, 0] > 10
    held[:, 1, 0] = 0
    assert off(held[-1]).max() == 0


def test_a_csv_is_a_list_of_changes(tmp_path):
    lines = ["time_s, tx, rx, gain", "1.5,1,0,3e-9", "0,0,1,1e-9", "3,0,1,0", "0,1,2,5e-9"]
    (tmp_path / "links.csv").write_text("\n".join(lines) + "\n")

    found = read_links(tmp_path / "links.csv")

    assert found.start_s.tolist() == [0.0, 1.5, 3.0]
    assert found.values[:, 1, 0].tolist() == [1e-9, 1e-9, 0.0]
    assert found.values[:, 0, 1].tolist() == [0.0, 3e-9, 3e-9]
    assert found.values[:, 2, 1].tolist() == [5e-9] * 3
    assert found.values.sum() == pytest.approx(2 * 1e-9 + 2 * 3e-9 + 3 * 5e-9)


def test_the_sample_runs_by_the_command_line(tmp_path):
    settings = ["network.name=gains", f"network.path={SAMPLE}", "nodes=3", "slots=4", "seeds=[0]"]
    settings += ["data.train_size=40", "model.name=softmax", "slot_s=0.01"]
    words = [word for each in settings for word in ("--set", each)]
    methods = "algorithm=[{name='async_sharing'}, {name='dpsgd'}]".replace("'", '"')

    done = folkman("run", *words, "--set", methods, cwd=tmp_path)
    wrong = folkman("run", *words, "--set", methods, "--set", "nodes=2", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert wrong.returncode == 2
    assert "the links are of 3 nodes, the run has 2; set nodes = 3" in wrong.stderr
    assert "Traceback" not in wrong.stderr


def test_a_server_is_not_among_the_nodes(tmp_path):
    network = gains(save(tmp_path, gain=own_gains()))
    problem = fm.make_problem(fm.load("digits", train_size=40), "softmax", NODES)

    with pytest.raises(ValueError, match="'gains' does not carry uploads to a server"):
        fm.simulate(problem, network, fm.fedavg(), slots=2)
    with pytest.raises(ValueError, match="the gains are of 4 nodes, the run has 5"):
        record_timeline(network, 5, 2)


GOOD = np.full((2, 2), 1e-9)
BAD = {
    "no file": (None, "check the path"),
    "complex": ({"gain": GOOD.astype(complex)}, r"take the sum of abs\(a\)\*\*2 over paths"),
    "not square": ({"gain": np.ones((2, 3))}, r"expected gain of shape \(rx, tx\) or"),
    "two quantities": ({"gain": GOOD, "snr_db": GOOD}, "expected one of gain, gain_db"),
    "no quantity": ({"power": GOOD}, "found power; name the array by what it holds"),
    "negative": ({"gain": -GOOD}, "numbers of at least 0 in gain, got -1e-09 from node 1 to"),
    "not a number": ({"snr_db": GOOD * np.nan}, "expected numbers in snr_db, got nan"),
    "no times": ({"gain": np.ones((2, 2, 3))}, "expected time_s, the seconds from which"),
    "times that fall": (
        {"gain": np.ones((2, 2, 2)), "time_s": [0.0, 0.0]},
        "expected time_s to rise from 0",
    ),
    "times from 5": ({"gain": np.ones((2, 2, 2)), "time_s": [5.0, 6.0]}, "rise from 0"),
    "another unit": ({"rate_bps": GOOD * 1e30}, "check the unit of rate_bps"),
    "decibels as gains": ({"gain_db": GOOD + 500}, "gains of at most 400 dB"),
    "objects": ({"gain": np.array([[{}]], object)}, "expected plain numbers in"),
}


@pytest.mark.parametrize("case", BAD)
def test_arrays_that_are_no_links_are_refused(tmp_path, case):
    arrays, said = BAD[case]
    path = str(tmp_path / "none.npz") if arrays is None else save(tmp_path, **arrays)

    with pytest.raises((ValueError, FileNotFoundError), match=said):
        gains(path)


LINES = {
    "a header": (["time,tx,rx,gain", "0,0,1,1"], "line 1: expected the columns time_s, tx, rx"),
    "no line": (["time_s,tx,rx,gain"], "expected lines below the header"),
    "a word": (["time_s,tx,rx,gain", "0,0,1,1", "0,one,1,1"], "line 3: expected numbers"),
    "a missing column": (["time_s,tx,rx,gain", "0,0,1"], "line 2: expected numbers"),
    "the same node": (["time_s,tx,rx,gain", "0,1,1,1"], "line 2: .* two different nodes"),
    "before time": (["time_s,tx,rx,gain", "-1,0,1,1"], "line 2: expected time_s >= 0"),
    "a negative gain": (["time_s,tx,rx,gain", "0,0,1,-1"], "numbers of at least 0 in gain"),
}


@pytest.mark.parametrize("case", LINES)
def test_lines_that_are_no_links_are_refused(tmp_path, case):
    lines, said = LINES[case]
    (tmp_path / "links.csv").write_text("\n".join(lines) + "\n")

    with pytest.raises(ValueError, match=said):
        gains(str(tmp_path / "links.csv"))


def test_other_files_and_options_are_refused(tmp_path):
    (tmp_path / "links.pkl").write_bytes(b"\x80\x04.")
    with pytest.raises(ValueError, match=r"expected links as .npy, .npz or .csv, got links.pkl"):
        gains(str(tmp_path / "links.pkl"))
    with pytest.raises(ValueError, match="fading is 'none' or 'rayleigh', got 'rice'"):
        gains(str(SAMPLE), fading="rice")  # type: ignore[arg-type]
