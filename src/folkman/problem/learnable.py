"""What engine, runtime and theory may ask of a problem: two protocols, and nothing else.

`Learnable` is all that the simulator, the reference engine and a device node need. `Analysable`
adds what `folkman.theory` needs. `folkman.Problem` and `folkman.torch.TorchProblem` satisfy both.
Any other class with these members is a problem too, whatever library computes its gradients.

A problem goes through `jax.jit` as an argument, so its class must be a pytree, for example by
`jax.tree_util.register_dataclass`. Arrays are data fields; everything else is a meta field. The
reference engine computes in float64: it converts all floating-point leaves of the pytree.

In shapes, `node` is the number of nodes I and `d` the number of parameters.
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable

from folkman.arrays import Array, Float, Int, jax
from folkman.problem.models import Layout

__all__ = ["Analysable", "Evaluation", "Learnable", "LocallyTested", "analysable"]
__all__ += ["check_learnable"]


class Evaluation(NamedTuple):
    """What a model is worth; NaN where a problem has no such measure."""

    train_loss: Float[Array, ""]  # F(w) over all training samples
    test_loss: Float[Array, ""]  # mean loss over the test samples
    # share of the test samples that are right; not a number without classes
    test_accuracy: Float[Array, ""]
    optimum_distance: Float[Array, ""]  # ||w - w*||_2


@runtime_checkable
class Learnable(Protocol):
    """A problem as engines and nodes see it: F_i on every node, and a common first model.

    Immutable, and a pytree. `folkman.Problem` is one, as is any class with these members.
    """

    @property
    def num_nodes(self) -> int:
        """Return I, the number of nodes. A Python number, also while the problem is traced."""
        ...

    @property
    def dim(self) -> int:
        """Return d, the number of parameters. A Python number, also while the problem is traced."""
        ...

    @property
    def layout(self) -> Layout:
        """Return the names and shapes of the tensors in the flat vector.

        Methods that treat each tensor apart get the shapes from here.
        """
        ...

    @property
    def initial(self) -> Float[Array, " d"]:
        """Return the common first model w(0), (d,)."""
        ...

    @property
    def count(self) -> Int[Array, " node"]:
        """Return the number of samples of each node, (node,) int32."""
        ...

    @property
    def share(self) -> Float[Array, " node"]:
        """Return alpha_i, the weights of the F_i in F, (node,); those of all nodes sum to 1.

        Those of `folkman.Problem` are |D_i| / sum_j |D_j|, or 1 / I.
        """
        ...

    @property
    def node(self) -> Int[Array, " node"]:
        """Return the identity of each node, (node,) int32: it keys the node's random draws."""
        ...

    @property
    def batch(self) -> int | None:
        """Return the samples per gradient; None is all of them: `gradients` then ignores `keys`."""
        ...

    @property
    def called_from_python(self) -> bool:
        """Tell whether `gradients` and `evaluate` run from Python, outside every compiled program.

        If False, they consist of JAX operations alone, and the engine compiles them into its own
        program. If True, they receive concrete arrays, once per slot, and may compute the nodes one
        by one with any library.
        """
        ...

    def of_node(
        self,
        index: int,  # number of the node
    ) -> "Learnable":
        """Return the problem of node `index` alone: its samples, its share, its identity."""
        ...

    def gradients(
        self,
        v: Float[Array, "node d"],
        # JAX random keys of the mini-batches, one for each node; or the `Turns` that it asks for
        keys: Any,
    ) -> tuple[Float[Array, " node"], Float[Array, "node d"]]:
        """Return F_i(v_i) (node,) and grad F_i(v_i) (node, d) at the points v (node, d).

        `keys` (node,) draw the mini-batches, if there are any. A problem with an attribute
        `sampling` of "epochs" is given `folkman.problem.sampling.Turns` instead.
        """
        ...

    def evaluate(self, w: Float[Array, " d"]) -> Evaluation:
        """Return the measures of the model w (d,); `train_loss` is F(w) = sum_i alpha_i F_i(w)."""
        ...


@runtime_checkable
class Analysable(Learnable, Protocol):
    """A problem as `folkman.theory` sees it."""

    @property
    def differentiable(self) -> bool:
        """Tell whether JAX can differentiate `gradients` and `evaluate`, to measure curvature."""
        ...

    def full_batch(self) -> "Analysable":
        """Return the same problem with gradients over all samples: `batch` is None."""
        ...


@runtime_checkable
class LocallyTested(Learnable, Protocol):
    """A problem that can tell how good a model is on the data of a single node."""

    def local_accuracies(self, v: Float[Array, "node d"]) -> Float[Array, " node"]:
        """Return the accuracy of v_i on test data with the label mixture of node i.

        NaN where the problem has no labels.
        """
        ...


def check_learnable(problem: Learnable) -> None:
    """Raise `TypeError` for a problem that lacks a member of `Learnable`, or is no pytree."""
    if not isinstance(problem, Learnable):
        raise TypeError(_lack(problem, Learnable))
    if jax.tree.structure(problem) == jax.tree.structure(0):
        raise TypeError(
            "expected a problem that passes through jax.jit, "
            f"{type(problem).__name__} is no pytree; "
            "register the class with jax.tree_util.register_dataclass"
        )


def analysable(problem: Learnable, purpose: str, *, differentiable: bool = False) -> Analysable:
    """Return the problem as the theory sees it.

    Raise `TypeError` if it lacks a member of `Analysable`, or if `purpose` needs derivatives that
    JAX cannot take.
    """
    if not isinstance(problem, Analysable):
        raise TypeError(_lack(problem, Analysable))
    if differentiable and not problem.differentiable:
        raise TypeError(
            f"{purpose} needs a problem that JAX can differentiate, {type(problem).__name__} "
            "computes its gradients outside JAX; build the model with folkman.make_problem, "
            "or use a smoothness constant that you know"
        )
    return problem


def _lack(problem: Learnable, protocol: type) -> str:
    public = [name for name in dir(protocol) if not name.startswith("_")]
    missing = [name for name in public if not hasattr(problem, name)]
    return (
        f"expected a problem with the members of folkman.{protocol.__name__}, "
        f"{type(problem).__name__} has no {', '.join(missing)}; add what is missing"
    )
