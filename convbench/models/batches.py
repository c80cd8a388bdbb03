"""Providers' batches: many calls are sent at once at a lower price, and their replies arrive later.

OpenAI's interface is a file of requests, a batch of it, files of results; Anthropic's a list of
requests, translated by litellm, so that a batch asks the same as a single call would. A batch is
sent under a `mark` of ours, with which the names of its requests begin: `MARK-0`, `MARK-1`.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from io import BytesIO
from typing import TYPE_CHECKING, Any

import orjson

from convbench.errors import BrokenReply, FatalModelError, ModelError, TransientModelError
from convbench.models.model import no_batches
from convbench.models.openai import JSON, HttpClient
from convbench.models.parameters import unsent_names
from convbench.models.prices import Price
from convbench.schema import Completion, Message, Sampling
from convbench.util.untrusted import loads, safe_count

if TYPE_CHECKING:
    from convbench.models.litellm_model import LitellmModel
    from convbench.models.openai import OpenAIModel

Outcome = Completion | ModelError
"""The result of one request: a reply or an error."""
ID = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
"""Valid names of a provider's batch or file, which become part of an address."""
PAGES = 20
"""Most pages of a provider's list of batches that are searched."""
ROUTE = "/v1/chat/completions"
MARK = "convbench"
"""Field of a batch's metadata that holds our mark (OpenAI)."""
ENDED = ("completed", "failed", "expired", "cancelled")
FULL = re.compile(r"token_limit|enqueued token", re.IGNORECASE)
"""A refusal because too many tokens are queued (OpenAI)."""
ANTHROPIC, VERSION = "https://api.anthropic.com", "2023-06-01"
SCHEMAS = "structured-outputs-2025-11-13"
"""The beta header of Anthropic for replies by a schema."""
SKEW_S = 300.0
"""Most seconds by which a provider's clock and ours may differ."""
STATUS = {
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "overloaded_error": 529,
}
"""Kinds of Anthropic's errors → HTTP statuses that an ordinary call gets."""


@dataclass(frozen=True, slots=True)
class BatchState:
    """The state of one batch, as the provider reports it."""

    status: str
    """The status in the provider's own word."""
    ended: bool
    done: int = 0
    """Requests answered so far."""
    failed: int = 0
    """Requests that failed so far."""
    files: tuple[str, ...] = ()
    """Names of the files of results, once it has ended."""
    refused: str | None = None
    """Why the whole batch was refused; None if it was not."""

    @property
    def full(self) -> bool:
        """Return True if it was refused because too many tokens are queued."""
        return bool(self.refused and FULL.search(self.refused))


class Batches(ABC):
    """The batches of one model. Errors are those of `Model.complete`."""

    most_requests: int
    """Most requests of one batch."""
    most_bytes = 64 << 20
    """Most bytes of one batch."""

    def __init__(self, model: Any, url: str, http: HttpClient, price: Price | None) -> None:
        self.ref: str = model.ref
        self._model, self._url, self._http, self._price = model, url, http, price
        self._sent: dict[str, Any] = {}
        """Fields of all requests built so far, which a refusal may name."""

    def price(self, prompt: int, reply: int) -> float | None:
        """Return the dollars of so many prompt and reply tokens in a batch; None if unknown."""
        return self._price.cost_of(prompt, reply) if self._price else None

    def unsent(self, sampling: Sampling) -> tuple[str, ...]:
        """Return the names of the parameters that are set in `sampling` but not sent."""
        return unsent_names(sampling, self._model.parameters.request_fields(sampling))

    @abstractmethod
    def request_line(self, name: str, messages: Sequence[Message], sampling: Sampling) -> bytes:
        """Return one request as JSON on one line. Raise ModelError if it cannot be built."""

    @abstractmethod
    async def create(self, mark: str, lines: Sequence[bytes]) -> str:
        """Create a batch of these requests and return its name. After a TransientModelError other
        than a rate limit it may have been created nevertheless."""

    @abstractmethod
    async def find(self, mark: str, since: float, total: int, known: Collection[str]) -> str | None:
        """Return the provider's name of the batch with this mark, created at `since` (seconds since
        the epoch) with `total` requests; None without one. It is none of `known`."""

    @abstractmethod
    async def state(self, batch: str) -> BatchState:
        """Return the state of a batch. Raise FatalModelError if the provider does not know it."""

    @abstractmethod
    def results(self, batch: str, state: BatchState) -> AsyncIterator[tuple[str, Outcome]]:
        """Yield (name of the request, completion or error) in any order."""

    async def cancel(self, batch: str) -> None:
        """Ask the provider to cancel a batch; what is answered by then is billed and collected."""
        await self._request("POST", f"/{batch}/cancel", b"{}")

    async def aclose(self) -> None:
        """Close connections."""
        await self._http.aclose()

    async def _pages(self, after: str) -> AsyncIterator[list[dict[str, Any]]]:
        """Yield the provider's list of batches, newest first, a page at a time."""
        query = "?limit=100"
        for _ in range(PAGES):
            page = await self._request("GET", query)
            rows = [row for row in page.get("data") or () if isinstance(row, dict)]
            yield rows
            if not rows or not page.get("has_more"):
                return
            query = f"?limit=100&{after}={self._check_name(rows[-1].get('id'))}"

    def _check_name(self, value: object) -> str:
        if isinstance(value, str) and ID.fullmatch(value):
            return value
        raise BrokenReply(f"{self.ref}: found {str(value)[:60]!r} as the name of a batch or file")

    async def _lines(self, batch: str, url: str) -> AsyncIterator[dict[str, Any]]:
        """Yield the results in a file that name their request; raise FatalModelError if it is
        gone."""
        async with self._http.request("GET", url, headers={}) as reply:
            if reply.status == 404:
                raise self._missing(batch)
            if reply.status != 200:
                body = await reply.content.read(16 << 10)
                raise self._model.refusal(reply.status, body, reply.headers)
            async for line in reply.content:
                try:
                    row = loads(line)
                except ValueError:
                    continue
                if isinstance(row, dict) and isinstance(row.get("custom_id"), str):
                    yield row

    async def _request(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] = JSON,
        url: str | None = None,
    ) -> dict[str, Any]:
        """Return the JSON object of one reply. Raises ModelError for any other reply."""
        address = url or self._url + path
        status, raw, replied = await self._http.send(method, address, body, headers)
        if status in (404, 405) and (url or not path):
            raise FatalModelError(f"{self.ref}: HTTP {status} at {address}; {no_batches(self.ref)}")
        if status == 404:
            raise self._missing(path.split("/")[1].split("?")[0])
        if status not in (200, 201):
            raise self._model.refusal(status, raw, replied)
        try:
            reply = loads(raw)
        except ValueError:
            reply = None
        if not isinstance(reply, dict):
            raise BrokenReply(f"{self.ref}: the reply about a batch is not JSON")
        return reply

    def _missing(self, batch: str) -> FatalModelError:
        return MissingBatch(
            f"{self.ref}: HTTP 404: no batch {batch}, or its results are gone; is this the key and "
            "the server that it was sent with? To send its calls again: convbench cancel RUN"
        )

    def _refused(self, status: int, body: Any) -> ModelError:
        """Return the error of one refused request; a TransientModelError if what is refused is left
        out from now on."""
        error: ModelError = self._model.refusal(status, body, {})
        if self._model.parameters.learn(error, self._sent):
            return TransientModelError(str(error))
        return error


class MissingBatch(FatalModelError):
    """The provider does not know a batch that was sent."""


class OpenAIBatches(Batches):
    """Batches of one model of one OpenAI-compatible server."""

    most_requests = 50_000

    def __init__(self, model: OpenAIModel, price: Price | None) -> None:
        super().__init__(model, model.base + "/batches", model.http, price)

    def request_line(self, name: str, messages: Sequence[Message], sampling: Sampling) -> bytes:
        """Return one line of the file of requests."""
        body = self._model.request_fields(messages, sampling)
        self._sent |= body
        return orjson.dumps({"custom_id": name, "method": "POST", "url": ROUTE, "body": body})

    async def create(self, mark: str, lines: Sequence[bytes]) -> str:
        """Upload the lines as a file and create a batch of it, with `mark` in its metadata."""
        from aiohttp import FormData

        form = FormData()
        form.add_field("purpose", "batch")
        content = BytesIO(b"\n".join(lines))
        form.add_field("file", content, filename=f"{mark}.jsonl", content_type="application/jsonl")
        files = self._model.base + "/files"
        file = self._check_name((await self._request("POST", "", form, {}, files)).get("id"))
        body = {
            "input_file_id": file,
            "endpoint": ROUTE,
            "completion_window": "24h",
            "metadata": {MARK: mark},
        }
        return self._check_name((await self._request("POST", "", orjson.dumps(body))).get("id"))

    async def find(self, mark: str, since: float, total: int, known: Collection[str]) -> str | None:
        """Return the name of the listed batch with this mark, which is certain."""
        async for rows in self._pages("after"):
            for row in rows:
                metadata = row.get("metadata")
                if isinstance(metadata, dict) and metadata.get(MARK) == mark:
                    return self._check_name(row.get("id"))
        return None

    async def state(self, batch: str) -> BatchState:
        """Return the state of a batch; `refused` is the first error of a failed one."""
        row = await self._request("GET", f"/{batch}")
        status, counts = str(row.get("status"))[:40], row.get("request_counts") or {}
        names = [row[name] for name in ("output_file_id", "error_file_id") if row.get(name)]
        refused = None
        if status == "failed":
            reasons = (row.get("errors") or {}).get("data")
            refused = str(self._model.refusal(400, reasons, {})).removeprefix(f"{self.ref}: ")
        return BatchState(
            status,
            status in ENDED,
            safe_count(counts.get("completed")) or 0,
            safe_count(counts.get("failed")) or 0,
            tuple(map(self._check_name, names)),
            refused,
        )

    async def results(self, batch: str, state: BatchState) -> AsyncIterator[tuple[str, Outcome]]:
        """Yield (name, completion or error) of the output file's lines, then the error file's."""
        for file in state.files:
            async for row in self._lines(batch, f"{self._model.base}/files/{file}/content"):
                yield row["custom_id"], self._outcome(row)

    def _outcome(self, row: dict[str, Any]) -> Outcome:
        response = row.get("response")
        if not isinstance(response, dict):
            error: ModelError = self._model.refusal(500, row.get("error") or "no reply", {})
            return error
        if response.get("status_code") != 200:
            status = safe_count(response.get("status_code")) or 500
            return self._refused(status, response.get("body"))
        try:
            reply: Completion = self._model.completion_of(response.get("body"), self._price)
        except ModelError as error:
            return error
        return reply


class AnthropicBatches(Batches):
    """Message batches of one model. They carry no mark of ours: one whose creation was not
    confirmed is recognised by its time and size, and then by the names in its results."""

    most_requests = 100_000

    def __init__(self, model: LitellmModel, price: Price | None, api_base: str | None) -> None:
        headers = {"anthropic-version": VERSION}
        if key := os.environ.get("ANTHROPIC_API_KEY"):
            headers["x-api-key"] = key
        url = (api_base or ANTHROPIC) + "/v1/messages/batches"
        super().__init__(model, url, HttpClient(model.ref, url, headers), price)

    def request_line(self, name: str, messages: Sequence[Message], sampling: Sampling) -> bytes:
        """Return one request as a JSON object with `custom_id` and `params`.

        Parameters that litellm refuses for this model are left out and remembered.
        """
        while True:  # each round leaves another one out
            fields = self._model.request_fields(messages, sampling)
            self._sent |= fields
            try:
                return orjson.dumps({"custom_id": name, "params": self._translated(fields)})
            except Exception as error:
                refusal = self._model.error_of(error)
                if not self._model.parameters.learn(refusal, fields):
                    raise refusal from error

    def _translated(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return a call's fields as Anthropic's API expects them."""
        config, name = self._model.litellm.AnthropicConfig(), self.ref.partition("/")[2]
        messages = [dict(message) for message in fields["messages"]]
        parameters = {key: value for key, value in fields.items() if key != "messages"}
        optional = config.map_openai_params(parameters, {}, name, False)
        optional.pop("json_mode", None)  # litellm's own note of how it reads the reply
        body: dict[str, Any] = config.transform_request(name, messages, optional, {}, {})
        return {**body, **self._model.parameters.extra_body}

    async def create(self, mark: str, lines: Sequence[bytes]) -> str:
        """Send a batch of these lines and return the provider's name for it."""
        body = b'{"requests":[' + b",".join(lines) + b"]}"
        schemas = any(b'"output_format":' in line for line in lines)
        headers = {**JSON, **({"anthropic-beta": SCHEMAS} if schemas else {})}
        return self._check_name((await self._request("POST", "", body, headers)).get("id"))

    async def find(self, mark: str, since: float, total: int, known: Collection[str]) -> str | None:
        """Return the name of the listed batch with `total` requests whose time is nearest to
        `since`, at most 300 s apart (clocks differ); None without one."""
        found: list[tuple[float, str]] = []
        async for rows in self._pages("after_id"):
            for row in rows:
                apart = abs(_created_at(row) - since)
                counts = row.get("request_counts") or {}
                same = sum(safe_count(count) or 0 for count in counts.values()) == total
                if same and apart <= SKEW_S and row.get("id") not in known:
                    found.append((apart, self._check_name(row.get("id"))))
            if rows and _created_at(rows[-1]) < since - SKEW_S:
                break
        return min(found)[1] if found else None

    async def state(self, batch: str) -> BatchState:
        """Return the state of a batch: `failed` counts all requests that are over without reply."""
        row = await self._request("GET", f"/{batch}")
        status, counts = str(row.get("processing_status"))[:40], row.get("request_counts") or {}
        bad = sum(safe_count(counts.get(name)) or 0 for name in ("errored", "canceled", "expired"))
        return BatchState(status, status == "ended", safe_count(counts.get("succeeded")) or 0, bad)

    async def results(self, batch: str, state: BatchState) -> AsyncIterator[tuple[str, Outcome]]:
        """Yield (name, completion or error) of each result; their own address is not used."""
        async for row in self._lines(batch, f"{self._url}/{batch}/results"):
            yield row["custom_id"], self._outcome(row)

    def _outcome(self, row: dict[str, Any]) -> Outcome:
        result = row.get("result") or {}
        kind = str(result.get("type"))[:40]
        if kind == "succeeded":
            return self._completion(result.get("message"))
        if kind != "errored":
            return TransientModelError(f"{self.ref}: the request was {kind} in its batch")
        error = result.get("error") or {}
        inner = error.get("error") or error
        return self._refused(STATUS.get(str(inner.get("type")), 400), {"error": inner})

    def _completion(self, message: Any) -> Outcome:
        """Return the completion in a message, parsed as litellm parses a call's, or an error."""
        import httpx

        litellm = self._model.litellm
        try:
            reply = litellm.AnthropicConfig().transform_parsed_response(
                completion_response=message,
                raw_response=httpx.Response(200, json=message),
                model_response=litellm.ModelResponse(),
            )
        except Exception as error:  # noqa: BLE001 - whatever litellm makes of it
            return BrokenReply(f"{self.ref}: reply is not a message ({type(error).__name__})")
        try:
            completion: Completion = self._model.read_reply(reply, self._price)
        except ModelError as error:
            return error
        return completion


def _created_at(row: dict[str, Any]) -> float:
    """Return when a batch was created, in seconds since the epoch; 0 if it does not say."""
    try:
        return datetime.fromisoformat(str(row.get("created_at"))[:40]).timestamp()
    except (ValueError, OverflowError, OSError):
        return 0.0
