"""Lines of results that a crew of processes makes: written as they come, and read again."""

import json
import queue
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["gather", "lines_of"]

Json = dict[str, Any]


def gather(
    told: Any,
    workers: Sequence[Any],
    target: Path,
    *,
    in_all: int,
    budget_s: float,
    brief: Callable[[Json], str],
) -> None:
    """Write lines from the queue `told` until there are no more, or the time is spent.

    A line with the key `error` is shown and not written. `brief` says what is shown of the others.
    """
    made, begun_s = 0, time.time()
    with target.open("a", encoding="utf-8") as file:
        while made < in_all and time.time() - begun_s < budget_s:
            try:
                line = told.get(timeout=1.0)
            except queue.Empty:
                if not any(worker.is_alive() for worker in workers):
                    break
                continue
            made += 1
            if "error" not in line:
                file.write(json.dumps(line, separators=(",", ":")) + "\n")
                file.flush()
            how = line.get("error") or brief(line)
            head = f"{time.time() - begun_s:5.0f} s {made}/{in_all}"
            print(f"{head}  {line['cell']}  {line['side']}: {how[-600:]}", flush=True)


def lines_of(files: Sequence[Path], counts: Callable[[Json], bool] | None = None) -> list[Json]:
    """Return the results in files, the first of each cell and side that counts; None: all do."""
    found: dict[tuple[str, str], Json] = {}
    for file in files:
        for text in file.read_text(encoding="utf-8").splitlines() if file.exists() else []:
            try:
                line = json.loads(text)
            except json.JSONDecodeError:  # cut off when the program was killed
                continue
            if counts is None or counts(line):
                found.setdefault((line["cell"], line["side"]), line)
    return list(found.values())
