"""A provider that keeps what arrived: who asked where, with which headers."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from .provider import Provider


class Recorder(Provider):
    """Answers as `Provider` does; `arrived` holds method, path and headers of every request."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.arrived: list[str] = []

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Keep the request, then answer it."""
        headers = "\n".join(f"{name}: {value}" for name, value in request.headers.items())
        self.arrived.append(f"{request.method} {request.raw_path}\n{headers}")
        return await super().handle(request)
