"""Anthropic's message batches: at most 100,000 requests and 256 MB, results by name in any order.

litellm translates requests and replies, so that a batch asks the same as a single call would. A
batch carries no mark of ours; one whose creation was not confirmed is recognised by its time and
size, and with certainty by the names in its results.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import orjson

from convbench.errors import ModelError, TransientModelError
from convbench.models.batch import (
    PAGES,
    Batches,
    BatchState,
    Outcome,
    gone,
    objects,
    record,
    refusal,
    unknown,
    whole,
)
from convbench.models.failures import BrokenReply
from convbench.models.http import JSON, BadStatus, Http
from convbench.models.litellm_model import LitellmModel
from convbench.models.prices import Price
from convbench.models.refusals import message
from convbench.net.guard import Seen
from convbench.net.tidy import loads, tidy_usage
from convbench.schema import Message, Sampling

ANTHROPIC = "https://api.anthropic.com"
VERSION = "2023-06-01"
SCHEMAS, FORMAT = "structured-outputs-2025-11-13", b'"output_format":'
"""The beta header for replies by a schema, as litellm names it, and the field that requests one."""
COUNTS = ("processing", "succeeded", "errored", "canceled", "expired")
SKEW_S = 300.0
"""Most seconds by which the provider's clock and ours may differ."""
STATUS = {
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "overloaded_error": 529,
}
"""Kinds of errors → HTTP statuses that an ordinary call gets."""


class AnthropicBatches(Batches):
    """Message batches of one model."""

    most_requests = 100_000
    most_bytes = 64 << 20

    def __init__(self, model: LitellmModel, price: Price | None, api_base: str | None) -> None:
        super().__init__(model.ref, price)
        self._model = model
        self._url = (api_base or ANTHROPIC) + "/v1/messages/batches"
        headers = {"anthropic-version": VERSION}
        if key := os.environ.get("ANTHROPIC_API_KEY"):
            headers["x-api-key"] = key
        self.http = Http(model.ref, self._url, headers)

    def line(self, name: str, messages: Sequence[Message], sampling: Sampling) -> bytes:
        """Return one request as JSON. Raises ModelError if litellm cannot translate it."""
        while True:  # litellm refuses parameters by itself; each round leaves another one out
            fields = self._model.fields(messages, sampling)
            self._held |= fields
            try:
                return orjson.dumps({"custom_id": name, "params": self._translated(fields)})
            except Exception as error:
                if not self._model.learnt_from(error, fields):
                    raise self._model.error_of(error, Seen(self.ref)) from error

    def missing(self, sampling: Sampling) -> tuple[str, ...]:
        """Return the requested parameters that are not sent."""
        return self._model.missing(sampling)

    async def create(self, mark: str, file: str | None, lines: Sequence[bytes]) -> str:
        """Send a batch and return its name."""
        body = b'{"requests":[' + b",".join(lines) + b"]}"
        schemas = {"anthropic-beta": SCHEMAS} if any(FORMAT in line for line in lines) else {}
        return self.named((await self._ask("POST", "", body, schemas)).get("id"))

    async def find(self, mark: str, file: str | None, since: float, total: int) -> list[str]:
        """Return the names of batches with `total` requests that were created after `since`."""
        found: list[str] = []
        after = ""
        for _ in range(PAGES):
            page = await self._ask("GET", f"?limit=100{after}")
            rows = [row for row in page.get("data") or () if isinstance(row, dict)]
            recent = [row for row in rows if _begun(row) >= since - SKEW_S]
            found += [self.named(row.get("id")) for row in recent if _requests(row) == total]
            if not recent or not page.get("has_more"):
                break
            after = f"&after_id={self.named(rows[-1].get('id'))}"
        return found

    async def look(self, batch: str) -> BatchState:
        """Return the state of a batch."""
        found = await self._ask("GET", f"/{batch}")
        status, counts = str(found.get("processing_status"))[:40], objects(found["request_counts"])
        bad = sum(whole(counts.get(name)) for name in ("errored", "canceled", "expired"))
        return BatchState(status, status == "ended", whole(counts.get("succeeded")), bad)

    async def results(
        self, batch: str, state: BatchState, most: int
    ) -> AsyncIterator[tuple[str, Outcome] | None]:
        """Yield (name, outcome) of the results; the address that the provider gives is not used."""
        try:
            async for line in self.http.lines(f"{self._url}/{batch}/results", most):
                if line.strip():
                    found = record(line)
                    yield None if found is None else (found["custom_id"], self._outcome(found))
        except BadStatus as error:
            if error.status == 404:
                raise gone(self.ref, batch) from None
            raise self._model.failure(error.status, message(error.body), error.headers) from None

    async def cancel(self, batch: str) -> None:
        """Ask the provider to cancel a batch."""
        await self._ask("POST", f"/{batch}/cancel", b"{}")

    async def aclose(self) -> None:
        """Close the connections."""
        await self.http.aclose()

    def _translated(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return a call's fields as Anthropic's API expects them."""
        config, name = self._model.litellm.AnthropicConfig(), self._model.ref.partition("/")[2]
        messages = [dict(message) for message in fields["messages"]]
        wanted = {key: value for key, value in fields.items() if key != "messages"}
        optional = config.map_openai_params(wanted, {}, name, False)
        optional.pop("json_mode", None)  # litellm's own note of how it reads the reply
        body: dict[str, Any] = config.transform_request(name, messages, optional, {}, {})
        return {**body, **self._model.extra_body}

    def _outcome(self, found: dict[str, Any]) -> Outcome:
        result = objects(found.get("result"))
        kind = str(result.get("type"))[:40]
        if kind == "succeeded":
            return self._read(objects(result.get("message")))
        if kind != "errored":
            return TransientModelError(f"{self.ref}: the request was {kind} in its batch")
        error = objects(result.get("error"))
        inner = objects(error.get("error")) or error
        status = STATUS.get(str(inner.get("type")), 400)
        return refusal(self._model, self.ref, status, orjson.dumps({"error": inner}), self.held)

    def _read(self, said: dict[str, Any]) -> Outcome:
        """Return the completion in a message, parsed as litellm parses a call's, or an error."""
        import httpx

        tidy_usage(said)
        seen = Seen(self.ref, status=200, body=said)
        litellm = self._model.litellm
        try:
            reply = litellm.AnthropicConfig().transform_parsed_response(
                completion_response=said,
                raw_response=httpx.Response(200, json=said),
                model_response=litellm.ModelResponse(),
            )
        except Exception as error:  # noqa: BLE001 - whatever litellm makes of a stranger's JSON
            what = f"{self.ref}: reply is not a message ({type(error).__name__})"
            return BrokenReply(what, usage=self._model.usage(seen, None, self._price))
        try:
            return self._model.read(reply, seen, self._price)
        except ModelError as error:
            return error

    async def _ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] = JSON
    ) -> dict[str, Any]:
        """Return the JSON object of one reply. Raises ModelError for any other reply."""
        status, raw, told = await self.http.ask(method, self._url + path, body, {**JSON, **headers})
        if status in (404, 405) and method == "POST" and not path:
            raise unknown(self.ref, status, "/v1/messages/batches")
        if status == 404 and path.startswith("/"):
            raise gone(self.ref, path.split("/")[1])
        if status not in (200, 201):
            raise self._model.failure(status, message(raw), told)
        try:
            found = objects(loads(raw))
        except ValueError:
            raise BrokenReply(f"{self.ref}: the reply about a batch is no JSON") from None
        return {"request_counts": {}, **found}


def _begun(row: dict[str, Any]) -> float:
    """Return when a batch was created, in seconds since the epoch; 0 if it does not say."""
    try:
        return datetime.fromisoformat(str(row.get("created_at"))[:40]).timestamp()
    except (ValueError, OverflowError, OSError):
        return 0.0


def _requests(row: dict[str, Any]) -> int:
    counts = objects(row.get("request_counts"))
    return sum(whole(counts.get(name)) for name in COUNTS)
