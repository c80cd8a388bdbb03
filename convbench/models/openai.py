"""Client of OpenAI-compatible chat servers over aiohttp: a twentieth of litellm's CPU a call.

Keys go to the server's own address only: no redirect is followed. A request is sent once; its
retries are the engine's.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import orjson

from convbench.errors import BrokenReply, FatalModelError, ModelError, Unreachable
from convbench.models.model import Messages, Model
from convbench.models.parameters import Parameters, read_refusal, unsent_names
from convbench.models.prices import Price
from convbench.models.replies import read_reply
from convbench.models.tools import read_arguments
from convbench.schema import Completion, ImagePart, Message, Sampling, ToolCall, text_of
from convbench.schema.chat import Part
from convbench.util.printable import make_printable
from convbench.util.redact import strip_address
from convbench.util.regular import open_to_read
from convbench.util.untrusted import loads
from convbench.util.words import Structured
from convbench.views import original_text, without_system

REPLY_BYTES = 8 << 20
"""Most bytes of a reply, decompressed: two million tokens of text."""
JSON = {"Content-Type": "application/json"}


class HttpClient:
    """Requests to one server. `ref` names the model in messages; `headers` go with each."""

    def __init__(self, ref: str, base: str, headers: Mapping[str, str]) -> None:
        self.ref, self._headers = ref, {"User-Agent": "convbench", **headers}
        self._proxied = urlsplit(base).hostname not in ("localhost", "127.0.0.1", "::1")
        self._sessions: dict[asyncio.AbstractEventLoop, aiohttp.ClientSession] = {}

    @asynccontextmanager
    async def request(
        self, method: str, url: str, body: Any = None, headers: Mapping[str, str] = JSON
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yield the response to one request. Raise Unreachable if no connection is made,
        BrokenReply if it is lost, FatalModelError for an invalid certificate."""
        loop = asyncio.get_running_loop()
        if loop not in self._sessions:
            self._sessions[loop] = aiohttp.ClientSession(
                # no limit on connections: the engine bounds the calls in flight
                connector=aiohttp.TCPConnector(limit=0),
                timeout=aiohttp.ClientTimeout(total=None, connect=20),  # the call has its own
                trust_env=self._proxied,
                cookie_jar=aiohttp.DummyCookieJar(),
                read_bufsize=REPLY_BYTES,
            )
        headers = {**self._headers, **headers}  # not the session's, which a proxy gets too
        try:
            async with self._sessions[loop].request(
                method, url, data=body, headers=headers, allow_redirects=False
            ) as reply:
                yield reply
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise self._connection_error(url, error) from None

    async def send(
        self, method: str, url: str, body: Any = None, headers: Mapping[str, str] = JSON
    ) -> tuple[int, bytes, Mapping[str, str]]:
        """Return (status, body, headers) of the response to one request, whatever its status. Raise
        as `request` does, and BrokenReply if the reply is too long."""
        raw = bytearray()
        async with self.request(method, url, body, headers) as reply:
            async for data in reply.content.iter_any():
                raw += data
                if len(raw) > REPLY_BYTES:
                    raise BrokenReply(f"{self.ref}: the reply is longer than 8 MiB")
        return reply.status, bytes(raw), reply.headers

    async def aclose(self) -> None:
        """Close the connections of the running loop, and what closed loops left behind."""
        for loop in list(self._sessions):
            if loop is asyncio.get_running_loop() or loop.is_closed():
                await self._sessions.pop(loop).close()

    def _connection_error(self, url: str, error: Exception) -> ModelError:
        reason = make_printable(str(error).strip().split("\n")[0] or type(error).__name__)[:160]
        where = strip_address(url)
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            return FatalModelError(f"{self.ref}: certificate of {where} is not valid ({reason})")
        unconnected = aiohttp.ClientConnectorError | aiohttp.ClientHttpProxyError
        if isinstance(error, unconnected | aiohttp.ConnectionTimeoutError):
            return Unreachable(
                f"{self.ref}: cannot connect to {where} ({reason}); is the server running, is "
                "--api-base right?"
            )
        return BrokenReply(f"{self.ref}: connection lost ({reason})")


@dataclass(eq=False)
class ServedModel(Model):
    """A model that another server serves. Its `key_variable` is named in messages; `marks` says
    whether prompt prefixes that are to be cached are marked, `quota_is_a_rate` whether its
    `insufficient_quota` is a limit a minute."""

    ref: str
    url: str | None
    parameters: Parameters
    list_price: Price | None = None
    media: Path | None = None
    key_variable: str = ""
    quota_is_a_rate: bool = False
    marks: bool = False

    def __post_init__(self) -> None:
        self.priced, self.headroom = self.list_price is not None, self.parameters.headroom

    @property
    def identity(self) -> Mapping[str, Any]:
        """Return what a reply depends on: the address and its parameters' settings."""
        names = ("headroom", "reads", "extra_body", "structured")
        return {"url": self.url, **{name: getattr(self.parameters, name) for name in names}}

    @property
    def structured(self) -> Structured:  # type: ignore[override]
        """Return `json_schema` if it is made to reply by one, else `text`."""
        return self.parameters.structured

    def price(self, prompt: int, reply: int) -> float | None:
        """Return the dollars of so many tokens, none of them cached; None if unknown."""
        return self.list_price.cost_of(prompt, reply) if self.list_price else None

    async def complete(self, messages: Messages, sampling: Sampling, *, key: str) -> Completion:
        """Return the reply, with the parameters that were not sent in `left_out`. If a parameter,
        the schema or the system message is refused, the call is repeated without it."""
        while True:  # each refusal leaves one more thing out
            fields = self.request_fields(messages, sampling)
            try:
                completion = await self.send(fields)
            except ModelError as refusal:
                if not self.parameters.learn(refusal, fields):
                    raise
            else:
                return replace(completion, left_out=unsent_names(sampling, fields))

    async def send(self, fields: dict[str, Any]) -> Completion:
        """Return the reply to one request with these fields. Raises ModelError."""
        raise NotImplementedError

    def request_fields(self, messages: Messages, sampling: Sampling) -> dict[str, Any]:
        """Return the fields of a request. Raise FatalModelError if an image cannot be read."""
        messages = without_system(messages) if self.parameters.folds_system else messages
        sent = wire_messages(messages, self.media, marks=self.marks)
        return {"messages": sent, **self.parameters.request_fields(sampling)}

    def completion_of(
        self, body: Any, price: Price | None = None, cost: object = None
    ) -> Completion:
        """Return the completion in a reply's body; `price` (a batch's) replaces the list price."""
        tags = self.parameters.reads == "tags"
        return read_reply(self.ref, body, price=price or self.list_price, cost=cost, tags=tags)

    def refusal(self, status: int, body: Any, headers: Mapping[str, str]) -> ModelError:
        """Return, without raising it, the error for a reply that is no completion."""
        known = self.key_variable, self.quota_is_a_rate
        return read_refusal(self.ref, status, body, headers, *known)


class OpenAIModel(ServedModel):
    """One model of one OpenAI-compatible server."""

    def __init__(
        self,
        ref: str,
        name: str,
        api_base: str,
        key: str | None,
        key_variable: str,
        parameters: Parameters,
        price: Price | None = None,
        media: Path | None = None,
    ) -> None:
        self.name, self.base = name, api_base.rstrip("/")
        url, rate = f"{self.base}/chat/completions", ".aliyuncs.com" in api_base
        super().__init__(ref, url, parameters, price, media, key_variable, rate)
        self.http = HttpClient(ref, self.base, {"Authorization": f"Bearer {key}"} if key else {})

    @property
    def endpoint(self) -> str:
        """Return `NAME at HOST:PORT`."""
        return f"{self.name} at {urlsplit(self.base).netloc.rpartition('@')[2]}"

    def request_fields(self, messages: Messages, sampling: Sampling) -> dict[str, Any]:
        """Return the body of a call's request."""
        fields = super().request_fields(messages, sampling)
        return {**self.parameters.extra_body, "model": self.name, **fields}

    async def send(self, fields: dict[str, Any]) -> Completion:
        """Return the reply to one request with this body. Raises ModelError."""
        status, raw, headers = await self.http.send("POST", self.url or "", orjson.dumps(fields))
        if status != 200:
            raise self.refusal(status, raw, headers)
        try:
            body = loads(raw)
        except ValueError:
            raise BrokenReply(f"{self.ref}: reply is not a chat completion") from None
        if isinstance(body, dict) and body.get("error") and not body.get("choices"):
            error = self.refusal(502, body, headers)
            if isinstance(error, FatalModelError):
                error.stops_run = False  # what comes within a 200 is this conversation's
            raise error
        cost = None
        with suppress(ValueError):
            cost = float(headers.get("x-litellm-response-cost", ""))
        return self.completion_of(body, cost=cost)

    async def aclose(self) -> None:
        """Close the connections; a later call opens new ones."""
        await self.http.aclose()


def wire_messages(messages: Messages, media: Path | None, *, marks: bool = False) -> list[Any]:
    """Return one dict of JSON data per message, in the form of the OpenAI chat API; images, of the
    folder `media`, become data URIs.

    With `marks`, and if a message has a `stable` head, the ends of the heads and of the system
    prompt are marked for caching.
    """
    marks = marks and any("stable" in message for message in messages)
    return [_message_json(message, media, marks) for message in messages]


def _message_json(message: Message, media: Path | None, marks: bool) -> dict[str, Any]:
    content, reasoning = message["content"], message.get("reasoning")
    out: dict[str, Any] = {"role": message["role"], "content": content}
    if not isinstance(content, str):
        out["content"] = [_part_json(part, media) for part in content]
    for name in ("name", "tool_call_id"):
        if name in message:
            out[name] = message[name]
    if calls := message.get("tool_calls"):
        out["content"] = out["content"] or None
        out["tool_calls"] = [_call_json(call) for call in calls]
    if reasoning is not None and reasoning.blocks:
        out["thinking_blocks"] = [block.model_dump(exclude_none=True) for block in reasoning.blocks]
    elif reasoning is not None and reasoning.via == "tags":
        out["content"] = original_text(reasoning, text_of(content))
    elif reasoning is not None:  # in the field that it came from
        out[reasoning.via] = reasoning.text
    stable = len(content) if message["role"] == "system" else message.get("stable", 0)
    if marks and isinstance(content, str) and content[:stable].strip():
        texts = [text for text in (content[:stable], content[stable:]) if text.strip()]
        out["content"] = [{"type": "text", "text": text} for text in texts]
        out["content"][0]["cache_control"] = {"type": "ephemeral"}  # Anthropic's mark
    return out


def _call_json(call: ToolCall) -> dict[str, Any]:
    arguments = call.arguments or "{}"
    if read_arguments(arguments) is None:  # which some providers refuse
        arguments = json.dumps({"unreadable": arguments})
    return call.model_copy(update={"arguments": arguments}).wire


@lru_cache(maxsize=64)
def _part_json(part: Part, media: Path | None) -> dict[str, Any]:
    if not isinstance(part, ImagePart):
        return {"type": "text", "text": part.text}
    path = (media or Path("media")) / part.file
    try:
        with open_to_read(path) as file:
            data = base64.b64encode(file.read()).decode()
    except OSError as error:
        line = f"{path}: image cannot be read: {error.strerror}"
        raise FatalModelError(line, stops_run=False) from None
    return {"type": "image_url", "image_url": {"url": f"data:{part.media_type};base64,{data}"}}
