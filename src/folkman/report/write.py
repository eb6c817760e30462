"""`report.html` of a run or sweep folder."""

from pathlib import Path

from folkman.files import write_whole
from folkman.report.reading import kind_of, read_folder, read_sweep

__all__ = ["write_report"]


def write_report(root: Path, target: Path | None = None) -> Path:
    """Write the report of a folder as it stands, into it unless told otherwise, and return where."""
    if kind_of(root) == "sweep":
        from folkman.report.sweep_page import sweep_page

        text = sweep_page(read_sweep(root))
    else:
        from folkman.report.run_page import run_page

        text = run_page(read_folder(root))
    path = target or root / "report.html"
    write_whole(path, lambda part: part.write_text(text, encoding="utf-8"))
    return path
