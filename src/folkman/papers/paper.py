"""A paper is a folder of TOML files: found by name, entry point or path, and checked key by key.

    paper.toml      title and reference; its figures; the facts by which runs are chosen; how curves
                    look
    sizes.toml      how much is run: draws, nodes, ..., and the variants (data, model, step) of
                    every size
    FIGURE.toml     the runs of a figure, in the plan language, and its panels
    claims.toml     what the paper claims, and what decides each claim (`folkman.papers.deciders`)
    findings.toml   the same for the figures beyond the paper, if it has any
    card.toml       what its card says in words, if it has one (`folkman.papers.card`)

A paper that needs more than data names a Python file as `code` in paper.toml; `Own` lists what the
file may define. docs/tutorials/own-paper.md writes one.
"""

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from importlib import import_module, metadata, resources
from math import inf
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, TypeAlias, TypeVar

from folkman.checks import nearest, one_of, pick, require
from folkman.config.comparison import Comparison
from folkman.config.plugins import import_file, raised
from folkman.record.json_file import Json, Table
from folkman.record.run import Run

__all__ = ["DEFAULT", "Formula", "Found", "Own", "Paper", "find", "known_papers"]

DEFAULT = "xie2024"
"""The paper that is meant where none is named."""

HOME = Path(str(resources.files("folkman.papers")))
"""Where the papers are that come with folkman."""

Kinds: TypeAlias = tuple[type, ...]
Keys: TypeAlias = dict[str, Kinds]
"""The keys that a table may have, and what each holds."""


def _keys(names: str, *kinds: type) -> Keys:
    """Return the keys that hold one of these kinds."""
    return dict.fromkeys(names.split(), kinds)


HEAD = _keys("title reference method code", str)
HEAD |= _keys("figures further measured aside", list)
HEAD |= _keys("names facts order lines hidden compression", dict)
FIGURE = _keys("title draws axis", str)
FIGURE |= _keys("variants later variant", dict) | _keys("arm panel", list) | _keys("apart", bool)
ARM = _keys("rank early late seeds slots record_every", int) | _keys("clock descent", bool)
ARM |= _keys("nodes", int, str) | _keys("factor", int, float, str)
ARM |= _keys("each network algorithm", dict) | _keys("partition", dict, str)
ARM |= _keys("variants", list) | _keys("compute_slots", int, list) | _keys("l2", int, float)
PANEL = _keys("title", str) | _keys("curves", list)
CLAIM = _keys("name where text test figure variant metric axis readings formula reason", str)
CLAIM |= _keys("favours topic", str)
CLAIM |= _keys("margin", int, float) | _keys("reading", list) | _keys("fix across levels", dict)
SIDES = ("ours", "other", "control", "control_other")
READING = _keys("name metric axis measure figure missed variant lacks", str)
READING |= _keys("group tile", list) | _keys("across", dict)
READING |= _keys("best middle construction", bool)
READING |= dict.fromkeys(SIDES, (dict,))
VARIANT_NEEDS = _keys("data model", dict) | _keys("step", int, float)
VARIANT_NEEDS |= _keys("slots record_every", int)
VARIANT = VARIANT_NEEDS | _keys("partition", dict) | _keys("seeds parameters", int)
VARIANT |= _keys("slot_s", int, float)
CLAIMS = _keys("claim", list) | _keys("readings first_draw targets", dict)
CLAIMS |= _keys("confirmatory", int) | _keys("ranks", int, list)
CARD = _keys("title lead", str) | _keys("reading column row words", list)

PAIRED = ("name", "ours", "other")
TESTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "lower": (("figure",), PAIRED),
    "higher": (("figure",), PAIRED),
    "similar": (("figure",), PAIRED),
    "ordered": (("figure", "levels"), ("name", "ours")),
    "oftener": (("figure",), PAIRED),
    "explained": (("figure",), (*PAIRED, "control")),
    "formula": (("figure", "formula"), ("name", "ours")),
    "measured": (("figure",), ("name", "measure")),
    "undefined": (("reason",), ()),
}
"""Test -> what a claim, and each of its readings, must have."""

FACTS = ("method", "nodes", "factor", "network", "partition", "compute")
"""Known of every run: algorithm, nodes, step over the variant's, network, partition, equal or
unequal speeds."""


class Found(NamedTuple):
    """One run and what it is."""

    variant: str
    facts: Table
    seed: int
    run: Run
    figures: tuple[str, ...] = ()


class Formula(NamedTuple):
    """A quantity that the paper prints: in words, and (run, facts) -> measured, printed."""

    printed: str
    values: Callable[[Run, Table], tuple[float, float]]
    counted: bool = False  # a number of rounds: right within one
    bound: bool = False  # O(.): less is as good
    truth: bool = False  # yes or no, told by the share of slots spent computing


def later_plans(claims: Table) -> tuple[int, ...]:
    """Return the first draw of each plan whose draws are tested by their ranks."""
    starts = claims.get("ranks", [])
    return tuple(starts) if isinstance(starts, list) else (starts,)


def _no_facts(facts: Table, comparison: Comparison) -> Json:
    del facts, comparison
    return {}


class Own(NamedTuple):
    """What the code of a paper may define; the names are those of its functions and constants."""

    FACTS: Sequence[str] = ()  # names of the facts that `facts` adds
    facts: Callable[[Table, Comparison], Table] = _no_facts
    derive: Callable[[Sequence[Found]], list[Found]] = list  # adds runs that follow from others
    measure: Callable[["Paper", str, Callable[[str], None]], list[Json]] | None = None
    FORMULAS: Mapping[str, Formula] = {}


class Paper:
    """One paper, its files read as they are asked for."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.head = self._read("paper", HEAD, ("title", "method", "figures"))
        code, self.code_digests = _code(folder, self.head.get("code"))
        self.own = _hooks(code, str(folder / self.head.get("code", "")))
        asked = self.head.get("facts", {})
        self._check("paper.toml, [facts]", asked, _keys("algorithm network", list))
        self.figures = tuple(self.head["figures"])
        self.beyond = tuple(self.head.get("further", ()))
        self.measured = tuple(self.head.get("measured", ()))
        self.sizes = self._sizes()
        self._tables: dict[str, Json] = {}

    def _sizes(self) -> Json:
        """Read the sizes, the smallest first."""
        sizes = self._read("sizes")
        require(bool(sizes), f"{self.folder / 'sizes.toml'} has no size; add a table, as [quick]")
        for size, levels in sizes.items():
            self._check(f"sizes.toml, [{size}]", levels, list(levels), ("early",))
            for name, variant in levels.get("variant", {}).items():
                self._check(f"sizes.toml, [{size}.variant.{name}]", variant, VARIANT, VARIANT_NEEDS)
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

    def figure(self, name: str) -> Json:
        """Return the file of a figure, checked."""
        if name not in self._tables:
            known = (*self.figures, *self.beyond)
            one_of("figure", name, known, f"{self.folder}: ")
            table = self._read(name, FIGURE, ("title", "draws", "variants", "arm"))
            for variant, own in table.get("variant", {}).items():
                self._check(f"{name}.toml, [variant.{variant}]", own, VARIANT, VARIANT_NEEDS)
            for arm in table["arm"]:
                self._check_arm(f"{name}.toml, [[arm]]", arm)
            for panel in table.get("panel", []):
                self._check(f"{name}.toml, [[panel]]", panel, PANEL, PANEL)
                for curve in panel["curves"]:
                    known = ("label", *self.fact_names)
                    self._check(f"{name}.toml, a curve", curve, known, ("label",))
            self._tables[name] = table
        return self._tables[name]

    def claims(self, *, beyond: bool = False) -> Json:
        """Return the claims of the paper, or what is said beyond it, checked."""
        name = "findings" if beyond else "claims"
        there = (self.folder / f"{name}.toml").is_file()
        require(there, f"{self.name} has no {name}.toml: there is nothing to judge")
        table = self._read(name, CLAIMS, ("claim",))
        starts = later_plans(table)
        require(
            all(isinstance(start, int) for start in starts) and [*starts] == sorted({*starts}),
            f"{self.folder / name}.toml: ranks has the first draw of each later plan, a whole "
            f"number or a rising list of them, got {table.get('ranks')}",
        )
        figures = self.beyond if beyond else (*self.figures, *self.measured)
        for claim in table["claim"]:
            called = claim.get("name", "?") if isinstance(claim, dict) else claim
            where = f"{name}.toml, claim {called}"
            self._check(where, claim, CLAIM, ("name", "where", "text", "test"))
            test, listed = claim["test"], claim.get("reading", [])
            one_of("test", test, TESTS, f"{self.folder / where}: ")
            needed, in_reading = TESTS[test]
            self._check(where, claim, CLAIM, needed)
            self._check_place(where, claim, figures)
            if "readings" in claim:
                shared = pick(table.get("readings", {}), claim["readings"])
                listed = [*shared.get("list", []), *listed]
            for reading in listed:
                needed = ("name",) if "lacks" in reading else in_reading
                self._check(where, reading, READING, needed)
                for side in SIDES:
                    self._check(f"{where}, {side}", reading.get(side, {}), self.fact_names)
        return table

    @property
    def newest_draws(self) -> float:
        """Return from which draw on later plans judge; infinite if there is none."""
        there = (self.folder / "claims.toml").is_file()
        return min(later_plans(self.claims()), default=inf) if there else inf

    def card(self) -> Json:
        """Return what the card of the paper says in words, checked."""
        there = (self.folder / "card.toml").is_file()
        require(there, f"{self.name} has no card.toml; write one, or leave out --card")
        return self._read("card", CARD, ("title",))

    def _check_arm(self, where: str, arm: Json) -> None:
        """Refuse an arm that lacks what every run needs."""
        self._check(where, arm, ARM, ("rank", "network", "algorithm"))
        given = {**arm, **arm.get("each", {})}
        self._check(where, given, list(given), ("nodes",))
        for key in ("network", "algorithm"):
            self._check(f"{where}, {key}", arm[key], list(arm[key]), ("name",))

    def _check_place(self, where: str, claim: Table, figures: Sequence[str]) -> None:
        """Refuse a figure, a variant or a formula that is not there."""
        place = f"{self.folder / where}: "
        one_of("figure", claim.get("figure") or None, figures, place)
        if "variant" in claim:
            tables = [*self.sizes.values(), self.figure(claim.get("figure", ""))]
            known = sorted({name for table in tables for name in table.get("variant", {})})
            one_of("variant", claim["variant"], known, place)
        one_of("formula", claim.get("formula"), self.own.FORMULAS, place)

    def _check(
        self, where: str, table: Table, known: Iterable[str] | Keys, needed: Iterable[str] = ()
    ) -> None:
        """Refuse a key that nobody would read, a wrong type, and a table that lacks a key."""
        place = self.folder / where
        require(isinstance(table, dict), f"{place}: expected a table, got {table!r}")
        for key, value in table.items():
            if key not in known:
                raise ValueError(f"{place}: unknown key '{key}'; {nearest(key, known)}")
            kinds = known[key] if isinstance(known, dict) else (object,)
            if not isinstance(value, kinds):
                names = " or ".join(kind.__name__ for kind in kinds)
                raise ValueError(f"{place}: '{key}' must be of type {names}, got {value!r}")
        for key in needed:
            require(key in table, f"{place}: '{key}' is needed and was not given; add it")

    def _read(self, name: str, known: Keys | None = None, needed: Sequence[str] = ()) -> Json:
        path = self.folder / f"{name}.toml"
        lacks = f"expected {path.name} in {self.folder}, there is none; a paper needs it"
        require(path.is_file(), lacks)
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"expected TOML in {path}: {error}") from None
        if known is not None:
            self._check(path.name, table, known, needed)
        return table


def _hooks(code: ModuleType | None, place: str) -> Own:
    """Return what a paper's code defines; an error in one of its functions says where it was."""
    found = {name: getattr(code, name) for name in Own._fields if hasattr(code, name)}
    named = found.get("FACTS", ())
    wrong = f"{place}: FACTS must be a tuple of names, got {named!r}"
    require(isinstance(named, tuple | list), wrong)
    for name in ("facts", "derive", "measure"):
        if name in found:
            wrong = f"{place}: {name} must be a function, got {found[name]!r}"
            require(callable(found[name]), wrong)
            found[name] = _guarded(found[name], place)
    return Own(**found)


Answer = TypeVar("Answer")


def _guarded(hook: Callable[..., Answer], place: str) -> Callable[..., Answer]:
    @wraps(hook)
    def call(*arguments: object) -> Answer:
        try:
            return hook(*arguments)
        except Exception as error:
            said = f"{hook.__name__} of the paper's code {raised(error, place)}"
            raise ValueError(f"{said}; correct it") from error

    return call


def _code(folder: Path, name: str | None) -> tuple[ModuleType | None, dict[str, str]]:
    """Load the Python file of a paper, if it has one; digests tell of files of others."""
    if name is None:
        return None, {}
    path = folder / name
    lacks = f"paper.toml names {name} as its code, there is no {path}; check the name"
    require(path.is_file(), lacks)
    if folder.parent == HOME:
        return import_module(f"folkman.papers.{folder.name}.{path.stem}"), {}
    return import_file(path)


def known_papers() -> dict[str, Path]:
    """Return the papers that can be named: those of folkman, then those of installed packages."""
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
