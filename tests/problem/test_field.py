"""A field: cells whose nodes draw their samples from one data set."""

import numpy as np
import pytest

from folkman import load, make_problem
from folkman.problem.field import make_field

CELLS, NODES, SAMPLES = 3, 4, 7


@pytest.fixture(scope="module")
def samples():
    return load("digits", train_size=60, test_size=10)


def rows_of(samples, x):
    """Return which samples of the data set these are, by looking for them."""
    same = (np.asarray(x)[:, None] == samples.x_train[None]).all(axis=(2, 3, 4))
    assert (same.sum(axis=1) == 1).all()
    return same.argmax(axis=1)


def test_a_cell_of_a_field_is_the_problem_of_its_nodes_samples(samples):
    field = make_field(samples, "softmax", cells=CELLS, nodes=NODES, samples=SAMPLES, l2=0.1)

    whole = field.problem(range(CELLS))

    for cell in range(CELLS):
        parts = [rows_of(samples, x) for x in whole.x[cell]]
        one = make_problem(samples, "softmax", parts, l2=0.1)
        for name in ("x", "y", "count", "share"):
            np.testing.assert_array_equal(getattr(whole, name)[cell], getattr(one, name))
        assert whole.node[cell].tolist() == [NODES * cell + i for i in range(NODES)]
        np.testing.assert_array_equal(whole.initial, one.initial)
        assert field.cell_bytes == one.x.nbytes + one.y.nbytes
    first = make_problem(samples, "softmax", [rows_of(samples, x) for x in whole.x[0]])
    np.testing.assert_array_equal(field.first.x, first.x)


def test_a_node_may_hold_one_sample_or_all_and_no_other_number(samples):
    for cells, nodes, held in ((1, 1, 1), (2, 1, 60), (1, 2, 60)):
        field = make_field(samples, "softmax", cells=cells, nodes=nodes, samples=held)
        x = np.asarray(field.problem(range(cells)).x)
        assert x.shape[:3] == (cells, nodes, held)
        for node in x.reshape(-1, held, 8, 8, 1):
            assert len(set(rows_of(samples, node))) == held
    for wrong in ({"samples": 0}, {"samples": 61}, {"nodes": 0}, {"cells": 0}):
        with pytest.raises(ValueError, match=r"a node can hold 1 to 60|a cell and a node at least"):
            make_field(samples, "softmax", **({"cells": 1, "nodes": 1, "samples": 1} | wrong))
    with pytest.raises(ValueError, match="a field is for dense models"):
        make_field(samples, "cnn", cells=1, nodes=1, samples=1)
