"""What a command does not need it does not import."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = """import json, sys
sys.argv = ["folkman", *json.loads(sys.argv[1])]
from folkman.cli import main
try:
    main()
finally:
    print("", json.dumps(sorted(sys.modules)), sep="\\n")
"""
HEAVY = {"jax", "matplotlib", "scipy", "networkx", "optax", "PIL"}


def imported(words: list[str], cwd: Path) -> set[str]:
    """Return the packages that a command has imported when it ends."""
    done = subprocess.run([sys.executable, "-c", COMMAND, json.dumps(words)], cwd=cwd, text=True,
                          capture_output=True, timeout=120, check=False)  # fmt: skip
    modules = json.loads(done.stdout.splitlines()[-1])
    assert "folkman.cli" in modules
    return {name.split(".")[0] for name in modules}


@pytest.mark.process
@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["ls", "."], ["status", "."]])
def test_commands_that_compute_nothing_import_nothing_heavy(words, tmp_path):
    light = {"--help", "ls"} & set(words)

    assert not imported(words, tmp_path) & (HEAVY | ({"numpy", "pyarrow"} if light else set()))


@pytest.mark.process
def test_what_makes_a_run_and_its_report_is_without_matplotlib(tmp_path):
    code = (
        "import sys, folkman.experiment.run, folkman.report.run_page, folkman.report.kept, "
        "folkman.report.painting; assert 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, timeout=120, check=True)
