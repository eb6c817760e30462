"""A schedule as one page without a network: nodes, links, messages in flight, disks, ages, faults.

The page holds the trace as data and a small script that plays it: space plays and pauses, the
arrows step, plus and minus change how much time is in view.
"""

import json
from html import escape
from importlib.resources import files
from typing import Any

from folkman.runtime.world.invariants import ALL
from folkman.runtime.world.world import Outcome, World

__all__ = ["page"]

QUIET = ("Tick", "Log", "Note", "Health")
"""What is not listed beside the picture; the trace of the command line has it all."""


def page(outcome: Outcome, world: World) -> str:
    """Return the page of a schedule that was watched."""
    here = files("folkman.runtime.world")
    style, script = ((here / f"playback.{kind}").read_text("utf-8") for kind in ("css", "js"))
    title = f"Seed {outcome.plan.seed}"
    verdict = outcome.text if outcome.broken else "All invariants held."
    data = json.dumps(_data(outcome, world), separators=(",", ":")).replace("<", "\\u003c")
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<style>{style}</style></head><body>
<header><h1>{title}</h1><p id="about"></p>
<p id="verdict" class="{"broken" if outcome.broken else "held"}">{escape(verdict)}</p></header>
<main>
<section id="scene"><svg id="picture" role="img" aria-label="Nodes, links and messages"></svg>
<p id="legend"></p></section>
<section id="side"><h2>Now</h2><p id="clock"></p><ol id="lines"></ol>
<h2>Slots since the copy that a node holds was formed</h2><div id="ages"></div></section>
</main>
<section id="time"><svg id="strip" role="img" aria-label="Faults over time"></svg>
<div id="controls"><button id="back" title="one event back (left arrow)">&#9664;&#8202;|</button>
<button id="play" title="play or pause (space)">Play</button>
<button id="on" title="one event on (right arrow)">|&#8202;&#9654;</button>
<label>speed <select id="speed"><option>0.25</option><option selected>1</option><option>4</option>
<option>16</option></select></label>
<button id="closer" title="closer (+)">+</button>
<button id="wider" title="wider (-)">&minus;</button>
<button id="broke">To the end</button>
<input id="at" type="range" min="0" max="1" step="any" value="0" aria-label="time"></div></section>
<script type="application/json" id="data">{data}</script>
<script>{script}</script></body></html>
"""


def _data(outcome: Outcome, world: World) -> dict[str, Any]:
    plan = outcome.plan
    invariant = next((each for each in ALL if each.number == outcome.broken), None)
    return {
        "seed": plan.seed,
        "method": plan.method,
        "members": [
            {"number": number, "name": _name(number), "lie": plan.lie_of(number)}
            for number in world.hosts
        ],
        "slots": plan.slots,
        "slot_s": plan.slot_s,
        "heal_s": plan.heal_s,
        "end_s": plan.end_s,
        "last_s": world.now_s,
        "digest": outcome.digest,
        "broken": outcome.broken,
        "sentence": invariant.sentence if invariant is not None else "",
        "faults": [
            {
                "kind": fault.kind,
                "node": fault.node,
                "peer": fault.peer,
                "start": round(fault.start_s, 4),
                "stop": round(fault.stop_s, 4),
                "said": fault.said(),
            }
            for fault in plan.faults
        ],
        "lines": [
            [round(line.now_s, 4), line.member, line.what, line.peer, line.detail]
            for line in world.trace.lines
            if line.what not in QUIET
        ],
        "flights": [
            [round(each.sent_s, 4), round(each.at_s, 4), each.sender, each.receiver, each.kind]
            for each in world.flights
        ],
        "ages": [
            [round(now_s, 4), number, list(ages), steps]
            for now_s, number, ages, steps in world.ages
        ],
    }


def _name(number: int) -> str:
    return "server" if number >= 2**31 else str(number)
