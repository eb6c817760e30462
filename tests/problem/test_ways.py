"""Ways to take gradients: they agree, one is chosen by its time, and the choice is kept."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folkman import from_jax, make_problem, mlp, softmax
from folkman.keys import Stream, make_key
from folkman.problem import speed
from folkman.problem.data import DataSet
from folkman.problem.sampling import batch_keys
from folkman.problem.ways import FROM_PYTHON, WAYS, Way, open_ways

NODES, SAMPLES, CLASSES = 3, 12, 4


def first_kernels(key):
    a, b = jax.random.split(key)
    return {
        "kernel": 0.3 * jax.random.normal(a, (3, 3, 1, 4)),
        "out": 0.3 * jax.random.normal(b, (4 * 4 * 4, CLASSES)),
    }


def scores(params, x):
    numbers = ("NHWC", "HWIO", "NHWC")
    h = jax.lax.conv_general_dilated(x, params["kernel"], (1, 1), "SAME", dimension_numbers=numbers)
    return jax.nn.relu(h).reshape(len(h), -1) @ params["out"]


MODELS = {
    "softmax": softmax((4, 4, 1), CLASSES),
    "mlp": mlp((4, 4, 1), CLASSES, hidden=(7, 5)),
    "own": from_jax(first_kernels, scores, (4, 4, 1)),
    "own, convolutional": from_jax(first_kernels, scores, (4, 4, 1), convolutional=True),
}


def a_problem(model="mlp", dtype="float32", **options):
    draws = np.random.default_rng(1)
    x = draws.normal(size=(NODES * SAMPLES, 4, 4, 1)).astype(dtype)
    y = draws.integers(0, CLASSES, len(x))
    data = DataSet("drawn", x, y, x[:5], y[:5], CLASSES)
    parts = [np.arange(10), np.arange(10, 22), np.arange(22, 36)]  # ragged
    return make_problem(data, MODELS[model], parts, dtype=dtype, l2=0.1, **options)


def gradients(problem):
    steps = jnp.full(NODES, 2, jnp.int32)
    keys = batch_keys(problem, make_key(3, Stream.BATCH), problem.node, steps)
    drift = jnp.linspace(0.5, 1.5, NODES, dtype=problem.initial.dtype)[:, None]
    points = drift * (problem.initial + 0.1)[None]
    called = problem.called_from_python
    take = type(problem).gradients if called else jax.jit(type(problem).gradients)
    return [np.asarray(each) for each in take(problem, points, keys)]


@pytest.mark.parametrize(
    ("options", "precise"),
    [({}, True), ({"batch": 5}, False), ({"batch": 5, "sampling": "epochs"}, True)],
)
@pytest.mark.parametrize("model", MODELS)
def test_all_ways_give_the_same_gradients(model, options, precise):
    with jax.enable_x64(precise):
        problem = a_problem(model, "float64" if precise else "float32", **options)
        expected = gradients(problem)
        for way in open_ways(problem).ways:
            for found, known in zip(gradients(replace(problem, way=way)), expected, strict=True):
                np.testing.assert_allclose(
                    found, known, rtol=0, atol=(1e-12 if precise else 1e-6) * abs(known).max()
                )


def test_a_problem_without_a_way_goes_as_before():
    dense, convolving = a_problem(), a_problem("own, convolutional")

    assert not dense.called_from_python
    assert convolving.called_from_python
    assert [replace(dense, way=way).called_from_python for way in WAYS] == [
        way in FROM_PYTHON for way in WAYS
    ]
    assert open_ways(dense).ways[0] == "together"
    assert open_ways(convolving).ways[0] == "called"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of its own, in which all works are worth timing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(speed, "WORTH_TIMING", 0)
    return tmp_path


def taking(**ms):
    """Return a timer that gives these milliseconds."""
    return lambda _, ways: {way: ms[way] for way in ways}


def never(problem, ways):
    raise AssertionError("what is kept was timed again")


def test_the_fastest_way_is_kept_and_not_timed_again(cache):
    problem = a_problem()
    chosen = speed.choice_for(problem, taking(together=10.0, joined=9.0, apart=4.0))

    assert chosen.way == chosen.other == "apart"
    assert speed.choice_for(problem, never) == chosen
    assert speed.kept_choices() == [chosen]
    assert speed.fastest(problem).way == "apart"


def test_another_shape_is_another_work(cache):
    speed.choice_for(a_problem(), taking(together=10.0, joined=9.0, apart=4.0))
    other = speed.choice_for(a_problem(batch=2), taking(together=4.0, joined=9.0, apart=10.0))

    assert other.way == "together"
    assert other.other is None  # the default: compiled programs are shared with it
    assert len(speed.kept_choices()) == 2


@pytest.mark.parametrize(
    ("apart", "way"), [(20.0, "together"), (9.5, "together"), (9.1, "together"), (8.9, "apart")]
)
def test_the_default_stays_unless_another_way_is_clearly_faster(apart, way):
    chosen = speed.decide({}, ("together", "apart"), {"together": 10.0, "apart": apart})

    assert chosen.way == way
    assert chosen.why


def test_little_work_is_neither_timed_nor_moved(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    problem = a_problem()

    assert speed.choice_for(problem, never).way is None
    assert speed.fastest(problem) is problem
    assert not list(tmp_path.iterdir())


def spoilt(known):
    """Contents that are no choice, each with a word of what is said about it."""
    return {
        "no json": ("{", "Expecting"),
        "another format": ({**known, "format": 99}, "format"),
        "an unknown way": ({**known, "way": "upwards"}, "upwards"),
        "a way that is not open": ({**known, "way": "whole", "ms": {"whole": 1.0}}, "whole"),
        "no time": ({**known, "ms": {"together": 0.0, "joined": 1.0, "apart": 1.0}}, "above zero"),
        "another work": ({**known, "work": {}}, "another work"),
        "a list": ([], "list"),
    }


@pytest.mark.parametrize("kind", list(spoilt({})))
def test_a_spoilt_file_is_told_and_timed_again(cache, kind):
    problem = a_problem()
    speed.choice_for(problem, taking(together=10.0, joined=9.0, apart=4.0))
    (file,) = speed.folder().glob("*.json")
    contents, word = spoilt(json.loads(file.read_text()))[kind]
    file.write_text(contents if isinstance(contents, str) else json.dumps(contents))

    with pytest.warns(UserWarning, match=f"{word}.*timed again"):
        again = speed.choice_for(problem, taking(together=4.0, joined=9.0, apart=10.0))

    assert again.way == "together"
    assert speed.choice_for(problem, never) == again


def test_who_comes_second_takes_what_is_kept(cache):
    problem = a_problem()

    def meanwhile(problem, ways) -> dict[Way, float]:
        speed.choice_for(problem, taking(together=10.0, joined=9.0, apart=4.0))  # another process
        return {"together": 4.0, "joined": 9.0, "apart": 10.0}

    assert speed.choice_for(problem, meanwhile).way == "apart"


def test_a_cache_that_cannot_be_written_is_told(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(speed, "WORTH_TIMING", 0)

    with pytest.warns(UserWarning, match="could not be kept"):
        assert (
            speed.choice_for(a_problem(), taking(together=9.0, joined=9.0, apart=4.0)).way
            == "apart"
        )


def test_a_timer_times_every_way(cache, monkeypatch):
    monkeypatch.setattr(speed, "ROUNDS", 1)
    problem = a_problem("own")
    ms = speed.choice_for(problem).ms

    assert set(ms) == set(open_ways(problem).ways)
    assert min(ms.values()) > 0
