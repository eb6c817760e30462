"""Serving the live page: on loopback to this machine alone, elsewhere only with a token."""

import secrets
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from threading import current_thread, main_thread
from types import FrameType
from typing import TYPE_CHECKING

from folkman.checks import require
from folkman.machine import is_loopback
from folkman.record.json_file import Json

if TYPE_CHECKING:
    from folkman.dash.hub import Source

__all__ = ["check_page", "checked_token", "make_source", "serve"]

LEAST_TOKEN = 16
SEND_BYTES = 128 * 1024
"""Kept small: a visitor who stalls is told everything anew, rather than a minute of old news when
he wakes."""


def serve(
    folders: Sequence[Path],
    *,
    cluster: bool,
    host: str,
    port: int,
    token: str | None,
    open_page: bool = False,
) -> None:
    """Serve the page of a folder, or of two side by side, until interrupted."""
    require(len(folders) > 0, "expected a folder to watch")
    check_page(host, port, token)
    token = checked_token(host, token)
    source = make_source(*folders, cluster=cluster)
    import uvicorn

    from folkman.dash.app import make_app

    listener = _listen(host, port)
    address = f"http://{_written(host)}:{listener.getsockname()[1]}/"
    address += f"?token={token}" if token else ""
    print(f"watching  {' and '.join(map(str, folders))}\nopen      {address}", flush=True)
    if token:
        print(_warning(host), file=sys.stderr, flush=True)
    if open_page:
        import webbrowser

        webbrowser.open(address)
    app = make_app(source, token=token)
    options: Json = {"log_level": "warning", "lifespan": "on", "timeout_graceful_shutdown": 1}

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            app.state.hub.close()  # or the visits would be waited for
            super().handle_exit(sig, frame)

    server = Server(uvicorn.Config(app, server_header=False, access_log=False, **options))
    if current_thread() is main_thread():  # Ctrl-C before the server listens to signals itself
        signal.signal(signal.SIGINT, server.handle_exit)
    with suppress(KeyboardInterrupt):
        server.run(sockets=[listener])


MOST_FOLDERS = 2
"""Folders on one page, at most."""


def make_source(*folders: Path, cluster: bool) -> "Source":
    """Return what tells of a folder: a run, a sweep or a cluster; or of two runs or two sweeps."""
    if cluster:
        from folkman.dash.cluster import ClusterSource

        return ClusterSource(folders[0])
    from folkman.record.sweep import is_sweep

    require(
        len(folders) <= MOST_FOLDERS,
        f"a page shows one folder, or two side by side, got {len(folders)}; give two",
    )
    sweeps = [is_sweep(folder) for folder in folders]
    if len(folders) == 1:
        return _alone(folders[0], sweep=sweeps[0])
    require(len(set(sweeps)) == 1, "expected two runs or two sweeps, got one of each; give a pair")
    unlike = len({folder.resolve() for folder in folders}) == len(folders)
    require(unlike, "each folder can be given once; one came twice")
    from folkman.dash.pair import RunPair, SweepPair

    return SweepPair(folders) if sweeps[0] else RunPair(folders)


def _alone(folder: Path, *, sweep: bool) -> "Source":
    if sweep:
        from folkman.dash.sweep import SweepSource

        return SweepSource(folder)
    from folkman.dash.run import RunSource

    return RunSource(folder)


def check_page(host: str, port: int, token: str | None) -> None:
    """Refuse what would keep the page from being served, before a folder is waited for."""
    checked_token(host, token)
    require(0 <= port < 2**16, f"a port lies in 0 .. 65535, got {port}; 0 takes a free one")
    for package in ("starlette", "uvicorn"):
        require(
            find_spec(package) is not None,
            f"expected the packages of the live page, {package} is missing; pip install "
            "'folkman[dash]'",
        )


def checked_token(host: str, token: str | None) -> str | None:
    """Return the token to ask for; refuse to listen beyond loopback without one."""
    if token == "new":  # noqa: S105 - a word of the command line, not a token
        return secrets.token_urlsafe(24)
    if token is not None:
        signs = token.isascii() and token.replace("-", "").replace("_", "").isalnum()
        wanted = f"a token has at least {LEAST_TOKEN} letters, digits, - and _"
        require(signs and len(token) >= LEAST_TOKEN, f"{wanted}; '--token new' draws one")
        return token
    require(
        is_loopback(host),
        f"'{host}' can be reached from other machines, so visitors must bring a token; add "
        "--token new, or stay on 127.0.0.1 and come through ssh -L",
    )
    return None


def _warning(host: str) -> str:
    if is_loopback(host):
        return "note: visitors need the token above"
    return (
        "note: visitors need the token above; "
        "it travels unencrypted, so use this on a network you trust"
    )


def _written(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
        listener.bind(address)
        listener.listen()  # before anybody is told the address
    except OSError as error:
        raise ValueError(
            f"could not listen on {host} port {port}: {error.strerror}; choose another --port, or "
            "0 for a free one"
        ) from None
    return listener
