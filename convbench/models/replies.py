"""From what a provider sent to a Completion, the same checks for every route."""

from __future__ import annotations

from convbench.errors import FatalModelError
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
    prompt: int | None,
    reply: int | None,
    cost: float | None,
    model: str | None,
) -> Completion:
    """Return the completion; an empty one raises.

    BrokenReply where another try may give text, FatalModelError (for this conversation only)
    where the tokens went into hidden reasoning or a filter refused.
    """
    finish = FINISH.get(str(reason or "stop"), "other")
    text = _text(content)
    if text.strip():
        return Completion(text, finish, prompt, reply, cost, model)
    if finish == "length" and reply:
        raise FatalModelError(
            f"{ref}: all {reply} tokens went into hidden reasoning, none into the reply; "
            "give a larger --max-tokens, or `headroom:` in models.yaml",
            stops_run=False,
        )
    if finish == "filter":
        raise FatalModelError(f"{ref}: the provider's filter refused", stops_run=False)
    raise BrokenReply(
        f"{ref}: the reply is empty", prompt_tokens=prompt, completion_tokens=reply, cost_usd=cost
    )


def _text(content: object) -> str:
    """Return the text of a reply's content: a string, a list of parts, or nothing."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return "" if content is None else str(content)
