"""What goes over the wire when the provider fails a call."""

from __future__ import annotations

import asyncio
import json

from aiohttp import web

from ..serve import drop, json_reply
from .dialects import Dialect, Refusal
from .plan import Plan
from .replies import Call

GARBAGE = "I'm sorry, I was distracted. Could you say that again?"
HTML_502 = "<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
IMMEDIATE = ("429", "429_retry_after", "hang")
"""Faults that do not wait for the latency."""


def rate_limited(plan: Plan, dialect: Dialect, *, header: bool) -> web.Response:
    """429, with or without Retry-After."""
    refusal = Refusal(429, "requests", "Rate limit reached for requests", "rate_limit_exceeded")
    headers = {"Retry-After": str(plan.retry_after)} if header else None
    return json_reply(dialect.error(refusal), 429, headers)


async def failed(
    fault: str, request: web.BaseRequest, plan: Plan, dialect: Dialect, call: Call, key: str
) -> web.StreamResponse:
    """The response (or its absence) of the fault kinds in `plan.FAULTS`."""
    if fault in ("429", "429_retry_after"):
        return rate_limited(plan, dialect, header=fault == "429_retry_after")
    if fault == "hang":
        await asyncio.sleep(plan.hang_s)
        return json_reply(dialect.error(Refusal(504, "server_error", "Timed out")), 504)
    if fault == "502":
        return web.Response(text=HTML_502, status=502, content_type="text/html")
    if fault in ("500", "503"):
        message = "The server had an error while processing your request"
        return json_reply(dialect.error(Refusal(int(fault), "server_error", message)), int(fault))
    if fault == "reset":
        return drop(request)
    text = {"empty": "", "null": None}.get(fault, GARBAGE)
    words = len((text or "").split())
    reply = dialect.write(call, key, text, call.words, words, False)
    if fault in ("truncated", "partial"):
        return await _cut_short(request, json.dumps(reply).encode(), whole=fault == "truncated")
    return json_reply(reply)


async def _cut_short(request: web.BaseRequest, body: bytes, *, whole: bool) -> web.StreamResponse:
    half = body[: len(body) // 2]
    response = web.StreamResponse()
    response.content_type = "application/json"
    response.content_length = len(half) if whole else len(body)
    await response.prepare(request)
    await response.write(half)
    if not whole and request.transport is not None:
        request.transport.close()
    return response
