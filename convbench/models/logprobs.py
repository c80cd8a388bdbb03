"""Log-probabilities of tokens in a chat completion, as OpenAI's API and vLLM tell them."""

from __future__ import annotations

from typing import Any

from convbench.schema.token_probs import MOST, TokenProbs, wrong

ID = "token_id:"
"""How vLLM writes a token where it was asked for ids (`return_tokens_as_token_ids`)."""


def token_probs(found: Any) -> TokenProbs | None:
    """Return the log-probabilities of a choice's `logprobs`; None where there are none that hold.

    `content` is a list of {token, logprob, bytes}, one for every sampled token. What cannot be
    read is as if nobody had told it: the reply itself is good, and how many lack them is counted.
    """
    items = _get(found, "content")
    if not isinstance(items, list) or not 0 < len(items) <= MOST:
        return None
    try:
        values = tuple(min(0.0, float(_number(_get(item, "logprob")))) for item in items)
        names = [_get(item, "token") for item in items]
        if all(isinstance(name, str) and name.startswith(ID) for name in names):
            probs = TokenProbs(values, ids=tuple(int(name[len(ID) :]) for name in names))
        else:
            raws = [_get(item, "bytes") for item in items]
            probs = TokenProbs(values, sizes=tuple(map(_size, raws, names)))
    except (TypeError, ValueError, OverflowError):
        return None
    return None if wrong(probs) else probs


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value <= 1e-3:
        raise TypeError
    return value


def _size(raw: Any, name: Any) -> int:
    """Return the bytes of a token's text: its `bytes`, or those of its name."""
    if isinstance(raw, list):
        return len(raw)
    if not isinstance(name, str):
        raise TypeError
    return len(name.encode("utf-8", "surrogatepass"))


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else getattr(value, name, None)
