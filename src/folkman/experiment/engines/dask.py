"""Jobs on dask.distributed: a local cluster, or one that is there, over mutual TLS.

Dask sends pickled functions: whoever can talk to the scheduler can run anything as its workers. So
a local cluster makes certificates for itself, and one elsewhere is spoken to over `tls://` only,
each side showing a certificate of the cluster's own authority. Workers that see the store write
into it, and take up each other's jobs when one dies; others send their files.
"""

import logging
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlparse

from folkman.checks import require
from folkman.experiment.engines import bounds, lost
from folkman.experiment.jobs import run_anywhere
from folkman.machine import is_loopback
from folkman.record.folder import JobFolder
from folkman.record.run import FAILED
from folkman.record.store import BUSY, DISK, DISK_ERRORS, claim, ended

if TYPE_CHECKING:
    from folkman.experiment.engines import Crew, Order, Started, Told

__all__ = ["Dask", "check_crew", "unpack"]

CONNECT_S = "20s"


class Dask:
    """A client of a dask scheduler."""

    def __init__(self, crew: "Crew") -> None:
        check_crew(crew)
        from distributed import Client, LocalCluster
        from distributed.security import Security

        self.name = crew.engine
        self._cluster: LocalCluster | None = None
        if crew.engine == "dask":
            security = Security.temporary()
            limit = int(crew.memory_limit_mb * 1e6) if crew.memory_limit_mb else "auto"
            self._cluster = LocalCluster(
                n_workers=crew.workers,
                threads_per_worker=1,
                memory_limit=limit,
                security=security,
                protocol="tls://",
                host="127.0.0.1",
                dashboard_address=None,  # type: ignore[arg-type] - no page
                silence_logs=logging.CRITICAL,
            )
            self._client = Client(self._cluster, security=security)
            return
        files = {"tls_ca_file": crew.ca, "tls_client_cert": crew.certificate}
        files["tls_client_key"] = crew.private_key
        encrypted = crew.engine.startswith("tls://")
        security = Security(require_encryption=True, **files) if encrypted else None
        try:
            self._client = Client(crew.engine, security=security, timeout=CONNECT_S)
        except (OSError, TimeoutError) as error:
            raise RuntimeError(
                f"no answer from a dask scheduler at {crew.engine}: {_cause(error)}; check the "
                "address, that it runs, and that --tls-ca, --tls-cert and --tls-key are of its "
                "authority"
            ) from None

    @property
    def about(self) -> str:
        """Return how many workers there are now and the memory limit that the scheduler reports."""
        workers = self._client.scheduler_info()["workers"].values()
        number = len(workers)
        if number == 0:
            return f"no workers at {self.name} yet; jobs wait until there are some"
        limits = [facts.get("memory_limit") for facts in workers]
        return f"{number} workers at {self.name}, {bounds(limits)}"

    def map(
        self, orders: "Sequence[Order]", started: "Started", until_s: float | None = None
    ) -> "Iterator[Told]":
        """Yield how each order ended; dask itself takes up the jobs of a worker that died."""
        from distributed import as_completed

        del started  # a scheduler does not tell
        submit = partial(self._client.submit, run_anywhere, pure=False)
        futures = {submit(dict(order), priority=-order["rank"]): order for order in orders}
        rest_s = None if until_s is None else max(until_s - time.monotonic(), 0.0)
        with suppress(TimeoutError):
            for future in as_completed(futures, raise_errors=False, timeout=rest_s):
                order = futures.pop(future)
                if future.status == "finished":
                    yield unpack(order, future.result())
                else:
                    cause = "the scheduler gave it up"
                    cause = _cause(future.exception()) if future.status == "error" else cause
                    yield lost(order, f"lost on the cluster: {cause}")

    def share(self, content: bytes) -> object:
        """Return a future of the bytes, which the scheduler keeps.

        A worker that dies takes no other's copy with it, as it would with scattered data.
        """
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")  # once, and on purpose
            return self._client.submit(_same, content, pure=False)

    def close(self) -> None:
        """Take back what was not begun and let go; a local cluster ends."""
        with suppress(Exception):
            self._client.close(timeout=5)
        if self._cluster is not None:
            self._cluster.close(timeout=10)


def _same(content: bytes) -> bytes:
    return content


def check_crew(crew: "Crew") -> None:
    """Refuse what cannot work: no package, no certificates, a scheduler that is open to all."""
    if crew.engine != "dask":
        _check_address(crew.engine)
        require(
            crew.memory_limit_mb is None,
            f"--memory bounds workers that folkman starts, and those of {crew.engine} run "
            "already, with limits of their own; leave it out, and start them with: dask worker "
            "... --memory-limit 4GB",
        )
    require(
        find_spec("distributed") is not None,
        f"--engine {crew.engine} needs the package distributed, which is not installed; pip "
        "install 'folkman[dask]'",
    )
    if crew.engine.startswith("tls://"):
        files = {"--tls-ca": crew.ca, "--tls-cert": crew.certificate, "--tls-key": crew.private_key}
        missing = [name for name, path in files.items() if path is None]
        require(
            not missing,
            f"{crew.engine} needs certificates of both sides; add {', '.join(missing)}, in Python "
            "tls=(authority, certificate, key)",
        )
        for name, path in files.items():
            require(Path(str(path)).is_file(), f"{name}: expected a PEM file, there is no {path}")


def _check_address(address: str) -> None:
    url = urlparse(address)
    known = "expected 'here', 'processes', 'dask', or an address as tls://host:8786"
    known += f"; got '{address}'"
    try:
        require(url.scheme in ("tls", "tcp") and bool(url.hostname) and url.port is not None, known)
    except ValueError:
        raise ValueError(known) from None
    require(
        url.scheme == "tls" or is_loopback(url.hostname or ""),
        f"'{address}' is not encrypted, and dask runs what it is sent; use tls:// with --tls-ca, "
        "--tls-cert, --tls-key",
    )


def unpack(order: "Order", told: "Told") -> "Told":
    """Write the files that a worker sent because it does not see the store; `job.json` last."""
    files: Mapping[str, bytes] | None = told.pop("files", None)
    if files is None:
        return told
    folder = Path(order["folder"])
    job = JobFolder(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with claim(job.lock) as mine:
            if not mine:
                return {**told, "state": BUSY}
            if ended(folder) is None:
                for name in sorted(files, key=lambda name: name == job.job.name):
                    _write(folder, name, files[name])
    except OSError as error:
        state = DISK if error.errno in DISK_ERRORS else FAILED
        return {**told, "state": state, "message": f"{error.strerror}: {error.filename}"}
    return told


def _write(folder: Path, name: str, content: bytes) -> None:
    from folkman.files import write_whole

    path = (folder / name).resolve()
    require(
        path.is_relative_to(folder.resolve()),
        f"a worker sent a file '{name}' that is not of its job; refused",
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, lambda part: part.write_bytes(content))


def _cause(error: BaseException) -> str:
    """Return the first line of an error, and of the one behind it."""
    chain = [error, error.__cause__] if error.__cause__ is not None else [error]
    return "; ".join((str(each).strip().splitlines() or [type(each).__name__])[0] for each in chain)
