"""For the site: a link out of docs/ to a file of the repository becomes its name; one to nothing stays, and fails."""

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite the links of one page."""
    here = Path(page.file.abs_src_path).parent

    def name(found: re.Match[str]) -> str:
        target = (here / found.group(2)).resolve()
        inside = target.is_relative_to(ROOT / "docs") or not target.is_relative_to(ROOT)
        if inside or not target.exists():
            return found.group()
        return f"`{target.relative_to(ROOT)}`"

    return re.sub(r"\[([^\]]*)\]\((\.\./[^)#\s]*)\)", name, markdown)
