"""Who gets in, what every answer carries, and that a slow or silent visitor costs nothing."""

import asyncio
import json
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from conftest import served
from folkman.dash.hub import MOST_WAITING, Hub

TOKEN = "a-token-for-these-tests"  # noqa: S105


class Quiet:
    def state(self):
        return {"kind": "run", "name": "quiet", "slots": 1, "axes": {}, "metrics": {}, "runs": []}

    def poll(self):
        return None


def ask(address, path="/", method="GET", **headers):
    url = urlsplit(address)
    assert url.hostname is not None
    connection = HTTPConnection(url.hostname, url.port or 80, timeout=20)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        body = b"" if "event-stream" in answer.headers.get("content-type", "") else answer.read()
        return answer, body.decode()
    finally:
        connection.close()


@pytest.fixture(scope="module")
def open_page():
    with served(Quiet()) as address:
        yield address


@pytest.fixture(scope="module")
def closed_page():
    with served(Quiet(), TOKEN) as address:
        yield address


@pytest.mark.parametrize(
    "path", ["/", "/static/main.js", "/static/dash.css", "/nothing", "/scene/none", "/events"]
)
def test_every_answer_has_the_strict_headers(open_page, path):
    answer, _ = ask(open_page, path)
    policy = answer.headers["content-security-policy"]

    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"


def test_the_page_names_only_its_own_parts(open_page):
    _, text = ask(open_page)

    assert "http" not in text.replace("http-equiv", "")
    assert "<style" not in text
    assert "style=" not in text


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_on_loopback_another_name_is_not_answered(open_page, host):
    assert ask(open_page, Host=host)[0].status == 421


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_nothing_can_be_changed(open_page, method):
    assert ask(open_page, method=method)[0].status == 405


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/%2e%2e/app.py", "/scene/..%2f..%2fconfig"]
)
def test_no_path_leads_out(open_page, path):
    assert ask(open_page, path)[0].status == 404


@pytest.mark.parametrize(
    "path", ["/", "/events", "/static/main.js", "/?token=wrong", "/events?token=" + TOKEN]
)
def test_without_the_token_nothing_is_shown(closed_page, path):
    answer, text = ask(closed_page, path)

    assert answer.status == 401
    assert "needs its token" in text


def test_the_token_is_traded_for_a_cookie_and_leaves_the_address(closed_page):
    answer, _ = ask(closed_page, f"/?token={TOKEN}")
    cookie = answer.headers["set-cookie"]

    assert (answer.status, answer.headers["location"]) == (303, "/")
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert ask(closed_page, Cookie=cookie.split(";")[0])[0].status == 200
    assert ask(closed_page, Cookie="folkman_dash=wrong")[0].status == 401


def test_who_does_not_listen_is_told_everything_anew_and_memory_stays():
    """A queue never holds more than its bound; after an overflow the next thing told is the whole
    state."""

    class Busy(Quiet):
        count = 0

        def poll(self):  # type: ignore[override]
            self.count += 1
            return {"runs": [], "count": self.count}

    async def stay_away():
        hub = Hub(Busy())
        stream = hub.events()
        first = [await anext(stream), await anext(stream)]
        (queue,) = hub._visitors
        for _ in range(3 * MOST_WAITING + 5):
            text = hub._news()
            assert text is not None
            await hub._publish(text)
            assert queue.qsize() <= MOST_WAITING
        heard = [await anext(stream)]
        await stream.aclose()  # type: ignore[attr-defined]
        return first, heard, hub

    first, heard, hub = asyncio.run(stay_away())

    assert first[1].startswith("event: state")
    assert heard[0].startswith("event: state")
    assert not hub._visitors


def test_trouble_is_told_and_the_watch_goes_on():
    class Damaged(Quiet):
        def poll(self):
            raise ValueError("expected Parquet, x is damaged")

    text = Hub(Damaged())._news()

    assert text is not None
    assert json.loads(text.split("data: ")[1])["trouble"] == "expected Parquet, x is damaged"
