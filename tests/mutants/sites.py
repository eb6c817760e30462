"""Where a source can be broken, and how: one spot each, found in the syntax tree and spliced into
the text."""

import ast
import io
import random
import tokenize
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

OPERATORS: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"),
    ast.Pow: ("**", "*"),
    ast.MatMult: ("@", "*"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.BitXor: ("^", "|"),
}
COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
NEGATED_BY_ITS_OPERATOR = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
"""To negate a whole condition of these is the same mutant as to swap the operator."""
_PAIRS = (
    ("maximum", "minimum"),
    ("max", "min"),
    ("argmax", "argmin"),
    ("any", "all"),
    ("floor", "ceil"),
    ("zeros", "ones"),
    ("zeros_like", "ones_like"),
    ("logical_and", "logical_or"),
)
FUNCTIONS = dict(_PAIRS) | {after: before for before, after in _PAIRS}
CHOICES = ("where", "select", "cond")
"""Functions of a condition and the two things to choose from."""
IDLE_KEYWORDS = ("strict", "stacklevel", "unroll", "donate_argnums", "donate_argnames", "inline")
"""Keywords whose value a correct program does not feel."""


@dataclass(frozen=True, order=True)
class Site:
    """One mutant: the bytes from `start` to `end` of a file become `after`."""

    path: str
    line: int
    col: int
    kind: str
    after: str
    before: str
    start: int
    end: int
    first: int  # the lines of the statement around it; of a compound one, of its head
    last: int
    within: bool  # within a function, and not run as the module is imported

    @property
    def name(self) -> str:
        """Return what identifies the mutant in a report."""
        return f"{self.path}:{self.line}:{self.col} {self.kind}: {self.before} -> {self.after}"


def splice(text: bytes, site: Site) -> bytes:
    """Return the source with the mutant in it."""
    found = text[site.start : site.end].decode()
    if found != site.before:
        raise ValueError(f"expected {site.before!r} at {site.path}:{site.line}, found {found!r}")
    return text[: site.start] + site.after.encode() + text[site.end :]


def sites_in(text: bytes, path: str) -> list[Site]:
    """List the mutants of one source, in order."""
    return sorted(set(_Finder(text, path).statements(ast.parse(text).body, within=False)))


def all_sites(root: Path, globs: Sequence[str]) -> list[Site]:
    """List the mutants of the files that match, by file, line, column and kind."""
    files = sorted({path for glob in globs for path in root.glob(glob)})
    return sorted(
        site
        for path in files
        for site in sites_in(path.read_bytes(), path.relative_to(root).as_posix())
    )


def draw(sites: Sequence[Site], size: int, seed: int) -> list[Site]:
    """Draw `size` of the mutants, the same ones on every machine, in the order drawn."""
    return random.Random(seed).sample(sites, min(size, len(sites)))  # noqa: S311 - not a secret


class _Finder:
    """Walk one source. Offsets are bytes, as those of the syntax tree."""

    def __init__(self, text: bytes, path: str) -> None:
        self.text, self.path = text, path
        lines = text.splitlines(keepends=True)
        self.begins = [0]
        for line in lines:
            self.begins.append(self.begins[-1] + len(line))
        self.tokens: list[tuple[int, int, str]] = []
        for token in tokenize.generate_tokens(io.StringIO(text.decode(), newline="").readline):
            if token.type in (tokenize.OP, tokenize.NAME):
                row, column = token.start
                before = len(lines[row - 1].decode()[:column].encode())
                start = self.begins[row - 1] + before
                self.tokens.append((start, start + len(token.string.encode()), token.string))
        self.lines = (0, 0)
        self.within = False

    def start(self, node: ast.expr | ast.stmt | ast.keyword) -> int:
        return self.begins[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr | ast.stmt | ast.keyword) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.begins[node.end_lineno - 1] + node.end_col_offset

    def source(self, node: ast.expr | ast.stmt | ast.keyword) -> str:
        return self.text[self.start(node) : self.end(node)].decode()

    def site(self, kind: str, start: int, end: int, after: str) -> Site:
        line = bisect_right(self.begins, start)
        return Site(
            self.path,
            line,
            start - self.begins[line - 1],
            kind,
            after,
            self.text[start:end].decode(),
            start,
            end,
            *self.lines,
            self.within,
        )

    def token(self, start: int, end: int, symbol: str) -> tuple[int, int]:
        """Find an operator of one or two words between two operands; comments are not looked
        into."""
        words = symbol.split()
        inside = self.tokens[bisect_left(self.tokens, (start,)) : bisect_left(self.tokens, (end,))]
        for index in range(len(inside) - len(words) + 1):
            if [token[2] for token in inside[index : index + len(words)]] == words:
                return inside[index][0], inside[index + len(words) - 1][1]
        raise LookupError(f"no {symbol} in {self.path} from byte {start} to {end}")

    # Statements.

    def statements(self, body: Sequence[ast.stmt], *, within: bool) -> Iterator[Site]:
        for statement in body:
            yield from self.statement(statement, within)

    def statement(self, node: ast.stmt, within: bool) -> Iterator[Site]:
        if isinstance(node, ast.Raise | ast.Assert | ast.Import | ast.ImportFrom | ast.Global):
            return
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self.at(node, node.body[0].lineno - 1, within)
            for value in [*node.args.defaults, *node.args.kw_defaults]:
                yield from self.expression(value)
            yield from self.statements(node.body, within=True)
            return
        if isinstance(node, ast.ClassDef):
            yield from self.statements(node.body, within=within)
            return
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from self.statements(node.orelse, within=within)
            return
        bodies = [
            part for name in ("body", "orelse", "finalbody") if (part := getattr(node, name, None))
        ]
        self.at(node, bodies[0][0].lineno - 1 if bodies else node.end_lineno, within)
        yield from self.head(node)
        for handler in [*getattr(node, "handlers", []), *getattr(node, "cases", [])]:
            yield from self.statements(handler.body, within=within)
        for part in bodies:
            yield from self.statements(part, within=within)

    def at(self, node: ast.stmt, last: int | None, within: bool) -> None:
        self.lines = (node.lineno, max(node.lineno, last or 0))
        self.within = within

    def head(self, node: ast.stmt) -> Iterator[Site]:
        """List the mutants of a statement but for those of the statements in it."""
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [ast.unparse(target) for target in targets]
            if "__all__" in names or node.value is None:
                return
            known = isinstance(node, ast.AugAssign) or any(
                _has_value_already(target, node.value) for target in targets
            )
            if known and self.within:  # what it sets has a value without it
                yield self.site("statement dropped", self.start(node), self.end(node), "pass")
            if isinstance(node, ast.AugAssign):
                before, after = OPERATORS[type(node.op)]
                spot = self.token(self.end(node.target), self.start(node.value), before + "=")
                yield self.site("operator", *spot, after + "=")
            for target in targets:
                yield from self.expression(target)
            yield from self.expression(node.value)
            return
        if isinstance(node, ast.Expr):
            if isinstance(node.value, ast.Constant):
                return
            if isinstance(node.value, ast.Call):
                yield self.site("statement dropped", self.start(node), self.end(node), "pass")
        if isinstance(node, ast.If):
            yield from self.condition(node.test)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.withitem):
                yield from self.expression(child.context_expr)
            elif isinstance(child, ast.expr):
                yield from self.expression(child)

    # Expressions.

    def expression(self, node: ast.AST | None) -> Iterator[Site]:
        if node is None or isinstance(node, ast.JoinedStr):
            return
        mutants = getattr(self, f"of_{type(node).__name__.lower()}", None)
        if mutants is not None:
            yield from mutants(node)
        for child in ast.iter_child_nodes(node):
            if not (isinstance(child, ast.keyword) and child.arg in IDLE_KEYWORDS):
                yield from self.expression(child)

    def condition(self, test: ast.expr) -> Iterator[Site]:
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return
        if isinstance(test, ast.Compare) and isinstance(test.ops[0], NEGATED_BY_ITS_OPERATOR):
            return
        yield self.site("negated", self.start(test), self.end(test), f"not ({self.source(test)})")

    def of_ifexp(self, node: ast.IfExp) -> Iterator[Site]:
        yield from self.condition(node.test)

    def of_comprehension(self, node: ast.comprehension) -> Iterator[Site]:
        for test in node.ifs:
            yield from self.condition(test)

    def of_binop(self, node: ast.BinOp) -> Iterator[Site]:
        before, after = OPERATORS[type(node.op)]
        spot = self.token(self.end(node.left), self.start(node.right), before)
        yield self.site("operator", *spot, after)

    def of_compare(self, node: ast.Compare) -> Iterator[Site]:
        for (left, right), operator in zip(
            pairwise([node.left, *node.comparators]), node.ops, strict=True
        ):
            before, after = COMPARISONS[type(operator)]
            yield self.site(
                "comparison", *self.token(self.end(left), self.start(right), before), after
            )

    def of_boolop(self, node: ast.BoolOp) -> Iterator[Site]:
        words = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in pairwise(node.values):
            spot = self.token(self.end(left), self.start(right), words[0])
            yield self.site("boolean", *spot, words[1])

    def of_unaryop(self, node: ast.UnaryOp) -> Iterator[Site]:
        start, constant = self.start(node), isinstance(node.operand, ast.Constant)
        if isinstance(node.op, ast.Not):
            yield self.site("not dropped", start, start + len("not"), "")
        elif isinstance(node.op, ast.Invert):
            yield self.site("~ dropped", start, start + 1, "")
        elif isinstance(node.op, ast.USub) and not constant:
            yield self.site("sign dropped", start, start + 1, "")

    def of_constant(self, node: ast.Constant) -> Iterator[Site]:
        value = node.value
        if isinstance(value, bool):
            after = repr(not value)
        elif isinstance(value, int):
            after = repr(value + 1)
        elif isinstance(value, float):
            after = repr(value * 2 if value else 1.0)
        else:
            return
        yield self.site("constant", self.start(node), self.end(node), after)

    def of_call(self, node: ast.Call) -> Iterator[Site]:
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name in FUNCTIONS:
            end = self.end(node.func)
            yield self.site("function", end - len(name), end, FUNCTIONS[name])
        if name in CHOICES and len(node.args) >= 3:
            one, two = node.args[1:3]
            between = self.text[self.end(one) : self.start(two)].decode()
            swapped = self.source(two) + between + self.source(one)
            if not any(isinstance(argument, ast.Starred) for argument in node.args[:3]):
                yield self.site("choices swapped", self.start(one), self.end(two), swapped)
        if name in ("_replace", "replace"):
            for keyword in node.keywords:
                following = self.tokens[bisect_left(self.tokens, (self.end(keyword),))]
                end = following[1] if following[2] == "," else self.end(keyword)
                if keyword.arg is not None:
                    yield self.site("keyword dropped", self.start(keyword), end, "")


def _has_value_already(target: ast.expr, value: ast.expr) -> bool:
    """Tell whether what an assignment sets is an attribute, an element, or a name that the value is
    made of."""
    if isinstance(target, ast.Name):
        names = (node.id for node in ast.walk(value) if isinstance(node, ast.Name))
        return target.id in names
    return isinstance(target, ast.Attribute | ast.Subscript)
