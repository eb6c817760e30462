"""Results in a notebook: a table and a figure, pandas, and a map that moves."""

import io

import numpy as np
import pytest
from PIL import Image

from folkman import Recording, Results, async_sharing, fedavg, read_results, simulate, snapshot


@pytest.fixture(scope="module")
def results(radio_folder):
    return read_results(radio_folder)


@pytest.fixture
def run(quadratics):
    recording = Recording(every=2, timeline=True)
    return simulate(
        quadratics(nodes=4), snapshot(3), async_sharing(step=0.1), slots=12, recording=recording
    )


def test_a_folder_shows_as_a_table_and_a_figure(results):
    text = results._repr_html_()

    assert isinstance(results, Results)
    assert len(results) == 4
    assert "Algorithm &lt;1&gt;" in text
    assert "<table" in text
    assert "<svg" in text


def test_pandas_has_a_row_for_each_recorded_slot(results, run):
    frame = results.to_pandas()

    assert len(frame) == 4 * 11
    assert set(frame["label"]) == {"Algorithm <1>", "FedAvg"}
    assert list(run.to_pandas()["slots"]) == [0, 2, 4, 6, 8, 10, 12]
    assert frame["train_loss"].dtype == np.float64


def test_a_figure_is_written_in_the_kind_asked_for(run, tmp_path):
    drawn = run.plot("slots", "optimum_distance", style="ieee")

    assert drawn.save(tmp_path / "a.pdf")[0].read_bytes().startswith(b"%PDF")
    assert drawn.figure.get_figwidth() == 3.5
    with pytest.raises(ValueError, match=r"expected a file that ends in \.png"):
        drawn.save(tmp_path / "a.jpeg2000")
    with pytest.raises(ValueError, match="there is no style 'nature'"):
        run.plot(style="nature")


def test_a_map_moves_on_the_radio_and_from_a_timeline(results, run, tmp_path):
    for each, paint in ((results[0], "sinr"), (run, None)):
        moving = each.animate(paint, frames=3)
        shown = Image.open(io.BytesIO(moving.save(tmp_path / "map.gif").read_bytes()))
        assert shown.n_frames == len(moving) == 3  # type: ignore[attr-defined]
        assert "data:image/png;base64," in moving._repr_html_()


def test_who_kept_nothing_of_the_network_is_told_what_to_do(quadratics):
    bare = simulate(quadratics(nodes=2), snapshot(2), fedavg(step=0.1), slots=2)

    with pytest.raises(ValueError, match=r"recording=Recording\(timeline=True\)"):
        bare.animate()
