"""Run the pages of the gallery and keep their figures: `python benchmarks/gallery.py [PAGE]...`.

Each page of docs/gallery/ has one block of Python, which ends with a figure named after the page.
The tests run these blocks too, without drawing.
"""

import os
import re
import sys
import tempfile
from contextlib import chdir
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src")]
PAGES, FIGURES = ROOT / "docs" / "gallery", ROOT / "docs" / "figures" / "gallery"


def draw(page: Path) -> None:
    """Run the Python of a page in an empty folder and keep its figure, if it makes one."""
    sources = re.findall(
        r"^```python\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    if not sources:
        return
    print(page.stem, flush=True)
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        for source in sources:
            exec(compile(source, str(page), "exec", dont_inherit=True), {"__name__": page.stem})  # noqa: S102
        figure = Path(f"{page.stem}.svg")
        (FIGURES / figure.name).write_bytes(figure.read_bytes())


def main() -> None:
    """Draw the pages that are named, or all."""
    os.environ.setdefault("MPLBACKEND", "agg")
    FIGURES.mkdir(parents=True, exist_ok=True)
    wanted = sys.argv[1:] or [page.stem for page in sorted(PAGES.glob("*.md"))]
    for name in wanted:
        draw(PAGES / f"{name}.md")


if __name__ == "__main__":
    main()
