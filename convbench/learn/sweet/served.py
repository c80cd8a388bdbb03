"""Get log-probabilities of candidates from vLLM servers on this machine.

One serves the critic (`vllm serve CHECKPOINT/critic`), one the reference (`vllm serve BASE`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from convbench.errors import TrainError
from convbench.judge.adaptation.served import AdapterServer
from convbench.learn.sweet.pairs import CriticRow

PROMPTS_PER_REQUEST = 16
"""Prompts of one request."""


def served_log_probs(
    base: str, weights: str, rows: Sequence[Sequence[CriticRow]], *, mean: bool
) -> list[float]:
    """Return log pi of each candidate's turn under the weights served at the address `base`: the
    mean over its tokens, or the sum. Raises TrainError if the server serves other weights, or does
    not answer."""
    server = AdapterServer(base, weights, "args.servers")
    try:
        model = server.served_model()
    except TrainError as error:
        raise TrainError(
            f"{error}; serve them with `vllm serve {weights}` and give the command again: it goes "
            "on where it stopped"
        ) from None
    log_probs = []
    flat = [_only_row(each) for each in rows]
    for start in range(0, len(flat), PROMPTS_PER_REQUEST):
        part = flat[start : start + PROMPTS_PER_REQUEST]
        replies = server.prompt_log_probs(model, [row.ids for row in part])
        log_probs += [
            _turn_log_prob(base, row, values, mean)
            for row, values in zip(part, replies, strict=True)
        ]
    return log_probs


def _only_row(rows: Sequence[CriticRow]) -> CriticRow:
    if len(rows) != 1 or max(rows[0].turns) > 0:
        raise TrainError(
            "args.servers: found a candidate of several rows or turns (a chat template that runs "
            "them together); expected one; leave args.servers out"
        )
    return rows[0]


def _turn_log_prob(
    base: str, row: CriticRow, prompt_log_probs: Sequence[Mapping[str, Any] | None], mean: bool
) -> float:
    """Return a row's log pi from the server's log-probabilities of all its tokens."""
    values = []
    for token, mark, by_token in zip(row.ids, row.turns, prompt_log_probs, strict=False):
        if mark < 0:
            continue
        entry = (by_token or {}).get(str(token))
        value = entry.get("logprob") if isinstance(entry, Mapping) else None
        if not isinstance(value, (int, float)):
            raise TrainError(f"{base}: found no log-probability of token {token} of a prompt")
        values.append(float(value))
    if len(prompt_log_probs) != len(row.ids) or not values:
        raise TrainError(
            f"{base}: found {len(prompt_log_probs)} log-probabilities of {len(row.ids)} tokens"
        )
    return sum(values) / (len(values) if mean else 1)
