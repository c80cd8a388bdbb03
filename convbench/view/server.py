"""The local server: starting, listening, ending, and which pages lie at which address."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import signal
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from aiohttp import web

from convbench.errors import RunError
from convbench.printable import printable
from convbench.view.follow import Growing
from convbench.view.labels import Scoring
from convbench.view.library import Library
from convbench.view.opening import opened
from convbench.view.pages import Pages, answer, inside, routes
from convbench.view.security import gate

ASSETS = Path(__file__).parent / "assets"
TYPES = {
    ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
}  # fmt: skip
HOME, CHOSEN = 'data-source="server"', 'data-source="server" data-home="../../"'
PICKER = 'data-source="picker"'
"""What the page is told of where it stands: over named runs, over chosen ones, or to choose."""
LONGEST = 300
"""Characters of a line about a request that went wrong."""
MADE = 16
"""Choices of runs whose pages are kept."""


def application(
    shown: Growing | Library, scoring: Scoring | None, token: str, port: Callable[[], int]
) -> web.Application:
    """Return the application: the pages of some runs, or a folder of runs to choose from. `port`
    is asked at each request."""
    app = web.Application(middlewares=[gate(token, port)], client_max_size=1 << 18)
    app.add_routes([web.get("/assets/{name}", _asset)])
    if isinstance(shown, Growing):
        pages = Pages(shown, scoring)
        app.add_routes([web.get("/", _page(HOME)), *routes(lambda request: pages)])
    else:
        app.add_routes(_chosen(shown, scoring))
    return app


def _chosen(library: Library, scoring: Scoring | None) -> list[web.RouteDef]:
    """Return the addresses of a folder of runs: the picker, and below `/open/NAMES/` the pages of
    a choice of them."""
    made: dict[int, Pages] = {}

    def of(request: web.Request) -> Pages:
        growing = library.open(request.rel_url.raw_parts[2])
        found = made.get(id(growing))
        if found is None or found.growing is not growing:
            made.clear() if len(made) > MADE else None
            found = made[id(growing)] = Pages(growing, scoring)
        return found

    async def rows(request: web.Request) -> web.Response:
        return await answer(library.listing)

    async def counts(request: web.Request) -> web.Response:
        return await answer(lambda: library.counts(request.match_info["name"]))

    return [
        web.get("/", _page(PICKER)),
        web.get("/api/runs", rows),
        web.get("/api/runs/{name}", counts),
        web.get("/open/{chosen}/", _page(CHOSEN)),
        web.get("/open/{chosen}/assets/{name}", _asset),
        *routes(of, "/open/{chosen}"),
    ]


async def _asset(request: web.Request) -> web.Response:
    """Answer one of the page's own files."""
    path = inside(ASSETS, request.match_info["name"], tuple(TYPES))
    return web.Response(body=path.read_bytes(), headers={"Content-Type": TYPES[path.suffix]})


def _page(where: str) -> Any:
    """Return a handler for the page itself, which is told where it stands."""

    async def handle(request: web.Request) -> web.Response:
        text = (ASSETS / "index.html").read_text().replace(HOME, where)
        return web.Response(text=text, headers={"Content-Type": TYPES[".html"]})

    return handle


def listen(port: int | None, usual: int = 8642) -> socket.socket:
    """Return a socket on 127.0.0.1: on `port`, without one on the usual port or any free one."""
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
    raise RunError(f"port {port}: cannot be used ({reason}); name another with --port, or none")


def serve(
    shown: Growing | Library,
    scoring: Scoring | None,
    port: int | None = None,
    ready: Callable[[str], None] = lambda address: None,
    *,
    browser: bool = False,
) -> None:
    """Serve until interrupted; `ready` gets the address with its token. `browser` opens it."""
    sock, token = listen(port), secrets.token_urlsafe(24)
    number = sock.getsockname()[1]
    address = f"http://127.0.0.1:{number}/?token={token}"
    app = application(shown, scoring, token, lambda: number)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(app, sock, lambda: ready(address), opened(address, browser)))


class _OneLine(logging.Formatter):
    """What went wrong with a request, in one line; a debug log has it whole."""

    def format(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info else None
        said = f": {type(error).__name__}: {error}" if error else ""
        return "note: " + printable(" ".join(f"{record.getMessage()}{said}".split()))[:LONGEST]


def _logger() -> logging.Logger:
    """Return what the server tells its faults, on stderr."""
    logger = logging.getLogger("convbench.view")
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(_OneLine())
        logger.addHandler(handler)
    return logger


async def _serve(
    app: web.Application,
    sock: socket.socket,
    ready: Callable[[], None],
    browser: AbstractContextManager[None],
) -> None:
    runner = web.AppRunner(app, access_log=None, logger=_logger(), shutdown_timeout=1)
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
