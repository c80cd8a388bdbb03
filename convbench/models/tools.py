"""Tools as a model: the tool calls of a reply go in, their results come out. So a round of tools is
journalled as any other call, and a resumed run does not repeat it.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Mapping, Sequence
from typing import Any

from convbench.catalog.python import find_function
from convbench.errors import FatalModelError, SpecError, ToolError
from convbench.models.mcp_server import McpServer
from convbench.models.model import Messages, Model
from convbench.schema import Completion, Sampling
from convbench.schema.tools import Tool, ToolCall, ToolLimits, ToolResult, ToolServer
from convbench.util.redact import redact_error
from convbench.util.untrusted import safe_text


class ToolsModel(Model):
    """The tools of one speaker; `example` maps each to the fields that its function gets."""

    priced = patient = binds = True

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

    async def start(self) -> None:
        """Start the servers. Raise FatalModelError if one does not start, SpecError if a tool of it
        is missing or its parameters have changed."""
        for name, server in self._servers.items():
            known = [tool for tool in self._tools.values() if tool.server == name]
            offered = await server.list_tools(tuple(tool.name for tool in known))
            for tool, now in zip(known, offered, strict=True):
                if now.parameters != tool.parameters:
                    raise SpecError(
                        f"tool server {name}: tool {tool.name} has other parameters than when "
                        "this run began; start a new run"
                    )

    async def complete(self, messages: Messages, sampling: Sampling, *, key: str) -> Completion:
        """Return the results of the last message's tool calls, run at once, as the text of a JSON
        list of ToolResult, in order; of a failed call an error in words. Raise FatalModelError if a
        server is gone."""
        calls = messages[-1].get("tool_calls", ())
        results = await asyncio.gather(*(self._run_call(*each) for each in enumerate(calls)))
        content = json.dumps([result.model_dump() for result in results])
        return Completion(content, "rule", 0, 0, 0.0)

    async def aclose(self) -> None:
        """End the servers, also those that models made by `bind` share."""
        for server in self._servers.values():
            await server.aclose()

    async def _run_call(self, index: int, call: ToolCall) -> ToolResult:
        tool, error = self._tools.get(call.name), True
        if index >= self._limits.calls:
            output = f"error: more than {self._limits.calls} calls at once; this one was not made"
        elif tool is None:
            known = ", ".join(self._tools)
            output = f"error: there is no tool {call.name[:64]!r}; there are: {known}"
        else:
            try:
                async with asyncio.timeout(self._limits.seconds):
                    output, error = await self._run_tool(tool, call.arguments), False
            except TimeoutError:
                output = f"error: {tool.name} took over {self._limits.seconds:g} seconds"
            except FatalModelError:
                raise
            except Exception as raised:  # noqa: BLE001 - a tool may raise anything
                kind = "" if isinstance(raised, ToolError) else f"{type(raised).__name__}: "
                output = f"error: {redact_error(f'{kind}{raised}')[:500]}"
        raw = output.encode("utf-8", "replace")
        if len(raw) > self._limits.output:
            head = raw[: self._limits.output].decode("utf-8", "ignore")
            output = f"{head}\n[cut: {self._limits.output:,} of {len(raw):,} bytes]"
        return ToolResult(id=call.id, name=call.name, content=output, error=error)

    async def _run_tool(self, tool: Tool, raw: str) -> str:
        import jsonschema  # type: ignore[import-untyped]

        arguments = read_arguments(raw)
        if arguments is None:
            raise ToolError(f"arguments of {tool.name}: expected a JSON object")
        for fault in jsonschema.Draft202012Validator(tool.parameters).iter_errors(arguments):
            raise ToolError(f"arguments of {tool.name}: {fault.message}")
        if tool.python:  # in the sandbox, without network and files
            from convbench.sandbox import Limits, run_calls_async

            seconds, kb = self._limits.seconds / 2, max(1, self._limits.output >> 10)
            (outcome,) = await run_calls_async(
                [str(arguments["code"])], ["str(result)"], Limits(seconds=seconds, output_kb=kb)
            )
            if outcome.ended == "value" and isinstance(outcome.value, str):
                return outcome.value
            unset = " (set `result`)" if outcome.error == "NameError" else ""
            raise ToolError(f"{outcome.why}{unset}")
        if tool.server is not None:
            return await self._servers[tool.server].call_tool(tool.name, arguments)
        run, fields = self._functions[tool.name], self.example.get(tool.name, {})
        if inspect.iscoroutinefunction(run):
            output = await run(arguments, fields)
        else:
            # a thread cannot be ended: a hanging one is abandoned, and the model gets an error
            output = await asyncio.to_thread(run, arguments, fields)
        return safe_text(output) if isinstance(output, str) else json.dumps(output, default=str)


def read_arguments(raw: str) -> dict[str, Any] | None:
    """Return a call's arguments, empty for empty text; None if they are not a JSON object."""
    try:
        arguments = json.loads(raw or "{}")
    except (ValueError, RecursionError):
        return None
    return arguments if isinstance(arguments, dict) else None
