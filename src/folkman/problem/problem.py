"""A problem: what is learnt, and who holds which data.

    F_i(w) = 1/|D_i| sum_{xi in D_i} f(w | xi) + l2/2 ||kernels of w||^2               [1, eq. (2)]
    F(w)   = sum_i alpha_i F_i(w),   alpha_i = |D_i| / sum_j |D_j|                     [1, eq. (14)]
                                     or 1 / I, by `objective` (problem/objective.py)

The seam towards the engines is the protocol `Learnable` (`problem/learnable.py`), above all
`gradients`: points (node, d) in, losses (node,) and gradients (node, d) out. Samples are padded to
the longest node, and padding never enters a sum. How mini-batches are drawn is in
`problem/sampling.py`.

[1] Xie et al. Decentralized Federated Learning with Asynchronous Parameter Sharing for Large-scale
    IoT Networks. IEEE IoT Journal, 2024.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.core import Tracer
from jaxtyping import Float, Int
from numpy.typing import NDArray

from folkman.checks import pick, require
from folkman.keys import Stream, make_key
from folkman.machine import compiled_in_haste, usable_bytes
from folkman.problem.data import DataSet
from folkman.problem.learnable import Evaluation
from folkman.problem.models import MODELS, Fitted, Layout, Model, check_targets
from folkman.problem.objective import Objective, shares, uneven_emphasis
from folkman.problem.partition import check_samples, iid
from folkman.problem.sampling import SAMPLINGS, Sampling, Turns, draw
from folkman.problem.ways import APART, FROM_PYTHON, JOINED, Way

if TYPE_CHECKING:
    from folkman.problem.guessing import Guess
    from folkman.problem.kernels import Kernel

__all__ = ["Problem", "make_problem"]

CONVOLUTION_CHUNK = {"cpu": 500, "gpu": 20_000}
"""Samples a convolutional kernel sees at once: bounds the memory of activations at about 200 MB, 5
GB on a GPU."""

PREPARED_SHARE = 0.25
"""Share of a device's memory that samples may take in the form that the model is fastest at."""


@partial(
    jax.tree_util.register_dataclass,
    data_fields=[
        "x",
        "y",
        "count",
        "share",
        "node",
        "initial",
        "x_test",
        "y_test",
        "optimum",
        "emphasis",
        "local_weights",
    ],
    meta_fields=[
        *("name", "model", "l2", "batch", "objective", "sampling", "sample", "classes", "way")
    ],
)
@dataclass(frozen=True, eq=False)
class Problem:
    """Data on nodes, a model and a common start. Immutable.

    Passes through `jax.jit` as an argument.
    """

    x: Array  # training samples of each node (node, sample, *feature), padded
    y: Array  # their labels or targets (node, sample, ...), padded
    count: Int[Array, " node"]  # samples of each node that are real, and no padding
    share: Float[Array, " node"]  # share of each node in the loss, alpha_i
    node: Int[Array, " node"]  # identity of each node: it keys the mini-batches
    initial: Float[Array, " d"]  # first parameters of all nodes, w(0)
    x_test: Array  # test samples (sample, *feature)
    y_test: Array
    optimum: Float[Array, " d"] | None  # parameters of least loss, where they are known
    name: str
    model: Model
    l2: float
    batch: int | None  # samples of a gradient; None: all of the node's
    objective: Objective = "samples"
    sampling: Sampling = "replacement"  # how mini-batches are drawn
    emphasis: Float[Array, " node"] | None = None  # I alpha_i; None: all nodes count alike
    # what test samples count for each node where test sets were drawn; None: by the labels' shares
    local_weights: Float[Array, "node test"] | None = None
    # what a model of these data is built from; follows from x and y, and decides nothing itself
    sample: tuple[int, ...] = field(default=(), compare=False)  # shape of a sample, as it came
    classes: int = field(default=0, compare=False)  # number of classes; 0: numbers are predicted
    # how gradients of all nodes are taken; None: the default of model and machine
    way: Way | None = field(default=None, compare=False)

    @property
    def num_nodes(self) -> int:
        """Return I."""
        return self.x.shape[0]

    @property
    def dim(self) -> int:
        """Return d."""
        return self.initial.shape[0]

    @property
    def layout(self) -> Layout:
        """Return the names and shapes of the tensors in the flat vector."""
        return self.model.layout

    @property
    def fitted(self) -> Fitted:
        """Return the model, and the samples that it is built for."""
        return Fitted(self.model, self.sample, self.classes)

    @property
    def called_from_python(self) -> bool:
        """Tell whether `gradients` and `evaluate` run from Python, outside every compiled program.

        On the CPU XLA runs convolutions without its threaded kernels inside loops and under vmap
        (ten and three times slower), so there a convolutional model is called node by node from
        Python, unless another `way` was found to be faster.
        """
        if self.way is not None:
            return self.way in FROM_PYTHON
        return self.model.convolutional and jax.default_backend() == "cpu"

    @property
    def evaluated_from_python(self) -> bool:
        """Tell the same of `evaluate` alone: whatever its gradients do, its samples are many."""
        return self.model.convolutional and jax.default_backend() == "cpu"

    @property
    def differentiable(self) -> bool:
        """Return True: every model here is JAX's own."""
        return True

    @property
    def _work(self) -> int:
        """Return about how many multiplications all nodes' gradients take."""
        return self.num_nodes * (self.batch or self.x.shape[1]) * self.dim

    def of_node(
        self,
        index: int,  # number of the node
    ) -> "Problem":
        """Return the problem as node `index` sees it.

        Its own samples, its own share, no test data of others.
        """
        rows = slice(index, index + 1)
        return replace(
            self,
            x=self.x[rows, : int(self.count[index])],
            y=self.y[rows, : int(self.count[index])],
            count=self.count[rows],
            share=self.share[rows],
            node=self.node[rows],
            emphasis=None if self.emphasis is None else self.emphasis[rows],
            local_weights=None if self.local_weights is None else self.local_weights[rows],
        )

    def full_batch(self) -> "Problem":
        """Return the same problem with gradients over all samples."""
        return replace(self, batch=None)

    def gradients(
        self,
        v: Float[Array, "node d"],
        keys: Array | Turns,  # JAX random keys of the mini-batches, one for each node
    ) -> tuple[Float[Array, " node"], Float[Array, "node d"]]:
        """Return F_i(v_i) (node,) and grad F_i(v_i) (node, d).

        `keys` (node,) draw the mini-batches, if any; `folkman.problem.sampling.batch_keys` makes
        them.
        """
        nodes = (v, self.x, self.y, self.count, keys)
        if not self.called_from_python:
            # a vmapped convolution has a kernel a node: ten times slower on a GPU
            if self.way in APART or (self.model.convolutional and self.way is None):
                return lax.map(lambda node: _local(self, *node), nodes)
            local = jax.vmap(partial(_local, self))
            if self.num_nodes == 1:
                return local(*nodes)
            from folkman.problem.cores import over_cores  # here: a device has no other nodes

            return over_cores(local, self._work)(*nodes)
        if (kernel := _kernel(self, v)) is not None:
            return kernel.gradients(v, keys)
        if self.way == "whole":
            rows = [_whole(self, v, keys, np.int32(i)) for i in range(self.num_nodes)]
        else:
            rows = [
                _local(self, *jax.tree.map(lambda part, i=i: part[i], nodes))
                for i in range(self.num_nodes)
            ]
        losses, grads = zip(*rows, strict=True)
        return jnp.stack(losses), jnp.stack(grads)

    def evaluate(self, w: Float[Array, " d"]) -> Evaluation:
        """Return the measures of the model w (d,).

        F on the training data, by the objective, and the test data with every sample alike.
        """
        nan = jnp.full((), jnp.nan, w.dtype)
        weight = _sample_weights(self)
        x, y = (a.reshape(-1, *a.shape[2:]) for a in (self.x, self.y))
        train_loss, _ = _measure(self, w, x, y, weight.reshape(-1))
        test_loss, accuracy = nan, nan
        if len(self.x_test):
            even = jnp.full(len(self.x_test), 1.0 / len(self.x_test), w.dtype)
            test_loss, hits = _measure(self, w, self.x_test, self.y_test, even)
            accuracy = nan if self.model.head.hits is None else hits
        distance = nan if self.optimum is None else jnp.linalg.norm(w - self.optimum)
        penalty = _penalty(self, w)
        return Evaluation(train_loss + penalty, test_loss + penalty, accuracy, distance)

    def guess(self) -> "Guess | None":
        """Return what the best constant answer is worth; None where there is none."""
        from folkman.problem.guessing import best_constant  # here: a device node never asks

        samples = np.asarray(self.count)
        real = np.arange(self.x.shape[1])[None] < samples[:, None]
        weight = np.broadcast_to(
            (np.asarray(self.share, np.float64) / samples)[:, None], real.shape
        )
        y, tested = np.asarray(self.y)[real], np.asarray(self.y_test)
        return best_constant(self.model.head, y, weight[real], tested)

    def local_accuracies(self, v: Float[Array, "node d"]) -> Float[Array, " node"]:
        """Return the accuracy of v_i on test data with the label mixture of node i.

        Unless test sets were drawn (`make_problem(local_tests=...)`), the accuracy of v_i on each
        class of the common test data counts by the share of this class in node i's training data:
        the mean over all test sets of one mixture (`folkman.problem.local_tests`). NaN without
        labels, or without test data of any class that the node holds.
        """
        weight = _local_weights(self)
        if weight is None:
            return jnp.full(len(v), jnp.nan, v.dtype)
        if self.evaluated_from_python:
            return jnp.stack([_local_hits(self, *node) for node in zip(v, weight, strict=True)])
        return _all_local_hits(self, v, weight)


def _labelled(model: Model, tested: NDArray) -> bool:
    """Tell whether there are test data, with one label a sample."""
    whole = np.issubdtype(tested.dtype, np.integer) and tested.ndim == 1
    return model.head.hits is not None and whole and len(tested) > 0


def _local_weights(problem: Problem) -> Array | None:
    """Return what each test sample counts for each node, (node, test); None without labels."""
    if problem.local_weights is not None:
        return problem.local_weights
    labels, tested = np.asarray(problem.y), np.asarray(problem.y_test)
    if not _labelled(problem.model, tested):
        return None
    from folkman.problem import local_tests  # here and not above: a device node has no test data

    own = [labels[node, :count] for node, count in enumerate(np.asarray(problem.count))]
    mixture = local_tests.mixtures(own, tested)
    return jnp.asarray(local_tests.weighted(mixture, tested), problem.initial.dtype)


def _local_hits(problem: Problem, w: Array, weight: Array) -> Array:
    return _measure(problem, w, problem.x_test, problem.y_test, weight)[1]


@jax.jit
def _all_local_hits(problem: Problem, v: Array, weight: Array) -> Array:
    return lax.map(lambda node: _local_hits(problem, *node), (v, weight))


def _sample_weights(problem: Problem) -> Array:
    """Return alpha_i / |D_i| for real samples and 0 for padding, shape (node, sample)."""
    real = jnp.arange(problem.x.shape[1])[None] < problem.count[:, None]
    return jnp.where(real, (problem.share / problem.count)[:, None], 0.0)


def _penalty(problem: Problem, w: Array) -> Array:
    """Return l2/2 times the squared norm of everything but biases, as scikit-learn penalises."""
    if not problem.l2:
        return jnp.zeros((), w.dtype)
    kernels = [w[cut] for name, cut in problem.model.layout.segments.items() if "bias" not in name]
    return 0.5 * problem.l2 * sum((jnp.sum(k * k) for k in kernels), jnp.zeros((), w.dtype))


def _weighted_loss(model: Model, w: Array, x: Array, y: Array, weight: Array) -> Array:
    """Return the weighted sum of losses.

    A weight of 0 silences a sample even where its loss is not finite.
    """
    return jnp.sum(jnp.where(weight > 0, weight * model.losses(w, x, y), 0.0))


_loss_and_grad = jax.jit(jax.value_and_grad(_weighted_loss, argnums=1), static_argnums=0)


@partial(jax.jit, static_argnums=0)
def _loss_and_joined_grad(
    model: Model, w: Array, x: Array, y: Array, weight: Array
) -> tuple[Array, Array]:
    """Return the same, by the derivatives of each tensor, joined at the end.

    The derivative of a slice is padded to all of w, and there are as many as tensors.
    """
    tensors = model.layout.unflatten(w)
    loss, grads = jax.value_and_grad(_weighted_loss, argnums=1)(model, tensors, x, y, weight)
    return loss, model.layout.flatten(grads)


@partial(jax.jit, static_argnums=0)
def _loss_and_hits(
    model: Model, w: Array, x: Array, y: Array, weight: Array
) -> tuple[Array, Array]:
    hits = model.hits(w, x, y)
    right = jnp.zeros((), w.dtype) if hits is None else jnp.sum(weight * hits)
    return _weighted_loss(model, w, x, y, weight), right


def _local(
    problem: Problem, w: Array, x: Array, y: Array, count: Array, key: Array | Turns
) -> tuple[Array, Array]:
    """Return the loss and gradient of one node at w, over its batch or all its samples."""
    if problem.batch is None:
        weight = jnp.where(jnp.arange(x.shape[0]) < count, 1.0 / count, 0.0).astype(w.dtype)
    else:
        drawn, weight = draw(problem.batch, key, count, x.shape[0], w.dtype)
        x, y = (samples.at[drawn].get(mode="promise_in_bounds") for samples in (x, y))
    derive = _loss_and_joined_grad if problem.way in JOINED else _loss_and_grad
    loss, grad = _in_chunks(problem, partial(derive, problem.model, w), x, y, weight)
    penalty, penalty_grad = jax.value_and_grad(_penalty, argnums=1)(problem, w)
    return loss + penalty, grad + penalty_grad


@jax.jit
def _whole(
    problem: Problem, v: Array, keys: Array | Turns, node: Int[Array, ""]
) -> tuple[Array, Array]:
    """Return the loss and gradient of one node as one program; `v` and `keys` are of all nodes."""
    nodes = (v, problem.x, problem.y, problem.count, keys)
    return _local(problem, *jax.tree.map(lambda part: part[node], nodes))


def _measure(problem: Problem, w: Array, x: Array, y: Array, weight: Array) -> tuple[Array, Array]:
    if (kernel := _kernel(problem, w)) is not None:
        return kernel.measure(w, x, y, weight)
    return _in_chunks(problem, partial(_loss_and_hits, problem.model, w), x, y, weight)


def _kernel(problem: Problem, point: Array) -> "Kernel | None":
    """Return a kernel that beats JAX at this problem, if there is one."""
    if not problem.model.convolutional:
        return None
    from folkman.problem.kernels import kernel_for  # here: other models never ask

    return kernel_for(problem, point)


Sums: TypeAlias = tuple[Array, Array]


def _in_chunks(
    problem: Problem,
    kernel: Callable[[Array, Array, Array], Sums],
    x: Array,
    y: Array,
    weight: Array,
) -> Sums:
    """Sum `kernel(x, y, weight)` over chunks of samples, if the model needs bounded memory."""
    most = (
        CONVOLUTION_CHUNK.get(jax.default_backend(), 500) if problem.model.convolutional else len(x)
    )
    if len(x) <= most:
        return kernel(x, y, weight)
    size = -(-len(x) // -(-len(x) // most))  # even chunks
    if not isinstance(x, Tracer):
        parts = [kernel(*(a[i : i + size] for a in (x, y, weight))) for i in range(0, len(x), size)]
        return jax.tree.map(lambda *terms: sum(terms[1:], terms[0]), *parts)
    pad = -len(x) % size
    blocks = [
        jnp.pad(a, [(0, pad)] + [(0, 0)] * (a.ndim - 1)).reshape(-1, size, *a.shape[1:])
        for a in (x, y, weight)
    ]
    shapes = jax.eval_shape(kernel, *(b[0] for b in blocks))
    zeros = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
    total, _ = lax.scan(
        lambda sums, block: (jax.tree.map(jnp.add, sums, kernel(*block)), None), zeros, blocks
    )
    return total


def make_problem(  # noqa: PLR0913 - all but three by name
    data: DataSet,
    model: Model | str,  # the model, or its name in `MODELS`
    parts: Sequence[NDArray[np.integer]] | int,
    *,
    l2: float = 0.0,
    batch: int | None = None,
    seed: int = 0,
    dtype: str = "float32",
    prepare: bool = True,  # whether samples are stored in the form that the model is fastest at
    objective: Objective = "samples",
    # whether mini-batches are drawn with replacement, or walk through epochs
    sampling: Sampling = "replacement",
    # samples of a test set of each node; None: the common one, weighted
    local_tests: int | None = None,
) -> Problem:
    """Put the samples `parts[i]` of `data` on node i, and draw the common first model.

    `model` may be a name of `MODELS` with its default options; a number as `parts` splits evenly
    over that many nodes. With `prepare` samples are kept in the form that the model is fastest at;
    without, as they are. By `objective` every sample or every node counts alike in F; by `sampling`
    mini-batches are drawn with replacement or walk through epochs. `local_tests` draws a test set
    of that size for each node, with the node's mixture of labels; None weights the common one.
    Raises `ValueError` for an empty node, a batch below 1, a negative l2 or samples that are not
    finite.

    >>> from folkman.problem.data import digits
    >>> make_problem(digits(), "softmax", 5).dim
    650
    """
    if isinstance(model, str):
        model = pick(MODELS, model)(data.x_train.shape[1:], data.num_classes)
    if isinstance(parts, int):
        parts = iid(data.y_train, parts)
    check_samples(data, parts, l2, batch, dtype)
    require(
        sampling in SAMPLINGS,
        f"sampling must be 'replacement' or 'epochs', got {sampling!r}",
    )
    check_targets(data, model)
    _check_room(model.layout.size, len(parts), np.dtype(dtype).itemsize)
    longest = max(len(part) for part in parts)
    counts = np.array([len(part) for part in parts])
    share = shares(counts, objective)
    emphasis = uneven_emphasis(share)

    def padded(samples: NDArray) -> Array:
        rows = np.zeros((len(parts), longest, *samples.shape[1:]), samples.dtype)
        for node, part in enumerate(parts):
            rows[node, : len(part)] = samples[part]
        return _as_array(rows, dtype)

    x_test = _as_array(data.x_test, dtype)
    return Problem(
        x=_prepared(model, padded(data.x_train)) if prepare else padded(data.x_train),
        y=padded(data.y_train),
        count=jax.device_put(counts.astype(np.int32)),
        share=jax.device_put(share.astype(dtype)),
        node=jax.device_put(np.arange(len(parts), dtype=np.int32)),
        initial=_as_array(np.asarray(_first_model(model, make_key(seed, Stream.MODEL))), dtype),
        x_test=_prepared_test(model, x_test) if prepare and len(x_test) else x_test,
        y_test=_as_array(data.y_test, dtype),
        optimum=_optimum(data, model, parts, share / counts, l2, dtype),
        name=data.name,
        model=model,
        l2=l2,
        batch=batch,
        objective=objective,
        sampling=sampling,
        emphasis=None if emphasis is None else jax.device_put(emphasis.astype(dtype)),
        local_weights=_drawn_tests(data, model, parts, local_tests, seed, dtype),
        sample=data.x_train.shape[1:],
        classes=data.num_classes,
    )


def _check_room(dim: int, nodes: int, itemsize: int) -> None:
    """Refuse models that memory cannot hold: XLA would wait for them without end."""
    room = usable_bytes()
    needed = 2 * dim * nodes * itemsize  # parameters and gradients; a run holds more
    require(
        room is None or needed <= room,
        f"a model of {dim} parameters at {nodes} nodes takes {needed / 1e9:.4g} GB with its "
        f"gradients, this machine grants {(room or 0) / 1e9:.3g} GB; make the model smaller, or "
        "use fewer nodes",
    )


def _drawn_tests(
    data: DataSet,
    model: Model,
    parts: Sequence[NDArray],
    size: int | None,
    seed: int,
    dtype: str,
) -> Array | None:
    """Return what test samples count in the sets that are drawn for the nodes; None for none."""
    if size is None:
        return None
    require(size >= 1, f"local_tests must be at least 1 sample of a node, got {size}")
    tested = np.asarray(data.y_test)
    require(
        _labelled(model, tested),
        "local_tests draws test samples by their labels, and these data have none; leave it out",
    )
    from folkman.problem import local_tests

    mixture = local_tests.mixtures([data.y_train[part] for part in parts], tested)
    return jnp.asarray(local_tests.drawn(mixture, tested, size, seed), dtype)


def _optimum(
    data: DataSet,
    model: Model,
    parts: Sequence[NDArray],
    weights: NDArray,
    l2: float,
    dtype: str,
) -> Array | None:
    """Return the known optimum if it is this problem's.

    That is: all samples weigh the same in F, its model, no penalty. `weights` (node,) are those of
    a node's samples, alpha_i / |D_i|.
    """
    each = np.repeat(weights, [len(part) for part in parts])
    used = np.bincount(np.concatenate(parts), weights=each, minlength=len(data.x_train))
    if (
        data.optimum is None
        or l2
        or np.ptp(used) > 1e-9 * used.max()
        or model.layout.size != len(data.optimum)
    ):
        return None
    return _as_array(np.asarray(data.optimum), dtype)


def _first_model(model: Model, key: Array) -> Array:
    return _drawing()(model, key)


@cache
def _drawing() -> Callable[[Model, Array], Array]:
    """Return the program that draws first models; which device computes is known by now."""
    options = compiled_in_haste(jax.default_backend())
    return jax.jit(
        lambda model, key: model.init(key), static_argnums=0, compiler_options=options or None
    )


def _prepared(model: Model, x: Array) -> Array:
    """Return samples (node, n, ...) in the model's fastest form, if the device has room for it."""
    return _prepare(model, x) if _is_worth_preparing(x, jax.vmap(model.prepare)) else x


def _prepared_test(model: Model, x: Array) -> Array:
    """Return samples (n, ...) likewise."""
    return _prepare(model, x[None])[0] if _is_worth_preparing(x, model.prepare) else x


def _is_worth_preparing(x: Array, prepare: Callable[[Array], Array]) -> bool:
    """Tell whether samples have another form that the device has room for."""
    shape = jax.eval_shape(prepare, x)
    device = next(iter(x.devices()))
    room = (device.memory_stats() or {}).get("bytes_limit", 0) if device.platform == "gpu" else 0
    return shape.shape != x.shape and shape.size * shape.dtype.itemsize <= PREPARED_SHARE * room


@partial(jax.jit, static_argnums=0)
def _prepare(model: Model, x: Array) -> Array:
    return lax.map(model.prepare, x)


def _as_array(samples: NDArray, dtype: str) -> Array:
    """Put a copy of samples on the device: features in `dtype`, labels as int32."""
    kind = jnp.dtype(dtype if np.issubdtype(samples.dtype, np.floating) else np.int32)
    with np.errstate(over="ignore"):  # what is too large for it becomes infinite
        rounded = np.array(samples, kind)
    return jax.device_put(rounded)  # unlike jnp.asarray it compiles no program
