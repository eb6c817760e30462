"""`python -m benchmarks --work W4`, also from a checkout that is not installed."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLACES = [str(ROOT), str(ROOT / "src")]
sys.path[:0] = PLACES
os.environ["PYTHONPATH"] = os.pathsep.join(  # for the sides
    filter(None, (*PLACES, os.environ.get("PYTHONPATH")))
)

from benchmarks.command import app  # noqa: E402
from folkman.cli import main  # noqa: E402

main(app)
