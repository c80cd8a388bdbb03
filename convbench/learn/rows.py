"""Make training rows (token ids, mask, weight) of conversations and pairs, and preview them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from convbench import views
from convbench.errors import TrainError
from convbench.learn.pairs import Pair, Pairs, PolicyReply
from convbench.learn.tokens import ChatTokens, PromptedReply, TokenRow
from convbench.learn.weights import Weighted
from convbench.schema import Conversation, ProtocolSpec, Sent
from convbench.schema.recipe import Unit

TOKENS_A_LINE = 10
"""Tokens that a preview shows on one line."""


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One row: a conversation, or a part of it, e.g. a turn (number `part` of `parts`)."""

    conversation_id: str
    part: int
    parts: int
    tokens: TokenRow
    weight: float
    unrewarded: bool = False
    """Whether it is learnt by its likelihood, whatever the objective, since it has no reward."""

    def trainer_fields(self) -> dict[str, Any]:
        """Return the row's columns for the trainer as a dict.

        `input_ids`; `labels`, -100 where masked; `weight`; `share`, 1 over the number of rows of
        its conversation; `plain`, 1.0 for a row without a reward, else 0.0.
        """
        return {
            "input_ids": list(self.tokens.ids),
            "labels": [
                token if is_learnt else -100
                for token, is_learnt in zip(self.tokens.ids, self.tokens.mask, strict=True)
            ],
            "weight": self.weight,
            "share": 1 / self.parts,
            "plain": float(self.unrewarded),
        }


@dataclass(frozen=True)
class TrainingRows:
    """All rows, and counts of conversations, rows and tokens by what happened to them."""

    rows: Sequence[TrainingRow]
    counts: dict[str, int] = field(default_factory=dict)


def prompted_replies(protocol: ProtocolSpec, conversation: Conversation) -> list[PromptedReply]:
    """Return the policy's replies, each with exactly the messages it saw before it: in every turn
    the replies that called tools, then the last one."""
    return [reply for turn in replies_by_turn(protocol, conversation) for reply in turn]


def replies_by_turn(
    protocol: ProtocolSpec, conversation: Conversation
) -> list[list[PromptedReply]]:
    """Return the policy's replies with their messages, turn by turn."""
    policy = protocol.policy
    replay = conversation.sent.get(policy, Sent()).replay
    turns = []
    for index in views.own_turns(protocol, conversation):
        turn = conversation.turns[index]
        before = views.messages_before(protocol, conversation, policy, index)
        turns.append(
            [
                PromptedReply((*before, *views.tool_messages(turn.rounds[:number], replay)), reply)
                for number, reply in enumerate(PolicyReply.all_of(turn))
            ]
        )
    return turns


def training_rows(
    weighted: Weighted,
    chat: ChatTokens,
    max_length: int | None = None,
    unit: Unit = "conversation",
    others: Mapping[str, ChatTokens] = MappingProxyType({}),
) -> TrainingRows:
    """Return the rows of weighted conversations, one a conversation (more if the chat template
    requires it) or one a policy reply.

    `others` are chat templates of the runs after the first, by id. Rows are cut to `max_length`;
    those left without a token to learn from are dropped and counted. Raise TrainError if a row has
    none before the cut, or if no row is left.
    """
    if weighted.by_turn and unit != "turn":
        raise TrainError(
            f"data.unit: found {unit} where weighting.reward is turn; expected turn; add "
            "--set data.unit=turn"
        )
    counts: Counter[str] = Counter()
    rows: list[TrainingRow] = []
    further = 0
    for logged, weight in weighted.items:
        conversation = logged.conversation
        name = conversation.conversation_id
        manifest = weighted.selection.run_of(logged).manifest
        own_chat = others.get(manifest.id, chat)
        turns = replies_by_turn(manifest.protocol, conversation)
        replies = [reply for turn in turns for reply in turn]
        parts = own_chat.token_rows(replies, conversation.ended[:10], unit)
        weights: list[float | None] = [weight] * len(parts)
        if name in weighted.by_turn:
            weights = _reply_weights(name, weighted.by_turn[name], turns)
        weighted_parts = list(zip(parts, weights, strict=True))
        if chat.reasoning != "loss":
            spoken = [each for each in weighted_parts if any(each[0].mask[1:])]
            if len(spoken) < len(parts):
                counts["rows of reasoning alone, left out"] += len(parts) - len(spoken)
            weighted_parts = spoken
        counts["conversations"] += 1
        counts["conversations of several rows"] += len(weighted_parts) > 1
        new_rows = _cut_rows(name, weighted_parts, max_length, counts)
        before = len(rows)
        rows += (
            (replace(row, unrewarded=True) for row in new_rows)
            if name in weighted.unrewarded_ids
            else new_rows
        )
        further += (len(rows) - before) * (manifest.id in others)
    if not rows:
        raise TrainError(
            f"the limit of {max_length} tokens a row (data.max_length, and the model's own) leaves "
            "no row with a token to learn from; raise data.max_length or take another model"
        )
    counts["rows"] = len(rows)
    if others:
        counts["rows of further runs"] = further
    counts["tokens"] = sum(len(row.tokens.ids) for row in rows)
    counts["tokens with loss"] = sum(sum(row.tokens.mask) for row in rows)
    return TrainingRows(tuple(rows), dict(counts))


def _reply_weights(
    name: str, weights: Sequence[float | None], turns: Sequence[Sequence[PromptedReply]]
) -> list[float | None]:
    """Return a weight for each reply: each reply of a turn that calls tools has the turn's."""
    if len(weights) != len(turns):
        raise TrainError(
            f"conversation {name}: found rewards of {len(weights)} turns for {len(turns)} of the "
            "policy; judge it again"
        )
    return [weight for weight, turn in zip(weights, turns, strict=True) for _ in turn]


def _cut_rows(
    name: str,
    parts: Sequence[tuple[TokenRow, float | None]],
    limit: int | None,
    counts: Counter[str],
) -> Iterator[TrainingRow]:
    for number, (tokens, weight) in enumerate(parts):
        if weight is None:
            continue
        check_mask(name, tokens)
        if limit is not None and len(tokens.ids) > limit:
            tokens = TokenRow(tokens.ids[:limit], tokens.mask[:limit])
            counts["rows truncated"] += 1
            if not any(tokens.mask[1:]):
                counts["rows dropped"] += 1
                continue
        yield TrainingRow(name, number, len(parts), tokens, weight)


def check_mask(name: str, tokens: TokenRow) -> None:
    """Raise TrainError if a row has no token to learn from; its first token does not count."""
    if not any(tokens.mask[1:]):
        raise TrainError(
            f"conversation {name}: found no token of the policy among {len(tokens.ids)}; expected "
            "some; the policy never spoke, or only empty replies that were cut"
        )


@dataclass(frozen=True, slots=True)
class PairRow:
    """Token ids of a pair: of the common prompt, and of each reply with its end of turn."""

    task: str
    prompt_ids: list[int]
    chosen_ids: list[int]
    rejected_ids: list[int]

    def trainer_fields(self) -> dict[str, list[int]]:
        """Return the columns for TRL's DPO: lists of token ids under `prompt_ids`, `chosen_ids` and
        `rejected_ids`."""
        return {
            "prompt_ids": self.prompt_ids,
            "chosen_ids": self.chosen_ids,
            "rejected_ids": self.rejected_ids,
        }


@dataclass(frozen=True)
class PairRows:
    """The rows of all pairs, and counts of pairs kept, truncated and dropped by the limit."""

    rows: Sequence[PairRow]
    counts: dict[str, int]


def pair_rows(
    pairs: Pairs,
    chat: ChatTokens,
    max_length: int | None = None,
    others: Mapping[str, ChatTokens] = MappingProxyType({}),
) -> PairRows:
    """Return the rows of pairs, with counts of `pairs`, `pairs truncated` and `pairs dropped`.

    Pairs whose prompt alone fills `max_length` are dropped; longer ones are kept whole and counted
    as truncated (TRL cuts them at their end). `others` as in `training_rows`. Raise TrainError if
    none is left, for an empty reply that was cut, or for reasoning as `context`.
    """
    rows, further = [], 0
    for pair in pairs.items:
        rows.append(_pair_row(pair, others.get(pair.run, chat)))
        further += pair.run in others
    remaining = [row for row in rows if max_length is None or len(row.prompt_ids) < max_length]
    if not remaining:
        raise TrainError(
            f"the limit of {max_length} tokens a row (data.max_length, and the model's own) leaves "
            "no pair; raise data.max_length or take another model"
        )
    long = sum(
        len(row.prompt_ids) + max(len(row.chosen_ids), len(row.rejected_ids)) > max_length
        for row in remaining
        if max_length is not None
    )
    counts = {
        "pairs": len(remaining),
        **({"rows of further runs": further} if others else {}),
        "pairs truncated": long,
        "pairs dropped": len(rows) - len(remaining),
    }
    return PairRows(tuple(remaining), counts)


def _pair_row(pair: Pair, chat: ChatTokens) -> PairRow:
    if chat.reasoning == "context" and (pair.chosen.reasoning or pair.rejected.reasoning):
        raise TrainError(
            "data.reasoning: found context; the loss of a pair covers both replies in full, "
            "reasoning included; expected loss or drop"
        )
    prompt = chat.render_prompt(pair.messages, pair.date)
    ids = chat.prompt_ids(pair.messages, pair.date)
    chosen, rejected = (
        chat.reply_ids(prompt, ids, reply) + ([] if reply.cut else [chat.end_of_turn])
        for reply in (pair.chosen, pair.rejected)
    )
    if not chosen or not rejected:
        raise TrainError(f"task {pair.task}: found an empty reply that was cut; expected text")
    return PairRow(pair.task, ids, chosen, rejected)


def preview_rows(rows: Iterable[TrainingRow], chat: ChatTokens) -> Iterator[str]:
    """Yield lines that show rows: the weight, and every stretch of tokens with its mask; of the
    first row also every token."""
    for number, row in enumerate(rows):
        part = f", row {row.part + 1} of {row.parts}" if row.parts > 1 else ""
        total, learnt_count = len(row.tokens.ids), sum(row.tokens.mask)
        yield (
            f"{row.conversation_id}{part}: weight {row.weight:+.4f}, {total} tokens, "
            f"{learnt_count} with loss"
        )
        for learnt, ids in mask_stretches(row.tokens):
            sign = "LOSS" if learnt else "    "
            yield f"  {sign} {len(ids):5d}  {chat.tokenizer.decode(ids)!r}"
        if number == 0:
            yield "  token by token (* with loss):"
            yield from _token_lines(row.tokens, chat)


def _token_lines(tokens: TokenRow, chat: ChatTokens) -> Iterator[str]:
    """Yield lines of a row's tokens: id and text, with a star if the loss counts the token."""
    words = [
        f"{'*' if is_learnt else ''}{token}:{chat.tokenizer.decode([token])!r}"
        for token, is_learnt in zip(tokens.ids, tokens.mask, strict=True)
    ]
    for start in range(0, len(words), TOKENS_A_LINE):
        yield "    " + " ".join(words[start : start + TOKENS_A_LINE])


def mask_stretches(tokens: TokenRow) -> Iterator[tuple[bool, list[int]]]:
    """Yield (mask, ids) of the row's stretches of equal mask."""
    start = 0
    for end in range(1, len(tokens.ids) + 1):
        if end == len(tokens.ids) or tokens.mask[end] != tokens.mask[start]:
            yield bool(tokens.mask[start]), list(tokens.ids[start:end])
            start = end


def preview_pairs(rows: Iterable[PairRow], chat: ChatTokens) -> Iterator[str]:
    """Yield lines that show pairs: prompt, chosen and rejected reply."""
    for row in rows:
        yield f"question {row.task}"
        for name, ids in row.trainer_fields().items():
            sign = "    " if name == "prompt_ids" else "LOSS"
            text = chat.tokenizer.decode(ids)
            yield f"  {sign} {len(ids):5d}  {name.removesuffix('_ids'):8s} {text!r}"
