"""Traces of devices: against a re-telling slot by slot, in runs, and refused where damaged."""

import json
import pickle
import tomllib
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkman.config.comparison import ConfigError, resolve, to_toml
from folkman.config.traces import (
    Availability,
    away,
    compute_slots,
    read_availability,
    read_capacity,
)
from folkman.faults import Faults
from shell import folkman

FORMATS = Path(__file__).parents[1] / "data" / "formats"
CAPACITY, AVAILABILITY = FORMATS / "capacity.csv", FORMATS / "availability.json"

PERIODS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), max_size=5)


def there(periods, finish, time):
    """Tell whether a client is there at a time, by FedScale's rule: the trace again and again."""
    local = time % finish
    return any(start <= local < end for start, end in periods)


@settings(max_examples=60, deadline=None)
@given(
    drawn=st.lists(st.tuples(PERIODS, st.integers(1, 40)), min_size=1, max_size=4),
    slot_s=st.sampled_from([0.5, 1.0, 3.0]),
)
def test_absences_are_those_of_every_slot(drawn, slot_s):
    slots = 50
    clients = {
        str(k): Availability(tuple(sorted((s, s + n) for s, n in periods)), float(finish))
        for k, (periods, finish) in enumerate(drawn)
    }

    found = away(clients, nodes=len(drawn), slots=slots, slot_s=slot_s)

    for node, (periods, finish) in enumerate(drawn):
        own = [(first, back) for each, first, back in found if each == node]
        for slot in range(slots):
            gone = any(first <= slot < back for first, back in own)
            assert gone != there([(s, s + n) for s, n in periods], finish, slot * slot_s)


def test_faults_know_who_is_away_in_each_slot():
    clients = read_availability(AVAILABILITY)
    faults = Faults(tuple(away(clients, nodes=4, slots=90, slot_s=1.0)), crash=((3, 80, None),))

    found = jax.vmap(lambda slot: faults.present(4, slot))(jnp.arange(90))

    for node, own in enumerate(clients.values()):
        assert own.finish_s == 40 + node
        for slot in range(90):
            expected = there(own.active_s, own.finish_s, slot) and not (node == 3 and slot >= 80)
            assert bool(found[slot, node]) == expected


def test_absences_are_whole_apart_and_in_order():
    clients = {"a": Availability(((0, 2), (1, 4), (6, 6), (8, 9)), float("inf"))}

    assert away(clients, nodes=1, slots=12, slot_s=1.0) == [(0, 4, 8), (0, 9, 12)]
    assert away({"a": Availability((), 5.0)}, nodes=1, slots=3, slot_s=1.0) == [(0, 0, 3)]
    assert away({"a": Availability(((0, 9),), 9.0)}, nodes=1, slots=30, slot_s=1.0) == []


def test_a_gradient_takes_three_times_its_inferences():
    capacity = read_capacity(CAPACITY)

    found = compute_slots(capacity, nodes=3, slot_s=0.5, samples=8, skip=1)

    assert list(capacity.values()) == [12.5, 25.0, 37.5, 50.0]
    # 3 x 8 samples of 25, 37.5 and 50 ms are 0.6, 0.9 and 1.2 s
    assert found == [2, 2, 3]
    assert compute_slots({"a": 100.0}, nodes=1, slot_s=0.1, samples=1) == [3]  # exactly three slots
    assert compute_slots({"a": 0.001}, nodes=1, slot_s=1.0, samples=1) == [1]


def small(**tables):
    return {"nodes": 3, "slots": 45, "seeds": [0], "batch": 8, **tables}


def test_a_configuration_holds_numbers_in_the_place_of_traces():
    raw = small(slot_s=0.5)
    raw |= {"compute_slots": {"trace": str(CAPACITY), "skip": 1}}
    raw |= {"faults": {"trace": str(AVAILABILITY), "loss": 0.1, "away": [[2, 1, 2]]}}

    comparison = resolve(raw)

    assert comparison.compute_slots == (2, 2, 3)
    clients = read_availability(AVAILABILITY)
    expected = [(2, 1, 2), *away(clients, nodes=3, slots=45, slot_s=0.5)]
    assert comparison.faults.away == tuple(expected)
    assert comparison.faults.loss == 0.1
    assert "trace" not in to_toml(comparison)
    assert resolve(tomllib.loads(to_toml(comparison))) == comparison


def test_both_formats_say_the_same(tmp_path):
    lines = ["client, active_s, inactive_s, finish_s"]
    for name, own in json.loads(AVAILABILITY.read_text()).items():
        for start, end in zip(own["active"], own["inactive"], strict=True):
            lines.append(f"{name},{start},{end},{own['finish_time']}")
    (tmp_path / "there.csv").write_text("\n".join(lines) + "\n")
    table = {name: {"computation": ms} for name, ms in read_capacity(CAPACITY).items()}
    (tmp_path / "able.json").write_text(json.dumps(table))

    assert read_availability(tmp_path / "there.csv") == read_availability(AVAILABILITY)
    assert read_capacity(tmp_path / "able.json") == read_capacity(CAPACITY)


def run(folder, *settings):
    words = [word for each in settings for word in ("--set", each)]
    small = ["nodes=3", "slots=12", "seeds=[0]", "data.train_size=60", "model.name=softmax"]
    words += [word for each in small for word in ("--set", each)]
    one = 'algorithm=[{name="async_sharing"}]'
    return folkman("run", *words, "--set", one, "--out", "r", cwd=folder)


def test_a_run_waits_for_slow_clients_and_misses_those_away(tmp_path):
    done = run(
        tmp_path,
        f"compute_slots.trace={CAPACITY}",
        "compute_slots.samples=8",
        "slot_s=0.3",
        f"faults.trace={AVAILABILITY}",
    )

    assert done.returncode == 0, done.stderr
    kept = tomllib.loads((tmp_path / "r" / "config.toml").read_text())
    assert kept["compute_slots"] == [1, 2, 3]


@pytest.mark.parametrize("name", ["client_device_capacity", "capacity.pkl"])
def test_pickles_are_refused_unread_with_how_to_convert_them(tmp_path, name):
    class Runs:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "was read",))

    (tmp_path / name).write_bytes(pickle.dumps({1: Runs()}))

    done = run(tmp_path, f"compute_slots.trace={name}", "compute_slots.samples=8")

    assert done.returncode == 2
    assert "is a pickle, which can run any code when it is read" in done.stderr
    assert "json.dump(pickle.load(" in done.stderr.replace("\n", "")
    assert not (tmp_path / "was read").exists()
    assert "Traceback" not in done.stderr


BAD = {
    "capacity": {
        "none": (None, "found none; check the path"),
        "a header": ("client,speed\n1,2\n", "line 1: expected the columns client, computation"),
        "no lines": ("client,computation\n", "expected clients, one or more"),
        "a word": ("client,computation\n1,2\n2,fast\n", "line 3: computation: expected a finite"),
        "no time": ("client,computation\n1,0\n", "line 2: expected computation above 0 ms"),
        "twice": ("client,computation\n1,2\n1,2\n", "line 3: client 1 stands twice"),
        "too few": ("client,computation\n1,2\n", "the trace has 1 clients, expected 3 for 3 nodes"),
        "too slow": (
            "client,computation\n1,1e12\n2,1\n3,1\n",
            "a gradient of client 1 would take .* lengthen slot_s",
        ),
    },
    "availability": {
        "a line": ("client,active_s,inactive_s\n1,5,2\n", "line 2: expected a period"),
        "a word": ("client,active_s,inactive_s\n1,x,2\n", "line 2: active_s: expected a finite"),
        "two ends": (
            "client,active_s,inactive_s,finish_s\n1,0,2,9\n1,4,5,8\n",
            "line 3: expected one finish_s for client 1",
        ),
        "no end": ("client,active_s,inactive_s,finish_s\n1,0,2,0\n", "finish_s above 0"),
    },
    "json": {
        "no JSON": ('{"1":\n\n}', "line 3: expected JSON"),
        "a list": ("[]", "expected an object client -> fields"),
        "no object": ('{"1": 3}', "client 1: expected an object, got 3"),
        "uneven": ('{"1": {"active": [1], "inactive": []}}', "active and inactive of one length"),
        "no fields": ('{"1": {}}', "found nothing; correct it"),
    },
}


@pytest.mark.parametrize(("kind", "case"), [(kind, case) for kind in BAD for case in BAD[kind]])
def test_a_damaged_trace_is_refused_with_its_place(tmp_path, kind, case):
    content, said = BAD[kind][case]
    path = tmp_path / ("trace.json" if kind == "json" else "trace.csv")
    if content is not None:
        path.write_text(content)
    key = "compute_slots" if kind == "capacity" else "faults"

    with pytest.raises(ConfigError, match=said):
        resolve(small(**{key: {"trace": str(path)}}))


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"compute_slots": {"trace": str(CAPACITY)}, "batch": None}, "'compute_slots.samples' is"),
        ({"compute_slots": {"trace": 3}}, "'compute_slots.trace' is a path"),
        (
            {"compute_slots": {"trace": str(CAPACITY), "mean": 3}},
            "unknown key 'compute_slots.mean'",
        ),
        ({"compute_slots": {"trace": str(CAPACITY), "passes": -1}}, "'compute_slots.passes' must"),
        ({"faults": {"trace": str(AVAILABILITY), "skip": 3}}, "lower nodes or skip"),
        ({"faults": {"trace": str(AVAILABILITY)}, "slot_s": {"base_s": 2.0}}, "slot_s as a number"),
    ],
)
def test_tables_that_do_not_fit_a_trace_are_refused(tables, said):
    with pytest.raises(ConfigError, match=said):
        resolve(small(**tables))
