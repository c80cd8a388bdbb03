"""Client of one tool server over stdio (MCP), a program that the user names: start it, list its
tools, call them, end it.

Of this process's environment it gets the variables that its spec lists, and those that `mcp` passes
to every server (PATH, HOME and such).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from convbench.errors import FatalModelError, MissingDependency, SpecError, ToolError
from convbench.schema.tools import Tool, ToolServer
from convbench.util.install import with_extra
from convbench.util.redact import redact_error
from convbench.util.untrusted import safe_text

START_S = 30.0
"""Seconds to start, and to list its tools."""
END_S = 15.0
"""Seconds that its end may take; the library's own limits are shorter."""
LONGEST_LINE = 300
"""Most characters of its output in an error message."""


class McpServer:
    """A speaker's tool server; all conversations of a command share its process."""

    def __init__(self, name: str, spec: ToolServer) -> None:
        self.name, self.spec = name, spec
        self._serving: asyncio.Task[None] | None = None
        self._client: Any = None
        self._leave = asyncio.Event()
        self._why = ""

    async def start(self) -> None:
        """Start the server and wait until it answers, unless it runs.

        Raise FatalModelError if it does not start within 30 s or has ended, MissingDependency
        without the package mcp.
        """
        if self._serving is None:
            self._ready = asyncio.get_running_loop().create_future()
            self._serving = asyncio.create_task(self._hold_session())
        await asyncio.wait({self._ready, self._serving}, return_when=asyncio.FIRST_COMPLETED)
        if self._serving.done():
            self._serving.result()  # raises what is missing
            program = os.path.basename(self.spec.command[0])  # the rest of it may hold secrets
            did = "has ended" if self._ready.done() else "does not start"
            raise FatalModelError(f"tool server {self.name}: {program}: {did}{self._why}")

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
                self._why = f": {_error_line(error)}"
            stderr.seek(0)
            if words := stderr.read()[-2000:].strip():
                self._why = f": {redact_error(safe_text(words))[-LONGEST_LINE:]}"

    async def list_tools(self, names: Sequence[str] = ()) -> tuple[Tool, ...]:
        """Return the tools `names`, else those named in the spec, else all, in that order; start
        the server.

        Raise SpecError for a missing or unusable tool or no list within 30 s, FatalModelError if
        the server does not start.
        """
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
            line = f"tool server {self.name}: cannot list its tools: {_error_line(error)}"
            raise SpecError(line) from None
        selected = names or self.spec.tools or tuple(listed)
        if lost := [name for name in selected if name not in listed]:
            known = redact_error(safe_text(", ".join(listed)))[:LONGEST_LINE] or "nothing"
            raise SpecError(f"tool server {self.name}: has no tool {lost[0]!r}; it has {known}")
        return tuple(self._read_tool(listed[name]) for name in selected)

    def _read_tool(self, offered: Any) -> Tool:
        """Return a server's tool as a protocol declares tools. Raises SpecError if it cannot be."""
        schema = {name: value for name, value in offered.input_schema.items() if name != "$schema"}
        schema.setdefault("properties", {})
        about = safe_text(offered.description or offered.title or offered.name)[:4000]
        try:
            return Tool(name=offered.name, about=about, parameters=schema, server=self.name)
        except ValueError as error:
            lines = str(error).splitlines()
            why = next((line for line in lines if "Value error" in line), lines[-1]).strip()
            name = redact_error(safe_text(offered.name))[:64]
            raise SpecError(
                f"tool server {self.name}: tool {name!r}: {why[:LONGEST_LINE]}; "
                f"name the tools that you want: tool_servers.{self.name}.tools"
            ) from None

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return the text of a tool's result; a part that is not text becomes a note such as
        `[image/png: not shown]`, and a result without parts its structured content as JSON.

        Raise ToolError if the tool failed, FatalModelError if the server has ended. There is no
        time limit.
        """
        await self.start()
        try:
            result = await self._client.call_tool(name, dict(arguments))
        except Exception as error:  # noqa: BLE001 - another's program
            if "closed" in str(error).lower():
                await self._end()
                await self.start()  # raises why it ended
            raise ToolError(_error_line(error)) from None
        output = "\n".join(
            block.text
            if block.type == "text"
            else f"[{getattr(block, 'mime_type', None) or block.type}: not shown]"
            for block in result.content
        )
        if not result.content and result.structured_content is not None:
            output = json.dumps(result.structured_content, default=str)
        if result.is_error:
            raise ToolError(output or "it failed without a message")
        return safe_text(output)

    async def aclose(self) -> None:
        """End the server, waiting at most 15 s; do nothing if it never started."""
        if self._serving is not None:
            await self._end()
            self._serving.cancel()

    async def _end(self) -> None:
        assert self._serving is not None
        self._leave.set()
        await asyncio.wait({self._serving}, timeout=END_S)


def _error_line(error: BaseException) -> str:
    """Return an error, or the first one of a group, on one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return f"no answer within {START_S:g} seconds"
    return redact_error(f"{type(error).__name__}: {error}".split("\n")[0])[:LONGEST_LINE]
