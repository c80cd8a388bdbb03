"""Run an aiohttp server in a background thread, or as a process that ends with its parent."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Self

from aiohttp import web

ROOT = Path(__file__).resolve().parents[2]
SHUTDOWN_S = 0.2
"""How long a stopping server waits for calls in flight before it cancels them."""


class LocalServer:
    """An HTTP server on 127.0.0.1 with an event loop and a thread of its own.

    Subclasses answer requests in `handle`. A handler is cancelled when its client leaves.
    """

    def __init__(self, *, port: int = 0) -> None:
        self.port = port
        self.url = ""
        self._thread: threading.Thread | None = None
        self._stop: Callable[[], object] = lambda: None
        self._failure: BaseException | None = None
        self._stopping = threading.Lock()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        raise NotImplementedError

    async def background(self) -> None:
        """Work beside the requests; cancelled when the server stops."""

    def start(self) -> Self:
        """Listen; returns when the server accepts connections. Raises OSError on a taken port."""
        ready = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(ready,), daemon=True, name=type(self).__name__
        )
        self._thread.start()
        ready.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        return self

    def stop(self) -> None:
        """Stop listening, cancel what is in flight, join the thread. Harmless when stopped, and
        from two threads at once."""
        with self._stopping:
            if self._thread is not None and self._thread.is_alive():
                self._stop()
                self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self, ready: threading.Event) -> None:
        try:
            asyncio.run(self._serve(ready))
        except OSError as error:
            self._failure = error
        finally:
            ready.set()

    async def _serve(self, ready: threading.Event) -> None:
        loop, stopping = asyncio.get_running_loop(), asyncio.Event()
        self._stop = lambda: loop.call_soon_threadsafe(stopping.set)
        server = web.Server(self.handle, handler_cancellation=True, access_log=None)
        runner = web.ServerRunner(server, shutdown_timeout=SHUTDOWN_S)
        await runner.setup()
        background = asyncio.ensure_future(self.background())
        try:
            await web.TCPSite(runner, "127.0.0.1", self.port, backlog=1024).start()
            self.port = runner.addresses[0][1]
            self.url = f"http://127.0.0.1:{self.port}"
            ready.set()
            await stopping.wait()
        finally:
            await runner.cleanup()
            background.cancel()
            await asyncio.gather(background, return_exceptions=True)


def json_reply(
    value: object, status: int = 200, headers: dict[str, str] | None = None
) -> web.Response:
    """`value` as a JSON response."""
    body = json.dumps(value, ensure_ascii=False).encode()
    return web.Response(body=body, status=status, headers=headers, content_type="application/json")


def drop(request: web.BaseRequest) -> web.Response:
    """Reset the connection (RST, not an orderly close); the returned response is never sent."""
    transport = request.transport
    if transport is not None:
        raw = transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
    return web.Response()


@contextmanager
def port_of_ours() -> Iterator[int]:
    """Yield a port that a server of the test may take, leave and take again: no other process gets
    it in between, and who connects meanwhile is refused."""
    with socket.socket() as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def add_process_options(parser: argparse.ArgumentParser) -> None:
    """The options that every server's command has."""
    parser.add_argument("--port", type=int, default=0, help="0 takes a free port")
    parser.add_argument("--max-seconds", type=float, default=3600.0, help="ends after this long")
    parser.add_argument(
        "--ignore-stdin",
        action="store_true",
        help="do not end when stdin closes (for `command &` in a script, where stdin is empty)",
    )


def run_process(server: LocalServer, options: argparse.Namespace) -> None:
    """Serve, print the URL as the one line of stdout; end with stdin, a signal or the time."""
    done = threading.Event()

    def finish(_signal: int, _frame: FrameType | None) -> None:
        done.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, finish)
    with server:
        print(server.url, flush=True)
        if not options.ignore_stdin:
            threading.Thread(target=_wait_for_eof, args=(done,), daemon=True).start()
        done.wait(options.max_seconds)


def _wait_for_eof(done: threading.Event) -> None:
    while os.read(0, 65536):
        pass
    done.set()


@contextmanager
def spawn(name: str, *arguments: str, **popen: Any) -> Iterator[str]:
    """Run `python -m tests.support.NAME` as a process; gives its URL, ends it on the way out.

    The process also ends when this one dies, because its stdin closes.
    """
    command = [sys.executable, "-m", f"tests.support.{name}", *arguments]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **popen
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        url = process.stdout.readline().strip()
        if not url.startswith("http"):
            raise RuntimeError(f"{name} did not start: exit code {process.wait(60)}")
        yield url
    finally:
        process.stdin.close()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
