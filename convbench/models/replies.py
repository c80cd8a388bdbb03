"""From what a provider sent to a Completion, the same checks for every route."""

from __future__ import annotations

import math

from convbench.errors import FatalModelError, Usage
from convbench.models.failures import BrokenReply
from convbench.schema import Completion, FinishReason

FINISH: dict[str, FinishReason] = {
    "stop": "stop",
    "eos": "stop",
    "end_turn": "stop",
    "length": "length",
    "max_tokens": "length",
    "content_filter": "filter",
}
"""Finish reasons as providers name them."""


def finished(
    ref: str,
    content: object,
    reason: object,
    *,
    usage: Usage,
    model: str | None,
) -> Completion:
    """Return the completion; an empty one raises.

    BrokenReply where another try may give text, FatalModelError (for this conversation only)
    where the tokens went into hidden reasoning or a filter refused; both carry the usage.
    """
    finish = FINISH.get(str(reason or "stop"), "other")
    prompt, reply, cost = usage.prompt_tokens, usage.completion_tokens, usage.cost_usd
    text = _text(content)
    if text.strip():
        return Completion(text, finish, prompt, reply, cost, model)
    if finish == "length" and reply:
        raise FatalModelError(
            f"{ref}: all {reply} tokens went into hidden reasoning, none into the reply; "
            "give a larger --max-tokens, or `headroom:` in models.yaml",
            stops_run=False,
            usage=usage,
        )
    if finish == "filter":
        line = f"{ref}: the provider's filter refused"
        raise FatalModelError(line, stops_run=False, usage=usage)
    raise BrokenReply(f"{ref}: the reply is empty", usage=usage)


def count(value: object) -> int | None:
    """Return a number of tokens that a provider told; None for what is no count (negative, a
    fraction, NaN, text)."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and isinstance(value, int) and value >= 0 else None


def dollars(value: object) -> float | None:
    """Return dollars that a provider told; None for what cannot be (negative, NaN, text)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < math.inf else None


def _text(content: object) -> str:
    """Return the text of a reply's content: a string, a list of parts, or nothing."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return "" if content is None else str(content)
