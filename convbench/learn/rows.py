"""Make the rows that a program of `trainers/` reads, a `datasets` folder, and preview them.

A conversation of weight 0.5 whose policy said "Hi" and later "Yes" is one row, if the chat template
is prefix-stable, with a weight at each token that the policy wrote:

    input_ids  <|user|> A ? <|assistant|> Hi <|end|> <|user|> B ? <|assistant|> Yes <|end|>
    labels     -100  …                    Hi <|end|> -100  …                    Yes <|end|>
    weights    0     …                    .5 .5      0     …                    .5  .5

With `data.unit: turn` it is two rows, each with one reply under its history. A pair is one row of
`prompt_ids`, `chosen_ids` and `rejected_ids`.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from convbench import views
from convbench.errors import TrainError
from convbench.learn.pairs import Pair, Pairs, pair, replies_of
from convbench.learn.select import Logged, Selection, repeat_by_share, select
from convbench.learn.tokens import (
    ChatTokens,
    PromptedReply,
    TokenRow,
    Unrenderable,
    load_tokenizer,
)
from convbench.learn.weights import Ties, Weight, weigh
from convbench.schema import Conversation, ProtocolSpec, Sent, fingerprint
from convbench.schema.recipe import Recipe
from convbench.store.jsonl import write_atomic
from convbench.store.run import Run

ROWS = "rows"
"""Folder of a checkpoint with its rows."""
ABOUT = "about.json"
"""In that folder, written last: the rows' counts, and figures for `training.json`."""
AT_ONCE = 1_000
"""Rows of one record batch."""
TOKENS_A_LINE = 10
Row = dict[str, Any]
Rows = Iterator[Row]


class Chats:
    """Tokenizer and chat template of a model, with each run's tools and options."""

    def __init__(self, model: str, reasoning: str) -> None:
        self._model, self._reasoning = model, reasoning
        self._known: dict[str, ChatTokens] = {}

    @cached_property
    def tokenizer(self) -> Any:
        """The model's tokenizer, loaded when it is first needed."""
        return load_tokenizer(self._model)

    def of(self, run: Run, talk: Conversation | None = None) -> ChatTokens:
        """Return the chat template as the run's policy was served; a logged conversation may have
        tools of its own, or call some that its log does not describe."""
        manifest = run.manifest
        protocol = manifest.protocol
        own = list(talk.tools) if talk is not None else []
        tools = own or protocol.speakers[protocol.policy].tool_schemas
        calls = talk is not None and any(turn.rounds for turn in talk.turns)
        key = f"{manifest.id}{calls}" + (fingerprint(own) if own else "")
        if key not in self._known:
            options = manifest.policy_member.template_options | ({"tools": tools} if tools else {})
            self._known[key] = ChatTokens(
                self.tokenizer, reasoning=self._reasoning, options=options, calls=calls
            )
        return self._known[key]


@dataclass(frozen=True)
class Material:
    """What a learner learns from, before it is turned into tokens."""

    selection: Selection
    unit: str
    """What one row is: `conversation`, `turn`, `pair`, `pair of conversations`."""
    items: Sequence[Any]
    tokenise: Callable[[Sequence[Any], Counter[str]], Rows]
    """Yields the rows of some of the items and counts what it does to them."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Counts of what was left out before, by reason."""
    ties: Ties | None = None
    flat_tasks: float | None = None
    """Share of tasks whose rewards do not differ; None for pairs."""
    end_of_turn: int | None = None
    """Token that ends a reply under the chat template."""


def weighted_material(
    recipe: Recipe, runs: Sequence[Run], chats: Chats, limit: int | None
) -> Material:
    """Return the conversations of the runs with their weights."""
    selection = select(runs, recipe.data)
    weighted = weigh(selection, recipe.weighting, recipe.fit.seed)
    tasks = ((item.run.manifest.id, item.task) for item, _ in weighted.items)
    items = repeat_by_share(weighted.items, selection, recipe.data, tasks)

    def tokenise(some: Sequence[tuple[Logged, tuple[Weight, ...]]], counts: Counter[str]) -> Rows:
        for item, weights in some:
            chat = chats.of(item.run, item.conversation)
            yield from _weighted_rows(item, weights, chat, recipe, limit, counts)

    return Material(
        selection,
        recipe.data.unit,
        items,
        tokenise,
        weighted.left_out,
        weighted.ties,
        weighted.flat_tasks,
        chats.of(runs[0]).end_of_turn,
    )


def paired_material(
    recipe: Recipe,
    runs: Sequence[Run],
    chats: Chats,
    limit: int | None,
    direct: ProtocolSpec | None = None,
) -> Material:
    """Return pairs of replies of the runs' conversations; `direct` as `pair` takes it."""
    selection = select(runs, recipe.data)
    return pair_rows(pair(selection, recipe.pairing, direct, recipe.fit.seed), recipe, chats, limit)


def pair_rows(pairs: Pairs, recipe: Recipe, chats: Chats, limit: int | None) -> Material:
    """Return pairs as material."""
    tasks = ((p.item.run.manifest.id, p.item.task) for p in pairs.items)
    items = repeat_by_share(pairs.items, pairs.selection, recipe.data, tasks)

    def tokenise(some: Sequence[Pair], counts: Counter[str]) -> Rows:
        for each in some:
            chat = chats.of(each.item.run, each.item.conversation)
            yield from _pair_rows(each, chat, limit, counts)

    end = chats.of(pairs.selection.runs[0]).end_of_turn
    return Material(
        pairs.selection, "pair", items, tokenise, pairs.left_out, pairs.ties, end_of_turn=end
    )


def prompted_replies(protocol: ProtocolSpec, conversation: Conversation) -> list[PromptedReply]:
    """Return the policy's replies, each with exactly the messages it saw before it."""
    return [reply for turn in replies_by_turn(protocol, conversation) for reply in turn]


def replies_by_turn(
    protocol: ProtocolSpec, conversation: Conversation
) -> list[list[PromptedReply]]:
    """Return the same turn by turn: in every turn the replies that called tools, then the last
    one."""
    policy = protocol.policy
    replay = conversation.sent.get(policy, Sent()).replay
    turns = []
    for index in views.own_turns(protocol, conversation):
        turn = conversation.turns[index]
        before = views.messages_before(protocol, conversation, policy, index)
        turns.append(
            [
                PromptedReply((*before, *views.tool_messages(turn.rounds[:number], replay)), reply)
                for number, reply in enumerate(replies_of(turn))
            ]
        )
    return turns


def day_of(item: Logged) -> str:
    """Return the ISO date of a conversation, for templates that print it."""
    return item.conversation.ended[:10]


def _weighted_rows(
    item: Logged,
    weights: Sequence[Weight],
    chat: ChatTokens,
    recipe: Recipe,
    limit: int | None,
    counts: Counter[str],
) -> Rows:
    """Yield the rows of one conversation; a turn without a weight is context."""
    replies: list[PromptedReply] = []
    of_reply: list[Weight] = []
    turns = replies_by_turn(item.protocol, item.conversation)
    for turn, weight in zip(turns, weights, strict=True):
        answered = [reply for reply in turn if reply.messages]
        counts["replies before any message, not learnt"] += len(turn) - len(answered)
        replies += answered
        of_reply += [weight] * len(answered)
    day = day_of(item)
    try:
        parts = chat.token_rows(replies, day, recipe.data.unit)
        if limit is not None and any(len(part.ids) > limit for part in parts):
            if recipe.data.too_long == "drop":
                counts["conversations left out: longer than a row"] += 1
                return
            parts = [_slid(part, n, chat, day, limit) for n, part in enumerate(replies)]
            counts["conversations whose turns are rows, each with the last messages that fit"] += 1
    except Unrenderable as error:
        counts[f"conversations left out: {error}"] += 1
        return
    counts["conversations"] += 1
    counts["conversations of several rows"] += len(parts) > 1
    for number, part in enumerate(parts):
        known = [of_reply[mark] if mark >= 0 else None for mark in part.replies]
        known[0] = None  # the first token of a row is no prediction
        if all(mark < 0 for mark in part.replies[1:]):
            counts["rows without a token of the policy"] += 1
            continue
        if all(weight is None for weight in known):
            continue
        if limit is not None and len(known) > limit:
            counts["rows truncated"] += 1
            known = known[:limit]
            if all(weight is None for weight in known):
                counts["rows dropped"] += 1
                continue
        ids = list(part.ids[: len(known)])
        labels = [-100 if w is None else i for i, w in zip(ids, known, strict=True)]
        counts["rows"] += 1
        counts["tokens"] += len(ids)
        counts["tokens with loss"] += sum(weight is not None for weight in known)
        yield {
            "conversation_id": item.id,
            "row": number,
            "rows": len(parts),
            "input_ids": ids,
            "labels": labels,
            "weights": [0.0 if weight is None else weight for weight in known],
        }


def _slid(reply: PromptedReply, number: int, chat: ChatTokens, day: str, limit: int) -> TokenRow:
    """Return the row of one reply with the system message and as many of the last messages before
    it as fit; with one of them if none does."""
    said = reply.messages
    head = said[:1] if said[0]["role"] == "system" and len(said) > 1 else ()
    starts = [i for i in range(len(head), len(said)) if said[i]["role"] != "tool"] or [len(head)]
    low, high = 0, len(starts) - 1
    while True:
        middle = (low + high) // 2
        tried = PromptedReply((*head, *said[starts[middle] :]), reply.reply)
        (row,) = chat.token_rows([tried], day)
        if low >= high:
            return TokenRow(row.ids, tuple(number if mark >= 0 else -1 for mark in row.replies))
        low, high = (low, middle) if len(row.ids) <= limit else (middle + 1, high)


def _pair_rows(each: Pair, chat: ChatTokens, limit: int | None, counts: Counter[str]) -> Rows:
    try:
        prompt = chat.render_prompt(each.messages, day_of(each.item)) if each.messages else ""
        if not each.messages:
            raise Unrenderable("whose policy speaks before any message")
        ids = chat.encode(prompt)
        both = [chat.reply_ids(prompt, ids, reply) for reply in (each.chosen, each.rejected)]
    except Unrenderable as error:
        counts[f"pairs left out: {error}"] += 1
        return
    if not all(both):
        counts["pairs left out: with an empty reply that was cut"] += 1
        return
    if limit is not None:
        if len(ids) >= limit:
            counts["pairs dropped"] += 1
            return
        room = limit - len(ids)
        counts["pairs truncated"] += max(map(len, both)) > room
        both = [reply[:room] for reply in both]
    if both[0] == both[1]:
        counts["pairs left out: equal after truncation"] += 1
        return
    counts["pairs"] += 1
    counts["tokens"] += len(ids) + sum(map(len, both))
    yield {
        "task": each.item.task,
        "prompt_ids": ids,
        "chosen_ids": both[0],
        "rejected_ids": both[1],
    }


def check_rows(number: int, counts: Mapping[str, int], limit: int | None) -> None:
    """Raise TrainError if no row is left."""
    if number:
        return
    why = "; ".join(f"{count} {reason}" for reason, count in counts.items() if count)
    raise TrainError(
        f"no row is left with a token to learn from ({why}; the limit is {limit} tokens a row: "
        "data.max_length, and the model's own); expected some; raise data.max_length or take "
        "another model or log"
    )


def write_rows(
    folder: Path, material: Material, limit: int | None, figures: dict[str, Any]
) -> dict[str, Any]:
    """Write all rows into `folder/rows`, and what they are into its `about.json`, which is
    returned. Raise TrainError if none is left."""
    counts: Counter[str] = Counter()
    lengths = [0, 0]

    def watched() -> Rows:
        for row in material.tokenise(material.items, counts):
            lengths[:] = map(max, lengths, row_length(row))
            yield row

    number = write_table(folder / ROWS, watched())
    check_rows(number, counts, limit)
    about = {"rows": number, "longest": lengths, "counts": dict(+counts), **figures}
    write_atomic(folder / ROWS / ABOUT, json.dumps(about, indent=1).encode())
    return about


def write_table(folder: Path, rows: Iterable[Row]) -> int:
    """Write rows as a `datasets` folder, and return their number; nothing is written without
    any."""
    import pyarrow as pa
    from datasets import Dataset
    from datasets.table import InMemoryTable
    from datasets.utils.logging import disable_progress_bar

    disable_progress_bar()
    rows, batches, schema = iter(rows), list[Any](), None
    while some := list(itertools.islice(rows, AT_ONCE)):
        schema = schema or _schema(some[0])
        batches.append(pa.RecordBatch.from_pylist(some, schema=schema))
    if batches:
        Dataset(InMemoryTable(pa.Table.from_batches(batches))).save_to_disk(str(folder))
    return sum(batch.num_rows for batch in batches)


def read_about(folder: Path) -> dict[str, Any]:
    """Return what `about.json` says of a checkpoint's rows."""
    about: dict[str, Any] = json.loads((folder / ROWS / ABOUT).read_bytes())
    return about


def _schema(row: Row) -> Any:
    import pyarrow as pa

    def kind(value: Any) -> Any:
        if isinstance(value, list):
            return pa.list_(kind(value[0]) if value else pa.int32())
        kinds = {str: pa.string(), bool: pa.bool_(), int: pa.int32(), float: pa.float32()}
        return kinds[type(value)]

    return pa.schema([(name, kind(value)) for name, value in row.items()])


def row_length(row: Row) -> tuple[int, int]:
    """Return (tokens of a row's longest sequence, tokens with loss of the one with most)."""
    if "prompt_ids" in row:
        reply = max(len(row["chosen_ids"]), len(row["rejected_ids"]))
        return len(row["prompt_ids"]) + reply, reply
    if "input_ids" in row:
        return len(row["input_ids"]), sum(label != -100 for label in row["labels"])
    longest = max(len(ids) for name in ("chosen_ids", "rejected_ids") for ids in row[name])
    return longest, longest


def preview_rows(rows: Sequence[Row], tokenizer: Any) -> Iterator[str]:
    """Yield lines that show three rows: of weighted ones the highest, middle and lowest weight, and
    of the first every token."""
    if rows and "weights" in rows[0]:
        rows = sorted(rows, key=lambda row: -_weight_of(row))
        picked = sorted({0, len(rows) // 2, len(rows) - 1})
    else:
        picked = list(range(min(3, len(rows))))
    for number, index in enumerate(picked):
        row = rows[index]
        yield from _row_lines(row, tokenizer)
        if number == 0 and "weights" in row:
            yield "  token by token (* with loss):"
            words = [
                f"{'' if label == -100 else '*'}{token}:{tokenizer.decode([token])!r}"
                for token, label in zip(row["input_ids"], row["labels"], strict=True)
            ]
            for start in range(0, len(words), TOKENS_A_LINE):
                yield "    " + " ".join(words[start : start + TOKENS_A_LINE])


def mask_stretches(row: TokenRow | Row) -> Iterator[tuple[bool, list[int]]]:
    """Yield (whether it is learnt, ids) of a row's stretches of tokens."""
    if isinstance(row, TokenRow):
        ids, learnt = list(row.ids), row.mask
    else:
        ids, learnt = row["input_ids"], [label != -100 for label in row["labels"]]
    start = 0
    for end in range(1, len(ids) + 1):
        if end == len(ids) or learnt[end] != learnt[start]:
            yield learnt[start], ids[start:end]
            start = end


def _row_lines(row: Row, tokenizer: Any) -> Iterator[str]:
    if "weights" in row:
        part = f", row {row['row'] + 1} of {row['rows']}" if row["rows"] > 1 else ""
        learnt = sum(label != -100 for label in row["labels"])
        yield (
            f"{row['conversation_id']}{part}: weight {_weight_of(row):+.4f}, "
            f"{len(row['input_ids'])} tokens, {learnt} with loss"
        )
        for is_learnt, ids in mask_stretches(row):
            sign = "LOSS" if is_learnt else "    "
            yield f"  {sign} {len(ids):5d}  {tokenizer.decode(ids)!r}"
    elif "prompt_ids" in row:
        yield f"question {row['task']}"
        for name in ("prompt_ids", "chosen_ids", "rejected_ids"):
            sign = "    " if name == "prompt_ids" else "LOSS"
            text = tokenizer.decode(row[name])
            yield f"  {sign} {len(row[name]):5d}  {name.removesuffix('_ids'):8s} {text!r}"
    else:
        yield f"question {row['task']}"
        for name in ("chosen", "rejected"):
            for ids, marks in zip(row[f"{name}_ids"], row[f"{name}_turns"], strict=True):
                learnt = sum(mark >= 0 for mark in marks)
                yield f"  {name}: {len(ids)} tokens, {learnt} of the policy"


def _weight_of(row: Row) -> float:
    """Return a row's weight: that of its first learnt token."""
    learnt = (w for w, label in zip(row["weights"], row["labels"], strict=True) if label != -100)
    return float(next(learnt))
