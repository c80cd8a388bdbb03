"""A conversation as a trajectory in ATIF (Harbor), version 1.6: steps of system, user and agent,
with the results of an agent's calls in its own step. What ATIF has no field for is in `extra`."""

from __future__ import annotations

from typing import Any

import orjson

from convbench import __version__
from convbench.schema import Conversation, Reasoning, ToolRound, Turn, text_of
from convbench.store import Run

VERSION = "ATIF-v1.6"
SOURCES = {"assistant": "agent", "system": "system"}
"""Source of a step by the speaker of an imported turn; all others are the user."""


def as_trajectory(run: Run, talk: Conversation) -> dict[str, Any]:
    """Return the trajectory of a conversation: messages, calls, results, reasoning, usage, tools;
    in `extra` its question, split, sample and metadata."""
    protocol = run.manifest.protocol
    model = run.manifest.policy_member.model
    tools = list(talk.tools) or protocol.speakers[protocol.policy].tool_schemas
    example = run.examples[talk.example_id]
    steps: list[dict[str, Any]] = []
    for text in [talk.systems[protocol.policy]] if protocol.policy in talk.systems else []:
        steps.append({"source": "system", "message": text})
    for turn in talk.turns:
        own = turn.speaker == protocol.policy
        steps += [_call_step(one, turn) for one in turn.rounds]
        if not turn.calls_alone:
            steps.append(_said_step(turn, "agent" if own else SOURCES.get(turn.speaker, "user")))
    agent = {"name": "convbench", "version": __version__, "model_name": model}
    return {
        "schema_version": VERSION,
        "session_id": talk.conversation_id,
        "agent": agent | ({"tool_definitions": tools} if tools else {}),
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, 1)],
        "extra": {
            "example_id": talk.example_id,
            "group": example.group_id,
            "split": example.split,
            "metadata": talk.metadata,
        },
    }


def _call_step(one: ToolRound, turn: Turn) -> dict[str, Any]:
    calls = [
        {"tool_call_id": c.id, "function_name": c.name, "arguments": _object(c.arguments)}
        for c in one.calls
    ]
    results = [{"source_call_id": r.id, "content": r.content} for r in one.results]
    return {
        "source": "agent",
        "message": one.content,
        **_thought(one.reasoning),
        "tool_calls": calls,
        **({"observation": {"results": results}} if results else {}),
        **({"is_copied_context": True} if turn.finish_reason == "scripted" else {}),
    }


def _said_step(turn: Turn, source: str) -> dict[str, Any]:
    counts = {
        "prompt_tokens": turn.prompt_tokens,
        "completion_tokens": turn.completion_tokens,
        "cost_usd": turn.cost_usd,
    }
    metrics = {name: value for name, value in counts.items() if value is not None}
    copied = source == "agent" and turn.finish_reason == "scripted"
    return {
        "source": source,
        "message": text_of(turn.content),
        **_thought(turn.reasoning),
        **({"metrics": metrics} if metrics else {}),
        **({"is_copied_context": True} if copied else {}),
        **({"extra": {"finish_reason": "length"}} if turn.finish_reason == "length" else {}),
    }


def _thought(reasoning: Reasoning | None) -> dict[str, str]:
    return {"reasoning_content": reasoning.text} if reasoning and reasoning.text else {}


def _object(arguments: str) -> Any:
    try:
        return orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return {"input": arguments}
