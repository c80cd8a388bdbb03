"""A viewer that listens while a test asks, and a browser that looks at it."""

from __future__ import annotations

import asyncio
import http.client
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from convbench.viewer.library import library_or_index
from convbench.viewer.server import make_application, open_socket

TOKEN = "k" * 32
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip
BROWSERS = ("chromium", "google-chrome", "chromium-browser")


@dataclass(frozen=True)
class Viewer:
    """A running viewer."""

    port: int

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def page(self, at: str = "") -> str:
        """The address of a page, with the token."""
        return f"{self.address}/?token={TOKEN}{at}"

    def ask(
        self,
        path: str,
        method: str = "GET",
        body: Any = None,
        *,
        cookie: bool = True,
        **headers: str,
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """Ask by hand, with any headers."""
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if cookie:
            sent.setdefault("Cookie", f"convbench_{self.port}={TOKEN}")
        data = body if isinstance(body, bytes | None) else orjson.dumps(body)
        line.request(method, path, data, sent)
        response = line.getresponse()
        return response, response.read()

    def json(self, path: str, method: str = "GET", body: Any = None, **headers: str) -> Any:
        """Ask for JSON."""
        if body is not None:
            headers.setdefault("Content_Type", "application/json")
        return orjson.loads(self.ask(path, method, body, **headers)[1])


@contextmanager
def running(app: Callable[[int], web.Application]) -> Iterator[int]:
    """Run an application on a free port in a thread; yield the port."""
    sock, loop = open_socket(0), asyncio.new_event_loop()
    runner: Any = None

    async def start() -> None:
        nonlocal runner
        runner = web.AppRunner(app(sock.getsockname()[1]))
        await runner.setup()
        await web.SockSite(runner, sock).start()

    # All of it in a thread: the browser's driver holds a loop in this one.
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(start(), loop).result(60)
        yield int(sock.getsockname()[1])
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextmanager
def viewing(*paths: Path) -> Iterator[Viewer]:
    """Run a viewer over runs, or over a folder of runs."""
    found = library_or_index(paths, lambda text: None)
    try:
        with running(lambda port: make_application(found, TOKEN, lambda: port)) as port:
            yield Viewer(port)
    finally:
        found.close()


@contextmanager
def browser() -> Iterator[Any]:
    """Run a headless browser; skips where there is none."""
    api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip("no browser here; type: sudo apt-get install chromium")
    with api.sync_playwright() as play:
        found = play.chromium.launch(executable_path=program, args=FLAGS)
        yield found
        found.close()


class Looked:
    """A page, and what went wrong while it was open."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.troubles: list[str] = []
        self.asked: list[str] = []
        page.on("pageerror", lambda error: self.troubles.append(str(error)))
        page.on("console", self._console)
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("dialog", lambda dialog: self.troubles.append("a dialog: " + dialog.message))

    def _console(self, message: Any) -> None:
        # A page that is still open asks for news of a viewer that has ended; a browser asks for an
        # icon of its own accord, whenever it likes.
        url = message.location.get("url", "")
        if message.type == "error" and not url.endswith(("/api/pulse", "/favicon.ico")):
            self.troubles.append(message.text)

    def open(self, address: str) -> Any:
        """Go to an address and wait until it is drawn."""
        self.page.goto(address)
        return self.drawn()

    def drawn(self) -> Any:
        """Wait until the page is drawn."""
        self.page.locator("main:not([aria-busy])").wait_for(timeout=60_000)
        return self.page
