"""A node's facts as Prometheus and OpenMetrics read them.

Each fact of a health file has one series here: a name with its unit, a kind, a label if the fact is
a table, and a sentence. Counters end in `_total`; what belongs to a link has the label `peer`. The
text is that of Prometheus' format 0.0.4, or OpenMetrics 1.0 for whoever asks for it.
"""

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from folkman.record.cluster import DONE, LEARNING, STARTING
from folkman.record.json_file import Table
from folkman.record.run import DIVERGED, FAILED, STOPPED

__all__ = ["INFO", "SERIES", "Series", "exposition"]

STATES = (STARTING, LEARNING, DONE, STOPPED, DIVERGED, FAILED)


class Series(NamedTuple):
    """How one fact is told. `name` has the unit, and not the ending of a counter."""

    name: str
    kind: str  # gauge or counter
    help: str
    label: str = ""  # of a table: what its keys are
    unit: str = ""  # the end of the name, as OpenMetrics wants it told

    def family(self, *, openmetrics: bool) -> str:
        """Return the name that TYPE and HELP are of: OpenMetrics leaves out `_total`."""
        return self.name if openmetrics else self.sample()

    def sample(self) -> str:
        """Return the name that values have."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


def _gauge(name: str, text: str, label: str = "", unit: str = "") -> Series:
    return Series(f"folkman_{name}", "gauge", text, label, unit)


def _counter(name: str, text: str, label: str = "", unit: str = "") -> Series:
    return Series(f"folkman_{name}", "counter", text, label, unit)


SERIES = {
    "ok": _gauge("ok", "1 if the node learns or is done, has a link and lives slots."),
    "state": _gauge("state", "1 for the state that the node is in.", "state"),
    "steps": _counter("steps", "Gradient steps taken."),
    "slot": _gauge("slot", "Number of the present slot."),
    "round": _gauge("round", "Number of the present round, in lock-step."),
    "loss": _gauge("loss", "Training loss of the last gradient."),
    "saved_steps": _gauge("saved_steps", "Steps in the state on disk."),
    "incarnation": _gauge("incarnation", "How often the node has begun."),
    "staying": _gauge("staying", "1 if the node is at its end and stays for an operator."),
    "insecure": _gauge("insecure", "1 if there is no TLS and no signature."),
    "uptime_s": _gauge("uptime_seconds", "Since the node began.", "", "seconds"),
    "written_s": _gauge("health_timestamp_seconds", "When it was written.", "", "seconds"),
    "cpu_s": _counter("cpu_seconds", "CPU time used.", "", "seconds"),
    "memory_bytes": _gauge("resident_memory_bytes", "Resident memory.", "", "bytes"),
    "memory_peak_bytes": _gauge(
        "resident_memory_peak_bytes", "Most resident memory so far.", "", "bytes"
    ),
    "num_linked": _gauge("links", "Neighbours with a link now."),
    "num_neighbours": _gauge("neighbours", "Neighbours that the method has."),
    "refused": _counter("refused_messages", "Messages refused, by reason.", "reason"),
    "counts": _counter("events", "Events of the node, by kind.", "event"),
    "transport": _counter("transport_events", "Events of the transport, by kind.", "event"),
    "bytes_sent": _counter("transport_sent_bytes", "Sent to neighbours.", "", "bytes"),
    "bytes_received": _counter("transport_received_bytes", "Received of them.", "", "bytes"),
    "operator_door": _counter("operator_door_events", "At the operators' door.", "event"),
    "reach_share": _gauge(
        "reach_ratio", "Largest share of the limit of distance of a message taken.", "", "ratio"
    ),
    "link_up": _gauge("link_up", "1 if the link to a neighbour is up.", "peer"),
    "goodput_bit_s": _gauge(
        "link_goodput_bits_per_second",
        "Acknowledged bits to a neighbour.",
        "peer",
        "bits_per_second",
    ),
    "goodput_here_bit_s": _gauge(
        "link_reported_goodput_bits_per_second",
        "Bits from a neighbour, as it reports them.",
        "peer",
        "bits_per_second",
    ),
    "latency_s": _gauge(
        "link_latency_seconds", "Until a neighbour's acknowledgement.", "peer", "seconds"
    ),
    "loss_share": _gauge(
        "link_loss_ratio", "Messages to a neighbour without acknowledgement.", "peer", "ratio"
    ),
    "taken_age_s": _gauge(
        "link_taken_age_seconds", "Since the last message of a neighbour.", "peer", "seconds"
    ),
}
"""Key of a health file, or what is read off one -> its series."""

INFO = ("node", "version", "method", "label", "arithmetic")
"""Facts that are words; they are labels of `folkman_node_info`."""
INFO_HELP = "What the node is; always 1."
PER_LINK = ("goodput_bit_s", "latency_s", "loss_share", "goodput_here_bit_s", "taken_age_s")
OF_BYTES = ("bytes_sent", "bytes_received")


def exposition(facts: Table, *, openmetrics: bool = False) -> tuple[str, str]:
    """Return a content type, and facts as text of that type."""
    lines = [*_info(facts, openmetrics=openmetrics)]
    for key, value in _told(facts).items():
        lines += _lines(SERIES[key], value, openmetrics=openmetrics)
    if openmetrics:
        kind = "application/openmetrics-text; version=1.0.0; charset=utf-8"
        return kind, "\n".join([*lines, "# EOF"]) + "\n"
    return "text/plain; version=0.0.4; charset=utf-8", "\n".join([*lines, ""])


def _told(facts: Table) -> dict[str, object]:
    """Return the facts that have a series, with those that are read off others."""
    found = {key: value for key, value in facts.items() if key in SERIES}
    if isinstance(facts.get("state"), str):
        found["state"] = {name: int(name == facts["state"]) for name in STATES}
    events = found.get("transport")
    if isinstance(events, Mapping):
        found["transport"] = {key: n for key, n in events.items() if key not in OF_BYTES}
        found |= {key: events[key] for key in OF_BYTES if key in events}
    linked = facts.get("linked")
    if isinstance(linked, list):
        names = set(linked).union(*(facts.get(key) or {} for key in PER_LINK))
        found["link_up"] = {name: int(name in linked) for name in sorted(names)}
    return found


def _info(facts: Table, *, openmetrics: bool) -> Iterator[str]:
    """Tell what the node is, as a series of value 1 with labels."""
    known = {name: facts[name] for name in INFO if isinstance(facts.get(name), str)}
    if not known:
        return
    family = "folkman_node" if openmetrics else "folkman_node_info"
    yield f"# HELP {family} {INFO_HELP}"
    yield f"# TYPE {family} {'info' if openmetrics else 'gauge'}"
    labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in known.items())
    yield f"folkman_node_info{{{labels}}} 1"


def _lines(series: Series, value: object, *, openmetrics: bool) -> Iterator[str]:
    """Tell one fact; nothing of one that is not known yet."""
    rows = value.items() if isinstance(value, Mapping) else [("", value)]
    numbers = [(str(key), each) for key, each in rows if isinstance(each, int | float)]
    if not numbers or isinstance(value, Mapping) != bool(series.label):
        return
    family = series.family(openmetrics=openmetrics)
    yield f"# HELP {family} {series.help}"
    yield f"# TYPE {family} {series.kind}"
    if openmetrics and series.unit:
        yield f"# UNIT {family} {series.unit}"
    for key, each in numbers:
        labels = f'{{{series.label}="{_escaped(key)}"}}' if series.label else ""
        yield f"{series.sample()}{labels} {_number(each)}"


def _number(value: float) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(value)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
