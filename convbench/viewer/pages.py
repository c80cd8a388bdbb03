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
from convbench.judges.scoring_form import PEOPLE, default_rubric, form_fields, form_rubric
from convbench.sandbox.browser import shoot
from convbench.schema import JudgeSpec
from convbench.store import Run
from convbench.viewer.figures import FILE, RASTER, base_comparisons, overview_figures, raster_type
from convbench.viewer.filters import facet_counts, list_page
from convbench.viewer.follow import GrowingIndex, run_status
from convbench.viewer.index import ViewIndex
from convbench.viewer.labels import (
    LabelQueues,
    count_labels,
    label_agreement,
    labels_file,
    labels_of,
    save_label,
)
from convbench.viewer.talk import (
    chat_messages,
    page_html,
    sibling_rows,
    talk_json,
    talks_json,
    turn_calls,
    turn_prompts,
)

DRAWING = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
"""Content-Security-Policy of an image: an SVG that is opened directly runs nothing."""
SHOTS = 64
"""Pictures of pages that stay in memory."""
COMPARED = 24
"""Largest number of conversations that are compared side by side."""


SVG = "image/svg+xml"


class Pages:
    """The answers about one index of runs, with what is computed once a version."""

    def __init__(self, growing: GrowingIndex) -> None:
        self.growing = growing
        self._label_queues: LabelQueues | None = None
        self._shots: dict[str, bytes] = {}
        # Made before the first page asks: of a million rows it takes seconds.
        self._overview = (growing.version, overview_figures(growing.index))
        self._versus: dict[tuple[int, str | None], dict[str, Any]] = {}
        self._agreed: dict[Path, tuple[Any, list[dict[str, Any]]]] = {}
        """Agreement by file of labels, with version, rubric and time of the file."""

    @property
    def index(self) -> ViewIndex:
        """Return the current index."""
        return self.growing.index

    @property
    def label_queues(self) -> LabelQueues:
        """Return the label queues of the runs in the current index."""
        if self._label_queues is None or self._label_queues.index is not self.index:
            self._label_queues = LabelQueues(self.index)
        return self._label_queues

    def image_response(
        self, folder: str, endings: Collection[str], request: web.Request
    ) -> web.FileResponse:
        """Return an image in a folder of a run, with its media type.

        A file with suffix `.svg`, allowed only if `endings` has it, is sent as SVG whatever it
        holds; the type of any other is by its content. Raise HTTPNotFound for any other file, one
        whose content is no PNG, JPEG, GIF or WebP, one of more than 32 MiB that is no SVG, or an
        unknown run.
        """
        path = file_in_folder(
            self.requested_run(request).path / folder, request.match_info["name"], endings
        )
        kind = SVG if path.suffix == ".svg" else raster_type(path)
        if kind is None:
            raise web.HTTPNotFound
        headers = {"Content-Type": kind, "Content-Security-Policy": DRAWING}
        return web.FileResponse(path, headers=headers)

    async def picture_response(self, request: web.Request) -> web.Response:
        """Return a PNG of a page that a model wrote, or of a reference, rendered in the sandbox's
        browser without network.

        The newest 64 are kept. Raise RunError for an unknown conversation or page.
        """
        html = await asyncio.to_thread(
            lambda: page_html(self.index, _conversation_id(request), request.match_info["place"])
        )
        if html not in self._shots:
            while len(self._shots) >= SHOTS:
                self._shots.pop(next(iter(self._shots)))
            self._shots[html] = (await shoot(html)).png
        headers = {"Content-Type": "image/png", "Content-Security-Policy": DRAWING}
        return web.Response(body=self._shots[html], headers=headers)

    def requested_run(self, request: web.Request) -> Any:
        """Return the run whose number in the index is in the address.

        Raise HTTPNotFound if there is none.
        """
        number = request.match_info["run"]
        if not (number.isascii() and number.isdigit()) or int(number) >= len(self.index.runs):
            raise web.HTTPNotFound
        return self.index.runs[int(number)]

    def overview_json(self, request: web.Request) -> dict[str, Any]:
        """Return the figures of the overview, computed once a version, with rubrics and number of
        labels by run, version and `gold`, the number of drawn conversations."""
        version = self.growing.version
        if self._overview[0] != version:
            self._overview = (version, overview_figures(self.index))
        labels = [count_labels(run) for run in self.index.runs]
        rubrics = [form_fields(form_rubric(run)) for run in self.index.runs]
        return {
            **self._overview[1],
            "rubrics": rubrics,
            "labels": labels,
            "version": version,
            "gold": self.label_queues.drawn_count,
        }

    def versus_json(self, request: web.Request) -> dict[str, Any]:
        """Return the comparison of every run with its Base, or with the run whose id is the
        request's `base`; computed once a version.

        Raise QueryError for an unknown id.
        """
        key = (self.growing.version, request.query.get("base"))
        if key not in self._versus:
            comparisons = base_comparisons(self.index, key[1])
            self._versus = {k: v for k, v in self._versus.items() if k[0] == key[0]} | {
                key: comparisons
            }
        return self._versus[key]

    def talk_json(self, request: web.Request) -> dict[str, Any]:
        """Return the conversation named in the address with its `labels`.

        Raise RunError for an unknown id.
        """
        return self._with_labels(talk_json(self.index, _conversation_id(request)))

    def _with_labels(self, talk: dict[str, Any]) -> dict[str, Any]:
        run = self.index.runs[talk["row"]["run_no"]]
        return {**talk, "labels": labels_of(run, talk["row"]["conversation_id"])}

    def compare_json(self, request: web.Request) -> list[dict[str, Any]]:
        """Return the conversations that the request names by `with`, if they are about the same
        question, else all about it; at most 24.

        Each has its labels. Raise RunError for an unknown id.
        """
        question = talks_json(self.index, [_conversation_id(request)])[0]["row"]["q"]
        about = [row["conversation_id"] for row in sibling_rows(self.index, question)]
        chosen = [name for name in request.query.getall("with", []) if name in about] or about
        return [self._with_labels(talk) for talk in talks_json(self.index, chosen[:COMPARED])]

    def agreement_json(self, request: web.Request) -> dict[str, Any]:
        """Return the agreement of each judge with people's labels of a run, with the keys labels,
        judges, metric, file and command.

        Without labels it is only `labels` with 0. `command` judges the run by these labels.
        """
        run = self.requested_run(request)
        spec, file = self._rubric_and_file(run)
        if not file.exists() or not file.stat().st_size:
            return {"labels": 0}
        judge = f"human:{file}" if spec.name == PEOPLE else f"{spec.name}@human:{file}"
        command = ["convbench", "judge", "--judge", judge, "--run", str(run.path)]
        now = self.growing.version, spec, file.stat().st_mtime_ns
        if file not in self._agreed or self._agreed[file][0] != now:
            self._agreed[file] = now, label_agreement(run, file, spec)
        return {
            "labels": count_labels(run),
            "judges": self._agreed[file][1],
            "metric": spec.score_labels.get(spec.headline_metric, spec.headline_metric),
            "file": str(file),
            "command": shlex.join(command),
        }

    def _rubric_and_file(self, run: Run) -> tuple[JudgeSpec, Path]:
        """Return the rubric of a run's labels and their file. Labels from before the run had a
        rubric of its own are read by the usual one."""
        spec = form_rubric(run)
        file = labels_file(run, spec.name)
        if file.exists() or not labels_file(run).exists():
            return spec, file
        return default_rubric(), labels_file(run)

    def store_score(self, label: Any) -> dict[str, Any]:
        """Store a label and return its row.

        Raise DataError for one that cannot be stored or a failed conversation, RunError for an
        unknown one.
        """
        try:
            name = label["conversation_id"]
        except (KeyError, TypeError):
            raise DataError("expected a JSON object with conversation_id, rater, scores") from None
        run, conversation, _ = self.index.read_conversation(str(name))
        if conversation.failure is not None:
            raise DataError(f"{name} failed; only complete conversations can be scored")
        return save_label(run, form_rubric(run), label)


def file_in_folder(folder: Path, name: str, endings: Collection[str]) -> Path:
    """Return the path of a file directly in this folder whose suffix is in `endings`.

    The name, decoded from the address, has 1 to 200 ASCII letters, digits, `_`, `-` and `.`, and
    does not begin with `.`. Raise HTTPNotFound for any other name, even of a file that is there,
    for another suffix, a missing file, and a link out of the folder. The case of the suffix counts.
    """
    path = folder / name
    good = FILE.fullmatch(name) and path.suffix in endings and path.is_file()
    if not good or path.resolve().parent != folder.resolve():
        raise web.HTTPNotFound
    return path


Work = Callable[[Pages, web.Request], Any]
GET_ROUTES: dict[str, Work] = {
    "overview": Pages.overview_json,
    "versus": Pages.versus_json,
    "pulse": lambda pages, _: run_status(pages.growing),
    "list": lambda pages, request: list_page(pages.index, request.query),
    "facets": lambda pages, request: facet_counts(pages.index, request.query),
    "talk/{id}": Pages.talk_json,
    "prompts/{id}": lambda pages, request: turn_prompts(pages.index, _conversation_id(request)),
    "messages/{id}": lambda pages, request: chat_messages(pages.index, _conversation_id(request)),
    "calls/{id}": lambda pages, request: turn_calls(pages.index, _conversation_id(request)),
    "compare/{id}": Pages.compare_json,
    "agreement/{run}": Pages.agreement_json,
    "gold": lambda pages, request: pages.label_queues.next_item(request),
}
"""GET requests below `/api/`, answered in JSON."""
POST_ROUTES: dict[str, Callable[[Pages, Any], Any]] = {
    "score": Pages.store_score,
    "gold": lambda pages, label: pages.label_queues.store_label(label),
}
"""POST requests below `/api/`, whose JSON body is stored."""
IMAGES = {"media": RASTER, "reports": (*RASTER, ".svg")}
"""Folders of a run from which images are served, with the suffixes that are allowed."""


def page_routes(pages_of: Callable[[web.Request], Pages], prefix: str = "") -> list[web.RouteDef]:
    """Return the aiohttp routes of the pages, all below `prefix`.

    `pages_of` returns the pages for a request; it is called in a thread.
    """

    def get_handler(work: Work) -> Any:
        async def handle_get(request: web.Request) -> web.Response:
            return await answer_json(lambda: work(pages_of(request), request))

        return handle_get

    def post_handler(work: Callable[[Pages, Any], Any]) -> Any:
        async def handle_post(request: web.Request) -> web.Response:
            if request.content_type != "application/json":
                raise web.HTTPUnsupportedMediaType
            body = await request.read()

            def store_body() -> Any:
                try:
                    return work(pages_of(request), orjson.loads(body))
                except orjson.JSONDecodeError:
                    raise DataError("expected JSON") from None

            return await answer_json(store_body)

        return handle_post

    def image_handler(folder: str, endings: Collection[str]) -> Any:
        async def handle_image(request: web.Request) -> web.StreamResponse:
            return await asyncio.to_thread(
                lambda: pages_of(request).image_response(folder, endings, request)
            )

        return handle_image

    async def handle_picture(request: web.Request) -> web.Response:
        try:
            return await (await asyncio.to_thread(pages_of, request)).picture_response(request)
        except ConvbenchError as error:
            return web.Response(status=404, text=" ".join(str(error).split()))

    return [
        web.get(f"{prefix}/pages/{{id}}/{{place}}", handle_picture),
        *(web.get(f"{prefix}/api/{path}", get_handler(work)) for path, work in GET_ROUTES.items()),
        *(
            web.post(f"{prefix}/api/{path}", post_handler(work))
            for path, work in POST_ROUTES.items()
        ),
        *(
            web.get(f"{prefix}/{folder}/{{run}}/{{name}}", image_handler(folder, endings))
            for folder, endings in IMAGES.items()
        ),
    ]


async def answer_json(work: Callable[[], Any]) -> web.Response:
    """Return the result of `work`, run in a thread, as a JSON response.

    A RunError becomes `error`, one line, with status 404, any other ConvbenchError the same with
    status 400.
    """
    try:
        content, status = await asyncio.to_thread(work), 200
    except ConvbenchError as error:
        content = {"error": " ".join(str(error).split())}
        status = 404 if isinstance(error, RunError) else 400
    body = orjson.dumps(content, option=orjson.OPT_NON_STR_KEYS, default=str)
    return web.Response(body=body, status=status, content_type="application/json")


def _conversation_id(request: web.Request) -> str:
    return request.match_info["id"]
