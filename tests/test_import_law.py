"""The import law: who may import whom. Deleting engine/ leaves a device node, deleting runtime/ a simulator."""

import ast
from pathlib import Path

import pytest

import folkman

SOURCE = Path(folkman.__file__).parent
BASE = {"checks", "files", "keys", "machine", "units", "record"}
MAY_IMPORT = {
    **{name: set() for name in BASE},
    "record": {"report"},  # within its methods alone: see the test below
    "problem": BASE,
    "radio": BASE,
    "algorithm": BASE,
    "engine": BASE | {"problem", "radio", "algorithm"},
    "runtime": BASE | {"problem", "radio", "algorithm"},
    "theory": BASE | {"problem", "radio", "algorithm", "engine"},
    "report": BASE,
    "dash": BASE | {"report"},
    "experiment": BASE | {"problem", "radio", "algorithm", "engine", "runtime", "theory", "report", "torch"},
    "cli_theory": BASE | {"problem", "radio", "algorithm", "engine", "runtime", "theory", "report", "experiment"},
}
MAY_IMPORT["bench"] = MAY_IMPORT["cli_theory"]
COMMANDS = ("cli_theory", "cli_paper", "cli_bench", "cli_sweep", "cli_look", "cli_node", "cli_certs")
for command in COMMANDS:
    MAY_IMPORT[command] = MAY_IMPORT["bench"] | {"bench", "dash"}
MAY_IMPORT["torch"] = BASE | {"problem"}
MAY_IMPORT["cli"] = MAY_IMPORT["bench"] | {*COMMANDS}


def part_of(path: Path) -> str:
    """Return the stage a file belongs to: its folder, or its own name at the top."""
    relative = path.relative_to(SOURCE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def imports(tree: ast.AST) -> set[str]:
    """Return the parts of folkman that a module imports, anywhere in it."""
    found = set()
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "write absolute imports: relative ones hide the stage"
            module = node.module or ""
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "folkman" else [module]
        found |= {name.split(".")[1] for name in names if name.startswith("folkman.")}
    return found


FILES = sorted(
    path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or path.stem not in ("__init__", "__main__")
)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_imports_only_what_its_stage_may(path):
    stage = part_of(path)

    found = imports(ast.parse(path.read_text())) - {stage}

    assert found <= MAY_IMPORT[stage], f"{stage} may not import {sorted(found - MAY_IMPORT[stage])}"


def test_the_law_sees_every_stage():
    assert {part_of(path) for path in FILES} == set(MAY_IMPORT)


def test_a_record_reaches_the_report_only_when_it_is_asked_to_be_shown():
    tree = ast.parse((SOURCE / "record.py").read_text())
    at_once: list[ast.stmt] = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]

    assert imports(ast.Module(at_once, [])) == set()


def test_the_law_catches_a_breach():
    assert imports(ast.parse("from folkman.runtime.node import Node\nimport folkman.engine.slot")) == {
        "runtime",
        "engine",
    }
