"""Draw the pictures of docs/looking.md anew, from runs, a sweep, a cluster and a browser.

    folkman demo --out runs/demo
    folkman run --out runs/first
    folkman run --set network.gamma=15 --out runs/second
    folkman sweep --grid network.gamma=2,5,10,20 --grid nodes=4,8 --set slots=120 \
        --set seeds=[0,1,2] --set model.name=softmax --set data.train_size=600 --out sweeps/eight
    python benchmarks/pictures.py runs/demo sweeps/eight runs/first runs/second docs/figures

Needs Chromium and `pip install playwright`. For the picture of a cluster four nodes are started as
processes, and one of them is killed.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.light_png import lighten

FOLKMAN = (sys.executable, "-m", "folkman")
PLOTS = {
    "cell-map": ("--kind", "map"),
    "cell-map-fresh": ("--kind", "map", "--label", "Fresh air"),
    "cell-ages": ("--kind", "ages"),
    "cell-shares": ("--kind", "shares"),
    "cell-disagreement": ("--kind", "disagreement"),
    "ieee": ("--style", "ieee", "--y", "test_accuracy"),
}
"""Picture -> options of `folkman plot` on the demo; the first algorithm unless another is named."""
BY_SETTING = ("--x", "network.gamma", "--hue", "algorithm", "--facet", "nodes")
SWEEP_PLOTS = {
    "plot-sweep": (*BY_SETTING, "--y", "loss"),
    "plot-ieee": (*BY_SETTING, "--y", "accuracy", "--style", "ieee"),
    "plot-dark": ("--x", "bits", "--y", "loss", "--where", "gamma=5", "--where", "nodes=8",
                  "--style", "dark"),
    "plot-slides": ("--x", "seconds", "--y", "loss", "--facet", "nodes", "--style", "slides"),
}  # fmt: skip
"""Picture -> options of `folkman plot` on the sweep."""
SHOT = ("report", "report-sweep", "dash-light", "dash-dark", "dash-sweep", "dash-two",
        "dash-cluster")  # fmt: skip
"""Pictures that a browser takes."""
MARGIN = 20
"""Pixels between the end of a picture and the heading that follows: a line is there."""
CLUSTER = ("--nodes", "4", "--radio", "measured", "--set", "slots=100000")


@contextmanager
def browser() -> Iterator[Browser]:
    """Start Chromium."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield found
        found.close()


def shoot(seen: Browser, address: str, target: Path, wait_for: str, **options: Any) -> None:
    """Take a picture of a page as it stands when something can be seen on it.

    `until` is the text of the heading above which the picture ends.
    """
    size = {"width": options.pop("width", 1280), "height": options.pop("height", 900)}
    whole, until = options.pop("whole", False), options.pop("until", None)
    context = seen.new_context(viewport=size, **options)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(address, timeout=120_000)
    page.wait_for_selector(wait_for, timeout=120_000)
    page.wait_for_timeout(2000)
    if until is not None:
        top = page.get_by_role("heading", name=until, exact=True).bounding_box()
        size["height"] = int(top["y"]) - MARGIN if top else size["height"]
        page.set_viewport_size(size)  # type: ignore[arg-type]
    page.screenshot(path=target, full_page=whole)
    context.close()


@contextmanager
def served(*watched: str | Path) -> Iterator[str]:
    """Serve the live page of folders; yield its address."""
    words = [*FOLKMAN, "dash", *map(str, watched), "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as it:
        for line in it.stdout or ():
            if "http://" in line:
                yield line.split()[-1]
                break
        it.terminate()


def beside(left: Path, right: Path, target: Path) -> None:
    """Join two pictures side by side."""
    from PIL import Image

    both = [Image.open(path).convert("RGB") for path in (left, right)]
    height = min(picture.height for picture in both)
    whole = Image.new("RGB", (both[0].width + both[1].width + 30, height), "#d8dee4")
    whole.paste(both[0].crop((0, 0, both[0].width, height)), (0, 0))
    whole.paste(both[1].crop((0, 0, both[1].width, height)), (both[0].width + 30, 0))
    whole.save(target)


@contextmanager
def cluster(folder: Path) -> Iterator[None]:
    """Start nodes as processes; end them afterwards."""
    subprocess.run([*FOLKMAN, "up", *CLUSTER, "--out", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run([*FOLKMAN, "down", str(folder)], check=False)


def shoot_cluster(seen: Browser, target: Path) -> None:
    """Take a picture of a cluster of which a node was killed while the page was open."""
    with (
        tempfile.TemporaryDirectory() as place,
        cluster(folder := Path(place) / "cl"),
        served("--cluster", folder) as address,
    ):
        context = seen.new_context(viewport={"width": 1280, "height": 900})
        page = context.new_page()
        page.goto(address)
        page.wait_for_selector("tbody tr:nth-child(4)")
        page.get_by_text("4 of 4 nodes well").wait_for(timeout=120_000)
        time.sleep(8)  # for curves to begin
        told = [*FOLKMAN, "status", str(folder), "--json"]
        answer = subprocess.run(told, check=True, capture_output=True, text=True).stdout
        os.kill(json.loads(answer)["nodes"][2]["pid"], signal.SIGKILL)
        page.get_by_text("gone: its process").wait_for(timeout=120_000)
        time.sleep(3)
        page.screenshot(path=target, full_page=True)
        context.close()


def shoot_sweep(seen: Browser, address: str, target: Path) -> None:
    """Take a picture of a sweep's page with one axis of its parallel coordinates filtered."""
    context = seen.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("svg.parallel .arm")
    page.wait_for_timeout(2000)
    page.get_by_role("slider", name="nodes").focus()
    page.keyboard.press("ArrowUp")  # the larger number of nodes alone
    page.wait_for_timeout(500)
    page.screenshot(path=target, full_page=True)
    context.close()


def draw_figures(run: Path, sweep: Path, out: Path) -> None:
    """Draw what `folkman plot` draws."""
    drawn = [(run, *each) for each in PLOTS.items()]
    drawn += [(sweep, *each) for each in SWEEP_PLOTS.items()]
    for folder, name, options in drawn:
        words = [*FOLKMAN, "plot", str(folder), *options, "--out", str(out / f"{name}.png")]
        subprocess.run(words, check=True)


def shoot_reports(seen: Browser, run: Path, sweep: Path, out: Path) -> None:
    """Take pictures of the reports of a run, light and dark, and of a sweep."""
    for folder in (run, sweep):
        subprocess.run([*FOLKMAN, "report", str(folder)], check=True)
    desk, phone = out / "desk.png", out / "phone.png"
    report = (run / "report.html").resolve().as_uri()
    shoot(seen, report, desk, "h1", width=1180, height=1500, until="What it costs to learn")
    shoot(seen, report, phone, "h1", width=390, height=1500, color_scheme="dark")
    beside(desk, phone, out / "report.png")
    desk.unlink()
    phone.unlink()
    shoot(seen, (sweep / "report.html").resolve().as_uri(), out / "report-sweep.png", "h1",
          width=1180, height=1700, until="Along the axes")  # fmt: skip


def main() -> None:
    """Draw all of them."""
    parser = argparse.ArgumentParser(description="Draw the pictures of docs/looking.md anew.")
    for name in ("run", "sweep", "first", "second", "out"):
        parser.add_argument(name, type=Path)
    asked = parser.parse_args()
    out: Path = asked.out
    draw_figures(asked.run, asked.sweep, out)
    with browser() as seen:
        shoot_reports(seen, asked.run, asked.sweep, out)
        with served(asked.run) as address:
            for scheme in ("light", "dark"):
                target = out / f"dash-{scheme}.png"
                shoot(seen, address, target, "svg.map circle", whole=True, color_scheme=scheme)
        with served(asked.sweep) as address:
            shoot_sweep(seen, address, out / "dash-sweep.png")
        with served(asked.first, asked.second) as address:
            shoot(seen, address, out / "dash-two.png", ".plot canvas", color_scheme="dark")
        shoot_cluster(seen, out / "dash-cluster.png")
    drawn = {*PLOTS, *SWEEP_PLOTS, *SHOT}
    for name in sorted(drawn):
        lighten(out / f"{name}.png")


if __name__ == "__main__":
    main()
