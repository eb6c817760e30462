"""Metrics as others read them: both official parsers, the conventions of names, and the board."""

import json
import math
import re
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families as families

from folkman.runtime.exposition import SERIES, exposition
from folkman.runtime.telemetry import answer_to

BOARD = Path(__file__).parents[2] / "packaging" / "grafana" / "folkman.json"
FACTS = {
    "node": "node-0",
    "version": "0.1.0",
    "method": 'a "quoted\\name"\n',
    "label": "x",
    "state": "learning",
    "ok": True,
    "wrong": "",
    "steps": 31,
    "loss": 0.5,
    "cpu_s": 1.25,
    "memory_bytes": 7 * 10**7,
    "uptime_s": 12.5,
    "linked": ["node-1"],
    "num_linked": 1,
    "latency_s": {"node-1": 0.01, "node-2": 0.2},
    "loss_share": {"node-1": 0.0},
    "refused": {"stale": 2},
    "counts": {"taken": 5},
    "transport": {"bytes_sent": 1000, "redials": 3},
    "reach_share": None,
    "insecure": False,
}


def samples(parsed):
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parsed
        for sample in family.samples
    }


@pytest.mark.parametrize("openmetrics", [False, True])
def test_the_official_parser_reads_every_fact_back(openmetrics):
    parse = open_families if openmetrics else families
    kind, text = exposition(FACTS, openmetrics=openmetrics)
    found = samples(parse(text))

    assert found["folkman_steps_total", ()] == 31
    assert found["folkman_cpu_seconds_total", ()] == 1.25
    assert found["folkman_link_latency_seconds", (("peer", "node-2"),)] == 0.2
    assert found["folkman_link_up", (("peer", "node-2"),)] == 0
    assert found["folkman_refused_messages_total", (("reason", "stale"),)] == 2
    assert found["folkman_transport_sent_bytes_total", ()] == 1000
    assert found["folkman_transport_events_total", (("event", "redials"),)] == 3
    assert found["folkman_state", (("state", "learning"),)] == 1
    assert found["folkman_state", (("state", "done"),)] == 0
    (info,) = [dict(labels) for name, labels in found if name == "folkman_node_info"]
    assert info["method"] == FACTS["method"]  # escaped and back
    assert info["version"] == "0.1.0"
    assert text.endswith("# EOF\n") == openmetrics
    assert kind.startswith("application/openmetrics-text" if openmetrics else "text/plain")


@pytest.mark.parametrize("openmetrics", [False, True])
def test_every_family_has_help_type_and_a_name_by_the_conventions(openmetrics):
    parse = open_families if openmetrics else families
    every = {key: ({"a": 1} if series.label else 1) for key, series in SERIES.items()}
    every |= {
        "state": "done",
        "node": "node-0",
        "linked": ["a"],
        "transport": {"bytes_sent": 1, "x": 1},
    }
    parsed = list(parse(exposition(every, openmetrics=openmetrics)[1]))

    assert len(parsed) == len(SERIES) + 1
    for family in parsed:
        assert family.documentation.endswith(".") or "always 1" in family.documentation
        assert family.type in ("gauge", "counter", "info")
        assert re.fullmatch("folkman_[a-z_]+", family.name)
        assert all(sample.name.startswith("folkman_") for sample in family.samples)
        counts = family.type == "counter"
        assert all(sample.name.endswith("_total") == counts for sample in family.samples)
        # base units alone, as suffixes
        assert not re.search("_(s|ms|bit_s|kb|mb|percent)$", family.name), family.name
    if openmetrics:
        units = {family.name: family.unit for family in parsed if family.unit}
        assert units["folkman_cpu_seconds"] == "seconds"
        assert all(name.endswith(unit) for name, unit in units.items())


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_what_is_not_finite_is_written_as_the_format_wants(value):
    for openmetrics, parse in ((False, families), (True, open_families)):
        text = exposition({"loss": value}, openmetrics=openmetrics)[1]
        (found,) = samples(parse(text)).values()
        assert found == value or math.isnan(found) == math.isnan(value)


def test_what_is_not_known_yet_or_no_number_is_left_out():
    text = exposition({"loss": None, "reach_share": None, "steps": {}, "counts": 3})[1]
    assert text == ""


def test_openmetrics_is_for_those_who_ask_for_it():
    asks = b"GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text;version=1.0.0,*/*;q=0.1\r\n\r\n"
    head, _, body = answer_to(asks, FACTS).partition(b"\r\n\r\n")
    assert b"application/openmetrics-text; version=1.0.0" in head
    assert list(open_families(body.decode()))
    head, _, body = answer_to(b"GET /metrics HTTP/1.1\r\nAccept: */*\r\n\r\n", FACTS).partition(
        b"\r\n\r\n"
    )
    assert b"text/plain; version=0.0.4" in head
    assert b"# EOF" not in body


def queries(board):
    """Return all expressions of a Grafana board."""
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    return asked + [
        each["query"]["query"] for each in board["templating"]["list"] if each["type"] == "query"
    ]


def names_in(expression):
    return set(re.findall(r"folkman_[a-z_]+", expression))


def test_the_board_asks_for_series_that_there_are():
    board = json.loads(BOARD.read_text())
    asked = set().union(*map(names_in, queries(board)))

    assert len(asked) >= 14
    assert asked <= {series.sample() for series in SERIES.values()} | {"folkman_node_info"}
    for expression in queries(board):  # a counter is looked at by its rate, a gauge never
        for name in names_in(expression):
            assert ("rate(" in expression) == name.endswith("_total") or len(
                names_in(expression)
            ) > 1
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
