"""Candidates of a turn, scored by the critic against its reference (SWEET-RL, stage 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from convbench.learn import fitting
from convbench.learn.job import Job
from convbench.learn.pairs import Reply
from convbench.learn.select import Logged
from convbench.learn.sweet import critic as advantage
from convbench.learn.sweet.pairs import CriticRow, Sweet, hidden_text, informed, rows_of
from convbench.learn.tokens import Asked, ChatTokens
from convbench.schema import ProtocolSpec
from convbench.views import messages


def candidate_row(
    protocol: ProtocolSpec,
    item: Logged,
    turn: int,
    reply: Reply,
    chat: ChatTokens,
    settings: Sweet,
) -> list[CriticRow]:
    """Return one candidate's row: the history with the hidden text before it, then the reply."""
    seen = messages(protocol, item.conversation, protocol.policy, turn)
    asked = Asked(informed(seen, hidden_text(item, settings)), reply)
    return rows_of([asked], chat, item.conversation.ended[:10])


def candidate_advantages(
    job: Job,
    critic: Path,
    by_id: Mapping[str, Logged],
    candidates: Sequence[Mapping[str, Any]],
    settings: Sweet,
) -> list[float]:
    """Return the advantage of every candidate: equation (3) with the trained critic; equal texts
    of one turn are scored once."""
    protocol = job.run.manifest.protocol
    places: dict[tuple[str, int, str, bool], int] = {}
    rows: list[list[CriticRow]] = []
    for row in candidates:
        key = (row["conversation_id"], row["turn"], row["text"], row["cut"])
        if key not in places:
            places[key] = len(rows)
            reply = Reply(row["text"], row["cut"])
            item = by_id[row["conversation_id"]]
            rows.append(candidate_row(protocol, item, row["turn"], reply, job.chat, settings))
    pad = job.chat.tokenizer.pad_token_id or 0
    values = []
    for path in (str(critic), None):
        model = fitting.load_model(job, path, trained=False).to(advantage.device())
        values.append(advantage.scores(model, rows, pad, mean=settings.normalize))
    gains = [float((a.double() - b.double()).sum()) for a, b in zip(*values, strict=True)]
    return [
        gains[places[(row["conversation_id"], row["turn"], row["text"], row["cut"])]]
        for row in candidates
    ]
