"""Log-probabilities of a logged message's tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convbench.errors import DataError
from convbench.models.replies import token_probs
from convbench.schema.token_probs import TokenProbs, wrong


def logged_probs(item: Mapping[str, Any], where: str) -> TokenProbs | None:
    """Return those of an assistant's message; None where it has none.

    `logprobs` as OpenAI's API writes it ({content: [{token, logprob, bytes}, …]}), or a list of
    numbers with `token_ids` beside it. Raises DataError for what cannot be read.
    """
    found, ids = item.get("logprobs"), item.get("token_ids")
    if found is None:
        return None
    if isinstance(found, list):
        if not isinstance(ids, list) or not all(type(one) is int for one in ids):
            raise DataError(f"{where}: logprobs: found a list; expected token_ids beside it")
        if not all(type(one) in (int, float) for one in found):
            raise DataError(f"{where}: logprobs: expected numbers, or content with token, logprob")
        probs = TokenProbs(tuple(map(float, found)), ids=tuple(ids))
        why = wrong(probs)
        if why:
            raise DataError(f"{where}: logprobs: {why}")
        return probs
    probs_read = token_probs(found)
    if probs_read is None:
        raise DataError(
            f"{where}: logprobs: expected {{content: [{{token, logprob, bytes}}, …]}}, a number of "
            "at most 0 each"
        )
    return probs_read
