"""Client of OpenAI-compatible chat servers over aiohttp: a twentieth of litellm's CPU a call.

Keys go to the server's own address only: no redirect is followed. A request is sent once; its
retries are the engine's.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import orjson
from aiohttp.helpers import get_env_proxy_for_url
from yarl import URL

from convbench.errors import BrokenReply, FatalModelError, ModelError, Unreachable
from convbench.models.model import Model
from convbench.models.parameters import Parameters, unsent_names
from convbench.models.prices import Price
from convbench.models.refusals import Refusal, read_refusal, refusal_error, refusal_in
from convbench.models.replies import read_reply
from convbench.models.tools import read_arguments
from convbench.schema import Completion, ImagePart, Message, Reasoning, Sampling, ToolCall, text_of
from convbench.schema.chat import Part
from convbench.util.printable import make_printable
from convbench.util.redact import strip_address
from convbench.util.regular import open_to_read
from convbench.util.untrusted import loads
from convbench.util.words import Structured
from convbench.views import original_text

CONNECT_S = 20.0
"""Seconds to connect; the whole call is bounded by the caller."""
REPLY_BYTES, ERROR_BYTES = 8 << 20, 16 << 10
"""Most bytes of a reply, decompressed (two million tokens of text), and of an error's body."""
JSON = {"Content-Type": "application/json"}
MARK = {"type": "ephemeral"}
"""Marks the end of a prompt prefix that is to be cached (Anthropic's `cache_control`)."""


class HttpClient:
    """Requests to one server. `ref` names the model in messages; `headers` go with each."""

    def __init__(self, ref: str, base: str, headers: Mapping[str, str]) -> None:
        self.ref, self.base = ref, base
        self._headers = {"User-Agent": "convbench", **headers}
        self._sessions: dict[asyncio.AbstractEventLoop, aiohttp.ClientSession] = {}

    async def send(
        self, method: str, url: str, body: Any = None, headers: Mapping[str, str] = JSON
    ) -> tuple[int, bytes, Mapping[str, str]]:
        """Return (status, body, headers) of the response to one request, whatever its status.

        The body of an error is cut at 16 KiB. Raise Unreachable if no connection is made,
        BrokenReply if it is lost or the reply is too long, FatalModelError for an address or a
        certificate that is not valid.
        """
        try:
            async with self._request(method, url, body, headers) as reply:
                most = REPLY_BYTES if reply.status == 200 else ERROR_BYTES
                raw = bytearray()
                async for data in reply.content.iter_any():
                    raw += data
                    if len(raw) > most:
                        break
        except (aiohttp.ClientError, OSError, UnicodeError) as error:
            raise self._connection_error(url, error) from None
        if len(raw) > most and reply.status == 200:
            raise BrokenReply(f"{self.ref}: the reply is longer than {most >> 20} MiB")
        return reply.status, bytes(raw[:most]), reply.headers

    async def iter_lines(self, url: str) -> AsyncIterator[bytes]:
        """Yield the lines of a remote file without their line feeds, blank ones left out.

        Raise BadStatus unless the status is 200, and connection errors as `send` does.
        """
        try:
            async with self._request("GET", url, None, {}) as reply:
                if reply.status != 200:
                    raise BadStatus(reply.status, await reply.content.read(ERROR_BYTES))
                async for line in reply.content:
                    if line.strip():
                        yield line.rstrip(b"\r\n")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise self._connection_error(url, error) from None

    async def aclose(self) -> None:
        """Close the connections of the running loop, and what closed loops left behind."""
        for loop in list(self._sessions):
            if loop is asyncio.get_running_loop() or loop.is_closed():
                await self._sessions.pop(loop).close()

    def _request(
        self, method: str, url: str, body: Any, headers: Mapping[str, str]
    ) -> aiohttp.client._RequestContextManager:
        session = self._sessions.get(asyncio.get_running_loop())
        if session is None:
            session = self._sessions[asyncio.get_running_loop()] = self._open_session()
        return session.request(
            method,
            url,
            data=body,
            headers={**self._headers, **headers},  # not the session's, which a proxy gets too
            allow_redirects=False,
        )

    def _open_session(self) -> aiohttp.ClientSession:
        proxy, proxy_auth = None, None
        if not is_loopback(self.base):
            with suppress(LookupError):
                proxy, proxy_auth = get_env_proxy_for_url(URL(self.base))
        return aiohttp.ClientSession(
            # no limit on connections: the engine bounds the calls in flight
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_S),
            proxy=proxy,
            proxy_auth=proxy_auth,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=REPLY_BYTES,
        )

    def _connection_error(self, url: str, error: Exception) -> ModelError:
        """Return the model error for a connection error."""
        reason = make_printable(str(error).strip().split("\n")[0] or type(error).__name__)[:160]
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            host = urlsplit(url).hostname or ""
            return FatalModelError(f"{self.ref}: certificate of {host} is not valid ({reason})")
        if isinstance(error, aiohttp.InvalidURL | aiohttp.NonHttpUrlClientError | UnicodeError):
            return FatalModelError(
                f"{self.ref}: --api-base: found {strip_address(url)!r}; expected http(s)://…/v1"
            )
        if isinstance(error, _NOT_CONNECTED):
            return Unreachable(
                f"{self.ref}: cannot connect to {strip_address(url)} ({reason}); "
                "is the server running, is --api-base right?"
            )
        return BrokenReply(f"{self.ref}: connection lost ({reason})")


_NOT_CONNECTED = (
    aiohttp.ClientConnectorError,
    aiohttp.ClientHttpProxyError,
    aiohttp.ConnectionTimeoutError,
)


class BadStatus(Exception):
    """A file was not returned; holds status and body of the response."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(status)
        self.status, self.body = status, body


def is_loopback(url: str) -> bool:
    """Return True for an address of this machine itself, which no proxy serves."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class ServedModel(Model):
    """A model that another server serves, with learnt parameters and a price."""

    key_variable = ""
    """Environment variable of its key, for messages."""
    quota_is_a_rate = False
    """Whether its `insufficient_quota` is a limit a minute."""

    def __init__(
        self,
        ref: str,
        url: str | None,
        parameters: Parameters,
        price: Price | None,
        media: Path | None,
    ) -> None:
        self.ref, self.url = ref, url
        self.parameters, self.list_price, self.media = parameters, price, media
        self.priced, self.headroom = price is not None, parameters.headroom

    @property
    def identity(self) -> Mapping[str, Any]:
        """Return what a reply depends on: the address and its parameters' settings."""
        return {"url": self.url, **self.parameters.settings}

    @property
    def structured(self) -> Structured:  # type: ignore[override]
        """Return `json_schema` if it is made to reply by one, else `text`."""
        return self.parameters.structured

    def price(self, prompt: int, reply: int) -> float | None:
        """Return the dollars of so many tokens, none of them cached; None if unknown."""
        return self.list_price.cost_of(prompt, reply) if self.list_price else None

    def refusal_error(self, refusal: Refusal) -> ModelError:
        """Return, without raising it, the error for a refusal."""
        return refusal_error(self.ref, refusal, self.key_variable, self.quota_is_a_rate)


class OpenAIModel(ServedModel):
    """One model of one OpenAI-compatible server."""

    def __init__(
        self,
        ref: str,
        name: str,
        api_base: str,
        *,
        key: str | None,
        key_variable: str,
        parameters: Parameters,
        price: Price | None = None,
        media: Path | None = None,
    ) -> None:
        self.name, self.base = name, api_base.rstrip("/")
        super().__init__(ref, self.base + "/chat/completions", parameters, price, media)
        if key and not (key.isascii() and key.isprintable()):
            raise FatalModelError(
                f"{ref}: {key_variable}: the key contains a line break or an invalid character; "
                "expected one line of ASCII"
            )
        self.http = HttpClient(ref, self.base, {"Authorization": f"Bearer {key}"} if key else {})
        address = urlsplit(api_base)
        self.key_variable = key_variable
        self.quota_is_a_rate = (address.hostname or "").endswith("aliyuncs.com")
        self._endpoint = f"{name} at {address.hostname}:{address.port or ''}"

    @property
    def endpoint(self) -> str:
        """Return `NAME at HOST:PORT`, with an empty port if the address has none."""
        return self._endpoint

    @property
    def identity(self) -> Mapping[str, Any]:
        """Return what a reply depends on: address, name and its parameters' settings."""
        return {**super().identity, "name": self.name}

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, key: str
    ) -> Completion:
        """Return the reply, with the parameters that were not sent in `left_out`.

        If a parameter, the schema or the system message is refused, the call is repeated without
        it; else nothing is tried again. Raise a ModelError for any other refusal and an unusable
        reply. `key` is unused.
        """
        while True:  # each refusal leaves one more thing out
            body = self.request_body(messages, sampling)
            status, raw, headers = await self.http.send("POST", self.url or "", orjson.dumps(body))
            if status == 200:
                completion = self.read_body(raw, headers)
                return replace(completion, left_out=unsent_names(sampling, body))
            refusal = read_refusal(status, raw, headers)
            if not self.parameters.learn(refusal, body):
                raise self.refusal_error(refusal)

    def request_body(self, messages: Sequence[Message], sampling: Sampling) -> dict[str, Any]:
        """Return the body of a call's request: `extra_body`, model, messages and parameters.

        Raise FatalModelError if an image cannot be read.
        """
        return {
            **self.parameters.extra_body,
            "model": self.name,
            "messages": wire_messages(self.parameters.fit_messages(messages), self.media),
            **self.parameters.request_fields(sampling),
        }

    def read_body(
        self, raw: bytes, headers: Mapping[str, str], price: Price | None = None
    ) -> Completion:
        """Return the completion in a reply's body. `price` (a batch's) replaces the list price.

        An error within it is an error of this conversation. Raises as `read_reply` does.
        """
        try:
            body = loads(raw)
        except ValueError:
            raise BrokenReply(f"{self.ref}: reply is not a chat completion") from None
        if isinstance(body, dict) and body.get("error") and not body.get("choices"):
            raise inner_error(self.refusal_error(refusal_in(502, body, headers)))
        return read_reply(
            self.ref,
            body,
            price=price or self.list_price,
            cost=_as_number(headers.get("x-litellm-response-cost")),
            tags=self.parameters.reads == "tags",
        )

    async def aclose(self) -> None:
        """Close the connections. A later call opens new ones."""
        await self.http.aclose()


def inner_error(error: ModelError) -> ModelError:
    """Return an error that came inside of a reply with status 200: it never stops the run."""
    if isinstance(error, FatalModelError):
        error.stops_run = False
    return error


def _as_number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


def wire_messages(
    messages: Sequence[Message], media: Path | None, *, marks: bool = False
) -> list[Any]:
    """Return one dict of JSON data per message, in the form of the OpenAI chat API.

    Images become data URIs, read from the folder `media`. With `marks`, and if a message has a
    `stable` head, the end of each such head and of the system prompt is marked for caching. Raise
    FatalModelError, which does not stop the run, if an image cannot be read.
    """
    bodies = [_message_json(message, media) for message in messages]
    if marks and any("stable" in message for message in messages):
        return [_marked(out, message) for out, message in zip(bodies, messages, strict=True)]
    return bodies


def _marked(out: dict[str, Any], message: Message) -> dict[str, Any]:
    """Return a message with a cache mark at the end of its stable head."""
    content = out["content"]
    stable = len(content) if message["role"] == "system" else message.get("stable", 0)
    if not stable or not isinstance(content, str) or not content[:stable].strip():
        return out
    head: dict[str, Any] = {"type": "text", "text": content[:stable], "cache_control": MARK}
    rest = content[stable:]
    tail = [{"type": "text", "text": rest}] if rest.strip() else []
    return {**out, "content": [head, *tail]}


def _message_json(message: Message, media: Path | None) -> dict[str, Any]:
    content = message["content"]
    out: dict[str, Any] = {
        "role": message["role"],
        "content": content if isinstance(content, str) else _content_parts(content, media),
    }
    for name in ("name", "tool_call_id"):
        if name in message:
            out[name] = message[name]
    if message.get("tool_calls"):
        out["content"] = out["content"] or None
        out["tool_calls"] = [_call_json(call) for call in message["tool_calls"]]
    reasoning = message.get("reasoning")
    return out if reasoning is None else _with_reasoning(out, reasoning, text_of(content))


def _call_json(call: ToolCall) -> dict[str, Any]:
    """Return a tool call as JSON data; arguments that are not a JSON object are wrapped in one,
    since some providers refuse them."""
    arguments = call.arguments or "{}"
    if read_arguments(arguments) is None:
        arguments = json.dumps({"unreadable": arguments})
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }


def _with_reasoning(out: dict[str, Any], reasoning: Reasoning, content: str) -> dict[str, Any]:
    """Return an assistant message with its reasoning in the field that it came from."""
    if reasoning.blocks:
        blocks = [block.model_dump(exclude_none=True) for block in reasoning.blocks]
        return {**out, "thinking_blocks": blocks}
    if reasoning.via == "tags":
        return {**out, "content": original_text(reasoning, content)}
    return {**out, reasoning.via: reasoning.text}


def _content_parts(content: tuple[Part, ...], media: Path | None) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    for part in content:
        if isinstance(part, ImagePart):
            url = _data_uri(str((media or Path("media")) / part.file), part.media_type)
            parts.append({"type": "image_url", "image_url": {"url": url}})
        else:
            parts.append({"type": "text", "text": part.text})
    return parts


@lru_cache(maxsize=64)
def _data_uri(path: str, media_type: str) -> str:
    try:
        with open_to_read(Path(path)) as file:
            data = file.read()
    except OSError as error:
        line = f"{path}: image cannot be read: {error.strerror}"
        raise FatalModelError(line, stops_run=False) from None
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"
