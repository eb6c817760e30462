"""The list of tests that `make test-quick` leaves out is made of measured times, and of tests."""

from pathlib import Path

from tests.conftest import SLOW
from tests.cpu_times import slow_tests

ROOT = Path(__file__).parent.parent


def test_what_took_long_is_slow_unless_it_is_of_the_contract():
    written = [
        "    0.510 tests/b.py::test_long[a, b - c]",
        "    2.000 tests/a.py::test_longer",
        "    0.500 tests/a.py::test_quick",
        "    9.000 tests/algorithm/test_contract.py::test_kept[dpsgd]",
        "   13.500 tests/a.py",
        "   13.500 all",
    ]

    assert slow_tests("\n".join(written)) == [
        "tests/a.py::test_longer",
        "tests/b.py::test_long[a, b - c]",
    ]


def test_the_slow_tests_are_there():
    """One that was renamed would be quick again without a word."""
    for name in SLOW:
        path, _, test = name.partition("::")
        function = test.partition("[")[0]
        assert f"def {function}(" in (ROOT / path).read_text(encoding="utf-8"), name
