"""Client of one tool server over stdio (MCP), a program that the user names. Of this process's
environment it gets the variables that its spec lists, and PATH, HOME and such.
"""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from convbench.errors import FatalModelError, MissingDependency, SpecError, ToolError
from convbench.schema.tools import Tool, ToolServer
from convbench.util.install import with_extra
from convbench.util.redact import redact_error
from convbench.util.untrusted import safe_text

START_S = 30.0
"""Seconds to start, and to list its tools."""


class McpServer:
    """A speaker's tool server; all conversations of a command share its process."""

    def __init__(self, name: str, spec: ToolServer) -> None:
        self.name, self.spec = name, spec
        self._serving: asyncio.Task[None] | None = None
        self._client: Any = None
        self._leave = asyncio.Event()
        self._why = ""

    async def start(self) -> None:
        """Start the server and wait until it answers, unless it runs. Raise FatalModelError if it
        does not start within 30 s or has ended, MissingDependency without the package mcp."""
        if self._serving is None:
            self._ready = asyncio.get_running_loop().create_future()
            self._serving = asyncio.create_task(self._hold_session())
        await asyncio.wait({self._ready, self._serving}, return_when=asyncio.FIRST_COMPLETED)
        if self._serving.done():
            self._serving.result()  # raises what is missing
            program = os.path.basename(self.spec.command[0])  # the rest of it may hold secrets
            did = "has ended" if self._ready.done() else "does not start"
            raise FatalModelError(f"tool server {self.name}: {program}: {did}: {self._why}")

    async def _hold_session(self) -> None:
        """Open the session, keep it open and close it, all in one task, as the library requires."""
        try:
            from mcp import Client, StdioServerParameters
            from mcp.client.stdio import stdio_client
        except ImportError:
            needs, install = "tool servers", with_extra("mcp")
            raise MissingDependency("mcp", needed_for=needs, install=install) from None
        logging.getLogger("mcp").addHandler(logging.NullHandler())  # hides the server's output
        program, *arguments = self.spec.command
        environment = {name: os.environ[name] for name in self.spec.env if name in os.environ}
        server = StdioServerParameters(command=program, args=arguments, env=environment)
        with tempfile.TemporaryFile("w+") as stderr:
            try:
                async with asyncio.timeout(START_S) as starting:
                    async with Client(stdio_client(server, errlog=stderr), cache=None) as client:
                        self._client = client
                        starting.reschedule(None)
                        self._ready.set_result(None)
                        await self._leave.wait()
            except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 - another's program
                self._why = _error_line(error)
            stderr.seek(0)
            self._why = redact_error(safe_text(stderr.read()[-2000:]))[-300:] or self._why

    async def list_tools(self, names: Sequence[str] = ()) -> tuple[Tool, ...]:
        """Return the tools `names`, else those named in the spec, else all, in that order; start
        the server. Raise SpecError for a missing or unusable tool or no list within 30 s."""
        await self.start()
        listed: dict[str, Any] = {}
        cursor: str | None = ""
        try:
            async with asyncio.timeout(START_S):
                while cursor is not None:
                    page = await self._client.list_tools(cursor=cursor or None)
                    listed |= {tool.name: tool for tool in page.tools}
                    cursor = page.next_cursor or None
        except Exception as error:  # noqa: BLE001 - another's program
            why = f"cannot list its tools: {_error_line(error)}"
            raise SpecError(f"tool server {self.name}: {why}") from None
        selected = names or self.spec.tools or tuple(listed)
        if lost := [name for name in selected if name not in listed]:
            known = _line(", ".join(listed)) or "nothing"
            raise SpecError(f"tool server {self.name}: has no tool {lost[0]!r}; it has {known}")
        return tuple(self._read_tool(listed[name]) for name in selected)

    def _read_tool(self, offered: Any) -> Tool:
        about = safe_text(offered.description or offered.title or offered.name)[:4000]
        shape = {"properties": {}, **offered.input_schema}
        shape.pop("$schema", None)
        try:
            return Tool(name=offered.name, about=about, parameters=shape, server=self.name)
        except ValidationError as error:
            why = f"tool {_line(offered.name)!r}: {error.errors()[0]['msg']}"
            advice = f"name the tools that you want: tool_servers.{self.name}.tools"
            raise SpecError(f"tool server {self.name}: {why}; {advice}") from None

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return the text of a tool's result, a part that is not text as `[image/png: not shown]`.
        Raise ToolError if the tool failed, FatalModelError if the server has ended."""
        await self.start()
        try:
            result = await self._client.call_tool(name, dict(arguments))
        except Exception as error:  # noqa: BLE001 - another's program
            if "closed" in str(error).lower():
                await self.aclose()
                await self.start()  # raises why it ended
            raise ToolError(_error_line(error)) from None
        parts = []
        for block in result.content:
            kind = getattr(block, "mime_type", None) or block.type
            parts.append(block.text if block.type == "text" else f"[{kind}: not shown]")
        output = safe_text("\n".join(parts))
        if result.is_error:
            raise ToolError(output or "it failed without a message")
        return output

    async def aclose(self) -> None:
        """End the server; do nothing if it never started."""
        self._leave.set()
        if self._serving is not None:  # the library waits a few seconds for it, then kills it
            await asyncio.wait({self._serving})


def _line(text: str) -> str:
    return redact_error(safe_text(text))[:300]


def _error_line(error: BaseException) -> str:
    """Return an error, or the first one of a group, on one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return f"no answer within {START_S:g} seconds"
    return _line(f"{type(error).__name__}: {error}".split("\n")[0])
