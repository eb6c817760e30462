"""The page in a real browser: drawn, kept up to date, used by keyboard, light and dark, through
kill and resume."""

import itertools
import json
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from conftest import CONTRASTS, served
from folkman.dash.run import RunSource
from folkman.dash.serve import make_source
from folkman.record.folder import RunFolder

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def address(radio_folder):
    with served(RunSource(radio_folder)) as found:
        yield found


def expect(locator):
    from playwright.sync_api import expect as wait

    wait.set_options(timeout=180_000)  # a run that starts on a busy machine takes its time
    return wait(locator)


def test_a_finished_run_is_shown_with_curves_map_and_tables(visit, address):
    page = visit(address)

    expect(page.locator("#status")).to_have_text("finished, 4 of 4 runs")
    expect(page.locator(".plot canvas")).to_have_count(4)
    expect(page.locator("svg.map .node")).to_have_count(5)
    expect(page.locator("svg.map .link").first).to_be_visible()
    expect(page.get_by_role("region", name="Runs").locator("tbody tr")).to_have_count(4)
    assert page.get_by_role("checkbox", name="Algorithm <1>").is_checked()


def tab_to(page, locator):
    """Press Tab until an element has the focus, once round the page at most."""
    for _ in range(200):
        if locator.evaluate("each => each === document.activeElement"):
            return
        page.keyboard.press("Tab")
    raise AssertionError("Tab does not reach it")


def test_it_can_be_used_by_keyboard_alone(visit, address):
    page = visit(address)
    expect(page.locator("svg.map .node")).to_have_count(5)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"

    before = (
        page.locator("section", has_text="The cell").locator(".bar .quiet").first.text_content()
    )
    page.keyboard.press("x")
    expect(page.get_by_role("combobox", name="Against")).to_have_value("slots")
    page.keyboard.press("c")
    expect(page.get_by_role("combobox", name="Colour")).to_have_value("age")
    page.keyboard.press("]")
    expect(
        page.locator("section", has_text="The cell").locator(".bar .quiet").first
    ).not_to_have_text(before or "")
    tab_to(page, page.locator("svg.map .node").nth(2))
    page.keyboard.press("Enter")
    expect(page.locator("svg.map .node").nth(2)).to_have_attribute("aria-pressed", "true")
    tab_to(page, page.locator(".plot").first)
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".readout").first).to_contain_text("slots ")
    tab_to(page, page.get_by_role("button", name="Pause"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Go on")).to_have_attribute("aria-pressed", "true")


def test_a_long_curve_stays_bounded_and_even(visit, address):
    """20,000 rows one by one: few are kept, evenly, the first and the newest among them."""
    slots = visit(address).evaluate(
        """async () => {
            const { Series } = await import("/static/charts.js");
            const series = new Series();
            for (let slot = 0; slot < 20001; slot++)
                series.add({ slots: [slot], train_loss: [1 / (1 + slot)] });
            return series.columns.slots;
        }"""
    )
    gaps = [right - left for left, right in itertools.pairwise(slots[:-1])]

    assert 900 < len(slots) <= 2001
    assert (slots[0], slots[-1]) == (0, 20000)
    assert max(gaps) <= 2 * min(gaps)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_follows_the_system_and_can_be_told_otherwise(visit, address, scheme):
    page = visit(address, color_scheme=scheme)
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    other = {"light": "dark", "dark": "light"}[scheme]
    first = page.evaluate(ground)

    page.get_by_role("combobox", name="Theme").select_option(other)
    page.reload()

    assert page.evaluate(ground) != first
    assert page.get_by_role("combobox", name="Theme").input_value() == other


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_links_stand_out_from_their_ground(visit, address, scheme):
    """WCAG AA: 4.5 for text, 3 for what is drawn, the oldest copies too."""
    page = visit(address, color_scheme=scheme)
    expect(page.locator("svg.map .link").first).to_be_visible()
    for paint in ("age", "disagreement"):
        page.keyboard.press("c")
        expect(page.get_by_role("combobox", name="Colour")).to_have_value(paint)
        ratio, *where = page.evaluate(CONTRASTS)[0]
        assert ratio >= 4.5, where
    ground, shades = page.evaluate(
        """async () => {
            const { colourOf, shade } = await import("/static/colours.js");
            const all = [0, 0.25, 0.5, 0.75, 1].map(shade);
            const card = getComputedStyle(document.querySelector(".card")).backgroundColor;
            return [card, all];
        }"""
    )
    contrasts = [contrast(ground, each) for each in shades]
    assert min(contrasts) >= 2.9
    assert contrasts == sorted(contrasts)  # the oldest stand out most


def contrast(a, b):
    def luminance(text):
        parts = [int(each) / 255 for each in re.findall(r"\d+", text)[:3]]
        linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def test_only_what_is_there_is_offered_and_every_listed_key_does_something(visit, address):
    page = visit(address)
    expect(page.locator("#keys kbd")).to_have_text(["p", "x", "+", "-", "c", "[", "]", "Tab"])
    offered = page.get_by_role("combobox", name="Curve").first.locator("option")
    values = offered.evaluate_all("all => all.map((each) => each.value)")
    assert "train_loss" in values
    assert "optimum_distance" not in values  # the problem has no known optimum
    cells = page.get_by_role("combobox", name="Run").locator("option")
    assert "the one that runs" not in cells.all_text_contents()  # all have ended
    for key in ("x", "c", "]", "["):
        before = page.evaluate(SHOWN)
        page.keyboard.press(key)
        assert page.evaluate(SHOWN) != before, key
    expect(page.locator(".readout").first.locator("span")).to_have_count(2)


SHOWN = """() => [...document.querySelectorAll("select, input[type=range]")]
    .map((each) => each.value).join()"""


def test_a_run_that_does_not_learn_says_why_and_what_to_try(visit, address):
    page = visit(address)

    expect(page.locator(".wrong")).to_contain_text("FedAvg: 1 of 2 runs not learning; no round")
    expect(page.locator(".wrong")).to_contain_text("run longer")


def test_a_loss_that_rose_again_is_told_as_in_the_terminal(serving, visit, tmp_path, radio_folder):
    root = shutil.copytree(radio_folder, tmp_path / "run")
    folder = RunFolder.open(root)
    run = next(run for run in folder.read().runs if run.label == "Algorithm <1>")
    for row, loss in zip(run.rows, (2.0, 0.5, *[1.9] * len(run.rows)), strict=False):
        row["train_loss"] = loss
    folder.save_part(run, "")

    page = visit(serving(RunSource(root)))

    expect(page.locator(".wrong")).not_to_contain_text("swings")
    expect(page.locator(".noted")).to_contain_text(
        f"'Algorithm <1>' swings (1 of 2 seeds): with seed {run.seed} the training loss had been "
        "0.5 and ended at 1.9; try a smaller step or younger copies"
    )


def test_words_are_explained(visit, address):
    page = visit(address)
    expect(page.locator("th abbr", has_text="disagreement")).to_have_attribute(
        "title", re.compile("How far a node's model")
    )
    page.get_by_text("What the words mean").click()
    expect(page.locator("#words dt", has_text="kappa")).to_be_visible()


def test_a_phone_needs_no_sideways_scrolling(visit, address):
    page = visit(address, viewport={"width": 390, "height": 844})
    expect(page.locator(".plot canvas")).to_have_count(4)

    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_label_is_text_and_never_markup(serving, visit, tmp_path, radio_folder):
    folder = tmp_path / "evil"
    folder.mkdir()
    config = (
        (radio_folder / "config.toml")
        .read_text()
        .replace("Algorithm <1>", "<img src=x onerror=alert(1)>")
    )
    (folder / "config.toml").write_text(config)

    page = visit(serving(RunSource(folder)))

    expect(page.locator(".legend")).to_contain_text("<img src=x onerror=alert(1)>")
    assert page.locator("img").count() == 0
    expect(page.locator("#status")).to_have_text("waiting, 0 of 4 runs")


def test_a_sweep_is_shown_as_small_multiples(serving, visit, tmp_path, radio_folder):
    jobs = [
        {"key": f"k{seed}", "folder": str(radio_folder), "arm": "FedAvg, gamma=5",
         "algorithm": "fedavg", "label": "FedAvg", "seed": seed, "state": "finished",
         "settings": {}}
        for seed in (0, 1)
    ]  # fmt: skip
    jobs.append(
        jobs[0] | {"key": "k3", "arm": "FedAvg, gamma=9", "state": "failed", "message": "no data"}
    )
    index = {"format": 1, "name": "delays", "state": "failed", "workers": [], "jobs": jobs}
    (tmp_path / "index.json").write_text(json.dumps(index))

    page = visit(serving(make_source(tmp_path, cluster=False)))

    expect(page.locator(".multiple")).to_have_count(2)
    expect(page.locator(".multiple").first.locator("path")).to_have_count(2)
    expect(page.get_by_role("region", name="Failures")).to_contain_text("no data")
    expect(page.locator("#status")).to_have_text("failed, 3 of 3 jobs")


@pytest.fixture
def cluster(tmp_path):
    """Return a cluster's folder and a writer of a node's health."""
    health = {"steps": 41, "slot": 44, "loss": 0.5, "refused": {"stale": 2}, "memory_bytes": 2e8}
    health |= {"uptime_s": 9.0}

    def write(number, state="learning", **more):
        home = tmp_path / "nodes" / f"node-{number}"
        home.mkdir(parents=True, exist_ok=True)
        other = f"node-{1 - number}"
        links = {"linked": [other], "latency_s": {other: 0.004 + number / 100}}
        links |= {"goodput_bit_s": {other: 5e5}, "loss_share": {other: 0.25}}
        told = health | links | {"node": home.name, "state": state} | more
        (home / "health.json").write_text(json.dumps(told))
        return home

    return tmp_path, write


def test_a_cluster_shows_its_nodes_health_and_faults(serving, visit, cluster):
    root, write = cluster
    write(0)
    write(1, "fault")
    line = {
        "time": "2026-01-01T12:00:00.000Z",
        "level": "warning",
        "event": "refused",
        "reason": "crc",
        "node": "node-1",
    }
    (root / "nodes" / "node-1" / "node.log").write_text("starting\n" + json.dumps(line) + "\n")

    page = visit(serving(make_source(root, cluster=True)))

    expect(page.locator("#status")).to_have_text("1 of 2 nodes well")
    expect(page.get_by_role("region", name="Nodes").locator("tr.bad")).to_contain_text("fault")
    expect(page.get_by_role("region", name="Faults")).to_contain_text("refused: crc")
    write(1)
    expect(page.locator("#status")).to_have_text("2 of 2 nodes well")


def test_a_cluster_shows_curves_and_links_and_names_a_killed_node(serving, visit, cluster):
    """The process of a node is gone while the page is open: row, links and faults say so."""
    root, write = cluster
    write(0)
    home = write(1)
    page = visit(serving(make_source(root, cluster=True)), color_scheme="dark")

    expect(page.locator(".plot canvas")).to_have_count(2)
    expect(page.locator("svg.map .link")).to_have_count(2)
    links = page.get_by_role("region", name="Link by link")
    expect(links.locator("tbody tr").first).to_contain_text("500")  # kbit/s
    expect(links.locator("tbody tr").first).to_contain_text("25")  # % lost
    write(0, slot=60, loss=0.25)
    expect(page.locator(".readout").first).to_contain_text("node-0 0.25")
    expect(page.get_by_role("region", name="Faults")).to_contain_text("No fault so far.")

    ended = subprocess.Popen([sys.executable, "-c", ""])  # a number that no process has any more
    ended.wait()
    (home / "pid").write_text(str(ended.pid))

    expect(page.locator("#status")).to_have_text("1 of 2 nodes well")
    expect(page.get_by_role("region", name="Faults")).to_contain_text("node-1")
    expect(page.get_by_role("region", name="Faults")).to_contain_text("gone: its process has ended")
    expect(page.locator(".wrong")).to_contain_text("node-1 is gone")
    expect(links.locator("tr.bad")).to_have_count(1)  # the link that it sends on
    assert page.locator("svg.map .node[data-bad]").count() == 1
    assert page.evaluate(CONTRASTS)[0][0] >= 4.5


@pytest.mark.slow
def test_a_run_that_is_killed_and_resumed_while_watched(visit, tmp_path):
    """Real processes: `folkman run`, SIGKILL, `folkman run --resume`, and `folkman dash` all
    along."""
    run = [sys.executable, "-m", "folkman", "run"]
    quick = [
        "--set",
        "data.name=quadratic",
        "--set",
        "slots=100000000",
        "--set",
        "record_every=2000",
    ]
    quick += [
        "--set",
        "seeds=[0]",
        "--set",
        "nodes=4",
        "--set",
        'algorithm=[{name="async_sharing",step=0.001}]',
    ]
    started = []

    def start(*command, **options):
        process = subprocess.Popen(
            [*command], cwd=tmp_path, stderr=subprocess.DEVNULL, text=True, **options
        )
        started.append(process)
        return process

    try:
        first = start(*run, *quick, "--out", "r", stdout=subprocess.DEVNULL)
        wait_for(
            lambda: (
                (tmp_path / "r" / "live").is_dir()
                and list((tmp_path / "r" / "live").glob("*.json"))
            )
        )
        dash = start(
            sys.executable, "-m", "folkman", "dash", "r", "--port", "0", stdout=subprocess.PIPE
        )
        assert dash.stdout is not None
        address = next(line.split()[1] for line in dash.stdout if line.startswith("open"))
        page = visit(address)
        status, slots = (
            page.locator("#status"),
            page.get_by_role("region", name="Runs").locator("td").nth(3),
        )
        expect(status).to_have_text("running, 0 of 1 runs")
        wait_for(lambda: done(slots) > 0)
        seen = done(slots)
        wait_for(lambda: done(slots) > seen)

        first.send_signal(signal.SIGKILL)
        first.wait()
        expect(status).to_have_text("stopped, 0 of 1 runs")
        start(*run, "--resume", "r", stdout=subprocess.DEVNULL)
        expect(status).to_have_text("running, 0 of 1 runs")
        seen = done(slots)
        wait_for(lambda: done(slots) > seen)
        expect(page.locator("svg.map .node")).to_have_count(4)
        page.context.close()
    finally:
        for process in started:
            process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()


def done(cell):
    return int(float((cell.text_content() or "0").split(" of ")[0]))


def wait_for(condition, limit_s=180.0):
    give_up = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < give_up, "it never happened"
        time.sleep(0.05)  # the other side is a process of its own


def test_the_page_is_refused_beyond_loopback_without_a_token(radio_folder, monkeypatch, capsys):
    from folkman.cli import main

    monkeypatch.setattr(sys, "argv", ["folkman", "dash", str(radio_folder), "--host", "0.0.0.0"])  # noqa: S104
    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == 2
    assert "visitors must bring a token; add --token new" in capsys.readouterr().err


WIDER = """() => [...document.querySelectorAll('.scroll')]
    .filter(box => box.scrollWidth > box.clientWidth + 1).length"""
SIDEWAYS = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


def test_a_report_fits_the_desk_the_phone_and_the_printed_page(radio_folder, tmp_path, visit):
    """Opened from disk. On a phone wide tables scroll within their boxes, and the page itself never
    sideways."""
    from folkman.report.write import write_report

    folder = shutil.copytree(radio_folder, tmp_path / "run")
    known = json.loads((folder / "provenance.json").read_text())
    (folder / "provenance.json").write_text(json.dumps(known | {"xla_flags": "--xla_" + "a" * 95}))
    address = write_report(folder, tmp_path / "report.html").as_uri()
    desk = visit(address, viewport={"width": 1080, "height": 900})
    phone = visit(address, viewport={"width": 390, "height": 800})
    paper = visit(address, viewport={"width": 680, "height": 900})  # A4 between its margins
    paper.emulate_media(media="print")

    assert [page.evaluate(SIDEWAYS) for page in (desk, phone, paper)] == [0, 0, 0]
    assert [page.evaluate(WIDER) for page in (desk, paper)] == [0, 0]
    assert phone.locator("h1").bounding_box()["width"] <= 390
