"""Programs kept on disk whole: the same numbers without tracing, and never another program's."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folkman.algorithm import ALGORITHMS
from folkman.engine import whole_programs
from folkman.engine.programs import Programs
from folkman.engine.whole_programs import digest
from folkman.files import keep_programs

TRACED = []


def scaled(x, factor, by):
    """Stand for a function of folkman."""
    TRACED.append(by)
    return {"product": x * factor + by}


scaled.__module__ = "folkman.engine.of_the_test"


@pytest.fixture(autouse=True)
def kept(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("FOLKMAN_WHOLE_PROGRAMS", "1")
    TRACED.clear()
    return tmp_path / "whole"


def told(*args, function=scaled, fixed=()):
    leaves, structure = jax.tree.flatten(args)
    return digest(function, structure, leaves, fixed)


def test_the_next_process_finds_a_program_without_tracing_it(kept):
    x = jnp.arange(3.0)
    first = Programs(scaled, fixed=(2,))(x, 2.0, 5)
    assert TRACED == [5]

    again = Programs(scaled, fixed=(2,))(x, 4.0, 5)  # as a process of its own would

    assert TRACED == [5]
    assert len(list(kept.iterdir())) == 1
    np.testing.assert_array_equal(first["product"], [5.0, 7.0, 9.0])
    np.testing.assert_array_equal(again["product"], [5.0, 9.0, 13.0])


def test_what_is_fixed_in_a_program_tells_it_from_others(kept):
    x = jnp.arange(3.0)
    Programs(scaled, fixed=(2,))(x, 2.0, 5)

    other = Programs(scaled, fixed=(2,))(x, 2.0, 6)

    assert TRACED == [5, 6]
    np.testing.assert_array_equal(other["product"], [6.0, 8.0, 10.0])


def test_other_types_in_the_same_shapes_are_traced(kept):
    program = Programs(scaled, fixed=(2,))
    program(jnp.arange(3.0), 2.0, 5)

    whole = program(jnp.arange(3), 2, 5)

    assert whole["product"].dtype == jnp.int32
    np.testing.assert_array_equal(whole["product"], [5, 7, 9])


def test_a_damaged_file_is_written_again(kept):
    Programs(scaled, fixed=(2,))(jnp.arange(3.0), 2.0, 5)
    (path,) = kept.iterdir()
    path.write_bytes(b"damaged")

    found = Programs(scaled, fixed=(2,))(jnp.arange(3.0), 2.0, 5)

    np.testing.assert_array_equal(found["product"], [5.0, 7.0, 9.0])
    assert path.stat().st_size > 100


def test_shapes_types_source_and_settings_are_told(monkeypatch):
    x = jnp.arange(3.0)
    known = [told(x), told(jnp.arange(4.0)), told(jnp.arange(3)), told(np.float32(1)), told(1.0)]
    known += [told({"a": x}), told({"b": x}), told((x,)), told([x]), told(None, x), told(x, None)]
    known += [told(x, fixed=1), told(x, fixed=1.0), told(x, fixed="1"), told(x, fixed=(1,))]
    known += [told(x, fixed=np.ones(2)), told(x, fixed=np.array([1.0, 2.0]))]
    monkeypatch.setattr(whole_programs, "_source", lambda: "another version")
    known.append(told(x))
    monkeypatch.setenv("XLA_FLAGS", "--xla_another")
    known.append(told(x))

    assert None not in known
    assert len(set(known)) == len(known)
    assert told(x) == told(x + 1)  # values are arguments


def test_methods_are_told_by_their_options():
    build = ALGORITHMS["async_sharing"]
    names = [told(build(0.1)), told(build(0.1, rule="median")), told(ALGORITHMS["fedavg"](0.1))]

    assert None not in names
    assert len(set(names)) == 3
    assert told(build(0.2)) == names[0]  # the step is an argument


def test_what_is_not_folkmans_is_not_kept(kept):
    own = functools.partial(scaled, by=3)

    def closing(x):
        return own(x, 2.0)

    assert told(jnp.ones(2), function=closing) is None
    closing.__module__ = "folkman.radio.of_the_test"
    assert told(jnp.ones(2), function=closing) is not None
    for name in ("folkman.report", "folkman.report.of_the_test"):  # its source is not looked at
        closing.__module__ = name
        assert told(jnp.ones(2), function=closing) is None
    assert told(jnp.ones(2), fixed=object()) is None
    assert told(jnp.ones(2), fixed=jnp.sin) is None
    assert told(jnp.ones(2), fixed=lambda: 1) is None
    method = ALGORITHMS["async_sharing"](lambda n: 0.1 / (n + 1))
    assert told(method) is None

    Programs(lambda x: x + 1)(jnp.ones(2))
    assert not kept.exists()


def test_python_code_keeps_nothing(monkeypatch, kept):
    monkeypatch.setenv("FOLKMAN_WHOLE_PROGRAMS", "0")
    keep_programs()  # what is asked for stays

    Programs(scaled, fixed=(2,))(jnp.arange(3.0), 2.0, 5)

    assert told(jnp.ones(2)) is None
    assert not kept.exists()


def test_the_oldest_programs_make_room(kept, monkeypatch):
    monkeypatch.setattr(whole_programs, "MOST_BYTES", 20_000)
    for by in range(8):
        Programs(scaled, fixed=(2,))(jnp.arange(3.0), 2.0, by)

    files = list(kept.iterdir())
    assert sum(path.stat().st_size for path in files) <= 20_000
    assert 0 < len(files) < 8
    TRACED.clear()
    Programs(scaled, fixed=(2,))(jnp.arange(3.0), 2.0, 7)
    assert TRACED == []
