"""Which tests a mutant meets, and in which order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.mutants.sites import Site

SLOW = (
    "tests/benchmark/",
    "tests/cli/",
    "tests/dash/",
    "tests/experiment/",
    "tests/papers/",
    "tests/report/",
    "tests/runtime/test_cluster.py",
    "tests/runtime/test_drive.py",
    "tests/runtime/test_device_faults.py",
    "tests/runtime/test_preview.py",
    "tests/runtime/test_soak.py",
    "tests/runtime/test_transport.py",
    "tests/test_deletion.py",
    "tests/test_docs",
    "tests/test_examples.py",
    "tests/test_import_law.py",
    "tests/test_mutants.py",
    "tests/test_newcomer.py",
    "tests/test_node_package.py",
    "tests/test_notebook_tutorial.py",
    "tests/test_public.py",
)
"""What starts clusters, commands and browsers, or reads the sources; `--all` takes it in."""

ON_IMPORT = "tests/test_defaults.py"
"""It looks at what an import leaves: defaults, which it reads without running a line."""


@dataclass(frozen=True)
class Case:
    """One test as it went without a mutant."""

    node: str
    cost_s: float
    lines: Mapping[str, frozenset[int]] = field(default_factory=dict)  # file -> lines that it runs

    @property
    def file(self) -> str:
        """Return the file that the test is in."""
        return self.node.split("::")[0]

    def touches(self, site: Site) -> bool:
        """Tell whether the test runs the statement; of one run on import, anything of its
        module."""
        lines = self.lines.get(site.path, frozenset())
        if not site.within:
            return bool(lines) or self.file == ON_IMPORT
        return any(line in lines for line in range(site.first, site.last + 1))


@dataclass(frozen=True)
class Plan:
    """The tests of one mutant."""

    tests: Sequence[Case]
    touching: int  # how many of all tests run the statement
    left_out: int  # how many of those there was no time for

    @property
    def cost_s(self) -> float:
        """Return what the tests take without a mutant."""
        return sum(test.cost_s for test in self.tests)


def plan(site: Site, tests: Sequence[Case], distances: Mapping[str, int], seconds: float) -> Plan:
    """Choose the tests for a mutant: cheap and near ones first, for so many seconds.

    First come those that run the statement, then those that share a file with one (a value may be
    computed once, by the first test that needs it). If none runs it, the tests that import the
    module get a quarter of the time.
    """
    touching = [test for test in tests if test.touches(site)]
    files = {test.file for test in touching}
    if touching:
        others = [test for test in tests if test.file in files and not test.touches(site)]
    else:
        others = [test for test in tests if test.file in distances]
        seconds /= 4
    chosen, spent = [], 0.0
    for group in (touching, others):
        for test in sorted(
            group,
            key=lambda test: ((1 + distances.get(test.file, 9)) * (0.05 + test.cost_s), test.node),
        ):
            if not chosen or spent + test.cost_s <= seconds:
                chosen.append(test)
                spent += test.cost_s
    return Plan(
        chosen, len(touching), len(touching) - len({*map(id, touching)} & {*map(id, chosen)})
    )
