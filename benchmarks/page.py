"""The live page under load: 50 updates a second, 16 nodes, for as long as told, in a real Chromium.

    python benchmarks/page.py --minutes 10 [--lines 20000] [--out soak.json]

Rows are written as a run writes them, and their file again when it has `--lines` of them; scenes
are replaced beside them; `folkman dash` serves both; the browser draws them. Every update has its
number: the browser notes when it has which and when it has drawn which, so that each one's lag is
known. Every five seconds the browser collects its garbage and tells its memory. Ends with one JSON
line, and with exit code 1 if the page reported an error, memory grew, an update never came, the
file was not rewritten though it was full, or the lag from writing a row to its drawing was above
100 ms at the 95th percentile.
"""

import argparse
import json
import math
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from playwright.sync_api import CDPSession, Page, sync_playwright

from folkman.record import live
from folkman.record.folder import RunFolder
from folkman.record.run import Run

NODES, RATE_HZ, SCENE_EVERY = 16, 50, 5
MOST_LAG_MS = 100.0
MOST_GROWTH = 1.15
"""Memory of the last quarter over that of the second; the first is warm-up."""

CONFIG = f"""
name = "soak"
nodes = {NODES}
slots = 100000000
seeds = [0]

[data]
name = "digits"

[model]
name = "softmax"

[network]
name = "radio"

[[algorithm]]
name = "async_sharing"
label = "Algorithm 1"
"""

COUNT = """
  window.had = [];
  window.drawn = [];
  window.last = 0;
  window.EventSource = class extends EventSource {
    addEventListener(kind, listen) {
      super.addEventListener(kind, (event) => {
        listen(event);
        for (const run of JSON.parse(event.data).runs ?? []) {
          window.last = run.done;
          window.had.push([Date.now(), run.done]);
        }
      });
    }
  };
"""
"""Before the page's own scripts: note the number of the last update whenever the page has been
told."""

OBSERVE = """() => {
  window.had.splice(0);
  new MutationObserver(() => window.drawn.push([Date.now(), window.last]))
    .observe(document.getElementById("lag"), { attributes: true, attributeFilter: ["data-ms"] });
}"""


class Written(NamedTuple):
    """What the writer did.

    When each update was written, in ms by its number, and how often the file shrank.
    """

    at_ms: list[float]
    shrunk: list[int]  # the numbers of the updates that did it


class Seen(NamedTuple):
    """What the browser saw: when it had, and had drawn, the update of which number.

    Also its memory and its complaints.
    """

    had: list[tuple[float, float]]
    drawn: list[tuple[float, float]]
    held: list[dict[str, float]]
    errors: list[str]


def row(index: int) -> dict[str, float]:
    """Return a row as a run would write it."""
    loss = 2.0 * math.exp(-index / 4000) + 0.1 * math.sin(index / 50)
    known = {
        "slots": index,
        "seconds": index / 100,
        "gradients": index,
        "rounds": index / 5,
        "bits": index * 1e5,
    }
    known |= {
        "train_loss": loss,
        "test_loss": loss,
        "test_accuracy": 1 - loss / 3,
        "consensus": loss / 5,
    }
    return known | {
        "consensus_max": loss,
        "node_norm": 3.0,
        "mean_age": 5 + math.sin(index / 9),
        "max_age": 20,
        "kappa": 1.0,
    }


def scene(index: int, rng: np.random.Generator) -> dict[str, object]:
    """Return a scene as a run would write it, a third of the links on the air."""
    on_air = (rng.random((NODES, NODES)) < 0.33) & ~np.eye(NODES, dtype=bool)
    sinr = np.where(on_air, rng.normal(8, 6, (NODES, NODES)).round(2), np.nan)
    angle = np.arange(NODES) * 2.4 + index / 2000
    where = np.stack([np.cos(angle), np.sin(angle)], 1) * np.linspace(60, 480, NODES)[:, None]
    return {
        "at": time.time(), "slot": index, "seconds": index / 100,
        "positions_m": where.round(1).tolist(),
        "age_slots": rng.integers(0, 40, (NODES, NODES)).tolist(), "on_air": on_air.tolist(),
        "left_slots": rng.integers(1, 9, NODES).tolist(), "stamp": [index] * NODES,
        "share": rng.dirichlet(np.ones(NODES)).round(4).tolist(),
        "sinr_db": [[None if math.isnan(v) else v for v in line] for line in sinr.tolist()],
        "disagreement": rng.random(NODES).round(4).tolist(), "gradients": [index] * NODES,
        "samples": [100] * NODES,
        "interferers_m": [[600.0, 100.0], [-300.0, 560.0]], "cell_radius_m": 500.0,
        "bandwidth_hz": 1e7,
        "threshold_db": 0.0, "server": False,
    }  # fmt: skip


def write(root: Path, stop: threading.Event, written: Written) -> None:
    """Write a row every fiftieth of a second, and replace the scene every fifth time."""
    rng, run = np.random.default_rng(0), Run("async_sharing", "Algorithm 1", 0)
    lines, moment = files = RunFolder(root).live(run)
    writer = live.LiveWriter(files, run, 10**8, NODES)
    writer.begin()
    begun_s, index, size = time.monotonic(), 0, 0
    while not stop.is_set():
        index += 1
        if index % SCENE_EVERY == 0:
            part = moment.with_suffix(".part")
            part.write_text(json.dumps(scene(index, rng)))
            part.replace(moment)
        run.rows.append(row(index))
        written.at_ms.append(1000 * time.time())
        writer.add(last=True)  # every row is an update, also one that comes a little early
        before, size = size, lines.stat().st_size
        if size < before:
            written.shrunk.append(index)
        stop.wait(max(0.0, begun_s + index / RATE_HZ - time.monotonic()))


def measure(page: Page, session: CDPSession, seen: Seen) -> None:
    """Take what the browser noted since the last time, and its memory after a collection."""
    had, drawn = page.evaluate("() => [window.had.splice(0), window.drawn.splice(0)]")
    seen.had.extend(had)
    seen.drawn.extend(drawn)
    session.send("HeapProfiler.collectGarbage")
    facts = {
        each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]
    }
    seen.held.append({"heap_mb": facts["JSHeapUsedSize"] / 1e6, "dom_nodes": facts["Nodes"]})


def watch(address: str, minutes: float, shot: Path | None) -> Seen:
    """Look at the page for so long, and return what was seen."""
    seen = Seen([], [], [], [])
    with sync_playwright() as driver:
        chromium = shutil.which("chromium")
        options = [
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--enable-precise-memory-info",
        ]
        browser = driver.chromium.launch(executable_path=chromium, args=options)
        page = browser.new_page(viewport={"width": 1280, "height": 1500})
        page.on("pageerror", lambda error: seen.errors.append(str(error)))
        page.on(
            "console", lambda line: seen.errors.append(line.text) if line.type == "error" else None
        )
        page.add_init_script(COUNT)
        page.goto(address)
        page.get_by_text("running, 0 of 1 runs").wait_for(timeout=60_000)
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable")
        page.evaluate(OBSERVE)
        end_s = time.monotonic() + 60 * minutes
        while time.monotonic() < end_s:
            page.wait_for_timeout(5000)
            measure(page, session, seen)
        if shot is not None:
            page.keyboard.press("p")  # a page that keeps changing cannot be caught
            page.screenshot(path=shot, timeout=120_000)
        browser.close()
    return seen


def lags(
    at_ms: "np.ndarray[Any, Any]", events: list[tuple[float, float]]
) -> tuple["np.ndarray[Any, Any]", int]:
    """Return for each update its delay from writing to the page, and how many never came.

    Counted are those written after the first event and at least a second before the last.
    """
    when_ms, number = np.array(events).T
    reached = np.maximum.accumulate(number)  # a file that is read again begins at old rows
    numbers = 1 + np.flatnonzero((at_ms > when_ms[0]) & (at_ms < when_ms[-1] - 1000))
    place = np.searchsorted(reached, numbers)
    came = place < len(when_ms)
    return when_ms[place[came]] - at_ms[numbers[came] - 1], int((~came).sum())


def verdict(seen: Seen, minutes: float, written: Written, most_lines: int) -> dict[str, object]:
    """Return the numbers that are asked for."""
    at_ms = np.array(written.at_ms)
    (had, lost), (drawn, undrawn) = lags(at_ms, seen.had), lags(at_ms, seen.drawn)
    heap = np.array([facts["heap_mb"] for facts in seen.held])
    nodes = np.array([facts["dom_nodes"] for facts in seen.held])
    quarter = max(len(heap) // 4, 1)
    growth = float(heap[-quarter:].mean() / heap[quarter : 2 * quarter].mean())
    answer: dict[str, object] = {
        "minutes": minutes, "rows": len(at_ms), "most_lines": most_lines,
        "file_shrank_at_row": written.shrunk,
        "updates": len(drawn), "lost": lost + undrawn, "draws": len(seen.drawn),
        "errors": seen.errors,
        "had_ms": _percentiles(had), "drawn_ms": _percentiles(drawn),
        "heap_mb": {"second_quarter": round(float(heap[quarter : 2 * quarter].mean()), 2),
                    "last_quarter": round(float(heap[-quarter:].mean()), 2),
                    "growth": round(growth, 3)},
        "dom_nodes": {"second_quarter": int(nodes[quarter : 2 * quarter].max()),
                      "last_quarter": int(nodes[-quarter:].max())},
    }  # fmt: skip
    well = (
        not seen.errors and growth < MOST_GROWTH and float(np.percentile(drawn, 95)) < MOST_LAG_MS
    )
    answer["passed"] = (
        well and lost + undrawn == 0 and (len(at_ms) <= most_lines or bool(written.shrunk))
    )
    return answer


def _percentiles(values: "np.ndarray[Any, Any]") -> dict[str, float]:
    return {f"p{q}": round(float(np.percentile(values, q)), 1) for q in (50, 95, 99, 100)}


def main() -> None:
    """Run the soak."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--minutes", type=float, default=10.0)
    options.add_argument(
        "--lines", type=int, default=live.MOST_LINES, help="of the file before it is rewritten"
    )
    options.add_argument("--out", type=Path)
    options.add_argument("--screenshot", type=Path)
    given = options.parse_args()
    live.MOST_LINES = given.lines
    written = Written([], [])
    with tempfile.TemporaryDirectory() as place:
        root, stop = Path(place) / "soak", threading.Event()
        (root / "live").mkdir(parents=True)
        (root / "config.toml").write_text(CONFIG)
        writer = threading.Thread(target=write, args=(root, stop, written))
        writer.start()
        command = [sys.executable, "-m", "folkman", "dash", str(root), "--port", "0"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None  # noqa: S101 - asked for above
            address = next(line.split()[1] for line in server.stdout if line.startswith("open"))
            seen = watch(address, given.minutes, given.screenshot)
            status = Path(f"/proc/{server.pid}/status").read_text()
        finally:
            stop.set()
            writer.join()
            server.terminate()
            server.wait()
        answer = verdict(seen, given.minutes, written, given.lines)
    answer["server_rss_mb"] = next(
        int(line.split()[1]) / 1000 for line in status.splitlines() if line[:5] == "VmRSS"
    )
    if given.out:
        given.out.write_text(json.dumps(answer, indent=2) + "\n")
    print(json.dumps(answer))
    sys.exit(0 if answer["passed"] else 1)


if __name__ == "__main__":
    main()
