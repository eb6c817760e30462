"""Networks for samples (time, channels): convolutions over time, and a recurrent one.

    Convolutions   for each layer l:  h <- relu(pool(h * K_l + b_l)),  zeros beyond both ends
                   then the mean of h over time, and a dense layer
    Gru [1]        r = s(x W_r + a_r + h U_r + b_r),   z = s(x W_z + a_z + h U_z + b_z)
                   n = tanh(x W_n + a_n + r (h U_n + b_n)),   h <- (1 - z) n + z h
                   from h = 0; a dense layer of the last h

s is the logistic function. The three gates stand side by side in one kernel, in the order r, z, n,
as in PyTorch. Convolutions are written as products of matrices, which XLA's CPU compiler is fast at
inside loops and for many nodes at once.

Differs from [1]: r multiplies h U_n + b_n, and not h alone, as in PyTorch and cuDNN; z and 1 - z
are exchanged, as in [2].

[1] Cho et al. Learning Phrase Representations using RNN Encoder-Decoder for Statistical Machine
    Translation. EMNLP 2014. arXiv:1406.1078
[2] Chung et al. Empirical Evaluation of Gated Recurrent Neural Networks on Sequence Modeling.
    2014. arXiv:1412.3555
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from folkman.arrays import Array, jax, jnp, lax
from folkman.checks import require
from folkman.problem.models import CROSS_ENTROPY, Layout, Model

if TYPE_CHECKING:
    from folkman.problem.layers import Layer

__all__ = ["Convolutions", "Gru", "conv1d", "gru"]

Shapes = tuple[tuple[str, tuple[int, ...]], ...]


def _dense(inputs: int, outputs: int) -> Shapes:
    return (("dense0/kernel", (inputs, outputs)), ("dense0/bias", (outputs,)))


def _drawn(layout: Layout, key: Array, gain: float) -> Array:
    """Draw kernels with variance gain / inputs; biases start at zero, tables with variance 1."""
    keys = jax.random.split(key, len(layout.shapes))
    tensors = {}
    for (name, shape), tensor_key in zip(layout.shapes, keys, strict=True):
        inputs = 1
        for length in shape[:-1]:
            inputs *= length
        scale = 1.0 if name.endswith("table") else (gain / inputs) ** 0.5
        scale = 0.0 if "bias" in name else scale
        tensors[name] = scale * jax.random.normal(tensor_key, shape, jnp.float32)
    return layout.flatten(tensors)


@dataclass(frozen=True)
class Convolutions:
    """Convolutions over time with max-pooling and ReLU, a mean over time, one dense layer.

    Kernels are (width, inputs, outputs). Steps of time that do not fill a pool are left out.
    """

    sample: tuple[int, int]  # time, channels
    classes: int
    channels: tuple[int, ...]
    width: int
    pool: int

    @property
    def layout(self) -> Layout:
        """Return `conv<l>/kernel` and `conv<l>/bias` for each layer l from 0, then `dense0`."""
        shapes: Shapes = ()
        inputs = self.sample[1]
        for layer, outputs in enumerate(self.channels):
            kernel = (self.width, inputs, outputs)
            shapes += ((f"conv{layer}/kernel", kernel), (f"conv{layer}/bias", (outputs,)))
            inputs = outputs
        return Layout(shapes + _dense(inputs, self.classes))

    @property
    def layers(self) -> "tuple[Layer, ...]":
        """Return the layers of `scores`, in order."""
        from folkman.problem.layers import Affine, Convolve, MaxPool, Mean, Relu, Reshape

        found: list[Layer] = [Reshape(self.sample)]
        for layer in range(len(self.channels)):
            kernel = Convolve(f"conv{layer}/kernel", f"conv{layer}/bias")
            found += [kernel, MaxPool(self.pool), Relu()]
        return (*found, Mean(), Affine("dense0/kernel", "dense0/bias"))

    def init(self, key: Array) -> Array:
        """Return He-normal kernels and zero biases."""
        return _drawn(self.layout, key, 2.0)

    def prepare(self, x: Array) -> Array:
        """Return the samples as they are."""
        return x

    def scores(self, w: Array, x: Array) -> Array:
        """Return the class scores of samples (n, time, channels)."""
        t = self.layout.unflatten(w)
        h = x.reshape(x.shape[0], *self.sample)
        for layer in range(len(self.channels)):
            kernel = t[f"conv{layer}/kernel"]
            h = _taps(h, self.width) @ kernel.reshape(-1, kernel.shape[-1])
            h = h + t[f"conv{layer}/bias"][None, None]
            h = jax.nn.relu(_pooled(h, self.pool))  # relu last: no ties at zero to pool
        return h.mean(axis=1) @ t["dense0/kernel"] + t["dense0/bias"][None]


def _taps(h: Array, width: int) -> Array:
    """Return what a kernel of `width` sees at each time: (n, time, width x channels)."""
    before = (width - 1) // 2
    padded = jnp.pad(h, ((0, 0), (before, width - 1 - before), (0, 0)))
    return jnp.concatenate([padded[:, k : k + h.shape[1]] for k in range(width)], axis=-1)


def _pooled(h: Array, pool: int) -> Array:
    """Return the largest of each `pool` steps of time."""
    n, time, channels = h.shape
    whole = time // pool * pool
    return h[:, :whole].reshape(n, time // pool, pool, channels).max(axis=2)


@dataclass(frozen=True)
class Gru:
    """A gated recurrent unit over time, and a dense layer of its last state.

    With `vocabulary` the samples are (time,) whole numbers below it, each with a learnt vector of
    `inputs` numbers; without, they are (time, inputs).
    """

    inputs: int
    classes: int
    hidden: int
    vocabulary: int | None = None

    @property
    def layout(self) -> Layout:
        """Return the table of characters if there is one, the gates' tensors, then `dense0`."""
        gates = 3 * self.hidden
        table: Shapes = ()
        if self.vocabulary is not None:
            table = (("embedding/table", (self.vocabulary, self.inputs)),)
        return Layout(
            (
                *table,
                ("gru0/input_kernel", (self.inputs, gates)),
                ("gru0/input_bias", (gates,)),
                ("gru0/hidden_kernel", (self.hidden, gates)),
                ("gru0/hidden_bias", (gates,)),
                *_dense(self.hidden, self.classes),
            )
        )

    @property
    def layers(self) -> "tuple[Layer, ...]":
        """Return the layers of `scores`, in order."""
        from folkman.problem.layers import Affine, Embed, Recur, Reshape

        names = ("input_kernel", "input_bias", "hidden_kernel", "hidden_bias")
        first = Reshape((-1, self.inputs)) if self.vocabulary is None else Embed("embedding/table")
        cell = Recur(*(f"gru0/{name}" for name in names))
        return (first, cell, Affine("dense0/kernel", "dense0/bias"))

    def init(self, key: Array) -> Array:
        """Return kernels with variance 1 / inputs, zero biases, characters with variance 1."""
        return _drawn(self.layout, key, 1.0)

    def prepare(self, x: Array) -> Array:
        """Return the samples as they are."""
        return x

    def scores(self, w: Array, x: Array) -> Array:
        """Return the class scores of samples (n, time, inputs), or (n, time) characters."""
        t = self.layout.unflatten(w)
        if self.vocabulary is not None:
            x = t["embedding/table"][x.astype(jnp.int32)]
        h = x.reshape(*x.shape[:2], self.inputs)
        driven = h @ t["gru0/input_kernel"] + t["gru0/input_bias"][None, None]
        first = jnp.zeros((x.shape[0], self.hidden), driven.dtype)

        def step(state: Array, drive: Array) -> tuple[Array, None]:
            recurrent = state @ t["gru0/hidden_kernel"] + t["gru0/hidden_bias"][None]
            r, z, n = (drive[:, k * self.hidden : (k + 1) * self.hidden] for k in range(3))
            of_r, of_z, of_n = (
                recurrent[:, k * self.hidden : (k + 1) * self.hidden] for k in range(3)
            )
            r, z = jax.nn.sigmoid(r + of_r), jax.nn.sigmoid(z + of_z)
            n = jnp.tanh(n + r * of_n)
            return (1.0 - z) * n + z * state, None

        last, _ = lax.scan(step, first, jnp.swapaxes(driven, 0, 1))
        return last @ t["dense0/kernel"] + t["dense0/bias"][None]


def conv1d(
    sample: tuple[int, ...],
    classes: int,
    *,
    channels: tuple[int, ...] = (16, 32),  # channels of each layer
    width: int = 5,  # width of the kernels, in steps of time
    pool: int = 2,  # steps of time of which each layer keeps the largest
) -> Model:
    """Build convolutions over time for samples (time, channels).

    `channels` are those of each layer; `width` is that of their kernels, in steps of time. Each
    layer keeps the largest of every `pool` steps.
    """
    require(
        len(channels) >= 1 and all(each >= 1 for each in channels) and width >= 1 and pool >= 1,
        f"expected one layer of channels >= 1 or more, width >= 1 and pool >= 1, got "
        f"{list(channels)}, {width} and {pool}; correct the options of conv1d",
    )
    time, inputs = _series(sample, "conv1d")
    require(
        time >= pool ** len(channels),
        f"conv1d: expected at least {pool ** len(channels)} steps of time for {len(channels)} "
        f"layers that pool {pool}, got {time}; lower pool or take longer windows",
    )
    return Model(Convolutions((time, inputs), classes, tuple(channels), width, pool), CROSS_ENTROPY)


def gru(
    sample: tuple[int, ...],
    classes: int,
    *,
    hidden: int = 32,  # numbers of the hidden state
    embedding: int = 0,  # numbers that stand for a character; 0: samples are numbers
    vocabulary: int | None = None,  # different characters; None: as many as classes
) -> Model:
    """Build a gated recurrent unit for samples (time, channels), or (time,) characters.

    With `embedding` above 0 samples are characters, each with a learnt vector of so many numbers;
    there are `vocabulary` of them, None: as many as classes, since the next one is learnt.
    """
    require(
        hidden >= 1 and embedding >= 0,
        f"expected hidden >= 1 and embedding >= 0, got {hidden} and {embedding}; correct them",
    )
    if embedding == 0:
        require(
            vocabulary is None,
            f"gru: expected no vocabulary without embedding, got {vocabulary}; set both or none",
        )
        return Model(Gru(_series(sample, "gru")[1], classes, hidden), CROSS_ENTROPY)
    require(
        len(sample) == 1,
        f"gru: expected samples of shape (time,) with embedding, got {sample}; "
        "characters are whole numbers, one for each step of time",
    )
    known = classes if vocabulary is None else vocabulary
    require(known >= 1, f"gru: expected a vocabulary of 1 or more, got {known}; correct it")
    return Model(Gru(embedding, classes, hidden, known), CROSS_ENTROPY)


def _series(sample: tuple[int, ...], name: str) -> tuple[int, int]:
    """Return time and channels of a sample; one axis alone is one channel."""
    require(
        len(sample) in (1, 2),
        f"{name}: expected samples of shape (time, channels), got {sample}; "
        "use a data set of series, or another model",
    )
    return sample[0], sample[1] if len(sample) == 2 else 1
