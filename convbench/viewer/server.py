"""The local server: access by token, addresses of the pages, start and end.

Only a browser that has the token and uses this machine's own address is answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import os
import re
import secrets
import signal
import socket
import sys
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from convbench.errors import RunError
from convbench.util.printable import make_printable
from convbench.viewer.follow import GrowingIndex
from convbench.viewer.library import Library
from convbench.viewer.pages import Pages, answer_json, file_in_folder, page_routes

ASSETS = Path(__file__).parent / "assets"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
HOME, CHOSEN = 'data-source="server"', 'data-source="server" data-home="../../"'
PICKER = 'data-source="picker"'
"""Attributes that tell the page what it shows: named runs, selected runs, or the picker."""
LONGEST = 300
"""Largest number of characters of a line about a failed request."""
MOST_PAGES = 16
"""Selections of runs whose pages stay in memory."""


def make_application(
    shown: GrowingIndex | Library, token: str, port: Callable[[], int]
) -> web.Application:
    """Return the web application for an index of runs or a folder of runs. `port` returns the
    server's port, which is not known before it listens."""
    app = web.Application(middlewares=[token_gate(token, port)], client_max_size=1 << 18)
    app.add_routes([web.get("/assets/{name}", _serve_asset)])
    if isinstance(shown, GrowingIndex):
        pages = Pages(shown)
        app.add_routes([web.get("/", _page_handler(HOME)), *page_routes(lambda request: pages)])
    else:
        app.add_routes(_library_routes(shown))
    return app


def _library_routes(library: Library) -> list[web.RouteDef]:
    """Return the routes of a folder of runs: the picker, and below `/open/NAMES/` the pages of a
    selection."""
    pages_by_index: dict[int, Pages] = {}

    def pages_of(request: web.Request) -> Pages:
        growing = library.open_index(request.rel_url.raw_parts[2])
        pages = pages_by_index.get(id(growing))
        if pages is None or pages.growing is not growing:
            pages_by_index.clear() if len(pages_by_index) > MOST_PAGES else None
            pages = pages_by_index[id(growing)] = Pages(growing)
        return pages

    async def list_runs(request: web.Request) -> web.Response:
        return await answer_json(library.run_rows)

    async def count_run(request: web.Request) -> web.Response:
        return await answer_json(lambda: library.run_counts(request.match_info["name"]))

    return [
        web.get("/", _page_handler(PICKER)),
        web.get("/api/runs", list_runs),
        web.get("/api/runs/{name}", count_run),
        web.get("/open/{chosen}/", _page_handler(CHOSEN)),
        web.get("/open/{chosen}/assets/{name}", _serve_asset),
        *page_routes(pages_of, "/open/{chosen}"),
    ]


async def _serve_asset(request: web.Request) -> web.Response:
    """Return one of the page's own files."""
    path = file_in_folder(ASSETS, request.match_info["name"], tuple(TYPES))
    return web.Response(body=path.read_bytes(), headers={"Content-Type": TYPES[path.suffix]})


def _page_handler(where: str) -> Any:
    """Return a handler for the page; `where` is the attribute that tells it what it shows."""

    async def handle_page(request: web.Request) -> web.Response:
        text = (ASSETS / "index.html").read_text().replace(HOME, where)
        return web.Response(text=text, headers={"Content-Type": TYPES[".html"]})

    return handle_page


def open_socket(port: int | None, usual: int = 8642) -> socket.socket:
    """Return a listening socket on 127.0.0.1, on `port`; for None on port `usual`, or a free one if
    that is taken.

    Raise RunError if the port cannot be used.
    """
    tries = [port] if port is not None else [usual, 0]
    for number in tries:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", number))
            sock.listen(128)
        except OSError as error:
            sock.close()
            reason = error.strerror
        else:
            return sock
    raise RunError(f"port {number}: cannot be used ({reason}); name another with --port, or none")


def serve(
    shown: GrowingIndex | Library,
    port: int | None = None,
    ready: Callable[[str], None] = lambda address: None,
    *,
    browser: bool = False,
) -> None:
    """Serve on 127.0.0.1 until interrupted, then close the index.

    `ready` is called with the address, which holds the token; with `browser` it is also opened.
    Raise RunError if the port cannot be used.
    """
    with contextlib.closing(shown), contextlib.suppress(KeyboardInterrupt):
        sock, token = open_socket(port), secrets.token_urlsafe(24)
        number = sock.getsockname()[1]
        address = f"http://127.0.0.1:{number}/?token={token}"
        app = make_application(shown, token, lambda: number)
        asyncio.run(_run_server(app, sock, lambda: ready(address), open_browser(address, browser)))


class _OneLineFormatter(logging.Formatter):
    """Formats an error of a request in one line; a debug log has the traceback."""

    def format(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info else None
        cause = f": {type(error).__name__}: {error}" if error else ""
        return (
            "note: " + make_printable(" ".join(f"{record.getMessage()}{cause}".split()))[:LONGEST]
        )


def _server_logger() -> logging.Logger:
    """Return the logger of the server, which writes to stderr."""
    logger = logging.getLogger("convbench.view")
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(_OneLineFormatter())
        logger.addHandler(handler)
    return logger


async def _run_server(
    app: web.Application,
    sock: socket.socket,
    ready: Callable[[], None],
    browser: AbstractContextManager[None],
) -> None:
    runner = web.AppRunner(app, access_log=None, logger=_server_logger(), shutdown_timeout=1)
    await runner.setup()
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
    try:
        await web.SockSite(runner, sock).start()
        ready()
        with browser:
            await ended.wait()
    finally:
        await runner.cleanup()


PAGE = """<!doctype html>
<meta charset="utf-8"><meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={address}">
<title>convbench</title><p><a href="{address}">convbench view</a></p>
"""


def has_screen() -> bool:
    """Return True on macOS and Windows, elsewhere if DISPLAY or WAYLAND_DISPLAY is set: then a
    graphical browser can open."""
    shown = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return sys.platform in ("darwin", "win32") or bool(shown)


@contextmanager
def open_browser(address: str, requested: bool) -> Iterator[None]:
    """Open an address in the browser on entry, if `requested` and there is a screen; otherwise do
    nothing.

    The browser gets a file that only this user can read and that leads to the address, because
    everybody on the machine can see a program's arguments. It is deleted at the end of the context.
    """
    if not requested or not has_screen():
        yield
        return
    with TemporaryDirectory(prefix="convbench-") as folder:  # made with mode 0700
        page = Path(folder) / "view.html"
        page.write_text(PAGE.format(address=escape(address)))
        webbrowser.open(page.as_uri())
        yield


POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""No inline script or style, nothing from other sites, and no text ever becomes markup."""
HEADERS = {
    "Content-Security-Policy": POLICY + "; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
NAMES = ("127.0.0.1", "localhost")
HERE = re.compile(r"(?i)(127\.0\.0\.1|localhost)(:[0-9]{1,5})?")
"""Host of this machine in a request, with any port: the port may be forwarded."""
REFUSED = (
    "convbench view: open the address that `convbench view` printed when it started; it contains "
    "the access token.\n"
)


def token_gate(token: str, port: Callable[[], int]) -> Middleware:
    """Return a middleware that answers requests without the token with status 403.

    The token comes once in the address of `/`; from then on it is in a cookie that requests of
    other sites do not carry. A foreign Host is refused with 421 (DNS rebinding), a foreign Origin
    with 403.
    """

    @web.middleware
    async def check_request(request: web.Request, handler: Handler) -> web.StreamResponse:
        number, host = port(), request.headers.get("Host", "")
        if not _is_here(request, host):
            return _refusal_response(421, "convbench view: expected the address 127.0.0.1\n")
        origin = request.headers.get("Origin")
        if origin is not None and origin != f"http://{host}":
            return _refusal_response(
                403, "convbench view: a request from another site is refused\n"
            )
        cookie = f"convbench_{number}"
        brought = request.path == "/" and _equals_token(request.query.get("token"), token)
        if not brought and not _equals_token(request.cookies.get(cookie), token):
            return _refusal_response(403, REFUSED)
        try:
            response = await handler(request)
        except web.HTTPException as error:
            response = _refusal_response(error.status, f"{error.reason}\n")
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        if brought:
            response.set_cookie(cookie, token, httponly=True, samesite="Strict", path="/")
        return response

    return check_request


def _is_here(request: web.Request, host: str) -> bool:
    """Return True if a request names this machine, in its Host and in an absolute target."""
    try:
        return HERE.fullmatch(host) is not None and request.url.host in NAMES
    except ValueError:  # a port that is none
        return False


def _equals_token(sent_token: str | None, token: str) -> bool:
    return sent_token is not None and hmac.compare_digest(
        sent_token.encode(errors="replace"), token.encode()
    )


def _refusal_response(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=text, headers=HEADERS)
