"""One turn with tools: ask, run what was called, tell the results, until nothing is called."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from convbench.errors import FatalModelError
from convbench.models.model import Model
from convbench.schema import (
    Completion,
    Message,
    Sampling,
    Speaker,
    ToolCall,
    ToolResult,
    ToolRound,
    text_of,
)
from convbench.schema.reasoning import Replay
from convbench.views import called


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
    """What a turn came to."""

    reply: Completion
    rounds: list[ToolRound] = field(default_factory=list)

    def total(self, name: str) -> Any:
        """Return the sum of a usage field over all replies, None where one is unknown."""
        if not self.rounds:
            return getattr(self.reply, name)
        values = [getattr(one, name) for one in (*self.rounds, self.reply)]
        return None if None in values else sum(values)


async def speak(using: Using, messages: list[Message], sampling: Sampling, key: str) -> Said:
    """Return a speaker's turn. The first call's key is `key`; those of round n are `key.n`, its
    tools' `key.n!`, so that a resumed run asks and runs only what was not finished.

    Raises FatalModelError, for this conversation only, where the reply after the last round says
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
    """Return the sampling of a reply after so many rounds, with the tools that it may call; those
    of the last are offered still, for what was called stands in the messages."""
    if not speaker.offered:
        return sampling
    last = {"tool_choice": "none"} if rounds >= speaker.tool_limits.rounds else {}
    return sampling.model_copy(update={"tools": tuple(speaker.offered), **last})


def in_words(speaker: Speaker, reply: Completion, key: str, number: int) -> tuple[ToolCall, ...]:
    """Return the call that a reply makes in plain words, or none."""
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
    """Run what a reply called; `spoken` is what it called in plain words."""
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
    """Return the calls of a reply, each with an id of its own: some servers give one to all."""
    counts: dict[str, int] = {}
    out: list[ToolCall] = []
    for call in reply.tool_calls:
        number = counts[call.id] = counts.get(call.id, 0) + 1
        same = call if number == 1 else call.model_copy(update={"id": f"{call.id[:180]}_{number}"})
        out.append(same)
    return tuple(out)
