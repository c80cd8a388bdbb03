"""Tool servers over stdio: started, listed, called, and ended with the command."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from convbench.errors import ConvbenchError, FatalModelError, SpecError
from convbench.models import mcp_server
from convbench.models.mcp_server import McpServer
from convbench.models.tools import ToolsModel
from convbench.schema import Sampling, ToolCall, ToolLimits, ToolResult
from convbench.schema.tools import ToolServer
from tests.support.one_line import one_line

HERE = Path(mcp_server.__file__).resolve().parents[2] / "tests" / "support" / "tools"


def spec(name: str, *arguments: str, **more: Any) -> ToolServer:
    flags = ("-I", "-S") if name == "hostile" else ()
    return ToolServer(
        command=(sys.executable, *flags, str(HERE / f"{name}.py"), *arguments), **more
    )


async def used(
    server: ToolServer, work: Callable[[ToolsModel], Awaitable[Any]], **limits: Any
) -> Any:
    """Do something with the tools of a server, and end it."""
    one = McpServer("it", server)
    tools = await one.list_tools()
    await one.aclose()
    model = ToolsModel(tools, ToolLimits(**limits), servers={"it": server})
    try:
        return await work(model)
    finally:
        await model.aclose()


async def called(model: ToolsModel, *calls: tuple[str, dict[str, Any]]) -> list[ToolResult]:
    """Results of calls of one reply."""
    asked = tuple(
        ToolCall(id=str(i), name=name, arguments=json.dumps(arguments))
        for i, (name, arguments) in enumerate(calls)
    )
    message: Any = {"role": "assistant", "content": "", "tool_calls": asked}
    said = await model.complete([message], Sampling(), key="k")
    return [ToolResult.model_validate(one) for one in json.loads(str(said.content))]


def test_a_server_is_listed_called_and_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-" + "a" * 40)
    monkeypatch.setenv("SHOP", "corner")

    async def work(model: ToolsModel) -> list[ToolResult]:
        await model.start()
        return await called(
            model, ("price", {"item": "eggs"}), ("price", {"item": 3}), ("variables", {}),
            ("fails", {}), ("steal", {}),
        )  # fmt: skip

    price, wrong, names, fails, unknown = asyncio.run(used(spec("shop", env=("SHOP",)), work))
    assert (price.content, price.error) == ("eggs: 7 pence", False)
    assert "is not of type 'string'" in wrong.content
    assert {"PATH", "SHOP"} <= set(names.content.split(","))
    assert "OPENAI_API_KEY" not in names.content
    assert fails.error
    assert "there is no tool 'steal'" in unknown.content
    assert not servers()


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("hang", "error: act took over 1 seconds"),
        ("shape", "error: ValidationError:"),
        ("mutters", "done"),
        ("picture", "[image/png: not shown]"),
    ],
)
def test_call_tool_tells_the_model_what_came(kind: str, told: str) -> None:
    async def work(model: ToolsModel) -> list[ToolResult]:
        return await called(model, ("act", {}))

    seconds = 1.0 if kind == "hang" else 60.0  # a busy machine is no hang
    (found,) = asyncio.run(used(spec("hostile", kind), work, seconds=seconds))
    assert told in found.content
    assert found.error is told.startswith("error")


def test_a_long_result_is_cut() -> None:
    async def work(model: ToolsModel) -> list[ToolResult]:
        return await called(model, ("act", {}))

    (found,) = asyncio.run(used(spec("hostile", "long"), work, output=1000))
    assert found.content.endswith("[cut: 1,000 of 1,048,576 bytes]")


def test_a_server_that_ends_ends_the_run() -> None:
    async def work(model: ToolsModel) -> None:
        with pytest.raises(FatalModelError, match="has ended"):
            await called(model, ("act", {}))

    asyncio.run(used(spec("hostile", "dies"), work))


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("reference", r"'act'.*found \$ref"),
        ("pattern", r"'act'.*found pattern.*name the tools that you want: tool_servers.it.tools"),
        ("large", r"'act'.*expected at most 16,384"),
        ("silent", "no answer within 0.5 seconds"),
        ("absent", "does not start: .*ImportError: no module named nothing"),
    ],
)
def test_list_tools_refuses_in_one_line_what_cannot_be_used(
    kind: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tools() -> None:
        server = McpServer("it", spec("hostile", kind))
        try:
            await server.start()
            if kind == "silent":
                monkeypatch.setattr(mcp_server, "START_S", 0.5)
            await server.list_tools()
        finally:
            await server.aclose()

    with pytest.raises((SpecError, FatalModelError), match=why) as error:
        asyncio.run(tools())
    one_line(error.value)


def test_a_program_that_is_not_there_and_tools_that_are_not() -> None:
    async def tools(server: ToolServer) -> None:
        await McpServer("it", server).list_tools()

    with pytest.raises(ConvbenchError, match="No such file"):
        asyncio.run(tools(ToolServer(command=("/no/such/program",))))
    with pytest.raises(SpecError, match="has no tool 'buy'; it has act"):
        asyncio.run(used(spec("hostile", "x", tools=("buy",)), called))


def test_no_program_is_started_for_a_downloaded_spec() -> None:
    with pytest.raises(SpecError, match="no program is started"):
        ToolsModel([], ToolLimits(), downloaded=True, servers={"it": spec("shop")})


def servers() -> list[str]:
    """Our tool servers that still run, once they had a moment to end."""
    running: list[str] = []
    for _ in range(100):
        mine = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
        lines = [path for one in mine if (path := Path(f"/proc/{one}/cmdline")).exists()]
        running = [line for line in map(Path.read_text, lines) if str(HERE) in line]
        if not running:
            break
        time.sleep(0.05)
    return running
