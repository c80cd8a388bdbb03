"""The tools of a run's speakers: what their servers offer, and the servers while in need."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from convbench.engine.jobs import run as run_loop
from convbench.models.mcp_server import McpServer
from convbench.models.tools import ToolsModel
from convbench.schema import ProtocolSpec, RunManifest, Speaker, Tool


def tools_of(run: RunManifest) -> dict[str, ToolsModel]:
    """Return the tools of each speaker that has any; nothing is started. SpecError where a function
    is not there, or is not for a pulled spec to name."""
    return {
        name: ToolsModel(
            speaker.tools,
            speaker.tool_limits,
            downloaded=run.pulled_from is not None,
            servers=speaker.tool_servers,
        )
        for name, speaker in run.protocol.speakers.items()
        if speaker.tools
    }


@asynccontextmanager
async def open_tools(run: RunManifest, *, start: bool) -> AsyncIterator[Mapping[str, ToolsModel]]:
    """Open the tools of a run, their servers started where there is something to do, and end
    those at the end."""
    found = tools_of(run)
    try:
        for tools in found.values() if start else ():
            await tools.start()
        yield found
    finally:
        for tools in found.values():
            await tools.aclose()


def with_offered(protocol: ProtocolSpec) -> ProtocolSpec:
    """Return a protocol of the user's own with what its tool servers offer now among its tools;
    they are started for it and ended."""
    if not any(speaker.tool_servers for speaker in protocol.speakers.values()):
        return protocol
    return run_loop(lambda: _offered(protocol))


async def _offered(protocol: ProtocolSpec) -> ProtocolSpec:
    speakers = {}
    for name, speaker in protocol.speakers.items():
        found = list(speaker.tools)
        for label, spec in speaker.tool_servers.items():
            server = McpServer(label, spec)
            try:
                offered = await server.tools()
            finally:
                await server.aclose()
            declared = {tool.name for tool in speaker.tools if tool.server == label}
            found += [tool for tool in offered if tool.name not in declared]
        speakers[name] = speaker.model_copy(update={"tools": tuple(found)})
    return ProtocolSpec.model_validate({**dict(protocol), "speakers": _dumped(speakers)})


def _dumped(speakers: Mapping[str, Speaker]) -> dict[str, object]:
    """Return speakers as data, so that all of a protocol's own checks are made again."""
    return {name: speaker.model_dump(mode="json") for name, speaker in speakers.items()}


def as_began(protocol: ProtocolSpec, began: ProtocolSpec) -> ProtocolSpec:
    """Return a protocol with what its servers offered when a run of it began."""
    speakers = {
        name: speaker.model_copy(update={"tools": (*speaker.tools, *_of_servers(speaker, old))})
        if (old := began.speakers.get(name)) and old.tool_servers == speaker.tool_servers
        else speaker
        for name, speaker in protocol.speakers.items()
    }
    return protocol.model_copy(update={"speakers": speakers})


def _of_servers(speaker: Speaker, began: Speaker) -> list[Tool]:
    names = {tool.name for tool in speaker.tools}
    return [tool for tool in began.tools if tool.server and tool.name not in names]
