"""The public names: there, documented, and cheap to import."""

import inspect
import subprocess
import sys

import folkman


def test_every_public_name_is_there_and_documented():
    for name in folkman.__all__:
        thing = getattr(folkman, name)
        if callable(thing):
            assert thing.__doc__, name
    assert set(folkman.__all__) <= set(dir(folkman))


def test_the_lazy_names_are_the_type_checkers_names():
    assert set(folkman._HOME) == set(folkman.__all__)


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(folkman, "nothing")


def test_importing_the_package_imports_nothing_heavy():
    code = "import sys, folkman; assert not {'jax', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_public_functions_are_annotated():
    for name in folkman.__all__:
        thing = getattr(folkman, name)
        if callable(thing) and not isinstance(thing, type):
            assert "return" in inspect.get_annotations(thing), name
