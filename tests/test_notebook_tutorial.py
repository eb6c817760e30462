"""The tutorial notebook runs from top to bottom and shows what it promises."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.process

NOTEBOOK = Path(__file__).parent.parent / "examples" / "tutorial.ipynb"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the kernel's own packages
def test_the_tutorial_runs_and_shows_tables_figures_and_maps(tmp_path):
    nbclient = pytest.importorskip(
        "nbclient", reason="pip install nbclient ipykernel runs notebooks"
    )
    nbformat = pytest.importorskip("nbformat")
    book = nbformat.read(NOTEBOOK, 4)
    assert all(
        not cell.get("outputs") for cell in book.cells
    )  # kept clean: outputs are made, not stored

    nbclient.NotebookClient(
        book, timeout=300, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()

    shown = [
        output["data"].get("text/html", "")
        for cell in book.cells
        for output in cell.get("outputs", [])
        if "data" in output
    ]
    assert sum("<svg" in text for text in shown) == 4
    assert sum("data:image/png" in text for text in shown) == 2
    assert sum("<table" in text for text in shown) == 4
