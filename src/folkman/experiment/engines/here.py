"""The calling process, one job after the other.

For one GPU, for small jobs, and for programs kept between arms.
"""

import os
import time
from collections.abc import Iterator, Sequence
from statistics import median

from folkman.experiment.engines import Order, Started, Told
from folkman.experiment.jobs import run_order

__all__ = ["Here"]


class Here:
    """Runs orders in turn; none is begun if its kind usually takes twice what is left."""

    name = "here"
    about = "in this process"

    def __init__(self) -> None:
        self._seconds: dict[str, list[float]] = {}

    def map(
        self, orders: Sequence[Order], started: Started, until_s: float | None = None
    ) -> Iterator[Told]:
        """Yield how each order ended; a job whose time is over is saved, and `OutOfTime` raised."""
        for order in orders:
            known = self._seconds.setdefault(order["alike"], list(order["usual_s"]))
            usual_s = median(known) if known else 0.0
            if until_s is not None and until_s - time.monotonic() < 0.5 * usual_s:
                return
            started(order["key"], f"{os.uname().nodename}:{os.getpid()}")
            told = run_order(order, until_s, here=True)
            known.append(told["seconds"])
            yield told

    def share(self, content: bytes) -> object:
        """Return the bytes: the only worker is this process."""
        return content

    def close(self) -> None:
        """Do nothing: there is no worker to let go of."""
