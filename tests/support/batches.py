"""The provider with both batch APIs: OpenAI's files and batches, Anthropic's message batches.

A batch ends after some looks at it, or when it is let (`POST /_release`), never by the clock, so
that tests are as fast as what they test. ``GET /_batch_state`` tells what was sent and billed,
``POST /_batch_plan`` (JSON, some fields of `BatchPlan`) changes the plan. As a process:
``python -m tests.support.batches``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import aiohttp
from aiohttp import web

from .chat.billing import bill
from .chat.checks import check_beta, first_words, request_key
from .chat.dialects import Anthropic, Dialect, OpenAI, Refusal
from .chat.thinking import check_replay, with_thought
from .chat.tools import check_tools, with_calls
from .provider import Provider
from .serve import add_process_options, json_reply, run_process

OPENAI, ANTHROPIC = OpenAI(), Anthropic()
FINISHED = ("completed", "failed", "expired", "cancelled")


@dataclass(frozen=True)
class BatchPlan:
    """What the provider does with batches. Everything off by default. Ordinals count from 1."""

    looks: int = 1
    """Looks at a batch after which it has ended; 0 never, until it is let."""
    fail: float = 0.0
    """Share of requests that fail with 500, each the first time only."""
    refuse: str | None = None
    """Request parameter that every request is refused for, where it has it."""
    endless: bool = False
    """Replies are many times as long as was asked for, and billed."""
    expire: tuple[int, ...] = ()
    """Ordinals of batches that expire with half of their requests done."""
    look_503: int = 0
    """Every so many looks is answered with 503."""
    create_502: tuple[int, ...] = ()
    """Ordinals of creations that are done and answered with 502."""
    create_503: tuple[int, ...] = ()
    """Ordinals of creations that are not done and answered with 503."""
    lines: tuple[str, ...] = ()
    """What is wrong with results: repeated, foreign, unreadable, missing, huge, stop."""
    most_queued: int | None = None
    """Words of prompts that may wait in all batches; more fails the batch."""
    redirect: str | None = None
    """Where results are said to lie instead."""
    stall: str | None = None
    """Step that is done and never answered: uploading, uploaded, creating, created, looking,
    results (half of them are sent)."""


@dataclass
class Batch:
    """One batch."""

    id: str
    requests: list[dict[str, Any]]
    dialect: Dialect
    model: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    file: str = ""
    status: str = "in_progress"
    looks: int = 0
    created: float = field(default_factory=lambda: datetime.now(UTC).timestamp())
    good: list[bytes] = field(default_factory=list)
    bad: list[bytes] = field(default_factory=list)
    why: str = ""

    @property
    def ended(self) -> bool:
        return self.status in FINISHED


class BatchProvider(Provider):
    """The provider, with batches."""

    def __init__(self, *args: Any, batch_plan: BatchPlan | None = None, **more: Any) -> None:
        super().__init__(*args, **more)
        self.batch_plan = batch_plan or BatchPlan()
        self.files: dict[str, bytes] = {}
        self.batches: dict[str, Batch] = {}
        self.stalled: list[str] = []
        self.keys: list[str] = []
        """Keys that came with requests for batches."""
        self._uploads = self._creations = self._looks = 0
        self._failed: Counter[str] = Counter()

    def plan_batches(self, **changes: Any) -> None:
        """Replace fields of the batch plan."""
        values = {k: tuple(v) if isinstance(v, list) else v for k, v in changes.items()}
        self.batch_plan = replace(self.batch_plan, **values)

    def summary(self) -> dict[str, Any]:
        """What was sent, answered and billed in batches."""
        return {
            "uploads": self._uploads,
            "looks": self._looks,
            "stalled": self.stalled,
            "batches": [
                {
                    "id": batch.id, "status": batch.status, "requests": len(batch.requests),
                    "good": len(batch.good), "metadata": batch.metadata, "model": batch.model,
                }
                for batch in self.batches.values()
            ],
            "answered": self.stats.answered,
            "repeats": self.stats.answered - len(self.stats.answered_by_request),
            "prompt": self.stats.billed_prompt,
            "reply": self.stats.billed_reply,
            "calls": self.stats.calls,
        }  # fmt: skip

    def release(self) -> None:
        """Let every batch end."""
        for batch in self.batches.values():
            self._work(batch)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Route a request."""
        path, _, _ = request.raw_path.partition("?")
        if path in ("/_batch_plan", "/_batch_state") or path == "/_release":
            return await self._controls(request, path)
        parts = path.removeprefix("/v1").strip("/").split("/")
        known = parts[0] in ("files", "batches") or parts[:2] == ["messages", "batches"]
        if not known:
            return await super().handle(request)
        self.keys.append(
            request.headers.get("Authorization") or request.headers.get("x-api-key") or ""
        )
        if parts[0] == "files":
            return await self._file(request, parts[1:])
        anthropic = parts[0] == "messages"
        return await self._batch(request, parts[2 if anthropic else 1 :], anthropic)

    async def _controls(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        if path == "/_release":
            self.release()
        elif request.method == "POST":
            self.plan_batches(**json.loads(await request.content.read()))
            self.stalled.clear()
        return json_reply(self.summary())

    async def _stall(self, step: str) -> None:
        if self.batch_plan.stall == step:
            self.stalled.append(step)
            await asyncio.Event().wait()

    async def _file(self, request: web.BaseRequest, rest: list[str]) -> web.StreamResponse:
        if request.method == "POST":
            await self._stall("uploading")
            reader = aiohttp.MultipartReader(request.headers, request.content)
            form: dict[str, bytes] = {}
            while (part := await reader.next()) is not None:
                assert isinstance(part, aiohttp.BodyPartReader)
                form[str(part.name)] = bytes(await part.read())
            assert form["purpose"] == b"batch"
            self._uploads += 1
            name = f"file-{self._uploads}"
            self.files[name] = form["file"]
            await self._stall("uploaded")
            return json_reply({"id": name, "object": "file", "purpose": "batch"})
        kind, _, batch = rest[0].partition("-")
        found = self.batches.get(batch)
        if found is None or rest[1:] != ["content"]:
            return json_reply({"error": {"message": "no such file"}}, 404)
        return await self._results(request, found.good if kind == "out" else found.bad)

    async def _batch(
        self, request: web.BaseRequest, rest: list[str], anthropic: bool
    ) -> web.StreamResponse:
        if not rest:
            if request.method == "POST":
                return await self._create(request, anthropic)
            return self._list(anthropic)
        batch = self.batches.get(rest[0])
        if batch is None:
            return json_reply({"error": {"message": "no such batch"}}, 404)
        if rest[1:] == ["results"]:
            return await self._results(request, batch.good + batch.bad)
        if rest[1:] == ["cancel"]:
            if batch.ended:
                return json_reply({"error": {"message": "it has ended"}}, 409)
            self._work(batch, "cancelled", len(batch.requests) // 3)
        elif (broken := await self._looked(batch)) is not None:
            return broken
        return json_reply(self._shown(batch, anthropic))

    async def _looked(self, batch: Batch) -> web.StreamResponse | None:
        plan = self.batch_plan
        self._looks += 1
        await self._stall("looking")
        if plan.look_503 and self._looks % plan.look_503 == 0:
            return json_reply({"error": {"message": "try again"}}, 503)
        batch.looks += 1
        if plan.looks and batch.looks > plan.looks and not batch.ended:
            number = list(self.batches).index(batch.id) + 1
            if number in plan.expire:
                self._work(batch, "expired", len(batch.requests) // 2)
            else:
                self._work(batch)
        return None

    async def _create(self, request: web.BaseRequest, anthropic: bool) -> web.StreamResponse:
        body = json.loads(await request.content.read())
        await self._stall("creating")
        self._creations += 1
        if self._creations in self.batch_plan.create_503:
            return json_reply({"error": {"message": "later"}}, 503)
        name = f"{'msgbatch' if anthropic else 'batch'}_{len(self.batches) + 1}"
        if anthropic:
            rows = [{"id": r["custom_id"], "body": r["params"]} for r in body["requests"]]
            try:
                check_beta(request.headers, [row["body"] for row in rows])
            except Refusal as refusal:
                return json_reply(ANTHROPIC.error(refusal), refusal.status)
            batch = Batch(name, rows, ANTHROPIC)
        else:
            lines = self.files[body["input_file_id"]].splitlines()
            rows = [{"id": r["custom_id"], "body": r["body"]} for r in map(json.loads, lines)]
            batch = Batch(name, rows, OPENAI, metadata=body.get("metadata") or {})
            batch.file = body["input_file_id"]
        batch.model = str(rows[0]["body"]["model"])
        self._queue(batch)
        self.batches[name] = batch
        await self._stall("created")
        if self._creations in self.batch_plan.create_502:
            return json_reply({"error": {"message": "bad gateway"}}, 502)
        return json_reply(self._shown(batch, anthropic))

    def _queue(self, batch: Batch) -> None:
        """Fail a batch that makes too many words wait."""
        most = self.batch_plan.most_queued
        if most is None:
            return
        waiting = [one for one in self.batches.values() if not one.ended]
        words = sum(_words(one) for one in waiting) + _words(batch)
        if words > most:
            batch.status = "failed"
            batch.why = (
                f"Enqueued token limit reached for {batch.model}. Limit: {most:,} enqueued tokens."
            )

    def _list(self, anthropic: bool) -> web.StreamResponse:
        rows = [b for b in self.batches.values() if (b.dialect is ANTHROPIC) == anthropic]
        data = [self._shown(batch, anthropic) for batch in reversed(rows)]
        return json_reply({"object": "list", "data": data, "has_more": False})

    def _shown(self, batch: Batch, anthropic: bool) -> dict[str, Any]:
        total, good, bad = len(batch.requests), len(batch.good), len(batch.bad)
        if anthropic:
            counts = dict.fromkeys(("errored", "canceled", "expired"), 0)
            left = 0 if batch.ended else total
            counts |= {"processing": left, "succeeded": good, "errored": bad}
            if batch.ended:
                counts["expired"] = total - good - bad
            at = datetime.fromtimestamp(batch.created, UTC).isoformat().replace("+00:00", "Z")
            return {
                "id": batch.id, "type": "message_batch", "created_at": at,
                "processing_status": "ended" if batch.ended else "in_progress",
                "request_counts": counts, "results_url": "http://127.0.0.1:9/elsewhere",
            }  # fmt: skip
        done = batch.ended and batch.status != "failed"
        return {
            "id": batch.id, "object": "batch", "status": batch.status,
            "input_file_id": batch.file, "metadata": batch.metadata,
            "created_at": int(batch.created),
            "request_counts": {"total": total, "completed": good, "failed": bad},
            "output_file_id": f"out-{batch.id}" if done and good else None,
            "error_file_id": f"err-{batch.id}" if done and bad else None,
            "errors": {"data": [{"code": "token_limit_exceeded", "message": batch.why}]}
            if batch.why else None,
        }  # fmt: skip

    def _work(self, batch: Batch, status: str = "completed", most: int | None = None) -> None:
        """Answer a batch's requests, in an order of its own."""
        if batch.ended:
            return
        rows = list(batch.requests)
        random.Random(batch.id).shuffle(rows)
        batch.status = status
        for number, row in enumerate(rows):
            if most is not None and number >= most:
                if batch.dialect is ANTHROPIC:
                    kind = "canceled" if status == "cancelled" else "expired"
                    batch.bad.append(_line(row["id"], {"result": {"type": kind}}))
                else:
                    error = {"code": f"batch_{status}", "message": f"The batch was {status}."}
                    batch.bad.append(_line(row["id"], {"response": None, "error": error}))
                continue
            self._answered(batch, row)

    def _answered(self, batch: Batch, row: dict[str, Any]) -> None:
        plan, dialect, body = self.batch_plan, batch.dialect, row["body"]
        call = dialect.read(body)
        key = request_key(call, body)
        self.stats.by_request[key] += 1
        problem: Refusal | None = None
        if plan.refuse and plan.refuse in body:
            message = f"Unsupported parameter: '{plan.refuse}' is not supported with this model."
            problem = Refusal(
                400, "invalid_request_error", message, "unsupported_parameter", plan.refuse
            )
        elif not self._failed[key] and random.Random(key).random() < plan.fail:
            self._failed[key] += 1
            problem = Refusal(500, "api_error", "The server had an error")
        try:
            check_replay(self.plan.thinks, body)
            check_tools(body)
        except Refusal as refused:
            problem = refused
        if problem is not None:
            batch.bad.append(_refused(dialect, row["id"], problem))
            return
        text = self._reply(call)
        sent = first_words(text, call.max_tokens)
        said = bill("endless" if plan.endless else None, call, sent, self.plan.dense)
        sent = said.text
        self.stats.bill(said.prompt, said.reply)
        self.stats.answer(key, said.prompt, said.reply)
        cut = len(sent) < len(text)
        reply = dialect.write(call, key, sent, said.prompt, said.reply, cut)
        reply = with_thought(self.plan.thinks, with_calls(body, reply))
        if dialect is ANTHROPIC:
            found: dict[str, Any] = {"result": {"type": "succeeded", "message": reply}}
        else:
            found = {"response": {"status_code": 200, "body": reply}, "error": None}
        batch.good.append(_line(row["id"], found))

    async def _results(self, request: web.BaseRequest, lines: list[bytes]) -> web.StreamResponse:
        plan = self.batch_plan
        if plan.redirect:
            return web.Response(status=307, headers={"Location": plan.redirect})
        lines = _spoilt(lines, plan.lines)
        response = web.StreamResponse()
        await response.prepare(request)
        if plan.stall == "results":
            await response.write(b"\n".join([*lines[: len(lines) // 2], b""]))
            await self._stall("results")
        await response.write(b"\n".join(lines))
        await response.write_eof()
        return response


def _spoilt(lines: list[bytes], how: tuple[str, ...]) -> list[bytes]:
    """Return results with something wrong in them."""
    if not lines or not how:
        return lines
    out = lines[1:] if "missing" in how and len(lines) > 1 else list(lines)
    if "repeated" in how:
        out.append(out[0])
    if "foreign" in how:
        found = json.loads(out[0])
        for name in ("somebody-else", "x" * 300, found["custom_id"] + "9" * 9, "-1"):
            out.insert(0, json.dumps({**found, "custom_id": name}).encode())
    if "unreadable" in how:
        out[1:1] = [b"{", b"[]", b'{"custom_id": 7}', b"\xff\xfe", b"[" * 5000]
    if "usage" in how:
        found = json.loads(out[0])
        body = found.get("response") or found["result"]
        body.get("body", body.get("message"))["usage"] = {
            "prompt_tokens": 10**15, "completion_tokens": -4, "input_tokens": 10**15,
            "output_tokens": -4,
        }  # fmt: skip
        out[0] = json.dumps(found).encode()
    if "huge" in how:
        out.append(b"x" * (9 << 20))
    return out


def _refused(dialect: Dialect, name: str, problem: Refusal) -> bytes:
    error = dialect.error(problem)
    if dialect is ANTHROPIC:
        return _line(name, {"result": {"type": "errored", "error": error}})
    return _line(name, {"response": {"status_code": problem.status, "body": error}, "error": None})


def _line(name: str, found: dict[str, Any]) -> bytes:
    return json.dumps({"id": f"r-{name}", "custom_id": name, **found}).encode()


def _words(batch: Batch) -> int:
    return sum(len(json.dumps(row["body"]["messages"]).split()) for row in batch.requests)


def main(arguments: list[str] | None = None) -> None:
    """Run as a process."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.batches")
    add_process_options(parser)
    parser.add_argument("--plan", default="{}", help="JSON: any fields of BatchPlan")
    options = parser.parse_args(arguments)
    server = BatchProvider(port=options.port)
    server.plan_batches(**json.loads(options.plan))
    run_process(server, options)


if __name__ == "__main__":
    main()
