"""The import law: who may import whom. Deleting engine/ leaves a device node, deleting runtime/ a
simulator."""

import ast
from collections import Counter
from pathlib import Path

import folkman

SOURCE = Path(folkman.__file__).parent
BASE = {"builders", "checks", "energy", "faults", "files", "keys", "machine", "units"}
BASE |= {"arithmetic", "arrays", "light"}
ROOMS = BASE | {"packing", "problem", "radio", "algorithm"}
HOUSE = ROOMS | {"record", "config", "deploy", "engine", "runtime", "theory", "report", "torch"}
MAY_IMPORT = {
    **dict.fromkeys(BASE, BASE),
    # within the methods of a run alone: see the test below
    "record": BASE | {"report", "deploy"},
    "problem": BASE,
    "packing": BASE,
    "radio": BASE | {"packing"},
    "algorithm": BASE | {"packing"},  # methods that pack what they send by themselves
    "torch": BASE | {"problem"},
    "engine": ROOMS | {"record"},
    "theory": ROOMS | {"record", "engine"},
    "config": ROOMS | {"record"},
    "deploy": ROOMS | {"record", "config", "runtime"},
    "runtime": ROOMS | {"record", "config", "torch"},
    "report": BASE | {"record"},
    "dash": BASE | {"record", "report"},
    "experiment": HOUSE,
    "papers": HOUSE | {"experiment"},
    "cli": HOUSE | {"experiment", "papers", "dash"},
}


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
            names = (
                [f"{module}.{alias.name}" for alias in node.names]
                if module == "folkman"
                else [module]
            )
        found |= {name.split(".")[1] for name in names if name.startswith("folkman.")}
    return found


FILES = sorted(
    path
    for path in SOURCE.rglob("*.py")
    if path.parent != SOURCE or path.stem not in ("__init__", "__main__")
)


def test_a_module_imports_only_what_its_stage_may():
    breaches = []
    for path in FILES:
        stage = part_of(path)
        found = imports(ast.parse(path.read_text())) - {stage}
        breaches += [
            f"{path.relative_to(SOURCE)}: {name}" for name in sorted(found - MAY_IMPORT[stage])
        ]

    assert not breaches


def test_the_law_sees_every_stage():
    assert {part_of(path) for path in FILES} == set(MAY_IMPORT)


def test_a_record_reaches_the_report_only_when_it_is_asked_to_be_shown():
    tree = ast.parse((SOURCE / "record" / "run.py").read_text())
    at_once: list[ast.stmt] = [
        node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)
    ]

    assert imports(ast.Module(at_once, [])) == set()


def test_the_law_catches_a_breach():
    assert imports(
        ast.parse("from folkman.runtime.node import Node\nimport folkman.engine.slot")
    ) == {
        "runtime",
        "engine",
    }


def test_every_file_of_tests_has_a_name_of_its_own():
    """Without packages pytest imports files by their names: of two alike it refuses the second."""
    names = Counter(path.name for path in Path(__file__).parent.rglob("test_*.py"))

    assert [name for name, count in names.items() if count > 1] == []
