"""Drawings of `report.panels` as files of their own: SVG with its colours in it, and PNG.

    save_drawing(panel(...), folder / "train_loss-seconds")

Pillow paints the few marks that these drawings have. That takes a tenth of the time that matplotlib
takes to be imported. The looks are read from the page's style sheet, on light ground.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from importlib.util import find_spec
from itertools import pairwise
from math import hypot
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from xml.etree import ElementTree

from folkman.files import write_whole
from folkman.record.json_file import write_text
from folkman.report import palette

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw as Brush
    from PIL.ImageFont import FreeTypeFont

__all__ = ["Mark", "marks", "painted", "save_drawing", "standing_alone"]

WIDE_PX = 920
"""Width of a PNG: 4.6 inches at 200 dots."""
FINER = 3
"""Edges are painted so many times finer, and then smoothed."""
FONT = "mpl-data/fonts/ttf/DejaVuSans.ttf"
"""The font, which matplotlib's package brings."""
INHERITED = {"stroke": "none", "fill": "#000000", "stroke-width": "1", "opacity": "1"}
INHERITED |= {"font-size": "12px", "text-anchor": "start"}
KNOWN = (*INHERITED, "stroke-dasharray")
"""What is read of a look."""
_STEP = re.compile(r"([MLHVvZ])([^MLHVvZ]*)")


class Mark(NamedTuple):
    """One mark of a drawing: what it is, its places and its look."""

    kind: str  # line, area, circle, text
    places: list[tuple[float, float]]  # in units of the drawing; of a circle and a text the first
    look: Mapping[str, str]
    text: str = ""
    turned: bool = False  # a text that is read from below
    radius: float = 0.0


@cache
def _rules() -> str:
    """Return the style of drawings, with the colours of a light page in it."""
    sheet = resources.files("folkman.report").joinpath("assets/report.css")
    text = sheet.read_text(encoding="utf-8")
    first = text[: text.index("@media")]
    named = dict(re.findall(r"--([\w-]+): (#\w+);", first))
    named |= dict(
        re.findall(r"--(\w+): (#\w+);", palette.declared(palette.LIGHT, palette.RAMP_LIGHT))
    )
    lines = [line for line in text.splitlines() if line.startswith(".panel")]
    return re.sub(r"var\(--([\w-]+)\)", lambda found: named[found[1]], "\n".join(lines))


@cache
def _looks() -> tuple[tuple[str, frozenset[str], dict[str, str]], ...]:
    """Return the rules as (tag, classes, look), the weakest first."""
    found = []
    for selectors, body in re.findall(r"([^{}]+)\{([^{}]*)\}", _rules()):
        pairs = [part.split(":", 1) for part in body.split(";") if ":" in part]
        look = {name.strip(): value.strip() for name, value in pairs}
        for selector in selectors.split(","):
            tag, *classes = selector.strip().removeprefix(".panel").strip().split(".")
            found.append((tag, frozenset(classes), look))
    return tuple(sorted(found, key=lambda rule: (len(rule[1]), bool(rule[0]))))


def standing_alone(svg: str) -> str:
    """Return a drawing with its style and ground in it, as a file of its own."""
    box = _box(svg)
    ground = f'<rect x="{box[0]:g}" y="{box[1]:g}" width="{box[2]:g}" height="{box[3]:g}"'
    head, rest = svg.split(">", 1)
    size = f'width="{box[2]:g}" height="{box[3]:g}" font-family="DejaVu Sans, sans-serif"'
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n{head} xmlns="http://www.w3.org/2000/svg" {size}>'
        f'<style>{_rules()}</style>{ground} fill="#ffffff"/>{rest}\n'
    )


def _box(svg: str) -> list[float]:
    """Return left, top, width and height of a drawing."""
    found = re.search(r'viewBox="([^"]+)"', svg)
    assert found is not None  # noqa: S101 - `panel` wrote it
    return [float(part) for part in found[1].split()]


def marks(svg: str) -> list[Mark]:
    """Return the marks of a drawing, from the lowest to the uppermost."""
    root = ElementTree.fromstring(svg)  # noqa: S314 - our own text
    own = INHERITED | _look(root)
    return [mark for each in root if (mark := _mark(each, own)) is not None]


def _look(element: ElementTree.Element) -> dict[str, str]:
    """Return how an element looks: by its attributes, then by the rules that fit it."""
    classes = set((element.get("class") or "").split())
    tag = element.tag.rsplit("}", 1)[-1]
    look = {name: value for name, value in element.items() if name in KNOWN}
    if tag == "svg":
        return {"font-size": "12px"}
    for name, needed, each in _looks():
        if name in ("", tag) and needed <= classes and (name or needed):
            look |= each
    return look


def _mark(element: ElementTree.Element, own: Mapping[str, str]) -> Mark | None:
    tag, look = element.tag.rsplit("}", 1)[-1], {**own, **_look(element)}

    def at(name: str) -> float:
        return float(element.get(name) or 0)

    if tag == "path":
        places, closed = _places(element.get("d") or "")
        return Mark("area" if closed else "line", places, look)
    if tag == "rect":
        x, y, right, low = at("x"), at("y"), at("x") + at("width"), at("y") + at("height")
        return Mark("area", [(x, y), (right, y), (right, low), (x, low)], look)
    if tag == "circle":
        return Mark("circle", [(at("cx"), at("cy"))], look, radius=at("r"))
    if tag == "text":
        words = (element.text or "") + "".join(each.tail or "" for each in element)
        turn = re.match(r"translate\(([\d.-]+) ([\d.-]+)\) rotate", element.get("transform") or "")
        place = (float(turn[1]), float(turn[2])) if turn else (at("x"), at("y"))
        return Mark("text", [place], look, words, bool(turn))
    return None


def _places(path: str) -> tuple[list[tuple[float, float]], bool]:
    """Return the places of a path of M, L, H, V, v and Z, and whether it is closed."""
    places: list[tuple[float, float]] = []
    for step, given in _STEP.findall(path):
        numbers = [float(part) for part in given.split()]
        x, y = places[-1] if places else (0.0, 0.0)
        if step in "ML":
            places.append((numbers[0], numbers[1]))
        elif step == "H":
            places.append((numbers[0], y))
        elif step in "Vv":
            places.append((x, numbers[0] + (y if step == "v" else 0.0)))
    return places, path.endswith("Z")


def painted(svg: str) -> "Image":
    """Return a drawing as an image, `WIDE_PX` wide."""
    from PIL import Image, ImageDraw

    left, top, wide, tall = _box(svg)
    scale, every = WIDE_PX / wide, marks(svg)
    fine = scale * FINER
    size = (WIDE_PX, round(tall * scale))
    image = Image.new("RGB", (size[0] * FINER, size[1] * FINER), "#ffffff")
    draw = ImageDraw.Draw(image, "RGBA")
    for mark in every:
        if mark.kind == "text":
            continue
        places = [((x - left) * fine, (y - top) * fine) for x, y in mark.places]
        _paint(draw, mark, places, fine)
    image = image.reduce(FINER)
    for mark in every:
        if mark.kind == "text":
            _write(image, mark, ((mark.places[0][0] - left) * scale,
                                 (mark.places[0][1] - top) * scale), scale)  # fmt: skip
    return image


def _paint(draw: "Brush", mark: Mark, places: Sequence[tuple[float, float]], fine: float) -> None:
    """Paint a line, an area or a circle."""
    fill, stroke = (_rgba(mark.look[name], mark.look["opacity"]) for name in ("fill", "stroke"))
    width = max(1, round(float(mark.look["stroke-width"]) * fine))
    if mark.kind == "circle":
        draw.circle(places[0], mark.radius * fine, fill, stroke if stroke else None, width)
    elif mark.kind == "area":
        if fill is not None and len(places) > 2:
            draw.polygon(places, fill)
    elif stroke is not None:
        dashes = [float(part) * fine for part in mark.look.get("stroke-dasharray", "").split()]
        for piece in _dashed(places, dashes) if dashes else [list(places)]:
            draw.line(piece, stroke, width, joint="curve")


def _rgba(colour: str, opacity: str) -> tuple[int, int, int, int] | None:
    """Return a colour as Pillow takes it; None if there is none."""
    if colour == "none":
        return None
    code = colour.lstrip("#")
    red, green, blue = (int(code[at : at + 2], 16) for at in (0, 2, 4))
    return red, green, blue, round(255 * float(opacity))


def _dashed(
    places: Sequence[tuple[float, float]], dashes: Sequence[float]
) -> list[list[tuple[float, float]]]:
    """Return the pieces of a line that are drawn: dash, gap, dash, gap along its length."""
    pieces: list[list[tuple[float, float]]] = [[places[0]]]
    turn, left = 0, dashes[0]
    for (x0, y0), (x1, y1) in pairwise(places):
        length = hypot(x1 - x0, y1 - y0)
        gone = 0.0
        while length - gone > left:
            gone += left
            place = (x0 + (x1 - x0) * gone / length, y0 + (y1 - y0) * gone / length)
            if turn % 2 == 0:
                pieces[-1].append(place)
            else:
                pieces.append([place])
            turn += 1
            left = dashes[turn % len(dashes)]
        left -= length - gone
        if turn % 2 == 0:
            pieces[-1].append((x1, y1))
    return [piece for piece in pieces if len(piece) > 1]


def _write(image: "Image", mark: Mark, place: tuple[float, float], scale: float) -> None:
    """Write a text on an image; one that is turned is read from below."""
    from PIL import Image, ImageDraw

    font = _font(round(float(mark.look["font-size"].removesuffix("px")) * scale, 1))
    ink = mark.look["fill"]
    if mark.turned:
        wide, tall = round(font.getlength(mark.text)) + 4, round(font.size * 1.5)
        strip = Image.new("L", (wide, tall), 0)
        ImageDraw.Draw(strip).text((2, font.size), mark.text, 255, font, "ls")
        strip = strip.rotate(90, expand=True)
        corner = (round(place[0] - font.size), round(place[1] - wide / 2))
        image.paste(ink, (*corner, corner[0] + strip.width, corner[1] + strip.height), strip)
        return
    anchor = {"start": "ls", "middle": "ms", "end": "rs"}[mark.look["text-anchor"]]
    halo = round(1.5 * scale) if mark.look["stroke"] != "none" else 0
    around = {"stroke_width": halo, "stroke_fill": mark.look["stroke"]} if halo else {}
    draw = ImageDraw.Draw(image)
    if around:
        draw.text(place, mark.text, mark.look["stroke"], font, anchor, **around)
    draw.text(place, mark.text, ink, font, anchor)


@cache
def _font(size: float) -> "FreeTypeFont":
    """Return the font; Pillow's own where matplotlib's is not there."""
    from PIL import ImageFont

    found = find_spec("matplotlib")
    for root in (found.submodule_search_locations or []) if found else []:
        if (file := Path(root) / FONT).is_file():
            return ImageFont.truetype(file, size)
    own = ImageFont.load_default(size)
    assert isinstance(own, ImageFont.FreeTypeFont)  # noqa: S101 - it is where a size is given
    return own


def save_drawing(svg: str, path: Path) -> list[Path]:
    """Write a drawing as PATH.svg and PATH.png, the same bytes every time."""
    vector, pixels = path.with_name(f"{path.name}.svg"), path.with_name(f"{path.name}.png")
    write_text(vector, standing_alone(svg))
    write_whole(pixels, lambda part: painted(svg).save(part, dpi=(200, 200)))
    return [pixels, vector]
