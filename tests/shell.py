"""Commands in this process, as a shell would start them: a new Python takes seconds to import."""

import contextlib
import io
import os
import runpy
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import pytest

from folkman.cli import main

ROOT = Path(__file__).parent.parent
KEPT = ("jax_enable_x64", "jax_numpy_rank_promotion", "jax_platforms")


class Done(NamedTuple):
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


def folkman(*arguments: object, cwd: Path, stdout: io.StringIO | None = None) -> Done:
    """Run a command of folkman in a folder, and return its exit code and what it printed.

    It is `folkman.cli.main`, the function behind the installed command, with the arguments of a
    process. An exception that `main` lets through is the exit code 1 with a traceback on standard
    error, as in a process. What a process would take with it is put back at its end: the folder,
    the arguments, the environment, modules imported from the folder, JAX's settings, open figures.
    What this cannot show (signals, locks between processes, what is imported, how much memory is
    taken) is tested with real processes, and such tests are marked `process`.
    """
    return _run(main, ["folkman", *map(str, arguments)], cwd, out=stdout)


def python(*arguments: object, cwd: Path) -> Done:
    """Run a Python file with arguments, or `-c` and a program, in a folder: see `folkman`."""
    words = [str(each) for each in arguments]
    if words[0] == "-c":
        code = compile(words[1], "<string>", "exec", dont_inherit=True)
        names: dict[str, Any] = {"__name__": "__main__"}
        return _run(lambda: exec(code, names), ["-c", *words[2:]], cwd, "")  # noqa: S102
    file = (cwd / words[0]).resolve()
    return _run(
        lambda: runpy.run_path(str(file), run_name="__main__"), words, cwd, str(file.parent)
    )


EMPTY = {
    "svg": b'<svg xmlns="http://www.w3.org/2000/svg"></svg>',
    "png": b"\x89PNG\r\n\x1a\n",
    "pdf": b"%PDF-1.4\n",
}


@contextlib.contextmanager
def undrawn() -> Iterator[None]:
    """Keep figures empty: for runs whose report is beside the point, and most of their time."""
    from matplotlib.figure import Figure

    def save(_: Figure, target: Any, **options: Any) -> None:
        data = EMPTY[options.get("format") or Path(target).suffix[1:]]
        if isinstance(target, io.StringIO):
            target.write(data.decode())
        elif isinstance(target, io.BytesIO):
            target.write(data)
        else:
            Path(target).write_bytes(data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", save)
        yield


def _run(
    act: Callable[[], Any],
    words: list[str],
    cwd: Path,
    path: str | None = None,
    out: io.StringIO | None = None,
) -> Done:
    out, err = out or io.StringIO(), io.StringIO()
    with (
        _put_back(cwd),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings.catch_warnings(),
    ):
        # a node goes on when the command that started it has ended
        warnings.filterwarnings("ignore", "subprocess .* is still running", ResourceWarning)
        sys.argv = words
        if path is not None:
            sys.path.insert(0, path)
        code = _exit_code(act)
    return Done(code, out.getvalue(), err.getvalue())


def _exit_code(act: Callable[[], Any]) -> int:
    try:
        act()
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        print(ended.code, file=sys.stderr)
        return 1
    except Exception:
        traceback.print_exc()
        return 1
    return 0


@contextlib.contextmanager
def _put_back(cwd: Path) -> Iterator[None]:
    """Work in a folder; afterwards undo what only the end of a process would."""
    argv, path, environment = sys.argv, [*sys.path], dict(os.environ)
    modules = set(sys.modules)
    settings = {name: getattr(jax.config, name) for name in KEPT}
    exit_at_once = os._exit

    def leave(code: int) -> None:
        if threading.current_thread() is not threading.main_thread():
            exit_at_once(code)
        raise SystemExit(code)

    os._exit = leave  # the real one would end all tests
    try:
        with contextlib.chdir(cwd):
            yield
    finally:
        os._exit = exit_at_once
        sys.argv, sys.path[:] = argv, path
        if dict(os.environ) != environment:
            os.environ.clear()
            os.environ.update(environment)
        for name in set(sys.modules) - modules:
            if _is_below(getattr(sys.modules[name], "__file__", None), cwd):
                del sys.modules[name]
        for name, value in settings.items():
            if getattr(jax.config, name) != value:
                jax.config.update(name, value)
        if "matplotlib.pyplot" in sys.modules:
            sys.modules["matplotlib.pyplot"].close("all")


def _is_below(file: str | None, folder: Path) -> bool:
    """Tell whether a module's file is in a folder."""
    return file is not None and folder.resolve() in Path(file).resolve().parents
