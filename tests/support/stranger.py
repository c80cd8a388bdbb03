"""A server that answers whatever a test says, and records what was asked of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from .serve import LocalServer


@dataclass(frozen=True)
class Asked:
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes


Answer = Callable[[web.BaseRequest, Asked], Any]
"""Returns a response, plain or async."""


class Stranger(LocalServer):
    """The server; `asked` holds the requests in their order."""

    def __init__(self, answer: Answer, *, port: int = 0) -> None:
        super().__init__(port=port)
        self.asked: list[Asked] = []
        self._answer = answer

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Record the request, then answer it."""
        body = await request.content.read()
        asked = Asked(request.raw_path, {k.lower(): v for k, v in request.headers.items()}, body)
        self.asked.append(asked)
        found = self._answer(request, asked)
        return await found if inspect.isawaitable(found) else found
