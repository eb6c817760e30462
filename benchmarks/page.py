"""The live page under load: 50 updates a second, 16 nodes, for as long as told, in a real Chromium.

    python benchmarks/page.py --minutes 10 [--out soak.json]

A writer appends rows and replaces scenes as a run does; `folkman dash` serves them; the browser draws them. Every five
seconds the browser collects its garbage and tells its memory. Ends with one JSON line, and with exit code 1 if the page
reported an error, memory grew, or the lag from writing a row to its drawing was above 100 ms at the 95th percentile.
"""

import argparse
import json
import math
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from playwright.sync_api import CDPSession, Page, sync_playwright

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

OBSERVE = """() => {
  window.lags = [];
  new MutationObserver(() => window.lags.push(Number(document.getElementById("lag").dataset.ms)))
    .observe(document.getElementById("lag"), { attributes: true, attributeFilter: ["data-ms"] });
}"""


def row(index: int) -> dict[str, float]:
    """Return a row as a run would write it."""
    loss = 2.0 * math.exp(-index / 4000) + 0.1 * math.sin(index / 50)
    known = {"slots": index, "seconds": index / 100, "gradients": index, "rounds": index / 5, "bits": index * 1e5}
    known |= {"train_loss": loss, "test_loss": loss, "test_accuracy": 1 - loss / 3, "consensus": loss / 5}
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
        "at": time.time(), "slot": index, "seconds": index / 100, "positions_m": where.round(1).tolist(),
        "age_slots": rng.integers(0, 40, (NODES, NODES)).tolist(), "on_air": on_air.tolist(),
        "left_slots": rng.integers(1, 9, NODES).tolist(), "stamp": [index] * NODES,
        "share": rng.dirichlet(np.ones(NODES)).round(4).tolist(),
        "sinr_db": [[None if math.isnan(v) else v for v in line] for line in sinr.tolist()],
        "disagreement": rng.random(NODES).round(4).tolist(), "gradients": [index] * NODES, "samples": [100] * NODES,
        "interferers_m": [[600.0, 100.0], [-300.0, 560.0]], "cell_radius_m": 500.0, "bandwidth_hz": 1e7,
        "threshold_db": 0.0, "server": False,
    }  # fmt: skip


def write(root: Path, stop: threading.Event) -> None:
    """Append a row every fiftieth of a second, and replace the scene every fifth time."""
    rng, lines, moment = (
        np.random.default_rng(0),
        root / "live/algorithm-1-seed0.jsonl",
        root / "live/algorithm-1-seed0.json",
    )
    head = {"at": time.time(), "label": "Algorithm 1", "algorithm": "async_sharing", "seed": 0, "slots": 10**8}
    lines.write_text(json.dumps(head | {"nodes": NODES, "pid": os.getpid(), "host": socket.gethostname()}) + "\n")
    begun_s, index = time.monotonic(), 0
    while not stop.is_set():
        index += 1
        if index % SCENE_EVERY == 0:
            part = moment.with_suffix(".part")
            part.write_text(json.dumps(scene(index, rng)))
            part.replace(moment)
        with lines.open("a") as file:
            file.write(json.dumps({"at": time.time(), "row": row(index)}) + "\n")
        stop.wait(max(0.0, begun_s + index / RATE_HZ - time.monotonic()))
    root.joinpath("written").write_text(str(index))


def measure(page: Page, session: CDPSession) -> tuple[list[float], dict[str, float]]:
    """Return the lags since the last time, and what the browser holds after collecting its garbage."""
    lags = page.evaluate("() => window.lags.splice(0)")
    session.send("HeapProfiler.collectGarbage")
    facts = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    return lags, {"heap_mb": facts["JSHeapUsedSize"] / 1e6, "dom_nodes": facts["Nodes"]}


def watch(address: str, minutes: float, shot: Path | None) -> dict[str, object]:
    """Look at the page for so long, and return what was seen."""
    errors: list[str] = []
    lags: list[float] = []
    held: list[dict[str, float]] = []
    with sync_playwright() as driver:
        chromium = shutil.which("chromium")
        options = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--enable-precise-memory-info"]
        browser = driver.chromium.launch(executable_path=chromium, args=options)
        page = browser.new_page(viewport={"width": 1280, "height": 1500})
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda line: errors.append(line.text) if line.type == "error" else None)
        page.goto(address)
        page.get_by_text("running, 0 of 1 runs").wait_for(timeout=60_000)
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable")
        page.evaluate(OBSERVE)
        end_s = time.monotonic() + 60 * minutes
        while time.monotonic() < end_s:
            page.wait_for_timeout(5000)
            new, facts = measure(page, session)
            lags += new
            held.append(facts)
        if shot is not None:
            page.keyboard.press("p")  # a page that keeps changing cannot be caught
            page.screenshot(path=shot, timeout=120_000)
        browser.close()
    return {"errors": errors, "lags": lags, "held": held}


def verdict(seen: dict[str, object], minutes: float, rows: int) -> dict[str, object]:
    """Return the numbers that are asked for."""
    lags, held = np.array(seen["lags"]), seen["held"]
    heap = np.array([facts["heap_mb"] for facts in held])  # type: ignore[index, union-attr]
    nodes = np.array([facts["dom_nodes"] for facts in held])  # type: ignore[index, union-attr]
    quarter = max(len(heap) // 4, 1)
    growth = float(heap[-quarter:].mean() / heap[quarter : 2 * quarter].mean())
    answer: dict[str, object] = {
        "minutes": minutes, "rows": rows, "rows_per_s": round(rows / 60 / minutes, 1), "draws": len(lags),
        "errors": seen["errors"],
        "lag_ms": {f"p{q}": round(float(np.percentile(lags, q)), 1) for q in (50, 95, 99, 100)},
        "heap_mb": {"second_quarter": round(float(heap[quarter : 2 * quarter].mean()), 2),
                    "last_quarter": round(float(heap[-quarter:].mean()), 2), "growth": round(growth, 3)},
        "dom_nodes": {"second_quarter": int(nodes[quarter : 2 * quarter].max()),
                      "last_quarter": int(nodes[-quarter:].max())},
    }  # fmt: skip
    p95 = float(np.percentile(lags, 95))
    answer["passed"] = not seen["errors"] and growth < MOST_GROWTH and p95 < MOST_LAG_MS
    return answer


def main() -> None:
    """Run the soak."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--minutes", type=float, default=10.0)
    options.add_argument("--out", type=Path)
    options.add_argument("--screenshot", type=Path)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as place:
        root, stop = Path(place) / "soak", threading.Event()
        (root / "live").mkdir(parents=True)
        (root / "config.toml").write_text(CONFIG)
        writer = threading.Thread(target=write, args=(root, stop))
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
        answer = verdict(seen, given.minutes, int((root / "written").read_text()))
    answer["server_rss_mb"] = next(int(line.split()[1]) / 1000 for line in status.splitlines() if line[:5] == "VmRSS")
    if given.out:
        given.out.write_text(json.dumps(answer, indent=2) + "\n")
    print(json.dumps(answer))
    sys.exit(0 if answer["passed"] else 1)


if __name__ == "__main__":
    main()
