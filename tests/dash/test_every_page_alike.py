"""What Lighthouse asks of a page, asked of the reports and of the live pages alike.

Light and dark, on a phone and on a desk. The site's pages have it in `test_site_in_browser.py`.
"""

import json

import pytest

from conftest import CONTRASTS, served
from folkman.dash.run import RunSource
from folkman.dash.serve import make_source
from folkman.report.write import write_report
from tests.made_sweep import make_sweep

pytestmark = [pytest.mark.process, pytest.mark.slow]

AUDIT = """() => {
    const wrong = [];
    const say = (what, element) =>
        wrong.push(`${what}: ${element.outerHTML.replace(/\\s+/g, " ").slice(0, 90)}`);
    const shown = (element) => element.checkVisibility() && element.getClientRects().length > 0;
    const told = (ids) => (ids || "").split(" ").map((id) => document.getElementById(id))
        .map((each) => each ? each.textContent : "").join(" ");
    const name = (element) => [
        element.getAttribute("aria-label"), told(element.getAttribute("aria-labelledby")),
        ...[...(element.labels || [])].map((each) => each.textContent),
        element.matches("select, input") ? "" : element.textContent,
        element.getAttribute("alt"), element.getAttribute("title"),
    ].join("").trim();

    if (!document.documentElement.lang) wrong.push("no language");
    if (!document.title.trim()) wrong.push("no title");
    if (!document.querySelector('meta[name="viewport"]')) wrong.push("no viewport");
    const headings = [...document.querySelectorAll("h1, h2, h3, h4, h5, h6")].filter(shown);
    if (headings.filter((each) => each.matches("h1")).length !== 1) wrong.push("not one h1");
    headings.forEach((each, i) => {
        if (i > 0 && Number(each.tagName[1]) > Number(headings[i - 1].tagName[1]) + 1)
            say("a level of headings is left out before", each);
    });
    const ids = [...document.querySelectorAll("[id]")].map((each) => each.id);
    ids.filter((id, i) => ids.indexOf(id) !== i).forEach((id) => wrong.push(`twice: #${id}`));
    for (const each of document.querySelectorAll(
        "a[href], button, input, select, summary, img, [role=img], [role=slider], [tabindex]"))
        if (shown(each) && !name(each)) say("no name", each);
    for (const each of document.querySelectorAll("svg"))
        if (shown(each) && !each.closest("[aria-hidden=true], button, a, label") && !name(each)
            && each.getAttribute("role") !== "presentation") say("a drawing without a name", each);
    for (const each of document.querySelectorAll("[tabindex]"))
        if (each.tabIndex > 0) say("an order of its own", each);
    for (const each of document.querySelectorAll("th"))
        if (shown(each) && !each.textContent.trim()) say("an empty heading of a column", each);
    for (const each of document.querySelectorAll("[role=list] > :not([role=listitem])"))
        say("in a list, and no item", each);
    for (const each of document.querySelectorAll("*")) {
        const style = getComputedStyle(each);
        const scrolls = (to, whole, part) =>
            ["auto", "scroll"].includes(style[to]) && each[whole] > each[part] + 1;
        const moves = scrolls("overflowX", "scrollWidth", "clientWidth")
            || scrolls("overflowY", "scrollHeight", "clientHeight");
        if (moves && each.tabIndex < 0 && !each.matches("html, body")
            && !each.querySelector("a[href], button, input, select, [tabindex='0']"))
            say("scrolls, and not by keyboard", each);
    }
    for (const each of document.querySelectorAll("button, input, select, summary, [role=slider]")) {
        if (!shown(each) || each.closest("svg")) continue;
        const box = (each.labels && each.labels[0] || each).getBoundingClientRect();
        if (Math.min(box.width, box.height) < 16) say(`${box.width} x ${box.height} pixels`, each);
    }
    if (document.documentElement.scrollWidth > innerWidth) wrong.push("wider than the page");
    return wrong;
}"""
"""What is wrong with a page for who uses a keyboard, a phone, or has it read aloud."""

REACHED = """() => [...document.querySelectorAll(
    "a[href], button, input, select, summary, [tabindex='0']")]
    .filter((each) => each.checkVisibility() && !each.disabled && each.tabIndex === 0).length"""


def sweep_of(folder):
    arms = [(label, {"network.gamma": gamma}) for label in "AB" for gamma in (2, 5)]
    return make_sweep(folder, arms, lambda _, given, seed: 0.1 * given["network.gamma"] + seed)


def cluster_of(folder):
    told = {"steps": 41, "slot": 44, "loss": 0.5, "memory_bytes": 2e8, "uptime_s": 9.0}
    for number in (0, 1):
        home, other = folder / "nodes" / f"node-{number}", f"node-{1 - number}"
        home.mkdir(parents=True)
        links = {"linked": [other], "latency_s": {other: 0.004}, "goodput_bit_s": {other: 5e5}}
        state = {"node": home.name, "state": ("learning", "fault")[number]}
        (home / "health.json").write_text(json.dumps(told | links | state))
    line = {"time": "2026-01-01T12:00:00Z", "level": "warning", "event": "refused", "reason": "crc"}
    (folder / "nodes" / "node-1" / "node.log").write_text(json.dumps(line) + "\n")
    return folder


@pytest.fixture(scope="module")
def addresses(radio_folder, tmp_path_factory):
    """Return the address of each page, and what can be seen on it when it is ready."""
    place = tmp_path_factory.mktemp("alike")
    sweep, cluster = sweep_of(place / "sweep"), cluster_of(place / "cluster")
    reports = {"run": radio_folder, "sweep": sweep}
    found = {
        f"report of a {kind}": (write_report(folder, place / f"{kind}.html").as_uri(), "h1")
        for kind, folder in reports.items()
    }
    with (
        served(RunSource(radio_folder)) as run,
        served(make_source(sweep, cluster=False)) as many,
        served(make_source(cluster, cluster=True)) as nodes,
    ):
        found["page of a run"] = (run, "svg.map .link")
        found["page of a sweep"] = (many, "svg.parallel .arm")
        found["page of a cluster"] = (nodes, "svg.map .link")
        yield found


PAGES = [f"report of a {kind}" for kind in ("run", "sweep")]
PAGES += [f"page of a {kind}" for kind in ("run", "sweep", "cluster")]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_names_order_contrast_and_room(visit, addresses, name, width, scheme):
    address, ready = addresses[name]
    page = visit(address, color_scheme=scheme, viewport={"width": width, "height": 844})
    page.locator(ready).first.wait_for(state="attached")
    page.evaluate("document.querySelectorAll('details').forEach((each) => (each.open = true))")
    page.wait_for_timeout(500)
    assert page.evaluate(AUDIT) == []
    ratio, *where = page.evaluate(
        CONTRASTS.replace("svg.map text", "svg.map text,svg.parallel text,input,textarea")
    )[0]
    assert ratio >= 4.5, where


@pytest.mark.parametrize("name", PAGES)
def test_tab_reaches_everything_and_shows_where_it_is(visit, addresses, name):
    address, ready = addresses[name]
    page = visit(address)
    page.locator(ready).first.wait_for(state="attached")
    page.wait_for_timeout(500)
    if page.get_by_role("button", name="Pause").count():
        page.keyboard.press("p")  # the page stands still
    there = page.evaluate(REACHED)
    page.evaluate("window.met = new Set(); document.body.focus()")
    unseen = []
    for _ in range(there + 2):
        page.keyboard.press("Tab")
        unseen += page.evaluate(
            """() => {
                const each = document.activeElement;
                if (each === document.body) return [];
                window.met.add(each);
                const style = getComputedStyle(each);
                const ring = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
                const edge = each.ownerSVGElement && parseFloat(style.strokeWidth) >= 3;
                return ring || edge ? [] : [each.outerHTML.slice(0, 80)];
            }"""
        )
    assert unseen == []
    assert there > 2
    assert page.evaluate("window.met.size") >= there


def test_the_audit_finds_what_is_wrong(visit, tmp_path):
    """Each of its questions has an answer that is wrong here."""
    page_file = tmp_path / "bad.html"
    page_file.write_text(
        "<html><body><h1>a</h1><h1 id=x>b</h1><h3 id=x>c</h3><button></button><input>"
        "<svg width=9 height=9><path d='M0 0'/></svg><p tabindex=3>d</p><table><th></th></table>"
        "<div style='overflow:auto;height:10px'><p style='width:3000px'>e<p>f<p>g</div>"
        "<p style='width:3000px'>h</p><button style='width:4px;height:4px;padding:0'>i</button>"
    )
    told = "\n".join(visit(page_file.as_uri()).evaluate(AUDIT))
    for words in (
        "no language", "no title", "no viewport", "not one h1", "is left out before: <h3",
        "twice: #x", "no name: <button", "no name: <input", "a drawing without a name",
        "an order of its own", "an empty heading", "not by keyboard", "4 x 4 pixels",
        "wider than the page",
    ):  # fmt: skip
        assert words in told, (words, told)
