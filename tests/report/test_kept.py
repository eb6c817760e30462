"""Figures that are drawn without matplotlib: marks at their places, in the colours of the page."""

import json
import re
from importlib import resources
from xml.etree.ElementTree import Element
from xml.etree.ElementTree import fromstring as parse

import numpy as np
import pytest
from PIL import Image
from scipy.special import stdtrit

from folkman.record.run import AXES, Run
from folkman.record.scene import Scene, load_scene, save_scene
from folkman.report import network_page
from folkman.report.curves_page import curve_block
from folkman.report.figures import STYLES, draw_curves
from folkman.report.kept import keep_curves, keep_labels, labels_panel
from folkman.report.network_page import node_rows
from folkman.report.painting import Mark, marks, painted, standing_alone
from folkman.report.palette import LIGHT, RAMP_LIGHT
from folkman.report.panels import BOTTOM, DASHES, LEFT, TALL, TOP, Line, panel
from folkman.report.scene_panels import SIDE, ages_panel, map_panel, shares_panel
from folkman.report.scene_panels import TOP as MAP_TOP
from folkman.report.scenes import draw_shares
from folkman.report.statistics import STUDENT_95, student


def runs(losses, label="a"):
    none = {"test_accuracy": np.nan, "optimum_distance": np.nan}
    return [
        Run("x", label, seed, [{"slots": k, "seconds": float(k), "train_loss": v} | none
                               for k, v in enumerate(own)])
        for seed, own in enumerate(losses)
    ]  # fmt: skip


def one_line(look: int | None = 0, half=None) -> str:
    line = Line("", np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0, 0.5]), half, look)
    return panel("p", [line], "time", "loss", "about")


def of(drawn: str, kind: str, **look: str) -> list[Mark]:
    return [m for m in marks(drawn) if m.kind == kind and look.items() <= m.look.items()]


def test_a_line_goes_through_its_values():
    (line,) = of(one_line(), "line", **{"stroke": LIGHT[0], "stroke-width": "2"})

    right = 400 - 10
    assert [x for x, _ in line.places] == [LEFT, (LEFT + right) / 2, right]
    low, high, middle = (y for _, y in line.places)
    ground, top = TALL - BOTTOM, TOP
    assert low == pytest.approx(ground, abs=0.06)
    assert top < high < low
    assert middle == pytest.approx((low + high) / 2, abs=0.06)


def test_a_band_is_as_wide_as_its_interval():
    drawn = one_line(half=np.full(3, 0.1))

    (band,) = [m for m in of(drawn, "area", fill=LIGHT[0]) if m.look["opacity"] == ".16"]
    (line,) = of(drawn, "line", **{"stroke": LIGHT[0], "stroke-width": "2"})
    above, below = band.places[1], band.places[4]
    unit = line.places[0][1] - line.places[1][1]  # of a value of 1
    assert below[1] - line.places[1][1] == pytest.approx(0.1 * unit, abs=0.11)
    assert above[1] <= line.places[1][1]


def test_pixels_have_the_colours_of_marks_where_these_are():
    drawn = one_line()
    image = painted(drawn)
    scale = image.width / 400
    (x0, y0), (x1, y1), _ = of(drawn, "line", **{"stroke": LIGHT[0], "stroke-width": "2"})[0].places

    middle = (round((x0 + x1) / 2 * scale), round((y0 + y1) / 2 * scale))
    assert image.getpixel(middle) == tuple(bytes.fromhex(LIGHT[0][1:]))
    assert image.getpixel((middle[0], middle[1] - 40)) == (255, 255, 255)


def test_dashes_leave_gaps():
    full, dashed = painted(one_line(0)), painted(one_line(1))

    def inked(image, colour):
        return (np.asarray(image) == list(bytes.fromhex(colour[1:]))).all(axis=2).sum()

    assert 0.5 < inked(dashed, LIGHT[1]) / inked(full, LIGHT[0]) < 0.85  # 7 of 10


def test_text_stands_where_it_is_asked_to():
    svg = (
        '<svg class="panel" viewBox="0 0 400 100">'
        '<text x="200" y="50" class="end">right</text>'
        '<text transform="translate(20 50) rotate(-90)" class="mid">up</text></svg>'
    )
    dark = np.argwhere(np.asarray(painted(svg).convert("L")) < 160) * (400 / 920)

    words = dark[dark[:, 1] > 100]
    assert words[:, 1].max() == pytest.approx(200, abs=1.5)
    assert words[:, 0].min() > 38
    turned = dark[dark[:, 1] < 100]
    assert turned[:, 0].mean() == pytest.approx(50, abs=2)
    assert turned[:, 1].max() < 24
    assert np.ptp(turned[:, 0]) > np.ptp(turned[:, 1])


def test_a_file_of_its_own_needs_no_page():
    alone = standing_alone(one_line())

    parse(alone.encode())  # noqa: S314 - our own
    assert "var(" not in alone
    assert LIGHT[0] in alone


def test_a_folder_keeps_what_its_problem_defines_the_same_bytes_each_time(tmp_path):
    some = [*runs([[3.0, 2.0], [1.0, 0.5], [2.0, 1.0]]), *runs([[3.0, 1.0]] * 3, "b")]

    first = keep_curves(some, tmp_path / "1")
    again = keep_curves(some, tmp_path / "2")

    names = ["train_loss-seconds.png", "train_loss-seconds.svg"]
    assert [path.name for path in first] == names
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in again]
    with Image.open(first[0]) as image:
        assert image.width == 920
    text = first[1].read_text()
    assert "mean of 3 seeds, 95 % interval" in text
    assert ">a</text>" in text


def test_of_many_curves_the_best_six_are_named(tmp_path):
    some = [run for k in range(9) for run in runs([[3.0, 1.0 + k]], f"arm {k}")]

    _, vector = keep_curves(some, tmp_path)

    named = re.findall(r"<title>(arm \d)</title>", vector.read_text())
    assert sorted(named) == [f"arm {k}" for k in range(6)]
    assert "named: the best 6 of 9, grey: the others" in vector.read_text()


def test_labels_are_stacked_to_the_totals_of_nodes(tmp_path):
    counts = np.array([[3, 0, 2], [1, 1, 1]])

    bars = [m for m in of(labels_panel(counts), "area") if m.places[0][0] < 350]

    wide = [bar.places[1][0] - bar.places[0][0] for bar in bars]
    unit = wide[0] / 3
    assert wide == pytest.approx([3 * unit, 2 * unit, unit, unit, unit], abs=0.02)
    assert bars[1].places[0][0] == pytest.approx(bars[0].places[1][0], abs=0.02)
    assert bars[0].look["fill"] == bars[2].look["fill"] != bars[1].look["fill"]
    keep_labels(counts, tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["labels.png", "labels.svg"]


def test_a_thousand_nodes_stay_one_page():
    assert painted(labels_panel(np.ones((1000, 100), int))).height < 2600


def scene(**given) -> Scene:
    """Return two frames of three nodes in a cell of 100 m; node 0 sends to node 1."""
    frames, nodes = 2, 3
    pairs = (frames, nodes, nodes)
    on_air = np.zeros(pairs, bool)
    on_air[1, 1, 0] = True
    ages = np.array([[0, 2, 4], [6, 0, 8], [10, 12, 0]])
    places = np.array([[0.0, 0.0], [100.0, 0.0], [0.0, -50.0]], np.float32)
    share = np.array([[0.25, 0.0, 0.5], [0.75, 0.0, 0.25]], np.float32)
    known = {
        "slot": np.array([0, 10]), "seconds": np.array([0.0, 10.0]),
        "positions_m": np.stack([places] * frames),
        "age_slots": np.stack([ages] * frames), "age_sums": np.stack([0 * ages, 10 * ages]),
        "on_air": on_air, "left_slots": np.full((frames, nodes), -1),
        "stamp": np.full((frames, nodes), -1), "share": share,
        "air_slots": np.array([[0.0, 0.0, 0.0], [6.5, 0.0, 2.5]]),
        "sinr_db": np.where(on_air, 7.0, np.nan), "disagreement": np.ones((frames, nodes)),
        "gradients": np.ones((frames, nodes), int), "samples": np.ones(nodes, int),
        "interferers_m": np.array([[-110.0, 110.0], [400.0, 0.0]], np.float32),
        "cell_radius_m": 100.0, "bandwidth_hz": 1e7, "threshold_db": -5.0, "server": False,
    }  # fmt: skip
    return Scene(**known | given)


def elements(drawn: str, tag: str) -> list[Element]:
    return list(parse(drawn).iter(tag))  # noqa: S314 - our own


def attributes(drawn: str, tag: str, kind: str) -> list[dict[str, str]]:
    return [dict(each.items()) for each in elements(drawn, tag) if each.get("class") == kind]


def test_a_map_has_nodes_and_links_at_their_places():
    drawn = map_panel(scene(), "about")

    nodes = attributes(drawn, "circle", "node")
    unit = SIDE / 250  # of a metre: the map reaches 1.25 radii
    middle, right, low = ((float(n["cx"]), float(n["cy"])) for n in nodes)
    assert middle == pytest.approx((LEFT + SIDE / 2, MAP_TOP + SIDE / 2), abs=0.06)
    assert right[0] - middle[0] == pytest.approx(100 * unit, abs=0.11)
    assert low[1] - middle[1] == pytest.approx(50 * unit, abs=0.11)
    (edge,) = attributes(drawn, "circle", "edge")
    assert float(edge["r"]) == pytest.approx(100 * unit, abs=0.06)
    (link,) = attributes(drawn, "path", "air")
    start = [float(part) for part in re.findall(r"[\d.]+", link["d"])][:2]
    assert np.hypot(start[0] - middle[0], start[1] - middle[1]) == pytest.approx(8.5, abs=0.1)
    assert len(attributes(drawn, "path", "cross")) == 2  # one near the cell, one in the legend
    assert "slot 10, 10 s" in drawn


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_map_of_a_run_that_diverged_is_drawn(wrong):
    """Of many nodes no pairs are kept, and nodes have the colours of their disagreement."""
    none = np.zeros((2, 0, 0))
    apart = np.array([[1.0, 2.0, 3.0], [wrong, 2.0, wrong]])
    pairs = {"age_slots": none, "age_sums": none, "on_air": none.astype(bool), "sinr_db": none}
    many = scene(**pairs, disagreement=apart)

    nodes = attributes(map_panel(many, "about", frame=1), "circle", "node")

    assert [node["fill"] == "var(--ink-2)" for node in nodes] == [True, False, True]


def test_a_map_without_positions_has_no_metres():
    drawn = map_panel(scene(positions_m=np.full((2, 3, 2), np.nan, np.float32)), "about")

    assert "x (m)" not in drawn
    assert len(attributes(drawn, "circle", "node")) == 3


def test_a_table_of_ages_has_each_pair_in_its_cell():
    drawn = ages_panel(scene(), "about")

    wide = f"{SIDE / 3:.2f}"
    cells = [dict(e.items()) for e in elements(drawn, "rect") if e.get("width") == wide]
    assert len(cells) == 6  # no node holds a copy of itself
    assert RAMP_LIGHT[0] in cells[0]["fill"]
    assert RAMP_LIGHT[-1] in cells[-1]["fill"]
    assert float(cells[0]["x"]) == pytest.approx(LEFT + SIDE / 3, abs=0.01)
    assert float(cells[0]["y"]) == MAP_TOP
    texts = attributes(drawn, "text", "cell")
    assert len(texts) == 6
    assert ">12</text>" in drawn


def test_shares_are_stacked_at_their_moments_and_name_who_was_seen():
    drawn = shares_panel(scene(), "about")

    bars = {fill: [m.places for m in of(drawn, "area", fill=fill) if m.places[0][0] < 324]
            for fill in ("var(--c0)", "var(--c1)")}  # fmt: skip
    assert [len(each) for each in bars.values()] == [2, 2]  # two frames; node 1 never sent
    unit, slot = (210 - 10) / 1.02, (324 - LEFT) / 10
    (first, second), (above, _) = bars.values()
    assert first[0] == pytest.approx((LEFT - slot / 2, 210 - 0.25 * unit), abs=0.06)
    assert first[2] == pytest.approx((LEFT + slot / 2, 210), abs=0.12)
    assert second[0][0] == pytest.approx(324 - slot / 2, abs=0.06)  # a slot wide, of ten
    assert [above[0][1], above[2][1]] == pytest.approx(
        [210 - 0.75 * unit, 210 - 0.25 * unit], abs=0.12
    )
    assert [text in drawn for text in ("node 0", "node 1", "node 2", "others")] == [
        True, False, True, False]  # fmt: skip
    figure = draw_shares(scene()).axes[0]
    widths = {round(bar.get_width(), 9) for each in figure.containers for bar in each}
    assert widths == {1.0}
    legend = figure.get_legend()
    assert legend is not None
    assert [each.get_text() for each in legend.get_texts()] == ["node 2", "node 0"]


def reloaded(path) -> Scene:
    found = load_scene(path)
    assert found is not None
    return found


def test_time_on_the_air_is_that_of_all_slots_and_snapshots_say_that_they_are_some(tmp_path):
    """Node 2 of ten slots' 2.5 on the air is in no frame: it is not said to have sent nothing."""
    share = np.array([[0.0, 0.0, 0.0], [0.75, 0.0, 0.0]], np.float32)
    kept = scene(share=share)

    headings, rows = node_rows(kept)

    told = {row[0]: dict(zip(headings, row, strict=True)) for row in rows}
    assert [told[node]["time on the air"] for node in "012"] == ["65 %", "0 %", "25 %"]
    assert told["2"]["seen on the air"] == "in 0 of 2 snapshots"
    assert [told[n]["bandwidth when seen"] for n in "02"] == ["75 %", "-"]
    assert "node 0 was on the air longest, 65% of the time; all nodes together 90%." \
        in network_page._shares({"a": kept})[0]  # fmt: skip
    save_scene(kept, tmp_path / "new.npz")
    assert reloaded(tmp_path / "new.npz").airtimes.tolist() == [0.65, 0.0, 0.25]
    before = {n: np.asarray(v) for n, v in kept._asdict().items() if n != "air_slots"}
    np.savez(tmp_path / "old.npz", allow_pickle=False, **before)
    old = reloaded(tmp_path / "old.npz")
    assert "time on the air" not in node_rows(old)[0]
    assert "Node 0 was seen most often, in 1 of 2 snapshots" in network_page._shares({"a": old})[0]


def test_the_quantiles_that_are_kept_are_those_of_student():
    expected = [stdtrit(k + 1, 0.975) for k in range(len(STUDENT_95))]

    assert [float(each) for each in expected] == list(STUDENT_95)
    assert student(1000) == pytest.approx(1.9623390808264078, rel=1e-12)
    assert student(4, 0.9) == pytest.approx(2.13184678632665, rel=1e-12)


def test_a_curve_has_the_same_dashes_in_every_kind_of_figure():
    """Matplotlib's name of a style, the dashes of a report, and those of the live page."""
    shapes = {"-": 0, "--": 2, "-.": 4, ":": 2}
    told = [each.split() for each in DASHES[:4]]
    assert [len(each) for each in told] == [shapes[str(style)] for style in STYLES[:4]]
    dot = [float(min(each, key=float)) < 2.5 for each in told[1:]]
    assert dot == [False, True, True]  # the second has none
    page = resources.files("folkman.dash").joinpath("static/colours.js").read_text()
    found = re.search(r"const DASHES = (\[.*\]);", page)
    assert found is not None
    assert [len(each) for each in json.loads(found[1])][:4] == [0, 2, 4, 2]


def spending(label, each):
    """Return a run of five rows that spends so many bits in each slot."""
    none = dict.fromkeys(AXES, 0.0)
    rows = [
        none | {"bits": each * k, "seconds": 1.0 * k, "train_loss": 1 - k / 9} for k in range(5)
    ]
    return Run("x", label, 0, rows)


@pytest.mark.parametrize(("least", "log"), [(9.0, True), (11.0, False)])
def test_an_axis_of_bits_on_which_a_curve_is_squeezed_is_logarithmic(least, log):
    both = [spending("much", 100.0), spending("little", least)]

    drawn = curve_block("x", both, "bits", "train_loss", "about")
    axes = draw_curves(both, "bits").axes[0]

    little = next(m for m in of(drawn[drawn.index("<svg"):drawn.index("</svg>") + 6], "line")
                  if m.look["stroke"] == LIGHT[1] and len(m.places) > 3)  # fmt: skip
    width = max(x for x, _ in little.places) - LEFT
    assert (width > 60) == log
    assert len(little.places) == (4 if log else 5)  # nothing was spent at the start
    assert axes.get_xscale() == ("log" if log else "linear")
    assert axes.get_xlim()[0] > 0 or not log
    assert draw_curves(both, "seconds").axes[0].get_xscale() == "linear"
