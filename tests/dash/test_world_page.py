"""The page of `folkman world` in a real browser: it plays, steps, zooms and shows what broke, by
mouse and by keyboard, and can be read in both themes."""

import subprocess
import sys

import pytest

from conftest import CONTRASTS

pytestmark = pytest.mark.process

WRITE = """
import sys
from pathlib import Path
from folkman.arithmetic import choose
choose("numpy")
from folkman.runtime.world.audit import Invariant
from folkman.runtime.world.page import page
from folkman.runtime.world.plan import Fault, Plan
from folkman.runtime.world.swarm import watch
from folkman.runtime.world.world import Broken

class Forbids(Invariant):
    number, sentence = 1, "nobody takes a third gradient"
    def stepped(self, seen):
        if seen.host.core.node.steps > 2:
            raise Broken(1, "a third gradient was taken")

faults = (Fault("flap", 0, 1.0, 3.0, 0.0, 1), Fault("partition", 2, 1.5, 3.0, 0.0, 0))
plan = Plan(seed=1, method="alone", nodes=3, slots=8, slot_s=1.0, steps=None, heal_s=5.0,
            end_s=12.0, liars=((2, "flood"),), faults=faults)
for name, invariants in (("held", []), ("broken", [Forbids()])):
    Path(sys.argv[1], f"{name}.html").write_text(page(*watch(plan, invariants)), "utf-8")
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Return the addresses of a schedule that held, and of the same one as far as it broke."""
    folder = tmp_path_factory.mktemp("world")
    subprocess.run([sys.executable, "-c", WRITE, str(folder)], check=True)
    return {name: (folder / f"{name}.html").as_uri() for name in ("held", "broken")}


def at_s(page):
    """Return the time that the page shows, by its clock and by its slider."""
    shown = float(page.locator("#clock").inner_text().split()[0])
    assert float(page.locator("#at").input_value()) == pytest.approx(shown, abs=1e-3)
    return shown


def ticks_s(page):
    """Return the times that are written below the strip."""
    texts = page.locator("#strip text").all_text_contents()
    return [float(text[:-2]) for text in texts if text.endswith(" s") and text[0].isdigit()]


def until(page, holds):
    """Wait for something to come true; the page forbids what `wait_for_function` does."""
    for _ in range(600):
        if page.evaluate(holds):
            return
        page.wait_for_timeout(50)
    raise AssertionError(holds)


def now_line(page):
    return page.locator("#lines li.now").inner_text()


def test_it_begins_at_the_start_and_shows_the_schedule(visit, pages):
    page = visit(pages["held"])

    assert at_s(page) == 0.0
    assert page.locator("#verdict").inner_text() == "All invariants held."
    assert "1 of them lies, 2 faults" in page.locator("#about").inner_text()
    assert page.locator("#picture circle").count() >= 3
    assert page.locator("#ages tr").count() == 4


def test_it_steps_from_event_to_event_and_back(visit, pages):
    page = visit(pages["held"])
    times = page.evaluate("[...new Set(data.lines.map((line) => line[0]))].filter((t) => t > 0)")

    for expected in times[:3]:
        page.get_by_title("one event on (right arrow)").click()
        assert at_s(page) == pytest.approx(expected, abs=1e-3)
    page.locator("h1").click()  # the keys are the page's, wherever one clicked
    page.keyboard.press("ArrowLeft")
    assert at_s(page) == pytest.approx(times[1], abs=1e-3)
    assert now_line(page).startswith(f"{times[1]:.3f}")
    page.keyboard.press("ArrowRight")
    assert at_s(page) == pytest.approx(times[2], abs=1e-3)


def test_it_plays_and_pauses_at_its_speed(visit, pages):
    page = visit(pages["held"])
    page.locator("#speed").select_option("4")
    page.locator("h1").click()

    page.keyboard.press(" ")
    until(page, "now > 1")
    assert page.locator("#play").inner_text() == "Pause"
    page.keyboard.press(" ")
    assert page.locator("#play").inner_text() == "Play"
    stopped = at_s(page)
    page.wait_for_timeout(200)
    assert at_s(page) == stopped

    page.locator("#speed").select_option("16")
    page.locator("#play").click()
    until(page, "!playing")  # it stops at the end by itself
    assert at_s(page) == pytest.approx(page.evaluate("last"), abs=1e-3)
    page.locator("#play").click()
    until(page, "playing && now < last / 2")  # and begins anew


def test_space_on_a_button_plays_once(visit, pages):
    page = visit(pages["held"])
    page.locator("#play").focus()

    page.keyboard.press(" ")

    assert page.evaluate("playing")


def test_it_comes_closer_and_goes_wider(visit, pages):
    page = visit(pages["held"])
    whole = ticks_s(page)
    page.locator("h1").click()

    for _ in range(3):
        page.keyboard.press("+")
    closer = ticks_s(page)
    assert closer[-1] - closer[0] < 0.3 * (whole[-1] - whole[0])
    for _ in range(3):
        page.get_by_title("wider (-)").click()
    assert ticks_s(page) == whole


def test_one_can_pull_the_time_along(visit, pages):
    page = visit(pages["held"])
    box = page.locator("#strip").bounding_box()

    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 5)

    assert at_s(page) == pytest.approx(page.evaluate("last") / 2, rel=0.02)
    assert page.locator("#picture text", has_text="lies: flood").count() == 1


def test_one_that_broke_opens_where_it_broke_and_comes_back_there(visit, pages):
    page = visit(pages["broken"])
    broke_s = at_s(page)

    assert broke_s == pytest.approx(page.evaluate("last"), abs=1e-3)
    assert "a third gradient was taken" in page.locator("#verdict").inner_text()
    page.locator("h1").click()
    page.keyboard.press("Home")
    assert at_s(page) == 0.0
    page.get_by_role("button", name="To what broke").click()
    assert at_s(page) == broke_s
    page.keyboard.press("Home")
    page.keyboard.press("End")
    assert at_s(page) == broke_s


def test_a_time_can_be_named_in_the_address(visit, pages):
    assert at_s(visit(pages["held"] + "#t=2.5")) == 2.5


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_is_legible_and_fits(visit, pages, scheme, width):
    page = visit(pages["broken"], color_scheme=scheme, viewport={"width": width, "height": 844})

    assert page.evaluate("document.documentElement.scrollWidth") <= width
    ratio, *where = page.evaluate(CONTRASTS)[0]
    assert ratio >= 4.5, where
