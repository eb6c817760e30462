"""The configuration as a JSON schema, for editors: names, options, types and defaults.

It is read off what checks a configuration: the fields of `Comparison`, and the signatures of the
builders. Packages that are installed and register builders of their own are in it too. A schema
cannot know what spans tables (a graph for so many nodes, labels that differ) or the ranges that a
builder checks itself: `folkman run` does.
"""

import inspect
import json
from collections.abc import Iterable
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from pydantic import BaseModel

from folkman.config.choices import Choice
from folkman.config.comparison import (
    CHOICES,
    OWN,
    Comparison,
    ComputeTable,
    FaultTable,
    Latency,
)
from folkman.config.meanings import meanings
from folkman.config.plugins import OWN as OWN_CODE
from folkman.config.vocabulary import VOCABULARY
from folkman.energy import Energy
from folkman.record.json_file import Json
from folkman.record.run import METRICS

__all__ = ["DIALECT", "MEANING", "comparison_schema", "plain"]

DIALECT = "https://json-schema.org/draft/2020-12/schema"

MEANING = {
    "name": "Name of the comparison; the run folder is called by it.",
    "nodes": "Number of nodes that learn.",
    "slots": "Length of a run, in slots: a node takes at most one gradient in a slot.",
    "seeds": "One run of every algorithm for each seed.",
    "slot_s": "Seconds of a slot, or the latency law of the paper as a table.",
    "compute_slots": "Slots that a gradient takes: one number, one for each node, or a table.",
    "record_every": "Slots between two rows of metrics.",
    "evaluate_nodes": "Also measure the models of single nodes.",
    "keep_timelines": "Keep who held what when.",
    "keep_nodes": "Keep the last model of every node.",
    "stop_at": "End a run when a metric reaches a value.",
    "precision": "Floating-point numbers of the simulation.",
    "l2": "Weight of the penalty l2/2 ||kernels||^2.",
    "batch": "Samples of a gradient; all of a node's without it.",
    "sampling": "How mini-batches are drawn.",
    "objective": "What counts alike in the loss: every sample, or every node.",
    "local_tests": "Samples of a test set that is drawn for each node with its own labels.",
    "data": "The data set.",
    "partition": "Which node holds which samples.",
    "model": "The model that is learnt.",
    "projection": "A projection after every step.",
    "network": "The network between the nodes: a delay law, or the radio.",
    "compression": "How messages are packed.",
    "faults": "What goes wrong: lost messages, nodes that are away, crash or lie.",
    "energy": "What sending, listening and computing cost, in watts and joules.",
    "algorithm": "The methods that are compared, one table each.",
    "tuned": "What `folkman tune` notes; it decides about no result.",
}
"""Key of a configuration -> what it means, in a line."""


def comparison_schema(more: Iterable[str] = ()) -> Json:
    """Return the schema of what `folkman run` takes; `more` are further tables of any content."""
    whole = plain(Comparison.model_json_schema())
    whole.pop("required", None)
    fields = whole["properties"]
    definitions = whole.setdefault("$defs", {})
    for kind in (ComputeTable, Energy, FaultTable, Latency):
        for key, each in meanings(kind).items():
            definitions[kind.__name__]["properties"][key]["description"] = each.meaning
    for kind, choice in CHOICES.items():
        definitions |= _tables(choice)
        fields[kind] = _chosen(choice)
    definitions |= {f"own.{kind}": _own(CHOICES[kind]) for kind in OWN}
    fields["algorithm"] = {"type": "array", "minItems": 1, "items": fields["algorithm"]}
    fields["radio"] = _options_of(CHOICES["network"], "radio")
    fields["stop_at"] = {"type": "object", "propertyNames": {"enum": list(METRICS)}}
    fields["stop_at"]["additionalProperties"] = {"type": "number"}
    fields["tuned"] = {"type": "object"}
    for key, meaning in MEANING.items():
        fields[key]["description"] = meaning
    fields |= {key: {"description": "Of a sweep."} for key in more}
    head = {"$schema": DIALECT, "title": "folkman", "description": "A comparison of folkman."}
    return {**head, **{key: value for key, value in whole.items() if key not in head}}


def _tables(choice: Choice) -> Json:
    """Return a definition for each builder of a kind: its name and its options."""
    found = {}
    for name in _names(choice):
        table = _options_of(choice, name)
        table["properties"] = {"name": {"const": name}, **table["properties"]}
        table["required"] = ["name", *table.get("required", [])]
        found[f"{choice.table}.{name}"] = table
    return found


def _names(choice: Choice) -> list[str]:
    """Return the built-in names of a kind, then those of installed packages."""
    registered = [entry.name for entry in entry_points(group=f"folkman.{choice.table}")]
    return [*choice.builders, *(name for name in registered if name not in choice.builders)]


def _options_of(choice: Choice, name: str) -> Json:
    """Return the options of a builder as a closed table."""
    form = choice.form(name, choice.options(name))
    table = json.loads(_written(form))
    table.setdefault("properties", {})
    for kind in OWN:
        if kind in table["properties"]:
            table["properties"][kind] = {"$ref": f"#/$defs/own.{kind}"}
    builder = choice.builders.get(name)
    said = inspect.getdoc(builder) if builder is not None else None
    told = {} if builder is None else meanings(builder)
    for key, field in table["properties"].items():
        meaning = told[key].meaning if key in told else VOCABULARY.get(key, "")
        field |= {"description": meaning} if meaning else {}
    return {"description": said.partition("\n\n")[0].replace("\n", " "), **table} if said else table


@cache
def _written(form: type[BaseModel]) -> str:
    """Return the schema of a model as a text, from which each asker reads its own."""
    return json.dumps(plain(form.model_json_schema()))


def _chosen(choice: Choice) -> Json:
    """Return the schema of a table that chooses a builder by its name."""
    known = [{"$ref": f"#/$defs/{choice.table}.{name}"} for name in _names(choice)]
    own = {"type": "string", "pattern": f"^(?:{_pattern()})$"}
    free = {"type": "object", "required": ["name"], "properties": {"name": own}}
    free["description"] = "A builder of your own: FILE.py:FUNCTION or package.module:FUNCTION."
    return {"anyOf": [*known, free]}


def _own(choice: Choice) -> Json:
    """Return the schema of an algorithm's own table: without a name it changes the common one."""
    fields: Json = {}
    for name in _names(choice):
        fields |= dict.fromkeys(choice.options(name), True)
    same = {"type": "object", "not": {"required": ["name"]}, "properties": fields}
    return {"anyOf": [*_chosen(choice)["anyOf"], {**same, "additionalProperties": False}]}


def _pattern() -> str:
    """Return how own code is named, as JSON schemas write patterns: without names of groups."""
    text = OWN_CODE.pattern
    for group in OWN_CODE.groupindex:
        text = text.replace(f"?P<{group}>", "?:")
    return text


def plain(schema: Any) -> Any:
    """Return a schema of pydantic without its titles, and with nothing that JSON does not have."""
    if isinstance(schema, dict):
        kept = {
            key: value
            for key, value in schema.items()
            if not (key == "title" and isinstance(value, str))
        }
        if isinstance(kept.get("default"), float) and not _is_json(kept["default"]):
            del kept["default"]
        return {key: plain(value) for key, value in kept.items()}
    return [plain(each) for each in schema] if isinstance(schema, list) else schema


def _is_json(value: float) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True
