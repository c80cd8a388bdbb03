"""The local server: pages, figures, conversations, scores. One process, one reader."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shlex
import signal
import socket
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from convbench.errors import ConvbenchError, DataError, RunError
from convbench.judge.form import PEOPLE, shown, usual
from convbench.schema import JudgeSpec
from convbench.store import Run
from convbench.view.figures import overview
from convbench.view.filters import listing
from convbench.view.gold import Labelling, routes
from convbench.view.index import Index
from convbench.view.labels import Scoring, labels_file, labels_of, save, scored
from convbench.view.opening import opened
from convbench.view.pictures import FILE, RASTER, raster
from convbench.view.security import gate
from convbench.view.talk import beside, prompts, talk, talks

ASSETS = Path(__file__).parent / "assets"
TYPES = {
    ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
}  # fmt: skip
DRAWING = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
"""Policy of an image file: an SVG opened by itself runs nothing."""
COMPARED = 24
"""Conversations that stand side by side at most."""


class Pages:
    """What the server answers."""

    def __init__(self, index: Index, scoring: Scoring | None) -> None:
        self.index, self.scoring = index, scoring
        self.labelling = Labelling(index)
        self._overview: dict[str, Any] | None = None

    def routes(self) -> list[web.RouteDef]:
        """Return the addresses and what answers them."""
        return [
            web.get("/", self.asset),
            web.get("/assets/{name}", self.asset),
            web.get("/media/{run}/{name}", self.file("media", RASTER)),
            web.get("/reports/{run}/{name}", self.file("reports", (*RASTER, ".svg"))),
            web.get("/api/overview", self.json(self.overview)),
            web.get("/api/list", self.json(lambda r: listing(self.index, r.query))),
            web.get("/api/talk/{id}", self.json(self.talk)),
            web.get("/api/prompts/{id}", self.json(lambda r: prompts(self.index, _id(r)))),
            web.get("/api/compare/{id}", self.json(self.compare)),
            web.get("/api/agreement/{run}", self.json(self.agreement)),
            web.post("/api/score", self.score),
            *routes(self.labelling, self.json, self.posted),
        ]

    def json(self, work: Callable[[web.Request], Any]) -> Any:
        """Return a handler that does the work in a thread and answers in JSON."""

        async def handle(request: web.Request) -> web.Response:
            return await answer(lambda: work(request))

        return handle

    async def asset(self, request: web.Request) -> web.StreamResponse:
        """Answer one of the page's own files."""
        path = inside(ASSETS, request.match_info.get("name", "index.html"), tuple(TYPES))
        return web.Response(body=path.read_bytes(), headers={"Content-Type": TYPES[path.suffix]})

    def file(self, folder: str, endings: Collection[str]) -> Any:
        """Return a handler for the images in a folder of a run: pixels, and of a report drawings;
        what they are is told by their content."""

        async def handle(request: web.Request) -> web.StreamResponse:
            path = inside(self.run(request).path / folder, request.match_info["name"], endings)
            kind = TYPES[".svg"] if path.suffix == ".svg" else raster(path)
            if kind is None:
                raise web.HTTPNotFound
            headers = {"Content-Type": kind, "Content-Security-Policy": DRAWING}
            return web.FileResponse(path, headers=headers)

        return handle

    def run(self, request: web.Request) -> Any:
        """Return the run whose number stands in the address."""
        number = request.match_info["run"]
        if not (number.isascii() and number.isdigit()) or int(number) >= len(self.index.runs):
            raise web.HTTPNotFound
        return self.index.runs[int(number)]

    def overview(self, request: web.Request) -> dict[str, Any]:
        """Return the figures, made once, with what changes beside them."""
        if self._overview is None:
            self._overview = overview(self.index)
        labels = [scored(run) for run in self.index.runs]
        rubrics = [shown(self.scoring.spec(run)) for run in self.index.runs] if self.scoring else []
        return {**self._overview, "rubrics": rubrics, "labels": labels, "stale": self.index.stale,
                "gold": self.labelling.drawn}  # fmt: skip

    def talk(self, request: web.Request) -> dict[str, Any]:
        """Return a conversation, with the labels people gave it."""
        return self._labelled(talk(self.index, _id(request)))

    def _labelled(self, found: dict[str, Any]) -> dict[str, Any]:
        run = self.index.runs[found["row"]["run_no"]]
        return {**found, "labels": labels_of(run, found["row"]["conversation_id"])}

    def compare(self, request: web.Request) -> list[dict[str, Any]]:
        """Return the conversations named in `with`, or those about the same question."""
        question = talks(self.index, [_id(request)])[0]["row"]["q"]
        about = [row["conversation_id"] for row in beside(self.index, question)]
        wanted = [name for name in request.query.getall("with", []) if name in about] or about
        return [self._labelled(found) for found in talks(self.index, wanted[:COMPARED])]

    def agreement(self, request: web.Request) -> dict[str, Any]:
        """Return how people's labels and each judge agree."""
        run = self.run(request)
        spec, file = self._labels(run)
        if self.scoring is None or not file.exists() or not file.stat().st_size:
            return {"labels": 0}
        judge = f"human:{file}" if spec.name == PEOPLE else f"{spec.name}@human:{file}"
        command = ["convbench", "judge", "--judge", judge, "--run", str(run.path)]
        return {"labels": scored(run), "judges": self.scoring.agreement(run, file, spec),
                "metric": spec.labels.get(spec.headline, spec.headline),
                "file": str(file), "command": shlex.join(command)}  # fmt: skip

    def _labels(self, run: Run) -> tuple[JudgeSpec, Path]:
        """Return the rubric of a run's labels and their file; labels that were given before the
        run had a rubric of its own stay readable by the usual one."""
        spec = self.scoring.spec(run) if self.scoring else usual()
        file = labels_file(run, spec.name)
        if file.exists() or not labels_file(run).exists():
            return spec, file
        return usual(), labels_file(run)

    def posted(self, work: Callable[[Any], Any]) -> Any:
        """Return a handler that does the work, in a thread, with the JSON that is sent."""

        async def handle(request: web.Request) -> web.Response:
            if request.content_type != "application/json":
                raise web.HTTPUnsupportedMediaType
            body = await request.read()

            def read() -> Any:
                try:
                    return work(orjson.loads(body))
                except orjson.JSONDecodeError:
                    raise DataError("expected JSON") from None

            return await answer(read)

        return handle

    async def score(self, request: web.Request) -> web.Response:
        """Keep a label."""
        if request.content_type != "application/json":
            raise web.HTTPUnsupportedMediaType
        body = await request.read()
        return await answer(lambda: self._score(body))

    def _score(self, body: bytes) -> dict[str, Any]:
        if self.scoring is None:
            raise DataError("scoring is not set up here")
        try:
            label = orjson.loads(body)
            name = label["conversation_id"]
        except (orjson.JSONDecodeError, KeyError, TypeError):
            raise DataError("expected a JSON object with conversation_id, rater, scores") from None
        run, conversation, _ = self.index.conversation(str(name))
        if conversation.failure is not None:
            raise DataError(f"{name} failed; only whole conversations are scored")
        return save(run, self.scoring.spec(run), label)


def inside(folder: Path, name: str, endings: Collection[str]) -> Path:
    """Return a file of this very folder, or 404: the name comes decoded, `../` and all."""
    path = folder / name
    good = FILE.fullmatch(name) and path.suffix in endings and path.is_file()
    if not good or path.resolve().parent != folder.resolve():
        raise web.HTTPNotFound
    return path


async def answer(work: Callable[[], Any]) -> web.Response:
    """Do the work in a thread; a user's mistake is an answer of one line."""
    try:
        found, status = await asyncio.to_thread(work), 200
    except ConvbenchError as error:
        found = {"error": " ".join(str(error).split())}
        status = 404 if isinstance(error, RunError) else 400
    body = orjson.dumps(found, option=orjson.OPT_NON_STR_KEYS, default=str)
    return web.Response(body=body, status=status, content_type="application/json")


def _id(request: web.Request) -> str:
    return request.match_info["id"]


def application(
    index: Index, scoring: Scoring | None, token: str, port: Callable[[], int]
) -> web.Application:
    """Return the application; `port` is asked at each request."""
    app = web.Application(middlewares=[gate(token, port)], client_max_size=1 << 18)
    app.add_routes(Pages(index, scoring).routes())
    return app


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
    index: Index,
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
    app = application(index, scoring, token, lambda: number)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(app, sock, lambda: ready(address), opened(address, browser)))


async def _serve(
    app: web.Application,
    sock: socket.socket,
    ready: Callable[[], None],
    browser: AbstractContextManager[None],
) -> None:
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
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
