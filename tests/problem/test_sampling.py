"""Mini-batches in epochs: every sample once, the full gradient on average, the same everywhere."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folkman import Recording, dpsgd, fedavg, load, make_problem, pipelined, reference, simulate
from folkman.keys import Stream, make_key
from folkman.problem.sampling import Turns, batch_keys, draw
from reference import wire

SIZES = (5, 8, 12)
BATCH = 4
PER_EPOCH = (2, 2, 3)  # ceil(n / BATCH)


def problem_of(sampling: Any = "epochs", **options: Any):
    parts = np.split(np.arange(sum(SIZES)), np.cumsum(SIZES)[:-1])
    samples = load("digits", train_size=sum(SIZES))
    return make_problem(samples, "softmax", parts, batch=BATCH, sampling=sampling, **options)


def turns(problem, step, seed=0):
    steps = jnp.full(problem.num_nodes, step, jnp.int32)
    return batch_keys(problem, make_key(seed, Stream.BATCH), problem.node, steps)


def batches(problem, steps, seed=0):
    """Return the rows of each node's mini-batches, step by step."""
    found = [[] for _ in SIZES]
    for step in range(steps):
        keys = turns(problem, step, seed)
        for node, count in enumerate(SIZES):
            own = jax.tree.map(lambda part, node=node: part[node], keys)
            rows, weight = draw(BATCH, own, jnp.asarray(count), max(SIZES), jnp.dtype("float32"))
            real = np.asarray(weight) > 0
            np.testing.assert_allclose(weight[real], PER_EPOCH[node] / count, rtol=1e-6)
            found[node].append(np.asarray(rows)[real].tolist())
    return found


def test_in_an_epoch_every_sample_is_used_once_and_the_next_goes_another_way():
    for node, steps in enumerate(batches(problem_of(), 6)):
        number = PER_EPOCH[node]
        epochs = [
            [row for step in steps[i : i + number] for row in step]
            for i in range(0, 6 - number + 1, number)
        ]
        for epoch in epochs:
            assert sorted(epoch) == list(range(SIZES[node]))
        assert epochs[0] != epochs[1]
        sizes = [len(step) for step in steps[:number]]
        assert max(sizes) <= BATCH
        assert max(sizes) - min(sizes) <= 1


def test_nodes_and_seeds_draw_otherwise_and_the_same_ones_alike():
    problem = problem_of()
    first, again, other = (batches(problem, 3, seed) for seed in (0, 0, 1))

    assert first == again
    assert first != other
    assert [row for row in first[2][0] if row < 5] != first[0][0]


def test_the_mean_gradient_of_an_epoch_is_the_full_gradient(x64):
    problem = problem_of(dtype="float64", l2=0.1)
    v = jnp.stack([problem.initial + 0.01 * i for i in range(3)])
    whole = problem.full_batch().gradients(v, turns(problem.full_batch(), 0))

    taken = [problem.gradients(v, turns(problem, step)) for step in range(6)]

    for node, number in enumerate(PER_EPOCH):
        for part, expected in enumerate(whole):
            mean = np.mean([np.asarray(each[part][node]) for each in taken[:number]], axis=0)
            np.testing.assert_allclose(mean, expected[node], rtol=1e-12, atol=1e-14)
    assert not np.allclose(taken[0][1], whole[1], rtol=1e-3)  # one alone is not


def test_a_batch_of_all_samples_or_more_is_the_full_gradient(x64):
    problem = replace(problem_of(dtype="float64"), batch=20)
    v = jnp.stack([problem.initial] * 3)

    found = problem.gradients(v, turns(problem, 7))

    whole = problem.full_batch().gradients(v, turns(problem.full_batch(), 0))
    np.testing.assert_allclose(found[1], whole[1], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("algorithm", [dpsgd(0.2), fedavg(0.2)], ids=lambda a: a.name)
def test_simulator_reference_and_byte_level_nodes_draw_the_same(x64, algorithm):
    """Padding, a node's own part alone and another precision change no draw."""
    problem = problem_of(dtype="float64")

    run = simulate(
        problem, pipelined(2), algorithm, slots=12, recording=Recording(12, timeline=True)
    )

    slow = reference(problem, run.timeline, algorithm)
    nodes, _ = wire.play(problem, run.timeline, algorithm)
    np.testing.assert_allclose(run.nodes, slow.nodes, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(run.nodes, nodes, rtol=1e-6, atol=1e-8)


def test_the_default_is_with_replacement_and_an_unknown_sampling_is_refused():
    keys = turns(problem_of("replacement"), 0)
    assert not isinstance(keys, Turns)
    with pytest.raises(
        ValueError, match="sampling must be 'replacement' or 'epochs', got 'shuffle'"
    ):
        problem_of("shuffle")
