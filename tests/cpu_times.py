"""`pytest --cpu-times FILE`: the CPU seconds of each test, its children's with them.

On a loaded machine the wall clock tells of the neighbours. A line is the seconds of a test with
its fixtures, then its name; the costliest is first. A shared fixture is paid for by the first test
that asks for it, and a program by the first that compiles it. The last lines are the sums of files.

    python -m tests.cpu_times FILE > tests/slow.txt

lists those over 0.5 s, which `make test-quick` leaves out. The contract stays: it is the part of
the suite that says most of a method.
"""

import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest


def cpu_s() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    spent = os.times()
    return time.process_time() + spent.children_user + spent.children_system


class CpuTimes:
    """Note what each test spends, in whichever worker it runs, and write all of it at the end."""

    def __init__(self, file: Path | None) -> None:
        self.file = file  # None in a worker, whose reports go to the one that has the file
        self.spent: dict[str, float] = defaultdict(float)
        self.mark = cpu_s()

    def pytest_runtest_logstart(self) -> None:
        """Start to count: what is between tests is nobody's."""
        self.mark = cpu_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        """Write on the report of a test's setup, call or teardown what it cost."""
        report = yield
        now = cpu_s()
        report.cpu_s = now - self.mark
        self.mark = now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up, in the process that has the file; note at once, in case the run is ended."""
        self.spent[report.nodeid] += getattr(report, "cpu_s", 0.0)
        if report.when == "teardown" and self.file is not None:
            with self.file.open("a") as file:
                file.write(f"{self.spent[report.nodeid]:9.3f} {report.nodeid}\n")

    def pytest_sessionfinish(self) -> None:
        """Write the file in order."""
        if self.file is None:
            return
        files: dict[str, float] = defaultdict(float)
        for name, seconds in self.spent.items():
            files[name.split("::")[0]] += seconds
        lines = [
            f"{seconds:9.3f} {name}"
            for sums in (self.spent, files)
            for name, seconds in sorted(sums.items(), key=lambda each: -each[1])
        ]
        lines.append(f"{sum(files.values()):9.3f} all")
        self.file.write_text("\n".join(lines) + "\n")


LONG_S = 0.5
KEPT = ("tests/algorithm/test_contract.py",)


def slow_tests(written: str) -> list[str]:
    """Return the names of tests that took long, in order, of what `CpuTimes` has written."""
    lines = (line.strip().split(" ", 1) for line in written.splitlines())
    return sorted(
        name
        for seconds, name in lines
        if "::" in name and float(seconds) > LONG_S and not name.startswith(KEPT)
    )


if __name__ == "__main__":
    print("\n".join(slow_tests(Path(sys.argv[1]).read_text(encoding="utf-8"))))
