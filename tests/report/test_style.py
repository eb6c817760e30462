"""Figures for a paper: the width of a column, fonts that a submission accepts, labels with units,
no lost words."""

import re
import sys

import numpy as np
import pytest

from folkman.record.folder import RunFolder
from folkman.report.figures import COLOURS
from folkman.report.scenes import draw_scene
from folkman.report.style import STYLES, dressed


def folkman(monkeypatch, *arguments):
    from folkman.cli import main

    monkeypatch.setattr(sys, "argv", ["folkman", *map(str, arguments)])
    try:
        main()
    except SystemExit as ended:
        return ended.code or 0
    return 0


@pytest.mark.parametrize(("style", "width_in"), [("ieee", 3.5), ("ieee-wide", 7.16)])
def test_a_papers_figure_has_its_width_and_embedded_fonts(
    radio_folder, tmp_path, monkeypatch, capsys, style, width_in
):
    out = tmp_path / "a.pdf"

    assert folkman(monkeypatch, "plot", radio_folder, "--style", style, "--out", out) == 0

    data = out.read_bytes()
    box = re.search(rb"/MediaBox \[ 0 0 ([\d.]+) ", data)
    assert box is not None
    assert float(box.group(1)) == pytest.approx(72 * width_in, abs=1)
    assert b"/FontFile2" in data or b"/Type42" in data or b"/CIDFontType2" in data
    assert b"/Type3" not in data
    assert "for the caption: mean of 2 seeds" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["map", "ages", "shares", "disagreement"])
def test_each_kind_of_figure_is_drawn_with_labelled_axes(radio_folder, tmp_path, monkeypatch, kind):
    out = tmp_path / "a.svg"

    assert folkman(monkeypatch, "plot", radio_folder, "--kind", kind, "--out", out) == 0

    assert out.read_text().count("<path") > 5


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--style", "nature"], "there is no style 'nature'"),
        (["--kind", "pie"], "there is no figure 'pie'"),
        (["--kind", "map", "--label", "FedAvgg"], "there is no algorithm 'FedAvgg'"),
        (
            ["--kind", "map", "--colour", "red"],
            "a map is coloured by one of sinr, age, disagreement",
        ),
    ],
)
def test_wrong_words_are_answered_with_the_right_ones(
    radio_folder, monkeypatch, capsys, arguments, complaint
):
    assert folkman(monkeypatch, "plot", radio_folder, *arguments) == 2
    assert complaint in capsys.readouterr().err


def test_the_colours_differ_for_every_colour_vision():
    """Machado et al. 2009 at full severity: the first six, in Lab, stay apart under all three
    dichromacies."""
    dichromat = {
        "protan": [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ],
        "deutan": [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ],
        "tritan": [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ],
    }
    linear = (
        np.array([[int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)] for c in COLOURS[:6]]) ** 2.2
    )
    for matrix in dichromat.values():
        seen = lab(np.clip(linear @ np.array(matrix).T, 0, 1))
        apart = np.linalg.norm(seen[:, None] - seen[None], axis=2)[np.triu_indices(6, 1)]
        assert apart.min() > 9  # about four just noticeable differences


def lab(linear):
    xyz = (
        linear
        @ np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]).T
    )
    f = np.cbrt(xyz / np.array([0.9505, 1.0, 1.089]))
    return np.stack(
        [116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], axis=1
    )


def test_a_square_map_stays_square_in_a_column(radio_folder):
    scene = next(run.scene for run in RunFolder(radio_folder).read().runs if run.scene is not None)

    figure = dressed(STYLES["ieee"], lambda: draw_scene(scene))

    assert figure.get_figwidth() == 3.5
    assert figure.axes[0].get_aspect() == 1.0
