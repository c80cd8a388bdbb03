"""One turn with tools: call the model, run the tools it calls, send back the results, until it
calls none. Also what tool servers offer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from convbench.engine.jobs import run as run_loop
from convbench.errors import FatalModelError
from convbench.models.mcp_server import McpServer
from convbench.models.model import Model
from convbench.models.tools import ToolsModel
from convbench.schema import (
    Completion,
    Message,
    ProtocolSpec,
    RunManifest,
    Sampling,
    Speaker,
    Tool,
    ToolCall,
    ToolResult,
    ToolRound,
    text_of,
)
from convbench.schema.reasoning import Replay
from convbench.views import called


def tools_of(run: RunManifest) -> dict[str, ToolsModel]:
    """Return the tools of each speaker that has any; starts nothing. Raises SpecError for a
    function that does not exist or that a pulled spec may not name."""
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
    """Open a run's tools, start their servers if `start`, and close them at the end."""
    found = tools_of(run)
    try:
        for tools in found.values() if start else ():
            await tools.start()
        yield found
    finally:
        for tools in found.values():
            await tools.aclose()


def with_offered(protocol: ProtocolSpec) -> ProtocolSpec:
    """Return a protocol with what its tool servers offer now added to its tools. The servers are
    started for this and stopped."""
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
    """Return speakers as plain data, so that the protocol validates them again."""
    return {name: speaker.model_dump(mode="json") for name, speaker in speakers.items()}


def as_began(protocol: ProtocolSpec, began: ProtocolSpec) -> ProtocolSpec:
    """Return a protocol with what its servers offered when its run began."""
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


class Calls(Protocol):
    """What makes model calls: the engine's Caller, or a recorder for previews."""

    async def complete(
        self, model: Model, messages: Sequence[Message], sampling: Sampling, *, key: str
    ) -> Completion:
        """Return the reply to the last message."""
        ...


@dataclass(frozen=True)
class Using:
    """A speaker that may call tools: its model, its tools bound to the example, its rules."""

    caller: Calls
    model: Model
    tools: Model | None
    speaker: Speaker
    replay: Replay


@dataclass
class Said:
    """Result of a turn: the reply, and the tool rounds before it."""

    reply: Completion
    rounds: list[ToolRound] = field(default_factory=list)

    def total(self, name: str) -> Any:
        """Return the sum of a usage field over all replies, or None if one is unknown."""
        if not self.rounds:
            return getattr(self.reply, name)
        values = [getattr(one, name) for one in (*self.rounds, self.reply)]
        return None if None in values else sum(values)


async def speak(using: Using, messages: list[Message], sampling: Sampling, key: str) -> Said:
    """Return a speaker's turn. The first call's key is `key`; those of round n are `key.n`, its
    tools' `key.n!`, so that a resumed run repeats only unfinished calls.

    Raises FatalModelError, for this conversation only, if the reply after the last round says
    nothing.
    """
    limits = using.speaker.tool_limits
    if using.tools is None:
        return Said(await using.caller.complete(using.model, messages, sampling, key=key))
    rounds: list[ToolRound] = []
    left_out: set[str] = set()
    for number in range(limits.rounds + 1):
        reply = await using.caller.complete(
            using.model,
            [*messages, *called(rounds, using.replay)],
            offering(using.speaker, sampling, number),
            key=f"{key}.{number}" if number else key,
        )
        left_out.update(reply.left_out)
        spoken = () if reply.tool_calls else in_words(using.speaker, reply, key, number)
        if not (reply.tool_calls or spoken) or number == limits.rounds:
            break
        rounds.append(await _round(using, reply, f"{key}.{number}!", spoken))
    if reply.tool_calls and not text_of(reply.content).strip():
        line = f"{using.model.ref}: called tools in all of {limits.rounds} rounds and said nothing"
        raise FatalModelError(line, stops_run=False)
    return Said(replace(reply, left_out=tuple(sorted(left_out))), rounds)


def offering(speaker: Speaker, sampling: Sampling, rounds: int) -> Sampling:
    """Return the sampling settings of a reply after so many rounds, with the tools that it may
    call. In the last round tools are still sent, because earlier messages call them, but with
    tool_choice none."""
    if not speaker.offered:
        return sampling
    last = {"tool_choice": "none"} if rounds >= speaker.tool_limits.rounds else {}
    return sampling.model_copy(update={"tools": tuple(speaker.offered), **last})


def in_words(speaker: Speaker, reply: Completion, key: str, number: int) -> tuple[ToolCall, ...]:
    """Return the call that a reply makes in plain words, or an empty tuple."""
    said = text_of(reply.content)
    for tool in speaker.tools:
        if (found := tool.asked(said)) is not None:
            arguments = json.dumps(found, ensure_ascii=False)
            mark = hashlib.sha256(f"{key}.{number}".encode()).hexdigest()[:9]
            return (ToolCall(id=mark, name=tool.name, arguments=arguments),)
    return ()


async def _round(
    using: Using, reply: Completion, key: str, spoken: tuple[ToolCall, ...] = ()
) -> ToolRound:
    """Run the tools that a reply called; `spoken` are its calls in plain words."""
    assert using.tools is not None
    calls = spoken or unique(reply)
    asked: Message = {"role": "assistant", "content": "", "tool_calls": calls}
    found = await using.caller.complete(using.tools, [asked], Sampling(), key=key)
    results = [ToolResult.model_validate(one) for one in json.loads(text_of(found.content))]
    return ToolRound(
        content="" if spoken else text_of(reply.content),
        reasoning=reply.reasoning,
        calls=calls,
        results=tuple(results),
        raw=text_of(reply.content) if spoken else reply.raw,
        spoken=bool(spoken),
        prompt_tokens=reply.prompt_tokens,
        completion_tokens=reply.completion_tokens,
        cost_usd=reply.cost_usd,
    )


def unique(reply: Completion) -> tuple[ToolCall, ...]:
    """Return the calls of a reply, each with a unique id: some servers use one id for all."""
    counts: dict[str, int] = {}
    out: list[ToolCall] = []
    for call in reply.tool_calls:
        number = counts[call.id] = counts.get(call.id, 0) + 1
        same = call if number == 1 else call.model_copy(update={"id": f"{call.id[:180]}_{number}"})
        out.append(same)
    return tuple(out)
