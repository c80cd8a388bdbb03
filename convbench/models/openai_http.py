"""OpenAI-compatible endpoints with plain aiohttp: a small share of litellm's CPU a call."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import orjson

from convbench.blot import address, keys
from convbench.errors import FatalModelError, Usage
from convbench.models.failures import BrokenReply, Unreachable
from convbench.models.model import Model
from convbench.models.parameters import Parameters
from convbench.models.prices import Price
from convbench.models.refusals import failure, message, refused_parameter
from convbench.models.replies import completion_of
from convbench.models.wire import wire
from convbench.net.body import ACCEPTED, ERROR_BYTES, REPLY_BYTES, BadBody, Body
from convbench.net.redirects import redirected
from convbench.net.tidy import count, dollars, loads
from convbench.schema import Completion, Message, Sampling

if TYPE_CHECKING:
    import aiohttp

CONNECT_S = 20.0
"""Seconds to connect; the whole call is bounded by the engine."""


class OpenAIModel(Model):
    """One model of one OpenAI-compatible endpoint."""

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
        hint: str = "",
    ) -> None:
        self.ref, self.name = ref, name
        self.priced = price is not None
        self.url = api_base.rstrip("/") + "/chat/completions"
        self._endpoint = f"{name} at {urlsplit(api_base).hostname}:{urlsplit(api_base).port or ''}"
        self._key, self._key_variable = key, key_variable
        self._parameters, self._price, self._media = parameters, price, media
        self._hint = hint
        self.headroom = parameters.headroom
        self._answered = False
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._proxy: str | None = None

    @property
    def endpoint(self) -> str:
        """The model at its server."""
        return self._endpoint

    @property
    def left_out(self) -> frozenset[str]:
        """Sampling parameters that are not sent: the alias's, and those it refused."""
        return self._parameters.left_out

    def price(self, prompt: int, reply: int) -> float | None:
        """Return the dollars of a call of so many tokens; None where the price is unknown."""
        return self._price.of(prompt, reply) if self._price else None

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, key: str
    ) -> Completion:
        """Return the reply; where a sampling parameter or a system message is refused, the call
        is made again without."""
        for _ in range(5):
            body = {
                "model": self.name,
                "messages": wire(self._parameters.messages(messages), self._media),
                **self._parameters.fields(sampling),
            }
            status, raw, headers = await self._post(orjson.dumps(body))
            if status == 200:
                return self._read(raw)
            if 300 <= status < 400 and headers.get("Location"):
                raise redirected(self.ref, self.url, headers["Location"])
            text = message(raw)
            if refused_parameter(status, text) and self._parameters.refused(status, text, body):
                continue
            break
        raise failure(
            self.ref,
            status,
            text,
            headers,
            key_variable=self._key_variable,
            hint=self._hint,
            answered=self._answered,
        )

    async def aclose(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _post(self, body: bytes) -> tuple[int, bytes, Any]:
        """Send one request. Raises Unreachable, BrokenReply, or FatalModelError for a bad URL."""
        import aiohttp

        session = self._open()
        try:
            async with session.post(
                self.url, data=body, proxy=self._proxy, allow_redirects=False
            ) as reply:
                return reply.status, await self._body(reply), reply.headers
        except aiohttp.ClientConnectorCertificateError as error:
            raise FatalModelError(f"{self.ref}: certificate of {error.host} is not valid") from None
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise Unreachable(
                f"{self.ref}: cannot connect to {address(self.url)} ({_reason(error)}); "
                "is the server running, is --api-base right?"
            ) from None
        except aiohttp.InvalidURL:
            raise FatalModelError(
                f"{self.ref}: --api-base: found {address(self.url)!r}; expected http(s)://…/v1"
            ) from None
        except (aiohttp.ClientError, ConnectionError) as error:
            raise BrokenReply(f"{self.ref}: connection lost ({_reason(error)})") from None

    async def _body(self, reply: aiohttp.ClientResponse) -> bytes:
        """Return the body; BadBody where it is longer than any reply, an error's is cut."""
        body: Body | None = None
        try:
            limit = REPLY_BYTES if reply.status == 200 else ERROR_BYTES
            body = Body(reply.headers.get("Content-Encoding"), limit)
            async for chunk in reply.content.iter_any():
                body.feed(chunk)
        except BadBody as error:
            reply.close()
            if reply.status == 200:
                raise BadBody(f"{self.ref}: {error}") from None
        return body.whole() if body else b""

    def _open(self) -> aiohttp.ClientSession:
        """Return the session of the loop that runs now."""
        import aiohttp

        loop = asyncio.get_running_loop()
        if self._session is None or self._loop is not loop:
            headers = {
                "Content-Type": "application/json",
                "User-Agent": "convbench",
                "Accept-Encoding": ACCEPTED,
            }
            if self._key:
                headers["Authorization"] = f"Bearer {self._key}"
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=300),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
                headers=headers,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
            self._loop = loop
            self._proxy = _proxy(self.url)
        return self._session

    def _read(self, raw: bytes) -> Completion:
        """Return the completion in a reply's body, or raise BrokenReply with the usage it told."""
        body = _json(raw)
        usage = self._usage(body)  # before the answer is looked at: it is billed, whatever it is
        try:
            choice = body["choices"][0]
            said = choice["message"]
            content, reason = said.get("content"), choice.get("finish_reason")
            if not content and isinstance(said.get("refusal"), str):
                content, reason = said["refusal"], "content_filter"
        except (KeyError, IndexError, TypeError, AttributeError):
            line = f"{self.ref}: reply is not a chat completion: {_start(raw)!r}"
            raise BrokenReply(line, usage=usage) from None
        completion = completion_of(self.ref, content, reason, usage=usage, model=body.get("model"))
        self._answered = True
        return completion

    def _usage(self, body: Any) -> Usage:
        """Return what a reply's body tells of its tokens and dollars."""
        told = body.get("usage") if isinstance(body, dict) else None
        told = told if isinstance(told, dict) else {}
        prompt, reply = count(told.get("prompt_tokens")), count(told.get("completion_tokens"))
        cost = dollars(told.get("cost"))
        if cost is None and self._price and prompt is not None and reply is not None:
            details = told.get("prompt_tokens_details")
            cached = count(details.get("cached_tokens")) if isinstance(details, dict) else None
            cost = self._price.of(prompt, reply, min(cached or 0, prompt))
        return Usage(prompt, reply, cost)


def _json(raw: bytes) -> Any:
    """Return a body's JSON; None where it is none."""
    try:
        return loads(raw)
    except ValueError:
        return None


def _start(raw: bytes) -> str:
    """Return how a body begins, for a message."""
    if raw.lstrip()[:1] == b"<":
        return message(raw)
    return keys(raw[:4000].decode("utf-8", "replace"))[:60]


def _reason(error: BaseException) -> str:
    inner = getattr(error, "os_error", None)
    text = getattr(inner, "strerror", None) or str(inner or error) or type(error).__name__
    return text.split("\n")[0][:120]


def _proxy(url: str) -> str | None:
    """Return the proxy that the environment names for this URL, as other clients would."""
    host = urlsplit(url).hostname or ""
    if not urllib.request.getproxies() or urllib.request.proxy_bypass(host):
        return None
    return urllib.request.getproxies().get(urlsplit(url).scheme)
