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
    as_count,
    as_object,
    missing_batch_error,
    no_batches_error,
    parse_result,
    refusal_error,
)
from convbench.models.failures import BrokenReply
from convbench.models.http import JSON, BadStatus, HttpClient
from convbench.models.litellm_model import LitellmModel
from convbench.models.prices import Price
from convbench.models.refusals import error_message
from convbench.net.httpx_guard import GuardedResponse
from convbench.net.untrusted_json import loads, tidy_usage
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
        self.http = HttpClient(model.ref, self._url, headers)

    def request_line(self, name: str, messages: Sequence[Message], sampling: Sampling) -> bytes:
        """Return one request as a JSON object with `custom_id` and `params`, without a line break.

        Parameters that litellm refuses for this model are left out and remembered. Raise ModelError
        if litellm cannot translate the request for another reason.
        """
        while True:  # litellm refuses parameters by itself; each round leaves another one out
            fields = self._model.request_fields(messages, sampling)
            self._held |= fields
            try:
                return orjson.dumps({"custom_id": name, "params": self._translate_fields(fields)})
            except Exception as error:
                if not self._model.learn_error(error, fields):
                    raise self._model.error_of(error, GuardedResponse(self.ref)) from error

    def unsent_parameters(self, sampling: Sampling) -> tuple[str, ...]:
        """Return the names of the parameters that are set in `sampling` but not sent; empty if all
        are."""
        return self._model.unsent_parameters(sampling)

    async def create_batch(self, mark: str, file: str | None, lines: Sequence[bytes]) -> str:
        """Send a batch of these lines and return the provider's name for it.

        `mark` and `file` are unused.

        Raise FatalModelError if the server has no batches (404 or 405), else ModelError for a
        refusal and BrokenReply for a reply without a valid name.
        """
        body = b'{"requests":[' + b",".join(lines) + b"]}"
        schemas = {"anthropic-beta": SCHEMAS} if any(FORMAT in line for line in lines) else {}
        return self.check_name((await self._request("POST", "", body, schemas)).get("id"))

    async def find_batches(
        self, mark: str, file: str | None, since: float, total: int
    ) -> list[str]:
        """Return the names of batches with `total` requests created at `since` or later, as listed.

        Batches from up to 300 s before `since` are included, since clocks differ. At most 20 pages
        of 100 batches are read. `mark` and `file` are unused. The list is empty if none matches.
        """
        names: list[str] = []
        after = ""
        for _ in range(PAGES):
            page = await self._request("GET", f"?limit=100{after}")
            rows = [row for row in page.get("data") or () if isinstance(row, dict)]
            recent = [row for row in rows if _created_at(row) >= since - SKEW_S]
            names += [
                self.check_name(row.get("id")) for row in recent if _request_count(row) == total
            ]
            if not recent or not page.get("has_more"):
                break
            after = f"&after_id={self.check_name(rows[-1].get('id'))}"
        return names

    async def get_state(self, batch: str) -> BatchState:
        """Return the state of a batch: `done` counts succeeded requests, `failed` all others that
        are over.

        `status` is the provider's `processing_status`, and `files` is empty. Raise FatalModelError
        if the provider does not know the batch, ModelError for any other refusal.
        """
        row = await self._request("GET", f"/{batch}")
        status, counts = str(row.get("processing_status"))[:40], as_object(row["request_counts"])
        bad = sum(as_count(counts.get(name)) for name in ("errored", "canceled", "expired"))
        return BatchState(status, status == "ended", as_count(counts.get("succeeded")), bad)

    async def iter_results(
        self, batch: str, state: BatchState, most: int
    ) -> AsyncIterator[tuple[str, Outcome] | None]:
        """Yield (name, completion or error) of each result, and None for an invalid line; skip
        blank lines.

        The results' own address is not used. Raise FatalModelError if the batch or its results are
        gone, BadBody beyond `most` bytes, ModelError for any other refusal.
        """
        try:
            async for line in self.http.iter_lines(f"{self._url}/{batch}/results", most):
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
        """Ask the provider to cancel a batch.

        Raise FatalModelError if it does not know the batch.
        """
        await self._request("POST", f"/{batch}/cancel", b"{}")

    async def aclose(self) -> None:
        """Close the connections for batches. A later request opens new ones."""
        await self.http.aclose()

    def _translate_fields(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return a call's fields as Anthropic's API expects them."""
        config, name = self._model.litellm.AnthropicConfig(), self._model.ref.partition("/")[2]
        messages = [dict(message) for message in fields["messages"]]
        parameters = {key: value for key, value in fields.items() if key != "messages"}
        optional = config.map_openai_params(parameters, {}, name, False)
        optional.pop("json_mode", None)  # litellm's own note of how it reads the reply
        body: dict[str, Any] = config.transform_request(name, messages, optional, {}, {})
        return {**body, **self._model.extra_body}

    def _read_outcome(self, row: dict[str, Any]) -> Outcome:
        result = as_object(row.get("result"))
        kind = str(result.get("type"))[:40]
        if kind == "succeeded":
            return self._read_message(as_object(result.get("message")))
        if kind != "errored":
            return TransientModelError(f"{self.ref}: the request was {kind} in its batch")
        error = as_object(result.get("error"))
        inner = as_object(error.get("error")) or error
        status = STATUS.get(str(inner.get("type")), 400)
        return refusal_error(
            self._model, self.ref, status, orjson.dumps({"error": inner}), self.possible_fields
        )

    def _read_message(self, body: dict[str, Any]) -> Outcome:
        """Return the completion in a message, parsed as litellm parses a call's, or an error."""
        import httpx

        tidy_usage(body)
        response = GuardedResponse(self.ref, status=200, body=body)
        litellm = self._model.litellm
        try:
            reply = litellm.AnthropicConfig().transform_parsed_response(
                completion_response=body,
                raw_response=httpx.Response(200, json=body),
                model_response=litellm.ModelResponse(),
            )
        except Exception as error:  # noqa: BLE001 - whatever litellm makes of a stranger's JSON
            what = f"{self.ref}: reply is not a message ({type(error).__name__})"
            return BrokenReply(what, usage=self._model.read_usage(response, None, self._price))
        try:
            return self._model.read_reply(reply, response, self._price)
        except ModelError as error:
            return error

    async def _request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] = JSON
    ) -> dict[str, Any]:
        """Return the JSON object of one reply. Raises ModelError for any other reply."""
        status, raw, reply_headers = await self.http.send_request(
            method, self._url + path, body, {**JSON, **headers}
        )
        if status in (404, 405) and method == "POST" and not path:
            raise no_batches_error(self.ref, status, "/v1/messages/batches")
        if status == 404 and path.startswith("/"):
            raise missing_batch_error(self.ref, path.split("/")[1])
        if status not in (200, 201):
            raise self._model.status_error(status, error_message(raw), reply_headers)
        try:
            reply = as_object(loads(raw))
        except ValueError:
            raise BrokenReply(f"{self.ref}: the reply about a batch is not JSON") from None
        return {"request_counts": {}, **reply}


def _created_at(row: dict[str, Any]) -> float:
    """Return when a batch was created, in seconds since the epoch; 0 if it does not say."""
    try:
        return datetime.fromisoformat(str(row.get("created_at"))[:40]).timestamp()
    except (ValueError, OverflowError, OSError):
        return 0.0


def _request_count(row: dict[str, Any]) -> int:
    counts = as_object(row.get("request_counts"))
    return sum(as_count(counts.get(name)) for name in COUNTS)
