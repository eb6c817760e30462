"""Files: a file appears whole, by rename, or not at all; where compiled programs are kept."""

import errno
import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

__all__ = ["keep_programs", "machine_cache", "program_cache", "save_tensors", "write_whole"]


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` make a file beside `path`, then rename it into place.

    On any error nothing is left behind.

    The file beside it keeps the suffix, for writers that choose the format by it, and has the
    process's number, since several processes may share a folder. A device or a pipe, as
    /dev/stdout, is written to as it is: a rename would put a file in its place.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "Is a directory", str(path))
    if path.exists() and not path.is_file():
        write(path)
        return
    part = path.with_name(f".{path.stem}.{os.getpid()}.part{path.suffix}")
    try:
        write(part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def save_tensors(
    path: Path, tensors: "dict[str, np.ndarray]", notes: dict[str, str] | None = None
) -> None:
    """Write arrays as safetensors, whole or not at all; a disk that refuses is an OSError."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    try:
        write_whole(path, lambda part: save_file(tensors, part, metadata=notes))
    except SafetensorError as error:
        code = re.search(
            r"(?:os error |code: )(\d+)", str(error)
        )  # the only place where it tells the disk's answer
        raise OSError(
            int(code[1]) if code else errno.EIO, f"could not write: {error}", str(path)
        ) from error


def keep_programs() -> None:
    """Let JAX keep compiled programs on disk, for the next process.

    Call it before JAX is imported.
    """
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(program_cache()))
    # the small ones too: a command has dozens, and together they take a second
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")


def program_cache() -> Path:
    """Return where compiled programs are kept."""
    return machine_cache("programs")


def machine_cache(name: str) -> Path:
    """Return where things of one kind are kept that hold for this kind of processor alone.

    Machines of one home but other processors do not share them.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        kind = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        kind = ""
    return home / "folkman" / name / hashlib.sha256(kind.encode()).hexdigest()[:12]
