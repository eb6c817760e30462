"""For the site: links out of docs/ become names of files, and the reference lists every method.

A link to a file of the repository becomes its name; one to nothing stays, and fails. The line
`::: folkman.algorithm.*` becomes one entry per method, by the files of the folder. The script that
lets the search work on a site opened from disk is kept in docs/assets/, not fetched from elsewhere.
"""

import re
from pathlib import Path
from typing import Any

from folkman.builders import find_methods

ROOT = Path(__file__).parent.parent
EVERY_METHOD = "::: folkman.algorithm.*"
WORKER_ELSEWHERE, WORKER = "https://unpkg.com/iframe-worker/shim", "assets/iframe-worker.js"
"""Where the theme's search takes its script from, and where that lies in the site."""


def list_methods(markdown: str) -> str:
    """Return a page with one entry per method in place of the line that stands for all of them."""
    entries = "\n".join(f"::: folkman.algorithm.{name}" for name in find_methods())
    return markdown.replace(EVERY_METHOD, entries)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite the links of one page, and list the methods."""
    here = Path(page.file.abs_src_path).parent

    def name(found: re.Match[str]) -> str:
        target = (here / found.group(2)).resolve()
        inside = target.is_relative_to(ROOT / "docs") or not target.is_relative_to(ROOT)
        if inside or not target.exists():
            return found.group()
        return f"`{target.relative_to(ROOT)}`"

    return re.sub(r"\[([^\]]*)\]\((\.\./[^)#\s]*)\)", name, list_methods(markdown))


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Take the script of the search from the site itself."""
    up = "../" * page.file.dest_uri.count("/")
    return output.replace(WORKER_ELSEWHERE, f"{up}{WORKER}")
