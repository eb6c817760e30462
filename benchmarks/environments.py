"""The opponents' virtual environments: made once from pinned packages, under the user's cache.

RuntimeError
`- OpponentAbsentError   an opponent cannot be had here; the others go on
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["SCRIPTS", "OpponentAbsentError", "default_folder", "ensure"]

SCRIPTS = Path(__file__).with_name("opponents")
"""Where the opponents' scripts and their lists of packages are."""

INSTALL_LIMIT_S = 1800


class OpponentAbsentError(RuntimeError):
    """An opponent cannot be had here, and why."""


def default_folder() -> Path:
    """Return where environments are kept.

    $XDG_CACHE_HOME/folkman/bench, else ~/.cache/folkman/bench.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "folkman" / "bench"


def ensure(name: str, requirements: Path, folder: Path) -> Path:
    """Return the interpreter of an environment with these requirements.

    It is made where it is not there yet.
    """
    home = folder / name
    python = home / "bin" / "python"
    wanted = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()
    stamp = home / "made-from"  # written last: an environment without it is half made
    if python.exists() and stamp.is_file() and stamp.read_text(encoding="ascii") == wanted:
        return python
    shutil.rmtree(home, ignore_errors=True)
    home.parent.mkdir(parents=True, exist_ok=True)
    _run([sys.executable, "-m", "venv", str(home)], name)
    _run([str(python), "-m", "pip", "install", "--quiet", "--requirement", str(requirements)], name)
    stamp.write_text(wanted, encoding="ascii")
    return python


def _run(command: list[str], name: str) -> None:
    """Run one step of making an environment; what it said last is the reason if it fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise OpponentAbsentError(
            f"the environment of '{name}' could not be made: {error}"
        ) from None
    if done.returncode:
        said = [
            line for line in (done.stdout + done.stderr).splitlines() if line.startswith("ERROR")
        ]
        reason = said[0] if said else f"{command[2]} ended with {done.returncode}"
        raise OpponentAbsentError(
            f"the environment of '{name}' could not be made: {reason}; it needs a package registry"
        )
