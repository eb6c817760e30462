"""Count what a tiny `folkman run` goes through: files, functions, builds of each algorithm.

    python benchmarks/crossings.py

A file counts when one of its functions is entered, not when it is imported. Comprehensions and
lambdas belong to the function around them. Only the main thread is counted.

    built      from the configuration, once for each side of the comparison
    rebuilt    within a compiled program, where the numbers of a method are arguments of it
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
from folkman.builders import find_methods
from folkman.cli import main

SOURCE = str(Path(folkman.__file__).parent)
TINY = ["slots=20", "seeds=[0]", "data.train_size=100"]


def crossings() -> dict[str, object]:
    """Run the demo for twenty slots, one seed, and return the counts."""
    methods = find_methods()
    entered: Counter[CodeType] = Counter()
    built: Counter[str] = Counter()
    rebuilt: Counter[str] = Counter()

    def see(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(SOURCE):
            return
        entered[code] += 1
        if code.co_name in methods and code.co_filename.endswith(f"/{code.co_name}.py"):
            (rebuilt if _is_in_a_program(frame) else built)[code.co_name] += 1

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
    return {
        "files": len({code.co_filename for code in ours}),
        "functions": len({(code.co_filename, code.co_firstlineno) for code in ours}),
        "built": dict(built),
        "rebuilt": dict(rebuilt),
    }


def _is_in_a_program(frame: FrameType) -> bool:
    """Tell whether a builder was called by the recipe of an algorithm, with traced numbers."""
    caller: FrameType | None = frame
    while caller is not None:
        if caller.f_code.co_qualname == "Recipe.build":
            return True
        caller = caller.f_back
    return False


if __name__ == "__main__":
    print(json.dumps(crossings()))
