"""Score the candidates of a turn by the critic against its reference (SWEET-RL, stage 2).

Get log-probabilities of candidates from vLLM servers on this machine.

One serves the critic (`vllm serve CHECKPOINT/critic`), one the reference (`vllm serve BASE`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from convbench.errors import TrainError
from convbench.judge.adaptation.server import AdapterServer
from convbench.learn import fitting
from convbench.learn.job import Job
from convbench.learn.log import LoggedConversation
from convbench.learn.pairs import PolicyReply
from convbench.learn.sweet import critic as advantage
from convbench.learn.sweet.candidates import reply_key, reply_of
from convbench.learn.sweet.pairs import (
    CriticRow,
    SweetArgs,
    hidden_text,
    rows_by_turn,
    with_hidden_text,
)
from convbench.learn.tokens import ChatTokens, PromptedReply
from convbench.rollout.plan import seen_before
from convbench.schema import ProtocolSpec

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
            f"{error}; serve them with `vllm serve {weights}` and run the command again: it "
            "resumes where it stopped"
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


def candidate_row(
    protocol: ProtocolSpec,
    item: LoggedConversation,
    turn: int,
    rounds: int,
    reply: PolicyReply,
    chat: ChatTokens,
    settings: SweetArgs,
    *,
    shows_hidden: bool = True,
) -> list[CriticRow]:
    """Return one candidate's rows: the history, with the hidden text before it if the flag is set,
    then the reply."""
    seen = seen_before(protocol, item.conversation, turn, rounds)
    prompted = PromptedReply(
        with_hidden_text(seen, hidden_text(item, settings) if shows_hidden else ""), reply
    )
    return rows_by_turn([prompted], chat, item.conversation.ended[:10])


def candidate_advantages(
    job: Job,
    critic: Path,
    by_id: Mapping[str, LoggedConversation],
    candidates: Sequence[Mapping[str, Any]],
    settings: SweetArgs,
) -> list[float]:
    """Return the advantage of every candidate, in order: equation (3) with the trained critic.

    Equal contents of one turn are scored once. With `servers` they are scored there, else by models
    loaded here. Raise TrainError if the servers cannot be used.
    """
    protocol = job.run.manifest.protocol
    places: dict[str, int] = {}
    hidden_flags = (True, settings.informed_reference)
    rows: tuple[list[list[CriticRow]], ...] = ([], [])
    for row in candidates:
        if (key := _candidate_key(row)) not in places:
            places[key] = len(rows[0])
            name, turn, rounds = reply_key(row)
            reply = reply_of(row)
            for each, shows_hidden in zip(rows, hidden_flags, strict=True):
                each.append(
                    candidate_row(
                        protocol,
                        by_id[name],
                        turn,
                        rounds,
                        reply,
                        job.chat,
                        settings,
                        shows_hidden=shows_hidden,
                    )
                )
    if settings.servers is not None:
        if settings.normalize == "trajectory":
            raise TrainError("args.servers: found normalize trajectory; expected turn or false")
        mean, weights = bool(settings.normalize), (str(critic), job.model)
        sides = zip(settings.servers, weights, rows, strict=True)
        critic_log_probs, base_log_probs = (
            served_log_probs(url, path, each, mean=mean) for url, path, each in sides
        )
        gains = [a - b for a, b in zip(critic_log_probs, base_log_probs, strict=True)]
        return [gains[places[_candidate_key(row)]] for row in candidates]
    pad = job.chat.tokenizer.pad_token_id or 0
    values = []
    for path, each in zip((str(critic), None), rows, strict=True):
        model = fitting.load_model(job, path, trained=False).to(advantage.torch_device())
        values.append(advantage.score_turns(model, each, pad, mean=settings.normalize))
        del model  # frees its memory before the other model is loaded
    gains = [float((a.double() - b.double()).sum()) for a, b in zip(*values, strict=True)]
    return [gains[places[_candidate_key(row)]] for row in candidates]


def _candidate_key(row: Mapping[str, Any]) -> str:
    """Return a key that is equal for candidates of one turn with the same content."""
    content = reply_of(row).content_key
    return json.dumps([reply_key(row), content, row["cut"]])
