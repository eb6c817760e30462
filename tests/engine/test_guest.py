"""A problem written by hand in NumPy learns wherever a built-in one does, to the same numbers."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from numpy.typing import NDArray

from folkman import (
    Algorithm,
    Analysable,
    Clock,
    Evaluation,
    Learnable,
    Recording,
    async_sharing,
    dpsgd,
    fedavg,
    load,
    make_problem,
    pipelined,
    reference,
    simulate,
    snapshot,
)
from folkman.problem.learnable import check_learnable
from folkman.problem.models import Layout
from folkman.problem.problem import Problem
from folkman.theory.smoothness import ceiling, curvatures
from folkman.theory.stability import advise, constant_stamps, stability_warning
from folkman.theory.trajectory import follow
from reference import wire


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["centre", "curvature", "count", "share", "node", "initial"],
    meta_fields=[],
)
@dataclass(frozen=True, eq=False)
class Bowls:
    """F_i(w) = 1/2 sum_k h_ik (w_k - c_ik)^2, in NumPy."""

    centre: NDArray  # (node, d) c
    curvature: NDArray  # (node, d) h
    count: Array  # (node,)
    share: Array  # (node,)
    node: Array  # (node,)
    initial: Array  # (d,)
    batch = None
    called_from_python = True

    @property
    def num_nodes(self) -> int:
        return self.centre.shape[0]

    @property
    def dim(self) -> int:
        return self.centre.shape[1]

    @property
    def layout(self) -> Layout:
        return Layout((("w", (self.dim,)),))

    def of_node(self, index: int) -> "Bowls":
        names = ("centre", "curvature", "count", "share", "node")
        rows = {name: getattr(self, name)[index : index + 1] for name in names}
        return replace(self, **rows)

    def gradients(self, v: Array, keys: Array) -> tuple[Array, Array]:
        del keys  # there are no mini-batches
        slope = self.curvature * (np.asarray(v) - self.centre)
        losses = 0.5 * np.sum(slope * (np.asarray(v) - self.centre), axis=1)
        return jnp.asarray(losses), jnp.asarray(slope)

    def evaluate(self, w: Array) -> Evaluation:
        losses, _ = self.gradients(jnp.broadcast_to(w, self.centre.shape), self.node)
        nan = jnp.asarray(np.nan)
        return Evaluation(jnp.dot(self.share, losses), nan, nan, nan)


Twins: TypeAlias = tuple[Problem, Bowls]


@pytest.fixture
def twins(x64) -> Twins:
    """The same quadratics twice: built in, and by hand. One sample per node, so that c and h are the sample."""
    ours = make_problem(load("quadratic", nodes=3, dim=5, seed=4), "quadratic", 3, dtype="float64")
    assert ours.x.shape[:2] == (3, 1)
    centre, curvature = np.asarray(ours.x[:, 0]), np.asarray(ours.y[:, 0])
    return ours, Bowls(centre, curvature, ours.count, ours.share, ours.node, ours.initial)


@pytest.mark.parametrize(
    "algorithm", [async_sharing(0.1), fedavg(0.1, local_steps=2)], ids=lambda a: a.name
)
def test_a_guest_in_numpy_learns_what_ours_learns_in_all_three_worlds(twins: Twins, algorithm):
    ours, by_hand = twins
    guest: Learnable = by_hand
    record = Recording(4, timeline=True)

    expected = simulate(ours, snapshot(3), algorithm, slots=16, seed=2, recording=record)
    run = simulate(guest, snapshot(3), algorithm, slots=16, seed=2, recording=record)
    slow = reference(guest, run.timeline, algorithm, seed=2)
    nodes, _ = wire.play(guest, run.timeline, algorithm, seed=2)

    for found in (run.nodes, slow.nodes, nodes):
        np.testing.assert_allclose(found, expected.nodes, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(
        [row["train_loss"] for row in run.rows],
        [row["train_loss"] for row in expected.rows],
        rtol=1e-12,
    )
    assert run.last("bits") == expected.last("bits")


@dataclass(frozen=True, eq=False)
class Counted(Bowls):
    """Bowls that count how often they are asked for gradients."""

    asked: ClassVar = [0]

    def gradients(self, v: Array, keys: Array) -> tuple[Array, Array]:
        self.asked[0] += 1
        return super().gradients(v, keys)


jax.tree_util.register_dataclass(
    Counted, ["centre", "curvature", "count", "share", "node", "initial"], []
)


@pytest.mark.parametrize(
    ("algorithm", "compute_slots"),
    [(fedavg(0.1, local_steps=2), 1), (async_sharing(0.1), 3), (dpsgd(0.1), 2)],
    ids=["a method that waits", "long gradients", "both"],
)
def test_gradients_are_taken_only_in_slots_in_which_a_node_finishes_one(
    twins: Twins, algorithm: Algorithm, compute_slots: int
):
    ours, by_hand = twins
    counted: Learnable = Counted(**vars(by_hand))
    record = Recording(4, timeline=True)
    clock = Clock(1.0, compute_slots)
    Counted.asked[0] = 0

    run = simulate(
        counted, pipelined(3), algorithm, slots=16, seed=2, recording=record, clock=clock
    )
    asked = Counted.asked[0] - len(run.rows)  # an evaluation takes one too
    expected = simulate(
        ours, pipelined(3), algorithm, slots=16, seed=2, recording=record, clock=clock
    )

    finished = int(np.sum(np.any(run.timeline.finished, axis=1)))
    assert 0 < finished < 16
    assert asked == finished
    np.testing.assert_allclose(run.nodes, expected.nodes, rtol=1e-12, atol=1e-14)


def test_a_problem_of_ours_is_all_that_may_be_asked(twins: Twins):
    ours: Analysable = twins[0]
    learnable: Learnable = ours

    check_learnable(learnable)
    assert isinstance(ours, Analysable)
    assert not isinstance(twins[1], Analysable)


def test_what_lacks_a_member_or_is_no_pytree_is_refused(twins: Twins):
    _, guest = twins
    bare: Any = type("Bare", (), {"num_nodes": 3})()
    with pytest.raises(
        TypeError, match=r"folkman\.Learnable, Bare has no batch, .*; add what is missing"
    ):
        simulate(bare, snapshot(3), async_sharing(0.1), slots=3)

    unregistered: Any = type("Unregistered", (Bowls,), {})(**vars(guest))
    with pytest.raises(TypeError, match="Unregistered is no pytree; register the class"):
        simulate(unregistered, snapshot(3), async_sharing(0.1), slots=3)


class Judged(Bowls):
    """The same for the theory."""

    differentiable = False

    def full_batch(self) -> "Judged":
        return self


def test_the_theory_follows_a_guest_and_refuses_its_curvature(twins: Twins):
    ours, guest = twins
    held = constant_stamps(3, 2, 12)
    judged: Analysable = Judged(**vars(guest))

    path = follow(judged, held, 0.1, "theorem")

    np.testing.assert_allclose(path.last, follow(ours, held, 0.1, "theorem").last, rtol=1e-12)
    for ask in (lambda: curvatures(judged, judged.initial), lambda: advise(judged, held)):
        with pytest.raises(
            TypeError, match=r"needs a problem that JAX can differentiate, Judged .*make_problem"
        ):
            ask()
    assert np.isinf(ceiling(judged)).all()
    assert stability_warning(judged, held, 1e3) is None
    assert stability_warning(ours, held, 1e3) is not None


def test_the_theory_refuses_a_guest_that_was_not_made_for_it(twins: Twins):
    guest = twins[1]
    with pytest.raises(
        TypeError, match=r"folkman\.Analysable, Bowls has no differentiable, full_batch"
    ):
        follow(guest, constant_stamps(3, 2, 12), 0.1, "theorem")
    assert stability_warning(guest, 3, 1e3) is None
