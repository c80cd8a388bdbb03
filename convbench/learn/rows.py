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
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from convbench.errors import TrainError
from convbench.learn.pairs import Pair, Pairs, pair, replies_of
from convbench.learn.select import Logged, Selection, repeat_by_share, select
from convbench.learn.tokens import ChatTokens, PromptedReply, TokenRow, Unrenderable, load_tokenizer
from convbench.learn.weights import Ties, Weight, weigh
from convbench.rollout.plan import seen_before
from convbench.schema import Conversation, ProtocolSpec, fingerprint
from convbench.schema.recipe import Data, Recipe
from convbench.store.jsonl import write_atomic
from convbench.store.run import Run
from convbench.views import own_turns

ROWS = "rows"
"""Folder of a checkpoint with its rows."""
ABOUT = "about.json"
"""In that folder, written last: the rows' counts, and figures for `training.json`."""
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
        member, protocol = run.manifest.policy_member, run.manifest.protocol
        own = list(talk.tools) if talk is not None else []
        tools = own or protocol.speakers[protocol.policy].tool_schemas
        calls = talk is not None and any(turn.rounds for turn in talk.turns)
        key = f"{run.manifest.id}{calls}" + (fingerprint(own) if own else "")
        if key not in self._known:
            options = member.template_options | ({"tools": tools} if tools else {})
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

    def figures(self, data: Data) -> dict[str, Any]:
        """Return what `training.json` says of the data."""
        selection = self.selection
        of_run = Counter(item.run.manifest.id for item in selection.logged)
        runs = [
            {
                "run": run.manifest.id,
                "task": run.manifest.task.name,
                "protocol": run.manifest.protocol.name,
                "policy": run.manifest.policy_member.model,
                "conversations": of_run[run.manifest.id],
                "share": share,
            }
            for run, share in zip(selection.runs, data.mix or itertools.repeat(1.0), strict=False)
        ]
        return {
            "unit": self.unit,
            "items": len(self.items),
            "end_of_turn": self.end_of_turn,
            "run": selection.runs[0].manifest.id,
            "judge": selection.judge,
            "metric": data.metric,
            "conversations": len(selection.logged),
            "skipped": {**selection.left_out, **self.left_out},
            "flagged": selection.flagged,
            "findings": dict(sorted(selection.findings.items())),
            **({"runs": runs} if len(runs) > 1 else {}),
            "flat_tasks": self.flat_tasks,
            "ties": None if self.ties is None else vars(self.ties),
        }


def weighted_material(
    recipe: Recipe, runs: Sequence[Run], chats: Chats, limit: int | None
) -> Material:
    """Return the conversations of the runs with their weights."""
    selection = select(runs, recipe.data)
    weighted = weigh(selection, recipe.weighting, recipe.fit.seed)
    logged = [item for item, _ in weighted.items]
    items = repeat_by_share(weighted.items, logged, selection, recipe.data)

    def tokenise(some: Sequence[tuple[Logged, tuple[Weight, ...]]], counts: Counter[str]) -> Rows:
        for item, weights in some:
            chat = chats.of(item.run, item.conversation)
            try:
                yield from _weighted_rows(item, weights, chat, recipe, limit, counts)
            except Unrenderable as error:
                counts[f"conversations left out: {error}"] += 1

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
    selection = pairs.selection
    items = repeat_by_share(pairs.items, [p.item for p in pairs.items], selection, recipe.data)

    def tokenise(some: Sequence[Pair], counts: Counter[str]) -> Rows:
        for each in some:
            chat = chats.of(each.item.run, each.item.conversation)
            try:
                yield _pair_row(each, chat, limit, counts)
            except Unrenderable as error:
                counts[f"pairs left out: {error}"] += 1

    end = chats.of(selection.runs[0]).end_of_turn
    return Material(selection, "pair", items, tokenise, pairs.left_out, pairs.ties, end_of_turn=end)


def prompted_replies(protocol: ProtocolSpec, conversation: Conversation) -> list[PromptedReply]:
    """Return the policy's replies, each with exactly the messages it saw before it: in every turn
    those that called tools, then the last one."""
    return [
        PromptedReply(tuple(seen_before(protocol, conversation, index, rounds)), reply, number)
        for number, index in enumerate(own_turns(protocol, conversation))
        for rounds, reply in enumerate(replies_of(conversation.turns[index]))
    ]


def _weighted_rows(
    item: Logged,
    weights: Sequence[Weight],
    chat: ChatTokens,
    recipe: Recipe,
    limit: int | None,
    counts: Counter[str],
) -> Rows:
    """Yield the rows of one conversation; a turn without a weight is context."""
    said = prompted_replies(item.protocol, item.conversation)
    replies = [reply for reply in said if reply.messages]
    counts["replies before any message, not learnt"] += len(said) - len(replies)
    parts = chat.token_rows(replies, item.day, recipe.data.unit)
    if limit is not None and any(len(part.ids) > limit for part in parts):
        if recipe.data.too_long == "drop":
            counts["conversations left out: longer than a row"] += 1
            return
        parts = [_slid(reply, n, chat, item.day, limit) for n, reply in enumerate(replies)]
        counts["conversations whose turns are rows, each with the last messages that fit"] += 1
    counts["conversations"] += 1
    counts["conversations of several rows"] += len(parts) > 1
    for number, part in enumerate(parts):
        learnt = [weights[replies[mark].turn] if mark >= 0 else None for mark in part.replies]
        learnt[0] = None  # the first token of a row is no prediction
        if all(weight is None for weight in learnt):
            counts["rows without a token of the policy"] += max(part.replies[1:], default=-1) < 0
            continue
        counts["rows truncated"] += len(learnt) > len(learnt[:limit])
        learnt = learnt[:limit]
        if all(weight is None for weight in learnt):
            counts["rows dropped"] += 1
            continue
        ids = part.ids[:limit]
        counts["rows"] += 1
        counts["tokens"] += len(ids)
        counts["tokens with loss"] += sum(weight is not None for weight in learnt)
        yield {
            "conversation_id": item.id,
            "row": number,
            "rows": len(parts),
            "input_ids": list(ids),
            "labels": [-100 if w is None else i for i, w in zip(ids, learnt, strict=True)],
            "weights": [weight or 0.0 for weight in learnt],
        }


def _slid(reply: PromptedReply, number: int, chat: ChatTokens, day: str, limit: int) -> TokenRow:
    """Return the row of one reply with the system message and as many of the last messages before
    it as fit; with one of them if none does."""
    said = reply.messages
    head = said[:1] if said[0]["role"] == "system" and len(said) > 1 else ()
    starts = [i for i in range(len(head), len(said)) if said[i]["role"] != "tool"] or [len(head)]

    def row_from(start: int) -> TokenRow:
        (row,) = chat.token_rows([replace(reply, messages=(*head, *said[start:]))], day)
        return row

    def fits(start: int) -> bool:
        return len(row_from(start).ids) <= limit

    row = row_from(starts[bisect_left(starts, True, hi=len(starts) - 1, key=fits)])
    return TokenRow(row.ids, tuple(number if mark >= 0 else -1 for mark in row.replies))


def _pair_row(each: Pair, chat: ChatTokens, limit: int | None, counts: Counter[str]) -> Row:
    """Return the row of a pair; raise Unrenderable for one that cannot be learnt."""
    if not each.messages:
        raise Unrenderable("whose policy speaks before any message")
    prompt = chat.render_prompt(each.messages, each.item.day)
    ids = chat.encode(prompt)
    whole = [chat.reply_ids(prompt, ids, reply) for reply in (each.chosen, each.rejected)]
    if not all(whole):
        raise Unrenderable("with an empty reply that was cut")
    room = None if limit is None else limit - len(ids)
    if room is not None and room <= 0:
        raise Unrenderable("whose prompt fills a row")
    chosen, rejected = (reply[:room] for reply in whole)
    if chosen == rejected:
        raise Unrenderable("equal after truncation")
    counts["pairs truncated"] += [chosen, rejected] != whole
    counts["pairs"] += 1
    counts["tokens"] += len(ids) + len(chosen) + len(rejected)
    task = each.item.task
    return {"task": task, "prompt_ids": ids, "chosen_ids": chosen, "rejected_ids": rejected}


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
    from datasets import Dataset
    from datasets.utils.logging import disable_progress_bar

    disable_progress_bar()
    first = next(rows := iter(rows), None)
    if first is None:
        return 0
    with TemporaryDirectory() as cache:
        table = Dataset.from_generator(
            lambda: itertools.chain([first], rows), cache_dir=cache, fingerprint="rows"
        )
        table.save_to_disk(str(folder))
    return len(table)


def read_about(folder: Path) -> dict[str, Any]:
    """Return what `about.json` says of a checkpoint's rows."""
    about: dict[str, Any] = json.loads((folder / ROWS / ABOUT).read_bytes())
    return about


def row_length(row: Row) -> tuple[int, int]:
    """Return (tokens of a row's longest sequence, tokens with loss of the one with most); zeros of
    a row of your own trainer."""
    if "input_ids" in row:
        return len(row["input_ids"]), sum(label != -100 for label in row["labels"])
    sides = [row[name] for name in ("chosen_ids", "rejected_ids") if name in row]
    if "prompt_ids" in row:
        reply = max(map(len, sides))
        return len(row["prompt_ids"]) + reply, reply
    longest = max((len(ids) for side in sides for ids in side), default=0)
    return longest, longest


def preview_rows(rows: Sequence[Row], tokenizer: Any) -> Iterator[str]:
    """Yield lines that show three rows: of weighted ones, token by token, those of the highest,
    middle and lowest weight."""
    if rows and "weights" in rows[0]:
        rows = sorted(rows, key=_weight_of, reverse=True)
        rows = [rows[index] for index in sorted({0, len(rows) // 2, len(rows) - 1})]
    for row in rows[:3]:
        if "weights" in row:
            yield from _weighted_lines(row, tokenizer)
            continue
        yield f"question {row['task']}"
        if "prompt_ids" in row:
            for name, sign in (("prompt", "    "), ("chosen", "LOSS"), ("rejected", "LOSS")):
                ids = row[f"{name}_ids"]
                yield f"  {sign} {len(ids):5d}  {name:8s} {tokenizer.decode(ids)!r}"
            continue
        for name in ("chosen", "rejected"):
            for ids, marks in zip(row[f"{name}_ids"], row[f"{name}_turns"], strict=True):
                own = sum(mark >= 0 for mark in marks)
                yield f"  {name}: {len(ids)} tokens, {own} of the policy"


def mask_stretches(ids: Sequence[int], learnt: Sequence[bool]) -> Iterator[tuple[bool, list[int]]]:
    """Yield (whether it is learnt, ids) of a row's stretches of tokens."""
    marked = zip(learnt, ids, strict=True)
    for is_learnt, some in itertools.groupby(marked, key=lambda each: each[0]):
        yield is_learnt, [token for _, token in some]


def _weighted_lines(row: Row, tokenizer: Any) -> Iterator[str]:
    """Yield a row's stretches of context and of loss, then its tokens: `id:'text'`, and `*weight`
    of one with loss."""
    learnt = [label != -100 for label in row["labels"]]
    part = f", row {row['row'] + 1} of {row['rows']}" if row["rows"] > 1 else ""
    yield (
        f"{row['conversation_id']}{part}: weight {_weight_of(row):+.4f}, "
        f"{len(learnt)} tokens, {sum(learnt)} with loss"
    )
    for is_learnt, ids in mask_stretches(row["input_ids"], learnt):
        yield f"  {'LOSS' if is_learnt else '    '} {len(ids):5d}  {tokenizer.decode(ids)!r}"
    yield "  token by token (*weight of those with loss):"
    words = [
        f"{token}:{tokenizer.decode([token])!r}" + (f"*{weight:.4g}" if is_learnt else "")
        for token, weight, is_learnt in zip(row["input_ids"], row["weights"], learnt, strict=True)
    ]
    for start in range(0, len(words), TOKENS_A_LINE):
        yield "    " + " ".join(words[start : start + TOKENS_A_LINE])


def _weight_of(row: Row) -> float:
    """Return a row's weight: that of its first learnt token."""
    learnt = (w for w, label in zip(row["weights"], row["labels"], strict=True) if label != -100)
    return float(next(learnt))
