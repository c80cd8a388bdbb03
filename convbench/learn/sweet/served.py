"""Get log-probabilities of candidates from vLLM servers on this machine.

One serves the critic (`vllm serve CHECKPOINT/critic`), one the reference (`vllm serve BASE`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from convbench.errors import TrainError
from convbench.judge.adaptation.served import Server
from convbench.learn.sweet.pairs import CriticRow

AT_ONCE = 16
"""Prompts of one request."""


def served_log_probs(
    base: str, weights: str, rows: Sequence[Sequence[CriticRow]], *, mean: bool
) -> list[float]:
    """Return log pi of each candidate's turn under the weights served at the address `base`: the
    mean over its tokens, or the sum. Raises TrainError if the server serves other weights, or does
    not answer."""
    server = Server(base, weights, "args.servers")
    try:
        model = server.model()
    except TrainError as error:
        raise TrainError(
            f"{error}; serve them with `vllm serve {weights}` and give the command again: it goes "
            "on where it stopped"
        ) from None
    found = []
    flat = [_only(each) for each in rows]
    for start in range(0, len(flat), AT_ONCE):
        part = flat[start : start + AT_ONCE]
        told = server.prompt_log_probs(model, [row.ids for row in part])
        found += [_turn(base, row, values, mean) for row, values in zip(part, told, strict=True)]
    return found


def _only(rows: Sequence[CriticRow]) -> CriticRow:
    if len(rows) != 1 or max(rows[0].turns) > 0:
        raise TrainError(
            "args.servers: found a candidate of several rows or turns (a chat template that runs "
            "them together); expected one; leave args.servers out"
        )
    return rows[0]


def _turn(base: str, row: CriticRow, told: Sequence[Mapping[str, Any] | None], mean: bool) -> float:
    """Return a row's log pi from the server's log-probabilities of all its tokens."""
    values = []
    for token, mark, said in zip(row.ids, row.turns, told, strict=False):
        if mark < 0:
            continue
        one = (said or {}).get(str(token))
        value = one.get("logprob") if isinstance(one, Mapping) else None
        if not isinstance(value, (int, float)):
            raise TrainError(f"{base}: found no log-probability of token {token} of a prompt")
        values.append(float(value))
    if len(told) != len(row.ids) or not values:
        raise TrainError(f"{base}: found {len(told)} log-probabilities of {len(row.ids)} tokens")
    return sum(values) / (len(values) if mean else 1)
