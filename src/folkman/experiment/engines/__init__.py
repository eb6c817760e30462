"""Who runs the jobs: one small interface, `map`.

This process, processes of this machine, or dask behind it.

    for told in engine.map(orders, started): ...

`map` takes orders and yields what became of each, in the order they end. An engine survives the
death of its workers: a job is taken up again, from its checkpoint, and given up only when its
worker has died three times.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from folkman.checks import require
from folkman.record.json_file import Json, Table
from folkman.record.run import FAILED

__all__ = ["Crew", "Engine", "Order", "Started", "Told", "bounds", "check_crew", "choose"]
__all__ += ["engine_for", "lost"]

Order: TypeAlias = Table
Told: TypeAlias = Json
Started: TypeAlias = Callable[[str, str], None]
"""Told of a key and its worker when a job is handed out, by engines that know."""


class Engine(Protocol):
    """Runs orders somewhere."""

    name: str

    @property
    def about(self) -> str:
        """Return what there is to know of its workers, in a line."""
        ...

    def map(
        self, orders: Sequence[Order], started: Started, until_s: float | None = None
    ) -> Iterator[Told]:
        """Yield how each order ended, as they end; stop at `until_s` of `time.monotonic`."""
        ...

    def share(self, content: bytes) -> object:
        """Put bytes where every worker reaches them; return what an order names them by."""
        ...

    def close(self) -> None:
        """Let go of the workers, also in the middle of jobs."""
        ...


def choose(waiting: Sequence[Order], last: str | None, others: Sequence[str | None]) -> int:
    """Return which order a worker takes.

    One of the arm it has programs of, else of an arm that nobody is at, else the first.

    Orders of a lower rank come before all others; `waiting` has them in front.
    """
    groups = [order["group"] for order in waiting if order["rank"] == waiting[0]["rank"]]
    if last in groups:
        return groups.index(last)
    return next((index for index, group in enumerate(groups) if group not in others), 0)


def lost(order: Order, message: str, peak_mb: float = 0.0) -> Told:
    """Tell of a job that no worker lived to tell of."""
    none: Json = {"seconds": 0.0, "compute_s": None, "worker": ""}
    memory = {"rss_mb": peak_mb, "peak_mb": peak_mb}
    return {"key": order["key"], "state": FAILED, "message": message, **none, **memory}


def bounds(limits: Sequence[float | None]) -> str:
    """Return the limits of workers in words; None or 0 is none."""
    known = [limit / 1e6 for limit in limits if limit]
    if not known:
        return "whose memory nothing bounds"
    least, most = f"{min(known):.0f}", f"{max(known):.0f}"
    words = f"at most {least if least == most else f'{least} to {most}'} MB of memory each"
    return words if len(known) == len(limits) else f"{words}, some without a bound"


class Crew(NamedTuple):
    """Where jobs run: `here`, `processes`, `dask`, or the address of a dask scheduler."""

    engine: str = "processes"
    workers: int = 2
    memory_limit_mb: float | None = None
    ca: str | None = None
    certificate: str | None = None
    private_key: str | None = None


MOST_WORKERS = 4096
"""Worker processes of one machine: more would share its memory into nothing."""


def check_crew(crew: Crew) -> None:
    """Refuse a crew that cannot work before anything is made."""
    require(crew.workers >= 1, f"--workers must be at least 1, got {crew.workers}")
    require(
        crew.workers <= MOST_WORKERS,
        f"--workers must be at most {MOST_WORKERS}, got {crew.workers}; one for each core is most "
        "that helps",
    )
    if crew.engine not in ("here", "processes"):
        from folkman.experiment.engines.dask import check_crew as check_dask

        check_dask(crew)


def engine_for(crew: Crew) -> Engine:
    """Return the engine of a crew."""
    if crew.engine == "here":
        from folkman.experiment.engines.here import Here

        return Here()
    if crew.engine == "processes":
        from folkman.experiment.engines.processes import Processes

        return Processes(crew.workers, crew.memory_limit_mb)
    from folkman.experiment.engines.dask import Dask

    return Dask(crew)
