"""One turn with tools: call the model, run the tools it calls, send back the results, until it
calls none. Also what tool servers offer.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from convbench.engine.jobs import run_in_loop
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
from convbench.views import tool_messages


def tools_of(run: RunManifest) -> dict[str, ToolsModel]:
    """Return the tools of each speaker that has any, by speaker; nothing is started.

    Raise SpecError for a function that does not exist or that a pulled spec may not name, and for a
    tool server in a pulled spec.
    """
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
    """Yield a run's tools by speaker, and stop their servers at the end; with `start` the servers
    are started first.

    Raise SpecError as `tools_of` does, and if a server cannot be started or its tools have other
    parameters than when the run began.
    """
    by_speaker = tools_of(run)
    try:
        for tools in by_speaker.values() if start else ():
            await tools.start()
        yield by_speaker
    finally:
        for tools in by_speaker.values():
            await tools.aclose()


def with_server_tools(protocol: ProtocolSpec) -> ProtocolSpec:
    """Return a protocol with what its tool servers offer now added to its tools, except tools
    declared already; the same protocol if it has no servers.

    The servers are started for this and stopped. Raise SpecError if one cannot be started or offers
    an unusable tool.
    """
    if not any(speaker.tool_servers for speaker in protocol.speakers.values()):
        return protocol
    return run_in_loop(lambda: _add_server_tools(protocol))


async def _add_server_tools(protocol: ProtocolSpec) -> ProtocolSpec:
    speakers = {}
    for name, speaker in protocol.speakers.items():
        tools = list(speaker.tools)
        for label, spec in speaker.tool_servers.items():
            server = McpServer(label, spec)
            try:
                offered = await server.list_tools()
            finally:
                await server.aclose()
            declared = {tool.name for tool in speaker.tools if tool.server == label}
            tools += [tool for tool in offered if tool.name not in declared]
        speakers[name] = speaker.model_copy(update={"tools": tuple(tools)})
    return ProtocolSpec.model_validate({**dict(protocol), "speakers": _speakers_json(speakers)})


def _speakers_json(speakers: Mapping[str, Speaker]) -> dict[str, object]:
    """Return speakers as plain data, so that the protocol validates them again."""
    return {name: speaker.model_dump(mode="json") for name, speaker in speakers.items()}


def with_recorded_tools(protocol: ProtocolSpec, began: ProtocolSpec) -> ProtocolSpec:
    """Return the protocol with the server tools of `began`, its state when its run began, added.

    A speaker gets those whose names it lacks, if `began` has it with the same `tool_servers`; other
    speakers are unchanged.
    """
    speakers = {
        name: speaker.model_copy(update={"tools": (*speaker.tools, *_server_tools(speaker, old))})
        if (old := began.speakers.get(name)) and old.tool_servers == speaker.tool_servers
        else speaker
        for name, speaker in protocol.speakers.items()
    }
    return protocol.model_copy(update={"speakers": speakers})


def _server_tools(speaker: Speaker, began: Speaker) -> list[Tool]:
    names = {tool.name for tool in speaker.tools}
    return [tool for tool in began.tools if tool.server and tool.name not in names]


class ModelCaller(Protocol):
    """What makes model calls: the engine's Caller, or a recorder for previews."""

    async def complete(
        self, model: Model, messages: Sequence[Message], sampling: Sampling, *, key: str
    ) -> Completion:
        """Return the reply of the model to the last message. `key` identifies the call."""
        ...


@dataclass(frozen=True)
class TurnContext:
    """A speaker that may call tools: its model, its tools bound to the example, its rules."""

    caller: ModelCaller
    model: Model
    tools: Model | None
    speaker: Speaker
    replay: Replay


@dataclass
class TurnResult:
    """Result of a turn: the reply, and the tool rounds before it."""

    reply: Completion
    rounds: list[ToolRound] = field(default_factory=list)

    def total_usage(self, name: str) -> Any:
        """Return the sum of a usage field (`prompt_tokens`, `completion_tokens` or `cost_usd`) over
        all replies of the turn, or None if one is unknown."""
        if not self.rounds:
            return getattr(self.reply, name)
        values = [getattr(reply, name) for reply in (*self.rounds, self.reply)]
        return None if None in values else sum(values)


async def take_turn(
    context: TurnContext, messages: list[Message], sampling: Sampling, key: str
) -> TurnResult:
    """Return a speaker's final reply and the tool rounds before it; its `left_out` lists what any
    reply of the turn left out.

    The first call's key is `key`; those of round n are `key.n`, its tools' `key.n!`, so that a
    resumed run repeats only unfinished calls. Raise FatalModelError, for this conversation only, if
    the reply after the last round still calls tools and says nothing.
    """
    limits = context.speaker.tool_limits
    if context.tools is None:
        return TurnResult(await context.caller.complete(context.model, messages, sampling, key=key))
    rounds: list[ToolRound] = []
    left_out: set[str] = set()
    for number in range(limits.rounds + 1):
        reply = await context.caller.complete(
            context.model,
            [*messages, *tool_messages(rounds, context.replay)],
            sampling_with_tools(context.speaker, sampling, number),
            key=f"{key}.{number}" if number else key,
        )
        left_out.update(reply.left_out)
        if not reply.tool_calls or number == limits.rounds:
            break
        rounds.append(await _run_calls(context, reply, f"{key}.{number}!"))
    if reply.tool_calls and not text_of(reply.content).strip():
        line = f"{context.model.ref}: called tools in all {limits.rounds} rounds and gave no answer"
        raise FatalModelError(line, stops_run=False)
    return TurnResult(replace(reply, left_out=tuple(sorted(left_out))), rounds)


def sampling_with_tools(speaker: Speaker, sampling: Sampling, rounds: int) -> Sampling:
    """Return the sampling settings of a reply after so many tool rounds, with the tools that it may
    call; unchanged if the speaker has none.

    In the last round tools are still sent, because earlier messages call them, but with
    `tool_choice` none.
    """
    if not speaker.tool_schemas:
        return sampling
    last = {"tool_choice": "none"} if rounds >= speaker.tool_limits.rounds else {}
    return sampling.model_copy(update={"tools": tuple(speaker.tool_schemas), **last})


async def _run_calls(context: TurnContext, reply: Completion, key: str) -> ToolRound:
    """Run the tools that a reply called."""
    assert context.tools is not None
    calls = unique_calls(reply)
    message: Message = {"role": "assistant", "content": "", "tool_calls": calls}
    answer = await context.caller.complete(context.tools, [message], Sampling(), key=key)
    results = [ToolResult.model_validate(result) for result in json.loads(text_of(answer.content))]
    return ToolRound(
        content=text_of(reply.content),
        reasoning=reply.reasoning,
        calls=calls,
        results=tuple(results),
        raw=reply.raw,
        prompt_tokens=reply.prompt_tokens,
        completion_tokens=reply.completion_tokens,
        cost_usd=reply.cost_usd,
    )


def unique_calls(reply: Completion) -> tuple[ToolCall, ...]:
    """Return the calls of a reply in order, with unique ids, since some servers use one id for all:
    the n-th call with an id gets `ID_n`, from the second on."""
    counts: dict[str, int] = {}
    out: list[ToolCall] = []
    for call in reply.tool_calls:
        number = counts[call.id] = counts.get(call.id, 0) + 1
        same = call if number == 1 else call.model_copy(update={"id": f"{call.id[:180]}_{number}"})
        out.append(same)
    return tuple(out)
