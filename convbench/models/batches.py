"""Providers' batches: many calls are sent at once at a lower price, and their replies arrive later.

    line, unsent = batches.request_line("MARK-0", messages, sampling)
    name = await batches.create("MARK", [line])
    state = await batches.state(name)                   until state.ended
    async for request, outcome in batches.results(name, state): ...

OpenAI takes and gives files; Anthropic takes a list of requests, translated by litellm, so that a
batch asks the same as a single call would. Errors are those of `Model.complete`.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import suppress
from datetime import datetime
from io import BytesIO
from typing import Any, NamedTuple

import orjson

from convbench.errors import BrokenReply, FatalModelError, ModelError, TransientModelError
from convbench.models.model import no_batches
from convbench.models.openai import JSON, HttpClient, ServedModel
from convbench.models.parameters import unsent_names
from convbench.models.prices import Price
from convbench.schema import Completion, Message, Sampling
from convbench.util.untrusted import loads

ROUTE = "/v1/chat/completions"
Line = tuple[bytes, tuple[str, ...]]


class BatchState(NamedTuple):
    """The state of one batch: the provider's word, numbers of requests that are answered and that
    failed, the addresses of results once it has ended, why the whole batch was refused."""

    status: str
    ended: bool
    done: int
    failed: int
    files: tuple[str, ...]
    refused: str | None = None


class MissingBatch(FatalModelError):
    """The provider does not know a batch that was sent."""


class Batches:
    """Batches of one model of one OpenAI-compatible server, with our mark in their metadata."""

    most_bytes, most_requests = 64 << 20, 50_000

    def __init__(
        self, model: Any, price: Price | None, url: str = "", http: HttpClient | None = None
    ) -> None:
        self._model: ServedModel = model
        self.ref, self._price = self._model.ref, price
        self._url, self._http = url or model.base + "/batches", http or model.http
        self._files = self._url.removesuffix("batches") + "files"
        self._sent: dict[str, Any] = {}
        """Fields of all requests built so far, which a refusal may name."""

    def price(self, prompt: int, reply: int) -> float | None:
        """Return the dollars of so many prompt and reply tokens in a batch; None if unknown."""
        return self._price.cost_of(prompt, reply) if self._price else None

    def request_line(self, name: str, messages: Sequence[Message], sampling: Sampling) -> Line:
        """Return one request as a line of JSON, and the names of parameters that are set in
        `sampling` but not sent. Raise ModelError if it cannot be built."""
        while True:  # each round leaves one more parameter out, which litellm refuses
            fields = self._model.request_fields(messages, sampling)
            self._sent |= fields
            try:
                line = orjson.dumps({"custom_id": name, **self._translated(fields)})
                return line, unsent_names(sampling, fields)
            except ModelError as refusal:
                if not self._model.parameters.learn(refusal, fields):
                    raise

    async def create(self, mark: str, lines: Sequence[bytes]) -> str:
        """Create a batch of these requests and return the provider's name for it. After a
        TransientModelError other than a rate limit it may have been created nevertheless."""
        from aiohttp import FormData

        form, content = FormData(), BytesIO(b"\n".join(lines))
        form.add_field("purpose", "batch")
        form.add_field("file", content, filename=f"{mark}.jsonl", content_type="application/jsonl")
        file = await self._request("POST", self._files, form)
        body = {"input_file_id": file["id"], "endpoint": ROUTE, "completion_window": "24h"}
        body["metadata"] = {"convbench": mark}
        made = await self._request("POST", self._url, orjson.dumps(body))
        return str(made["id"])

    async def find(self, mark: str, since: float, total: int, known: Collection[Any]) -> str | None:
        """Return the name of the batch with this mark, which is certain; None without one."""
        rows = (await self._request("GET", f"{self._url}?limit=100"))["data"]
        ours = (row["id"] for row in rows if (row.get("metadata") or {}).get("convbench") == mark)
        return next(ours, None)

    async def state(self, batch: str) -> BatchState:
        """Return the state of a batch. Raise MissingBatch if the provider does not know it."""
        row = await self._request("GET", f"{self._url}/{batch}", batch=batch)
        status, counts = str(row["status"]), row.get("request_counts") or {}
        names = [row.get(name) for name in ("output_file_id", "error_file_id")]
        files = tuple(f"{self._files}/{name}/content" for name in names if name)
        done, failed = counts.get("completed", 0), counts.get("failed", 0)
        reasons = (row.get("errors") or {}).get("data")
        refused = str(self._model.refusal(400, reasons, {})) if status == "failed" else None
        ended = status in ("completed", "failed", "expired", "cancelled")
        return BatchState(status, ended, done, failed, files, refused)

    async def results(
        self, batch: str, state: BatchState
    ) -> AsyncIterator[tuple[str, Completion | ModelError]]:
        """Yield (name of the request, completion or error) in any order."""
        for url in state.files:
            async with self._http.request("GET", url, headers={}) as reply:
                if reply.status != 200:
                    raise self._error(reply.status, await reply.read(), reply.headers, batch)
                async for line in reply.content:
                    with suppress(ValueError, TypeError, KeyError):  # a line that is no result
                        row = loads(line)
                        try:
                            yield str(row["custom_id"]), self._read_result(row)
                        except ModelError as error:
                            yield str(row["custom_id"]), error

    async def cancel(self, batch: str) -> None:
        """Ask the provider to cancel a batch; what is answered by then is billed and collected."""
        await self._request("POST", f"{self._url}/{batch}/cancel", b"{}", batch)

    async def aclose(self) -> None:
        """Close connections."""
        await self._http.aclose()

    async def _request(self, method: str, url: str, body: Any = None, batch: str = "") -> Any:
        """Return the JSON of one reply about `batch`, or about none of them ("")."""
        headers = JSON if isinstance(body, bytes) else {}
        status, raw, replied = await self._http.send(method, url, body, headers)
        if status not in (200, 201):
            raise self._error(status, raw, replied, batch)
        try:
            return loads(raw)
        except ValueError:
            raise BrokenReply(f"{self.ref}: the reply about a batch is not JSON") from None

    def _error(self, status: int, raw: bytes, headers: Any, batch: str) -> Exception:
        if status == 404 and batch:
            return MissingBatch(
                f"{self.ref}: HTTP 404: no batch {batch}, or its results are gone; is this the "
                "key and the server it was sent with? To send its calls again: convbench cancel RUN"
            )
        if status in (404, 405):
            return FatalModelError(f"{self.ref}: HTTP {status}; {no_batches(self.ref)}")
        return self._model.refusal(status, raw, headers)

    def _read_result(self, row: Any) -> Completion | ModelError:
        response = row.get("response") or {"status_code": 500, "body": row.get("error")}
        if response["status_code"] != 200:
            return self._refused(response["status_code"], response.get("body") or "no reply")
        return self._model.completion_of(response["body"], self._price)

    def _refused(self, status: int, body: Any) -> ModelError:
        """Return the error of a refused request: transient if what is refused is left out now."""
        error = self._model.refusal(status, body, {})
        learnt = self._model.parameters.learn(error, self._sent)
        return TransientModelError(str(error)) if learnt else error

    def _translated(self, fields: dict[str, Any]) -> dict[str, Any]:
        return {"method": "POST", "url": ROUTE, "body": fields}


class AnthropicBatches(Batches):
    """Message batches of one model. They carry no mark of ours: one whose creation was not
    confirmed is recognised by its time and size, and then by the names in its results."""

    most_requests = 100_000
    _model: Any

    def __init__(self, model: ServedModel, price: Price | None, api_base: str | None) -> None:
        schemas = "structured-outputs-2025-11-13"
        headers = {"anthropic-version": "2023-06-01", "anthropic-beta": schemas}
        if key := os.environ.get("ANTHROPIC_API_KEY"):
            headers["x-api-key"] = key
        url = (api_base or "https://api.anthropic.com") + "/v1/messages/batches"
        super().__init__(model, price, url, HttpClient(model.ref, url, headers))

    async def create(self, mark: str, lines: Sequence[bytes]) -> str:
        body = b'{"requests":[' + b",".join(lines) + b"]}"
        return str((await self._request("POST", self._url, body))["id"])

    async def find(self, mark: str, since: float, total: int, known: Collection[Any]) -> str | None:
        """Return the name of the batch with `total` requests, none of `known`, that was created
        nearest to `since` (seconds since the epoch), at most 300 s apart (clocks differ)."""
        found: list[tuple[float, str]] = []
        for row in (await self._request("GET", f"{self._url}?limit=100"))["data"]:
            apart = abs(datetime.fromisoformat(row["created_at"]).timestamp() - since)
            same = sum(row["request_counts"].values()) == total
            if same and apart <= 300.0 and row["id"] not in known:
                found.append((apart, row["id"]))
        return min(found)[1] if found else None

    async def state(self, batch: str) -> BatchState:
        row = await self._request("GET", f"{self._url}/{batch}", batch=batch)
        status, counts = str(row["processing_status"]), row["request_counts"]
        failed = counts["errored"] + counts["canceled"] + counts["expired"]
        files = (f"{self._url}/{batch}/results",)  # whatever address it says
        return BatchState(status, status == "ended", counts["succeeded"], failed, files)

    def _translated(self, fields: dict[str, Any]) -> dict[str, Any]:
        config, model = self._model.litellm.AnthropicConfig(), self.ref.partition("/")[2]
        said = [dict(message) for message in fields["messages"]]
        try:
            optional = config.map_openai_params(fields, {}, model, False)
            optional.pop("json_mode", None)  # litellm's own note of how it reads the reply
            body = config.transform_request(model, said, optional, {}, {})
        except Exception as error:
            raise self._model.error_of(error) from error
        return {"params": {**body, **self._model.parameters.extra_body}}

    def _read_result(self, row: Any) -> Completion | ModelError:
        import httpx

        result, litellm = row["result"], self._model.litellm
        if result["type"] == "errored":
            error = result["error"].get("error") or result["error"]
            again = error.get("type") in ("rate_limit_error", "api_error", "overloaded_error")
            return self._refused(529 if again else 400, {"error": error})
        if result["type"] != "succeeded":
            return TransientModelError(f"{self.ref}: the request was {result['type']} in its batch")
        reply = litellm.AnthropicConfig().transform_parsed_response(
            completion_response=result["message"],
            raw_response=httpx.Response(200),
            model_response=litellm.ModelResponse(),
        )
        answer: Completion = self._model.read_reply(reply, self._price)
        return answer
