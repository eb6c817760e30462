"""What a tuning leaves: each method's options and scores, as a table, as text, as a file."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from folkman.config.text import dump
from folkman.record.json_file import Json
from folkman.record.run import DIVERGED
from folkman.report.tables import markdown_table

__all__ = ["Tuned", "TunedMethod", "file_text", "shown"]


class TunedMethod(NamedTuple):
    """What was found for one method."""

    label: str
    options: Json
    score: float
    before: Json  # the options as they were configured
    score_before: float | None  # None: it diverged
    runs: int
    at_edge: tuple[str, ...]  # options whose best value is the last one that was tried


class Tuned(NamedTuple):
    """What a tuning leaves: the configuration, where it was written, and each method's options."""

    file: Path  # configuration that was written, with what was found
    folder: Path
    config: Json  # the configuration with what was found
    score: str
    seeds: tuple[int, ...]
    budget: int  # runs that each method could spend
    methods: tuple[TunedMethod, ...]  # what was found for each
    skipped: Mapping[str, tuple[str, ...]]  # option -> algorithms that do not have it

    def rows(self) -> tuple[list[str], list[list[str]]]:
        """Return headings and a row of text for each method."""
        name = self.score.replace("_", " ")
        names = list(dict.fromkeys(key for each in self.methods for key in each.options))
        heads = ["algorithm", *names, name, "configured", f"{name} there", "runs"]
        rows = []
        for each in self.methods:
            there = DIVERGED if each.score_before is None else f"{each.score_before:.4g}"
            found = [*(shown(each.options.get(key)) for key in names), f"{each.score:.4g}"]
            before = ", ".join(f"{key} {shown(value)}" for key, value in each.before.items())
            rows.append([each.label, *found, before, there, str(each.runs)])
        return heads, rows

    def notes(self) -> list[str]:
        """Return what else there is to say: options that a method lacks, values at an edge."""
        found = [
            f"no option '{name}', not tuned: {', '.join(labels)}"
            for name, labels in self.skipped.items()
        ]
        for each in self.methods:
            for name in each.at_edge:
                last = f"{name} {shown(each.options[name])} is the last value that was tried"
                found.append(f"{each.label}: {last}; a larger --budget goes on")
        places = "one placement" if len(self.seeds) == 1 else f"{len(self.seeds)} placements"
        found.append(
            f"the best of a search on {places}: expect less on others; `folkman run` judges it on "
            "the seeds of the file"
        )
        return found

    def __str__(self) -> str:
        """Return the table as text."""
        return "\n".join([markdown_table(*self.rows()), *self.notes()])


def shown(value: object) -> str:
    """Return the value of an option as text; nothing for one that a method lacks."""
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def file_text(tuned: Tuned) -> str:
    """Return the file: a comment for people, the configuration, the table [tuned]."""
    seeds = ", ".join(map(str, tuned.seeds))
    lines = [
        "Written by `folkman tune`: each method with its own best options, found by one search.",
        f"Search: {tuned.budget} runs at most for each method, on the seeds {seeds}; "
        f"{tuned.score} at the end.",
        "",
        *markdown_table(*tuned.rows()).splitlines(),
        *tuned.notes(),
    ]
    return "\n".join(f"# {line}".rstrip() for line in lines) + "\n\n" + dump(tuned.config)
