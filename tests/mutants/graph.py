"""Which tests import a module, and through how many others: read from the sources, without
importing them."""

import ast
import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path

_DOTTED = re.compile(r"\w+(\.\w+)+\.?")


class Imports:
    """The imports of a repository with its packages in `src/` and its tests in `tests/`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files: dict[str, Path] = {}  # module -> file
        for top in (root / "tests", root / "src"):
            for path in sorted(top.rglob("*.py")):
                parts = path.relative_to(top).with_suffix("").parts
                self.files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
        trees = {name: ast.parse(path.read_bytes()) for name, path in self.files.items()}
        self.homes = {name: _lazy_names(trees[name]) for name in self.files}
        self.edges = {name: self._edges(name, tree) for name, tree in trees.items()}

    def _edges(self, name: str, tree: ast.Module) -> set[str]:
        aliases: dict[str, str] = {}
        found: set[str] = set()
        for node in _walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    found.add(alias.name)
                    aliases[alias.asname or alias.name] = alias.name
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module)
                for alias in node.names:
                    found.add(self._home(node.module, alias.name))
                    aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                found.add(self._home(aliases.get(node.value.id, ""), node.attr))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= self._named(node.value)
        if name.split(".")[-1].startswith("test_"):
            found |= {
                conftest
                for conftest in self.files
                if conftest.split(".")[-1] == "conftest"
                and self.files[conftest].parent in self.files[name].parents
            }
        return {each for each in found if each in self.files} - {name}

    def _home(self, package: str, name: str) -> str:
        """Return the module of a name that a package hands out: a submodule, or one imported on
        first use."""
        inner = f"{package}.{name}"
        return inner if inner in self.files else self.homes.get(package, {}).get(name, package)

    def _named(self, text: str) -> set[str]:
        """Return the modules that a text names: `a.b:attribute`, or all of `a.` where a format goes
        on."""
        name = text.split(":")[0]
        if not _DOTTED.fullmatch(name):
            return set()
        if not name.endswith("."):
            return {name}
        return {each for each in self.files if each.rpartition(".")[0] == name[:-1]}

    def distances(self, path: str) -> dict[str, int]:
        """Return how far each test file is from the module at `path`: 0 if named after it, 1 if it
        imports it."""
        target = next(name for name, file in self.files.items() if file == self.root / path)
        importers: dict[str, set[str]] = {}
        for name, imported in self.edges.items():
            for each in imported:
                importers.setdefault(each, set()).add(name)
        far, queue = {target: 0}, deque([target])
        while queue:
            name = queue.popleft()
            for importer in importers.get(name, ()):
                if importer not in far:
                    far[importer] = far[name] + 1
                    queue.append(importer)
        stem = target.split(".")[-1]
        found = {}
        for name, steps in far.items():
            last = name.split(".")[-1]
            if last.startswith("test_"):
                file = self.files[name].relative_to(self.root).as_posix()
                found[file] = 0 if last == f"test_{stem}" else steps
        return found


def _is_typing(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def _walk(tree: ast.Module) -> Iterator[ast.AST]:
    """Walk a tree, the imports first, but for what only a type checker reads."""
    nodes: list[ast.AST] = []
    queue: deque[ast.AST] = deque([tree])
    while queue:
        node = queue.popleft()
        nodes.append(node)
        queue.extend(child for child in ast.iter_child_nodes(node) if not _is_typing(child))
    yield from sorted(nodes, key=lambda node: not isinstance(node, ast.Import | ast.ImportFrom))


def _lazy_names(tree: ast.Module) -> dict[str, str]:
    """Return name -> module as a package tells type checkers; it imports them itself on first
    use."""
    return {
        alias.asname or alias.name: node.module
        for block in tree.body
        if isinstance(block, ast.If) and _is_typing(block)
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
