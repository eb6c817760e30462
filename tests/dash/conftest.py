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


@pytest.fixture(scope="session")
def browser():
    """Start Chromium; a machine without one says how to get it."""
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
