"""A conversation as a trajectory in ATIF (Harbor), version 1.6: steps of system, user and agent,
with the results of an agent's calls in its own step. What ATIF has no field for is in `extra`; what
a trajectory said when it was imported is said again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convbench import __version__
from convbench.formats.values import kept, parsed
from convbench.schema import Conversation, Reasoning, ToolRound, Turn, text_of
from convbench.store import Run

VERSION = "ATIF-v1.6"
SOURCES = {"assistant": "agent", "system": "system"}
"""Source of a step by the speaker of an imported turn; all others are the user."""
OWN = (
    *("agent", "final_metrics", "notes", "schema_version", "session_id"),
    *("trajectory_id", "continued_trajectory_ref"),
)
"""What an imported trajectory says about itself, in its metadata."""


def as_trajectory(run: Run, talk: Conversation) -> dict[str, Any]:
    """Return the trajectory of a conversation: messages, calls, results, reasoning, usage, tools;
    in `extra` its question, group, split and metadata."""
    protocol, example = run.manifest.protocol, run.examples[talk.example_id]
    tools = list(talk.tools) or protocol.speakers[protocol.policy].tool_schemas
    steps: list[dict[str, Any]] = []
    if protocol.policy in talk.systems:
        steps.append({"source": "system", "message": talk.systems[protocol.policy]})
    for turn in talk.turns:
        source = "agent" if turn.speaker == protocol.policy else SOURCES.get(turn.speaker, "user")
        made = list(_steps(turn, source))
        made[0] |= _metrics(turn)
        steps += made
    logged = talk.metadata.get("steps", [])
    if len(logged) == len(steps):
        steps = [step | more for step, more in zip(steps, logged, strict=True)]
    about = {"name": "convbench", "version": __version__}
    about["model_name"] = run.manifest.policy_member.model
    about |= talk.metadata.get("agent", {})
    rest = {k: v for k, v in talk.metadata.items() if k not in (*OWN, "steps", "id")}
    extra = {"example_id": talk.example_id, "group": example.group_id, "split": example.split}
    return {
        "schema_version": VERSION,
        "session_id": talk.conversation_id,
        **kept(talk.metadata, *OWN),
        "agent": about | ({"tool_definitions": tools} if tools else {}),
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, 1)],
        "extra": extra | ({"metadata": rest} if rest else {}),
    }


def _steps(turn: Turn, source: str) -> Iterator[dict[str, Any]]:
    shown = {"is_copied_context": True} if turn.finish_reason == "scripted" else {}
    cut = {"extra": {"finish_reason": "length"}} if turn.finish_reason == "length" else {}
    own = shown | cut if source == "agent" else {}
    for one in turn.rounds:
        yield {"source": source, **_said(one.content, one.reasoning), **_calls(one), **shown}
    if turn.content or not turn.rounds:
        yield {"source": source, **_said(text_of(turn.content), turn.reasoning), **own}


def _said(text: str, reasoning: Reasoning | None) -> dict[str, Any]:
    thought = reasoning.text if reasoning else ""
    return {"message": text, **({"reasoning_content": thought} if thought else {})}


def _calls(one: ToolRound) -> dict[str, Any]:
    calls = [(call.id, call.name, parsed(call.arguments)) for call in one.calls]
    results = [{"source_call_id": result.id, "content": result.content} for result in one.results]
    return {
        "tool_calls": [
            {
                "tool_call_id": mark,
                "function_name": name,
                "arguments": given if isinstance(given, dict) else {"input": given},
            }
            for mark, name, given in calls
        ],
        **({"observation": {"results": results}} if results else {}),
    }


def _metrics(turn: Turn) -> dict[str, Any]:
    counts = {
        "prompt_tokens": turn.prompt_tokens,
        "completion_tokens": turn.completion_tokens,
        "cost_usd": turn.cost_usd,
    }
    metrics = {name: value for name, value in counts.items() if value is not None}
    return {"metrics": metrics} if metrics else {}
