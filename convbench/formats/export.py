"""Write a run's conversations in the formats that trainers read, one file a split."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal

import orjson

from convbench.errors import RunError
from convbench.schema import Conversation, text_of
from convbench.schema.example import SPLITS, Split
from convbench.store import Run
from convbench.store.jsonl import disk_error
from convbench.views import messages

Target = Literal["trl", "openai", "sharegpt", "ms-swift"]
TARGETS: tuple[Target, ...] = ("trl", "openai", "sharegpt", "ms-swift")
WEIGHTED: tuple[Target, ...] = ("trl", "ms-swift")
"""Formats with a place for a weight of any size."""

Chat = list[dict[str, Any]]
"""Messages {role, content}, as the policy saw them."""


@dataclass(frozen=True)
class Plan:
    """How the conversations of a recipe are weighted; those not named are not written."""

    weights: Mapping[str, float] = field(default_factory=dict)
    """conversation_id to weight, written beside the messages."""
    repeats: Mapping[str, int] | None = None
    """conversation_id to how often it is written, in place of weights."""
    split: str = "train"
    """The split it concerns; other splits are written whole and unweighted."""


@dataclass(frozen=True)
class Exported:
    """What was written."""

    files: dict[Split, Path]
    """File by split."""
    rows: dict[str, int]
    """Rows by split."""
    failed: int
    """Failed conversations, left out."""
    left_out: int
    """Conversations of weight or count 0, or without a verdict, left out."""
    flagged: int = 0
    """Flagged conversations, left out."""


def export(
    run: Run,
    target: Target,
    folder: Path,
    plan: Plan | None = None,
    without: Collection[str] = (),
) -> Exported:
    """Write `SPLIT.jsonl` into a folder; failed conversations are left out, and those whose
    ids are in `without`.

    trl: {messages, weight?, reward-free metadata} for SFTTrainer; openai: {messages} of the
    fine-tuning API; sharegpt: {conversations: [{from, value}]}; ms-swift: {messages} with
    `loss_scale` on the assistant's messages. Raises RunError.
    """
    if plan and plan.repeats is None and target not in WEIGHTED:
        raise RunError(
            f"--to {target} has no place for weights; give --scale S to repeat whole conversations "
            f"by randomized rounding, or use --to {' or '.join(WEIGHTED)}"
        )
    rows: dict[str, int] = {}
    failed = left_out = flagged = 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".export-", dir=folder) as space, \
                ExitStack() as open_files:  # fmt: skip
            files: dict[str, BinaryIO] = {}
            for conversation in run.conversations():
                split = run.examples[conversation.example_id].split
                if conversation.conversation_id in without and conversation.failure is None:
                    flagged += 1
                    continue
                times = 0 if conversation.failure else _times(plan, split, conversation)
                failed += conversation.failure is not None
                left_out += times == 0 and conversation.failure is None
                if times and split not in files:
                    file = (Path(space) / f"{split}.jsonl").open("wb")
                    files[split] = open_files.enter_context(file)
                if times:
                    line = orjson.dumps(
                        _row(run, conversation, target, _weight(plan, split, conversation))
                    )
                    files[split].write((line + b"\n") * times)
                    rows[split] = rows.get(split, 0) + times
            open_files.close()
            paths = {name: folder / f"{name}.jsonl" for name in SPLITS if name in files}
            for name, path in paths.items():
                (Path(space) / f"{name}.jsonl").replace(path)
    except OSError as error:
        raise disk_error(folder, error) from None
    if not rows:
        raise RunError(
            f"{run.path}: found no conversation to export ({failed} failed, {flagged} flagged)"
        )
    return Exported(paths, rows, failed, left_out, flagged)


def _times(plan: Plan | None, split: str, conversation: Conversation) -> int:
    """How often a conversation is written."""
    if plan is None or split != plan.split:
        return 1
    if plan.repeats is not None:
        return plan.repeats.get(conversation.conversation_id, 0)
    return int(plan.weights.get(conversation.conversation_id, 0.0) != 0.0)


def _weight(plan: Plan | None, split: str, conversation: Conversation) -> float | None:
    if plan is None or split != plan.split or plan.repeats is not None:
        return None
    return plan.weights[conversation.conversation_id]


def _row(
    run: Run, conversation: Conversation, target: Target, weight: float | None
) -> dict[str, Any]:
    protocol = run.manifest.protocol
    chat: Chat = [
        {"role": message["role"], "content": text_of(message["content"])}
        for message in messages(protocol, conversation, protocol.policy)
    ]
    while chat and chat[-1]["role"] != "assistant":  # what nobody answered teaches nothing
        chat.pop()
    return _WRITERS[target](chat, weight)


def _trl(chat: Chat, weight: float | None) -> dict[str, Any]:
    return {"messages": chat} if weight is None else {"messages": chat, "weight": weight}


def _openai(chat: Chat, weight: float | None) -> dict[str, Any]:
    return {"messages": chat}


def _sharegpt(chat: Chat, weight: float | None) -> dict[str, Any]:
    names = {"system": "system", "user": "human", "assistant": "gpt"}
    return {"conversations": [{"from": names[m["role"]], "value": m["content"]} for m in chat]}


def _ms_swift(chat: Chat, weight: float | None) -> dict[str, Any]:
    """`loss_scale` multiplies the loss of a message's tokens (ms-swift, custom datasets)."""
    if weight is None:
        return {"messages": chat}
    scaled = [{**m, "loss_scale": weight} if m["role"] == "assistant" else m for m in chat]
    return {"messages": scaled}


_WRITERS: dict[Target, Callable[[Chat, float | None], dict[str, Any]]] = {
    "trl": _trl,
    "openai": _openai,
    "sharegpt": _sharegpt,
    "ms-swift": _ms_swift,
}
