"""Measure the time from `pip install` of the wheel to the first figure, in a bare environment.

    python benchmarks/first_figure.py                            with this interpreter
    python benchmarks/first_figure.py --python python3.12        with another

The wheel is built from the checkout and installed into a new virtual environment without pip's
cache; then `folkman demo` runs with an empty cache of compiled programs, and `folkman plot` draws a
figure of it. Each step is told in seconds by the clock and in CPU seconds of all its processes,
which a busy machine changes less.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).resolve().parent.parent
PIP = ("-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-cache-dir")


def measured(
    name: str, command: list[str], place: Path, environment: dict[str, str]
) -> tuple[float, float]:
    """Run a command, print how long it took, and return seconds by the clock and of CPU."""
    began_s, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, check=False)
    if done.returncode:
        sys.exit(f"{name} failed: {done.stderr.decode(errors='replace')[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    wall_s = time.monotonic() - began_s
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    show(name, wall_s, cpu_s)
    return wall_s, cpu_s


def show(name: str, wall_s: float, cpu_s: float) -> None:
    """Print one row of the table."""
    print(f"{name:<24} {wall_s:7.1f} s {cpu_s:7.1f} CPU s", flush=True)


def main() -> None:
    """Install, run the demo and plot it; then the demo once more."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--python", default=sys.executable, help="interpreter to install for")
    python = options.parse_args().python
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        wheel = next(iter(WheelBuilder(str(ROOT)).build(directory=name, versions=["standard"])))
        environment = {**os.environ, "XDG_CACHE_HOME": name}
        environment.pop("PYTHONPATH", None)
        subprocess.run([python, "-m", "venv", str(place / "bare")], check=True)
        own = str(place / "bare" / "bin" / "python")
        folkman = str(place / "bare" / "bin" / "folkman")
        plot = ["plot", "one", "--x", "seconds", "--y", "test_accuracy", "--out", "first.png"]
        steps = {
            "pip install": [own, *PIP, str(wheel)],
            "demo, the first time": [folkman, "demo", "--out", "one"],
            "plot": [folkman, *plot],
        }
        spent = [measured(step, command, place, environment) for step, command in steps.items()]
        show("to the first figure", *map(sum, zip(*spent, strict=True)))
        measured("demo, again", [folkman, "demo", "--out", "two"], place, environment)
        size = (place / "first.png").stat().st_size
        load = os.getloadavg()[0]
        print(f"figure of {size} bytes; {os.cpu_count()} cores, load {load:.1f} at the end")


if __name__ == "__main__":
    main()
