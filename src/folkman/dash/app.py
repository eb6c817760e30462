"""The web application: one page, its parts, a stream of events, and the scenes of runs.

Everything is read-only.
"""

import hmac
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import resources
from pathlib import Path

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.middleware import Middleware
from starlette.requests import Request, cookie_parser
from starlette.responses import (
    FileResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from folkman.dash.hub import Hub, Source
from folkman.machine import is_loopback

__all__ = ["make_app"]

STATIC = Path(str(resources.files("folkman.dash"))) / "static"
COOKIE = "folkman_dash"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cache-control": "no-store",
}


def make_app(source: Source, *, token: str | None = None) -> Starlette:
    """Return the application for a source; with a token, only for who brings it."""
    hub = Hub(source)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with hub.running():
            yield

    async def page(_: Request) -> Response:
        return FileResponse(STATIC / "index.html")

    async def events(_: Request) -> Response:
        if hub.is_full:
            return PlainTextResponse("too many visitors; close another page", status_code=503)
        return StreamingResponse(hub.events(), media_type="text/event-stream")

    async def scene(request: Request) -> Response:
        look = getattr(source, "scene", None)
        found = await run_in_threadpool(look, request.path_params["run"]) if look else None
        if found is None:
            return PlainTextResponse("this run has kept no scene", status_code=404)
        text = json.dumps(found, allow_nan=False, separators=(",", ":"))
        return Response(text, media_type="application/json")

    routes = [
        Route("/", page),
        Route("/events", events),
        Route("/scene/{run}", scene),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    app = Starlette(routes=routes, lifespan=lifespan, middleware=[Middleware(Guard, token=token)])
    app.state.hub = hub
    return app


class Guard:
    """Lets in who may come, and gives every answer the same strict headers.

    Without a token the page listens on loopback; then only requests that name this machine are
    answered, so that no web page elsewhere can make its visitor's browser read it under a name of
    its own.
    """

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self.app, self.token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        answer = self.app if (refused := self._refusal(scope)) is None else refused
        await answer(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        """Return what to say instead of the page; None to let the request through."""
        headers = Headers(scope=scope)
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("this page is only to be read", status_code=405)
        if self.token is None:
            name = re.sub(r":\d+$", "", headers.get("host", "")).strip("[]")
            if is_loopback(name):
                return None
            return PlainTextResponse("this page answers to its own address only", status_code=421)
        given = QueryParams(scope["query_string"]).get("token")
        if given is not None and scope["path"] == "/" and self._is_token(given):
            answer = RedirectResponse("/", status_code=303)
            answer.set_cookie(COOKIE, given, httponly=True, samesite="strict")
            return answer
        if self._is_token(cookie_parser(headers.get("cookie", "")).get(COOKIE, "")):
            return None
        text = "this page needs its token: open the address that `folkman dash` printed"
        return PlainTextResponse(text, status_code=401)

    def _is_token(self, given: str) -> bool:
        return self.token is not None and hmac.compare_digest(given.encode(), self.token.encode())
