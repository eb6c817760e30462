"""A browser, and a served page."""

import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

pytest.importorskip("starlette", reason="the live page needs: pip install 'folkman[dash]'")

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)


CONTRASTS = """() => {
    const parse = (text) => {
        const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number);
        return { rgb: [r, g, b], a };
    };
    const luminance = (rgb) => {
        const [r, g, b] = rgb.map((v) => v / 255)
            .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const over = (ink, rgb) => ink.rgb.map((v, i) => ink.a * v + (1 - ink.a) * rgb[i]);
    const ground = (element) => {
        if (element.matches(".number, .on, .cell"))
            return parse(getComputedStyle(element.previousElementSibling).fill).rgb;
        const veils = [];
        for (let each = element; each; each = each.parentElement) {
            const found = parse(getComputedStyle(each).backgroundColor);
            veils.unshift(found);
            if (found.a > 0.99) break;
        }
        return veils.reduce((rgb, veil) => over(veil, rgb), [255, 255, 255]);
    };
    const worst = [];
    for (const element of document.querySelectorAll("h1,h2,h3,p,a,li,dt,dd,th,td,summary,figcaption,small,code,label,select,button,span,svg.panel text,svg.map text")) {
        const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
        if (!own || !element.checkVisibility() || element.matches(".md-skip")) continue;
        const style = getComputedStyle(element);
        const ink = element.closest("svg") ? style.fill : style.color;
        const below = ground(element);
        const pair = [luminance(over(parse(ink), below)), luminance(below)].sort((a, b) => a - b);
        worst.push([(pair[1] + 0.05) / (pair[0] + 0.05), element.tagName, element.textContent.slice(0, 40)]);
    }
    return worst.sort((a, b) => a[0] - b[0]).slice(0, 3);
}"""  # noqa: E501
"""The three texts of the least contrast to their ground, as WCAG 2 counts it."""


@contextmanager
def served(source, token=None) -> Iterator[str]:
    """Serve the page of a source on a free port of loopback; yield its address."""
    import uvicorn

    from folkman.dash.app import make_app

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    app = make_app(source, token=token)
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=5)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        give_up = time.monotonic() + 30
        while not server.started and time.monotonic() < give_up:
            time.sleep(0.01)  # uvicorn tells by a flag alone
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        app.state.hub.close()
        server.should_exit = True
        thread.join(10)


@pytest.fixture
def serving() -> Iterator[Callable]:
    """Serve sources until the end of a test; name it before `visit`, so that pages close first."""
    with ExitStack() as stack:
        yield lambda source: stack.enter_context(served(source))


@pytest.fixture(scope="module")
def browser():
    """Start Chromium; a machine without one says how to get it.

    For a module: while it is there a loop runs in this thread, in which no test could start one.
    """
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="pip install playwright drives the browser"
    )
    if CHROMIUM is None:
        pytest.skip("no Chromium here: apt-get install chromium (`make test` does it where it may)")
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],
        )
        yield found
        found.close()


@pytest.fixture
def visit(browser) -> Iterator[Callable]:
    """Open pages; at the end none may have reported an error."""
    troubles: list[str] = []
    contexts = []

    def open_page(address, **options):
        context = browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | options))
        context.set_default_timeout(60_000)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on(
            "console",
            lambda line: troubles.append(line.text) if line.type in ("error", "warning") else None,
        )
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert troubles == []
