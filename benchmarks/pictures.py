"""Draw the pictures of docs/looking.md anew, from a run, a sweep and a browser.

    folkman demo --out runs/demo
    folkman sweep --grid network.gamma=2,5,10,20 --set slots=120 --set seeds=[0,1,2] \
        --set model.name=softmax --out sweeps/four
    python benchmarks/pictures.py runs/demo sweeps/four docs/figures

Needs Chromium and `pip install playwright`. The picture of a cluster is taken by hand, since a node
is killed while it runs.
"""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

FOLKMAN = (sys.executable, "-m", "folkman")
PLOTS = {
    "cell-map": ("--kind", "map"),
    "cell-map-fresh": ("--kind", "map", "--label", "Fresh air"),
    "cell-ages": ("--kind", "ages"),
    "cell-shares": ("--kind", "shares"),
    "cell-disagreement": ("--kind", "disagreement"),
    "ieee": ("--style", "ieee", "--y", "test_accuracy"),
}
"""Picture -> options of `folkman plot`; the first algorithm unless another is named."""


@contextmanager
def browser() -> Iterator[Browser]:
    """Start Chromium."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield found
        found.close()


def shoot(seen: Browser, address: str, target: Path, wait_for: str, **options: Any) -> None:
    """Take a picture of a page as it stands when something can be seen on it."""
    size = {"width": options.pop("width", 1280), "height": options.pop("height", 900)}
    whole = options.pop("whole", False)
    context = seen.new_context(viewport=size, **options)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(address, timeout=120_000)
    page.wait_for_selector(wait_for, timeout=120_000)
    page.wait_for_timeout(2000)
    page.screenshot(path=target, full_page=whole)
    context.close()


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve the live page of a folder; yield its address."""
    words = [*FOLKMAN, "dash", str(folder), "--port", "0"]
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


def main() -> None:
    """Draw all of them."""
    parser = argparse.ArgumentParser(description="Draw the pictures of docs/looking.md anew.")
    for name in ("run", "sweep", "out"):
        parser.add_argument(name, type=Path)
    asked = parser.parse_args()
    for name, options in PLOTS.items():
        target = str(asked.out / f"{name}.png")
        subprocess.run([*FOLKMAN, "plot", str(asked.run), *options, "--out", target], check=True)
    for folder in (asked.run, asked.sweep):
        subprocess.run([*FOLKMAN, "report", str(folder)], check=True)
    with browser() as seen:
        desk, phone = asked.out / "desk.png", asked.out / "phone.png"
        report = (asked.run / "report.html").resolve().as_uri()
        shoot(seen, report, desk, "h1", width=1180, height=1500)
        shoot(seen, report, phone, "h1", width=390, height=1500, color_scheme="dark")
        beside(desk, phone, asked.out / "report.png")
        desk.unlink()
        phone.unlink()
        sweep = (asked.sweep / "report.html").resolve().as_uri()
        shoot(seen, sweep, asked.out / "report-sweep.png", "h1", width=1180, height=1700)
        with served(asked.run) as address:
            for scheme in ("light", "dark"):
                target = asked.out / f"dash-{scheme}.png"
                shoot(seen, address, target, "svg.map circle", whole=True, color_scheme=scheme)
        with served(asked.sweep) as address:
            shoot(seen, address, asked.out / "dash-sweep.png", ".multiples svg", whole=True)


if __name__ == "__main__":
    main()
