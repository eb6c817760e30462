"""Every parameter and field of the reference is described, and every example in a docstring runs.

`folkman.config.meanings` reads what stands beside a name; the site's tables and the schema show it.
"""

import doctest
import inspect
import pickle
import pydoc
import re
import runpy
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import NamedTuple

import pytest

import folkman
from folkman.config.helped import helped
from folkman.config.meanings import meanings
from folkman.config.schema import comparison_schema
from folkman.config.vocabulary import VOCABULARY
from test_public import targets

DOCS = Path(__file__).parents[1] / "docs"
SOURCE = Path(folkman.__file__).parent
MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def documented():
    """Return what the reference shows, by its full name: functions, classes and their methods."""
    found = {}
    for target in targets():
        name = target.removeprefix("folkman.")
        if name in folkman.__all__:
            found[name] = getattr(folkman, name)
            continue
        module = import_module(target)
        own = (each for each in module.__all__ if _home(getattr(module, each)) == target)
        found |= {f"{name}.{each}": getattr(module, each) for each in own}
    classes = {name: thing for name, thing in found.items() if inspect.isclass(thing)}
    for name, thing in classes.items():
        for key, member in vars(thing).items():
            real = getattr(member, "__func__", member)
            if not key.startswith("_") and inspect.isfunction(real):
                found[f"{name}.{key}"] = real
    return {name: thing for name, thing in found.items() if _has_names(thing)}


def _home(thing):
    return getattr(thing, "__module__", None)


def _has_names(thing):
    return inspect.isclass(thing) or inspect.isroutine(thing)


@pytest.fixture(scope="module")
def described():
    return {name: meanings(thing) for name, thing in documented().items()}


def test_every_parameter_and_field_of_the_reference_is_described(described):
    bare = [
        f"{name}({key})"
        for name, each in described.items()
        for key, one in each.items()
        if not one.meaning
    ]
    assert not bare, "say in a comment beside them what they mean"
    assert sum(map(len, described.values())) > 2000


def test_all_that_a_call_takes_is_described(described):
    """By the signature, an account of its own of what there is."""
    for name, thing in documented().items():
        if inspect.isclass(thing) and not hasattr(thing, "_fields"):
            continue  # a dataclass may set fields that no call gives
        asked = inspect.signature(thing).parameters.values()
        single = {each.name for each in asked if each.kind not in MANY} - {"self", "cls"}
        assert single <= set(described[name]), name


def test_a_word_of_the_vocabulary_is_used_and_is_one_line(described):
    tables = comparison_schema()["$defs"].values()
    used = {key for each in described.values() for key in each}
    used |= {key for each in tables for key in each.get("properties", {})}
    assert set(VOCABULARY) <= used
    for word, meaning in VOCABULARY.items():
        assert re.fullmatch(r"\S.*[^.\s]", meaning), word


class Group(NamedTuple):
    """A group of options."""

    length: int = 3  # of it
    width: float = 1.5
    """How wide
    it is."""
    slots: int = 4


def sample(
    # what is
    # looked at
    thing: str,
    slots: int,  # of its own
    seed: int = 0,
    *,
    bare: bool = False,
    group: Group = Group(),  # noqa: B008
):
    """Return nothing."""


def test_what_counts_as_a_meaning():
    found = meanings(sample)
    assert {key: each.meaning for key, each in found.items()} == {
        "thing": "what is looked at",
        "slots": "of its own",  # before the vocabulary
        "seed": VOCABULARY["seed"],  # what is for tools is no meaning
        "bare": "",
        "group": "",  # nor is this one
    }
    assert found["seed"].default == "0"
    assert found["thing"].default is None
    assert [each.meaning for each in meanings(Group).values()] == [
        "of it",
        "How wide it is.",
        VOCABULARY["slots"],
    ]


def test_the_options_of_a_group_are_those_of_its_fields():
    found = meanings(folkman.fedavg)
    assert "decay" in found
    assert found["decay_steps"].meaning == "updates over which it falls"
    assert found["decay_steps"].default == "1000"
    assert not {"sampling", "descent"} & set(found)
    assert list(found) == list(inspect.signature(folkman.fedavg).parameters)


def shown(thing):
    """Return what `help` shows of a thing, as words with one space between them."""
    text = pydoc.plain(pydoc.render_doc(thing))
    return " ".join(text.replace(" |  ", "").split())


def public():
    for name in folkman.__all__:
        thing = getattr(folkman, name)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            yield name, thing


@pytest.mark.slow
def test_help_shows_what_every_parameter_means():
    """Of public functions, classes and their methods, below what they say themselves."""
    number = 0
    for name, thing in public():
        text = shown(thing)
        methods = [
            each
            for each in documented().values()
            if getattr(each, "__qualname__", "").rpartition(".")[0] == thing.__qualname__
        ]
        for each in [thing, *methods]:
            told = meanings(each)
            number += len(told)
            for key, one in told.items():
                assert f"{key}{f': {one.kind}' if one.kind else ''}" in text, (name, key)
                assert " ".join(one.meaning.split()) in text, (name, key)
    assert number > 800
    assert shown(folkman.simulate).index("problem: ") < shown(folkman.simulate).index("Parameters:")


def test_a_docstring_is_a_text_like_any_other():
    text = folkman.sgp.__doc__ or ""
    for whole in (str(text), f"{text}", text.strip(), inspect.getdoc(folkman.sgp) or "", text):
        assert "largest norm of a gradient; 0: no limit" in whole
    assert len(text) == len(str(text)) > 500
    assert folkman.sgp.__doc__ is text  # once
    assert hash(text) == hash(str(text))
    assert text == str(text)
    again = pickle.loads(pickle.dumps(text))  # noqa: S301 - our own
    assert again == text
    assert text + again == 2 * str(text)


def test_without_its_source_a_docstring_stays_as_it_is():
    names = {"__name__": "nowhere"}
    exec('def f(slots: int = 3):\n    """Return it."""', names)  # noqa: S102
    assert str(helped(names["f"]).__doc__) == "Return it."
    assert helped(3) == 3
    assert helped(print) is print


@pytest.mark.process
def test_meanings_are_read_when_somebody_asks():
    """Neither the import nor the use of a name reads them, nor what reads them."""
    said = (
        "import sys, folkman\n"
        "lazy = ('folkman.config.meanings', 'folkman.config.helped')\n"
        "print([name in sys.modules for name in lazy])\n"
        "folkman.Faults(liars=0.1)\n"
        "print([name in sys.modules for name in lazy])\n"
        "print('share of the nodes' in folkman.Faults.__doc__)\n"
    )
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[False, False]", "[False, True]", "True"]


def with_examples():
    for found in walk_packages([str(SOURCE)], "folkman."):
        path = SOURCE.joinpath(*found.name.split(".")[1:])
        file = path / "__init__.py" if found.ispkg else path.with_suffix(".py")
        if ">>>" in file.read_text(encoding="utf-8"):
            yield found.name


@pytest.mark.parametrize("name", sorted(with_examples()))
def test_the_examples_in_docstrings_run(name):
    done = doctest.testmod(import_module(name))
    assert done.attempted >= 1
    assert done.failed == 0


def test_examples_and_columns_of_a_docstring_become_code():
    as_code = runpy.run_path(str(DOCS / "described.py"))["as_code"]
    told = as_code("Return it.\n\n>>> 1 + 1\n2\n\none    a\nother  b\n\nmore  text.\nof it")
    assert told.split("\n\n") == [
        "Return it.",
        "```pycon\n>>> 1 + 1\n2\n```",
        "```text\none    a\nother  b\n```",
        "more  text.\nof it",
    ]


BARE = re.compile(
    r"""(?:\([^)]*\)\ ?)?(?:bool:?)?$  # a shape alone
    |(?:\([^)]*\)\ )?(?:of|that|for|to|by|beyond|None:|0:)\ (?!whom)  # goes on from its name
    |(?:\([^)]*\)\ )?.{1,2}$  # a letter
    |its\ \w+$""",
    re.VERBOSE,
)
"""Meanings that say nothing without the name, the type or the paper beside them."""


def test_a_meaning_is_more_than_a_shape_a_letter_or_the_end_of_a_sentence(described):
    told = {
        f"{name}({key}): {one.meaning}"
        for name, each in described.items()
        for key, one in each.items()
        if BARE.match(one.meaning)
    }
    state = re.compile(r"algorithm\.\w+\.\w*(?:State|Server|Memory|Node|Station|Root|Table)\(")
    assert {each for each in told if not state.match(each)} == set()
    shape = re.compile(r".*: (?:\([^)]*\) ?)?(?:bool)?$")  # states may name the paper's letter
    assert {each for each in told if shape.match(each)} == set()
