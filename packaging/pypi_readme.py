"""The README as a package index shows it: without links and figures of the repository.

An index knows no files beside the README. Links to them become plain text, figures are left out,
and what has an address of its own stays.
"""

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

FIGURE = re.compile(r"^!\[[^\]]*\]\((?!https?://)[^)]*\)\n+", re.MULTILINE)
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?://|#)[^)]*\)")


def for_an_index(text: str) -> str:
    """Return the text without figures and links of the repository; code stays as it is."""
    pieces = re.split(r"(^```.*?^```$)", text, flags=re.DOTALL | re.MULTILINE)
    shown = [LINK.sub(r"\1", FIGURE.sub("", piece)) for piece in pieces[::2]]
    pieces[::2] = shown
    return "".join(pieces)


class ReadmeHook(MetadataHookInterface):
    """Gives hatchling the README of a distribution."""

    def update(self, metadata: dict) -> None:
        """Set the field `readme`."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": for_an_index(text)}
