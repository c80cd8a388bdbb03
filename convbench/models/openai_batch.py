"""Batches of OpenAI-compatible servers: a file of requests, a batch of it, files of results.

The interface is OpenAI's Batch API: `POST /files`, `POST /batches`, `GET /batches/ID`,
`GET /files/ID/content`; at most 50,000 requests and 200 MB a batch.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

import orjson

from convbench.errors import ModelError, TransientModelError
from convbench.models.batch import (
    PAGES,
    Batches,
    BatchState,
    Outcome,
    as_count,
    as_object,
    missing_batch_error,
    no_batches_error,
    parse_result,
    refusal_error,
)
from convbench.models.failures import BrokenReply
from convbench.models.http import JSON, BadStatus
from convbench.models.openai_http import OpenAIModel
from convbench.models.prices import Price
from convbench.models.refusals import error_message
from convbench.net.untrusted_json import loads
from convbench.schema import Message, Sampling

if TYPE_CHECKING:
    from aiohttp import FormData

ROUTE = "/v1/chat/completions"
MARK = "convbench"
"""Field of a batch's metadata that holds our mark."""
SKEW_S = 3600.0
"""Most seconds by which the provider's clock and ours may differ."""
ENDED = ("completed", "failed", "expired", "cancelled")
FULL = re.compile(r"token_limit|enqueued token", re.IGNORECASE)
"""Matches a refusal because too many tokens are queued."""


class OpenAIBatches(Batches):
    """Batches of one model of one OpenAI-compatible endpoint."""

    uploads = True
    most_requests = 50_000
    most_bytes = 64 << 20

    def __init__(self, model: OpenAIModel, price: Price | None) -> None:
        super().__init__(model.ref, price)
        self._model = model

    def request_line(self, name: str, messages: Sequence[Message], sampling: Sampling) -> bytes:
        """Return one line of the file of requests, without a line break.

        It is JSON with `custom_id`, `method`, `url` and `body`. Raise FatalModelError if an image
        cannot be read.
        """
        body = self._model.request_body(messages, sampling)
        self._held |= body
        return orjson.dumps({"custom_id": name, "method": "POST", "url": ROUTE, "body": body})

    def unsent_parameters(self, sampling: Sampling) -> tuple[str, ...]:
        """Return the names of the parameters that are set in `sampling` but not sent; empty if all
        are."""
        return self._model.unsent_parameters(sampling)

    async def upload_requests(self, mark: str, lines: Sequence[bytes]) -> str | None:
        """Upload the lines as one file `MARK.jsonl` and return the server's name for it.

        Raise FatalModelError if the server has no batches (404 or 405), ModelError for any other
        refusal.
        """
        from aiohttp import FormData

        form = FormData()
        form.add_field("purpose", "batch")
        form.add_field(
            "file",
            BytesIO(b"\n".join(lines)),
            filename=f"{mark}.jsonl",
            content_type="application/jsonl",
        )
        return self.check_name((await self._request("POST", "/files", form, {})).get("id"))

    async def create_batch(self, mark: str, file: str | None, lines: Sequence[bytes]) -> str:
        """Create a batch of an uploaded file, to end within 24 hours, and return the server's name
        for it.

        `mark` is stored in its metadata; `lines` is unused. Raise FatalModelError if the server has
        no batches (404 or 405), ModelError for any other refusal.
        """
        body = {
            "input_file_id": file,
            "endpoint": ROUTE,
            "completion_window": "24h",
            "metadata": {MARK: mark},
        }
        return self.check_name(
            (await self._request("POST", "/batches", orjson.dumps(body))).get("id")
        )

    async def find_batches(
        self, mark: str, file: str | None, since: float, total: int
    ) -> list[str]:
        """Return a list with the name of the first listed batch that has this mark or this file;
        else empty.

        At most 20 pages of 100 batches are read, back to an hour before `since`. `total` is unused.
        Raise ModelError if the server refuses.
        """
        after = ""
        for _ in range(PAGES):
            page = await self._request("GET", f"/batches?limit=100{after}")
            rows = [as_object(row) for row in page.get("data") or () if isinstance(row, dict)]
            for row in rows:
                ours = file is not None and row.get("input_file_id") == file
                if ours or as_object(row.get("metadata")).get(MARK) == mark:
                    return [self.check_name(row.get("id"))]
            if not rows or not page.get("has_more") or _is_older(rows[-1], since - SKEW_S):
                break
            after = f"&after={self.check_name(rows[-1].get('id'))}"
        return []

    async def get_state(self, batch: str) -> BatchState:
        """Return the state of a batch: `done` and `failed` count its requests, `files` are its
        result files.

        `ended` is True for completed, failed, expired and cancelled. `refused` is the first error
        of a failed batch. Raise FatalModelError if the server does not know the batch, ModelError
        for any other refusal.
        """
        row = await self._request("GET", f"/batches/{batch}")
        status, counts = str(row.get("status"))[:40], as_object(row.get("request_counts"))
        names = (row.get("output_file_id"), row.get("error_file_id"))
        why = error_message(orjson.dumps(_first_error(row))) if status == "failed" else None
        return BatchState(
            status,
            status in ENDED,
            as_count(counts.get("completed")),
            as_count(counts.get("failed")),
            tuple(self.check_name(name) for name in names if name),
            why,
            bool(why and FULL.search(why)),
        )

    async def iter_results(
        self, batch: str, state: BatchState, most: int
    ) -> AsyncIterator[tuple[str, Outcome] | None]:
        """Yield (name, completion or error) of the output file's lines, then of the error file's.

        None stands for an invalid line; blank lines are skipped. Raise FatalModelError if a file is
        gone, BadBody for a file of more than `most` bytes, ModelError for any other refusal.
        """
        for file in state.files:
            url = f"{self._model.base}/files/{file}/content"
            try:
                async for line in self._model.http.iter_lines(url, most):
                    if line.strip():
                        row = parse_result(line)
                        yield None if row is None else (row["custom_id"], self._read_outcome(row))
            except BadStatus as error:
                if error.status == 404:
                    raise missing_batch_error(self.ref, batch) from None
                raise self._model.status_error(
                    error.status, error_message(error.body), error.headers
                ) from None

    async def cancel_batch(self, batch: str) -> None:
        """Ask the server to cancel a batch. Raise FatalModelError if it does not know the batch."""
        await self._request("POST", f"/batches/{batch}/cancel", b"{}")

    def _read_outcome(self, row: dict[str, Any]) -> Outcome:
        response = row.get("response")
        if not isinstance(response, dict):
            text = error_message(orjson.dumps({"error": as_object(row.get("error"))}))
            return TransientModelError(f"{self.ref}: {text or 'no reply in the batch'}")
        body, status = orjson.dumps(response.get("body")), response.get("status_code")
        if status != 200:
            return refusal_error(
                self._model, self.ref, as_count(status) or 500, body, self.possible_fields
            )
        try:
            return self._model.read_reply(body, self._price)
        except ModelError as error:
            return error

    async def _request(
        self,
        method: str,
        path: str,
        body: bytes | FormData | None = None,
        headers: Mapping[str, str] = JSON,
    ) -> dict[str, Any]:
        """Return the JSON object of one reply. Raises ModelError for any other reply."""
        http, url = self._model.http, self._model.base + path
        status, raw, reply_headers = await http.send_request(method, url, body, headers)
        if status in (404, 405) and method == "POST" and "cancel" not in path:
            raise no_batches_error(self.ref, status, path)
        if status == 404 and path.startswith("/batches/"):
            raise missing_batch_error(self.ref, path.split("/")[2])
        if status not in (200, 201):
            raise self._model.status_error(status, error_message(raw), reply_headers)
        try:
            return as_object(loads(raw))
        except ValueError:
            raise BrokenReply(f"{self.ref}: the reply about a batch is not JSON") from None


def _is_older(row: dict[str, Any], when: float) -> bool:
    """Return True if a batch was created before a time; False if it does not say."""
    created = row.get("created_at")
    return isinstance(created, int | float) and created < when


def _first_error(row: dict[str, Any]) -> dict[str, Any]:
    rows = as_object(row.get("errors")).get("data")
    return {"error": rows[0] if isinstance(rows, list) and rows else "no reason given"}
