"""The JSON schema for editors: every example fits, what is wrong does not."""

import json
import tomllib
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from folkman.cli.schema import schema_of
from folkman.config.choices import ConfigError
from folkman.config.comparison import CHOICES, Comparison, resolve, to_toml
from folkman.config.schema import MEANING, comparison_schema
from folkman.config.text import DEFAULT
from folkman.runtime.assembly import _node_config
from shell import folkman
from test_docs import PAGES, blocks

ROOT = Path(__file__).parents[2]
RUNS = ["examples/delay-law.toml", "examples/devices/experiment.toml"]
RUNS += ["examples/devices/fresh-air.toml", "src/folkman/config/demo.toml"]
RUNS += ["src/folkman/config/default.toml"]


@pytest.fixture(scope="module")
def of_run():
    return Draft202012Validator(comparison_schema())


@pytest.fixture(scope="module")
def of_sweep():
    return Draft202012Validator(schema_of("sweep"))


def read(path):
    return tomllib.loads((ROOT / path).read_text())


def test_the_schemas_are_schemas():
    for kind in ("run", "sweep", "node"):
        Draft202012Validator.check_schema(schema_of(kind))
        json.dumps(schema_of(kind), allow_nan=False)


def test_no_table_has_the_titles_that_pydantic_makes():
    def titles(schema):
        if isinstance(schema, dict):
            own = [schema["title"]] if isinstance(schema.get("title"), str) else []
            return own + [one for each in schema.values() for one in titles(each)]
        return [one for each in schema for one in titles(each)] if isinstance(schema, list) else []

    assert titles(comparison_schema()) == ["folkman"]


def test_every_option_says_what_it_means():
    definitions = comparison_schema()["$defs"]
    tables = {name: each for name, each in definitions.items() if not name.startswith("own.")}
    bare = {
        f"{name}.{key}"
        for name, each in tables.items()
        for key, field in each["properties"].items()
        if key != "name" and not field.get("description")
    }
    assert not bare
    delay = tables["network.pipelined"]["properties"]
    assert delay["download_slots"]["description"] == "slots of a server's answer; None: `gamma`"


@pytest.mark.parametrize("path", RUNS)
def test_every_example_fits(path, of_run):
    assert [error.message for error in of_run.iter_errors(read(path))] == []


def test_every_example_file_is_looked_at():
    found = {str(path.relative_to(ROOT)) for path in (ROOT / "examples").rglob("*.toml")}
    papers = {name for name in found if name.startswith("examples/papers/")}  # another language

    assert found - papers == {name for name in RUNS if "examples" in name} | {
        "examples/devices/node.toml"
    }


def test_the_node_of_the_examples_fits():
    tables = read("examples/devices/node.toml")
    validator = Draft202012Validator(schema_of("node"))

    assert list(validator.iter_errors(tables)) == []
    assert list(validator.iter_errors({**tables, "transport": "udp"}))
    assert list(validator.iter_errors({**tables, "lissten": "a:1"}))
    with pytest.raises(ConfigError):
        _node_config({**tables, "lissten": "a:1"}, "node.toml")


def test_every_configuration_of_the_documents_fits(of_run, of_sweep):
    seen = 0
    for page in PAGES:
        for source in blocks(page, "toml") if "paper" not in page.name else ():
            tables = tomllib.loads(source)
            sweeps = {"grid", "list", "arm"} & tables.keys()
            errors = (of_sweep if sweeps else of_run).iter_errors(tables)
            assert [(page.name, error.message) for error in errors] == []
            seen += 1
    assert seen > 15


def test_what_a_run_folder_keeps_fits(of_run):
    assert list(of_run.iter_errors(tomllib.loads(to_toml(resolve({}))))) == []


def test_every_builder_with_its_defaults_fits(of_run):
    for kind, choice in CHOICES.items():
        for name in choice.builders:
            if any(default is ... for _, default in choice.options(name).values()):
                continue
            table = {"name": name}
            tables = {kind: [table]} if kind == "algorithm" else {kind: table}
            assert list(of_run.iter_errors(tables)) == [], (kind, name)


def test_every_key_has_a_meaning():
    assert set(MEANING) == set(Comparison.model_fields)


WRONG = {
    "an unknown key": 'nods = 5\n[network]\nname = "ideal"',
    "an unknown table": "[netwrk]\nname = 'ideal'",
    "a word for a number": 'nodes = "five"',
    "a fraction of a node": "nodes = 2.5",
    "no node": "nodes = 0",
    "no slot": "slots = 0",
    "no seed": "seeds = []",
    "a seed that is a word": 'seeds = ["a"]',
    "a time below zero": "slot_s = -1.0",
    "a latency law with another key": "slot_s = { base = 1.0 }",
    "no precision": 'precision = "float16"',
    "an objective": 'objective = "devices"',
    "a metric": "stop_at = { loss = 0.1 }",
    "a share of losses": "[faults]\nloss = 1.5",
    "a fault": "[faults]\nlos = 0.5",
    "an attack": '[faults]\nattack = "poison"',
    "a power": '[energy]\nidle_w = "low"',
    "a power's name": "[energy]\nidle = 1.0",
    "no name": "[network]\ngamma = 5",
    "an unknown network": '[network]\nname = "pipelind"',
    "another network's option": '[network]\nname = "ideal"\ngamma = 5',
    "a misspelt option": '[network]\nname = "pipelined"\ngama = 5',
    "an option of another type": '[network]\nname = "pipelined"\ngamma = "five"',
    "a choice of a schedule": '[network]\nname = "radio"\nschedule = "best"',
    "the radio's option": "[radio]\nthreshold = 5",
    "an unknown data set": '[data]\nname = "minst"',
    "a size": '[data]\nname = "digits"\ntrain_size = 0',
    "an unknown model": '[model]\nname = "resnet"',
    "widths": '[model]\nname = "mlp"\nhidden = 64',
    "an unknown method": '[[algorithm]]\nname = "async"',
    "one table of methods": '[algorithm]\nname = "fedavg"',
    "no method": "algorithm = []",
    "a misspelt step": '[[algorithm]]\nname = "fedavg"\nstp = 0.1',
    "a step that is a word": '[[algorithm]]\nname = "fedavg"\nstep = "fast"',
    "a rule": '[[algorithm]]\nname = "async_sharing"\nrule = "max"',
    "a method's own network": '[[algorithm]]\nname = "fedavg"\nnetwork = { nmae = "ideal" }',
    "a method's own unknown network": '[[algorithm]]\nname = "fedavg"\nnetwork = { name = "wifi" }',
    "a packing": '[compression]\nname = "zip"',
    "own code without a function": '[model]\nname = "mine.py"',
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_does_not_fit_and_does_not_run(case, of_run):
    tables = tomllib.loads(WRONG[case])

    assert list(of_run.iter_errors(tables)), "the schema lets it pass"
    with pytest.raises(ConfigError):
        resolve(tables)


RIGHT = {
    "own code": '[model]\nname = "mine.py:model"\nwidth = 3',
    "a module": '[[algorithm]]\nname = "package.module:gossip"\nstep = 0.1',
    "a method's own option of the common network": (
        '[network]\nname = "radio"\n[[algorithm]]\nname = "fedavg"\nnetwork = { threshold_db = -5 }'
    ),
    "the radio's short form": "[radio]\nthreshold_db = -5.0",
    "a latency law": "slot_s = { base_s = 0.5 }",
    "drawn times": "compute_slots = { mean = 2.5 }",
    "times of nodes": "compute_slots = [1, 2, 1, 1, 1]",
    "targets": "stop_at = { test_accuracy = 0.9 }",
    "weights": '[network]\nname = "radio"\nweights = "shares"',
}


@pytest.mark.parametrize("case", RIGHT)
def test_what_is_right_fits(case, of_run):
    assert [each.message for each in of_run.iter_errors(tomllib.loads(RIGHT[case]))] == []


def test_the_default_is_described(of_run):
    assert list(of_run.iter_errors(DEFAULT)) == []


def test_the_command_prints_and_writes_it(tmp_path):
    printed = folkman("schema", cwd=tmp_path)
    written = folkman("schema", "--of", "node", "--out", "node.json", cwd=tmp_path)
    wrong = folkman("schema", "--of", "paper", cwd=tmp_path)
    nowhere = folkman("schema", "--out", "no/s.json", cwd=tmp_path)

    assert json.loads(printed.stdout) == comparison_schema()
    assert written.stdout == "node.json\n"
    assert json.loads((tmp_path / "node.json").read_text())["title"] == "folkman node"
    assert (wrong.returncode, nowhere.returncode) == (2, 2)
    assert "there is no schema 'paper'" in wrong.stderr
