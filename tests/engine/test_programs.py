"""Compiled programs: one for all that is alike, the least used given back, never many."""

import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folkman import (
    Clock,
    Place,
    Recording,
    async_sharing,
    constant,
    fedavg,
    ideal,
    load,
    make_problem,
    simulate,
    snapshot,
)
from folkman.engine import metrics, node_measures, programs
from folkman.engine import simulate as engine
from folkman.engine.programs import MOST_KEPT, Programs, compiled


@pytest.fixture
def small():
    return make_problem(load("digits", train_size=40), "softmax", 3)


def by_hand(step):
    """Return a method that is equal to itself alone, as one without a recipe is."""
    return replace(async_sharing(step), name="by hand")


def counted(**options):
    """Return a function that multiplies, kept as programs, and the list of its tracings."""
    traced = []

    @compiled(**options)
    def times(x, factor, more=0.0):
        traced.append(1)
        return jax.tree.map(lambda leaf: leaf * factor + more, x)

    return times, traced


def test_numbers_are_arguments_and_structures_are_not():
    times, traced = counted()

    assert times(jnp.ones(2), 3.0).tolist() == [3.0, 3.0]
    assert times(jnp.ones(2), 4.0).tolist() == [4.0, 4.0]
    assert (len(times), len(traced)) == (1, 1)
    assert times((jnp.ones(2),), 4.0)[0].tolist() == [4.0, 4.0]
    assert (len(times), len(traced)) == (2, 2)
    assert times(jnp.ones(2), 3.0, more=1.0).tolist() == [4.0, 4.0]
    assert times(jnp.ones(2), 3.0, more=2.0).tolist() == [5.0, 5.0]
    assert (len(times), len(traced)) == (3, 3)


def test_a_fixed_argument_is_a_number_that_python_can_look_at():
    @compiled(fixed=(0, 2))
    def repeated(often, x, turned):
        for _ in range(often):
            x = x + 1
        return -x if turned else x

    assert repeated(3, jnp.zeros(()), False) == 3
    assert repeated(5, jnp.zeros(()), False) == 5
    assert repeated(5, jnp.ones(()), True) == -6
    assert repeated(5, jnp.zeros(()), True) == -5
    assert len(repeated) == 3


def test_both_precisions_have_a_program():
    times, traced = counted()

    with jax.enable_x64(True):
        wide = times(np.float64(1 / 3), 1.0)
    narrow = times(np.float64(1 / 3), 1.0)

    assert (wide.dtype, narrow.dtype) == (jnp.float64, jnp.float32)
    assert float(wide) == 1 / 3 != float(narrow)
    assert (len(times), len(traced)) == (2, 2)


def test_an_argument_that_is_given_away_is_gone():
    add = compiled(fixed=(0,), donated=1)(lambda often, x: x + often)
    given = jnp.ones(1000)

    after = add(2, given)

    assert after[0] == 3
    assert given.is_deleted()


def test_the_program_that_was_used_longest_ago_is_given_back(monkeypatch):
    monkeypatch.setattr(programs, "MOST_KEPT", 3)
    times, traced = counted(fixed=(1,))

    def use(*factors):
        """Return how many programs had to be compiled."""
        before = len(traced)
        for factor in factors:
            assert times(jnp.ones(()), factor) == factor
        return len(traced) - before

    assert use(1, 2, 3) == 3
    assert use(1) == 0
    assert use(4) == 1  # 2 was used longest ago
    assert len(times) == 3
    assert use(1, 3, 4) == 0
    assert use(2) == 1
    assert use(3, 4, 2) == 0  # and now 1 is gone
    assert use(1) == 1


def test_it_looks_like_the_function_it_runs():
    def named(x):
        """Say something."""
        return x

    found = Programs(named)

    assert [getattr(found, name) for name in ("__name__", "__doc__")] == ["named", "Say something."]
    assert len(found) == 0


def traces_of(monkeypatch, program, work):
    """Return how often a function is traced while `work` runs from nothing."""
    traced, function = [], program._function

    def noting(*args):
        traced.append(1)
        return function(*args)

    monkeypatch.setattr(program, "_kept", type(program._kept)())
    monkeypatch.setattr(program, "_function", noting)
    work()
    return len(traced)


@pytest.mark.parametrize("build", [async_sharing, fedavg], ids=["peers", "server"])
def test_steps_gammas_seeds_and_horizons_share_one_program(small, monkeypatch, build):
    def work():
        runs = ((0.1, 2, 0, 5), (0.2, 2, 0, 5), (0.1, 5, 0, 5), (0.1, 2, 9, 5), (0.3, 3, 4, 8))
        for step, gamma, seed, slots in runs:
            simulate(small, snapshot(gamma), build(step), slots=slots, seed=seed)

    assert traces_of(monkeypatch, engine._loop, work) == 1
    assert len(engine._loop) == 1


def test_another_law_or_other_compute_times_are_other_programs(small, monkeypatch):
    def work():
        for network, compute in ((snapshot(2), 1), (constant(2), 1), (snapshot(2), 2)):
            clock = Clock(compute_slots=compute)
            engine.start(engine.Simulation(small, network, async_sharing(), clock), 0)

    assert traces_of(monkeypatch, engine._first, work) == 3


def test_results_do_not_depend_on_what_was_run_before(small):
    """A program that is shared is given each run's own numbers."""
    alone = simulate(small, snapshot(4), async_sharing(0.05), slots=6, seed=2).nodes
    for step, gamma in ((0.4, 4), (0.05, 2)):
        other = simulate(small, snapshot(gamma), async_sharing(step), slots=6, seed=2).nodes
        assert not np.array_equal(other, alone)

    again = simulate(small, snapshot(4), async_sharing(0.05), slots=6, seed=2).nodes

    np.testing.assert_array_equal(again, alone)


def test_sixty_methods_made_by_hand_leave_sixteen_programs_and_their_maps():
    """A process has 65,530 memory maps, and every program takes some."""

    @compiled()
    def begin(algorithm, start):
        state = algorithm.init(start, Place(jnp.asarray(0), 2, jax.random.key(0)))
        return algorithm.params(state) * 2 + jnp.sin(start)

    def use(number):
        for _ in range(number):
            assert begin(by_hand(0.1), jnp.zeros(3)).tolist() == [0, 0, 0]
            assert len(begin) <= MOST_KEPT
        return maps_of_this_process()

    full = use(MOST_KEPT)
    after = use(60 - MOST_KEPT)

    assert len(begin) == MOST_KEPT
    assert after - full < 60 - MOST_KEPT  # three a program, were they kept


def test_runs_of_methods_made_by_hand_leave_no_more_programs_than_may_be_kept(small, monkeypatch):
    monkeypatch.setattr(programs, "MOST_KEPT", 1)
    for _ in range(3):
        simulate(small, ideal(), by_hand(0.1), slots=1, recording=Recording(1))

    used = (engine._first, engine._loop, metrics._models, node_measures._evaluate_traced)
    assert [len(program) for program in used] == [1] * 4


def maps_of_this_process():
    gc.collect()
    try:
        return Path("/proc/self/maps").read_bytes().count(b"\n")
    except OSError:
        pytest.skip("the system does not tell its memory maps")


def test_two_threads_share_a_program(monkeypatch):
    traced, both = [], threading.Barrier(2)

    @compiled()
    def added(x):
        traced.append(threading.get_ident())
        return x + 1

    make = added._program

    def slowly():
        time.sleep(0.2)  # the other thread comes meanwhile
        return make()

    def call():
        both.wait()
        return float(added(jnp.ones(())))

    monkeypatch.setattr(added, "_program", slowly)
    with ThreadPoolExecutor(2) as pool:
        found = [each.result() for each in [pool.submit(call) for _ in range(2)]]

    assert found == [2.0, 2.0]
    assert len(traced) == len(added) == 1
