"""Processes that wait for jobs, and fork for each."""

import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from tests.mutants.bench import Bench, Job, Outcome


class Workers:
    """Processes that fork for each job. They take jobs as they become free."""

    def __init__(self, benches: Sequence[Bench]) -> None:
        context = multiprocessing.get_context("fork")
        self.idle: list[Connection] = []
        self.processes = []
        for bench in benches:
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(bench, there), daemon=False)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # JAX warns of forks; nothing has run yet
                process.start()
            there.close()
            self.idle.append(here)
            self.processes.append(process)

    def map(self, jobs: list[tuple[Any, Job]]) -> Iterator[tuple[Any, Job, Outcome]]:
        """Yield what becomes of each job, as they end; jobs may be appended meanwhile."""
        busy: dict[Connection, tuple[Any, Job]] = {}
        while jobs or busy:
            while jobs and self.idle:
                connection = self.idle.pop()
                busy[connection] = jobs.pop(0)
                connection.send(busy[connection][1])
            for connection in wait(list(busy)):
                assert isinstance(connection, Connection)
                name, job = busy.pop(connection)
                outcome = connection.recv()
                self.idle.append(connection)
                yield name, job, outcome

    def close(self) -> None:
        """End the workers."""
        for process in self.processes:
            process.terminate()
            process.join()


def _serve(bench: Bench, connection: Connection) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends the fork on its way out
    warnings.simplefilter("ignore")
    while True:
        try:
            job = connection.recv()
        except (EOFError, KeyboardInterrupt):
            return
        connection.send(bench.run(job))


def share_programs(benches: Sequence[Bench]) -> None:
    """Give each worker what the others have compiled. They write apart: a half-written program
    breaks a reader."""
    programs = {path.name: path for bench in benches for path in bench.programs.iterdir()}
    for bench in benches:
        for name, path in programs.items():
            if not (bench.programs / name).exists():
                os.link(path, bench.programs / name)
