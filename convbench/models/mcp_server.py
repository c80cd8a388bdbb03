"""Client of one tool server over stdio (MCP): start it, list its tools, call them, end it.

The server runs in a subprocess behind a relay (`convbench.util.guard`), which bounds its output and
ends it with all its descendants. Of this process's environment it gets only the variables listed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from convbench.errors import FatalModelError, MissingDependency, SpecError
from convbench.models.failures import ToolError
from convbench.net.untrusted_json import safe_text
from convbench.schema.tools import Tool, ToolServer
from convbench.util.guard import with_relay
from convbench.util.install import with_extra
from convbench.util.redact import redact_error

START_S = 30.0
"""Seconds to start, and to list its tools."""
END_S = 15.0
"""Seconds that its end may take; the relay's own limits are shorter."""
STARTS = 3
"""Most starts of a server; one that keeps ending stops the run."""
MOST_TOOLS = 64
MOST_PAGES = 20
LONGEST_LINE = 300
"""Most characters of its output in an error message."""


class McpServer:
    """A speaker's tool server; all conversations of a command share its process."""

    def __init__(self, name: str, spec: ToolServer) -> None:
        self.name, self.spec = name, spec
        self._starts = 0
        self._starting = asyncio.Lock()
        self._serving: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] | None = None
        self._session: Any = None
        self._leave = asyncio.Event()
        self._why = ""

    async def start(self) -> None:
        """Start the server and wait until it answers, unless it runs.

        Raise FatalModelError if it does not start within 30 s or has ended three times,
        MissingDependency without the package mcp.
        """
        async with self._starting:
            if self._serving is None or self._serving.done():
                if self._starts >= STARTS:
                    line = f"tool server {self.name}: ended {STARTS} times{self._why}"
                    raise FatalModelError(line)
                self._starts += 1
                self._leave = asyncio.Event()
                self._ready = asyncio.get_running_loop().create_future()
                self._serving = asyncio.create_task(self._hold_session(self._ready))
            assert self._ready is not None
            await asyncio.wait({self._ready, self._serving}, return_when=asyncio.FIRST_COMPLETED)
            if not self._ready.done():
                self._starts = STARTS  # one that never answered is not started again
                raise FatalModelError(
                    f"tool server {self.name}: {self.program_name}: does not start{self._why}"
                )

    @property
    def program_name(self) -> str:
        """Return the last part of the program's path, for messages; its arguments may hold
        secrets."""
        return os.path.basename(self.spec.command[0])

    async def _hold_session(self, ready: asyncio.Future[None]) -> None:
        """Open the session, keep it open and close it, all in one task, as the library requires."""
        client, stdio, parameters = _import_mcp()
        with tempfile.TemporaryFile() as stderr:
            try:
                async with asyncio.timeout(START_S) as starting:
                    transport = stdio(parameters(**self._server_parameters()), errlog=stderr)
                    async with client(transport, cache=None) as opened:
                        self._session = opened.session
                        starting.reschedule(None)
                        ready.set_result(None)
                        await self._leave.wait()
            except TimeoutError:
                self._why = f": did not answer within {START_S:g} seconds"
            except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 - a stranger's program
                self._why = f": {_error_line(error)}"
            finally:
                self._session = None
                stderr.seek(0)
                words = stderr.read().decode("utf-8", "replace").strip()
                self._why = (
                    f": {redact_error(safe_text(words))[:LONGEST_LINE]}" if words else self._why
                )

    def _server_parameters(self) -> dict[str, Any]:
        program, *arguments = with_relay(self.spec.command)
        environment = {name: os.environ[name] for name in self.spec.env if name in os.environ}
        return {"command": program, "args": arguments, "env": environment}

    async def list_tools(self, names: Sequence[str] = ()) -> tuple[Tool, ...]:
        """Return the tools `names`, else those named in the spec, else all, in that order; start
        the server.

        Without any names the order is the server's. Raise SpecError for a missing or unusable tool,
        more than 64 tools, or no list within 30 s; FatalModelError if the server does not start.
        """
        await self.start()
        try:
            async with asyncio.timeout(START_S):
                listed = await self._fetch_tools()
        except TimeoutError:
            raise self._spec_error(f"did not list its tools within {START_S:g} seconds") from None
        except SpecError:
            raise
        except Exception as error:  # noqa: BLE001 - a stranger's program
            raise self._spec_error(f"cannot list its tools: {_error_line(error)}") from None
        selected = names or self.spec.tools or tuple(listed)
        if lost := [name for name in selected if name not in listed]:
            known = ", ".join(map(_short_name, listed)) or "nothing"
            raise self._spec_error(f"has no tool {lost[0]!r}; it has {known}")
        return tuple(_read_tool(self.name, listed[name]) for name in selected)

    async def _fetch_tools(self) -> dict[str, Any]:
        import mcp_types as types

        tools: dict[str, Any] = {}
        cursor = None
        for _ in range(MOST_PAGES):
            params = types.PaginatedRequestParams(cursor=cursor)
            page = await self._session.send_request(
                types.ListToolsRequest(params=params), types.ListToolsResult
            )
            tools |= {tool.name: tool for tool in page.tools}
            if len(tools) > MOST_TOOLS:
                break
            if (cursor := page.next_cursor) is None:
                return tools
        many = f"more than {MOST_TOOLS} tools, or {MOST_PAGES} pages of them"
        raise self._spec_error(f"found {many}; expected fewer")

    def _spec_error(self, why: str) -> SpecError:
        return SpecError(f"tool server {self.name}: {why}")

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return a tool's result as text, its parts joined by line breaks; start the server if
        necessary.

        A part that is not text becomes a note such as `[image/png: not shown]`. Without any part
        the result is its structured content as JSON, else empty. Raise ToolError if the tool failed
        or the server ended meanwhile, FatalModelError if the server cannot be started again. There
        is no time limit.
        """
        import mcp_types as types

        await self.start()
        serving = self._serving
        assert serving is not None
        params = types.CallToolRequestParams(name=name, arguments=dict(arguments))
        request = asyncio.ensure_future(
            self._session.send_request(types.CallToolRequest(params=params), types.CallToolResult)
        )
        try:
            await asyncio.wait({request, serving}, return_when=asyncio.FIRST_COMPLETED)
            if not request.done():
                raise ToolError(f"its server ended{self._why}")
            result = request.result()
        except (ToolError, asyncio.CancelledError):
            raise
        except Exception as error:  # noqa: BLE001 - a stranger's program
            raise ToolError(await self._failure_text(serving, error)) from None
        finally:
            request.cancel()
        output = _result_text(result)
        if result.is_error:
            raise ToolError(output or "it failed without a message")
        return output

    async def _failure_text(self, serving: asyncio.Task[None], error: Exception) -> str:
        """Return why a call failed, after waiting for the server if its connection is closed."""
        if "closed" not in str(error).lower():
            return _error_line(error)
        self._leave.set()
        await asyncio.wait({serving}, timeout=END_S)
        return f"its server ended{self._why}"

    async def aclose(self) -> None:
        """End the server with all of its descendants, waiting at most 15 s; do nothing if it never
        started."""
        if self._serving is None:
            return
        self._leave.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({self._serving}, timeout=END_S)
        self._serving.cancel()


def _import_mcp() -> tuple[Any, Any, Any]:
    try:
        from mcp import Client, StdioServerParameters
        from mcp.client.stdio import stdio_client
    except ImportError:
        raise MissingDependency(
            "mcp", needed_for="tool servers", install=with_extra("mcp")
        ) from None
    logging.getLogger("mcp").addHandler(logging.NullHandler())  # hides the server's output
    return Client, stdio_client, StdioServerParameters


def _read_tool(server: str, server_tool: Any) -> Tool:
    """Return a server's tool as a protocol declares tools. Raises SpecError if it cannot be."""
    schema = {name: value for name, value in server_tool.input_schema.items() if name != "$schema"}
    schema.setdefault("properties", {})
    about = safe_text(server_tool.description or server_tool.title or server_tool.name)[:4000]
    try:
        return Tool(name=server_tool.name, about=about, parameters=schema, server=server)
    except ValueError as error:
        line = str(error).splitlines()
        why = next((entry for entry in line if "Value error" in entry), line[-1]).strip()
        raise SpecError(
            f"tool server {server}: tool {_short_name(server_tool.name)!r}: {why[:LONGEST_LINE]}; "
            "name the "
            f"tools that you want: tool_servers.{server}.tools"
        ) from None


def _result_text(result: Any) -> str:
    """Return a result's text; a part that is not text is replaced by a note."""
    parts = list(_iter_texts(result))
    if not parts and result.structured_content is not None:
        return json.dumps(result.structured_content, default=str)
    return "\n".join(parts)


def _iter_texts(result: Any) -> Iterator[str]:
    for block in result.content:
        if block.type == "text":
            yield safe_text(block.text)
        else:
            yield f"[{_short_name(getattr(block, 'mime_type', None) or block.type)}: not shown]"


def _short_name(name: object) -> str:
    return redact_error(safe_text(str(name)))[:64]


def _error_line(error: BaseException) -> str:
    """Return an error, or the first one of a group, on one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return redact_error(f"{type(error).__name__}: {error}".split("\n")[0])[:LONGEST_LINE]
