"""A conversation as a trajectory in ATIF (Harbor), version 1.6: steps of system, user and agent,
with the results of an agent's calls in its own step. What ATIF has no field for is in `extra`; one
that was imported is given back as it was."""

from collections.abc import Iterator
from typing import Any

from convbench import __version__
from convbench.formats.values import as_mapping, parsed
from convbench.schema import Conversation, ToolRound, Turn, text_of
from convbench.store import Run

VERSION = "ATIF-v1.6"
SOURCES = {"assistant": "agent", "system": "system"}  # by imported speaker; others are the user


def as_trajectory(run: Run, talk: Conversation, tools: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the trajectory of a conversation: messages, calls, results, reasoning, usage, tools;
    in `extra` its question, group, split and metadata."""
    protocol, example = run.manifest.protocol, run.examples[talk.example_id]
    extra = {"example_id": talk.example_id, "group": example.group_id, "split": example.split}
    if "steps" in (logged := as_mapping(talk.metadata.get("atif"))):
        return {**logged, "extra": {**as_mapping(logged.get("extra")), **extra}}
    steps: list[dict[str, Any]] = []
    if protocol.policy in talk.systems:
        steps.append({"source": "system", "message": talk.systems[protocol.policy]})
    for turn in talk.turns:
        is_own = turn.speaker == protocol.policy
        steps += _steps(turn, "agent" if is_own else SOURCES.get(turn.speaker, "user"))
    about = {"name": "convbench", "version": __version__}
    about["model_name"] = run.manifest.policy_member.model
    return {
        "schema_version": VERSION,
        "session_id": talk.conversation_id,
        "agent": about | ({"tool_definitions": tools} if tools else {}),
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, 1)],
        "extra": extra | ({"metadata": talk.metadata} if talk.metadata else {}),
    }


def _steps(turn: Turn, source: str) -> Iterator[dict[str, Any]]:
    shown = {"is_copied_context": True} if turn.finish_reason == "scripted" else {}
    cut = {"extra": {"finish_reason": "length"}} if turn.finish_reason == "length" else {}
    counts = turn.model_dump(include={"prompt_tokens", "completion_tokens", "cost_usd"})
    known = {name: value for name, value in counts.items() if value is not None}
    metrics = {"metrics": known} if known else {}
    for one in turn.rounds:
        yield {"source": source, **_said(one), **_calls(one), **shown, **metrics}
        metrics = {}
    if turn.content or not turn.rounds:
        own = shown | cut if source == "agent" else {}
        yield {"source": source, **_said(turn), **own, **metrics}


def _said(said: Turn | ToolRound) -> dict[str, Any]:
    thought = said.reasoning.text if said.reasoning else ""
    return {"message": text_of(said.content)} | ({"reasoning_content": thought} if thought else {})


def _calls(one: ToolRound) -> dict[str, Any]:
    calls = []
    for call in one.calls:
        given = parsed(call.arguments)
        given = given if isinstance(given, dict) else {"input": given}
        calls.append({"tool_call_id": call.id, "function_name": call.name, "arguments": given})
    results = [{"source_call_id": result.id, "content": result.content} for result in one.results]
    return {"tool_calls": calls, **({"observation": {"results": results}} if results else {})}
