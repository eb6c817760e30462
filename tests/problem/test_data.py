"""Data sets: right shapes, exact optima, and no bad file let through."""

import gzip
import hashlib
import inspect
import io
import math
import tarfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkman.problem import data, partition


def spec_of(arrays):
    return {
        k: (a.shape, hashlib.sha256(np.ascontiguousarray(a).tobytes()).hexdigest())
        for k, a in arrays.items()
    }


def small_images(image, train=10, test=4):
    rng = np.random.default_rng(0)
    shapes = {
        "x_train": (train, *image),
        "y_train": (train,),
        "x_test": (test, *image),
        "y_test": (test,),
    }
    return {
        key: rng.integers(0, 10 if key[0] == "y" else 256, shape, np.uint8)
        for key, shape in shapes.items()
    }


def write_idx(folder, arrays, packed=True):
    for key, name in zip(data.ARRAYS, data.MNIST_FILES, strict=True):
        array = arrays[key]
        blob = (
            bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()
        )
        path = folder / (name if packed else name.removesuffix(".gz"))
        path.write_bytes(gzip.compress(blob) if packed else blob)


def write_cifar(folder, arrays, skip=()):
    batches = {
        f"data_batch_{i + 1}": (
            arrays["x_train"][2 * i : 2 * i + 2],
            arrays["y_train"][2 * i : 2 * i + 2],
        )
        for i in range(5)
    }
    batches["test_batch"] = (arrays["x_test"], arrays["y_test"])
    with tarfile.open(folder / data.CIFAR10_FILE, "w:gz") as tar:
        for name, (x, y) in batches.items():
            if name in skip:
                continue
            planes = [
                bytes([label]) + image.transpose(2, 0, 1).tobytes()
                for image, label in zip(x, y, strict=True)
            ]
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            info.size = len(b"".join(planes))
            tar.addfile(info, io.BytesIO(b"".join(planes)))


def test_digits_are_split_once_and_stratified():
    loaded = data.load("digits")

    assert loaded.x_train.shape == (1437, 8, 8, 1)
    assert loaded.x_test.shape == (360, 8, 8, 1)
    assert loaded.x_train.dtype == np.float32
    assert loaded.y_train.dtype == np.int32
    assert loaded.x_train.min() == 0
    assert loaded.x_train.max() == 1
    train, test = np.bincount(loaded.y_train), np.bincount(loaded.y_test)
    assert (np.abs(test - (train + test) / 5) <= 1).all()
    again = data.digits()
    assert np.array_equal(again.x_test, loaded.x_test)


def test_no_digit_is_in_both_parts():
    loaded = data.digits()
    whole = np.concatenate([loaded.x_train, loaded.x_test]).reshape(1797, -1)

    assert len(np.unique(whole, axis=0)) == 1797


def test_the_digits_are_scikit_learns():
    from sklearn.datasets import load_digits  # slow to import, and not needed by the others

    x, y = load_digits(return_X_y=True)
    own = data._all_digits()
    np.testing.assert_array_equal(own["x"], x)
    np.testing.assert_array_equal(own["y"], y)

    test = np.zeros(len(y), bool)
    test[np.argsort(y, kind="stable")[::5]] = True
    loaded, pixels = data.digits(), (x / 16).astype(np.float32).reshape(-1, 8, 8, 1)
    for got, wanted in (
        (loaded.x_train, pixels[~test]),
        (loaded.x_test, pixels[test]),
        (loaded.y_train, y[~test].astype(np.int32)),
        (loaded.y_test, y[test].astype(np.int32)),
    ):
        assert got.dtype == wanted.dtype
        assert got.tobytes() == wanted.tobytes()


def test_digits_that_are_not_the_published_ones_are_refused(monkeypatch, tmp_path):
    own = data._all_digits()
    changed = own["x"].copy()
    changed[0, 0] += 1
    np.savez(tmp_path / "digits.npz", x=changed, y=own["y"])
    monkeypatch.setattr(data, "DIGITS_FILE", tmp_path / "digits.npz")

    with pytest.raises(ValueError, match="expected x with SHA-256"):
        data._all_digits.__wrapped__()


@given(
    nodes=st.integers(1, 6),
    dim=st.integers(1, 8),
    heterogeneity=st.floats(0, 5),
    condition=st.floats(1, 1e3),
    seed=st.integers(0, 100),
)
@settings(max_examples=60, deadline=None)
def test_pooled_gradient_of_quadratics_vanishes_at_the_optimum(
    nodes, dim, heterogeneity, condition, seed
):
    q = data.quadratic(
        nodes=nodes,
        dim=dim,
        heterogeneity=heterogeneity,
        condition=condition,
        samples_per_node=3,
        noise=0.5,
        seed=seed,
    )

    curvature, centre = q.y_train.astype(np.float64), q.x_train.astype(np.float64)
    assert q.optimum is not None
    assert q.group is not None
    gradient = (curvature * (q.optimum - centre)).mean(axis=0)

    assert np.abs(gradient).max() < 1e-10
    assert curvature.max() <= 1
    assert curvature.min() >= (1 - 1e-6) / condition
    assert [len(part) for part in partition.given(q.group)] == [3] * nodes


def test_quadratic_nodes_are_identical_without_heterogeneity_and_spread_with_it():
    same = data.quadratic(nodes=4, heterogeneity=0.0, condition=50.0)
    spread = data.quadratic(nodes=2000, dim=3, heterogeneity=2.0)

    assert (same.x_train == same.x_train[0]).all()
    assert (same.y_train == same.y_train[0]).all()
    assert same.y_train.max() / same.y_train.min() == pytest.approx(50, rel=1e-5)
    assert spread.x_train.std(axis=0) == pytest.approx(2.0, rel=0.05)


@given(
    dim=st.integers(1, 10),
    extra=st.integers(0, 50),
    noise=st.floats(0, 3),
    seed=st.integers(0, 100),
)
@settings(max_examples=60, deadline=None)
def test_pooled_gradient_of_least_squares_vanishes_at_the_optimum(dim, extra, noise, seed):
    g = data.gaussian(samples=dim + extra, dim=dim, noise=noise, seed=seed)

    x, y = g.x_train.astype(np.float64), g.y_train.astype(np.float64)
    assert g.optimum is not None
    gradient = x.T @ (x @ g.optimum - y) / len(x)

    assert np.abs(gradient).max() < 1e-10


def test_drawn_data_depend_on_the_seed_alone():
    first, again, other = (data.load("gaussian", seed=seed) for seed in (1, 1, 2))

    assert np.array_equal(first.x_train, again.x_train)
    assert not np.array_equal(first.x_train, other.x_train)
    assert np.array_equal(first.y_train, data.gaussian(seed=1, test_samples=7).y_train)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: data.quadratic(nodes=0), "expected nodes >= 1, got nodes=0"),
        (lambda: data.quadratic(condition=0.5), "condition >= 1"),
        (lambda: data.quadratic(heterogeneity=float("nan")), "heterogeneity >= 0"),
        (lambda: data.gaussian(samples=3, dim=4), "expected samples >= dim"),
        (lambda: data.load("minst"), "there is no 'minst'; did you mean 'mnist'?"),
        (lambda: data.load("digits", train_size=1438), "expected train_size in 1..1437, got 1438"),
        (lambda: data.load("quadratic", train_size=2), "expected no train_size, got 2"),
    ],
)
def test_impossible_options_are_refused_with_what_to_do(call, message):
    with pytest.raises(ValueError) as refused:  # noqa: PT011  the message is compared whole, not as a pattern
        call()

    assert message in str(refused.value)


COUNTS = [
    *(("quadratic", option) for option in ("nodes", "dim", "samples_per_node")),
    *(("gaussian", option) for option in ("samples", "dim", "test_samples")),
]
SCALES = [
    *(("quadratic", option) for option in ("heterogeneity", "noise", "condition")),
    ("gaussian", "noise"),
]


def test_limits_of_the_options_are_allowed():
    same = data.quadratic(nodes=1, dim=1, heterogeneity=0, noise=0, condition=1, samples_per_node=1)
    assert same.y_train.tolist() == [[1.0]]
    assert same.optimum is not None
    assert np.array_equal(same.x_train[0], same.optimum)

    exact = data.gaussian(samples=4, dim=4, noise=0.0, test_samples=1)
    assert exact.optimum is not None
    assert exact.x_test @ exact.optimum == pytest.approx(exact.y_test, rel=1e-4)  # the true weights

    assert [len(data.load("digits", train_size=size).x_train) for size in (1, 1437)] == [1, 1437]
    assert [len(data.load("digits", test_size=size).x_test) for size in (1, 360)] == [1, 360]


BEYOND = [
    *((name, option, 0) for name, option in COUNTS),
    *((name, option, value) for name, option in SCALES for value in (-1e-9, math.inf, math.nan)),
    ("quadratic", "condition", 1 - 1e-9),
    ("digits", "train_size", 0),
    ("digits", "test_size", 361),
]


@pytest.mark.parametrize(("name", "option", "value"), BEYOND)
def test_the_first_value_beyond_a_limit_is_refused(name, option, value):
    with pytest.raises(ValueError, match=r"^(digits: )?expected .*; correct"):
        data.load(name, **{option: value})


def test_noise_spreads_samples_around_their_nodes_centre():
    drawn = {
        noise: data.quadratic(nodes=3, dim=2, samples_per_node=4000, noise=noise).x_train
        for noise in (0.0, 0.5)
    }

    away = (drawn[0.5] - drawn[0.0]).reshape(3, 4000, 2)
    assert away.std(axis=1) == pytest.approx(0.5, rel=0.05)
    assert np.abs(away.mean(axis=1)).max() < 4 * 0.5 / np.sqrt(4000)


def test_sizes_keep_the_first_samples_and_unknown_options_are_refused():
    whole = data.digits()

    small = data.load("digits", train_size=30, test_size=5, folder=None)

    assert np.array_equal(small.x_train, whole.x_train[:30])
    assert np.array_equal(small.y_test, whole.y_test[:5])
    assert small.x_train.base is None
    with pytest.raises(TypeError, match="folder"):
        data.load("digits", folder="somewhere")


def test_every_builder_tells_its_options():
    options = {
        name: set(inspect.signature(build).parameters) for name, build in data.BUILDERS.items()
    }

    assert options["mnist"] == options["cifar10"] == {"folder"}
    assert options["npz"] == {"path", "regression"}
    assert "heterogeneity" in options["quadratic"]


def test_default_folder_follows_the_cache_home(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert data.default_folder() == tmp_path / "folkman" / "data"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data.default_folder() == tmp_path / ".cache" / "folkman" / "data"


@pytest.mark.parametrize("packed", [True, False])
def test_idx_archives_in_the_folder_are_read(tmp_path, packed):
    arrays = small_images((5, 3))
    write_idx(tmp_path, arrays, packed)

    raw = data.read_raw("mnist", tmp_path, spec_of(arrays))

    assert all(np.array_equal(raw[key], arrays[key]) for key in arrays)


def test_cifar_archive_in_the_folder_is_read(tmp_path):
    arrays = small_images((4, 2, 3))
    write_cifar(tmp_path, arrays)

    raw = data.read_raw("cifar10", tmp_path, spec_of(arrays))

    assert all(np.array_equal(raw[key], arrays[key]) for key in arrays)


@pytest.mark.parametrize(
    ("name", "image", "write"), [("mnist", (5, 3), write_idx), ("cifar10", (4, 2, 3), write_cifar)]
)
def test_a_flipped_byte_anywhere_in_an_archive_is_refused_or_harmless(tmp_path, name, image, write):
    arrays = small_images(image)
    write(tmp_path, arrays)
    victim = tmp_path / (data.MNIST_FILES[0] if name == "mnist" else data.CIFAR10_FILE)
    whole = victim.read_bytes()
    refused = 0

    for place in range(0, len(whole), 5):
        victim.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            raw = data.read_raw(name, tmp_path, spec_of(arrays))
        except ValueError:
            refused += 1
        else:  # the gzip header's clock, say: what was read must still be right
            assert all(np.array_equal(raw[key], arrays[key]) for key in arrays)

    assert refused > len(whole) / 5 * 0.8


def test_cut_and_incomplete_archives_are_refused(tmp_path):
    arrays = small_images((4, 2, 3))
    write_cifar(tmp_path, arrays, skip=("data_batch_3",))
    with pytest.raises(ValueError, match=r"data_batch_3\.bin"):
        data.read_raw("cifar10", tmp_path, spec_of(arrays))
    archive = tmp_path / data.CIFAR10_FILE
    archive.write_bytes(archive.read_bytes()[:150])
    with pytest.raises(ValueError, match="get them again"):
        data.read_raw("cifar10", tmp_path, spec_of(arrays))

    images = small_images((5, 3))
    write_idx(tmp_path, images, packed=False)
    cut = tmp_path / "t10k-labels-idx1-ubyte"
    cut.write_bytes(cut.read_bytes()[:-1])
    with pytest.raises(ValueError, match="expected an IDX file of"):
        data.read_raw("mnist", tmp_path, spec_of(images))


@pytest.mark.parametrize(
    ("change", "message"), [("value", "SHA-256"), ("shape", "uint8"), ("dtype", "uint8")]
)
def test_a_cache_is_checked_on_every_load(tmp_path, change, message):
    arrays = small_images((5, 3))
    spec = spec_of(arrays)
    np.savez(tmp_path / "mnist.npz", **arrays)
    assert np.array_equal(data.read_raw("mnist", tmp_path, spec)["x_test"], arrays["x_test"])

    arrays["x_test"] = {
        "value": arrays["x_test"] ^ 1,
        "shape": arrays["x_test"].reshape(4, 3, 5),
        "dtype": arrays["x_test"].view(np.int8),
    }[change]
    np.savez(tmp_path / "mnist.npz", **arrays)

    with pytest.raises(ValueError, match=f"x_test.*{message}.*fetch it again"):
        data.read_raw("mnist", tmp_path, spec)


def test_missing_data_say_which_command_fetches_them(tmp_path):
    for name in ("mnist", "cifar10"):
        with pytest.raises(FileNotFoundError, match=f"run `folkman data fetch {name}`"):
            data.load(name, folder=tmp_path)


def test_mnist_pixels_are_divided_by_255_and_cifar_images_standardised(tmp_path, monkeypatch):
    grey, colour = small_images((28, 28)), small_images((32, 32, 3))
    colour["x_train"][0] = 7  # a flat image: its deviation is bounded from below by 1/sqrt(3072)
    colour["x_train"][1] = 7
    colour["x_train"][1, 0, 0, 0] = 8
    monkeypatch.setattr(data, "SPECS", {"mnist": spec_of(grey), "cifar10": spec_of(colour)})
    write_idx(tmp_path, grey)
    write_cifar(tmp_path, colour)

    mnist, cifar = data.load("mnist", folder=tmp_path), data.load("cifar10", folder=tmp_path)

    assert mnist.x_train.shape == (10, 28, 28, 1)
    assert mnist.x_train.dtype == cifar.x_train.dtype == np.float32
    np.testing.assert_allclose(mnist.x_train[..., 0], grey["x_train"] / 255, rtol=1e-6)
    for image, raw in zip(cifar.x_train, colour["x_train"].astype(np.float64), strict=True):
        expected = (raw - raw.mean()) / max(raw.std(), 1 / np.sqrt(3072))
        np.testing.assert_allclose(image, expected, rtol=1e-4, atol=1e-4)
    assert (cifar.x_train[0] == 0).all()
    assert mnist.y_test.dtype == np.int32


def write_own(path, **arrays):
    np.savez(path, **arrays)
    return path


def test_own_file_with_a_test_set_is_taken_as_it_is(tmp_path):
    x = np.arange(12, dtype=np.uint8).reshape(6, 2)
    path = write_own(
        tmp_path / "own.npz",
        x_train=x,
        y_train=np.arange(6) % 3,
        x_test=x[:2],
        y_test=np.array([0, 1]),
    )

    own = data.load("npz", path=path)

    assert (own.name, own.num_classes) == ("own", 3)
    assert own.x_train.dtype == np.float32
    assert own.y_train.dtype == np.int32
    assert np.array_equal(own.x_train, x)
    assert np.array_equal(own.x_test, x[:2])


@pytest.mark.parametrize("keys", [("x", "y"), ("x_train", "y_train")])
def test_own_file_without_a_test_set_holds_out_a_fifth(tmp_path, keys):
    x = np.arange(50.0).reshape(50, 1)
    path = write_own(tmp_path / "own.npz", **dict(zip(keys, (x, np.arange(50) % 2), strict=True)))

    own, again = data.npz(path), data.npz(path)

    assert (len(own.x_train), len(own.x_test)) == (40, 10)
    assert sorted(np.concatenate([own.x_train, own.x_test]).ravel().tolist()) == list(range(50))
    assert np.array_equal(own.x_train[:, 0] % 2, own.y_train)
    assert np.array_equal(own.x_test, again.x_test)
    assert (
        np.diff(own.x_test[:, 0]) < 0
    ).any()  # not the last samples of the file: those may be sorted


def test_own_regression_targets_are_floats(tmp_path):
    path = write_own(tmp_path / "own.npz", x=np.ones((10, 2)), y=np.linspace(0, 1, 10))

    own = data.load("npz", path=path, regression=True)

    assert (own.y_train.dtype, own.num_classes) == (np.float32, 0)


X, Y = np.ones((4, 2)), np.array([0, 1, 0, 1])
HOLE = np.where(np.arange(8).reshape(4, 2) == 5, np.nan, 1.0)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            {"x": HOLE, "y": Y},
            r"finite float32 values in x, got nan at index \(2, 1\) \(1 in all\); clean",
        ),
        ({"x": X * 1e300, "y": Y}, r"got 1e\+300 at index \(0, 0\)"),
        ({"x_train": X, "y_train": Y, "x_test": HOLE, "y_test": Y}, r"values in x_test, got nan"),
        ({"x": X}, r"expected an array y, found \['x'\]; add it"),
        ({"images": X}, r"expected an array x_train, found \['images'\]"),
        ({"x_train": X, "y_train": Y, "x_test": X}, r"expected an array y_test"),
        ({"x": X, "y": Y[:3]}, r"of one length, got \(4, 2\) and \(3,\)"),
        ({"x": X[:0], "y": Y[:0]}, r"got \(0, 2\)"),
        ({"x": X[:, 0], "y": Y}, r"got \(4,\) and \(4,\)"),
        ({"x": X[:1], "y": Y[:1]}, r"expected two samples or more"),
        ({"x": X, "y": Y + 0.0}, r"integer labels, got float64 \(4,\); store y.astype\(int\)"),
        ({"x": X, "y": X.astype(int)}, r"a vector of integer labels, got int64 \(4, 2\)"),
        ({"x": X, "y": Y + 1}, r"expected labels 0\.\.C-1, each in use, got \[1, 2\]; renumber"),
        ({"x": X, "y": Y - 1}, r"got \[-1, 0\]"),
        ({"x": X, "y": Y * 10**9}, r"got \[0, 1000000000\]"),
        ({"x": X + 1j, "y": Y}, r"expected real numbers in x, got complex128"),
        ({"x": np.full((4, 2), "a"), "y": Y}, r"expected real numbers in x, got <U1"),
        ({"x": X.astype(object), "y": Y}, r"plain numeric arrays"),
        (
            {"x_train": X, "y_train": Y, "x_test": X[:, :1], "y_test": Y},
            r"one shape, got x \(2,\) and \(1,\)",
        ),
    ],
)
def test_bad_own_files_are_refused_by_name_value_and_remedy(tmp_path, arrays, message):
    path = write_own(tmp_path / "own.npz", **arrays)

    with pytest.raises(ValueError, match=message) as refused:
        data.npz(path)

    assert "own.npz" in str(refused.value)


def test_what_is_no_npz_at_all_is_refused(tmp_path):
    whole = write_own(tmp_path / "own.npz", x=X, y=Y).read_bytes()
    np.save(tmp_path / "single.npy", X)

    with pytest.raises(FileNotFoundError, match=r"found none at .*absent\.npz; correct the path"):
        data.npz(tmp_path / "absent.npz")
    with pytest.raises(ValueError, match=r"expected an \.npz archive"):
        data.npz(tmp_path / "single.npy")
    for blob in (b"", b"hello", whole[:100], whole[:60] + b"\xff" + whole[61:], whole[:-30]):
        (tmp_path / "own.npz").write_bytes(blob)
        with pytest.raises(ValueError, match=r"expected .*own\.npz.*; write it with numpy.savez"):
            data.npz(tmp_path / "own.npz")
