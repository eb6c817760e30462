"""The public names: there, documented, and cheap to import."""

import ast
import inspect
import re
import runpy
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import folkman

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"


def test_every_public_name_is_there_and_documented():
    for name in folkman.__all__:
        thing = getattr(folkman, name)
        if callable(thing):
            assert thing.__doc__, name
    assert set(folkman.__all__) <= set(dir(folkman))


def test_the_table_the_type_checkers_imports_and_the_list_agree():
    """Three spellings of the public names: one for use, one for type checkers, one for `import *`.

    A new method is found by its file; type checkers know it once it is listed.
    """
    tree = ast.parse(inspect.getsource(folkman))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    imports = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    unlisted = {name: folkman._HOME[name] for name in set(folkman.ALGORITHMS) - set(imports)}
    assert imports | unlisted == folkman._HOME
    assert set(folkman.__all__) == set(folkman._HOME)
    assert len(set(folkman.__all__)) == len(folkman.__all__)


def test_every_builder_that_a_configuration_names_is_public():
    known = set(folkman.__all__)

    assert set(folkman.ALGORITHMS) <= known
    assert set(folkman.MODELS) <= known
    assert {"RadioNetwork", "replay"} | set(folkman.NETWORKS) - {"radio", "trace"} <= known


def test_no_public_name_hides_a_folder():
    """`folkman.torch`, `folkman.radio` and the like stay modules."""
    folders = {path.stem for path in Path(folkman.__file__).parent.iterdir()}

    assert not folders & set(folkman.__all__)


def targets() -> list[str]:
    """Return what the reference documents: the entries of mkdocstrings."""
    outside = runpy.run_path(str(REFERENCE.parent / "outside.py"))  # the hook that builds the site
    pages = "\n".join(path.read_text() for path in sorted(REFERENCE.glob("*.md")))
    pages = outside["list_methods"](pages)
    return re.findall(r"^::: (\S+)$", pages, re.MULTILINE)


def test_the_reference_documents_every_public_name():
    documented = set(targets())

    for name in folkman.__all__:
        own_page = f"{folkman._HOME[name]}.{name}"  # a method has its file, with the equations
        assert {f"folkman.{name}", folkman._HOME[name], own_page} & documented, name


def test_the_reference_documents_nothing_private_and_nothing_that_is_gone():
    assert len(set(targets())) == len(targets())
    for target in targets():
        assert not any(part.startswith("_") for part in target.split(".")), target
        if (
            target.removeprefix("folkman.") not in folkman.__all__
        ):  # a module: what it says is its own
            assert import_module(target).__all__, target


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(folkman, "nothing")


@pytest.mark.process
def test_importing_the_package_imports_nothing_heavy_and_takes_no_time():
    code = (
        "import sys, time; start = time.process_time(); import folkman; "
        "took = time.process_time() - start;"
        "assert not {'jax', 'numpy'} & set(sys.modules); assert took < 0.1, took"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_public_functions_are_annotated():
    for name in folkman.__all__:
        thing = getattr(folkman, name)
        if inspect.isroutine(thing):
            assert "return" in inspect.get_annotations(thing), name
