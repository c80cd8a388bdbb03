"""From what a provider sent to a Completion, the same checks for every route."""

from __future__ import annotations

import json
from typing import Any

from pydantic import ValidationError

from convbench.errors import FatalModelError, Usage
from convbench.models.failures import BrokenReply
from convbench.models.logprobs import token_probs
from convbench.models.thought import cut
from convbench.net.tidy import text
from convbench.schema import Completion, FinishReason, Reasoning, ToolCall
from convbench.schema.tools import MOST_CALLS

FINISH: dict[str, FinishReason] = {
    "stop": "stop",
    "eos": "stop",
    "end_turn": "stop",
    "tool_calls": "stop",
    "tool_use": "stop",
    "function_call": "stop",
    "length": "length",
    "max_tokens": "length",
    "content_filter": "filter",
}
"""Finish reasons as providers name them."""


def completion_of(
    ref: str,
    content: object,
    reason: object,
    *,
    usage: Usage,
    model: object,
    reasoning: Reasoning | None = None,
    tags: bool = False,
    calls: object = None,
    probs: object = None,
) -> Completion:
    """Return the completion; an empty one raises. `tags`: a thinking block that begins its text
    is its reasoning, where no field told any.

    BrokenReply where another try may give text, FatalModelError (for this conversation only)
    where the tokens went into reasoning or a filter refused; both carry the usage.
    """
    finish = FINISH.get(str(reason or "stop"), "other")
    prompt, reply, cost = usage.prompt_tokens, usage.completion_tokens, usage.cost_usd
    try:
        said = _text(content)
    except TypeError:
        line = f"{ref}: the reply's content is a {type(content).__name__}; expected text"
        raise BrokenReply(line, usage=usage) from None
    if tags and (reasoning is None or not reasoning.text):
        found, said = cut(said, reasoning.tokens if reasoning else None)
        reasoning = found or reasoning
    called = _calls(ref, calls, usage)
    if said.strip() or called:
        return Completion(
            said, finish, prompt, reply, cost, _name(model), reasoning, tool_calls=called,
            token_probs=token_probs(probs),
        )  # fmt: skip
    if finish == "length" and reply:
        raise FatalModelError(
            f"{ref}: all {reply} tokens went into reasoning, none into the reply; "
            "give a larger --max-tokens, or `headroom:` in models.yaml",
            stops_run=False,
            usage=usage,
        )
    if finish == "filter":
        line = f"{ref}: the provider's filter refused"
        raise FatalModelError(line, stops_run=False, usage=usage)
    raise BrokenReply(f"{ref}: the reply is empty", usage=usage)


def _text(content: object) -> str:
    """Return the text of a reply's content: a string, a list of parts, or nothing.

    Whatever a provider sends there can be written afterwards. TypeError for anything else.
    """
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "".join(text(part) for part in parts if isinstance(part, str))
    if content is None:
        return ""
    if not isinstance(content, str):
        raise TypeError
    return text(content)


def _calls(ref: str, found: object, usage: Usage) -> tuple[ToolCall, ...]:
    """Return the calls in a reply's message, in whatever objects; BrokenReply for what is none."""
    if not found:
        return ()
    try:
        if not isinstance(found, list) or len(found) > MOST_CALLS:
            raise ValueError
        return tuple(_call(item, place) for place, item in enumerate(found))
    except (ValidationError, ValueError, TypeError, RecursionError):
        line = f"{ref}: the reply's tool calls cannot be read"
        raise BrokenReply(line, usage=usage) from None


def _call(item: Any, place: int) -> ToolCall:
    function = _get(item, "function")
    arguments = _get(function, "arguments")
    if isinstance(arguments, dict):
        arguments = json.dumps(arguments)
    name = _get(function, "name")
    if not isinstance(name, str) or not isinstance(arguments, str | None):
        raise TypeError
    mark = _get(item, "id")
    mark = text(mark)[:200] if isinstance(mark, str) and mark else f"call_{place}"
    return ToolCall(id=mark, name=text(name), arguments=text(arguments or "{}"))


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else getattr(value, name, None)


def _name(model: object) -> str | None:
    """Return the name that the provider gives the model; None where it is none."""
    return text(model)[:200] if isinstance(model, str) else None
