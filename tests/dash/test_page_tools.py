"""What a hand does on the page: zoom and back, files of what is shown, two folders on one page,
parallel coordinates by mouse and by keyboard; in both themes every text can be read."""

import csv
import io
import shutil
from xml.etree import ElementTree

import pytest

from conftest import CONTRASTS, served
from folkman.dash.pair import RunPair, SweepPair
from folkman.dash.run import RunSource
from folkman.dash.serve import make_source
from folkman.record.folder import RunFolder
from tests.made_sweep import make_sweep
from tests.shell import folkman

pytestmark = pytest.mark.process


def expect(locator):
    from playwright.sync_api import expect as wait

    wait.set_options(timeout=60_000)
    return wait(locator)


@pytest.fixture(scope="module")
def address(radio_folder):
    with served(RunSource(radio_folder)) as found:
        yield found


def loss(label, given, seed):
    return 0.1 * given["network.gamma"] / given["nodes"] + (0.5 if label == "B" else 0) + seed / 100


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    arms = [
        (label, {"network.gamma": gamma, "nodes": nodes})
        for label in "AB" for gamma in (2, 5, 10) for nodes in (4, 8)
    ]  # fmt: skip
    return make_sweep(tmp_path_factory.mktemp("tools") / "sweep", arms, loss)


@pytest.fixture(scope="module")
def sweep_address(sweep):
    with served(make_source(sweep, cluster=False)) as found:
        yield found


def shown(page, chart=0):
    """Return the rows of a chart's CSV: what it shows now."""
    with page.expect_download() as caught:
        page.get_by_role("button", name="Download CSV").nth(chart).click()
    return list(csv.reader(io.StringIO(caught.value.path().read_text())))


def test_a_csv_has_the_rows_that_are_recorded(visit, address, radio_folder):
    page = visit(address)
    expect(page.locator(".plot canvas")).to_have_count(4)
    page.get_by_role("combobox", name="Against").select_option("slots")

    head, *rows = shown(page)

    assert head == ["slots", "Algorithm <1>", "FedAvg"]
    runs = [run for run in RunFolder(radio_folder).read().runs if run.label == "Algorithm <1>"]
    assert [float(row[0]) for row in rows] == runs[0].column("slots")
    means = [
        sum(each) / 2 for each in zip(*(run.column("train_loss") for run in runs), strict=True)
    ]
    assert [float(row[1]) for row in rows] == pytest.approx(means, rel=1e-5)


def drawn(page, chart=0):
    """Return the part of the axis that a chart has drawn."""
    facts = page.locator(".plot").nth(chart).evaluate("each => ({ ...each.dataset })")
    return float(facts["from"]), float(facts["to"])


def drag(page, box, start, end):
    """Drag across a part of a box, from and to shares of its width and height."""
    page.mouse.move(box["x"] + start[0] * box["width"], box["y"] + start[1] * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + end[0] * box["width"], box["y"] + end[1] * box["height"], steps=5)
    page.mouse.up()


def drag_over(axis, start, end):
    """Drag along an axis, from and to shares of its height, once it stands still: what is above it
    may still grow."""
    seen: list[dict[str, float]] = []
    for _ in range(100):  # ten seconds at most
        seen.append(axis.bounding_box())
        if len(seen) >= 5 and all(box == seen[-1] for box in seen[-5:]):
            break
        axis.page.wait_for_timeout(100)
    box = seen[-1]
    axis.hover(position={"x": box["width"] / 2, "y": start * box["height"]})
    axis.page.mouse.down()
    box = axis.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + end * box["height"]
    axis.page.mouse.move(x, y, steps=5)
    axis.page.mouse.up()


def test_a_drag_zooms_all_charts_and_a_button_takes_it_back(visit, address):
    page = visit(address)
    expect(page.locator(".plot canvas")).to_have_count(4)
    page.get_by_role("combobox", name="Against").select_option("slots")
    whole = page.get_by_role("button", name="Whole axis")
    expect(whole).to_be_hidden()
    all_rows = shown(page)

    drag(page, page.locator(".plot .u-over").nth(1).bounding_box(), (0.26, 0.5), (0.52, 0.5))

    expect(whole).to_be_visible()
    for chart in (0, 1):  # the one that was dragged, and another
        slots = [float(row[0]) for row in shown(page, chart)[1:]]
        assert slots == [float(row[0]) for row in all_rows[1:] if 10 <= float(row[0]) <= 20]
        low, high = drawn(page, chart)
        assert 9 < low < 12
        assert 20 < high < 23
    expect(page.locator("#keys")).to_contain_text("whole axis")
    whole.click()
    expect(whole).to_be_hidden()
    assert shown(page) == all_rows
    assert drawn(page) == drawn(page, 1) == (0.0, 40.0)


def test_keys_zoom_and_take_it_back(visit, address):
    page = visit(address)
    expect(page.locator(".plot canvas")).to_have_count(4)
    all_rows = shown(page)

    page.keyboard.press("+")
    expect(page.get_by_role("button", name="Whole axis")).to_be_visible()
    assert len(shown(page)) < len(all_rows)
    page.keyboard.press("-")
    expect(page.get_by_role("button", name="Whole axis")).to_be_hidden()
    page.keyboard.press("+")
    page.keyboard.press("0")
    expect(page.get_by_role("button", name="Whole axis")).to_be_hidden()
    page.keyboard.press("+")
    page.keyboard.press("x")  # another axis is shown whole
    expect(page.get_by_role("button", name="Whole axis")).to_be_hidden()


def test_new_rows_leave_what_was_zoomed_in_on(serving, visit, tmp_path, radio_folder):
    """A chart that is zoomed stays so while its run goes on."""
    source = RunSource(shutil.copytree(radio_folder, tmp_path / "run"))
    news: list[dict] = []
    source.poll = lambda: news.pop() if news else None
    page = visit(serving(source))
    expect(page.locator(".plot canvas")).to_have_count(4)
    whole = drawn(page)
    page.keyboard.press("+")
    expect(page.get_by_role("button", name="Whole axis")).to_be_visible()
    before, part = shown(page), drawn(page)
    assert whole[0] < part[0] < part[1] < whole[1]
    run = source.runs[0]

    news.append({"runs": [{"id": run.name, "status": "running", "done": 44, "columns": {
        "slots": [44], "seconds": [9.0], "train_loss": [0.01]}}]})  # fmt: skip

    runs = page.get_by_role("region", name="Runs")
    expect(runs.locator("tbody tr").first).to_contain_text("44 of 40")
    assert [row[0] for row in shown(page)] == [row[0] for row in before]
    assert drawn(page) == part


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pictures_of_a_chart_have_its_curves_names_and_axes(visit, address, scheme):
    page = visit(address, color_scheme=scheme)
    expect(page.locator(".plot canvas")).to_have_count(4)

    with page.expect_download() as caught:
        page.get_by_role("button", name="Download SVG").first.click()
    svg = ElementTree.fromstring(caught.value.path().read_text())  # noqa: S314 - our own
    texts = ["".join(each.itertext()) for each in svg.iter("{http://www.w3.org/2000/svg}text")]
    with page.expect_download() as pixels:
        page.get_by_role("button", name="Download PNG").first.click()

    assert caught.value.suggested_filename == "train_loss-seconds.svg"
    assert {"Algorithm <1>", "FedAvg", "simulated time (s)", "training loss F(w)"} <= set(texts)
    curves = [each for each in svg.iter("{http://www.w3.org/2000/svg}path")
              if each.get("stroke-width") == "2"]  # fmt: skip
    assert len(curves) == 2
    from PIL import Image

    with Image.open(pixels.value.path()) as image:
        assert image.size == (1440, 840)
        assert len(image.convert("RGB").getcolors(1_000_000) or []) > 20  # not a blank sheet
        ground = image.convert("L").getpixel((2, 2))
    assert isinstance(ground, int)
    assert (ground > 200) == (scheme == "light")


def test_two_runs_are_shown_on_one_page(serving, visit, tmp_path, radio_folder):
    other = shutil.copytree(radio_folder, tmp_path / "second")

    page = visit(serving(RunPair([radio_folder, other])))

    expect(page.locator("#status")).to_have_text("finished, 8 of 8 runs")
    expect(page.locator(".legend label")).to_have_text(
        [
            f"{label} ({name})"
            for name in ("cell", "second")
            for label in ("Algorithm <1>", "FedAvg")
        ]
    )
    head, *rows = shown(page)
    assert head[1:] == [f"{label} ({name})" for name in ("cell", "second")
                        for label in ("Algorithm <1>", "FedAvg")]  # fmt: skip
    assert all(row[1] == row[3] and row[2] == row[4] for row in rows)  # copies of each other
    # a run of the second folder has a cell of its own
    expect(page.locator("svg.map .node")).to_have_count(5)  # of Algorithm 1
    page.get_by_role("combobox", name="Run").select_option(label="FedAvg (second), seed 1")
    expect(page.locator("svg.map .node")).to_have_count(6)
    expect(page.locator("svg.map .node[aria-label=server]")).to_have_count(1)


def test_two_sweeps_have_their_folders_as_a_setting(serving, visit, tmp_path, sweep):
    other = shutil.copytree(sweep, tmp_path / "later")

    page = visit(serving(SweepPair([sweep, other])))

    expect(page.locator("#name")).to_have_text("sweep and later")
    expect(page.locator(".multiple")).to_have_count(24)
    expect(page.get_by_role("slider", name="folder")).to_have_count(1)


@pytest.mark.parametrize(
    ("folders", "complaint"),
    [
        (("run", "sweep"), "expected two runs or two sweeps, got one of each"),
        (("run", "run"), "each folder can be given once"),
        (("run", "run", "run"), "a page shows one folder, or two side by side, got 3"),
    ],
)
def test_folders_that_do_not_go_together_are_refused(
    tmp_path, radio_folder, sweep, folders, complaint
):
    places = {"run": radio_folder, "sweep": sweep}
    done = folkman("dash", *(places[name] for name in folders), "--port", "0", cwd=tmp_path)

    assert done.returncode == 2
    assert complaint in done.stderr


def kept(page):
    return page.locator(".multiple:visible h3").all_text_contents()


def test_a_drag_over_an_axis_keeps_the_arms_that_pass_there(visit, sweep_address):
    page = visit(sweep_address)
    expect(page.locator(".multiple")).to_have_count(12)
    expect(page.locator("svg.parallel .arm")).to_have_count(12)

    drag_over(page.get_by_role("slider", name="nodes"), 0.3, -0.1)

    expect(page.locator("svg.parallel .arm.out")).to_have_count(6)
    assert all("nodes=8" in arm for arm in kept(page))
    expect(page.get_by_role("region", name="Arms side by side")).to_contain_text("6 of 12 arms")
    drag_over(page.get_by_role("slider", name="algorithm"), 0.7, 1.1)
    expect(page.locator(".multiple:visible")).to_have_count(3)
    head, *rows = shown(page)
    assert head[:4] == ["arm", "algorithm", "network.gamma", "nodes"]
    assert [row[:4] for row in rows] == [[f"A, gamma={g}, nodes=8", "A", str(g), "8"]
                                         for g in (2, 5, 10)]  # fmt: skip
    mean = sum(loss("A", {"network.gamma": 5, "nodes": 8}, seed) for seed in range(3)) / 3
    assert float(rows[1][head.index("train_loss")]) == pytest.approx(mean, rel=1e-5)
    page.get_by_role("button", name="All arms").click()
    expect(page.locator(".multiple:visible")).to_have_count(12)


def test_an_axis_can_be_filtered_by_keyboard_alone(visit, sweep_address):
    page = visit(sweep_address)
    expect(page.locator("svg.parallel .arm")).to_have_count(12)
    axis = page.get_by_role("slider", name="network.gamma")
    for _ in range(100):
        if axis.evaluate("each => each === document.activeElement"):
            break
        page.keyboard.press("Tab")

    page.keyboard.press("Shift+ArrowDown")  # 10 is no longer reached
    expect(page.locator(".multiple:visible")).to_have_count(8)
    assert "from 2 to 9.6" in (axis.get_attribute("aria-valuetext") or "")
    page.keyboard.press("ArrowUp")  # nor 2
    expect(page.locator(".multiple:visible")).to_have_count(4)
    page.keyboard.press("Escape")
    expect(page.locator(".multiple:visible")).to_have_count(12)


def test_parallel_coordinates_can_be_taken_along(visit, sweep_address):
    page = visit(sweep_address)
    expect(page.locator("svg.parallel .arm")).to_have_count(12)
    before = page.get_by_role("slider").count()

    with page.expect_download() as caught:
        page.get_by_role("button", name="Download SVG").first.click()
    svg = ElementTree.fromstring(caught.value.path().read_text())  # noqa: S314 - our own

    paths = list(svg.iter("{http://www.w3.org/2000/svg}path"))
    assert sum(each.get("class") == "arm" for each in paths) == 12
    assert all(each.get("stroke", "none") != "none" for each in paths)
    assert page.get_by_role("slider").count() == before  # and they still work
    drag_over(page.get_by_role("slider", name="nodes"), 0.3, -0.1)
    expect(page.locator(".multiple:visible")).to_have_count(6)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_every_text_of_a_sweep_can_be_read_and_the_page_does_not_scroll_sideways(
    visit, sweep_address, scheme, width
):
    page = visit(sweep_address, color_scheme=scheme, viewport={"width": width, "height": 900})
    expect(page.locator("svg.parallel .arm")).to_have_count(12)

    ratio, *where = page.evaluate(
        CONTRASTS.replace("svg.map text", "svg.map text,svg.parallel text")
    )[0]
    assert ratio >= 4.5, where
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    boxes = page.locator("svg.parallel .title").evaluate_all(
        "all => all.map((each) => each.getBoundingClientRect().toJSON())"
    )
    for a, b in zip(boxes, boxes[2:], strict=False):  # titles of one line
        assert a["right"] <= b["left"]
