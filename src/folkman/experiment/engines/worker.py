"""A worker process: orders come in as lines of JSON, and what became of them goes out the same way.

It ends when its input does, at once and also in the middle of a job: then the sweep is gone, and
the next one goes on from the job's checkpoint. Ctrl-C in a terminal reaches the workers too; it is
the sweep's to answer.
"""

import json
import os
import queue
import signal
import sys
import threading
from typing import TextIO

from folkman.experiment.jobs import run_order, set_up_worker
from folkman.record.json_file import Json

__all__ = ["main"]


def main() -> None:
    """Serve until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    # what a library prints must not mix with the replies
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    orders: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(orders,), daemon=True).start()
    set_up_worker()
    import pyarrow.parquet  # noqa: F401 - the first job should not wait for imports

    import folkman.experiment.parts  # noqa: F401

    _say(replies, {"ready": True})
    while True:
        _say(replies, run_order(json.loads(orders.get())))


def _say(replies: TextIO, content: Json) -> None:
    print(json.dumps(content), file=replies, flush=True)


def _read(orders: "queue.SimpleQueue[str]") -> None:
    for line in sys.stdin:
        orders.put(line)
    os._exit(0)


if __name__ == "__main__":
    main()
