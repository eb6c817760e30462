"""Pictures of documents as small files: a palette of 256 colours, a third of the bytes."""

from pathlib import Path

from PIL import Image

__all__ = ["lighten"]

COLOURS = 256


def lighten(path: Path) -> None:
    """Write a PNG file anew with a palette, if it is smaller so; curves and text stay sharp."""
    before = path.read_bytes()
    with Image.open(path) as picture:
        seen = picture.convert("RGB")
    few = seen.quantize(COLOURS, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    few.save(path, optimize=True)
    if path.stat().st_size >= len(before):
        path.write_bytes(before)
