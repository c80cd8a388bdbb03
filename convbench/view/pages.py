"""Answer the requests about one selection of runs: figures, conversations, scores."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from convbench.errors import ConvbenchError, DataError, RunError
from convbench.judge.scoring_form import PEOPLE, rubric_of, shown, usual
from convbench.sandbox.browser import shoot
from convbench.schema import JudgeSpec
from convbench.store import Run
from convbench.view.figures import FILE, RASTER, overview, raster, versus
from convbench.view.filters import following, listing
from convbench.view.follow import Growing, pulse
from convbench.view.index import Index
from convbench.view.labels import (
    Labelling,
    agreement,
    labels_file,
    labels_of,
    save,
    scored,
)
from convbench.view.talk import beside, calls, page_of, prompts, talk, talks, whole

DRAWING = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
"""Content-Security-Policy of an image: an SVG that is opened directly runs nothing."""
SHOTS = 64
"""Pictures of pages that stay in memory."""
COMPARED = 24
"""Largest number of conversations that are compared side by side."""


SVG = "image/svg+xml"


class Pages:
    """The answers about one index of runs, with what is computed once a version."""

    def __init__(self, growing: Growing) -> None:
        self.growing = growing
        self._labelling: Labelling | None = None
        self._shots: dict[str, bytes] = {}
        # Made before the first page asks: of a million rows it takes seconds.
        self._overview = (growing.version, overview(growing.index))
        self._versus: dict[tuple[int, str | None], dict[str, Any]] = {}
        self._agreed: dict[Path, tuple[Any, list[dict[str, Any]]]] = {}
        """Agreement by file of labels, with version, rubric and time of the file."""

    @property
    def index(self) -> Index:
        """Return the current index."""
        return self.growing.index

    @property
    def labelling(self) -> Labelling:
        """Return the label queues of the runs in the current index."""
        if self._labelling is None or self._labelling.index is not self.index:
            self._labelling = Labelling(self.index)
        return self._labelling

    def file(self, folder: str, endings: Collection[str], request: web.Request) -> web.FileResponse:
        """Return an image in a folder of a run. Its type is taken from its content; SVG is allowed
        by `endings` only. Raises HTTPNotFound for any other file."""
        path = inside(self.run(request).path / folder, request.match_info["name"], endings)
        kind = SVG if path.suffix == ".svg" else raster(path)
        if kind is None:
            raise web.HTTPNotFound
        headers = {"Content-Type": kind, "Content-Security-Policy": DRAWING}
        return web.FileResponse(path, headers=headers)

    async def picture(self, request: web.Request) -> web.Response:
        """Return a PNG of a page that a model wrote, or of a reference, rendered in the sandbox's
        browser without network."""
        html = await asyncio.to_thread(
            lambda: page_of(self.index, _id(request), request.match_info["place"])
        )
        if html not in self._shots:
            while len(self._shots) >= SHOTS:
                self._shots.pop(next(iter(self._shots)))
            self._shots[html] = (await shoot(html)).png
        headers = {"Content-Type": "image/png", "Content-Security-Policy": DRAWING}
        return web.Response(body=self._shots[html], headers=headers)

    def run(self, request: web.Request) -> Any:
        """Return the run whose number is in the address. Raises HTTPNotFound if there is none."""
        number = request.match_info["run"]
        if not (number.isascii() and number.isdigit()) or int(number) >= len(self.index.runs):
            raise web.HTTPNotFound
        return self.index.runs[int(number)]

    def overview(self, request: web.Request) -> dict[str, Any]:
        """Return the figures, computed once a version, with the current counts of labels."""
        version = self.growing.version
        if self._overview[0] != version:
            self._overview = (version, overview(self.index))
        labels = [scored(run) for run in self.index.runs]
        rubrics = [shown(rubric_of(run)) for run in self.index.runs]
        return {
            **self._overview[1],
            "rubrics": rubrics,
            "labels": labels,
            "version": version,
            "gold": self.labelling.drawn,
        }

    def versus(self, request: web.Request) -> dict[str, Any]:
        """Return the comparison of every run with its Base, or with the run named by `base`."""
        key = (self.growing.version, request.query.get("base"))
        if key not in self._versus:
            found = versus(self.index, key[1])
            self._versus = {k: v for k, v in self._versus.items() if k[0] == key[0]} | {key: found}
        return self._versus[key]

    def talk(self, request: web.Request) -> dict[str, Any]:
        """Return a conversation with its labels."""
        return self._labelled(talk(self.index, _id(request)))

    def _labelled(self, found: dict[str, Any]) -> dict[str, Any]:
        run = self.index.runs[found["row"]["run_no"]]
        return {**found, "labels": labels_of(run, found["row"]["conversation_id"])}

    def compare(self, request: web.Request) -> list[dict[str, Any]]:
        """Return the conversations named by `with`, or all about the same question."""
        question = talks(self.index, [_id(request)])[0]["row"]["q"]
        about = [row["conversation_id"] for row in beside(self.index, question)]
        wanted = [name for name in request.query.getall("with", []) if name in about] or about
        return [self._labelled(found) for found in talks(self.index, wanted[:COMPARED])]

    def agreement(self, request: web.Request) -> dict[str, Any]:
        """Return the agreement of each judge with the labels of people."""
        run = self.run(request)
        spec, file = self._labels(run)
        if not file.exists() or not file.stat().st_size:
            return {"labels": 0}
        judge = f"human:{file}" if spec.name == PEOPLE else f"{spec.name}@human:{file}"
        command = ["convbench", "judge", "--judge", judge, "--run", str(run.path)]
        now = self.growing.version, spec, file.stat().st_mtime_ns
        if file not in self._agreed or self._agreed[file][0] != now:
            self._agreed[file] = now, agreement(run, file, spec)
        return {
            "labels": scored(run),
            "judges": self._agreed[file][1],
            "metric": spec.labels.get(spec.headline, spec.headline),
            "file": str(file),
            "command": shlex.join(command),
        }

    def _labels(self, run: Run) -> tuple[JudgeSpec, Path]:
        """Return the rubric of a run's labels and their file. Labels from before the run had a
        rubric of its own are read by the usual one."""
        spec = rubric_of(run)
        file = labels_file(run, spec.name)
        if file.exists() or not labels_file(run).exists():
            return spec, file
        return usual(), labels_file(run)

    def score(self, label: Any) -> dict[str, Any]:
        """Store a label and return its row. Raises DataError for one that cannot be stored."""
        try:
            name = label["conversation_id"]
        except (KeyError, TypeError):
            raise DataError("expected a JSON object with conversation_id, rater, scores") from None
        run, conversation, _ = self.index.conversation(str(name))
        if conversation.failure is not None:
            raise DataError(f"{name} failed; only whole conversations are scored")
        return save(run, rubric_of(run), label)


def inside(folder: Path, name: str, endings: Collection[str]) -> Path:
    """Return a file directly in this folder. Raises HTTPNotFound for any other name: it comes
    decoded from the address and may contain `../`."""
    path = folder / name
    good = FILE.fullmatch(name) and path.suffix in endings and path.is_file()
    if not good or path.resolve().parent != folder.resolve():
        raise web.HTTPNotFound
    return path


Work = Callable[[Pages, web.Request], Any]
READ: dict[str, Work] = {
    "overview": Pages.overview,
    "versus": Pages.versus,
    "pulse": lambda pages, _: pulse(pages.growing),
    "list": lambda pages, request: listing(pages.index, request.query),
    "facets": lambda pages, request: following(pages.index, request.query),
    "talk/{id}": Pages.talk,
    "prompts/{id}": lambda pages, request: prompts(pages.index, _id(request)),
    "messages/{id}": lambda pages, request: whole(pages.index, _id(request)),
    "calls/{id}": lambda pages, request: calls(pages.index, _id(request)),
    "compare/{id}": Pages.compare,
    "agreement/{run}": Pages.agreement,
    "gold": lambda pages, request: pages.labelling.next(request),
}
"""GET requests below `/api/`, answered in JSON."""
KEPT: dict[str, Callable[[Pages, Any], Any]] = {
    "score": Pages.score,
    "gold": lambda pages, said: pages.labelling.keep(said),
}
"""POST requests below `/api/`, whose JSON body is stored."""
IMAGES = {"media": RASTER, "reports": (*RASTER, ".svg")}
"""Folders of a run from which images are served, with the suffixes that are allowed."""


def routes(of: Callable[[web.Request], Pages], prefix: str = "") -> list[web.RouteDef]:
    """Return the routes of the pages. `pages_of` returns the pages for a request; it is called in a
    thread."""

    def read(work: Work) -> Any:
        async def handle(request: web.Request) -> web.Response:
            return await answer(lambda: work(of(request), request))

        return handle

    def kept(work: Callable[[Pages, Any], Any]) -> Any:
        async def handle(request: web.Request) -> web.Response:
            if request.content_type != "application/json":
                raise web.HTTPUnsupportedMediaType
            body = await request.read()

            def save() -> Any:
                try:
                    return work(of(request), orjson.loads(body))
                except orjson.JSONDecodeError:
                    raise DataError("expected JSON") from None

            return await answer(save)

        return handle

    def image(folder: str, endings: Collection[str]) -> Any:
        async def handle(request: web.Request) -> web.StreamResponse:
            return await asyncio.to_thread(lambda: of(request).file(folder, endings, request))

        return handle

    async def picture(request: web.Request) -> web.Response:
        try:
            return await (await asyncio.to_thread(of, request)).picture(request)
        except ConvbenchError as error:
            return web.Response(status=404, text=" ".join(str(error).split()))

    return [
        web.get(f"{prefix}/pages/{{id}}/{{place}}", picture),
        *(web.get(f"{prefix}/api/{path}", read(work)) for path, work in READ.items()),
        *(web.post(f"{prefix}/api/{path}", kept(work)) for path, work in KEPT.items()),
        *(
            web.get(f"{prefix}/{folder}/{{run}}/{{name}}", image(folder, endings))
            for folder, endings in IMAGES.items()
        ),
    ]


async def answer(work: Callable[[], Any]) -> web.Response:
    """Return the result of `work`, run in a thread, as JSON; a ConvbenchError becomes an answer of
    one line with status 404 or 400."""
    try:
        found, status = await asyncio.to_thread(work), 200
    except ConvbenchError as error:
        found = {"error": " ".join(str(error).split())}
        status = 404 if isinstance(error, RunError) else 400
    body = orjson.dumps(found, option=orjson.OPT_NON_STR_KEYS, default=str)
    return web.Response(body=body, status=status, content_type="application/json")


def _id(request: web.Request) -> str:
    return request.match_info["id"]
