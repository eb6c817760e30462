"""A PyTorch module as a problem: the same gradients as our own, in the simulator and on a node."""

import re
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folkman import (
    Analysable,
    Learnable,
    Node,
    Problem,
    async_sharing,
    load,
    make_problem,
    simulate,
    snapshot,
)
from folkman.keys import Stream, make_key
from folkman.problem.sampling import batch_keys
from folkman.theory.smoothness import whole_curvature
from folkman.theory.stability import constant_stamps
from folkman.theory.trajectory import follow
from shell import python

torch = pytest.importorskip("torch")

import folkman.torch as guest  # noqa: E402 - after the skip


@pytest.fixture
def twins():
    """Softmax regression on digits twice: ours, and as a guest with the same first model."""
    samples = load("digits", train_size=90)
    ours = make_problem(samples, "softmax", 3, batch=8)
    x, y = np.asarray(ours.x), np.asarray(ours.y)
    parts = [
        (torch.from_numpy(x[i].copy()), torch.from_numpy(y[i].astype(np.int64))) for i in range(3)
    ]
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    test = (
        torch.from_numpy(samples.x_test.copy()),
        torch.from_numpy(samples.y_test.astype(np.int64)),
    )
    loss = torch.nn.CrossEntropyLoss(reduction="none")
    return ours, guest.problem(module, loss, parts, test=test, batch=8)


def test_a_guest_learns_what_ours_learns(twins):
    ours, theirs = twins
    runs = [simulate(p, snapshot(3), async_sharing(0.2), slots=20, seed=2) for p in (ours, theirs)]

    np.testing.assert_allclose(runs[1].model, runs[0].model, rtol=1e-4, atol=1e-6)
    assert runs[1].last("test_accuracy") == pytest.approx(runs[0].last("test_accuracy"), abs=1e-6)
    assert runs[1].last("train_loss") == pytest.approx(runs[0].last("train_loss"), rel=1e-5)


def test_a_guest_knows_what_a_constant_answer_is_worth_as_ours_does(twins):
    ours, theirs = (each.guess() for each in twins)
    assert theirs is not None
    assert theirs.loss == pytest.approx(ours.loss, rel=1e-5)
    assert theirs.accuracy == pytest.approx(ours.accuracy)
    assert theirs.tested == ours.tested


def test_a_guest_for_numbers_is_held_against_their_mean():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 3)).astype(np.float32), rng.normal(5, 1, 60).astype(np.float32)
    parts = [(torch.from_numpy(x[i::3]), torch.from_numpy(y[i::3, None])) for i in range(3)]

    def half_square(scores, y):
        return 0.5 * ((scores - y) ** 2)[:, 0]

    problem = guest.problem(torch.nn.Linear(3, 1, bias=False), half_square, parts, hits=None)
    found = problem.guess()
    assert found is not None
    assert found.loss == pytest.approx(0.5 * y.var(), rel=1e-5)
    assert np.isnan(found.accuracy)
    run = simulate(problem, snapshot(3), async_sharing(0.1), slots=60)
    assert run.verdict == "not learning"
    assert "always predicting the mean gives" in run.reason


def test_a_loss_that_takes_no_constant_answer_ends_no_run():
    """Its own idea of labels and scores is none of ours."""
    parts = [(torch.ones(4, 3), torch.tensor([0, 1, 0, 1])) for _ in range(2)]

    def margins(scores, y):
        return torch.nn.functional.softplus(-(2.0 * y - 1) * scores[:, 0])

    problem = guest.problem(torch.nn.Linear(3, 1), margins, parts, hits=None)
    assert problem.guess() is None
    assert simulate(problem, snapshot(3), async_sharing(0.1), slots=4).status == "finished"


def test_a_guest_lives_on_a_node(twins):
    ours, theirs = twins
    nodes = [
        Node(1, p.of_node(1), async_sharing(0.2), np.asarray(p.share), seed=2)
        for p in (ours, theirs)
    ]
    for node in nodes:
        for _ in range(5):
            assert node.wake()

    np.testing.assert_allclose(nodes[1].params(), nodes[0].params(), rtol=1e-4, atol=1e-6)
    assert len(nodes[1].send()) == len(nodes[0].send())


def test_the_gradient_is_the_difference_quotients(twins):
    _, theirs = twins
    part = theirs.of_node(0)
    key = jax.random.split(jax.random.key(0), 1)
    v = 0.1 * jax.random.normal(jax.random.key(1), (1, theirs.dim))
    along = jax.random.normal(jax.random.key(2), (1, theirs.dim))

    _, grad = part.gradients(v, key)
    up, down = (float(part.gradients(v + h * along, key)[0][0]) for h in (1e-2, -1e-2))

    assert (up - down) / 2e-2 == pytest.approx(float(np.vdot(grad, along)), rel=1e-2)


def test_a_guest_draws_epochs_as_ours_does(twins):
    ours, theirs = (replace(each, batch=7, sampling="epochs") for each in twins)
    v = 0.1 * jax.random.normal(jax.random.key(1), (ours.num_nodes, ours.dim))
    steps = jnp.arange(ours.num_nodes, dtype=jnp.int32)
    keys = batch_keys(theirs, make_key(3, Stream.BATCH), theirs.node, steps)

    found, expected = (each.gradients(v, keys) for each in (theirs, ours))

    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-4, atol=1e-6)


def test_the_theory_follows_a_guest_over_all_its_samples_and_refuses_its_curvature(
    twins: "tuple[Problem, guest.TorchProblem]",
):
    ours, theirs = twins
    learnable: Learnable = theirs
    analysed: Analysable = theirs
    held = constant_stamps(3, 2, 6)

    last = follow(analysed, held, 0.2, "theorem").last

    np.testing.assert_allclose(last, follow(ours, held, 0.2, "theorem").last, rtol=1e-4, atol=1e-6)
    assert learnable.layout.size == ours.layout.size
    with pytest.raises(TypeError, match=r"that JAX can differentiate, TorchProblem .*make_problem"):
        whole_curvature(analysed, theirs.initial)


@pytest.mark.parametrize(
    ("module", "match"),
    [
        (torch.nn.BatchNorm1d(3), "BatchNorm1d"),
        (torch.nn.Dropout(), "Dropout"),
        (torch.nn.Linear(2, 2).double(), "float32"),
    ],
    ids=["batchnorm", "dropout", "double"],
)
def test_what_is_no_function_of_the_vector_is_refused(module, match):
    samples = (torch.zeros(2, 2), torch.zeros(2))
    with pytest.raises(ValueError, match=match):
        guest.problem(module, torch.nn.MSELoss(reduction="none"), [samples])


def test_a_loss_that_is_already_averaged_is_refused(twins):
    module = torch.nn.Linear(2, 2)
    samples = (torch.zeros(3, 2), torch.zeros(3, dtype=torch.int64))
    problem = guest.problem(module, torch.nn.CrossEntropyLoss(), [samples])
    with pytest.raises(ValueError, match="reduction='none'"):
        problem.gradients(problem.initial[None], jax.random.split(jax.random.key(0), 1))


@pytest.mark.slow
def test_the_example_learns_both_ways(tmp_path):
    example = Path(__file__).parents[2] / "examples" / "devices" / "torch_guest.py"
    done = python(example, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    accuracies = [float(each) for each in re.findall(r"accuracy ([\d.]+)", done.stdout)]
    assert len(accuracies) == 2
    assert min(accuracies) > 0.85


class Asks(torch.nn.Module):
    """A module that looks at a number on the way: torch.func.vmap cannot map it."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x):
        scores = self.linear(x)
        return scores if scores.sum().item() > 1e9 else 2 * scores


def guest_of(module, batch=None, sizes=(6, 6, 9)):
    draws = torch.Generator().manual_seed(0)
    parts = [
        (torch.randn(n, 4, generator=draws), torch.randint(3, (n,), generator=draws)) for n in sizes
    ]
    loss = torch.nn.CrossEntropyLoss(reduction="none")
    return guest.problem(module, loss, parts, batch=batch, sampling="replacement")


def gradients_of(own):
    points = own.initial[None] + jnp.linspace(0.0, 0.3, 3)[:, None]
    keys = batch_keys(own, make_key(0, Stream.BATCH), own.node, jnp.arange(3))
    return [np.asarray(each) for each in own.gradients(points, keys)]


@pytest.mark.parametrize("batch", [None, 4])
def test_all_nodes_at_once_have_the_gradients_of_node_by_node(batch):
    module = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))
    module[0].bias.requires_grad_(False)
    own = guest_of(module, batch)
    found, expected = gradients_of(own), gradients_of(replace(own, way="called"))

    assert "torch.func" in own.pace
    assert not found[1][:, 20:25].any()  # what is frozen stays
    for ours, known in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, known, rtol=0, atol=1e-6 * abs(known).max())


def test_a_module_that_cannot_be_mapped_is_taken_node_by_node_and_says_why():
    own = guest_of(Asks())
    with pytest.warns(UserWarning, match="node by node.*item"):
        pace = own.pace

    assert pace.startswith("node by node")
    assert own.open_ways().ways == ("called",)
    assert np.isfinite(gradients_of(own)[1]).all()


def test_a_module_that_convolves_is_taken_node_by_node_unless_it_is_told_otherwise():
    module = torch.nn.Sequential(
        torch.nn.Unflatten(1, (1, 4)),
        torch.nn.Conv1d(1, 2, 2),
        torch.nn.Flatten(),
        torch.nn.Linear(6, 3),
    )
    own = guest_of(module)
    found, expected = gradients_of(replace(own, way="together")), gradients_of(own)

    assert own.open_ways().ways == ("called", "together")
    np.testing.assert_allclose(found[1], expected[1], rtol=0, atol=1e-6 * abs(expected[1]).max())
