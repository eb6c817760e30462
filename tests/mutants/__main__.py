"""Measure the power of the tests: `python -m tests.mutants --sample 300 --seed 1`.

Each mutant is one broken spot of the source: an operator, a comparison, a constant, a condition, a
dropped statement. It is killed if a test fails, or if the tests no longer end. What survives is a
line whose tests see no difference.
"""

import argparse
import json
import os
import platform
import re
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from tests.mutants.bench import Bench, Job, known_flags
from tests.mutants.choose import Case, plan
from tests.mutants.first import first_run
from tests.mutants.graph import Imports
from tests.mutants.report import read, report, shown, verdict
from tests.mutants.sites import Site, all_sites, draw, splice
from tests.mutants.workers import Workers, share_programs

TARGETS = (
    *(
        f"src/folkman/{part}/**/*.py"
        for part in ("algorithm", "radio", "engine", "problem", "theory")
    ),
    *(f"src/folkman/runtime/{part}.py" for part in ("codec", "mailbox", "node")),
)
WARM = (
    "jax jax.numpy jax.scipy.special numpy scipy.optimize scipy.stats scipy.sparse pytest "
    "hypothesis hypothesis.extra.numpy optax networkx pydantic safetensors.numpy sklearn.datasets"
)
"""Imported before the forks; what is missing is left out. PyTorch is left to the few tests that
need it."""
GRACE_S = 25.0
"""After `--until-s`, mutants that are under way have so long."""


def warm(names: Sequence[str]) -> dict[str, str]:
    """Import what the tests need but the package itself, and return the versions."""
    found = {"python": platform.python_version()}
    for name in names:
        try:
            import_module(name)
        except Exception as error:  # the tests that need it are left out
            found[name.split(".")[0]] = f"missing ({type(error).__name__}: {error})"[:120]
        else:
            top = name.split(".")[0]
            try:
                found[top] = metadata.version(top)
            except metadata.PackageNotFoundError:
                found[top] = "without a version"
    return found


def set_flags(root: Path) -> None:
    """Compile as the tests do, by the flags in their conftest, as far as this XLA has them."""
    conftest = root / "tests" / "conftest.py"
    if "jax" not in sys.modules or "XLA_FLAGS" in os.environ or not conftest.exists():
        return
    flags = re.findall(r"--xla_\w+=\w+", conftest.read_text())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX warns of forks; nothing has run yet
        known = known_flags(flags)
    os.environ["XLA_FLAGS"] = " ".join(known)
    print(f"XLA knows {len(known)} of {len(flags)} flags: {' '.join(known)}", flush=True)


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    add = parser.add_argument
    add("--sample", type=int, default=300, help="how many mutants; 0: all")
    add("--seed", type=int, default=1, help="which ones")
    add("--jobs", type=int, default=1, help="how many processes, one processor each")
    add("--seconds", type=float, default=120.0, help="of tests per mutant, as they take without it")
    add("--until-s", type=float, default=float("inf"), help="start no mutant after so many seconds")
    add("--json", type=Path, help="append each result to this file of JSON lines; go on with it")
    add("--only", type=Path, help="run the survivors of this earlier report")
    add("--list", action="store_true", help="print the mutants and run nothing")
    add("--all", action="store_true", help="with tests that start clusters, commands and browsers")
    add("--tests", nargs="+", default=["tests/"], help="how the paths of the tests to use begin")
    add("--marks", default="not soak", help="of the tests, as `pytest -m` takes them")
    add("--root", type=Path, default=Path.cwd(), help="the repository")
    add("--source", nargs="+", default=list(TARGETS), help="globs of the files to break")
    add("--warm", default=WARM, help="packages to import once, before the forks")
    return parser.parse_args(arguments)


def sample(chosen: argparse.Namespace, root: Path) -> list[Site]:
    """Return the mutants asked for; those that are no Python are not among them."""
    sites = all_sites(root, chosen.source)
    if chosen.only is not None:
        lived = {
            entry["mutant"] for entry in read(chosen.only) if entry.get("status") == "survived"
        }
        return [site for site in sites if site.name in lived]
    drawn = draw(sites, chosen.sample or len(sites), chosen.seed)
    print(f"{len(drawn)} of {len(sites)} mutants, seed {chosen.seed}", flush=True)
    return [site for site in drawn if _compiles(root, site)]


def _compiles(root: Path, site: Site) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(splice((root / site.path).read_bytes(), site), site.path, "exec")
    except SyntaxError:
        return False
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    chosen = options(arguments)
    begun, root = time.monotonic(), chosen.root.resolve()
    sites = sample(chosen, root)
    if chosen.list:
        print("\n".join(shown(asdict(site)) for site in sites))
        return 0
    results = [entry for entry in read(chosen.json) if "mutant" in entry] if chosen.json else []
    done = {result["mutant"] for result in results}
    graph = Imports(root)
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.02")
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    print(", ".join(f"{name} {version}" for name, version in warm(chosen.warm.split()).items()))
    print(f"{len(os.listdir('/proc/self/task'))} threads before the forks", flush=True)
    set_flags(root)
    scratch = Path(tempfile.mkdtemp(prefix="mutants-")).resolve()
    package = Path(chosen.source[0]).parts[1]
    workers = None
    try:
        benches = [Bench(root, scratch, number, package) for number in range(chosen.jobs)]
        workers = Workers(benches)
        tests = first_run(chosen, root, workers, sites, chosen.until_s * 0.6)
        share_programs(benches)
        print(f"first run ended after {time.monotonic() - begun:.0f} s", flush=True)
        todo = [site for site in sites if site.name not in done]
        for result in run_mutants(chosen, workers, todo, tests, graph, begun):
            results.append(result)
            if chosen.json is not None:
                with chosen.json.open("a") as file:
                    file.write(json.dumps(result) + "\n")
    finally:
        if workers is not None:
            workers.close()
        shutil.rmtree(scratch, ignore_errors=True)
    wanted = {site.name for site in sites}
    results = [result for result in results if result["mutant"] in wanted]
    print(report(results, root))
    spent = sum(result["seconds"] for result in results) / max(len(results), 1)
    print(f"\n{len(results)} of {len(sites)} mutants run, {spent:.1f} s each, ", end="")
    print(f"{time.monotonic() - begun:.0f} s in all")
    return 0


def run_mutants(
    chosen: argparse.Namespace,
    workers: Workers,
    sites: Sequence[Site],
    tests: Sequence[Case],
    graph: Imports,
    begun: float,
) -> Iterator[dict[str, Any]]:
    """Run mutants until they are done, or the time is up."""
    jobs: list[tuple[Any, Job]] = []
    near = {path: graph.distances(path) for path in {site.path for site in sites}}
    end = begun + chosen.until_s
    for site in sites:
        ways = plan(site, tests, near[site.path], chosen.seconds)
        order = [test.node for test in ways.tests]
        files = list(dict.fromkeys(test.file for test in ways.tests))
        limit_s = 30 + 4 * ways.cost_s
        jobs.append(
            ((site, ways), Job(files, order, limit_s, site, (), chosen.marks, end + GRACE_S))
        )
    count = 0
    if time.monotonic() > end:
        jobs.clear()
    for (site, ways), job, outcome in workers.map(jobs):
        if time.monotonic() > end:
            jobs.clear()
        if outcome.timed_out and outcome.wall_s < job.limit_s:
            continue  # stopped by the end of the time, not by its own limit
        count += 1
        result = verdict(site, ways, outcome)
        print(
            f"{count:>5} {result['status']:<9}{outcome.wall_s:>6.1f} s  {shown(asdict(site))}",
            flush=True,
        )
        yield result


if __name__ == "__main__":
    sys.exit(main())
