"""Data sets: name -> float32 samples and their targets, scaled and split once and for all.

`digits` comes with folkman; `mnist`, `cifar10` and `smartwatch` are read from a folder that
`folkman data fetch` fills, and every array is checked against its SHA-256 on every load;
`quadratic` and `gaussian` are drawn, with their exact optimum; `npz` and `csv` are the
user's own files, as are `femnist`, `shakespeare` and `uci_har`, in the formats of their authors.
Nothing here opens a connection or unpickles anything.

    quadratic   f(w; x, y) = 1/2 sum_k y_k (w_k - x_k)^2,   optimum_k = sum y_k x_k / sum y_k
    gaussian    f(w; x, y) = 1/2 (x . w - y)^2,             optimum = exact least squares
    cifar10     (x - mean) / max(std, 1/sqrt(3072)) for each image over all its raw values, as
                AdaFL [1]

[1] Wang et al. Adaptive Federated Learning in Resource Constrained Edge Computing Systems.
    JSAC 2019. arXiv:1804.05271
"""

import gzip
import hashlib
import math
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkman.builders import Builders
from folkman.checks import pick, require
from folkman.keys import Stream

__all__ = [
    "BUILDERS",
    "DRAWN",
    "DataSet",
    "cifar10",
    "default_folder",
    "digits",
    "gaussian",
    "load",
    "mnist",
]
__all__ += ["npz", "of_arrays", "quadratic", "shorten"]

Raw = dict[str, NDArray[np.uint8]]
ARRAYS = ("x_train", "y_train", "x_test", "y_test")


class DataSet(NamedTuple):
    """Samples and targets, ready for training."""

    name: str
    x_train: NDArray  # (sample, ...) float32, images (height, width, channel); int32 characters
    y_train: NDArray  # int32 labels, or float32 targets
    x_test: NDArray
    y_test: NDArray
    num_classes: int  # number of classes; 0: numbers are predicted
    group: NDArray[np.int64] | None = None  # the node each training sample was made for
    optimum: NDArray[np.float64] | None = None  # minimiser of the pooled training loss


# Array -> shape and SHA-256 of the C-order uint8 bytes; the hash alone would let a reshaped array
# pass.
Spec = Mapping[str, tuple[tuple[int, ...], str]]


def _spec(train: int, test: int, image: tuple[int, ...], *sha256: str) -> Spec:
    shapes = ((train, *image), (train,), (test, *image), (test,))
    return dict(zip(ARRAYS, zip(shapes, sha256, strict=True), strict=True))


SPECS: dict[str, Spec] = {
    "mnist": _spec(
        *(60000, 10000, (28, 28)),
        "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
        "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13",
        "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
        "ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5",
    ),
    "cifar10": _spec(
        *(50000, 10000, (32, 32, 3)),
        "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
        "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
        "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
        "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
    ),
    "smartwatch": {
        "signal": (
            (244102, 6, 8),
            "c4ca0c018d4d88186339ced67f8070e370b35a8fd73f19bdc609ac294640b4d1",
        ),
        "length": ((140, 2), "f30b179a1b79f306dd4e505086e5e53ce347cf64dca8cdda4f26b3e1ce083ec3"),
        "label": ((140,), "cca0a8861f7683c38f9f92afca662103d70030a3597e06787ac9798d670be733"),
        "subject": ((140,), "fd2b26e16ed1cc9d5968816f8d65bca6846ae200fffe253ff7965b3562b3a227"),
        "side": ((140,), "88d3024c67b504f15ac54c932b6f622d3e8844b0c061d68948d2435239a9ea3a"),
    },
}

DIGITS: Spec = {
    "x": ((1797, 64), "8f26b2bd9d135c256808f68f14fdabddde6d9c7f869ae419704b051f0f14b3b3"),
    "y": ((1797,), "8ba4f891220f5e4c9c819638d1602d74b83618f167043c6da52a2a247841ddf0"),
}
DIGITS_FILE = Path(__file__).with_name("digits.npz")  # its licence lies beside it

# The authors' own files, in the order of ARRAYS; a MNIST file may also lie there unpacked, without
# ".gz".
MNIST_FILES = (
    *("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"),
    *("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"),
)
CIFAR10_FILE = "cifar-10-binary.tar.gz"
CIFAR10_BATCHES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
MEMBER_LIMIT_BYTES = 10**8  # three times the largest honest file; a hostile archive fills no memory


def default_folder() -> Path:
    """Return where fetched data sets live.

    $XDG_CACHE_HOME/folkman/data, else ~/.cache/folkman/data.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "folkman" / "data"


def verify(arrays: Mapping[str, NDArray], spec: Spec, origin: str) -> Raw:
    """Return the arrays of `spec`.

    Refuse any whose dtype, shape or SHA-256 is not the published one.
    """
    checked: Raw = {}
    for key, (shape, sha256) in spec.items():
        require(
            key in arrays,
            f"{origin}: expected an array {key}, found {sorted(arrays)}; fetch it again",
        )
        array = np.ascontiguousarray(arrays[key])
        fits = array.dtype == np.uint8 and array.shape == shape
        came = f"{array.dtype} {array.shape}"
        require(fits, f"{origin}: expected {key} to be uint8 {shape}, got {came}; fetch it again")
        came = hashlib.sha256(array.data).hexdigest()
        advice = "the copy is damaged, fetch it again"
        require(
            came == sha256, f"{origin}: expected {key} with SHA-256 {sha256}, got {came}; {advice}"
        )
        checked[key] = array
    return checked


def read_npz(path: Path) -> dict[str, NDArray]:
    """Return every array of an .npz file. Object arrays would need unpickling and are refused."""
    if not path.is_file():
        raise FileNotFoundError(f"expected an .npz file, found none at {path}; correct the path")
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            return {key: file[key] for key in file.files}
    # TypeError: a lone .npy loads as an array, no context manager; RuntimeError: an encrypted or
    # odd zip.
    except (
        ValueError,
        TypeError,
        RuntimeError,
        OSError,
        EOFError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise ValueError(
            f"expected an .npz archive of plain numeric arrays, could not read {path}; "
            "write it with numpy.savez and no object arrays"
        ) from error


def read_archives(name: str, folder: Path, spec: Spec) -> Raw:
    """Decode the authors' own archives lying in `folder`; the arrays are verified."""
    try:
        decode = ARCHIVE_READERS[name]
        return verify(decode(folder, spec), spec, f"{name} archives in {folder}")
    except FileNotFoundError:
        raise
    except (OSError, EOFError, KeyError, tarfile.TarError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(
            f"expected whole archives in {folder}, got {error}; get them again"
        ) from error


def read_raw(name: str, folder: Path | str | None = None, spec: Spec | None = None) -> Raw:
    """Return the verified arrays of a fetched data set.

    From its cache, else from archives put there.
    """
    place = default_folder() if folder is None else Path(folder)
    cache = place / f"{name}.npz"
    spec = SPECS[name] if spec is None else spec
    if cache.is_file():
        return verify(read_npz(cache), spec, str(cache))
    try:
        return read_archives(name, place, spec)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"expected the {name} data in {place}, found neither {cache.name} nor the original "
            f"archives ({Path(error.filename).name} is missing); run `folkman data fetch {name}`"
        ) from error


def decode_idx(blob: bytes, shape: tuple[int, ...], origin: str) -> NDArray[np.uint8]:
    """Decode one IDX file.

    Two zero bytes, type 8 (uint8), rank, big-endian sizes, then the values.
    """
    header = bytes([0, 0, 8, len(shape)]) + np.asarray(shape, ">u4").tobytes()
    fits = blob.startswith(header) and len(blob) == len(header) + math.prod(shape)
    came = f"{len(blob)} bytes starting with {blob[: len(header)].hex()}"
    require(
        fits, f"{origin}: expected an IDX file of {shape} bytes, got {came}; get the file again"
    )
    return np.frombuffer(blob, np.uint8, offset=len(header)).reshape(shape)


def read_members(archive: Path, names: Sequence[str], limit_bytes: int) -> dict[str, bytes]:
    """Read members of a tar archive into memory by exact name.

    Nothing is ever extracted to disk.
    """
    found = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.name in names and member.isfile() and member.size <= limit_bytes:
                stream = tar.extractfile(member)
                found[member.name] = stream.read() if stream else b""
    missing = sorted(set(names) - set(found))
    require(
        not missing,
        f"{archive.name}: expected {missing[:1]} in it, found none; get the archive again",
    )
    return found


def _read_idx_files(folder: Path, spec: Spec) -> Raw:
    arrays = {}
    for key, file_name in zip(ARRAYS, MNIST_FILES, strict=True):
        packed, plain = folder / file_name, folder / file_name.removesuffix(".gz")
        shape = spec[key][0]
        with gzip.open(packed) if packed.is_file() else plain.open("rb") as stream:
            arrays[key] = decode_idx(stream.read(MEMBER_LIMIT_BYTES), shape, file_name)
    return arrays


def _read_cifar10(folder: Path, spec: Spec) -> Raw:
    """Decode the binary version: records of one label byte, then the red, green and blue planes."""
    batches = [f"cifar-10-batches-bin/{name}.bin" for name in CIFAR10_BATCHES]
    height, width, channels = spec["x_test"][0][1:]
    record_bytes = 1 + height * width * channels
    found = read_members(folder / CIFAR10_FILE, batches, limit_bytes=MEMBER_LIMIT_BYTES)
    arrays = {}
    for part, names in (("train", batches[:-1]), ("test", batches[-1:])):
        blob = b"".join(found[name] for name in names)
        whole, came = len(blob) % record_bytes == 0, f"{len(blob)} bytes"
        require(
            whole,
            f"{CIFAR10_FILE}: expected {record_bytes} bytes a record, got {came}; get it again",
        )
        records = np.frombuffer(blob, np.uint8).reshape(-1, record_bytes)
        arrays[f"y_{part}"] = records[:, 0]
        arrays[f"x_{part}"] = (
            records[:, 1:].reshape(-1, channels, height, width).transpose(0, 2, 3, 1)
        )
    return arrays


def _read_smartwatch(folder: Path, spec: Spec) -> Raw:
    # here and not above: it is built from this module
    from folkman.problem.smartwatch import WHEEL, decode_wheel

    return decode_wheel(folder / WHEEL, spec)


ARCHIVE_READERS: dict[str, Callable[[Path, Spec], Raw]] = {
    "mnist": _read_idx_files,
    "cifar10": _read_cifar10,
    "smartwatch": _read_smartwatch,
}


def scale_each_image(raw: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return (x - mean)/max(std, 1/sqrt(pixels)) for each image: CIFAR-10's scaling [1]."""
    x = raw.reshape(len(raw), -1).astype(np.float32)
    x -= raw.reshape(len(raw), -1).mean(axis=1, keepdims=True, dtype=np.float64).astype(np.float32)
    std = np.sqrt(np.einsum("ij,ij->i", x, x) / x.shape[1])
    x /= np.maximum(std, 1 / math.sqrt(x.shape[1]), dtype=np.float32)[:, None]
    return x.reshape(raw.shape)


@cache
def _all_digits() -> Raw:
    """Return all samples x (sample, 64), in 0 .. 16, and their labels y, as they were published."""
    return verify(read_npz(DIGITS_FILE), DIGITS, str(DIGITS_FILE))


def digits() -> DataSet:
    """Load the digits of `sklearn.datasets.load_digits`, x/16: 1437 to learn, 360 to test.

    The split has no seed: of the samples ordered by label, every fifth is for testing.
    """
    x, y = _all_digits()["x"], _all_digits()["y"]
    test = np.zeros(len(y), bool)
    test[np.argsort(y, kind="stable")[::5]] = True
    x = (x / 16).astype(np.float32).reshape(-1, 8, 8, 1)
    y = y.astype(np.int32)
    return DataSet("digits", x[~test], y[~test], x[test], y[test], num_classes=10)


def mnist(folder: Path | str | None = None) -> DataSet:
    """Load MNIST (60,000 + 10,000 images of 28x28x1) from `folder`, x/255."""
    return _images(
        "mnist",
        read_raw("mnist", folder),
        lambda raw: np.divide(raw[..., None], 255, dtype=np.float32),
    )


def cifar10(folder: Path | str | None = None) -> DataSet:
    """Load CIFAR-10 from `folder`, each image standardised [1].

    50,000 + 10,000 images of 32x32x3.
    """
    return _images("cifar10", read_raw("cifar10", folder), scale_each_image)


def _images(
    name: str, raw: Raw, scale: Callable[[NDArray[np.uint8]], NDArray[np.float32]]
) -> DataSet:
    y_train, y_test = raw["y_train"].astype(np.int32), raw["y_test"].astype(np.int32)
    return DataSet(
        name, scale(raw["x_train"]), y_train, scale(raw["x_test"]), y_test, num_classes=10
    )


def quadratic(
    *,
    nodes: int = 5,
    dim: int = 10,
    heterogeneity: float = 1.0,  # standard deviation of the nodes' centres; 0: all nodes alike
    condition: float = 10.0,  # largest curvature over the least
    samples_per_node: int = 1,  # samples of each node
    noise: float = 0.0,  # standard deviation of a sample's centre around its node's
    seed: int = 0,
) -> DataSet:
    """Draw separable quadratics: x holds centres, y curvatures, `group` the nodes.

    Curvatures lie in [1/condition, 1].

    `heterogeneity` is the standard deviation of the nodes' centres; up to 1 it also mixes each
    node's own curvatures into the common ones, so at 0 all nodes are identical. `noise` is the
    standard deviation of a sample's centre around its node's: gradient noise for mini-batches. The
    test samples are the training samples: what is asked of a quadratic is its optimum.
    """
    _require_positive(nodes=nodes, dim=dim, samples_per_node=samples_per_node)
    require(
        0 <= heterogeneity < math.inf and 0 <= noise < math.inf and 1 <= condition < math.inf,
        "expected heterogeneity >= 0, noise >= 0 and condition >= 1, all finite, got "
        f"{heterogeneity}, {noise} and {condition}; correct the options of the quadratic data",
    )
    rng = np.random.default_rng([seed, int(Stream.DATA)])
    centre = rng.normal(size=dim) + heterogeneity * rng.normal(size=(nodes, dim))
    mixed = min(heterogeneity, 1.0)
    exponent = (1 - mixed) * np.linspace(0, 1, dim) + mixed * rng.uniform(size=(nodes, dim))
    group = np.repeat(np.arange(nodes), samples_per_node)
    x = (centre[group] + noise * rng.normal(size=(len(group), dim))).astype(np.float32)
    y = (condition**-exponent)[group].astype(np.float32)
    weight = y.astype(np.float64)  # of the rounded values: the optimum of the data as given
    optimum = (weight * x).sum(axis=0) / weight.sum(axis=0)
    return DataSet("quadratic", x, y, x, y, num_classes=0, group=group, optimum=optimum)


def gaussian(
    *,
    samples: int = 1000,  # number of training samples
    dim: int = 20,
    noise: float = 0.1,  # standard deviation of a target around the line
    test_samples: int = 200,  # number of test samples
    seed: int = 0,
) -> DataSet:
    """Draw a linear regression y = x . w + noise, x ~ N(0, I), without intercept."""
    _require_positive(samples=samples, dim=dim, test_samples=test_samples)
    require(
        samples >= dim and 0 <= noise < math.inf,
        "expected samples >= dim (else the optimum is not unique) and noise >= 0, got "
        f"samples={samples}, dim={dim}, noise={noise}; correct the options of the gaussian data",
    )
    rng = np.random.default_rng([seed, int(Stream.DATA)])
    true_weights = rng.normal(size=dim)
    drawn = []
    for count in (samples, test_samples):
        x = rng.normal(size=(count, dim)).astype(np.float32)
        drawn += [x, (x @ true_weights + noise * rng.normal(size=count)).astype(np.float32)]
    optimum = np.linalg.lstsq(drawn[0].astype(np.float64), drawn[1].astype(np.float64), rcond=None)[
        0
    ]
    return DataSet("gaussian", *drawn, num_classes=0, optimum=optimum)


def npz(path: Path | str, *, regression: bool = False) -> DataSet:
    """Load the user's own file: x_train, y_train and, if there, x_test, y_test; or x, y.

    Values are taken as they are (no scaling). Without test arrays the last fifth of a fixed
    permutation is held out. Labels are integers 0..C-1; `regression` takes y as float targets
    instead. An array `group`, a whole number for each sample of x or x_train, says which device it
    came from: the partition `by_device` goes by it.
    """
    return of_arrays(read_npz(Path(path)), str(path), regression=regression)


def of_arrays(
    arrays: Mapping[str, NDArray], path: str, *, regression: bool, test_share: float = 0.2
) -> DataSet:
    """Return a data set of the arrays of a user's file, checked; see `npz`."""
    prefix = "" if "x" in arrays else "_train"
    keys = [f"x{prefix}", f"y{prefix}"]
    keys += ["x_test", "y_test"] if {"x_test", "y_test"} & set(arrays) else []
    for key in keys:
        require(
            key in arrays,
            f"{path}: expected an array {key}, found {sorted(arrays)}; add it to the file",
        )
    pairs = [
        _samples(arrays, path, keys[i], keys[i + 1], regression) for i in range(0, len(keys), 2)
    ]
    group = _group(arrays, path, len(pairs[0][0]))
    if len(pairs) == 1:
        learned, held = _hold_out(len(pairs[0][0]), path, test_share)
        x, y = pairs[0]
        pairs = [(x[learned], y[learned]), (x[held], y[held])]
        group = None if group is None else group[learned]
    (x, y), (x_test, y_test) = pairs
    came = f"x {x.shape[1:]} and {x_test.shape[1:]}, y {y.shape[1:]} and {y_test.shape[1:]}"
    alike = x.shape[1:] == x_test.shape[1:] and y.shape[1:] == y_test.shape[1:]
    require(
        alike,
        f"{path}: expected training and test samples of one shape, got {came}; prepare both alike",
    )
    num_classes = 0 if regression else _count_classes(np.concatenate([y, y_test]), path)
    if not regression:
        y, y_test = y.astype(np.int32), y_test.astype(np.int32)
    return DataSet(Path(path).stem, x, y, x_test, y_test, num_classes, group)


def _group(arrays: Mapping[str, NDArray], path: str, samples: int) -> NDArray[np.int64] | None:
    """Return which device each training sample came from, if the file says so."""
    if "group" not in arrays:
        return None
    group = arrays["group"]
    require(
        group.shape == (samples,) and group.dtype.kind in "iu",
        f"{path}: expected group to be a vector of {samples} whole numbers, the device of each "
        f"training sample, got {group.dtype} {group.shape}; store one number for each sample",
    )
    return group.astype(np.int64)


def _samples(
    arrays: Mapping[str, NDArray], origin: str, x_key: str, y_key: str, regression: bool
) -> tuple[NDArray[np.float32], NDArray]:
    x, y = arrays[x_key], arrays[y_key]
    require(
        len(x.shape[:1]) == 0 or x.size > 0,
        f"{origin}: expected samples in {x_key}, got {x.shape}, which holds none; add some",
    )
    require(
        x.ndim >= 2 and x.shape[:1] == y.shape[:1] and x.size > 0 and y.size > 0,
        f"{origin}: expected {x_key} (sample, feature, ...) and {y_key} (sample, ...) of one "
        f"length, got {x.shape} and {y.shape}; give each sample one row in both",
    )
    require(
        regression or (y.ndim == 1 and y.dtype.kind in "iu"),
        f"{origin}: expected {y_key} to be a vector of integer labels, got {y.dtype} {y.shape}; "
        "store y.astype(int), or set regression = true",
    )
    return _finite(x, origin, x_key), _finite(y, origin, y_key) if regression else y


def _finite(array: NDArray, origin: str, key: str) -> NDArray[np.float32]:
    real = array.dtype.kind in "biuf"
    require(real, f"{origin}: expected real numbers in {key}, got {array.dtype}; convert them")
    with np.errstate(over="ignore"):  # too large for float32: becomes inf, and is refused below
        values = array.astype(np.float32)
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        index = tuple(bad[0].tolist())
        raise ValueError(
            f"{origin}: expected finite float32 values in {key}, got {array[index]} at index "
            f"{index} ({len(bad)} in all); clean the data"
        )
    return values


def _hold_out(
    samples: int, origin: str, share: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return which samples are learned from and which are held out, of a fixed permutation."""
    require(0 < share < 1, f"{origin}: expected test_share in (0, 1), got {share}; correct it")
    require(
        samples > 1, f"{origin}: expected two samples or more to split, got {samples}; add samples"
    )
    order = np.random.default_rng([0, int(Stream.DATA)]).permutation(samples)
    # a product such as 0.2 * 15 may lie just below its whole number; one sample is left to learn
    held = min(max(1, int(share * samples + 1e-9)), samples - 1)
    cut = samples - held
    return order[:cut], order[cut:]


def _count_classes(labels: NDArray, origin: str) -> int:
    used = np.unique(labels)
    fits = bool(np.array_equal(used, np.arange(len(used))))
    came = f"{used[:12].tolist()}{'...' if len(used) > 12 else ''}"
    require(fits, f"{origin}: expected labels 0..C-1, each in use, got {came}; renumber them")
    return len(used)


def _require_positive(**counts: int) -> None:
    for name, count in counts.items():
        require(count >= 1, f"expected {name} >= 1, got {name}={count}; correct the data options")


HERE = ("digits", "mnist", "cifar10", "quadratic", "gaussian", "npz")
BUILDERS: Builders[DataSet] = Builders(
    {
        **{name: f"folkman.problem.data:{name}" for name in HERE},
        "csv": "folkman.problem.table:csv_samples",
        "smartwatch": "folkman.problem.smartwatch:smartwatch",
        "femnist": "folkman.problem.leaf:femnist",
        "shakespeare": "folkman.problem.leaf:shakespeare",
        "uci_har": "folkman.problem.har:uci_har",
    }
)
"""Builders by name."""

DRAWN = {"digits": "comes with scikit-learn", "quadratic": "drawn", "gaussian": "drawn"}
"""Data sets that need no files, and why."""


def load(
    name: str,
    *,
    train_size: int | None = None,
    test_size: int | None = None,
    **options: object,
) -> DataSet:
    """Load the data set `name`; `options` are those of its builder, None meaning its default.

    `train_size` and `test_size` keep only the first samples; a drawn data set has its own size
    options.

    >>> load("digits", train_size=100).x_train.shape
    (100, 8, 8, 1)
    """
    given = {option: value for option, value in options.items() if value is not None}
    return shorten(pick(BUILDERS, name)(**given), train_size, test_size)


def shorten(full: DataSet, train_size: int | None = None, test_size: int | None = None) -> DataSet:
    """Keep only the first samples of a data set; one that was drawn has size options of its own."""
    for part, size in (("train", train_size), ("test", test_size)):
        if size is None:
            continue
        x, y = getattr(full, f"x_{part}"), getattr(full, f"y_{part}")
        name = full.name
        require(
            full.optimum is None,
            f"{name}: expected no {part}_size, got {size}; use its own options",
        )
        require(
            1 <= size <= len(x),
            f"{name}: expected {part}_size in 1..{len(x)}, got {size}; correct it",
        )
        # Copies: a view would keep the whole set in memory.
        full = full._replace(**{f"x_{part}": x[:size].copy(), f"y_{part}": y[:size].copy()})
        if part == "train" and full.group is not None:
            full = full._replace(group=full.group[:size])
    return full
