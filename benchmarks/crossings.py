"""Count what a tiny `folkman run` goes through: files, functions, builds of each algorithm.

    python benchmarks/crossings.py

A file counts when one of its functions is entered, not when it is imported. Comprehensions and
lambdas belong to the function around them. Only the main thread is counted.
"""

import inspect
import io
import json
import sys
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType

import folkman
from folkman.cli import main

SOURCE = str(Path(folkman.__file__).parent)
TINY = ["slots=20", "seeds=[0]", "data.train_size=100"]


def crossings() -> dict[str, object]:
    """Run the demo for twenty slots, one seed, and return the counts."""
    entered: Counter[CodeType] = Counter()

    def see(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(SOURCE):
            entered[frame.f_code] += 1

    words = io.StringIO()
    with TemporaryDirectory() as place:
        settings = [word for setting in TINY for word in ("--set", setting)]
        sys.argv = ["folkman", "run", *settings, "--out", f"{place}/run"]
        sys.setprofile(see)
        try:
            with suppress(SystemExit), redirect_stdout(words), redirect_stderr(words):
                main()
        finally:
            sys.setprofile(None)
    ours = [
        code for code in entered if code.co_name[0] != "<" and code.co_flags & inspect.CO_OPTIMIZED
    ]  # no classes
    builders = [code for code in ours if code.co_filename.endswith(f"/algorithm/{code.co_name}.py")]
    return {
        "files": len({code.co_filename for code in ours}),
        "functions": len({(code.co_filename, code.co_firstlineno) for code in ours}),
        "built": {code.co_name: entered[code] for code in builders},
    }


if __name__ == "__main__":
    print(json.dumps(crossings()))
