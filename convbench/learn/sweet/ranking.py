"""Score the candidates of a turn by the critic against its reference (SWEET-RL, stage 2)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from convbench.errors import TrainError
from convbench.learn import fitting
from convbench.learn.job import Job
from convbench.learn.logged import LoggedConversation
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
from convbench.learn.sweet.served import served_log_probs
from convbench.learn.tokens import ChatTokens, PromptedReply
from convbench.rollout.plan import seen_before
from convbench.schema import ProtocolSpec


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
    """Return the advantage of every candidate: equation (3) with the trained critic; equal texts
    of one turn are scored once."""
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
