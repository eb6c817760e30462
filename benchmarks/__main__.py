"""`python -m benchmarks --work W4`: `folkman bench` from a checkout, without installing folkman."""

import os
import sys
from pathlib import Path

SOURCE = str(Path(__file__).resolve().parents[1] / "src")
sys.path.insert(0, SOURCE)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (SOURCE, os.environ.get("PYTHONPATH"))))  # for the sides

from folkman.cli import main  # noqa: E402

sys.argv[1:1] = ["bench"]
main()
