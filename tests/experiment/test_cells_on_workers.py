"""Cells in other processes: the numbers of one process, whoever computes them and whoever dies."""

import os
import signal
import socket
import threading
from contextlib import ExitStack, closing
from dataclasses import replace

import numpy as np
import pytest
from dask_cluster import authority, await_line, dask

import folkman as fm
from folkman.engine.cells import joined
from folkman.engine.simulate import Recording
from folkman.experiment import cells
from folkman.experiment.engines import engine_for, processes
from folkman.experiment.sweep import crew_for
from folkman.problem.field import make_field
from folkman.radio.cells import radio_cells
from folkman.radio.network import RadioNetwork

CELLS, NODES, SLOTS, AT_ONCE = 6, 4, 12, 2
RULES = {
    "the paper's rule": RadioNetwork(threshold_db=-5.0),
    "fresh air": RadioNetwork(schedule="index", message="sum"),
}


def small_field(number=CELLS):
    data = fm.load("digits", train_size=200, test_size=50)
    return make_field(data, "softmax", cells=number, nodes=NODES, samples=20, batch=5, seed=7)


def run(rule, **where):
    network = radio_cells(RULES[rule], cells=CELLS, nodes=NODES, seed=2)
    options = {"slots": SLOTS, "seed": 3, "recording": Recording(every=6), "at_once": AT_ONCE}
    return fm.simulate_cells(small_field(), network, fm.async_sharing(0.5), **options, **where)


def assert_same_bits(one, other):
    np.testing.assert_array_equal(one.model, other.model)
    assert len(one.rows) == len(other.rows) == 3
    for name in one.rows[0]:
        np.testing.assert_array_equal(one.column(name), other.column(name), err_msg=name)


@pytest.mark.process
@pytest.mark.parametrize(
    "rule", ["the paper's rule", pytest.param("fresh air", marks=pytest.mark.slow)]
)
def test_two_workers_of_which_one_is_killed_give_the_bits_of_one_process(rule, monkeypatch):
    """The worker that is given the second portion is killed with it in hand."""
    given, give = [], processes._Worker.give

    def give_and_kill(worker, order):
        give(worker, order)
        given.append((order["key"], worker.process.pid))
        if len(given) == 2:
            worker.process.send_signal(signal.SIGKILL)

    monkeypatch.setattr(processes._Worker, "give", give_and_kill)

    found = run(rule, engine="processes", workers=2)

    keys = [key for key, _ in given]
    assert keys.count(keys[1]) == 2  # once more, by another worker
    assert sorted(set(keys)) == ["cells 0 to 1", "cells 2 to 3", "cells 4 to 5"]
    assert_same_bits(found, run(rule))


@pytest.mark.process
@pytest.mark.slow
def test_a_local_dask_cluster_gives_the_bits_of_one_worker():
    one = run("the paper's rule", engine="processes", workers=1)

    assert_same_bits(one, run("the paper's rule", engine="dask", workers=2))


@pytest.mark.process
@pytest.mark.slow
def test_a_worker_killed_on_a_cluster_with_certificates_costs_no_number(tmp_path):
    """The worker of the first portion that ended is killed, in the middle of another."""
    tls = authority(tmp_path / "friend", "friend", ["127.0.0.1"])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    address, log = f"tls://127.0.0.1:{port}", tmp_path / "scheduler.log"
    work = cells.CellWork(small_field(), fm.snapshot(gamma=3), fm.async_sharing(0.5), 400)
    parts, found = cells.spread(work.field, AT_ONCE), {}
    with ExitStack() as stack:
        at = ("scheduler", "--host", "127.0.0.1", "--port", port, "--protocol", "tls")
        stack.enter_context(dask(*at, tls=tls, log=log))
        await_line(log, "Scheduler at")
        for name in ("one", "two"):
            worker = ("worker", address, "--nthreads", "1", "--nworkers", "1", "--name", name)
            stack.enter_context(dask(*worker, tls=tls, log=tmp_path / f"{name}.log"))
        crew = crew_for(address, None, None, *(str(tls[name]) for name in ("ca", "cert", "key")))
        with closing(engine_for(crew)) as hands:
            for done in cells.portions_on(hands, work, parts):
                if not found:
                    os.kill(int(done.told["worker"].split(":")[1]), signal.SIGKILL)
                found[done.cells] = done.portion

    together = joined(work, [found[part] for part in parts])
    alone = fm.simulate_cells(*work[:3], slots=400, at_once=AT_ONCE)
    np.testing.assert_array_equal(together.model, alone.model)


def test_how_cells_are_cut_for_workers_does_not_depend_on_the_machine():
    """A 32nd of the cells at most, as many as fit in a gigabyte at most, or as asked for."""
    assert [len(part) for part in cells.spread(small_field(100))] == [4] * 25
    assert [len(part) for part in cells.spread(small_field(5))] == [1] * 5
    assert [len(part) for part in cells.spread(small_field(100), 40)] == [40, 40, 20]


def test_a_field_is_sent_without_what_it_keeps_beside_the_data():
    field = small_field()
    work = cells.CellWork(field, fm.ideal(), fm.fedavg(0.5), SLOTS)
    fresh = len(cells._packed(work))

    field.problem(range(1))  # keeps the samples on the device

    assert len(cells._packed(work)) == fresh


def test_a_portion_survives_its_file_to_the_bit(tmp_path):
    work = cells.CellWork(small_field(2), fm.snapshot(gamma=2), fm.async_sharing(0.5), 4)
    order = {"group": "here", "version": fm.__version__, "x64": False, "products": None}
    cells._HELD["here"] = work

    cells.make_portion({**order, "work": b"", "cells": [0, 2]}, tmp_path)

    known, found = cells.run_portion(work, range(2)), cells._read(tmp_path / cells.KEPT)
    np.testing.assert_array_equal(found.models, known.models)
    np.testing.assert_equal(found.rows, known.rows)  # some are NaN
    assert not list(tmp_path.iterdir())  # and its room is given back
    with pytest.raises(ValueError, match=r"has folkman .*, expected 0\.0\.1"):
        cells.make_portion({**order, "version": "0.0.1"}, tmp_path)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"engine": "rocket"}, "expected 'here', 'processes', 'dask', or an address"),
        ({"engine": "processes", "workers": 0}, "must be at least 1, got 0"),
        ({"engine": "processes", "at_once": 0}, "at least one cell must run at once, got 0"),
        ({"engine": "tls://127.0.0.1:8786"}, r"tls=\(authority, certificate, key\)"),
        ({"engine": "tls://127.0.0.1:8786", "tls": ("ca.pem",)}, "add --tls-cert, --tls-key"),
        ({"engine": "tls://127.0.0.1:8786", "tls": ("a", "b", "c")}, "there is no a"),
        ({"engine": "processes", "tls": ("a", "b", "c", "d")}, "an authority, a certificate"),
        ({"engine": "processes", "slots": 0}, "must be at least 1, got 0"),
    ],
)
def test_wrong_workers_are_refused_before_any_starts(wrong, says):
    options = {"slots": 2} | wrong
    with pytest.raises(ValueError, match=says):
        fm.simulate_cells(small_field(2), fm.ideal(), fm.fedavg(0.5), **options)


def test_what_cannot_be_sent_is_refused_with_what_to_do(monkeypatch):
    field, algorithm = small_field(2), replace(fm.fedavg(0.5), name=threading.Lock())
    with pytest.raises(ValueError, match=r"cannot be sent to workers: .*engine='here'"):
        cells._packed(cells.CellWork(field, fm.ideal(), algorithm, 2))

    monkeypatch.setattr(cells, "find_spec", lambda _: None)
    with pytest.raises(ValueError, match=r"needs? the package cloudpickle.*folkman\[dask\]"):
        cells._packed(cells.CellWork(field, fm.ideal(), fm.fedavg(0.5), 2))
