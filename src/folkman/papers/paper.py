"""A paper is a folder of TOML files: found by name, by entry point or by path, read, and checked key by key.

    paper.toml      title and reference; its figures; the facts by which runs are chosen; how curves look
    sizes.toml      how much is run: draws, nodes, ..., and the variants (data, model, step) of every size
    FIGURE.toml     the runs of a figure, in the plan language, and its panels
    claims.toml     what the paper claims, and what decides each claim (`folkman.papers.deciders`)
    findings.toml   the same for the figures beyond the paper, if it has any

A paper that needs more than data names a Python file as `code` in paper.toml; `Own` lists what the file may define.
docs/tutorials/own-paper.md writes one.
"""

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module, metadata, resources
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from folkman.checks import nearest, require
from folkman.config.comparison import Comparison
from folkman.config.plugins import import_file
from folkman.record.run import Run

__all__ = ["DEFAULT", "Formula", "Found", "Own", "Paper", "find", "known_papers"]

DEFAULT = "xie2024"
"""The paper that is meant where none is named."""

HOME = Path(str(resources.files("folkman.papers")))
"""Where the papers are that come with folkman."""

HEAD_KEYS = ("title", "reference", "method", "figures", "further", "measured", "code", "aside", "names", "facts")
HEAD_KEYS += ("order", "lines", "hidden")
FIGURE_KEYS = ("title", "draws", "axis", "variants", "later", "variant", "arm", "panel")
ARM_KEYS = ("rank", "early", "late", "seeds", "variants", "each", "nodes", "factor", "slots", "record_every")
ARM_KEYS += ("compute_slots", "partition", "network", "algorithm", "clock", "descent")
CLAIM_KEYS = ("name", "where", "text", "test", "figure", "variant", "metric", "axis", "margin", "readings", "reading")
CLAIM_KEYS += ("fix", "across", "levels", "formula", "reason")
READING_KEYS = ("name", "group", "best", "metric", "axis", "measure", "ours", "other", "control", "control_other")
VARIANT_NEEDS = ("data", "model", "step", "slots", "record_every")
VARIANT_KEYS = (*VARIANT_NEEDS, "partition", "seeds", "slot_s", "parameters")
TESTS = ("lower", "higher", "ordered", "similar", "explained", "formula", "measured", "undefined")
SIDES = ("ours", "other", "control", "control_other")

FACTS = ("method", "nodes", "factor", "network", "partition", "compute")
"""Known of every run: algorithm, nodes, step over the variant's, network, partition, equal or unequal speeds."""


class Found(NamedTuple):
    """One run and what it is."""

    variant: str
    facts: Mapping[str, Any]
    seed: int
    run: Run
    figures: tuple[str, ...] = ()


class Formula(NamedTuple):
    """A quantity that the paper prints: in words, and (run, facts) -> measured, printed."""

    printed: str
    values: Callable[[Run, Mapping[str, Any]], tuple[float, float]]
    counted: bool = False  # a number of rounds: right within one
    truth: bool = False  # yes or no, told by the share of slots spent computing


def _no_facts(facts: Mapping[str, Any], comparison: Comparison) -> dict[str, Any]:
    del facts, comparison
    return {}


class Own(NamedTuple):
    """What the code of a paper may define; the names are those of its functions and constants."""

    FACTS: Sequence[str] = ()  # names of the facts that `facts` adds
    facts: Callable[[Mapping[str, Any], Comparison], Mapping[str, Any]] = _no_facts
    derive: Callable[[Sequence[Found]], list[Found]] = list  # runs -> runs, and those that follow from them
    measure: Callable[["Paper", str, Callable[[str], None]], list[dict[str, Any]]] | None = None
    FORMULAS: Mapping[str, Formula] = {}


class Paper:
    """One paper, its files read as they are asked for."""

    def __init__(self, name: str, folder: Path, code: ModuleType | None = None) -> None:
        self.name, self.folder = name, folder
        self.head = self._read("paper", HEAD_KEYS, ("title", "method", "figures"))
        self.own = _hooks(code if code is not None else _code(folder, self.head.get("code")))
        self.figures = tuple(self.head["figures"])
        self.beyond = tuple(self.head.get("further", ()))
        self.measured = tuple(self.head.get("measured", ()))
        self.sizes = self._sizes()
        self._tables: dict[str, dict[str, Any]] = {}

    def _sizes(self) -> dict[str, Any]:
        """Read the sizes, the smallest first."""
        sizes = self._read("sizes")
        require(bool(sizes), f"{self.folder / 'sizes.toml'} has no size; add a table, as [quick]")
        for size, levels in sizes.items():
            self._check(f"sizes.toml, [{size}]", levels, levels, ("early",))
            for name, variant in levels.get("variant", {}).items():
                self._check(f"sizes.toml, [{size}.variant.{name}]", variant, VARIANT_KEYS, VARIANT_NEEDS)
        return sizes

    @property
    def title(self) -> str:
        """Return what the paper is called."""
        return self.head["title"]

    @property
    def fact_names(self) -> tuple[str, ...]:
        """Return the names of all facts by which runs may be chosen."""
        asked = self.head.get("facts", {})
        return (*FACTS, *asked.get("algorithm", ()), *asked.get("network", ()), *self.own.FACTS)

    def check_size(self, size: str) -> str:
        """Return a size, or say which there are."""
        known = list(self.sizes)
        either = f"{', '.join(known[:-1])} or {known[-1]}" if len(known) > 1 else known[0]
        require(size in known, f"a size is {either}, got '{size}'")
        return size

    def figure(self, name: str) -> dict[str, Any]:
        """Return the file of a figure, checked."""
        if name not in self._tables:
            known = (*self.figures, *self.beyond)
            require(name in known, f"{self.folder}: there is no figure '{name}'; {nearest(name, known)}")
            table = self._read(name, FIGURE_KEYS, ("title", "draws", "variants", "arm"))
            for variant in table.get("variant", {}):
                where = f"{name}.toml, [variant.{variant}]"
                self._check(where, table["variant"][variant], VARIANT_KEYS, VARIANT_NEEDS)
            for arm in table["arm"]:
                self._check(f"{name}.toml, [[arm]]", arm, ARM_KEYS, ("rank", "network", "algorithm"))
            for panel in table.get("panel", []):
                self._check(f"{name}.toml, [[panel]]", panel, ("title", "curves"))
                for curve in panel["curves"]:
                    self._check(f"{name}.toml, a curve", curve, ("label", *self.fact_names))
            self._tables[name] = table
        return self._tables[name]

    def claims(self, *, beyond: bool = False) -> dict[str, Any]:
        """Return the claims of the paper, or what is said beyond it, checked."""
        name = "findings" if beyond else "claims"
        require((self.folder / f"{name}.toml").is_file(), f"{self.name} has no {name}.toml: there is nothing to judge")
        table = self._read(name, ("claim", "readings", "first_draw", "targets"))
        for claim in table["claim"]:
            where = f"{name}.toml, claim {claim.get('name', '?')}"
            self._check(where, claim, CLAIM_KEYS, ("name", "where", "text", "test"))
            test = claim["test"]
            require(test in TESTS, f"{self.folder / where}: there is no test '{test}'; {nearest(test, TESTS)}")
            figures = ("", *(self.beyond if beyond else (*self.figures, *self.measured)))
            known = claim.get("figure", "") in figures
            require(known, f"{self.folder / where}: there is no figure '{claim.get('figure')}'; "
                    f"{nearest(claim.get('figure', ''), figures[1:])}")  # fmt: skip
            for reading in claim.get("reading", []):
                self._check_reading(where, reading)
        for key, group in table.get("readings", {}).items():
            for reading in group["list"]:
                self._check_reading(f"{name}.toml, [readings.{key}]", reading)
        return table

    def _check_reading(self, where: str, reading: Mapping[str, Any]) -> None:
        self._check(where, reading, READING_KEYS)
        for side in SIDES:
            self._check(f"{where}, {side}", reading.get(side, {}), self.fact_names)

    def _check(self, where: str, table: Mapping[str, Any], known: Iterable[str], needed: Iterable[str] = ()) -> None:
        """Refuse a key that nobody would read, and a table that lacks one that is needed."""
        for key in table:
            require(key in known, f"{self.folder / where}: unknown key '{key}'; {nearest(key, known)}")
        for key in needed:
            require(key in table, f"{self.folder / where}: '{key}' is needed and was not given; add it")

    def _read(self, name: str, known: Sequence[str] | None = None, needed: Sequence[str] = ()) -> dict[str, Any]:
        path = self.folder / f"{name}.toml"
        require(path.is_file(), f"expected {path.name} in {self.folder}, there is none; a paper needs it")
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"expected TOML in {path}: {error}") from None
        if known is not None:
            self._check(path.name, table, known, needed)
        return table


def _hooks(code: ModuleType | None) -> Own:
    """Return what a paper's code defines."""
    return Own(**{name: getattr(code, name) for name in Own._fields if hasattr(code, name)})


def _code(folder: Path, name: str | None) -> ModuleType | None:
    """Load the Python file of a paper, if it has one."""
    if name is None:
        return None
    path = folder / name
    require(path.is_file(), f"paper.toml names {name} as its code, there is no {path}; check the name")
    if folder.parent == HOME:
        return import_module(f"folkman.papers.{folder.name}.{path.stem}")
    return import_file(path)


def known_papers() -> dict[str, Path]:
    """Return the papers that can be named: those that come with folkman, then those of installed packages."""
    found = {path.parent.name: path.parent for path in sorted(HOME.glob("*/paper.toml"))}
    for entry in metadata.entry_points(group="folkman.paper"):
        found.setdefault(entry.name, Path(str(resources.files(entry.value))))
    return found


def find(text: str | Path | None = None) -> Paper:
    """Return a paper by its name or folder; a name that comes with folkman wins."""
    name, known = str(text or DEFAULT), known_papers()
    if name in known:
        return Paper(name, known[name])
    folder = Path(name)
    require(
        (folder / "paper.toml").is_file(),
        f"there is no paper '{name}'; {nearest(name, known)}; or name a folder with a paper.toml",
    )
    return Paper(folder.resolve().name, folder.resolve())
