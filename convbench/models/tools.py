"""Tools as a model: the tool calls of a reply go in, their results come out.

So a round of tools is a call like any other: it is journalled, and a resumed run does not repeat a
finished round.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from convbench.blot import told
from convbench.catalog.python import function
from convbench.errors import FatalModelError, SpecError
from convbench.models.failures import ToolError
from convbench.models.mcp_server import McpServer
from convbench.models.model import Model
from convbench.net.tidy import text
from convbench.schema import Completion, Message, Sampling
from convbench.schema.tools import Tool, ToolCall, ToolLimits, ToolResult, ToolServer

LONGEST_ERROR = 500
"""Most characters of an error that the model is told."""
Fields = Mapping[str, Mapping[str, Any]]
"""Tool → the fields of the example that its function gets."""


class ToolsModel(Model):
    """The tools of one speaker; `bind` passes them the example of one conversation."""

    priced = True
    patient = True

    def __init__(
        self,
        tools: Sequence[Tool],
        limits: ToolLimits,
        *,
        downloaded: bool = False,
        servers: Mapping[str, ToolServer] | None = None,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        fields: Fields | None = None,
        running: Mapping[str, McpServer] | None = None,
    ) -> None:
        self.ref = "tools:" + ",".join(tool.name for tool in tools)
        self._tools = {tool.name: tool for tool in tools}
        self._limits, self._fields = limits, fields or {}
        if downloaded and servers:
            raise SpecError(
                f"tool server {min(servers)}: named by a downloaded spec; no program is started "
                "for it; expected functions of convbench's own"
            )
        self._running = running or {name: McpServer(name, s) for name, s in (servers or {}).items()}
        self._functions = functions or {
            tool.name: function(tool.function, downloaded=downloaded)
            for tool in tools
            if tool.function is not None
        }

    binds = True

    def bind(self, fields: Fields) -> ToolsModel:
        """Return these tools bound to the example of one conversation."""
        tools = list(self._tools.values())
        return ToolsModel(
            tools, self._limits, functions=self._functions, fields=fields, running=self._running
        )

    async def start(self) -> None:
        """Start the servers. Raises SpecError if a tool's parameters have changed."""
        for name, server in self._running.items():
            known = {tool.name: tool for tool in self._tools.values() if tool.server == name}
            offered = {tool.name: tool for tool in await server.tools(tuple(known))}
            for tool in known.values():
                if offered[tool.name].parameters != tool.parameters:
                    raise SpecError(
                        f"tool server {name}: tool {tool.name} takes other arguments than when "
                        "this run began; make a new run"
                    )

    def price(self, prompt: int, reply: int) -> float:
        """Return 0: tools cost nothing."""
        return 0.0

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, key: str
    ) -> Completion:
        """Return the results of the last message's calls as JSON; all run at once. The result of a
        failed call is an error."""
        calls = messages[-1].get("tool_calls", ())
        results = await asyncio.gather(*map(self._one, calls[: self._limits.calls]))
        many = f"error: more than {self._limits.calls} calls at once; this one was not made"
        results += [_failed(call, many) for call in calls[self._limits.calls :]]
        said = json.dumps([result.model_dump() for result in results])
        return Completion(said, "rule", 0, 0, 0.0)

    async def aclose(self) -> None:
        """End the servers."""
        for server in self._running.values():
            await server.aclose()

    async def _one(self, call: ToolCall) -> ToolResult:
        tool = self._tools.get(call.name)
        if tool is None:
            known = ", ".join(self._tools)
            return _failed(call, f"error: there is no tool {call.name[:64]!r}; there are: {known}")
        arguments = read_arguments(call.arguments)
        fault = "expected a JSON object" if arguments is None else wrong(tool, arguments)
        if arguments is None or fault:
            return _failed(call, f"error: arguments of {tool.name}: {fault}")
        try:
            async with asyncio.timeout(self._limits.seconds):
                said = await self._run(tool, arguments)
        except TimeoutError:
            return _failed(call, f"error: {tool.name} took over {self._limits.seconds:g} seconds")
        except FatalModelError:
            raise
        except ToolError as error:
            return _failed(call, f"error: {told(str(error))[:LONGEST_ERROR]}")
        except Exception as error:  # noqa: BLE001 - a tool may raise anything; the model is told
            line = told(f"{type(error).__name__}: {error}")[:LONGEST_ERROR]
            return _failed(call, f"error: {line}")
        return ToolResult(id=call.id, name=tool.name, content=self._cut(said))

    async def _run(self, tool: Tool, arguments: dict[str, Any]) -> str:
        if tool.python:
            return await _sandboxed(str(arguments["code"]), self._limits)
        if tool.server is not None:
            return await self._running[tool.server].call(tool.name, arguments)
        run, fields = self._functions[tool.name], self._fields.get(tool.name, {})
        if inspect.iscoroutinefunction(run):
            said = await run(arguments, fields)
        else:
            # a thread cannot be ended: a hanging one is abandoned, and the model gets an error
            said = await asyncio.to_thread(run, arguments, fields)
        return text(said) if isinstance(said, str) else json.dumps(said, default=str)

    def _cut(self, said: str) -> str:
        raw = said.encode("utf-8", "replace")
        if len(raw) <= self._limits.output:
            return said
        head = raw[: self._limits.output].decode("utf-8", "ignore")
        return f"{head}\n[cut: {self._limits.output:,} of {len(raw):,} bytes]"


def read_arguments(said: str) -> dict[str, Any] | None:
    """Return a call's arguments; None if they are not a JSON object."""
    try:
        found = json.loads(said or "{}")
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def wrong(tool: Tool, arguments: dict[str, Any]) -> str:
    """Return how arguments violate the tool's schema; empty if they do not."""
    import jsonschema  # type: ignore[import-untyped]

    found = next(
        iter(jsonschema.Draft202012Validator(tool.parameters).iter_errors(arguments)), None
    )
    return "" if found is None else " ".join(found.message.split())[:LONGEST_ERROR]


def _failed(call: ToolCall, line: str) -> ToolResult:
    return ToolResult(id=call.id, name=call.name, content=line, error=True)


async def _sandboxed(code: str, limits: ToolLimits) -> str:
    """Return a program's `result` as text; it runs in the sandbox, without network and files.

    Raises ToolError."""
    from convbench.sandbox import Limits, arun

    inside = Limits(seconds=limits.seconds / 2, output_kb=max(1, limits.output >> 10))
    (found,) = await arun([code], ["str(result)"], inside)
    if found.ended == "value" and isinstance(found.value, str):
        return found.value
    raise ToolError(found.why if found.error != "NameError" else f"{found.why} (set `result`)")
