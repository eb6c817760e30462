"""The first model: compiled in haste, drawn to the bit as with all of the compiler's passes."""

from typing import Any

import jax
import numpy as np
import pytest

from folkman.checks import pick
from folkman.keys import Stream, make_key
from folkman.machine import compiled_in_haste
from folkman.problem import problem
from folkman.problem.models import MODELS

SHAPES = {"softmax": (8, 8, 1), "mlp": (8, 8, 1), "gru": (20, 6)}


@pytest.mark.parametrize("name", SHAPES)
def test_haste_changes_no_bit(name, monkeypatch):
    model, key = pick(MODELS, name)(SHAPES[name], 10), make_key(3, Stream.MODEL)
    monkeypatch.setenv("XLA_FLAGS", "")  # the flags of the tests would hold
    problem._drawing.cache_clear()
    hasty = problem._first_model(model, key)
    problem._drawing.cache_clear()
    full: dict[str, Any] = {"xla_backend_optimization_level": 3}
    lowered = jax.jit(model.init).lower(key)

    np.testing.assert_array_equal(hasty, lowered.compile(compiler_options=full)(key))


def test_haste_is_for_processors_and_gives_way_to_what_was_asked_for(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "")
    assert compiled_in_haste("cpu")
    assert not compiled_in_haste("gpu")
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=2")
    assert not compiled_in_haste("cpu")
