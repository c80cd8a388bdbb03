"""Tool servers over stdio: honest ones are called, hostile ones bounded; all end with theirs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
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
from convbench.util import guard as mcp_keeper
from convbench.util.guard import with_relay
from tests.support.one_line import one_line

HERE = Path(__file__).resolve().parents[1] / "support" / "tools"


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
    model = ToolsModel(await one.list_tools(), ToolLimits(**limits), running={"it": one})
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


def alive(pid: int) -> bool:
    """Whether a process is there, not only its entry."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(done: Callable[[], bool]) -> None:
    ends = time.monotonic() + 60
    while not done():
        assert time.monotonic() < ends, "did not come"
        time.sleep(0.01)


def test_an_honest_server_is_listed_called_and_ended_with_what_it_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-" + "a" * 40)
    monkeypatch.setenv("SHOP", "corner")

    async def work(model: ToolsModel) -> list[ToolResult]:
        await model.start()
        return await called(
            model, ("price", {"item": "eggs"}), ("price", {"item": 3}), ("variables", {}),
            ("fails", {}), ("helper", {}), ("steal", {}),
        )  # fmt: skip

    price, wrong, names, fails, helper, unknown = asyncio.run(
        used(spec("shop", env=("SHOP",)), work)
    )
    assert (price.content, price.error) == ("eggs: 7 pence", False)
    assert "is not of type 'string'" in wrong.content
    assert {"PATH", "SHOP"} <= set(names.content.split(","))
    assert "OPENAI_API_KEY" not in names.content
    assert fails.error
    assert "there is no tool 'steal'" in unknown.content
    until(lambda: not alive(int(helper.content)))


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("huge", "error: its server ended: wrote a line of more than 2 MiB"),
        ("flood", "error: its server ended: wrote more than 8 MiB without being called"),
        ("junk", "error: its server ended: wrote over 100 lines that are not messages"),
        ("dies", "error: its server ended: ended with exit code 3"),
        ("hang", "error: act took over 1 seconds"),
        ("shape", "error: ValidationError:"),
        ("mutters", "done"),
        ("banner", "done"),
        ("picture", "[image/png: not shown]"),
        ("asks", '"error":{'),
    ],
)
def test_what_a_hostile_server_does_is_told_to_the_model(kind: str, told: str) -> None:
    async def work(model: ToolsModel) -> list[ToolResult]:
        return await called(model, ("act", {}))

    seconds = 1.0 if kind == "hang" else 60.0  # a busy machine is no hang
    (found,) = asyncio.run(used(spec("hostile", kind), work, seconds=seconds))
    assert told in found.content
    assert found.error is told.startswith("error")
    assert len(found.content) < 600


def test_a_long_result_is_cut() -> None:
    async def work(model: ToolsModel) -> list[ToolResult]:
        return await called(model, ("act", {}))

    (found,) = asyncio.run(used(spec("hostile", "long"), work, output=1000))
    assert found.content.endswith("[cut: 1,000 of 1,048,576 bytes]")


def test_one_that_ends_again_and_again_ends_the_run() -> None:
    async def work(model: ToolsModel) -> list[str]:
        told = [(await called(model, ("act", {})))[0].content for _ in range(mcp_server.STARTS)]
        with pytest.raises(FatalModelError, match=r"ended 3 times: ended with exit code 3"):
            await called(model, ("act", {}))
        return told

    told = asyncio.run(used(spec("hostile", "dies"), work))
    assert all("its server ended" in one for one in told)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("endless", "more than 64 tools, or 20 pages"),
        ("reference", r"'act'.*found \$ref"),
        ("pattern", r"'act'.*found pattern.*name the tools that you want: tool_servers.it.tools"),
        ("large", r"'act'.*expected at most 16,384"),
        ("silent", "did not list its tools within 0.5 seconds"),
        ("absent", "does not start: ended with exit code 1: ImportError: no module named nothing"),
    ],
)
def test_one_that_cannot_be_used_is_refused_in_one_line(
    kind: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "silent":
        monkeypatch.setattr(mcp_server, "START_S", 0.5)

    async def tools() -> None:
        server = McpServer("it", spec("hostile", kind))
        try:
            await server.list_tools()
        finally:
            await server.aclose()

    with pytest.raises((SpecError, FatalModelError), match=why) as error:
        asyncio.run(tools())
    one_line(error.value)


def test_the_last_words_of_one_that_ends_before_it_is_asked_are_told() -> None:
    """Its end, its words and what it is told come at once; which is seen first may not matter."""
    keeper = [sys.executable, "-I", "-S", mcp_keeper.__file__, str(os.getpid())]
    for _ in range(5):
        asked, ours = os.pipe()
        for _ in range(3):  # before it starts: later there might be nobody to tell
            os.write(ours, b'{"jsonrpc": "2.0", "id": 1, "method": "initialize"}\n')
        with subprocess.Popen(
            [*keeper, "sh", "-c", "echo gone >&2; exit 1"],
            stdin=asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
        ) as process:  # fmt: skip
            os.close(asked)
            assert process.stderr is not None
            assert process.stderr.read() == b"ended with exit code 1: gone"
        os.close(ours)


def test_a_program_that_is_not_there_and_tools_that_are_not() -> None:
    async def tools(server: ToolServer) -> None:
        await McpServer("it", server).list_tools()

    with pytest.raises(ConvbenchError, match="cannot be started: No such file"):
        asyncio.run(tools(ToolServer(command=("/no/such/program",))))
    with pytest.raises(SpecError, match="has no tool 'buy'; it has act"):
        asyncio.run(used(spec("hostile", "x", tools=("buy",)), called))


def test_it_ends_with_a_process_that_was_killed() -> None:
    code = (
        "import asyncio, os, sys\n"
        "from convbench.models.mcp_server import McpServer\n"
        "from convbench.schema.tools import ToolServer\n"
        "async def main():\n"
        "    server = McpServer('it', ToolServer(command=tuple(sys.argv[1:])))\n"
        "    await server.list_tools()\n"
        "    print('ready', flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    program = [sys.executable, "-c", code, *spec("hostile", "hang").command]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        (keeper,) = children(process.pid)
        (server,) = children(keeper)
        os.kill(process.pid, signal.SIGKILL)
    until(lambda: not alive(keeper) and not alive(server))


def test_a_server_ends_with_a_relay_that_was_killed() -> None:
    """Not one that reads nothing either, and so does not see its stdin close."""
    program = with_relay([sys.executable, "-c", "import time; time.sleep(600)"])
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as relay:
        until(lambda: len(children(relay.pid)) == 1)
        (server,) = children(relay.pid)
        relay.kill()
    until(lambda: not alive(server))


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
