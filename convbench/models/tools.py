"""Tools as a model: the tool calls of a reply go in, their results come out.

So a round of tools is a call like any other: it is journalled, and a resumed run does not repeat a
finished round.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
from collections.abc import Mapping, Sequence
from typing import Any

from convbench.catalog.python import find_function
from convbench.errors import FatalModelError, SpecError, ToolError
from convbench.models.mcp_server import McpServer
from convbench.models.model import Model
from convbench.schema import Completion, Message, Sampling
from convbench.schema.tools import Tool, ToolCall, ToolLimits, ToolResult, ToolServer
from convbench.util.redact import redact_error
from convbench.util.untrusted import safe_text

LONGEST_ERROR = 500
"""Most characters of an error that the model is told."""
Fields = Mapping[str, Mapping[str, Any]]
"""Tool → the fields of the example that its function gets."""


class ToolsModel(Model):
    """The tools of one speaker; `bind` passes them the example of one conversation."""

    priced = True
    patient = True
    binds = True

    def __init__(
        self,
        tools: Sequence[Tool],
        limits: ToolLimits,
        *,
        downloaded: bool = False,
        servers: Mapping[str, ToolServer] | None = None,
    ) -> None:
        self.ref = "tools:" + ",".join(tool.name for tool in tools)
        self._tools = {tool.name: tool for tool in tools}
        self._limits = limits
        self._fields: Fields = {}
        if downloaded and servers:
            raise SpecError(
                f"tool server {min(servers)}: named by a downloaded spec; no program is started "
                "for it; expected functions of convbench's own"
            )
        self._servers = {name: McpServer(name, spec) for name, spec in (servers or {}).items()}
        self._functions = {
            tool.name: find_function(tool.function, downloaded=downloaded)
            for tool in tools
            if tool.function is not None
        }

    def bind(self, fields: Fields) -> ToolsModel:
        """Return a new model with the same tools and running servers, bound to the example of one
        conversation: `fields` maps each tool to the example's fields that its function gets."""
        bound = copy.copy(self)
        bound._fields = fields
        return bound

    async def start(self) -> None:
        """Start the servers and list their tools; do nothing without servers.

        Raise SpecError if a tool is missing or its parameters have changed, FatalModelError if a
        server does not start.
        """
        for name, server in self._servers.items():
            known = [tool for tool in self._tools.values() if tool.server == name]
            offered = await server.list_tools(tuple(tool.name for tool in known))
            for tool, now in zip(known, offered, strict=True):
                if now.parameters != tool.parameters:
                    raise SpecError(
                        f"tool server {name}: tool {tool.name} has other parameters than when "
                        "this run began; start a new run"
                    )

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, key: str
    ) -> Completion:
        """Return the results of the last message's tool calls, as the text of a JSON list of
        ToolResult, in order.

        All calls run at once, each with a time limit; those beyond the limit of calls are not made.
        The result of a failed call is an error in words. Raise FatalModelError if a server is gone.
        `sampling` and `key` are unused.
        """
        most, calls = self._limits.calls, messages[-1].get("tool_calls", ())
        results = await asyncio.gather(*map(self._run_call, calls[:most]))
        many = f"more than {most} calls at once; this one was not made"
        results += [_error_result(call, many) for call in calls[most:]]
        content = json.dumps([result.model_dump() for result in results])
        return Completion(content, "rule", 0, 0, 0.0)

    async def aclose(self) -> None:
        """End the servers, also those that models made by `bind` share."""
        for server in self._servers.values():
            await server.aclose()

    async def _run_call(self, call: ToolCall) -> ToolResult:
        tool = self._tools.get(call.name)
        if tool is None:
            known = ", ".join(self._tools)
            return _error_result(call, f"there is no tool {call.name[:64]!r}; there are: {known}")
        arguments = read_arguments(call.arguments)
        fault = "expected a JSON object" if arguments is None else _fault_of(tool, arguments)
        if arguments is None or fault:
            return _error_result(call, f"arguments of {tool.name}: {fault}")
        try:
            async with asyncio.timeout(self._limits.seconds):
                output = await self._run_tool(tool, arguments)
        except TimeoutError:
            return _error_result(call, f"{tool.name} took over {self._limits.seconds:g} seconds")
        except FatalModelError:
            raise
        except Exception as error:  # noqa: BLE001 - a tool may raise anything
            kind = "" if isinstance(error, ToolError) else f"{type(error).__name__}: "
            return _error_result(call, redact_error(f"{kind}{error}")[:LONGEST_ERROR])
        raw = output.encode("utf-8", "replace")
        if len(raw) > self._limits.output:
            head = raw[: self._limits.output].decode("utf-8", "ignore")
            output = f"{head}\n[cut: {self._limits.output:,} of {len(raw):,} bytes]"
        return ToolResult(id=call.id, name=tool.name, content=output)

    async def _run_tool(self, tool: Tool, arguments: dict[str, Any]) -> str:
        if tool.python:
            return await _run_sandboxed(str(arguments["code"]), self._limits)
        if tool.server is not None:
            return await self._servers[tool.server].call_tool(tool.name, arguments)
        run, fields = self._functions[tool.name], self._fields.get(tool.name, {})
        if inspect.iscoroutinefunction(run):
            output = await run(arguments, fields)
        else:
            # a thread cannot be ended: a hanging one is abandoned, and the model gets an error
            output = await asyncio.to_thread(run, arguments, fields)
        return safe_text(output) if isinstance(output, str) else json.dumps(output, default=str)


def read_arguments(raw: str) -> dict[str, Any] | None:
    """Return a call's arguments as a dict, empty for empty text; None if they are not a JSON
    object."""
    try:
        arguments = json.loads(raw or "{}")
    except (ValueError, RecursionError):
        return None
    return arguments if isinstance(arguments, dict) else None


def _fault_of(tool: Tool, arguments: dict[str, Any]) -> str:
    """Return one way in which arguments violate the tool's JSON schema, in words, or ""."""
    import jsonschema  # type: ignore[import-untyped]

    faults = jsonschema.Draft202012Validator(tool.parameters).iter_errors(arguments)
    error = next(iter(faults), None)
    return "" if error is None else " ".join(error.message.split())[:LONGEST_ERROR]


def _error_result(call: ToolCall, line: str) -> ToolResult:
    return ToolResult(id=call.id, name=call.name, content=f"error: {line}", error=True)


async def _run_sandboxed(code: str, limits: ToolLimits) -> str:
    """Return a program's `result` as text; it runs in the sandbox, without network and files.

    Raises ToolError."""
    from convbench.sandbox import Limits, run_calls_async

    inside = Limits(seconds=limits.seconds / 2, output_kb=max(1, limits.output >> 10))
    (outcome,) = await run_calls_async([code], ["str(result)"], inside)
    if outcome.ended == "value" and isinstance(outcome.value, str):
        return outcome.value
    raise ToolError(outcome.why + (" (set `result`)" if outcome.error == "NameError" else ""))
